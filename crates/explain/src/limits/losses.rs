//! What losses, marks and late packets mean to the congestion window, and where they come from.

use results::QdiscCounters;

use super::causes::explains_losses;
use super::others::others_share;
use super::plateau::udp_over_best;
use crate::ceiling::{ETHERNET_QDISC_BYTES, goodput_ceiling};
use crate::numbers::{positive, ratio};
use crate::observed::{HostView, Observed};
use crate::symptoms::names;
use crate::thresholds::{Fitted, hosts, path, signs};

/// Linux's congestion control, where the sender does not tell its own.
const USUAL_ALGORITHM: &str = "cubic";

/// The sender's congestion control: what its kernel reports or, if nobody reports that, what the test asked of it.
pub(super) fn algorithm<'s>(seen: &'s Observed<'_>) -> Option<&'s str> {
    seen.setup.congestion_control.as_deref().or(seen.spec.congestion_control.as_deref())
}

/// Segments retransmitted in all repeats.
pub(super) fn retransmits_count(seen: &Observed<'_>) -> Option<f64> {
    seen.shown().sender_events(names::RETRANSMITTED)
}

/// What a share of retransmitted segments of 0 says, which is the median of the repeats.
pub(super) fn none_again(seen: &Observed<'_>) -> &'static str {
    match retransmits_count(seen) {
        Some(count) if count > 0.0 => "at least half of the repeats retransmitted nothing",
        _ => "no segment was retransmitted",
    }
}

/// Segments retransmitted, of those sent, 0 to 1; 0 where that is not known.
pub(super) fn retransmit_share(seen: &Observed<'_>) -> f64 {
    seen.shown().sender(names::RETRANSMIT_SHARE).unwrap_or(0.0)
}

/// Throughput at which the algorithm in use settles for a share of lost segments, bit/s; `None` for BBR,
/// which does not treat loss as congestion.
pub(super) fn law(seen: &Observed<'_>, lost_share: f64) -> Option<f64> {
    let name = algorithm(seen).unwrap_or(USUAL_ALGORITHM);
    if name.starts_with("bbr") {
        return None;
    }
    let lost = positive(lost_share)?;
    let of_sender = seen.shown().sender(names::SEGMENT_PAYLOAD);
    let mss_bytes = of_sender.or_else(|| seen.shown().receiver(names::RECEIVER_SEGMENT_PAYLOAD))?;
    let rtt_s = seen.base_rtt_s?;
    let reno_segments = path::MATHIS / lost.sqrt();
    let cubic_segments = path::CUBIC * (rtt_s / lost).powf(path::CUBIC_POWER);
    let segments = if name == "reno" { reno_segments } else { cubic_segments.max(reno_segments) };
    positive(segments * mss_bytes * 8.0 / rtt_s * seen.streams())
}

/// Confidence, 0 to 1, that the losses come from a queue that overflows at some rate.
pub(super) fn overflow(seen: &Observed<'_>) -> f64 {
    let plateau = match seen.streams_gain() {
        Some(gain) => signs::MORE_STREAMS_AND_LOSS.not(gain),
        None => 0.0,
    };
    // Where UDP passes what no number of streams exceeds, that is no rate: all streams answer to the same signals.
    (plateau * (1.0 - udp_passes(seen))).max(seen.queue())
}

/// Confidence, 0 to 1, that UDP delivered more than the best of TCP, and hardly lost any of it.
fn udp_passes(seen: &Observed<'_>) -> f64 {
    let lost = seen.shown().path(names::UDP_LOST);
    let (Some(lost), Some(over)) = (lost, udp_over_best(seen)) else { return 0.0 };
    seen.fit[Fitted::UdpAbove].of(over) * path::UDP_LOST.not(lost)
}

/// Share of UDP's datagrams lost, 0 to 1; `None` if it was not tried, or lost some of what was offered faster than the
/// sender's line carries: then what exceeds the line is lost, and hides what else is.
pub(super) fn udp_lost(seen: &Observed<'_>) -> Option<f64> {
    let lost = seen.shown().path(names::UDP_LOST)?;
    let line = seen.line_goodput(seen.sender.end);
    let offered = seen.shown().path(names::UDP_SENT);
    let exceeds = line.zip(offered).is_some_and(|(line, offered)| offered > line);
    (!exceeds || lost == 0.0).then_some(lost)
}

/// Confidence, 0 to 1, that UDP loses far less than what takes TCP's segments would take at random.
pub(super) fn udp_is_spared(seen: &Observed<'_>) -> f64 {
    let (Some(lost), Some(sent)) = (udp_lost(seen), seen.shown().path(names::UDP_COUNT)) else {
        return 0.0;
    };
    let Some(again) = positive(retransmit_share(seen)) else { return 0.0 };
    // Losses in bursts are as many events as there are bursts.
    let events = seen.shown().sender(names::LOSS_EVENT_SHARE);
    let events = events.map_or(again, |events| events.min(again));
    path::UDP_LOSS_EXPECTED.of(sent * events) * path::LOST_OF_AGAIN.times(again).not(lost)
}

/// Spurious retransmissions as a share of all, 0 to 1: the larger of what the receiver reports (D-SACK)
/// and of what UDP suggests, if it arrives late about as often and is hardly ever lost.
pub(crate) fn mistaken(seen: &Observed<'_>) -> f64 {
    let told = seen.shown().sender(names::NEEDLESS_SHARE).unwrap_or(0.0);
    let again = again_or_before(seen);
    let late = seen.shown().path(names::UDP_LATE).filter(|_| again > 0.0);
    let late = late.map_or(0.0, |late| {
        let unlost = udp_lost(seen).map_or(1.0, |lost| path::LOST_OF_AGAIN.times(again).not(lost));
        unlost * path::LATE_OF_AGAIN.times(again).of(late)
    });
    told.max(late)
}

/// Share of segments that were retransmitted, 0 to 1; where none were, of those whose loss before the measured time
/// still holds the window down.
fn again_or_before(seen: &Observed<'_>) -> f64 {
    let again = retransmit_share(seen);
    if again > 0.0 || lost_before(seen) < signs::LIKELY {
        return again;
    }
    let before = seen.shown().sender(names::RETRANSMITTED_BEFORE).unwrap_or(0.0);
    seen.segments().and_then(|all| ratio(before, all)).unwrap_or(0.0)
}

/// Confidence, 0 to 1, that congestion control responded to marks.
pub(super) fn marks(seen: &Observed<'_>) -> f64 {
    let of_all = seen.shown().sender(names::MARKED_SHARE).unwrap_or(0.0);
    let count = seen.shown().sender_events(names::MARKED_SEGMENTS).unwrap_or(0.0);
    (path::MARKED_SHARE.of(of_all) * path::MARKED_COUNT.of(count)).max(marked_before(seen))
}

/// Confidence, 0 to 1, that marks before the measured time cut the congestion window, which has not grown back since: no
/// other signal has cut it.
pub(super) fn marked_before(seen: &Observed<'_>) -> f64 {
    let before = seen.shown().sender(names::MARKED_BEFORE).unwrap_or(0.0);
    path::MARKED_COUNT.of(before) * cut_before(seen)
}

/// Confidence, 0 to 1, that losses before the measured time cut the congestion window, which has not grown back since,
/// though nothing waits and each further stream carries more: few losses hold down a window that grows slowly.
pub(super) fn lost_before(seen: &Observed<'_>) -> f64 {
    let before = seen.shown().sender(names::RETRANSMITTED_BEFORE).unwrap_or(0.0);
    if before < 1.0 || seen.setup.is_bbr() {
        return 0.0;
    }
    let lifted = seen.streams_gain_reaches(seen.fit[Fitted::MoreStreams]).unwrap_or(1.0);
    cut_before(seen) * lifted * (1.0 - waits(seen)) * (1.0 - several_wait(seen).unwrap_or(0.0))
}

/// Confidence, 0 to 1, that something cut the congestion window before the measured time, which has not grown back since,
/// and that no loss cut it during that time.
fn cut_before(seen: &Observed<'_>) -> f64 {
    let of_sender = |name: &str| seen.shown().sender(name);
    let regained = of_sender(names::CWND).zip(of_sender(names::THRESHOLD));
    let regained = regained.and_then(|(window, threshold)| ratio(window, threshold));
    let is_halved = algorithm(seen) == Some("reno");
    let range = if is_halved { path::REGAINED_HALF } else { path::REGAINED };
    let is_alone = retransmits_count(seen).unwrap_or(0.0) < signs::RETRANSMITS_MIN;
    regained.filter(|_| is_alone).map_or(0.0, |regained| range.not(regained))
}

/// Confidence, 0 to 1, that drops of the sender's own queue before the measured time cut the congestion window: neither a
/// loss nor a mark did, and the queue drops packets of several streams, too. TCP learns of such drops at once and
/// counts no retransmission.
pub(super) fn dropped_before(seen: &Observed<'_>) -> f64 {
    let of_sender = |name: &str| seen.shown().sender(name);
    let (Some(again), Some(marked)) =
        (of_sender(names::RETRANSMITTED_BEFORE), of_sender(names::MARKED_BEFORE))
    else {
        return 0.0;
    };
    let keeps_its_rate = || {
        let rate = seen.interface(seen.sender.end)?.qdisc_rate_bits_per_s?;
        Some(ratio(seen.together_bits_per_s()?, rate)? > hosts::KEEPS_ITS_RATE)
    };
    if again > 0.0 || marked > 0.0 || seen.setup.is_bbr() || keeps_its_rate() == Some(true) {
        return 0.0;
    }
    let dropped = seen.shown().path(names::STREAMS_QDISC_DROPS).unwrap_or(0.0);
    signs::DROPS_COUNT.of(dropped) * cut_before(seen) * (1.0 - waits(seen))
}

/// Confidence, 0 to 1, that retransmitted segments were not lost on the path: they were dropped in a
/// queue of a host that counts its drops, or not lost at all.
pub(super) fn elsewhere(seen: &Observed<'_>) -> f64 {
    let own =
        seen.sender.qdiscs().filter(|qdisc| !matches!(qdisc.kind.as_str(), "ingress" | "clsact"));
    let sent = own.map(|qdisc| qdisc.dropped_pkts).max().unwrap_or(0);
    let filtered =
        seen.receiver.qdiscs().filter(|qdisc| matches!(qdisc.kind.as_str(), "ingress" | "clsact"));
    let policed = filtered.map(|qdisc| qdisc.dropped_pkts).max().unwrap_or(0);
    let softnet = seen.receiver.counters.map_or(0, |counters| {
        counters.softnet.iter().fold(0, |sum: u64, core| sum.saturating_add(core.dropped_pkts))
    });
    let ring = seen.receiver.device().and_then(|device| device.rx_ring_overruns_count).unwrap_or(0);
    let counted = [sent, policed, softnet, ring].map(|drops| explains_losses(seen, drops));
    counted.into_iter().fold(seen.fit[Fitted::Mistaken].of(mistaken(seen)), f64::max)
}

/// Confidence, 0 to 1, that hundreds of segments in a row were lost in each loss event: what dropped them was full, and did
/// not choose at random.
pub(super) fn long_bursts(seen: &Observed<'_>) -> f64 {
    let events = seen.shown().sender(names::LOSS_EVENT_SHARE);
    let each = events.and_then(|events| ratio(retransmit_share(seen), events));
    each.map_or(0.0, |segments| path::LONG_BURSTS.of(segments))
}

/// Confidence, 0 to 1, that packets are dropped without a queue before them, those of one stream or of several: several
/// reach a rate that a single one is still growing to.
pub(super) fn drops_without_queue(seen: &Observed<'_>) -> f64 {
    let drops = seen.shown().sender_reaches(names::RETRANSMIT_SHARE, path::DROPS_UNQUEUED);
    let of_several = seen.shown().path(names::STREAMS_RETRANSMIT_SHARE);
    let of_several = of_several
        .zip(several_wait(seen))
        .map_or(0.0, |(share, waits)| path::DROPS_UNQUEUED.of(share) * (1.0 - waits));
    (1.0 - waits(seen)) * drops.unwrap_or(0.0).max(of_several)
}

/// Confidence, 0 to 1, that packets of several streams wait in a queue on the path; `None` where that was not seen.
pub(super) fn several_wait(seen: &Observed<'_>) -> Option<f64> {
    let receivers_s = || told_by_receiver(seen.shown().path(names::STREAMS_RECEIVER_RTT));
    let rtt_s = seen.shown().path(names::STREAMS_RTT).or_else(receivers_s)?;
    Some(waits_within(seen, Some(rtt_s)))
}

/// Confidence, 0 to 1, that round trips are many times longer under load, be it on the way out or back.
pub(super) fn late(seen: &Observed<'_>) -> f64 {
    let told = |name: &str, range| seen.shown().path_reaches(name, range).unwrap_or(0.0);
    told(names::QUEUE_GROWTH, path::LATE_GROWTH) * told(names::QUEUE_DELAY, seen.fit[Fitted::LateS])
}

/// Confidence, 0 to 1, that packets wait in a queue on the path.
pub(super) fn waits(seen: &Observed<'_>) -> f64 {
    match loaded_rtt_s(seen) {
        Some(rtt_s) => waits_within(seen, Some(rtt_s)),
        None => datagrams_wait(seen).unwrap_or(1.0),
    }
}

/// The same of datagrams that were sent faster than what all streams reach, and lost for it; `None` if that was not tried, or
/// their receiver tells no times.
fn datagrams_wait(seen: &Observed<'_>) -> Option<f64> {
    let lost = seen.shown().path(names::UDP_LOST_ON_PATH)?;
    udp_over_best(seen).filter(|_| path::UDP_LOST.of(lost) > signs::LIKELY)?;
    Some(late_by(seen.shown().path(names::UDP_WAITED)?, seen.base_rtt_s?))
}

/// Confidence, 0 to 1, that a queue makes packets so much later, seconds, on a path with this round trip.
pub(super) fn late_by(own_s: f64, base_s: f64) -> f64 {
    path::WAITS_S.plus(path::WAITS_OF_RTT.times(base_s)).of(own_s)
}

/// Round trip under load, seconds: the sender's or, of a sender that tells nothing, the receiver's. `None` where nobody
/// tells whether packets wait.
pub(crate) fn loaded_rtt_s(seen: &Observed<'_>) -> Option<f64> {
    let receivers_s = || told_by_receiver(seen.shown().receiver(names::RECEIVER_RTT));
    seen.shown().sender(names::RTT).or_else(receivers_s)
}

/// A receiver's round trip, seconds, if it is long against the steps in which it is counted.
fn told_by_receiver(rtt_s: Option<f64>) -> Option<f64> {
    rtt_s.filter(|rtt_s| *rtt_s >= path::RECEIVER_RTT_LEAST_S)
}

/// The same of a round trip under another load, seconds.
fn waits_within(seen: &Observed<'_>, rtt_s: Option<f64>) -> f64 {
    let (Some(rtt_s), Some(base_s)) = (rtt_s, seen.base_rtt_s) else { return 1.0 };
    // Busy hosts answer late on the idle path too, unless it was others' packets that these round trips waited for.
    let hosts_s = seen.shown().path(names::IDLE_RTT_P50).map_or(0.0, |idle_s| idle_s - base_s);
    let own_s = rtt_s - base_s - hosts_s.max(0.0) * (1.0 - others_share(seen));
    late_by(own_s, base_s)
}

/// Confidence, 0 to 1, that drops above one common rate, not random losses, keep a single stream down:
/// several streams, and UDP sent faster than that, end at the same throughput, and UDP loses the excess.
pub(super) fn common_ceiling(seen: &Observed<'_>) -> f64 {
    let of_path = |name: &str| seen.shown().path(name);
    // A receiver that does not tell where it lost datagrams would hardly have lost so many that the streams' rate is left.
    let lost = of_path(names::UDP_LOST_ON_PATH).or_else(|| of_path(names::UDP_LOST));
    let udp = of_path(names::UDP_DELIVERED).zip(lost);
    let (Some(together), Some((delivered, lost))) = (seen.together_bits_per_s(), udp) else {
        return 0.0;
    };
    if retransmits_count(seen).is_none_or(|count| count < signs::RETRANSMITS_MIN) {
        return 0.0;
    }
    let apart = (delivered / together).ln().abs();
    let again = retransmit_share(seen);
    // Random losses would take as large a share of UDP as of TCP.
    let beyond = path::POLICED_UDP_LOST.plus(path::POLICED_UDP_OF_TCP.times(again)).of(lost);
    // With random losses at this share no stream could be as fast: one burst above the rate was dropped.
    let too_fast = [Some(again), seen.shown().sender(names::LOSS_EVENT_SHARE)]
        .into_iter()
        .flatten()
        .filter_map(|share| law(seen, share))
        .reduce(f64::max)
        .map_or(0.0, |law| path::LAW_ABOVE.of((seen.rate() / law).ln()));
    let beyond = beyond.max(too_fast * path::POLICED_UDP_LOST.of(lost));
    let below_the_line = seen
        .line_goodput(seen.sender.end)
        .map_or(1.0, |line| path::BELOW_THE_LINE.not(together / line));
    path::ENDS_APART.not(apart)
        * beyond
        * below_the_line
        * seen.lifted_by_streams()
        * (1.0 - waits(seen))
}

/// Confidence, 0 to 1, that drops of the sender's own queue bind: drops of segments that were retransmitted,
/// and drops that TCP learned of at once. The latter never count as retransmissions, but shrink the
/// congestion window as a loss does.
pub(super) fn own_drops_bind(seen: &Observed<'_>) -> f64 {
    let dropped = short_queue(seen).map_or(0, |qdisc| qdisc.dropped_pkts) as f64;
    let told_at_once = seen
        .segments()
        .and_then(|all| law(seen, ratio(dropped, all)?))
        .map_or(0.0, |response| hosts::DROPS_AT_ONCE.not((seen.rate() / response).ln()));
    explains_losses(seen, dropped as u64)
        .max(told_at_once * hosts::DROPS_AT_ONCE_COUNT.of(dropped))
        .max(dropped_before(seen))
}

/// The sender's queueing discipline that dropped most, except one that holds a configured rate.
pub(super) fn short_queue<'a>(seen: &Observed<'a>) -> Option<&'a QdiscCounters> {
    let rate = seen.rate();
    let keeps_its_rate = |qdisc: &QdiscCounters| {
        let limits = [qdisc.rate_bits_per_s, qdisc.police_bits_per_s];
        limits
            .into_iter()
            .flatten()
            .any(|limit| ratio(rate, limit).is_some_and(|reached| reached > hosts::KEEPS_ITS_RATE))
    };
    let filters = |qdisc: &QdiscCounters| matches!(qdisc.kind.as_str(), "ingress" | "clsact");
    let own = seen.sender.qdiscs().filter(|qdisc| !filters(qdisc) && !keeps_its_rate(qdisc));
    own.max_by_key(|qdisc| qdisc.dropped_pkts)
}

/// A policer that a host reports in the judged direction: the sender's for outgoing packets, the
/// receiver's for incoming ones.
pub(super) fn host_policer<'s, 'a>(
    seen: &'s Observed<'a>,
) -> Option<(&'s HostView<'a>, &'a QdiscCounters)> {
    let drops = |qdisc: &&QdiscCounters| {
        qdisc.dropped_pkts > 0 && matches!(qdisc.kind.as_str(), "ingress" | "clsact")
            || qdisc.police_bits_per_s.is_some()
    };
    let leaving = |qdisc: &&QdiscCounters| {
        qdisc.parent == "egress" || !matches!(qdisc.kind.as_str(), "ingress" | "clsact")
    };
    let sender =
        seen.sender.qdiscs().filter(drops).find(leaving).map(|qdisc| (&seen.sender, qdisc));
    let receiver = seen
        .receiver
        .qdiscs()
        .filter(drops)
        .find(|qdisc| !leaving(qdisc))
        .map(|qdisc| (&seen.receiver, qdisc));
    receiver.or(sender)
}

/// What a policer that a host reports shows of itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct PolicerSigns {
    /// Throughput that its rate allows, bit/s.
    pub(super) goodput: Option<f64>,
    /// Throughput over that.
    pub(super) reached: Option<f64>,
    /// Confidence, 0 to 1, that it dropped enough to matter.
    pub(super) dropped: f64,
    /// Confidence, 0 to 1, that its rate is near. Loss keeps TCP below the rate, often far below; throughput far above
    /// it does not pass this policer.
    pub(super) near: f64,
    /// 1 if segments were retransmitted, or nobody knows.
    pub(super) again: f64,
}

impl PolicerSigns {
    pub(super) fn of(seen: &Observed<'_>, qdisc: &QdiscCounters) -> Self {
        let goodput = qdisc
            .police_bits_per_s
            .and_then(|rate| goodput_ceiling(seen, rate, ETHERNET_QDISC_BYTES));
        let reached = goodput.and_then(|goodput| ratio(seen.rate(), goodput));
        let near = match reached {
            Some(reached) => path::POLICED_NEAR.of(reached) * path::POLICED_EXCEEDED.not(reached),
            None => path::POLICED_RATE_UNKNOWN,
        };
        let few = retransmits_count(seen).is_some_and(|count| count < signs::RETRANSMITS_MIN);
        Self {
            goodput,
            reached,
            dropped: path::POLICED_DROPS.of(qdisc.dropped_pkts as f64),
            near,
            again: if few { 0.0 } else { 1.0 },
        }
    }
}

/// Confidence, 0 to 1, that a policer of a host drops what exceeds its rate.
pub(super) fn host_polices(seen: &Observed<'_>) -> f64 {
    host_policer(seen).map_or(0.0, |(_, qdisc)| {
        let PolicerSigns { dropped, near, again, .. } = PolicerSigns::of(seen, qdisc);
        dropped * near * again
    })
}
