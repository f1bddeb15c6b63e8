//! Packets lost on the path, and the congestion window that shrinks because of them.

use results::Limit;
use units::{saturating_u64, show_bit_rate, show_byte_size, show_count, show_seconds, show_share};

use super::losses::{
    algorithm, common_ceiling, elsewhere, law, lost_before, overflow, retransmit_share,
    retransmits_count, udp_is_spared, udp_lost,
};
use super::others::shares;
use super::trials::{moderate_udp, with_bbr};
use super::{datagram_bytes, more_streams, several_streams, several_words};
use crate::advice::Advice;
use crate::ceiling::is_disproved;
use crate::change::Change;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{fine_percent, percent, positive};
use crate::observed::{Observed, end_name};
use crate::symptoms::names;
use crate::thresholds::{path, predictions, rulings, signs};
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct Loss;

impl Mechanism for Loss {
    fn limit(&self) -> Limit {
        Limit::Loss
    }

    fn page(&self) -> Page {
        Page {
            title: "packet loss on the path",
            ceiling: "what the congestion control in use allows at these losses",
            mechanism: "Every loss makes Reno or CUBIC shrink the congestion window, so a path that loses a \
                share p of its packets whatever the load carries about 1.22 MSS / (RTT sqrt(p)) under Reno \
                (Mathis et al. 1997) and 1.05 MSS (RTT/p)^0.75 / RTT under CUBIC (RFC 9438 section 5.1).",
            evidence: "Retransmissions, and a throughput near what that law gives for their share; round \
                trips no longer than on the idle path; more streams carry more; UDP at a moderate rate loses \
                a share too. Or retransmissions before the measured time (`retransmitted-before`), while the window that \
                they cut has not grown back.",
            against: "The losses come with a standing queue or a rate that no number of streams exceeds: then \
                the queue at that rate overflows, and the rate is the limit; other traffic fills an interface; UDP loses none of enough datagrams to show a loss. BBR hardly reacts to loss.",
            experiment: "A congestion control that does not treat loss as congestion (BBR), where the sender \
                has one: throughput rises, and about as large a share is still lost. If throughput stops far below the \
                next ceiling, with a larger share lost and no queue, a rate limit drops the excess, and this limit is \
                refuted. Otherwise UDP at half the rate, each datagram by itself, still loses some; that is tried first where UDP has lost \
                nothing so far.",
            advice: "Find where packets are lost (device and softnet counters, optics, duplex, a policer); \
                until then use BBR or more streams.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let count = retransmits_count(seen).unwrap_or(0.0);
        let share = retransmit_share(seen);
        let (response, by_events) = answer(seen);
        let answers = match response {
            Some(response) => {
                let above = (seen.rate() / by_events.unwrap_or(response).max(response)).ln();
                let below = (response / seen.rate()).ln();
                // Far above the law the loss is tolerated (a short test has not yet responded to every loss);
                // far below it another limit is tighter.
                1.0 - path::LAW_ABOVE.of(above).max(path::LAW_BELOW.of(below))
            }
            // Without SACK most retransmissions are needless, so their share says little of the losses.
            None if seen.setup.is_sack_negotiated == Some(false) => {
                path::LOSS_WITHOUT_SACK * path::LOSS_UNANSWERED.of(share)
            }
            None => path::LOSS_UNANSWERED.of(share),
        };
        // A loss that cut the window before is answered all the time in which it grows back.
        let before = lost_before(seen);
        let answers = answers.max(before);
        let enough = if count >= signs::RETRANSMITS_MIN { 1.0 } else { before };
        let overflow = overflow(seen);
        // A sender that tells no more than its retransmissions may be held back by what nobody saw.
        let shown = if seen.shown().sender(names::CWND).is_some() { 1.0 } else { signs::INDIRECT };
        let weighed = Weighing::most(shown)
            .by(enough, "too few retransmissions for a rate of them")
            .by(answers, "the congestion control's law for these losses is not what was measured")
            .by(seen.unexplained(), weighing::HELD)
            .unless(overflow, 1.0, "a queue that overflows explains the losses")
            .unless(seen.hosts_full(), path::LOSS_FULL_HOSTS, weighing::HOSTS_FULL)
            .unless(
                elsewhere(seen),
                path::LOSS_ELSEWHERE,
                "a host counts these drops, or nothing was lost",
            )
            .unless(
                common_ceiling(seen),
                path::LOSS_BELOW_RATE,
                "all streams and UDP end at one rate",
            )
            .unless(
                shares(seen),
                path::LOSS_BESIDE_OTHERS,
                "other traffic fills the interface's queue, which drops from all",
            )
            .unless(
                udp_is_spared(seen),
                path::LOSS_SPARES_UDP,
                "UDP loses none, though random losses would have taken many of so many datagrams",
            );
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: None,
            evidence: evidence(seen, response, by_events),
            against: against(seen, count, overflow),
            ceiling_bits_per_s: most(response, by_events)
                .filter(|_| count >= signs::RETRANSMITS_MIN),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let bbr = with_bbr(self.limit(), seen, headroom);
        let spaced = at_half_the_rate(self.limit(), seen);
        // Late packets, marks and bursts hold a window down, too; of them datagrams lose nothing.
        let is_doubted = udp_lost(seen) == Some(0.0);
        let mut experiments: Vec<Experiment> = bbr.into_iter().chain([spaced]).collect();
        if is_doubted {
            experiments.reverse();
        }
        experiments.extend(more_streams(self.limit(), seen, headroom));
        experiments
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let mut lines = Advice::all(vec![
            "find where packets are lost: interface errors and drops at every hop, optics, duplex, policers"
                .to_owned(),
        ]);
        if algorithm(seen) != Some("bbr") {
            let end = end_name(seen.sender.end);
            let is_default =
                seen.sysctl(seen.sender.end, "net.ipv4.tcp_congestion_control") == Some("bbr");
            let text = if is_default {
                format!(
                    "until then, bbr, which tolerates loss and is the default at the {end} end: leave out --congestion"
                )
            } else {
                format!(
                    "until then, a congestion control that tolerates loss at the {end} end: \
                     sysctl -w net.ipv4.tcp_congestion_control=bbr, or --congestion bbr for one test"
                )
            };
            let from = algorithm(seen).unwrap_or_default().to_owned();
            lines.push(Advice::of(Change::CongestionControl { from, to: "bbr".to_owned() }, text));
        }
        let several = "or several streams: each recovers on its own";
        lines.push(Advice::of(several_streams(seen), several));
        lines
    }
}

/// UDP at half the rate, in datagrams small enough that losses at random would show.
fn at_half_the_rate(limit: Limit, seen: &Observed<'_>) -> Experiment {
    let share = retransmit_share(seen);
    let low_share = share * predictions::UDP_LOST_LEAST;
    let offered = seen.rate() * predictions::UDP_HALF_RATE;
    let most = datagram_bytes(seen);
    let wanted_count = rulings::LOST_EXPECTED_LEAST / low_share;
    let bytes = offered / 8.0 * seen.sender.duration_s / wanted_count;
    let bytes = bytes.clamp(predictions::DATAGRAM_LEAST_BYTES, f64::from(most));
    let datagram_bytes = u32::try_from(saturating_u64(bytes)).map_or(most, |bytes| bytes.min(most));
    Experiment {
        limit,
        change: moderate_udp(offered, datagram_bytes),
        predicted: Prediction::new(
            offered * predictions::UDP_HALF_ARRIVES,
            offered * (1.0 - share),
            offered,
        ),
        rule: Rule::Loses { low_share },
    }
}

/// States that the drop counters of both hosts did not move, which leaves the path; else `None`.
fn nowhere_else(seen: &Observed<'_>) -> Option<String> {
    let both = seen.sender.counters.zip(seen.receiver.counters);
    (both.is_some() && elsewhere(seen) < path::LOSS_NOWHERE_ELSE).then(|| {
        "neither the sender's queue nor the receiver's ring, backlog or filters dropped them: lost on the path"
            .to_owned()
    })
}

/// The law's rates for the losses, each counted, and for the bursts in which they came. The window shrinks once per
/// burst: the truth lies between the two.
fn answer(seen: &Observed<'_>) -> (Option<f64>, Option<f64>) {
    let by_share = |name: &str| law(seen, seen.shown().sender(name)?);
    (by_share(names::RETRANSMIT_SHARE), by_share(names::LOSS_EVENT_SHARE))
}

/// The larger of the two.
fn most(response: Option<f64>, by_events: Option<f64>) -> Option<f64> {
    by_events.map_or(response, |events| response.map(|each| each.max(events)))
}

fn evidence(seen: &Observed<'_>, response: Option<f64>, by_events: Option<f64>) -> Vec<String> {
    let mut lines = Vec::new();
    let name = algorithm(seen).unwrap_or("the congestion control (taken to be CUBIC)");
    let of_sender = |name: &str| seen.shown().sender(name);
    if let Some(count) = retransmits_count(seen) {
        let share = positive(retransmit_share(seen));
        let share = share.map_or_else(String::new, |share| format!(", {}", fine_percent(share)));
        let mut line = format!("{} retransmissions{share}", show_count(count));
        if let Some(response) = response {
            let allowed = most(Some(response), by_events).unwrap_or(response);
            // The law is that of a long transfer.
            let in_time = if is_disproved(allowed, seen.rate()) { "in the long run " } else { "" };
            line += &format!(
                "; at that loss {name} reaches {in_time}about {}{}; measured {}",
                show_bit_rate(response),
                in_bursts(response, by_events),
                show_bit_rate(seen.rate())
            );
        }
        lines.push(line);
    }
    if lost_before(seen) > signs::PERHAPS {
        lines.push(format!(
            "{} retransmissions before the measured time; the window that they cut has not grown back",
            show_count(of_sender(names::RETRANSMITTED_BEFORE).unwrap_or(0.0))
        ));
    }
    lines.extend(nowhere_else(seen));
    if let (Some(window), Some(rtt_s)) = (of_sender(names::CWND), of_sender(names::RTT)) {
        lines.push(format!(
            "congestion window {} at {}",
            show_byte_size(saturating_u64(window)),
            show_seconds(rtt_s)
        ));
    }
    lines.extend(several_words(seen));
    let udp = seen.shown().path(names::UDP_SENT).zip(udp_lost(seen));
    if let Some((sent, lost)) = udp.filter(|(_, lost)| *lost > 0.0) {
        lines.push(format!("UDP at {} lost {} too", show_bit_rate(sent), show_share(lost)));
    }
    lines
}

/// Describes the law's rate for losses in bursts, each of which counts once.
fn in_bursts(each: f64, by_events: Option<f64>) -> String {
    match by_events.filter(|by_events| *by_events > path::BURSTS_TOLD * each) {
        Some(by_events) => {
            format!(", up to {} because losses come in bursts", show_bit_rate(by_events))
        }
        None => String::new(),
    }
}

fn against(seen: &Observed<'_>, count: f64, overflow: f64) -> String {
    let share = positive(retransmit_share(seen));
    let share = share.map_or_else(String::new, |share| format!(" ({})", fine_percent(share)));
    let lost = format!("{} retransmissions{share}", show_count(count));
    if count < signs::RETRANSMITS_MIN {
        return match saturating_u64(count) {
            0 if retransmits_count(seen).is_none() => {
                "the sender does not report retransmissions".to_owned()
            }
            0 => "no retransmissions".to_owned(),
            1 => "1 retransmission".to_owned(),
            _ => lost,
        };
    }
    if overflow > signs::PERHAPS {
        let shown = match seen.queue() > signs::PERHAPS {
            true => "round trips grow under load",
            false => "more streams carry no more",
        };
        return format!("{lost}, but a full queue explains them: {shown}");
    }
    let name = algorithm(seen);
    let (response, by_events) = answer(seen);
    match most(response, by_events) {
        None if name.is_some_and(|name| name.starts_with("bbr")) => {
            format!("{lost}, which bbr tolerates")
        }
        None => format!("{lost}; what they cost is not known without the sender's round trips"),
        // Less than was carried is no limit: too short a test for the law, or losses that came together.
        Some(allowed) if is_disproved(allowed, seen.rate()) => format!(
            "{lost}, which by the law of {} hold a long transfer to {}; this one carried {}",
            name.unwrap_or("CUBIC"),
            show_bit_rate(allowed),
            show_bit_rate(seen.rate())
        ),
        Some(allowed) => {
            let mut line = format!("{lost} would allow {}", show_bit_rate(allowed));
            let held = 1.0 - seen.unexplained();
            if held > path::HELD_TOLD {
                line += &format!("; other limits: {} of the time", percent(held));
            }
            line
        }
    }
}
