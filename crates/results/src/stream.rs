//! One stream, seen from one end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One end of one stream over the whole test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamEnd {
    /// Stream number, from 0, the same at both ends.
    pub index: u32,
    /// Whether this end sent. In a bidirectional test each direction has its own streams.
    pub sending: bool,
    /// This end's address and port, as `address:port` or `[address]:port`.
    pub local: String,
    /// The other end's address and port, in the same form.
    pub remote: String,
    /// Payload bytes handed to or taken from the socket, without the omitted start.
    pub bytes: u64,
    /// Seconds those bytes took.
    pub duration_s: f64,
    /// Cores the stream's thread was seen on, most used first.
    pub cores: Vec<u32>,
    /// The core that processed the stream's incoming packets (data or acknowledgements) most often
    /// (`SO_INCOMING_CPU`): the one its receive queue is served by.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub incoming_core: Option<u32>,
    /// Thread time in user mode, seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_user_s: Option<f64>,
    /// Thread time in the kernel, seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_system_s: Option<f64>,
    /// Time the thread was ready but another had its core, seconds (`/proc/PID/schedstat`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_wait_s: Option<f64>,
    /// Times the thread went to sleep for data or space (voluntary context switches).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_sleeps_count: Option<u64>,
    /// Times another thread took its core away (involuntary context switches).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_preempted_count: Option<u64>,
    /// Times it was put on a core; over `thread_wait_s` its mean delay from ready to running.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_slices_count: Option<u64>,
    /// Times it was moved to another core (`se.nr_migrations`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_migrations_count: Option<u64>,
    /// Scheduling policy where it is not the default (`SCHED_OTHER`, nice 0): `nice 10`, `idle`,
    /// `batch`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_policy: Option<String>,
    /// The core it ran on when the measured time began and when it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub core_first_last: Option<(u32, u32)>,
    /// `SO_MAX_PACING_RATE`, bit/s; absent when unlimited.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pacing_max_bits_per_s: Option<f64>,
    /// `TCP_WINDOW_CLAMP`, bytes: upper bound of the receive window, whatever the buffer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub window_clamp_bytes: Option<u64>,
    /// Block size in use, bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub block_bytes: Option<u64>,
    /// `SO_SNDBUF` as read back after the test, bytes (the kernel's doubled figure).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub send_buffer_bytes: Option<u64>,
    /// `SO_RCVBUF` as read back after the test, bytes (the kernel's doubled figure).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub receive_buffer_bytes: Option<u64>,
    /// Time the application chose not to read or write (offered or read rate), seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub application_idle_s: Option<f64>,
    /// TCP's own account at the end of the test.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tcp: Option<TcpSummary>,
    /// UDP counts of this end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub udp: Option<UdpStreamEnd>,
    /// Present when `MSG_ZEROCOPY` or `TCP_ZEROCOPY_RECEIVE` was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub zero_copy: Option<ZeroCopyShare>,
    /// Samples, one per interval, in time order.
    #[serde(default)]
    pub intervals: Vec<IntervalSample>,
}

/// How much of a stream was really zero-copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ZeroCopyShare {
    /// Bytes for which zero-copy was requested.
    pub asked_bytes: u64,
    /// Bytes that the kernel moved without a copy.
    pub zero_copied_bytes: u64,
}

/// What happened to one stream during one interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IntervalSample {
    /// Start, seconds since the test began (omitted start included, so it may be cut off).
    pub start_s: f64,
    /// End, seconds since the test began.
    pub end_s: f64,
    /// Payload bytes in between.
    pub bytes: u64,
    /// Whether this interval lies in the omitted start.
    #[serde(default)]
    pub omitted: bool,
    /// TCP state at the interval's end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tcp: Option<TcpSample>,
    /// Datagrams sent or received in between (UDP).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub datagrams_count: Option<u64>,
    /// Datagrams found missing in between (UDP receiver).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_count: Option<u64>,
    /// Jitter at the interval's end, seconds (UDP receiver; RFC 3550 section 6.4.1).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jitter_s: Option<f64>,
    /// Bytes waiting in the receive queue at the interval's end (`SIOCINQ`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub receive_queue_bytes: Option<u64>,
    /// Bytes in the send queue, sent or not, at the interval's end (`SIOCOUTQ`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub send_queue_bytes: Option<u64>,
}

/// `TCP_INFO` at one moment (kernel `include/uapi/linux/tcp.h`). Counters are since the
/// connection began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpSample {
    /// Smoothed round-trip time, seconds.
    pub rtt_s: f64,
    /// Its variation, seconds.
    pub rtt_variation_s: f64,
    /// Lowest round-trip time seen, seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rtt_min_s: Option<f64>,
    /// Smoothed round-trip time that this end reads from the timestamps which the other end echoes in its data, seconds,
    /// in steps of a millisecond (absent without timestamps, and where this end receives no data).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub receiver_rtt_s: Option<f64>,
    /// Congestion window, bytes.
    pub congestion_window_bytes: u64,
    /// Window the other end advertises, bytes (Linux 5.4; absent before).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer_window_bytes: Option<u64>,
    /// Window this end advertises, bytes (Linux 6.2; absent before).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub advertised_window_bytes: Option<u64>,
    /// Sent and not yet acknowledged, bytes.
    pub in_flight_bytes: u64,
    /// Written and not yet sent, bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub not_sent_bytes: Option<u64>,
    /// Segments retransmitted.
    pub retransmits_count: u64,
    /// Delivery rate the kernel last estimated, bit/s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub delivery_bits_per_s: Option<f64>,
    /// Whether the application limited the delivery rate.
    #[serde(default)]
    pub delivery_app_limited: bool,
    /// Pacing rate, bit/s; absent when unlimited.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pacing_bits_per_s: Option<f64>,
    /// Time with data outstanding, seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busy_s: Option<f64>,
    /// Part of `busy_s` limited by the other end's receive window, seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub receive_window_limited_s: Option<f64>,
    /// Part of `busy_s` limited by this end's send buffer, seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub send_buffer_limited_s: Option<f64>,
    /// Segments delivered with a congestion mark (ECN).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub marked_count: Option<u64>,
    /// Duplicate-ACK reordering degree.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reordering_segments: Option<u64>,
    /// Segments that turned out to be late, not lost (Linux 4.19).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reordered_count: Option<u64>,
    /// Segments retransmitted needlessly, by the receiver's D-SACKs (Linux 4.19).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub needless_retransmits_count: Option<u64>,
    /// Packets received out of order (Linux 5.4).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub out_of_order_count: Option<u64>,
    /// Slow-start threshold, bytes; absent before the first loss.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slow_start_threshold_bytes: Option<u64>,
}

/// TCP's account of one connection at the end of the test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpSummary {
    /// Algorithm in use, as `TCP_CONGESTION` names it.
    pub congestion_control: String,
    /// Sending MSS, bytes.
    pub mss_bytes: u32,
    /// Path MTU the kernel assumes, bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path_mtu_bytes: Option<u32>,
    /// Segments sent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub segments_out_count: Option<u64>,
    /// Segments received.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub segments_in_count: Option<u64>,
    /// Window scale shifts: ours to send, theirs to receive; absent when not negotiated.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub window_scale_shifts: Option<(u8, u8)>,
    /// Whether both ends agreed on selective acknowledgements (SACK); absent when not reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sack_negotiated: Option<bool>,
    /// Whether MPTCP was really in use, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mptcp_established: Option<bool>,
    /// State when the measured time began (after the omitted start).
    pub first: TcpSample,
    /// State when the measured time ended.
    pub last: TcpSample,
}

impl TcpSummary {
    /// Whether a window scale was agreed on; `None` where the kernel does not tell. One that tells how many segments it
    /// sent also tells the options.
    #[must_use]
    pub fn is_window_scaled(&self) -> Option<bool> {
        self.segments_out_count.map(|_| self.window_scale_shifts.is_some())
    }
}

/// UDP counts of one end of one stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UdpStreamEnd {
    /// Datagrams sent or received.
    pub datagrams_count: u64,
    /// Sequence numbers that never arrived (receiver).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_count: Option<u64>,
    /// Datagrams that arrived after a later one (receiver).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reordered_count: Option<u64>,
    /// Datagrams that arrived more than once (receiver).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duplicate_count: Option<u64>,
    /// Jitter, seconds (receiver; RFC 3550 section 6.4.1).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub jitter_s: Option<f64>,
    /// How much longer datagrams were underway than the fastest one, seconds: the mean over 10 ms each, of the least in
    /// them, so that a queue counts and a host that is late now and then does not (receiver). The two hosts' clocks need
    /// not agree; what they drift apart during the test is in it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub standing_delay_s: Option<f64>,
    /// Drops at this socket's receive buffer (`SO_RXQ_OVFL`/`SK_MEMINFO_DROPS`, receiver).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub socket_drops_count: Option<u64>,
    /// Sends the kernel refused for lack of buffer space (sender).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub send_failures_count: Option<u64>,
    /// Super-datagrams received merged by GRO (receiver), 0 when GRO gave nothing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gro_batches_count: Option<u64>,
}
