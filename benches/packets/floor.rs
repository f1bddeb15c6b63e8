//! The bare wake-up: eventfds and nothing else, between two processes or through a third. What any
//! exchange between sleepers costs on this machine, whatever they exchange.

use std::io::{stderr, stdin, stdout};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use sys::process::Owned;

use crate::comparison::Figures;
use crate::host::{BenchError, start};

/// First argument that turns this program into a far end: then its core, and `echo` or `relay`. Its
/// standard streams are the bells: it hears the first and rings the others in turn.
const WORD: &str = "--bells";

/// Runs a far end when the arguments ask for it.
pub(crate) fn intercept(arguments: &[String]) -> Option<ExitCode> {
    let [_, word, core, role] = arguments else { return None };
    if word != WORD {
        return None;
    }
    let ended = answer(core.parse().ok()?, role == "relay");
    Some(if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn answer(core: u32, relay: bool) -> rustix::io::Result<()> {
    // Wherever it runs then, the figure says so.
    sys::thread::pin_current(&[core]).ok();
    loop {
        rustix::io::read(stdin(), &mut [0; 8])?;
        rustix::io::write(stdout(), &1_u64.to_ne_bytes())?;
        if relay {
            rustix::io::read(stdin(), &mut [0; 8])?;
            rustix::io::write(stderr(), &1_u64.to_ne_bytes())?;
        }
    }
}

/// Median round trip from core 0 to a process on core `far`, through one on core 0 if `relayed`.
pub(crate) fn run(far: u32, relayed: bool, length: Duration) -> Result<Figures, BenchError> {
    let bell = || eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from);
    let (near_bell, far_bell, relay_bell) = (bell()?, bell()?, bell()?);
    let rung_first = if relayed { &relay_bell } else { &far_bell };
    let _echo = {
        let rings = if relayed { &relay_bell } else { &near_bell };
        start_end(far, "echo", &far_bell, rings, &near_bell)?
    };
    let _relay = if relayed {
        Some(start_end(0, "relay", &relay_bell, &far_bell, &near_bell)?)
    } else {
        None
    };
    let pinging = || -> Result<f64, BenchError> {
        sys::thread::pin_current(&[0])
            .map_err(|error| BenchError::Failed(format!("core 0: {error}")))?;
        let (until, mut round_trips) = (Instant::now() + length, Vec::new());
        while Instant::now() < until {
            let began = Instant::now();
            rustix::io::write(rung_first, &1_u64.to_ne_bytes()).map_err(std::io::Error::from)?;
            rustix::io::read(&near_bell, &mut [0; 8]).map_err(std::io::Error::from)?;
            round_trips.push(began.elapsed().as_secs_f64());
        }
        stats::median(&round_trips).ok_or_else(|| BenchError::Failed("no round trip".to_owned()))
    };
    // In a thread of its own, so that only it is bound to a core.
    let median = std::thread::scope(|scope| scope.spawn(pinging).join());
    let median = median.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok(Figures::from([("p50_s", median)]))
}

fn start_end(
    core: u32,
    role: &str,
    hears: &OwnedFd,
    rings: &OwnedFd,
    also_rings: &OwnedFd,
) -> Result<Owned, BenchError> {
    let bell = |fd: &OwnedFd| -> std::io::Result<Stdio> { Ok(fd.try_clone()?.into()) };
    let mut command = Command::new(std::env::current_exe()?);
    command.args([WORD, &core.to_string(), role]);
    command.stdin(bell(hears)?).stdout(bell(rings)?).stderr(bell(also_rings)?);
    start(&mut command)
}
