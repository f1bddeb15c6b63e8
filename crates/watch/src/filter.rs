//! Filters in classic BPF: the kernel drops at once what is no probe.

use sys::packet::Instruction;
use sys::socket::Family;

/// `BPF_LD | BPF_B | BPF_ABS`, and for 16 and 32 bits.
const LOAD_8: u16 = 0x30;
const LOAD_16: u16 = 0x28;
const LOAD_32: u16 = 0x20;
/// `BPF_JMP | BPF_JEQ` and `BPF_JSET` with a constant.
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
/// `BPF_RET` with a constant: the bytes to keep.
const RETURN: u16 = 0x06;
/// `SKF_AD_OFF + SKF_AD_PKTTYPE`: 0 for packets to this host's own Ethernet address.
const PACKET_TYPE: u32 = 0xffff_f004;
const UDP: u32 = 17;

/// Unfragmented UDP to this host's Ethernet address and one port, without IP options.
pub(crate) fn udp_to(port: u16, family: Family) -> Vec<Instruction> {
    let conditions: &[(u16, u32, u16, u32)] = match family {
        Family::Ipv4 => &[
            (LOAD_32, PACKET_TYPE, IF_EQUAL, 0),
            (LOAD_8, 0, IF_EQUAL, 0x45),
            (LOAD_8, 9, IF_EQUAL, UDP),
            (LOAD_16, 6, IF_ANY_BIT, 0x3fff),
            (LOAD_16, 22, IF_EQUAL, port as u32),
        ],
        Family::Ipv6 => &[
            (LOAD_32, PACKET_TYPE, IF_EQUAL, 0),
            (LOAD_8, 6, IF_EQUAL, UDP),
            (LOAD_16, 42, IF_EQUAL, port as u32),
        ],
    };
    let mut program = Vec::with_capacity(2 * conditions.len() + 2);
    for (at, &(load, offset, compare, operand)) in conditions.iter().enumerate() {
        // To the last instruction, which drops; a set bit is what must not be.
        let refused = u8::try_from(2 * (conditions.len() - at) - 1).unwrap_or(u8::MAX);
        let (if_true, if_false) = if compare == IF_EQUAL { (0, refused) } else { (refused, 0) };
        program.push(Instruction { code: load, if_true: 0, if_false: 0, operand: offset });
        program.push(Instruction { code: compare, if_true, if_false, operand });
    }
    program.push(keep(u32::MAX));
    program.push(keep(0));
    program
}

/// Nothing at all: for a socket that only keeps a port taken, so that the kernel answers no probe with
/// "port unreachable".
pub(crate) fn nothing() -> Vec<Instruction> {
    vec![keep(0)]
}

fn keep(bytes: u32) -> Instruction {
    Instruction { code: RETURN, if_true: 0, if_false: 0, operand: bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel would; whether the packet is kept.
    fn admits(program: &[Instruction], packet: &[u8], packet_type: u32) -> bool {
        let (mut accumulator, mut at) = (0, 0);
        loop {
            let instruction = program[at];
            at += 1;
            let offset = instruction.operand as usize;
            let holds = match instruction.code {
                LOAD_32 => {
                    accumulator = packet_type;
                    continue;
                }
                LOAD_8 | LOAD_16 => {
                    let length = if instruction.code == LOAD_8 { 1 } else { 2 };
                    let Some(bytes) = packet.get(offset..offset + length) else { return false };
                    accumulator = bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                    continue;
                }
                IF_EQUAL => accumulator == instruction.operand,
                IF_ANY_BIT => accumulator & instruction.operand != 0,
                _return => return instruction.operand != 0,
            };
            at += usize::from(if holds { instruction.if_true } else { instruction.if_false });
        }
    }

    #[test]
    fn only_whole_datagrams_to_the_port_of_this_host_pass() {
        let mut v4 = [0; 28];
        v4[0] = 0x45;
        v4[6] = 0x40;
        v4[9] = 17;
        v4[22..24].copy_from_slice(&3999_u16.to_be_bytes());
        let filter = udp_to(3999, Family::Ipv4);
        assert!(admits(&filter, &v4, 0));
        assert!(!admits(&filter, &v4, 1), "broadcast");
        assert!(!admits(&udp_to(3998, Family::Ipv4), &v4, 0));
        assert!(!admits(&filter, &v4[..23], 0));
        for (at, value) in [(0, 0x46), (9, 6), (6, 0x20), (7, 1)] {
            let mut other = v4;
            other[at] = value;
            assert!(!admits(&filter, &other, 0), "byte {at}");
        }
        let mut v6 = [0; 48];
        v6[6] = 17;
        v6[42..44].copy_from_slice(&3999_u16.to_be_bytes());
        let filter = udp_to(3999, Family::Ipv6);
        assert!(admits(&filter, &v6, 0) && !admits(&filter, &v6, 3));
        v6[6] = 44;
        assert!(!admits(&filter, &v6, 0));
        assert!(!admits(&nothing(), &v6, 0));
    }
}
