//! From a recording to a results document. The sender of the data is the near host, whichever end
//! the recording was taken at: only then do its windows and round trips belong to one account.

use results::{
    Absent, Direction, DirectionOutcome, EndReport, Finding, Host, HostAccount, HostFacts,
    IntervalSample, PathFacts, Point, Results, RunKind, StreamEnd, TcpSample, TcpSummary,
    TestLimit, TestOutcome, TestSpec, ToolFacts,
};

use crate::flow::Flow;
use crate::frame::Endpoint;
use crate::ss::{Sample, Samples};
use crate::trace::{Span, Trace};
use crate::words;

/// A second, in the unit of a capture's times.
pub(crate) const NS: f64 = 1e-9;

/// What every recording of TCP alone leaves open.
const ABSENT_ALWAYS: [(&str, &str); 2] = [
    (
        "threads, cores, queueing disciplines and counters of both hosts",
        "a recording of one connection says nothing about its hosts",
    ),
    (
        "more streams, UDP and the idle path for comparison",
        "one connection cannot tell a limit of its own from one of the path that is met at once",
    ),
];

/// The document of a capture.
pub(crate) fn of_capture(flow: &Flow) -> Results {
    let trace = Trace::of(flow);
    let steady = trace.steady();
    let steady_s: f64 = steady.iter().map(span_s).sum();
    let steady_bytes: f64 = steady.iter().map(|span| span.acked_bytes as f64).sum();
    let whole_s = (trace.to_ns - trace.from_ns) as f64 * NS;
    // A flow of a few packets has no steady part.
    let bits_per_s = if steady_bytes > 0.0 && steady_s > 0.0 {
        steady_bytes * 8.0 / steady_s
    } else {
        trace.acked_bytes.max(trace.sent_bytes) as f64 * 8.0 / whole_s.max(NS)
    };
    let direction = DirectionOutcome {
        direction: Direction::Forward,
        sent_bytes: trace.sent_bytes,
        received_bytes: trace.acked_bytes,
        sent_bits_per_s: bits_per_s,
        received_bits_per_s: bits_per_s,
        retransmits_count: Some(trace.counts.retransmits_count),
        udp: None,
    };
    let stream = capture_stream(flow, &trace, whole_s);
    let mut absent = absent(&[(
        "congestion window, send buffer, pacing and time limited by each",
        "they are the sender's kernel's own, packets do not contain them (ss -tin does)",
    )]);
    if !flow.is_scale_known() {
        absent.insert(0, words::missing_syn());
    }
    Results {
        findings: findings(words::of_capture(flow, &trace)),
        absent,
        ..document(
            "packet capture",
            (flow.sender, flow.receiver),
            trace.from_ns / 1_000_000,
            point(direction, stream, whole_s, Direction::Forward),
        )
    }
}

fn capture_stream(flow: &Flow, trace: &Trace, whole_s: f64) -> StreamEnd {
    let is_scale_known = flow.is_scale_known();
    let since_s = |ns: u64| ns.saturating_sub(trace.from_ns) as f64 * NS;
    // A sender that pauses before all it sends shows no round trip but the handshake's.
    let is_timed = trace.spans.iter().any(|span| span.rtt_ns.is_some());
    let untimed_ns = trace.rtt_min_ns.filter(|_| !is_timed);
    let sample = |span: &Span| -> Option<TcpSample> {
        let rtt_s = span.rtt_ns.or(untimed_ns).map(|ns| ns as f64 * NS)?;
        let (in_flight_bytes, window_bytes) = span.in_flight.unwrap_or_default();
        Some(TcpSample {
            rtt_s,
            rtt_min_s: trace.rtt_min_ns.map(|ns| ns as f64 * NS),
            in_flight_bytes,
            peer_window_bytes: Some(window_bytes).filter(|_| is_scale_known && window_bytes > 0),
            retransmits_count: span.retransmits_count,
            busy_s: Some(busy_s(since_s(span.end_ns), span.idle_ns)),
            ..TcpSample::default()
        })
    };
    let interval = |span: &Span| IntervalSample {
        start_s: since_s(span.start_ns),
        end_s: since_s(span.end_ns),
        bytes: span.acked_bytes,
        tcp: sample(span),
        ..IntervalSample::default()
    };
    let intervals: Vec<IntervalSample> = trace.spans.iter().map(interval).collect();
    let last = intervals.iter().rev().find_map(|interval| interval.tcp.clone());
    let mss_bytes = words::payload_mss(flow, trace);
    let shift = |syn: Option<crate::flow::Syn>| syn.and_then(|syn| syn.window_shift);
    StreamEnd {
        sending: true,
        local: shown(flow.sender),
        remote: shown(flow.receiver),
        bytes: trace.acked_bytes.max(trace.sent_bytes),
        duration_s: whole_s,
        tcp: last.map(|last| TcpSummary {
            mss_bytes: u32::try_from(mss_bytes).unwrap_or(u32::MAX),
            segments_out_count: is_scale_known.then_some(trace.counts.data_count),
            window_scale_shifts: flow.window_shift().zip(shift(flow.sender_syn)),
            sack_negotiated: sack_negotiated(flow),
            first: TcpSample { rtt_s: last.rtt_s, busy_s: Some(0.0), ..TcpSample::default() },
            last: TcpSample {
                retransmits_count: trace.counts.retransmits_count,
                busy_s: Some(busy_s(whole_s, trace.idle_ns)),
                ..last
            },
            ..TcpSummary::default()
        }),
        intervals,
        ..StreamEnd::default()
    }
}

/// The document of `ss` samples. The near host is the one on which `ss` ran.
pub(crate) fn of_samples(samples: &Samples) -> Results {
    let rows = &samples.rows;
    let moved = |row: &Sample| -> u64 {
        let sent = row.count("bytes_acked").or(row.count("bytes_sent"));
        let received = row.count("bytes_received");
        if samples.is_sender { sent.unwrap_or(0) } else { received.unwrap_or(0) }
    };
    let at_s = |row: &Sample| row.at_s.unwrap_or(0.0);
    let begun = Sample { at_s: Some(0.0), ..Sample::default() };
    // One sample stands for all since the connection began.
    let (first, last) = match rows.as_slice() {
        [first, .., last] if at_s(last) > at_s(first) && moved(last) > moved(first) => {
            (first, last)
        }
        [.., last] => (&begun, last),
        [] => (&begun, &begun),
    };
    let whole_s = (at_s(last) - at_s(first)).max(NS);
    let bytes = moved(last).saturating_sub(moved(first));
    let bits_per_s = bytes as f64 * 8.0 / whole_s;
    let way = if samples.is_sender { Direction::Forward } else { Direction::Reverse };
    let retransmits = |row: &Sample| row.count("retrans").unwrap_or(0);
    let direction = DirectionOutcome {
        direction: way,
        sent_bytes: bytes,
        received_bytes: bytes,
        sent_bits_per_s: bits_per_s,
        received_bits_per_s: bits_per_s,
        retransmits_count: samples
            .is_sender
            .then(|| retransmits(last).saturating_sub(retransmits(first))),
        udp: None,
    };
    let intervals = rows.windows(2).map(|pair| IntervalSample {
        start_s: at_s(&pair[0]) - at_s(first),
        end_s: at_s(&pair[1]) - at_s(first),
        bytes: moved(&pair[1]).saturating_sub(moved(&pair[0])),
        tcp: Some(tcp_sample(&pair[1])),
        send_queue_bytes: Some(pair[1].send_queue_bytes),
        receive_queue_bytes: Some(pair[1].receive_queue_bytes),
        ..IntervalSample::default()
    });
    let stream = StreamEnd {
        sending: samples.is_sender,
        local: samples.local.clone(),
        remote: samples.remote.clone(),
        bytes,
        duration_s: whole_s,
        send_buffer_bytes: last.count("skmem_tb"),
        receive_buffer_bytes: last.count("skmem_rb"),
        tcp: Some(tcp_summary(first, last)),
        intervals: intervals.collect(),
        ..StreamEnd::default()
    };
    let host =
        |address: &str| address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
    let began_ms = at_s(first) * 1e3;
    let began_ms = if samples.is_timed { units::saturating_u64(began_ms) } else { 0 };
    let ends = (host(&samples.local), host(&samples.remote));
    Results {
        findings: findings(words::of_samples(samples, bits_per_s)),
        absent: absent(&words::absent_of_samples(samples)),
        ..named_document("ss", ends, began_ms, point(direction, stream, whole_s, way))
    }
}

/// Whether both SYN packets permit SACK; `None` unless the capture holds the options of both.
fn sack_negotiated(flow: &Flow) -> Option<bool> {
    let (one, other) = flow.sender_syn.zip(flow.receiver_syn)?;
    (one.tells_scale && other.tells_scale).then_some(one.may_sack && other.may_sack)
}

fn tcp_summary(first: &Sample, last: &Sample) -> TcpSummary {
    let small = |name: &str| last.count(name).and_then(|bytes| u32::try_from(bytes).ok());
    TcpSummary {
        congestion_control: last.algorithm.clone(),
        mss_bytes: small("mss").unwrap_or(0),
        path_mtu_bytes: small("pmtu"),
        segments_out_count: last.count("segs_out"),
        segments_in_count: last.count("segs_in"),
        window_scale_shifts: last.window_shifts,
        // Some versions of `ss` list neither timestamps nor SACK; one that lists either would list both.
        sack_negotiated: (last.is_sack || last.is_timestamped).then_some(last.is_sack),
        first: tcp_sample(first),
        last: tcp_sample(last),
        ..TcpSummary::default()
    }
}

fn tcp_sample(row: &Sample) -> TcpSample {
    let ms = |name: &str| row.number(name).map(|ms| ms / 1e3);
    let mss = row.number("mss").unwrap_or(0.0);
    let segments = |name: &str| row.number(name).map(|count| units::saturating_u64(count * mss));
    // What is not written was nothing: ss leaves out zeros.
    let limited = |name: &str| ms("busy").map(|_| ms(name).unwrap_or(0.0));
    TcpSample {
        rtt_s: ms("rtt").unwrap_or(0.0),
        rtt_variation_s: ms("rttvar").unwrap_or(0.0),
        rtt_min_s: ms("minrtt"),
        congestion_window_bytes: segments("cwnd").unwrap_or(0),
        peer_window_bytes: row.count("snd_wnd"),
        advertised_window_bytes: row.count("rcv_wnd"),
        in_flight_bytes: segments("unacked").unwrap_or(0),
        not_sent_bytes: row.count("notsent"),
        retransmits_count: row.count("retrans").unwrap_or(0),
        delivery_bits_per_s: row.number("delivery_rate"),
        delivery_app_limited: row.is_app_limited,
        pacing_bits_per_s: row.number("pacing_rate"),
        busy_s: ms("busy"),
        receive_window_limited_s: limited("rwnd_limited"),
        send_buffer_limited_s: limited("sndbuf_limited"),
        reordered_count: row.count("reord_seen"),
        needless_retransmits_count: row.count("dsack_dups"),
        slow_start_threshold_bytes: segments("ssthresh"),
        ..TcpSample::default()
    }
}

fn point(direction: DirectionOutcome, stream: StreamEnd, whole_s: f64, way: Direction) -> Point {
    let spec = TestSpec { direction: way, limit: TestLimit::DurationS(whole_s), ..TestSpec::tcp() };
    let account = EndReport { streams: vec![stream], ..EndReport::default() };
    let outcome = TestOutcome {
        duration_s: whole_s,
        directions: vec![direction],
        hosts: HostAccount::of_ends(account, None),
        ..TestOutcome::default()
    };
    Point::new("single-stream", spec, outcome.with_figures())
}

fn document(
    what: &str,
    (near, far): (Endpoint, Endpoint),
    started_unix_ms: u64,
    point: Point,
) -> Results {
    let names = (near.address.to_string(), far.address.to_string());
    named_document(what, names, started_unix_ms, point)
}

fn named_document(
    what: &str,
    (near, far): (String, String),
    started_unix_ms: u64,
    point: Point,
) -> Results {
    Results {
        tool: ToolFacts { name: what.to_owned(), version: String::new() },
        hosts: vec![Host::near(HostFacts { name: near, ..HostFacts::default() })],
        path: PathFacts { target: far.clone(), address: Some(far), ..PathFacts::default() },
        points: vec![Point { started_unix_ms, ..point }],
        ..Results::begun(RunKind::Test, started_unix_ms)
    }
}

fn findings(lines: Vec<(&'static str, String)>) -> Vec<Finding> {
    let finding = |(code, text): (&str, String)| Finding {
        end: None,
        code: format!("{}{code}", Finding::RECORDED),
        text,
    };
    lines.into_iter().map(finding).collect()
}

fn absent(own: &[(&str, &str)]) -> Vec<Absent> {
    let absent =
        |(what, why): &(&str, &str)| Absent { what: (*what).to_owned(), why: (*why).to_owned() };
    own.iter().chain(&ABSENT_ALWAYS).map(absent).collect()
}

/// Of a time, what the sender had something outstanding.
fn busy_s(whole_s: f64, idle_ns: u64) -> f64 {
    (whole_s - idle_ns as f64 * NS).max(0.0)
}

fn span_s(span: &Span) -> f64 {
    (span.end_ns - span.start_ns) as f64 * NS
}

/// `10.0.0.1:5201`, `[fd00::1]:5201`.
pub(crate) fn shown(endpoint: Endpoint) -> String {
    core::net::SocketAddr::new(endpoint.address, endpoint.port).to_string()
}
