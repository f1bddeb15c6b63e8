use thiserror::Error;

/// Why a packet is no probe, answer or ICMP error that this end accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum RefusedProbeError {
    /// Shorter than its headers and a payload.
    #[error("the packet is shorter than a probe")]
    TooShort,
    /// Neither IPv4 nor IPv6, or an IP header with options.
    #[error("the packet has no plain IP header")]
    Header,
    /// The packet is a fragment.
    #[error("the packet is a fragment")]
    Fragment,
    /// Not UDP, or between other ports.
    #[error("the packet is not UDP between the probes' ports")]
    OtherPorts,
    /// It came from a multicast or zero MAC address.
    #[error("the packet's source MAC address is not that of a single host")]
    SourceMac,
    /// It is not for an address of this end.
    #[error("the packet is for another address")]
    OtherDestination,
    /// Its sender is not in the plan.
    #[error("the packet's sender is not in the plan")]
    UnknownSource,
    /// The payload does not begin as a probe's does.
    #[error("the payload is not a probe")]
    NoProbe,
    /// A probe of a version that this end does not know.
    #[error("the probe is of another version")]
    Version,
    /// An answer where a question is expected, or the other way round.
    #[error("the probe goes the wrong way")]
    Direction,
    /// A probe of another plan.
    #[error("the probe belongs to another plan")]
    OtherPlan,
    /// Its lengths contradict each other, or bytes that must be 0 are not.
    #[error("the probe's length or padding is wrong")]
    Padding,
    /// The tag is not the payload's.
    #[error("the probe's tag is wrong")]
    Forged,
    /// Its sequence number has been seen, or is too old to tell.
    #[error("the probe has been seen before")]
    Replayed,
    /// Its sender sends more than it may.
    #[error("the probe's sender exceeds its rate")]
    TooFast,
    /// No such question is open: it was never asked, or has been answered.
    #[error("the answer is to no open question")]
    NotAsked,
    /// The answer came by another gateway than the question went.
    #[error("the answer came by another gateway")]
    OtherGateway,
    /// An ICMP message that quotes too little of a probe to be believed, or that is no error.
    #[error("the ICMP message quotes no whole probe")]
    Quote,
}

impl RefusedProbeError {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 18] = [
        Self::TooShort,
        Self::Header,
        Self::Fragment,
        Self::OtherPorts,
        Self::SourceMac,
        Self::OtherDestination,
        Self::UnknownSource,
        Self::NoProbe,
        Self::Version,
        Self::Direction,
        Self::OtherPlan,
        Self::Padding,
        Self::Forged,
        Self::Replayed,
        Self::TooFast,
        Self::NotAsked,
        Self::OtherGateway,
        Self::Quote,
    ];
}

/// What became of the packets so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProbeCounters {
    /// Packets accepted.
    pub accepted_count: u64,
    refused_count: [u64; RefusedProbeError::ALL.len()],
}

impl ProbeCounters {
    /// Packets refused for this reason.
    #[must_use]
    pub fn refused_count(&self, reason: RefusedProbeError) -> u64 {
        self.refused_count[reason as usize]
    }

    /// Packets refused for any reason.
    #[must_use]
    pub fn all_refused_count(&self) -> u64 {
        self.refused_count.iter().sum()
    }

    /// Counts what became of a packet and hands it on.
    pub(super) fn count<T>(
        &mut self,
        outcome: Result<T, RefusedProbeError>,
    ) -> Result<T, RefusedProbeError> {
        match &outcome {
            Ok(_) => self.accepted_count += 1,
            Err(reason) => self.refused_count[*reason as usize] += 1,
        }
        outcome
    }
}
