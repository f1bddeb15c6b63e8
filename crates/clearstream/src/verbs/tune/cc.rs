//! `clearstream tune cc`: congestion controls as BPF programs, and comparisons of congestion controls.

mod compare;
mod figures;
mod pairs;

use std::io::Write;

use bpf_cc::{CcError, Registered, Scope};
use serde_json::json;
use units::{count_of, noun};

use crate::VerbResult;
use crate::exit::{Exit, VerbError, chain};

/// The kernel's congestion controls.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// Those that unprivileged programs may choose.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// The default for new connections.
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Options of `tune cc`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream tune cc htcp                   register H-TCP with this kernel's TCP\n  \
    clearstream test far.example -C htcp       use it\n  \
    clearstream tune cc compare htcp,cubic     in the lab, alone and side by side\n  \
    clearstream tune cc status                 what there is, and who uses it\n  \
    clearstream tune cc remove\n\n\
    A registered congestion control serves the whole host, every network namespace included, until\n\
    it is removed or the host restarts. Making it the default is a setting like any other:\n\
    net.ipv4.tcp_congestion_control.")]
pub(crate) struct CcArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Register H-TCP, the papers' congestion control, as a BPF program.
    Htcp {
        /// Let unprivileged programs choose it, and let any network namespace make it its default.
        #[arg(long)]
        for_everyone: bool,
    },
    /// List congestion controls, where each comes from and how many connections use it.
    Status,
    /// Remove the programs that `tune cc` registered.
    Remove {
        /// Name of the congestion control [default: all that `tune cc` registered].
        name: Option<String>,
        /// Remove it even while it is in use: its connections keep it until they end.
        #[arg(long)]
        force: bool,
    },
    /// Measure congestion controls against each other, alone and in pairs.
    Compare(compare::CompareArgs),
}

pub(crate) fn run(args: &CcArgs, json: bool) -> VerbResult {
    match &args.action {
        Action::Htcp { for_everyone } => {
            let scope = if *for_everyone { Scope::Everyone } else { Scope::Privileged };
            register(scope, json)
        }
        Action::Status => status(json),
        Action::Remove { name, force } => remove(name.as_deref(), *force, json),
        Action::Compare(args) => compare::run(args, json),
    }
}

fn register(scope: Scope, json: bool) -> VerbResult {
    let known = bpf_cc::registered().map_err(refused)?;
    let ours = known.iter().find(|one| one.is_ours && one.can_be_chosen);
    let already = ours.map(|one| one.name.clone());
    let name = match &already {
        Some(name) => name,
        None => bpf_cc::name_for(&setting(AVAILABLE), &known),
    };
    if already.is_none() {
        bpf_cc::register(name, scope).map_err(refused)?;
    }
    let mut out = crate::out::stdout();
    if json {
        writeln!(out, "{}", json!({ "name": name, "already_registered": already.is_some() }))?;
        return Ok(Exit::Ok);
    }
    let how = if already.is_some() { "is registered already" } else { "is registered" };
    writeln!(out, "{name} {how}, for every network namespace of this host, until it is removed")?;
    if name != "htcp" {
        writeln!(
            out,
            "(this kernel has its own htcp; ours is {name}, so that both can be compared)"
        )?;
    }
    writeln!(out, "use it:    clearstream test HOST -C {name}")?;
    writeln!(out, "default:   sysctl -w net.ipv4.tcp_congestion_control={name}")?;
    writeln!(out, "undo: clearstream tune cc remove")?;
    Ok(Exit::Ok)
}

fn status(json: bool) -> VerbResult {
    let (available, allowed, default) = (setting(AVAILABLE), setting(ALLOWED), setting(DEFAULT));
    let (from_bpf, unseen) = match bpf_cc::registered() {
        Ok(all) => (all, None),
        Err(error) => (Vec::new(), Some(chain(&error))),
    };
    let chosen = |name: &str| from_bpf.iter().find(|one| one.name == name && one.can_be_chosen);
    let is_allowed = |name: &str| allowed.split_whitespace().any(|other| other == name);
    let leaving: Vec<&Registered> = from_bpf.iter().filter(|one| !one.can_be_chosen).collect();
    let mut out = crate::out::stdout();
    if json {
        let row = |name: &str| {
            let bpf = chosen(name);
            json!({ "name": name, "source": source(bpf, unseen.as_deref()), "default": name == default,
                "for_everyone": is_allowed(name), "users": bpf.map(|one| one.users) })
        };
        let rows: Vec<_> = available.split_whitespace().map(row).collect();
        let leaving: Vec<_> = leaving
            .iter()
            .map(|one| json!({ "name": one.name, "users": one.users, "ours": one.is_ours }))
            .collect();
        let all = json!({ "default": default, "available": rows, "leaving": leaving,
            "bpf_unseen": unseen, "htcp_built_in": bpf_cc::htcp_object().is_some() });
        writeln!(out, "{all}")?;
        return Ok(Exit::Ok);
    }
    for name in available.split_whitespace() {
        let bpf = chosen(name);
        let mut notes = vec![source(bpf, unseen.as_deref()).to_owned()];
        if name == default {
            notes.push("default here".to_owned());
        }
        notes.push(
            if is_allowed(name) { "allowed to all users" } else { "needs CAP_NET_ADMIN" }
                .to_owned(),
        );
        notes.extend(bpf.map(|one| users(one.users)));
        writeln!(out, "{name:<16} {}", notes.join(", "))?;
    }
    for one in leaving {
        writeln!(out, "{:<16} removed, kept by {}", one.name, users(one.users))?;
    }
    if let Some(why) = unseen {
        writeln!(
            crate::out::stderr(),
            "clearstream: cannot tell which of them are BPF programs: {why}"
        )?;
    }
    if bpf_cc::htcp_object().is_none() {
        writeln!(crate::out::stderr(), "clearstream: {}", CcError::NotBuiltIn)?;
    }
    Ok(Exit::Ok)
}

fn remove(name: Option<&str>, force: bool, json: bool) -> VerbResult {
    let mut ours = bpf_cc::registered().map_err(refused)?;
    if let Some(name) = name
        && !ours.iter().any(|one| one.name == name && one.is_ours)
    {
        let known = setting(AVAILABLE);
        let is_there = known.split_whitespace().any(|other| other == name);
        let why = if is_there {
            "was not registered by `tune cc`, so it is not removed"
        } else {
            "is not registered"
        };
        return Err(VerbError::failed(format!("congestion control {name} {why}")));
    }
    ours.retain(|one| {
        one.is_ours && one.can_be_chosen && name.is_none_or(|wanted| wanted == one.name)
    });
    if let Some(busy) = ours.iter().find(|one| one.users > 0 && !force) {
        return Err(VerbError::failed(format!(
            "{} is in use by {}: end them or change the default, or remove it with --force, and \
             connections that have it keep it until they end",
            busy.name,
            users(busy.users)
        )));
    }
    for one in &ours {
        bpf_cc::unregister(one).map_err(refused)?;
    }
    let mut out = crate::out::stdout();
    let names: Vec<&str> = ours.iter().map(|one| one.name.as_str()).collect();
    if json {
        writeln!(out, "{}", json!({ "removed": names }))?;
    } else if names.is_empty() {
        writeln!(out, "nothing was registered by tune cc")?;
    } else {
        writeln!(out, "removed: {}", names.join(", "))?;
    }
    Ok(Exit::Ok)
}

fn source(bpf: Option<&Registered>, unseen: Option<&str>) -> &'static str {
    match (bpf, unseen) {
        (Some(one), _) if one.is_ours => "clearstream",
        (Some(_), _) => "another BPF program",
        (None, Some(_)) => "kernel or BPF",
        (None, None) => "kernel",
    }
}

fn users(count: u32) -> String {
    format!("{} or {}", count_of(count, "connection"), noun(count.into(), "default"))
}

/// The content of a setting's file; empty if it cannot be read.
fn setting(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn refused(error: CcError) -> VerbError {
    let line = chain(&error);
    if error.is_missing() { VerbError::missing(line) } else { VerbError::failed(line) }
}
