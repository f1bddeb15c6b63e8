//! Servers that speak a protocol other than ours, as far as the program supports it.

use std::error::Error;
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use results::{LatencySummary, TestOutcome, TestSpec};

use super::{ClientError, IntervalPair, PathMtu, probes};
use crate::control::GREETING_BYTES;
use crate::engine::IntervalReport;

/// A protocol other than ours in which a server can run tests. Its servers take our greeting for
/// one of their own protocol and answer with a byte by which the client recognises them.
pub trait FarProtocol: fmt::Debug + Send + Sync {
    /// Name of the protocol and of its program, one word.
    fn name(&self) -> &'static str;

    /// The command that starts a server, shown to the user when nothing listens.
    fn server_command(&self) -> &'static str;

    /// The state of a server of this protocol that answers our greeting with the byte `first`;
    /// `None` if none does. Our own servers answer with 0.
    fn first_answer(&self, first: u8) -> Option<FirstAnswer>;

    /// Runs one test on a control connection on which the server has accepted `greeting` and from
    /// which nothing has been read. `on_report` is called for every interval of this end,
    /// `should_stop` several times per second; when that returns true, the test ends early and its
    /// outcome is returned. The far end's report in the outcome is absent.
    ///
    /// # Errors
    /// In one line: what the protocol does not support, what the server refuses, or how the
    /// connection broke; with what had been measured by then.
    fn run_test(
        &self,
        control: TcpStream,
        greeting: [u8; GREETING_BYTES],
        spec: &TestSpec,
        on_report: &mut dyn FnMut(&IntervalReport),
        should_stop: &dyn Fn() -> bool,
    ) -> Result<TestOutcome, FarTestError>;
}

/// Why a test in another protocol failed.
#[derive(Debug)]
pub struct FarTestError {
    /// The protocol's error.
    pub source: Box<dyn Error + Send + Sync>,
    /// What had been measured if the test had begun.
    pub measured: Option<Box<TestOutcome>>,
}

impl FarTestError {
    /// The test had not begun.
    pub fn unmeasured(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: source.into(), measured: None }
    }
}

/// How a server of a [`FarProtocol`] answers a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstAnswer {
    /// It is ready for a test.
    Ready,
    /// It serves another client and accepts only one at a time.
    Busy,
}

/// A control connection on which a server of a [`FarProtocol`] has accepted our greeting.
#[derive(Debug)]
pub struct ForeignPeer {
    pub(super) protocol: &'static dyn FarProtocol,
    pub(super) control: TcpStream,
    pub(super) greeting: [u8; GREETING_BYTES],
    pub(super) address: SocketAddr,
}

impl ForeignPeer {
    /// The protocol that the server speaks.
    #[must_use]
    pub fn protocol(&self) -> &'static dyn FarProtocol {
        self.protocol
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Measures the set-up times of `count` connections, one every `interval`: the only round trip
    /// that a server without an echo offers.
    ///
    /// # Errors
    /// [`ClientError`] says in one line what went wrong.
    pub fn round_trips(
        &self,
        count: u32,
        interval: Duration,
    ) -> Result<LatencySummary, ClientError> {
        probes::connect_times(self.address, count, interval)
    }

    /// The path MTU that this kernel assumes.
    ///
    /// # Errors
    /// [`ClientError`] if the kernel does not report it.
    pub fn path_mtu(&self) -> Result<PathMtu, ClientError> {
        probes::assumed_path_mtu(&self.control)
    }

    /// Runs one test; see [`Session::run_test`](super::Session::run_test). The far end's report is
    /// absent.
    ///
    /// # Errors
    /// [`ClientError`], also for what the protocol does not support.
    pub fn run_test(
        self,
        spec: &TestSpec,
        on_interval: &mut dyn FnMut(&IntervalPair),
        should_stop: &dyn Fn() -> bool,
    ) -> Result<TestOutcome, ClientError> {
        let (protocol, target) = (self.protocol, self.address.to_string());
        if spec.near_interrupt_core.or(spec.far_interrupt_core).is_some() {
            let (protocol, what) = (protocol.name(), "move interrupts");
            return Err(ClientError::Unsupported { target, protocol, what });
        }
        let mut on_report = |near: &IntervalReport| {
            on_interval(&IntervalPair { near: near.clone(), far: None });
        };
        let ended =
            protocol.run_test(self.control, self.greeting, spec, &mut on_report, should_stop);
        ended.map_err(|FarTestError { source, measured }| {
            let why = ClientError::ForeignTest { protocol: protocol.name(), target, source };
            match measured {
                Some(measured) => ClientError::cut_short(why, *measured),
                None => why,
            }
        })
    }
}

/// The commands that start a server: `` `clearstream serve` (or `iperf3 -s`) ``.
pub(super) fn server_commands(known: &[&'static dyn FarProtocol]) -> String {
    let ours = "`clearstream serve`";
    if known.is_empty() {
        return ours.to_owned();
    }
    let others: Vec<_> = known.iter().map(|one| format!("`{}`", one.server_command())).collect();
    format!("{ours} (or {})", others.join(" or "))
}

/// What a server is not if it speaks no known protocol: `neither clearstream nor iperf3`.
pub(super) fn none_of(known: &[&'static dyn FarProtocol]) -> String {
    if known.is_empty() {
        return "not clearstream".to_owned();
    }
    let others: Vec<_> = known.iter().map(|one| one.name()).collect();
    format!("neither clearstream nor {}", others.join(" nor "))
}
