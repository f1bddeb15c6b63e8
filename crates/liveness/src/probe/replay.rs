/// Sequence numbers that are distinguished behind the newest.
const WINDOW_BITS: u64 = 1024;
const WORDS: usize = (WINDOW_BITS / 64) as usize;

/// Which sequence numbers have been seen, as RFC 4303 section 3.4.3 does it for IPsec.
#[derive(Debug, Clone)]
pub(crate) struct ReplayWindow {
    newest: u64,
    seen: [u64; WORDS],
}

impl ReplayWindow {
    /// A window whose newest number is the one given.
    pub(crate) fn starting_with(newest: u64) -> Self {
        let mut window = Self { newest, seen: [0; WORDS] };
        window.mark(newest);
        window
    }

    /// Notes a number; `false` if it has been seen or is too old to tell.
    pub(crate) fn admit(&mut self, number: u64) -> bool {
        if number > self.newest {
            let steps = number - self.newest;
            (1..=steps.min(WINDOW_BITS))
                .for_each(|step| self.clear(self.newest.wrapping_add(step)));
            self.newest = number;
        } else if self.newest - number >= WINDOW_BITS || self.is_marked(number) {
            return false;
        }
        self.mark(number);
        true
    }

    fn place(number: u64) -> (usize, u64) {
        ((number % WINDOW_BITS / 64) as usize, 1 << (number % 64))
    }

    fn mark(&mut self, number: u64) {
        let (word, bit) = Self::place(number);
        self.seen[word] |= bit;
    }

    fn clear(&mut self, number: u64) {
        let (word, bit) = Self::place(number);
        self.seen[word] &= !bit;
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        self.seen[word] & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_number_is_admitted_once_and_old_ones_never() {
        bolero::check!().with_type::<(u64, Vec<i16>)>().for_each(|(start, steps)| {
            let mut window = ReplayWindow::starting_with(*start);
            let mut seen = BTreeSet::from([*start]);
            let mut newest = *start;
            for step in steps {
                let number = newest.saturating_add_signed(i64::from(step / 16));
                let is_new = !seen.contains(&number) && (number > newest || newest - number < 1024);
                assert_eq!(window.admit(number), is_new, "{number} after {newest}");
                if is_new {
                    seen.insert(number);
                }
                newest = newest.max(number);
            }
        });
    }

    #[test]
    fn a_leap_forgets_everything_behind_it() {
        let mut window = ReplayWindow::starting_with(5);
        assert!(window.admit(5 + 4096));
        assert!(!window.admit(5));
        assert!(window.admit(5 + 4096 - 1023) && !window.admit(5 + 4096 - 1024));
        assert!(window.admit(u64::MAX) && !window.admit(u64::MAX));
    }
}
