//! A lab that is up for as long as a value lives, and no longer than its process.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use results::DeviceCounters;
use sys::process::Owned;
use topology::InterfaceCounters;

use crate::file::parse_lab;
use crate::lab::find_plan;
use crate::plan::LabPlan;
use crate::{Arrival, Lab, LabError, Program};

/// How often it is looked whether a server listens.
const LISTEN_LOOK_EVERY: Duration = Duration::from_millis(10);

/// A lab of this process. One that it brought up goes with the value, and with the process, however that
/// ends; one that was up before stays.
#[derive(Debug)]
pub struct ScopedLab {
    lab: Lab,
    clearstream: PathBuf,
    is_ours: bool,
}

impl ScopedLab {
    /// Brings a lab up, unless it is. `clearstream` is the program that runs its processes.
    ///
    /// # Errors
    /// As [`Lab::up`].
    pub fn up(plan: &LabPlan, clearstream: impl Into<PathBuf>) -> Result<Self, LabError> {
        let clearstream = clearstream.into();
        let program = Program::new(&clearstream, &["lab", "internal"]);
        let owner = i32::try_from(std::process::id()).ok();
        let (lab, arrival) = Lab::up(plan, &program, owner)?;
        Ok(Self { lab, clearstream, is_ours: arrival == Arrival::New })
    }

    /// The same from the name of a built-in lab or of a lab file.
    ///
    /// # Errors
    /// There is no such lab; as [`Lab::up`].
    pub fn named(name_or_file: &str, clearstream: impl Into<PathBuf>) -> Result<Self, LabError> {
        Self::up(&find_plan(name_or_file)?, clearstream)
    }

    /// The same from the text of a lab file.
    ///
    /// # Errors
    /// It is wrong; as [`Lab::up`].
    pub fn inline(text: &str, clearstream: impl Into<PathBuf>) -> Result<Self, LabError> {
        Self::up(&parse_lab("inline", text)?, clearstream)
    }

    /// The lab itself.
    #[must_use]
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Name of the lab.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lab.plan().name
    }

    /// The name of its host number `index`, in the order of the lab file.
    #[must_use]
    pub fn host(&self, index: usize) -> Option<&str> {
        self.lab.plan().hosts.get(index).map(|host| host.name.as_str())
    }

    /// A command that runs what is appended to it on a host: a program and its arguments.
    #[must_use]
    pub fn command(&self, host: &str) -> Command {
        let mut command = Command::new(&self.clearstream);
        command.args(["lab", "exec", self.name(), host, "--"]);
        command
    }

    /// A command that runs the program `clearstream` on a host, with what is appended.
    #[must_use]
    pub fn clearstream(&self, host: &str) -> Command {
        let mut command = self.command(host);
        command.arg(&self.clearstream);
        command
    }

    /// The counters of a host's interfaces, read in its network namespace and without a program there.
    ///
    /// # Errors
    /// No such host, or the lab has ended.
    pub fn devices(&self, host: &str) -> Result<Vec<DeviceCounters>, LabError> {
        let devices = InterfaceCounters::read_from(&self.lab.host_files(host)?);
        // There is always `lo`.
        if devices.is_empty() { Err(self.gone()) } else { Ok(devices) }
    }

    /// Whether anybody listens on a TCP port of a host.
    ///
    /// # Errors
    /// No such host, or the lab has ended.
    pub fn has_listener(&self, host: &str, port: u16) -> Result<bool, LabError> {
        let proc = self.lab.host_files(host)?.proc;
        let read = |table| std::fs::read_to_string(proc.join("net").join(table));
        let first = read("tcp").map_err(|_unreadable| self.gone())?;
        // A kernel without IPv6 has no second table.
        let second = read("tcp6").unwrap_or_default();
        Ok(first.lines().chain(second.lines()).any(|line| listens(line, port)))
    }

    /// Waits until somebody listens on a TCP port of a host: `server`, which was started there.
    ///
    /// # Errors
    /// It ended, or nothing listens after `limit`; or the lab has ended.
    pub fn wait_for_listener(
        &self,
        (host, port): (&str, u16),
        server: &mut Owned,
        limit: Duration,
    ) -> Result<(), LabError> {
        let until = Instant::now() + limit;
        let refused = |why: String| LabError::NoListener { host: host.to_owned(), port, why };
        loop {
            if self.has_listener(host, port)? {
                return Ok(());
            }
            match server.wait_within(LISTEN_LOOK_EVERY) {
                Ok(None) if Instant::now() < until => {}
                Ok(None) => return Err(refused(format!("not within {} s", limit.as_secs_f64()))),
                Ok(Some(status)) => return Err(refused(format!("the server ended: {status}"))),
                Err(error) => return Err(refused(error.to_string())),
            }
        }
    }

    fn gone(&self) -> LabError {
        LabError::NotUp { name: self.name().to_owned(), instead: ": it has ended".to_owned() }
    }
}

impl Drop for ScopedLab {
    fn drop(&mut self) {
        if self.is_ours {
            // Its anchor notices the end of this process in any case.
            Lab::down(self.name()).ok();
        }
    }
}

/// Whether a line of `/proc/net/tcp` is a listening socket of this port: local address in
/// hexadecimal in the second field, state 0A in the fourth (`proc_net(5)`).
fn listens(line: &str, port: u16) -> bool {
    let fields: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
    matches!(fields[..], [_, local, _, "0A"] if local.ends_with(&format!(":{port:04X}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_told_from_a_connection_of_the_same_port() {
        let line = |local: &str, state: &str| format!("0: {local} 00000000:0000 {state} 0 0");
        assert!(listens(&line("0100007F:1451", "0A"), 5201));
        assert!(!listens(&line("0100007F:1451", "01"), 5201));
        assert!(!listens(&line("0100007F:1452", "0A"), 5201));
        assert!(!listens("  sl  local_address rem_address   st", 5201));
        assert!(!listens("", 5201));
    }
}
