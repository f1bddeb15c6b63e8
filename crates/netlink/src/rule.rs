//! Rules (`struct fib_rule_hdr`): which packets look into which table.

use core::net::IpAddr;

use crate::attribute::{Attribute, RawAttribute, read};
use crate::bytes::{u16_of, u32_of};
use crate::encoder::Encoder;
use crate::message::Message;
use crate::object::{Configurable, MalformedError, Object, list, protocol, split};
use crate::prefix::{Family, Prefix};

const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TUN_ID: u16 = 12;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FRA_L3MDEV: u16 = 19;
const FRA_UID_RANGE: u16 = 20;
const FRA_PROTOCOL: u16 = 21;
const FRA_IP_PROTO: u16 = 22;
const FRA_SPORT_RANGE: u16 = 23;
const FRA_DPORT_RANGE: u16 = 24;
const FRA_SPORT_MASK: u16 = 28;
const FRA_DPORT_MASK: u16 = 29;

const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_GOTO: u8 = 2;
const FR_ACT_NOP: u8 = 3;
const FR_ACT_BLACKHOLE: u8 = 6;
const FR_ACT_UNREACHABLE: u8 = 7;
const FR_ACT_PROHIBIT: u8 = 8;

/// `FIB_RULE_INVERT`.
const INVERT: u32 = 2;
/// Stands for tables beyond 255.
const TABLE_IN_ATTRIBUTE: u8 = 252;
/// Length of `struct fib_rule_hdr`.
const HEADER_BYTES: usize = 12;

/// What happens to the packets a rule selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// They look into this table; 0 with [`Rule::is_l3mdev`].
    Table(u32),
    /// They go on with the rule of this priority.
    Goto(u32),
    /// They go on with the next rule.
    Nop,
    /// Packets are dropped silently.
    Blackhole,
    /// They are dropped, and the sender is told.
    Unreachable,
    /// They are dropped, and the sender is told that it is forbidden.
    Prohibit,
    /// An action that this crate does not know, and its table.
    Other(u8, u32),
}

/// Packets whose mark, masked, has this value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Value of the masked mark.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

/// Ports from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ports {
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

/// A rule. A selector that is `None` selects all packets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Address family of the packets.
    pub family: Family,
    /// Rules are evaluated from the lowest priority number. `None` in a request: one less than the first the
    /// administrator added.
    pub priority: Option<u32>,
    /// What happens to selected packets.
    pub action: Action,
    /// Selects the packets that the selectors do not.
    pub is_inverted: bool,
    /// Selects packets from these addresses.
    pub source: Option<Prefix>,
    /// Selects packets to these addresses.
    pub destination: Option<Prefix>,
    /// Of this type of service; 0 selects all.
    pub tos: u8,
    /// Received by this interface; `lo` for this host's own.
    pub input_interface: Option<String>,
    /// Sent by sockets bound to this interface.
    pub output_interface: Option<String>,
    /// Selects packets by their mark.
    pub mark: Option<Mark>,
    /// From sockets of these users, first and last.
    pub users: Option<(u32, u32)>,
    /// Selects packets of this protocol.
    pub ip_protocol: Option<u8>,
    /// Selects packets from these ports.
    pub source_ports: Option<Ports>,
    /// Selects packets to these ports.
    pub destination_ports: Option<Ports>,
    /// Out of this tunnel.
    pub tunnel_id: Option<u64>,
    /// By an interface that belongs to a VRF, into its table.
    pub is_l3mdev: bool,
    /// Routes with at most this prefix length do not count.
    pub suppress_prefix_bits: Option<u32>,
    /// Routes over interfaces of this group do not count.
    pub suppress_group: Option<u32>,
    /// Number of the protocol that installed it.
    pub protocol: u8,
    /// Attributes that have no field here, as they were read.
    pub other: Vec<RawAttribute>,
}

impl Rule {
    /// A rule of this program for all packets of a family.
    #[must_use]
    pub fn new(family: Family, priority: u32, action: Action) -> Self {
        Self {
            family,
            priority: Some(priority),
            action,
            is_inverted: false,
            source: None,
            destination: None,
            tos: 0,
            input_interface: None,
            output_interface: None,
            mark: None,
            users: None,
            ip_protocol: None,
            source_ports: None,
            destination_ports: None,
            tunnel_id: None,
            is_l3mdev: false,
            suppress_prefix_bits: None,
            suppress_group: None,
            protocol: protocol::CLEARSTREAM,
            other: Vec::new(),
        }
    }

    /// Lists the rules of a family, in the order of their evaluation.
    #[must_use]
    pub fn dump(family: Family) -> Message {
        let mut encoder = Encoder::default();
        let mut header = [0; HEADER_BYTES];
        header[0] = family.number();
        encoder.fixed(&header);
        list::<Self>(encoder)
    }
}

/// Attributes whose meaning depends on others.
#[derive(Default)]
struct Parts {
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    table: Option<u32>,
    goto: Option<u32>,
    mark: Option<u32>,
    mask: Option<u32>,
}

impl Object for Rule {
    const NAME: &'static str = "rule";
    const NEW_KIND: u16 = 32;

    fn parse(body: &[u8]) -> Result<Self, MalformedError> {
        let (header, attributes) = split::<HEADER_BYTES>(Self::NAME, body)?;
        let [family, destination_bits, source_bits, tos, table, _, _, action, flags @ ..] = *header;
        let wrong_family = MalformedError::Family { object: Self::NAME, family };
        let family = Family::from_number(family).ok_or(wrong_family)?;
        // The kernel leaves out a priority of 0.
        let mut rule = Self::new(family, 0, Action::Nop);
        rule.tos = tos;
        rule.protocol = protocol::UNSPECIFIED;
        rule.is_inverted = u32::from_ne_bytes(flags) & INVERT != 0;
        let mut parts = Parts::default();
        read(Self::NAME, attributes, |attribute| rule.take(attribute, &mut parts))?;
        let prefix = |address, bits| match bits {
            0 => Ok(None),
            bits => Prefix::told(family, address, bits).map(Some).ok_or(wrong_family),
        };
        rule.source = prefix(parts.source, source_bits)?;
        rule.destination = prefix(parts.destination, destination_bits)?;
        let table = parts.table.unwrap_or(table.into());
        rule.action = match action {
            FR_ACT_TO_TBL => Action::Table(table),
            FR_ACT_GOTO => Action::Goto(parts.goto.unwrap_or(0)),
            FR_ACT_NOP => Action::Nop,
            FR_ACT_BLACKHOLE => Action::Blackhole,
            FR_ACT_UNREACHABLE => Action::Unreachable,
            FR_ACT_PROHIBIT => Action::Prohibit,
            other => Action::Other(other, table),
        };
        rule.mark = (parts.mark.is_some() || parts.mask.is_some())
            .then(|| Mark { value: parts.mark.unwrap_or(0), mask: parts.mask.unwrap_or(u32::MAX) });
        Ok(rule)
    }
}

impl Rule {
    fn take(&mut self, attribute: Attribute<'_>, parts: &mut Parts) -> Result<(), MalformedError> {
        const NAME: &str = Rule::NAME;
        match attribute.kind() {
            FRA_DST => parts.destination = Some(attribute.address(NAME)?),
            FRA_SRC => parts.source = Some(attribute.address(NAME)?),
            FRA_IIFNAME => attribute.text_or_keep(&mut self.input_interface, &mut self.other),
            FRA_OIFNAME => attribute.text_or_keep(&mut self.output_interface, &mut self.other),
            FRA_GOTO => parts.goto = Some(attribute.u32(NAME)?),
            FRA_PRIORITY => self.priority = Some(attribute.u32(NAME)?),
            FRA_FWMARK => parts.mark = Some(attribute.u32(NAME)?),
            FRA_FWMASK => parts.mask = Some(attribute.u32(NAME)?),
            // In network order.
            FRA_TUN_ID => self.tunnel_id = Some(u64::from_be(attribute.u64(NAME)?)),
            // All ones is "no suppressor", which the kernel always says.
            FRA_SUPPRESS_IFGROUP => self.suppress_group = suppressor(attribute.u32(NAME)?),
            FRA_SUPPRESS_PREFIXLEN => {
                self.suppress_prefix_bits = suppressor(attribute.u32(NAME)?);
            }
            FRA_TABLE => parts.table = Some(attribute.u32(NAME)?),
            FRA_L3MDEV => self.is_l3mdev = attribute.u8(NAME)? != 0,
            FRA_UID_RANGE => self.users = Some(pair(&attribute, 4, u32_of)?),
            FRA_PROTOCOL => self.protocol = attribute.u8(NAME)?,
            FRA_IP_PROTO => self.ip_protocol = Some(attribute.u8(NAME)?),
            FRA_SPORT_RANGE => self.source_ports = Some(ports(&attribute)?),
            FRA_DPORT_RANGE => self.destination_ports = Some(ports(&attribute)?),
            // A mask of all bits is what a single port has without one.
            FRA_SPORT_MASK | FRA_DPORT_MASK if attribute.u16(NAME)? == u16::MAX => {}
            _other => self.other.push(attribute.keep()),
        }
        Ok(())
    }

    fn encode_numbers(&self, to: &mut Encoder) {
        let (mark, mask) = self.mark.map(|mark| (mark.value, mark.mask)).unzip();
        let numbers = [
            (FRA_PRIORITY, self.priority),
            (FRA_FWMARK, mark),
            (FRA_FWMASK, mask),
            (FRA_SUPPRESS_IFGROUP, self.suppress_group),
            (FRA_SUPPRESS_PREFIXLEN, self.suppress_prefix_bits),
        ];
        for (kind, value) in numbers {
            value.into_iter().for_each(|value| to.u32(kind, value));
        }
        for (kind, ports) in
            [(FRA_SPORT_RANGE, self.source_ports), (FRA_DPORT_RANGE, self.destination_ports)]
        {
            if let Some(Ports { first, last }) = ports {
                to.attribute(kind, &[first.to_ne_bytes(), last.to_ne_bytes()].concat());
            }
        }
        if let Some((first, last)) = self.users {
            to.attribute(FRA_UID_RANGE, &[first.to_ne_bytes(), last.to_ne_bytes()].concat());
        }
        if let Some(protocol) = self.ip_protocol {
            to.u8(FRA_IP_PROTO, protocol);
        }
        if let Some(id) = self.tunnel_id {
            to.attribute(FRA_TUN_ID, &id.to_be_bytes());
        }
        if self.is_l3mdev {
            to.u8(FRA_L3MDEV, 1);
        }
        to.u8(FRA_PROTOCOL, self.protocol);
    }
}

impl Configurable for Rule {
    const IS_REPLACEABLE: bool = false;

    fn encode(&self, to: &mut Encoder) {
        let (action, table, goto) = match self.action {
            Action::Table(table) => (FR_ACT_TO_TBL, table, None),
            Action::Goto(priority) => (FR_ACT_GOTO, 0, Some(priority)),
            Action::Nop => (FR_ACT_NOP, 0, None),
            Action::Blackhole => (FR_ACT_BLACKHOLE, 0, None),
            Action::Unreachable => (FR_ACT_UNREACHABLE, 0, None),
            Action::Prohibit => (FR_ACT_PROHIBIT, 0, None),
            Action::Other(action, table) => (action, table, None),
        };
        let bits = |prefix: Option<Prefix>| prefix.map_or(0, |prefix| prefix.bits());
        to.fixed(&[
            self.family.number(),
            bits(self.destination),
            bits(self.source),
            self.tos,
            u8::try_from(table).unwrap_or(TABLE_IN_ATTRIBUTE),
            0,
            0,
            action,
        ]);
        to.fixed(&if self.is_inverted { INVERT } else { 0 }.to_ne_bytes());
        if table != 0 {
            to.u32(FRA_TABLE, table);
        }
        goto.into_iter().for_each(|priority| to.u32(FRA_GOTO, priority));
        for (kind, prefix) in [(FRA_DST, self.destination), (FRA_SRC, self.source)] {
            prefix.into_iter().for_each(|prefix| to.address(kind, prefix.address()));
        }
        for (kind, name) in
            [(FRA_IIFNAME, &self.input_interface), (FRA_OIFNAME, &self.output_interface)]
        {
            name.iter().for_each(|name| to.text(kind, name));
        }
        self.encode_numbers(to);
        to.raw(&self.other);
    }
}

fn suppressor(value: u32) -> Option<u32> {
    (value != u32::MAX).then_some(value)
}

fn pair<T>(
    attribute: &Attribute<'_>,
    bytes_count: usize,
    read: impl Fn(&[u8]) -> Option<T>,
) -> Result<(T, T), MalformedError> {
    let halves = attribute.value.split_at_checked(bytes_count);
    halves
        .filter(|(_first, second)| second.len() == bytes_count)
        .and_then(|(first, second)| Some((read(first)?, read(second)?)))
        .ok_or_else(|| attribute.malformed(Rule::NAME))
}

fn ports(attribute: &Attribute<'_>) -> Result<Ports, MalformedError> {
    let (first, last) = pair(attribute, 2, u16_of)?;
    Ok(Ports { first, last })
}
