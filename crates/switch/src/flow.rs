//! Which flow a frame belongs to: what is sent between two sockets has one number, both ways.
//!
//! For spreading frames over queues so that those of a flow stay in order.

/// So much of a frame is looked at: Ethernet with two VLAN tags, IPv6, two ports.
pub const HEAD_BYTES: usize = 22 + 40 + 4;

const VLAN: [u16; 2] = [0x8100, 0x88a8];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The flow of a frame (without virtio-net header), of which the first [`HEAD_BYTES`] are enough: by
/// addresses and ports of TCP and UDP, by IP addresses of the rest, by Ethernet addresses of what is
/// not IP. The same from either side. Never fails: what is cut short counts as what can be read.
#[must_use]
pub fn number(head: &[u8]) -> u32 {
    let mut at = 12;
    let mut kind = word(head, at);
    while VLAN.contains(&kind) && at < 20 {
        at += 4;
        kind = word(head, at);
    }
    let ip = at + 2;
    // Where the two addresses are, and where the ports would be.
    let (from, length, transport) = match kind {
        IPV4 => {
            let length = usize::from(byte(head, ip) & 0xf) * 4;
            // Of a fragmented datagram only the first part has ports.
            let whole = word(head, ip + 6) & 0x3fff == 0;
            let ported = whole && matches!(byte(head, ip + 9), TCP | UDP);
            (ip + 12, 4, ported.then_some(ip + length))
        }
        IPV6 => {
            let ported = matches!(byte(head, ip + 6), TCP | UDP);
            (ip + 8, 16, ported.then_some(ip + 40))
        }
        _ => (0, 6, None),
    };
    let fold = |at: usize, bytes: usize| {
        let bytes = head.get(at..).unwrap_or(&[]).iter().take(bytes);
        bytes.fold(0_u32, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
    };
    let mut sum = mix(fold(from, length)).wrapping_add(mix(fold(from + length, length)));
    if let Some(at) = transport {
        sum = sum.wrapping_add(mix(fold(at, 2))).wrapping_add(mix(fold(at + 2, 2)));
    }
    mix(sum)
}

fn byte(head: &[u8], at: usize) -> u8 {
    head.get(at).copied().unwrap_or(0)
}

fn word(head: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([byte(head, at), byte(head, at + 1)])
}

/// Spreads neighbours (the finaliser of MurmurHash3).
fn mix(mut bits: u32) -> u32 {
    bits ^= bits >> 16;
    bits = bits.wrapping_mul(0x85eb_ca6b);
    bits ^= bits >> 13;
    bits = bits.wrapping_mul(0xc2b2_ae35);
    bits ^ bits >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp4(from: [u8; 2], to: [u8; 2], hosts: [u8; 2]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, TCP, 0, 0]);
        frame.extend([10, 0, 0, hosts[0], 10, 0, 0, hosts[1]]);
        frame.extend(from.into_iter().chain(to));
        frame
    }

    #[test]
    fn both_ways_are_one_flow_and_ports_tell_flows_apart() {
        let there = tcp4([0x13, 0x89], [0x14, 0x51], [1, 2]);
        let back = tcp4([0x14, 0x51], [0x13, 0x89], [2, 1]);
        assert_eq!(number(&there), number(&back));
        let mut tagged = there.clone();
        tagged.splice(12..12, [0x81, 0x00, 0, 7]);
        assert_eq!(number(&tagged), number(&there), "a tag is no other flow");
        let queues: std::collections::BTreeSet<u32> =
            (0..64).map(|port| number(&tcp4([0x90, port], [0x14, 0x51], [1, 2])) % 4).collect();
        assert_eq!(queues.len(), 4, "sixty-four flows find all of four queues");
    }

    #[test]
    fn parts_of_a_datagram_stay_together() {
        let whole = tcp4([1, 2], [3, 4], [1, 2]);
        let mut first = whole.clone();
        first[20] = 0x20;
        let mut later = tcp4([5, 6], [7, 8], [1, 2]);
        later[20..22].copy_from_slice(&[0x00, 0x99]);
        assert_eq!(number(&first), number(&later));
    }

    #[test]
    fn any_bytes_have_a_flow() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let flow = number(bytes);
            let kind = word(bytes, 12);
            if bytes.len() >= 12 && !VLAN.contains(&kind) && kind != IPV4 && kind != IPV6 {
                let mut turned = bytes.to_vec();
                turned[..12].rotate_left(6);
                assert_eq!(number(&turned), flow);
            }
        });
    }
}
