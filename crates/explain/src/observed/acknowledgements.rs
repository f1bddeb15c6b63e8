//! The acknowledgements of the judged test, as both of its ends counted them.

use results::StreamEnd;

use super::run::Run;
use crate::numbers::ratio;

/// Packets that the receiver sent and that came to the sender, summed over all streams, since the connections
/// began. A receiver of bulk data sends next to nothing but acknowledgements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledgements {
    sent_count: f64,
    arrived_count: f64,
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
        Some(Self { sent_count, arrived_count, arrived_per_s: ratio(arrived_count, seconds)? })
    }

    /// Share that did not arrive, 0 to 1.
    pub(crate) fn lost_share(&self) -> f64 {
        (1.0 - self.arrived_count / self.sent_count).clamp(0.0, 1.0)
    }
}
