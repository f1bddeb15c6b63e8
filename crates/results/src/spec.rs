//! What a test was asked to do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Transport under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
}

/// Which way the bytes go, seen from the near end (the one that asked for the test).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Near sends, far receives.
    Forward,
    /// Far sends, near receives.
    Reverse,
    /// Both at once, `streams` streams each way.
    Bidirectional,
}

/// One of the two hosts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The host that requested the test.
    Near,
    /// The other host.
    Far,
}

/// How bytes get from the application into the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SendPath {
    /// `write(2)`: the kernel copies.
    #[default]
    Copy,
    /// `sendfile(2)` from a file in memory: pages are referenced, not copied.
    Sendfile,
    /// `MSG_ZEROCOPY`; `zero_copy` of each stream has the share that was really not copied.
    Zerocopy,
}

/// How bytes get from the socket to the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReceivePath {
    /// `read(2)`: the kernel copies, as for any application.
    #[default]
    Copy,
    /// `MSG_TRUNC`: the kernel drops the bytes without copying. Not what an application sees.
    Discard,
    /// `TCP_ZEROCOPY_RECEIVE`: whole pages are mapped, the rest copied.
    Zerocopy,
}

/// A side of a stream with a socket buffer of its own for the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WindowSide {
    /// The sender's send buffer.
    Sender,
    /// The receiver's receive buffer, and with it the window that it advertises.
    Receiver,
}

/// When a test ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestLimit {
    /// After this long, in seconds, the omitted start not counted.
    DurationS(f64),
    /// After this many bytes, all streams of a direction together.
    TotalBytes(u64),
    /// After this many blocks (TCP) or datagrams (UDP), all streams of a direction together.
    TotalBlocks(u64),
}

/// Options of UDP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UdpSpec {
    /// Payload of one datagram, bytes, 16 (the sequence header) to 65507.
    pub datagram_bytes: u32,
    /// Let the kernel split super-datagrams (`UDP_SEGMENT`).
    pub gso: bool,
    /// Let the kernel merge datagrams on receipt (`UDP_GRO`).
    pub gro: bool,
    /// Datagrams per `sendmmsg`/`recvmmsg` call (with GSO: super-datagrams).
    pub batch_count: u32,
}

/// A request/response test, as in netperf: one outstanding transaction per stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestResponseSpec {
    /// Request payload, bytes, at least 1.
    pub request_bytes: u32,
    /// Response payload, bytes, at least 1.
    pub response_bytes: u32,
}

/// One test, completely described. Absent options are the kernel's or the program's default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestSpec {
    /// Transport.
    pub protocol: Protocol,
    /// Direction of the bytes.
    pub direction: Direction,
    /// Streams in each direction, 1 to 1024.
    pub streams: u32,
    /// When it ends.
    pub limit: TestLimit,
    /// Seconds at the start that do not count.
    pub omit_s: f64,
    /// Sampling interval, seconds, 0.05 to 60.
    pub interval_s: f64,
    /// Bytes per `write`/`read`; absent: chosen by the program.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub block_bytes: Option<u64>,
    /// Socket buffers to ask for at both ends; absent: the kernel tunes them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub window_bytes: Option<u64>,
    /// The side whose socket buffers `window_bytes` sets, of TCP; absent: both.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub window_side: Option<WindowSide>,
    /// `TCP_MAXSEG`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mss_bytes: Option<u32>,
    /// `TCP_CONGESTION`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub congestion_control: Option<String>,
    /// Differentiated services code point, 0 to 63.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dscp: Option<u8>,
    /// `SO_MAX_PACING_RATE` for each stream: the kernel spaces the packets.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pacing_bits_per_s: Option<f64>,
    /// The sending application offers no more than this, each stream.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub offered_bits_per_s: Option<f64>,
    /// The receiving application reads no faster than this, each stream.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read_bits_per_s: Option<f64>,
    /// Multipath TCP (RFC 8684).
    #[serde(default)]
    pub mptcp: bool,
    /// `TCP_NODELAY`.
    #[serde(default)]
    pub nodelay: bool,
    /// How bytes enter the socket.
    #[serde(default)]
    pub send_path: SendPath,
    /// How bytes leave the socket.
    #[serde(default)]
    pub receive_path: ReceivePath,
    /// Cores for the near end's streams, used round robin; empty: not pinned.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub near_cores: Vec<u32>,
    /// Cores for the far end's streams, used round robin; empty: not pinned.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub far_cores: Vec<u32>,
    /// Core that receives the near end's packets during the test: its interface's receive
    /// interrupts or NAPI threads are moved there and back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub near_interrupt_core: Option<u32>,
    /// Like `near_interrupt_core`, at the far end, where its owner allows it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub far_interrupt_core: Option<u32>,
    /// Source port of the near end's first stream, the next ones following; absent: any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_port: Option<u16>,
    /// Options of UDP; present exactly when `protocol` is UDP and this is no request/response test.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub udp: Option<UdpSpec>,
    /// Present: a request/response test instead of bulk transfer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_response: Option<RequestResponseSpec>,
    /// Measure round trips on a connection of their own while the test runs.
    #[serde(default)]
    pub latency_under_load: bool,
}

impl TestSpec {
    /// The size to ask for of the receive buffers, bytes; `None`: the kernel tunes them.
    #[must_use]
    pub fn receive_window_bytes(&self) -> Option<u64> {
        self.window_bytes.filter(|_| self.window_side != Some(WindowSide::Sender))
    }

    /// The size to ask for of the send buffers, bytes; `None`: the kernel tunes them.
    #[must_use]
    pub fn send_window_bytes(&self) -> Option<u64> {
        self.window_bytes.filter(|_| self.window_side != Some(WindowSide::Receiver))
    }

    /// One TCP stream near to far for 10 seconds, everything else at its default.
    #[must_use]
    pub fn tcp() -> Self {
        Self {
            protocol: Protocol::Tcp,
            direction: Direction::Forward,
            streams: 1,
            limit: TestLimit::DurationS(10.0),
            omit_s: 0.0,
            interval_s: 1.0,
            block_bytes: None,
            window_bytes: None,
            window_side: None,
            mss_bytes: None,
            congestion_control: None,
            dscp: None,
            pacing_bits_per_s: None,
            offered_bits_per_s: None,
            read_bits_per_s: None,
            mptcp: false,
            nodelay: false,
            send_path: SendPath::Copy,
            receive_path: ReceivePath::Copy,
            near_cores: Vec::new(),
            far_cores: Vec::new(),
            near_interrupt_core: None,
            far_interrupt_core: None,
            first_port: None,
            udp: None,
            request_response: None,
            latency_under_load: false,
        }
    }

    /// One UDP stream near to far for 10 seconds, as fast as it goes, with GSO and GRO.
    #[must_use]
    pub fn udp(datagram_bytes: u32) -> Self {
        Self {
            protocol: Protocol::Udp,
            udp: Some(UdpSpec { datagram_bytes, gso: true, gro: true, batch_count: 16 }),
            ..Self::tcp()
        }
    }

    /// `TCP_RR` or `UDP_RR`, one transaction outstanding.
    #[must_use]
    pub fn request_response(protocol: Protocol, request_bytes: u32, response_bytes: u32) -> Self {
        Self {
            protocol,
            nodelay: true,
            request_response: Some(RequestResponseSpec { request_bytes, response_bytes }),
            ..Self::tcp()
        }
    }
}
