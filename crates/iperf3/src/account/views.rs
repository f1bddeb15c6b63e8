//! What an account shows: an interval, a stream, a direction, the whole test.

use crate::wire::{CpuPercent, ServerOutput};

/// One stream in one interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamInterval {
    /// Which stream.
    pub position: usize,
    /// Whether this end sends on it.
    pub sending: bool,
    /// Payload bytes.
    pub bytes: u64,
    /// TCP's state, at a sender.
    pub tcp: Option<TcpFigures>,
    /// UDP: datagrams sent, or received and missed.
    pub packets: i64,
    /// UDP: datagrams missed.
    pub lost: i64,
    /// UDP: jitter at the end, seconds.
    pub jitter_s: f64,
}

/// TCP's state at the end of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TcpFigures {
    /// Segments retransmitted in the interval.
    pub retransmits: i64,
    /// Congestion window, bytes.
    pub congestion_window_bytes: u64,
    /// The peer's window, bytes.
    pub peer_window_bytes: u64,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u64,
    /// Its variation, microseconds.
    pub rtt_variation_us: u64,
    /// Path MTU, bytes.
    pub path_mtu_bytes: u64,
    /// Reordering degree, segments.
    pub reordering: u64,
}

/// All streams in one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// Start, seconds since the measured (or omitted) time began.
    pub start_s: f64,
    /// End.
    pub end_s: f64,
    /// Whether it lies in the omitted start.
    pub omitted: bool,
    /// Whether it is the first one of the test.
    pub first: bool,
    /// The streams, in the order of creation.
    pub streams: Vec<StreamInterval>,
}

impl Interval {
    /// Its length, seconds.
    #[must_use]
    pub fn length_s(&self) -> f64 {
        self.end_s - self.start_s
    }
}

/// One stream over the whole measured time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamSummary {
    /// Which stream.
    pub position: usize,
    /// Payload bytes the sender handed over; 0 where this end cannot know.
    pub sent_bytes: u64,
    /// Payload bytes the receiver took; 0 where this end cannot know.
    pub received_bytes: u64,
    /// Segments retransmitted.
    pub retransmits: i64,
    /// Extremes and mean of TCP's state at this end.
    pub tcp: TcpExtremes,
    /// Datagrams the sender sent.
    pub sender_packets: i64,
    /// Datagrams the receiver got or missed.
    pub receiver_packets: i64,
    /// Datagrams missed.
    pub lost: i64,
    /// Jitter, seconds.
    pub jitter_s: f64,
    /// Datagrams out of order, as far as this end received them.
    pub out_of_order: i64,
}

/// TCP's state over a test.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TcpExtremes {
    /// Largest congestion window, bytes.
    pub congestion_window_bytes_max: u64,
    /// Largest window of the peer, bytes.
    pub peer_window_bytes_max: u64,
    /// Highest round-trip time, microseconds.
    pub rtt_us_max: u64,
    /// Lowest round-trip time, microseconds; 0 before the first.
    pub rtt_us_min: u64,
    /// Mean round-trip time, microseconds.
    pub rtt_us_mean: u64,
    /// Reordering degree at the end, segments.
    pub reordering: u64,
}

/// One direction over the whole measured time.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectionSummary {
    /// Whether this end sends.
    pub sending: bool,
    /// Whether `retransmits` says something.
    pub has_retransmits: bool,
    /// Seconds at the sender.
    pub sender_s: f64,
    /// Seconds at the receiver.
    pub receiver_s: f64,
    /// The streams, in the order of creation.
    pub streams: Vec<StreamSummary>,
}

/// The whole test.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// This end's first direction first: a client sends first, a server receives first.
    pub directions: Vec<DirectionSummary>,
    /// Seconds at this end.
    pub duration_s: f64,
    /// Processor time of this end.
    pub local_cpu: CpuPercent,
    /// Processor time of the other end.
    pub remote_cpu: CpuPercent,
    /// Congestion control of this end.
    pub local_congestion: Option<String>,
    /// Congestion control of the other end.
    pub remote_congestion: Option<String>,
    /// What the server printed.
    pub server_output: Option<ServerOutput>,
}
