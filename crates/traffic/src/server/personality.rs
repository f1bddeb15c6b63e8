//! Protocols other than our own that a server speaks on its port.

use std::error::Error;
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::hub::Shared;
use super::places::Place;
use super::{DataConnections, Notice};
use crate::control::{GREETING_BYTES, Limits};

/// A protocol that a server speaks on its port besides our own, passed in with
/// [`ServerConfig`](super::ServerConfig).
///
/// Every TCP connection of such a client starts with a greeting of [`GREETING_BYTES`] bytes that is
/// the same for all connections of one test. The first connection that sends it is the control
/// connection; later ones are the test's data connections while that session runs. A datagram
/// belongs to the session of the host that it came from, if that session waits for one.
///
/// The server admits such clients by the same rules as its own: networks, places, places per
/// address, memory and streams. The limits on a test itself ([`Limits`]) must be applied by
/// [`Personality::serve`].
pub trait Personality: fmt::Debug + Send + Sync {
    /// The protocol's name, one word, for the server's log.
    fn name(&self) -> &'static str;

    /// Whether this is the greeting of one of the protocol's clients; the bytes may come from
    /// anybody. Called on the single thread that accepts connections, so it must not wait for
    /// anything.
    fn recognises(&self, greeting: &[u8; GREETING_BYTES]) -> bool;

    /// The few bytes sent to a client that is not admitted, before its connection is closed.
    fn refusal(&self) -> &'static [u8];

    /// Serves one client, on a thread of its own, until the client leaves or
    /// [`SessionHandle::should_end`] returns true. Must not wait without a deadline.
    ///
    /// # Errors
    /// Why the session failed, in one line for the server's log.
    fn serve(&self, client: ForeignClient<'_>) -> Result<(), Box<dyn Error>>;
}

/// An admitted client of a [`Personality`].
#[derive(Debug)]
pub struct ForeignClient<'a> {
    /// The client's control connection. The greeting has been read; nothing has been sent.
    pub control: TcpStream,
    /// The greeting, which the test's data connections repeat.
    pub greeting: [u8; GREETING_BYTES],
    /// The source of the test's data connections. Those beyond twice [`Limits::streams_max`] (both
    /// directions) are closed.
    pub data: &'a mut dyn DataConnections,
    /// Limits on the tests of one client.
    pub limits: &'a Limits,
    /// How long the client may be silent when it is its turn.
    pub idle_timeout: Duration,
    /// The session's connection to the server.
    pub session: &'a SessionHandle<'a>,
}

/// The interface between a [`Personality`]'s session and the server.
pub struct SessionHandle<'a> {
    shared: &'a Shared,
    peer: SocketAddr,
    place: &'a Place,
}

impl<'a> SessionHandle<'a> {
    pub(super) fn new(shared: &'a Shared, peer: SocketAddr, place: &'a Place) -> Self {
        Self { shared, peer, place }
    }

    /// Whether the session must end now: the server is ending, or it reassigns the place of this
    /// idle client.
    #[must_use]
    pub fn should_end(&self) -> bool {
        self.shared.registry.is_ending() || self.place.is_taken_back()
    }

    /// Reports that the client is active now, so that it keeps its place. Moving data is activity;
    /// an open connection alone is not.
    pub fn touch(&self) {
        self.place.touch();
    }

    /// Adds to the server's log, in a few words, what the client has started.
    pub fn began(&self, what: &str) {
        self.shared.notice(&Notice::Began { peer: self.peer, what: what.to_owned() });
    }
}

impl fmt::Debug for SessionHandle<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SessionHandle").field("peer", &self.peer).finish_non_exhaustive()
    }
}
