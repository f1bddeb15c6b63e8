//! Which way a figure gets better.

use serde::Serialize;

/// Which way a figure gets better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    More,
    /// Less is better.
    Less,
    /// Neither, or it depends on what was wanted.
    Unknown,
}

/// Ends of the names of figures of which more is better.
const MORE: [&str; 9] = [
    "received_bits_per_s",
    "delivered_datagrams_per_s",
    "transactions_per_s",
    "received_pkts_per_s",
    "states_per_s",
    "moved_bytes_per_s",
    "transfers_per_s",
    "items_per_s",
    "lock_pairs_per_s",
];

/// Ends of the names of figures of which less is better.
const LESS: [&str; 15] = [
    "rtt_p50_s",
    "rtt_p99_s",
    "rtt_p99.9_s",
    "jitter_s",
    "jitter_max_s",
    "lost_share",
    "reordered_share",
    "retransmits_count",
    "cpu_s_per_gbit",
    "joules_per_gbit",
    "idle_watts",
    "failed_calls_count",
    "mean_latency_s",
    "cpu_s",
    "woken_after_unlock_s",
];

impl Better {
    /// Of a figure, by its name. Totals that follow from the work that was asked for have no direction.
    #[must_use]
    pub fn of(figure: &str) -> Self {
        let ends = |names: &[&str]| names.iter().any(|name| figure.ends_with(name));
        if ends(&MORE) {
            Self::More
        } else if ends(&LESS) {
            Self::Less
        } else {
            Self::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_shall_rise_and_costs_shall_fall() {
        for (figure, better) in [
            ("forward_received_bits_per_s", Better::More),
            ("forward_sent_bits_per_s", Better::Unknown),
            ("loaded_rtt_p99_s", Better::Less),
            ("rtt_p99.9_s", Better::Less),
            ("near_cpu_s_per_gbit", Better::Less),
            ("reverse_lost_share", Better::Less),
            ("states_per_s", Better::More),
            ("moved_bytes", Better::Unknown),
            ("total_s", Better::Unknown),
        ] {
            assert_eq!(Better::of(figure), better, "{figure}");
        }
    }
}
