//! Ranks as threads of this process, each with states of its own.

use crew::{Channels, ExchangeError, run_threads};
use dve::Model;
use statespace::partition::Outcome;

use super::{ModelRank, Task, drive, keep};
use crate::DriveError;

/// Searches a model by so many threads, bound to these cores if there are any; `look` belongs to rank 0,
/// which is the caller's thread.
pub(super) fn search(
    model: &Model,
    task: &Task<'_>,
    ranks_count: usize,
    cores: &[u32],
    look: impl FnMut(&mut ModelRank<'_>) -> Result<(), DriveError>,
) -> Result<Outcome, DriveError> {
    let lead = |mut exchange: Channels| {
        let mut rank = keep::begin(model, task, (0, ranks_count), &mut exchange)?;
        drive(&mut rank, &mut exchange, (task.files, 0), look)?;
        rank.outcome().ok_or(DriveError::NoOutcome)
    };
    let other = |mut exchange: Channels| {
        let me = exchange.me();
        let mut rank = keep::begin(model, task, (me, ranks_count), &mut exchange)?;
        drive(&mut rank, &mut exchange, (task.files, me), |_| Ok(()))
    };
    let end = run_threads(ranks_count, cores, lead, other);
    for other in end.others {
        // Why a rank failed says more than that it is gone.
        if let Err(error @ (DriveError::Rank(_) | DriveError::Exchange(ExchangeError::Panicked))) =
            other
        {
            return Err(error);
        }
    }
    end.lead
}
