//! The UDP half: what was sent, what came, what was lost, as iperf3 3.9 to 3.21 tell it.

use results::{
    Direction, DirectionOutcome, EndReport, HostAccount, IntervalSample, StreamEnd, TestOutcome,
    TestSpec, UdpLoss, UdpOutcome, UdpStreamEnd,
};
use serde_json::Value;

use super::samples::Samples;
use super::{INTERVALS_MAX, STREAMS_MAX, cpu_s, number, spec_of};

/// What was asked and what came of it.
pub(super) fn read(whole: &Value, start: &Value, test: &Value) -> Option<(TestSpec, TestOutcome)> {
    let end = whole.get("end")?;
    let datagram_bytes = number(test, "blksize").map(units::saturating_u64);
    let datagram_bytes = u32::try_from(datagram_bytes.filter(|bytes| *bytes > 0)?).ok()?;
    // iperf3 sends and takes them one by one.
    let mut udp = TestSpec::udp(datagram_bytes).udp;
    if let Some(udp) = &mut udp {
        (udp.gso, udp.gro, udp.batch_count) = (false, false, 1);
    }
    let tcp = spec_of(start, test);
    let spec = TestSpec { protocol: results::Protocol::Udp, udp, ..tcp };
    let start_counted = counts_omitted_start(start, &spec).then(|| whole_test_count(whole));
    let direction =
        direction_of(end, spec.direction, f64::from(datagram_bytes), start_counted.flatten())?;
    let sends_here = direction.direction == Direction::Forward;
    let rows = end.get("streams")?.as_array()?;
    let sockets = rows.iter().map(|stream| number(stream.get("udp")?, "socket"));
    let mut samples = Samples::of(whole, sockets, |row| interval_of(row, datagram_bytes));
    let streams: Vec<StreamEnd> = rows
        .iter()
        .take(STREAMS_MAX)
        .enumerate()
        .filter_map(|(index, stream)| {
            stream_of(&mut samples, stream.get("udp")?, index, sends_here, datagram_bytes)
        })
        .collect();
    let duration_s = number(end.get("sum_sent").or(end.get("sum"))?, "seconds")?;
    let cpu = |user, system| cpu_s(end, user, system, duration_s);
    let near = EndReport {
        streams,
        process_cpu_s: cpu("host_user", "host_system"),
        ..EndReport::default()
    };
    let far =
        EndReport { process_cpu_s: cpu("remote_user", "remote_system"), ..EndReport::default() };
    let told = far.process_cpu_s.is_some();
    let outcome = TestOutcome {
        duration_s,
        directions: vec![direction],
        hosts: HostAccount::of_ends(near, told.then_some(far)),
        ..TestOutcome::default()
    };
    Some((spec, outcome))
}

/// Whether the sums of lost datagrams include those of the omitted start: they do before 3.14.
pub(super) fn counts_omitted_start(start: &Value, spec: &TestSpec) -> bool {
    let version = start.get("version").and_then(Value::as_str).unwrap_or_default();
    let minor = version.strip_prefix("iperf 3.").map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<u32>().unwrap_or(u32::MAX)
    });
    spec.protocol == results::Protocol::Udp
        && spec.omit_s > 0.0
        && minor.is_some_and(|minor| minor < 14)
}

/// Datagrams of all intervals, those of the omitted start included.
fn whole_test_count(whole: &Value) -> Option<f64> {
    let rows = whole.get("intervals")?.as_array()?;
    let packets = |interval: &Value| number(interval.get("sum")?, "packets");
    Some(rows.iter().take(INTERVALS_MAX).filter_map(packets).sum())
}

/// From 3.10 on each end has its own sum; before, one sum holds what was sent and, of that, lost. If that sum counts
/// the losses of an omitted start too, `start_counted` is the number of datagrams of the whole test.
fn direction_of(
    end: &Value,
    asked: Direction,
    datagram_bytes: f64,
    start_counted: Option<f64>,
) -> Option<DirectionOutcome> {
    let sum = end.get("sum")?;
    let (sent, received) = (end.get("sum_sent").unwrap_or(sum), end.get("sum_received"));
    let count = |of: &Value, name: &str| number(of, name).map(|count| count.max(0.0));
    let mut sent_count = count(sent, "packets")?;
    let mut lost_count = count(received.unwrap_or(sum), "lost_packets")?;
    if let Some(whole_count) = start_counted {
        // Bytes are counted from the end of the omitted start, at both ends.
        sent_count = count(sent, "bytes").map_or(sent_count, |bytes| bytes / datagram_bytes);
        lost_count = match received {
            Some(received) => {
                let received_count = count(received, "bytes")? / datagram_bytes;
                lost_count.min((sent_count - received_count).max(0.0))
            }
            // The receiver's bytes are not told: the share of the whole test.
            None => lost_count * (sent_count / whole_count.max(1.0)).min(1.0),
        };
    }
    let sent_bits_per_s = number(sent, "bits_per_second")?;
    let (received_bytes, received_bits_per_s) = match received {
        Some(received) => (count(received, "bytes")?, number(received, "bits_per_second")?),
        None => {
            let received_count = (sent_count - lost_count).max(0.0);
            let share = received_count / sent_count.max(1.0);
            (received_count * datagram_bytes, sent_bits_per_s * share)
        }
    };
    let whole = units::saturating_u64;
    let streams = end.get("streams").and_then(Value::as_array);
    let reordered = streams
        .into_iter()
        .flatten()
        .take(STREAMS_MAX)
        .filter_map(|stream| count(stream.get("udp")?, "out_of_order"));
    Some(DirectionOutcome {
        direction: if asked == Direction::Reverse { asked } else { Direction::Forward },
        sent_bytes: count(sent, "bytes").map_or(0, whole),
        received_bytes: whole(received_bytes),
        sent_bits_per_s,
        received_bits_per_s,
        retransmits_count: None,
        udp: Some(UdpOutcome {
            sent_count: whole(sent_count),
            received_count: whole(received_bytes / datagram_bytes),
            lost_count: whole(lost_count),
            reordered_count: whole(reordered.sum()),
            duplicate_count: 0,
            jitter_s: number(received.unwrap_or(sum), "jitter_ms").map(|ms| ms / 1e3),
            standing_delay_s: None,
            // No counter of either host: where they were lost is not told.
            loss: UdpLoss::default(),
        }),
    })
}

/// This end of one stream.
fn stream_of(
    samples: &mut Samples,
    udp: &Value,
    index: usize,
    sends_here: bool,
    datagram_bytes: u32,
) -> Option<StreamEnd> {
    number(udp, "socket")?;
    let count = |name: &str| number(udp, name).map(units::saturating_u64);
    let (packets, lost) = (count("packets")?, count("lost_packets").unwrap_or(0));
    let intervals = samples.take(index);
    // A receiver's row at the end tells what was sent, in some versions with the omitted start's datagrams.
    let counted = intervals.iter().filter(|sample| !sample.omitted).map(|sample| sample.bytes);
    let bytes = match intervals.is_empty() || sends_here {
        true => count("bytes")?,
        false => counted.fold(0, u64::saturating_add),
    };
    let received = |value| (!sends_here).then_some(value);
    Some(StreamEnd {
        index: u32::try_from(index).ok()?,
        sending: sends_here,
        bytes,
        duration_s: number(udp, "seconds")?,
        udp: Some(UdpStreamEnd {
            datagrams_count: match (sends_here, intervals.is_empty()) {
                (true, _) => packets,
                (false, true) => packets.saturating_sub(lost),
                (false, false) => bytes / u64::from(datagram_bytes),
            },
            lost_count: received(lost),
            reordered_count: received(count("out_of_order").unwrap_or(0)),
            jitter_s: number(udp, "jitter_ms").map(|ms| ms / 1e3).filter(|_| !sends_here),
            ..UdpStreamEnd::default()
        }),
        intervals,
        ..StreamEnd::default()
    })
}

fn interval_of(row: &Value, datagram_bytes: u32) -> Option<IntervalSample> {
    let count = |name: &str| number(row, name).map(units::saturating_u64);
    let arrived = count("bytes")? / u64::from(datagram_bytes);
    // Before 3.14 the first row after the omitted start may count the start's datagrams, but not its bytes.
    let lost_count = count("lost_packets")
        .filter(|lost| count("packets").is_none_or(|all| all.saturating_sub(*lost) <= arrived));
    Some(IntervalSample {
        start_s: number(row, "start")?,
        end_s: number(row, "end")?,
        bytes: count("bytes")?,
        omitted: row.get("omitted").and_then(Value::as_bool).unwrap_or(false),
        datagrams_count: Some(arrived),
        lost_count,
        jitter_s: number(row, "jitter_ms").map(|ms| ms / 1e3),
        ..IntervalSample::default()
    })
}
