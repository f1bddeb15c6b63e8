//! `clearstream gateway drain` and `undrain`: empties a gateway for maintenance, with proof, and restores it.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gateway::{DrainError, Passed, Passing};
use route_plan::{Plan, Role};
use serde_json::json;

use super::apply::WhereOptions;
use super::hosts::{self, Answers, Hosts, Work};
use super::plan::print_json;
use super::read_plan;
use crate::VerbResult;
use crate::exit::{Exit, VerbError, chain};
use crate::verbs::options::duration;

/// Most senders or gateways named in a message.
const NAMED_COUNT_MAX: usize = 5;

/// Options of `gateway drain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway drain cumulus g3 --ssh      all hosts; then g3 must forward nothing\n  \
    clearstream gateway drain cumulus g2 --lab cumulus\n  \
    clearstream gateway drain cumulus g3 --host s1  this host's flows only\n  \
    clearstream gateway drain cumulus g3 --host g3  on g3: wait until nothing is forwarded\n\n\
    Each group and route is replaced by one message, so that packets always have a route. The\n\
    gateway stays drained, even when the plan is applied again and after a reboot, until `undrain`.\n\
    Exit code 3: the gateway still forwards packets; their senders, hosts that are not in the plan,\n\
    are named.")]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    what: UndrainArgs,
    /// Time without forwarded packets after which the gateway counts as empty.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    quiet: Duration,
    /// Longest time to wait until the gateway is empty.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    within: Duration,
}

/// Options of `gateway undrain`.
#[derive(Debug, clap::Args)]
pub(crate) struct UndrainArgs {
    /// The plan, a TOML file.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// The gateway's name in the plan.
    #[arg(value_name = "GATEWAY")]
    gateway: String,
    #[command(flatten)]
    place: WhereOptions,
}

pub(super) fn run(args: &DrainArgs, json: bool) -> VerbResult {
    let plan = read_plan(&args.what.plan)?;
    let gateway = args.what.gateway(&plan)?;
    if let Some(many) = args.what.place.many() {
        let milliseconds = |time: Duration| format!("{}ms", time.as_millis());
        let (quiet, within) = (milliseconds(args.quiet), milliseconds(args.within));
        let more = [&args.what.gateway, "--quiet", &quiet, "--within", &within];
        return args.what.on_many(many, &plan, ("drain", &more), json);
    }
    let (name, role) = args.what.place.role(&plan)?;
    match role {
        Role::Gateway(at, _) if at == gateway => empty(args, &plan, &name, json),
        Role::Gateway(..) => idle(&name, json),
        Role::Host(_) => args.what.move_flows(&plan, (gateway, true), json),
    }
}

pub(super) fn undo(args: &UndrainArgs, json: bool) -> VerbResult {
    let plan = read_plan(&args.plan)?;
    let gateway = args.gateway(&plan)?;
    if let Some(many) = args.place.many() {
        return args.on_many(many, &plan, ("undrain", &[&args.gateway]), json);
    }
    let (name, role) = args.place.role(&plan)?;
    match role {
        Role::Gateway(..) => idle(&name, json),
        Role::Host(_) => args.move_flows(&plan, (gateway, false), json),
    }
}

fn idle(name: &str, json: bool) -> VerbResult {
    if json {
        print_json(&json!({ "host": name, "moved": 0 }))?;
    } else {
        writeln!(crate::out::stdout(), "{name}  is a gateway: it has no flows of its own to move")?;
    }
    Ok(Exit::Ok)
}

impl UndrainArgs {
    /// The gateway's index in the plan.
    fn gateway(&self, plan: &Plan) -> Result<usize, VerbError> {
        match plan.find(&self.gateway) {
            Some(Role::Gateway(at, _)) => Ok(at),
            found => {
                let asked = &self.gateway;
                let what = match found {
                    Some(_) => {
                        format!("'{asked}' is a host of the plan '{}', not a gateway", plan.name)
                    }
                    None => format!("the plan '{}' has no gateway '{asked}'", plan.name),
                };
                let names: Vec<&str> =
                    plan.gateways.iter().map(|gateway| gateway.name.as_str()).collect();
                let near = units::closest(asked, names.iter().copied()).filter(|_| found.is_none());
                let near =
                    near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
                let more = if names.len() > NAMED_COUNT_MAX { ", …" } else { "" };
                let known: Vec<&str> = names.into_iter().take(NAMED_COUNT_MAX).collect();
                let known = known.join(", ");
                Err(VerbError::usage(format!("{what}; its gateways are {known}{more}{near}")))
            }
        }
    }

    /// All hosts move their flows first; then the gateway verifies that it forwards none.
    fn on_many(
        &self,
        many: Hosts<'_>,
        plan: &Plan,
        (verb, more): (&str, &[&str]),
        json: bool,
    ) -> VerbResult {
        let work = Work { verb, plan: Some((&self.plan, plan)), more };
        let is_host = |name: &String| matches!(plan.find(name), Some(Role::Host(_)));
        let (hosts, gateways): (Vec<String>, Vec<String>) =
            hosts::names(many, Some(plan))?.into_iter().partition(is_host);
        let mut answers = Answers::default();
        answers.ask(many, &hosts, work, json)?;
        let own: Vec<String> = gateways.into_iter().filter(|name| *name == self.gateway).collect();
        if verb == "drain" && !answers.has_failed() {
            answers.ask(many, &own, work, json)?;
        }
        answers.end(json)
    }

    fn move_flows(
        &self,
        plan: &Plan,
        (gateway, is_drained): (usize, bool),
        json: bool,
    ) -> VerbResult {
        let (name, role) = self.place.role(plan)?;
        let Role::Host(host) = role else { return idle(&name, json) };
        let moved = gateway::drain(plan, host, &self.place.state(), gateway, is_drained)
            .map_err(|error| explained(&error))?;
        if json {
            let value = json!({ "host": name, "gateway": self.gateway, "drained": is_drained,
                "moved": moved });
            print_json(&value)?;
            return Ok(Exit::Ok);
        }
        let state = if is_drained { "is drained" } else { "is in use" };
        let way = &self.gateway;
        let what = if moved == 1 { "group or route" } else { "groups and routes" };
        writeln!(crate::out::stdout(), "{name}  {way} {state}: {moved} {what} replaced")?;
        Ok(Exit::Ok)
    }
}

fn explained(error: &DrainError) -> VerbError {
    match error {
        DrainError::Store(store) if store.is_privilege() => VerbError::missing(chain(error)),
        DrainError::Last { .. } | DrainError::NotApplied(_) => VerbError::failed(chain(error)),
        _other => VerbError::from_error(error),
    }
}

/// Waits until this gateway forwards nothing.
fn empty(args: &DrainArgs, plan: &Plan, name: &str, json: bool) -> VerbResult {
    let failed = |error: gateway::PassingError| {
        let line = chain(&error);
        if error.is_privilege() { VerbError::missing(line) } else { VerbError::failed(line) }
    };
    let began = Instant::now();
    let passing = Passing::open(plan.family).map_err(failed)?;
    let (passed, waited) = loop {
        let waited = began.elapsed();
        let passed = passing.look(args.quiet).map_err(failed)?;
        if passed.packets == 0 || began.elapsed() >= args.within {
            break (passed, waited);
        }
    };
    tell(args, name, (&passed, waited), json)?;
    Ok(if passed.packets == 0 { Exit::Ok } else { Exit::GateFailed })
}

fn tell(
    args: &DrainArgs,
    name: &str,
    (passed, waited): (&Passed, Duration),
    json: bool,
) -> Result<(), VerbError> {
    let (quiet_s, waited_s) = (args.quiet.as_secs_f64(), waited.as_secs_f64());
    let talks = passed.talks.iter().take(NAMED_COUNT_MAX);
    if json {
        let talks: Vec<_> = talks
            .map(|((from, to), packets)| json!({ "from": from, "to": to, "packets": packets }))
            .collect();
        print_json(
            &json!({ "host": name, "is_empty": passed.packets == 0, "packets": passed.packets,
            "window_s": quiet_s, "waited_s": waited_s, "probes": passed.probes, "senders": talks }),
        )?;
        return Ok(());
    }
    let probes = match passed.probes {
        0 => String::new(),
        count => format!(" (and {count} probes of watchers)"),
    };
    let mut out = crate::out::stdout();
    if passed.packets == 0 {
        writeln!(
            out,
            "{name}  is empty: no packet forwarded in {quiet_s:.1} s{probes}, {waited_s:.1} s after the hosts moved"
        )?;
        return Ok(());
    }
    writeln!(
        out,
        "{name}  still forwards: {} packets in {quiet_s:.1} s{probes}, {waited_s:.1} s after the hosts moved",
        passed.packets
    )?;
    for ((from, to), packets) in talks {
        writeln!(out, "{name}  {from} to {to}: {packets} packets")?;
    }
    Ok(())
}
