//! Protocols other than our own that a server speaks on its port.

use std::error::Error;
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::hub::Shared;
use super::places::Place;
use super::{DataConnections, Notice};
use crate::control::{GREETING_BYTES, Limits};

/// A protocol that a server speaks on its port beside its own, handed in with
/// [`ServerConfig`](super::ServerConfig).
///
/// Every TCP connection of such a client opens with a greeting of [`GREETING_BYTES`] bytes that is
/// the same for all connections of one test: the first connection that sends it is the control
/// connection, and while that session runs the later ones are the test's data connections. A
/// datagram belongs to the session of the host that it came from, if that session waits for one.
///
/// The server lets such a client in, or not, by the same rules as its own clients: networks,
/// places, places an address, memory and streams. The limits on a test itself ([`Limits`]) are for
/// [`Personality::serve`] to apply.
pub trait Personality: fmt::Debug + Send + Sync {
    /// The protocol's name, one word, for the server's log.
    fn name(&self) -> &'static str;

    /// Whether this is the greeting of one of the protocol's clients. The bytes come from anybody.
    /// This is called on the one thread that accepts connections, so it must not wait for anything.
    fn recognises(&self, greeting: &[u8; GREETING_BYTES]) -> bool;

    /// What a client that is not let in is sent before its connection is closed: a few bytes.
    fn refusal(&self) -> &'static [u8];

    /// Serves one client, on a thread of its own, until the client leaves or
    /// [`SessionHandle::should_end`] says so. It must not wait without a deadline.
    ///
    /// # Errors
    /// Why the session did not end well, in one line for the server's log.
    fn serve(&self, client: ForeignClient<'_>) -> Result<(), Box<dyn Error>>;
}

/// A client of a [`Personality`] that has been let in.
#[derive(Debug)]
pub struct ForeignClient<'a> {
    /// Its control connection. The greeting has been read; nothing has been sent.
    pub control: TcpStream,
    /// The greeting, which the test's data connections repeat.
    pub greeting: [u8; GREETING_BYTES],
    /// Where the data connections of its test come from. Those beyond twice
    /// [`Limits::streams_max`] (both directions) are closed.
    pub data: &'a mut dyn DataConnections,
    /// What one client may ask for.
    pub limits: &'a Limits,
    /// How long the client may be silent when it is its turn.
    pub idle_timeout: Duration,
    /// The session, as the server sees it.
    pub session: &'a SessionHandle<'a>,
}

/// What a [`Personality`] tells the server about a session, and the server it.
pub struct SessionHandle<'a> {
    shared: &'a Shared,
    peer: SocketAddr,
    place: &'a Place,
}

impl<'a> SessionHandle<'a> {
    pub(super) fn new(shared: &'a Shared, peer: SocketAddr, place: &'a Place) -> Self {
        Self { shared, peer, place }
    }

    /// Whether the session must end now: the server ends, or it gives the place of a client that
    /// has been idle to another one.
    #[must_use]
    pub fn should_end(&self) -> bool {
        self.shared.registry.is_ending() || self.place.is_taken_back()
    }

    /// Says that the client is active at this moment, so that its place stays its own. Data that
    /// moves is activity; a connection that is merely open is not.
    pub fn touch(&self) {
        self.place.touch();
    }

    /// Puts into the server's log, in a few words, what the client does from now on.
    pub fn began(&self, what: &str) {
        self.shared.notice(&Notice::Began { peer: self.peer, what: what.to_owned() });
    }
}

impl fmt::Debug for SessionHandle<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SessionHandle").field("peer", &self.peer).finish_non_exhaustive()
    }
}
