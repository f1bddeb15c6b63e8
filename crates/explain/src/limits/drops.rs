//! Queues of the two hosts that overflow, each with its own counter.

use results::{Limit, QdiscCounters};
use settings::RootQdisc;
use units::{count_of, saturating_u64, show_byte_size, show_count, show_count_of};

use super::causes::explains_losses;
use super::losses::{dropped_before, own_drops_bind, short_queue};
use super::trials::{spaced, with_bbr};
use crate::advice::Advice;
use crate::experiment::Experiment;
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::fine_percent;
use crate::observed::{HostView, Observed, end_name};
use crate::remedy::{Method, Remedy, change};
use crate::symptoms::names;
use crate::thresholds::{hosts, predictions, signs};
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct Qdisc;

#[derive(Debug)]
pub(crate) struct SoftnetBacklog;

#[derive(Debug)]
pub(crate) struct RingOverrun;

const ANSWER: &str = "Spaced packets at about the same throughput: the losses disappear, because no burst overflows the queue. If they remain, another queue causes them.";

impl Mechanism for Qdisc {
    fn limit(&self) -> Limit {
        Limit::Qdisc
    }

    fn page(&self) -> Page {
        Page {
            title: "the sending host's queue",
            ceiling: "what the congestion control allows at these drops",
            mechanism: "Packets that the device cannot take at once wait in the sending host's queueing \
                discipline. A queue shorter than the bursts a stream makes (a super-segment is 64 KiB) \
                drops them before they ever leave the host, and the congestion window shrinks.",
            evidence: "Drops that `tc -s qdisc` counts, against the retransmissions; its limit; it has \
                no rate of its own, or throughput is well below that. Or drops with several streams, while the window of one \
                stream, which neither a loss nor a mark cut, has not grown back since the start (`streams-qdisc-drops`).",
            against: "The queueing discipline dropped nothing; or it has a rate limit that throughput reaches, and this causes its drops (then the rate is the limit).",
            experiment: ANSWER,
            advice: "A longer queue, or a discipline that spaces packets: `tc qdisc replace dev DEV root fq`.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let host = &seen.sender;
        let dropped = short_queue(seen).map_or(0, |qdisc| qdisc.dropped_pkts);
        let weighed = Weighing::most(signs::LOCATED)
            .by(own_drops_bind(seen), "its drops are too few for the losses")
            .by(overflow_binds(seen), weighing::HELD);
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(host.end),
            evidence: short_queue(seen)
                .map(|qdisc| qdisc_evidence(seen, qdisc))
                .unwrap_or_default(),
            against: match (short_queue(seen), host.counters) {
                (Some(qdisc), _) if dropped > 0 => {
                    format!(
                        "{} dropped {}, too few to bind",
                        qdisc.kind,
                        show_count_of(dropped, "packet")
                    )
                }
                (_, Some(_)) => {
                    "no queueing discipline of the sender dropped anything of its own accord"
                        .to_owned()
                }
                (_, None) => "the sending host reports no counters".to_owned(),
            },
            ceiling_bits_per_s: (weighed.weight() > signs::PERHAPS).then_some(seen.rate()),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        // Without retransmissions there is nothing that paced packets could prevent.
        let again = seen.shown().sender_events(names::RETRANSMITTED);
        if again.is_some_and(|count| count >= signs::RETRANSMITS_MIN) {
            return spaced(self.limit(), seen);
        }
        with_bbr(self.limit(), seen, headroom).into_iter().collect()
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        Some(Remedy {
            end: seen.sender.end,
            method: longer_queue(short_queue(seen)?)?,
            predicted_bits_per_s: headroom.unwrap_or(seen.rate() * predictions::CHANGE_TWICE),
            text: "a longer queue drops nothing: throughput rises".to_owned(),
        })
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let end = end_name(seen.sender.end);
        let name = short_queue(seen).map_or("DEV", |qdisc| qdisc.interface.as_str());
        Advice::all(vec![
            format!(
                "at the {end} end a longer queue that spaces packets: tc qdisc replace dev {name} root fq"
            ),
            format!(
                "or raise its limit; txqueuelen for the plain ones: ip link set {name} txqueuelen 10000"
            ),
        ])
    }
}

/// The change to a queue that paces packets. `tune` can revert what the kernel itself set up; a queue that
/// somebody configured has options that only a command can restore.
fn longer_queue(qdisc: &QdiscCounters) -> Option<Method> {
    let key = format!("{}/qdisc", qdisc.interface);
    match qdisc_setting(qdisc).as_deref() {
        None | Some("pfifo_fast") => {
            let from = RootQdisc { kind: &qdisc.kind, is_default: true }.to_string();
            change(&key, Some(&from), "fq").map(|change| Method::Settings(vec![change]))
        }
        Some(setting) => Some(Method::ByHand {
            command: settings::commands(&[change(&key, None, "fq")?]),
            undo: Some(format!("tc qdisc replace dev {} root {setting}", qdisc.interface)),
        }),
    }
}

/// The options of a simple discipline, `pfifo limit 2`; `None` if it has more than these.
fn qdisc_setting(qdisc: &QdiscCounters) -> Option<String> {
    match (qdisc.kind.as_str(), qdisc.limit_pkts, qdisc.limit_bytes) {
        (kind @ ("pfifo" | "fq" | "fq_codel" | "codel"), Some(limit), _)
        | (kind @ "bfifo", _, Some(limit)) => Some(format!("{kind} limit {limit}")),
        ("pfifo_fast", ..) => Some("pfifo_fast".to_owned()),
        _ => None,
    }
}

fn qdisc_evidence(seen: &Observed<'_>, qdisc: &QdiscCounters) -> Vec<String> {
    let limit = match (qdisc.limit_bytes, qdisc.limit_pkts) {
        (Some(bytes), _) => format!(" (limit {})", show_byte_size(bytes)),
        (None, Some(pkts)) => format!(" (limit {})", count_of(pkts, "packet")),
        (None, None) => String::new(),
    };
    let queue = seen.sender.interface().and_then(|interface| interface.transmit_queue_pkts);
    let mut lines = vec![format!(
        "{}: {} at {}{limit} dropped {} of {}",
        seen.sender.name(),
        qdisc.kind,
        qdisc.interface,
        show_count_of(qdisc.dropped_pkts, "packet"),
        show_count((qdisc.sent_pkts + qdisc.dropped_pkts) as f64)
    )];
    if dropped_before(seen) > signs::PERHAPS {
        lines.insert(0, before_text(seen));
    }
    lines.extend(repeats_text(seen));
    if let (Some(pkts), "pfifo_fast") = (queue, qdisc.kind.as_str()) {
        lines.push(format!("txqueuelen is {}", count_of(pkts, "packet")));
    }
    lines
}

/// States that drops before the measured time cut the window.
fn before_text(seen: &Observed<'_>) -> String {
    let of_path = |name: &str| seen.shown().path(name).unwrap_or(0.0);
    format!(
        "with {:.0} streams it dropped {}; drops at the start cut the window of one, though nothing was lost or marked, and \
         it has not grown back",
        of_path(names::STREAMS),
        show_count_of(saturating_u64(of_path(names::STREAMS_QDISC_DROPS)), "packet")
    )
}

impl Mechanism for SoftnetBacklog {
    fn limit(&self) -> Limit {
        Limit::SoftnetBacklog
    }

    fn page(&self) -> Page {
        Page {
            title: "the softnet backlog",
            ceiling: "what the congestion control allows at these drops",
            mechanism: "Packets that RPS hands to another core, and those of virtual devices, wait in that \
                core's backlog until its softirq runs. Beyond `net.core.netdev_max_backlog` packets they \
                are dropped, though the device received them correctly.",
            evidence: "Drops that `/proc/net/softnet_stat` counts on the receiving host, by core, against the \
                retransmissions; the backlog's length.",
            against: "No backlog dropped anything.",
            experiment: ANSWER,
            advice: "A longer backlog; packet work spread over more cores; GRO, so that fewer packets wait.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let host = &seen.receiver;
        let dropped = softnet_drops(host);
        let weighed = Weighing::most(signs::LOCATED)
            .by(explains_losses(seen, dropped.unwrap_or(0)), "its drops are too few for the losses")
            .by(overflow_binds(seen), weighing::HELD);
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(host.end),
            evidence: softnet_evidence(seen, host),
            against: match dropped {
                Some(0) => "no backlog of the receiving host dropped anything".to_owned(),
                Some(dropped) => {
                    format!("its backlogs dropped {}, too few to bind", show_count(dropped as f64))
                }
                None => "the receiving host reports no counters".to_owned(),
            },
            ceiling_bits_per_s: (weighed.weight() > signs::PERHAPS).then_some(seen.rate()),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        spaced(self.limit(), seen)
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let host = &seen.receiver;
        softnet_drops(host).filter(|dropped| *dropped > 0)?;
        Some(Remedy::setting(
            host.end,
            longer_backlog(seen)?,
            headroom.unwrap_or(seen.rate() * predictions::CHANGE_TWICE),
            "with a longer backlog nothing is dropped there: throughput rises",
        ))
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let end = end_name(seen.receiver.end);
        Advice::all(vec![
            format!("at the {end} end: sysctl -w {BACKLOG}={BACKLOG_PKTS}"),
            "spread the packets over more cores (RPS, more queues), and let GRO join them"
                .to_owned(),
        ])
    }
}

const BACKLOG: &str = "net.core.netdev_max_backlog";

/// Backlog to recommend: somewhat more than 10 ms of full-sized packets at 10 Gbit/s.
const BACKLOG_PKTS: u32 = 10_000;

fn longer_backlog(seen: &Observed<'_>) -> Option<settings::Change> {
    let now = seen.sysctl(seen.receiver.end, BACKLOG);
    change(BACKLOG, now, &BACKLOG_PKTS.to_string())
}

fn softnet_drops(host: &HostView<'_>) -> Option<u64> {
    let softnet = &host.counters?.softnet;
    Some(
        softnet
            .iter()
            .map(|core| core.dropped_pkts.saturating_add(core.flow_limited_pkts))
            .fold(0, u64::saturating_add),
    )
}

fn softnet_evidence(seen: &Observed<'_>, host: &HostView<'_>) -> Vec<String> {
    let Some(counters) = host.counters else { return Vec::new() };
    let mut dropping: Vec<_> = counters
        .softnet
        .iter()
        .filter(|core| core.dropped_pkts + core.flow_limited_pkts > 0)
        .collect();
    dropping.sort_by_key(|core| std::cmp::Reverse(core.dropped_pkts));
    let mut lines: Vec<String> = dropping
        .iter()
        .take(3)
        .map(|core| {
            format!(
                "{}: the backlog of core {} dropped {} of {} ({} handed over by RPS)",
                host.name(),
                core.core,
                show_count(core.dropped_pkts as f64),
                show_count_of(core.processed_pkts + core.dropped_pkts, "packet"),
                show_count(core.steered_pkts as f64)
            )
        })
        .collect();
    if lines.is_empty() {
        return lines;
    }
    if let Some(length) = seen.sysctl(host.end, "net.core.netdev_max_backlog") {
        lines.push(format!("net.core.netdev_max_backlog is {length} packets"));
    }
    if seen.one_machine {
        lines.push("both ends are one kernel, which has these backlogs in common".to_owned());
    }
    lines.extend(repeats_text(seen));
    lines
}

impl Mechanism for RingOverrun {
    fn limit(&self) -> Limit {
        Limit::RingOverrun
    }

    fn page(&self) -> Page {
        Page {
            title: "the device's receive ring",
            ceiling: "what the congestion control allows at these overruns",
            mechanism: "The device puts packets into a ring of buffers that the host empties. When the host is \
                late (a short ring, a busy core, slow coalescing), the ring is full and the device drops.",
            evidence: "`rx_missed_errors`, `rx_fifo_errors` and `rx_over_errors` of the receiving interface, \
                against the retransmissions; the ring's length, now and possible.",
            against: "The receiving interface had no overruns.",
            experiment: ANSWER,
            advice: "A longer ring (`ethtool -G`); a core with time for the queue's interrupt; more queues; \
                pause frames where the network allows.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let host = &seen.receiver;
        let overrun = host.device().and_then(|device| device.rx_ring_overruns_count);
        let weighed = Weighing::most(signs::LOCATED)
            .by(explains_losses(seen, overrun.unwrap_or(0)), "its drops are too few for the losses")
            .by(overflow_binds(seen), weighing::HELD);
        let mut evidence = Vec::new();
        if let (Some(count), Some(device)) = (overrun.filter(|count| *count > 0), host.device()) {
            evidence.push(format!(
                "{}: the receive ring of {} overran {} for {} received",
                host.name(),
                device.interface,
                show_count_of(count, "time"),
                show_count_of(device.rx_pkts, "packet")
            ));
            if let Some((now, most)) = ring(host) {
                evidence.push(format!("its ring holds {now} packets; it could hold {most}"));
            }
            evidence.extend(repeats_text(seen));
        }
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(host.end),
            evidence,
            against: match overrun {
                Some(0) => "the receiving interface had no overruns".to_owned(),
                Some(count) => format!("{}, too few to bind", show_count_of(count, "overrun")),
                None => "the receiving interface does not report overruns".to_owned(),
            },
            ceiling_bits_per_s: (weighed.weight() > signs::PERHAPS).then_some(seen.rate()),
        }
    }

    fn experiments(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<Experiment> {
        spaced(self.limit(), seen)
    }

    fn host_change(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Option<Remedy> {
        let host = &seen.receiver;
        let (now, most) = ring(host).filter(|(now, most)| most > now)?;
        let key = format!("{}/ring-rx", host.interface()?.name);
        Some(Remedy::setting(
            host.end,
            change(&key, Some(&now.to_string()), &most.to_string())?,
            headroom.unwrap_or(seen.rate() * predictions::CHANGE_TWICE),
            "with the longest ring there are fewer overruns: throughput rises",
        ))
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let host = &seen.receiver;
        let name = host.interface().map_or("DEV", |interface| interface.name.as_str());
        let longest = ring(host).map_or("MAX".to_owned(), |(_, most)| most.to_string());
        Advice::all(vec![
            format!(
                "at the {} end a longer ring: ethtool -G {name} rx {longest}",
                end_name(host.end)
            ),
            "give the queue's interrupt a core with time; use more queues".to_owned(),
        ])
    }
}

/// Receive descriptors, configured and possible.
fn ring(host: &HostView<'_>) -> Option<(u32, u32)> {
    let rings = host.machine()?.nic(&host.interface()?.name)?.rings?;
    Some((rings.receive_count, rings.receive_max_count))
}

/// Confidence, 0 to 1, that overflow and nothing else limits throughput.
fn overflow_binds(seen: &Observed<'_>) -> f64 {
    let starved =
        seen.starved(&seen.sender).unwrap_or(0.0).max(seen.starved(&seen.receiver).unwrap_or(0.0));
    seen.unexplained() * (1.0 - hosts::DROPS_STARVED * starved)
}

fn repeats_text(seen: &Observed<'_>) -> Option<String> {
    let count = seen.shown().sender_events(names::RETRANSMITTED)?;
    let of_sent = seen.shown().sender(names::RETRANSMIT_SHARE)?;
    Some(format!("{} retransmissions, {}", show_count(count), fine_percent(of_sent)))
}
