//! Congestion signals without loss: marks, and late packets.

use results::Limit;
use units::{saturating_u64, show_count, show_count_of, show_share};

use super::losses::{
    marked_before, marks, mistaken, overflow, own_drops_bind, udp_is_spared, udp_lost, waits,
};
use super::trials::{moderate_udp, with_bbr};
use super::{datagram_bytes, more_streams, several_words};
use crate::advice::Advice;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::fine_percent;
use crate::observed::{Observed, end_name};
use crate::remedy::{Remedy, change};
use crate::symptoms::names;
use crate::thresholds::{Fitted, path, predictions, signs};
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct EcnMarks;

#[derive(Debug)]
pub(crate) struct Reordering;

impl Mechanism for EcnMarks {
    fn limit(&self) -> Limit {
        Limit::EcnMarks
    }

    fn page(&self) -> Page {
        Page {
            title: "congestion marks",
            ceiling: "what the congestion control in use allows at these marks",
            mechanism: "A queue on the path marks packets (ECN, RFC 3168) instead of dropping them, and the \
                sender answers each marked round trip as it would answer a loss. A threshold set too low \
                holds the congestion window down though the path has room.",
            evidence: "Segments delivered with a mark (`tcpi_delivered_ce`); few or no retransmissions; windows, \
                buffers and cores leave room; more streams carry more.",
            against: "No marks; or more streams carry no more (then the rate that fills the queue is the limit).",
            experiment: "A congestion control that ignores marks (BBR), where the sender has one: segments are still \
                marked; more streams, each with a window of its own.",
            advice: "Raise the marking threshold where the queue is; switch ECN off at the sender \
                (`net.ipv4.tcp_ecn=0`) until then.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let of_sender = |name: &str| seen.shown().sender(name);
        let marked = seen.shown().sender_events(names::MARKED_SEGMENTS);
        let weighed = Weighing::most(signs::SEEN)
            .by(marks(seen), "few segments are marked")
            .by(seen.unexplained(), weighing::HELD)
            .unless(overflow(seen), 1.0, "more streams carry no more, or packets wait")
            .unless(seen.hosts_full(), path::SIGNALS_FULL_HOSTS, weighing::HOSTS_FULL);
        let first = format!(
            "{} segments came back marked, {} of all",
            show_count(marked.unwrap_or(0.0)),
            fine_percent(of_sender(names::MARKED_SHARE).unwrap_or(0.0))
        );
        let mut evidence = if marked_before(seen) > signs::PERHAPS {
            vec![format!(
                "{} segments came back marked before the measured time; the window that this cut has not grown back",
                show_count(of_sender(names::MARKED_BEFORE).unwrap_or(0.0))
            )]
        } else {
            Vec::new()
        };
        if evidence.is_empty() || marked.is_some_and(|marked| marked > 0.0) {
            evidence.push(first.clone());
        }
        evidence.extend(several_words(seen));
        if let Some(again) = of_sender(names::RETRANSMIT_SHARE) {
            evidence.push(format!("{} of the segments retransmitted", fine_percent(again)));
        }
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: None,
            evidence,
            against: match marked {
                None => "the sender reports no count of marks".to_owned(),
                Some(0.0) => "no segment came back marked".to_owned(),
                Some(_) => first,
            },
            ceiling_bits_per_s: None,
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let mut experiments: Vec<Experiment> =
            with_bbr(self.limit(), seen, headroom).into_iter().collect();
        experiments.extend(more_streams(self.limit(), seen, headroom));
        experiments
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let end = seen.sender.end;
        let now = seen.sysctl(end, "net.ipv4.tcp_ecn")?;
        Some(Remedy::setting(
            end,
            change("net.ipv4.tcp_ecn", Some(now), "0")?,
            headroom.unwrap_or(seen.rate() * predictions::CHANGE_HALF_MORE),
            "without ECN the queue drops when it is really full: throughput rises",
        ))
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        Advice::all(vec![
            "raise the marking threshold of the queue that marks (fq_codel ce_threshold, red min)"
                .to_owned(),
            format!("or at the {} end: sysctl -w net.ipv4.tcp_ecn=0", end_name(seen.sender.end)),
        ])
    }
}

impl Mechanism for Reordering {
    fn limit(&self) -> Limit {
        Limit::Reordering
    }

    fn page(&self) -> Page {
        Page {
            title: "packets out of order",
            ceiling: "what the congestion control allows at these spurious losses",
            mechanism: "Packets overtake each other (several links without flow hashing, queues served by \
                several cores). The receiver reports packets as missing that are only late, the sender retransmits them needlessly and shrinks its window; GRO merges fewer packets.",
            evidence: "Reordering that the sender noticed (`tcpi_reord_seen`), spurious retransmissions (the \
                receiver's D-SACKs), packets out of order at the receiver; UDP arrives out of order too.",
            against: "Packets arrive in order; what was retransmitted was really lost.",
            experiment: "UDP at half the rate, of TCP or of UDP that hardly lost any: datagrams arrive late, and hardly any is \
                lost. Too few datagrams are no evidence.",
            advice: "Find what splits a flow (bonding by round robin, per-packet multipath, RPS changed under \
                load) and hash by flow; until then a larger `net.ipv4.tcp_reordering`.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let of_path = |name: &str| seen.shown().path(name);
        let of_sender = |name: &str| seen.shown().sender(name);
        let came_late = [
            seen.shown().sender_reaches(names::REORDERED, path::REORDER_NOTICED),
            seen.shown().sender_reaches(names::NEEDLESS, path::REORDER_NEEDLESS),
            seen.shown().path_reaches(names::UDP_LATE, path::REORDER_UDP),
        ];
        let shown = came_late.into_iter().flatten().fold(0.0, f64::max);
        let untold = untold_order(seen);
        let weighed = Weighing::most(signs::SEEN)
            .by(
                seen.fit[Fitted::Mistaken].of(mistaken(seen)).max(untold),
                "what was retransmitted was really lost",
            )
            .by(shown.max(if untold > 0.0 { 1.0 } else { 0.0 }), "few packets came late")
            .by(seen.unexplained(), weighing::HELD)
            .unless(overflow(seen), 1.0, "more streams carry no more, or packets wait")
            .unless(seen.hosts_full(), path::SIGNALS_FULL_HOSTS, weighing::HOSTS_FULL);
        let events = |name: &str| seen.shown().sender_events(name);
        let (reordered, needless) = (events(names::REORDERED), events(names::NEEDLESS));
        let mut evidence = vec![format!(
            "D-SACKs: {}; retransmissions: {}; the sender noticed reordering {}",
            show_count(needless.unwrap_or(0.0)),
            show_count(events(names::RETRANSMITTED).unwrap_or(0.0)),
            show_count_of(saturating_u64(reordered.unwrap_or(0.0)), "time")
        )];
        if untold > signs::PERHAPS {
            let lost = of_path(names::UDP_LOST).unwrap_or(0.0);
            evidence.insert(
                0,
                format!(
                    "{} of the segments retransmitted, though nothing waits and spaced UDP, which is faster, loses {}; \
                     the receiver does not tell which packets came late",
                    fine_percent(of_sender(names::RETRANSMIT_SHARE).unwrap_or(0.0)),
                    show_share(lost)
                ),
            );
        }
        let udp = of_path(names::UDP_LATE).zip(of_path(names::UDP_LOST));
        if let Some((late, lost)) = udp.filter(|(late, _)| *late > 0.0) {
            evidence.push(format!(
                "{} of UDP's datagrams came late, {} were lost",
                show_share(late),
                show_share(lost)
            ));
        }
        let late = seen.shown().receiver_events(names::OUT_OF_ORDER);
        if let Some(late) = late.filter(|late| *late > 0.0) {
            evidence.push(format!(
                "{} came to the receiver out of order",
                show_count_of(saturating_u64(late), "packet")
            ));
        }
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: None,
            against: match (reordered, needless) {
                (Some(0.0), Some(0.0)) => "packets came in order".to_owned(),
                (None, None) => "the sender does not report reordering".to_owned(),
                _ => evidence[0].clone(),
            },
            evidence,
            ceiling_bits_per_s: None,
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        // A receiver that does not tell which datagrams came late decides nothing.
        if untold_order(seen) > 0.0 {
            return Vec::new();
        }
        // What passed unharmed is moderate, too: at a rate that late packets hold down, few datagrams would be sent.
        let passed = seen.shown().path(names::UDP_DELIVERED).filter(|_| udp_passed(seen));
        let rate = passed.map_or(seen.rate(), |passed| passed.max(seen.rate()));
        let offered = rate * predictions::UDP_HALF_RATE;
        let late = seen.shown().path(names::UDP_LATE).unwrap_or(0.0);
        let low_share = (late * predictions::UDP_LATE_OF_FIRST).max(predictions::UDP_LATE_LEAST);
        vec![Experiment {
            limit: self.limit(),
            change: moderate_udp(offered, datagram_bytes(seen)),
            predicted: Prediction::new(offered * predictions::UDP_HALF_ARRIVES, offered, offered),
            rule: Rule::Reorders { low_share },
        }]
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        Advice::all(vec![
            "find what splits a flow over several ways (round-robin bonding, per-packet multipath) and hash by flow".to_owned(),
            format!(
                "until then at the {} end: sysctl -w net.ipv4.tcp_reordering=30 net.ipv4.tcp_max_reordering=1000",
                end_name(seen.sender.end)
            ),
        ])
    }
}

/// Whether UDP was tried and hardly any of it lost.
fn udp_passed(seen: &Observed<'_>) -> bool {
    udp_lost(seen).is_some_and(|lost| lost < path::UDP_LOST.from)
}

/// Confidence, 0 to 1, that what was retransmitted was only late, where the receiver does not tell so: UDP, spaced and
/// faster, loses none of it, and nothing waits in a queue that bursts could overflow.
fn untold_order(seen: &Observed<'_>) -> f64 {
    let of_path = |name: &str| seen.shown().path(name);
    if of_path(names::UDP_LATE).is_some() {
        return 0.0;
    }
    let is_faster = of_path(names::UDP_DELIVERED)
        .is_some_and(|delivered| delivered > path::UDP_PUSHED * seen.rate());
    path::REORDER_UNTOLD
        * if is_faster { udp_is_spared(seen) } else { 0.0 }
        * (1.0 - waits(seen))
        * (1.0 - own_drops_bind(seen))
}
