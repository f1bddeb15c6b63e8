//! The far end: serves tests to many clients at once, on one port, in our own protocol and in those
//! that the program hands in ([`Personality`]).
//!
//! One thread (the *hub*) owns the listening sockets and the connections that have not said yet
//! what they are; every client that has been let in gets a thread of its own. Nothing here waits
//! without a deadline, and what one client can make the server hold is bounded: see [`Limits`] and
//! [`ServerConfig`].

mod activation;
mod hub;
mod memory;
mod networks;
mod personality;
mod places;
mod probes;
mod registry;
mod session;
mod sockets;
mod trial;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

pub use activation::notify_ready;
pub use memory::default_memory_bytes;
pub use networks::{Network, NetworkError};
pub use personality::{ForeignClient, Personality, SessionHandle};

use crate::control::{Limits, Refusal};
use crate::engine::Need;
use hub::Hub;
use sockets::Sockets;

/// The port where a server is looked for unless another one is named.
pub const DEFAULT_PORT: u16 = 5201;

/// What a server is.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address to listen on; absent: all, IPv4 and IPv6.
    pub bind: Option<IpAddr>,
    /// TCP and UDP port; 0: any that is free.
    pub port: u16,
    /// Accept multipath TCP. Windows beyond `net.ipv4.tcp_rmem` are then not offered.
    pub mptcp: bool,
    /// What one client may ask for.
    pub limits: Limits,
    /// Clients at once.
    pub sessions_max: usize,
    /// Of those, from one address (IPv6: from one network of 64 bits); absent: a quarter, at least 2.
    pub sessions_an_address_max: Option<usize>,
    /// Most memory for the tests of all clients together, bytes; half of it for one address.
    pub memory_bytes_max: u64,
    /// Networks clients may come from; empty: any.
    pub networks: Vec<Network>,
    /// A client that asks for nothing this long is sent away.
    pub idle_timeout: Duration,
    /// Who answers requests about this host's settings; absent: they are refused.
    pub tuning: Option<Arc<dyn Tuning>>,
    /// The protocols spoken beside our own; the first one that recognises a greeting has its client.
    pub personalities: Vec<Arc<dyn Personality>>,
}

/// Answers requests about this host's settings (extension `tune`). Called from a client's thread;
/// the request is whatever the client sent, and its address is all that is known of it.
pub trait Tuning: std::fmt::Debug + Send + Sync {
    /// The answer; a failure is an answer too.
    fn handle(&self, client: IpAddr, request: &serde_json::Value) -> serde_json::Value;
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            bind: None,
            port: DEFAULT_PORT,
            mptcp: false,
            limits: Limits::default(),
            sessions_max: 32,
            sessions_an_address_max: None,
            memory_bytes_max: default_memory_bytes(),
            networks: Vec::new(),
            idle_timeout: Duration::from_secs(30),
            tuning: None,
            personalities: Vec::new(),
        }
    }
}

/// What happens at a server, for its log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Notice {
    /// A client has been let in.
    Opened {
        /// Its address.
        peer: SocketAddr,
        /// `clearstream`, or the name of a [`Personality`].
        protocol: &'static str,
    },
    /// A client runs a test, or something else worth a line.
    Began {
        /// Its address.
        peer: SocketAddr,
        /// What, in a few words.
        what: String,
    },
    /// That is over.
    Ended {
        /// Its address.
        peer: SocketAddr,
        /// How it ended, in a few words.
        how: String,
    },
    /// Something was turned down.
    Refused {
        /// The client's address.
        peer: SocketAddr,
        /// Why.
        refusal: Refusal,
    },
}

/// Where notices go; called from several threads.
pub type NoticeSink = Arc<dyn Fn(&Notice) + Send + Sync>;

/// Why there is no server.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be had.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Nothing to listen on.
    #[error("there is no address to listen on: this host has neither IPv4 nor IPv6")]
    NoSockets,
    /// What the service manager handed over is not usable.
    #[error("the sockets from the service manager are not usable ({0})")]
    Inherited(String),
    /// Waiting for clients failed.
    #[error("cannot wait for clients")]
    Wait(#[source] io::Error),
}

impl ServerError {
    pub(crate) fn is_address_in_use(&self) -> bool {
        matches!(self, Self::Bind { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }
}

/// A server that listens and does not serve yet.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    sockets: Sockets,
}

impl Server {
    /// Binds the sockets, or takes those a service manager has bound (`LISTEN_FDS`, see
    /// `sd_listen_fds(3)`).
    ///
    /// # Errors
    /// The address is taken, needs a privilege or does not exist here.
    pub fn bind(config: ServerConfig) -> Result<Self, ServerError> {
        let inherited = activation::inherited_sockets()?;
        let sockets =
            if inherited.is_empty() { Sockets::bind(&config)? } else { Sockets::adopt(inherited)? };
        Ok(Self { config, sockets })
    }

    /// The TCP addresses it listens on.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.addresses()
    }

    /// Serves until `should_stop` says so (it is asked several times a second), then ends the
    /// sessions that run and waits for them a few seconds.
    ///
    /// # Errors
    /// Waiting on the sockets failed.
    pub fn run(
        self,
        notices: NoticeSink,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<(), ServerError> {
        Hub::new(self.config, self.sockets, notices).run(should_stop)
    }
}

/// Where the session of a [`Personality`] gets the data connections of its test from: they arrive on
/// the server's one port and are told apart by their greeting (a UDP datagram by the address it comes
/// from).
pub trait DataConnections: std::fmt::Debug {
    /// Asks for what the test needs, before any of it is made; it is held until this ends. Data
    /// connections beyond `need` are not taken.
    ///
    /// # Errors
    /// There is no room for it, now or ever.
    fn reserve(&mut self, need: Need) -> Result<(), Refusal>;

    /// The next TCP connection of this test, its greeting already taken, and its place
    /// among the connections that were accepted: the order in which the client opened them, which
    /// need not be that in which their greetings were read.
    ///
    /// # Errors
    /// None came before `deadline`, or the server is ending.
    fn next_tcp(&mut self, deadline: Instant) -> Result<(u64, TcpStream), DataError>;

    /// A socket on the server's port, connected to a new address of this test's peer, and the
    /// datagram that came from it first. Nothing has been sent back yet.
    ///
    /// # Errors
    /// None came before `deadline`, or the server is ending.
    fn next_udp(&mut self, deadline: Instant) -> Result<(UdpSocket, Vec<u8>), DataError>;
}

/// Why there is no data connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// The peer did not open it in time.
    #[error("the peer did not open its data connections in time")]
    Timeout,
    /// The server is ending.
    #[error("the server is ending")]
    Ending,
    /// A system call failed.
    #[error("data connection")]
    Socket(#[from] io::Error),
}
