//! Interfaces (`struct ifinfomsg`): what they are, what is changed on them, and veth pairs.

use crate::attribute::{Attribute, attribute, read};
use crate::bytes::{text_of, u32_of, u64_of};
use crate::encoder::Encoder;
use crate::message::{Message, flag};
use crate::object::{MalformedError, Object, ask, list, split};

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_QDISC: u16 = 6;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_CARRIER: u16 = 33;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_XDP: u16 = 43;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_GRO_MAX_SIZE: u16 = 58;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const VETH_INFO_PEER: u16 = 1;

const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
const IFF_NOARP: u32 = 1 << 7;
const IFF_LOWER_UP: u32 = 1 << 16;

/// Length of `struct ifinfomsg`.
const HEADER_BYTES: usize = 16;

/// An interface, as the kernel lists it. What an older kernel does not say is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number in its network namespace.
    pub index: u32,
    /// `eth0`. The kernel allows bytes that are not UTF-8; they are shown as U+FFFD.
    pub name: String,
    /// Interface flags, `IFF_…`.
    pub flags: u32,
    /// Hardware address; empty when it has none.
    pub hardware_address: Vec<u8>,
    /// Kind of a software device: `veth`, `tun`, `bridge`.
    pub kind: Option<String>,
    /// MTU, bytes.
    pub mtu_bytes: Option<u32>,
    /// Largest MTU the device takes, bytes; 0 where it does not say.
    pub mtu_max_bytes: Option<u32>,
    /// Length of the transmit queue, packets.
    pub tx_queue_pkts: Option<u32>,
    /// Queueing discipline at the root: `noqueue`, `fq_codel`.
    pub qdisc: Option<String>,
    /// The bridge, bond or VRF it belongs to.
    pub master_index: Option<u32>,
    /// Receive queues the kernel set aside; the device may use fewer.
    pub rx_queues_count: Option<u32>,
    /// Transmit queues the kernel set aside.
    pub tx_queues_count: Option<u32>,
    /// Largest segment that is handed to the device, bytes.
    pub gso_max_bytes: Option<u32>,
    /// Largest segment that is put together on receipt, bytes.
    pub gro_max_bytes: Option<u32>,
    /// The kernel's number of the XDP program that runs on it, if one does.
    pub xdp_program: Option<u32>,
    /// Counters, in the order of `struct rtnl_link_stats64`; later kernels have more.
    pub statistics: Vec<u64>,
}

impl Link {
    /// Whether it is administratively up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.flags & IFF_UP != 0
    }

    /// The link carries: a cable, or the other end of a pair, is there and up.
    #[must_use]
    pub fn has_carrier(&self) -> bool {
        self.flags & IFF_LOWER_UP != 0
    }

    /// Asks and answers for hardware addresses (ARP).
    #[must_use]
    pub fn has_arp(&self) -> bool {
        self.flags & IFF_NOARP == 0
    }

    /// Whether it is the loopback device.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.flags & IFF_LOOPBACK != 0
    }

    /// Lists all interfaces.
    #[must_use]
    pub fn dump() -> Message {
        let mut encoder = Encoder::default();
        encoder.fixed(&header(0, 0, 0));
        list::<Self>(encoder)
    }

    /// Requests one interface.
    #[must_use]
    pub fn get(index: u32) -> Message {
        let mut encoder = Encoder::default();
        encoder.fixed(&header(index, 0, 0));
        ask::<Self>(encoder)
    }

    /// Deletes one: of a pair both.
    #[must_use]
    pub fn delete(index: u32) -> Message {
        Message { kind: Self::NEW_KIND + 1, flags: 0, body: header(index, 0, 0).to_vec() }
    }

    fn take(&mut self, attribute: Attribute<'_>) -> Result<(), MalformedError> {
        const NAME: &str = Link::NAME;
        let number = || attribute.u32(NAME).map(Some);
        match attribute.kind() {
            IFLA_IFNAME => self.name = name(attribute.value),
            IFLA_ADDRESS => self.hardware_address = attribute.value.to_vec(),
            IFLA_MTU => self.mtu_bytes = number()?,
            IFLA_MAX_MTU => self.mtu_max_bytes = number()?,
            IFLA_TXQLEN => self.tx_queue_pkts = number()?,
            IFLA_QDISC => self.qdisc = text_of(attribute.value),
            IFLA_MASTER => self.master_index = number()?,
            IFLA_NUM_RX_QUEUES => self.rx_queues_count = number()?,
            IFLA_NUM_TX_QUEUES => self.tx_queues_count = number()?,
            IFLA_GSO_MAX_SIZE => self.gso_max_bytes = number()?,
            IFLA_GRO_MAX_SIZE => self.gro_max_bytes = number()?,
            IFLA_LINKINFO => self.kind = kind(attribute.value),
            IFLA_XDP => self.xdp_program = xdp_program(attribute.value),
            IFLA_STATS64 => {
                self.statistics = attribute.value.chunks_exact(8).filter_map(u64_of).collect();
            }
            _other => {}
        }
        Ok(())
    }
}

impl Object for Link {
    const NAME: &'static str = "link";
    const NEW_KIND: u16 = 16;

    fn parse(body: &[u8]) -> Result<Self, MalformedError> {
        let (header, attributes) = split::<HEADER_BYTES>(Self::NAME, body)?;
        let [_, _, _, _, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *header;
        let mut link = Self {
            index: u32::from_ne_bytes([i0, i1, i2, i3]),
            flags: u32::from_ne_bytes([f0, f1, f2, f3]),
            ..Self::default()
        };
        read(Self::NAME, attributes, |attribute| link.take(attribute))?;
        if link.name.is_empty() {
            return Err(MalformedError::Missing { object: Self::NAME, kind: IFLA_IFNAME });
        }
        Ok(link)
    }
}

/// What to change on an interface; `None` leaves it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// Largest packet, bytes.
    pub mtu_bytes: Option<u32>,
    /// Packets the device queues before it drops.
    pub tx_queue_pkts: Option<u32>,
    /// Bring it up.
    pub up: bool,
    /// Hardware address of an Ethernet device.
    pub hardware_address: Option<[u8; 6]>,
    /// Whether it asks and answers for hardware addresses (ARP).
    pub arp: Option<bool>,
    /// Whether it has a carrier; of the software devices TAP and dummy take it, veth does not.
    pub carrier: Option<bool>,
}

impl LinkSettings {
    /// The request that changes an interface.
    #[must_use]
    pub fn message(&self, index: u32) -> Message {
        let up = if self.up { IFF_UP } else { 0 };
        let no_arp = if self.arp == Some(false) { IFF_NOARP } else { 0 };
        let change = if self.arp.is_some() { up | IFF_NOARP } else { up };
        let mut encoder = Encoder::default();
        encoder.fixed(&header(index, up | no_arp, change));
        if let Some(address) = &self.hardware_address {
            encoder.attribute(IFLA_ADDRESS, address);
        }
        if let Some(carrier) = self.carrier {
            encoder.attribute(IFLA_CARRIER, &[u8::from(carrier)]);
        }
        for (kind, value) in [(IFLA_MTU, self.mtu_bytes), (IFLA_TXQLEN, self.tx_queue_pkts)] {
            value.into_iter().for_each(|value| encoder.u32(kind, value));
        }
        let body = encoder.finish().unwrap_or_default();
        Message { kind: Link::NEW_KIND, flags: 0, body }
    }
}

/// Two ends of a virtual cable.
#[derive(Debug, Clone, Copy)]
pub struct VethPair<'a> {
    /// The end in the namespace that is asked.
    pub name: &'a str,
    /// Name of the other end.
    pub peer_name: &'a str,
    /// Descriptor of the other end's network namespace.
    pub peer_namespace: i32,
    /// Queues of each end either way, or the kernel's default of one.
    pub queues_count: Option<u32>,
}

impl VethPair<'_> {
    /// The request that makes it.
    #[must_use]
    pub fn message(&self) -> Message {
        let mut encoder = Encoder::default();
        encoder.fixed(&header(0, 0, 0));
        self.encode_end(self.name, &mut encoder);
        encoder.nested(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "veth");
            info.nested(IFLA_INFO_DATA, |data| {
                data.nested(VETH_INFO_PEER, |peer| {
                    peer.fixed(&header(0, 0, 0));
                    self.encode_end(self.peer_name, peer);
                    peer.attribute(IFLA_NET_NS_FD, &self.peer_namespace.to_ne_bytes());
                });
            });
        });
        // Names that are too long leave an empty body, which the kernel refuses.
        let body = encoder.finish().unwrap_or_default();
        Message { kind: Link::NEW_KIND, flags: flag::CREATE | flag::EXCLUSIVE, body }
    }

    fn encode_end(&self, name: &str, to: &mut Encoder) {
        to.text(IFLA_IFNAME, name);
        for kind in [IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES] {
            self.queues_count.into_iter().for_each(|count| to.u32(kind, count));
        }
    }
}

fn name(value: &[u8]) -> String {
    let name = value.split(|&byte| byte == 0).next().unwrap_or(&[]);
    String::from_utf8_lossy(name).into_owned()
}

fn kind(info: &[u8]) -> Option<String> {
    text_of(attribute(info, IFLA_INFO_KIND)?)
}

fn xdp_program(info: &[u8]) -> Option<u32> {
    attribute(info, IFLA_XDP_PROG_ID).and_then(u32_of).filter(|&number| number != 0)
}

fn header(index: u32, flags: u32, change: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..].copy_from_slice(&change.to_ne_bytes());
    bytes
}
