//! The answering end.

use core::net::IpAddr;
use std::collections::BTreeMap;

use super::datagram::{self, Datagram};
use super::payload::{self, Ends, Kind, PAYLOAD_BYTES, Payload};
use super::replay::ReplayWindow;
use super::{Arrived, MacAddress, Ports, ProbeCounters, RefusedProbeError};
use crate::siphash::Key;
use crate::steady::SteadyClock;

/// A source that has been silent for so long may begin with any sequence number: its clock, from which it
/// took its first number, may have been set back. Until then its probes are refused as replayed.
const FORGET_NS: u64 = 10_000_000_000;

/// What a reflector is made with.
#[derive(Debug, Clone)]
pub struct ReflectorConfig {
    /// The plan's key.
    pub key: Key,
    /// The plan's number.
    pub plan_id: u64,
    /// Ports of the plan.
    pub ports: Ports,
    /// Addresses that this host answers for.
    pub addresses: Vec<IpAddr>,
    /// Addresses that are answered.
    pub sources: Vec<IpAddr>,
    /// Questions a second that each of them may ask, at least 1.
    pub rate_per_s: u32,
    /// Questions that each of them may ask at once, at least 1.
    pub burst_count: u32,
}

/// Answers questions: a packet in, the answer out in its place.
///
/// Each source has a replay window of 1024 sequence numbers and a rate of its own. Replayed and forged
/// packets do not count against the rate, so nobody uses up another's.
#[derive(Debug, Clone)]
pub struct Reflector {
    key: Key,
    plan_id: u64,
    ports: Ports,
    addresses: Vec<IpAddr>,
    sources: BTreeMap<IpAddr, Source>,
    clock: SteadyClock,
    spacing_ns: u64,
    burst_ns: u64,
    counters: ProbeCounters,
}

#[derive(Debug, Clone, Default)]
struct Source {
    window: Option<Box<ReplayWindow>>,
    heard_ns: u64,
    /// When the next question would be due if all kept their distance (the generic cell rate algorithm).
    due_ns: u64,
}

impl Reflector {
    /// A reflector that has seen nothing yet.
    #[must_use]
    pub fn new(config: ReflectorConfig) -> Self {
        let spacing_ns = 1_000_000_000 / u64::from(config.rate_per_s.max(1));
        Self {
            key: config.key,
            plan_id: config.plan_id,
            ports: config.ports,
            addresses: config.addresses,
            sources: config.sources.into_iter().map(|one| (one, Source::default())).collect(),
            clock: SteadyClock::default(),
            spacing_ns,
            burst_ns: spacing_ns * u64::from(config.burst_count.max(1) - 1),
            counters: ProbeCounters::default(),
        }
    }

    /// What became of the packets so far.
    #[must_use]
    pub fn counters(&self) -> ProbeCounters {
        self.counters
    }

    /// Turns a question into its answer, in place: the first bytes of the packet, as many as returned, go to
    /// the MAC address returned. They are never more than came.
    ///
    /// # Errors
    /// The packet is refused and counted, and gets no answer. Its bytes are as they were.
    pub fn reflect(
        &mut self,
        now_ns: u64,
        arrived: Arrived<'_>,
    ) -> Result<(usize, MacAddress), RefusedProbeError> {
        let now_ns = self.clock.advance(now_ns).0;
        let outcome = self.answer(now_ns, arrived);
        self.counters.count(outcome)
    }

    fn answer(
        &mut self,
        now_ns: u64,
        arrived: Arrived<'_>,
    ) -> Result<(usize, MacAddress), RefusedProbeError> {
        let Arrived { source_mac, packet } = arrived;
        if source_mac[0] & 1 != 0 || source_mac == [0; 6] {
            return Err(RefusedProbeError::SourceMac);
        }
        let datagram = Datagram::parse(packet)?;
        let ports = Ports { prober: datagram.source_port, reflector: datagram.destination_port };
        if ports != self.ports {
            return Err(RefusedProbeError::OtherPorts);
        }
        if !self.addresses.contains(&datagram.destination) {
            return Err(RefusedProbeError::OtherDestination);
        }
        let source = self.sources.get_mut(&datagram.source);
        let source = source.ok_or(RefusedProbeError::UnknownSource)?;
        let bytes = &packet[datagram.payload.clone()];
        let question = Payload::parse(bytes, bytes.len())?;
        if question.kind != Kind::Question {
            return Err(RefusedProbeError::Direction);
        }
        if question.plan_id != self.plan_id {
            return Err(RefusedProbeError::OtherPlan);
        }
        let ends = Ends { prober: datagram.source, reflector: datagram.destination };
        if !payload::is_genuine(bytes, &self.key, &ends) {
            return Err(RefusedProbeError::Forged);
        }
        source.admit(now_ns, question.sequence, self.spacing_ns, self.burst_ns)?;
        let end = datagram.payload.end;
        let answer = Payload { kind: Kind::Answer, ..question };
        answer.write(&self.key, &ends, &mut packet[datagram.payload]);
        datagram::write_headers(
            &mut packet[..end],
            (ends.reflector, self.ports.reflector),
            (ends.prober, self.ports.prober),
            PAYLOAD_BYTES,
        );
        Ok((end, source_mac))
    }
}

impl Source {
    fn admit(
        &mut self,
        now_ns: u64,
        sequence: u64,
        spacing_ns: u64,
        burst_ns: u64,
    ) -> Result<(), RefusedProbeError> {
        let is_forgotten = now_ns.saturating_sub(self.heard_ns) > FORGET_NS;
        match &mut self.window {
            Some(window) if !is_forgotten => {
                if !window.admit(sequence) {
                    return Err(RefusedProbeError::Replayed);
                }
            }
            window => *window = Some(Box::new(ReplayWindow::starting_with(sequence))),
        }
        self.heard_ns = now_ns;
        if self.due_ns > now_ns.saturating_add(burst_ns) {
            return Err(RefusedProbeError::TooFast);
        }
        self.due_ns = self.due_ns.max(now_ns).saturating_add(spacing_ns);
        Ok(())
    }
}
