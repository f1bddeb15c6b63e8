//! Windows and buffers: what may be under way, against what the path holds.

use results::{End, Limit};
use units::{saturating_u64, show_bit_rate, show_byte_size, show_seconds};

use super::seen::{Proposal, Seen};
use super::{Plan, Risk};

/// The kernel charges its own overhead to a buffer: about half of it is window (`tcp_adv_win_scale`
/// 1, and `scaling_ratio` since Linux 6.6).
pub(super) const WINDOW_SHARE: f64 = 0.5;
/// Payload share of a full send buffer, the rest being overhead per segment.
pub(super) const SEND_SHARE: f64 = 0.6;
/// Bandwidth-delay products a window must hold: one under way, one while a loss is repaired
/// (RFC 6349 section 3.3.1 asks for at least one; recovery keeps the window open for a second).
const PRODUCTS_COUNT: f64 = 2.0;
/// What the kernel keeps of a size: a signed 32-bit number.
const BUFFER_BYTES_MAX: f64 = 2_147_483_647.0;
/// A receiver's buffers may take this share of the memory.
const MEMORY_SHARE_MAX: f64 = 1.0 / 16.0;

const IP_SYSCTL: &str =
    "kernel Documentation/networking/ip-sysctl.rst; RFC 7323; ESnet fasterdata host tuning";

pub(super) fn rule(seen: &Seen<'_>, plan: &mut Plan) {
    let Some(rtt_s) = seen.rtt_s else { return };
    scaling(seen, plan, rtt_s);
    let sides = [
        Side::of(seen, seen.receiver, "net.ipv4.tcp_rmem", WINDOW_SHARE, Limit::ReceiveWindow),
        Side::of(seen, seen.sender, "net.ipv4.tcp_wmem", SEND_SHARE, Limit::SendBuffer),
    ];
    // The one that binds first, so that a reader sees the verdict's remedy first.
    let mut sides: Vec<Side<'_>> = sides.into_iter().flatten().collect();
    sides.sort_by_key(|side| !seen.binds(side.limit));
    for side in &sides {
        // Alone, the one that binds moves the bound to the other.
        let other = sides.iter().find(|other| other.limit != side.limit);
        let then = other.filter(|_| seen.binds(side.limit)).map(|other| other.allows(rtt_s));
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
    let memory = [seen.sender, seen.receiver]
        .into_iter()
        .filter_map(|end| seen.host(end)?.memory_bytes)
        .fold(f64::MAX, |least, bytes| least.min(bytes as f64));
    let bytes = hoped * seen.rtt_s? / 8.0 * PRODUCTS_COUNT;
    Some(round_up(bytes.min(memory * MEMORY_SHARE_MAX).min(BUFFER_BYTES_MAX / 2.0)))
}

/// What the judged test asked for.
fn judged_window(seen: &Seen<'_>) -> Option<u64> {
    let judged = seen.results.points.iter().find(|point| point.experiment == "single-stream");
    judged.and_then(|point| point.spec()?.window_bytes)
}

/// One end's bound on what may be under way.
struct Side<'a> {
    end: End,
    key: &'static str,
    /// What the setting reads.
    from: &'a str,
    /// Least, first and largest size, bytes.
    sizes: [u64; 3],
    share: f64,
    limit: Limit,
}

impl<'a> Side<'a> {
    fn of(seen: &Seen<'a>, end: End, key: &'static str, share: f64, limit: Limit) -> Option<Self> {
        let from = seen.sysctl(end, key)?;
        let sizes: Vec<u64> = from.split(' ').filter_map(|part| part.parse().ok()).collect();
        Some(Self { end, key, from, sizes: sizes.try_into().ok()?, share, limit })
    }

    /// Throughput it allows, bit/s.
    fn allows(&self, rtt_s: f64) -> f64 {
        self.sizes[2] as f64 * self.share * 8.0 / rtt_s
    }
}

/// The largest buffer the kernel tunes up to; `then` is what the other end's allows, bit/s.
fn autotuning(seen: &Seen<'_>, plan: &mut Plan, rtt_s: f64, side: &Side<'_>, then: f64) {
    let Side { end, key, from, sizes: [least, middle, most], share, limit } = *side;
    let allows = side.allows(rtt_s);
    if allows >= seen.target * 1.05 || judged_window(seen).is_some() {
        return;
    }
    let memory = seen.host(end).and_then(|host| host.memory_bytes).map_or(f64::MAX, |b| b as f64);
    let product = seen.target * rtt_s / 8.0;
    let wanted = (product * PRODUCTS_COUNT / share).min(BUFFER_BYTES_MAX);
    let bounded = wanted.min((memory * MEMORY_SHARE_MAX).max(most as f64));
    let bytes = round_up(bounded).max(most);
    if bytes <= most {
        let remark = format!(
            "{key} at the {} end: {} is a sixteenth of its memory; left",
            name(end),
            show_byte_size(most)
        );
        plan.remarks.push(remark);
        return;
    }
    let reach = seen.reach(bytes as f64 * share * 8.0 / rtt_s).min(then);
    let mut why = format!(
        "{} of {} usable over {} allow {}; the path should carry {} (BDP {})",
        show_byte_size(saturating_u64(most as f64 * share)),
        show_byte_size(most),
        show_seconds(rtt_s),
        show_bit_rate(allows),
        show_bit_rate(seen.target),
        show_byte_size(saturating_u64(product)),
    );
    let binds = seen.binds(limit);
    if let Some(evidence) = seen.suspected(limit, end).filter(|_| binds) {
        why = format!("{evidence}; {why}");
    }
    let effect = if binds {
        seen.gain(reach)
    } else {
        format!(
            "it does not bind now; without it {} would be the next limit",
            show_bit_rate(allows)
        )
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
            predicted_bits_per_s: binds.then_some(reach),
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
    let Some(still) = default.map(|bytes| bytes * WINDOW_SHARE * 8.0 / rtt_s) else { return };
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

/// Up to a multiple of 64 KiB.
pub(super) fn round_up(bytes: f64) -> u64 {
    const STEP: u64 = 64 << 10;
    let rounded = saturating_u64(bytes.min(BUFFER_BYTES_MAX)).div_ceil(STEP) * STEP;
    rounded.min(saturating_u64(BUFFER_BYTES_MAX))
}

pub(super) fn name(end: End) -> &'static str {
    match end {
        End::Near => "near",
        End::Far => "far",
    }
}
