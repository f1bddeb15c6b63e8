//! `clearstream tune apply --measure`: each change with and without, in turns; what does not help
//! beyond the noise goes back.

use std::fmt::Write as _;
use std::io::Write as _;

use results::{End, Results};
use serde_json::json;
use sweep::PlannedPoint;
use tuning::plan::PlannedChange;
use tuning::{Change, ChangeResult, Policy, Standing as InForce, StatusLine, Undo};

use super::apply::{ApplyArgs, say_nothing_to_do};
use super::ends::Ends;
use super::show;
use super::trials::{CHANGE, Standing, Trials, WITH, is_of_trial};
use crate::VerbResult;
use crate::ending::{self, Outputs, Said};
use crate::exit::{Exit, VerbError};
use crate::progress::Progress;
use crate::runner::{self, Done, Driver, Ended, Keeping, Tested};
use crate::signals;

/// Runs the trials, and before them the tests that their changes follow from.
pub(super) fn run(
    args: &ApplyArgs,
    trials: &Trials<'_>,
    mut results: Results,
    mut ends: Ends<'_>,
    progress: Progress,
    json: bool,
) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let keeping =
        Keeping { resumes: !args.fresh, restores_hosts: true, ..Keeping::beside(&args.output) };
    let persist = std::mem::take(&mut ends.persist);
    let mut switched = Switched { trials, ends, chosen: Vec::new(), on: Vec::new(), looked: false };
    let mut conducted = runner::conduct(trials, &mut switched, keeping, &mut results, progress);
    if let Err(error) = switched.settle_at_the_end(&results) {
        match conducted.ended {
            Ok(Ended::Complete) => conducted.ended = Err(error),
            _ => talk(&error),
        }
    }
    let Switched { mut ends, chosen, .. } = switched;
    if matches!(conducted.ended, Ok(Ended::Complete)) && trials.chosen(&results).is_empty() {
        conducted.log.map_or(Ok(()), crate::store::PointLog::discard)?;
        return say_nothing_to_do(&args.chosen_of(trials, &results)?, json);
    }
    if persist {
        // The settings have their values already: what this writes are the files.
        ends.persist = true;
        ends.apply(End::Near, &kept_here(&chosen, &results), args.policy())?;
    }
    let told = json!({ "changes": results.changes, "output": args.output }).to_string();
    // What was neither made nor measured was said.
    let is_whole = results.changes.iter().all(|change| change.after.is_some());
    let exit = if is_whole { Exit::Ok } else { Exit::Partial };
    let said = Said { text: shown(&results), json: Some(&told), exit };
    let report = args.report.as_deref();
    let outputs = Outputs { results: Some(&args.output), report, also: None, json };
    ending::end(outputs, &results, conducted, &said)
}

/// A line on stderr. That nobody hears it takes nothing from the run.
fn talk(line: &VerbError) {
    writeln!(crate::out::stderr(), "clearstream: {line}").ok();
}

fn kept_here(chosen: &[PlannedChange], results: &Results) -> Vec<Change> {
    let is_kept = |change: &&PlannedChange| {
        let key = change.key.to_string();
        let told = results.changes.iter().find(|one| one.end == change.end && one.key == key);
        change.end == End::Near && told.is_some_and(|one| one.is_kept == Some(true))
    };
    chosen.iter().filter(is_kept).map(PlannedChange::change).collect()
}

/// Tests with changes made and undone between them.
struct Switched<'a> {
    trials: &'a Trials<'a>,
    ends: Ends<'a>,
    /// The changes that are tried.
    chosen: Vec<PlannedChange>,
    /// The numbers of those that this run has in force.
    on: Vec<usize>,
    /// Whether it was looked what an earlier run, cut short, has left in force.
    looked: bool,
}

impl Driver for Switched<'_> {
    /// Of the changes those are in force that helped, and the one on trial as it is.
    fn prepare(&mut self, so_far: &Results) -> Result<(), VerbError> {
        self.chosen = self.trials.chosen(so_far);
        if !std::mem::replace(&mut self.looked, true) && so_far.points.iter().any(is_of_trial) {
            self.on = self.left_in_force()?;
        }
        let standing = self.trials.standing(&self.chosen, &so_far.points);
        self.settle(&standing)
    }

    fn run(
        &mut self,
        planned: &PlannedPoint,
        what: &str,
        progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        if let Some(number) = planned.varied.get(CHANGE) {
            let is_wanted = planned.experiment == WITH;
            if let Some(why) = self.switch(*number as usize, is_wanted)? {
                let failed = Done::failed(planned, runner::now_unix_ms(), VerbError::failed(why));
                // Not the peer's fault.
                return Ok(Done { error: None, ..failed });
            }
        }
        let Some(far) = self.ends.far.as_deref_mut() else {
            return Err(VerbError::usage("--measure needs the far HOST"));
        };
        Tested(far).run(planned, what, progress)
    }
}

impl Switched<'_> {
    /// The numbers of the chosen changes that are in force by this program.
    fn left_in_force(&mut self) -> Result<Vec<usize>, VerbError> {
        let near = self.ends.tuner.status().map_err(|error| super::explain(&error))?;
        let needs_far = self.chosen.iter().any(|change| change.end == End::Far);
        let asks_far = needs_far && self.trials.far_refusal.is_none();
        let far = if asks_far { self.ends.far_status()? } else { Vec::new() };
        let is_on = |change: &PlannedChange| {
            let lines = if change.end == End::Near { &near } else { &far };
            let is_of = |line: &&StatusLine| line.key == change.key && line.to == change.to;
            let line = lines.iter().rev().find(is_of);
            line.is_some_and(|line| matches!(line.standing, InForce::InForce | InForce::Unfinished))
        };
        Ok((0..self.chosen.len()).filter(|number| is_on(&self.chosen[*number])).collect())
    }

    fn settle(&mut self, standing: &Standing) -> Result<(), VerbError> {
        let on_trial = standing.next.map(|next| next.change);
        for number in (0..self.chosen.len()).filter(|number| Some(*number) != on_trial) {
            if let Some(why) = self.switch(number, standing.kept.contains(&number))? {
                return Err(VerbError::failed(why));
            }
        }
        Ok(())
    }

    /// Whatever ended the run: what helped is in force, and nothing else.
    fn settle_at_the_end(&mut self, results: &Results) -> Result<(), VerbError> {
        let standing = self.trials.standing(&self.chosen, &results.points);
        let settled = self.settle(&Standing { next: None, ..standing });
        settled.map_err(|error| {
            let undo = "`clearstream tune revert`, here and with --far, takes every change back";
            VerbError::failed(format!("a change may still be in force: {error}; {undo}"))
        })
    }

    /// Makes or undoes a change unless that is so already; the text says why it could not be made.
    fn switch(&mut self, number: usize, on: bool) -> Result<Option<String>, VerbError> {
        let Some(change) = self.chosen.get(number) else { return Ok(None) };
        if self.on.contains(&number) == on {
            return Ok(None);
        }
        if !on {
            let keys = std::slice::from_ref(&change.key);
            let undone = self.ends.revert(change.end, keys, Undo::Last)?;
            if let Some(stuck) = undone.iter().find(|one| !one.result.is_settled()) {
                return Err(VerbError::failed(show::reverted(stuck)));
            }
            self.on.retain(|known| *known != number);
            return Ok(None);
        }
        let made = self.ends.apply(change.end, &[change.change()], Policy::AllOrNothing)?;
        let refused = made.into_iter().find_map(|one| match one.result {
            ChangeResult::Failed { reason, .. } => Some(reason),
            _ => None,
        });
        if refused.is_none() {
            self.on.push(number);
        }
        Ok(refused)
    }
}

fn shown(results: &Results) -> String {
    let mut text = String::new();
    for change in &results.changes {
        let end = show::end_name(change.end);
        // Writing to a String does not fail.
        writeln!(text, "{end}  {}: {} -> {}", change.key, change.from, change.to).ok();
        show::wrapped(&mut text, "      ", change.outcome.as_deref().unwrap_or("")).ok();
    }
    if results.changes.is_empty() {
        text.push_str("No change was measured to the end; what was on trial is taken back.\n");
    }
    text.push('\n');
    let is_kept = |end: End| {
        results.changes.iter().any(|change| change.end == end && change.is_kept == Some(true))
    };
    if is_kept(End::Near) {
        text.push_str("Undo     clearstream tune revert\n");
    }
    if is_kept(End::Far) {
        let port = results.path.port.filter(|port| *port != traffic::server::DEFAULT_PORT);
        let port = port.map_or_else(String::new, |port| format!(" -p {port}"));
        let target = &results.path.target;
        writeln!(text, "Undo     clearstream tune revert --far {target}{port}").ok();
    }
    text
}
