//! A shaper on a host or on the path: a rate below that of the line.

use results::{End, Limit, QdiscCounters};
use units::{count_of, show_bit_rate, show_byte_size, show_count_of};

use super::causes::explains_losses;
use super::losses::{drops_without_queue, host_polices};
use super::others::others_share;
use super::packet_core::packet_core_full;
use super::plateau::{at_the_line, best, plateau, plateau_evidence};
use super::trials::stays;
use super::virtual_device;
use crate::advice::Advice;
use crate::ceiling::{ETHERNET_QDISC_BYTES, after_headers, goodput_ceiling};
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{percent, positive, ratio};
use crate::observed::{Observed, end_name, opposite};
use crate::remedy::{Method, Remedy};
use crate::symptoms::names;
use crate::thresholds::{path, predictions, signs};
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct Shaper;

impl Mechanism for Shaper {
    fn limit(&self) -> Limit {
        Limit::Shaper
    }

    fn page(&self) -> Page {
        Page {
            title: "a rate limiter on the path",
            ceiling: "the rate that all streams together reach",
            mechanism: "A device on the path forwards packets at a fixed rate: a shaping queueing discipline \
                on a host, a shaper or a slower link on the path. Faster traffic waits in its queue. Behind the \
                network device of a virtual machine the switch and the cores of its host act alike, unseen by the \
                guest.",
            evidence: "A ceiling that more streams do not lift and that UDP meets too; round trips longer \
                under load; hosts with idle processor time; the rate of a queueing \
                discipline that either host shows.",
            against: "More streams carry more; UDP delivers more; a thread never sleeps; the ceiling is the interface's own.",
            experiment: "UDP a third faster, then more streams: no more is delivered. A policer predicts the same: only \
                round trips under load, the sender's or the receiver's, or the time that datagrams wait distinguish the two.",
            advice: "Ask the operator of the path about the shaper; on a host, `tc qdisc show`; behind a guest's \
                device, `top -H` and the counters of the switch on its host.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        if let Some(opinion) = shaped_on_a_host(seen) {
            return opinion;
        }
        // Drops without a queue are a policer's, as is a rate that a host reports as policed.
        let policed = drops_without_queue(seen).max(host_polices(seen));
        let at_the_line = at_the_line(seen);
        let weighed = Weighing::most(signs::SEEN)
            .by(plateau(seen), weighing::NO_PLATEAU)
            .by(seen.unexplained(), weighing::HELD)
            .unless(seen.hosts_full(), 1.0, weighing::HOSTS_FULL)
            .unless(at_the_line, 1.0, "the rate is the interface's own")
            .unless(
                policed,
                path::SHAPER_OTHER_CAUSE,
                "what exceeds the rate is dropped, not queued",
            )
            .unless(
                others_share(seen),
                path::SHAPER_OTHER_CAUSE,
                "other traffic takes part of what the interface carries",
            )
            .unless(
                packet_core_full(seen),
                path::SHAPER_PACKET_CORE,
                "the core that takes the packets has no time left",
            );
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: None,
            evidence: virtual_device::evidence(seen)
                .into_iter()
                .chain(plateau_evidence(seen))
                .collect(),
            against: against(seen, at_the_line),
            ceiling_bits_per_s: (plateau(seen) > signs::LIKELY).then(|| best(seen)),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        // One stream may get less of the rate than all streams together: the start of a short test costs it a part.
        stays(self.limit(), seen, best(seen))
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
            predicted_bits_per_s: headroom.unwrap_or(rate * predictions::CHANGE_TWICE),
            text: "without the shaper throughput rises (note `tc qdisc show` first)".to_owned(),
        })
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        Advice::all(match shaped(seen) {
            Some((end, rate)) => by_hand(seen, end, rate),
            None => virtual_device::advice(seen)
                .into_iter()
                .chain([
                "ask the operator of the path for its contracted rate; look for shapers, policers and slower links".to_owned(),
                "traffic that joins on the path looks the same: measure again at other times of day".to_owned(),
                ])
                .collect(),
        })
    }
}

/// A shaping queueing discipline that a host reports: its end, and its rate in bit/s.
fn shaped(seen: &Observed<'_>) -> Option<(End, f64)> {
    let ends = [seen.sender.end, opposite(seen.sender.end)];
    let rates = ends.into_iter().filter_map(|end| {
        // A queueing discipline shapes outgoing packets: the receiver's affects acknowledgements only.
        let interface = seen.interface(end)?;
        // fq's rate is per flow, which is pacing.
        let rate =
            interface.qdisc_rate_bits_per_s.filter(|_| interface.qdisc.as_deref() != Some("fq"));
        let rate = rate.and_then(positive)?;
        (end == seen.sender.end).then_some((end, rate))
    });
    rates.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Device, discipline and rate of a shaper that a host reports, with the commands that show and change it.
fn by_hand(seen: &Observed<'_>, end: End, rate: f64) -> Vec<String> {
    let Some(interface) = seen.interface(end) else { return Vec::new() };
    // The counters tell its parent; without them, assume the root.
    let counted = shaping(seen).filter(|qdisc| qdisc.interface == interface.name);
    let kind = counted.map(|qdisc| qdisc.kind.as_str()).or(interface.qdisc.as_deref());
    let (kind, device) = (kind.unwrap_or("a shaper"), &interface.name);
    let place = match counted.map(|qdisc| qdisc.parent.as_str()) {
        Some(parent) if parent != "root" => format!("parent {parent}"),
        _ => "root".to_owned(),
    };
    let twice = format!("{}mbit", (rate * predictions::SHAPER_ADVISED / 1e6).ceil());
    let class = interface.qdisc_class.as_deref();
    let change = match kind {
        "tbf" => {
            format!("tc qdisc change dev {device} {place} tbf rate {twice} burst 1mb latency 50ms")
        }
        "cake" => format!("tc qdisc change dev {device} {place} cake bandwidth {twice}"),
        // Their rates are configured in their classes.
        "htb" | "hfsc" => match class {
            Some(class) => {
                format!("tc class change dev {device} classid {class} {kind} rate {twice}")
            }
            None => format!("tc class show dev {device}"),
        },
        _ => format!("tc qdisc replace dev {device} {place} fq"),
    };
    let effect = match kind {
        "tbf" | "cake" => "doubles the rate",
        "htb" if class.is_some() => "doubles the rate of this class",
        "htb" | "hfsc" => "lists the classes whose rates `tc class change` sets",
        _ => "puts fq in its place",
    };
    let rate = show_bit_rate(rate);
    let end = end_name(end);
    vec![
        format!(
            "{device} at the {end} end has the queueing discipline {kind} ({place}), which holds it to \
             {rate}: `tc -s qdisc show dev {device}` shows it"
        ),
        format!("`{change}` {effect}; `tc qdisc del dev {device} {place}` removes it"),
    ]
}

fn shaped_on_a_host(seen: &Observed<'_>) -> Option<Opinion> {
    let (end, rate) = shaped(seen)?;
    let goodput = goodput_ceiling(seen, rate, ETHERNET_QDISC_BYTES)?;
    let reached = ratio(seen.rate(), goodput)?;
    let of_all = ratio(best(seen), goodput)?;
    let kept_below = path::SHAPED_BY_SEVERAL.of(of_all)
        * path::SHAPED_BY_ONE.of(reached)
        * bursts_overflow(seen);
    let weighed = Weighing::most(signs::SEEN)
        .by(
            path::SHAPED_REACHED.of(reached).max(kept_below),
            "throughput is below what the discipline's rate allows",
        )
        .unless(
            path::SHAPED_EXCEEDED.of(of_all),
            1.0,
            "several streams exceed the discipline's rate",
        );
    let first = format!(
        "the {} end shapes to {}; measured {} ({})",
        end_name(end),
        after_headers(goodput, rate),
        show_bit_rate(seen.rate()),
        percent(reached)
    );
    (weighed.weight() > 0.0).then(|| Opinion {
        weight: weighed.weight(),
        doubt: weighed.doubt(),
        end: Some(end),
        evidence: std::iter::once(first)
            .chain(drops_text(seen))
            .chain(plateau_evidence(seen))
            .collect(),
        against: String::new(),
        ceiling_bits_per_s: Some(goodput),
    })
}

/// Confidence, 0 to 1, that only the shaper's own short queue keeps one stream below its rate: it
/// drops the stream's bursts, and several streams fill the rate.
fn bursts_overflow(seen: &Observed<'_>) -> f64 {
    let dropped = shaping(seen).map_or(0, |qdisc| qdisc.dropped_pkts);
    let again = seen.shown().sender_events(names::RETRANSMITTED).unwrap_or(0.0);
    // Drops that TCP learns of at once never count as retransmissions.
    let lost_elsewhere =
        if again < signs::RETRANSMITS_MIN { 0.0 } else { 1.0 - explains_losses(seen, dropped) };
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
        (None, Some(pkts)) => format!(" of {}", count_of(pkts, "packet")),
        (None, None) => String::new(),
    };
    let dropped = show_count_of(qdisc.dropped_pkts, "packet");
    Some(format!("its queue{limit} dropped {dropped} meanwhile"))
}

fn against(seen: &Observed<'_>, at_the_line: f64) -> String {
    match seen.streams_gain() {
        Some(gain) if gain > path::STREAMS_TOLD => {
            format!("more streams carry {gain:.1} times as much")
        }
        _ if at_the_line > signs::LIKELY => "the ceiling is the interface's own".to_owned(),
        _ if seen.hosts_full() > signs::LIKELY => {
            "the hosts' cores are full before the path is".to_owned()
        }
        _ if seen.unexplained() < signs::LIKELY => {
            format!(
                "windows, buffers or applications hold it back {} of the time",
                percent(1.0 - seen.unexplained())
            )
        }
        _ => "nothing shows a rate that cannot be lifted".to_owned(),
    }
}
