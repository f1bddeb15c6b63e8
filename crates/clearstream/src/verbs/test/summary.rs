//! The text before and after a test.

use std::fmt::Write;

use results::{
    CoreUse, Direction, DirectionOutcome, EndReport, LatencySummary, Results, StreamEnd, Summary,
    TestOutcome, TestSpec, UdpOutcome, ZeroCopyShare, show_percentile,
};
use traffic::client::{CUT_SHORT, Target};
use traffic::describe_test;
use units::{
    count_of, noun, show_bit_rate, show_byte_size, show_count, show_count_of, show_seconds,
    show_share,
};

/// Code of the finding that a kernel granted a smaller window than requested.
const WINDOW_CLAMPED: &str = "window-clamped";
/// Most notes in a summary; `--verbose` lists all.
const NOTES_MAX: usize = 2;
/// Most streams listed individually; more are only summed up.
const STREAMS_LISTED_MAX: usize = 16;
/// Busy share below which a core gets no line.
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

/// Summary of one test in at most six lines: each direction (or the exchanges), latency, both ends, notes.
pub(super) fn outcome(spec: &TestSpec, outcome: &TestOutcome) -> String {
    let mut lines = totals_of(spec, outcome);
    // With two directions the windows would take two more lines; `--verbose` shows them.
    if let [direction] = &outcome.directions[..]
        && let Some(text) = window(spec, outcome, direction)
    {
        lines.insert(1, ("window", text));
    }
    for (name, end) in ends(outcome) {
        lines.push((name, one_end(spec, outcome, end)));
    }
    let noted = |(name, end): (&'static str, &EndReport)| {
        // The first line already shows the windows, and the last one why the test ended.
        let is_told = |code: &str| [WINDOW_CLAMPED, CUT_SHORT].contains(&code);
        let findings = end.findings.iter().filter(|finding| !is_told(&finding.code));
        findings.map(move |finding| format!("{name} end: {}", finding.text)).collect::<Vec<_>>()
    };
    let mut notes: Vec<String> = ends(outcome).flat_map(noted).collect();
    let is_cut_short = outcome.near().findings.iter().any(|finding| finding.code == CUT_SHORT);
    match outcome.far() {
        Some(_) => {}
        None if is_cut_short => {
            notes.push("the far end's report is missing: all figures are the near end's".to_owned())
        }
        None => notes.push("the far end is an iperf3 server, which gives totals only".to_owned()),
    }
    let more = notes.len().saturating_sub(NOTES_MAX);
    if more > 0 {
        notes.truncate(NOTES_MAX);
        notes.push(format!("{more} more with --verbose"));
    }
    if !notes.is_empty() {
        lines.push(("note", notes.join("; ")));
    }
    text_of(&lines)
}

/// The figures of one of several runs, on one line each, and what its window explains.
pub(super) fn run(number: u32, spec: &TestSpec, outcome: &TestOutcome) -> String {
    let mut lines = totals_of(spec, outcome);
    if let [direction] = &outcome.directions[..] {
        lines.extend(window(spec, outcome, direction).map(|text| ("window", text)));
    }
    let line = |(label, value): &(&str, String)| {
        crate::tables::labelled(&format!("repeat {number:<3} {label} "), value)
    };
    lines.iter().map(line).collect()
}

/// Every stream, core and note of one test, one line each; without what [`outcome`] above it has said in full.
pub(super) fn details(spec: &TestSpec, outcome: &TestOutcome, has_summary: bool) -> String {
    let mut lines: Vec<(&'static str, String)> = Vec::new();
    if outcome.directions.len() > 1 {
        let windows = outcome.directions.iter().filter_map(|way| window(spec, outcome, way));
        lines.extend(windows.map(|text| ("window", text)));
    }
    for (name, end) in ends(outcome) {
        let is_new = |count: usize| count > 1 || !has_summary;
        let listed = end.streams.iter().filter(|_| is_new(end.streams.len()));
        for stream in listed.take(STREAMS_LISTED_MAX) {
            lines.push((name, one_stream(spec, outcome, stream)));
        }
        let unlisted = end.streams.len().saturating_sub(STREAMS_LISTED_MAX);
        if unlisted > 0 {
            let streams = noun(unlisted as u64, "stream");
            lines.push((name, format!("{unlisted} more {streams} (all with --json)")));
        }
        let busy: Vec<String> =
            end.cores.iter().filter(|core| is_busy(core)).map(core_use).collect();
        if !busy.is_empty() && is_new(busy.len()) {
            lines.push((name, busy.join("; ")));
        }
        lines.extend(end.findings.iter().map(|finding| (name, format!("note: {}", finding.text))));
    }
    text_of(&lines)
}

fn text_of(lines: &[(&'static str, String)]) -> String {
    let line =
        |(label, value): &(&str, String)| crate::tables::labelled(&format!("{label:<10} "), value);
    lines.iter().map(line).collect()
}

/// The first lines: each direction's totals or the exchanges, the latency, and smaller windows than requested.
fn totals_of(spec: &TestSpec, outcome: &TestOutcome) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for direction in &outcome.directions {
        let label = if direction.direction == Direction::Reverse { "reverse" } else { "forward" };
        lines.push((label, totals(direction, outcome.jitter_max_s(direction.direction))));
    }
    if let Some(rr) = &outcome.request_response {
        let rate = show_count(rr.transactions_per_s);
        let count = show_count(rr.transactions_count as f64);
        let lost = match rr.timeouts_count {
            0 => String::new(),
            timeouts => format!(", {timeouts} without an answer"),
        };
        lines.push(("exchanges", format!("{rate} transactions/s ({count}{lost})")));
        lines.push(("latency", latency(&rr.latency)));
    }
    if let Some((_, first)) = lines.first_mut() {
        first.push_str(&clamps(spec, outcome));
    }
    if let Some(beside) = &outcome.latency_under_load {
        lines.push(("under load", latency(beside)));
    }
    lines
}

/// Whether a granted window is so much less than the requested one that both are shown differently.
fn is_less(given_bytes: u64, asked_bytes: u64) -> bool {
    given_bytes < asked_bytes - asked_bytes / 100
}

/// The granted windows, where the kernels granted less than requested.
fn clamps(spec: &TestSpec, outcome: &TestOutcome) -> String {
    let Some(asked_bytes) = spec.window_bytes else { return String::new() };
    let clamped = ends(outcome)
        .filter(|(_, end)| end.findings.iter().any(|finding| finding.code == WINDOW_CLAMPED));
    let granted = clamped.filter_map(|(name, end)| {
        // The kernel reports twice the granted size, to cover its own overhead.
        let given = end.streams.iter().filter_map(|stream| {
            let buffer =
                if stream.sending { stream.send_buffer_bytes } else { stream.receive_buffer_bytes };
            buffer.map(|bytes| bytes / 2)
        });
        let given = given.min().filter(|bytes| is_less(*bytes, asked_bytes))?;
        Some(format!("{} ({name} end)", show_byte_size(given)))
    });
    let granted: Vec<String> = granted.collect();
    if granted.is_empty() {
        return String::new();
    }
    let asked = show_byte_size(asked_bytes);
    format!("; the kernel granted a window of {} instead of {asked}", granted.join(" and "))
}

/// One end on one line: its streams together, and its busiest core.
fn one_end(spec: &TestSpec, outcome: &TestOutcome, end: &EndReport) -> String {
    let mut parts = match &end.streams[..] {
        [] => vec!["no streams".to_owned()],
        [stream] => vec![one_stream(spec, outcome, stream)],
        streams => several_streams(spec, outcome, streams),
    };
    let total = |core: &CoreUse| core.user + core.system + core.softirq + core.irq;
    let busy: Vec<&CoreUse> = end.cores.iter().filter(|core| is_busy(core)).collect();
    let busiest = busy.iter().max_by(|a, b| total(a).total_cmp(&total(b)));
    if let Some(core) = busiest {
        let of = if busy.len() > 1 { "busiest " } else { "" };
        parts.push(format!("{of}{}", core_use(core)));
    }
    parts.join("; ")
}

fn several_streams(spec: &TestSpec, outcome: &TestOutcome, streams: &[StreamEnd]) -> Vec<String> {
    let mut parts = Vec::new();
    for sending in [true, false] {
        let of_way: Vec<&StreamEnd> =
            streams.iter().filter(|stream| stream.sending == sending).collect();
        let rates = || of_way.iter().map(|stream| stream_bits_per_s(spec, outcome, stream));
        if of_way.is_empty() {
            continue;
        }
        let does = match (&spec.request_response, sending) {
            (Some(_), _) => "exchanged",
            (None, true) => "sent",
            (None, false) => "received",
        };
        let (least, most) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
        let mut text = match of_way.len() {
            1 => format!("1 stream {does} {}", show_bit_rate(most)),
            many => {
                let (least, most) = (show_bit_rate(least), show_bit_rate(most));
                let range = if least == most { most } else { format!("{least} to {most}") };
                format!("{many} streams {does} {range} each")
            }
        };
        if let Some(tcp) = of_way[0].tcp.as_ref().filter(|_| sending) {
            write!(text, ", {} mss {}", tcp.congestion_control, tcp.mss_bytes).ok();
        }
        text.push_str(&zero_copied(of_way.iter().filter_map(|stream| stream.zero_copy.as_ref())));
        parts.push(text);
    }
    parts
}

/// The share that was really zero-copy, if zero copy was requested.
fn zero_copied<'a>(shares: impl Iterator<Item = &'a ZeroCopyShare>) -> String {
    let sum = |(asked, zero): (u64, u64), share: &ZeroCopyShare| {
        (asked + share.asked_bytes, zero + share.zero_copied_bytes)
    };
    let (asked, zero) = shares.fold((0, 0), sum);
    if asked == 0 {
        return String::new();
    }
    format!(", zero-copy {:.1}%", zero as f64 * 100.0 / asked as f64)
}

/// Figures shown for a repeated test; the document has all of them.
const REPEATED: [&str; 7] = [
    "forward_received_bits_per_s",
    "reverse_received_bits_per_s",
    "transactions_per_s",
    "rtt_p50_s",
    "rtt_p99_s",
    "loaded_rtt_p50_s",
    "loaded_rtt_p99_s",
];

/// Medians over repeats; empty if there are none.
pub(super) fn repeats(summaries: &[Summary]) -> String {
    let mut text = String::new();
    for summary in summaries.iter().filter(|known| REPEATED.contains(&known.figure.as_str())) {
        let show = |value: f64| match summary.figure.as_str() {
            name if name.ends_with("_bits_per_s") => show_bit_rate(value),
            name if name.ends_with("transactions_per_s") => format!("{}/s", show_count(value)),
            _ => show_seconds(value),
        };
        let without = |unit: &str| summary.figure.strip_suffix(unit);
        let name = ["_bits_per_s", "_per_s", "_s"].into_iter().find_map(without);
        let name = name.unwrap_or(&summary.figure);
        let estimate = &summary.estimate;
        let interval = estimate.interval().map_or_else(String::new, |(low, high)| {
            let confidence = estimate.confidence * 100.0;
            format!("{} to {}, {confidence:.0}% confidence, ", show(low), show(high))
        });
        let (name, median) = (name.replace('_', " "), show(estimate.median));
        writeln!(text, "median     {name} {median} ({interval}n={})", estimate.count).ok();
    }
    text
}

fn ends(outcome: &TestOutcome) -> impl Iterator<Item = (&'static str, &EndReport)> {
    std::iter::once(("near", outcome.near()))
        .chain(outcome.far().into_iter().map(|far| ("far", far)))
}

fn totals(direction: &DirectionOutcome, jitter_max_s: Option<f64>) -> String {
    let of_protocol = match (direction.retransmits_count, &direction.udp) {
        (Some(count), _) => format!(", {}", count_of(count, "retransmit")),
        (None, Some(udp)) => format!("; {}", datagrams(udp, jitter_max_s)),
        (None, None) => String::new(),
    };
    format!(
        "received {} ({}), sent {} ({}){of_protocol}",
        show_bit_rate(direction.received_bits_per_s),
        show_byte_size(direction.received_bytes),
        show_bit_rate(direction.sent_bits_per_s),
        show_byte_size(direction.sent_bytes)
    )
}

/// The data in flight, if a window was requested or one was full.
fn window(spec: &TestSpec, outcome: &TestOutcome, way: &DirectionOutcome) -> Option<String> {
    let told = outcome.window_use(spec, way.direction)?;
    if !(told.is_full || told.asked_bytes.is_some()) {
        return None;
    }
    let size = |bytes: f64| show_byte_size(units::saturating_u64(bytes));
    let (in_flight, rtt_s) = (told.in_flight_bytes?, told.rtt_s?);
    let measured = way.received_bits_per_s;
    let law = match told.explains(measured) {
        Some(law) => format!("= {}, measured", show_bit_rate(law)),
        None => "(sampled), which does not account for".to_owned(),
    };
    let mut text = format!(
        "{} in flight (median of samples) over {} {law} {}",
        size(in_flight),
        show_seconds(rtt_s),
        show_bit_rate(measured)
    );
    let sizes = [
        ("advertised", told.advertised_bytes),
        ("asked for", told.asked_bytes),
        ("receive buffer", told.receive_buffer_bytes),
    ];
    let sizes =
        sizes.into_iter().filter_map(|(name, bytes)| Some(format!("{name} {}", size(bytes?))));
    let sizes: Vec<String> = sizes.collect();
    if !sizes.is_empty() {
        write!(text, "; {}", sizes.join(", ")).ok();
    }
    Some(text)
}

fn datagrams(udp: &UdpOutcome, jitter_max_s: Option<f64>) -> String {
    let count = |number: u64| show_count(number as f64);
    let mut text = format!(
        "{} sent, {} received, {}, reordered {}, duplicate {}",
        show_count_of(udp.sent_count, "datagram"),
        show_count(udp.received_count as f64),
        match udp.lost_share() {
            Some(share) => format!("lost {} ({})", count(udp.lost_count), show_share(share)),
            None => "lost unknown".to_owned(),
        },
        count(udp.reordered_count),
        count(udp.duplicate_count)
    );
    if udp.unaccounted_count() > 0 {
        write!(text, ", {} not arrived by the end", count(udp.unaccounted_count())).ok();
    }
    if let Some(jitter_s) = udp.jitter_s {
        write!(text, ", jitter {}", show_seconds(jitter_s)).ok();
    }
    if let Some(jitter_s) = jitter_max_s {
        write!(text, " (largest of an interval {})", show_seconds(jitter_s)).ok();
    }
    if let Some(delay_s) = udp.standing_delay_s {
        write!(text, ", standing delay {}", show_seconds(delay_s)).ok();
    }
    if udp.lost_count > 0 {
        let places = [
            ("socket buffer", udp.loss.socket_buffer_count),
            ("softnet", udp.loss.softnet_count),
            ("device", udp.loss.device_count),
            ("path", udp.loss.path_count),
        ];
        let known =
            places.iter().filter_map(|(place, lost)| Some(format!("{place} {}", count((*lost)?))));
        let known: Vec<String> = known.collect();
        if !known.is_empty() {
            write!(text, "; lost at: {}", known.join(", ")).ok();
        }
    }
    text
}

fn latency(latency: &LatencySummary) -> String {
    let points = [50.0, 90.0, 99.0, 99.9];
    let listed = points.iter().map(|percentile| {
        show_percentile(*percentile, latency.percentile_s(*percentile).map(show_seconds))
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

/// Goodput of one stream; of requests and responses both together, of which an end counts the requests.
fn stream_bits_per_s(spec: &TestSpec, outcome: &TestOutcome, stream: &StreamEnd) -> f64 {
    let counted = outcome.stream_bits_per_s(stream);
    spec.request_response.as_ref().map_or(counted, |sizes| {
        counted * (1.0 + f64::from(sizes.response_bytes) / f64::from(sizes.request_bytes.max(1)))
    })
}

fn one_stream(spec: &TestSpec, outcome: &TestOutcome, stream: &StreamEnd) -> String {
    let does = match (&spec.request_response, stream.sending) {
        (Some(_), _) => "exchanged",
        (None, true) => "sent",
        (None, false) => "received",
    };
    let rate = show_bit_rate(stream_bits_per_s(spec, outcome, stream));
    let mut text = format!("stream {} {does} {rate}", stream.index);
    let cores: Vec<String> = stream.cores.iter().take(4).map(u32::to_string).collect();
    if !cores.is_empty() {
        write!(text, ", {} {}", noun(cores.len() as u64, "core"), cores.join(", ")).ok();
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
            Some(false) => text.push_str(", no MPTCP: the far end does not support it"),
            None => {}
        }
    }
    text.push_str(&zero_copied(stream.zero_copy.iter()));
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use results::Estimate;

    use super::*;

    #[test]
    fn medians_name_the_figure_without_its_unit_and_show_it_with_it() {
        for (figure, value, told) in [
            ("transactions_per_s", 37.9, "median     transactions 37.9/s (n=1)\n"),
            ("forward_received_bits_per_s", 1e9, "median     forward received 1.00 Gbit/s (n=1)\n"),
            ("rtt_p50_s", 0.0264, "median     rtt p50 26.4 ms (n=1)\n"),
        ] {
            let estimate =
                Estimate { count: 1, median: value, low: value, high: value, confidence: 0.0 };
            let summary = Summary {
                experiment: "test".to_owned(),
                varied: BTreeMap::new(),
                figure: figure.to_owned(),
                estimate,
            };
            assert_eq!(repeats(&[summary]), told);
        }
    }

    #[test]
    fn one_of_a_thing_is_in_the_singular() {
        let stream = |index, sending| StreamEnd {
            index,
            sending,
            bytes: 1_250_000,
            duration_s: 1.0,
            ..StreamEnd::default()
        };
        let told = |streams: &[StreamEnd]| {
            several_streams(&TestSpec::tcp(), &TestOutcome::default(), streams).join("; ")
        };
        // One stream each way.
        let both = told(&[stream(0, true), stream(1, false)]);
        assert_eq!(both, "1 stream sent 10.0 Mbit/s; 1 stream received 10.0 Mbit/s");
        let two = told(&[stream(0, true), stream(1, true)]);
        assert_eq!(two, "2 streams sent 10.0 Mbit/s each");
        let other = StreamEnd { bytes: 2_500_000, ..stream(1, true) };
        assert_eq!(
            told(&[stream(0, true), other]),
            "2 streams sent 10.0 Mbit/s to 20.0 Mbit/s each"
        );
        let udp = UdpOutcome { sent_count: 1, received_count: 1, ..UdpOutcome::default() };
        let told = datagrams(&udp, None);
        assert!(told.starts_with("1 datagram sent, 1 received"), "{told}");
    }

    #[test]
    fn an_exchange_counts_its_responses_too() {
        let spec = TestSpec::request_response(results::Protocol::Tcp, 1, 1000);
        // 43 requests of one byte.
        let stream = StreamEnd { bytes: 43, duration_s: 1.0, ..StreamEnd::default() };
        let told = one_stream(&spec, &TestOutcome::default(), &stream);
        assert!(told.contains("exchanged 344 kbit/s"), "{told}");
    }

    #[test]
    fn a_window_granted_but_for_less_than_can_be_seen_is_no_clamp() {
        let gib = 1 << 30;
        assert!(!is_less(gib - 2, gib) && !is_less(gib, gib));
        assert!(is_less(gib / 2, gib) && is_less(gib - gib / 50, gib));
    }

    #[test]
    fn a_single_run_is_told_without_an_interval() {
        let told = |values: &[f64]| {
            let estimate = Estimate::of(values).expect("finite");
            let figure = "forward_received_bits_per_s".to_owned();
            let varied = BTreeMap::new();
            repeats(&[Summary { experiment: "test".to_owned(), varied, figure, estimate }])
        };
        assert_eq!(told(&[1e9]), "median     forward received 1.00 Gbit/s (n=1)\n");
        assert!(told(&[1e9, 2e9, 3e9]).contains("(1.00 Gbit/s to 3.00 Gbit/s, "));
    }
}
