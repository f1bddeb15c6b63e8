//! Addresses of interfaces (`struct ifaddrmsg`).

use core::net::IpAddr;

use crate::attribute::{Attribute, RawAttribute, read};
use crate::bytes::u32_of;
use crate::encoder::Encoder;
use crate::message::Message;
use crate::object::{Configurable, MalformedError, Object, list, scope, split};
use crate::prefix::Family;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_LABEL: u16 = 3;
const IFA_BROADCAST: u16 = 4;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;

/// What the administrator says of an address, not what became of it (`IFA_F_…`): no duplicate
/// detection, optimistic, home, manage temporary addresses, no route of the prefix, join groups.
const FLAGS_TOLD: u32 = 0x02 | 0x04 | 0x10 | 0x100 | 0x200 | 0x400;
/// `IFA_F_NODAD`.
const NO_DUPLICATE_DETECTION: u32 = 0x02;
/// Length of `struct ifaddrmsg`.
const HEADER_BYTES: usize = 8;
/// A lifetime that does not end.
const FOREVER: u32 = u32::MAX;

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// Index of the interface.
    pub interface_index: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of the network it belongs to.
    pub prefix_bits: u8,
    /// The address at the other end of a point-to-point link.
    pub peer: Option<IpAddr>,
    /// One of [`scope`].
    pub scope: u8,
    /// `IFA_F_…`, without those that tell what became of the address.
    pub flags: u32,
    /// IPv4: the label, by default the interface's name.
    pub label: Option<String>,
    /// IPv4: the broadcast address.
    pub broadcast: Option<IpAddr>,
    /// Seconds for which it is preferred and valid; `None` is for ever.
    pub lifetimes_s: Option<(u32, u32)>,
    /// Attributes that have no field here, as they were read.
    pub other: Vec<RawAttribute>,
}

/// Which addresses are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressFilter {
    /// Address family to list.
    pub family: Family,
    /// Only of this interface.
    pub interface_index: Option<u32>,
}

impl Address {
    /// An address that can be used at once: IPv6 without duplicate detection.
    #[must_use]
    pub fn new(interface_index: u32, address: IpAddr, prefix_bits: u8) -> Self {
        Self {
            interface_index,
            address,
            prefix_bits,
            peer: None,
            scope: scope::UNIVERSE,
            flags: if address.is_ipv6() { NO_DUPLICATE_DETECTION } else { 0 },
            label: None,
            broadcast: None,
            lifetimes_s: None,
            other: Vec::new(),
        }
    }

    /// Lists addresses.
    #[must_use]
    pub fn dump(filter: AddressFilter) -> Message {
        let mut encoder = Encoder::default();
        encoder.fixed(&[filter.family.number(), 0, 0, 0]);
        encoder.fixed(&filter.interface_index.unwrap_or(0).to_ne_bytes());
        list::<Self>(encoder)
    }

    fn take(
        &mut self,
        attribute: Attribute<'_>,
        [address, local]: &mut [Option<IpAddr>; 2],
    ) -> Result<(), MalformedError> {
        const NAME: &str = Address::NAME;
        match attribute.kind() {
            IFA_ADDRESS => *address = Some(attribute.address(NAME)?),
            IFA_LOCAL => *local = Some(attribute.address(NAME)?),
            IFA_LABEL => attribute.text_or_keep(&mut self.label, &mut self.other),
            IFA_BROADCAST => self.broadcast = Some(attribute.address(NAME)?),
            IFA_FLAGS => self.flags = attribute.u32(NAME)?,
            // `struct ifa_cacheinfo`: preferred, valid, and two times of change, which are state.
            IFA_CACHEINFO => {
                let second = |at| u32_of(attribute.value.get(at..).unwrap_or(&[]));
                let told = second(0).zip(second(4)).ok_or_else(|| attribute.malformed(NAME))?;
                self.lifetimes_s = Some(told).filter(|&told| told != (FOREVER, FOREVER));
            }
            _other => self.other.push(attribute.keep()),
        }
        Ok(())
    }
}

impl Object for Address {
    const NAME: &'static str = "address";
    const NEW_KIND: u16 = 20;

    fn parse(body: &[u8]) -> Result<Self, MalformedError> {
        let (header, attributes) = split::<HEADER_BYTES>(Self::NAME, body)?;
        let [family, prefix_bits, flags, scope, index @ ..] = *header;
        let wrong_family = MalformedError::Family { object: Self::NAME, family };
        let family = Family::from_number(family).ok_or(wrong_family)?;
        let mut read_back = Self {
            scope,
            flags: flags.into(),
            ..Self::new(u32::from_ne_bytes(index), family.unspecified(), prefix_bits)
        };
        let mut addresses = [None, None];
        read(Self::NAME, attributes, |attribute| read_back.take(attribute, &mut addresses))?;
        read_back.flags &= FLAGS_TOLD;
        let [address, local] = addresses;
        let missing = MalformedError::Missing { object: Self::NAME, kind: IFA_ADDRESS };
        read_back.address = local.or(address).ok_or(missing)?;
        read_back.peer = address.filter(|&address| address != read_back.address);
        let is_of_family = |address| Family::of(address) == family;
        if is_of_family(read_back.address) && read_back.peer.is_none_or(is_of_family) {
            Ok(read_back)
        } else {
            Err(wrong_family)
        }
    }
}

impl Configurable for Address {
    fn encode(&self, to: &mut Encoder) {
        // The header's byte holds the first eight flags, for kernels without the attribute.
        let [low, ..] = self.flags.to_le_bytes();
        to.fixed(&[Family::of(self.address).number(), self.prefix_bits, low, self.scope]);
        to.fixed(&self.interface_index.to_ne_bytes());
        to.address(IFA_LOCAL, self.address);
        to.address(IFA_ADDRESS, self.peer.unwrap_or(self.address));
        if self.flags > u32::from(low) {
            to.u32(IFA_FLAGS, self.flags);
        }
        if let Some(broadcast) = self.broadcast {
            to.address(IFA_BROADCAST, broadcast);
        }
        if let Some(label) = &self.label {
            to.text(IFA_LABEL, label);
        }
        if let Some((preferred, valid)) = self.lifetimes_s {
            let words = [preferred, valid, 0, 0].map(u32::to_ne_bytes);
            to.attribute(IFA_CACHEINFO, &words.concat());
        }
        to.raw(&self.other);
    }
}
