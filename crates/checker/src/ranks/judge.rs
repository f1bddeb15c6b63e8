//! Runs that leave no process out, by many ranks: they find the states that may be on an accepting cycle
//! and hand them to rank 0, which looks for a fair one among them.

use std::time::{Duration, Instant};

use dve::Model;
use statespace::{Actors, FairFound, FairSearch, Fairness, StoreFull};

use super::ModelRank;
use crate::ModelSystem;
use crate::search::PORTION;

/// Rank 0 looks for messages this often.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Rank 0's search among the states it was handed.
#[derive(Debug)]
pub(super) struct Judge<'m> {
    model: &'m Model,
    pub(super) fairness: Fairness,
    search: Option<FairSearch<ModelSystem<'m>>>,
    /// Who takes the steps of the cycle that was found.
    pub(super) actors: Vec<Actors>,
    ended_bytes: u64,
}

impl<'m> Judge<'m> {
    pub(super) fn new(model: &'m Model, fairness: Fairness) -> Self {
        Self { model, fairness, search: None, actors: Vec::new(), ended_bytes: 0 }
    }

    /// Goes on for a while, once all states are here.
    pub(super) fn go_on(&mut self, rank: &mut ModelRank<'_>) -> Result<(), StoreFull> {
        if let Some(states) = rank.take_gathered() {
            let system = ModelSystem::new(self.model);
            self.search = Some(FairSearch::within(system, self.fairness, states));
        }
        let Some(search) = &mut self.search else { return Ok(()) };
        let start = Instant::now();
        let cycle = loop {
            match search.advance(PORTION)? {
                FairFound::More if start.elapsed() >= LOOK_EVERY => return Ok(()),
                FairFound::More => {}
                FairFound::NoCycle => break Vec::new(),
                FairFound::Cycle(found) => {
                    self.actors = found.actors;
                    break found.lasso.cycle;
                }
            }
        };
        // Its memory counts to the end.
        self.ended_bytes = self.memory_bytes();
        self.search = None;
        rank.judged(cycle);
        Ok(())
    }

    /// What the states and their steps take here, or took at the end.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.search
            .as_ref()
            .map_or(self.ended_bytes, |search| search.progress().memory_bytes as u64)
    }
}
