//! Type information of a kernel that never was: the fields H-TCP needs, elsewhere than in any real
//! one.

/// What differs from kernel to kernel.
pub(crate) struct Shape {
    /// Bytes before and between the fields of a socket.
    pub(crate) gap_bytes: u32,
    /// Where in its word the bit field stands, and how many bytes that word has.
    pub(crate) limited: (u32, u32),
    /// A field that this kernel does not have.
    pub(crate) without: Option<&'static str>,
    /// Double words of private room in a socket.
    pub(crate) room: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { gap_bytes: 24, limited: (5, 1), without: None, room: 13 }
    }
}

const WORD: u32 = 1;
const LONG: u32 = 2;
const FLAGS: u32 = 3;
const ROOM: u32 = 4;

/// The kernel's description of its types, as `/sys/kernel/btf/vmlinux` would have it.
pub(crate) fn types(shape: &Shape) -> Vec<u8> {
    let mut types = Builder::default();
    types.integer("unsigned int", 4);
    types.integer("long long unsigned int", 8);
    types.integer("flags", shape.limited.1);
    types.array(LONG, shape.room);
    let gap = shape.gap_bytes * 8;
    // 5: the room is in the middle of its structure.
    types.structure("inet_connection_sock", 1024, &[("icsk_ca_priv", ROOM, gap, 0)]);
    let names = ["max_packets_out", "snd_cwnd_clamp", "prior_cwnd", "snd_cwnd", "snd_ssthresh"];
    let words = (0..).zip(names).map(|(at, name)| (name, WORD, 2048 + at * (32 + gap), 0));
    let (bit, word_bytes) = shape.limited;
    // 6: a structure without a name inside the socket, aligned to the word of its bit field.
    let hidden = [("is_cwnd_limited", FLAGS, bit, 1)];
    types.structure("", word_bytes, &hidden);
    let mut members = vec![("inet_conn", 5, 64, 0), ("", 6, 8192, 0)];
    members.extend(words);
    members.retain(|member| Some(member.0) != shape.without);
    types.structure("tcp_sock", 2048, &members);
    let sample = [("in_flight", WORD, 0, 0), ("rtt_us", WORD, 32, 0), ("pkts_acked", WORD, 64, 0)];
    types.structure("ack_sample", 12, &sample);
    types.bytes()
}

#[derive(Default)]
struct Builder {
    types: Vec<u32>,
    names: Vec<u8>,
}

impl Builder {
    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = u32::try_from(self.names.len()).expect("short") + 1;
        self.names.extend(name.bytes().chain([0]));
        at
    }

    fn integer(&mut self, name: &str, bytes: u32) {
        let name = self.name(name);
        self.types.extend([name, 0x0100_0000, bytes, bytes * 8]);
    }

    fn array(&mut self, element: u32, count: u32) {
        self.types.extend([0, 0x0300_0000, 0, element, WORD, count]);
    }

    /// Members: name, type, offset in bits, width in bits.
    fn structure(&mut self, name: &str, bytes: u32, members: &[(&str, u32, u32, u32)]) {
        let name = self.name(name);
        let count = u32::try_from(members.len()).expect("few");
        self.types.extend([name, 0x8400_0000 | count, bytes]);
        for (name, kind, offset, width) in members {
            let name = self.name(name);
            self.types.extend([name, *kind, (width << 24) | offset]);
        }
    }

    fn bytes(self) -> Vec<u8> {
        let types = u32::try_from(self.types.len() * 4).expect("short");
        let names = u32::try_from(self.names.len() + 1).expect("short");
        let head = [0x0001_eb9f, 24, 0, types, types, names];
        let words = head.into_iter().chain(self.types).flat_map(u32::to_ne_bytes);
        words.chain([0]).chain(self.names).collect()
    }
}
