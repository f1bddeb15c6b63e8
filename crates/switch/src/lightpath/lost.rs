use crate::frame::FrameShape;

/// Which wire packets of a frame are lost: a bit each for up to 128. Packets of a frame that has
/// more (a segment size below 500 bytes) share their fate with their neighbours, as evenly as can be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostPackets {
    mask: u128,
}

impl LostPackets {
    /// All arrive.
    pub const NONE: Self = Self { mask: 0 };

    /// Those from `first` on are lost.
    #[must_use]
    pub(crate) fn beyond(first: u32, packets_count: u32) -> Self {
        let mut lost = Self::NONE;
        for index in first..packets_count {
            lost.lose(index, packets_count);
        }
        lost
    }

    /// Loses one; how many are newly lost with it.
    pub(crate) fn lose(&mut self, index: u32, packets_count: u32) -> u32 {
        let before = self.count(packets_count);
        self.mask |= 1 << position(index, packets_count);
        self.count(packets_count) - before
    }

    /// Whether any is.
    #[must_use]
    pub fn any(&self) -> bool {
        self.mask != 0
    }

    /// Whether this one is.
    #[must_use]
    pub fn is_lost(&self, index: u32, packets_count: u32) -> bool {
        self.mask >> position(index, packets_count) & 1 == 1
    }

    /// How many are.
    #[must_use]
    pub fn count(&self, packets_count: u32) -> u32 {
        if packets_count <= u128::BITS {
            return self.mask.count_ones();
        }
        (0..packets_count).map(|index| u32::from(self.is_lost(index, packets_count))).sum()
    }

    /// Runs of neighbours that arrive, as first and one past the last.
    pub fn surviving_runs(self, packets_count: u32) -> impl Iterator<Item = (u32, u32)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let lost = |index: u32| self.is_lost(index, packets_count);
            let first = (next..packets_count).find(|&index| !lost(index))?;
            let end = (first..packets_count).find(|&index| lost(index)).unwrap_or(packets_count);
            next = end;
            Some((first, end))
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

fn position(index: u32, packets_count: u32) -> u32 {
    if packets_count <= u128::BITS { index } else { index / packets_count.div_ceil(u128::BITS) }
}
