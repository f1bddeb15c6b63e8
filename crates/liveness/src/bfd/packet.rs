//! The control packet (RFC 5880 section 4.1).

use serde::Serialize;
use thiserror::Error;

/// Bytes of a packet without authentication.
pub const PACKET_BYTES: usize = 24;
/// Most bytes that a packet can say it has.
pub const PACKET_BYTES_MAX: usize = 255;

const VERSION: u8 = 1;
const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const CONTROL_PLANE_INDEPENDENT: u8 = 0x08;
const AUTHENTICATION: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;

/// State of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Taken down by its administrator.
    AdminDown,
    /// Nothing has been heard from the peer.
    Down,
    /// The peer has been heard and does not yet hear this end.
    Init,
    /// Both ends hear each other.
    Up,
}

impl State {
    fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::AdminDown => 0,
            Self::Down => 1,
            Self::Init => 2,
            Self::Up => 3,
        }
    }
}

/// Why a session changed its state last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Diagnostic {
    /// No reason.
    None,
    /// No packet came during the detection time.
    DetectionTimeExpired,
    /// The echo function failed.
    EchoFailed,
    /// The peer said that its session is down.
    NeighborSignaledDown,
    /// The forwarding plane was reset.
    ForwardingPlaneReset,
    /// The path is down, by another source.
    PathDown,
    /// A path that this one is joined to is down.
    ConcatenatedPathDown,
    /// Taken down by its administrator.
    AdministrativelyDown,
    /// A path joined to this one is down in the other direction.
    ReverseConcatenatedPathDown,
    /// A code that the RFC reserves: 9 to 31.
    Reserved(u8),
}

impl Diagnostic {
    fn from_bits(bits: u8) -> Self {
        match bits & 0x1f {
            0 => Self::None,
            1 => Self::DetectionTimeExpired,
            2 => Self::EchoFailed,
            3 => Self::NeighborSignaledDown,
            4 => Self::ForwardingPlaneReset,
            5 => Self::PathDown,
            6 => Self::ConcatenatedPathDown,
            7 => Self::AdministrativelyDown,
            8 => Self::ReverseConcatenatedPathDown,
            code => Self::Reserved(code),
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::None => 0,
            Self::DetectionTimeExpired => 1,
            Self::EchoFailed => 2,
            Self::NeighborSignaledDown => 3,
            Self::ForwardingPlaneReset => 4,
            Self::PathDown => 5,
            Self::ConcatenatedPathDown => 6,
            Self::AdministrativelyDown => 7,
            Self::ReverseConcatenatedPathDown => 8,
            Self::Reserved(code) => code & 0x1f,
        }
    }
}

/// A control packet without authentication. Intervals are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlPacket {
    /// Why the sender's session changed its state last.
    pub diagnostic: Diagnostic,
    /// State of the sender's session.
    pub state: State,
    /// Asks for an answer with `is_final`.
    pub is_poll: bool,
    /// Answers a packet with `is_poll`.
    pub is_final: bool,
    /// The sender's BFD survives the loss of its control plane.
    pub is_control_plane_independent: bool,
    /// The sender asks not to be sent periodic packets.
    pub is_demand: bool,
    /// So many missed packets in a row take the session down; at least 1.
    pub detect_multiplier: u8,
    /// The sender's discriminator; not 0.
    pub my_discriminator: u32,
    /// The receiver's discriminator as the sender knows it; 0 before it knows.
    pub your_discriminator: u32,
    /// The interval that the sender would like to send at.
    pub desired_min_tx_us: u32,
    /// The shortest interval that the sender can receive at; 0: it wants no periodic packets.
    pub required_min_rx_us: u32,
    /// The same for echo packets; 0: it takes none.
    pub required_min_echo_rx_us: u32,
}

/// Why bytes are no control packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum MalformedControlPacketError {
    /// Fewer bytes than a packet has.
    #[error("the packet has {0} bytes, fewer than 24")]
    TooShort(usize),
    /// Another version of the protocol.
    #[error("the packet is of version {0}, not 1")]
    Version(u8),
    /// The length it states is less than that of its fields, or more than came.
    #[error("the packet states {stated} bytes; {came} arrived")]
    Length {
        /// What the packet says.
        stated: u8,
        /// Bytes that arrived.
        came: usize,
    },
    /// It is authenticated, and no session here is.
    #[error("the packet is authenticated, and this end has no keys")]
    Authenticated,
    /// The multipoint bit is set.
    #[error("the packet is multipoint")]
    Multipoint,
    /// It both asks and answers.
    #[error("the packet has both the poll and the final bit")]
    PollAndFinal,
    /// A detection multiplier of 0.
    #[error("the packet's detection multiplier is 0")]
    ZeroMultiplier,
    /// The sender names no session of its own.
    #[error("the packet's own discriminator is 0")]
    ZeroDiscriminator,
    /// The sender is in Init or Up and does not say with which session.
    #[error("the packet is in state {0:?} and names no session here")]
    NoSession(State),
}

impl ControlPacket {
    /// Reads a packet by the rules of RFC 5880 section 6.8.6 that need no session. Bytes after the stated
    /// length are ignored.
    ///
    /// # Errors
    /// The packet must be discarded.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedControlPacketError> {
        use MalformedControlPacketError as Malformed;
        let fields = bytes.first_chunk::<PACKET_BYTES>().ok_or(Malformed::TooShort(bytes.len()))?;
        let [first, second, detect_multiplier, stated, ..] = *fields;
        if first >> 5 != VERSION {
            return Err(Malformed::Version(first >> 5));
        }
        let has = |bit: u8| second & bit != 0;
        let least = if has(AUTHENTICATION) { PACKET_BYTES + 2 } else { PACKET_BYTES };
        if usize::from(stated) < least || usize::from(stated) > bytes.len() {
            return Err(Malformed::Length { stated, came: bytes.len() });
        }
        let number = |at: usize| {
            u32::from_be_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]])
        };
        let packet = Self {
            diagnostic: Diagnostic::from_bits(first),
            state: State::from_bits(second >> 6),
            is_poll: has(POLL),
            is_final: has(FINAL),
            is_control_plane_independent: has(CONTROL_PLANE_INDEPENDENT),
            is_demand: has(DEMAND),
            detect_multiplier,
            my_discriminator: number(4),
            your_discriminator: number(8),
            desired_min_tx_us: number(12),
            required_min_rx_us: number(16),
            required_min_echo_rx_us: number(20),
        };
        let is_starting = matches!(packet.state, State::AdminDown | State::Down);
        let objection = if detect_multiplier == 0 {
            Some(Malformed::ZeroMultiplier)
        } else if has(MULTIPOINT) {
            Some(Malformed::Multipoint)
        } else if packet.my_discriminator == 0 {
            Some(Malformed::ZeroDiscriminator)
        } else if packet.your_discriminator == 0 && !is_starting {
            Some(Malformed::NoSession(packet.state))
        } else if has(AUTHENTICATION) {
            Some(Malformed::Authenticated)
        } else if packet.is_poll && packet.is_final {
            Some(Malformed::PollAndFinal)
        } else {
            None
        };
        objection.map_or(Ok(packet), Err)
    }

    /// The packet as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; PACKET_BYTES] {
        let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let mut bytes = [0; PACKET_BYTES];
        bytes[0] = VERSION << 5 | self.diagnostic.bits();
        bytes[1] = self.state.bits() << 6
            | flag(self.is_poll, POLL)
            | flag(self.is_final, FINAL)
            | flag(self.is_control_plane_independent, CONTROL_PLANE_INDEPENDENT)
            | flag(self.is_demand, DEMAND);
        bytes[2] = self.detect_multiplier;
        bytes[3] = PACKET_BYTES as u8;
        let numbers = [
            self.my_discriminator,
            self.your_discriminator,
            self.desired_min_tx_us,
            self.required_min_rx_us,
            self.required_min_echo_rx_us,
        ];
        for (field, number) in bytes[4..].chunks_exact_mut(4).zip(numbers) {
            field.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }
}
