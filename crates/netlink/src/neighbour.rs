//! Neighbours (`struct ndmsg`): which hardware address an address on the link has.

use core::net::IpAddr;

use crate::attribute::{RawAttribute, read};
use crate::encoder::Encoder;
use crate::message::Message;
use crate::object::{Configurable, MalformedError, Object, list, protocol, split};
use crate::prefix::Family;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_CACHEINFO: u16 = 3;
const NDA_PROBES: u16 = 4;
const NDA_IFINDEX: u16 = 8;
const NDA_PROTOCOL: u16 = 12;
/// `NTF_USE`: somebody wants to send to it.
const NTF_USE: u8 = 1;
/// Length of `struct ndmsg`.
const HEADER_BYTES: usize = 12;

/// What is known of a neighbour (`NUD_…`), as bits.
pub mod neighbour_state {
    /// The neighbour answers.
    pub const REACHABLE: u16 = 0x02;
    /// It answered some time ago.
    pub const STALE: u16 = 0x04;
    /// It does not answer.
    pub const FAILED: u16 = 0x20;
    /// Nobody is asked where it is.
    pub const NOARP: u16 = 0x40;
    /// Somebody set it for good.
    pub const PERMANENT: u16 = 0x80;
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// The interface to its link.
    pub interface_index: u32,
    /// IP address of the neighbour.
    pub address: IpAddr,
    /// Its hardware address; empty where it is not known.
    pub hardware_address: Vec<u8>,
    /// One of [`neighbour_state`].
    pub state: u16,
    /// Neighbour flags, `NTF_…`.
    pub flags: u8,
    /// Who installed it; 0 where the kernel learned it.
    pub protocol: u8,
    /// Attributes that have no field here, as they were read.
    pub other: Vec<RawAttribute>,
}

/// Which neighbours are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighbourFilter {
    /// Address family to list.
    pub family: Family,
    /// Only over this interface.
    pub interface_index: Option<u32>,
}

impl Neighbour {
    /// A neighbour that this program sets for good.
    #[must_use]
    pub fn permanent(interface_index: u32, address: IpAddr, hardware_address: Vec<u8>) -> Self {
        Self {
            interface_index,
            address,
            hardware_address,
            state: neighbour_state::PERMANENT,
            flags: 0,
            protocol: protocol::CLEARSTREAM,
            other: Vec::new(),
        }
    }

    /// A neighbour whose creation, which replaces the one that is there, has the kernel look for it on the link as if a
    /// packet were to be sent to it. What it finds is announced.
    #[must_use]
    pub fn sought(interface_index: u32, address: IpAddr) -> Self {
        Self {
            state: 0,
            flags: NTF_USE,
            protocol: protocol::UNSPECIFIED,
            ..Self::permanent(interface_index, address, Vec::new())
        }
    }

    /// A neighbour whose creation, which replaces the one that is there, has the kernel forget where it is: the next packet to
    /// it asks everybody on the link.
    #[must_use]
    pub fn lost(interface_index: u32, address: IpAddr) -> Self {
        Self { state: neighbour_state::FAILED, flags: 0, ..Self::sought(interface_index, address) }
    }

    /// Lists neighbours.
    #[must_use]
    pub fn dump(filter: NeighbourFilter) -> Message {
        let mut encoder = Encoder::default();
        let mut header = [0; HEADER_BYTES];
        header[0] = filter.family.number();
        encoder.fixed(&header);
        if let Some(index) = filter.interface_index {
            encoder.u32(NDA_IFINDEX, index);
        }
        list::<Self>(encoder)
    }
}

impl Object for Neighbour {
    const NAME: &'static str = "neighbour";
    const NEW_KIND: u16 = 28;

    fn parse(body: &[u8]) -> Result<Self, MalformedError> {
        const NAME: &str = Neighbour::NAME;
        let (header, attributes) = split::<HEADER_BYTES>(NAME, body)?;
        let [family, _, _, _, i0, i1, i2, i3, s0, s1, flags, _kind] = *header;
        let wrong_family = MalformedError::Family { object: NAME, family };
        let family = Family::from_number(family).ok_or(wrong_family)?;
        let mut address = None;
        let mut neighbour = Self {
            interface_index: u32::from_ne_bytes([i0, i1, i2, i3]),
            address: family.unspecified(),
            hardware_address: Vec::new(),
            state: u16::from_ne_bytes([s0, s1]),
            flags,
            protocol: protocol::UNSPECIFIED,
            other: Vec::new(),
        };
        read(NAME, attributes, |attribute| {
            match attribute.kind() {
                NDA_DST => address = Some(attribute.address(NAME)?),
                NDA_LLADDR => neighbour.hardware_address = attribute.value.to_vec(),
                NDA_PROTOCOL => neighbour.protocol = attribute.u8(NAME)?,
                // Ages, use counts and questions asked: state.
                NDA_CACHEINFO | NDA_PROBES => {}
                _other => neighbour.other.push(attribute.keep()),
            }
            Ok(())
        })?;
        neighbour.address =
            address.ok_or(MalformedError::Missing { object: NAME, kind: NDA_DST })?;
        if Family::of(neighbour.address) != family {
            return Err(wrong_family);
        }
        Ok(neighbour)
    }
}

impl Configurable for Neighbour {
    fn encode(&self, to: &mut Encoder) {
        self.encode_key(to);
        if !self.hardware_address.is_empty() {
            to.attribute(NDA_LLADDR, &self.hardware_address);
        }
        if self.protocol != protocol::UNSPECIFIED {
            to.u8(NDA_PROTOCOL, self.protocol);
        }
        to.raw(&self.other);
    }

    fn encode_key(&self, to: &mut Encoder) {
        let [s0, s1] = self.state.to_ne_bytes();
        to.fixed(&[Family::of(self.address).number(), 0, 0, 0]);
        to.fixed(&self.interface_index.to_ne_bytes());
        to.fixed(&[s0, s1, self.flags, 0]);
        to.address(NDA_DST, self.address);
    }
}
