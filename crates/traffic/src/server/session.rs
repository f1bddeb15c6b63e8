//! The session of one admitted client.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::hub::Shared;
use super::personality::{ForeignClient, Personality, SessionHandle};
use super::places::Place;
use super::{Notice, probes, trial};
use crate::control::{
    CLIENT_FRAME_BYTES_MAX, ClientMessage, GREETING_BYTES, GREETING_TIMEOUT, Link, LinkError,
    PROTOCOL_MAJOR, Refusal, RefusalCode, ServerMessage, TUNE_EXTENSION,
};

/// Minor version of the protocol that this program speaks.
const PROTOCOL_MINOR: u32 = 0;
/// How often a waiting session checks whether the server is ending.
const LOOK_UP_EVERY: Duration = Duration::from_millis(100);

/// The protocol of a client.
pub(super) enum Kind {
    Ours,
    Foreign(Arc<dyn Personality>, [u8; GREETING_BYTES]),
}

/// A client that has a place.
pub(super) struct Session {
    pub(super) shared: Shared,
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) kind: Kind,
    pub(super) place: Arc<Place>,
}

/// A client that speaks our protocol.
pub(super) struct Client {
    pub(super) shared: Shared,
    pub(super) link: Link,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) place: Arc<Place>,
}

/// Why a session ended.
#[derive(Debug, Error)]
pub(super) enum SessionEnd {
    #[error("done")]
    Bye,
    #[error("it was idle for too long")]
    Idle,
    #[error("it stopped answering")]
    Silent,
    #[error("the server is busy: this session was idle, so another client got its place")]
    TakenBack,
    #[error("the server is busy: this session has lasted longer than any test may; connect again")]
    Lasted,
    #[error("the server is shutting down")]
    Ending,
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{0}")]
    Failed(String),
}

impl Session {
    pub(super) fn run(self) {
        let Self { shared, stream, peer, kind, place } = self;
        let protocol = match &kind {
            Kind::Ours => "clearstream",
            Kind::Foreign(personality, _) => personality.name(),
        };
        shared.notice(&Notice::Opened { peer, protocol });
        let end = match kind {
            Kind::Ours => {
                Client::new(shared.clone(), stream, peer, place).map(|mut client| client.serve())
            }
            Kind::Foreign(personality, greeting) => {
                let personality = personality.as_ref();
                Ok(serve_foreign(personality, stream, peer, greeting, &shared, &place))
            }
        };
        let how = match end {
            Ok(end) => end.to_string(),
            Err(error) => error.to_string(),
        };
        shared.notice(&Notice::Ended { peer, how });
    }
}

/// Serves a personality's client, with data connections from the same port and under the same
/// limits.
fn serve_foreign(
    personality: &dyn Personality,
    stream: TcpStream,
    peer: SocketAddr,
    greeting: [u8; GREETING_BYTES],
    shared: &Shared,
    place: &Arc<Place>,
) -> SessionEnd {
    let failed = |error: &dyn std::error::Error| SessionEnd::Failed(error.to_string());
    let local = match stream.local_addr() {
        Ok(local) => local,
        Err(error) => return failed(&error),
    };
    let limits = &shared.config.limits;
    // A bidirectional test has streams in both directions.
    let streams_max = limits.streams_max as usize * 2;
    let expected =
        shared.registry.expect_foreign(greeting, peer.ip(), local, streams_max, Arc::clone(place));
    let Some(mut data) = expected else {
        return SessionEnd::Failed("its greeting is that of another test".to_owned());
    };
    let client = ForeignClient {
        control: stream,
        greeting,
        data: &mut data,
        limits,
        idle_timeout: shared.config.idle_timeout,
        session: &SessionHandle::new(shared, peer, place),
    };
    match personality.serve(client) {
        Ok(()) => SessionEnd::Bye,
        Err(error) => SessionEnd::Failed(error.to_string()),
    }
}

impl Client {
    fn new(
        shared: Shared,
        stream: TcpStream,
        peer: SocketAddr,
        place: Arc<Place>,
    ) -> std::io::Result<Self> {
        let link = Link::new(stream, CLIENT_FRAME_BYTES_MAX, GREETING_TIMEOUT)?;
        let local = link.local_address()?;
        Ok(Self { shared, link, peer, local, place })
    }

    /// Serves requests until the session ends; tells the client the reason if the server ends it.
    fn serve(&mut self) -> SessionEnd {
        let end = match self.requests() {
            Err(end) => end,
            Ok(never) => match never {},
        };
        let reason = match &end {
            SessionEnd::Bye | SessionEnd::Link(LinkError::Closed | LinkError::Socket(_)) => {
                return end;
            }
            SessionEnd::Idle => format!(
                "the server closes connections that are idle for {} s",
                self.shared.config.idle_timeout.as_secs()
            ),
            other => other.to_string(),
        };
        // The client may have gone, and then needs no explanation.
        self.link.send(&ServerMessage::Failed { reason }).ok();
        end
    }

    fn requests(&mut self) -> Result<std::convert::Infallible, SessionEnd> {
        let host = Box::new(topology::host_facts(Some(self.peer.ip().to_canonical())));
        self.link.send(&ServerMessage::Hello {
            protocol: format!("{PROTOCOL_MAJOR}.{PROTOCOL_MINOR}"),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            host,
            extensions: vec![TUNE_EXTENSION.to_owned()],
        })?;
        let mut active = Instant::now();
        loop {
            let message = self.next_message(LOOK_UP_EVERY)?;
            if self.place.goes_after_test() {
                return Err(SessionEnd::Lasted);
            }
            match message {
                Some(ClientMessage::Start { spec }) => trial::serve(self, *spec)?,
                Some(ClientMessage::Echo) => probes::echo(self)?,
                Some(ClientMessage::ProbeMtu) => probes::path_mtu(self)?,
                Some(ClientMessage::Watch { interfaces, interval_s }) => {
                    probes::watch(self, interfaces, interval_s)?;
                }
                Some(ClientMessage::Tune { request }) => self.tune(&request)?,
                Some(ClientMessage::Bye) => return Err(SessionEnd::Bye),
                // A hello, or the remainder of a test that this end has stopped. None of it counts
                // as activity: a client that only keeps the session alive requests nothing.
                Some(_) => {
                    self.check_idle(active)?;
                    continue;
                }
                None => {
                    self.check_idle(active)?;
                    continue;
                }
            }
            active = Instant::now();
            self.place.touch();
        }
    }

    /// Passes on a request about this host's settings, if the server was started with permission.
    fn tune(&mut self, request: &serde_json::Value) -> Result<(), SessionEnd> {
        let Some(tuning) = self.shared.config.tuning.clone() else {
            return self.refuse(Refusal::new(
                RefusalCode::NotAllowed,
                "the server was started without --allow-tuning",
            ));
        };
        self.began("asks about this host's settings".to_owned());
        let answer = tuning.handle(self.peer.ip().to_canonical(), request);
        Ok(self.link.send(&ServerMessage::Tuned { answer })?)
    }

    fn check_idle(&self, active: Instant) -> Result<(), SessionEnd> {
        let idle = active.elapsed() > self.shared.config.idle_timeout;
        if idle { Err(SessionEnd::Idle) } else { Ok(()) }
    }

    /// The client's next message, after waiting at most `timeout`.
    pub(super) fn next_message(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<ClientMessage>, SessionEnd> {
        if self.shared.registry.is_ending() {
            return Err(SessionEnd::Ending);
        }
        if self.place.is_taken_back() {
            return Err(SessionEnd::TakenBack);
        }
        Ok(self.link.receive(Instant::now() + timeout)?)
    }

    /// Refuses a request; the session continues.
    pub(super) fn refuse(&mut self, refusal: Refusal) -> Result<(), SessionEnd> {
        self.shared.notice(&Notice::Refused { peer: self.peer, refusal: refusal.clone() });
        Ok(self.link.send(&ServerMessage::Refused(refusal))?)
    }

    /// Refuses an invalid request.
    pub(super) fn refuse_bad(&mut self, reason: &str) -> Result<(), SessionEnd> {
        self.refuse(Refusal { code: RefusalCode::BadRequest, reason: reason.to_owned() })
    }

    pub(super) fn began(&self, what: String) {
        self.shared.notice(&Notice::Began { peer: self.peer, what });
    }
}
