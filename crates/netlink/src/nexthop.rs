//! Nexthop objects, groups of them, and the buckets of resilient groups (`struct nhmsg`, Linux 5.3;
//! resilient groups 5.13).
//!
//! What the kernel does not allow (Linux 6.18): making a group of a nexthop or the reverse, changing a group's type, or a
//! resilient group's number of buckets. Deleting a nexthop or group deletes every route that uses it.

use core::net::IpAddr;

use crate::attribute::{Attribute, RawAttribute, read};
use crate::bytes::u32_of;
use crate::encoder::Encoder;
use crate::message::Message;
use crate::object::{Configurable, MalformedError, Object, ask, list, protocol, split};
use crate::prefix::Family;

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_GROUPS: u16 = 9;
const NHA_RES_GROUP: u16 = 12;
const NHA_RES_BUCKET: u16 = 13;
const NHA_OP_FLAGS: u16 = 14;
const NHA_GROUP_STATS: u16 = 15;
const NHA_HW_STATS_USED: u16 = 17;

const NHA_RES_GROUP_BUCKETS: u16 = 1;
const NHA_RES_GROUP_IDLE_TIMER: u16 = 2;
const NHA_RES_GROUP_UNBALANCED_TIMER: u16 = 3;
const NHA_RES_GROUP_UNBALANCED_TIME: u16 = 4;

const NHA_RES_BUCKET_INDEX: u16 = 1;
const NHA_RES_BUCKET_IDLE_TIME: u16 = 2;
const NHA_RES_BUCKET_NH_ID: u16 = 3;

const GROUP_TYPE_RESILIENT: u16 = 1;
/// `RTNH_F_ONLINK`.
const ONLINK: u32 = 4;
/// Length of `struct nhmsg`.
const HEADER_BYTES: usize = 8;
/// Length of `struct nexthop_grp`.
const MEMBER_BYTES: usize = 8;

/// A nexthop object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Nexthop {
    /// Its number in the network namespace; 0 in a request: the kernel chooses.
    pub id: u32,
    /// Number of the protocol that installed it.
    pub protocol: u8,
    /// Kind of the object.
    pub kind: NexthopKind,
    /// Attributes that have no field here, as they were read.
    pub other: Vec<RawAttribute>,
}

/// What a nexthop object is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NexthopKind {
    /// Drops packets.
    Blackhole(Family),
    /// One next hop.
    Hop(Hop),
    /// Several nexthops that share the flows.
    Group {
        /// In the order that the hash counts them.
        members: Vec<Member>,
        /// A resilient group moves as few flows as it can when its members change.
        resilience: Option<Resilience>,
    },
}

/// One next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hop {
    /// Of the gateway, or of the packets where there is none.
    pub family: Family,
    /// The interface; `None` only for forwarding tables of bridges.
    pub interface_index: Option<u32>,
    /// `None` where destinations are on the link.
    pub gateway: Option<IpAddr>,
    /// The gateway is taken to be on the link, whatever the interface's addresses say.
    pub is_onlink: bool,
}

/// A member of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Member {
    /// Id of the nexthop.
    pub id: u32,
    /// Its share, 1 to 256; from Linux 6.12 to 65 535.
    pub weight: u16,
}

/// What a resilient group is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resilience {
    /// Buckets that flows are hashed to.
    pub buckets_count: u16,
    /// A bucket that was idle for so long may go to another member, hundredths of a second.
    pub idle_hundredths: u32,
    /// A group that was out of balance for so long is balanced by force, hundredths of a second; 0: never.
    pub unbalanced_hundredths: u32,
}

/// A bucket of a resilient group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Id of the group.
    pub group: u32,
    /// Its place in the group.
    pub index: u16,
    /// The nexthop its flows go to.
    pub nexthop: u32,
    /// How long no packet has used it, hundredths of a second.
    pub idle_hundredths: u64,
}

/// Which nexthops are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NexthopFilter {
    /// Whether only groups are listed.
    pub groups_only: bool,
    /// Only those over this interface.
    pub interface_index: Option<u32>,
}

impl Nexthop {
    /// A nexthop of this program.
    #[must_use]
    pub fn new(id: u32, kind: NexthopKind) -> Self {
        Self { id, protocol: protocol::CLEARSTREAM, kind, other: Vec::new() }
    }

    /// A gateway on an interface's link.
    #[must_use]
    pub fn via(id: u32, gateway: IpAddr, interface_index: u32) -> Self {
        let family = Family::of(gateway);
        let hop = Hop {
            family,
            interface_index: Some(interface_index),
            gateway: Some(gateway),
            is_onlink: false,
        };
        Self::new(id, NexthopKind::Hop(hop))
    }

    /// A group whose members share by hash and weight.
    #[must_use]
    pub fn group(id: u32, members: Vec<Member>) -> Self {
        Self::new(id, NexthopKind::Group { members, resilience: None })
    }

    /// Lists nexthops and groups, by number.
    #[must_use]
    pub fn dump(filter: NexthopFilter) -> Message {
        let mut encoder = Encoder::default();
        encoder.fixed(&[0; HEADER_BYTES]);
        if filter.groups_only {
            encoder.attribute(NHA_GROUPS, &[]);
        }
        if let Some(index) = filter.interface_index {
            encoder.u32(NHA_OIF, index);
        }
        list::<Self>(encoder)
    }

    /// Asks for one; the kernel refuses with `ENOENT` where there is none.
    #[must_use]
    pub fn get(id: u32) -> Message {
        let mut encoder = Encoder::default();
        encoder.fixed(&[0; HEADER_BYTES]);
        encoder.u32(NHA_ID, id);
        ask::<Self>(encoder)
    }
}

/// Attributes whose meaning depends on others.
#[derive(Default)]
struct Parts {
    id: Option<u32>,
    members: Option<Vec<Member>>,
    group_type: u16,
    is_blackhole: bool,
    interface_index: Option<u32>,
    gateway: Option<IpAddr>,
    resilience: Option<Resilience>,
    other: Vec<RawAttribute>,
}

impl Object for Nexthop {
    const NAME: &'static str = "nexthop";
    const NEW_KIND: u16 = 104;

    fn parse(body: &[u8]) -> Result<Self, MalformedError> {
        let (header, attributes) = split::<HEADER_BYTES>(Self::NAME, body)?;
        let [family, _scope, protocol, _, flags @ ..] = *header;
        let mut parts = Parts::default();
        read(Self::NAME, attributes, |attribute| parts.take(attribute))?;
        let id = parts.id.ok_or(MalformedError::Missing { object: Self::NAME, kind: NHA_ID })?;
        let family = Family::from_number(family)
            .ok_or(MalformedError::Family { object: Self::NAME, family });
        let kind = match parts.members {
            Some(members) => {
                let is_resilient = parts.group_type == GROUP_TYPE_RESILIENT;
                let resilience = parts.resilience.filter(|_| is_resilient);
                NexthopKind::Group { members, resilience }
            }
            None if parts.is_blackhole => NexthopKind::Blackhole(family?),
            None => NexthopKind::Hop(Hop {
                family: family?,
                interface_index: parts.interface_index,
                gateway: parts.gateway,
                is_onlink: u32::from_ne_bytes(flags) & ONLINK != 0,
            }),
        };
        Ok(Self { id, protocol, kind, other: parts.other })
    }
}

impl Parts {
    fn take(&mut self, attribute: Attribute<'_>) -> Result<(), MalformedError> {
        const NAME: &str = Nexthop::NAME;
        match attribute.kind() {
            NHA_ID => self.id = Some(attribute.u32(NAME)?),
            NHA_GROUP => self.members = Some(members(&attribute)?),
            NHA_GROUP_TYPE => self.group_type = attribute.u16(NAME)?,
            NHA_BLACKHOLE => self.is_blackhole = true,
            NHA_OIF => self.interface_index = Some(attribute.u32(NAME)?),
            NHA_GATEWAY => self.gateway = Some(attribute.address(NAME)?),
            NHA_RES_GROUP => self.resilience = Some(resilience(attribute.value)?),
            // What this kernel's answers are like, and counters: listed, and refused when sent.
            NHA_OP_FLAGS | NHA_GROUP_STATS | NHA_HW_STATS_USED => {}
            _other => self.other.push(attribute.keep()),
        }
        Ok(())
    }
}

impl Configurable for Nexthop {
    fn encode(&self, to: &mut Encoder) {
        let (family, is_onlink) = match &self.kind {
            NexthopKind::Blackhole(family) => (family.number(), false),
            NexthopKind::Hop(hop) => (hop.family.number(), hop.is_onlink),
            NexthopKind::Group { .. } => (0, false),
        };
        to.fixed(&[family, 0, self.protocol, 0]);
        to.fixed(&if is_onlink { ONLINK } else { 0 }.to_ne_bytes());
        to.u32(NHA_ID, self.id);
        match &self.kind {
            NexthopKind::Blackhole(_family) => to.attribute(NHA_BLACKHOLE, &[]),
            NexthopKind::Hop(hop) => {
                hop.interface_index.into_iter().for_each(|index| to.u32(NHA_OIF, index));
                hop.gateway.into_iter().for_each(|gateway| to.address(NHA_GATEWAY, gateway));
            }
            NexthopKind::Group { members, resilience } => {
                encode_members(members, to);
                resilience.iter().for_each(|resilience| resilience.encode(to));
            }
        }
        to.raw(&self.other);
    }

    fn encode_key(&self, to: &mut Encoder) {
        to.fixed(&[0; HEADER_BYTES]);
        to.u32(NHA_ID, self.id);
    }
}

fn members(attribute: &Attribute<'_>) -> Result<Vec<Member>, MalformedError> {
    let (members, rest) = attribute.value.as_chunks::<MEMBER_BYTES>();
    if !rest.is_empty() {
        return Err(attribute.malformed(Nexthop::NAME));
    }
    let member = |[a, b, c, d, low, high, _, _]: &[u8; MEMBER_BYTES]| Member {
        id: u32::from_ne_bytes([*a, *b, *c, *d]),
        // Both halves count from 0. Linux before 6.12 knows only the low one.
        weight: u16::from_le_bytes([*low, *high]).saturating_add(1),
    };
    Ok(members.iter().map(member).collect())
}

fn encode_members(members: &[Member], to: &mut Encoder) {
    let bytes: Vec<u8> = members
        .iter()
        .flat_map(|member| {
            let [a, b, c, d] = member.id.to_ne_bytes();
            let [low, high] = member.weight.saturating_sub(1).to_le_bytes();
            [a, b, c, d, low, high, 0, 0]
        })
        .collect();
    to.attribute(NHA_GROUP, &bytes);
}

fn resilience(bytes: &[u8]) -> Result<Resilience, MalformedError> {
    const NAME: &str = Nexthop::NAME;
    let mut told = Resilience { buckets_count: 0, idle_hundredths: 0, unbalanced_hundredths: 0 };
    read(NAME, bytes, |attribute| {
        match attribute.kind() {
            NHA_RES_GROUP_BUCKETS => told.buckets_count = attribute.u16(NAME)?,
            NHA_RES_GROUP_IDLE_TIMER => told.idle_hundredths = attribute.u32(NAME)?,
            NHA_RES_GROUP_UNBALANCED_TIMER => told.unbalanced_hundredths = attribute.u32(NAME)?,
            // For how long it has been out of balance: state.
            NHA_RES_GROUP_UNBALANCED_TIME => {}
            _padding => {}
        }
        Ok(())
    })?;
    Ok(told)
}

impl Resilience {
    fn encode(&self, to: &mut Encoder) {
        to.u16(NHA_GROUP_TYPE, GROUP_TYPE_RESILIENT);
        to.nested(NHA_RES_GROUP, |inner| {
            inner.u16(NHA_RES_GROUP_BUCKETS, self.buckets_count);
            inner.u32(NHA_RES_GROUP_IDLE_TIMER, self.idle_hundredths);
            inner.u32(NHA_RES_GROUP_UNBALANCED_TIMER, self.unbalanced_hundredths);
        });
    }
}

impl Bucket {
    /// Lists the buckets of a resilient group.
    #[must_use]
    pub fn dump(group: u32) -> Message {
        let mut encoder = Encoder::default();
        encoder.fixed(&[0; HEADER_BYTES]);
        encoder.u32(NHA_ID, group);
        list::<Self>(encoder)
    }
}

impl Object for Bucket {
    const NAME: &'static str = "nexthop bucket";
    const NEW_KIND: u16 = 116;

    fn parse(body: &[u8]) -> Result<Self, MalformedError> {
        const NAME: &str = Bucket::NAME;
        let (_header, attributes) = split::<HEADER_BYTES>(NAME, body)?;
        let (mut group, mut index, mut nexthop, mut idle_hundredths) = (None, None, None, None);
        read(NAME, attributes, |outer| {
            match outer.kind() {
                NHA_ID => group = u32_of(outer.value),
                NHA_RES_BUCKET => read(NAME, outer.value, |inner| {
                    match inner.kind() {
                        NHA_RES_BUCKET_INDEX => index = Some(inner.u16(NAME)?),
                        NHA_RES_BUCKET_IDLE_TIME => idle_hundredths = Some(inner.u64(NAME)?),
                        NHA_RES_BUCKET_NH_ID => nexthop = Some(inner.u32(NAME)?),
                        _padding => {}
                    }
                    Ok(())
                })?,
                _other => {}
            }
            Ok(())
        })?;
        let missing = |kind| MalformedError::Missing { object: NAME, kind };
        Ok(Self {
            group: group.ok_or(missing(NHA_ID))?,
            index: index.ok_or(missing(NHA_RES_BUCKET))?,
            nexthop: nexthop.ok_or(missing(NHA_RES_BUCKET))?,
            idle_hundredths: idle_hundredths.unwrap_or(0),
        })
    }
}
