//! Throughput ceilings by arithmetic: the payload that a line rate leaves, the rate that a window allows.

use units::show_bit_rate;

use crate::observed::Observed;

/// Bytes that Ethernet adds to a packet on the wire: preamble and start delimiter 8, header 14, frame
/// check sequence 4, inter-packet gap 12 (IEEE 802.3 clauses 3 and 4).
pub(crate) const ETHERNET_WIRE_BYTES: f64 = 38.0;

/// Bytes of Ethernet that a queueing discipline counts: the header (kernel `qdisc_pkt_len`).
pub(crate) const ETHERNET_QDISC_BYTES: f64 = 14.0;

/// Whether a ceiling is no ceiling because more was carried than it allows, both in bit/s: by more than what the two
/// figures, each of a few percent, can differ.
pub(crate) fn is_disproved(ceiling: f64, measured: f64) -> bool {
    ceiling < measured * 0.95
}

/// Payload rate of full TCP segments at a line rate, bit/s.
///
/// Example: 10 Gbit/s, MTU 1500, IPv4: 1448 of 1538 bytes, 9.41 Gbit/s.
pub(crate) fn goodput_ceiling(
    seen: &Observed<'_>,
    line_bits_per_s: f64,
    framing_bytes: f64,
) -> Option<f64> {
    let headers = f64::from(seen.headers().bytes());
    let mss = seen.flow.mss_bytes.or_else(|| seen.path_mtu_bytes().map(|mtu| mtu - headers))?;
    let on_the_wire = mss + headers + framing_bytes;
    // A rate below 1 bit/s comes from absurd input.
    crate::numbers::positive(line_bits_per_s * mss / on_the_wire).filter(|rate| *rate >= 1.0)
}

/// Rate that a window allows over a round trip, `window / RTT`, bit/s.
pub(crate) fn window_ceiling(window_bytes: f64, rtt_s: f64) -> Option<f64> {
    crate::numbers::ratio(window_bytes * 8.0, rtt_s)
}

/// The size up to which the kernel may grow a buffer by itself: third figure of `tcp_rmem` or `tcp_wmem`.
pub(crate) fn autotuning_max_bytes(sysctl: &str) -> Option<f64> {
    let max: f64 = sysctl.split_whitespace().nth(2)?.parse().ok()?;
    crate::numbers::positive(max)
}

/// Text of a goodput ceiling: `9.40 Gbit/s (10.0 Gbit/s less headers)`.
pub(crate) fn after_headers(goodput: f64, line: f64) -> String {
    format!("{} of payload ({} less headers)", show_bit_rate(goodput), show_bit_rate(line))
}
