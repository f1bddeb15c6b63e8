//! Captures built packet by packet: what the network saw is known.

/// How a capture is written down.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    pub(crate) is_ng: bool,
    pub(crate) is_big_endian: bool,
    pub(crate) is_ns: bool,
    pub(crate) link_type: u32,
    pub is_ipv6: bool,
    /// 802.1Q tags, on Ethernet.
    pub(crate) tags: usize,
    pub(crate) snap_bytes: usize,
}

pub(crate) const PLAIN: Format = Format {
    is_ng: false,
    is_big_endian: false,
    is_ns: false,
    link_type: 1,
    is_ipv6: false,
    tags: 0,
    snap_bytes: 96,
};

/// One segment of the built flow.
#[derive(Clone, Copy, Default)]
pub(crate) struct Packet {
    pub(crate) at_ns: u64,
    pub(crate) is_from_sender: bool,
    pub(crate) is_syn: bool,
    /// Sequence number, and (not in the first SYN) what is acknowledged.
    pub(crate) seq: u32,
    pub(crate) ack: Option<u32>,
    pub(crate) window: u16,
    pub(crate) payload_bytes: u16,
    pub(crate) shift: Option<u8>,
    pub(crate) timestamps: Option<(u32, u32)>,
}

pub(crate) const SENDER_PORT: u16 = 40_000;
pub(crate) const RECEIVER_PORT: u16 = 5201;
const BASE_S: u64 = 1_700_000_000;

/// The capture file.
pub(crate) fn capture(format: Format, packets: &[Packet]) -> Vec<u8> {
    let mut file = header(format);
    for (number, packet) in packets.iter().enumerate() {
        let frame = frame(format, packet, number);
        let captured = &frame[..frame.len().min(format.snap_bytes)];
        let whole = frame.len() + usize::from(packet.payload_bytes);
        record(format, &mut file, packet.at_ns, captured, u32::try_from(whole).expect("small"));
    }
    file
}

fn words(format: Format, values: &[u32]) -> Vec<u8> {
    let bytes = |value: &u32| {
        if format.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    };
    values.iter().flat_map(bytes).collect()
}

fn halves(format: Format, values: [u16; 2]) -> Vec<u8> {
    let bytes = |value: u16| {
        if format.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    };
    values.into_iter().flat_map(bytes).collect()
}

fn header(format: Format) -> Vec<u8> {
    if !format.is_ng {
        let magic = if format.is_ns { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        let version = if format.is_big_endian { 0x0002_0004 } else { 0x0004_0002 };
        return words(format, &[magic, version, 0, 0, 96, format.link_type]);
    }
    let mut file = words(format, &[0x0a0d_0d0a, 28, 0x1a2b_3c4d]);
    file.extend(halves(format, [1, 0]));
    file.extend(words(format, &[u32::MAX, u32::MAX, 28]));
    let link = u16::try_from(format.link_type).expect("small");
    let resolution = if format.is_ns { 9 } else { 6 };
    file.extend(words(format, &[1, 32]));
    file.extend(halves(format, [link, 0]));
    file.extend(words(format, &[96]));
    file.extend(halves(format, [9, 1]));
    file.extend([resolution, 0, 0, 0]);
    file.extend(words(format, &[0, 32]));
    file
}

fn record(format: Format, file: &mut Vec<u8>, at_ns: u64, captured: &[u8], whole: u32) {
    let length = u32::try_from(captured.len()).expect("small");
    let unit_ns = if format.is_ns { 1 } else { 1000 };
    if !format.is_ng {
        let seconds = u32::try_from(BASE_S + at_ns / 1_000_000_000).expect("until 2106");
        let fraction = u32::try_from(at_ns % 1_000_000_000 / unit_ns).expect("below a second");
        file.extend(words(format, &[seconds, fraction, length, whole]));
        file.extend(captured);
        return;
    }
    let ticks = (BASE_S * 1_000_000_000 + at_ns) / unit_ns;
    let (high, low) = ((ticks >> 32) as u32, ticks as u32);
    let block = 32 + length.next_multiple_of(4);
    file.extend(words(format, &[6, block, 0, high, low, length, whole]));
    file.extend(captured);
    file.resize(file.len().next_multiple_of(4), 0);
    file.extend(words(format, &[block]));
}

/// The headers of a packet; of its payload only the length is told.
fn frame(format: Format, packet: &Packet, number: usize) -> Vec<u8> {
    let ether_type: u16 = if format.is_ipv6 { 0x86dd } else { 0x0800 };
    let mut frame = match format.link_type {
        1 => vec![0; 12],
        113 => vec![0; 14],
        276 => [&ether_type.to_be_bytes()[..], &[0; 18]].concat(),
        _ => Vec::new(),
    };
    if format.link_type == 1 {
        for _ in 0..format.tags {
            frame.extend([0x81, 0x00, 0, 7]);
        }
    }
    if [1, 113].contains(&format.link_type) {
        frame.extend(ether_type.to_be_bytes());
    }
    let tcp = tcp(packet);
    let length = u16::try_from(tcp.len()).expect("small") + packet.payload_bytes;
    let ends: [u8; 2] = if packet.is_from_sender { [1, 2] } else { [2, 1] };
    if format.is_ipv6 {
        frame.extend([0x60, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([6, 64]);
        for end in ends {
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
        }
    } else {
        frame.extend([0x45, 0]);
        frame.extend((length + 20).to_be_bytes());
        frame.extend((number as u16).to_be_bytes());
        frame.extend([0x40, 0, 64, 6, 0, 0]);
        for end in ends {
            frame.extend([10, 0, 0, end]);
        }
    }
    frame.extend(tcp);
    frame
}

fn tcp(packet: &Packet) -> Vec<u8> {
    let mut options = Vec::new();
    if packet.is_syn {
        options.extend([2, 4, 0x05, 0xb4, 4, 2, 1, 1]);
    }
    if let Some((value, echo)) = packet.timestamps {
        options.extend([1, 1, 8, 10]);
        options.extend(value.to_be_bytes());
        options.extend(echo.to_be_bytes());
    }
    if let Some(shift) = packet.shift {
        options.extend([1, 3, 3, shift]);
    }
    let ports = (SENDER_PORT, RECEIVER_PORT);
    let (from, to) = if packet.is_from_sender { ports } else { (ports.1, ports.0) };
    let mut tcp = [from.to_be_bytes(), to.to_be_bytes()].concat();
    tcp.extend(packet.seq.to_be_bytes());
    tcp.extend(packet.ack.unwrap_or(0).to_be_bytes());
    let words = u8::try_from(5 + options.len() / 4).expect("at most 15");
    let flags = u8::from(packet.is_syn) * 2 + u8::from(packet.ack.is_some()) * 16;
    tcp.extend([words << 4, flags]);
    tcp.extend(packet.window.to_be_bytes());
    tcp.extend([0; 4]);
    tcp.extend(options);
    tcp
}

/// A flow bound by a window of `window` segments, seen where packets take `to_receiver_ns` to the
/// receiver and back, and `to_sender_ns` to the sender and back. Sequence numbers wrap soon.
pub(crate) struct WindowFlow {
    pub(crate) to_receiver_ns: u64,
    pub(crate) to_sender_ns: u64,
    pub(crate) window: u32,
    pub(crate) rounds: u32,
    pub(crate) shift: Option<u8>,
    pub(crate) has_timestamps: bool,
}

pub(crate) const MSS: u16 = 1448;
pub(crate) const WINDOW_FLOW: WindowFlow = WindowFlow {
    to_receiver_ns: 20_000_000,
    to_sender_ns: 50_000,
    window: 40,
    rounds: 60,
    shift: Some(7),
    has_timestamps: true,
};

impl WindowFlow {
    /// Its packets in the order of time. The SYN packets are the first three.
    pub(crate) fn packets(&self) -> Vec<Packet> {
        let first = 0xffff_0000_u32;
        let rtt_ns = self.to_receiver_ns + self.to_sender_ns;
        let window_bytes = self.window * u32::from(MSS);
        let window = u16::try_from(window_bytes >> self.shift.unwrap_or(0)).unwrap_or(u16::MAX);
        let stamp = |value: u64, echo: u64| {
            let ms = |ns: u64| (ns / 1_000_000) as u32 + 1;
            self.has_timestamps.then_some((ms(value), ms(echo)))
        };
        let (t0, t1) = (0, self.to_receiver_ns);
        let syn = Packet { is_syn: true, shift: self.shift, window: u16::MAX, ..Packet::default() };
        let mut packets = vec![
            Packet {
                at_ns: t0,
                is_from_sender: true,
                seq: first.wrapping_sub(1),
                timestamps: stamp(t0, 0),
                ..syn
            },
            Packet { at_ns: t1, seq: 7, ack: Some(first), timestamps: stamp(t1, t0), ..syn },
            Packet {
                at_ns: rtt_ns,
                is_from_sender: true,
                seq: first,
                ack: Some(8),
                timestamps: stamp(rtt_ns, t1),
                ..Packet::default()
            },
        ];
        let spacing_ns = rtt_ns / u64::from(self.window) / 2 / 1000 * 1000;
        for round in 0..self.rounds {
            for number in 0..self.window {
                let at_ns = rtt_ns * u64::from(round + 2) + spacing_ns * u64::from(number);
                let seq = first.wrapping_add((round * self.window + number) * u32::from(MSS));
                // The echo is of the acknowledgement that made room for this segment.
                let released_ns = at_ns - self.to_sender_ns;
                let data = Packet {
                    at_ns,
                    is_from_sender: true,
                    seq,
                    ack: Some(8),
                    window: 100,
                    payload_bytes: MSS,
                    timestamps: stamp(at_ns, if round == 0 { t1 } else { released_ns }),
                    ..Packet::default()
                };
                let answered_ns = at_ns + self.to_receiver_ns;
                packets.push(data);
                packets.push(Packet {
                    at_ns: answered_ns,
                    seq: 8,
                    ack: Some(seq.wrapping_add(u32::from(MSS))),
                    window,
                    timestamps: stamp(answered_ns, at_ns),
                    ..Packet::default()
                });
            }
        }
        packets.sort_by_key(|packet| packet.at_ns);
        packets
    }

    /// The same flow of a sender that writes a quarter of the window at intervals, and waits in between.
    pub(crate) fn writing_every(&self, every_ns: u64) -> Vec<Packet> {
        let first = 0xffff_0000_u32;
        let mut packets: Vec<Packet> = self.packets().into_iter().take(3).collect();
        let window = u16::MAX;
        let stamp = |ns: u64| (ns / 1_000_000) as u32 + 1;
        for burst in 0..u64::from(self.rounds) {
            let at_ns = every_ns * (burst + 1);
            let seq = |number: u32| {
                first.wrapping_add((burst as u32 * self.window / 4 + number) * u32::from(MSS))
            };
            // What the sender knew last: the acknowledgement of the burst before.
            let before_ns = at_ns - every_ns + self.to_receiver_ns;
            for number in 0..self.window / 4 {
                let sent_ns = at_ns + u64::from(number) * 10_000;
                packets.push(Packet {
                    at_ns: sent_ns,
                    is_from_sender: true,
                    seq: seq(number),
                    ack: Some(8),
                    window: 100,
                    payload_bytes: MSS,
                    timestamps: Some((stamp(sent_ns), stamp(before_ns))),
                    ..Packet::default()
                });
                let answered_ns = sent_ns + self.to_receiver_ns;
                packets.push(Packet {
                    at_ns: answered_ns,
                    seq: 8,
                    ack: Some(seq(number + 1)),
                    window,
                    timestamps: Some((stamp(answered_ns), stamp(sent_ns))),
                    ..Packet::default()
                });
            }
        }
        packets.sort_by_key(|packet| packet.at_ns);
        packets
    }

    pub(crate) fn rtt_s(&self) -> f64 {
        (self.to_receiver_ns + self.to_sender_ns) as f64 * 1e-9
    }
}
