//! `clearstream tune apply --from`: makes the changes of a results file's verdict and measures their effect.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use results::{End, PathFacts, Results, RunKind, TestSpec};
use traffic::client::{Family, Target};
use tuning::plan::{Plan, PlannedChange};

use super::apply::{ApplyArgs, check_host, finish, say_nothing_to_do};
use super::ends::Ends;
use super::trials::{Source, Trials, without_trials};
use super::{measure, show};
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::far::FarEnd;
use crate::progress::Progress;
use crate::store;

pub(super) fn run(args: &ApplyArgs, file: &Path, json: bool) -> VerbResult {
    // The file may be one of `tune` itself, whose trials are not those of this run.
    let results = without_trials(&store::load(file)?);
    check_host(&results)?;
    let plan = tuning::verdict::plan(&results)
        .map_err(|error| VerbError::failed(format!("{}: {error}", file.display())))?;
    let mut chosen = args.chosen(&plan)?;
    if chosen.is_empty() {
        return say_nothing_to_do(&plan, json);
    }
    let mut far = FarEnd::connect(&target(args, &results))?;
    check_far_host(&far, &results)?;
    let tuner = args.state.tuner();
    let mut ends = Ends { tuner, far: Some(&mut far), persist: args.persist };
    let binding = chosen.first().map(|change| change.end);
    let by_hand = by_hand(&mut ends, &mut chosen);
    if !by_hand.is_empty() && binding == Some(End::Far) {
        // The other changes alone would show nothing about the verdict's limit.
        chosen.clear();
    }
    if !json {
        write!(crate::out::stdout(), "{}", shown(&plan, &chosen, &results))?;
    }
    if chosen.is_empty() {
        return finish(&[], &by_hand, "", json);
    }
    let spec = judged_test(args, &results);
    let results = Results { kind: RunKind::Tune, ..results };
    let source = Source::Given(chosen);
    let asked = String::new();
    let trials =
        Trials { source, spec, turns: args.turns, asked, far_refusal: None, left: OnceCell::new() };
    let ended = measure::run(args, &trials, results, ends, Progress::new(0), json)?;
    if by_hand.is_empty() || !is_finished(ended) {
        return Ok(ended);
    }
    // The document of the run is the JSON output; its exit code is the same as that of the text.
    if json { Ok(Exit::Partial) } else { finish(&[], &by_hand, "", json) }
}

/// Whether a run of trials came to its end, with or without every change measured.
fn is_finished(ended: Exit) -> bool {
    matches!(ended, Exit::Ok | Exit::Partial)
}

/// The far host of the file, or the one that the user named instead.
fn target(args: &ApplyArgs, results: &Results) -> Target {
    let options = &args.evidence;
    match &options.host {
        Some(host) => options.server.at(host),
        None => {
            let target = options.server.at(&results.path.target);
            let port = results.path.port.unwrap_or(target.port);
            Target { port, family: target.family.or(family(&results.path)), ..target }
        }
    }
}

/// The IP version over which a path was measured, where the file tells its address.
fn family(path: &PathFacts) -> Option<Family> {
    path.address.as_ref()?;
    Some(if path.is_ipv6() { Family::V6 } else { Family::V4 })
}

/// Refuses a far host other than the one that the changes were derived for.
fn check_far_host(far: &FarEnd, results: &Results) -> Result<(), VerbError> {
    let measured = results.far().map(|far| far.name.as_str());
    match (measured, far.host_name()) {
        (Some(measured), Some(now)) if measured != now => Err(VerbError::usage(format!(
            "these results were measured to '{measured}', but {} is now '{now}': name the far \
             HOST",
            far.target()
        ))),
        _ => Ok(()),
    }
}

/// Commands for the far changes if the far end does not permit them; these changes are removed from `chosen`.
fn by_hand(ends: &mut Ends<'_>, chosen: &mut Vec<PlannedChange>) -> Vec<String> {
    let is_far = |change: &PlannedChange| change.end == End::Far;
    if !chosen.iter().any(is_far) {
        return Vec::new();
    }
    let Err(error) = ends.far_status() else { return Vec::new() };
    writeln!(crate::out::stderr(), "clearstream: {error}").ok();
    let commands = chosen.iter().filter(|one| is_far(one)).map(PlannedChange::command).collect();
    chosen.retain(|change| !is_far(change));
    commands
}

/// Describes the verdict and the changes about to be made.
fn shown(plan: &Plan, chosen: &[PlannedChange], results: &Results) -> String {
    let is_chosen = |change: &&PlannedChange| {
        chosen.iter().any(|one| one.end == change.end && one.key == change.key)
    };
    let changes = plan.changes.iter().filter(is_chosen).cloned().collect();
    let mut out = show::changes(&Plan { changes, ..Plan::default() }, results);
    writeln!(out).ok();
    out
}

/// The test that the verdict judged, with the duration of a test of `tune`.
fn judged_test(args: &ApplyArgs, results: &Results) -> TestSpec {
    let own = args.spec();
    match explain::diagnose(results).spec {
        Some(judged) => {
            TestSpec { limit: own.limit, omit_s: own.omit_s, interval_s: own.interval_s, ..judged }
        }
        None => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_host_is_asked_over_the_ip_version_of_the_measurement() {
        let of = |address: Option<&str>| {
            family(&PathFacts { address: address.map(str::to_owned), ..PathFacts::default() })
        };
        assert_eq!(of(Some("10.77.0.2")), Some(Family::V4));
        assert_eq!(of(Some("fd77::2")), Some(Family::V6));
        assert_eq!(of(None), None);
    }

    #[test]
    fn commands_for_the_far_host_follow_every_run_that_was_not_cut_short() {
        assert!(is_finished(Exit::Ok) && is_finished(Exit::Partial));
        assert!(!is_finished(Exit::Signal(2)));
    }
}
