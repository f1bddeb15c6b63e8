//! `clearstream gateway check`: drift from the plan, on one host or between all.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use gateway::{Drift, Facts};
use route_plan::{Host, Plan, Role};
use serde::{Deserialize, Serialize};
use watch::StateFile;

use super::apply::WhereOptions;
use super::hosts::{self, Answers, Hosts, Work};
use super::plan::print_json;
use super::read_plan;
use super::watch::state_file;
use crate::VerbResult;
use crate::exit::{Exit, VerbError, chain};

/// Options of `gateway check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway check cumulus --host s1\n  \
    clearstream gateway check cumulus --lab cumulus\n\n\
    Settings, nexthops, groups, routes, rules and marks are compared with the plan, and the kernel\n\
    is asked through which gateway it would send packets to every other host. Several hosts are also\n\
    compared with each other: both ends of every pair must use the same gateway, hardware addresses\n\
    and packet sizes must match. Drained gateways, and those off which `gateway watch` has moved\n\
    flows, are reported but are not drift. Exit code 3: something has drifted; 2: this machine is\n\
    not that host of the plan.")]
pub(crate) struct CheckArgs {
    /// The plan, a TOML file.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    #[command(flatten)]
    place: WhereOptions,
}

/// A host's answer.
#[derive(Debug, Serialize, Deserialize)]
struct Checked {
    host: String,
    drifts: Vec<Told>,
    drained: Vec<String>,
    /// Absent from answers of earlier versions.
    #[serde(default)]
    moved: Vec<Moved>,
    facts: Facts,
}

/// A gateway off which a watcher has moved the host's flows.
#[derive(Debug, Serialize, Deserialize)]
struct Moved {
    gateway: String,
    state: String,
}

/// A drift in its JSON form.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    kind: String,
    what: String,
}

impl From<Drift> for Told {
    fn from(drift: Drift) -> Self {
        Self { kind: drift.kind.name().to_owned(), what: drift.what }
    }
}

pub(super) fn run(args: &CheckArgs, json: bool) -> VerbResult {
    let plan = read_plan(&args.plan)?;
    if let Some(many) = args.place.many() {
        return of_many(args, many, &plan, json);
    }
    let (name, role) = args.place.role(&plan)?;
    let failed = |error: gateway::CheckError| match error.is_missing() {
        true => VerbError::missing(chain(&error)),
        false => VerbError::from_error(&error),
    };
    let state = args.place.state();
    let mut up =
        gateway::undrained(&plan, &state).map_err(|error| VerbError::from_error(&error))?;
    let (mut drained, mut moved) = (Vec::new(), Vec::new());
    if let Role::Host(host) = role {
        let gateways = plan.gateways.iter().zip(&up).filter(|(_, is_up)| !**is_up);
        drained.extend(gateways.map(|(gateway, _)| gateway.name.clone()));
        moved = moved_by_watcher(&plan, host, &state, &mut up)?;
    }
    let drifts = gateway::check(&plan, role, &up).map_err(failed)?;
    let facts = gateway::facts(&plan, role).map_err(failed)?;
    let drifts = drifts.into_iter().map(Told::from).collect();
    let checked = Checked { host: name, drifts, drained, moved, facts };
    if json {
        print_json(&serde_json::to_value(&checked).map_err(VerbError::failed)?)?;
    } else {
        tell(&checked)?;
    }
    Ok(if checked.drifts.is_empty() { Exit::Ok } else { Exit::GateFailed })
}

/// Gateways that the watcher's record has out of use and that no flow of the host uses; they are no longer `up`. A record
/// of a watcher that has ended says nothing of gateways that are in use again.
fn moved_by_watcher(
    plan: &Plan,
    host: &Host,
    state: &Path,
    up: &mut [bool],
) -> Result<Vec<Moved>, VerbError> {
    let Ok(record) = StateFile::read(&state_file(state, plan), &plan.name) else {
        return Ok(Vec::new());
    };
    let used = gateway::used(plan, host, state).map_err(|error| VerbError::from_error(&error))?;
    let mut moved = Vec::new();
    for ((gateway, is_up), is_used) in plan.gateways.iter().zip(up).zip(used) {
        let known = record.gateways.iter().find(|one| one.name == gateway.name && !one.is_used);
        if let Some(known) = known.filter(|_| *is_up && !is_used) {
            *is_up = false;
            let state = known.state.clone();
            moved.push(Moved { gateway: gateway.name.clone(), state });
        }
    }
    Ok(moved)
}

fn tell(checked: &Checked) -> Result<(), VerbError> {
    let mut out = crate::out::stdout();
    let name = &checked.host;
    for drift in &checked.drifts {
        writeln!(out, "{name}  {:<10} {}", drift.kind, drift.what)?;
    }
    for gateway in &checked.drained {
        writeln!(out, "{name}  drained    {gateway}, until `clearstream gateway undrain`")?;
    }
    for Moved { gateway, state } in &checked.moved {
        let found = match &state[..] {
            "up" => "has not moved them back yet".to_owned(),
            "mtu_hole" => "found an MTU black hole there".to_owned(),
            state => format!("found it {state}"),
        };
        writeln!(
            out,
            "{name}  moved off  {gateway}, by `clearstream gateway watch`, which {found}"
        )?;
    }
    if checked.drifts.is_empty() {
        let is_whole = checked.drained.is_empty() && checked.moved.is_empty();
        let rest = if is_whole { "" } else { "otherwise " };
        writeln!(out, "{name}  {rest}matches the plan")?;
    }
    Ok(())
}

/// Each host checks itself; the answers are then compared with each other.
fn of_many(args: &CheckArgs, many: Hosts<'_>, plan: &Plan, json: bool) -> VerbResult {
    let names = hosts::names(many, Some(plan))?;
    let work = Work { verb: "check", plan: Some((&args.plan, plan)), more: &[] };
    let mut answers = Answers::default();
    answers.ask(many, &names, work, true)?;
    let mut checked: BTreeMap<usize, Checked> = BTreeMap::new();
    for (at, value) in answers.values().iter().enumerate() {
        if let Ok(one) = serde_json::from_value(value.clone()) {
            checked.insert(at, one);
        }
    }
    let facts = checked.values().map(|one| (one.host.clone(), one.facts.clone())).collect();
    let between = gateway::compare(plan, &facts);
    if !between.is_empty() {
        answers.has_drifted();
    }
    for (host, drift) in between {
        if let Some(one) = checked.values_mut().find(|one| one.host == host) {
            one.drifts.push(drift.into());
        }
    }
    for (at, value) in answers.values_mut().iter_mut().enumerate() {
        match checked.get(&at) {
            Some(one) if json => *value = serde_json::to_value(one).map_err(VerbError::failed)?,
            Some(one) => tell(one)?,
            None if json => {}
            None => {
                let (host, error) = (&value["host"], &value["error"]);
                let (host, error) = (host.as_str().unwrap_or("?"), error.as_str().unwrap_or("?"));
                writeln!(crate::out::stderr(), "{host}: {error}")?;
            }
        }
    }
    answers.end(json)
}
