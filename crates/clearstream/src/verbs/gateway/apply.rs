//! `clearstream gateway apply`, `check` and `revert`: on this host, or on all hosts of a lab.

use std::io::Write;
use std::path::PathBuf;

use gateway::{ApplyError, Made, Network, Options};
use route_plan::{Plan, Role};
use serde_json::json;
use tuning::{ChangeResult, RevertOutcome, Reverted};

use super::hosts::{self, Work};
use super::plan::{own_name, print_json, unknown};
use super::read_plan;
use crate::VerbResult;
use crate::exit::{Exit, VerbError, chain};
use crate::runner;
use crate::tuners::default_state;

/// Which hosts.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct WhereOptions {
    /// This machine is that host of the plan [default: the one with this machine's name].
    #[arg(long, value_name = "NAME", conflicts_with = "lab")]
    host: Option<String>,
    /// On all hosts of this lab that the plan names.
    #[arg(long, value_name = "LAB")]
    lab: Option<String>,
    /// Where the journal is kept [default: /var/lib/clearstream/gateway; in a lab, its own place].
    #[arg(long, value_name = "DIR", conflicts_with = "lab")]
    state: Option<PathBuf>,
}

/// Options of `gateway apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway apply cumulus.toml --host wolf01\n  \
    clearstream gateway apply cumulus.toml --host wolf01 --replace   over routes of others, until revert\n  \
    clearstream gateway apply cumulus --lab cumulus\n\n\
    All or nothing: every change is journalled on disk before it is made, and undone when one fails.\n\
    Exit 1: something of others is in the way; 4: this kernel lacks a setting, which is named.")]
pub(crate) struct ApplyArgs {
    /// The plan, a TOML file.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    #[command(flatten)]
    place: WhereOptions,
    /// Routes of others that stand where the plan's own go are replaced, and come back with `revert`.
    #[arg(long)]
    replace: bool,
}

/// Options of `gateway check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway check cumulus.toml --host wolf01\n  \
    clearstream gateway check cumulus --lab cumulus\n\n\
    Settings, nexthops, groups, routes and rules are compared with the plan, and the kernel is asked by\n\
    which gateway it would send packets to every other host. Exit 3: something has drifted.")]
pub(crate) struct CheckArgs {
    /// The plan, a TOML file.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    #[command(flatten)]
    place: WhereOptions,
}

/// Options of `gateway revert`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway revert\n  \
    clearstream gateway revert --lab cumulus\n\n\
    Everything that `apply` changed goes back to what it was, byte for byte, also after a crash. What\n\
    somebody else has changed since is left and named (exit 5).")]
pub(crate) struct RevertArgs {
    #[command(flatten)]
    place: WhereOptions,
    /// Put back also what somebody else has changed since.
    #[arg(long)]
    force: bool,
}

impl WhereOptions {
    fn state(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| default_state("gateway"))
    }

    fn role<'a>(&self, plan: &'a Plan) -> Result<(String, Role<'a>), VerbError> {
        let name = self.host.clone().unwrap_or_else(own_name);
        let role = plan.find(&name).ok_or_else(|| unknown(plan, &name))?;
        Ok((name, role))
    }
}

/// Runs `gateway apply`.
pub(super) fn run(args: &ApplyArgs, json: bool) -> VerbResult {
    let plan = read_plan(&args.plan)?;
    if let Some(lab) = &args.place.lab {
        let more: &[&str] = if args.replace { &["--replace"] } else { &[] };
        return hosts::on_lab(
            lab,
            &Work { verb: "apply", plan: Some((&args.plan, &plan)), more },
            json,
        );
    }
    let (name, role) = args.place.role(&plan)?;
    let options = Options {
        replaces_foreign: args.replace,
        ..Options::new(&args.place.state(), runner::now_unix_ms())
    };
    let made = gateway::apply(&plan, role, &options, &mut Network::default(), &mut |_step| {})
        .map_err(|error| explained(&error))?;
    report(&name, &made, json)
}

fn explained(error: &ApplyError) -> VerbError {
    let line = chain(error);
    if error.is_missing() { VerbError::missing(line) } else { VerbError::failed(line) }
}

fn report(name: &str, made: &Made, json: bool) -> VerbResult {
    let failed = made.applied.outcomes.iter().find_map(|outcome| match &outcome.result {
        ChangeResult::Failed { reason, is_privilege } => Some((reason.clone(), *is_privilege)),
        _done => None,
    });
    if let Some((reason, is_privilege)) = failed {
        let left = made.applied.left.len();
        let stays = if left > 0 {
            format!("; {left} changes stay, `revert` undoes them")
        } else {
            String::new()
        };
        let line = format!("{name}: nothing was applied: {reason}{stays}");
        return Err(match (is_privilege, left) {
            (true, _) => VerbError::missing(line),
            (false, 0) => VerbError::failed(line),
            (false, _) => VerbError::partial(line),
        });
    }
    if json {
        return print_json(&json!({ "host": name, "made": made.commands }));
    }
    let mut out = crate::out::stdout();
    match made.commands.len() {
        0 => writeln!(out, "{name}  is as the plan wants it")?,
        count => writeln!(out, "{name}  {count} changes made")?,
    }
    Ok(Exit::Ok)
}

/// Runs `gateway check`.
pub(super) fn check(args: &CheckArgs, json: bool) -> VerbResult {
    let plan = read_plan(&args.plan)?;
    if let Some(lab) = &args.place.lab {
        return hosts::on_lab(
            lab,
            &Work { verb: "check", plan: Some((&args.plan, &plan)), more: &[] },
            json,
        );
    }
    let (name, role) = args.place.role(&plan)?;
    let drifts = gateway::check(&plan, role).map_err(|error| VerbError::from_error(&error))?;
    if json {
        let list: Vec<_> = drifts
            .iter()
            .map(|drift| json!({ "kind": drift.kind.name(), "what": drift.what }))
            .collect();
        print_json(&json!({ "host": name, "drifts": list }))?;
    } else {
        let mut out = crate::out::stdout();
        for drift in &drifts {
            writeln!(out, "{name}  {:<10} {}", drift.kind.name(), drift.what)?;
        }
        if drifts.is_empty() {
            writeln!(out, "{name}  is as the plan wants it")?;
        }
    }
    Ok(if drifts.is_empty() { Exit::Ok } else { Exit::GateFailed })
}

/// Runs `gateway revert`.
pub(super) fn revert(args: &RevertArgs, json: bool) -> VerbResult {
    if let Some(lab) = &args.place.lab {
        let more: &[&str] = if args.force { &["--force"] } else { &[] };
        return hosts::on_lab(lab, &Work { verb: "revert", plan: None, more }, json);
    }
    let name = args.place.host.clone().unwrap_or_else(own_name);
    let outcomes =
        gateway::revert(&args.place.state(), args.force, &mut Network::default(), &mut |_step| {})
            .map_err(|error| explained(&error))?;
    let left: Vec<String> = outcomes.iter().filter_map(left_behind).collect();
    if json {
        print_json(&json!({ "host": name, "undone": outcomes.len() - left.len(), "left": left }))?;
    } else {
        let mut out = crate::out::stdout();
        for line in &left {
            writeln!(out, "{name}  left: {line}")?;
        }
        writeln!(out, "{name}  {} changes undone", outcomes.len() - left.len())?;
    }
    Ok(if left.is_empty() { Exit::Ok } else { Exit::Partial })
}

fn left_behind(outcome: &RevertOutcome) -> Option<String> {
    match &outcome.result {
        Reverted::Foreign { .. } => {
            Some(format!("{}: somebody else has changed it since", outcome.key))
        }
        Reverted::Failed { reason, .. } => Some(reason.clone()),
        _settled => None,
    }
}
