//! What the kernel reports about a stream's connection.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use results::{Protocol, TcpSample, TcpSummary};
use sys::tcp_info::{TcpInfo, tcp_info};

use super::StreamRole;
use super::shared::Stream;

/// The slow-start threshold that stands for none (kernel `include/net/tcp.h`).
const TCP_INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// `TCP_INFO` of a stream now; `None` for UDP and for a socket that the kernel no longer reports
/// on.
pub(super) fn tcp_sample(stream: &Stream) -> Option<TcpSample> {
    if stream.protocol != Protocol::Tcp {
        return None;
    }
    Some(sample_of(&tcp_info(&stream.socket).ok()?))
}

/// Bytes that have arrived in order at a receiver's socket since the connection began; `None` for other streams.
pub(super) fn arrived_bytes(stream: &Stream) -> Option<u64> {
    if stream.protocol != Protocol::Tcp || stream.role != StreamRole::Receive {
        return None;
    }
    tcp_info(&stream.socket).ok()?.bytes_received()
}

/// The whole summary of a connection now; the caller fills in `first`.
pub(super) fn tcp_summary(stream: &Stream, mptcp_asked: bool) -> Option<TcpSummary> {
    if stream.protocol != Protocol::Tcp {
        return None;
    }
    let socket = stream.socket.as_fd();
    let info = tcp_info(socket).ok()?;
    Some(TcpSummary {
        congestion_control: sys::socket::congestion_control(socket).unwrap_or_default(),
        mss_bytes: info.sending_mss_bytes().unwrap_or(0),
        path_mtu_bytes: info.path_mtu_bytes().filter(|&bytes| bytes > 0),
        segments_out_count: info.segments_out_count().map(u64::from),
        segments_in_count: info.segments_in_count().map(u64::from),
        window_scale_shifts: info.window_scale_shifts(),
        sack_negotiated: info.sack_negotiated(),
        mptcp_established: mptcp_asked.then(|| sys::socket::mptcp_established(socket)),
        first: TcpSample::default(),
        last: sample_of(&info),
    })
}

/// `SO_MAX_PACING_RATE` of a stream, in bit/s; `None` if it is unlimited.
pub(super) fn pacing_max_bits_per_s(stream: &Stream) -> Option<f64> {
    if stream.protocol != Protocol::Tcp {
        return None;
    }
    let rate = tcp_info(&stream.socket).ok()?.pacing_max_bytes_per_s();
    rate.filter(|&rate| rate != u64::MAX && rate != u64::from(u32::MAX))
        .map(|rate| rate as f64 * 8.0)
}

fn sample_of(info: &TcpInfo) -> TcpSample {
    let seconds = |us: u64| us as f64 * 1e-6;
    let mss_bytes = u64::from(info.sending_mss_bytes().unwrap_or(0));
    let count = |segments: Option<u32>| u64::from(segments.unwrap_or(0));
    // As `tcp_packets_in_flight` in kernel `include/net/tcp.h`.
    let in_flight_segments = (count(info.unacked_segments())
        + count(info.retransmitted_in_flight_segments()))
    .saturating_sub(count(info.sacked_segments()) + count(info.lost_segments()));
    TcpSample {
        rtt_s: seconds(count(info.rtt_us())),
        rtt_variation_s: seconds(count(info.rtt_variation_us())),
        // All ones until there is a first measurement.
        rtt_min_s: info.rtt_min_us().filter(|&us| us != u32::MAX).map(|us| seconds(u64::from(us))),
        receiver_rtt_s: info.receiver_rtt_us().map(|us| seconds(u64::from(us))),
        congestion_window_bytes: count(info.congestion_window_segments()) * mss_bytes,
        peer_window_bytes: info.peer_window_bytes().map(u64::from),
        advertised_window_bytes: info.advertised_window_bytes().map(u64::from),
        in_flight_bytes: in_flight_segments * mss_bytes,
        not_sent_bytes: info.not_sent_bytes().map(u64::from),
        retransmits_count: count(info.retransmits_count()),
        delivery_bits_per_s: info
            .delivery_bytes_per_s()
            .filter(|&rate| rate > 0)
            .map(|rate| rate as f64 * 8.0),
        delivery_app_limited: info.delivery_app_limited(),
        pacing_bits_per_s: info
            .pacing_bytes_per_s()
            .filter(|&rate| rate != u64::MAX && rate != u64::from(u32::MAX))
            .map(|rate| rate as f64 * 8.0),
        busy_s: info.busy_us().map(seconds),
        receive_window_limited_s: info.receive_window_limited_us().map(seconds),
        send_buffer_limited_s: info.send_buffer_limited_us().map(seconds),
        marked_count: info.marked_count().map(u64::from),
        reordering_segments: info.reordering_segments().map(u64::from),
        reordered_count: info.reordered_count().map(u64::from),
        needless_retransmits_count: info.needless_retransmits_count().map(u64::from),
        out_of_order_count: info.out_of_order_count().map(u64::from),
        slow_start_threshold_bytes: info
            .slow_start_threshold_segments()
            .filter(|&segments| segments < TCP_INFINITE_SSTHRESH)
            .map(|segments| u64::from(segments) * mss_bytes),
    }
}

/// This end's address and port; empty if unknown.
pub(super) fn local_address(socket: impl AsFd) -> String {
    let address = rustix::net::getsockname(socket).and_then(|any| any.try_into());
    address.map_or_else(|_unknown| String::new(), |address: SocketAddr| shown(address))
}

/// The other end's address and port; empty if unknown.
pub(super) fn remote_address(socket: impl AsFd) -> String {
    let address = rustix::net::getpeername(socket).and_then(|any| match any {
        Some(any) => any.try_into(),
        None => Err(rustix::io::Errno::NOTCONN),
    });
    address.map_or_else(|_gone| String::new(), |address: SocketAddr| shown(address))
}

/// Shows an IPv4 address as IPv4 even on a dual-stack socket.
fn shown(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// Messages that a UDP receiver's socket has dropped; a super-datagram joined by GRO is one
/// message.
pub(super) fn drops_count(stream: &Stream) -> Option<u64> {
    if stream.protocol != Protocol::Udp || stream.role != StreamRole::Receive {
        return None;
    }
    sys::socket::socket_drops_count(&stream.socket).ok()
}
