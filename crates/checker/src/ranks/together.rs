//! Ranks as threads of this process that search one set of states.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crew::bind_thread;
use dve::Model;
use statespace::partition::{Goal, Subject};
use statespace::{Ended, SharedSearch, ThreadFailed};

use super::{LOOK_EVERY, Task, all_taken, violated};
use crate::observer::Observer;
use crate::report::{Report, Traffic, Unreachable, Verdict};
use crate::watch::{Watch, too_much};
use crate::{CheckError, RankedModel};

/// Searches a model by so many threads, bound to these cores if there are any, while the caller's
/// watches.
pub(super) fn search(
    model: &Model,
    task: &Task<'_>,
    ranks_count: usize,
    cores: &[u32],
    observer: &mut dyn Observer,
) -> Result<Report, CheckError> {
    let is_full = task.aim == Goal::BadState { is_full: true };
    let traffic = Traffic {
        ranks_count,
        has_messages: false,
        batches_count: 0,
        sent_bytes: 0,
        again_count: 0,
    };
    let mut watch = Watch::new(task.bounds, observer);
    let memory_bytes = task
        .bounds
        .memory_bytes
        .map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let search = SharedSearch::new(model.initial(), ranks_count, is_full, memory_bytes)
        .map_err(|_full| CheckError::TooManyStates)?;
    let (notes, reason) = run(model, task, ranks_count, cores, &search, || {
        let progress = search.progress();
        watch.note(&progress, None);
        if watch.is_time_to_show() {
            let elapsed = watch.elapsed();
            watch.observer().progress(&progress, Some(&traffic), elapsed);
        }
        watch.reason(progress.memory_bytes as u64)
    })?;
    let (progress, elapsed) = (search.progress(), watch.elapsed());
    let way = || search.way(&mut task.system(model));
    let verdict = match (search.ended(), way()) {
        (_, Some(way)) => violated(model, task, &way)?,
        (Ended::StoreFull, None) if task.bounds.memory_bytes.is_none() => {
            return Err(CheckError::SetFull);
        }
        (Ended::StoreFull, None) => {
            let used_bytes = progress.memory_bytes as u64;
            Verdict::Undecided(too_much(used_bytes, task.bounds.memory_bytes))
        }
        (Ended::Stopped, None) => Verdict::Undecided(reason.unwrap_or_default()),
        (Ended::Whole | Ended::Broken, None) => Verdict::Holds,
    };
    let is_whole = !task.bounds.is_reduced
        && match search.ended() {
            Ended::Whole => true,
            Ended::Broken => is_full,
            Ended::Stopped | Ended::StoreFull => false,
        };
    let unreachable = is_whole.then(|| Unreachable::of(model, &all_taken(model, &notes)));
    let report = watch.report(model, task.bounds.what(task.what), verdict, progress);
    Ok(Report { elapsed, unreachable, ranks: Some(traffic), ..report })
}

/// What all noted, and why they were stopped if they were.
type Run = (Vec<Vec<u8>>, Option<String>);

/// Runs the threads to their end. `look` is called now and then and may say why to stop them.
fn run(
    model: &Model,
    task: &Task<'_>,
    ranks_count: usize,
    cores: &[u32],
    search: &SharedSearch,
    mut look: impl FnMut() -> Option<String>,
) -> Result<Run, CheckError> {
    let working = AtomicUsize::new(ranks_count);
    let watcher = thread::current();
    let work = |me: usize| -> Result<Vec<u8>, ThreadFailed> {
        let _here = Here { working: &working, watcher: watcher.clone() };
        if let Some(&core) = cores.get(me) {
            bind_thread(core);
        }
        // Made here, so that what it writes to stands near nothing of another thread.
        let mut system: RankedModel<'_> = task.system(model);
        search.work(me, &mut system)?;
        Ok(system.notes())
    };
    // Bounds that are exceeded from the start end the search however fast the threads are.
    let begun = look();
    if begun.is_some() {
        search.stop();
    }
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..ranks_count).map(|me| scope.spawn(move || work(me))).collect();
        let mut reason = begun;
        while working.load(Ordering::Acquire) > 0 {
            thread::park_timeout(LOOK_EVERY);
            if reason.is_none() {
                reason = look();
                if reason.is_some() {
                    search.stop();
                }
            }
        }
        let notes = threads.into_iter().map(|thread| {
            thread.join().map_err(|_panic| CheckError::Panicked)?.map_err(CheckError::ThreadFailed)
        });
        Ok((notes.collect::<Result<_, _>>()?, reason))
    })
}

/// One of the threads that are at work.
struct Here<'a> {
    working: &'a AtomicUsize,
    watcher: thread::Thread,
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.working.fetch_sub(1, Ordering::AcqRel);
        self.watcher.unpark();
    }
}
