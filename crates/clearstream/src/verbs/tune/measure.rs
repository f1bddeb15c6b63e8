//! `clearstream tune apply --measure`: measures with and without each change in turns, and reverts the
//! changes that do not help beyond the noise.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use results::{AppliedChange, Direction, End, Point, Results};
use serde_json::json;
use sweep::PlannedPoint;
use traffic::client::Target;
use tuning::plan::PlannedChange;
use tuning::{Change, ChangeResult, Key, Policy, Undo};

use super::apply::{ApplyArgs, say_nothing_to_do};
use super::ends::Ends;
use super::left::Present;
use super::trials::{CHANGE, GAIN_MIN, Source, Standing, Trials, WITH, is_of_trial, was_tried};
use super::{StateOptions, show};
use crate::VerbResult;
use crate::ending::{self, Outputs, Said};
use crate::exit::{Exit, VerbError};
use crate::progress::Progress;
use crate::runner::{self, Done, Driver, Ended, Keeping, Tested};
use crate::signals;

/// Runs the trials, preceded by the tests that determine their changes.
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
    let in_force = trials.in_force(&chosen);
    if persist {
        // The settings have their values already: this only writes the files.
        ends.persist = true;
        ends.apply(End::Near, &kept_here(&chosen, &in_force, &results), args.policy())?;
    }
    let is_complete = matches!(conducted.ended, Ok(Ended::Complete));
    if is_complete && !in_force.is_empty() && in_force.len() == chosen.len() {
        // The results of the run that made them stay as they are.
        conducted.log.map_or(Ok(()), crate::store::PointLog::discard)?;
        return say_all_in_force(&in_force, json);
    }
    if is_complete && trials.chosen(&results).is_empty() {
        conducted.log.map_or(Ok(()), crate::store::PointLog::discard)?;
        return say_nothing_to_do(&args.chosen_of(trials, &results)?, json);
    }
    let told = json!({
        "changes": results.changes,
        "in_force": told_in_force(&in_force),
        "output": args.output,
    });
    let told = told.to_string();
    // Changes that were neither made nor measured have been reported.
    let is_whole = results.changes.iter().all(|change| change.after.is_some());
    let exit = if is_whole { Exit::Ok } else { Exit::Partial };
    let text =
        show::in_force(&in_force) + &shown(&results, &ends, &args.state, trials.spec.direction);
    let said = Said { text, json: Some(&told), exit };
    let was_cut_short = matches!(conducted.ended, Ok(Ended::Interrupted(_)));
    let refused = trials.refused_line(&results);
    let report = args.report.as_deref();
    let outputs = Outputs { results: Some(&args.output), report, also: None, json };
    let ended = ending::end(outputs, &results, conducted, &said);
    if was_cut_short {
        // Informational: a closed stderr does not affect the run.
        writeln!(crate::out::stderr(), "clearstream: {}", left_in_force(&results)).ok();
    }
    match (ended, refused) {
        (Ok(Exit::Partial), Some(line)) => Err(VerbError::partial(line)),
        (ended, _) => ended,
    }
}

/// The changes that an interrupted run left in force, on one line.
fn left_in_force(results: &Results) -> String {
    let kept = results.changes.iter().filter(|change| change.is_kept == Some(true));
    let name = |change: &AppliedChange| {
        format!("{} at the {} end", change.key, show::end_name(change.end))
    };
    let kept: Vec<String> = kept.map(name).collect();
    if kept.is_empty() {
        "no change is in force: every setting is as it was".to_owned()
    } else {
        format!("kept: {}; every other setting is as it was", kept.join(", "))
    }
}

/// Writes a line to stderr. A closed stderr does not affect the run.
fn talk(line: &VerbError) {
    writeln!(crate::out::stderr(), "clearstream: {line}").ok();
}

/// This host's changes that stay: those that helped and those that were in force before.
fn kept_here(
    chosen: &[PlannedChange],
    in_force: &[&PlannedChange],
    results: &Results,
) -> Vec<Change> {
    let is_kept = |change: &&PlannedChange| {
        let key = change.key.to_string();
        let told = results.changes.iter().find(|one| one.end == change.end && one.key == key);
        let has_helped = told.is_some_and(|one| one.is_kept == Some(true));
        change.end == End::Near && (has_helped || in_force.contains(change))
    };
    chosen.iter().filter(is_kept).map(PlannedChange::change).collect()
}

/// Ends a run that found every change in force.
fn say_all_in_force(in_force: &[&PlannedChange], json: bool) -> VerbResult {
    let mut out = crate::out::stdout();
    if json {
        let none: [(); 0] = [];
        let told = json!({ "changes": none, "in_force": told_in_force(in_force) });
        writeln!(out, "{told}")?;
    } else {
        write!(out, "{}", show::in_force(in_force))?;
        writeln!(out, "Nothing to do. To measure a change again, revert it first.")?;
    }
    Ok(Exit::Ok)
}

fn told_in_force(in_force: &[&PlannedChange]) -> Vec<serde_json::Value> {
    let told = |change: &&PlannedChange| json!({ "end": change.end, "key": change.key.to_string(), "to": change.to });
    in_force.iter().map(told).collect()
}

/// A driver that makes and reverts changes between tests.
struct Switched<'a> {
    trials: &'a Trials<'a>,
    ends: Ends<'a>,
    /// The changes to try.
    chosen: Vec<PlannedChange>,
    /// Indexes into `chosen` of the changes that this run has in force.
    on: Vec<usize>,
    /// Whether the values of both hosts' settings, and what an interrupted run left in force, were looked up.
    looked: bool,
}

impl Driver for Switched<'_> {
    /// Leaves the changes that helped in force and reverts the others, except the one on trial.
    fn prepare(&mut self, so_far: &Results) -> Result<(), VerbError> {
        self.chosen = self.trials.chosen(so_far);
        if !std::mem::replace(&mut self.looked, true) {
            self.look(&so_far.points)?;
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
                // Refused by this host or the far one, but not a failure of the peer.
                return Ok(Done { error: None, ..failed });
            }
            if is_wanted && !self.on.contains(&(*number as usize)) {
                // It would be compared with itself, and what others have set would be reverted.
                let why = VerbError::failed("its setting has that value already");
                let failed = Done::failed(planned, runner::now_unix_ms(), why);
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
    /// Reads both ends: which changes an interrupted run left in force, and which are not to be tried. Changes that
    /// follow from tests made now start from the values that these tests read.
    fn look(&mut self, points: &[Point]) -> Result<(), VerbError> {
        let is_resumed = points.iter().any(is_of_trial);
        let is_given = matches!(self.trials.source, Source::Given(_));
        if !is_resumed && !is_given {
            return Ok(());
        }
        let (near, far) = (self.present(End::Near)?, self.present(End::Far)?);
        let mut left = BTreeMap::new();
        for (number, change) in self.chosen.iter().enumerate() {
            let present = if change.end == End::Near { &near } else { &far };
            if was_tried(points, number) {
                if present.has_made(change) {
                    self.on.push(number);
                }
            } else if is_given {
                // Before its first turn nothing but an earlier run or another user can have made it.
                left.extend(present.leaves(change).map(|why| (number, why)));
            }
        }
        // Nobody else sets it.
        self.trials.left.set(left).ok();
        Ok(())
    }

    /// The settings of the chosen changes at one end; nothing of a far end that permits no changes.
    fn present(&mut self, end: End) -> Result<Present, VerbError> {
        let of_end = self.chosen.iter().filter(|change| change.end == end);
        let keys: Vec<Key> = of_end.map(|change| change.key.clone()).collect();
        if keys.is_empty() || end == End::Far && self.trials.far_refusal.is_some() {
            return Ok(Present::default());
        }
        self.ends.present(end, &keys)
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

    /// However the run ended, leaves exactly the changes in force that helped.
    fn settle_at_the_end(&mut self, results: &Results) -> Result<(), VerbError> {
        let standing = self.trials.standing(&self.chosen, &results.points);
        let settled = self.settle(&Standing { next: None, ..standing });
        settled.map_err(|error| {
            let undo = "`clearstream tune revert`, here and with --far, takes every change back";
            VerbError::failed(format!("a change may still be in force: {error}; {undo}"))
        })
    }

    /// Makes or reverts a change, unless that is done already; returns the reason if it could not be made.
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
        let is_made = made.iter().any(|one| matches!(one.result, ChangeResult::Applied { .. }));
        if is_made {
            self.on.push(number);
        }
        Ok(made.into_iter().find_map(|one| match one.result {
            ChangeResult::Failed { reason, .. } => Some(reason),
            _ => None,
        }))
    }
}

/// The first change that gave less than half of the gain predicted for it.
fn missed(changes: &[AppliedChange]) -> Option<&AppliedChange> {
    const PART_MIN: f64 = 0.5;
    changes.iter().find(|change| {
        let rates = change.before.zip(change.after).zip(change.predicted_bits_per_s);
        rates.is_some_and(|((before, after), predicted)| {
            let (gain, wanted) = (after.median - before.median, predicted - before.median);
            predicted > before.median * GAIN_MIN && gain < wanted * PART_MIN
        })
    })
}

/// Says that a change gave far less than predicted, and which command names the limit that binds now.
fn what_binds_now(missed: &AppliedChange, far: &Target, way: Direction) -> String {
    let reverse = if way == Direction::Reverse { " -R" } else { "" };
    format!(
        "{} gave less than half of the predicted gain, so another limit binds; \
         `clearstream path {}{reverse}` names it",
        missed.key,
        show::words(far)
    )
}

fn shown(results: &Results, ends: &Ends<'_>, state: &StateOptions, way: Direction) -> String {
    let mut text = String::new();
    for change in &results.changes {
        let end = show::end_name(change.end);
        // Writing to a String cannot fail.
        writeln!(text, "{end}  {}: {} -> {}", change.key, change.from, change.to).ok();
        show::wrapped(&mut text, "      ", change.outcome.as_deref().unwrap_or("")).ok();
    }
    if results.changes.is_empty() {
        text.push_str("No change was measured to the end; the change on trial is reverted.\n");
    }
    if let (Some(missed), Some(far)) = (missed(&results.changes), &ends.far) {
        text += &format!("Note     {}\n", what_binds_now(missed, far.target(), way));
    }
    text.push('\n');
    let is_kept = |end: End| {
        results.changes.iter().any(|change| change.end == end && change.is_kept == Some(true))
    };
    let far = ends.far.as_ref().filter(|_| is_kept(End::Far)).map(|far| far.target());
    text + &show::undo(is_kept(End::Near), far, state)
}

#[cfg(test)]
mod tests {
    use results::Estimate;

    use super::*;

    #[test]
    fn a_gain_far_below_its_prediction_is_told_with_the_next_command() {
        let change = |before: f64, after: f64, predicted: f64| AppliedChange {
            end: End::Far,
            key: "net.ipv4.tcp_rmem".to_owned(),
            from: String::new(),
            to: String::new(),
            why: None,
            source: None,
            predicted_bits_per_s: Some(predicted),
            before: Estimate::of(&[before]),
            after: Estimate::of(&[after]),
            is_kept: Some(true),
            outcome: None,
        };
        let is_missed =
            |before, after, predicted| missed(&[change(before, after, predicted)]).is_some();
        assert!(is_missed(50e6, 90e6, 470e6), "a tenth of the gain");
        assert!(is_missed(50e6, 50e6, 470e6), "none of it");
        assert!(!is_missed(50e6, 430e6, 470e6) && !is_missed(50e6, 900e6, 470e6));
        assert!(!is_missed(50e6, 49e6, 51e6), "no gain was predicted");
        let far = Target { port: 5300, ..Target::new("geneva") };
        let line = what_binds_now(&change(50e6, 90e6, 470e6), &far, Direction::Reverse);
        assert!(line.ends_with("`clearstream path geneva -p 5300 -R` names it"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
