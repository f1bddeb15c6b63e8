use std::collections::VecDeque;

use super::config::ROUNDS_COUNT_MAX;

/// When the latest rounds were sent.
#[derive(Debug, Clone)]
pub(super) struct Rounds {
    /// Number of the newest; the first is 1.
    newest: u64,
    /// The latest, the oldest first.
    sent: VecDeque<Round>,
}

#[derive(Debug, Clone, Copy)]
struct Round {
    sent_ns: u64,
    is_discounted: bool,
}

impl Rounds {
    pub(super) fn new() -> Self {
        Self { newest: 0, sent: VecDeque::with_capacity(ROUNDS_COUNT_MAX as usize) }
    }

    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Begins a round and returns its number.
    pub(super) fn begin(&mut self, now_ns: u64) -> u64 {
        if self.sent.len() == ROUNDS_COUNT_MAX as usize {
            self.sent.pop_front();
        }
        self.sent.push_back(Round { sent_ns: now_ns, is_discounted: false });
        self.newest += 1;
        self.newest
    }

    /// When the newest round was sent.
    pub(super) fn newest_sent_ns(&self) -> Option<u64> {
        self.sent.back().map(|round| round.sent_ns)
    }

    /// Discounts the newest round and the others that were still open at `at_ns`.
    pub(super) fn discount_open(&mut self, at_ns: u64, timeout_ns: u64) {
        if let Some(newest) = self.sent.back_mut() {
            newest.is_discounted = true;
        }
        let is_open = |round: &&mut Round| {
            round.is_discounted || round.sent_ns.saturating_add(timeout_ns) > at_ns
        };
        self.sent.iter_mut().rev().take_while(is_open).for_each(|round| round.is_discounted = true);
    }

    /// Discounts all open rounds.
    pub(super) fn discount_all(&mut self) {
        self.sent.iter_mut().for_each(|round| round.is_discounted = true);
    }

    /// Whether a round's time for answers is over and counts.
    pub(super) fn is_over(&self, number: u64, now_ns: u64, timeout_ns: u64) -> bool {
        let age = self.newest.checked_sub(number).and_then(|age| usize::try_from(age).ok());
        let place = age.and_then(|age| self.sent.len().checked_sub(age + 1));
        place.is_some_and(|place| {
            let round = self.sent[place];
            !round.is_discounted && round.sent_ns.saturating_add(timeout_ns) <= now_ns
        })
    }

    /// How many of the rounds after `answered` are over and count.
    pub(super) fn over_after(&self, answered: u64, now_ns: u64, timeout_ns: u64) -> u32 {
        let oldest = self.newest.saturating_sub(self.sent.len() as u64) + 1;
        let numbers = oldest.max(answered + 1)..=self.newest;
        let count = numbers.filter(|number| self.is_over(*number, now_ns, timeout_ns)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}
