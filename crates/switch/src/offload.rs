//! What a sender left undone because its device would have done it: checksums and segmentation, for
//! a port whose user wants plain frames.
//!
//! A packet comes with a virtio-net header (virtio 1.2, section 5.1.6) that says what is missing. Frames
//! of neighbouring ports with such headers never come here: they travel as they are.

use std::ops::Range;

use crate::frame::{
    FLAG_NEEDS_CHECKSUM, FrameShape, VNET_HEADER_BYTES, VnetHeader, add_ones_complement,
};
use crate::split;

/// Hands each finished frame of `packet` (virtio-net header and frame) to `send`: the bytes it begins
/// with, and where in `packet` the rest of it is; how many there were, at most
/// [`PACKETS_MAX`](crate::frame::PACKETS_MAX). `None` for a packet that is not what its header says, or
/// that stands for more.
///
/// A frame that needs nothing comes as it is; one that needs a checksum gets it; a super-segment
/// becomes the packets it stands for. What is new of a frame are at most [`HEAD_BYTES_MAX`] bytes.
pub fn finish(packet: &[u8], mut send: impl FnMut(&[u8], Range<usize>)) -> Option<u32> {
    let (vnet, frame) = VnetHeader::parse(packet)?;
    let shape = FrameShape::checked(&vnet, frame)?;
    let mut scratch = [0; HEAD_BYTES_MAX];
    if shape.is_one() {
        let mut head_bytes = 0;
        if vnet.flags & FLAG_NEEDS_CHECKSUM != 0 {
            let checksum_at = usize::from(vnet.checksum_start) + usize::from(vnet.checksum_offset);
            head_bytes = checksum_at + 2;
            let (head, tail) = frame.split_at_checked(head_bytes)?;
            let scratch = scratch.get_mut(..head_bytes)?;
            scratch.copy_from_slice(head);
            complete(&vnet, scratch, tail)?;
        }
        send(&scratch[..head_bytes], VNET_HEADER_BYTES + head_bytes..packet.len());
        return Some(1);
    }
    let mut whole = true;
    let sent = split::send_each(packet, &shape, |headers, payload| {
        let headers = headers.get(VNET_HEADER_BYTES..).unwrap_or_default();
        let Some(scratch) = scratch.get_mut(..headers.len()) else { return };
        scratch.copy_from_slice(headers);
        match complete(&vnet, scratch, packet.get(payload.clone()).unwrap_or_default()) {
            Some(()) => send(scratch, payload),
            None => whole = false,
        }
    });
    (sent > 0 && whole).then_some(sent)
}

/// Most bytes of a finished frame that are not its packet's: all headers, as [`split`] takes them.
pub const HEAD_BYTES_MAX: usize = 256;
/// Where UDP stores its checksum; there zero means "none", so a sum of zero is written as all ones
/// (RFC 768).
const UDP_CHECKSUM_OFFSET: u16 = 6;

/// Completes the checksum of the transport header in `head`, which `tail` follows.
fn complete(vnet: &VnetHeader, head: &mut [u8], tail: &[u8]) -> Option<()> {
    let transport = head.get_mut(usize::from(vnet.checksum_start)..)?;
    // The field holds the pseudo-header's sum, so it is summed with the rest.
    let sum = !joined_sum(transport, tail);
    let at = usize::from(vnet.checksum_offset);
    let zero_means_none = vnet.checksum_offset == UDP_CHECKSUM_OFFSET;
    let sum = if sum == 0 && zero_means_none { 0xffff } else { sum };
    transport.get_mut(at..at.checked_add(2)?)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// RFC 1071 over both; the tail of an odd head is shifted by a byte.
fn joined_sum(head: &[u8], tail: &[u8]) -> u16 {
    let rest = sum(tail);
    let rest = if head.len() % 2 == 1 { rest.swap_bytes() } else { rest };
    add_ones_complement(sum(head), rest)
}

fn sum(bytes: &[u8]) -> u16 {
    // Four bytes at a time; at most 64 KiB, so the sum of 32-bit words fits in 64 bits.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_be_bytes(last));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::PACKETS_MAX;

    /// Sum of pseudo-header and segment of a finished IPv4 frame; all ones when right (RFC 1071).
    fn verify(frame: &[u8], network: usize, protocol: u8) -> u16 {
        let ip = &frame[network..];
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        assert_eq!(total, ip.len(), "the length is the packet's own");
        let header = usize::from(ip[0] & 15) * 4;
        assert_eq!(sum(&ip[..header]), 0xffff, "the network header's checksum");
        let length = (total - header) as u16;
        let pseudo = [&ip[12..20], &[0, protocol], &length.to_be_bytes()].concat();
        add_ones_complement(sum(&pseudo), sum(&ip[header..]))
    }

    /// A TCP segment of `payload` bytes as a TAP device hands it over, behind `tags` VLAN tags.
    fn segment(payload: usize, mss: u16, tags: usize) -> Vec<u8> {
        let network = 14 + 4 * tags;
        let start = network + 20;
        let mut frame = vec![0; start + 32];
        for tag in 0..tags {
            frame[12 + 4 * tag..16 + 4 * tag].copy_from_slice(&[0x81, 0, 0, 42]);
        }
        frame[network - 2..network + 1].copy_from_slice(&[0x08, 0x00, 0x45]);
        let total = (20 + 32 + payload) as u16;
        frame[network + 2..network + 4].copy_from_slice(&total.to_be_bytes());
        frame[network + 9] = 6;
        frame[network + 12..network + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let check = !sum(&frame[network..network + 20]);
        frame[network + 10..network + 12].copy_from_slice(&check.to_be_bytes());
        frame[start + 12] = 0x80;
        let pseudo = [&[10, 0, 0, 1, 10, 0, 0, 2, 0, 6][..], &(total - 20).to_be_bytes()].concat();
        frame[start + 16..start + 18].copy_from_slice(&sum(&pseudo).to_be_bytes());
        frame.extend((0..payload).map(|index| (index % 251) as u8));
        let vnet = VnetHeader {
            flags: FLAG_NEEDS_CHECKSUM,
            gso_type: u8::from(mss > 0),
            header_len_bytes: (start + 32) as u16,
            gso_size_bytes: mss,
            checksum_start: start as u16,
            checksum_offset: 16,
        };
        [&vnet.encode()[..], &frame].concat()
    }

    fn finished(packet: &[u8]) -> (Option<u32>, Vec<Vec<u8>>) {
        let mut frames = Vec::new();
        let count = finish(packet, |head, tail| frames.push([head, &packet[tail]].concat()));
        (count, frames)
    }

    #[test]
    fn a_super_segment_becomes_packets_with_right_checksums() {
        for tags in 0..3 {
            let (count, frames) = finished(&segment(4001, 1447, tags));
            assert_eq!((count, frames.len()), (Some(3), 3));
            let network = 14 + 4 * tags;
            for frame in &frames {
                assert_eq!(verify(frame, network, 6), 0xffff, "{tags} tags");
                assert_eq!(frame[12..14] == [0x81, 0], tags > 0, "tags stay");
            }
            let payload: Vec<u8> =
                frames.iter().flat_map(|frame| frame[network + 52..].to_vec()).collect();
            assert!(payload.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
            let sequence = |frame: &Vec<u8>| frame[network + 24..network + 28].to_vec();
            assert_eq!(sequence(&frames[1]), 1447_u32.to_be_bytes());
        }
    }

    #[test]
    fn one_packet_gets_its_checksum_only() {
        let (count, frames) = finished(&segment(100, 0, 0));
        assert_eq!((count, verify(&frames[0], 14, 6)), (Some(1), 0xffff));
        let (count, frames) = finished(&segment(100, 1447, 0));
        assert_eq!((count, verify(&frames[0], 14, 6)), (Some(1), 0xffff), "shorter than a segment");
        let mut plain = vec![0; VNET_HEADER_BYTES];
        plain.extend([7; 60]);
        assert_eq!(finished(&plain), (Some(1), vec![vec![7; 60]]));
    }

    #[test]
    fn what_stands_for_more_packets_than_any_sender_makes_is_refused() {
        let most = PACKETS_MAX as usize;
        assert_eq!(finished(&segment(60 * most, 60, 0)).0, Some(PACKETS_MAX));
        for (payload, mss) in [(60 * most + 1, 60), (65_000, 1), (most + 1, 1)] {
            let (count, frames) = finished(&segment(payload, mss, 0));
            assert_eq!((count, frames.len()), (None, 0), "{payload} bytes by {mss}");
        }
    }

    #[test]
    fn any_bytes_are_finished_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let (count, frames) = finished(bytes);
            assert!(frames.len() <= PACKETS_MAX as usize);
            assert!(count.is_none_or(|count| count as usize == frames.len()));
        });
    }
}
