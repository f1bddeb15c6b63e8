//! Losses repaired one a round trip, because the connection has no selective acknowledgements.

use results::{End, Limit, SettingChange};
use units::{show_bit_rate, show_count, show_seconds};

use super::losses::{overflow, retransmit_share, retransmits_count};
use super::windows::sysctl;
use super::{halved_segments, more_streams, several_streams, several_words};
use crate::advice::Advice;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{fine_percent, percent, positive};
use crate::observed::{Observed, end_name, opposite};
use crate::symptoms::names;
use crate::thresholds::{path, predictions, signs};
use crate::weighing::{self, Weighing};

const KEY: &str = "net.ipv4.tcp_sack";

#[derive(Debug)]
pub(crate) struct LossRecovery;

impl Mechanism for LossRecovery {
    fn limit(&self) -> Limit {
        Limit::LossRecovery
    }

    fn page(&self) -> Page {
        Page {
            title: "loss recovery without SACK",
            ceiling: "one repaired segment per round trip at these losses",
            mechanism: "Without selective acknowledgements (SACK, RFC 2018) the receiver reports the first missing \
                segment only, so the sender repairs one loss per round trip (RFC 6582). A path that loses a share p \
                of its segments then carries MSS / (RTT p), whatever the congestion control tolerates. Judged under \
                BBR alone: Reno and CUBIC shrink their window so far at each loss that few round trips lose two.",
            evidence: "SACK was not negotiated (TCP_INFO `tcpi_options`), and the throughput is near what that law \
                gives for UDP's losses, or above what it gives for the retransmissions, most of which are needless, or which lag behind the losses because repairs are made one after another; windows, buffers and cores leave room; `net.ipv4.tcp_sack` \
                of both ends tells which of them refused it.",
            against: "SACK was negotiated; few retransmissions; another congestion control than BBR; a window or a \
                rate that no number of streams exceeds.",
            experiment: "Segments of half the size: the path loses as large a share of them, each repair brings \
                half as many bytes, and throughput falls to 0.3 to 0.8 of what it was. No fall refutes it.",
            advice: "Set `net.ipv4.tcp_sack=1` at the end that has it off; if both have it on, find the device on \
                the path that removes the option; until then use several streams.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let law = law(seen);
        let near = law.map_or(0.0, |law| {
            let off = (seen.rate() / law.bits_per_s).ln();
            let below = path::REPAIR_BELOW.of(-off);
            if law.is_of_losses {
                // Far above the law, the losses came together; far below it, another limit is tighter.
                1.0 - path::REPAIR_ABOVE.of(off).max(below)
            } else {
                path::REPAIR_BY_RETRANSMITS * (1.0 - below)
            }
        });
        let weighed = Weighing::most(signs::SEEN)
            .by(near, "one repair per round trip is not what was measured")
            .by(seen.unexplained(), weighing::HELD)
            .unless(overflow(seen), 1.0, "a queue that overflows explains the losses")
            .unless(
                seen.starved(&seen.sender).unwrap_or(0.0),
                path::REPAIR_STARVED,
                weighing::STARVED,
            )
            .unless(
                seen.starved(&seen.receiver).unwrap_or(0.0),
                path::REPAIR_STARVED,
                weighing::STARVED,
            );
        let ceiling = law.filter(|law| law.is_of_losses).map(|law| law.bits_per_s);
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: refusing(seen).first().copied(),
            evidence: evidence(seen, law),
            against: against(seen, law),
            ceiling_bits_per_s: ceiling,
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let mut experiments: Vec<Experiment> =
            half_segments(self.limit(), seen).into_iter().collect();
        experiments.extend(more_streams(self.limit(), seen, headroom));
        experiments
    }

    fn changes(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<SettingChange> {
        let predicted = headroom.unwrap_or(seen.rate() * predictions::CHANGE_HALF_MORE);
        let on = |end: End| {
            let why = "without SACK one loss is repaired per round trip".to_owned();
            let change = sysctl(seen, end, KEY, "1", why)?;
            Some(SettingChange { predicted_bits_per_s: positive(predicted), ..change })
        };
        refusing(seen).into_iter().filter_map(on).collect()
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let command = |end: End| format!("at the {} end: sysctl -w {KEY}=1", end_name(end));
        let refusing = refusing(seen);
        let mut lines: Vec<String> = refusing.iter().copied().map(command).collect();
        if refusing.is_empty() {
            let unknown = ends(seen).into_iter().find(|end| seen.sysctl(*end, KEY).is_none());
            lines.push(match unknown {
                Some(end) => format!("look at the {} end: sysctl {KEY} (should be 1)", end_name(end)),
                None => "find the device on the path that removes the option SACK-permitted from SYN packets \
                         (firewalls and TCP proxies do)"
                    .to_owned(),
            });
        }
        let mut lines = Advice::all(lines);
        let several = "or several streams: each repairs its own losses";
        lines.push(Advice::of(several_streams(seen), several));
        lines
    }
}

/// The experiment with segments of half the size, if they can be halved.
fn half_segments(limit: Limit, seen: &Observed<'_>) -> Option<Experiment> {
    let [low, expected, high] =
        [predictions::SEGMENTS_LOW, predictions::SEGMENTS_EXPECTED, predictions::SEGMENTS_HIGH]
            .map(|share| share * seen.rate());
    Some(Experiment {
        limit,
        change: halved_segments(seen)?,
        predicted: Prediction::new(low, expected, high),
        rule: Rule::FollowsSegments,
    })
}

/// The ends, the receiver first: it is the one that would send selective acknowledgements.
fn ends(seen: &Observed<'_>) -> [End; 2] {
    [opposite(seen.sender.end), seen.sender.end]
}

/// The ends whose kernel is set to refuse SACK.
fn refusing(seen: &Observed<'_>) -> Vec<End> {
    let is_off = |end: &End| seen.sysctl(*end, KEY).is_some_and(|value| value.trim() == "0");
    ends(seen).into_iter().filter(is_off).collect()
}

/// What one repair per round trip allows.
#[derive(Debug, Clone, Copy)]
struct Law {
    /// Share of packets lost that it was worked out from, 0 to 1.
    lost_share: f64,
    bits_per_s: f64,
    /// Whether that share is UDP's. Without SACK most retransmissions are needless, so their share is an upper
    /// bound of the losses, and the law's rate a lower one.
    is_of_losses: bool,
}

/// The law for this connection; `None` unless it repairs one loss per round trip.
fn law(seen: &Observed<'_>) -> Option<Law> {
    let applies = seen.setup.is_sack_negotiated == Some(false)
        && seen.setup.is_bbr()
        && retransmits_count(seen).is_some_and(|count| count >= signs::RETRANSMITS_MIN);
    let again = positive(retransmit_share(seen)).filter(|_| applies)?;
    // A receiver that does not tell where datagrams were lost may have lost them itself.
    let by_udp = seen.shown().path(names::UDP_LOST_ON_PATH).and_then(positive);
    let mss_bytes = seen.shown().sender(names::SEGMENT_PAYLOAD)?;
    let rtt_s = seen.base_rtt_s?;
    let allows = |lost: f64| mss_bytes * 8.0 / (rtt_s * lost) * seen.streams();
    let is_nearer = |lost: f64| {
        let off = |lost: f64| (seen.rate() / allows(lost)).ln().abs();
        off(lost) < off(again)
    };
    let by_udp = by_udp
        .filter(|lost| *lost <= again || repairs_lag(seen) > signs::LIKELY && is_nearer(*lost));
    let lost_share = by_udp.unwrap_or(again);
    let bits_per_s = positive(allows(lost_share))?;
    Some(Law { lost_share, bits_per_s, is_of_losses: by_udp.is_some() })
}

/// Confidence, 0 to 1, that one repair followed another all the time, so that fewer segments were retransmitted than lost.
fn repairs_lag(seen: &Observed<'_>) -> f64 {
    let of_sender = |name: &str| seen.shown().sender(name);
    let repairs = of_sender(names::RETRANSMITTED).zip(of_sender(names::RTT));
    let duration_s = seen.sender.duration_s;
    repairs.map_or(0.0, |(count, rtt_s)| path::REPAIR_TIME.of(count * rtt_s / duration_s))
}

/// Why SACK was not negotiated, as far as the ends' settings tell.
fn origin(seen: &Observed<'_>) -> String {
    let settings = ends(seen).map(|end| (end, seen.sysctl(end, KEY)));
    match (refusing(seen).as_slice(), settings) {
        ([one], _) => format!("the {} end has {KEY}=0", end_name(*one)),
        ([_, _], _) => format!("both ends have {KEY}=0"),
        (_, [(_, Some(_)), (_, Some(_))]) => {
            format!("both ends have {KEY}=1: the option is removed on the path")
        }
        (_, [(end, None), (_, Some(_))]) | (_, [(_, Some(_)), (end, None)]) => format!(
            "{KEY} of the {} end is not known: it is 0 there, or the option is removed on the path",
            end_name(end)
        ),
        _ => format!("{KEY} of neither end is known"),
    }
}

fn evidence(seen: &Observed<'_>, law: Option<Law>) -> Vec<String> {
    let mut first = "SACK was not negotiated, so one loss is repaired per round trip".to_owned();
    if let (Some(law), Some(rtt_s)) = (law, seen.base_rtt_s) {
        let (what, least) = match law.is_of_losses {
            true => ("datagrams lost", ""),
            false => ("segments retransmitted", "at least "),
        };
        first += &format!(
            "; {} of the {what}, over {}, allow {least}{}; measured {}",
            fine_percent(law.lost_share),
            show_seconds(rtt_s),
            show_bit_rate(law.bits_per_s),
            show_bit_rate(seen.rate())
        );
    }
    let mut lines = vec![first, origin(seen)];
    if law.is_some_and(|law| law.is_of_losses) {
        let again = fine_percent(retransmit_share(seen));
        lines.push(match law.is_some_and(|law| law.lost_share > retransmit_share(seen)) {
            true => format!(
                "{again} of the segments retransmitted: one repair followed another, and they lag behind the losses"
            ),
            false => format!("{again} of the segments retransmitted, most needlessly"),
        });
    }
    lines.extend(several_words(seen));
    lines
}

fn against(seen: &Observed<'_>, law: Option<Law>) -> String {
    match seen.setup.is_sack_negotiated {
        None => return "whether SACK was negotiated was not recorded".to_owned(),
        Some(true) => return "SACK was negotiated".to_owned(),
        Some(false) => {}
    }
    if !seen.setup.is_bbr() {
        let name = seen.setup.congestion_control.as_deref();
        return format!(
            "no SACK, but {} leaves few round trips with two losses",
            name.unwrap_or("a congestion control that was not recorded")
        );
    }
    match law {
        None => format!(
            "no SACK, but only {} retransmissions",
            show_count(retransmits_count(seen).unwrap_or(0.0))
        ),
        Some(_) if seen.unexplained() < signs::LIKELY => format!(
            "no SACK, but windows, buffers or applications hold it back {} of the time",
            percent(1.0 - seen.unexplained())
        ),
        Some(_) if overflow(seen) > signs::PERHAPS => {
            "no SACK, but a full queue explains the losses".to_owned()
        }
        Some(law) => format!(
            "one repair per round trip would allow {}; measured {}",
            show_bit_rate(law.bits_per_s),
            show_bit_rate(seen.rate())
        ),
    }
}
