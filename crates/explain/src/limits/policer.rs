//! A rate limit that drops packets instead of queueing them.

use results::Limit;
use units::{show_bit_rate, show_count_of};

use super::losses::{
    PolicerSigns, common_ceiling, drops_without_queue, elsewhere, host_policer, long_bursts,
    none_again, retransmit_share, several_wait, udp_is_spared, udp_lost,
};
use super::plateau::{
    at_the_line, best, exceeds, plateau, plateau_evidence, plateau_of_drops, udp_over_best,
};
use super::trials::{spaced, stays};
use crate::advice::Advice;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{fine_percent, percent};
use crate::observed::{Observed, end_name};
use crate::remedy::{Method, Remedy};
use crate::symptoms::names;
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
                path: a rate that more streams and UDP do not exceed (UDP may come closer to it than TCP, and \
                loses the excess), and many losses, while round trips \
                under load stay as short as on the idle path, so nothing waits. Or losses of hundreds of segments at a \
                time, or many, while faster UDP, sent evenly, loses none: the rate is above all that was tried, and \
                TCP's bursts exceed it.",
            against: "Round trips grow under load (a shaper's queue); few losses; more streams carry more.",
            experiment: "UDP a third faster, then more streams: no more gets through. Where a host shows the \
                policer, or bursts alone are dropped, spaced packets at about the same throughput: the losses go away.",
            advice: "Pace just below the rate; ask the operator for a shaper in place of the policer, a higher rate or a larger burst.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        if let Some(own) = visible(seen) {
            return own;
        }
        let reached = plateau_of_drops(seen) * drops_without_queue(seen);
        // These two add up: the more that streams lift throughput, the less it is a plateau and the more it is
        // a stream kept below the rate by its own drops.
        let weighed = Weighing::most(signs::LOCATED)
            .by(
                (reached + common_ceiling(seen)).min(1.0).max(bursts(seen)),
                "no common rate above which packets are dropped without a queue",
            )
            .by(seen.unexplained(), weighing::HELD)
            .unless(seen.hosts_full(), 1.0, weighing::HOSTS_FULL)
            .unless(at_the_line(seen), 1.0, "the rate is the interface's own");
        let best = best(seen);
        let mut evidence = plateau_evidence(seen);
        evidence.push("nothing waits: what exceeds the rate is dropped at once".to_owned());
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: None,
            evidence,
            against: match seen.shown().sender(names::RETRANSMIT_SHARE) {
                Some(0.0) => none_again(seen).to_owned(),
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
        let mut experiments = if host_policer(seen).is_some() || bursts(seen) > signs::PERHAPS {
            spaced(self.limit(), seen)
        } else {
            Vec::new()
        };
        let is_common = common_ceiling(seen) > path::COMMON_CEILING_TOLD;
        let rate = if is_common { best(seen) } else { seen.rate() };
        // UDP does not shrink from drops, so it shows the rate itself.
        let rate = exceeds(seen).unwrap_or(rate);
        experiments.extend(stays(self.limit(), seen, rate));
        experiments
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let (host, qdisc) = host_policer(seen)?;
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
        Advice::all(match host_policer(seen) {
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

/// Confidence, 0 to 1, that bursts are dropped on the path, and no datagram of a spaced stream that is faster: so does a
/// policer above every rate that was tried.
fn bursts(seen: &Observed<'_>) -> f64 {
    let below_the_line = seen
        .line_goodput(seen.sender.end)
        .map_or(1.0, |line| path::BELOW_THE_LINE.not(best(seen) / line));
    let is_faster = udp_over_best(seen).is_some_and(|over| over > path::UDP_PUSHED);
    let unharmed = udp_lost(seen).filter(|_| is_faster);
    let unharmed =
        unharmed.map_or(0.0, |lost| path::LOST_OF_AGAIN.times(retransmit_share(seen)).not(lost));
    path::POLICED_BURSTS
        * unharmed
        * udp_is_spared(seen).max(long_bursts(seen)).max(spared_singly(seen))
        * drops_without_queue(seen)
        // What several streams fill is a queue, which slow start may have overfilled once.
        * (1.0 - several_wait(seen).unwrap_or(0.0))
        * (1.0 - elsewhere(seen))
        * below_the_line
}

/// Confidence, 0 to 1, that UDP loses none of so many datagrams, if each lost segment counts: losses at random that come in
/// bursts would take few bursts of it, so this is a weaker sign.
fn spared_singly(seen: &Observed<'_>) -> f64 {
    let sent = seen.shown().path(names::UDP_COUNT).unwrap_or(0.0);
    path::SPARED_SINGLY * path::UDP_LOSS_EXPECTED.of(sent * retransmit_share(seen))
}

fn visible(seen: &Observed<'_>) -> Option<Opinion> {
    let (host, qdisc) = host_policer(seen)?;
    let PolicerSigns { goodput, reached, dropped, near, again } = PolicerSigns::of(seen, qdisc);
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
