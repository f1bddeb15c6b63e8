//! The kernel's multipath hash, computed here: which next hop a flow takes.
//!
//! `fib_multipath_hash_from_keys` (`include/net/ip_fib.h`, `net/core/flow_dissector.c`, Linux 6.11 and later with
//! `net.ipv4.fib_multipath_hash_seed`): SipHash-2-4 with both keys made of the seed, over the flow's consistent
//! keys, addresses and ports each sorted so that both directions of a flow hash alike. Proven against
//! `RTM_GETROUTE` by a test of the crate `gateway`.

use core::net::IpAddr;

/// What a hash covers: `net.ipv4.fib_multipath_hash_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashPolicy {
    /// 0: addresses only; with IPv6 the protocol too.
    Addresses,
    /// 1: addresses, protocol and ports.
    Ports,
}

impl HashPolicy {
    /// The value of the sysctl.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Addresses => 0,
            Self::Ports => 1,
        }
    }
}

/// A flow as its first packet shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// To this one, of the same family.
    pub destination: IpAddr,
    /// IP protocol number; 6 is TCP.
    pub protocol: u8,
    /// Source port; 0 for protocols without ports.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

/// `IPPROTO_TCP`.
pub const TCP: u8 = 6;

impl Flow {
    /// A TCP connection.
    #[must_use]
    pub fn tcp(source: (IpAddr, u16), destination: (IpAddr, u16)) -> Self {
        Self {
            source: source.0,
            destination: destination.0,
            protocol: TCP,
            source_port: source.1,
            destination_port: destination.1,
        }
    }

    /// The hash of the flow, 31 bits. Both directions have the same.
    #[must_use]
    pub fn hash(&self, seed: u32, policy: HashPolicy) -> u32 {
        let (protocol, ports) = match policy {
            // `rt6_multipath_hash` takes the protocol in as well, and a flow label that the application set.
            HashPolicy::Addresses if self.source.is_ipv6() => (self.protocol, [0, 0]),
            HashPolicy::Addresses => (0, [0, 0]),
            HashPolicy::Ports => {
                let ports = [self.source_port.to_be_bytes(), self.destination_port.to_be_bytes()];
                let [one, other] = ports.map(u16::from_le_bytes);
                (self.protocol, [one.min(other), one.max(other)])
            }
        };
        // Words of the flow keys, as they lie in memory on a little-endian machine: padding and
        // protocol, two words of tags, ports, addresses.
        let first = u64::from(protocol) << 16;
        let ports = (u64::from(ports[0]) << 32) | (u64::from(ports[1]) << 48);
        let key = (u64::from(seed) << 32) | u64::from(seed);
        let hash = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let source = u32::from_le_bytes(source.octets());
                let destination = u32::from_le_bytes(destination.octets());
                let (low, high) = (source.min(destination), source.max(destination));
                let words = [first, 0, 0, ports, u64::from(low) << 32, u64::from(high)];
                siphash(key, &words)
            }
            (source, destination) => {
                let (low, high) = sorted(octets_of(source), octets_of(destination));
                // Behind the ports 4 bytes of tags, then the addresses: they straddle the words.
                let mut bytes = [0; 72];
                bytes[..8].copy_from_slice(&first.to_le_bytes());
                bytes[24..32].copy_from_slice(&ports.to_le_bytes());
                bytes[36..52].copy_from_slice(&low);
                bytes[52..68].copy_from_slice(&high);
                let mut words = [0; 9];
                for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
                siphash(key, &words)
            }
        };
        // The low half; 0 stands for "not computed yet" in the kernel.
        let [a, b, c, d, ..] = hash.to_le_bytes();
        u32::from_le_bytes([a, b, c, d]).max(1) >> 1
    }
}

fn octets_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn sorted(one: [u8; 16], other: [u8; 16]) -> ([u8; 16], [u8; 16]) {
    if one <= other { (one, other) } else { (other, one) }
}

/// SipHash-2-4 of whole words, with both halves of the key alike.
fn siphash(key: u64, words: &[u64]) -> u64 {
    let mut state = [
        key ^ 0x736f_6d65_7073_6575,
        key ^ 0x646f_7261_6e64_6f6d,
        key ^ 0x6c79_6765_6e65_7261,
        key ^ 0x7465_6462_7974_6573,
    ];
    for &word in words {
        mix(&mut state, word);
    }
    // The last word has the length in bytes in its highest byte.
    mix(&mut state, (words.len() as u64 * 8) << 56);
    state[2] ^= 0xff;
    for _round in 0..4 {
        round(&mut state);
    }
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn mix(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn round([v0, v1, v2, v3]: &mut [u64; 4]) {
    *v0 = v0.wrapping_add(*v1);
    *v1 = v1.rotate_left(13) ^ *v0;
    *v0 = v0.rotate_left(32);
    *v2 = v2.wrapping_add(*v3);
    *v3 = v3.rotate_left(16) ^ *v2;
    *v0 = v0.wrapping_add(*v3);
    *v3 = v3.rotate_left(21) ^ *v0;
    *v2 = v2.wrapping_add(*v1);
    *v1 = v1.rotate_left(17) ^ *v2;
    *v2 = v2.rotate_left(32);
}

/// The last hash of each of a hash group's members (`nh_hthr_group_rebalance`, `fib_rebalance`), in the
/// order of the group; empty without weights.
#[must_use]
pub fn upper_bounds(weights: &[u16]) -> Vec<u32> {
    let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    let mut sum = 0;
    let bound = |&weight: &u16| {
        sum += u64::from(weight);
        let scaled = ((sum << 31) + total / 2).checked_div(total).unwrap_or(0);
        u32::try_from(scaled.saturating_sub(1)).unwrap_or(u32::MAX)
    };
    weights.iter().map(bound).collect()
}

/// The member of a hash group that a hash falls to, by [`upper_bounds`]; `None` without members.
#[must_use]
pub fn member_of(hash: u32, upper_bounds: &[u32]) -> Option<usize> {
    let index = upper_bounds.partition_point(|&upper| upper < hash);
    (index < upper_bounds.len()).then_some(index)
}

/// The bucket of a resilient group that a hash falls to; 0 of none.
#[must_use]
pub fn bucket_of(hash: u32, buckets_count: u16) -> u16 {
    let bucket = hash.checked_rem(buckets_count.into()).unwrap_or(0);
    u16::try_from(bucket).unwrap_or(0)
}

/// How many buckets each member of a resilient group is to have (`nh_res_group_rebalance`).
#[must_use]
pub fn bucket_shares(weights: &[u16], buckets_count: u16) -> Vec<u16> {
    let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    let (mut sum, mut previous) = (0, 0);
    let share = |&weight: &u16| {
        sum += u64::from(weight);
        let upper = (u64::from(buckets_count) * sum + total / 2).checked_div(total).unwrap_or(0);
        let share = upper - previous;
        previous = upper;
        u16::try_from(share).unwrap_or(u16::MAX)
    };
    weights.iter().map(share).collect()
}

/// The members of a new resilient group's buckets: the kernel fills them from the first bucket with the
/// last member's share, then the one before it. Later changes of weights leave another order behind.
#[must_use]
pub fn new_buckets(weights: &[u16], buckets_count: u16) -> Vec<usize> {
    let shares = bucket_shares(weights, buckets_count);
    let members = shares.iter().enumerate().rev();
    members.flat_map(|(index, &share)| core::iter::repeat_n(index, share.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siphash_matches_another_implementation() {
        // Computed by an independent implementation.
        let key = 0x0706_0504_0302_0100;
        let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(siphash(key, &words), 0x658f_15f5_4671_7be8);
    }

    #[test]
    fn both_directions_of_a_flow_hash_alike() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (near, far) in [("10.100.0.1", "10.10.0.21"), ("fd00:c::1", "fd00:5::21")] {
            let there = Flow::tcp((address(near), 40_000), (address(far), 1191));
            let back = Flow::tcp((address(far), 1191), (address(near), 40_000));
            for policy in [HashPolicy::Addresses, HashPolicy::Ports] {
                assert_eq!(there.hash(12_345, policy), back.hash(12_345, policy));
                assert_ne!(there.hash(12_345, policy), there.hash(12_346, policy));
            }
            let other = Flow { source_port: 40_001, ..there };
            assert_eq!(there.hash(7, HashPolicy::Addresses), other.hash(7, HashPolicy::Addresses));
            assert_ne!(there.hash(7, HashPolicy::Ports), other.hash(7, HashPolicy::Ports));
        }
    }

    #[test]
    fn weights_divide_the_range_of_hashes() {
        assert_eq!(upper_bounds(&[1, 1]), [(1 << 30) - 1, u32::MAX >> 1]);
        assert_eq!(member_of(0, &upper_bounds(&[1, 1])), Some(0));
        assert_eq!(member_of(1 << 30, &upper_bounds(&[1, 1])), Some(1));
        assert_eq!(member_of(5, &[]), None);
        for weights in [vec![1], vec![256; 256], vec![5, 2, 1], vec![1, 256]] {
            assert_eq!(upper_bounds(&weights).last(), Some(&(u32::MAX >> 1)));
        }
    }

    #[test]
    fn buckets_are_shared_by_weight_and_filled_from_the_last_member() {
        assert_eq!(bucket_shares(&[100, 1, 100], 128), [64, 0, 64]);
        assert_eq!(bucket_shares(&[1, 1, 1], 128), [43, 42, 43]);
        assert_eq!(new_buckets(&[1, 2], 4), [1, 1, 1, 0]);
        assert_eq!(bucket_of(9, 0), 0);
    }
}
