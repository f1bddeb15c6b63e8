//! A limit's weight, made of what speaks for it and what speaks against it, with the words for what costs it most.

/// A cost below this is not worth a word.
const TOLD_MIN: f64 = 0.05;

/// Doubts that several limits share.
pub(crate) const HELD: &str =
    "windows, buffers or applications hold the sender back part of the time";
pub(crate) const HOSTS_FULL: &str = "the hosts' cores are full";
pub(crate) const QUEUE: &str = "packets wait in a queue on the path";
pub(crate) const LIFTED: &str = "more streams carry more";
pub(crate) const NO_PLATEAU: &str = "it is not shown that nothing lifts the rate";
pub(crate) const STARVED: &str = "a thread of the hosts hardly sleeps";

/// A product of confidences, each 0 to 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weighing {
    weight: f64,
    /// What the strongest doubt leaves of the weight, and what it is.
    doubt: Option<(f64, &'static str)>,
}

impl Weighing {
    /// The weight of a limit that nothing speaks against.
    pub(crate) const fn most(most: f64) -> Self {
        Self { weight: most, doubt: None }
    }

    /// By a sign that the limit must show; `absent`: words for its absence.
    pub(crate) fn by(self, sign: f64, absent: &'static str) -> Self {
        let is_stronger = self.doubt.is_none_or(|(left, _)| sign < left);
        let doubt =
            if is_stronger && sign < 1.0 - TOLD_MIN { Some((sign, absent)) } else { self.doubt };
        Self { weight: self.weight * sign, doubt }
    }

    /// By a sign that speaks against the limit, as far as `part` of its weight.
    pub(crate) fn unless(self, sign: f64, part: f64, present: &'static str) -> Self {
        self.by(1.0 - part * sign, present)
    }

    /// The weight, 0 to 1.
    pub(crate) fn weight(self) -> f64 {
        self.weight
    }

    /// What costs it most, in words; `None` if nothing costs it much.
    pub(crate) fn doubt(self) -> Option<&'static str> {
        self.doubt.map(|(_, words)| words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_doubt_is_told() {
        let weighed = Weighing::most(0.9).by(0.8, "weak").unless(0.5, 1.0, QUEUE).by(0.99, "none");
        assert!((weighed.weight() - 0.9 * 0.8 * 0.5 * 0.99).abs() < 1e-12, "{weighed:?}");
        assert_eq!(weighed.doubt(), Some(QUEUE));
        assert_eq!(Weighing::most(0.9).by(0.99, "nothing").doubt(), None);
        assert_eq!(Weighing::most(1.0).by(f64::NAN, "absurd").doubt(), None);
    }
}
