//! A BPF machine for tests: runs the very instructions that the kernel would, over a socket of ours.
//! Every load and store is checked against the few regions there are.

use bpf_cc::btf::Btf;
use bpf_cc::object::Object;
use bpf_cc::relocate::{FitError, fit};

const ARGUMENTS: u64 = 0x1000_0000;
const SOCKET: u64 = 0x2000_0000;
const SAMPLE: u64 = 0x3000_0000;
const STACK: u64 = 0x4000_0000;
const STACK_BYTES: u64 = 512;
/// More steps than any of the programs takes.
const STEPS_MAX: u32 = 10_000;
/// `bpf_ktime_get_ns`, the one helper used.
const KTIME_GET_NS: i32 = 5;

/// One connection with its congestion control.
pub(crate) struct Machine {
    programs: Vec<(String, Vec<u8>)>,
    fields: Vec<(&'static str, usize)>,
    limited: (usize, u8),
    sample: (usize, usize),
    regions: [(u64, Vec<u8>); 4],
    pub(crate) now_ns: u64,
}

impl Machine {
    /// With the fields where the object itself has them; `None` where it is not built in.
    pub(crate) fn new() -> Option<Self> {
        let object = Object::parse(bpf_cc::htcp_object()?).expect("our own object");
        Some(Self::fitted(&object, &object.btf).expect("it fits itself"))
    }

    /// In a kernel with these types.
    pub(crate) fn in_kernel(types: &[u8]) -> Option<Result<Self, FitError>> {
        let object = Object::parse(bpf_cc::htcp_object()?).expect("our own object");
        Some(Self::fitted(&object, &Btf::parse(types).expect("types")))
    }

    fn fitted(object: &Object<'_>, types: &Btf<'_>) -> Result<Self, FitError> {
        let programs = object
            .programs
            .iter()
            .map(|program| Ok((program.member.to_owned(), fit(program, &object.btf, types)?)));
        let programs = programs.collect::<Result<_, FitError>>()?;
        let fields =
            ["snd_ssthresh", "snd_cwnd", "snd_cwnd_clamp", "prior_cwnd", "max_packets_out"]
                .map(|name| (name, place(types, "tcp_sock", name)));
        let socket = types.structure("tcp_sock").expect("known");
        let limited = types.field(socket, "is_cwnd_limited").expect("known").offset_bits;
        let sample =
            (place(types, "ack_sample", "pkts_acked"), place(types, "ack_sample", "rtt_us"));
        let room = |base, bytes| (base, vec![0xa5_u8; bytes]);
        let mut machine = Self {
            programs,
            fields: fields.to_vec(),
            limited: (limited as usize / 8, 1 << (limited % 8)),
            sample,
            regions: [room(ARGUMENTS, 40), room(SOCKET, 2048), room(SAMPLE, 16), room(STACK, 512)],
            now_ns: 1_000_000_000_000,
        };
        machine.set("snd_cwnd", 10);
        machine.set("snd_ssthresh", 0x7fff_ffff);
        machine.set("snd_cwnd_clamp", u32::MAX);
        machine.set("max_packets_out", 10);
        machine.set_limited(true);
        machine.call("init", [SOCKET, 0, 0]);
        Ok(machine)
    }

    pub(crate) fn get(&self, field: &str) -> u32 {
        let at = self.at(field);
        u32::from_ne_bytes(self.regions[1].1[at..at + 4].try_into().expect("four bytes"))
    }

    pub(crate) fn set(&mut self, field: &str, value: u32) {
        let at = self.at(field);
        self.regions[1].1[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    pub(crate) fn set_limited(&mut self, is_limited: bool) {
        let (at, bit) = self.limited;
        let byte = &mut self.regions[1].1[at];
        *byte = if is_limited { *byte | bit } else { *byte & !bit };
    }

    /// Time passes.
    pub(crate) fn wait_us(&mut self, us: u64) {
        self.now_ns += us * 1000;
    }

    /// An acknowledgement: what it says first, then growth, as the kernel calls them.
    pub(crate) fn acknowledge(&mut self, segments: u32, rtt_us: u32) {
        let (segments_at, rtt_at) = self.sample;
        self.regions[2].1[segments_at..segments_at + 4].copy_from_slice(&segments.to_ne_bytes());
        self.regions[2].1[rtt_at..rtt_at + 4].copy_from_slice(&rtt_us.to_ne_bytes());
        self.call("pkts_acked", [SOCKET, SAMPLE, 0]);
        self.call("cong_avoid", [SOCKET, 0, segments.into()]);
    }

    /// A loss, its repair, and the window after it: the threshold.
    pub(crate) fn lose(&mut self) -> u32 {
        let threshold = self.threshold();
        self.state(3);
        self.set("prior_cwnd", self.get("snd_cwnd"));
        self.set("snd_ssthresh", threshold);
        self.set("snd_cwnd", threshold);
        self.state(0);
        threshold
    }

    pub(crate) fn threshold(&mut self) -> u32 {
        self.call("ssthresh", [SOCKET, 0, 0])
    }

    /// The kernel's `enum tcp_ca_state` changes.
    pub(crate) fn state(&mut self, state: u64) {
        self.call("set_state", [SOCKET, state, 0]);
    }

    pub(crate) fn undo(&mut self) -> u32 {
        self.call("undo_cwnd", [SOCKET, 0, 0])
    }

    fn at(&self, field: &str) -> usize {
        self.fields.iter().find(|(name, _)| *name == field).expect("a field of the socket").1
    }

    fn call(&mut self, member: &str, arguments: [u64; 3]) -> u32 {
        for (number, argument) in arguments.iter().enumerate() {
            self.regions[0].1[number * 8..number * 8 + 8].copy_from_slice(&argument.to_ne_bytes());
        }
        let found = self.programs.iter().find(|(name, _)| name == member);
        let instructions = found.expect("a program of the object").1.clone();
        u32::try_from(self.run(&instructions) & 0xffff_ffff).expect("32 bits")
    }

    fn run(&mut self, instructions: &[u8]) -> u64 {
        let mut registers = [0_u64; 11];
        registers[1] = ARGUMENTS;
        registers[10] = STACK + STACK_BYTES;
        let mut at = 0_usize;
        for _ in 0..STEPS_MAX {
            let word: [u8; 8] =
                instructions[at * 8..at * 8 + 8].try_into().expect("in the program");
            at += 1;
            let opcode = word[0];
            let (to, from) = (usize::from(word[1] & 15), usize::from(word[1] >> 4));
            let offset = i16::from_ne_bytes([word[2], word[3]]);
            let constant = i32::from_ne_bytes([word[4], word[5], word[6], word[7]]);
            let second =
                if opcode & 8 == 0 { i64::from(constant).cast_unsigned() } else { registers[from] };
            let address = |base: u64| base.wrapping_add_signed(i64::from(offset));
            match opcode & 7 {
                // A 64-bit constant takes the room of two instructions.
                0 if opcode == 0x18 => {
                    let high = i32::from_ne_bytes(
                        instructions[at * 8 + 4..at * 8 + 8].try_into().expect("in the program"),
                    );
                    let low = u64::from(constant.cast_unsigned());
                    registers[to] = (u64::from(high.cast_unsigned()) << 32) | low;
                    at += 1;
                }
                1 => registers[to] = self.load(address(registers[from]), size(opcode)),
                2 => self.store(
                    address(registers[to]),
                    size(opcode),
                    i64::from(constant).cast_unsigned(),
                ),
                3 => self.store(address(registers[to]), size(opcode), registers[from]),
                4 => {
                    let (first, second) = (registers[to] & 0xffff_ffff, second & 0xffff_ffff);
                    registers[to] = arithmetic(opcode, first, second, 32) & 0xffff_ffff;
                }
                7 => registers[to] = arithmetic(opcode, registers[to], second, 64),
                5 if opcode == 0x95 => return registers[0],
                5 if opcode == 0x85 => {
                    assert_eq!(constant, KTIME_GET_NS, "an unknown helper");
                    // What a call may destroy is destroyed.
                    registers[1..6].fill(0xdead_dead_dead_dead);
                    registers[0] = self.now_ns;
                }
                5 => {
                    if jumps(opcode, registers[to], second) {
                        at = at.checked_add_signed(offset.into()).expect("in the program");
                    }
                }
                _ => panic!("opcode {opcode:#x} at {at}"),
            }
        }
        panic!("it does not end");
    }

    fn room(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        let found = self.regions.iter_mut().find_map(|(base, room)| {
            let at = usize::try_from(address.checked_sub(*base)?).ok()?;
            room.get_mut(at..at.checked_add(bytes)?)
        });
        found.unwrap_or_else(|| panic!("{bytes} bytes at {address:#x} are nobody's"))
    }

    fn load(&mut self, address: u64, bytes: usize) -> u64 {
        let mut wide = [0; 8];
        wide[..bytes].copy_from_slice(self.room(address, bytes));
        u64::from_le_bytes(wide)
    }

    fn store(&mut self, address: u64, bytes: usize, value: u64) {
        self.room(address, bytes).copy_from_slice(&value.to_le_bytes()[..bytes]);
    }
}

fn place(types: &Btf<'_>, structure: &str, field: &str) -> usize {
    let structure = types.structure(structure).expect("a structure of the object");
    types.field(structure, field).expect("a field of it").offset_bits as usize / 8
}

fn size(opcode: u8) -> usize {
    match opcode & 0x18 {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => 8,
    }
}

fn arithmetic(opcode: u8, first: u64, second: u64, width: u32) -> u64 {
    let shift = (second % u64::from(width)) as u32;
    match opcode >> 4 {
        0x0 => first.wrapping_add(second),
        0x1 => first.wrapping_sub(second),
        0x2 => first.wrapping_mul(second),
        0x3 => first.checked_div(second).unwrap_or(0),
        0x4 => first | second,
        0x5 => first & second,
        0x6 => first << shift,
        0x7 => first >> shift,
        0x8 => first.wrapping_neg(),
        0xa => first ^ second,
        0xb => second,
        0xc => (first.cast_signed() >> shift).cast_unsigned(),
        other => panic!("arithmetic {other:#x}"),
    }
}

fn jumps(opcode: u8, first: u64, second: u64) -> bool {
    let signed = (first.cast_signed(), second.cast_signed());
    match opcode >> 4 {
        0x0 => true,
        0x1 => first == second,
        0x2 => first > second,
        0x3 => first >= second,
        0x4 => first & second != 0,
        0x5 => first != second,
        0x6 => signed.0 > signed.1,
        0x7 => signed.0 >= signed.1,
        0xa => first < second,
        0xb => first <= second,
        0xc => signed.0 < signed.1,
        0xd => signed.0 <= signed.1,
        other => panic!("jump {other:#x}"),
    }
}
