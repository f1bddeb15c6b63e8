use super::*;

const ETHERNET_BYTES: usize = 14;
const MSS: usize = 1000;

/// A packet of 3.5 segments, numbered payload, with the partial checksum the kernel leaves.
fn packet(kind: Segmentation) -> Vec<u8> {
    let v6 = kind == Segmentation::Tcp6;
    let network = if v6 { 40 } else { 20 };
    let transport = if kind == Segmentation::Udp { 8 } else { 32 };
    let payload_len = 3 * MSS + MSS / 2;
    let start = ETHERNET_BYTES + network;
    let vnet = VnetHeader {
        flags: 1,
        gso_type: match kind {
            Segmentation::Tcp4 => 1,
            Segmentation::Tcp6 => 4,
            Segmentation::Udp => 5,
            Segmentation::None => 0,
        },
        header_len_bytes: 0,
        gso_size_bytes: MSS as u16,
        checksum_start: start as u16,
        checksum_offset: if kind == Segmentation::Udp { 6 } else { 16 },
    };
    let mut frame = vec![0; start + transport];
    let transport_len = (transport + payload_len) as u16;
    if v6 {
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14] = 0x60;
        frame[18..20].copy_from_slice(&transport_len.to_be_bytes());
    } else {
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[16..18].copy_from_slice(&(20 + transport_len).to_be_bytes());
        frame[18..20].copy_from_slice(&0xffff_u16.to_be_bytes());
    }
    if kind == Segmentation::Udp {
        frame[start + 4..start + 6].copy_from_slice(&transport_len.to_be_bytes());
    } else {
        frame[start + 4..start + 8].copy_from_slice(&(u32::MAX - 10).to_be_bytes());
        frame[start + 12] = 0x80;
        frame[start + 13] = TCP_CWR | 0x10 | TCP_FIN_PSH;
    }
    let at = start + usize::from(vnet.checksum_offset);
    // Stands for the addresses' part of the pseudo-header.
    let sum = add_ones_complement(0x1234, transport_len);
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let payload: Vec<u8> = (0..payload_len).map(|index| (index / MSS) as u8).collect();
    [&vnet.encode()[..], &frame, &payload].concat()
}

fn survivors(packet: &[u8], lost: &[u32]) -> (u32, Vec<Vec<u8>>) {
    let shape = FrameShape::of(packet);
    let mut mask = LostPackets::NONE;
    for &index in lost {
        mask.lose(index, shape.packets_count);
    }
    let mut out = Vec::new();
    let sent_count = send_survivors(packet, &shape, mask, |headers, payload| {
        out.push([headers, payload].concat());
    });
    (sent_count, out)
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[test]
fn tcp_goes_on_around_the_hole() {
    let (sent_count, parts) = survivors(&packet(Segmentation::Tcp4), &[1]);
    assert_eq!((sent_count, parts.len()), (3, 2));
    let frames: Vec<&[u8]> = parts.iter().map(|part| &part[VNET_HEADER_BYTES..]).collect();
    let payload = ETHERNET_BYTES + 20 + 32;
    assert_eq!(&frames[0][payload..], &[0; MSS]);
    assert_eq!(&frames[1][payload..], &[vec![2; MSS], vec![3; MSS / 2]].concat()[..]);
    // The first: CWR, no FIN or PSH, one packet; the second: the rest of the flags, two packets.
    assert_eq!((frames[0][47], frames[1][47]), (TCP_CWR | 0x10, 0x10 | TCP_FIN_PSH));
    assert_eq!((parts[0][1], parts[1][1]), (0, 1), "segmentation types");
    let sequence = |frame: &[u8]| u32::from_be_bytes(frame[38..42].try_into().unwrap());
    assert_eq!(sequence(frames[1]), sequence(frames[0]).wrapping_add(2000));
    for (frame, payload_len) in [(frames[0], MSS), (frames[1], MSS + MSS / 2)] {
        assert_eq!(usize::from(word(frame, 16)), 20 + 32 + payload_len);
        let header_sum = frame[14..34]
            .chunks_exact(2)
            .fold(0, |sum, pair| add_ones_complement(sum, word(pair, 0)));
        assert_eq!(header_sum, 0xffff, "IPv4 header checksum");
        assert_eq!(word(frame, 50), add_ones_complement(0x1234, (32 + payload_len) as u16));
    }
    assert_eq!((word(frames[0], 18), word(frames[1], 18)), (0xffff, 1), "identification");
}

#[test]
fn ipv6_and_udp_have_their_lengths() {
    let (_, parts) = survivors(&packet(Segmentation::Tcp6), &[0, 3]);
    let frame = &parts[0][VNET_HEADER_BYTES..];
    assert_eq!(usize::from(word(frame, 18)), 32 + 2 * MSS);
    assert_eq!(frame.len(), ETHERNET_BYTES + 40 + 32 + 2 * MSS);
    let (sent_count, parts) = survivors(&packet(Segmentation::Udp), &[0, 2]);
    assert_eq!((sent_count, parts.len()), (2, 2));
    for (part, payload_len) in parts.iter().zip([MSS, MSS / 2]) {
        let frame = &part[VNET_HEADER_BYTES..];
        assert_eq!(usize::from(word(frame, 38)), 8 + payload_len);
        assert_eq!(word(frame, 40), add_ones_complement(0x1234, (8 + payload_len) as u16));
        assert_eq!(part[1], 0, "a single datagram");
    }
}

#[test]
fn nothing_lost_is_the_same_packet_and_all_lost_is_none() {
    let whole = packet(Segmentation::Tcp4);
    let (sent_count, parts) = survivors(&whole, &[]);
    assert_eq!((sent_count, parts.len()), (4, 1));
    assert_eq!(parts[0][VNET_HEADER_BYTES + 34..], whole[VNET_HEADER_BYTES + 34..]);
    assert_eq!(survivors(&whole, &[0, 1, 2, 3]), (0, vec![]));
}

#[test]
fn any_bytes_are_split_without_panic() {
    bolero::check!().with_type::<(Vec<u8>, u128)>().for_each(|(bytes, bits)| {
        let shape = FrameShape::of(bytes);
        let mut lost = LostPackets::NONE;
        for index in (0..shape.packets_count.min(128)).filter(|index| bits >> index & 1 == 1) {
            lost.lose(index, shape.packets_count);
        }
        let mut handed_bytes = 0;
        send_survivors(bytes, &shape, lost, |_, payload| handed_bytes += payload.len());
        assert!(handed_bytes <= bytes.len());
    });
}
