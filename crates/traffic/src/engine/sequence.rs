//! Received, lost, reordered and duplicate datagrams, and their jitter.

/// Sequence numbers that have a bit.
const WINDOW_COUNT: u64 = 1 << 16;

/// How far back a late datagram can be told from a duplicate: bits are cleared a word at a time, so
/// the oldest word is unreliable.
const BACK_COUNT_MAX: u64 = WINDOW_COUNT - 64;

/// A larger gap than this is not loss but an invalid number: at 100 million datagrams per second it
/// would be an outage of 40 seconds.
const AHEAD_COUNT_MAX: u64 = 1 << 32;

/// Tracks sequence numbers, counted from 1 as iperf3 does.
#[derive(Debug)]
pub(super) struct SequenceTracker {
    /// One more than the highest number seen.
    next: u64,
    /// One bit for each number in `next - WINDOW_COUNT .. next`, at the number modulo the window.
    seen: Vec<u64>,
    pub(super) received_count: u64,
    pub(super) lost_count: u64,
    pub(super) reordered_count: u64,
    pub(super) duplicate_count: u64,
}

impl Default for SequenceTracker {
    fn default() -> Self {
        Self {
            next: 1,
            seen: vec![0; (WINDOW_COUNT / 64) as usize],
            received_count: 0,
            lost_count: 0,
            reordered_count: 0,
            duplicate_count: 0,
        }
    }
}

impl SequenceTracker {
    /// Memory of the window, in bytes.
    pub(super) const MEMORY_BYTES: usize = (WINDOW_COUNT / 8) as usize;

    /// Records the arrival of a datagram.
    #[inline]
    pub(super) fn observe(&mut self, number: u64) {
        self.received_count += 1;
        if number == self.next {
            self.next += 1;
            if number.is_multiple_of(64) {
                self.seen[word(number)] = 0;
            }
            self.seen[word(number)] |= bit(number);
        } else {
            self.observe_out_of_order(number);
        }
    }

    /// The full number of which only the low 32 bits arrived: the one nearest to the next expected.
    #[inline]
    pub(super) fn widened(&self, low: u32) -> u64 {
        let ahead = low.wrapping_sub(self.next as u32).cast_signed();
        self.next.wrapping_add_signed(i64::from(ahead))
    }

    #[cold]
    fn observe_out_of_order(&mut self, number: u64) {
        if number > self.next {
            let missing_count = number - self.next;
            if missing_count < AHEAD_COUNT_MAX {
                self.forget(self.next, missing_count + 1);
                self.lost_count += missing_count;
                self.next = number + 1;
                self.seen[word(number)] |= bit(number);
            }
        } else if number == 0 || self.next - number > BACK_COUNT_MAX {
            // Too late to tell whether it is a duplicate: its loss still counts.
            self.reordered_count += 1;
        } else if self.seen[word(number)] & bit(number) != 0 {
            self.duplicate_count += 1;
        } else {
            self.seen[word(number)] |= bit(number);
            self.reordered_count += 1;
            self.lost_count = self.lost_count.saturating_sub(1);
        }
    }

    /// Clears the bits of `count` numbers from `first` on. While numbers arrive in order,
    /// [`Self::observe`] clears each word when it enters it, so the bits ahead of `next` in its own
    /// word are already clear.
    fn forget(&mut self, first: u64, count: u64) {
        if count >= WINDOW_COUNT {
            self.seen.fill(0);
            return;
        }
        let last = first + count - 1;
        for number in first..=last {
            self.seen[word(number)] &= !bit(number);
        }
        // The rest of the last word belongs to later numbers.
        let ahead = !(bit(last) | (bit(last) - 1));
        self.seen[word(last)] &= !ahead;
    }
}

fn word(number: u64) -> usize {
    (number % WINDOW_COUNT / 64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

/// Interarrival jitter as in RFC 3550 section 6.4.1, with the gain of 1/16 of its appendix A.8. The
/// clocks of the two ends need not agree.
#[derive(Debug, Default)]
pub(super) struct Jitter {
    transit_ns: Option<i64>,
    smoothed_ns: f64,
}

impl Jitter {
    /// Records a datagram sent at `sent_ns` of the sender's clock that arrived at `came_ns` of this
    /// end's clock.
    #[inline]
    pub(super) fn observe(&mut self, sent_ns: i64, came_ns: i64) {
        let transit_ns = came_ns.wrapping_sub(sent_ns);
        if let Some(before_ns) = self.transit_ns.replace(transit_ns) {
            let step_ns = transit_ns.wrapping_sub(before_ns).unsigned_abs() as f64;
            self.smoothed_ns += (step_ns - self.smoothed_ns) / 16.0;
        }
    }

    /// The smoothed jitter in seconds.
    pub(super) fn jitter_s(&self) -> f64 {
        self.smoothed_ns * 1e-9
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What the tracker must say, said slowly.
    #[derive(Default)]
    struct Oracle {
        seen: BTreeSet<u64>,
        reordered_count: u64,
        duplicate_count: u64,
    }

    impl Oracle {
        fn observe(&mut self, number: u64) {
            let highest = self.seen.last().copied().unwrap_or(0);
            if !self.seen.insert(number) {
                self.duplicate_count += 1;
            } else if number < highest {
                self.reordered_count += 1;
            }
        }

        fn lost_count(&self) -> u64 {
            self.seen.last().copied().unwrap_or(0) - self.seen.len() as u64
        }
    }

    #[test]
    fn agrees_with_the_oracle() {
        // Each byte is a step from the highest number so far: mostly onwards, at times back.
        bolero::check!().with_type::<Vec<(u8, u16)>>().for_each(|steps| {
            let (mut tracker, mut oracle) = (SequenceTracker::default(), Oracle::default());
            let mut highest = 0;
            for &(kind, distance) in steps {
                let number = match kind % 8 {
                    0..=3 => highest + 1,
                    4 => highest + u64::from(distance) + 1,
                    5 => highest + u64::from(distance % 70) + 1,
                    6 => highest.saturating_sub(u64::from(distance % 70)),
                    _ => highest.saturating_sub(u64::from(distance) % BACK_COUNT_MAX),
                }
                .max(1);
                highest = highest.max(number);
                tracker.observe(number);
                oracle.observe(number);
            }
            assert_eq!(tracker.received_count, steps.len() as u64);
            assert_eq!(tracker.duplicate_count, oracle.duplicate_count);
            assert_eq!(tracker.reordered_count, oracle.reordered_count);
            assert_eq!(tracker.lost_count, oracle.lost_count());
        });
    }

    #[test]
    fn long_runs_in_order_lose_nothing() {
        let mut tracker = SequenceTracker::default();
        (1..=3 * WINDOW_COUNT).for_each(|number| tracker.observe(number));
        assert_eq!((tracker.lost_count, tracker.duplicate_count), (0, 0));
        tracker.observe(3 * WINDOW_COUNT - 1000);
        assert_eq!(tracker.duplicate_count, 1);
        tracker.observe(3 * WINDOW_COUNT + 101);
        assert_eq!(tracker.lost_count, 100);
        tracker.observe(3 * WINDOW_COUNT + 1);
        assert_eq!((tracker.lost_count, tracker.reordered_count), (99, 1));
    }

    #[test]
    fn nonsense_is_not_loss() {
        let mut tracker = SequenceTracker::default();
        for number in [1, u64::MAX, 0, 1 << 40, 2] {
            tracker.observe(number);
        }
        assert_eq!((tracker.lost_count, tracker.received_count), (0, 5));
    }

    #[test]
    fn a_32_bit_counter_goes_round() {
        let mut tracker = SequenceTracker { next: (1 << 32) - 1, ..SequenceTracker::default() };
        for low in [u32::MAX, 0, 2, 1] {
            tracker.observe(tracker.widened(low));
        }
        assert_eq!(tracker.next, (1 << 32) + 3);
        assert_eq!((tracker.lost_count, tracker.reordered_count), (0, 1));
    }

    #[test]
    fn jitter_is_the_rfcs() {
        let mut jitter = Jitter::default();
        // Sent every millisecond; every other one takes 160 us longer.
        for number in 0..1000 {
            let sent_ns = number * 1_000_000;
            jitter.observe(sent_ns, sent_ns + 5_000_000_000 + (number % 2) * 160_000);
        }
        assert!((jitter.jitter_s() - 160e-6).abs() < 1e-9, "{}", jitter.jitter_s());
        let mut even = Jitter::default();
        (0..100).for_each(|number| even.observe(number * 7, number * 7 - 3_000_000));
        assert_eq!(even.jitter_s(), 0.0);
    }
}
