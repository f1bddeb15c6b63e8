//! Moving what takes an interface's packets in, for the length of one test.
//!
//! Interrupts through `/proc/irq/N/smp_affinity_list`, the kernel threads of threaded NAPI through
//! their affinity. Both ends do it only when the test asks for it, a server only when its owner has
//! allowed it, and both put it back when the test is over, also when they are killed.

use std::fs::{self, File};
use std::net::IpAddr;

use results::{End, Finding, Nic};
use sys::guard::{Before, Guard};
use thiserror::Error;

/// Why nothing was moved; whatever was is back.
#[derive(Debug, Error)]
pub enum MoveError {
    /// There is nothing to move.
    #[error("{0} has no interrupt and no NAPI thread that can be seen from here")]
    Nothing(String),
    /// The path leaves through no known interface.
    #[error("no interface leads to {0}")]
    NoInterface(IpAddr),
    /// The kernel refuses.
    #[error("{what} cannot be moved to core {core}: {why}")]
    Refused {
        /// `irq 42`, `napi/eth0-8193`.
        what: String,
        /// Where it should have gone.
        core: u32,
        /// The system's reason.
        why: String,
    },
    /// No guard, no change.
    #[error(transparent)]
    Guard(#[from] sys::SyscallError),
}

/// Moved interrupts; they go back when this does.
#[derive(Debug)]
pub(crate) struct Moved {
    guard: Guard,
    /// What was moved from where to where, a line each.
    pub(crate) findings: Vec<Finding>,
}

impl Moved {
    /// Puts everything back; what would not go is one more finding.
    pub(crate) fn undo(self, end: End) -> Vec<Finding> {
        let mut findings = self.findings;
        if let Err(error) = self.guard.undo() {
            let text = format!("not everything went back: {error}");
            findings.push(Finding { end: Some(end), code: "interrupt-stays".to_owned(), text });
        }
        findings
    }
}

/// One thing that takes packets in.
struct Source {
    name: String,
    from: String,
    kind: Kind,
}

enum Kind {
    Interrupt { path: String, text: String },
    Thread { pid: i32, cores: Vec<u32> },
}

/// Has everything that takes in packets of the interface toward `address` run on `core`.
///
/// # Errors
/// [`MoveError`]; nothing is moved then.
pub(crate) fn move_to(core: u32, address: IpAddr, end: End) -> Result<Moved, MoveError> {
    let interface = topology::interface_toward(address).ok_or(MoveError::NoInterface(address))?;
    let machine = topology::machine();
    let sources = machine.nic(&interface).map(sources_of).unwrap_or_default();
    if sources.is_empty() {
        return Err(MoveError::Nothing(interface));
    }
    let mut before = Before::default();
    for source in &sources {
        match &source.kind {
            Kind::Interrupt { path, text } => {
                let file = File::options().write(true).open(path);
                let file = file.map_err(|error| refused(source, core, &error))?;
                before.files.push((file, text.clone().into_bytes()));
            }
            Kind::Thread { pid, cores } => before.threads.push((*pid, cores.clone())),
        }
    }
    // The guard first: from here on everything goes back, whatever happens.
    let guard = Guard::start(&before)?;
    let mut findings = Vec::new();
    for source in &sources {
        match &source.kind {
            Kind::Interrupt { path, .. } => {
                fs::write(path, core.to_string()).map_err(|error| refused(source, core, &error))?
            }
            Kind::Thread { pid, .. } => sys::thread::pin_thread(*pid, &[core])
                .map_err(|error| refused(source, core, &error.source))?,
        }
        let text = format!(
            "{} of {interface} was on cores {} and ran on core {core} for this test",
            source.name, source.from
        );
        findings.push(Finding { end: Some(end), code: "interrupt-moved".to_owned(), text });
    }
    Ok(Moved { guard, findings })
}

fn refused(source: &Source, core: u32, error: &std::io::Error) -> MoveError {
    MoveError::Refused { what: source.name.clone(), core, why: error.to_string() }
}

/// The kernel threads where NAPI has them, the receive interrupts otherwise.
fn sources_of(nic: &Nic) -> Vec<Source> {
    let threads = nic.napi_threads.iter().filter_map(|thread| {
        let pid = i32::try_from(thread.pid).ok()?;
        let cores = thread.allowed_cores.clone();
        let from = list_of(&cores);
        let is_known = !cores.is_empty();
        let kind = Kind::Thread { pid, cores };
        is_known.then(|| Source { name: thread.name.clone(), from, kind })
    });
    let threads: Vec<Source> = threads.collect();
    if !threads.is_empty() {
        return threads;
    }
    nic.interrupts
        .iter()
        .filter(|interrupt| interrupt.serves_receive || interrupt.queue.is_some())
        .filter_map(|interrupt| {
            let path = format!("/proc/irq/{}/smp_affinity_list", interrupt.irq);
            let text = fs::read_to_string(&path).ok()?;
            let from = text.trim().to_owned();
            let name = format!("irq {}", interrupt.irq);
            Some(Source { name, from, kind: Kind::Interrupt { path, text } })
        })
        .collect()
}

fn list_of(cores: &[u32]) -> String {
    cores.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
