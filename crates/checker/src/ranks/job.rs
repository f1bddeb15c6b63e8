//! Ranks as processes of an MPI job.
//!
//! Rank 0 alone reads files, talks and judges. It hands each model to the others, who search their part
//! of it, until the job is over.

use crew::{Job, Transport};
use dve::Model;
use statespace::LossyStorage;
use statespace::partition::{Goal, Outcome};

use super::keep::Files;
use super::{ModelRank, Task, Threads, drive, hosts, keep};
use crate::options::Bounds;
use crate::{CheckError, DriveError};

/// Hands a model to all ranks and searches it with them; for rank 0.
pub(super) fn search<T: Transport>(
    job: &mut Job<T>,
    model: &Model,
    task: &Task<'_>,
    look: impl FnMut(&mut ModelRank<'_>) -> Result<(), DriveError>,
) -> Result<Outcome, DriveError> {
    try_search(job, model, task, look).inspect_err(|_| job.give_up())
}

fn try_search<T: Transport>(
    job: &mut Job<T>,
    model: &Model,
    task: &Task<'_>,
    look: impl FnMut(&mut ModelRank<'_>) -> Result<(), DriveError>,
) -> Result<Outcome, DriveError> {
    job.order(&encode(model, task, false))?;
    let mut rank = keep::begin(model, task, (0, job.ranks_count()), job)?;
    drive(&mut rank, job, (task.files, 0), look)?;
    rank.outcome().ok_or(DriveError::NoOutcome)
}

/// Searches what rank 0 hands out until nothing more comes; for all other ranks.
pub(super) fn serve<T: Transport>(job: &mut Job<T>, threads: &Threads) -> Result<(), CheckError> {
    try_serve(job, threads).map_err(|error| {
        job.give_up();
        CheckError::Served { me: job.me(), error }
    })
}

fn try_serve<T: Transport>(job: &mut Job<T>, threads: &Threads) -> Result<(), DriveError> {
    while let Some(order) = job.next_order()? {
        let (model, order) = decode(&order).ok_or(DriveError::UnknownOrder)?;
        let (task, us) = (order.task(), (job.me(), job.ranks_count()));
        if order.is_shared {
            hosts::serve(job, &model, &task, threads)?;
            continue;
        }
        let mut rank = keep::begin(&model, &task, us, job)?;
        drive(&mut rank, job, (task.files, us.0), |_| Ok(()))?;
    }
    Ok(())
}

/// What is asked of a model, as an order to the other ranks. With `is_shared` the threads of each share a set of states.
pub(super) fn encode(model: &Model, task: &Task<'_>, is_shared: bool) -> Vec<u8> {
    let flags = [task.allow_deadlock, task.bounds.is_reduced, is_shared].map(u8::from);
    let kept = kept_code(task.kept).to_le_bytes();
    let (aim, files) = ([aim_code(task.aim)], task.files.encode());
    [&aim[..], &flags, &kept, &files, model.source().as_bytes()].concat()
}

/// What an order asks for; none where it is malformed.
fn decode(order: &[u8]) -> Option<(Model, Order)> {
    let [aim, allow_deadlock, is_reduced, is_shared, rest @ ..] = order else { return None };
    let (kept, rest) = rest.split_first_chunk()?;
    let (files, text) = Files::decode(rest)?;
    let model = Model::parse(std::str::from_utf8(text).ok()?).ok()?;
    let order = Order {
        aim: aim_of(*aim)?,
        allow_deadlock: *allow_deadlock != 0,
        is_reduced: *is_reduced != 0,
        is_shared: *is_shared != 0,
        kept: kept_of(u64::from_le_bytes(*kept)),
        files,
    };
    Some((model, order))
}

/// What rank 0 asks of the other ranks.
struct Order {
    aim: Goal,
    allow_deadlock: bool,
    is_reduced: bool,
    is_shared: bool,
    kept: Option<LossyStorage>,
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

fn aim_code(aim: Goal) -> u8 {
    match aim {
        Goal::BadState { is_full: false } => 0,
        Goal::BadState { is_full: true } => 1,
        Goal::AcceptingCycle => 2,
        Goal::FairCycle => 3,
    }
}

fn aim_of(code: u8) -> Option<Goal> {
    match code {
        0 => Some(Goal::BadState { is_full: false }),
        1 => Some(Goal::BadState { is_full: true }),
        2 => Some(Goal::AcceptingCycle),
        3 => Some(Goal::FairCycle),
        _ => None,
    }
}

/// All of a state, a hash, or a table of so many bytes.
fn kept_code(kept: Option<LossyStorage>) -> u64 {
    match kept {
        None => 0,
        Some(LossyStorage::HashCompaction) => 1,
        Some(LossyStorage::Bitstate { table_bytes }) => (table_bytes as u64).max(2),
    }
}

fn kept_of(code: u64) -> Option<LossyStorage> {
    match code {
        0 => None,
        1 => Some(LossyStorage::HashCompaction),
        bytes => Some(LossyStorage::Bitstate {
            table_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use crew::{MemoryTransport, Timing};

    use super::*;
    use crate::ranks::{LOST_CODE, hosts, search_job};
    use crate::report::{Report, Verdict};
    use crate::{Options, Ranks, check};

    fn model(counters: usize) -> Model {
        let mut text = String::new();
        for me in 0..counters {
            text += &format!(
                "process P{me} {{ byte n; state s; init s; trans s -> s {{ effect n = (n + 1) % 9; }}; }}\n"
            );
        }
        Model::parse(&(text + "system async;\n")).expect("a model")
    }

    /// Threads of each process that share one set of states; a set for each rank if absent.
    type Shared = Option<usize>;

    fn threads(count: usize) -> Threads {
        Threads { count, ..Threads::ONE }
    }

    /// Searches by ranks that are the processes of a job in memory; `other` is what ranks 1 and up do.
    fn search_in_memory(
        model: &Model,
        (count, shared): (usize, Shared),
        is_full: bool,
        timing: Timing,
        other: impl Fn(&mut Job<MemoryTransport>, &AtomicBool) + Sync,
    ) -> Report {
        let files = Files::default();
        let task = Task {
            aim: Goal::BadState { is_full },
            allow_deadlock: false,
            what: "",
            bounds: Bounds::default(),
            kept: None,
            files: &files,
            fairness: None,
        };
        let is_reported = AtomicBool::new(false);
        let run = |end: MemoryTransport| {
            let mut job = Job::over(end, timing, LOST_CODE);
            if job.me() == 0 {
                let report = match shared {
                    None => search_job(&mut job, model, &task, &mut ()),
                    Some(count) => hosts::search(&mut job, model, &task, &threads(count), &mut ()),
                };
                is_reported.store(true, Ordering::Release);
                job.leave(0, || false);
                return Some(report.expect("a report"));
            }
            other(&mut job, &is_reported);
            job.leave(0, || false);
            None
        };
        thread::scope(|scope| {
            let ends = MemoryTransport::job(count).into_iter();
            let run = &run;
            let ranks: Vec<_> = ends.map(|end| scope.spawn(move || run(end))).collect();
            let mut reports = ranks.into_iter().map(|rank| rank.join().expect("a rank"));
            reports.next().flatten().expect("rank 0 reports")
        })
    }

    #[test]
    fn a_job_counts_what_one_rank_counts() {
        let model = model(4);
        let options = Options { is_full: true, ..Options::default() };
        let alone = check(&model, None, &options, &mut Ranks::One, &mut ()).expect("a report");
        for (count, shared) in [
            (2, None),
            (3, None),
            (4, None),
            (2, Some(1)),
            (2, Some(2)),
            (3, Some(2)),
            (4, Some(1)),
        ] {
            let threads_count = shared.unwrap_or(1);
            let job = (count, shared);
            let report = search_in_memory(&model, job, true, Timing::default(), |job, _| {
                serve(job, &threads(threads_count)).expect("the job goes on");
            });
            assert!(matches!(report.verdict, Verdict::Holds), "{report:?}");
            let counts =
                |report: &Report| (report.progress.states_count, report.progress.transitions_count);
            assert_eq!(counts(&report), counts(&alone[0]));
            assert_eq!(
                report.ranks.map(|traffic| traffic.ranks_count),
                Some(count * threads_count)
            );
            let sent_bytes = report.ranks.map(|traffic| traffic.sent_bytes);
            assert!(sent_bytes.is_some_and(|bytes| bytes > 10_000), "{report:?}");
            let depth = report.progress.depth;
            assert_eq!(depth, alone[0].progress.depth, "{report:?}");
        }
    }

    /// Processes that raise a number until one of them is past 40, of which each has its share.
    fn broken_model() -> Model {
        let process = "process P { byte n; state s; init s; assert s: n < 40; trans s -> s { guard n < 45; effect n = n + 1; }; }";
        let other = process.replace(" P ", " Q ").replace(" assert s: n < 40;", "");
        Model::parse(&format!("{process}\n{other}\nsystem async;\n")).expect("a model")
    }

    #[test]
    fn processes_whose_threads_share_states_show_a_shortest_run() {
        let model = broken_model();
        let alone = check(&model, None, &Options::default(), &mut Ranks::One, &mut ());
        let run = |report: &Report| match &report.verdict {
            Verdict::Violated { why, run, .. } => (why.clone(), run.len()),
            other => panic!("{other:?}"),
        };
        let wanted = run(&alone.expect("a report")[0]);
        for is_full in [false, true] {
            for (count, threads_count) in [(2, 1), (2, 2), (3, 1)] {
                let job = (count, Some(threads_count));
                let report = search_in_memory(&model, job, is_full, Timing::default(), |job, _| {
                    serve(job, &threads(threads_count)).expect("the job goes on");
                });
                assert_eq!(run(&report), wanted, "{is_full} {job:?}");
            }
        }
    }

    #[test]
    fn a_search_that_loses_a_rank_is_undecided() {
        let timing =
            Timing { beat_every: Duration::from_millis(10), lost_after: Duration::from_secs(1) };
        for shared in [None, Some(1), Some(2)] {
            let job = (2, shared);
            let report = search_in_memory(&model(4), job, true, timing, |job, is_reported| {
                // Says nothing from its order on.
                job.next_order().expect("an order");
                let start = Instant::now();
                while !is_reported.load(Ordering::Acquire)
                    && start.elapsed() < Duration::from_secs(20)
                {
                    thread::sleep(Duration::from_millis(1));
                }
                job.give_up();
            });
            let Verdict::Undecided(why) = &report.verdict else { panic!("{report:?}") };
            assert_eq!(why, "rank 1 sent nothing for 1 s and is considered lost");
        }
    }

    #[test]
    fn orders_come_back() {
        let model = model(1);
        let files = Files::default();
        for aim in [Goal::BadState { is_full: true }, Goal::AcceptingCycle, Goal::FairCycle] {
            for kept in [
                None,
                Some(LossyStorage::HashCompaction),
                Some(LossyStorage::Bitstate { table_bytes: 4096 }),
            ] {
                let bounds = Bounds { is_reduced: true, ..Bounds::default() };
                let (what, fairness) = ("", None);
                let task =
                    Task { aim, allow_deadlock: true, what, bounds, kept, files: &files, fairness };
                let order = encode(&model, &task, true);
                let (same, back) = decode(&order).expect("an order");
                assert_eq!(same.source(), model.source());
                assert_eq!((back.aim, back.kept, &back.files), (aim, kept, &files));
                assert!(back.allow_deadlock && back.is_reduced && back.is_shared);
                for length in 0..order.len() - model.source().len() {
                    assert!(decode(&order[..length]).is_none(), "cut to {length}");
                }
            }
        }
    }
}
