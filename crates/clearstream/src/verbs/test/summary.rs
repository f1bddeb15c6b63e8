//! What is said before a test and after it.

use std::fmt::Write;

use results::{
    CoreUse, Direction, DirectionOutcome, EndReport, LatencySummary, Results, StreamEnd, Summary,
    TestOutcome, TestSpec, UdpOutcome,
};
use traffic::client::Target;
use traffic::describe_test;
use units::{show_bit_rate, show_byte_size, show_count, show_seconds};

/// Streams listed one by one; more are only summed up.
const STREAMS_LISTED_MAX: usize = 16;
/// Cores less busy than this are not worth a line.
const CORE_BUSY_MIN: f64 = 0.02;

/// The line before the first test.
pub(super) fn heading(target: &Target, results: &Results, spec: &TestSpec) -> String {
    let address = results.path.address.as_deref().unwrap_or_default();
    let peer = results.path.peer.as_deref().unwrap_or_default();
    let idle = match results.path.idle_rtt.as_ref().and_then(|rtt| rtt.percentile_s(50.0)) {
        Some(rtt_s) => format!(", idle round trip {}", show_seconds(rtt_s)),
        None => String::new(),
    };
    format!("{target} ({address}, {peer}{idle}): {}", describe_test(spec))
}

/// Everything about one test.
pub(super) fn outcome(spec: &TestSpec, outcome: &TestOutcome, number: Option<u32>) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        // Writing to a String does not fail.
        writeln!(text, "{label:<10} {value}").ok();
    };
    if let Some(number) = number {
        line("run", &number.to_string());
    }
    for direction in &outcome.directions {
        let label = if direction.direction == Direction::Reverse { "reverse" } else { "forward" };
        line(label, &totals(direction));
        if let Some(udp) = &direction.udp {
            line("", &datagrams(udp));
        }
    }
    if let Some(rr) = &outcome.request_response {
        let rate = show_count(rr.transactions_per_s);
        let count = show_count(rr.transactions_count as f64);
        let lost = match rr.timeouts_count {
            0 => String::new(),
            timeouts => format!(", {timeouts} without an answer"),
        };
        line("exchanges", &format!("{rate} transactions/s ({count}{lost})"));
        line("latency", &latency(&rr.latency));
    }
    if let Some(beside) = &outcome.latency_under_load {
        line("under load", &latency(beside));
    }
    for (name, end) in ends(outcome) {
        for stream in end.streams.iter().take(STREAMS_LISTED_MAX) {
            line(name, &one_stream(spec, stream));
        }
        let unlisted = end.streams.len().saturating_sub(STREAMS_LISTED_MAX);
        if unlisted > 0 {
            line(name, &format!("and {unlisted} streams more (all with --json)"));
        }
    }
    for (name, end) in ends(outcome) {
        let busy: Vec<String> =
            end.cores.iter().filter(|core| is_busy(core)).map(core_use).collect();
        if !busy.is_empty() {
            line(name, &busy.join("; "));
        }
    }
    for (name, end) in ends(outcome) {
        end.findings.iter().for_each(|finding| line(name, &format!("note: {}", finding.text)));
    }
    if outcome.far().is_none() {
        line("far", "no account of its own: an iperf3 server gives totals only");
    }
    text
}

/// Figures worth a line when a test was repeated; the document has all.
const REPEATED: [&str; 7] = [
    "forward_received_bits_per_s",
    "reverse_received_bits_per_s",
    "transactions_per_s",
    "rtt_p50_s",
    "rtt_p99_s",
    "loaded_rtt_p50_s",
    "loaded_rtt_p99_s",
];

/// Medians over repeats; empty without any.
pub(super) fn repeats(summaries: &[Summary]) -> String {
    let mut text = String::new();
    for summary in summaries.iter().filter(|known| REPEATED.contains(&known.figure.as_str())) {
        let show = |value: f64| match summary.figure.as_str() {
            name if name.ends_with("_bits_per_s") => show_bit_rate(value),
            name if name.ends_with("transactions_per_s") => format!("{}/s", show_count(value)),
            _ => show_seconds(value),
        };
        let name = summary.figure.trim_end_matches("_bits_per_s").trim_end_matches("_s");
        let estimate = &summary.estimate;
        writeln!(
            text,
            "median     {} {} ({} to {}, {:.0}% confidence, n={})",
            name.replace('_', " "),
            show(estimate.median),
            show(estimate.low),
            show(estimate.high),
            estimate.confidence * 100.0,
            estimate.count
        )
        .ok();
    }
    text
}

fn ends(outcome: &TestOutcome) -> impl Iterator<Item = (&'static str, &EndReport)> {
    std::iter::once(("near", outcome.near()))
        .chain(outcome.far().into_iter().map(|far| ("far", far)))
}

fn totals(direction: &DirectionOutcome) -> String {
    let retransmits = match direction.retransmits_count {
        Some(count) => format!(", {count} retransmits"),
        None => String::new(),
    };
    format!(
        "received {} ({}), sent {} ({}){retransmits}",
        show_bit_rate(direction.received_bits_per_s),
        show_byte_size(direction.received_bytes),
        show_bit_rate(direction.sent_bits_per_s),
        show_byte_size(direction.sent_bytes)
    )
}

fn datagrams(udp: &UdpOutcome) -> String {
    let share = udp.lost_count as f64 * 100.0 / udp.sent_count.max(1) as f64;
    let mut text = format!(
        "{} datagrams, lost {} ({share:.3}%), reordered {}, duplicate {}",
        show_count(udp.sent_count as f64),
        udp.lost_count,
        udp.reordered_count,
        udp.duplicate_count
    );
    if let Some(jitter_s) = udp.jitter_s {
        write!(text, ", jitter {}", show_seconds(jitter_s)).ok();
    }
    if udp.lost_count > 0 {
        let places = [
            ("socket buffer", udp.loss.socket_buffer_count),
            ("softnet", udp.loss.softnet_count),
            ("device", udp.loss.device_count),
            ("path", udp.loss.path_count),
        ];
        let known =
            places.iter().filter_map(|(place, count)| Some(format!("{place} {}", (*count)?)));
        let known: Vec<String> = known.collect();
        if !known.is_empty() {
            write!(text, "; lost at: {}", known.join(", ")).ok();
        }
    }
    text
}

fn latency(latency: &LatencySummary) -> String {
    let points = [50.0, 90.0, 99.0, 99.9];
    let listed = points.iter().filter_map(|percentile| {
        Some(format!("p{percentile} {}", show_seconds(latency.percentile_s(*percentile)?)))
    });
    let listed: Vec<String> = listed.collect();
    format!(
        "{}, max {} ({}, n={})",
        listed.join(", "),
        show_seconds(latency.max_s),
        latency.method,
        latency.count
    )
}

fn one_stream(spec: &TestSpec, stream: &StreamEnd) -> String {
    let does = match (&spec.request_response, stream.sending) {
        (Some(_), _) => "exchanged",
        (None, true) => "sent",
        (None, false) => "received",
    };
    let rate = stream.bytes as f64 * 8.0 / stream.duration_s.max(1e-9);
    let mut text = format!("stream {} {does} {}", stream.index, show_bit_rate(rate));
    let cores: Vec<String> = stream.cores.iter().take(4).map(u32::to_string).collect();
    if !cores.is_empty() {
        write!(text, ", core {}", cores.join(" ")).ok();
    }
    let buffers = [("send", stream.send_buffer_bytes), ("receive", stream.receive_buffer_bytes)];
    for (which, bytes) in buffers {
        if let Some(bytes) = bytes.filter(|_| (which == "send") == stream.sending) {
            write!(text, ", {which} buffer {}", show_byte_size(bytes)).ok();
        }
    }
    if let Some(tcp) = stream.tcp.as_ref().filter(|_| stream.sending) {
        let retransmits = tcp.last.retransmits_count.saturating_sub(tcp.first.retransmits_count);
        write!(
            text,
            ", {} mss {} rtt {} cwnd {} retransmits {retransmits}",
            tcp.congestion_control,
            tcp.mss_bytes,
            show_seconds(tcp.last.rtt_s),
            show_byte_size(tcp.last.congestion_window_bytes)
        )
        .ok();
        match tcp.mptcp_established {
            Some(true) => text.push_str(", MPTCP"),
            Some(false) => text.push_str(", no MPTCP: the far end does not speak it"),
            None => {}
        }
    }
    if let Some(zero_copy) = &stream.zero_copy {
        let share =
            zero_copy.zero_copied_bytes as f64 * 100.0 / zero_copy.asked_bytes.max(1) as f64;
        write!(text, ", really zero-copy {share:.1}%").ok();
    }
    text
}

fn is_busy(core: &CoreUse) -> bool {
    core.user + core.system + core.softirq + core.irq > CORE_BUSY_MIN
}

fn core_use(core: &CoreUse) -> String {
    let percent = |share: f64| (share * 100.0).round();
    let mut text = format!(
        "core {}: user {}% system {}% softirq {}%",
        core.core,
        percent(core.user),
        percent(core.system),
        percent(core.softirq)
    );
    if core.steal > CORE_BUSY_MIN {
        write!(text, " steal {}%", percent(core.steal)).ok();
    }
    text
}
