//! What a recording shows, in sentences.

use results::Absent;
use units::{
    saturating_u64, show_bit_rate, show_byte_size, show_count, show_count_of, show_seconds,
};

use crate::SEGMENTS_MAX;
use crate::document::NS;
use crate::flow::{Flow, Syn};
use crate::halves::Vantage;
use crate::ss::Samples;
use crate::trace::{Span, Trace};

/// A stable name and a sentence.
type Line = (&'static str, String);

/// Bytes that TCP's timestamps take of each segment (RFC 7323).
const TIMESTAMP_BYTES: u64 = 12;

/// Groups of spans whose throughputs are compared, at most.
const GROUPS_MAX: usize = 10;

/// Share of idle time that is worth a sentence.
const IDLE_TOLD_MIN: f64 = 0.05;

/// The sentences of a capture.
pub(crate) fn of_capture(flow: &Flow, trace: &Trace) -> Vec<Line> {
    let mut lines = vec![("taken-at", taken_at(trace))];
    lines.extend(round_trips(trace));
    lines.extend(windows(flow, trace));
    lines.extend(idle(trace));
    lines.push(("losses", losses(flow, trace)));
    lines.extend(acknowledgements(flow, trace));
    lines.push(("segments", segments(flow, trace)));
    lines.extend(plateau(trace));
    lines.extend(limits_of_the_file(flow, trace));
    lines
}

fn taken_at(trace: &Trace) -> String {
    let (there, here) = trace.halves.shortest();
    let (Some(there), Some(here)) = (there, here) else {
        return "taken at an unknown place: neither the handshake nor timestamps show the round trip to \
                the sender; the near host is the sender of the data"
            .to_owned();
    };
    let place = match trace.vantage {
        Vantage::Sender => "at the sender of the data (the near host)",
        Vantage::Receiver => "at the receiver of the data (the far host)",
        Vantage::Middle => "between the sender of the data (the near host) and its receiver",
        Vantage::Unknown => "at an unknown place: the path is too short to tell",
    };
    format!(
        "taken {place}: {} to the receiver and back, {} to the sender and back",
        seconds(there),
        seconds(here)
    )
}

fn round_trips(trace: &Trace) -> Option<Line> {
    let mut seen: Vec<u64> = trace.steady().iter().filter_map(|span| span.rtt_ns).collect();
    seen.sort_unstable();
    let (least, most) = (*seen.first()?, *seen.last()?);
    let shortest = seconds(trace.rtt_min_ns?);
    let middle = seen[seen.len() / 2];
    let text = format!(
        "round trips: minimum {shortest}; while data flowed median {} ({} .. {})",
        seconds(middle),
        seconds(least),
        seconds(most)
    );
    Some(("round-trips", text))
}

fn windows(flow: &Flow, trace: &Trace) -> Vec<Line> {
    let filled: Vec<(u64, u64)> = trace.steady().iter().filter_map(|span| span.in_flight).collect();
    let in_flight = middle(filled.iter().map(|fill| fill.0));
    if !flow.is_scale_known() {
        let least = in_flight.map(|bytes| {
            format!("; {} in flight were allowed, so it is at least that", size(bytes))
        });
        let text = format!(
            "the receiver's window cannot be read: its scale is in the SYN packets, which were not \
             captured, or not whole{}",
            least.unwrap_or_default()
        );
        return vec![("window", text)];
    }
    let mut lines = Vec::new();
    let scale = match flow.window_shift() {
        Some(shift) => format!("scaled by 2^{shift}, as the SYN packets say"),
        None => format!("not scaled: {}", who_does_not_scale(flow)),
    };
    if let Some(window) = middle(filled.iter().map(|fill| fill.1)) {
        lines.push(("window", format!("the receiver's window: {}, {scale}", size(window))));
    }
    if let Some(in_flight) = in_flight {
        let shares = filled.iter().filter(|fill| fill.1 > 0);
        let share = middle(shares.map(|(bytes, window)| bytes * 1000 / window));
        let share = share.map(|share| format!(", {} of the window", percent(share as f64 / 1e3)));
        let text = format!("in flight: {}{}", size(in_flight), share.unwrap_or_default());
        lines.push(("in-flight", text));
    }
    if trace.counts.zero_windows_count > 0 {
        let times = show_count_of(trace.counts.zero_windows_count, "time");
        let text = format!("the receiver closed its window {times}: its reader is slow");
        lines.push(("zero-windows", text));
    }
    lines
}

fn who_does_not_scale(flow: &Flow) -> &'static str {
    let lacks = |syn: Option<Syn>| syn.is_some_and(|syn| syn.window_shift.is_none());
    match (lacks(flow.sender_syn), lacks(flow.receiver_syn)) {
        (true, true) => "neither SYN asks for it, or something between took it out",
        (true, false) => {
            "the sender's SYN does not ask for it, or something before here took it out"
        }
        _ => "the receiver's SYN does not ask for it, or something before here took it out",
    }
}

fn idle(trace: &Trace) -> Option<Line> {
    let share = trace.idle_ns as f64 / (trace.to_ns - trace.from_ns).max(1) as f64;
    let text = format!(
        "the sender had nothing outstanding {} of the time, though the window was open: its \
         application wrote nothing",
        percent(share)
    );
    (share >= IDLE_TOLD_MIN).then_some(("idle", text))
}

fn losses(flow: &Flow, trace: &Trace) -> String {
    let counts = &trace.counts;
    let new_segments = trace.sent_bytes as f64 / payload_mss(flow, trace).max(1) as f64;
    let late = match counts.late_count {
        0 => String::new(),
        count => format!("; {} arrived out of order", show_count_of(count, "packet")),
    };
    if counts.retransmits_count == 0 {
        return format!("losses: no retransmissions{late}");
    }
    let again = counts.retransmits_count as f64;
    let beyond = counts.retransmits_count - counts.lost_before_count;
    let place = match trace.vantage {
        Vantage::Sender => String::new(),
        _ => format!(
            "; the first copy of {} did not pass this point, that of {} did",
            show_count(counts.lost_before_count as f64),
            show_count(beyond as f64)
        ),
    };
    let timeouts = match counts.timeouts_count {
        0 => String::new(),
        count => format!(", {} after a timeout", show_count(count as f64)),
    };
    let needless = match counts.needless_count {
        0 => String::new(),
        count => format!("; {} were spurious (D-SACK)", show_count(count as f64)),
    };
    format!(
        "losses: {} ({} of the segments sent), in {}{timeouts}{place}{needless}{late}",
        show_count_of(counts.retransmits_count, "retransmission"),
        percent(again / (new_segments + again).max(1.0)),
        show_count_of(counts.loss_events_count, "event")
    )
}

fn acknowledgements(flow: &Flow, trace: &Trace) -> Option<Line> {
    let counts = &trace.counts;
    let gap = |share: usize| {
        let gaps = &trace.ack_gaps_ns;
        gaps.get((gaps.len() * share / 100).min(gaps.len().checked_sub(1)?)).copied()
    };
    let acks = (counts.acks_count > 0).then_some(counts.acks_count as f64)?;
    let mss = payload_mss(flow, trace).max(1) as f64;
    let text = format!(
        "acknowledgements: one per {:.1} segments, at most {} each; median gap {}, p99 {}",
        trace.acked_bytes as f64 / mss / acks,
        size(counts.largest_acked_bytes),
        seconds(gap(50)?),
        seconds(gap(99)?)
    );
    Some(("acknowledgements", text))
}

fn segments(flow: &Flow, trace: &Trace) -> String {
    let largest = trace.counts.largest_payload_bytes;
    let mss = payload_mss(flow, trace);
    let told = match (mss_told(flow.sender_syn), mss_told(flow.receiver_syn)) {
        (Some(sender), Some(receiver)) => {
            format!("MSS {sender} in the sender's SYN, {receiver} in the receiver's; ")
        }
        _ => String::new(),
    };
    let joined = if largest > mss {
        " (the capture saw segments joined, before the device cut them or after it joined them)"
    } else {
        ""
    };
    let sack = match (flow.sender_syn, flow.receiver_syn) {
        (Some(sender), Some(receiver)) if !(sender.may_sack && receiver.may_sack) => {
            "; no selective acknowledgements were agreed on"
        }
        _ => "",
    };
    format!(
        "segments: {told}{mss} bytes of payload each, {largest} in the largest packet{joined}{sack}"
    )
}

fn mss_told(syn: Option<Syn>) -> Option<u16> {
    syn.and_then(|syn| syn.mss_bytes)
}

/// Payload of a full segment: what the SYN packets allow, else the largest packet.
pub(crate) fn payload_mss(flow: &Flow, trace: &Trace) -> u64 {
    let largest = trace.counts.largest_payload_bytes;
    let (sender, receiver) = (mss_told(flow.sender_syn), mss_told(flow.receiver_syn));
    let Some(mss) = sender.into_iter().chain(receiver).min() else {
        // A packet longer than an Ethernet's largest is several joined.
        return largest.min(if largest > 9000 { 1448 } else { largest });
    };
    let has_timestamps = [flow.sender_syn, flow.receiver_syn]
        .into_iter()
        .all(|syn| syn.is_some_and(|syn| syn.has_timestamps));
    let overhead = if has_timestamps { TIMESTAMP_BYTES } else { 0 };
    u64::from(mss).saturating_sub(overhead).min(largest.max(1))
}

fn plateau(trace: &Trace) -> Vec<Line> {
    let steady = trace.steady();
    // A recovery holds acknowledgements back for some round trips: groups of spans are longer.
    let groups: Vec<&[Span]> = steady.chunks(steady.len().div_ceil(GROUPS_MAX).max(1)).collect();
    if groups.len() < 4 {
        let text = "too short for a plateau: fewer than four round trips after the start";
        return vec![("plateau", text.to_owned())];
    }
    let rates: Vec<f64> = groups.iter().map(|group| rate(group, |span| span.acked_bytes)).collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let square = |rate: &f64| (rate - mean) * (rate - mean);
    let deviation = (rates.iter().map(square).sum::<f64>() / rates.len() as f64).sqrt();
    let third = rates.len() / 3;
    let of = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let growth = of(&rates[rates.len() - third..]) / of(&rates[..third]).max(1.0);
    let length_ns: u64 = groups[0].iter().map(|span| span.end_ns - span.start_ns).sum();
    let text = format!(
        "throughput: {} after the start, {} standard deviation between spans of {}; the last third \
         is {growth:.2} times the first",
        show_bit_rate(mean),
        percent(deviation / mean.max(1.0)),
        seconds(length_ns)
    );
    let mut lines = vec![("plateau", text)];
    if trace.vantage == Vantage::Receiver {
        let mut came: Vec<f64> =
            groups.iter().map(|group| rate(group, |span| span.passed_bytes)).collect();
        came.sort_unstable_by(f64::total_cmp);
        let text = format!(
            "payload arrived at a median of {} ({} .. {}); behind a rate-limited queue it arrives \
             evenly, whatever is lost or retransmitted",
            show_bit_rate(came[came.len() / 2]),
            show_bit_rate(came[0]),
            show_bit_rate(came[came.len() - 1])
        );
        lines.push(("arrivals", text));
    }
    lines
}

/// What of some spans a second, bit/s.
fn rate(spans: &[Span], bytes: impl Fn(&Span) -> u64) -> f64 {
    let whole: u64 = spans.iter().map(bytes).sum();
    let ns: u64 = spans.iter().map(|span| span.end_ns - span.start_ns).sum();
    whole as f64 * 8.0 / (ns.max(1) as f64 * NS)
}

fn limits_of_the_file(flow: &Flow, trace: &Trace) -> Vec<Line> {
    let mut lines = Vec::new();
    if flow.is_bounded {
        let text = format!(
            "only the first {} of the flow's {} were looked at ({SEGMENTS_MAX} packets)",
            size(flow.looked_bytes),
            size(flow.payload_bytes)
        );
        lines.push(("bounded", text));
    }
    if flow.flows_count > 1 {
        let text = format!(
            "the biggest of {} flows was taken; the others moved {} together",
            flow.flows_count,
            size(flow.other_bytes)
        );
        lines.push(("others", text));
    }
    if trace.counts.missed_bytes > 0 {
        let text = format!(
            "the capture missed {} that were acknowledged: packets dropped by the capture, not by \
             the path",
            size(trace.counts.missed_bytes)
        );
        lines.push(("missed", text));
    }
    if flow.copies_count > 0 {
        let count = show_count(flow.copies_count as f64);
        lines.push(("copies", format!("{count} packets were captured twice and counted once")));
    }
    lines.extend(flow.damage.map(|damage| ("damage", damage.to_string())));
    lines
}

/// What the window needs and the capture lacks.
pub(crate) fn missing_syn() -> Absent {
    Absent {
        what: "the receiver's window".to_owned(),
        why: "both SYN packets are needed for its scale: start the capture before the connection, \
              and take 128 bytes of each packet (tcpdump -s 128)"
            .to_owned(),
    }
}

/// The sentences of `ss` samples.
pub(crate) fn of_samples(samples: &Samples, bits_per_s: f64) -> Vec<Line> {
    let end = if samples.is_sender { "sender" } else { "receiver" };
    let mut lines = vec![(
        "taken-at",
        format!(
            "{} of ss, taken at the {end} of the data (the near host): {} -> {}",
            match samples.rows.len() {
                1 => "one sample".to_owned(),
                count => format!("{count} samples"),
            },
            samples.local,
            samples.remote
        ),
    )];
    if !samples.is_timed {
        let text = format!(
            "no time stands before the samples: {} is the acknowledged data over the time with \
             data outstanding (busy), which is an upper bound of the rate",
            show_bit_rate(bits_per_s)
        );
        lines.push(("untimed", text));
    }
    lines.extend(samples.damage.as_ref().map(|damage| ("damage", damage.to_string())));
    if samples.others_count > 0 {
        let text = format!("the busiest of {} connections was taken", samples.others_count + 1);
        lines.push(("others", text));
    }
    lines
}

/// What samples of `ss` leave open, by the end they were taken at.
pub(crate) fn absent_of_samples(samples: &Samples) -> Vec<(&'static str, &'static str)> {
    let mut absent = Vec::new();
    if !samples.is_sender {
        absent.push((
            "windows, round trips and losses of the sender",
            "ss ran at the receiver, whose kernel does not know them: take samples at the sender",
        ));
    }
    if samples.rows.iter().all(|row| row.number("snd_wnd").is_none()) && samples.is_sender {
        absent.push((
            "the receiver's window",
            "this ss or kernel does not tell it (snd_wnd, iproute2 5.3 or later)",
        ));
    }
    absent
}

fn middle(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    let at = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(at).1)
}

fn size(bytes: u64) -> String {
    show_byte_size(bytes)
}

fn seconds(ns: u64) -> String {
    show_seconds(ns as f64 * NS)
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 {
        format!("{percent:.1}%")
    } else {
        format!("{}%", saturating_u64(percent.round()))
    }
}
