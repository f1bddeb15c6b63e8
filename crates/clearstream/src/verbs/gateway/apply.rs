//! `clearstream gateway apply` and `revert`: on this host, on a lab's hosts, or on all machines over ssh.

use std::io::Write;
use std::path::PathBuf;

use gateway::{ApplyError, Made, Network, Options};
use route_plan::{Plan, Role};
use serde_json::json;
use tuning::{ChangeResult, RevertOutcome, Reverted};
use units::count_of;

use super::hosts::{self, Hosts, Work};
use super::identity::{own_role, refuse_other_name};
use super::plan::{own_name, print_json};
use super::read_plan;
use crate::VerbResult;
use crate::exit::{Exit, VerbError, chain};
use crate::plans::SSH;
use crate::runner;
use crate::tuners::default_state;

/// Which hosts.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct WhereOptions {
    /// This machine is that host of the plan [default: the one with this machine's name].
    #[arg(long, value_name = "NAME", conflicts_with_all = ["lab", "ssh"])]
    host: Option<String>,
    /// Run on all hosts of this lab that the plan names.
    #[arg(long, value_name = "LAB", conflicts_with = "ssh")]
    lab: Option<String>,
    /// Run on all machines that the plan names, over ssh, or over COMMAND: another program, with
    /// its options.
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, require_equals = true, default_missing_value = SSH)]
    ssh: Option<String>,
    /// Path of this program on the machines that ssh reaches.
    #[arg(long, value_name = "PATH", requires = "ssh", default_value = "clearstream")]
    there: String,
    /// Where the journal is kept [default: /var/lib/clearstream/gateway; in a lab, its own place].
    #[arg(long, value_name = "DIR", conflicts_with_all = ["lab", "ssh"])]
    state: Option<PathBuf>,
}

/// Options of `gateway apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway apply cumulus --host s1\n  \
    clearstream gateway apply cumulus --host s1 --replace  over others' routes, until revert\n  \
    clearstream gateway apply cumulus --lab cumulus\n  \
    clearstream gateway apply cumulus --ssh                on all its machines\n\n\
    All or nothing: every change is journalled on disk before it is made, and all are undone if one\n\
    fails. Exit code 1: a foreign object is in the way, or a gateway's hardware address is unknown\n\
    (`follow`); 2: this machine is not that host of the plan; 4: this kernel lacks a setting or\n\
    packet filters, which the message names.")]
pub(crate) struct ApplyArgs {
    /// The plan, a TOML file.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    #[command(flatten)]
    place: WhereOptions,
    /// Replace foreign routes that stand where the plan's routes belong; `revert` restores them.
    #[arg(long)]
    replace: bool,
}

/// Options of `gateway revert`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway revert\n  \
    clearstream gateway revert --lab cumulus\n\n\
    Everything that `apply` changed is restored byte for byte, even after a crash. What\n\
    something else has changed since is left alone and named (exit code 5).")]
pub(crate) struct RevertArgs {
    #[command(flatten)]
    place: WhereOptions,
    /// Revert only on hosts that this plan names; --ssh reaches the machines of this plan, and --host
    /// is then also identified by the plan's addresses.
    #[arg(long, value_name = "PLAN")]
    plan: Option<PathBuf>,
    /// Also restore what somebody else has changed since then.
    #[arg(long)]
    force: bool,
}

impl WhereOptions {
    /// The hosts, if the options select many; `None`: this one.
    pub(super) fn many(&self) -> Option<Hosts<'_>> {
        let ssh = || {
            let command = self.ssh.as_deref()?;
            Some(Hosts::Ssh { command, program: &self.there })
        };
        self.lab.as_deref().map(Hosts::Lab).or_else(ssh)
    }

    pub(super) fn state(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| default_state("gateway"))
    }

    /// The host or gateway of the plan that this machine is.
    pub(super) fn role<'a>(&self, plan: &'a Plan) -> Result<(String, Role<'a>), VerbError> {
        own_role(plan, self.host.as_deref())
    }
}

pub(super) fn run(args: &ApplyArgs, json: bool) -> VerbResult {
    let plan = read_plan(&args.plan)?;
    if let Some(many) = args.place.many() {
        let more: &[&str] = if args.replace { &["--replace"] } else { &[] };
        let work = Work { verb: "apply", plan: Some((&args.plan, &plan)), more };
        return hosts::on_all(many, work, json);
    }
    let (name, role) = args.place.role(&plan)?;
    let options = Options {
        replaces_foreign: args.replace,
        ..Options::new(&args.place.state(), runner::now_unix_ms())
    };
    let made = gateway::apply(&plan, role, &options, &mut Network::default(), &mut |_step| {})
        .map_err(|error| explained(&error))?;
    report((&plan, role), &name, &made, json)
}

fn explained(error: &ApplyError) -> VerbError {
    let line = chain(error);
    if error.is_missing() { VerbError::missing(line) } else { VerbError::failed(line) }
}

fn report((plan, role): (&Plan, Role<'_>), name: &str, made: &Made, json: bool) -> VerbResult {
    let failed = made.applied.outcomes.iter().find_map(|outcome| match &outcome.result {
        ChangeResult::Failed { reason, is_privilege } => Some((reason.clone(), *is_privilege)),
        _done => None,
    });
    if let Some((reason, is_privilege)) = failed {
        let left = made.applied.left.len();
        let stays = if left > 0 {
            format!(
                "; {} still in force: `clearstream gateway revert` undoes them",
                count_of(left as u64, "change")
            )
        } else {
            String::new()
        };
        let why = gateway::off_link(plan, role).map(|why| format!("{why} (")).unwrap_or_default();
        let end = if why.is_empty() { "" } else { ")" };
        let line = format!("{name}: nothing was applied: {why}{reason}{end}{stays}");
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
        0 => writeln!(out, "{name}  matches the plan")?,
        count => writeln!(out, "{name}  {} made", count_of(count as u64, "change"))?,
    }
    Ok(Exit::Ok)
}

pub(super) fn revert(args: &RevertArgs, json: bool) -> VerbResult {
    let plan = args.plan.as_deref().map(read_plan).transpose()?;
    if let Some(many) = args.place.many() {
        let more: &[&str] = if args.force { &["--force"] } else { &[] };
        let plan = args.plan.as_deref().zip(plan.as_ref());
        return hosts::on_all(many, Work { verb: "revert", plan, more }, json);
    }
    let name = match (&plan, &args.place.host) {
        (Some(plan), _) => args.place.role(plan)?.0,
        (None, Some(name)) => {
            refuse_other_name(name)?;
            name.clone()
        }
        (None, None) => own_name(),
    };
    let outcomes =
        gateway::revert(&args.place.state(), args.force, &mut Network::default(), &mut |_step| {})
            .map_err(|error| explained(&error))?;
    let left: Vec<String> = outcomes.iter().filter_map(left_behind).collect();
    if json {
        print_json(&json!({ "host": name, "undone": outcomes.len() - left.len(), "left": left }))?;
    } else {
        let mut out = crate::out::stdout();
        for line in &left {
            writeln!(out, "{name}  left unchanged: {line}")?;
        }
        let undone = count_of((outcomes.len() - left.len()) as u64, "change");
        match outcomes.len() {
            0 => writeln!(out, "{name}  nothing to revert: no plan is applied here")?,
            _some => writeln!(out, "{name}  {undone} undone")?,
        }
    }
    Ok(if left.is_empty() { Exit::Ok } else { Exit::Partial })
}

fn left_behind(outcome: &RevertOutcome) -> Option<String> {
    match &outcome.result {
        Reverted::Foreign { .. } => Some(format!(
            "{}: changed by something else since (--force reverts it all the same)",
            outcome.key
        )),
        Reverted::Failed { reason, .. } => Some(reason.clone()),
        _settled => None,
    }
}
