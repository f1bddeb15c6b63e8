//! The changes that an experiment can make to a test, one at a time.

use std::fmt;

use results::{
    Direction, End, Protocol, ReceivePath, SendPath, TestLimit, TestSpec, UdpSpec, WindowSide,
};
use units::{show_bit_rate, show_byte_size, show_seconds};

/// One change to a test. [`Change::apply`] makes it; [`fmt::Display`] describes it:
/// `window 4.00 MiB -> 8.00 MiB (asking for 5.00 MiB)`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// Request other socket buffers.
    Window {
        /// The side whose buffers are set; `None`: both, send and receive.
        side: Option<WindowSide>,
        /// The window in effect before, bytes.
        from_bytes: u64,
        /// The window that the kernel should grant, bytes.
        to_bytes: u64,
        /// The size to request, bytes: the kernel grants more.
        ask_bytes: u64,
    },
    /// Split the work over more streams.
    MoreStreams {
        /// Streams before.
        from_count: u32,
        /// Streams to run.
        to_count: u32,
    },
    /// Let the sending application offer as much as the socket accepts.
    LiftOfferedRate {
        /// Rate offered before, bit/s per stream.
        from_bits_per_s: f64,
    },
    /// Let the receiving application read as fast as it can.
    LiftReadRate {
        /// Read rate before, bit/s per stream.
        from_bits_per_s: f64,
    },
    /// Let the kernel send as fast as congestion control allows.
    LiftPacing {
        /// `SO_MAX_PACING_RATE` before, bit/s per stream.
        from_bits_per_s: f64,
    },
    /// Run an end's threads on other cores.
    MoveCores {
        /// The end whose threads move.
        end: End,
        /// Cores before; empty: not pinned.
        from: Vec<u32>,
        /// Cores to use; empty: let the scheduler choose.
        to: Vec<u32>,
    },
    /// Let the kernel pace the packets, all streams together no faster than this.
    PaceAt {
        /// Throughput to allow, bit/s.
        bits_per_s: f64,
    },
    /// Use smaller segments: each byte then costs more packets.
    SmallerSegments {
        /// Payload of a segment before, bytes.
        from_bytes: u32,
        /// Payload to allow, bytes.
        to_bytes: u32,
    },
    /// Let the kernel choose the segment size.
    LiftMss {
        /// Segment size that the test requested before, bytes.
        from_bytes: u32,
    },
    /// Use another congestion control.
    CongestionControl {
        /// Name of the one in use before.
        from: String,
        /// Name of the one to use.
        to: String,
    },
    /// Pass bytes to the socket another way: cheaper, for a sender whose core is full.
    SendPath(SendPath),
    /// Read bytes from the socket another way: cheaper, for a receiver whose core is full.
    ReceivePath(ReceivePath),
    /// Use smaller writes and reads: each byte then costs the threads more.
    Block {
        /// Bytes per call.
        to_bytes: u64,
    },
    /// Leave a longer start of the test out of the measurement.
    Omit {
        /// Left out before, seconds.
        from_s: f64,
        /// To leave out, seconds.
        to_s: f64,
    },
    /// Send UDP at a fixed rate instead of TCP.
    UdpAtRate {
        /// Offered rate, bit/s of payload.
        bits_per_s: f64,
        /// Payload of a datagram, bytes.
        datagram_bytes: u32,
    },
    /// Send UDP at a fixed rate instead of TCP, each datagram by itself: bursts would overflow small queues and buckets.
    UdpSpaced {
        /// Offered rate, bit/s of payload.
        bits_per_s: f64,
        /// Payload of a datagram, bytes.
        datagram_bytes: u32,
    },
    /// Send UDP at a fixed rate instead of TCP, in the direction of its acknowledgements.
    UdpAgainst {
        /// Offered rate, bit/s of payload.
        bits_per_s: f64,
        /// Payload of a datagram, bytes.
        datagram_bytes: u32,
    },
}

impl Change {
    /// The judged test with this one change made.
    #[must_use]
    pub fn apply(&self, spec: &TestSpec) -> TestSpec {
        let mut changed = spec.clone();
        match self {
            Self::Window { ask_bytes, side, .. } => {
                changed.window_bytes = Some(*ask_bytes);
                changed.window_side = *side;
            }
            Self::MoreStreams { to_count, .. } => changed.streams = *to_count,
            Self::LiftOfferedRate { .. } => changed.offered_bits_per_s = None,
            Self::LiftReadRate { .. } => changed.read_bits_per_s = None,
            Self::LiftPacing { .. } => changed.pacing_bits_per_s = None,
            Self::PaceAt { bits_per_s } => {
                let each = bits_per_s / f64::from(spec.streams.max(1));
                changed.pacing_bits_per_s = Some(each);
            }
            Self::SmallerSegments { to_bytes, .. } => changed.mss_bytes = Some(*to_bytes),
            Self::LiftMss { .. } => changed.mss_bytes = None,
            Self::MoveCores { end: End::Near, to, .. } => changed.near_cores.clone_from(to),
            Self::MoveCores { end: End::Far, to, .. } => changed.far_cores.clone_from(to),
            Self::CongestionControl { to, .. } => changed.congestion_control = Some(to.clone()),
            Self::SendPath(path) => changed.send_path = *path,
            Self::ReceivePath(path) => changed.receive_path = *path,
            Self::Block { to_bytes } => changed.block_bytes = Some(*to_bytes),
            Self::Omit { to_s, .. } => changed.omit_s = *to_s,
            Self::UdpAtRate { bits_per_s, datagram_bytes } => {
                return udp_at_rate(spec, *bits_per_s, *datagram_bytes);
            }
            Self::UdpSpaced { bits_per_s, datagram_bytes } => {
                let udp = single(*datagram_bytes, true);
                let at_rate = udp_at_rate(spec, *bits_per_s, *datagram_bytes);
                return TestSpec { udp: Some(udp), ..at_rate };
            }
            Self::UdpAgainst { bits_per_s, datagram_bytes } => {
                return udp_against(spec, *bits_per_s, *datagram_bytes);
            }
        }
        changed
    }
}

impl Change {
    /// Whether another change is of the same kind and to the same value, where the kind has values to choose from;
    /// any number of streams above one is alike. Windows are never alike: each size is a change of its own.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::SendPath(one), Self::SendPath(other)) => one == other,
            (Self::ReceivePath(one), Self::ReceivePath(other)) => one == other,
            (
                Self::CongestionControl { to: one, .. },
                Self::CongestionControl { to: other, .. },
            ) => one == other,
            (
                Self::MoveCores { end: one_end, to: one, .. },
                Self::MoveCores { end: other_end, to: other, .. },
            ) => one_end == other_end && one == other,
            (Self::MoreStreams { .. }, Self::MoreStreams { .. })
            | (Self::Omit { .. }, Self::Omit { .. })
            | (Self::LiftMss { .. }, Self::LiftMss { .. }) => true,
            _ => false,
        }
    }
}

/// Whether two tests were changed from the judged one in the same respects, whatever the values.
pub(crate) fn is_same_kind(judged: &TestSpec, one: &TestSpec, other: &TestSpec) -> bool {
    let changed = |spec: &TestSpec| {
        let is_udp = spec.protocol != judged.protocol;
        let options = [
            spec.streams != judged.streams,
            spec.window_bytes != judged.window_bytes,
            spec.offered_bits_per_s != judged.offered_bits_per_s,
            spec.read_bits_per_s != judged.read_bits_per_s,
            spec.pacing_bits_per_s != judged.pacing_bits_per_s,
            spec.mss_bytes != judged.mss_bytes,
            spec.congestion_control != judged.congestion_control,
            spec.send_path != judged.send_path,
            spec.receive_path != judged.receive_path,
            spec.block_bytes != judged.block_bytes,
            spec.omit_s.total_cmp(&judged.omit_s).is_ne(),
            spec.near_cores != judged.near_cores,
            spec.far_cores != judged.far_cores,
        ];
        // UDP takes none of TCP's options over.
        (
            is_udp,
            spec.direction != judged.direction,
            options.map(|is_changed| is_changed && !is_udp),
        )
    };
    changed(one) == changed(other)
}

/// UDP in place of TCP: direction, duration and placement stay, options of TCP go.
fn udp_at_rate(spec: &TestSpec, bits_per_s: f64, datagram_bytes: u32) -> TestSpec {
    let limit = match spec.limit {
        TestLimit::DurationS(duration_s) => TestLimit::DurationS(duration_s),
        TestLimit::TotalBytes(_) | TestLimit::TotalBlocks(_) => TestLimit::DurationS(5.0),
    };
    TestSpec {
        protocol: Protocol::Udp,
        direction: spec.direction,
        limit,
        omit_s: spec.omit_s,
        interval_s: spec.interval_s,
        dscp: spec.dscp,
        near_cores: spec.near_cores.clone(),
        far_cores: spec.far_cores.clone(),
        offered_bits_per_s: Some(bits_per_s),
        udp: Some(UdpSpec { datagram_bytes, gso: true, gro: true, batch_count: 16 }),
        ..TestSpec::tcp()
    }
}

/// Datagrams that leave one by one.
fn single(datagram_bytes: u32, gro: bool) -> UdpSpec {
    UdpSpec { datagram_bytes, gso: false, gro, batch_count: 1 }
}

/// The same the other way, as single packets: bursts would overflow the queue of a slow return path.
fn udp_against(spec: &TestSpec, bits_per_s: f64, datagram_bytes: u32) -> TestSpec {
    let direction = match spec.direction {
        Direction::Forward => Direction::Reverse,
        Direction::Reverse => Direction::Forward,
        Direction::Bidirectional => Direction::Bidirectional,
    };
    let udp = single(datagram_bytes, false);
    let other_way = udp_at_rate(spec, bits_per_s, datagram_bytes);
    TestSpec { direction, udp: Some(udp), ..other_way }
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window { side, from_bytes, to_bytes, ask_bytes } => {
                let of = match side {
                    None => "",
                    Some(WindowSide::Sender) => ", send buffer only",
                    Some(WindowSide::Receiver) => ", receive buffer only",
                };
                let sizes = [from_bytes, to_bytes, ask_bytes].map(|bytes| show_byte_size(*bytes));
                let [from, to, ask] = sizes;
                write!(out, "window {from} -> {to} (asking for {ask}){of}")
            }
            Self::MoreStreams { from_count, to_count } => {
                write!(out, "streams {from_count} -> {to_count}")
            }
            Self::LiftOfferedRate { from_bits_per_s } => {
                write!(out, "offered rate {} -> unlimited", show_bit_rate(*from_bits_per_s))
            }
            Self::LiftReadRate { from_bits_per_s } => {
                write!(out, "read rate {} -> unlimited", show_bit_rate(*from_bits_per_s))
            }
            Self::LiftPacing { from_bits_per_s } => {
                write!(out, "pacing {} -> unlimited", show_bit_rate(*from_bits_per_s))
            }
            Self::MoveCores { end, from, to } => {
                let name = match end {
                    End::Near => "near",
                    End::Far => "far",
                };
                write!(out, "{name} end {} -> {}", place(from), place(to))
            }
            Self::PaceAt { bits_per_s } => {
                write!(out, "packets spaced at {}", show_bit_rate(*bits_per_s))
            }
            Self::SmallerSegments { from_bytes, to_bytes } => {
                write!(out, "segments {from_bytes} -> {to_bytes} bytes (more packets per byte)")
            }
            Self::LiftMss { from_bytes } => {
                write!(out, "segments {from_bytes} bytes -> the path's own")
            }
            Self::CongestionControl { from, to } => {
                write!(out, "congestion control {from} -> {to}")
            }
            Self::SendPath(SendPath::Copy) => write!(out, "send path -> write (copy)"),
            Self::SendPath(SendPath::Sendfile) => write!(out, "send path -> sendfile (no copy)"),
            Self::SendPath(SendPath::Zerocopy) => write!(out, "send path -> MSG_ZEROCOPY"),
            Self::ReceivePath(ReceivePath::Copy) => write!(out, "receive path -> read (copy)"),
            Self::ReceivePath(ReceivePath::Discard) => {
                write!(out, "receive path -> discard (no copy)")
            }
            Self::ReceivePath(ReceivePath::Zerocopy) => write!(out, "receive path -> zero-copy"),
            Self::Block { to_bytes } => {
                write!(out, "blocks -> {} (more work per byte)", show_byte_size(*to_bytes))
            }
            Self::Omit { from_s, to_s } => {
                write!(out, "omitted start {} -> {}", show_seconds(*from_s), show_seconds(*to_s))
            }
            Self::UdpAtRate { bits_per_s, datagram_bytes } => {
                write_udp(out, " at ", *bits_per_s, "datagrams", *datagram_bytes)
            }
            Self::UdpSpaced { bits_per_s, datagram_bytes } => {
                write_udp(out, " at ", *bits_per_s, "single datagrams", *datagram_bytes)
            }
            Self::UdpAgainst { bits_per_s, datagram_bytes } => {
                write_udp(out, " the other way at ", *bits_per_s, "datagrams", *datagram_bytes)
            }
        }
    }
}

/// UDP instead of TCP, in words.
fn write_udp(
    out: &mut fmt::Formatter<'_>,
    way: &str,
    bits_per_s: f64,
    what: &str,
    datagram_bytes: u32,
) -> fmt::Result {
    let (rate, size) = (show_bit_rate(bits_per_s), show_byte_size(u64::from(datagram_bytes)));
    write!(out, "TCP -> UDP{way}{rate}, {what} of {size}")
}

fn place(cores: &[u32]) -> String {
    if cores.is_empty() {
        return "not pinned".to_owned();
    }
    let list: Vec<String> = cores.iter().map(u32::to_string).collect();
    let noun = if cores.len() == 1 { "core" } else { "cores" };
    format!("{noun} {}", list.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_changes_one_thing() {
        let spec =
            TestSpec { near_cores: vec![1], offered_bits_per_s: Some(1e9), ..TestSpec::tcp() };
        let wider = Change::Window {
            side: None,
            from_bytes: 4 << 20,
            to_bytes: 8 << 20,
            ask_bytes: 5 << 20,
        };
        assert_eq!(wider.apply(&spec), TestSpec { window_bytes: Some(5 << 20), ..spec.clone() });
        assert_eq!(wider.to_string(), "window 4.00 MiB -> 8.00 MiB (asking for 5.00 MiB)");
        let unpin = Change::MoveCores { end: End::Near, from: vec![1], to: Vec::new() };
        assert_eq!(unpin.apply(&spec), TestSpec { near_cores: Vec::new(), ..spec.clone() });
        assert_eq!(unpin.to_string(), "near end core 1 -> not pinned");
        let lifted = Change::LiftOfferedRate { from_bits_per_s: 1e9 };
        assert_eq!(lifted.apply(&spec).offered_bits_per_s, None);
        assert_eq!(lifted.to_string(), "offered rate 1.00 Gbit/s -> unlimited");
    }

    #[test]
    fn udp_drops_what_only_tcp_has() {
        let spec =
            TestSpec { window_bytes: Some(1), mptcp: true, near_cores: vec![3], ..TestSpec::tcp() };
        let udp = Change::UdpAtRate { bits_per_s: 1e9, datagram_bytes: 8952 }.apply(&spec);
        assert_eq!((udp.protocol, udp.window_bytes, udp.mptcp), (Protocol::Udp, None, false));
        assert_eq!(
            (udp.near_cores.as_slice(), udp.offered_bits_per_s),
            ([3].as_slice(), Some(1e9))
        );
        assert_eq!(udp.udp.as_ref().map(|udp| udp.datagram_bytes), Some(8952));
        let spaced = Change::UdpSpaced { bits_per_s: 1e9, datagram_bytes: 8952 }.apply(&spec);
        let single = spaced.udp.as_ref().expect("datagrams");
        assert_eq!((single.gso, single.batch_count), (false, 1), "no bursts");
        assert_eq!(TestSpec { udp: udp.udp.clone(), ..spaced }, udp, "and nothing else");
    }
}
