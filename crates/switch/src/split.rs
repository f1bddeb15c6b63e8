//! What is left of a super-segment when some of its wire packets are lost.
//!
//! The survivors travel on as super-segments of their own: each run of neighbours gets a copy of the
//! headers with the lengths, the sequence number (TCP), the identification (IPv4) and the flags
//! that the kernel's own segmentation would give it (kernel `net/ipv4/tcp_offload.c`,
//! `net/ipv4/udp_offload.c`).

use std::ops::Range;

use crate::frame::{
    FrameShape, Segmentation, VNET_HEADER_BYTES, VnetHeader, add_ones_complement, network_at,
};
use crate::lightpath::LostPackets;

/// Room for a virtio-net header and all headers of a packet; longer ones are not split.
const HEADERS_BYTES_MAX: usize = 256;

const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// Hands each surviving run of `packet` (virtio-net header and frame) to `send`, as headers and
/// payload; how many packets were handed over. A frame whose headers cannot be taken apart is
/// lost as a whole.
pub fn send_survivors(
    packet: &[u8],
    shape: &FrameShape,
    lost: LostPackets,
    mut send: impl FnMut(&[u8], &[u8]),
) -> u32 {
    let mut send = |headers: &[u8], payload: Range<usize>| {
        send(headers, packet.get(payload).unwrap_or_default());
    };
    send_runs(packet, shape, lost.surviving_runs(shape.packets_count), &mut send)
}

/// Hands each wire packet that `packet` stands for to `send`, as virtio-net header with headers, and
/// where in `packet` its payload is; how many there were.
pub(crate) fn send_each(
    packet: &[u8],
    shape: &FrameShape,
    mut send: impl FnMut(&[u8], Range<usize>),
) -> u32 {
    send_runs(packet, shape, (0..shape.packets_count).map(|first| (first, first + 1)), &mut send)
}

fn send_runs(
    packet: &[u8],
    shape: &FrameShape,
    runs: impl Iterator<Item = (u32, u32)>,
    send: &mut dyn FnMut(&[u8], Range<usize>),
) -> u32 {
    let Some((vnet, _)) = VnetHeader::parse(packet) else { return 0 };
    let headers_bytes = VNET_HEADER_BYTES + shape.header_bytes as usize;
    let Some((headers, payload)) = packet.split_at_checked(headers_bytes) else { return 0 };
    let mut scratch = [0; HEADERS_BYTES_MAX];
    let Some(scratch) = scratch.get_mut(..headers_bytes) else { return 0 };
    let segment_bytes = shape.segment_bytes as usize;
    let mut sent_count = 0;
    for (first, end) in runs {
        let from = (first as usize * segment_bytes).min(payload.len());
        let to = (end as usize * segment_bytes).min(payload.len());
        scratch.copy_from_slice(headers);
        let run = Run {
            first,
            count: end - first,
            is_last: end == shape.packets_count,
            skipped_bytes: from,
            payload_bytes: to - from,
        };
        if run.rewrite(&vnet, scratch).is_some() {
            send(scratch, headers_bytes + from..headers_bytes + to);
            sent_count += run.count;
        }
    }
    sent_count
}

/// Neighbours that survive together.
struct Run {
    first: u32,
    count: u32,
    is_last: bool,
    skipped_bytes: usize,
    payload_bytes: usize,
}

impl Run {
    /// Turns the whole segment's headers into the run's; `None` when they are too short for what
    /// they claim to be.
    fn rewrite(&self, vnet: &VnetHeader, headers: &mut [u8]) -> Option<()> {
        let (vnet_bytes, frame) = headers.split_at_mut_checked(VNET_HEADER_BYTES)?;
        let transport_at = usize::from(vnet.checksum_start);
        let network_at = network_at(frame);
        if !(network_at..=frame.len()).contains(&transport_at) {
            return None;
        }
        let from =
            |at: usize| u16::try_from(frame.len().checked_sub(at)? + self.payload_bytes).ok();
        let (transport_len, network_len) = (from(transport_at)?, from(network_at)?);
        let old_transport_len = match vnet.segmentation() {
            Segmentation::None => return None,
            Segmentation::Tcp6 => {
                self.network_v6(&mut frame[network_at..], transport_at - network_at, transport_len)?
            }
            Segmentation::Tcp4 => {
                self.network_v4(&mut frame[network_at..], transport_at - network_at, network_len)?
            }
            Segmentation::Udp if frame.get(network_at)? >> 4 == 6 => {
                self.network_v6(&mut frame[network_at..], transport_at - network_at, transport_len)?
            }
            Segmentation::Udp => {
                self.network_v4(&mut frame[network_at..], transport_at - network_at, network_len)?
            }
        };
        let transport = frame.get_mut(transport_at..)?;
        if vnet.segmentation() == Segmentation::Udp {
            transport.get_mut(4..6)?.copy_from_slice(&transport_len.to_be_bytes());
        } else {
            self.tcp(transport)?;
        }
        // The stored checksum covers the pseudo-header only, which holds the length.
        let at = usize::from(vnet.checksum_offset);
        let stored = transport.get_mut(at..at + 2)?;
        let sum = u16::from_be_bytes([stored[0], stored[1]]);
        let sum = add_ones_complement(add_ones_complement(sum, !old_transport_len), transport_len);
        stored.copy_from_slice(&sum.to_be_bytes());
        let mut own = *vnet;
        if self.count == 1 {
            own.gso_type = 0;
            own.gso_size_bytes = 0;
        }
        vnet_bytes.copy_from_slice(&own.encode());
        Some(())
    }

    /// Length, identification and checksum; returns the transport length it had before.
    fn network_v4(&self, network: &mut [u8], header_bytes: usize, total_len: u16) -> Option<u16> {
        let header = network.get_mut(..header_bytes).filter(|h| h.len() >= 20)?;
        let old_total_len = u16::from_be_bytes([header[2], header[3]]);
        let old_transport_len = old_total_len.checked_sub(u16::try_from(header.len()).ok()?)?;
        header[2..4].copy_from_slice(&total_len.to_be_bytes());
        let identification = u16::from_be_bytes([header[4], header[5]]);
        let identification = identification.wrapping_add(u16::try_from(self.first).ok()?);
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        header[10..12].fill(0);
        let sum = header
            .chunks_exact(2)
            .fold(0, |sum, pair| add_ones_complement(sum, u16::from_be_bytes([pair[0], pair[1]])));
        header[10..12].copy_from_slice(&(!sum).to_be_bytes());
        Some(old_transport_len)
    }

    /// Length; returns the transport length it had before.
    fn network_v6(&self, network: &mut [u8], header_bytes: usize, len: u16) -> Option<u16> {
        let extensions_bytes = u16::try_from(header_bytes.checked_sub(40)?).ok()?;
        let field = network.get_mut(4..6)?;
        let old_len = u16::from_be_bytes([field[0], field[1]]);
        let len = len.checked_add(extensions_bytes)?;
        field.copy_from_slice(&len.to_be_bytes());
        old_len.checked_sub(extensions_bytes)
    }

    fn tcp(&self, transport: &mut [u8]) -> Option<()> {
        let field = transport.get_mut(4..8)?;
        let sequence = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
        let sequence = sequence.wrapping_add(u32::try_from(self.skipped_bytes).ok()?);
        field.copy_from_slice(&sequence.to_be_bytes());
        let flags = transport.get_mut(13)?;
        if !self.is_last {
            *flags &= !TCP_FIN_PSH;
        }
        if self.first > 0 {
            *flags &= !TCP_CWR;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
