//! The kernel's view of one TCP connection (`TCP_INFO`).

use std::os::fd::AsFd;

use crate::SyscallError;
use crate::socket;

/// Bytes asked for: `struct tcp_info` up to Linux 6.17 has 280; 240 hold all that is read here.
const TCP_INFO_BYTES: usize = 240;

/// `struct tcp_info` (kernel `include/uapi/linux/tcp.h`), as far as this kernel fills it. The
/// structure only ever grows, so a field beyond what an older kernel wrote is `None`.
#[derive(Debug, Clone, Copy)]
pub struct TcpInfo {
    bytes: [u8; TCP_INFO_BYTES],
    length: usize,
}

/// Asks the kernel about a connection.
///
/// # Errors
/// Not a TCP (or MPTCP) socket.
pub fn tcp_info(fd: impl AsFd) -> Result<TcpInfo, SyscallError> {
    let zero = [0_u8; TCP_INFO_BYTES];
    let call = "getsockopt(TCP_INFO)";
    let (bytes, length) = socket::get(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, zero, call)?;
    Ok(TcpInfo { bytes, length })
}

/// Fields of four bytes: name, offset, meaning.
macro_rules! words {
    ($($name:ident $offset:literal $meaning:literal;)*) => {$(
        #[doc = $meaning]
        #[must_use]
        pub fn $name(&self) -> Option<u32> {
            self.field($offset).map(u32::from_ne_bytes)
        }
    )*};
}

/// Fields of eight bytes: name, offset, meaning.
macro_rules! double_words {
    ($($name:ident $offset:literal $meaning:literal;)*) => {$(
        #[doc = $meaning]
        #[must_use]
        pub fn $name(&self) -> Option<u64> {
            self.field($offset).map(u64::from_ne_bytes)
        }
    )*};
}

impl TcpInfo {
    words! {
        sending_mss_bytes 16 "Sending MSS, bytes.";
        unacked_segments 24 "Segments sent and not acknowledged.";
        sacked_segments 28 "Segments acknowledged selectively.";
        lost_segments 32 "Segments considered lost.";
        retransmitted_in_flight_segments 36 "Retransmissions in flight, segments.";
        path_mtu_bytes 60 "Path MTU the kernel assumes, bytes.";
        rtt_us 68 "Smoothed round-trip time, microseconds.";
        rtt_variation_us 72 "Its variation, microseconds.";
        slow_start_threshold_segments 76 "Slow-start threshold, segments; 0x7fffffff before the first loss.";
        congestion_window_segments 80 "Congestion window, segments.";
        reordering_segments 88 "Reordering degree the kernel assumes, segments.";
        retransmits_count 100 "Segments retransmitted since the beginning.";
        segments_out_count 136 "Segments sent (Linux 4.2).";
        segments_in_count 140 "Segments received (Linux 4.2).";
        not_sent_bytes 144 "Written and not yet sent, bytes (Linux 4.6).";
        rtt_min_us 148 "Lowest round-trip time seen, microseconds (Linux 4.6).";
        marked_count 196 "Segments delivered with a congestion mark (Linux 4.18).";
        needless_retransmits_count 216 "D-SACKs received: segments retransmitted needlessly (Linux 4.19).";
        reordered_count 220 "Reordering events seen (Linux 4.19).";
        out_of_order_count 224 "Packets received out of order (Linux 5.4).";
        peer_window_bytes 228 "Window the other end advertises, bytes (Linux 5.4).";
        advertised_window_bytes 232 "Window this end advertises, bytes (Linux 6.2).";
    }

    double_words! {
        pacing_bytes_per_s 104 "Pacing rate, bytes per second; all ones when unlimited.";
        pacing_max_bytes_per_s 112 "`SO_MAX_PACING_RATE`, bytes per second; all ones when unlimited.";
        bytes_acked 120 "Bytes the other end has acknowledged (Linux 4.1).";
        bytes_received 128 "Bytes received from the other end (Linux 4.1).";
        delivery_bytes_per_s 160 "Last estimate of the delivery rate, bytes per second (Linux 4.9).";
        busy_us 168 "Time with data outstanding, microseconds (Linux 4.10).";
        receive_window_limited_us 176 "Time held back by the other end's window, microseconds.";
        send_buffer_limited_us 184 "Time held back by this end's send buffer, microseconds.";
    }

    /// Whether both ends agreed on selective acknowledgements.
    #[must_use]
    pub fn sack_negotiated(&self) -> Option<bool> {
        // TCPI_OPT_SACK.
        const NEGOTIATED: u8 = 2;
        let [options] = self.field(5)?;
        Some(options & NEGOTIATED != 0)
    }

    /// Round-trip time that this end reads from the timestamps which the other end echoes in its data, microseconds;
    /// `None` without timestamps, or before the first one: the kernel then only knows that it is no shorter.
    #[must_use]
    pub fn receiver_rtt_us(&self) -> Option<u32> {
        // TCPI_OPT_TIMESTAMPS.
        const NEGOTIATED: u8 = 1;
        let [options] = self.field(5)?;
        let rtt_us = self.field(92).map(u32::from_ne_bytes)?;
        (options & NEGOTIATED != 0 && rtt_us > 0).then_some(rtt_us)
    }

    /// Window scale shifts, theirs (applied to what we send) and ours; `None` when not negotiated.
    #[must_use]
    pub fn window_scale_shifts(&self) -> Option<(u8, u8)> {
        // TCPI_OPT_WSCALE.
        const NEGOTIATED: u8 = 4;
        let [options, shifts] = self.field(5)?;
        (options & NEGOTIATED != 0).then_some((shifts & 15, shifts >> 4))
    }

    /// Whether the delivery rate was limited by the application (Linux 4.9).
    #[must_use]
    pub fn delivery_app_limited(&self) -> bool {
        self.field(7).is_some_and(|[flags]: [u8; 1]| flags & 1 != 0)
    }

    fn field<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let filled = self.bytes.get(..self.length)?;
        filled.get(offset..offset + N)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn a_connection_on_loopback() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        std::io::Write::write_all(&mut &near, &[1; 5000]).unwrap();
        far.peek(&mut [0; 5000]).unwrap();
        let info = tcp_info(&near).unwrap();
        assert_eq!(info.bytes_acked(), Some(5001), "the SYN counts");
        assert!(info.sending_mss_bytes().unwrap() > 500);
        assert!(info.rtt_us().unwrap() > 0);
        assert_eq!(info.retransmits_count(), Some(0));
        assert!(info.window_scale_shifts().is_some());
        assert!(info.sack_negotiated().is_some());
        assert!(info.peer_window_bytes().unwrap() > 1000);
        assert!(info.busy_us().unwrap() < 1_000_000);
    }

    #[test]
    fn an_older_kernel_leaves_fields_out() {
        let info = TcpInfo { bytes: [1; TCP_INFO_BYTES], length: 104 };
        assert_eq!(info.retransmits_count(), Some(0x0101_0101));
        assert_eq!(info.pacing_bytes_per_s(), None);
        assert_eq!(info.advertised_window_bytes(), None);
        assert_eq!(TcpInfo { length: usize::MAX, ..info }.rtt_us(), None);
    }

    #[test]
    fn the_receivers_round_trip_needs_timestamps() {
        let with_options = |options: u8, rtt_us: u32| {
            let mut bytes = [0; TCP_INFO_BYTES];
            bytes[5] = options;
            bytes[92..96].copy_from_slice(&rtt_us.to_ne_bytes());
            TcpInfo { bytes, length: 104 }.receiver_rtt_us()
        };
        assert_eq!(with_options(7, 17_000), Some(17_000));
        assert_eq!(with_options(6, 17_000), None, "a lower bound");
        assert_eq!(with_options(7, 0), None, "nothing received yet");
    }

    #[test]
    fn not_tcp() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(tcp_info(&socket).unwrap_err().call, "getsockopt(TCP_INFO)");
    }
}
