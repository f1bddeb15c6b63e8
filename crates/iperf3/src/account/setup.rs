//! A test as agreed, and its data connections.

use std::net::SocketAddr;

use crate::wire::{Parameters, Transport};

/// Which end of the control connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// `-c`.
    Client,
    /// `-s`.
    Server,
}

/// A test as agreed, seen from one end.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// This end.
    pub side: Side,
    /// What the client asked for, block length settled.
    pub asked: Parameters,
    /// Seconds between this end's reports; 0: only at the end.
    pub interval_s: f64,
}

impl Setup {
    /// Whether this end sends on some stream.
    #[must_use]
    pub fn sends(&self) -> bool {
        self.asked.bidirectional || (self.asked.reverse == (self.side == Side::Server))
    }

    /// Whether this end receives on some stream.
    #[must_use]
    pub fn receives(&self) -> bool {
        self.asked.bidirectional || !self.sends()
    }

    /// Streams of each direction.
    #[must_use]
    pub fn streams(&self) -> usize {
        usize::try_from(self.asked.streams).unwrap_or(0)
    }

    /// For each stream in the order of creation, whether this end sends on it. In a bidirectional
    /// test the client's sending streams come first.
    #[must_use]
    pub fn sending_flags(&self) -> Vec<bool> {
        let first = if self.asked.bidirectional { self.side == Side::Client } else { self.sends() };
        let mut flags = vec![first; self.streams()];
        if self.asked.bidirectional {
            flags.extend(vec![!first; self.streams()]);
        }
        flags
    }

    /// Whether retransmissions can be counted at this end: TCP, sending.
    #[must_use]
    pub fn has_retransmits(&self) -> bool {
        self.is_tcp() && self.sends()
    }

    /// Whether the streams are TCP.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.asked.transport == Transport::Tcp
    }
}

/// One data connection.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamLabel {
    /// Position in the order of creation.
    pub position: usize,
    /// Whether this end sends.
    pub sending: bool,
    /// This end.
    pub local: SocketAddr,
    /// The other one.
    pub remote: SocketAddr,
}

impl StreamLabel {
    /// iperf3's stream number: 1, 3, 4, 5, …
    #[must_use]
    pub fn id(&self) -> i64 {
        let position = i64::try_from(self.position).unwrap_or(i64::MAX - 2);
        if position == 0 { 1 } else { position + 2 }
    }

    /// What stands in brackets. iperf3 prints file descriptors, which begin at 5.
    #[must_use]
    pub fn socket(&self) -> i64 {
        5 + 2 * i64::try_from(self.position).unwrap_or(0)
    }
}
