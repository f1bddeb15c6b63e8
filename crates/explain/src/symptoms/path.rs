//! Symptoms of the path between the hosts.

use results::{End, LatencySummary, Results};

use super::definition::{Definition, Row, SymptomUnit as Unit, row};
use super::tested::Seen;
use super::{Symptom, deviation, names};
use crate::ceiling::ETHERNET_QDISC_BYTES;
use crate::ceilings::Headers;
use crate::numbers::{positive, ratio, share};
use crate::observed::{
    Acknowledgements, Flow, HostView, UdpSeen, flows_with_several, idle_with_several, opposite,
    qdisc_drops_with_several, several_rates, udp_repeats,
};
use crate::thresholds::path;
use crate::wanted::{idle_rtt_s, line};

const DEVICE: &str = "/proc/net/dev";

/// Read in each repeat of the judged TCP test.
pub(super) static EACH: &[Row] = &[
    row("throughput", Unit::BitsPerS, "bytes read at the receiver", "payload of all streams that the receiver read", |seen| {
        Some(seen.run.goodput_bits_per_s)
    })
    .sampled(|seen| seen.interval_rates()),
    row(
        names::GROWTH,
        Unit::Ratio,
        "bytes per interval",
        "throughput of the last third of a single stream over that of its first third",
        |seen| seen.flow.growth,
    ),
    row(
        names::UNSTEADINESS,
        Unit::Ratio,
        "bytes per interval",
        "standard deviation of the steady intervals' throughput over its mean",
        |seen| {
            let rates = seen.interval_rates();
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let enough = rates.len() >= super::SAMPLES_MIN;
            enough.then(|| deviation(&rates) / mean)
        },
    ),
    row("loaded-rtt-p50", Unit::S, "round trips beside the test", "median round trip of another connection while the test ran", |seen| {
        loaded(seen)?.percentile_s(50.0).and_then(positive)
    }),
    row("loaded-rtt-p99", Unit::S, "round trips beside the test", "99th percentile of the same", |seen| {
        loaded(seen)?.percentile_s(99.0).and_then(positive)
    }),
    row(
        names::QUEUE_GROWTH,
        Unit::Ratio,
        "tcp_info.tcpi_rtt, idle round trips",
        "round trip under load over the lowest known (idle median, or tcpi_min_rtt): a queue lengthens it",
        |seen| ratio(seen.flow.rtt_s?, seen.base_rtt_s()?),
    )
    .sampled(|seen| {
        let base_s = seen.base_rtt_s();
        seen.each(|tcp| ratio(tcp.rtt_s, base_s?))
    }),
    row(
        names::QUEUE_DELAY,
        Unit::S,
        "tcp_info.tcpi_rtt, idle round trips",
        "round trip under load less the lowest known; 0 where it is no longer",
        queue_delay_s,
    ),
    row(
        "queue-content",
        Unit::Bytes,
        "throughput x queue-delay",
        "bytes that stand in a queue, if throughput passes through it",
        |seen| Some(queue_delay_s(seen)? * seen.run.goodput_bits_per_s / 8.0),
    ),
    row(
        names::ACKS_LOST_SHARE,
        Unit::Share,
        "tcp_info.tcpi_segs_out, tcpi_segs_in",
        "acknowledgements that the receiver sent and the sender did not get, since the connection began; those that can be under way when the counters are read, a round trip's and 2%, do not count",
        |seen| Some(acknowledgements(seen)?.lost_share()),
    ),
    row(
        names::ACKS_ARRIVED,
        Unit::PerS,
        "tcp_info.tcpi_segs_in",
        "acknowledgements that came to the sender; absent unless both ends count",
        |seen| Some(acknowledgements(seen)?.arrived_per_s),
    ),
    row(
        names::SENDER_OTHERS,
        Unit::BitsPerS,
        DEVICE,
        "bytes that the sender's interface sent beyond the test's own, headers included",
        |seen| others_bits_per_s(seen, &seen.sender),
    ),
    row(
        names::RECEIVER_OTHERS,
        Unit::BitsPerS,
        DEVICE,
        "bytes that the receiver's interface received beyond the test's own, headers included",
        |seen| others_bits_per_s(seen, &seen.receiver),
    ),
    row(
        names::WITH_OTHERS,
        Unit::BitsPerS,
        DEVICE,
        "throughput and other traffic together, at the end that saw more of it",
        |seen| {
            let ends = [&seen.sender, &seen.receiver].into_iter();
            let others = ends.filter_map(|host| others_bits_per_s(seen, host)).reduce(f64::max)?;
            Some(seen.run.goodput_bits_per_s + others)
        },
    ),
    row(
        "line-use-share",
        Unit::Share,
        "ethtool speed, tc rate",
        "throughput over the lowest payload rate of the ends' interfaces and shapers",
        |seen| share(seen.run.goodput_bits_per_s, line(seen.results)?.0),
    ),
];

pub(super) const IDLE_P50: Definition = Definition::new(
    names::IDLE_RTT_P50,
    Unit::S,
    "round trips before the test",
    "median round trip of the idle path",
);
pub(super) const IDLE_P99: Definition = Definition::new(
    "idle-rtt-p99",
    Unit::S,
    "round trips before the test",
    "99th percentile of the idle path",
);
pub(super) const PATH_MTU: Definition = Definition::new(
    "path-mtu",
    Unit::Bytes,
    "tcp_info.tcpi_pmtu",
    "largest packet that the path carries whole",
);
pub(super) const STREAMS_GAIN: Definition = Definition::new(
    names::STREAMS_GAIN,
    Unit::Ratio,
    "bytes read at the receiver",
    "throughput of several streams over that of the judged test; about 1: a plateau that all streams share; its spread is that of the several streams",
);
pub(super) const STREAMS: Definition = Definition::new(
    names::STREAMS,
    Unit::Count,
    "the test's options",
    "number of streams in that comparison",
);
pub(super) const STREAMS_RETRANSMIT_SHARE: Definition = Definition::new(
    names::STREAMS_RETRANSMIT_SHARE,
    Unit::Share,
    "tcp_info.tcpi_total_retrans",
    "segments retransmitted with several streams, of those sent",
);
pub(super) const STREAMS_RTT: Definition = Definition::new(
    names::STREAMS_RTT,
    Unit::S,
    "tcp_info.tcpi_rtt",
    "smoothed round trip with several streams",
);
pub(super) const STREAMS_RECEIVER_RTT: Definition = Definition::new(
    names::STREAMS_RECEIVER_RTT,
    Unit::S,
    "tcp_info.tcpi_rcv_rtt",
    "the same, as the receiver reads it from echoed timestamps",
);
pub(super) const STREAMS_QDISC_DROPS: Definition = Definition::new(
    names::STREAMS_QDISC_DROPS,
    Unit::Count,
    "netlink TCA_STATS2",
    "packets that one of the sender's queueing disciplines dropped with several streams",
);
pub(super) const SENDER_IDLE_SEVERAL: Definition = Definition::new(
    names::SENDER_IDLE_SEVERAL,
    Unit::Share,
    "/proc/stat",
    "mean idle part of the sending host's cores with several streams",
);
pub(super) const RECEIVER_IDLE_SEVERAL: Definition = Definition::new(
    names::RECEIVER_IDLE_SEVERAL,
    Unit::Share,
    "/proc/stat",
    "the same of the receiving host's cores",
);
pub(super) const UDP_GAIN: Definition = Definition::new(
    names::UDP_GAIN,
    Unit::Ratio,
    "bytes read at the receiver",
    "rate delivered by UDP in the same direction over the judged throughput",
);

/// A symptom of the UDP test in the direction of the judged one.
pub(super) struct UdpRow {
    pub(super) definition: Definition,
    read: fn(&UdpSeen) -> Option<f64>,
}

const fn udp(
    name: &'static str,
    unit: Unit,
    source: &'static str,
    about: &'static str,
    read: fn(&UdpSeen) -> Option<f64>,
) -> UdpRow {
    UdpRow { definition: Definition::new(name, unit, source, about), read }
}

/// Read in each repeat of that test; of several rates, the one at which most was delivered.
pub(super) static UDP: &[UdpRow] = &[
    udp(
        names::UDP_COUNT,
        Unit::Count,
        "the sender's count",
        "datagrams sent in that UDP test",
        |one| one.sent_count,
    ),
    udp(names::UDP_SENT, Unit::BitsPerS, "bytes written at the sender", "rate sent in it", |one| {
        Some(one.sent_bits_per_s)
    }),
    udp(
        names::UDP_DELIVERED,
        Unit::BitsPerS,
        "bytes read at the receiver",
        "rate delivered in it",
        |one| Some(one.delivered_bits_per_s),
    ),
    udp(
        names::UDP_LOST,
        Unit::Share,
        "sequence numbers",
        "its datagrams lost, of those lost or received, less those that the receiver's host is known to have lost",
        |one| Some(one.lost_share),
    ),
    udp(
        names::UDP_LOST_ON_PATH,
        Unit::Share,
        "sequence numbers, SO_RXQ_OVFL",
        "the same; absent where the receiver does not tell what it lost itself",
        |one| one.located.then_some(one.lost_share),
    ),
    udp(
        names::UDP_LATE,
        Unit::Share,
        "sequence numbers",
        "its datagrams received after a later one, of those sent; absent where the receiver does not tell",
        // A stock iperf3 tells neither where it lost datagrams nor which came late.
        |one| (one.located || one.reordered_share > 0.0).then_some(one.reordered_share),
    ),
    udp(
        names::UDP_WAITED,
        Unit::S,
        "time stamps of datagrams",
        "how much longer they were underway than the fastest one, by the least of each 10 ms, less what clocks may drift apart",
        |one| one.standing_delay_s,
    ),
];

/// Read once from the whole document.
pub(super) const WHOLE: [Definition; 12] = [
    IDLE_P50,
    IDLE_P99,
    PATH_MTU,
    STREAMS_GAIN,
    STREAMS,
    STREAMS_RETRANSMIT_SHARE,
    STREAMS_RTT,
    STREAMS_RECEIVER_RTT,
    STREAMS_QDISC_DROPS,
    SENDER_IDLE_SEVERAL,
    RECEIVER_IDLE_SEVERAL,
    UDP_GAIN,
];

pub(super) fn symptoms(results: &Results, seen: &[Seen<'_>]) -> Vec<Symptom> {
    let recorder = results.recorder();
    let idle = |percentile: f64| {
        results.path.idle_rtt.as_ref()?.percentile_s(percentile).and_then(positive)
    };
    let rates: Vec<f64> = seen.iter().map(|one| one.run.goodput_bits_per_s).collect();
    let rate = stats::median(&rates);
    let several = seen.first().and_then(|one| several_rates(results, &one.run));
    let gains: Vec<f64> = match (&several, rate) {
        (Some((_, rates)), Some(rate)) => {
            rates.iter().filter_map(|several| ratio(*several, rate)).collect()
        }
        _ => Vec::new(),
    };
    let idle_of = |end: fn(End) -> End| {
        seen.first()
            .map_or_else(Vec::new, |one| idle_with_several(results, &one.run, end(one.run.sender)))
    };
    let flows = seen.first().map_or_else(Vec::new, |one| flows_with_several(results, &one.run));
    let of_several =
        |read: fn(&Flow) -> Option<f64>| flows.iter().filter_map(read).collect::<Vec<f64>>();
    let dropped =
        seen.first().map_or_else(Vec::new, |one| qdisc_drops_with_several(results, &one.run));
    let udp = seen.first().map_or_else(Vec::new, |one| udp_repeats(results, &one.run));
    let udp_gains: Vec<f64> =
        udp.iter().filter_map(|udp| ratio(udp.delivered_bits_per_s, rate?)).collect();
    let once = |definition: &Definition, value: Option<f64>| {
        definition.symptom(recorder, value.as_slice(), &[])
    };
    let mtu = results.path.path_mtu_bytes.map(f64::from).and_then(positive);
    let whole = [
        once(&IDLE_P50, idle_rtt_s(results)),
        once(&IDLE_P99, idle(99.0)),
        once(&PATH_MTU, mtu),
        STREAMS_GAIN.symptom(recorder, &gains, &[]),
        once(&STREAMS, several.map(|(count, _)| f64::from(count))),
        STREAMS_RETRANSMIT_SHARE.symptom(recorder, &of_several(|flow| flow.retransmit_share), &[]),
        STREAMS_RTT.symptom(recorder, &of_several(|flow| flow.rtt_s), &[]),
        STREAMS_RECEIVER_RTT.symptom(recorder, &of_several(|flow| flow.receiver_rtt_s), &[]),
        STREAMS_QDISC_DROPS.symptom(recorder, &dropped, &[]),
        SENDER_IDLE_SEVERAL.symptom(recorder, &idle_of(|sender| sender), &[]),
        RECEIVER_IDLE_SEVERAL.symptom(recorder, &idle_of(opposite), &[]),
        UDP_GAIN.symptom(recorder, &udp_gains, &[]),
    ];
    let of_udp = UDP.iter().map(|row| {
        let values: Vec<f64> = udp.iter().filter_map(row.read).collect();
        row.definition.symptom(recorder, &values, &[])
    });
    EACH.iter().map(|row| row.symptom(seen)).chain(whole).chain(of_udp).collect()
}

fn loaded<'a>(seen: &'a Seen<'_>) -> Option<&'a LatencySummary> {
    seen.run.outcome.latency_under_load.as_ref()
}

fn acknowledgements(seen: &Seen<'_>) -> Option<Acknowledgements> {
    Acknowledgements::of(&seen.run, seen.spec.omit_s)
}

fn queue_delay_s(seen: &Seen<'_>) -> Option<f64> {
    Some((seen.flow.rtt_s? - seen.base_rtt_s()?).max(0.0))
}

/// Rate at which an end's interface carried bytes in the test's direction beyond those of the test, headers included,
/// bit/s; `None` where that was not counted.
fn others_bits_per_s(seen: &Seen<'_>, host: &HostView<'_>) -> Option<f64> {
    let interface = host.interface()?;
    // On loopback the same device sends and receives everything.
    if interface.name == "lo" {
        return None;
    }
    let device = host.device()?;
    let is_sender = host.end == seen.run.sender;
    let bytes = if is_sender { device.tx_bytes } else { device.rx_bytes } as f64;
    let mss = seen.flow.mss_bytes?;
    let again = seen.flow.retransmit_share.unwrap_or(0.0);
    // Upper bound: every segment with its own headers, as a device counts them, and the retransmissions.
    let headers_bytes =
        f64::from(Headers::of_path(&seen.results.path).bytes()) + ETHERNET_QDISC_BYTES;
    let own =
        host.payload_bytes * (mss + headers_bytes) / mss * (1.0 + again) * path::OWN_BYTES_MOST;
    ratio((bytes - own).max(0.0) * 8.0, host.duration_s).or(Some(0.0))
}
