//! Packet tags: 64 bits of SipHash-2-4 (Aumasson and Bernstein, 2012) over the NH hash (Black, Halevi,
//! Krawczyk, Krovetz and Rogaway, UMAC, 1999) of a packet.
//!
//! NH hashes 16 bytes per multiplication. Two packets whose headers and whose payloads have equal lengths,
//! even if an attacker chooses them, collide in a block with probability at most 2⁻⁶⁴ over the key.
//! SipHash then hides the result and covers the lengths. Without the key, a forged packet
//! passes with probability 2⁻⁶⁴. Payloads are not encrypted.

use crate::types::Address;

/// Labels of [`derived_key`], which no other derivation from [`Key::NONE`] has.
const OF_SECRET: u64 = 0x6d78;
const OF_ADDRESS: u64 = 0x6d79;

/// A SipHash key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key([u64; 2]);

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key")
    }
}

impl Key {
    pub(crate) const NONE: Self = Self([0; 2]);

    pub(crate) fn from_bytes(bytes: &[u8; 16]) -> Self {
        let [low, high] = [0, 8].map(|at| word(&bytes[at..]));
        Self([low, high])
    }

    /// Derives a key that is distinct for each label and context.
    pub(crate) fn derive(&self, label: u64, context: &[u64]) -> Self {
        Self([0, 1].map(|half| {
            let mut sip = Sip::new(*self);
            sip.word(label << 1 | half);
            context.iter().for_each(|&word| sip.word(word));
            sip.finish(context.len() as u64)
        }))
    }

    /// A pseudo-random function of these words.
    pub(crate) fn prf(&self, words: &[u64]) -> u64 {
        let mut sip = Sip::new(*self);
        words.iter().for_each(|&word| sip.word(word));
        sip.finish(words.len() as u64)
    }
}

/// The key of the endpoint at an address, for endpoints that exchange no names: each end derives the other's key from
/// the address it already knows and from a secret that the hosts share. With an empty secret anyone can.
#[must_use]
pub fn derived_key(secret: &[u8], address: &Address) -> [u8; 16] {
    let mut words: Vec<u64> = secret.chunks(8).map(word).collect();
    words.push(secret.len() as u64);
    let name: Vec<u64> = address.0.chunks(8).map(word).collect();
    let Key([low, high]) = Key::NONE.derive(OF_SECRET, &words).derive(OF_ADDRESS, &name);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&low.to_le_bytes());
    key[8..].copy_from_slice(&high.to_le_bytes());
    key
}

/// SipHash-2-4 over 64-bit words.
#[derive(Debug, Clone, Copy)]
struct Sip([u64; 4]);

impl Sip {
    fn new(Key([low, high]): Key) -> Self {
        Self([
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline]
    fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32).wrapping_add(d);
        c = c.wrapping_add(b);
        d = d.rotate_left(21) ^ a;
        b = b.rotate_left(17) ^ c;
        self.0 = [a, b, c.rotate_left(32), d];
    }

    #[inline]
    fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    #[inline]
    fn sum(&mut self, sum: u128) {
        self.word(sum as u64);
        self.word((sum >> 64) as u64);
    }

    /// Ends the input with a word that no input word can be: its top byte is 0xff.
    #[inline]
    fn finish(mut self, last: u64) -> u64 {
        self.word(last | 0xff << 56);
        self.0[2] ^= 0xff;
        (0..4).for_each(|_| self.round());
        self.0.iter().fold(0, |all, word| all ^ word)
    }
}

/// Up to eight bytes as a little-endian word, padded with zeros.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(padded)
        }
    }
}

/// Bytes that NH hashes at once: a packet of Ethernet's usual size, with the header's padding.
const BLOCK_BYTES: usize = 1536;
/// Memory of a hash key, in bytes.
pub(crate) const HASH_KEY_BYTES: usize = BLOCK_BYTES;
/// Bytes of one multiplication.
const PAIR_BYTES: usize = 16;
/// Where the tag is in a header.
const TAG_AT: std::ops::Range<usize> = 8..16;
/// Offset of the header bytes that follow the first pair, which is the words before and after the tag.
const SECOND_PAIR_AT: usize = 24;

/// The NH key of a session's packets, derived from the key of the endpoint that answers the greeting.
#[derive(Clone)]
pub(crate) struct HashKey(Box<[u64; BLOCK_BYTES / 8]>);

impl std::fmt::Debug for HashKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("HashKey")
    }
}

impl HashKey {
    pub(crate) fn new(job: Key) -> Self {
        let words: Vec<u64> = (0..BLOCK_BYTES as u64 / 8).map(|at| job.prf(&[2, at])).collect();
        Self(words.into_boxed_slice().try_into().expect("as many words as the key has"))
    }

    /// NH of a header without its tag, and the number of pairs.
    #[inline]
    fn hash_header(&self, header: &[u8]) -> (u128, usize) {
        let (keys, _) = self.0.as_chunks::<2>();
        let first = product(word(&header[..TAG_AT.start]), word(&header[TAG_AT.end..]), &keys[0]);
        let rest = &header[SECOND_PAIR_AT..];
        (first.wrapping_add(self.hash(1, rest)), 1 + rest.len().div_ceil(PAIR_BYTES))
    }

    /// NH of bytes that stand at this pair of a block and end in it. Four sums are independent of each other, so that
    /// multiplications overlap.
    #[inline]
    fn hash(&self, at_pair: usize, bytes: &[u8]) -> u128 {
        let mut sums = [0_u128; 4];
        let (pairs, rest) = bytes.as_chunks::<PAIR_BYTES>();
        let (keys, _) = self.0.as_chunks::<2>();
        let keys = &keys[at_pair..];
        let (fours, single) = pairs.as_chunks::<4>();
        let (four_keys, _) = keys.as_chunks::<4>();
        for (four, keys) in fours.iter().zip(four_keys) {
            for ((sum, pair), key) in sums.iter_mut().zip(four).zip(keys) {
                *sum = sum.wrapping_add(product(word(&pair[..8]), word(&pair[8..]), key));
            }
        }
        let mut sum = sums.into_iter().fold(0, u128::wrapping_add);
        for (pair, key) in single.iter().zip(&keys[4 * fours.len()..]) {
            sum = sum.wrapping_add(product(word(&pair[..8]), word(&pair[8..]), key));
        }
        if !rest.is_empty() {
            let (low, high) = rest.split_at(rest.len().min(8));
            sum = sum.wrapping_add(product(word(low), word(high), &keys[pairs.len()]));
        }
        sum
    }
}

#[inline]
fn product(low: u64, high: u64, [low_key, high_key]: &[u64; 2]) -> u128 {
    u128::from(low.wrapping_add(*low_key)) * u128::from(high.wrapping_add(*high_key))
}

/// A packet's tag. It covers the header without the tag field (bytes 8 to 15), `hidden`, which both
/// ends know and the packet does not carry, `payload`, and `payload_bytes`, the length of the whole
/// payload, which is more than `payload.len()` where tags do not cover payloads.
///
/// # Panics
/// The header is shorter than 24 bytes or longer than a block.
#[inline]
pub(crate) fn tag(
    key: Key,
    hash_key: &HashKey,
    hidden: u64,
    header: &[u8],
    payload: &[u8],
    payload_bytes: usize,
) -> u64 {
    let mut sip = Sip::new(key);
    sip.word(hidden);
    let (header_sum, pairs) = hash_key.hash_header(header);
    let (first, rest) = payload.split_at(payload.len().min(BLOCK_BYTES - PAIR_BYTES * pairs));
    sip.sum(header_sum.wrapping_add(hash_key.hash(pairs, first)));
    rest.chunks(BLOCK_BYTES).for_each(|block| sip.sum(hash_key.hash(0, block)));
    sip.finish((header.len() as u64) << 32 | payload_bytes as u64)
}

/// The tag of a greeting, whose ends may have no hash key in common: SipHash of the whole packet without the tag field.
pub(crate) fn greeting_tag(key: Key, packet: &[u8]) -> u64 {
    let mut sip = Sip::new(key);
    let parts = [&packet[..TAG_AT.start], &packet[TAG_AT.end..]];
    parts.into_iter().flat_map(|part| part.chunks(8)).for_each(|chunk| sip.word(word(chunk)));
    sip.finish((packet.len() as u64) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The function of the paper: bytes, and a last word that ends with their number.
    fn siphash(key: Key, bytes: &[u8]) -> u64 {
        let mut sip = Sip::new(key);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|chunk| sip.word(u64::from_le_bytes(*chunk)));
        sip.word(word(rest) | (bytes.len() as u64) << 56);
        sip.0[2] ^= 0xff;
        (0..4).for_each(|_| sip.round());
        sip.0.iter().fold(0, |all, word| all ^ word)
    }

    #[test]
    fn the_papers_example_comes_out() {
        let key: [u8; 16] = std::array::from_fn(|at| at as u8);
        let bytes: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(Key::from_bytes(&key), &bytes), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn every_bit_of_a_packet_counts() {
        let job = Key::from_bytes(b"a key of the job");
        let hash_key = HashKey::new(job);
        let key = job.derive(1, &[2, 3]);
        for (bytes, header_bytes) in [0, 1, 8, 31, 32, 33, 100, 1024, 1400, 1473, 5000]
            .into_iter()
            .zip([40, 48, 60, 64, 72, 80, 84, 168].into_iter().cycle())
        {
            let header: Vec<u8> = (0..header_bytes).collect();
            let payload: Vec<u8> = (0..bytes).map(|at| (at * 7) as u8).collect();
            let right = tag(key, &hash_key, 9, &header, &payload, bytes);
            assert_ne!(right, tag(key, &hash_key, 10, &header, &payload, bytes));
            assert_ne!(right, tag(job, &hash_key, 9, &header, &payload, bytes));
            for bit in 0..header.len() * 8 {
                let mut other = header.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let same = right == tag(key, &hash_key, 9, &other, &payload, bytes);
                assert_eq!(same, (8..16).contains(&(bit / 8)), "bit {bit}");
            }
            for bit in 0..payload.len() * 8 {
                let mut other = payload.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(right, tag(key, &hash_key, 9, &header, &other, bytes), "bit {bit}");
            }
            let mut longer = payload.clone();
            longer.push(0);
            assert_ne!(right, tag(key, &hash_key, 9, &header, &longer, bytes + 1), "a zero more");
        }
    }
}
