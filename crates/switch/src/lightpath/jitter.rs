use stats::Random;

use crate::lightpath::JitterShape;

/// A delay that wanders: independent draws at knots in time, a straight line between them.
///
/// What makes a long path jitter (switches on the way, protection switching) changes slowly against
/// the gap between two frames, so neighbouring frames have similar delays and order holds: probes a second apart
/// see independent draws, back-to-back frames see almost the same one. Knots are at least
/// [`KNOT_NS_MIN`] apart and far enough for the line to rise by no more than half a nanosecond a
/// nanosecond.
#[derive(Debug, Clone)]
pub(crate) struct Jitter {
    reach_ns: f64,
    shape: JitterShape,
    knot_ns: u64,
    from: f64,
    to: f64,
    to_at_ns: u64,
}

const KNOT_NS_MIN: u64 = 1_000_000;

impl Jitter {
    pub(crate) fn new(jitter_ns: u64, shape: JitterShape) -> Self {
        let widest = match shape {
            JitterShape::Uniform => 2 * jitter_ns,
            JitterShape::Normal => 6 * jitter_ns,
        };
        Self {
            reach_ns: jitter_ns as f64,
            shape,
            knot_ns: (2 * widest).max(KNOT_NS_MIN),
            from: 0.0,
            to: 0.0,
            to_at_ns: 0,
        }
    }

    /// What to add to the delay at `now_ns`, to either side of zero.
    pub(crate) fn offset_ns(&mut self, now_ns: u64, random: &mut Random) -> f64 {
        if self.reach_ns == 0.0 {
            return 0.0;
        }
        if now_ns >= self.to_at_ns {
            let next_in_line = now_ns < self.to_at_ns.saturating_add(self.knot_ns);
            self.from = if next_in_line { self.to } else { self.draw(random) };
            self.to = self.draw(random);
            let start_ns = if next_in_line { self.to_at_ns } else { now_ns };
            self.to_at_ns = start_ns.saturating_add(self.knot_ns);
        }
        let left = (self.to_at_ns - now_ns) as f64 / self.knot_ns as f64;
        self.to + (self.from - self.to) * left
    }

    fn draw(&self, random: &mut Random) -> f64 {
        match self.shape {
            JitterShape::Uniform => self.reach_ns * (2.0 * random.unit() - 1.0),
            JitterShape::Normal => self.reach_ns * random.normal().clamp(-3.0, 3.0),
        }
    }
}
