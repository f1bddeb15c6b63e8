//! Moves the interrupts or threads that receive an interface's packets to one core, for the
//! duration of one test.
//!
//! Interrupts are moved through `/proc/irq/N/smp_affinity_list`, the kernel threads of threaded
//! NAPI through their affinity. Each end does so only when the test requests it, a server only if
//! its owner has allowed it, and both restore the previous cores when the test is over, even if
//! they are killed. Each interrupt and thread has one owner at a time ([`lease`]): a second test
//! waits a moment and is then refused.

mod lease;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use results::{End, EndReport, Finding, Nic, SettingChange};
use settings::Key;
use sys::guard::{Before, Guard};
use thiserror::Error;

use lease::{InterruptLease, Source, What};

/// Why nothing was moved; what had already been moved is restored.
#[derive(Debug, Error)]
pub enum MoveError {
    /// The interface has no interrupt and no NAPI thread that can be moved.
    #[error("{0} has no interrupt and no NAPI thread that can be seen from here")]
    Nothing(String),
    /// No known interface leads to the address.
    #[error("no interface leads to {0}")]
    NoInterface(IpAddr),
    /// The kernel refuses the change.
    #[error("{what} cannot be moved to core {core}: {why}")]
    Refused {
        /// The interrupt or thread: `irq 42`, `napi/eth0-8193`.
        what: String,
        /// The core it should have moved to.
        core: u32,
        /// The kernel's reason.
        why: String,
    },
    /// Another test has moved it.
    #[error(
        "{0} is in use by another test that moves interrupts; try again when that test has ended"
    )]
    Busy(String),
    /// The record of the previous cores cannot be read or written.
    #[error("nothing is moved: {path}: {why}")]
    Record {
        /// The directory or file.
        path: String,
        /// The error of the system call.
        why: String,
    },
    /// The guard process could not be started, so nothing was changed.
    #[error(transparent)]
    Guard(#[from] sys::SyscallError),
}

/// Moved interrupts or threads; dropping this restores them.
#[derive(Debug)]
pub(crate) struct Moved {
    guard: Guard,
    interface: String,
    /// What was moved, with the cores before and after.
    pub(crate) changes: Vec<SettingChange>,
}

impl Moved {
    /// Restores everything and reports it: each change as a record and as a finding for people, and
    /// a failure to restore as one more finding.
    pub(crate) fn undo(self, report: &mut EndReport, end: End) {
        let mut note = |code: &str, text| {
            report.findings.push(Finding { end: Some(end), code: code.to_owned(), text });
        };
        for change in &self.changes {
            note("interrupt-moved", told(change, &self.interface));
        }
        if let Err(error) = self.guard.undo() {
            note("interrupt-stays", format!("not everything was restored: {error}"));
        }
        report.changes.extend(self.changes);
    }
}

/// The text of the finding.
fn told(change: &SettingChange, interface: &str) -> String {
    let source = change.key.parse::<Key>().ok().and_then(|key| key.packet_source());
    format!(
        "{} of {interface} was on cores {} and ran on core {} for this test",
        source.as_deref().unwrap_or(&change.key),
        change.from.as_deref().unwrap_or("?"),
        change.to
    )
}

/// Moves everything that receives packets of the interface toward `address` to `core`.
///
/// # Errors
/// [`MoveError`]; in that case nothing is moved.
pub(crate) fn move_to(core: u32, address: IpAddr, end: End) -> Result<Moved, MoveError> {
    let interface = topology::interface_toward(address).ok_or(MoveError::NoInterface(address))?;
    let machine = topology::machine();
    let sources = machine.nic(&interface).map(sources_of).unwrap_or_default();
    if sources.is_empty() {
        return Err(MoveError::Nothing(interface));
    }
    move_all(&lease::directory()?, sources, &interface, core, end)
}

/// Restores what a test left behind that was killed together with its guard, which otherwise
/// restores it. Returns one line for each thing restored. To be called at program start, before
/// anything is moved.
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
    // Everybody takes several leases in the same order.
    sources.sort_by_key(Source::file_name);
    let mut lease = InterruptLease::take(directory, sources, core)?;
    let before = Before {
        files: std::mem::take(&mut lease.files),
        threads: std::mem::take(&mut lease.threads),
        emptied: std::mem::take(&mut lease.records),
    };
    // Start the guard first: from here on everything is restored, whatever happens.
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

/// The kernel threads if NAPI is threaded, otherwise the receive interrupts.
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
