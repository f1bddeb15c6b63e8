//! The judged connection, as the sender's kernel saw it.

use super::run::Run;
use crate::numbers::{counted, positive, share};

/// Figures of TCP. Windows and queues are summed over all streams, times are of the typical stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flow {
    pub(crate) rtt_s: Option<f64>,
    pub(crate) rtt_min_s: Option<f64>,
    /// Round trip under load as the receiver's kernel reads it from echoed timestamps.
    pub(crate) receiver_rtt_s: Option<f64>,
    /// Share of the measured time with data outstanding, 0 to 1.
    pub(crate) busy_share: Option<f64>,
    /// Share of the busy time limited by the receiver's window, 0 to 1.
    pub(crate) receive_window_share: Option<f64>,
    /// Share of the busy time limited by the send buffer, 0 to 1.
    pub(crate) send_buffer_share: Option<f64>,
    pub(crate) congestion_window_bytes: Option<f64>,
    pub(crate) in_flight_bytes: Option<f64>,
    pub(crate) peer_window_bytes: Option<f64>,
    /// The receiver's smallest over its largest advertised window in the steady part, 0 to 1.
    pub(crate) peer_window_steadiness: Option<f64>,
    pub(crate) retransmits_count: Option<f64>,
    /// Segments retransmitted, as a share of those sent, 0 to 1.
    pub(crate) retransmit_share: Option<f64>,
    /// Sampling intervals with retransmissions, over segments sent: losses in one burst shrink the
    /// congestion window once.
    pub(crate) loss_event_share: Option<f64>,
    /// Throughput of the last third of the test over that of the first.
    pub(crate) growth: Option<f64>,
    pub(crate) pacing_bits_per_s: Option<f64>,
    /// Payload of a full segment, as the sender's kernel knows it.
    pub(crate) mss_bytes: Option<f64>,
    /// `SO_MAX_PACING_RATE`, summed over all streams.
    pub(crate) pacing_max_bits_per_s: Option<f64>,
    /// Segments delivered with an ECN congestion mark.
    pub(crate) marked_count: Option<f64>,
    /// The same before the measured time.
    pub(crate) marked_before_count: Option<f64>,
    /// Segments that the sender retransmitted before the measured time.
    pub(crate) retransmits_before_count: Option<f64>,
    /// Slow-start threshold, summed over all streams: what the last signal of congestion left of the window.
    pub(crate) threshold_bytes: Option<f64>,
    /// Reordering events that the sender noticed.
    pub(crate) reordered_count: Option<f64>,
    /// Segments that the sender retransmitted needlessly.
    pub(crate) needless_count: Option<f64>,
    /// Packets that arrived out of order, as the receiver counts them.
    pub(crate) out_of_order_count: Option<f64>,
}

impl Flow {
    pub(crate) fn of(run: &Run<'_>) -> Self {
        let busy_s = run.gained_s(|tcp| tcp.busy_s);
        let streams_s = run.outcome.duration_s * run.senders.len() as f64;
        let of_busy = |limited_s: Option<f64>| share(limited_s?, busy_s?);
        let window_swing = run.swing(|tcp| tcp.peer_window_bytes.and_then(counted));
        let (again, sent) = run.retransmits().unzip();
        let of_segments = |events: Option<f64>| share(events?, sent? + again?);
        Self {
            rtt_s: run.typical(|tcp| positive(tcp.rtt_s)),
            rtt_min_s: run.typical(|tcp| tcp.rtt_min_s.and_then(positive)),
            receiver_rtt_s: Run::typical_of(&run.receivers, |tcp| tcp.receiver_rtt_s),
            busy_share: busy_s.and_then(|busy_s| share(busy_s, streams_s)),
            receive_window_share: of_busy(run.gained_s(|tcp| tcp.receive_window_limited_s)),
            send_buffer_share: of_busy(run.gained_s(|tcp| tcp.send_buffer_limited_s)),
            congestion_window_bytes: run.summed(|tcp| counted(tcp.congestion_window_bytes)),
            in_flight_bytes: run.summed(|tcp| counted(tcp.in_flight_bytes)),
            peer_window_bytes: run.summed(|tcp| tcp.peer_window_bytes.and_then(counted)),
            peer_window_steadiness: window_swing.and_then(|(low, high)| share(low, high)),
            retransmits_count: again.or(run.direction.retransmits_count.map(|count| count as f64)),
            retransmit_share: of_segments(again),
            loss_event_share: of_segments(run.loss_events()),
            growth: run.growth(),
            pacing_bits_per_s: run.summed(|tcp| tcp.pacing_bits_per_s.and_then(positive)),
            mss_bytes: Run::segment_bytes(&run.senders),
            pacing_max_bits_per_s: run
                .senders
                .iter()
                .filter_map(|stream| stream.pacing_max_bits_per_s.and_then(positive))
                .reduce(|sum, rate| sum + rate),
            marked_count: Run::gained_count(&run.senders, |tcp| tcp.marked_count),
            marked_before_count: Run::count_before(&run.senders, |tcp| tcp.marked_count),
            retransmits_before_count: Run::count_before(&run.senders, |tcp| {
                Some(tcp.retransmits_count)
            }),
            threshold_bytes: run.summed(|tcp| tcp.slow_start_threshold_bytes.and_then(counted)),
            reordered_count: Run::gained_count(&run.senders, |tcp| tcp.reordered_count),
            needless_count: Run::gained_count(&run.senders, |tcp| tcp.needless_retransmits_count),
            out_of_order_count: Run::gained_count(&run.receivers, |tcp| tcp.out_of_order_count),
        }
    }

    /// Data in flight over the congestion window, 0 to 1: near 1 means that the window is used up.
    pub(crate) fn window_use(&self) -> Option<f64> {
        share(self.in_flight_bytes?, self.congestion_window_bytes?)
    }
}
