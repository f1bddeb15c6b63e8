//! A lab of this process, with a test server on its second host and clients on its first.

use std::cell::OnceCell;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::ScopedLab;
use results::DeviceCounters;
use sys::process::{Ending, Owned};

use crate::exit::VerbError;
use crate::signals;
use crate::tester::Tester;

/// Longest time a lab's server may take to listen.
const LISTEN_MAX: Duration = Duration::from_secs(20);
/// Kept length of the server's output, bytes: enough for the line it ends with.
const SAID_BYTES_MAX: usize = 16 << 10;

/// A lab of at least two hosts, up for as long as this value lives.
#[derive(Debug)]
pub(crate) struct TestBed {
    // Declared before the lab, so dropped first.
    server: OnceCell<Owned>,
    bed: ScopedLab,
    near: String,
    far: String,
}

impl TestBed {
    /// Brings a built-in lab up, unless it already is. From here on a signal that asks this program to end
    /// only sets a flag, so that dropping this value takes the lab down.
    ///
    /// # Errors
    /// The lab has fewer than two hosts, or cannot be brought up here.
    pub(crate) fn up(name: &str) -> Result<Self, VerbError> {
        signals::watch().map_err(|error| VerbError::from_error(&error))?;
        let plan = lab::find_plan(name)?;
        let [near, far, ..] = plan.hosts.as_slice() else {
            return Err(VerbError::failed(format!("lab {name} has fewer than two hosts")));
        };
        let (near, far) = (near.name.clone(), far.name.clone());
        let bed = ScopedLab::up(&plan, std::env::current_exe()?)?;
        for note in bed.lab().notes() {
            writeln!(crate::out::stderr(), "clearstream: lab {name}: {note}")?;
        }
        Ok(Self { server: OnceCell::new(), bed, near, far })
    }

    /// Name of its first host.
    pub(crate) fn near(&self) -> &str {
        &self.near
    }

    /// Name of its second host.
    pub(crate) fn far(&self) -> &str {
        &self.far
    }

    /// Starts a test server on its second host.
    ///
    /// # Errors
    /// The server does not begin to listen; contains the line it ended with.
    pub(crate) fn serve(&self) -> Result<(), VerbError> {
        let mut serve = self.bed.clearstream(&self.far);
        serve.arg("serve").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // In its own process group: on Ctrl-C the test that it serves must end first.
        let server = Owned::start(&mut serve, Ending::KILL.with_group())?;
        let mut server = server.capture(SAID_BYTES_MAX)?;
        let place = (self.far.as_str(), traffic::server::DEFAULT_PORT);
        match self.bed.wait_for_listener(place, &mut server, LISTEN_MAX) {
            Ok(()) => {
                // Always unset here: a second server could not have begun to listen on the port.
                self.server.set(server).ok();
                Ok(())
            }
            Err(error) => {
                let said = server.ended_within(Duration::ZERO).map(|ended| ended.last_line());
                let said = said.unwrap_or_else(|error| error.to_string());
                Err(VerbError::failed(format!("{error}: {said}")))
            }
        }
    }

    /// Counters of a host's interfaces.
    ///
    /// # Errors
    /// The host does not exist, or the lab is down.
    pub(crate) fn devices(&self, host: &str) -> Result<Vec<DeviceCounters>, VerbError> {
        Ok(self.bed.devices(host)?)
    }

    /// A command that runs on one of its hosts, without program and arguments.
    pub(crate) fn command(&self, host: &str) -> Command {
        self.bed.command(host)
    }

    /// Starts a process on its first host that runs tests against the second. The calling thread must outlive it.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn tester(&self) -> Result<Tester, VerbError> {
        Tester::start(self.bed.clearstream(&self.near), &self.far)
    }
}
