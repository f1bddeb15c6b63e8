//! `clearstream gateway`: native routing over many gateways, by one plan.

mod apply;
mod check;
mod drain;
mod emit;
mod explain;
mod hosts;
mod plan;
mod show;
mod simulate;
mod watch;
mod weights;

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use route_plan::{PLAN_BYTES_MAX, Plan, parse_plan};

use crate::VerbResult;
use crate::exit::VerbError;

/// Options of `gateway`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway plan cumulus.toml                     who is in it, and how flows spread\n  \
    clearstream gateway plan cumulus.toml --host nid0001      what that host needs, as commands\n  \
    clearstream gateway apply cumulus.toml --host nid0001     make it so; `check` and `revert` follow\n  \
    clearstream gateway watch cumulus.toml --host nid0001     move its routes off gateways that fail\n  \
    clearstream lab up cumulus && clearstream gateway apply cumulus --lab cumulus\n  \
    clearstream gateway explain nid0001:40000 wolf03:1191 --plan cumulus.toml\n\n\
    A plan names networks, the gateways that join them, and the hosts on them. Both ends of every flow\n\
    derive their routes from it, so that a look-up tells which gateway carries what.")]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Check a plan; show what each host needs, how flows spread, and what would change.
    Plan(plan::PlanArgs),
    /// Make this host, or all hosts of a lab, what the plan wants; journalled.
    Apply(apply::ApplyArgs),
    /// Find what has drifted from the plan (exit 3).
    Check(check::CheckArgs),
    /// Put back exactly what was there before.
    Revert(apply::RevertArgs),
    /// Watch this host's gateways, and move its routes off those that fail.
    Watch(watch::WatchArgs),
    /// Answer the probes of hosts that watch, and do nothing else.
    Reflect(watch::ReflectArgs),
    /// Move all flows off a gateway, and show that it forwards none any more.
    Drain(drain::DrainArgs),
    /// Let flows return to a drained gateway.
    Undrain(drain::UndrainArgs),
    /// Measure what each gateway carries, and propose weights for the plan.
    Weights(weights::WeightsArgs),
    /// Write a host's part of the plan as networkd's, NetworkManager's, netplan's, … configuration.
    Emit(emit::EmitArgs),
    /// Say which gateway carries a flow.
    Explain(explain::ExplainArgs),
}

/// Runs the verb.
pub(crate) fn run(args: &GatewayArgs, json: bool) -> VerbResult {
    match &args.action {
        Action::Plan(args) => plan::run(args, json),
        Action::Apply(args) => apply::run(args, json),
        Action::Check(args) => check::run(args, json),
        Action::Revert(args) => apply::revert(args, json),
        Action::Watch(args) => watch::run(args, json),
        Action::Reflect(args) => watch::reflect(args, json),
        Action::Drain(args) => drain::run(args, json),
        Action::Undrain(args) => drain::undo(args, json),
        Action::Weights(args) => weights::run(args, json),
        Action::Emit(args) => emit::run(args, json),
        Action::Explain(args) => explain::run(args, json),
    }
}

/// Plans that come with the program, for its labs.
const PLANS: &[(&str, &str)] =
    &[("cumulus", include_str!("../../../../labs/gateways/cumulus.toml"))];

/// A plan's text: of a file, of one that comes with the program, or standard input (`-`).
fn plan_text(path: &Path) -> Result<String, VerbError> {
    let builtin = PLANS.iter().find(|(name, _)| Path::new(name) == path && !path.exists());
    match builtin {
        Some((_, text)) => Ok((*text).to_owned()),
        None => read_text(path, PLAN_BYTES_MAX),
    }
}

/// Reads and checks a plan. Of several mistakes each gets its line on standard error.
fn read_plan(path: &Path) -> Result<Plan, VerbError> {
    let text = plan_text(path)?;
    parse_plan(&path.display().to_string(), &text).map_err(|error| {
        let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
        if lines.len() < 2 {
            return VerbError::usage(&error);
        }
        let mut out = crate::out::stderr();
        for line in &lines {
            // The error itself is on its way.
            writeln!(out, "{line}").ok();
        }
        VerbError::usage(format!("{}: {} mistakes, see above", error.file, lines.len()))
    })
}

/// A text file, or standard input (`-`), of at most so many bytes.
fn read_text(path: &Path, bytes_max: usize) -> Result<String, VerbError> {
    let failed = |error: std::io::Error| VerbError::usage(format!("{}: {error}", path.display()));
    let mut text = String::new();
    let file: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        _path => Box::new(File::open(path).map_err(failed)?),
    };
    file.take(bytes_max as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() > bytes_max {
        let path = path.display();
        return Err(VerbError::usage(format!("{path}: longer than {bytes_max} bytes")));
    }
    Ok(text)
}
