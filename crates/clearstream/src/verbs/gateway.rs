//! `clearstream gateway`: routing over many gateways by one plan, with the kernel's own means.

mod apply;
mod check;
mod count;
mod drain;
mod emit;
mod explain;
mod hosts;
mod identity;
mod plan;
mod show;
mod simulate;
mod watch;
mod weights;

use crate::VerbResult;
use crate::plans::{plan_text, read_plan, read_text};

/// Options of `gateway`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway plan cumulus             its hosts, and how flows spread\n  \
    clearstream gateway plan cumulus --host c1   what that host needs, as commands\n  \
    clearstream gateway apply cumulus --host c1  apply it; see also `check` and `revert`\n  \
    clearstream gateway watch cumulus --host c1  move its routes off gateways that fail\n  \
    clearstream lab up cumulus && clearstream gateway apply cumulus --lab cumulus\n  \
    clearstream gateway explain c1:40000 s2:1191 --plan cumulus\n\n\
    A plan lists networks, the gateways between them and the hosts on them. Both ends of every flow\n\
    derive their routes from it, so the plan tells which gateway carries which flow. The plan\n\
    `cumulus` is built in, for the lab of that name; your own is a file (`clearstream help plan-file`).")]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Check a plan; show what each host needs, how flows spread, and what would change.
    Plan(plan::PlanArgs),
    /// Apply the plan to this host or to all hosts of a lab, with a journal.
    Apply(apply::ApplyArgs),
    /// Find drift from the plan (exit code 3).
    Check(check::CheckArgs),
    /// Restore exactly the state before `apply`.
    Revert(apply::RevertArgs),
    /// Watch this host's gateways, and move its routes off those that fail.
    Watch(watch::WatchArgs),
    /// Answer the probes of hosts that watch, and do nothing else.
    Reflect(watch::ReflectArgs),
    /// Move all flows off a gateway, and verify that it forwards nothing.
    Drain(drain::DrainArgs),
    /// Let flows return to a drained gateway.
    Undrain(drain::UndrainArgs),
    /// Measure what each gateway carries, and propose weights for the plan.
    Weights(weights::WeightsArgs),
    /// Write a host's part of the plan as networkd's, NetworkManager's, netplan's, … configuration.
    Emit(emit::EmitArgs),
    /// Print this host's counters as a line of JSON for each line of standard input (for requests
    /// from other hosts).
    Count,
    /// Say which gateway carries a flow.
    Explain(explain::ExplainArgs),
}

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
        Action::Count => count::run(),
        Action::Explain(args) => explain::run(args, json),
    }
}
