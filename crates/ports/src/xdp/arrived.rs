//! Descriptors of frames that have arrived.
//!
//! Whoever opened the socket may have its rings mapped and write anything into them at any time. So each
//! descriptor is read once, when it is first seen; that copy is checked, used and given back.

use std::collections::VecDeque;

use sys::xdp::Descriptor;

/// Descriptors that were read and have not been given back, in order.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    read: VecDeque<Descriptor>,
}

impl Arrived {
    /// Reads those of the first `known` that have not been read, each by its place.
    #[inline]
    pub(crate) fn read(&mut self, known: u32, read: impl FnMut(u32) -> Descriptor) {
        // No more than a ring has slots.
        let first = self.read.len() as u32;
        self.read.extend((first..known).map(read));
    }

    #[inline]
    pub(crate) fn get(&self, offset: u32) -> Option<Descriptor> {
        self.read.get(offset as usize).copied()
    }

    /// The first `count` go.
    pub(crate) fn release(&mut self, count: u32) -> impl Iterator<Item = Descriptor> + '_ {
        self.read.drain(..(count as usize).min(self.read.len()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The other side rewrites each descriptor as soon as it was read, and all others at any time.
    #[test]
    fn each_descriptor_is_read_once_and_stays_what_it_was() {
        const SLOTS: u32 = 8;
        bolero::check!().with_type::<Vec<(u8, u8)>>().for_each(|turns| {
            let reads = RefCell::new(0_u32);
            let mut arrived = Arrived::default();
            let (mut known, mut taken) = (0_u32, 0_u32);
            for &(more, fewer) in turns {
                known = (known + u32::from(more)).min(SLOTS);
                arrived.read(known, |offset| {
                    // Whatever is read, nothing is read twice: the value says when that was.
                    let mut reads = reads.borrow_mut();
                    *reads += 1;
                    assert_eq!(taken + offset, *reads - 1, "read again, or out of order");
                    let address = u64::from(*reads - 1) << 12;
                    Descriptor {
                        address,
                        length_bytes: *reads,
                        goes_on: (*reads).is_multiple_of(2),
                    }
                });
                for _ in 0..3 {
                    for offset in 0..known {
                        let one = arrived.get(offset).unwrap();
                        let number = taken + offset;
                        assert_eq!(one.address, u64::from(number) << 12);
                        assert_eq!((one.length_bytes, one.goes_on), (number + 1, number % 2 == 1));
                    }
                }
                assert_eq!(arrived.get(known), None);
                let count = u32::from(fewer).min(known);
                let addresses: Vec<u64> =
                    arrived.release(count).map(|one| one.address >> 12).collect();
                assert_eq!(addresses, (taken..taken + count).map(u64::from).collect::<Vec<_>>());
                (known, taken) = (known - count, taken + count);
            }
        });
    }
}
