//! Builds the report of one end from what its threads left behind.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use results::{
    EndReport, Finding, IntervalSample, LatencySummary, Protocol, ReceivePath,
    RequestResponseOutcome, SendPath, StreamEnd, TcpSummary, TestLimit, UdpStreamEnd,
    ZeroCopyShare,
};
use stats::LatencyHistogram;

use super::sampler::{Count, Mark, Record, StreamMark};
use super::shared::{Shared, Stream};
use super::worker::{Ending, Remains};
use super::{EndOutcome, StreamRole, observe};

/// A connection that ends at most this long before the end of the measured time ended with it, in
/// seconds.
const EARLY_S: f64 = 0.25;

/// The outcome of one end; `remains` is in the order of [`Shared::streams`].
pub(super) fn outcome(
    shared: &Shared,
    record: Record,
    remains: Vec<Option<Remains>>,
) -> EndOutcome {
    let window = Window::of(shared, &record);
    let mut report = EndReport::default();
    let mut remains: Vec<Remains> = remains.into_iter().map(Option::unwrap_or_default).collect();
    if let (Some(began), Some(ended)) = (&record.began, &record.ended) {
        report.cores = ended.cores.since(&began.cores);
        report.counters = ended.counters.since(&began.counters);
        report.process_cpu_s = began.process_cpu_s.zip(ended.process_cpu_s).map(
            |((user_before, system_before), (user, system))| {
                (user - user_before, system - system_before)
            },
        );
    }
    let finding =
        |code: &str, text: String| Finding { end: Some(shared.end), code: code.to_owned(), text };
    for (position, stream) in shared.streams.iter().enumerate() {
        let left = &mut remains[position];
        let noticed = std::mem::take(&mut left.findings);
        report.findings.extend(noticed.into_iter().map(|(code, text)| finding(code, text)));
        if let Some((code, text)) =
            complaint(shared, stream, left, planned_ns(shared, &record, &window))
        {
            report.findings.push(finding(code, format!("stream {}: {text}", stream.index)));
        }
        if stream.counts(&shared.spec) {
            report.streams.push(stream_end(shared, position, &record, left, &window));
        }
    }
    report.findings.extend(record.findings.iter().map(|(code, text)| finding(code, text.clone())));
    EndOutcome {
        report,
        request_response: requests(shared, &remains, window.duration_s()),
        latency_under_load: probe(shared, &remains),
        duration_s: window.duration_s(),
    }
}

/// The measured time on the end's clock; empty if it never began.
struct Window {
    from_ns: u64,
    to_ns: u64,
    /// When this end's receivers could begin to count.
    received_from_ns: u64,
}

impl Window {
    fn of(shared: &Shared, record: &Record) -> Self {
        let at = |mark: &Option<Mark>| mark.as_ref().map(|mark| mark.at_ns);
        let to_ns = at(&record.ended).unwrap_or(0);
        let from_ns = at(&record.began).unwrap_or(to_ns).min(to_ns);
        let first_ns = shared.first_byte_ns().unwrap_or(to_ns);
        // Without an omitted start, the first mark is taken a moment after the first byte.
        let omits = shared.spec.omit_s > 0.0;
        let only_receives = shared
            .streams
            .iter()
            .all(|stream| matches!(stream.role, StreamRole::Receive | StreamRole::Respond));
        let from_ns = if only_receives && !omits { first_ns.min(from_ns) } else { from_ns };
        Self { from_ns, to_ns, received_from_ns: from_ns.max(first_ns).min(to_ns) }
    }

    fn duration_s(&self) -> f64 {
        (self.to_ns - self.from_ns) as f64 * 1e-9
    }

    fn stream_duration_s(&self, stream: &Stream) -> f64 {
        let from_ns = match stream.role {
            StreamRole::Receive => self.received_from_ns,
            _ => self.from_ns,
        };
        (self.to_ns - from_ns) as f64 * 1e-9
    }
}

fn stream_end(
    shared: &Shared,
    position: usize,
    record: &Record,
    left: &mut Remains,
    window: &Window,
) -> StreamEnd {
    let stream = &shared.streams[position];
    let spec = &shared.spec;
    let mark = |mark: &Option<Mark>| mark.as_ref().map(|mark| mark.streams[position].clone());
    let (began, ended) = (mark(&record.began), mark(&record.ended));
    let counted =
        |mark: &Option<StreamMark>| mark.as_ref().map(|mark| mark.count).unwrap_or_default();
    let (mut before, after) = (counted(&began), counted(&ended));
    if spec.omit_s <= 0.0 {
        // Everything counts, including what arrived before the first mark could be taken.
        before = Count::default();
    }
    if !matches!(spec.limit, TestLimit::DurationS(_)) && stream.sends_bulk() {
        before.bytes = stream.counters.bytes_before.load(Ordering::Relaxed).min(after.bytes);
    }
    let drops = drops_between(&began, &ended, spec.omit_s > 0.0);
    let mut intervals = record.intervals_of(position);
    let mut bytes = after.bytes - before.bytes;
    if spec.omit_s > 0.0 {
        bytes -= leave_out_early(bytes, &mut intervals, (&began, &ended));
    }
    let usage = left.usage;
    let socket = stream.socket.as_fd();
    StreamEnd {
        index: stream.index,
        sending: stream.sends_bulk() || stream.role == StreamRole::Request,
        local: stream.local.clone(),
        remote: stream.remote.clone(),
        bytes,
        duration_s: window.stream_duration_s(stream),
        cores: record.cores_of(position),
        incoming_core: record.incoming_core_of(position),
        thread_user_s: usage.map(|usage| usage.user.as_secs_f64()),
        thread_system_s: usage.map(|usage| usage.system.as_secs_f64()),
        thread_wait_s: left.wait_s,
        thread_sleeps_count: usage.map(|usage| usage.voluntary_switches_count),
        thread_preempted_count: usage.map(|usage| usage.involuntary_switches_count),
        thread_slices_count: left.slices_count,
        thread_migrations_count: left.migrations_count,
        thread_policy: left.policy.take(),
        core_first_last: left.core_first_last,
        window_clamp_bytes: sys::socket::window_clamp_bytes(socket)
            .ok()
            .filter(|_| stream.protocol == Protocol::Tcp),
        pacing_max_bits_per_s: observe::pacing_max_bits_per_s(stream),
        block_bytes: Some(left.block_bytes).filter(|&bytes| bytes > 0),
        send_buffer_bytes: sys::socket::send_buffer_bytes(socket).ok(),
        receive_buffer_bytes: sys::socket::receive_buffer_bytes(socket).ok(),
        application_idle_s: Some((after.idle_ns - before.idle_ns) as f64 * 1e-9)
            .filter(|_| spec.offered_bits_per_s.is_some() || spec.read_bits_per_s.is_some()),
        tcp: record.tcp_of(position).map(|summary| TcpSummary {
            first: began.and_then(|mark| mark.tcp).unwrap_or_default(),
            ..summary
        }),
        udp: (stream.protocol == Protocol::Udp).then(|| UdpStreamEnd {
            socket_drops_count: dropped_datagrams(stream, &before, &after, drops),
            ..udp_end(stream, &before, &after)
        }),
        zero_copy: zero_copy(shared, stream, &before, &after),
        intervals,
    }
}

/// Bytes of a TCP receiver that had arrived before the measured time; they are taken out of its first samples. A reader
/// that is behind takes them from its socket in that time, and with them more than the path can carry.
fn leave_out_early(
    bytes: u64,
    intervals: &mut [IntervalSample],
    (began, ended): (&Option<StreamMark>, &Option<StreamMark>),
) -> u64 {
    let arrived = |mark: &Option<StreamMark>| mark.as_ref()?.arrived_bytes;
    let Some((before, after)) = arrived(began).zip(arrived(ended)) else { return 0 };
    let early_bytes = bytes.saturating_sub(after.saturating_sub(before));
    let mut left_bytes = early_bytes;
    for interval in intervals.iter_mut().filter(|interval| !interval.omitted) {
        let taken_bytes = interval.bytes.min(left_bytes);
        interval.bytes -= taken_bytes;
        left_bytes -= taken_bytes;
    }
    early_bytes
}

/// Messages that a UDP receiver dropped in the measured time.
fn drops_between(
    began: &Option<StreamMark>,
    ended: &Option<StreamMark>,
    omits: bool,
) -> Option<u64> {
    match (began.as_ref().and_then(|mark| mark.drops), ended) {
        (Some(before), Some(mark)) if omits => mark.drops.map(|after| after.saturating_sub(before)),
        (_, Some(mark)) => mark.drops,
        (_, None) => None,
    }
}

fn udp_end(stream: &Stream, before: &Count, after: &Count) -> UdpStreamEnd {
    let receives = stream.role == StreamRole::Receive;
    let sends = stream.role == StreamRole::Send;
    UdpStreamEnd {
        datagrams_count: after.datagrams - before.datagrams,
        lost_count: receives.then(|| after.lost.saturating_sub(before.lost)),
        reordered_count: receives.then(|| after.reordered - before.reordered),
        duplicate_count: receives.then(|| after.duplicates - before.duplicates),
        jitter_s: receives.then_some(after.jitter_s),
        standing_delay_s: after.delay.delay_s(&before.delay).filter(|_| receives),
        socket_drops_count: None,
        send_failures_count: sends.then(|| after.send_failures - before.send_failures),
        gro_batches_count: receives.then(|| after.joined_batches - before.joined_batches),
    }
}

/// Datagrams dropped at the socket. The kernel counts messages, and one message may be many joined
/// datagrams: then this assumes that each was as full as the fullest one received, but counts no
/// more than are missing.
fn dropped_datagrams(
    stream: &Stream,
    before: &Count,
    after: &Count,
    drops: Option<u64>,
) -> Option<u64> {
    let segments_count = stream.counters.segments_max.load(Ordering::Relaxed).max(1);
    if segments_count == 1 {
        return drops;
    }
    let missing_count = after.lost.saturating_sub(before.lost);
    drops.map(|messages| messages.saturating_mul(segments_count).min(missing_count))
}

fn zero_copy(
    shared: &Shared,
    stream: &Stream,
    before: &Count,
    after: &Count,
) -> Option<ZeroCopyShare> {
    let asked = match stream.role {
        StreamRole::Send => shared.spec.send_path == SendPath::Zerocopy,
        StreamRole::Receive => shared.spec.receive_path == ReceivePath::Zerocopy,
        StreamRole::Request | StreamRole::Respond | StreamRole::Probe => false,
    };
    (asked && stream.protocol == Protocol::Tcp).then(|| ZeroCopyShare {
        asked_bytes: after.zero_copy_asked_bytes - before.zero_copy_asked_bytes,
        zero_copied_bytes: after.zero_copied_bytes - before.zero_copied_bytes,
    })
}

/// When the test was planned to end: at its limit, or when the caller stopped it.
fn planned_ns(shared: &Shared, record: &Record, window: &Window) -> u64 {
    match (record.stopped_ns, shared.spec.limit) {
        (Some(stopped_ns), _) => stopped_ns,
        (None, TestLimit::DurationS(duration_s)) => window.from_ns + (duration_s * 1e9) as u64,
        (None, TestLimit::TotalBytes(_) | TestLimit::TotalBlocks(_)) => window.to_ns,
    }
}

/// The finding about a stream that ended abnormally.
fn complaint(
    shared: &Shared,
    stream: &Stream,
    left: &Remains,
    planned_ns: u64,
) -> Option<(&'static str, String)> {
    let timed = matches!(shared.spec.limit, TestLimit::DurationS(_));
    let early_s = planned_ns.saturating_sub(left.ended_ns) as f64 * 1e-9;
    let before_its_end = early_s > EARLY_S;
    match &left.ending {
        Ending::Over | Ending::Spent => None,
        Ending::Lost => Some(("stream-failed", "its thread panicked".to_owned())),
        Ending::Closed if timed && before_its_end && stream.role == StreamRole::Receive => {
            Some(("peer-closed", format!("the peer closed {early_s:.1} s before the end")))
        }
        Ending::Closed => None,
        Ending::Silent(patience) => {
            Some(("peer-silent", format!("no data moved for {:.1} s", patience.as_secs_f64())))
        }
        Ending::Unable(error) => Some(("stream-failed", format!("{error}: {}", error.source))),
        // Near the end of the test, the other end may already have reset the connection.
        Ending::Failed(_) if timed && !before_its_end => None,
        Ending::Failed(error) => Some(("stream-failed", error.to_string())),
    }
}

fn requests(
    shared: &Shared,
    remains: &[Remains],
    duration_s: f64,
) -> Option<RequestResponseOutcome> {
    let mut all = LatencyHistogram::default();
    let (mut transactions_count, mut timeouts_count) = (0, 0);
    for (stream, left) in shared.streams.iter().zip(remains) {
        if stream.role == StreamRole::Request {
            transactions_count += left.transactions_count;
            timeouts_count += left.timeouts_count;
            if let Some(latency) = &left.latency {
                all.merge(latency);
            }
        }
    }
    let method = if shared.spec.protocol == Protocol::Tcp { "tcp-rr" } else { "udp-rr" };
    Some(RequestResponseOutcome {
        transactions_count,
        transactions_per_s: transactions_count as f64 / duration_s.max(1e-9),
        timeouts_count,
        latency: LatencySummary::of(&all, method)?,
    })
}

fn probe(shared: &Shared, remains: &[Remains]) -> Option<LatencySummary> {
    let mut streams = shared.streams.iter().zip(remains);
    let (stream, left) = streams.find(|(stream, _)| stream.role == StreamRole::Probe)?;
    let method = if stream.protocol == Protocol::Tcp { "tcp-rr" } else { "udp-rr" };
    LatencySummary::of(left.latency.as_ref()?, method)
}
