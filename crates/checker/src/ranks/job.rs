//! Ranks as processes of an MPI job.
//!
//! Rank 0 alone reads files, talks and judges. It hands each model to the others, who search their part
//! of it, until the job is over.

use crew::Job;
use dve::Model;
use statespace::Kept;
use statespace::partition::{Aim, Outcome};

use super::keep::Files;
use super::{ModelRank, Task, drive, keep};
use crate::options::Bounds;
use crate::{CheckError, DriveError};

/// Hands a model to all ranks and searches it with them; for rank 0.
pub(super) fn search(
    job: &mut Job,
    model: &Model,
    task: &Task<'_>,
    look: impl FnMut(&mut ModelRank<'_>) -> Result<(), DriveError>,
) -> Result<Outcome, DriveError> {
    try_search(job, model, task, look).inspect_err(|_| job.give_up())
}

fn try_search(
    job: &mut Job,
    model: &Model,
    task: &Task<'_>,
    look: impl FnMut(&mut ModelRank<'_>) -> Result<(), DriveError>,
) -> Result<Outcome, DriveError> {
    let flags = [task.allow_deadlock, task.bounds.is_reduced].map(u8::from);
    let kept = kept_code(task.kept).to_le_bytes();
    let (aim, files) = ([aim_code(task.aim)], task.files.encode());
    job.order(&[&aim[..], &flags, &kept, &files, model.source().as_bytes()].concat())?;
    let mut rank = keep::begin(model, task, (0, job.ranks_count()), job)?;
    drive(&mut rank, job, (task.files, 0), look)?;
    rank.outcome().ok_or(DriveError::NoOutcome)
}

/// Searches what rank 0 hands out until nothing more comes; for all other ranks.
pub(super) fn serve(job: &mut Job) -> Result<(), CheckError> {
    try_serve(job).map_err(|error| {
        job.give_up();
        CheckError::Served { me: job.me(), error }
    })
}

fn try_serve(job: &mut Job) -> Result<(), DriveError> {
    while let Some(order) = job.next_order()? {
        let (model, order) = decode(&order).ok_or(DriveError::UnknownOrder)?;
        let (task, us) = (order.task(), (job.me(), job.ranks_count()));
        let mut rank = keep::begin(&model, &task, us, job)?;
        drive(&mut rank, job, (task.files, us.0), |_| Ok(()))?;
    }
    Ok(())
}

/// What an order asks for; none where it is malformed.
fn decode(order: &[u8]) -> Option<(Model, Order)> {
    let [aim, allow_deadlock, is_reduced, rest @ ..] = order else { return None };
    let (kept, rest) = rest.split_first_chunk()?;
    let (files, text) = Files::decode(rest)?;
    let model = Model::parse(std::str::from_utf8(text).ok()?).ok()?;
    let order = Order {
        aim: aim_of(*aim)?,
        allow_deadlock: *allow_deadlock != 0,
        is_reduced: *is_reduced != 0,
        kept: kept_of(u64::from_le_bytes(*kept)),
        files,
    };
    Some((model, order))
}

/// What rank 0 asks of the other ranks.
struct Order {
    aim: Aim,
    allow_deadlock: bool,
    is_reduced: bool,
    kept: Option<Kept>,
    files: Files,
}

impl Order {
    fn task(&self) -> Task<'_> {
        Task {
            aim: self.aim,
            allow_deadlock: self.allow_deadlock,
            what: "",
            // Time and memory are rank 0's to watch.
            bounds: Bounds { is_reduced: self.is_reduced, ..Bounds::default() },
            kept: self.kept,
            files: &self.files,
            fairness: None,
        }
    }
}

fn aim_code(aim: Aim) -> u8 {
    match aim {
        Aim::Broken { is_full: false } => 0,
        Aim::Broken { is_full: true } => 1,
        Aim::Cycle => 2,
        Aim::Judged => 3,
    }
}

fn aim_of(code: u8) -> Option<Aim> {
    match code {
        0 => Some(Aim::Broken { is_full: false }),
        1 => Some(Aim::Broken { is_full: true }),
        2 => Some(Aim::Cycle),
        3 => Some(Aim::Judged),
        _ => None,
    }
}

/// All of a state, a hash, or a table of so many bytes.
fn kept_code(kept: Option<Kept>) -> u64 {
    match kept {
        None => 0,
        Some(Kept::Hash) => 1,
        Some(Kept::Bits { table_bytes }) => (table_bytes as u64).max(2),
    }
}

fn kept_of(code: u64) -> Option<Kept> {
    match code {
        0 => None,
        1 => Some(Kept::Hash),
        bytes => Some(Kept::Bits { table_bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }),
    }
}
