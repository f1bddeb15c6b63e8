//! TCP's own ways: selective acknowledgement, timestamps, congestion control, path MTU.

use results::{End, Limit};
use units::show_bit_rate;

use super::seen::{Proposal, Seen};
use super::{Plan, Risk};

pub(super) fn rule(seen: &Seen<'_>, plan: &mut Plan) {
    for end in [seen.sender, seen.receiver] {
        acknowledgements(seen, plan, end);
        timestamps(seen, plan, end);
    }
    congestion_control(seen, plan);
    path_mtu(seen, plan);
}

fn retransmits(seen: &Seen<'_>) -> u64 {
    let counted = seen.outcome.directions.iter().filter_map(|one| one.retransmits_count);
    counted.fold(0, u64::saturating_add)
}

/// Without SACK a sender learns of one lost segment a round trip.
fn acknowledgements(seen: &Seen<'_>, plan: &mut Plan, end: End) {
    let lost = retransmits(seen);
    if seen.number(end, "net.ipv4.tcp_sack") != Some(0) || lost == 0 {
        return;
    }
    seen.propose(
        plan,
        end,
        "net.ipv4.tcp_sack",
        Proposal {
            from: Some("0".to_owned()),
            to: "1".to_owned(),
            why: format!(
                "{lost} segments were retransmitted; without SACK only one loss is repaired per round trip"
            ),
            source: "RFC 2018, RFC 6675",
            effect: "losses of one window are repaired in one round trip; the effect cannot be predicted"
                .to_owned(),
            predicted_bits_per_s: None,
            risk: Risk::Low,
            danger: "none known; it is the kernel's default",
        },
    );
}

/// PAWS: without timestamps old sequence numbers come around within a segment's lifetime.
fn timestamps(seen: &Seen<'_>, plan: &mut Plan, end: End) {
    /// Seconds a segment may live (RFC 9293 section 3.4.3).
    const LIFETIME_S: f64 = 120.0;
    let wrap_s = 2_f64.powi(32) * 8.0 / seen.target.max(1.0);
    if seen.number(end, "net.ipv4.tcp_timestamps") != Some(0) || wrap_s > LIFETIME_S {
        return;
    }
    seen.propose(
        plan,
        end,
        "net.ipv4.tcp_timestamps",
        Proposal {
            from: Some("0".to_owned()),
            to: "1".to_owned(),
            why: format!(
                "at {} sequence numbers wrap in {wrap_s:.1} s, less than the lifetime of a segment",
                show_bit_rate(seen.target)
            ),
            source: "RFC 7323 section 5 (PAWS) and 4 (round-trip measurement)",
            effect: "protection against old segments, a round-trip sample for every segment"
                .to_owned(),
            predicted_bits_per_s: None,
            risk: Risk::Low,
            danger: "12 bytes of every segment",
        },
    );
}

/// Loss that is not congestion: an algorithm that models the path instead of counting losses.
fn congestion_control(seen: &Seen<'_>, plan: &mut Plan) {
    const KEY: &str = "net.ipv4.tcp_congestion_control";
    let end = seen.sender;
    let loss = seen.suspected(Limit::Loss, end).filter(|_| seen.binds(Limit::Loss));
    let (Some(evidence), Some(from)) = (loss, seen.sysctl(end, KEY)) else { return };
    let available = seen.sysctl(end, "net.ipv4.tcp_available_congestion_control").unwrap_or("");
    if from.starts_with("bbr") {
        return;
    }
    if !available.split(' ').any(|known| known == "bbr") {
        plan.remarks.push(format!(
            "losses bind, and the {} host has no bbr loaded (it has {available}): modprobe tcp_bbr, then plan again",
            super::windows::name(end)
        ));
        return;
    }
    let predicted = seen.reached_with("bbr");
    let effect = match predicted {
        Some(after) => format!(
            "throughput {} -> about {} (it was tried)",
            show_bit_rate(seen.rate),
            show_bit_rate(after)
        ),
        None => "throughput independent of random loss; how much can only be measured".to_owned(),
    };
    seen.propose(
        plan,
        end,
        KEY,
        Proposal {
            from: Some(from.to_owned()),
            to: "bbr".to_owned(),
            why: evidence.to_owned(),
            source: "BBR, ACM Queue 14(5), 2016; kernel net/ipv4/tcp_bbr.c; ESnet fasterdata",
            effect,
            predicted_bits_per_s: predicted,
            risk: Risk::Medium,
            danger: "takes more than its share beside loss-based flows in shallow queues",
        },
    );
}

/// Packets larger than the path carries and nobody says so: probe instead of hanging.
fn path_mtu(seen: &Seen<'_>, plan: &mut Plan) {
    let end = seen.sender;
    let (Some(path), Some(own)) = (seen.results.path.path_mtu_bytes, seen.interface(end)) else {
        return;
    };
    if path >= own.mtu_bytes || seen.number(end, "net.ipv4.tcp_mtu_probing") != Some(0) {
        return;
    }
    seen.propose(
        plan,
        end,
        "net.ipv4.tcp_mtu_probing",
        Proposal {
            from: Some("0".to_owned()),
            to: "1".to_owned(),
            why: format!("{} sends {} bytes, the path carries {path}", own.name, own.mtu_bytes),
            source: "RFC 4821; kernel Documentation/networking/ip-sysctl.rst",
            effect: "connections survive routers that drop large packets silently".to_owned(),
            predicted_bits_per_s: None,
            risk: Risk::Low,
            danger: "after a suspected black hole segments are smaller than they could be",
        },
    );
}
