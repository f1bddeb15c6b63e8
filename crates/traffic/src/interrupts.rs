//! Moving what takes an interface's packets in, for the length of one test.
//!
//! Interrupts through `/proc/irq/N/smp_affinity_list`, the kernel threads of threaded NAPI through
//! their affinity. Both ends do it only when the test asks for it, a server only when its owner has
//! allowed it, and both put it back when the test is over, also when they are killed. Each interrupt
//! and thread has one owner at a time ([`lease`]): a second test waits a moment and is refused.

mod lease;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use results::{End, EndReport, Finding, Nic, SettingChange};
use settings::Key;
use sys::guard::{Before, Guard};
use thiserror::Error;

use lease::{InterruptLease, Source, What};

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
    /// Another test has it.
    #[error(
        "{0} is in use by another test that moves interrupts; try again when that test has ended"
    )]
    Busy(String),
    /// Who has moved what cannot be recorded.
    #[error("nothing is moved: {path}: {why}")]
    Record {
        /// The directory or file.
        path: String,
        /// Why.
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
    interface: String,
    /// What was moved from where to where.
    pub(crate) changes: Vec<SettingChange>,
}

impl Moved {
    /// Puts everything back and accounts for it: each change as a record, and as a finding for people;
    /// what would not go back is one more finding.
    pub(crate) fn undo(self, report: &mut EndReport, end: End) {
        let mut note = |code: &str, text| {
            report.findings.push(Finding { end: Some(end), code: code.to_owned(), text });
        };
        for change in &self.changes {
            note("interrupt-moved", told(change, &self.interface));
        }
        if let Err(error) = self.guard.undo() {
            note("interrupt-stays", format!("not everything went back: {error}"));
        }
        report.changes.extend(self.changes);
    }
}

/// The line for people.
fn told(change: &SettingChange, interface: &str) -> String {
    let source = change.key.parse::<Key>().ok().and_then(|key| key.packet_source());
    format!(
        "{} of {interface} was on cores {} and ran on core {} for this test",
        source.as_deref().unwrap_or(&change.key),
        change.from.as_deref().unwrap_or("?"),
        change.to
    )
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
    move_all(&lease::directory()?, sources, &interface, core, end)
}

/// Puts back what a test has moved that was killed together with its guard, which is what otherwise
/// does; a line for each. For a start, before anything is moved.
///
/// # Errors
/// The records cannot be read.
pub fn put_back_what_was_left() -> Result<Vec<String>, MoveError> {
    lease::put_back_all(&lease::directory()?)
}

fn move_all(
    directory: &Path,
    mut sources: Vec<Source>,
    interface: &str,
    core: u32,
    end: End,
) -> Result<Moved, MoveError> {
    // Whoever wants several takes them in the same order.
    sources.sort_by_key(Source::file_name);
    let mut lease = InterruptLease::take(directory, sources, core)?;
    let before = Before {
        files: std::mem::take(&mut lease.files),
        threads: std::mem::take(&mut lease.threads),
        emptied: std::mem::take(&mut lease.records),
    };
    // The guard first: from here on everything goes back, whatever happens.
    let guard = match Guard::start(&before) {
        Ok(guard) => guard,
        Err(error) => {
            InterruptLease { records: before.emptied, ..lease }.forget();
            return Err(error.into());
        }
    };
    let mut changes = Vec::new();
    for (source, from) in lease.sources {
        source.put_on(core).map_err(|error| source.refused(core, &error))?;
        changes.push(SettingChange {
            end,
            key: source.key.to_string(),
            from: Some(from),
            to: core.to_string(),
            why: String::new(),
            source: String::new(),
            predicted_bits_per_s: None,
        });
    }
    Ok(Moved { guard, interface: interface.to_owned(), changes })
}

/// The kernel threads where NAPI has them, the receive interrupts otherwise.
fn sources_of(nic: &Nic) -> Vec<Source> {
    let threads = nic.napi_threads.iter().filter_map(|thread| {
        let pid = i32::try_from(thread.pid).ok()?;
        let what = What::Thread { pid, began: lease::thread_began(pid)? };
        Some(Source { key: Key::of_packet_source(&thread.name)?, what })
    });
    let threads: Vec<Source> = threads.collect();
    if !threads.is_empty() {
        return threads;
    }
    nic.interrupts
        .iter()
        .filter(|interrupt| interrupt.serves_receive || interrupt.queue.is_some())
        .map(|interrupt| {
            let path = PathBuf::from(format!("/proc/irq/{}/smp_affinity_list", interrupt.irq));
            let key = Key::InterruptAffinity(interrupt.irq);
            Source { key, what: What::Interrupt { path } }
        })
        .filter(|source| fs::exists(source.path()).unwrap_or(false))
        .collect()
}

#[cfg(test)]
mod tests;
