use crate::frame::FrameShape;

/// Which wire packets of a frame are lost: a bit each for up to 128. Packets of a frame that has
/// more (a segment size below 500 bytes) are lost together with their neighbours, spread as evenly as possible.
/// So whatever a frame claims to stand for, nothing here takes more than 128 steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostPackets {
    mask: u128,
}

impl LostPackets {
    /// No packet is lost.
    pub const NONE: Self = Self { mask: 0 };

    /// How many neighbours share a bit.
    #[must_use]
    pub(crate) fn sharing(packets_count: u32) -> u32 {
        packets_count.div_ceil(u128::BITS).max(1)
    }

    /// Those from `first` on are lost, and those that are lost together with the first of them.
    #[must_use]
    pub(crate) fn beyond(first: u32, packets_count: u32) -> Self {
        let bits = |packets: u32| u128::MAX.checked_shr(u128::BITS - packets).unwrap_or(0);
        let sharing = Self::sharing(packets_count);
        if first >= packets_count {
            return Self::NONE;
        }
        Self { mask: bits(packets_count.div_ceil(sharing)) & !bits(first / sharing) }
    }

    /// Loses one packet, and those that are lost together with it; returns how many are newly lost.
    pub(crate) fn lose(&mut self, index: u32, packets_count: u32) -> u32 {
        if self.is_lost(index, packets_count) {
            return 0;
        }
        let sharing = Self::sharing(packets_count);
        self.mask |= 1 << (index / sharing);
        sharing.min(packets_count - index / sharing * sharing)
    }

    /// Whether any packet is lost.
    #[must_use]
    pub fn any(&self) -> bool {
        self.mask != 0
    }

    /// Whether this packet is lost.
    #[must_use]
    pub fn is_lost(&self, index: u32, packets_count: u32) -> bool {
        self.mask >> (index / Self::sharing(packets_count)) & 1 == 1
    }

    /// Number of lost packets of `packets_count`.
    #[must_use]
    pub fn count(&self, packets_count: u32) -> u32 {
        let sharing = Self::sharing(packets_count);
        let whole = self.mask.count_ones() * sharing;
        // The last ones may be fewer than share a bit elsewhere.
        let missing = packets_count.next_multiple_of(sharing) - packets_count;
        if packets_count > 0 && self.is_lost(packets_count - 1, packets_count) {
            whole - missing
        } else {
            whole
        }
    }

    /// Runs of neighbours that arrive, as first and one past the last.
    pub fn surviving_runs(self, packets_count: u32) -> impl Iterator<Item = (u32, u32)> {
        let sharing = Self::sharing(packets_count);
        let end = packets_count.div_ceil(sharing);
        let mut next = 0;
        std::iter::from_fn(move || {
            let lost = |bit: u32| self.mask >> bit & 1 == 1;
            let first = (next..end).find(|&bit| !lost(bit))?;
            next = (first..end).find(|&bit| lost(bit)).unwrap_or(end);
            Some((first * sharing, (next * sharing).min(packets_count)))
        })
    }

    pub(crate) fn surviving_wire_bytes(self, shape: &FrameShape) -> u64 {
        let all = shape.wire_bytes(shape.packets_count);
        if !self.any() {
            return all;
        }
        let last_bytes = all - shape.wire_bytes(shape.packets_count - 1);
        let lost_count = u64::from(self.count(shape.packets_count));
        if self.is_lost(shape.packets_count - 1, shape.packets_count) {
            all - last_bytes - (lost_count - 1) * shape.wire_bytes(1)
        } else {
            all - lost_count * shape.wire_bytes(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything against a list of packets, each looked at on its own.
    #[test]
    fn any_losses_are_those_of_a_list() {
        bolero::check!().with_type::<(u16, u16, Vec<u16>)>().for_each(|(count, first, losses)| {
            let count = u32::from(count % 1024) + 1;
            let sharing = LostPackets::sharing(count);
            let mut lost = LostPackets::beyond(u32::from(*first), count);
            let first = if u32::from(*first) < count { u32::from(*first) / sharing } else { count };
            let mut list: Vec<bool> = (0..count).map(|index| index / sharing >= first).collect();
            for &index in losses {
                let index = u32::from(index) % count;
                let neighbours = (0..count).filter(|other| other / sharing == index / sharing);
                let newly =
                    neighbours.filter(|&at| !std::mem::replace(&mut list[at as usize], true));
                assert_eq!(lost.lose(index, count), newly.count() as u32);
            }
            let index_of = |(index, _): (usize, &bool)| index as u32;
            let expected: Vec<u32> =
                list.iter().enumerate().filter(|(_, lost)| !**lost).map(index_of).collect();
            let survivors: Vec<u32> =
                lost.surviving_runs(count).flat_map(|(first, end)| first..end).collect();
            assert_eq!(survivors, expected);
            assert_eq!(lost.count(count), count - expected.len() as u32);
            assert_eq!(lost.any(), expected.len() < count as usize);
        });
    }
}
