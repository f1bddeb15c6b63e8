//! `clearstream gateway plan`: checks a plan and shows what it means for its hosts.

use std::io::{self, Write};
use std::path::PathBuf;

use route_plan::{
    BalanceError, Counting, Difference, Found, HostState, Interfaces, Plan, Role, balance,
    difference, review, search_seed, wanted,
};
use serde_json::json;

use super::{read_plan, read_text, show, simulate};
use crate::VerbResult;
use crate::exit::{Exit, VerbError, chain};

/// Longest routing file that `--review` reads, bytes.
const LISTING_BYTES_MAX: usize = 1 << 20;

/// Options of `gateway plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway plan cumulus\n  \
    clearstream gateway plan cumulus --host s1           commands, from nothing\n  \
    clearstream gateway plan cumulus --host s1 --here    against what this host has\n  \
    clearstream gateway plan cumulus --simulate --clients 10000 --gateways 100\n  \
    clearstream gateway plan hashed.toml --search-seed 1000  with mode hash or resilient\n  \
    clearstream gateway plan cumulus --host s1 --review /etc/sysconfig/route-ib1\n\n\
    Nothing is changed. A mistake in the plan is reported with its line (exit code 2). Foreign\n\
    objects in the way, and contradictions in a reviewed file, are named too (exit code 3).")]
pub(crate) struct PlanArgs {
    /// The plan, a TOML file.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Show what this host or gateway of the plan needs.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The --host is this machine (or this lab host): show what it has and what would change. This
    /// is the default if the names are equal.
    #[arg(long, requires = "host")]
    here: bool,
    /// Compare this file, rules and routes in iproute2's syntax, with what the plan says for the
    /// host.
    #[arg(long, value_name = "FILE", requires = "host")]
    review: Option<PathBuf>,
    #[command(flatten)]
    simulation: simulate::SimulationOptions,
    /// Try the seeds 1 to N and name the one under which flows spread best (policy 0).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    search_seed: Option<u32>,
}

pub(super) fn run(args: &PlanArgs, json: bool) -> VerbResult {
    let plan = read_plan(&args.plan)?;
    if args.simulation.is_wanted() {
        return simulate::run(&args.simulation, &plan, json);
    }
    if let Some(seeds_count) = args.search_seed {
        return seed(&plan, seeds_count, json);
    }
    let Some(name) = &args.host else { return overview(&plan, json) };
    let role = plan.find(name).ok_or_else(|| unknown(&plan, name))?;
    match &args.review {
        Some(file) => reviewed(&plan, role, &read_text(file, LISTING_BYTES_MAX)?, json),
        None => host(&plan, name, role, args.here, json),
    }
}

/// Name of this machine, or of the lab host that the program runs on.
pub(super) fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// An end that the plan does not have: the one that `--host` names, or this machine.
pub(super) fn unknown_end(plan: &Plan, name: &str, is_named: bool) -> VerbError {
    let error = unknown(plan, name);
    if is_named {
        return error;
    }
    error.and(&format!(" ('{name}' is this machine's name; name another host with --host)"))
}

pub(super) fn unknown(plan: &Plan, name: &str) -> VerbError {
    let known = first_of(plan.names());
    VerbError::usage(format!("the plan '{}' has no host '{name}'; it has {known}", plan.name))
}

/// The first of some names, as an error lists them: `c1, c2, c3, …`.
pub(super) fn first_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const NAMED_COUNT_MAX: usize = 8;
    let mut names: Vec<&str> = names.take(NAMED_COUNT_MAX + 1).collect();
    if names.len() > NAMED_COUNT_MAX {
        names[NAMED_COUNT_MAX] = "…";
    }
    names.join(", ")
}

fn overview(plan: &Plan, json: bool) -> VerbResult {
    let balance = match balance(plan, &Counting::default()) {
        Ok(balance) => Ok(balance),
        Err(error @ (BalanceError::NoSeed | BalanceError::TooMany(_))) => Err(error.to_string()),
        Err(error) => return Err(VerbError::from_error(&error)),
    };
    if json {
        return print_json(&show::overview_json(plan, balance.as_ref().ok()));
    }
    write!(crate::out::stdout(), "{}", show::overview(plan, &balance))?;
    Ok(Exit::Ok)
}

fn host(plan: &Plan, name: &str, role: Role<'_>, here: bool, json: bool) -> VerbResult {
    let is_here = here || own_name() == name;
    let (state, found) = if is_here {
        let interfaces = read(plan, &HostState::default())?.interfaces;
        let state =
            wanted(plan, role, &interfaces, &[]).map_err(|error| VerbError::from_error(&error))?;
        let mut found = read(plan, &state)?;
        gateway::read_marks(plan, &state, &mut found).map_err(|error| {
            let line = chain(&error);
            if error.is_missing() { VerbError::missing(line) } else { VerbError::failed(line) }
        })?;
        (state, found)
    } else {
        let interfaces = Interfaces::invented(interface_names(role));
        let state =
            wanted(plan, role, &interfaces, &[]).map_err(|error| VerbError::from_error(&error))?;
        (state, Found { interfaces, ..Found::default() })
    };
    let difference = difference(plan, &state, &found);
    if json {
        print_json(&show::host_json(plan, name, is_here, &state, &found, &difference))?;
    } else {
        write!(
            crate::out::stdout(),
            "{}",
            show::host(plan, role, is_here, &state, &found, &difference)
        )?;
    }
    Ok(verdict(&difference))
}

fn read(plan: &Plan, state: &HostState) -> Result<Found, VerbError> {
    let keys = state.sysctls.iter().map(|(key, _)| key);
    gateway::read_host(plan.family, keys).map_err(|error| VerbError::from_error(&error))
}

fn interface_names(role: Role<'_>) -> Vec<&str> {
    match role {
        Role::Gateway(_, gateway) => {
            gateway.ports.iter().map(|port| port.interface.as_str()).collect()
        }
        Role::Host(host) => vec![host.port.interface.as_str()],
    }
}

fn verdict(difference: &Difference) -> Exit {
    if difference.conflicts.is_empty() { Exit::Ok } else { Exit::GateFailed }
}

fn reviewed(plan: &Plan, role: Role<'_>, listing: &str, json: bool) -> VerbResult {
    let Role::Host(host) = role else {
        return Err(VerbError::usage(
            "the plan gives a gateway no routes, so there is nothing to review; name a host",
        ));
    };
    let findings = review(plan, host.network, listing);
    if json {
        let findings: Vec<_> = findings
            .iter()
            .map(|finding| json!({ "lines": finding.lines, "reason": finding.reason }))
            .collect();
        print_json(&json!({ "findings": findings }))?;
    } else {
        write!(crate::out::stdout(), "{}", show::findings(&findings))?;
    }
    Ok(if findings.is_empty() { Exit::Ok } else { Exit::GateFailed })
}

fn seed(plan: &Plan, seeds_count: u32, json: bool) -> VerbResult {
    let found = search_seed(plan, seeds_count).map_err(|error| VerbError::usage(&error))?;
    if json {
        return print_json(&json!({
            "seed": found.seed,
            "tried": seeds_count,
            "busiest_over_share": found.balance.busiest,
            "median_over_share": found.median,
            "worst_over_share": found.worst,
        }));
    }
    let mut out = crate::out::stdout();
    let worst_host = found.balance.sides.iter().map(|side| side.worst).fold(0.0, f64::max);
    writeln!(
        out,
        "Seed      {}: the busiest gateway carries {:.2} x its share, the worst host's busiest {:.2} x",
        found.seed, found.balance.busiest, worst_host
    )?;
    writeln!(
        out,
        "          of the {seeds_count} seeds tried the median is {:.2} x, the worst {:.2} x",
        found.median, found.worst
    )?;
    Ok(Exit::Ok)
}

pub(super) fn print_json(value: &serde_json::Value) -> VerbResult {
    let mut out = crate::out::stdout();
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(Exit::Ok)
}
