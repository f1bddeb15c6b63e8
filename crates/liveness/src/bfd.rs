//! Bidirectional Forwarding Detection: asynchronous mode without echo (RFC 5880), over one hop (RFC 5881)
//! and over several (RFC 5883).
//!
//! * [`ControlPacket`]: the packet, to bytes and back;
//! * [`Session`]: one session: its states, timers, poll sequences and detection time;
//! * [`Sessions`]: many sessions, and which of them a packet is for;
//! * [`Hops`]: ports and TTL rules.
//!
//! There is **no authentication** (RFC 5880 section 4.2 to 4.4): a packet that has any is refused, as the
//! RFC demands of a session without. Over one hop the TTL of 255 keeps out every sender that is not on the
//! link; over several hops whoever can send with the peer's address and sees or guesses a discriminator of
//! 32 random bits can take a session down. Neither echo nor demand mode is offered; a peer that asks for
//! demand mode gets it, as the RFC demands.

mod packet;
mod session;
mod sessions;

pub use packet::{
    ControlPacket, Diagnostic, MalformedControlPacketError, PACKET_BYTES, PACKET_BYTES_MAX, State,
};
pub use session::{Role, Session, SessionConfig, SessionConfigError, StateChange};
pub use sessions::{
    AddSessionError, Arrival, Peer, RefusalCounters, RefusedPacketError, SessionId, Sessions,
};

/// TTL (hop limit) that every packet is sent with.
pub const TTL_SENT: u8 = 255;
/// Smallest UDP source port that packets are sent from (RFC 5881 section 4); the largest is 65535.
pub const SOURCE_PORT_MIN: u16 = 49_152;

/// How far a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hops {
    /// On the same link (RFC 5881).
    One,
    /// Behind routers (RFC 5883).
    Several {
        /// Smallest TTL accepted: 255 less the number of routers between. 0 or 1 accepts any, which some peers
        /// need: BIRD 2.0 sends over several hops with the system's TTL of 64.
        ttl_min: u8,
    },
}

impl Hops {
    /// UDP port that packets are sent to.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::One => 3784,
            Self::Several { .. } => 4784,
        }
    }

    /// Smallest TTL of an accepted packet. Over one hop it is 255, which no router forwards (GTSM, RFC 5082).
    #[must_use]
    pub fn ttl_min(self) -> u8 {
        match self {
            Self::One => 255,
            Self::Several { ttl_min } => ttl_min,
        }
    }
}
