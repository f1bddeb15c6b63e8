//! A rate that nothing lifts: what one stream, several streams and UDP reach at most.

use units::{show_bit_rate, show_seconds, show_share};

use super::losses::late_by;
use crate::ceiling::{ETHERNET_WIRE_BYTES, goodput_ceiling};
use crate::numbers::{at_least, fine_percent, percent, positive};
use crate::observed::{Observed, opposite};
use crate::symptoms::names;
use crate::thresholds::{Fitted, path, signs};

/// Highest throughput of one stream or several, bit/s.
pub(super) fn best(seen: &Observed<'_>) -> f64 {
    seen.together_bits_per_s().map_or(seen.rate(), |together| together.max(seen.rate()))
}

/// Confidence, 0 to 1, that throughput stands at a rate that nothing lifts.
pub(super) fn plateau(seen: &Observed<'_>) -> f64 {
    let streams =
        seen.streams_gain_reaches(seen.fit[Fitted::MoreStreams]).map(|lifted| 1.0 - lifted);
    let (by_streams, by_udp) = (streams, udp_meets_it(seen));
    let tried = match (by_streams, by_udp) {
        (Some(streams), Some(udp)) => streams * udp,
        (Some(streams), None) => path::PLATEAU_BY_ONE * streams,
        (None, Some(udp)) => path::PLATEAU_BY_ONE * udp,
        (None, None) => path::PLATEAU_UNTRIED + path::PLATEAU_BY_QUEUE * seen.queue(),
    };
    tried.max(queued_rate(seen))
}

/// Confidence, 0 to 1, that packets wait before a rate: UDP is offered more, delivers what TCP does and loses the rest, and
/// TCP's round trips grow. What several streams gain may be the rate's burst.
fn queued_rate(seen: &Observed<'_>) -> f64 {
    let lost = seen.shown().path(names::UDP_LOST);
    let gain = seen.shown().path(names::UDP_GAIN);
    let (Some(lost), Some(gain), Some(_)) = (lost, gain, udp_over_best(seen)) else { return 0.0 };
    let grown = seen.shown().path_reaches(names::QUEUE_GROWTH, signs::QUEUE_GROWTH);
    let longer = seen.shown().path_reaches(names::QUEUE_DELAY, signs::QUEUE_DELAY_S);
    path::PLATEAU_BY_ONE
        * path::POLICED_UDP_LOST.of(lost)
        * path::ENDS_APART.not(gain.ln().abs())
        * grown.unwrap_or(0.0)
        * longer.unwrap_or(0.0)
        * seen.streams_gain().map_or(1.0, |gain| path::BURST_GAIN.not(gain))
}

/// The same of a rate above which packets are dropped at once: drops keep TCP below that rate, so that UDP may deliver
/// more, up to the rate, if it loses the excess.
pub(super) fn plateau_of_drops(seen: &Observed<'_>) -> f64 {
    let streams =
        seen.streams_gain_reaches(seen.fit[Fitted::MoreStreams]).map_or(0.0, |lifted| 1.0 - lifted);
    let exceeded = exceeds(seen).map_or(0.0, |_| path::PLATEAU_BY_ONE);
    plateau(seen).max(streams * exceeded)
}

/// What UDP delivered when a part of it was lost on the path though TCP's best was below that, bit/s.
pub(super) fn exceeds(seen: &Observed<'_>) -> Option<f64> {
    let lost = seen.shown().path(names::UDP_LOST_ON_PATH)?;
    let delivered = seen.shown().path(names::UDP_DELIVERED)?;
    let is_lossy = path::UDP_LOST.of(lost) > signs::LIKELY;
    (is_lossy && delivered > best(seen)).then_some(delivered)
}

/// What UDP delivered over the best of TCP; `None` if UDP was sent no faster and delivered no more, which shows
/// nothing.
pub(crate) fn udp_over_best(seen: &Observed<'_>) -> Option<f64> {
    let best = best(seen);
    let over = seen.shown().path(names::UDP_DELIVERED)? / best;
    let is_pushed = seen.shown().path(names::UDP_SENT)? > best * path::UDP_PUSHED;
    (is_pushed || over > path::UDP_PUSHED).then_some(over)
}

/// Confidence, 0 to 1, that UDP meets the same ceiling; `None` if its rate was too low to tell.
fn udp_meets_it(seen: &Observed<'_>) -> Option<f64> {
    let over = udp_over_best(seen)?;
    let above = seen.fit[Fitted::UdpAbove].not(over);
    // Sent faster, about as much delivered, the rest lost: the same ceiling.
    let lost = seen.shown().path(names::UDP_LOST_ON_PATH);
    let lost = lost.map_or(0.0, |lost| path::UDP_LOST.of(lost));
    let delivered_alike = path::UDP_ALIKE.of(over);
    Some(above * at_least(path::UDP_UNLOST, lost) * at_least(path::UDP_UNLIKE, delivered_alike))
}

pub(super) fn plateau_evidence(seen: &Observed<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let streams = seen.shown().path(names::STREAMS).zip(seen.together_bits_per_s());
    if let (Some(gain), Some((streams, together))) = (seen.streams_gain(), streams) {
        lines.push(format!(
            "{streams:.0} streams carry {} together, one {} ({gain:.2} times)",
            show_bit_rate(together),
            show_bit_rate(seen.rate())
        ));
    }
    let of_path = |name: &str| seen.shown().path(name);
    if let (Some(sent), Some(delivered), Some(lost)) =
        (of_path(names::UDP_SENT), of_path(names::UDP_DELIVERED), of_path(names::UDP_LOST))
    {
        let place = seen.shown().place_of_udp_losses();
        lines.push(udp_words(sent, delivered, lost, place) + &waited_words(seen));
    }
    lines.extend(seen.round_trip_words());
    let again = seen.shown().sender(names::RETRANSMIT_SHARE);
    if let Some(share) = again.filter(|share| *share > 0.0) {
        lines.push(format!("{} of the segments retransmitted", fine_percent(share)));
    }
    lines
}

/// What became of UDP, in words: rates in bit/s, the share that was lost and its place. What neither arrived nor was
/// lost is named, because the three figures would contradict each other without it.
fn udp_words(sent: f64, delivered: f64, lost: f64, place: &str) -> String {
    let mut line = format!(
        "UDP offered {}: {} delivered, {} lost {place}",
        show_bit_rate(sent),
        show_bit_rate(delivered),
        show_share(lost),
    );
    let late = 1.0 - lost - delivered / sent;
    if late > path::UDP_LATE_SHOWN {
        line += &format!("; the remaining {} was still queued when the test ended", percent(late));
    }
    line
}

/// Whether datagrams waited on their way, in words; nothing where it is not known, or hosts alone may have kept them.
fn waited_words(seen: &Observed<'_>) -> String {
    let waited_s = seen.shown().path(names::UDP_WAITED);
    let Some((waited_s, base_s)) = waited_s.zip(seen.base_rtt_s) else { return String::new() };
    let told = show_seconds(waited_s);
    match late_by(waited_s, base_s) {
        1.0.. => format!("; those that arrived had waited {told} in a queue"),
        ..=0.0 => format!("; those that arrived had hardly waited ({told})"),
        _uncertain => String::new(),
    }
}

/// Confidence, 0 to 1, that the ceiling is an interface's own line rate.
pub(super) fn at_the_line(seen: &Observed<'_>) -> f64 {
    let ends = [seen.sender.end, opposite(seen.sender.end)];
    // Several streams come closer to the line rate than one.
    let most = best(seen);
    let reached = ends.into_iter().filter_map(|end| {
        let line = positive(seen.interface(end)?.speed_bits_per_s?)?;
        Some(most / goodput_ceiling(seen, line, ETHERNET_WIRE_BYTES)?)
    });
    reached.fold(0.0, |most, reached| {
        most.max(path::LINE_REACHED.of(reached) * path::LINE_EXCEEDED.not(reached))
    })
}

#[cfg(test)]
mod tests {
    use super::udp_words;

    #[test]
    fn udp_that_neither_arrived_nor_was_lost_is_accounted_for() {
        let queued = udp_words(1e9, 8.5e8, 0.0, "on the path");
        assert!(
            queued.ends_with(
                "0% lost on the path; the remaining 15% was still queued when the test ended"
            ),
            "{queued}"
        );
        // What was lost is no second time missing.
        let lost = udp_words(1e9, 8.5e8, 0.14, "on the path");
        assert_eq!(lost, "UDP offered 1.00 Gbit/s: 850 Mbit/s delivered, 14.0% lost on the path");
    }
}
