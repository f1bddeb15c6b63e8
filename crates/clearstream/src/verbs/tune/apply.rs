//! `clearstream tune apply`: makes changes, with a journal.

use std::cell::OnceCell;
use std::io::Write;
use std::path::{Path, PathBuf};

use results::{End, Results, RunKind};
use serde_json::json;
use tuning::plan::{Plan, PlannedChange, Risk};
use tuning::{Change, ChangeResult, Key, Outcome, Policy, Undo};

use super::ends::Ends;
use super::evidence::{self, Evidence, EvidenceOptions};
use super::trials::{Source, Trials, without_trials};
use super::{StateOptions, measure, show, verdict};
use crate::VerbResult;
use crate::ending;
use crate::exit::{Exit, VerbError};
use crate::progress::Progress;
use crate::runner::{Conducted, Ended};
use crate::store;

/// Longest plan file to read, bytes.
const PLAN_BYTES_MAX: u64 = 16 << 20;

/// Options of `tune apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream tune apply geneva --measure -o tune.json --report tune.html\n  \
    clearstream tune apply --from results.json\n  \
    clearstream tune apply geneva --only net.ipv4.tcp_rmem\n  \
    clearstream tune apply --set net.ipv4.tcp_wmem='4096 16384 67108864' --set eth0/ring-rx=4096\n\n\
    Either all changes are made or none; --keep-going makes those that can be made and ends with exit\n\
    code 5. Risky changes are made only if --only names them. Changes that cannot be made on the far\n\
    host are printed as commands.\n\n\
    --from carries out the verdict of a results file: it shows the settings that the verdict names,\n\
    sets them here and on the far host that the file names, measures with and without each change in\n\
    turns, by the verdict's own test, and keeps those that help. `tune revert` reverts them. Changes\n\
    that are already in force stay and are not measured; --fresh reverts those of the journal and\n\
    tries them.")]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(super) evidence: EvidenceOptions,
    /// Make the changes of this plan (of `tune plan --json`).
    #[arg(long, value_name = "FILE", conflicts_with = "results")]
    plan: Option<PathBuf>,
    /// Carry out the verdict of this results file (of `path`) and measure the effect; HOST is
    /// needed only if it differs from the file's.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "results", "ApplicationOptions"])]
    from: Option<PathBuf>,
    /// Make this change on this host, whatever the evidence; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", conflicts_with_all = ["plan", "results", "measure", "from"])]
    set: Vec<String>,
    /// Make only the changes of the plan to these settings.
    #[arg(long, value_name = "KEY", num_args = 1..)]
    only: Vec<Key>,
    /// Make only the plan's changes to this host.
    #[arg(long)]
    near_only: bool,
    /// Measure with and without each change in turns; keep it only if it helps beyond the noise.
    #[arg(long)]
    measure: bool,
    /// Turns of each change with --measure.
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(2..=100))]
    pub(super) turns: u32,
    /// Results of --measure.
    #[arg(short, long, value_name = "FILE", default_value = "tune.json")]
    pub(super) output: PathBuf,
    /// Report page of --measure.
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Start --measure over instead of resuming interrupted trials.
    #[arg(long)]
    pub(super) fresh: bool,
    /// If a change fails, still make the others.
    #[arg(long)]
    keep_going: bool,
    /// Make this host's changes again at every boot (sysctl.d and a systemd unit).
    #[arg(long)]
    pub(super) persist: bool,
    #[command(flatten)]
    pub(super) state: StateOptions,
}

pub(super) fn run(args: &ApplyArgs, json: bool) -> VerbResult {
    if args.persist && args.state.root.is_none() && std::env::var_os("CLEARSTREAM_LAB").is_some() {
        return Err(VerbError::usage(
            "a lab's hosts share this machine's /etc: --persist needs --root there",
        ));
    }
    if !args.set.is_empty() {
        let changes =
            args.set.iter().map(|text| assignment(text)).collect::<Result<Vec<_>, _>>()?;
        let outcomes = apply_near(args, &changes)?;
        let undo = show::undo(is_any_made(&outcomes, End::Near), None, &args.state);
        return finish(&outcomes, &[], &undo, json);
    }
    if let Some(file) = &args.from {
        return verdict::run(args, file, json);
    }
    if args.measure {
        return measured(args, json);
    }
    let mut far = if args.near_only { None } else { args.evidence.far()? };
    let plan = match &args.plan {
        Some(file) => read_plan(file)?,
        None => {
            let gathered = args.evidence.gather(far.as_mut(), &args.output)?;
            let Conducted { ended: Ok(Ended::Complete), log } = gathered.conducted else {
                return ending::unused(gathered.conducted);
            };
            log.map_or(Ok(()), store::PointLog::discard)?;
            if args.evidence.results.is_some() {
                check_host(&gathered.results)?;
            }
            tuning::plan::plan(&gathered.results)
        }
    };
    let chosen = args.chosen(&plan)?;
    if chosen.is_empty() {
        return say_nothing_to_do(&plan, json);
    }
    let ends = Ends { tuner: args.state.tuner(), far: far.as_mut(), persist: args.persist };
    all(args, &chosen, ends, json)
}

/// Measures each change with and without it.
fn measured(args: &ApplyArgs, json: bool) -> VerbResult {
    if args.plan.is_some() {
        return Err(VerbError::usage("--measure takes its evidence from HOST, not from --plan"));
    }
    store::check_outputs([Some(&*args.output), args.report.as_deref()])?;
    let spec = args.spec();
    let of_file = args.evidence.results.as_ref().map(|file| store::load(file)).transpose()?;
    let mut far = args.evidence.far()?;
    if far.is_none() {
        return Err(VerbError::usage("--measure runs tests: name the far HOST"));
    }
    let mut progress = Progress::new(1);
    let choose = |plan: &Plan| args.chosen(plan).unwrap_or_default();
    let (source, results) = match of_file {
        Some(results) => {
            check_host(&results)?;
            // The file may be one of `tune` itself, whose trials are not those of this run.
            let results = without_trials(&results);
            let plan = tuning::plan::plan(&results);
            let chosen = args.chosen(&plan)?;
            if chosen.is_empty() {
                return say_nothing_to_do(&plan, json);
            }
            (Source::Given(chosen), Results { kind: RunKind::Tune, ..results })
        }
        None => {
            let results = evidence::named(far.as_mut())?.describe(RunKind::Tune, &mut progress);
            (Source::Tests(Box::new(Evidence { single: spec.clone() }), &choose), results)
        }
    };
    let mut ends = Ends { tuner: args.state.tuner(), far: far.as_mut(), persist: args.persist };
    let far_refusal = ends.far_status().err().map(|error| error.to_string());
    let asked = format!("{:?} {}", args.only, args.near_only);
    let trials =
        Trials { source, spec, turns: args.turns, asked, far_refusal, left: OnceCell::new() };
    measure::run(args, &trials, results, ends, progress, json)
}

impl ApplyArgs {
    pub(super) fn policy(&self) -> Policy {
        if self.keep_going { Policy::KeepGoing } else { Policy::AllOrNothing }
    }

    /// The test whose throughput is compared.
    pub(super) fn spec(&self) -> results::TestSpec {
        self.evidence.spec()
    }

    /// The plan of trials in which no change was chosen.
    ///
    /// # Errors
    /// The plan lacks a change that the user named.
    pub(super) fn chosen_of(
        &self,
        trials: &Trials<'_>,
        results: &Results,
    ) -> Result<Plan, VerbError> {
        let plan = trials.plan(results);
        self.chosen(&plan).map(|_none| plan)
    }

    pub(super) fn chosen(&self, plan: &Plan) -> Result<Vec<PlannedChange>, VerbError> {
        if let Some(unknown) =
            self.only.iter().find(|key| !plan.changes.iter().any(|one| one.key == **key))
        {
            return Err(VerbError::usage(format!("the plan does not change {unknown}")));
        }
        let is_wanted = |change: &&PlannedChange| {
            let named = self.only.contains(&change.key);
            let by_name = if self.only.is_empty() { change.risk < Risk::High } else { named };
            by_name && !(self.near_only && change.end == End::Far)
        };
        Ok(plan.changes.iter().filter(is_wanted).cloned().collect())
    }
}

/// Makes all changes: at the near end first, then at the far end; if the latter fails, the former are reverted.
fn all(args: &ApplyArgs, chosen: &[PlannedChange], mut ends: Ends<'_>, json: bool) -> VerbResult {
    let of = |end: End| -> Vec<PlannedChange> {
        chosen.iter().filter(|change| change.end == end).cloned().collect()
    };
    let changes =
        |planned: &[PlannedChange]| planned.iter().map(PlannedChange::change).collect::<Vec<_>>();
    let (near, far) = (of(End::Near), of(End::Far));
    let mut by_hand: Vec<String> = Vec::new();
    if !far.is_empty()
        && let Err(error) = ends.far_status()
    {
        writeln!(crate::out::stderr(), "clearstream: {error}").ok();
        by_hand.extend(far.iter().map(PlannedChange::command));
    }
    let mut outcomes: Vec<(End, Outcome)> = Vec::new();
    let made = ends.apply(End::Near, &changes(&near), args.policy())?;
    let near_failed = made.iter().any(has_failed);
    outcomes.extend(made.into_iter().map(|one| (End::Near, one)));
    let goes_on = args.keep_going || !near_failed;
    if by_hand.is_empty() && !far.is_empty() && goes_on {
        let made = ends.apply(End::Far, &changes(&far), args.policy())?;
        if made.iter().any(has_failed) && !args.keep_going {
            let is_made =
                |one: &&(End, Outcome)| matches!(one.1.result, ChangeResult::Applied { .. });
            let keys: Vec<Key> =
                outcomes.iter().filter(is_made).map(|(_, one)| one.key.clone()).collect();
            if !keys.is_empty() {
                ends.revert(End::Near, &keys, Undo::Last)?;
            }
            for (_, one) in &mut outcomes {
                if matches!(one.result, ChangeResult::Applied { .. }) {
                    one.result = ChangeResult::RolledBack;
                }
            }
        }
        outcomes.extend(made.into_iter().map(|one| (End::Far, one)));
    }
    let far = ends.far.as_ref().filter(|_| is_any_made(&outcomes, End::Far));
    let far = far.map(|far| far.target());
    let undo = show::undo(is_any_made(&outcomes, End::Near), far, &args.state);
    finish(&outcomes, &by_hand, &undo, json)
}

fn is_any_made(outcomes: &[(End, Outcome)], end: End) -> bool {
    let is_made = |one: &Outcome| matches!(one.result, ChangeResult::Applied { .. });
    outcomes.iter().any(|(at, one)| *at == end && is_made(one))
}

fn apply_near(args: &ApplyArgs, changes: &[Change]) -> Result<Vec<(End, Outcome)>, VerbError> {
    let mut ends = Ends { tuner: args.state.tuner(), far: None, persist: args.persist };
    let outcomes = ends.apply(End::Near, changes, args.policy())?;
    Ok(outcomes.into_iter().map(|one| (End::Near, one)).collect())
}

/// Prints the outcome of the changes and how to revert them; decides the exit code.
pub(super) fn finish(
    outcomes: &[(End, Outcome)],
    by_hand: &[String],
    undo: &str,
    json: bool,
) -> VerbResult {
    let mut out = crate::out::stdout();
    if json {
        let of = |end: End| {
            outcomes.iter().filter(|(at, _)| *at == end).map(|(_, one)| one).collect::<Vec<_>>()
        };
        let line = json!({ "near": of(End::Near), "far": of(End::Far), "far_by_hand": by_hand });
        writeln!(out, "{line}")?;
    } else {
        for (end, one) in outcomes {
            writeln!(out, "{}", show::outcome(*end, one))?;
        }
        if !by_hand.is_empty() {
            writeln!(out, "On the far host, by hand:")?;
        }
        for line in by_hand {
            writeln!(out, "  {line}")?;
        }
        write!(out, "{undo}")?;
    }
    let failed: Vec<&Outcome> =
        outcomes.iter().map(|(_, one)| one).filter(|one| has_failed(one)).collect();
    let made = outcomes.iter().any(|(_, one)| matches!(one.result, ChangeResult::Applied { .. }));
    let Some(first) = failed.first() else {
        return Ok(if by_hand.is_empty() { Exit::Ok } else { Exit::Partial });
    };
    let ChangeResult::Failed { reason, is_privilege } = &first.result else {
        return Ok(Exit::Partial);
    };
    let told = if made { "the others were made" } else { "nothing is changed" };
    let line = format!("{reason}; {told}");
    Err(match (made, is_privilege) {
        (true, _) => VerbError::partial(line),
        (false, true) => VerbError::missing(line),
        (false, false) => VerbError::failed(line),
    })
}

fn has_failed(outcome: &Outcome) -> bool {
    matches!(outcome.result, ChangeResult::Failed { .. })
}

pub(super) fn say_nothing_to_do(plan: &Plan, json: bool) -> VerbResult {
    let mut out = crate::out::stdout();
    if json {
        writeln!(out, "{}", json!({ "near": [], "far": [], "far_by_hand": [] }))?;
        return Ok(Exit::Ok);
    }
    let risky = plan.changes.iter().filter(|change| change.risk == Risk::High);
    let risky: Vec<String> = risky.map(|change| change.key.to_string()).collect();
    if risky.is_empty() {
        writeln!(out, "Nothing to change: no measurement calls for it.")?;
    } else {
        writeln!(
            out,
            "Not changed, because of their risk: {}; name them with --only",
            risky.join(", ")
        )?;
    }
    Ok(Exit::Ok)
}

fn assignment(text: &str) -> Result<Change, VerbError> {
    let (key, to) = text
        .split_once('=')
        .ok_or_else(|| VerbError::usage(format!("'{text}' is not KEY=VALUE")))?;
    let key = key.trim();
    let key: Key = key.parse().map_err(|error| {
        // Whole names would all be close: most begin alike.
        let last = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
        let names = || settings::catalogue::SYSCTLS.iter().map(|one| one.name);
        let typed = key.rsplit('.').next().unwrap_or(key);
        let near = units::closest(typed, names().map(last));
        let near = near.and_then(|near| names().find(|name| last(name) == near));
        let near = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
        VerbError::usage(error).and(&near)
    })?;
    if matches!(key, Key::File(_)) {
        return Err(VerbError::usage(format!("{key} is written by --persist only")));
    }
    let to = key.check(to).map_err(VerbError::usage)?;
    let why = "asked for on the command line".to_owned();
    Ok(Change { key, from: None, to, why, source: String::new() })
}

fn read_plan(file: &Path) -> Result<Plan, VerbError> {
    use std::io::Read;
    let at =
        |error: &dyn std::error::Error| VerbError::failed(format!("{}: {error}", file.display()));
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|opened| opened.take(PLAN_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| VerbError::unreadable(file, &error))?;
    serde_json::from_slice(&bytes).map_err(|error| at(&error))
}

/// Refuses evidence from another host, which says nothing about this one.
pub(super) fn check_host(results: &Results) -> Result<(), VerbError> {
    let uname = rustix::system::uname();
    let own = uname.nodename().to_string_lossy();
    if results.near().name == own {
        return Ok(());
    }
    Err(VerbError::usage(format!(
        "these results were measured from '{}', this is '{own}': plan there, or give --plan",
        results.near().name
    )))
}
