//! P-vale and P-pipe: frames through a switch and through a pipe, between processes of this host.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use packet_switch::daemon::{Config, Daemon, DaemonError};
use results::{Estimate, LawCheck, PaperFigure, Results, Summary};
use serde_json::Value;
use sys::private::Scratch;
use sys::process::{Ending, Owned};
use units::show_bit_rate;

use super::catalogue::Entry;
use super::recipes::undecided;
use super::{ReproduceArgs, local, publish};
use crate::VerbResult;
use crate::exit::VerbError;
use crate::progress::Progress;
use crate::runner::Ended;
use crate::signals;

/// What is sent: bytes of a frame, the preamble and the checksum not counted, and whether only slots are
/// handed over, as the paper's pkt-gen does: its frames are written in the first round and read by
/// nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    size: &'static str,
    slots_only: bool,
}

/// The shortest frames and full ones as the paper has them, and the shortest written and read each.
const LOADS: [Load; 3] = [
    Load { size: "60", slots_only: true },
    Load { size: "1500", slots_only: true },
    Load { size: "60", slots_only: false },
];

impl Load {
    fn name(self) -> String {
        let how = if self.slots_only { "slots only, as pkt-gen" } else { "each written and read" };
        format!("{}-byte frames, {how}", self.size)
    }
}

/// The paper's figures for the shortest, frames/s (ptnet 2016, section II).
const PAPER_VALE_PKTS_PER_S: f64 = 20e6;
const PAPER_PIPE_PKTS_PER_S: f64 = 100e6;

/// Longer frames that go at least so fast against the shortest show that nothing copies them.
const UNCOPIED_MIN: f64 = 0.8;

/// How long the receiver may take to be there.
const SETTLE: Duration = Duration::from_millis(200);

/// How long the receiver may take to end once nothing comes any more.
const LINGER_MAX: Duration = Duration::from_secs(30);

/// Most that is kept of what the receiver says, bytes.
const SAID_BYTES_MAX: usize = 1 << 20;

/// What came in, one repeat after the other.
#[derive(Debug, Default)]
struct Measured {
    pkts_per_s: Vec<f64>,
    bits_per_s: Vec<f64>,
}

/// Runs P-vale or P-pipe.
pub(super) fn run(entry: &'static Entry, args: &ReproduceArgs, json: bool) -> VerbResult {
    if args.host.is_some() {
        return Err(VerbError::usage(format!(
            "{} is about this host and takes no other",
            entry.id
        )));
    }
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let is_vale = entry.id == "P-vale";
    let mut measured: [Measured; 3] = Default::default();
    let mut progress = Progress::new(LOADS.len() * args.repeats as usize);
    let mut ended = Ended::Complete;
    'repeats: for repeat in 0..args.repeats {
        for (load, into) in LOADS.into_iter().zip(&mut measured) {
            progress.begin(&format!("{}, {}, repeat {repeat}", entry.id, load.name()));
            let done = Bed::up().and_then(|bed| bed.stream(is_vale, load, args.duration));
            if let Some(number) = signals::caught() {
                ended = Ended::Interrupted(number);
                break 'repeats;
            }
            let (pkts_per_s, bits_per_s) = done?;
            into.pkts_per_s.push(pkts_per_s);
            into.bits_per_s.push(bits_per_s);
        }
    }
    drop(progress);
    let judge = |results: &mut Results| {
        results.summaries.extend(summaries(entry.id, &measured));
        judged(entry, is_vale, &measured)
    };
    publish(entry, local::document(), judge, ended, args, json)
}

/// A switch in this process, gone with the value.
struct Bed {
    socket: PathBuf,
    _scratch: Scratch,
    should_stop: Arc<AtomicBool>,
    daemon: Option<JoinHandle<Result<(), DaemonError>>>,
    /// Where the sender runs, and the switch with it; and where the receiver does.
    cores: (u32, u32),
}

impl Bed {
    fn up() -> Result<Self, VerbError> {
        let usable = sys::thread::usable_cores().map_err(|error| VerbError::from_error(&error))?;
        let (first, last) = (usable.first().copied(), usable.last().copied());
        let cores = (first.unwrap_or(0), last.unwrap_or(0));
        // With a third core the switch has one to itself.
        let own = if usable.len() > 2 { usable[1] } else { cores.0 };
        let scratch = Scratch::new("packets").map_err(|error| VerbError::from_error(&error))?;
        let socket = scratch.path().join("switch.sock");
        let config = Config { cores: vec![own], ..Config::new(socket.clone()) };
        let daemon = Daemon::bind(config).map_err(|error| VerbError::from_error(&error))?;
        let should_stop = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&should_stop);
        let serve = move || daemon.run(&mut |_| {}, &|| stop.load(Ordering::Relaxed));
        let daemon = thread::Builder::new().name("switch".to_owned()).spawn(serve)?;
        Ok(Self { socket, _scratch: scratch, should_stop, daemon: Some(daemon), cores })
    }

    /// Frames/s and bit/s that came in.
    fn stream(
        &self,
        through_switch: bool,
        load: Load,
        duration: Duration,
    ) -> Result<(f64, f64), VerbError> {
        let (from, to) = if through_switch { ("vale0:a", "vale0:b") } else { ("p{0", "p}0") };
        let (near, far) = (self.cores.0.to_string(), self.cores.1.to_string());
        let seconds = duration.as_secs_f64().to_string();
        let mut sink =
            vec!["pkt", "sink", to, "--core", &far, "--quiet", "1s", "--linger", "100us"];
        let mut generate = vec!["pkt", "gen", from, "--core", &near, "--size", load.size];
        generate.extend(["--duration", &seconds, "--dst", "02:00:00:00:00:02"]);
        if load.slots_only {
            sink.push("--slots-only");
            generate.push("--slots-only");
        }
        if through_switch {
            // On a core shared with the switch the sender must not poll.
            sink.extend(["--announce", "02:00:00:00:00:02"]);
            generate.extend(["--linger", "0s"]);
        } else {
            self.program(&["port", "add", "p", "--pipes", "1"])?.output()?;
            generate.extend(["--linger", "100us"]);
        }
        let sink = Owned::start(&mut self.program(&sink)?, Ending::KILL)?;
        let sink = sink.capture(SAID_BYTES_MAX)?;
        thread::sleep(SETTLE);
        let sent = self.program(&generate)?.output()?;
        if !sent.status.success() {
            let why = String::from_utf8_lossy(&sent.stderr).trim().to_owned();
            return Err(VerbError::failed(format!("sending frames: {why}")));
        }
        let value = told(sink, LINGER_MAX)?;
        let figure = |name: &str| {
            let missing = || VerbError::failed(format!("`pkt sink --json` tells no {name}"));
            value[name].as_f64().ok_or_else(missing)
        };
        let bits_per_s = 8.0 * figure("bytes")? / figure("elapsed_s")?;
        Ok((figure("frames_per_s")?, bits_per_s))
    }

    fn program(&self, arguments: &[&str]) -> Result<Command, VerbError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).arg("--socket").arg(&self.socket).arg("--json");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.should_stop.store(true, Ordering::Relaxed);
        if let Some(daemon) = self.daemon.take() {
            // How it ended no longer matters; a panic there has been printed.
            daemon.join().ok();
        }
    }
}

/// The JSON that a child prints before it ends by itself.
fn told(child: Owned, limit: Duration) -> Result<Value, VerbError> {
    let ended = child.ended_within(limit)?;
    serde_json::from_slice(&ended.stdout).map_err(|error| {
        VerbError::failed(format!("`pkt sink --json`: {error}: {}", ended.last_line()))
    })
}

fn summaries(experiment: &str, measured: &[Measured; 3]) -> Vec<Summary> {
    let of = |load: Load, figure: &str, values: &[f64]| {
        Some(Summary {
            experiment: format!("{experiment}, {}", load.name()),
            varied: Default::default(),
            figure: figure.to_owned(),
            estimate: Estimate::of(values)?,
        })
    };
    let all = LOADS.into_iter().zip(measured);
    all.flat_map(|(load, one)| {
        let rates = of(load, "received_pkts_per_s", &one.pkts_per_s);
        rates.into_iter().chain(of(load, "received_bits_per_s", &one.bits_per_s))
    })
    .collect()
}

fn show_mpkts(value: f64) -> String {
    format!("{:.1} Mpkt/s", value / 1e6)
}

fn judged(entry: &Entry, is_vale: bool, measured: &[Measured; 3]) -> (Vec<PaperFigure>, LawCheck) {
    let row = |name: String, paper: &str, values: &[f64], show: fn(f64) -> String| {
        let here = Estimate::of(values).map(|one| {
            let (low, high) = (show(one.low), show(one.high));
            format!("{} ({low} .. {high}, n={})", show(one.median), one.count)
        });
        PaperFigure { name, paper: paper.to_owned(), here }
    };
    let mut figures = Vec::new();
    for (load, one) in LOADS.into_iter().zip(measured) {
        let paper = match (load, is_vale) {
            (Load { size: "60", slots_only: true }, true) => "up to 20 Mpkt/s",
            (Load { size: "60", slots_only: true }, false) => "over 100 Mpkt/s",
            _ => "-",
        };
        figures.push(row(load.name(), paper, &one.pkts_per_s, show_mpkts));
        figures.push(row(format!("{}, payload", load.name()), "-", &one.bits_per_s, show_bit_rate));
    }
    let [short, long, touched] = measured.each_ref().map(|one| Estimate::of(&one.pkts_per_s));
    let (Some(short), Some(long), Some(touched)) = (short, long, touched) else {
        return (figures, undecided(entry.law, "it was ended before all was measured"));
    };
    let told = format!(
        "{} of 60 bytes and {} of 1500 (slots only; {} of 60 bytes written and read)",
        show_mpkts(short.median),
        show_mpkts(long.median),
        show_mpkts(touched.median)
    );
    let (holds, judged) = if is_vale {
        let share = short.median / PAPER_VALE_PKTS_PER_S;
        (share >= 1.0, format!("{told}: {share:.2} times the paper's 20 Mpkt/s"))
    } else {
        let kept = long.median / short.median;
        let share = short.median / PAPER_PIPE_PKTS_PER_S;
        let text =
            format!("{told}: {kept:.2} times as many; {share:.2} times the paper's 100 Mpkt/s");
        (kept >= UNCOPIED_MIN, text)
    };
    (figures, LawCheck { law: entry.law.to_owned(), holds: Some(holds), judged })
}
