//! What an experiment is to the one loop that runs it.

use results::{Point, Results};

use crate::plan::Plan;
use crate::summary::summarise;

/// An experiment as a pure value: asked for its next points, given what was found so far, and in the end
/// for what it concludes.
///
/// The loop runs round 0, 1, … until there is none. A round is a plan whose points that exist
/// already are left out, so a run that was cut short asks the same questions again and goes on where
/// it was. The document has the hosts, and the path as it was when the run began: a run that is taken up
/// again has the path's idle round trips and MTU from its journal.
pub trait Experiment {
    /// The plan of a round, from 0; `None` when everything is measured. Only points of earlier rounds
    /// may decide it, so that it is the same when the run is taken up again.
    fn round(&self, number: u32, so_far: &Results) -> Option<Plan>;

    /// The plan that names the journal: a run with another one begins anew.
    fn identity(&self, so_far: &Results) -> Option<Plan> {
        self.round(0, so_far)
    }

    /// Those of an earlier run's points that count: all, unless some belong to others that are missing.
    fn taken_up(&self, earlier: Vec<Point>) -> Vec<Point> {
        earlier
    }

    /// Writes what the points say together into the document. `is_complete`: every round was run.
    fn conclude(&self, results: &mut Results, is_complete: bool) {
        let _ = is_complete;
        results.summaries = summarise(&results.points);
    }
}

/// A plan is an experiment of one round.
impl Experiment for Plan {
    fn round(&self, number: u32, _so_far: &Results) -> Option<Plan> {
        (number == 0).then(|| self.clone())
    }
}

/// Plans that need nothing of each other's points, one after the other.
impl Experiment for [Plan] {
    fn round(&self, number: u32, _so_far: &Results) -> Option<Plan> {
        self.get(number as usize).cloned()
    }
}
