//! The acknowledgements of the judged test, as both of its ends counted them.

use results::StreamEnd;

use super::run::Run;
use crate::numbers::ratio;
use crate::thresholds::path;

/// Packets that the receiver sent and that came to the sender, summed over all streams, since the connections
/// began. A receiver of bulk data sends next to nothing but acknowledgements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledgements {
    sent_count: f64,
    arrived_count: f64,
    /// As many are sent within a round trip: so many at most are under way when the counters are read.
    under_way_count: f64,
    /// Arrived per second.
    pub(crate) arrived_per_s: f64,
}

impl Acknowledgements {
    /// `None` unless both ends told their counts.
    pub(crate) fn of(run: &Run<'_>, omitted_s: f64) -> Option<Self> {
        let sum = |streams: &[&StreamEnd], read: &dyn Fn(&results::TcpSummary) -> Option<u64>| {
            let counts = streams.iter().map(|stream| read(stream.tcp.as_ref()?));
            let total: Option<u64> = counts.sum();
            total.map(|count| count as f64).filter(|count| *count > 0.0)
        };
        let sent_count = sum(&run.receivers, &|tcp| tcp.segments_out_count)?;
        let arrived_count = sum(&run.senders, &|tcp| tcp.segments_in_count)?;
        let seconds = run.outcome.duration_s + omitted_s.max(0.0);
        let arrived_per_s = ratio(arrived_count, seconds)?;
        let rtts_s = run.senders.iter().filter_map(|stream| Some(stream.tcp.as_ref()?.last.rtt_s));
        let under_way_count = arrived_per_s * rtts_s.fold(0.0, f64::max);
        Some(Self { sent_count, arrived_count, under_way_count, arrived_per_s })
    }

    /// Share that did not arrive, 0 to 1; 0 where it is within what the counters can tell: acknowledgements that are
    /// under way when the counters are read look lost.
    pub(crate) fn lost_share(&self) -> f64 {
        let accounted_count = self.arrived_count + self.under_way_count;
        let missing = (1.0 - accounted_count / self.sent_count).clamp(0.0, 1.0);
        if missing < path::ACKS_LOST_TOLD { 0.0 } else { missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_under_way_when_the_counters_are_read_are_not_lost() {
        let lost_share = |arrived_count| {
            let (sent_count, under_way_count) = (10_000.0, 100.0);
            let arrived_per_s = 0.0;
            Acknowledgements { sent_count, arrived_count, under_way_count, arrived_per_s }
                .lost_share()
        };
        assert_eq!(lost_share(9_710.0), 0.0);
        assert_eq!(lost_share(10_100.0), 0.0);
        assert!((lost_share(8_900.0) - 0.1).abs() < 1e-9);
    }
}
