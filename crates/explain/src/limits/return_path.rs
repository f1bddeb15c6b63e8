//! A return path that carries fewer acknowledgements than the sender needs.

use results::{Direction, End, Limit};
use units::show_bit_rate;

use super::losses::late;
use super::plateau::best;
use crate::advice::Advice;
use crate::ceiling::ETHERNET_QDISC_BYTES;
use crate::change::Change;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{at_least, percent, positive};
use crate::observed::{Observed, end_name};
use crate::symptoms::names;
use crate::thresholds::{path, predictions, signs};
use crate::weighing::{self, Weighing};

/// Payload of a datagram of the experiment, bytes: small, as acknowledgements are.
const DATAGRAM_BYTES: u32 = 200;

#[derive(Debug)]
pub(crate) struct ReturnPath;

impl Mechanism for ReturnPath {
    fn limit(&self) -> Limit {
        Limit::ReturnPath
    }

    fn page(&self) -> Page {
        Page {
            title: "the return path of the acknowledgements",
            ceiling: "none: what a rate of acknowledgements allows depends on how many segments each one covers",
            mechanism: "The sender learns what arrived from acknowledgements. If the return path is slower than they are sent (an asymmetric line, a shaper on the receiver's host), they wait in its queue: round trips grow \
                though nothing waits on the forward path, and the sender mistakes the late acknowledgements for a slow forward path (RFC 3449).",
            evidence: "Round trips grow under load, while UDP in the direction of the data delivers more than TCP and loses little; packets that the receiver counted as sent and the sender did not get; a \
                queueing discipline with a rate on the receiver's host. Judged only with the counts of both ends.",
            against: "Round trips stay short; UDP meets the same ceiling on the forward path; a full core at either end. \
                Lost acknowledgements alone cost nothing: a later acknowledgement covers them.",
            experiment: "UDP in the direction of the acknowledgements at four times their rate: only about their rate \
                arrives. If most of it arrives, the return path had room, and the limit is refuted.",
            advice: "Raise the rate of the return path, or give acknowledgements a queue of their own there (fq_codel, \
                cake's ack-filter).",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let lost = seen.shown().path_reaches(names::ACKS_LOST_SHARE, path::ACKS_LOST);
        let weighed = lost.map_or(Weighing::most(0.0), |lost| {
            Weighing::most(signs::SEEN)
                .by(late(seen), "round trips hardly grow under load")
                .by(way_out_open(seen), "UDP meets the same ceiling on the forward path")
                .by(at_least(path::ACKS_UNLOST, lost), "hardly any acknowledgement was lost")
                .unless(seen.sender_idle(), 1.0, "the sending application pauses")
                .unless(threads_full(seen), 1.0, weighing::STARVED)
        });
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: shaped(seen).map(|(end, _)| end),
            evidence: evidence(seen),
            against: against(seen),
            ceiling_bits_per_s: None,
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        let one_way = seen.spec.direction != Direction::Bidirectional;
        let rate = rate(seen).filter(|_| one_way);
        let experiment = |rate: f64| {
            let datagram = f64::from(DATAGRAM_BYTES);
            let payload_share =
                datagram / (datagram + predictions::ACKS_HEADER_BYTES + ETHERNET_QDISC_BYTES);
            let expected = rate * payload_share;
            Experiment {
                limit: self.limit(),
                change: Change::UdpAgainst {
                    bits_per_s: rate * predictions::ACKS_OFFERED,
                    datagram_bytes: DATAGRAM_BYTES,
                },
                predicted: Prediction::new(0.0, expected, expected * predictions::ACKS_ARRIVE_MOST),
                rule: Rule::Saturates,
            }
        };
        rate.map(experiment).into_iter().collect()
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let end = end_name(seen.receiver.end);
        let first = match (shaped(seen), seen.receiver.interface()) {
            (Some((_, rate)), Some(interface)) => format!(
                "the {end} end shapes what it sends, acknowledgements too, to {}: tc -s qdisc show dev {}, then \
                 raise the rate or remove it",
                show_bit_rate(rate),
                interface.name
            ),
            _ => format!(
                "ask the operator of the path for the rate from the {end} end: an asymmetric line or a shaper of \
                 that direction"
            ),
        };
        Advice::all(vec![
            first,
            "or drop superfluous acknowledgements where they wait: cake ack-filter".to_owned(),
        ])
    }
}

/// Share of the acknowledgements that did not arrive, 0 to 1; `None` unless both ends counted them.
fn lost_share(seen: &Observed<'_>) -> Option<f64> {
    seen.shown().path(names::ACKS_LOST_SHARE)
}

/// Bits per second that the acknowledgements took, as a queueing discipline counts them.
fn rate(seen: &Observed<'_>) -> Option<f64> {
    let packet_bytes = f64::from(seen.headers().bytes()) + ETHERNET_QDISC_BYTES;
    positive(seen.shown().path(names::ACKS_ARRIVED)? * packet_bytes * 8.0)
}

/// The receiver's own shaper, if it has one: its end, and its rate in bit/s.
fn shaped(seen: &Observed<'_>) -> Option<(End, f64)> {
    let interface = seen.receiver.interface()?;
    let is_per_flow = interface.qdisc.as_deref() == Some("fq");
    let rate = interface.qdisc_rate_bits_per_s.filter(|_| !is_per_flow)?;
    // One with room for many times the acknowledgements does not hold them.
    let near = positive(rate)? < predictions::ACKS_OFFERED * self::rate(seen)?;
    near.then_some((seen.receiver.end, rate))
}

/// Confidence, 0 to 1, that a thread of either end never sleeps. Cores full of other work do not make round trips
/// many times longer while both threads mostly sleep.
fn threads_full(seen: &Observed<'_>) -> f64 {
    [&seen.sender, &seen.receiver]
        .map(|host| seen.starved(host).unwrap_or(0.0))
        .into_iter()
        .fold(0.0, f64::max)
}

/// Confidence, 0 to 1, that it does not wait on the forward path: UDP gets more through there and loses little.
fn way_out_open(seen: &Observed<'_>) -> f64 {
    let of_path = |name: &str| seen.shown().path(name);
    let udp = of_path(names::UDP_DELIVERED).zip(of_path(names::UDP_LOST));
    udp.map_or(0.0, |(delivered, lost_share)| {
        path::WAY_OUT_MORE.of(delivered / best(seen)) * path::WAY_OUT_LOST.not(lost_share)
    })
}

fn evidence(seen: &Observed<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let delivered = seen.shown().path(names::UDP_DELIVERED);
    if let (Some(words), Some(delivered)) = (seen.round_trip_words(), delivered) {
        let through = show_bit_rate(delivered);
        lines.push(format!("{words}, though UDP gets {through} through the other way"));
    }
    if let (Some(lost_share), Some(rate)) = (lost_share(seen), rate(seen)) {
        lines.push(format!(
            "{} of the acknowledgements were lost; those that arrived took {}",
            percent(lost_share),
            show_bit_rate(rate)
        ));
    }
    if let Some((end, rate)) = shaped(seen) {
        lines.push(format!(
            "the {} end shapes what it sends to {}",
            end_name(end),
            show_bit_rate(rate)
        ));
    }
    lines
}

fn against(seen: &Observed<'_>) -> String {
    let Some(lost_share) = lost_share(seen) else {
        return "the acknowledgements were not counted at both ends".to_owned();
    };
    if late(seen) < signs::PERHAPS {
        return match lost_share {
            lost if lost > path::ACKS_LOST_TOLD => format!(
                "{} of the acknowledgements were lost, and round trips stay short: later acknowledgements replace them",
                percent(lost)
            ),
            _ => "acknowledgements arrive in time".to_owned(),
        };
    }
    match seen.shown().path(names::UDP_DELIVERED) {
        None => "UDP did not try the forward path".to_owned(),
        Some(_) if way_out_open(seen) < signs::PERHAPS => {
            "UDP meets the same ceiling on the forward path".to_owned()
        }
        Some(_) if threads_full(seen) > signs::PERHAPS => {
            "a full core makes round trips longer".to_owned()
        }
        Some(_) => "other limits explain the longer round trips".to_owned(),
    }
}
