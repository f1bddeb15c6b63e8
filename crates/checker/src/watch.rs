//! The clock, the memory and the caller's wish, while a search runs.

use std::time::{Duration, Instant};

use dve::Model;
use results::CheckProgress;
use statespace::Progress;

use crate::observer::Observer;
use crate::options::Bounds;
use crate::report::{Report, Verdict};

/// How far a search is, is noted so often at first, and never more than so many times.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
const SAMPLES_MAX: usize = 240;

/// Watches the bounds of a search, and tells its observer how far it is.
#[derive(Debug)]
pub(crate) struct Watch<'o> {
    bounds: Bounds,
    observer: &'o mut dyn Observer,
    start: Instant,
    shown: Instant,
    samples: Vec<CheckProgress>,
    /// Time between two samples: doubled, and every second one dropped, when there are too many.
    sample_every: Duration,
}

impl<'o> Watch<'o> {
    pub(crate) fn new(bounds: Bounds, observer: &'o mut dyn Observer) -> Self {
        let now = Instant::now();
        let (samples, sample_every) = (Vec::new(), SAMPLE_EVERY);
        Self { bounds, observer, start: now, shown: now, samples, sample_every }
    }

    pub(crate) fn observer(&mut self) -> &mut dyn Observer {
        self.observer
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Why to end now, if there is a reason.
    pub(crate) fn look(&mut self, progress: &Progress) -> Option<String> {
        if self.is_time_to_show() {
            self.observer.progress(progress, None, self.start.elapsed());
        }
        self.note(progress, None);
        self.reason(progress.memory_bytes as u64)
    }

    /// Notes how far the search is, when it is time to.
    pub(crate) fn note(&mut self, progress: &Progress, sent_bytes: Option<u64>) {
        let at = self.elapsed();
        let noted = self.samples.last().map_or(0.0, |last| last.at_s);
        if at.as_secs_f64() - noted < self.sample_every.as_secs_f64() {
            return;
        }
        self.samples.push(sample(at, progress, sent_bytes));
        if self.samples.len() >= SAMPLES_MAX {
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.sample_every *= 2;
        }
    }

    /// What was noted, and where the search ended.
    pub(crate) fn over_time(&self, end: &Progress) -> Vec<CheckProgress> {
        let sent_bytes = self.samples.last().and_then(|last| last.sent_bytes);
        let mut samples = self.samples.clone();
        samples.push(sample(self.elapsed(), end, sent_bytes));
        samples
    }

    /// The report of a search that has just ended; what only some searches know is left out.
    pub(crate) fn report(
        &self,
        model: &Model,
        what: String,
        verdict: Verdict,
        progress: Progress,
    ) -> Report {
        Report {
            what,
            verdict,
            progress,
            state_bytes: model.state_bytes(),
            elapsed: self.elapsed(),
            over_time: self.over_time(&progress),
            unreachable: None,
            failing: Vec::new(),
            ranks: None,
        }
    }

    /// Whether a second has gone by since this last said so.
    pub(crate) fn is_time_to_show(&mut self) -> bool {
        let is_time = self.shown.elapsed() >= Duration::from_secs(1);
        if is_time {
            self.shown = Instant::now();
        }
        is_time
    }

    /// Whether the caller wants the search to end.
    pub(crate) fn is_cut(&self) -> bool {
        self.observer.stop().is_some()
    }

    /// Why to end now, if there is a reason.
    pub(crate) fn reason(&self, used_bytes: u64) -> Option<String> {
        if let Some(reason) = self.observer.stop() {
            return Some(reason);
        }
        if self.bounds.time.is_some_and(|time| self.elapsed() >= time) {
            return Some("the time limit was reached (--time)".to_owned());
        }
        if self.bounds.memory_bytes.is_some_and(|bytes| used_bytes > bytes) {
            return Some(too_much(used_bytes, self.bounds.memory_bytes));
        }
        None
    }
}

fn sample(at: Duration, progress: &Progress, sent_bytes: Option<u64>) -> CheckProgress {
    CheckProgress {
        at_s: at.as_secs_f64(),
        states_count: progress.states_count,
        queued_count: progress.queued_count,
        memory_bytes: progress.memory_bytes as u64,
        sent_bytes,
    }
}

/// Why a search ends that takes as much memory as it may.
pub(crate) fn too_much(used_bytes: u64, limit_bytes: Option<u64>) -> String {
    let used = units::show_byte_size(used_bytes);
    let limit =
        limit_bytes.map_or_else(String::new, |bytes| format!(" {}", units::show_byte_size(bytes)));
    // Tables grow in steps, and a search looks at its memory between two portions of its work.
    let over = match limit_bytes.is_some_and(|limit| used_bytes > limit) {
        true => ": the tables grew past it in their last step",
        false => "; the next step of its tables would exceed it",
    };
    format!("the memory limit{limit} (--memory) was reached, states and tables take {used}{over}")
}
