//! Servers that speak a protocol other than our own, as far as the program knows some.

use std::error::Error;
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use results::{LatencySummary, TestOutcome, TestSpec};

use super::{ClientError, IntervalPair, PathMtu, probes};
use crate::control::GREETING_BYTES;
use crate::engine::IntervalReport;

/// A protocol other than our own in which a server can be asked for tests. Its servers take our
/// greeting for a greeting of their own and answer with a byte by which the client knows them.
pub trait FarProtocol: fmt::Debug + Send + Sync {
    /// Name of the protocol and of its program, one word.
    fn name(&self) -> &'static str;

    /// The command that starts a server; a client that finds none tells its user.
    fn server_command(&self) -> &'static str;

    /// What a server says that answers our greeting with this byte; `None` when no server of this
    /// protocol does. Our own servers answer with 0.
    fn first_answer(&self, first: u8) -> Option<FirstAnswer>;

    /// Runs one test on a control connection that the server has accepted `greeting` on and has not
    /// been read from. `on_report` is called for every interval of this end; `should_stop` is asked
    /// several times a second, and when it says yes the test ends early and is reported. The
    /// outcome's account of the far end is absent.
    ///
    /// # Errors
    /// In one line: what the protocol cannot do, what the server refuses, how the connection broke.
    fn run_test(
        &self,
        control: TcpStream,
        greeting: [u8; GREETING_BYTES],
        spec: &TestSpec,
        on_report: &mut dyn FnMut(&IntervalReport),
        should_stop: &dyn Fn() -> bool,
    ) -> Result<TestOutcome, Box<dyn Error + Send + Sync>>;
}

/// What a server of a [`FarProtocol`] answers to a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstAnswer {
    /// It waits for a test.
    Ready,
    /// It serves another client and none besides.
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
    /// The protocol it speaks.
    #[must_use]
    pub fn protocol(&self) -> &'static dyn FarProtocol {
        self.protocol
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Measures `count` round trips of connection set-ups, one every `interval`: all that a server
    /// without an echo has to offer.
    ///
    /// # Errors
    /// [`ClientError`] says in one line what is in the way.
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
    /// [`ClientError`] when the kernel does not say.
    pub fn path_mtu(&self) -> Result<PathMtu, ClientError> {
        probes::assumed_path_mtu(&self.control)
    }

    /// Runs one test; see [`Session::run_test`](super::Session::run_test). The far end's own account
    /// is absent.
    ///
    /// # Errors
    /// [`ClientError`]; among them what the protocol cannot do.
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
        protocol.run_test(self.control, self.greeting, spec, &mut on_report, should_stop).map_err(
            |source| ClientError::ForeignTest { protocol: protocol.name(), target, source },
        )
    }
}

/// What a server may be, for a user who has none: `` `clearstream serve` (or `iperf3 -s`) ``.
pub(super) fn server_commands(known: &[&'static dyn FarProtocol]) -> String {
    let ours = "`clearstream serve`";
    if known.is_empty() {
        return ours.to_owned();
    }
    let others: Vec<_> = known.iter().map(|one| format!("`{}`", one.server_command())).collect();
    format!("{ours} (or {})", others.join(" or "))
}

/// What something is that speaks no protocol we know: `neither clearstream nor iperf3`.
pub(super) fn none_of(known: &[&'static dyn FarProtocol]) -> String {
    if known.is_empty() {
        return "not clearstream".to_owned();
    }
    let others: Vec<_> = known.iter().map(|one| one.name()).collect();
    format!("neither clearstream nor {}", others.join(" nor "))
}
