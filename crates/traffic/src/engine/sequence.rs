//! Received, lost, reordered and duplicate datagrams, their jitter and how long they wait.

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

/// How much longer datagrams are underway than the fastest one. Of each [`WINDOW_NS`] only the least counts: a host that is
/// late now and then makes some datagrams late, a queue all of them. The clocks of the two ends need not agree.
#[derive(Debug)]
pub(super) struct StandingDelay {
    /// Transit of the first datagram, to which the others are compared.
    first_ns: Option<i64>,
    window_ends_ns: i64,
    window_least_ns: i64,
    figures: DelayFigures,
}

/// What a [`StandingDelay`] has seen up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DelayFigures {
    /// Windows in which a datagram arrived, and that are over.
    pub(super) windows_count: u64,
    /// Sum of their least transits, nanoseconds beyond the first datagram's.
    pub(super) sum_ns: i64,
    /// The least of them all; `i64::MAX` before the first.
    pub(super) least_ns: i64,
}

/// So long all datagrams must be late for it to count.
const WINDOW_NS: i64 = 10_000_000;
/// Fewer windows than this say nothing.
const WINDOWS_COUNT_MIN: u64 = 10;

impl Default for DelayFigures {
    fn default() -> Self {
        Self { windows_count: 0, sum_ns: 0, least_ns: i64::MAX }
    }
}

impl DelayFigures {
    /// Mean of what the windows since `before` add to the fastest datagram's time, seconds; `None` if they are too few.
    pub(super) fn delay_s(&self, before: &Self) -> Option<f64> {
        let windows_count = self.windows_count.checked_sub(before.windows_count)?;
        let mean_ns = self.sum_ns.wrapping_sub(before.sum_ns) as f64 / windows_count as f64;
        let delay_s = (mean_ns - self.least_ns as f64) * 1e-9;
        (windows_count >= WINDOWS_COUNT_MIN).then_some(delay_s.max(0.0))
    }
}

impl Default for StandingDelay {
    fn default() -> Self {
        Self {
            first_ns: None,
            window_ends_ns: i64::MIN,
            window_least_ns: i64::MAX,
            figures: DelayFigures::default(),
        }
    }
}

impl StandingDelay {
    /// Takes part in the window of `came_ns`, a time of this end's clock.
    pub(super) fn begin(&mut self, came_ns: i64) {
        if came_ns < self.window_ends_ns {
            return;
        }
        self.window_ends_ns = came_ns.saturating_add(WINDOW_NS);
        let least_ns = std::mem::replace(&mut self.window_least_ns, i64::MAX);
        if least_ns != i64::MAX {
            let figures = &mut self.figures;
            figures.windows_count += 1;
            figures.sum_ns = figures.sum_ns.wrapping_add(least_ns);
            figures.least_ns = figures.least_ns.min(least_ns);
        }
    }

    /// Records a datagram as [`Jitter::observe`] does.
    #[inline]
    pub(super) fn observe(&mut self, sent_ns: i64, came_ns: i64) {
        let transit_ns = came_ns.wrapping_sub(sent_ns);
        let first_ns = *self.first_ns.get_or_insert(transit_ns);
        self.window_least_ns = self.window_least_ns.min(transit_ns.wrapping_sub(first_ns));
    }

    pub(super) fn figures(&self) -> DelayFigures {
        self.figures
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

    /// The delay of datagrams sent every millisecond that are so long underway, the first 50 left out.
    fn delay_s(transit_ns: impl Fn(i64) -> i64) -> Option<f64> {
        let mut delay = StandingDelay::default();
        let mut before = DelayFigures::default();
        for number in 0..1000 {
            let sent_ns = number * 1_000_000;
            let came_ns = sent_ns + transit_ns(number) - 3_000_000_000;
            if number == 50 {
                before = delay.figures();
            }
            delay.begin(came_ns);
            delay.observe(sent_ns, came_ns);
        }
        delay.figures().delay_s(&before)
    }

    #[test]
    fn a_queue_makes_all_datagrams_late_and_a_busy_host_some() {
        let near = |wanted_s: f64, delay_s: Option<f64>| {
            assert!((delay_s.unwrap() - wanted_s).abs() < 0.05e-3, "{delay_s:?}, not {wanted_s}");
        };
        near(0.0, delay_s(|_| 40_000));
        // Nine of ten wait for their host.
        near(0.0, delay_s(|number| 40_000 + (number % 10) * 900_000));
        // The queue fills within the first 20 ms and stays full.
        near(20e-3, delay_s(|number| 40_000 + number.min(20) * 1_000_000));
        // The clocks drift apart by 50 parts in a million: half of it over the second is no queue.
        near(25e-6, delay_s(|number| 40_000 + number * 50));
    }

    #[test]
    fn few_windows_say_nothing_and_absurd_times_no_nonsense() {
        let mut delay = StandingDelay::default();
        for number in 0..9 {
            delay.begin(number * WINDOW_NS);
            delay.observe(0, number * WINDOW_NS);
        }
        assert_eq!(delay.figures().delay_s(&DelayFigures::default()), None);
        assert_eq!(DelayFigures::default().delay_s(&DelayFigures::default()), None);
        for sent_ns in (0..100).map(|number| if number % 2 == 0 { i64::MIN } else { i64::MAX }) {
            delay.begin(i64::MAX);
            delay.observe(sent_ns, i64::MIN);
        }
        let absurd = delay.figures().delay_s(&DelayFigures::default());
        assert!(absurd.is_some_and(|delay_s| delay_s.is_finite() && delay_s >= 0.0), "{absurd:?}");
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
