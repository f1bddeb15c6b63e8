//! A rate below the line's, imposed on a host or on the path.

use results::{End, Limit, QdiscCounters};
use units::{show_bit_rate, show_byte_size, show_count, show_seconds};

use super::causes::explains_losses;
use super::policer::{drops_without_queue, polices};
use super::{cross_traffic, interrupt_core};
use crate::ceiling::{ETHERNET_QDISC_BYTES, ETHERNET_WIRE_BYTES, after_headers, goodput_ceiling};
use crate::change::Change;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{percent, positive, ramp, ratio};
use crate::observed::{Observed, end_name, opposite};
use crate::remedy::{Method, Remedy};

#[derive(Debug)]
pub(crate) struct Shaper;

impl Mechanism for Shaper {
    fn limit(&self) -> Limit {
        Limit::Shaper
    }

    fn page(&self) -> Page {
        Page {
            title: "a rate imposed on the way",
            ceiling: "the rate that all streams together reach",
            mechanism: "Something on the way passes packets at a fixed rate: a shaping queueing discipline \
                on a host, a shaper or a slower link on the path. What comes faster waits in its queue.",
            evidence: "A ceiling that more streams do not lift and that UDP meets too; round trips longer \
                under load; hosts with time to spare; the rate of a queueing \
                discipline that either host shows.",
            against: "More streams carry more; UDP gets more through; a thread never sleeps; the ceiling is \
                the interface's own.",
            experiment: "UDP a third faster, then more streams: no more gets through.",
            advice: "Ask who imposes the rate; on a host, `tc qdisc show`.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        if let Some(opinion) = shaped_on_a_host(seen) {
            return opinion;
        }
        // What drops without a queue is a policer's; so is what a host shows to be one's.
        let policed = if polices(seen).is_some() { 1.0 } else { drops_without_queue(seen) };
        let at_the_line = at_the_line(seen);
        let weight = 0.95
            * plateau(seen)
            * seen.unexplained()
            * (1.0 - seen.hosts_full())
            * (1.0 - at_the_line)
            * (1.0 - 0.8 * policed)
            * (1.0 - 0.8 * cross_traffic::shares(seen))
            * (1.0 - 0.7 * interrupt_core::weight(seen));
        Opinion {
            weight,
            end: None,
            evidence: plateau_evidence(seen),
            against: against(seen, at_the_line),
            ceiling_bits_per_s: (plateau(seen) > 0.5).then(|| best(seen)),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        // Of a rate that a host shows, one stream may get less than all of them.
        let rate = if shaped(seen).is_some() { best(seen) } else { seen.rate() };
        stays(self.limit(), seen, rate)
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let (end, rate) = shaped(seen)?;
        let interface = seen.interface(end)?;
        Some(Remedy {
            end,
            method: Method::ByHand {
                command: format!("tc qdisc del dev {} root", interface.name),
                undo: None,
            },
            predicted_bits_per_s: headroom.unwrap_or(rate * 2.0),
            text: "without the shaper throughput rises (note `tc qdisc show` first)".to_owned(),
        })
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<String> {
        match shaped(seen) {
            Some((end, rate)) => vec![format!(
                "the {} end shapes to {} itself: tc qdisc show, then change or delete it",
                end_name(end),
                show_bit_rate(rate)
            )],
            None => vec![
                "ask who runs the path for its contracted rate; look for shapers, policers and slower links".to_owned(),
                "traffic that joins on the path looks the same: look at the rate at other times of the day".to_owned(),
            ],
        }
    }
}

/// A shaping queueing discipline a host shows: which end, bit/s.
fn shaped(seen: &Observed<'_>) -> Option<(End, f64)> {
    let ends = [seen.sender.end, opposite(seen.sender.end)];
    let rates = ends.into_iter().filter_map(|end| {
        // A queueing discipline shapes what leaves: the receiver's acts on acknowledgements only.
        let interface = seen.interface(end)?;
        // fq's rate is a flow's: that is pacing.
        let rate =
            interface.qdisc_rate_bits_per_s.filter(|_| interface.qdisc.as_deref() != Some("fq"));
        let rate = rate.and_then(positive)?;
        (end == seen.sender.end).then_some((end, rate))
    });
    rates.min_by(|a, b| a.1.total_cmp(&b.1))
}

fn shaped_on_a_host(seen: &Observed<'_>) -> Option<Opinion> {
    let (end, rate) = shaped(seen)?;
    let goodput = goodput_ceiling(seen, rate, ETHERNET_QDISC_BYTES)?;
    let reached = ratio(seen.rate(), goodput)?;
    let of_all = ratio(best(seen), goodput)?;
    let kept_below = ramp(of_all, 0.9, 0.95) * ramp(reached, 0.5, 0.7) * bursts_overflow(seen);
    let weight =
        0.95 * ramp(reached, 0.82, 0.92).max(kept_below) * (1.0 - ramp(of_all, 1.06, 1.15));
    let first = format!(
        "the {} end shapes to {}; measured {} ({})",
        end_name(end),
        after_headers(goodput, rate),
        show_bit_rate(seen.rate()),
        percent(reached)
    );
    (weight > 0.0).then(|| Opinion {
        weight,
        end: Some(end),
        evidence: std::iter::once(first)
            .chain(drops_text(seen))
            .chain(plateau_evidence(seen))
            .collect(),
        against: String::new(),
        ceiling_bits_per_s: Some(goodput),
    })
}

/// The most that one stream or several got, bit/s.
pub(super) fn best(seen: &Observed<'_>) -> f64 {
    seen.several.map_or(seen.rate(), |(_, several)| several.median.max(seen.rate()))
}

/// How surely nothing but the shaper's own short queue keeps one stream below its rate, 0 to 1: it
/// drops the stream's bursts, several streams fill the rate.
fn bursts_overflow(seen: &Observed<'_>) -> f64 {
    let dropped = shaping(seen).map_or(0, |qdisc| qdisc.dropped_pkts);
    let again = seen.flow.retransmits_count.unwrap_or(0.0);
    // Drops that TCP is told of at once are never counted as sent again.
    let lost_elsewhere = if again < 3.0 { 0.0 } else { 1.0 - explains_losses(seen, dropped) };
    seen.unexplained() * (1.0 - seen.hosts_full()) * (1.0 - lost_elsewhere)
}

fn shaping<'a>(seen: &Observed<'a>) -> Option<&'a QdiscCounters> {
    seen.sender.qdiscs().filter(|qdisc| qdisc.rate_bits_per_s.is_some()).max_by_key(dropped)
}

fn dropped(qdisc: &&QdiscCounters) -> u64 {
    qdisc.dropped_pkts
}

fn drops_text(seen: &Observed<'_>) -> Option<String> {
    let qdisc = shaping(seen).filter(|qdisc| qdisc.dropped_pkts > 0)?;
    let limit = match (qdisc.limit_bytes, qdisc.limit_pkts) {
        (Some(bytes), _) => format!(" of {}", show_byte_size(bytes)),
        (None, Some(pkts)) => format!(" of {pkts} packets"),
        (None, None) => String::new(),
    };
    let dropped = show_count(qdisc.dropped_pkts as f64);
    Some(format!("its queue{limit} dropped {dropped} packets meanwhile"))
}

/// How surely a rate that nothing lifts is reached, 0 to 1.
pub(super) fn plateau(seen: &Observed<'_>) -> f64 {
    let streams = seen.streams_gain().map(|gain| 1.0 - ramp(gain, 1.1, 1.3));
    match (streams, udp_meets_it(seen)) {
        (Some(streams), Some(udp)) => streams * udp,
        (Some(streams), None) => 0.85 * streams,
        (None, Some(udp)) => 0.85 * udp,
        (None, None) => 0.3 + 0.4 * seen.queue(),
    }
}

/// How surely UDP meets the same ceiling, 0 to 1; `None` when it did not get far enough to say.
fn udp_meets_it(seen: &Observed<'_>) -> Option<f64> {
    let udp = seen.udp?;
    let best = best(seen);
    let above = 1.0 - ramp(udp.delivered_bits_per_s / best, 1.12, 1.25);
    let pushed = udp.sent_bits_per_s > best * 1.05;
    // It went no faster than TCP did, so it says nothing unless it was dropped on the way.
    if !pushed && above == 1.0 {
        return None;
    }
    // Pushed beyond, delivered about as much and lost the rest: the same ceiling.
    let lost = if udp.located { ramp(udp.lost_share, 0.002, 0.02) } else { 0.0 };
    let delivered_alike = ramp(udp.delivered_bits_per_s / best, 0.6, 0.85);
    Some(above * (0.5 + 0.5 * lost) * (0.6 + 0.4 * delivered_alike))
}

pub(super) fn plateau_evidence(seen: &Observed<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(gain), Some((streams, several))) = (seen.streams_gain(), seen.several) {
        lines.push(format!(
            "{streams} streams carry {} together, one {} ({gain:.2} times)",
            show_bit_rate(several.median),
            show_bit_rate(seen.rate())
        ));
    }
    if let Some(udp) = seen.udp {
        lines.push(format!(
            "UDP offered {}: {} delivered, {:.1}% lost {}",
            show_bit_rate(udp.sent_bits_per_s),
            show_bit_rate(udp.delivered_bits_per_s),
            udp.lost_share * 100.0,
            if udp.located { "on the way" } else { "somewhere" }
        ));
    }
    if let (Some(rtt_s), Some(base_s)) = (seen.flow.rtt_s, seen.base_rtt_s) {
        lines.push(format!(
            "round trips {} under load, {} without",
            show_seconds(rtt_s),
            show_seconds(base_s)
        ));
    }
    if let Some(share) = seen.flow.retransmit_share.filter(|share| *share > 0.0) {
        lines.push(format!("{:.3}% of the segments sent again", share * 100.0));
    }
    lines
}

/// Experiments that a fixed rate survives: nothing gets more than that through.
pub(super) fn stays(limit: Limit, seen: &Observed<'_>, rate: f64) -> Vec<Experiment> {
    let predicted = Prediction::new(rate * 0.85, rate, rate * 1.12);
    let from_count = seen.spec.streams.max(1);
    let to_count = from_count.saturating_mul(8).min(1024);
    let datagram_bytes =
        seen.path_mtu_bytes().map_or(1400.0, |mtu| (mtu - 48.0).clamp(512.0, 65_000.0));
    let changes = [
        Change::UdpAtRate {
            bits_per_s: rate * 1.33,
            datagram_bytes: u32::try_from(units::saturating_u64(datagram_bytes)).unwrap_or(1400),
        },
        Change::MoreStreams { from_count, to_count },
    ];
    changes
        .into_iter()
        .map(|change| Experiment { limit, change, predicted, rule: Rule::Stays })
        .collect()
}

/// How surely the ceiling is an interface's own line rate, 0 to 1.
pub(super) fn at_the_line(seen: &Observed<'_>) -> f64 {
    let ends = [seen.sender.end, opposite(seen.sender.end)];
    // Several streams come closer to it than one.
    let most = best(seen);
    let reached = ends.into_iter().filter_map(|end| {
        let line = positive(seen.interface(end)?.speed_bits_per_s?)?;
        Some(most / goodput_ceiling(seen, line, ETHERNET_WIRE_BYTES)?)
    });
    reached.fold(0.0, |most, reached| {
        most.max(ramp(reached, 0.90, 0.96) * (1.0 - ramp(reached, 1.04, 1.10)))
    })
}

fn against(seen: &Observed<'_>, at_the_line: f64) -> String {
    match seen.streams_gain() {
        Some(gain) if gain > 1.15 => format!("more streams carry {gain:.1} times as much"),
        _ if at_the_line > 0.5 => "the ceiling is the interface's own".to_owned(),
        _ if seen.hosts_full() > 0.5 => "the hosts' cores are full before the path is".to_owned(),
        _ if seen.unexplained() < 0.5 => {
            format!(
                "windows, buffers or applications hold it back {} of the time",
                percent(1.0 - seen.unexplained())
            )
        }
        _ => "nothing shows a rate that cannot be lifted".to_owned(),
    }
}
