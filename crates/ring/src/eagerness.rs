//! How long to poll before sleeping: as long as the last waits say that it pays.

use std::time::Duration;

/// What the last waits have taught.
///
/// A wait that was over within the linger would have been worth polling for, whether it was polled or
/// slept through: the next one may poll for all of it. One that took longer halves the next one's
/// polling. So an exchange of single frames is polled for, and whoever waits for what comes seldom
/// sleeps at once: an idle side costs nothing. (`kvm.halt_poll_ns` of Linux grows and shrinks so.)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Eagerness {
    /// Waits since the last short one.
    long_waits: u32,
}

impl Eagerness {
    /// How long to poll now, of a linger of that length.
    #[inline]
    #[must_use]
    pub fn of(self, linger: Duration) -> Duration {
        if self.long_waits == 0 {
            linger
        } else {
            2_u32.checked_pow(self.long_waits).map_or(Duration::ZERO, |share| linger / share)
        }
    }

    /// A wait is over that took so long.
    #[inline]
    pub fn learn(&mut self, linger: Duration, waited: Duration) {
        self.long_waits = if waited <= linger { 0 } else { self.long_waits.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_micros(100);

    #[test]
    fn whoever_waits_in_vain_soon_sleeps_at_once() {
        let mut eagerness = Eagerness::default();
        let mut polled = Duration::ZERO;
        for _ in 0..1000 {
            polled += eagerness.of(LINGER);
            eagerness.learn(LINGER, Duration::from_millis(1));
        }
        assert!(polled <= 2 * LINGER, "{polled:?} of a second");
        assert_eq!(eagerness.of(LINGER), Duration::ZERO);
    }

    #[test]
    fn one_short_wait_brings_it_back() {
        let mut eagerness = Eagerness::default();
        (0..40).for_each(|_| eagerness.learn(LINGER, Duration::MAX));
        eagerness.learn(LINGER, LINGER);
        assert_eq!(eagerness.of(LINGER), LINGER);
        assert_eq!(eagerness.of(Duration::MAX), Duration::MAX);
    }
}
