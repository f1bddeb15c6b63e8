//! What one end of a test may consume at most, computed before anything is allocated, so that a
//! server can refuse the test. Pure except for [`BufferCaps::probe`].

use results::{IntervalSample, Protocol, ReceivePath, SendPath, TestSpec};
use sys::socket::{Family, Transport, new_socket};

use super::{StreamRole, options, request_response, tcp_receive, tcp_send, udp_receive, udp_send};

/// A thread with the parts of its stack and heap that it touches, the kernel's socket structures,
/// and bookkeeping, in bytes.
const STREAM_BYTES: u64 = 256 << 10;

/// A sample in a message, in bytes: thirty values with their names.
const SAMPLE_JSON_BYTES: u64 = 2 << 10;

/// Amounts of memory and streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Need {
    /// Memory of this process and of the socket buffers it sets, in bytes.
    pub bytes: u64,
    /// Streams, each with a thread and one or two descriptors.
    pub streams: u64,
}

impl Need {
    /// The sum of two needs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            streams: self.streams.saturating_add(other.streams),
        }
    }

    /// The difference of two needs, 0 where it would be negative.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            streams: self.streams.saturating_sub(other.streams),
        }
    }

    /// Whether neither amount exceeds that of `most`.
    #[must_use]
    pub fn fits(self, most: Self) -> bool {
        self.bytes <= most.bytes && self.streams <= most.streams
    }
}

/// The largest socket buffers that the kernel grants to this process, in bytes as the kernel counts
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferCaps {
    /// Largest value of `SO_SNDBUF`.
    pub send_bytes: u64,
    /// Largest value of `SO_RCVBUF`.
    pub receive_bytes: u64,
}

impl BufferCaps {
    /// Requests the largest buffers from the kernel; a bound that cannot be read counts as
    /// unlimited.
    #[must_use]
    pub fn probe() -> Self {
        let Ok(socket) = new_socket(Family::Ipv4, Transport::Udp) else {
            return Self { send_bytes: u64::MAX, receive_bytes: u64::MAX };
        };
        Self {
            send_bytes: sys::socket::set_send_buffer(&socket, u64::MAX).unwrap_or(u64::MAX),
            receive_bytes: sys::socket::set_receive_buffer(&socket, u64::MAX).unwrap_or(u64::MAX),
        }
    }
}

/// How the samples of a test are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Samples {
    /// This many samples per stream, all kept for the report and also sent to the other end.
    All(u64),
    /// Only this many of the newest samples per stream.
    Newest(u64),
}

/// Upper bound on what an end with these streams (protocol and role of each) may consume.
#[must_use]
pub fn need_of(
    spec: &TestSpec,
    streams: &[(Protocol, StreamRole)],
    samples: Samples,
    caps: BufferCaps,
) -> Need {
    let sample_bytes = size_of::<IntervalSample>() as u64;
    // Kept, copied for the report, and queued as an event.
    let samples_bytes = match samples {
        Samples::All(count) => count.saturating_mul(3 * sample_bytes + SAMPLE_JSON_BYTES),
        Samples::Newest(count) => count.saturating_mul(6 * sample_bytes),
    };
    let sends_tcp = |&(protocol, role): &(Protocol, StreamRole)| {
        protocol == Protocol::Tcp && role == StreamRole::Send
    };
    let shared_bytes = match spec.send_path {
        SendPath::Copy | SendPath::Zerocopy if streams.iter().any(sends_tcp) => {
            tcp_send::source_block_bytes(spec)
        }
        _ => 0,
    };
    let bytes = streams.iter().fold(shared_bytes, |sum, &(protocol, role)| {
        let own = stream_bytes(spec, protocol, role);
        let buffers = socket_bytes(spec, protocol, role, caps);
        [sum, own, buffers, samples_bytes, STREAM_BYTES].into_iter().fold(0, u64::saturating_add)
    });
    Need { bytes, streams: streams.len() as u64 }
}

/// What a stream's thread allocates, in bytes.
fn stream_bytes(spec: &TestSpec, protocol: Protocol, role: StreamRole) -> u64 {
    match (protocol, role) {
        (Protocol::Tcp, StreamRole::Send) if spec.send_path == SendPath::Sendfile => {
            tcp_send::source_bytes(spec)
        }
        (Protocol::Tcp, StreamRole::Send) => 0,
        (Protocol::Tcp, StreamRole::Receive) => {
            let window = u64::from(spec.receive_path == ReceivePath::Zerocopy);
            sys::memory::block_resident_bytes(tcp_receive::block_bytes(spec)) * (1 + window)
        }
        (Protocol::Udp, StreamRole::Send) => udp_send::memory_bytes(spec),
        (Protocol::Udp, StreamRole::Receive) => udp_receive::memory_bytes(spec),
        (_, StreamRole::Request | StreamRole::Respond | StreamRole::Probe) => {
            request_response::memory_bytes(spec)
        }
    }
}

/// What the stream's socket buffers may hold, in bytes, where this program sets their size;
/// otherwise the kernel tunes and bounds them itself (`net.ipv4.tcp_mem`).
fn socket_bytes(spec: &TestSpec, protocol: Protocol, role: StreamRole, caps: BufferCaps) -> u64 {
    let is_tcp = protocol == Protocol::Tcp;
    let (send, receive) = options::buffers_asked(spec, is_tcp, role == StreamRole::Send);
    // Nothing is written to the socket of a stream that only receives.
    let send = send.filter(|_| !(is_tcp && role == StreamRole::Receive));
    // The kernel doubles the requested size for its own bookkeeping.
    let granted =
        |asked: Option<u64>, most: u64| asked.map_or(0, |bytes| bytes.saturating_mul(2).min(most));
    granted(send, caps.send_bytes).saturating_add(granted(receive, caps.receive_bytes))
}

#[cfg(test)]
mod tests {
    use results::UdpSpec;

    use super::*;

    const CAPS: BufferCaps = BufferCaps { send_bytes: 425_984, receive_bytes: 425_984 };

    fn need(spec: &TestSpec, role: StreamRole, count: usize) -> u64 {
        let streams = vec![(spec.protocol, role); count];
        need_of(spec, &streams, Samples::All(10), CAPS).bytes
    }

    #[test]
    fn an_ordinary_test_needs_little() {
        for role in [StreamRole::Send, StreamRole::Receive] {
            let bytes = need(&TestSpec::tcp(), role, 1);
            assert!((512 << 10..4 << 20).contains(&bytes), "{role:?}: {bytes}");
            let bytes = need(&TestSpec::udp(1400), role, 1);
            assert!((512 << 10..4 << 20).contains(&bytes), "{role:?}: {bytes}");
        }
    }

    #[test]
    fn everything_a_client_may_choose_counts() {
        let mut tcp = TestSpec::tcp();
        tcp.block_bytes = Some(16 << 20);
        assert!(need(&tcp, StreamRole::Receive, 128) >= 128 * (16 << 20));
        // One block for all senders.
        assert!(need(&tcp, StreamRole::Send, 128) < 128 << 20);
        tcp.send_path = SendPath::Sendfile;
        assert!(need(&tcp, StreamRole::Send, 128) >= 128 * (16 << 20));

        let mut udp = TestSpec::udp(1000);
        udp.udp = Some(UdpSpec { datagram_bytes: 1000, gso: true, gro: true, batch_count: 1024 });
        assert!(need(&udp, StreamRole::Send, 4) >= 4 * 1024 * 65_000);

        let pair = TestSpec::request_response(Protocol::Tcp, 1 << 20, 1 << 20);
        assert!(need(&pair, StreamRole::Respond, 8) >= 16 << 20);

        let plain = TestSpec::tcp();
        let streams = [(Protocol::Tcp, StreamRole::Receive)];
        let with = |samples| need_of(&plain, &streams, samples, CAPS).bytes;
        assert!(with(Samples::All(100_000)) - with(Samples::All(0)) >= 100_000 * 2048);

        let window = TestSpec { window_bytes: Some(1 << 30), ..TestSpec::tcp() };
        let forced = BufferCaps { send_bytes: 1 << 31, receive_bytes: 1 << 31 };
        assert!(need_of(&window, &streams, Samples::All(0), forced).bytes >= 1 << 31);
        assert!(need_of(&window, &streams, Samples::All(0), CAPS).bytes < 8 << 20, "clamped");
    }
}
