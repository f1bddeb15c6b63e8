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
use tuning::{ChangeResult, Key, Outcome, Policy, Undo};

use super::apply::{ApplyArgs, say_nothing_to_do};
use super::ends::Ends;
use super::left::Present;
use super::trials::{
    CHANGE, GAIN_MIN, Source, Standing, Trials, WITH, is_of_trial, was_in_force, was_tried,
};
use super::{StateOptions, show};
use crate::VerbResult;
use crate::ending::{self, Outputs, Said};
use crate::exit::{Exit, VerbError};
use crate::granted::end_name;
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
    // The files are written once it is known which changes helped.
    let persist = std::mem::take(&mut ends.persist);
    let (chosen, on, fresh) = (Vec::new(), Vec::new(), args.fresh);
    let mut switched = Switched { trials, ends, chosen, on, fresh, looked: false };
    let mut conducted = runner::conduct(trials, &mut switched, keeping, &mut results, progress);
    if let Err(error) = switched.settle_at_the_end(&results) {
        match conducted.ended {
            Ok(Ended::Complete) => conducted.ended = Err(error),
            _ => talk(&error),
        }
    }
    let Switched { mut ends, chosen, .. } = switched;
    let in_force = trials.in_force(&chosen);
    let undo = undo(trials, &chosen, &results, &ends, &args.state);
    let is_complete = matches!(conducted.ended, Ok(Ended::Complete));
    if is_complete && !in_force.is_empty() && in_force.len() == chosen.len() {
        // The results of the run that made them stay as they are.
        conducted.log.map_or(Ok(()), crate::store::PointLog::discard)?;
        return say_all_in_force(&in_force, persist, &undo, json);
    }
    if is_complete && trials.chosen(&results).is_empty() {
        conducted.log.map_or(Ok(()), crate::store::PointLog::discard)?;
        return say_nothing_to_do(&args.chosen_of(trials, &results)?, json);
    }
    let (files, unwritten) = if persist && is_kept(&results, End::Near) {
        judge_files(ends.write_boot_files(args.policy()))
    } else {
        (Vec::new(), None)
    };
    let told = json!({
        "changes": results.changes,
        "in_force": told_in_force(&in_force),
        "persisted": files,
        "output": args.output,
    });
    let told = told.to_string();
    let exit = if is_whole(&results.changes) { Exit::Ok } else { Exit::Partial };
    let far = ends.far.as_ref().map(|far| far.target());
    let text = shown(&results, &files, far, trials.spec.direction) + &undo;
    let said = Said { text, json: Some(&told), exit };
    let was_cut_short = matches!(conducted.ended, Ok(Ended::Interrupted(_)));
    let refused = trials.refused_line(&results);
    let report = args.report.as_deref();
    let outputs = Outputs { results: Some(&args.output), report, also: None, json };
    let ended = ending::end(outputs, &results, conducted, &said);
    if was_cut_short {
        // Informational: a closed stderr does not affect the run.
        writeln!(crate::out::stderr(), "clearstream: {}", left_in_force(&results.changes)).ok();
    }
    match (ended, refused, unwritten) {
        (Ok(Exit::Ok | Exit::Partial), _, Some(error)) => Err(error),
        (Ok(Exit::Partial), Some(line), None) => Err(VerbError::partial(line)),
        (ended, _, unwritten) => {
            unwritten.iter().for_each(talk);
            ended
        }
    }
}

/// Whether every change was made and measured, but for those that were in force before. Changes that were neither made
/// nor measured have been reported.
fn is_whole(changes: &[AppliedChange]) -> bool {
    changes.iter().all(|change| change.after.is_some() || was_in_force(change))
}

/// Whether a change helped, and stays, at one end.
fn is_kept(results: &Results, end: End) -> bool {
    results.changes.iter().any(|change| change.end == end && change.is_kept == Some(true))
}

/// The outcomes of writing the files for the next boot, and the error if one of them is not written.
fn judge_files(written: Result<Vec<Outcome>, VerbError>) -> (Vec<Outcome>, Option<VerbError>) {
    let partly = |why: &dyn std::fmt::Display| {
        VerbError::partial(format!("{why}; the changes that helped are in force until a reboot"))
    };
    match written {
        Ok(outcomes) => {
            let failed = outcomes.iter().find_map(|one| match &one.result {
                ChangeResult::Failed { reason, .. } => Some(partly(reason)),
                _ => None,
            });
            (outcomes, failed)
        }
        Err(error) => (Vec::new(), Some(partly(&error))),
    }
}

/// The changes that an interrupted run left in force, on one line.
fn left_in_force(changes: &[AppliedChange]) -> String {
    let names = |is_one: &dyn Fn(&AppliedChange) -> bool| {
        let ones = changes.iter().filter(|change| is_one(change));
        let name =
            |change: &AppliedChange| format!("{} at the {} end", change.key, end_name(change.end));
        ones.map(name).collect::<Vec<_>>().join(", ")
    };
    let kept = names(&|change| change.is_kept == Some(true));
    let before = names(&was_in_force);
    match (kept.as_str(), before.as_str()) {
        ("", "") => "no change is in force: every setting is as it was".to_owned(),
        (kept, "") => format!("kept: {kept}; every other setting is as it was"),
        ("", before) => format!("no change was made: in force as before: {before}"),
        (kept, before) => {
            format!("kept: {kept}; in force as before: {before}; every other setting is as it was")
        }
    }
}

/// The commands that revert what is in force after the run and in a journal.
fn undo(
    trials: &Trials<'_>,
    chosen: &[PlannedChange],
    results: &Results,
    ends: &Ends<'_>,
    state: &StateOptions,
) -> String {
    let stays = |end: End| is_kept(results, end) || trials.has_journalled(chosen, end);
    let far = ends.far.as_ref().filter(|_| stays(End::Far)).map(|far| far.target());
    show::undo(stays(End::Near), far, state)
}

/// Writes a line to stderr. A closed stderr does not affect the run.
fn talk(line: &VerbError) {
    writeln!(crate::out::stderr(), "clearstream: {line}").ok();
}

/// Ends a run that found every change in force.
fn say_all_in_force(
    in_force: &[&PlannedChange],
    persist: bool,
    undo: &str,
    json: bool,
) -> VerbResult {
    let mut out = crate::out::stdout();
    if json {
        let none: [(); 0] = [];
        let told =
            json!({ "changes": none, "in_force": told_in_force(in_force), "persisted": none });
        writeln!(out, "{told}")?;
    } else {
        write!(out, "{}", show::in_force(in_force))?;
        let how = if undo.is_empty() { "restore its former value first" } else { "add --fresh" };
        writeln!(out, "Nothing to do. To measure a change again, {how}.")?;
        if persist {
            writeln!(
                out,
                "No file is written: --persist follows a change that helped in this run."
            )?;
        }
        write!(out, "{undo}")?;
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
    /// Whether a change that the journal has in force is reverted and tried.
    fresh: bool,
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
            } else if self.fresh && present.has_made(change) {
                // It may be left of a run that was killed before the change had proved to help.
                self.on.push(number);
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
            let undo = "`clearstream tune revert`, here and with --far, reverts every change";
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

fn shown(results: &Results, files: &[Outcome], far: Option<&Target>, way: Direction) -> String {
    let mut text = String::new();
    for change in &results.changes {
        let end = end_name(change.end);
        // Writing to a String cannot fail.
        writeln!(text, "{end}  {}: {} -> {}", change.key, change.from, change.to).ok();
        crate::verdict_text::wrapped(&mut text, "      ", change.outcome.as_deref().unwrap_or(""))
            .ok();
    }
    if results.changes.iter().all(was_in_force) {
        text.push_str("No change was measured to the end; the change on trial is reverted.\n");
    }
    for file in files {
        writeln!(text, "{}", show::outcome(End::Near, file)).ok();
    }
    if let (Some(missed), Some(far)) = (missed(&results.changes), far) {
        text += &format!("Note     {}\n", what_binds_now(missed, far, way));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use results::Estimate;

    use super::*;

    fn change(before: f64, after: f64, predicted: f64) -> AppliedChange {
        AppliedChange {
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
        }
    }

    #[test]
    fn what_was_in_force_before_is_told_and_does_not_make_a_run_partial() {
        let kept = change(1e6, 2e6, 2e6);
        let before = AppliedChange {
            key: "net.ipv4.tcp_wmem".to_owned(),
            before: None,
            after: None,
            is_kept: None,
            ..kept.clone()
        };
        let left = AppliedChange { is_kept: Some(false), ..before.clone() };
        assert!(is_whole(&[kept.clone(), before.clone()]));
        assert!(!is_whole(&[kept.clone(), left.clone()]), "neither made nor measured");
        let rest = "every other setting is as it was";
        let (kept_name, name) =
            ("net.ipv4.tcp_rmem at the far end", "net.ipv4.tcp_wmem at the far end");
        let as_it_was = "no change is in force: every setting is as it was";
        assert_eq!(left_in_force(&[left]), as_it_was);
        assert_eq!(
            left_in_force(std::slice::from_ref(&kept)),
            format!("kept: {kept_name}; {rest}")
        );
        assert_eq!(
            left_in_force(&[kept, before]),
            format!("kept: {kept_name}; in force as before: {name}; {rest}")
        );
    }

    #[test]
    fn a_file_that_was_not_written_is_part_of_the_work_undone() {
        let outcome = |result| Outcome {
            key: "net.ipv4.tcp_sack".parse().expect("a key"),
            from: None,
            to: "0".to_owned(),
            result,
        };
        let made = || outcome(ChangeResult::Applied { now: "0".to_owned() });
        let reason = "/etc/sysctl.d: Read-only file system".to_owned();
        let failed = outcome(ChangeResult::Failed { reason, is_privilege: true });
        assert!(judge_files(Ok(vec![made()])).1.is_none());
        let (files, error) = judge_files(Ok(vec![made(), failed]));
        let error = error.expect("one is not written");
        assert_eq!((files.len(), error.code()), (2, 5));
        assert!(error.to_string().starts_with("/etc/sysctl.d: Read-only file system; "), "{error}");
        let (files, error) = judge_files(Err(VerbError::missing("no journal")));
        assert_eq!((files.len(), error.map(|error| error.code())), (0, Some(5)));
    }

    #[test]
    fn a_gain_far_below_its_prediction_is_told_with_the_next_command() {
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
