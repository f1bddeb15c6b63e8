//! SipHash-2-4 with a 128-bit tag (Aumasson and Bernstein, 2012; the 128-bit variant of the reference code).
//!
//! **Why SipHash and not HMAC.** A probe is 56 bytes long and is hashed four times on its way (made,
//! checked, answered, checked) at up to 200 000 probes a second. SipHash is a pseudo-random function made
//! for messages of this length: a tag costs some 50 ns, HMAC-SHA-256 ten times that and a dependency.
//! With 128 bits a forger's guess succeeds once in 2^128 tries. It keeps nothing secret and it proves
//! membership, not identity: every host that knows a plan's key can make every message of that plan.

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Bytes of a tag.
pub const TAG_BYTES: usize = 16;

/// A plan's key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// Makes a key of its bytes.
    #[must_use]
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// From 32 hexadecimal digits, as a plan writes it; `None` for anything else.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * KEY_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; KEY_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The tag of a message.
    #[must_use]
    pub fn tag(&self, message: &[u8]) -> [u8; TAG_BYTES] {
        sip_hash_2_4_128(&self.0, message)
    }

    /// Whether a tag is that of the message. Takes the same time wherever the two differ.
    #[must_use]
    pub fn verifies(&self, message: &[u8], tag: &[u8; TAG_BYTES]) -> bool {
        let expected = u128::from_le_bytes(self.tag(message));
        std::hint::black_box(expected ^ u128::from_le_bytes(*tag)) == 0
    }
}

/// Shows that there is a key, and not which.
impl std::fmt::Debug for Key {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Key(…)")
    }
}

struct State {
    v: [u64; 4],
}

impl State {
    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.v;
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
        self.v = [a, b, c, d];
    }

    fn absorb(&mut self, word: u64) {
        self.v[3] ^= word;
        self.round();
        self.round();
        self.v[0] ^= word;
    }

    fn squeeze(&mut self) -> u64 {
        (0..4).for_each(|_| self.round());
        self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3]
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(padded)
}

fn sip_hash_2_4_128(key: &[u8; KEY_BYTES], message: &[u8]) -> [u8; TAG_BYTES] {
    let (k0, k1) = (word(&key[..8]), word(&key[8..]));
    let mut state = State {
        v: [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ],
    };
    let mut words = message.chunks_exact(8);
    words.by_ref().for_each(|bytes| state.absorb(word(bytes)));
    let length = (message.len() as u64) << 56;
    state.absorb(word(words.remainder()) | length);
    state.v[2] ^= 0xee;
    let low = state.squeeze();
    state.v[1] ^= 0xdd;
    let high = state.squeeze();
    let mut tag = [0; TAG_BYTES];
    tag[..8].copy_from_slice(&low.to_le_bytes());
    tag[8..].copy_from_slice(&high.to_le_bytes());
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_those_of_the_reference_code() {
        let key = Key::from_hex("000102030405060708090a0b0c0d0e0f").unwrap();
        let message: Vec<u8> = (0..64).collect();
        // The first three from vectors_sip128 of the reference code, the others by OpenSSL 3.0.
        let expected: [(usize, [u8; 16]); 6] = [
            (0, 0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293_u128.to_be_bytes()),
            (1, 0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45_u128.to_be_bytes()),
            (2, 0x8177_228d_a4a4_5dc7_fca3_8bde_f60a_ffe4_u128.to_be_bytes()),
            (8, 0x3b62_a9ba_6258_f561_0f83_e264_f314_97b4_u128.to_be_bytes()),
            (15, 0x5493_e999_33b0_a811_7e08_ec0f_97cf_c3d9_u128.to_be_bytes()),
            (63, 0x5150_d177_2f50_834a_503e_069a_973f_bd7c_u128.to_be_bytes()),
        ];
        for (length, tag) in expected {
            assert_eq!(key.tag(&message[..length]), tag, "{length}");
            assert!(key.verifies(&message[..length], &tag));
        }
    }

    #[test]
    fn every_bit_of_message_tag_and_key_counts() {
        let key = Key::new([7; 16]);
        let message = [0x5a; 23];
        let tag = key.tag(&message);
        for bit in 0..23 * 8 {
            let mut other = message;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.verifies(&other, &tag), "bit {bit} of the message");
        }
        for bit in 0..128 {
            let mut other = tag;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.verifies(&message, &other), "bit {bit} of the tag");
            let mut other = [7; 16];
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!Key::new(other).verifies(&message, &tag), "bit {bit} of the key");
        }
        assert!(!key.verifies(&message[..22], &tag));
    }

    #[test]
    fn keys_are_32_hexadecimal_digits() {
        assert!(Key::from_hex("000102030405060708090A0b0c0d0e0f").is_some());
        for wrong in
            ["", "00", "000102030405060708090a0b0c0d0e0", "+00102030405060708090a0b0c0d0e0f"]
        {
            assert!(Key::from_hex(wrong).is_none(), "{wrong}");
        }
        assert!(Key::from_hex(&"é".repeat(16)).is_none());
        assert_eq!(format!("{:?}", Key::new([1; 16])), "Key(…)");
    }
}
