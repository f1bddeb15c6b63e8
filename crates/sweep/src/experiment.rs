//! What an experiment is to the one loop that runs it.

use results::Point;

use crate::plan::Plan;

/// An experiment as a pure value: asked for its next points, given those that were made so far.
///
/// The loop runs round 0, 1, … until there is none. A round is a plan whose points that exist
/// already are left out, so a run that was cut short asks the same questions again and goes on where
/// it was; the first round's plan names the journal.
pub trait Experiment {
    /// The plan of a round, from 0; `None` when everything is measured. Only points of earlier rounds
    /// may decide it, so that it is the same when the run is taken up again.
    fn round(&self, number: u32, points: &[Point]) -> Option<Plan>;
}

/// A plan is an experiment of one round.
impl Experiment for Plan {
    fn round(&self, number: u32, _points: &[Point]) -> Option<Plan> {
        (number == 0).then(|| self.clone())
    }
}

/// Plans that need nothing of each other's points, one after the other.
impl Experiment for [Plan] {
    fn round(&self, number: u32, _points: &[Point]) -> Option<Plan> {
        self.get(number as usize).cloned()
    }
}
