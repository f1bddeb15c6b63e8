//! A lab of this process: its hosts, a server in the second and tests from the first.

use std::cell::OnceCell;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::Bed;
use results::DeviceCounters;
use sys::process::{Ending, Owned};

use crate::exit::VerbError;
use crate::signals;
use crate::tester::Tester;

/// Longest wait for the server of a lab.
const LISTEN_MAX: Duration = Duration::from_secs(20);
/// Most that is kept of what the server says, bytes: enough for the line it ends with.
const SAID_BYTES_MAX: usize = 16 << 10;

/// A lab of two hosts at least, for as long as this lives.
#[derive(Debug)]
pub(crate) struct TestBed {
    // Ends before the lab does.
    server: OnceCell<Owned>,
    bed: Bed,
    near: String,
    far: String,
}

impl TestBed {
    /// Brings a built-in lab up, unless it is. From here on a signal that asks this program to end is
    /// only noted, so that the lab goes down with the value.
    ///
    /// # Errors
    /// It has no two hosts, or cannot be brought up here.
    pub(crate) fn up(name: &str) -> Result<Self, VerbError> {
        signals::watch().map_err(|error| VerbError::from_error(&error))?;
        let plan = lab::find_plan(name)?;
        let [near, far, ..] = plan.hosts.as_slice() else {
            return Err(VerbError::failed(format!("lab {name} has no two hosts")));
        };
        let (near, far) = (near.name.clone(), far.name.clone());
        let bed = Bed::up(&plan, std::env::current_exe()?)?;
        for note in bed.lab().notes() {
            writeln!(crate::out::stderr(), "clearstream: lab {name}: {note}")?;
        }
        Ok(Self { server: OnceCell::new(), bed, near, far })
    }

    /// Its first host.
    pub(crate) fn near(&self) -> &str {
        &self.near
    }

    /// Its second host.
    pub(crate) fn far(&self) -> &str {
        &self.far
    }

    /// Serves tests in its second host from now on.
    ///
    /// # Errors
    /// The server does not begin to listen; the line it ends with.
    pub(crate) fn serve(&self) -> Result<(), VerbError> {
        let mut serve = self.bed.clearstream(&self.far);
        serve.arg("serve").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // In a group of its own: Ctrl-C first lets the test end that it serves.
        let server = Owned::start(&mut serve, Ending::KILL.with_group())?;
        let mut server = server.capture(SAID_BYTES_MAX)?;
        let place = (self.far.as_str(), traffic::server::DEFAULT_PORT);
        match self.bed.wait_for_listener(place, &mut server, LISTEN_MAX) {
            Ok(()) => {
                // A second server could not have begun to listen.
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

    /// The counters of a host's interfaces.
    ///
    /// # Errors
    /// No such host, or the lab has gone.
    pub(crate) fn devices(&self, host: &str) -> Result<Vec<DeviceCounters>, VerbError> {
        Ok(self.bed.devices(host)?)
    }

    /// Anything on one of its hosts, ready for the program and its arguments.
    pub(crate) fn command(&self, host: &str) -> Command {
        self.bed.command(host)
    }

    /// A process on its first host that asks the second for tests. The calling thread must live as long.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn tester(&self) -> Result<Tester, VerbError> {
        Tester::start(self.bed.clearstream(&self.near), &self.far)
    }
}
