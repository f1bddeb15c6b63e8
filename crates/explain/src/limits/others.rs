//! Other traffic on the interfaces of the two hosts.

use super::plateau::plateau;
use crate::ceiling::ETHERNET_QDISC_BYTES;
use crate::numbers::ratio;
use crate::observed::{HostView, Observed};
use crate::symptoms::names;
use crate::thresholds::path;

/// Confidence, 0 to 1, that other traffic takes a considerable part of what an interface carries.
pub(super) fn others_share(seen: &Observed<'_>) -> f64 {
    let others = most_other(seen).and_then(|(_, other)| ratio(other, seen.rate() + other));
    path::OTHERS_SHARE.of(others.unwrap_or(0.0))
}

/// The end whose interface carried more other traffic.
pub(super) fn most_other<'s, 'a>(seen: &'s Observed<'a>) -> Option<(&'s HostView<'a>, f64)> {
    let both = [&seen.sender, &seen.receiver].into_iter();
    let told = both.filter_map(|host| Some((host, other_bits_per_s(seen, host)?)));
    told.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Rate at which an end's interface carried bytes beyond those of the test, headers included, bit/s.
fn other_bits_per_s(seen: &Observed<'_>, host: &HostView<'_>) -> Option<f64> {
    let interface = host.interface()?;
    // On loopback the same device sends and receives everything.
    if interface.name == "lo" {
        return None;
    }
    let device = host.device()?;
    let sends = host.end == seen.sender.end;
    let bytes = if sends { device.tx_bytes } else { device.rx_bytes } as f64;
    let mss = seen.shown().sender(names::SEGMENT_PAYLOAD)?;
    let again = seen.shown().sender(names::RETRANSMIT_SHARE).unwrap_or(0.0);
    // Upper bound: every segment with its own headers, as a device counts them, and the retransmissions.
    let headers_bytes = f64::from(seen.headers().bytes()) + ETHERNET_QDISC_BYTES;
    let own =
        host.payload_bytes * (mss + headers_bytes) / mss * (1.0 + again) * path::OWN_BYTES_MOST;
    ratio((bytes - own).max(0.0) * 8.0, host.duration_s).or(Some(0.0))
}

/// Confidence, 0 to 1, that the test shares a line or a rate with other traffic that the hosts see.
pub(super) fn shares(seen: &Observed<'_>) -> f64 {
    let Some((host, other)) = most_other(seen) else { return 0.0 };
    let together = seen.rate() + other;
    let line =
        seen.line_goodput(host.end).map_or(0.0, |line| path::OTHERS_FILL_LINE.of(together / line));
    let held = line.max(path::OTHERS_AT_RATE * plateau_with_others(seen));
    others_share(seen) * held
}

/// Confidence in a plateau, 0 to 1. Other traffic also fills queues, so longer round trips count nearly as much.
fn plateau_with_others(seen: &Observed<'_>) -> f64 {
    plateau(seen).max(path::OTHERS_QUEUE * seen.queue())
}
