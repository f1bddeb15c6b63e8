//! Other traffic on the interfaces of the two hosts.

use super::plateau::plateau;
use crate::numbers::ratio;
use crate::observed::{HostView, Observed};
use crate::symptoms::names;
use crate::thresholds::path;

/// Confidence, 0 to 1, that other traffic takes a considerable part of what an interface carries.
pub(super) fn others_share(seen: &Observed<'_>) -> f64 {
    let others = most_other(seen).and_then(|(_, other)| ratio(other, with_others(seen)?));
    path::OTHERS_SHARE.of(others.unwrap_or(0.0))
}

/// The end whose interface carried more other traffic the same way, and how much, bit/s.
pub(super) fn most_other<'s, 'a>(seen: &'s Observed<'a>) -> Option<(&'s HostView<'a>, f64)> {
    let sent = seen.shown().path(names::SENDER_OTHERS).map(|other| (&seen.sender, other));
    let received = seen.shown().path(names::RECEIVER_OTHERS).map(|other| (&seen.receiver, other));
    sent.into_iter().chain(received).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// What the test and other traffic carried together, bit/s: that of each repeat belongs together, as one may get little
/// and another most of the same line.
pub(super) fn with_others(seen: &Observed<'_>) -> Option<f64> {
    seen.shown().path(names::WITH_OTHERS)
}

/// Confidence, 0 to 1, that the test shares a line or a rate with other traffic that the hosts see.
pub(super) fn shares(seen: &Observed<'_>) -> f64 {
    let Some(((host, _), together)) = most_other(seen).zip(with_others(seen)) else { return 0.0 };
    // More than the line carries: the device's speed is not that of this direction.
    let fills =
        |of_line: f64| path::OTHERS_FILL_LINE.of(of_line) * path::LINE_EXCEEDED.not(of_line);
    let line = seen.line_goodput(host.end).map_or(0.0, |line| fills(together / line));
    let held = line.max(path::OTHERS_AT_RATE * plateau_with_others(seen));
    others_share(seen) * held
}

/// Confidence in a plateau, 0 to 1. Other traffic also fills queues, so longer round trips count nearly as much.
fn plateau_with_others(seen: &Observed<'_>) -> f64 {
    plateau(seen).max(path::OTHERS_QUEUE * seen.queue())
}
