//! The asking end: questions through each gateway, their answers, and ICMP errors about them.

use core::net::IpAddr;

use super::datagram::{self, Datagram, header_bytes};
use super::payload::{self, Ends, Kind, PAYLOAD_BYTES, Payload, SizeClass};
use super::{MacAddress, Ports, ProbeCounters, RefusedProbeError};
use crate::siphash::Key;

/// `ICMP_PORT_UNREACH` (RFC 792).
const PORT_UNREACHABLE_V4: u8 = 3;
/// RFC 4443 section 3.1.
const PORT_UNREACHABLE_V6: u8 = 4;

/// Questions that are remembered, a power of two: what comes later is refused.
const OPEN_COUNT: usize = 4096;

/// What a prober is made with.
#[derive(Debug, Clone)]
pub struct ProberConfig {
    /// The plan's key.
    pub key: Key,
    /// The plan's number.
    pub plan_id: u64,
    /// Ports of the plan.
    pub ports: Ports,
    /// Address of this host and of the far host, of one family.
    pub ends: Ends,
    /// MAC addresses of the gateways on this host's side, by their index.
    pub gateways: Vec<Option<MacAddress>>,
    /// MTU of this host's interface, bytes: the length of a full-size probe.
    pub mtu_bytes: u16,
    /// Number of the first question. It must be greater than every number that this host has used under the
    /// key, or reflectors refuse its questions for 10 s: microseconds since 1970 are.
    pub first_sequence: u64,
}

/// A question has been answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Index of the gateway.
    pub gateway: u16,
    /// What the caller gave with the question.
    pub round: u64,
    /// How long the question was.
    pub size: SizeClass,
    /// From question to answer.
    pub rtt_ns: u64,
}

/// What an ICMP error says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreachableKind {
    /// The question could not be delivered: the ICMP code.
    Code(u8),
    /// The question is longer than the next link's MTU, bytes; 0 where the router does not say.
    TooBig(u32),
}

/// A router could not forward a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreachable {
    /// Index of the gateway by which the question went.
    pub gateway: u16,
    /// What the caller gave with the question.
    pub round: u64,
    /// How long the question was.
    pub size: SizeClass,
    /// Why it could not be forwarded.
    pub kind: UnreachableKind,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    sequence: u64,
    round: u64,
    sent_ns: u64,
    gateway: u16,
    size: SizeClass,
    is_settled: bool,
}

/// Asks one far host through each gateway.
#[derive(Debug, Clone)]
pub struct Prober {
    config: ProberConfig,
    next_sequence: u64,
    open: Vec<Open>,
    counters: ProbeCounters,
}

impl Prober {
    /// A prober that has asked nothing yet.
    #[must_use]
    pub fn new(config: ProberConfig) -> Self {
        let never = Open {
            sequence: 0,
            round: 0,
            sent_ns: 0,
            gateway: 0,
            size: SizeClass::Small,
            is_settled: true,
        };
        Self {
            next_sequence: config.first_sequence.max(1),
            open: vec![never; OPEN_COUNT],
            counters: ProbeCounters::default(),
            config,
        }
    }

    /// What became of the answers so far.
    #[must_use]
    pub fn counters(&self) -> ProbeCounters {
        self.counters
    }

    /// The addresses it asks from and to.
    #[must_use]
    pub fn ends(&self) -> Ends {
        self.config.ends
    }

    /// MAC address of a gateway; `None` while it is unknown.
    #[must_use]
    pub fn mac(&self, gateway: u16) -> Option<MacAddress> {
        *self.config.gateways.get(usize::from(gateway))?
    }

    /// A gateway has another MAC address now, or none is known.
    pub fn set_mac(&mut self, gateway: u16, mac: Option<MacAddress>) {
        if let Some(known) = self.config.gateways.get_mut(usize::from(gateway)) {
            *known = mac;
        }
    }

    /// The interface has another MTU now, bytes.
    pub fn set_mtu(&mut self, mtu_bytes: u16) {
        self.config.mtu_bytes = mtu_bytes;
    }

    /// Bytes of a question as an IP packet.
    #[must_use]
    pub fn packet_bytes(&self, size: SizeClass) -> usize {
        let least = header_bytes(self.config.ends.prober.is_ipv6()) + PAYLOAD_BYTES;
        match size {
            SizeClass::Small => least,
            SizeClass::Full => usize::from(self.config.mtu_bytes).max(least),
        }
    }

    /// Writes a question through a gateway into `packet`, as an IP packet to be sent to the gateway's MAC
    /// address, and returns its length. `round` comes back with the answer.
    ///
    /// # Panics
    /// `packet` is shorter than [`packet_bytes`](Self::packet_bytes).
    pub fn ask(
        &mut self,
        now_ns: u64,
        gateway: u16,
        size: SizeClass,
        round: u64,
        packet: &mut [u8],
    ) -> usize {
        let ProberConfig { key, plan_id, ports, ends, .. } = &self.config;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let question = Payload {
            kind: Kind::Question,
            gateway,
            plan_id: *plan_id,
            sequence,
            sent_ns: now_ns,
            size,
        };
        let length = self.packet_bytes(size);
        let packet = &mut packet[..length];
        question.write(key, ends, &mut packet[header_bytes(ends.prober.is_ipv6())..]);
        datagram::write_headers(
            packet,
            (ends.prober, ports.prober),
            (ends.reflector, ports.reflector),
            PAYLOAD_BYTES,
        );
        let open = Open { sequence, round, sent_ns: now_ns, gateway, size, is_settled: false };
        self.open[sequence as usize % OPEN_COUNT] = open;
        length
    }

    /// Takes what came from `source_mac`: a packet of `packet_bytes` or its beginning, of which padding may be missing.
    ///
    /// # Errors
    /// It is no answer to an open question; refused and counted.
    pub fn handle_answer(
        &mut self,
        now_ns: u64,
        source_mac: MacAddress,
        packet: &[u8],
        packet_bytes: usize,
    ) -> Result<Answer, RefusedProbeError> {
        let outcome = self.answer(now_ns, source_mac, packet, packet_bytes);
        self.counters.count(outcome)
    }

    fn answer(
        &mut self,
        now_ns: u64,
        source_mac: MacAddress,
        packet: &[u8],
        packet_bytes: usize,
    ) -> Result<Answer, RefusedProbeError> {
        let datagram = Datagram::parse_beginning(packet, Some(packet_bytes))?;
        let (config, bytes) = (&self.config, &packet[datagram.payload.clone()]);
        let ports = Ports { prober: datagram.destination_port, reflector: datagram.source_port };
        self.check_ends(datagram.destination, datagram.source, ports)?;
        let answer = Payload::parse(bytes, datagram.payload_bytes)?;
        if answer.kind != Kind::Answer {
            return Err(RefusedProbeError::Direction);
        }
        if answer.plan_id != config.plan_id {
            return Err(RefusedProbeError::OtherPlan);
        }
        if !payload::is_genuine(bytes, &config.key, &config.ends) {
            return Err(RefusedProbeError::Forged);
        }
        if self.mac(answer.gateway) != Some(source_mac) {
            return Err(RefusedProbeError::OtherGateway);
        }
        let open = self.settle(&answer)?;
        let rtt_ns = now_ns.saturating_sub(open.sent_ns);
        Ok(Answer { gateway: open.gateway, round: open.round, size: open.size, rtt_ns })
    }

    /// Takes an ICMP or ICMPv6 message, from its type on. Anybody can send one, so only an error that
    /// quotes a whole open question of this prober is believed, and once. Linux quotes enough; routers that
    /// quote no more than 8 bytes of the datagram are not heard.
    ///
    /// # Errors
    /// It is no such error; refused and counted.
    pub fn handle_icmp(&mut self, message: &[u8]) -> Result<Unreachable, RefusedProbeError> {
        let outcome = self.unreachable(message);
        self.counters.count(outcome)
    }

    fn unreachable(&mut self, message: &[u8]) -> Result<Unreachable, RefusedProbeError> {
        let Some((&[kind, code, _, _, a, b, c, d], quote)) = message.split_first_chunk::<8>()
        else {
            return Err(RefusedProbeError::Quote);
        };
        let kind = match (self.config.ends.prober.is_ipv6(), kind, code) {
            (false, 3, 4) => UnreachableKind::TooBig(u16::from_be_bytes([c, d]).into()),
            (true, 2, _) => UnreachableKind::TooBig(u32::from_be_bytes([a, b, c, d])),
            // The far host itself says that nobody reflects there: no gateway's fault.
            (false, 3, PORT_UNREACHABLE_V4) | (true, 1, PORT_UNREACHABLE_V6) => {
                return Err(RefusedProbeError::Quote);
            }
            (false, 3, code) | (true, 1, code) => UnreachableKind::Code(code),
            _no_error => return Err(RefusedProbeError::Quote),
        };
        let datagram = Datagram::parse_beginning(quote, None)?;
        let ports = Ports { prober: datagram.source_port, reflector: datagram.destination_port };
        self.check_ends(datagram.source, datagram.destination, ports)?;
        let bytes = &quote[datagram.payload];
        if bytes.len() < PAYLOAD_BYTES {
            return Err(RefusedProbeError::Quote);
        }
        let stated = usize::from(u16::from_be_bytes([bytes[32], bytes[33]]));
        let question = Payload::parse(bytes, stated)?;
        let config = &self.config;
        if question.kind != Kind::Question || question.plan_id != config.plan_id {
            return Err(RefusedProbeError::Direction);
        }
        if !payload::is_genuine(bytes, &config.key, &config.ends) {
            return Err(RefusedProbeError::Forged);
        }
        let open = self.settle(&question)?;
        Ok(Unreachable { gateway: open.gateway, round: open.round, size: open.size, kind })
    }

    fn check_ends(
        &self,
        prober: IpAddr,
        reflector: IpAddr,
        ports: Ports,
    ) -> Result<(), RefusedProbeError> {
        if ports != self.config.ports {
            return Err(RefusedProbeError::OtherPorts);
        }
        if prober != self.config.ends.prober {
            return Err(RefusedProbeError::OtherDestination);
        }
        if reflector != self.config.ends.reflector {
            return Err(RefusedProbeError::UnknownSource);
        }
        Ok(())
    }

    /// The open question that was asked just so.
    fn settle(&mut self, asked: &Payload) -> Result<Open, RefusedProbeError> {
        let open = &mut self.open[asked.sequence as usize % OPEN_COUNT];
        let is_it = open.sequence == asked.sequence
            && open.gateway == asked.gateway
            && open.size == asked.size
            && open.sent_ns == asked.sent_ns;
        if !is_it || open.is_settled {
            return Err(RefusedProbeError::NotAsked);
        }
        open.is_settled = true;
        Ok(*open)
    }
}
