//! `clearstream tune apply --measure`: each change with and without, in turns; what does not help
//! beyond the noise goes back.

use std::io::Write;

use results::{AppliedChange, End, Estimate, Results, RunKind, TestSpec};
use serde_json::json;
use sweep::{Plan, Setting};
use tuning::plan::PlannedChange;
use tuning::{Change, ChangeResult, Policy, Undo};
use units::show_bit_rate;

use super::apply::ApplyArgs;
use super::ends::Ends;
use super::show;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::progress::Progress;
use crate::runner::{self, Ended};
use crate::signals;
use crate::store::{self, PointLog};

/// A gain below this is no gain, whatever the spread: the rule of the verdict's experiments.
const GAIN_MIN: f64 = 1.04;

/// Rounds through the changes: one that does nothing alone may help once another is there.
const ROUNDS_MAX: usize = 2;

/// Runs the trials, each with the test of `spec`.
pub(super) fn run(
    args: &ApplyArgs,
    spec: &TestSpec,
    chosen: &[PlannedChange],
    results: Results,
    mut ends: Ends<'_>,
    json: bool,
) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let mut results = Results { kind: RunKind::Tune, ..results };
    let header = Plan::new(Vec::new(), 1, 0);
    let (log, _) = PointLog::open(&args.output, &header, false, &mut results.path)?;
    let persist = std::mem::take(&mut ends.persist);
    let progress = Progress::new(0);
    let mut trials = Trials { args, spec, ends, log, progress, results: &mut results };
    let ended = trials.all(chosen);
    let Trials { log, progress, mut ends, .. } = trials;
    drop(progress);
    if persist {
        // The settings have their values already: what this writes are the files.
        ends.persist = true;
        let kept = kept_here(chosen, &results);
        ends.apply(End::Near, &kept, args.policy())?;
    }
    results.summaries = sweep::summarise(&results.points);
    results.finished_unix_ms = Some(runner::now_unix_ms());
    results.partial = match &ended {
        Ok(Ended::Complete) => None,
        Ok(Ended::Interrupted(number)) => Some(format!("ended by signal {number}")),
        Err(error) => Some(error.to_string()),
    };
    store::save(&args.output, &results)?;
    log.discard()?;
    if let Some(page) = &args.report {
        let html = report::render(&results, &report::RenderOptions::default());
        store::replace(page, html.as_bytes())?;
    }
    print(args, &results, json)?;
    match ended? {
        Ended::Complete => Ok(Exit::Ok),
        Ended::Interrupted(number) => Ok(Exit::Signal(number)),
    }
}

fn kept_here(chosen: &[PlannedChange], results: &Results) -> Vec<Change> {
    let is_kept = |change: &&PlannedChange| {
        let key = change.key.to_string();
        let told = results.changes.iter().find(|one| one.end == change.end && one.key == key);
        change.end == End::Near && told.is_some_and(|one| one.is_kept == Some(true))
    };
    chosen.iter().filter(is_kept).map(PlannedChange::change).collect()
}

struct Trials<'a, 'r> {
    args: &'a ApplyArgs,
    spec: &'a TestSpec,
    ends: Ends<'a>,
    log: PointLog,
    progress: Progress,
    results: &'r mut Results,
}

impl Trials<'_, '_> {
    fn all(&mut self, chosen: &[PlannedChange]) -> Result<Ended, VerbError> {
        let mut open: Vec<(usize, &PlannedChange)> = chosen.iter().enumerate().collect();
        for round in 0..ROUNDS_MAX {
            let mut kept = 0;
            let mut left = Vec::new();
            for (number, change) in std::mem::take(&mut open) {
                if change.end == End::Far
                    && round == 0
                    && let Err(error) = self.ends.far_status()
                {
                    self.say_by_hand(change, &error);
                    continue;
                }
                let mut is_on = false;
                let trial = self.trial(number, round, change, &mut is_on);
                if is_on && !matches!(trial, Ok(Trial::Judged(_))) {
                    // Whatever went wrong or was interrupted: the host is as it was before.
                    self.ends
                        .revert(change.end, std::slice::from_ref(&change.key), Undo::Last)
                        .ok();
                }
                match trial? {
                    Trial::Judged(true) => kept += 1,
                    Trial::Judged(false) => left.push((number, change)),
                    Trial::Refused => {}
                    Trial::Interrupted(number) => return Ok(Ended::Interrupted(number)),
                }
            }
            open = left;
            if kept == 0 || open.is_empty() {
                break;
            }
        }
        Ok(Ended::Complete)
    }

    /// One change, off and on in turns, the order of the two turned around each time.
    fn trial(
        &mut self,
        number: usize,
        round: usize,
        change: &PlannedChange,
        is_on: &mut bool,
    ) -> Result<Trial, VerbError> {
        let (mut off, mut on) = (Vec::new(), Vec::new());
        for turn in 0..self.args.turns {
            let order = if turn % 2 == 0 { [false, true] } else { [true, false] };
            for wanted in order {
                if wanted != *is_on {
                    if let Some(reason) = self.switch(change, wanted)? {
                        self.record(change, None, None, false, &reason);
                        return Ok(Trial::Refused);
                    }
                    *is_on = wanted;
                }
                match self.measure(number, round, turn, wanted)? {
                    Measured::Rate(rate) if wanted => on.push(rate),
                    Measured::Rate(rate) => off.push(rate),
                    Measured::Nothing => {}
                    Measured::Interrupted(signal) => return Ok(Trial::Interrupted(signal)),
                }
            }
        }
        let (before, after) = (Estimate::of(&off), Estimate::of(&on));
        let (helped, text) = judge(before.as_ref(), after.as_ref(), change.predicted_bits_per_s);
        if helped != *is_on
            && let Some(reason) = self.switch(change, helped)?
        {
            return Err(VerbError::failed(reason));
        }
        self.record(change, before, after, helped, &text);
        Ok(Trial::Judged(helped))
    }

    /// Makes or undoes the change; the text says why it could not be made.
    fn switch(&mut self, change: &PlannedChange, on: bool) -> Result<Option<String>, VerbError> {
        if !on {
            let keys = std::slice::from_ref(&change.key);
            let undone = self.ends.revert(change.end, keys, Undo::Last)?;
            let stuck = undone.iter().find(|one| !one.result.is_settled());
            return match stuck {
                Some(stuck) => Err(VerbError::failed(show::reverted(stuck))),
                None => Ok(None),
            };
        }
        let made = self.ends.apply(change.end, &[change.change()], Policy::AllOrNothing)?;
        Ok(made.into_iter().find_map(|one| match one.result {
            ChangeResult::Failed { reason, .. } => Some(reason),
            _ => None,
        }))
    }

    fn measure(
        &mut self,
        number: usize,
        round: usize,
        turn: u32,
        on: bool,
    ) -> Result<Measured, VerbError> {
        let Some(far) = self.ends.far.as_deref_mut() else {
            return Err(VerbError::usage("--measure needs the far HOST"));
        };
        let name = if on { "tune-with" } else { "tune-without" };
        let setting = Setting::new(name, self.spec.clone())
            .varying("change", number as f64)
            .varying("round", round as f64)
            .varying("turn", f64::from(turn));
        let plan = Plan::new(vec![setting], 1, 0);
        self.progress.extend(1);
        let mut points = Vec::new();
        let ended = runner::run(&plan, far, &mut points, &mut self.log, &mut self.progress)?;
        let rate = points.first().and_then(|point| point.measured()).and_then(|outcome| {
            outcome.directions.first().map(|direction| direction.received_bits_per_s)
        });
        for mut point in points {
            // The turns of one change are repeats of one setting.
            point.varied.remove("turn");
            point.repeat = turn;
            self.results.points.push(point);
        }
        Ok(match (ended, rate) {
            (Ended::Interrupted(signal), _) => Measured::Interrupted(signal),
            (_, Some(rate)) => Measured::Rate(rate),
            (_, None) => Measured::Nothing,
        })
    }

    fn say_by_hand(&mut self, change: &PlannedChange, error: &VerbError) {
        let text = format!("{error}; by hand on the far host: {}", change.command());
        self.record(change, None, None, false, &text);
    }

    fn record(
        &mut self,
        change: &PlannedChange,
        before: Option<Estimate>,
        after: Option<Estimate>,
        is_kept: bool,
        outcome: &str,
    ) {
        let record = AppliedChange {
            end: change.end,
            key: change.key.to_string(),
            from: change.from.clone().unwrap_or_default(),
            to: change.to.clone(),
            why: Some(change.why.clone()),
            source: Some(change.source.clone()),
            predicted_bits_per_s: change.predicted_bits_per_s,
            before,
            after,
            is_kept: Some(is_kept),
            outcome: Some(outcome.to_owned()),
        };
        let changes = &mut self.results.changes;
        changes.retain(|known| !(known.end == record.end && known.key == record.key));
        changes.push(record);
    }
}

enum Trial {
    /// Whether it helped and stays.
    Judged(bool),
    /// It could not be made.
    Refused,
    Interrupted(i32),
}

enum Measured {
    Rate(f64),
    Nothing,
    Interrupted(i32),
}

/// Whether it helped beyond the noise: the ranges do not touch and the medians are apart.
fn judge(
    before: Option<&Estimate>,
    after: Option<&Estimate>,
    predicted: Option<f64>,
) -> (bool, String) {
    let (Some(before), Some(after)) = (before, after) else {
        return (false, "it could not be measured; taken back".to_owned());
    };
    let gain = after.median / before.median.max(f64::MIN_POSITIVE);
    let helped = after.low > before.high && gain >= GAIN_MIN;
    let figures = format!(
        "{} -> {} ({:+.0}%)",
        show_bit_rate(before.median),
        show_bit_rate(after.median),
        (gain - 1.0) * 100.0
    );
    if !helped {
        return (false, format!("{figures}: not beyond the noise; taken back"));
    }
    let beside = predicted.map_or_else(String::new, |predicted| {
        let off = (after.median / predicted - 1.0) * 100.0;
        format!("; predicted {} ({off:+.0}%)", show_bit_rate(predicted))
    });
    (true, format!("{figures}{beside}; kept"))
}

fn print(args: &ApplyArgs, results: &Results, json: bool) -> Result<(), VerbError> {
    let mut out = crate::out::stdout();
    if json {
        let line = json!({ "changes": results.changes, "output": args.output });
        writeln!(out, "{line}")?;
        return Ok(());
    }
    for change in &results.changes {
        let end = show::end_name(change.end);
        writeln!(out, "{end}  {}: {} -> {}", change.key, change.from, change.to)?;
        let mut text = String::new();
        show::wrapped(&mut text, "      ", change.outcome.as_deref().unwrap_or("")).ok();
        write!(out, "{text}")?;
    }
    writeln!(out, "\nWritten  {}", args.output.display())?;
    if results.changes.iter().any(|change| change.is_kept == Some(true)) {
        writeln!(out, "Undo     clearstream tune revert (on each host)")?;
    }
    Ok(())
}
