//! Experiments that several limits ask for.

use results::{End, Limit};

use super::{datagram_bytes, halved_segments};
use crate::change::Change;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::observed::{HostView, Observed};
use crate::symptoms::names;
use crate::thresholds::predictions;

/// Experiments that leave the throughput of a fixed rate unchanged.
pub(super) fn stays(limit: Limit, seen: &Observed<'_>, rate: f64) -> Vec<Experiment> {
    let predicted =
        Prediction::new(rate * predictions::STAYS_LOW, rate, rate * predictions::STAYS_HIGH);
    let from_count = seen.spec.streams.max(1);
    let to_count = from_count.saturating_mul(8).min(1024);
    let changes = [
        Change::UdpAtRate {
            bits_per_s: rate * predictions::UDP_FASTER,
            datagram_bytes: datagram_bytes(seen),
        },
        Change::MoreStreams { from_count, to_count },
    ];
    changes
        .into_iter()
        .map(|change| Experiment { limit, change, predicted, rule: Rule::Stays })
        .collect()
}

/// UDP at a rate that the path carries. Where a thread can send that many one by one, no burst of its own overflows a
/// short queue or a small bucket, which would look like losses at random.
pub(super) fn moderate_udp(bits_per_s: f64, datagram_bytes: u32) -> Change {
    let packets_per_s = bits_per_s / (8.0 * f64::from(datagram_bytes.max(1)));
    if packets_per_s <= predictions::SINGLES_MOST {
        Change::UdpSpaced { bits_per_s, datagram_bytes }
    } else {
        Change::UdpAtRate { bits_per_s, datagram_bytes }
    }
}

/// The experiment with a congestion control that does not treat loss as congestion, if the sender has one
/// and does not use it.
pub(super) fn with_bbr(
    limit: Limit,
    seen: &Observed<'_>,
    headroom: Option<f64>,
) -> Option<Experiment> {
    let from = seen.setup.congestion_control.clone().unwrap_or_default();
    let rate = seen.rate();
    let most =
        headroom.unwrap_or(rate * predictions::BBR_EXPECTED).max(rate * predictions::BBR_LEAST);
    (from != "bbr" && offers_bbr(seen)).then(|| Experiment {
        limit,
        change: Change::CongestionControl { from, to: "bbr".to_owned() },
        predicted: Prediction::new(
            rate * predictions::SCALE_LEAST,
            most,
            most.max(rate * predictions::BBR_MOST),
        ),
        rule: Rule::Scales,
    })
}

fn offers_bbr(seen: &Observed<'_>) -> bool {
    seen.sysctl(seen.sender.end, "net.ipv4.tcp_available_congestion_control")
        .is_some_and(|names| names.split_whitespace().any(|name| name == "bbr"))
}

/// Experiments that pace the packets: first just below the measured rate, then, in case bursts pass even
/// that, at half of it.
pub(super) fn spaced(limit: Limit, seen: &Observed<'_>) -> Vec<Experiment> {
    let rate = seen.rate();
    let lost = seen.shown().sender(names::RETRANSMIT_SHARE).unwrap_or(0.0);
    [predictions::SPACED_NEAR, predictions::SPACED_HALF]
        .into_iter()
        .map(|part| {
            let paced = rate * part;
            Experiment {
                limit,
                change: Change::PaceAt { bits_per_s: paced },
                predicted: Prediction::new(
                    paced * predictions::SPACED_LOW,
                    paced * (1.0 - predictions::SPACED_LOST * lost),
                    paced * predictions::SPACED_HIGH,
                ),
                rule: Rule::Calms,
            }
        })
        .collect()
}

/// An experiment in which each byte costs more packets, if the segments can be halved.
pub(super) fn more_packets(limit: Limit, seen: &Observed<'_>) -> Option<Experiment> {
    let rate = seen.rate();
    Some(Experiment {
        limit,
        change: halved_segments(seen)?,
        predicted: Prediction::new(
            rate * predictions::PACKETS_LOW,
            rate * predictions::PACKETS_EXPECTED,
            rate * predictions::PACKETS_HIGH,
        ),
        rule: Rule::FollowsPackets,
    })
}

/// Experiments that show whether an end's processor time binds, for whatever reason.
pub(super) fn cpu_experiments(
    limit: Limit,
    seen: &Observed<'_>,
    host: &HostView<'_>,
) -> Vec<Experiment> {
    dearer(limit, seen, host.end).into_iter().collect()
}

pub(super) fn dearer(limit: Limit, seen: &Observed<'_>, end: End) -> Option<Experiment> {
    let rate = seen.rate();
    seen.spec.block_bytes.is_none().then(|| Experiment {
        limit,
        change: Change::Block { to_bytes: DEARER_BLOCK_BYTES },
        predicted: Prediction::new(
            rate * predictions::DEARER_LOW,
            rate * predictions::DEARER_EXPECTED,
            rate * predictions::DEARER_HIGH,
        ),
        rule: Rule::FollowsCost(end),
    })
}

/// Block size at which system calls cost about as much as copying, yet still large enough for a transfer.
const DEARER_BLOCK_BYTES: u64 = 8 << 10;
