//! What binds once a window does not: tests that ask for a window of their own, each wider than the
//! one before, until throughput no longer follows it.
//!
//! Such a test changes nothing on a host. Far too wide a window would only fill the path's queue, so
//! the ladder stops at the first that is wide enough.

use std::collections::BTreeMap;

use super::seen::{Seen, received};
use super::windows::widest_bytes;
use explain::{Buffer, round_up};
use results::{Direction, EndReport, Estimate, Results, StreamEnd, TestSpec};

/// A window held nothing back when it would have allowed this much more than was reached.
const ROOMY: f64 = 1.3;
/// Each window of the ladder over the one before.
const STEP: f64 = 4.0;
/// A prediction rests on so many tests.
const REPEATS: u32 = 3;

/// One test that asked for a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WideRun {
    asked_bytes: u64,
    /// What the sockets' buffers, as read back, allow over the round trip, bit/s.
    allowed_bits_per_s: f64,
    rate_bits_per_s: f64,
}

/// The tests that differ from the judged one in the window alone, and how long they ran.
pub(super) fn runs(results: &Results, judged: &TestSpec, rtt_s: f64) -> Vec<WideRun> {
    let is_reverse = judged.direction == Direction::Reverse;
    let points = results.points.iter().filter_map(results::Point::tested);
    let points = points.filter(|(spec, _)| is_alike(spec, judged));
    let run = |(spec, outcome): (&TestSpec, &results::TestOutcome)| {
        let asked_bytes = spec.window_bytes?;
        let far = outcome.far()?;
        let (sender, receiver) =
            if is_reverse { (far, outcome.near()) } else { (outcome.near(), far) };
        let given = |end: &EndReport, buffer: fn(&StreamEnd) -> Option<u64>| {
            buffer(end.streams.first()?).map(|bytes| bytes as f64)
        };
        let advertised = outcome.window_use(spec, judged.direction);
        let advertised = advertised.and_then(|window| window.advertised_bytes);
        let window = advertised.or_else(|| {
            let buffer = given(receiver, |stream| stream.receive_buffer_bytes)?;
            Some(buffer * Buffer::Receive.window_share(None))
        })?;
        let buffer = given(sender, |stream| stream.send_buffer_bytes)?;
        let queue = buffer * Buffer::Send.window_share(None);
        Some(WideRun {
            asked_bytes,
            allowed_bits_per_s: window.min(queue) * 8.0 / rtt_s,
            rate_bits_per_s: received(outcome, judged.direction)?,
        })
    };
    points.filter_map(run).collect()
}

/// Whether it is the judged test but for the window and how long it ran.
pub(super) fn is_alike(spec: &TestSpec, judged: &TestSpec) -> bool {
    let without = TestSpec {
        window_bytes: None,
        limit: judged.limit,
        omit_s: judged.omit_s,
        interval_s: judged.interval_s,
        ..spec.clone()
    };
    spec.window_bytes.is_some() && without == *judged
}

/// All tests that asked for one window.
struct Size {
    asked_bytes: u64,
    allowed_bits_per_s: Estimate,
    rates: Estimate,
}

impl Size {
    /// Judged on all its tests: one that a busy host held back looks as if its window had left room.
    fn is_roomy(&self) -> bool {
        self.allowed_bits_per_s.median > self.rates.median * ROOMY
    }
}

/// By size, the narrowest first.
fn sizes(tried: &[WideRun]) -> Vec<Size> {
    let mut sizes: BTreeMap<u64, Vec<WideRun>> = BTreeMap::new();
    for run in tried {
        sizes.entry(run.asked_bytes).or_default().push(*run);
    }
    let size = |(asked_bytes, runs): (u64, Vec<WideRun>)| {
        let of = |figure: fn(&WideRun) -> f64| {
            Estimate::of(&runs.iter().map(figure).collect::<Vec<f64>>())
        };
        let (allowed_bits_per_s, rates) =
            (of(|run| run.allowed_bits_per_s)?, of(|run| run.rate_bits_per_s)?);
        Some(Size { asked_bytes, allowed_bits_per_s, rates })
    };
    sizes.into_iter().filter_map(size).collect()
}

/// The best that was reached where the window left room: its size in bytes and the rates. Each size
/// counts with its median.
pub(super) fn unheld(tried: &[WideRun]) -> Option<(u64, Estimate)> {
    let roomy = sizes(tried).into_iter().filter(Size::is_roomy);
    let best = roomy.max_by(|a, b| a.rates.median.total_cmp(&b.rates.median))?;
    Some((best.asked_bytes, best.rates))
}

/// The window the next test should ask for, bytes; `None` when nothing more is to be learned.
///
/// Whatever the tests show, this comes to an end: a window is asked for [`REPEATS`] times at most, and
/// one that was not asked for before is wider than all that were.
pub(super) fn next_window_bytes(seen: &Seen<'_>) -> Option<u64> {
    let next = wanted_bytes(seen)?;
    // Also counted are tests that did not tell what window they had.
    (seen.asked_count(next) < REPEATS as usize).then_some(next)
}

fn wanted_bytes(seen: &Seen<'_>) -> Option<u64> {
    let widest = widest_bytes(seen)?;
    if let Some((asked, rates)) = unheld(&seen.tried) {
        return (rates.count < REPEATS).then_some(asked);
    }
    let begin = seen.rate * seen.rtt_s? / 8.0;
    let sizes = sizes(&seen.tried);
    let Some((last, before)) = sizes.split_last() else {
        return Some(round_up(begin * STEP).min(widest));
    };
    // Refused (the kernel gave no wider one), at the end, or no longer followed.
    let before = before.last().map_or(seen.rate, |size| size.rates.median);
    let follows = last.rates.median > before * ROOMY;
    (last.asked_bytes < widest && follows)
        .then(|| round_up(last.asked_bytes as f64 * STEP).min(widest))
}
