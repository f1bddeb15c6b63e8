//! Congestion windows: additive increase, multiplicative decrease. A loss without any sign of a
//! queue costs less (on Ethernet it is as often a bad cable as a full switch), and growth stops
//! where round-trip times show that packets already queue.

#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    bytes: u64,
    threshold_bytes: u64,
    /// Size before the last decrease.
    before_bytes: u64,
    min_bytes: u64,
    max_bytes: u64,
}

impl Window {
    pub(crate) fn new(initial_bytes: u64, min_bytes: u64, max_bytes: u64) -> Self {
        let max_bytes = max_bytes.max(min_bytes);
        let bytes = initial_bytes.clamp(min_bytes, max_bytes);
        Self { bytes, threshold_bytes: u64::MAX, before_bytes: bytes, min_bytes, max_bytes }
    }

    /// Lowers the upper bound, but not below the smallest window.
    pub(crate) fn limit(&mut self, max_bytes: u64) {
        self.max_bytes = max_bytes.clamp(self.min_bytes, self.max_bytes);
        self.bytes = self.bytes.min(self.max_bytes);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_starting(&self) -> bool {
        self.bytes < self.threshold_bytes
    }

    /// Grows after `arrived_bytes` reached the other end while at least half of the window was in
    /// use.
    pub(crate) fn grow(&mut self, arrived_bytes: u64, packet_bytes: u64, is_queueing: bool) {
        if is_queueing {
            self.threshold_bytes = self.threshold_bytes.min(self.bytes);
            return;
        }
        let more_bytes = if self.is_starting() {
            arrived_bytes
        } else {
            (packet_bytes * arrived_bytes / self.bytes).max(1)
        };
        self.bytes = (self.bytes + more_bytes).min(self.max_bytes);
    }

    /// Shrinks after a loss, the first in its round trip: by 40% with a queue, else by 15%.
    pub(crate) fn shrink(&mut self, is_queueing: bool) {
        self.before_bytes = self.bytes;
        let percent = if is_queueing { 60 } else { 85 };
        self.bytes = (self.bytes * percent / 100).max(self.min_bytes);
        self.threshold_bytes = self.bytes;
    }

    /// Undoes the last decrease: the packet was late, not lost.
    pub(crate) fn restore(&mut self) {
        self.bytes = self.bytes.max(self.before_bytes).min(self.max_bytes);
        self.threshold_bytes = self.threshold_bytes.max(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_its_bounds() {
        bolero::check!().with_type::<Vec<(u8, u32)>>().for_each(|steps| {
            let mut window = Window::new(10_000, 3_000, 1 << 20);
            for &(step, bytes) in steps {
                match step % 4 {
                    0 | 1 => window.grow(u64::from(bytes), 1_500, step & 4 != 0),
                    2 => window.shrink(step & 4 != 0),
                    _ => window.restore(),
                }
                assert!((3_000..=1 << 20).contains(&window.bytes()));
            }
        });
    }

    #[test]
    fn a_loss_shrinks_it_and_a_late_packet_gives_it_back() {
        let mut window = Window::new(100_000, 3_000, 1 << 20);
        window.grow(10_000, 1_500, false);
        assert_eq!(window.bytes(), 110_000, "doubles in a round trip at first");
        window.shrink(true);
        assert!(window.bytes() < 70_000);
        window.restore();
        assert_eq!(window.bytes(), 110_000);
        window.shrink(false);
        let bytes = window.bytes();
        window.grow(bytes, 1_500, false);
        assert!(window.bytes() <= bytes + 1_500, "then a packet a round trip");
    }
}
