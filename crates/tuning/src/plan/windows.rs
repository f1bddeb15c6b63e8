//! Windows and buffers: what may be under way, against what the path holds.

use explain::{Buffer, round_up};
use results::{End, Limit, WindowUse};
use units::{saturating_u64, show_bit_rate, show_byte_size, show_seconds};

use super::seen::{Proposal, Seen};
use super::{Plan, Risk};

const IP_SYSCTL: &str =
    "kernel Documentation/networking/ip-sysctl.rst; RFC 7323; ESnet fasterdata host tuning";

/// What a window that binds must allow to be left as it is, over what the path should carry.
const ROOM: f64 = 1.05;

/// Least gain that is worth telling, as a factor.
const GAIN_MIN: f64 = 1.02;

pub(super) fn rule(seen: &Seen<'_>, plan: &mut Plan) {
    let Some(rtt_s) = seen.rtt_s else { return };
    scaling(seen, plan, rtt_s);
    let sides = [
        Side::of(seen, seen.receiver, Buffer::Receive, Limit::ReceiveWindow),
        Side::of(seen, seen.sender, Buffer::Send, Limit::SendBuffer),
    ];
    // The one that binds first, so that a reader sees the verdict's remedy first.
    let mut sides: Vec<Side<'_>> = sides.into_iter().flatten().collect();
    sides.sort_by_key(|side| !seen.binds(side.limit));
    for side in &sides {
        // Alone, the one that binds moves the bound to the other.
        let other = sides.iter().find(|other| other.limit != side.limit);
        let then = other.filter(|_| seen.binds(side.limit)).map(|other| other.allows());
        autotuning(seen, plan, rtt_s, side, then.unwrap_or(f64::MAX));
    }
    explicit(seen, plan);
}

/// The widest window worth a test of its own, bytes; `None` where no window binds, or the test asked
/// for one already. Where no rate of the path is known, it allows several times of what was measured.
pub(super) fn widest_bytes(seen: &Seen<'_>) -> Option<u64> {
    const HOPED_FOR: f64 = 16.0;
    let binds = seen.binds(Limit::ReceiveWindow) || seen.binds(Limit::SendBuffer);
    if !binds || judged_window(seen).is_some() {
        return None;
    }
    let hoped = if seen.is_target_known { seen.target } else { seen.rate * HOPED_FOR };
    // Either end gets a buffer of that size, and the kernel doubles what is asked for.
    let of_end = |end| Buffer::Receive.needed_bytes(hoped, seen.rtt_s?, seen.host(end));
    let buffer = of_end(seen.receiver)?.min(of_end(seen.sender)?);
    Some(round_up(buffer as f64 / 2.0))
}

/// What the judged test asked for.
fn judged_window(seen: &Seen<'_>) -> Option<u64> {
    let judged = seen.results.points.iter().find(|point| point.experiment == "single-stream");
    judged.and_then(|point| point.spec()?.window_bytes)
}

/// One end's bound on what may be under way.
struct Side<'a> {
    end: End,
    buffer: Buffer,
    /// What the setting reads.
    from: &'a str,
    /// Least, first and largest size, bytes.
    sizes: [u64; 3],
    limit: Limit,
    /// The window that the largest size holds, bytes, and the round trip it is spread over, seconds: as
    /// measured where it binds.
    window: (f64, f64),
}

impl<'a> Side<'a> {
    fn of(seen: &Seen<'a>, end: End, buffer: Buffer, limit: Limit) -> Option<Self> {
        let from = seen.sysctl(end, buffer.key())?;
        let sizes: Vec<u64> = from.split(' ').filter_map(|part| part.parse().ok()).collect();
        let sizes: [u64; 3] = sizes.try_into().ok()?;
        let (rtt_s, most) = (seen.rtt_s?, sizes[2] as f64);
        // What was carried was under way: the kernel grants more than the usual share where segments are large.
        let carried = (seen.rate * rtt_s / 8.0).min(most);
        let by_law = ((most * buffer.window_share(seen.host(end))).max(carried), rtt_s);
        let in_effect = seen.window.filter(|window| seen.binds(limit) && window.is_full);
        let measured = in_effect.and_then(|WindowUse { rtt_s, .. }| {
            let window = in_effect?.effective_bytes()? / seen.streams;
            (window <= sizes[2] as f64).then_some((window, rtt_s?))
        });
        Some(Self { end, buffer, from, sizes, limit, window: measured.unwrap_or(by_law) })
    }

    /// Throughput it allows, bit/s.
    fn allows(&self) -> f64 {
        let (window_bytes, rtt_s) = self.window;
        window_bytes * 8.0 / rtt_s
    }
}

/// The largest buffer the kernel tunes up to; `then` is what the other end's allows, bit/s.
fn autotuning(seen: &Seen<'_>, plan: &mut Plan, rtt_s: f64, side: &Side<'_>, then: f64) {
    let Side { end, buffer, from, sizes: [least, middle, most], limit, window } = *side;
    let (key, host, allows) = (buffer.key(), seen.host(end), side.allows());
    let binds = seen.binds(limit);
    // One that binds gets some room; another is no limit as soon as it allows what the path should carry.
    let enough = if binds { seen.target * ROOM } else { seen.target };
    if allows >= enough || judged_window(seen).is_some() {
        return;
    }
    let product = seen.target * rtt_s / 8.0;
    let Some(bytes) = buffer.needed_bytes(seen.target, rtt_s, host) else { return };
    if bytes <= most {
        let remark = format!(
            "{key} at the {} end stays at {}: that is a sixteenth of its memory",
            name(end),
            show_byte_size(most)
        );
        plan.remarks.push(remark);
        return;
    }
    let law = buffer.allows_bits_per_s(bytes as f64, rtt_s, host).unwrap_or(allows);
    let reach = seen.reach(law).min(then);
    let mut why = format!(
        "a buffer of {} holds a window of {}: {} over {}; the path should carry {} (BDP {})",
        show_byte_size(most),
        show_byte_size(saturating_u64(window.0)),
        show_bit_rate(allows),
        show_seconds(window.1),
        show_bit_rate(seen.target),
        show_byte_size(saturating_u64(product)),
    );
    if let Some(evidence) = seen.suspected(limit, end).filter(|_| binds) {
        why = format!("{evidence}; {why}");
    }
    // What the window was seen to hold, and so what it allows, is the least of several estimates: it may be below the
    // rate.
    let gains = reach > seen.rate * GAIN_MIN;
    let effect = match (binds, gains) {
        (true, true) => seen.gain(reach),
        (true, false) => {
            "no gain alone: another window or buffer allows little more; apply the whole plan"
                .to_owned()
        }
        (false, _) if allows > seen.rate => {
            let allows = show_bit_rate(allows);
            format!("it does not bind now; without it {allows} would be the next limit")
        }
        (false, _) => "it does not bind now".to_owned(),
    };
    seen.propose(
        plan,
        end,
        key,
        Proposal {
            from: Some(from.to_owned()),
            to: format!("{least} {middle} {bytes}"),
            why,
            source: IP_SYSCTL,
            effect,
            predicted_bits_per_s: (binds && gains).then_some(reach),
            risk: Risk::Low,
            danger: "each busy connection may hold that much memory",
        },
    );
}

/// Windows an application asks for by itself are bounded by `net.core.*mem_max`.
fn explicit(seen: &Seen<'_>, plan: &mut Plan) {
    let Some(asked) = judged_window(seen) else { return };
    for (end, key) in [(seen.receiver, "net.core.rmem_max"), (seen.sender, "net.core.wmem_max")] {
        let Some(allowed) = seen.number(end, key).filter(|allowed| *allowed < asked) else {
            continue;
        };
        let gain = seen.reach(seen.rate * asked as f64 / allowed.max(1) as f64);
        seen.propose(
            plan,
            end,
            key,
            Proposal {
                from: Some(allowed.to_string()),
                to: asked.to_string(),
                why: format!(
                    "the application asks for {}, the kernel allows {}",
                    show_byte_size(asked),
                    show_byte_size(allowed)
                ),
                source: "socket(7); kernel Documentation/admin-guide/sysctl/net.rst",
                effect: seen.gain(gain),
                predicted_bits_per_s: Some(gain),
                risk: Risk::Low,
                danger: "every program may ask for that much",
            },
        );
    }
}

/// Without scaling no window is beyond 64 KiB; without moderation none grows by itself.
fn scaling(seen: &Seen<'_>, plan: &mut Plan, rtt_s: f64) {
    let unscaled = 65_535.0 * 8.0 / rtt_s;
    if unscaled < seen.target {
        for end in [seen.receiver, seen.sender] {
            if seen.number(end, "net.ipv4.tcp_window_scaling") != Some(0) {
                continue;
            }
            switch_on(
                seen,
                plan,
                end,
                "net.ipv4.tcp_window_scaling",
                format!(
                    "without scaling a window is at most 64 KiB: {} over {}",
                    show_bit_rate(unscaled),
                    show_seconds(rtt_s)
                ),
                "RFC 7323 section 2",
            );
        }
    }
    let default = seen
        .sysctl(seen.receiver, "net.ipv4.tcp_rmem")
        .and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
    let host = seen.host(seen.receiver);
    let still = |bytes: f64| Buffer::Receive.allows_bits_per_s(bytes, rtt_s, host);
    let Some(still) = default.and_then(still) else { return };
    let is_off = seen.number(seen.receiver, "net.ipv4.tcp_moderate_rcvbuf") == Some(0);
    if is_off && still < seen.target {
        switch_on(
            seen,
            plan,
            seen.receiver,
            "net.ipv4.tcp_moderate_rcvbuf",
            format!(
                "receive windows stay at their first size, which allows {}",
                show_bit_rate(still)
            ),
            "kernel Documentation/networking/ip-sysctl.rst",
        );
    }
}

fn switch_on(
    seen: &Seen<'_>,
    plan: &mut Plan,
    end: End,
    key: &str,
    why: String,
    source: &'static str,
) {
    seen.propose(
        plan,
        end,
        key,
        Proposal {
            from: Some("0".to_owned()),
            to: "1".to_owned(),
            why,
            source,
            effect: seen.gain(seen.reach(seen.target)),
            predicted_bits_per_s: Some(seen.reach(seen.target)),
            risk: Risk::Low,
            danger: "none known; it is the kernel's default",
        },
    );
}

pub(super) fn name(end: End) -> &'static str {
    match end {
        End::Near => "near",
        End::Far => "far",
    }
}
