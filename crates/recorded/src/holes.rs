//! What came before and what did not: holes in the numbers of the data that passed.

use std::collections::BTreeMap;

/// Holes that are kept; further ones count as filled.
const HOLES_MAX: usize = 4096;

/// What a packet with data was, seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    /// The first time.
    New,
    /// It fills a hole at once: it was overtaken.
    Late,
    /// It fills a hole, a retransmission's time after it was torn: retransmitted after a loss before here.
    LostBefore,
    /// All of it passed here before: lost beyond here, or retransmitted needlessly.
    Again,
}

/// The holes as they stand.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// Start → end and when it was torn.
    open: BTreeMap<i64, (i64, u64)>,
    upto: Option<i64>,
}

impl Holes {
    /// Takes a packet. What fills a hole later than `late_max_ns` was retransmitted.
    pub(crate) fn pass(&mut self, start: i64, end: i64, at_ns: u64, late_max_ns: u64) -> Passed {
        let upto = *self.upto.get_or_insert(start);
        if start >= upto {
            if start > upto && self.open.len() < HOLES_MAX {
                self.open.insert(upto, (start, at_ns));
            }
            self.upto = Some(end);
            return Passed::New;
        }
        self.upto = Some(upto.max(end));
        match self.fill(start, end) {
            Some(torn_ns) if at_ns.saturating_sub(torn_ns) <= late_max_ns => Passed::Late,
            Some(_) => Passed::LostBefore,
            None if end > upto => Passed::New,
            None => Passed::Again,
        }
    }

    /// Bytes that never passed although they were acknowledged: the capture missed them.
    pub(crate) fn missed_bytes(&self, acked_upto: i64) -> u64 {
        let missed = |(start, (end, _)): (&i64, &(i64, u64))| (*end).min(acked_upto) - start;
        self.open.iter().map(missed).filter_map(|bytes| u64::try_from(bytes).ok()).sum()
    }

    /// Closes what lies between; when the first hole there was torn.
    fn fill(&mut self, start: i64, end: i64) -> Option<u64> {
        let mut first = None;
        // Holes do not overlap, so the last one that begins before `end` is the last that is touched.
        while let Some((&from, &(to, torn_ns))) = self.open.range(..end).next_back()
            && to > start
        {
            self.open.remove(&from);
            first = Some(torn_ns);
            if to > end && self.open.len() < HOLES_MAX {
                self.open.insert(end, (to, torn_ns));
            }
            if from < start {
                self.open.insert(from, (start, torn_ns));
                break;
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_filled_soon_is_reordering_and_later_a_loss() {
        let mut holes = Holes::default();
        assert_eq!(holes.pass(0, 10, 0, 5), Passed::New);
        assert_eq!(holes.pass(20, 30, 1, 5), Passed::New);
        assert_eq!(holes.pass(10, 20, 3, 5), Passed::Late);
        assert_eq!(holes.pass(50, 60, 10, 5), Passed::New);
        assert_eq!(holes.pass(35, 40, 40, 5), Passed::LostBefore);
        assert_eq!(holes.missed_bytes(60), 15);
        assert_eq!(holes.pass(30, 60, 41, 5), Passed::LostBefore);
        assert_eq!(holes.pass(30, 60, 42, 5), Passed::Again);
        assert_eq!(holes.missed_bytes(60), 0);
    }

    #[test]
    fn no_order_of_packets_leaves_holes_that_overlap_or_more_than_are_kept() {
        bolero::check!().with_type::<Vec<(u16, u8, u8)>>().for_each(|packets| {
            let mut holes = Holes::default();
            for (at, (start, length, _)) in packets.iter().enumerate() {
                let start = i64::from(*start);
                holes.pass(start, start + i64::from(*length), at as u64, 3);
                let mut ends = i64::MIN;
                for (from, (to, _)) in &holes.open {
                    assert!(*from >= ends && to > from, "{:?}", holes.open);
                    ends = *to;
                }
                assert!(holes.open.len() <= HOLES_MAX);
            }
        });
    }
}
