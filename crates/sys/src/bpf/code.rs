//! Instructions of BPF programs, assembled (kernel `Documentation/bpf/standardization/instruction-set.rst`).

/// The register of the stack's end: what lies below it is the program's.
pub(super) const STACK: u8 = 10;

/// `BPF_PSEUDO_MAP_FD`: the number loaded is a map's descriptor.
const MAP_FD: u8 = 1;

/// How much is loaded.
#[derive(Debug, Clone, Copy)]
pub(super) enum Size {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
}

/// When a jump is taken.
#[derive(Debug, Clone, Copy)]
pub(super) enum If {
    /// The low 32 bits of the register differ from the number.
    DiffersFrom(i32),
    /// The register differs from this other one.
    DiffersFromRegister(u8),
    /// The register is more than the number, without signs.
    IsMoreThan(i32),
}

/// An operation on a register and a number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation {
    Add = 0x07,
    And = 0x57,
    Modulo = 0x97,
}

#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u8,
    to: u8,
    from: u8,
    offset: i16,
    number: i32,
}

/// A program under assembly.
#[derive(Debug, Default)]
pub(super) struct Code {
    instructions: Vec<Instruction>,
    /// Jumps whose target is not there yet.
    open_jumps: Vec<usize>,
}

impl Code {
    fn push(&mut self, code: u8, [to, from]: [u8; 2], offset: i16, number: i32) {
        self.instructions.push(Instruction { code, to, from, offset, number });
    }

    /// `to = *(size *)(from + offset)`.
    pub(super) fn load(&mut self, size: Size, to: u8, from: u8, offset: i16) {
        self.push(0x61 | size as u8, [to, from], offset, 0);
    }

    /// `*(u32 *)(to + offset) = from`.
    pub(super) fn store_word(&mut self, to: u8, offset: i16, from: u8) {
        self.push(0x63, [to, from], offset, 0);
    }

    pub(super) fn load_map(&mut self, to: u8, map: i32) {
        self.push(0x18, [to, MAP_FD], 0, map);
        self.push(0, [0, 0], 0, 0);
    }

    /// `to = number`.
    pub(super) fn set(&mut self, to: u8, number: i32) {
        self.push(0xb7, [to, 0], 0, number);
    }

    /// `to = from`.
    pub(super) fn copy(&mut self, to: u8, from: u8) {
        self.push(0xbf, [to, from], 0, 0);
    }

    /// `to = to OPERATION number`.
    pub(super) fn calculate(&mut self, operation: Operation, to: u8, number: i32) {
        self.push(operation as u8, [to, 0], 0, number);
    }

    /// 16 bits in the network's byte order become a number.
    pub(super) fn read_network_order(&mut self, register: u8) {
        self.push(0xdc, [register, 0], 0, 16);
    }

    /// 16 bits, low byte first, become a number.
    pub(super) fn read_little_endian(&mut self, register: u8) {
        self.push(0xd4, [register, 0], 0, 16);
    }

    pub(super) fn call(&mut self, helper: i32) {
        self.push(0x85, [0, 0], 0, helper);
    }

    pub(super) fn exit(&mut self) {
        self.push(0x95, [0, 0], 0, 0);
    }

    /// Jumps to [`land`](Self::land).
    pub(super) fn jump(&mut self, condition: If, register: u8) {
        self.open_jumps.push(self.instructions.len());
        match condition {
            If::DiffersFrom(number) => self.push(0x56, [register, 0], 0, number),
            If::DiffersFromRegister(other) => self.push(0x5d, [register, other], 0, 0),
            If::IsMoreThan(number) => self.push(0x25, [register, 0], 0, number),
        }
    }

    /// All jumps so far lead here.
    pub(super) fn land(&mut self) {
        let here = self.instructions.len();
        for jump in self.open_jumps.drain(..) {
            // Programs are short.
            self.instructions[jump].offset = (here - jump - 1) as i16;
        }
    }

    /// The instructions as the kernel reads them.
    pub(super) fn assembled(&self) -> Vec<u64> {
        let word = |one: &Instruction| {
            let [o0, o1] = one.offset.to_ne_bytes();
            let [n0, n1, n2, n3] = one.number.to_ne_bytes();
            // The registers are bit-fields, whose order follows the machine's.
            let registers = if cfg!(target_endian = "little") {
                one.from << 4 | one.to
            } else {
                one.to << 4 | one.from
            };
            u64::from_ne_bytes([one.code, registers, o0, o1, n0, n1, n2, n3])
        };
        self.instructions.iter().map(word).collect()
    }
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    #[test]
    fn each_instruction_is_as_a_disassembler_reads_it() {
        let mut code = Code::default();
        code.load(Size::Half, 4, STACK, -6);
        code.load(Size::Byte, 4, STACK, -8);
        code.jump(If::DiffersFrom(0xc1), 4);
        code.jump(If::DiffersFromRegister(7), 4);
        code.jump(If::IsMoreThan(3000), 4);
        code.read_network_order(4);
        code.read_little_endian(7);
        code.copy(4, 7);
        code.calculate(Operation::Modulo, 4, 3);
        code.store_word(6, 12, 4);
        code.land();
        code.exit();
        let bytes: Vec<[u8; 8]> = code.assembled().iter().map(|word| word.to_le_bytes()).collect();
        let expected = [
            ([0x69, 0xa4, 0xfa, 0xff, 0, 0, 0, 0], "r4 = *(u16 *)(r10 - 6)"),
            ([0x71, 0xa4, 0xf8, 0xff, 0, 0, 0, 0], "r4 = *(u8 *)(r10 - 8)"),
            ([0x56, 0x04, 7, 0, 0xc1, 0, 0, 0], "if w4 != 0xc1 goto +7"),
            ([0x5d, 0x74, 6, 0, 0, 0, 0, 0], "if r4 != r7 goto +6"),
            ([0x25, 0x04, 5, 0, 0xb8, 0x0b, 0, 0], "if r4 > 3000 goto +5"),
            ([0xdc, 0x04, 0, 0, 16, 0, 0, 0], "r4 = be16 r4"),
            ([0xd4, 0x07, 0, 0, 16, 0, 0, 0], "r7 = le16 r7"),
            ([0xbf, 0x74, 0, 0, 0, 0, 0, 0], "r4 = r7"),
            ([0x97, 0x04, 0, 0, 3, 0, 0, 0], "r4 %= 3"),
            ([0x63, 0x46, 12, 0, 0, 0, 0, 0], "*(u32 *)(r6 + 12) = r4"),
            ([0x95, 0, 0, 0, 0, 0, 0, 0], "exit"),
        ];
        for (is, (wanted, text)) in bytes.iter().zip(expected) {
            assert_eq!(*is, wanted, "{text}");
        }
        assert_eq!(bytes.len(), expected.len());
    }
}
