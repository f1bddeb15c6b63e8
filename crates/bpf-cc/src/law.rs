//! H-TCP's law as formulas, after D. Leith and R. Shorten (PFLDnet 2004; draft-leith-tcp-htcp-06).
//!
//! This is what `bpf/htcp.bpf.c` computes in whole numbers. The tests run that program against it,
//! instruction by instruction and over a real path. Two things the draft leaves open are fixed as
//! Linux's own `tcp_htcp.c` does: scaling by the round-trip time ends at 0.1 and 2, and the age of
//! a congestion event counts from its end. One differs: Linux backs off by one half whenever the
//! lowest round-trip time is below 10 ms, a bound of its coarse clock; here the draft's ratio holds
//! at any distance.

/// Below this age of the last congestion event, in seconds, growth is Reno's.
pub const LOW_SPEED_S: f64 = 1.0;
/// Round-trip time at which growth is not scaled, seconds.
pub const RTT_REFERENCE_S: f64 = 0.1;
/// Bounds of the window share kept at a congestion event.
pub const BETA_RANGE: (f64, f64) = (0.5, 0.8);

/// Growth per round-trip time, in segments, when the last congestion event is `age_s` seconds old,
/// the lowest round-trip time `rtt_min_s` seconds, and the last event kept the share `beta`.
#[must_use]
pub fn alpha(age_s: f64, rtt_min_s: f64, beta: f64) -> f64 {
    let beyond_s = (age_s - LOW_SPEED_S).max(0.0);
    let factor = 1.0 + 10.0 * beyond_s + (beyond_s / 2.0).powi(2);
    let scale = (rtt_min_s / RTT_REFERENCE_S).clamp(0.1, 2.0);
    2.0 * (1.0 - beta) * (factor * scale).max(1.0)
}

/// Share of the window kept at a congestion event: one half where the throughput of the epoch that
/// ends (`rate`) differs from that before (`rate_before`, any unit) by more than a fifth, else the
/// lowest over the highest round-trip time.
#[must_use]
pub fn beta(rate: f64, rate_before: f64, rtt_min_s: f64, rtt_max_s: f64) -> f64 {
    let holds = rate_before > 0.0 && (rate / rate_before - 1.0).abs() <= 0.2;
    if !holds || rtt_max_s <= 0.0 {
        return BETA_RANGE.0;
    }
    (rtt_min_s / rtt_max_s).clamp(BETA_RANGE.0, BETA_RANGE.1)
}

/// The window after `acked` segments were acknowledged, in segments: each adds alpha / window, and
/// together they add no more than slow start would.
#[must_use]
pub fn grown(window: f64, acked: f64, alpha: f64) -> f64 {
    window + (acked * alpha / window).min(acked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} is not {right}");
    }

    #[test]
    fn the_drafts_figures() {
        close(alpha(0.0, 0.1, 0.5), 1.0);
        close(alpha(1.0, 0.1, 0.5), 1.0);
        close(alpha(2.0, 0.1, 0.5), 11.25);
        close(alpha(11.0, 0.1, 0.5), 126.0);
        close(alpha(2.0, 0.1, 0.8), 11.25 * 0.4);
        close(alpha(11.0, 0.017, 0.5), 126.0 * 0.17);
        close(alpha(0.5, 0.001, 0.5), 1.0);
        close(alpha(11.0, 5.0, 0.5), 252.0);
    }

    #[test]
    fn the_backoff() {
        close(beta(100.0, 100.0, 0.1, 0.15), 2.0 / 3.0);
        close(beta(121.0, 100.0, 0.1, 0.15), 0.5);
        close(beta(79.0, 100.0, 0.1, 0.15), 0.5);
        close(beta(100.0, 100.0, 0.1, 0.1), 0.8);
        close(beta(100.0, 100.0, 0.1, 0.9), 0.5);
        close(beta(100.0, 0.0, 0.1, 0.1), 0.5);
    }

    #[test]
    fn a_round_trip_adds_alpha() {
        close(grown(1000.0, 1000.0, 42.0), 1042.0);
        close(grown(10.0, 10.0, 5000.0), 20.0);
    }
}
