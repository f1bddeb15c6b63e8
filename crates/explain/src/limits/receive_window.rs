//! The receiver's window over the round-trip time.

use results::{Limit, SettingChange, TestSpec};
use units::{saturating_u64, show_bit_rate, show_byte_size, show_seconds};

use super::windows::{Autotuned, sysctl, window_law, window_law_off};
use super::{other_windows, several_streams};
use crate::advice::Advice;
use crate::buffers::Buffer;
use crate::experiment::{Experiment, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::numbers::{at_least, percent};
use crate::observed::{Observed, end_name};
use crate::symptoms::names;
use crate::thresholds::{Fitted, path, predictions, signs};
use crate::weighing::{self, Weighing};

#[derive(Debug)]
pub(crate) struct ReceiveWindow;

impl Mechanism for ReceiveWindow {
    fn limit(&self) -> Limit {
        Limit::ReceiveWindow
    }

    fn page(&self) -> Page {
        Page {
            title: "the receive window",
            ceiling: "the largest receive window that the kernel allows, divided by the round-trip time",
            mechanism: "A sender may have one receive window outstanding per round trip: T = window / RTT. \
                The window is what the receiving socket's buffer leaves free; the kernel tunes it up to \
                `net.ipv4.tcp_rmem`, an application that requests one gets at most `net.core.rmem_max`.",
            evidence: "TCP_INFO `tcpi_rwnd_limited` over `tcpi_busy_time` near 1; what is in flight fills \
                the advertised window, and in flight / RTT under load equals the throughput; the receive \
                queue is empty, so the reader keeps up; granted buffer against requested buffer.",
            against: "Unread data fills the receive queue (a slow reader or a full core); the round trip \
                grows under load while more streams carry no more (a queue on the path fills any window).",
            experiment: "A wider window: throughput follows the window that the kernel really granted, up to the \
                next ceiling; a gain below a quarter of that decides nothing. If it grants no wider window, half the \
                window: half the throughput.",
            advice: "Raise `net.ipv4.tcp_rmem` at the receiver so that it holds a window of twice the \
                bandwidth-delay product (about half of a buffer is window), or ask for no window and let \
                the kernel tune it.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let share = seen.receive_window_share();
        let fullness = seen.shown().receiver(names::SOCKET_FULLNESS);
        let slow_reader = seen.fit[Fitted::SlowReader].of(fullness.unwrap_or(0.0));
        let starved = seen.starved(&seen.receiver).unwrap_or(0.0)
            * path::READER_BUSY.of(fullness.unwrap_or(path::READER_UNKNOWN));
        // Without the receiver's report, a varying window is the only sign of a slow reader.
        let unsteady = if fullness.is_some() { 0.0 } else { 1.0 - steadiness(seen) };
        let law = window_law(seen);
        let by_law = window_law_off(seen)
            .map_or(path::WINDOW_LAW_UNKNOWN, |off| seen.fit[Fitted::WindowLawOff].not(off));
        let weighed = Weighing::most(1.0)
            .by(share, "the window holds the sender back only part of the time")
            .unless(slow_reader, 1.0, "unread data, not the kernel, closes the window")
            .unless(starved, path::STARVED_READER, "the reading thread hardly sleeps")
            .unless(unsteady, path::UNSTEADY_WINDOW, "the window varies as a slow reader's does")
            .unless(seen.queue(), 1.0, weighing::QUEUE)
            .by(
                at_least(path::WINDOW_WITHOUT_LAW, by_law),
                "window / RTT is not what was measured",
            );
        Opinion {
            weight: weighed.weight(),
            doubt: weighed.doubt(),
            end: Some(seen.receiver.end),
            evidence: evidence(seen, share, law),
            against: against(seen, share, slow_reader),
            // What a slow reader leaves of the window is no bound of it.
            ceiling_bits_per_s: if share > signs::LIKELY && slow_reader < signs::PERHAPS {
                law
            } else {
                tuned_ceiling(seen).or(law.filter(|_| slow_reader < signs::PERHAPS))
            },
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let rule = Rule::FollowsReceiveWindow;
        let window = (seen.receive_window_bytes(), seen.receiver.receive_buffer_bytes);
        other_windows(self.limit(), rule, seen, window, headroom)
    }

    fn changes(&self, seen: &Observed<'_>, _headroom: Option<f64>) -> Vec<SettingChange> {
        let mut changes = Vec::new();
        for end in [seen.sender.end, seen.receiver.end] {
            let is_off = seen.sysctl(end, SCALING).is_some_and(|value| value.trim() == "0");
            let why = || "without window scaling no window exceeds 64 KiB".to_owned();
            changes.extend(is_off.then(|| sysctl(seen, end, SCALING, "1", why())).flatten());
        }
        let end = seen.receiver.end;
        match (seen.spec.window_bytes, clamp(seen)) {
            (None, _) => {
                let is_still = seen.sysctl(end, MODERATE).is_some_and(|on| on.trim() == "0");
                let why = || "receive windows stay at their first size".to_owned();
                changes.extend(is_still.then(|| sysctl(seen, end, MODERATE, "1", why())).flatten());
                changes.extend(buffers(seen).larger(seen));
            }
            (Some(asked), Some(why)) => {
                changes.extend(sysctl(seen, end, "net.core.rmem_max", &asked.to_string(), why));
            }
            // The test itself requests no more.
            (Some(_), None) => {}
        }
        changes
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let mut lines = Vec::new();
        let end = end_name(seen.receiver.end);
        if seen.spec.window_bytes.is_some() {
            lines.push(
                "ask for no window (leave out --window): the kernel then tunes it".to_owned(),
            );
        }
        if seen.setup.is_window_scaled == Some(false) {
            lines.push(
                "switch window scaling on at both ends: sysctl -w net.ipv4.tcp_window_scaling=1"
                    .to_owned(),
            );
        }
        if seen.receiver.interface().is_some_and(|i| i.route_metrics.contains_key("window")) {
            lines.push(format!(
                "at the {end} end remove `window` from the route: ip route change …"
            ));
        }
        lines.extend(buffers(seen).unknown_bound(seen));
        if let Some(bytes) = buffers(seen).needed_bytes(seen) {
            let window_bytes = buffers(seen).window_of(seen, bytes);
            let window = show_byte_size(window_bytes);
            lines.push(format!(
                "at the {end} end let the window grow to {window}: {}",
                buffers(seen).command(seen, "4096 131072", bytes)
            ));
            if seen.spec.window_bytes.is_some() {
                lines.push(format!(
                    "or let applications there ask for that much: sysctl -w net.core.rmem_max={window_bytes}"
                ));
            }
        }
        let mut lines = Advice::all(lines);
        lines.push(Advice::of(
            several_streams(seen),
            "use several streams, each with its own window",
        ));
        lines
    }
}

const SCALING: &str = "net.ipv4.tcp_window_scaling";
const MODERATE: &str = "net.ipv4.tcp_moderate_rcvbuf";

/// The autotuning bound of the receiver's buffer.
fn buffers(seen: &Observed<'_>) -> Autotuned {
    let window_bytes = seen.receive_window_bytes().map(|bytes| bytes / seen.streams());
    Autotuned { end: seen.receiver.end, buffer: Buffer::Receive, window_bytes }
}

/// Rate that the window allows once autotuning has grown it fully, bit/s.
fn tuned_ceiling(seen: &Observed<'_>) -> Option<f64> {
    let TestSpec { window_bytes: None, .. } = seen.spec else { return None };
    buffers(seen).ceiling(seen)
}

fn steadiness(seen: &Observed<'_>) -> f64 {
    let steady = seen.shown().sender(names::PEER_WINDOW_STEADINESS);
    steady.map_or(1.0, |steady| path::STEADY_WINDOW.of(steady))
}

fn evidence(seen: &Observed<'_>, share: f64, law: Option<f64>) -> Vec<String> {
    let mut lines = Vec::new();
    let counted = seen.shown().sender(names::WINDOW_LIMITED);
    let counted = counted.is_some_and(|counted| counted >= share);
    let source = match (counted, seen.shown().sender(names::IN_FLIGHT)) {
        (true, _) => "",
        (false, Some(_)) => " (judged by the data in flight)",
        (false, None) => " (judged by throughput, which further streams multiply)",
    };
    let mut first = format!("receive-window-limited {} of the time{source}", percent(share));
    if let (Some(window), Some(rtt_s), Some(law)) =
        (seen.receive_window_bytes(), seen.window_rtt_s(), law)
    {
        first += &format!(
            "; window {} / {} = {}; measured {}",
            show_byte_size(saturating_u64(window)),
            show_seconds(rtt_s),
            show_bit_rate(law),
            show_bit_rate(seen.rate())
        );
    }
    lines.push(first);
    lines.extend(sizes(seen));
    match (seen.shown().receiver(names::RECEIVE_QUEUE), seen.receiver.told) {
        (Some(unread), _) => lines.push(format!(
            "the reader keeps up: {} unread in its socket",
            show_byte_size(saturating_u64(unread))
        )),
        (None, false) => lines.push(format!(
            "the {} reports nothing about its reader and cores; a slow reader there would look the same",
            seen.receiver.name()
        )),
        (None, true) => {}
    }
    lines.extend(why(seen));
    lines
}

/// The window in numbers: `advertised 202 KiB, 194 KiB in flight; asked for 128 KiB, receive buffer 256 KiB`.
fn sizes(seen: &Observed<'_>) -> Option<String> {
    let show = |bytes: f64| show_byte_size(saturating_u64(bytes));
    let window = seen.shown().sender(names::PEER_WINDOW)?;
    let mut line = format!("advertised {}", show(window));
    // The kernel counts whole segments in flight, the last of which may be shorter: no more fits into the window.
    if let Some(in_flight) = seen.shown().sender(names::IN_FLIGHT).map(|bytes| bytes.min(window)) {
        line += &format!(", {} in flight", show(in_flight));
    }
    let asked = seen.spec.window_bytes.map(|bytes| bytes as f64 * seen.streams());
    let asked = asked.map(|bytes| format!("asked for {}", show(bytes)));
    let given = seen.shown().receiver(names::RECEIVE_BUFFER);
    let given = given.map(|bytes| format!("receive buffer {}", show(bytes)));
    let buffers: Vec<String> = asked.into_iter().chain(given).collect();
    if !buffers.is_empty() {
        line += &format!("; {}", buffers.join(", "));
    }
    Some(line)
}

/// What limits the window: the test, a clamp, a route, no window scaling, or the kernel's bound.
fn why(seen: &Observed<'_>) -> Vec<String> {
    let end = end_name(seen.receiver.end);
    let window = seen.shown().sender(names::PEER_WINDOW);
    let window = window.map(|window| window / seen.streams());
    let mut lines: Vec<String> = clamp(seen).into_iter().collect();
    if let (Some(asked), true) = (seen.spec.window_bytes, lines.is_empty()) {
        lines.push(format!(
            "configured: the test asks for {} as send and receive buffer at both ends",
            show_byte_size(asked)
        ));
    }
    let unscaled = seen.setup.is_window_scaled == Some(false);
    let off = [seen.sender.end, seen.receiver.end].into_iter().find(|end| {
        seen.sysctl(*end, "net.ipv4.tcp_window_scaling").is_some_and(|value| value.trim() == "0")
    });
    match off {
        Some(end) => lines.push(format!(
            "clamped: net.ipv4.tcp_window_scaling is 0 at the {} end: no window beyond 64 KiB",
            end_name(end)
        )),
        None if unscaled => {
            lines.push("clamped: no window scale was agreed on: no window beyond 64 KiB".to_owned())
        }
        None => {}
    }
    if let Some(metric) = seen.receiver.interface().and_then(|i| i.route_metrics.get("window")) {
        lines.push(format!("clamped: the {end} end's route sets window {metric}"));
    }
    let most = buffers(seen).most_bytes(seen);
    if let (Some(most), Some(window), None) = (most, window, seen.spec.window_bytes)
        && (path::BOUND_OF_BUFFER..1.0).contains(&(window / most))
    {
        lines.push(format!(
            "clamped: net.ipv4.tcp_rmem at the {end} end lets a buffer grow to {}, of which the \
             window is a part",
            show_byte_size(saturating_u64(most))
        ));
    }
    if seen.spec.window_bytes.is_none()
        && seen
            .sysctl(seen.receiver.end, "net.ipv4.tcp_moderate_rcvbuf")
            .is_some_and(|on| on.trim() == "0")
    {
        lines.push(format!(
            "configured: net.ipv4.tcp_moderate_rcvbuf is 0 at the {end} end: windows do not grow"
        ));
    }
    lines
}

/// Describes the requested and the granted size, if the kernel granted less.
fn clamp(seen: &Observed<'_>) -> Option<String> {
    let asked = seen.spec.window_bytes? as f64 * seen.streams();
    let given = seen.receiver.receive_buffer_bytes? / predictions::WINDOW_OF_ASKED_MOST;
    if given >= asked * path::GRANTED_OF_ASKED {
        return None;
    }
    let cap = seen.sysctl(seen.receiver.end, "net.core.rmem_max");
    Some(format!(
        "the kernel clamped the receive buffer: asked {}, given {}{}",
        show_byte_size(saturating_u64(asked)),
        show_byte_size(saturating_u64(given)),
        cap.map(|cap| format!(" (net.core.rmem_max {cap})")).unwrap_or_default()
    ))
}

fn against(seen: &Observed<'_>, share: f64, slow_reader: f64) -> String {
    let limited = format!("receive-window-limited {} of the time", percent(share));
    if share < signs::PERHAPS {
        return match seen.shown().sender(names::WINDOW_LIMITED) {
            Some(_) => limited,
            None if seen.receive_window_fill().is_none() => {
                "neither the window nor what was in flight is known".to_owned()
            }
            None => "no window was full; the time that the sender waited for it was not recorded"
                .to_owned(),
        };
    }
    if slow_reader > signs::PERHAPS {
        let unread = seen.shown().receiver(names::RECEIVE_QUEUE).unwrap_or(0.0);
        let unread = show_byte_size(saturating_u64(unread));
        return format!(
            "{limited}, but {unread} lie unread in the socket: the reader closes the window"
        );
    }
    match seen.round_trip_words() {
        Some(words) if seen.queue() > signs::PERHAPS => {
            format!("{limited}, but a queue fills it: {words}")
        }
        _ => limited,
    }
}
