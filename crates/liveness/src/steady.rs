/// A clock that never goes back: what the caller's clock loses is made up for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SteadyClock {
    last_raw_ns: u64,
    offset_ns: u64,
}

impl SteadyClock {
    /// The steady time at `raw_ns` of the caller's clock, and by how much that clock went back.
    pub(crate) fn advance(&mut self, raw_ns: u64) -> (u64, u64) {
        let back_ns = self.last_raw_ns.saturating_sub(raw_ns);
        self.offset_ns = self.offset_ns.saturating_add(back_ns);
        self.last_raw_ns = raw_ns;
        (raw_ns.saturating_add(self.offset_ns), back_ns)
    }

    /// The time of the caller's clock that corresponds to `steady_ns`.
    pub(crate) fn raw(&self, steady_ns: u64) -> u64 {
        steady_ns.saturating_sub(self.offset_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_time_stands_still_while_the_clock_goes_back() {
        let mut clock = SteadyClock::default();
        assert_eq!(clock.advance(100), (100, 0));
        assert_eq!(clock.advance(40), (100, 60));
        assert_eq!(clock.advance(45), (105, 0));
        assert_eq!(clock.raw(110), 50);
        assert_eq!(clock.advance(u64::MAX).0, u64::MAX, "saturates");
    }
}
