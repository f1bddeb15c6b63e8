//! A rate limit that drops packets instead of queueing them.

use results::{End, Limit, QdiscCounters};
use units::{show_bit_rate, show_count_of};

use super::drops::spaced;
use super::loss;
use super::shaper::{plateau, plateau_evidence, stays};
use crate::advice::Advice;
use crate::ceiling::{ETHERNET_QDISC_BYTES, goodput_ceiling};
use crate::diagnosis::SUSPECTED;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{fine_percent, percent, ratio};
use crate::observed::{HostView, Observed, end_name};
use crate::remedy::{Method, Remedy};
use crate::thresholds::{path, predictions, signs};
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct Policer;

impl Mechanism for Policer {
    fn limit(&self) -> Limit {
        Limit::Policer
    }

    fn page(&self) -> Page {
        Page {
            title: "a policer",
            ceiling: "the rate that all streams together reach",
            mechanism: "A device on the path drops packets that exceed a rate (and a burst) at once, instead of \
                queueing them as a shaper does. The drops shrink the congestion window, so TCP often \
                gets less than the rate itself.",
            evidence: "A policer that either host shows (`tc filter`, drops of `ingress` or `clsact`). On the \
                path: a rate that more streams and UDP do not exceed, and many losses, while round trips \
                under load stay as short as on the idle path, so nothing waits.",
            against: "Round trips grow under load (a shaper's queue); few losses; more streams carry more.",
            experiment: "UDP a third faster, then more streams: no more gets through. Where a host shows the \
                policer, spaced packets at about the same throughput: the losses go away.",
            advice: "Pace just below the rate; ask the operator for a shaper in place of the policer, a higher rate or a larger burst.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        if let Some(own) = visible(seen) {
            return own;
        }
        let reached = plateau(seen) * drops_without_queue(seen);
        // These two add up: the more that streams lift throughput, the less it is a plateau and the more it is
        // a stream kept below the rate by its own drops.
        let weighed = Weighing::most(signs::LOCATED)
            .by(
                (reached + common_ceiling(seen)).min(1.0),
                "no common rate above which packets are dropped without a queue",
            )
            .by(seen.unexplained(), weighing::HELD)
            .unless(seen.hosts_full(), 1.0, weighing::HOSTS_FULL)
            .unless(super::shaper::at_the_line(seen), 1.0, "the rate is the interface's own");
        let best = seen.several.map_or(seen.rate(), |(_, several)| several.median.max(seen.rate()));
        let mut evidence = plateau_evidence(seen);
        evidence.push("nothing waits: what exceeds the rate is dropped at once".to_owned());
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: None,
            evidence,
            against: match seen.flow.retransmit_share {
                Some(0.0) => "no segment was retransmitted".to_owned(),
                Some(again) if again < path::DROPS_UNQUEUED.from => {
                    format!("only {} of the segments retransmitted", fine_percent(again))
                }
                _ if plateau(seen) < signs::LIKELY => {
                    "nothing shows a rate that cannot be lifted".to_owned()
                }
                _ => "round trips grow under load: something queues".to_owned(),
            },
            ceiling_bits_per_s: (weighed.weight() > signs::PERHAPS).then_some(best),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        let mut experiments =
            if shown(seen).is_some() { spaced(self.limit(), seen) } else { Vec::new() };
        let most = seen.several.map_or(seen.rate(), |(_, several)| several.median);
        let rate = if common_ceiling(seen) > path::COMMON_CEILING_TOLD {
            most.max(seen.rate())
        } else {
            seen.rate()
        };
        experiments.extend(stays(self.limit(), seen, rate));
        experiments
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let (host, qdisc) = shown(seen)?;
        let side = if qdisc.parent == "egress" { "egress" } else { "ingress" };
        Some(Remedy {
            end: host.end,
            method: Method::ByHand {
                command: format!("tc filter del dev {} {side}", qdisc.interface),
                undo: None,
            },
            predicted_bits_per_s: headroom.unwrap_or(seen.rate() * predictions::CHANGE_TWICE),
            text: "without the filter nothing is dropped there: throughput rises \
                   (save the output of `tc filter show` first: the filter cannot be restored automatically)"
                .to_owned(),
        })
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let pace = format!(
            "pace just below it: --pacing-rate {:.0}M",
            seen.rate() / 1e6 * predictions::PACE_ADVISED
        );
        Advice::all(match shown(seen) {
            Some((host, qdisc)) => vec![
                format!("the {} end polices itself: tc -s filter show dev {} ingress, then change or delete it", end_name(host.end), qdisc.interface),
                pace,
            ],
            None => vec![
                pace,
                "ask the operator of the path for the contracted rate and burst, or for a shaper in the policer's place".to_owned(),
            ],
        })
    }
}

/// Confidence, 0 to 1, that packets are dropped without a queue before them.
pub(super) fn drops_without_queue(seen: &Observed<'_>) -> f64 {
    let again = seen.flow.retransmit_share.unwrap_or(0.0);
    path::DROPS_UNQUEUED.of(again) * (1.0 - waits(seen))
}

/// Confidence, 0 to 1, that packets wait in a queue on the path.
fn waits(seen: &Observed<'_>) -> f64 {
    let (Some(rtt_s), Some(base_s)) = (seen.flow.rtt_s, seen.base_rtt_s) else { return 1.0 };
    path::WAITS_S.plus(path::WAITS_OF_RTT.times(base_s)).of(rtt_s - base_s)
}

/// Confidence, 0 to 1, that drops above one common rate, not random losses, keep a single stream down:
/// several streams, and UDP sent faster than that, end at the same throughput, and UDP loses the excess.
pub(super) fn common_ceiling(seen: &Observed<'_>) -> f64 {
    let (Some((_, several)), Some(udp)) = (seen.several, seen.udp) else { return 0.0 };
    let lost = seen.flow.retransmits_count.is_some_and(|count| count >= signs::RETRANSMITS_MIN);
    if !lost || !udp.located {
        return 0.0;
    }
    let apart = (udp.delivered_bits_per_s / several.median).ln().abs();
    let again = seen.flow.retransmit_share.unwrap_or(0.0);
    // Random losses would take as large a share of UDP as of TCP.
    let beyond =
        path::POLICED_UDP_LOST.plus(path::POLICED_UDP_OF_TCP.times(again)).of(udp.lost_share);
    // With random losses at this share no stream could be as fast: one burst above the rate was dropped.
    let too_fast = [Some(again), seen.flow.loss_event_share]
        .into_iter()
        .flatten()
        .filter_map(|share| loss::law(seen, share))
        .reduce(f64::max)
        .map_or(0.0, |law| path::LAW_ABOVE.of((seen.rate() / law).ln()));
    let beyond = beyond.max(too_fast * path::POLICED_UDP_LOST.of(udp.lost_share));
    let below_the_line = seen
        .line_goodput(seen.sender.end)
        .map_or(1.0, |line| path::BELOW_THE_LINE.not(several.median / line));
    path::ENDS_APART.not(apart)
        * beyond
        * below_the_line
        * seen.lifted_by_streams()
        * (1.0 - waits(seen))
}

/// A policer that a host reports in the judged direction: the sender's for outgoing packets, the
/// receiver's for incoming ones.
fn shown<'s, 'a>(seen: &'s Observed<'a>) -> Option<(&'s HostView<'a>, &'a QdiscCounters)> {
    let drops = |qdisc: &&QdiscCounters| {
        qdisc.dropped_pkts > 0 && matches!(qdisc.kind.as_str(), "ingress" | "clsact")
            || qdisc.police_bits_per_s.is_some()
    };
    let leaving = |qdisc: &&QdiscCounters| {
        qdisc.parent == "egress" || !matches!(qdisc.kind.as_str(), "ingress" | "clsact")
    };
    let sender =
        seen.sender.qdiscs().filter(drops).find(leaving).map(|qdisc| (&seen.sender, qdisc));
    let receiver = seen
        .receiver
        .qdiscs()
        .filter(drops)
        .find(|qdisc| !leaving(qdisc))
        .map(|qdisc| (&seen.receiver, qdisc));
    receiver.or(sender)
}

fn visible(seen: &Observed<'_>) -> Option<Opinion> {
    let (host, qdisc) = shown(seen)?;
    let dropped = path::POLICED_DROPS.of(qdisc.dropped_pkts as f64);
    let goodput =
        qdisc.police_bits_per_s.and_then(|rate| goodput_ceiling(seen, rate, ETHERNET_QDISC_BYTES));
    let reached = goodput.and_then(|goodput| ratio(seen.rate(), goodput));
    // Loss keeps TCP below the rate, often far below; throughput far above it does not pass this policer.
    let near = match reached {
        Some(reached) => path::POLICED_NEAR.of(reached) * path::POLICED_EXCEEDED.not(reached),
        None => path::POLICED_RATE_UNKNOWN,
    };
    let again = if seen.flow.retransmits_count.is_some_and(|count| count < signs::RETRANSMITS_MIN) {
        0.0
    } else {
        1.0
    };
    let weighed = Weighing::most(signs::STATED)
        .by(dropped, "it dropped few packets")
        .by(near, "throughput is far from its rate")
        .by(again, "hardly anything was retransmitted")
        .unless(held_elsewhere(seen), path::POLICED_HELD, weighing::HELD);
    let mut evidence = vec![format!(
        "{}: {} at {} dropped {}{}",
        host.name(),
        if qdisc.police_bits_per_s.is_some() { "a policer" } else { "a filter" },
        qdisc.interface,
        show_count_of(qdisc.dropped_pkts, "packet"),
        qdisc
            .police_bits_per_s
            .map(|rate| format!(" above {}", show_bit_rate(rate)))
            .unwrap_or_default()
    )];
    if let (Some(reached), Some(goodput)) = (reached, goodput) {
        evidence.push(format!(
            "its rate allows {} of payload; measured {} ({})",
            show_bit_rate(goodput),
            show_bit_rate(seen.rate()),
            percent(reached)
        ));
    }
    evidence.extend(plateau_evidence(seen));
    (weighed.weight() > 0.0).then(|| Opinion {
        weight: weighed.weight(),
        doubt: weighed.doubt(),
        end: Some(host.end),
        evidence,
        against: String::new(),
        ceiling_bits_per_s: goodput.or(Some(seen.rate())),
    })
}

/// Confidence, 0 to 1, that windows, buffers or applications limit throughput instead.
fn held_elsewhere(seen: &Observed<'_>) -> f64 {
    1.0 - seen.unexplained()
}

/// The end that polices, if any; the shaper's weight yields to it.
pub(super) fn polices(seen: &Observed<'_>) -> Option<End> {
    visible(seen).filter(|opinion| opinion.weight > SUSPECTED).and_then(|opinion| opinion.end)
}
