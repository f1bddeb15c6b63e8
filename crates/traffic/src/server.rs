//! The far end: serves many clients at once, on one port, in our own protocol and in those that the
//! program passes in ([`Personality`]).
//!
//! One thread (the *hub*) owns the listening sockets and the connections whose greeting is not
//! complete; every admitted client has its own thread. Nothing here waits without a deadline, and
//! the resources that one client can occupy are bounded: see [`Limits`] and [`ServerConfig`].

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
pub use places::{most_frequent, owner_of};

use crate::control::{Limits, Refusal};
use crate::engine::Need;
use hub::Hub;
use sockets::Sockets;

/// The default TCP and UDP port of a server.
pub const DEFAULT_PORT: u16 = 5201;

/// The configuration of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Address to listen on; absent: all addresses, IPv4 and IPv6.
    pub bind: Option<IpAddr>,
    /// TCP and UDP port; 0: any free one.
    pub port: u16,
    /// Accept multipath TCP. Windows beyond `net.ipv4.tcp_rmem` are then not offered.
    pub mptcp: bool,
    /// Limits on the tests of one client.
    pub limits: Limits,
    /// Upper bound on simultaneous clients.
    pub sessions_max: usize,
    /// Upper bound on simultaneous clients of one address (IPv6: of one network of 64 bits);
    /// absent: a quarter of `sessions_max`, at least 2.
    pub sessions_an_address_max: Option<usize>,
    /// Upper bound on the memory for the tests of all clients together, in bytes; one address may
    /// use half of it.
    pub memory_bytes_max: u64,
    /// Networks from which clients are admitted; empty: any.
    pub networks: Vec<Network>,
    /// A client that requests nothing for this long is disconnected.
    pub idle_timeout: Duration,
    /// Answers requests about this host's settings; absent: they are refused.
    pub tuning: Option<Arc<dyn Tuning>>,
    /// Protocols besides our own; a client belongs to the first one that recognises its greeting.
    pub personalities: Vec<Arc<dyn Personality>>,
}

/// Answers requests about this host's settings (extension `tune`). Called from a client's thread.
/// The request is whatever the client sent, and nothing but the client's address is known about it.
pub trait Tuning: std::fmt::Debug + Send + Sync {
    /// Returns the answer; a failure is reported as an answer too.
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

/// Events of a server, for its log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Notice {
    /// A client has been admitted.
    Opened {
        /// The client's address.
        peer: SocketAddr,
        /// `clearstream`, or the name of a [`Personality`].
        protocol: &'static str,
    },
    /// A client has started a test or another activity worth a log line.
    Began {
        /// The client's address.
        peer: SocketAddr,
        /// The activity, in a few words.
        what: String,
    },
    /// A session has ended.
    Ended {
        /// The client's address.
        peer: SocketAddr,
        /// How it ended, in a few words.
        how: String,
    },
    /// A connection or a request was refused.
    Refused {
        /// The client's address.
        peer: SocketAddr,
        /// The reason.
        refusal: Refusal,
    },
}

/// Receives notices; called from several threads.
pub type NoticeSink = Arc<dyn Fn(&Notice) + Send + Sync>;

/// Why a server cannot start or go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system call.
        source: io::Error,
    },
    /// This host has no address to listen on.
    #[error("there is no address to listen on: this host has neither IPv4 nor IPv6")]
    NoSockets,
    /// The sockets passed by the service manager are not usable.
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

/// A server that listens but does not serve yet.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    sockets: Sockets,
}

impl Server {
    /// Binds the sockets, or adopts those that a service manager has bound (`LISTEN_FDS`, see
    /// `sd_listen_fds(3)`).
    ///
    /// # Errors
    /// The address is in use, needs a privilege or does not exist on this host, or the service
    /// manager's sockets are not usable.
    pub fn bind(config: ServerConfig) -> Result<Self, ServerError> {
        let inherited = activation::inherited_sockets()?;
        let sockets =
            if inherited.is_empty() { Sockets::bind(&config)? } else { Sockets::adopt(inherited)? };
        Ok(Self { config, sockets })
    }

    /// The TCP addresses that the server listens on.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.addresses()
    }

    /// Serves until `should_stop` returns true (it is called several times per second), then ends
    /// the running sessions and waits a few seconds for them.
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

/// The source of the data connections for a test of a [`Personality`]. They arrive on the server's
/// single port and are assigned by their greeting (a UDP datagram by its source address).
pub trait DataConnections: std::fmt::Debug {
    /// Reserves what the test needs, before any of it is allocated, for as long as this value
    /// lives. Data connections beyond `need` are not accepted.
    ///
    /// # Errors
    /// The resources are in use, or exceed what any client may have.
    fn reserve(&mut self, need: Need) -> Result<(), Refusal>;

    /// From now on a datagram from a new address of this test's peer is kept for [`next_udp`](Self::next_udp), as often
    /// as streams are reserved. To be called before the peer is told to open them: some greet once and wait. Tests of one
    /// address take turns with this, because a datagram does not say whose it is.
    ///
    /// # Errors
    /// Before `deadline` another test of that address did not get all its streams, or the server is ending.
    fn expect_udp(&mut self, _deadline: Instant) -> Result<(), DataError> {
        Ok(())
    }

    /// The next TCP connection of this test, after its greeting, with its number among all accepted
    /// connections. The numbers give the order in which the client opened them; the greetings may
    /// be read in another order.
    ///
    /// # Errors
    /// No connection arrived before `deadline`, or the server is ending.
    fn next_tcp(&mut self, deadline: Instant) -> Result<(u64, TcpStream), DataError>;

    /// A socket on the server's port, connected to a new address of this test's peer, and the first
    /// datagram from there. Nothing has been sent back yet.
    ///
    /// # Errors
    /// No datagram arrived before `deadline`, or the server is ending.
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
    #[error("the server is shutting down")]
    Ending,
    /// A system call failed.
    #[error("data connection")]
    Socket(#[from] io::Error),
}
