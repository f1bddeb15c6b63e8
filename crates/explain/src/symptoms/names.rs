//! Names of the symptoms that mechanisms read.

// The connection at the end that sends.

pub(crate) const RTT: &str = "rtt";
pub(crate) const BUSY: &str = "busy-share";
pub(crate) const APPLICATION_LIMITED: &str = "application-limited-share";
pub(crate) const WRITER_IDLE: &str = "writer-idle-share";
pub(crate) const CWND: &str = "congestion-window";
pub(crate) const PEER_WINDOW: &str = "peer-window";
pub(crate) const PEER_WINDOW_STEADINESS: &str = "peer-window-steadiness";
pub(crate) const IN_FLIGHT: &str = "in-flight";
pub(crate) const DRAINED: &str = "drained-share";
pub(crate) const WINDOW_LIMITED: &str = "receive-window-limited-share";
pub(crate) const BUFFER_LIMITED: &str = "send-buffer-limited-share";
pub(crate) const PEER_WINDOW_FILL: &str = "peer-window-fill";
pub(crate) const CWND_FILL: &str = "congestion-window-fill";
/// Whether throughput, round trip and data in flight agree.
pub(crate) const LITTLES_LAW: &str = "littles-law-ratio";
pub(crate) const PACING_RATE: &str = "pacing-rate";
pub(crate) const PACING_MAXIMUM: &str = "pacing-maximum";
pub(crate) const SEGMENT_PAYLOAD: &str = "segment-payload";
pub(crate) const RETRANSMITTED: &str = "retransmitted-segments";
pub(crate) const RETRANSMITTED_BEFORE: &str = "retransmitted-before";
pub(crate) const RETRANSMIT_SHARE: &str = "retransmit-share";
pub(crate) const LOSS_EVENT_SHARE: &str = "loss-event-share";
pub(crate) const NEEDLESS: &str = "needless-retransmits";
pub(crate) const NEEDLESS_SHARE: &str = "needless-retransmit-share";
pub(crate) const REORDERED: &str = "reordering-events";
pub(crate) const THRESHOLD: &str = "slow-start-threshold";
pub(crate) const MARKED_SEGMENTS: &str = "marked-segments";
pub(crate) const MARKED_BEFORE: &str = "marked-before";
pub(crate) const MARKED_SHARE: &str = "marked-share";

// The connection at the end that receives.

pub(crate) const RECEIVE_BUFFER: &str = "receive-buffer";
pub(crate) const WINDOW_OF_BUFFER: &str = "window-of-buffer";
pub(crate) const RECEIVE_QUEUE: &str = "receive-queue";
pub(crate) const SOCKET_FULLNESS: &str = "receive-socket-fullness";
pub(crate) const READER_IDLE: &str = "reader-idle-share";
pub(crate) const RECEIVER_SEGMENT_PAYLOAD: &str = "receiver-segment-payload";
pub(crate) const RECEIVER_RTT: &str = "receiver-rtt";
pub(crate) const OUT_OF_ORDER: &str = "out-of-order-packets";

// The path.

pub(crate) const GROWTH: &str = "throughput-growth";
pub(crate) const UNSTEADINESS: &str = "throughput-unsteadiness";
pub(crate) const QUEUE_GROWTH: &str = "queue-growth";
pub(crate) const QUEUE_DELAY: &str = "queue-delay";
pub(crate) const SENDER_OTHERS: &str = "sender-other-traffic";
pub(crate) const RECEIVER_OTHERS: &str = "receiver-other-traffic";
pub(crate) const WITH_OTHERS: &str = "throughput-with-others";
pub(crate) const IDLE_RTT_P50: &str = "idle-rtt-p50";
pub(crate) const STREAMS_GAIN: &str = "streams-gain";
pub(crate) const STREAMS: &str = "streams-compared";
pub(crate) const STREAMS_RETRANSMIT_SHARE: &str = "streams-retransmit-share";
pub(crate) const STREAMS_RTT: &str = "streams-rtt";
pub(crate) const STREAMS_RECEIVER_RTT: &str = "streams-receiver-rtt";
pub(crate) const STREAMS_QDISC_DROPS: &str = "streams-qdisc-drops";
pub(crate) const SENDER_IDLE_SEVERAL: &str = "streams-sender-idle-share";
pub(crate) const RECEIVER_IDLE_SEVERAL: &str = "streams-receiver-idle-share";
pub(crate) const UDP_GAIN: &str = "datagrams-of-throughput";
pub(crate) const UDP_COUNT: &str = "datagrams-sent";
pub(crate) const UDP_SENT: &str = "datagrams-sent-rate";
pub(crate) const UDP_DELIVERED: &str = "datagrams-delivered-rate";
pub(crate) const UDP_LOST: &str = "datagrams-lost-share";
pub(crate) const UDP_LOST_ON_PATH: &str = "datagrams-lost-on-path-share";
pub(crate) const UDP_LATE: &str = "datagrams-late-share";
pub(crate) const UDP_WAITED: &str = "datagrams-standing-delay";
pub(crate) const ACKS_LOST_SHARE: &str = "acknowledgements-lost-share";
pub(crate) const ACKS_ARRIVED: &str = "acknowledgements-arrived";

// A host.

pub(crate) const THREAD_RUN: &str = "thread-run-share";
pub(crate) const THREAD_WAIT: &str = "thread-wait-share";
pub(crate) const PROCESS_CORES: &str = "process-cores";
pub(crate) const IDLE: &str = "idle-share";
pub(crate) const SOFTIRQ_MOST: &str = "softirq-busiest-share";
pub(crate) const STOLEN: &str = "stolen-core-steal-share";
pub(crate) const STOLEN_IDLE: &str = "stolen-core-idle-share";
pub(crate) const STOLEN_SOFTIRQ: &str = "stolen-core-softirq-share";
pub(crate) const QUOTA_THROTTLED: &str = "quota-throttled-share";
pub(crate) const QUOTA_STOPPED: &str = "quota-stopped-share";
pub(crate) const THREAD_CLOCK: &str = "thread-clock-of-maximum";
pub(crate) const IDLE_EXIT: &str = "idle-exit-share";
pub(crate) const MEMORY_TRAFFIC: &str = "memory-traffic";
