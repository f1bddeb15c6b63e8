//! Figures of a point that the outcomes of experiments are judged by.

use results::{End, Point};

use crate::numbers::{positive, ratio};

/// Processor time that an end's threads used per byte they moved, seconds.
pub(super) fn cost_s_per_byte(point: &Point, end: End) -> Option<f64> {
    let outcome = point.measured()?;
    let report = match end {
        End::Near => Some(outcome.near()),
        End::Far => outcome.far(),
    };
    let streams = &report?.streams;
    let spent = |stream: &results::StreamEnd| Some(stream.thread_user_s? + stream.thread_system_s?);
    let spent_s: f64 = streams.iter().filter_map(spent).sum();
    let bytes: u64 = streams.iter().map(|stream| stream.bytes).sum();
    ratio(spent_s, bytes as f64)
}

/// Time that an end's threads ran or waited for a core, over the time they ran: 1 if they never waited,
/// `None` if the kernel did not report it.
pub(super) fn wanted_over_had(point: &Point, end: End) -> Option<f64> {
    let streams = point.measured().and_then(|outcome| match end {
        End::Near => Some(&outcome.near().streams),
        End::Far => outcome.far().map(|far| &far.streams),
    });
    let (mut ran_s, mut waited_s) = (0.0, 0.0);
    for stream in streams.into_iter().flatten() {
        if let (Some(user_s), Some(system_s)) = (stream.thread_user_s, stream.thread_system_s) {
            ran_s += user_s + system_s;
            waited_s += stream.thread_wait_s.unwrap_or(0.0);
        }
    }
    ratio(ran_s + waited_s, ran_s)
}

/// Whether an end sends the data; `None` if it reported no stream.
pub(super) fn sends(point: &Point, end: End) -> Option<bool> {
    let outcome = point.measured()?;
    let report = match end {
        End::Near => Some(outcome.near()),
        End::Far => outcome.far(),
    };
    Some(report?.streams.first()?.sending)
}

/// Payload of the sender's segments, bytes.
pub(super) fn segment_bytes(point: &Point) -> Option<f64> {
    let outcome = point.measured()?;
    let streams = outcome.hosts.iter().flat_map(|host| &host.account.streams);
    let mut tcp = streams.filter(|stream| stream.sending).filter_map(|stream| stream.tcp.as_ref());
    positive(f64::from(tcp.next()?.mss_bytes))
}

/// Segments that the sender retransmitted, as a share of all that it sent.
pub(super) fn retransmit_share(point: &Point) -> Option<f64> {
    let (again, sent) = retransmitted(point)?;
    Some(again / (again + sent))
}

/// Segments that the sender retransmitted, and those of its payload.
pub(super) fn retransmitted(point: &Point) -> Option<(f64, f64)> {
    let outcome = point.measured()?;
    let ends = std::iter::once(outcome.near()).chain(outcome.far());
    let senders = ends.flat_map(|end| &end.streams).filter(|stream| stream.sending);
    let counts = senders.filter_map(|stream| {
        let tcp = stream.tcp.as_ref()?;
        let again = tcp.last.retransmits_count.saturating_sub(tcp.first.retransmits_count) as f64;
        Some((again, ratio(stream.bytes as f64, f64::from(tcp.mss_bytes))?))
    });
    counts.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Segments of the sender that were delivered with a mark, and those of its payload.
pub(super) fn marked(point: &Point) -> Option<(f64, f64)> {
    let outcome = point.measured()?;
    let ends = std::iter::once(outcome.near()).chain(outcome.far());
    let senders = ends.flat_map(|end| &end.streams).filter(|stream| stream.sending);
    let counts = senders.filter_map(|stream| {
        let tcp = stream.tcp.as_ref()?;
        let marked = tcp.last.marked_count?.saturating_sub(tcp.first.marked_count?) as f64;
        Some((marked, ratio(stream.bytes as f64, f64::from(tcp.mss_bytes))?))
    });
    counts.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))
}
