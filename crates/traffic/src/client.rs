//! The near end: requests tests from a server.
//!
//! [`connect`] determines what answers at an address: our own server, or one that speaks a
//! [`FarProtocol`] passed in by the program. A [`Session`] with our own server offers tests, round
//! trips, the path MTU and counters; a [`ForeignPeer`] offers some of these.

mod dial;
mod error;
mod foreign;
mod probes;
mod trial;
mod tune;
mod watch;

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use results::{HostFacts, TestOutcome, TestSpec};

pub use dial::{Family, Target};
pub use error::{CUT_SHORT, ClientError};
pub use foreign::{FarProtocol, FarTestError, FirstAnswer, ForeignPeer};
pub use probes::PathMtu;
pub use watch::Watch;

use crate::control::{
    ANSWER_FRAME_BYTES_MAX, ClientMessage, GREETING_TIMEOUT, Link, LinkError, PROTOCOL_MAJOR,
    Purpose, ServerMessage,
};
use crate::engine::IntervalReport;

/// Default time limit for a peer to answer.
pub const CONNECT_TIMEOUT: Duration = GREETING_TIMEOUT;
/// Time limit for a server to answer a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for receiving one complete message: the report of a long test is large, and the path
/// may be slow.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(120);

/// The server that answers at a [`Target`].
#[derive(Debug)]
pub enum Peer {
    /// Our own server.
    ClearStream(Box<Session>),
    /// A server that speaks another protocol and is ready for a test.
    Foreign(ForeignPeer),
}

/// A control connection to our own server.
#[derive(Debug)]
pub struct Session {
    link: Link,
    address: SocketAddr,
    tool_version: String,
    host: HostFacts,
    extensions: Vec<String>,
    target: Target,
}

/// The samples of one interval at both ends.
#[derive(Debug, Clone, PartialEq)]
pub struct IntervalPair {
    /// This end's samples.
    pub near: IntervalReport,
    /// The far end's samples; absent with a foreign peer, or if its report came too late to wait
    /// for.
    pub far: Option<IntervalReport>,
}

impl Peer {
    /// The server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::ClearStream(session) => session.address(),
            Self::Foreign(peer) => peer.address(),
        }
    }

    /// The server's name: `clearstream 0.1.0`, or the name of a [`FarProtocol`].
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::ClearStream(session) => format!("clearstream {}", session.tool_version()),
            Self::Foreign(peer) => peer.protocol().name().to_owned(),
        }
    }
}

/// Connects to whatever answers at `target`: our own server or one that speaks one of the protocols
/// in `known`. Waits at most `timeout` for each step.
///
/// # Errors
/// [`ClientError`] says in one line what went wrong.
pub fn connect(
    target: &Target,
    timeout: Duration,
    known: &[&'static dyn FarProtocol],
) -> Result<Peer, ClientError> {
    let (control, address) = dial::dial(target, timeout, known)?;
    let greeting = Purpose::Control.greeting();
    let answer = dial::greet(&control, &greeting, timeout, known);
    match answer.map_err(|error| error.at(target, known))? {
        dial::Answer::Ours => Session::open(control, address, target, timeout)
            .map(|session| Peer::ClearStream(Box::new(session))),
        dial::Answer::Foreign(protocol) => {
            Ok(Peer::Foreign(ForeignPeer { protocol, control, greeting, address }))
        }
    }
}

/// Runs one test against our own server at `target`. `on_interval` is called for every interval,
/// `should_stop` several times per second; when that returns true, the test ends early, and what
/// was measured so far is returned.
///
/// # Errors
/// [`ClientError`] says in one line what went wrong.
pub fn run_test(
    target: &Target,
    spec: &TestSpec,
    on_interval: &mut dyn FnMut(&IntervalPair),
    should_stop: &dyn Fn() -> bool,
) -> Result<TestOutcome, ClientError> {
    match connect(target, CONNECT_TIMEOUT, &[])? {
        Peer::ClearStream(mut session) => session.run_test(spec, on_interval, should_stop),
        Peer::Foreign(peer) => peer.run_test(spec, on_interval, should_stop),
    }
}

/// Watches interface counters of the far host: one reading every `interval` until the [`Watch`] is
/// dropped. Without `interfaces`, reads the interface that leads to this host. None of the
/// protocols in `known` can do this; they only let the error name the server.
///
/// # Errors
/// [`ClientError`]; only our own server can report its counters.
pub fn watch(
    target: &Target,
    interfaces: &[String],
    interval: Duration,
    known: &[&'static dyn FarProtocol],
) -> Result<Watch, ClientError> {
    match connect(target, CONNECT_TIMEOUT, known)? {
        Peer::ClearStream(session) => Watch::begin(*session, interfaces, interval),
        Peer::Foreign(peer) => Err(ClientError::Unsupported {
            target: target.to_string(),
            protocol: peer.protocol().name(),
            what: "report its counters",
        }),
    }
}

impl Session {
    fn open(
        stream: TcpStream,
        address: SocketAddr,
        target: &Target,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let link = Link::new(stream, ANSWER_FRAME_BYTES_MAX, MESSAGE_TIMEOUT)
            .map_err(|source| ClientError::socket("the control connection", source))?;
        let mut session = Self {
            link,
            address,
            tool_version: String::new(),
            host: HostFacts::default(),
            extensions: Vec::new(),
            target: target.clone(),
        };
        match session.answer(timeout)? {
            ServerMessage::Hello { protocol, tool_version, mut host, extensions } => {
                let major = protocol.split('.').next().and_then(|major| major.parse().ok());
                if major != Some(PROTOCOL_MAJOR) {
                    return Err(ClientError::Version {
                        target: target.to_string(),
                        reason: format!("it speaks {protocol}, this program {PROTOCOL_MAJOR}"),
                    });
                }
                host.tool_version = Some(tool_version.clone());
                (session.tool_version, session.host) = (tool_version, *host);
                session.extensions = extensions;
            }
            _ => return Err(session.unexpected("it sent no greeting")),
        }
        let tool_version = env!("CARGO_PKG_VERSION").to_owned();
        session.say(&ClientMessage::Hello { tool_version })?;
        Ok(session)
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Version of the server's program.
    #[must_use]
    pub fn tool_version(&self) -> &str {
        &self.tool_version
    }

    /// Facts about the far host, including its interface towards this one.
    #[must_use]
    pub fn host(&self) -> &HostFacts {
        &self.host
    }

    fn say(&mut self, message: &ClientMessage) -> Result<(), ClientError> {
        self.link.send(message).map_err(|error| self.lost(error))
    }

    /// The next message, if one arrives within `timeout`.
    fn hear(&mut self, timeout: Duration) -> Result<Option<ServerMessage>, ClientError> {
        match self.link.receive(Instant::now() + timeout) {
            Ok(Some(ServerMessage::Failed { reason })) => {
                Err(ClientError::Far { target: self.target.to_string(), reason })
            }
            Ok(message) => Ok(message),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// The next message that answers a request; a refusal is an error.
    fn answer(&mut self, timeout: Duration) -> Result<ServerMessage, ClientError> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.hear(left)? {
                Some(ServerMessage::Refused(refusal)) => {
                    return Err(ClientError::refused(&self.target, refusal));
                }
                // What remains of the previous request, such as a late probe report.
                Some(
                    ServerMessage::Alive | ServerMessage::Unknown | ServerMessage::ProbeSeen { .. },
                ) => {}
                Some(message) => return Ok(message),
                None if left.is_zero() => return Err(self.silent()),
                None => {}
            }
        }
    }

    fn lost(&self, error: LinkError) -> ClientError {
        ClientError::Lost { target: self.target.to_string(), source: error }
    }

    fn silent(&self) -> ClientError {
        ClientError::Silent { target: self.target.to_string() }
    }

    fn unexpected(&self, what: &str) -> ClientError {
        ClientError::Unexpected { target: self.target.to_string(), what: what.to_owned() }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A courtesy: the server also notices the end of the connection.
        self.link.send(&ClientMessage::Bye).ok();
    }
}
