//! `clearstream gateway explain`: says which gateway carries a flow.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use route_plan::{By, Flow, Mode, Plan, Prediction, Role, TCP, predict};
use serde_json::json;

use super::plan::{first_of, print_json};
use super::read_plan;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// IP protocol number of UDP (`IPPROTO_UDP`).
const UDP: u8 = 17;

/// Options of `gateway explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream gateway explain c1:40000 s2:1191 --plan cumulus\n  \
    clearstream gateway explain 10.100.0.1:40000 10.10.0.22:1191 --plan cumulus\n  \
    clearstream lab exec c1 -- clearstream gateway explain c1:1 s1:1 --plan cumulus --ask\n\n\
    In mode `pairs` the plan alone decides; in the other modes the kernel's hash is computed from the\n\
    plan's seed and policy. All gateways are assumed to be up.")]
pub(crate) struct ExplainArgs {
    /// Where the flow comes from: a host of the plan or an address, and a port.
    #[arg(value_name = "SOURCE:PORT")]
    source: String,
    /// Where it goes.
    #[arg(value_name = "DESTINATION:PORT")]
    destination: String,
    /// The plan, a TOML file.
    #[arg(long, value_name = "PLAN")]
    plan: PathBuf,
    /// A UDP flow; the default is TCP.
    #[arg(short, long)]
    udp: bool,
    /// Ask the kernel of this host, which must be the source, instead of predicting.
    #[arg(long)]
    ask: bool,
}

pub(super) fn run(args: &ExplainArgs, json: bool) -> VerbResult {
    let plan = read_plan(&args.plan)?;
    let source = end(&plan, &args.source)?;
    let destination = end(&plan, &args.destination)?;
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(VerbError::usage(format!(
            "{source} and {destination} belong to different address families"
        )));
    }
    let flow = Flow {
        protocol: if args.udp { UDP } else { TCP },
        ..Flow::tcp((source.ip(), source.port()), (destination.ip(), destination.port()))
    };
    if args.ask {
        return ask(&plan, &flow, json);
    }
    let prediction = predict(&plan, &flow).map_err(|error| VerbError::failed(&error))?;
    if json {
        return print_json(&to_json(&plan, &prediction));
    }
    show(&plan, &flow, &prediction)
}

/// Asks this host's kernel for the route of the flow.
fn ask(plan: &Plan, flow: &Flow, json: bool) -> VerbResult {
    let next_hop = gateway::ask(flow).map_err(|error| VerbError::from_error(&error))?;
    let is_it = |one: &&route_plan::Gateway| one.ports.iter().any(|port| port.address == next_hop);
    let found = plan.gateways.iter().find(is_it);
    let name = found.map(|gateway| gateway.name.as_str());
    if json {
        print_json(&json!({ "gateway": name, "by": "kernel", "next_hop_there": next_hop }))?;
    } else {
        let name = name.unwrap_or("none of the plan");
        writeln!(
            crate::out::stdout(),
            "Gateway   {name}, by this host's kernel: next hop {next_hop}"
        )?;
    }
    Ok(if found.is_some() { Exit::Ok } else { Exit::GateFailed })
}

/// Parses `HOST:PORT`, `ADDRESS:PORT` or `[IPV6]:PORT`; the port defaults to 0.
fn end(plan: &Plan, text: &str) -> Result<SocketAddr, VerbError> {
    let wrong = || {
        VerbError::usage(format!(
            "'{text}' is neither ADDRESS:PORT nor HOST:PORT with a host of the plan '{}'; its hosts are {}",
            plan.name,
            first_of(plan.hosts.iter().map(|host| host.name.as_str()))
        ))
    };
    if let Ok(end) = text.parse::<SocketAddr>() {
        return Ok(end);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, 0));
    }
    let (name, port) = text.rsplit_once(':').unwrap_or((text, "0"));
    let port = port.parse::<u16>().map_err(|_unreadable| wrong())?;
    match plan.find(name) {
        Some(Role::Host(host)) => Ok(SocketAddr::new(host.port.address, port)),
        Some(Role::Gateway(..)) => {
            Err(VerbError::usage(format!("'{name}' is a gateway; name the two end hosts")))
        }
        None => Err(wrong()),
    }
}

fn how(plan: &Plan, by: &By) -> String {
    let routing = &plan.routing;
    let seed = routing.seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
    match by {
        By::Pair { backup } if plan.gateways.len() > 1 => {
            format!("by the pair of hosts; backup {}", plan.gateways[*backup].name)
        }
        By::Pair { .. } => "by the pair of hosts; there is no other gateway".to_owned(),
        By::Hash(hash) => {
            let what = if routing.mode == Mode::Pairs {
                "by the multipath route for hosts outside the plan"
            } else {
                "by hash"
            };
            format!("{what} (policy {}{seed}, hash {hash:#010x})", routing.policy.number())
        }
        By::Bucket(bucket) => format!(
            "by bucket {bucket} of a resilient group (policy {}{seed}), as long as no member has changed",
            routing.policy.number()
        ),
    }
}

fn show(plan: &Plan, flow: &Flow, prediction: &Prediction) -> VerbResult {
    let gateway = &plan.gateways[prediction.gateway];
    let (near, far) = (&gateway.ports[prediction.from], &gateway.ports[prediction.to]);
    let mut out = crate::out::stdout();
    writeln!(out, "Gateway   {}, {}", gateway.name, how(plan, &prediction.by))?;
    writeln!(
        out,
        "Forward   {} -> next hop {} on '{}' -> {}",
        flow.source, near.address, plan.networks[prediction.from].name, flow.destination
    )?;
    writeln!(
        out,
        "Return    {} -> next hop {} on '{}' -> {}",
        flow.destination, far.address, plan.networks[prediction.to].name, flow.source
    )?;
    Ok(Exit::Ok)
}

fn to_json(plan: &Plan, prediction: &Prediction) -> serde_json::Value {
    let gateway = &plan.gateways[prediction.gateway];
    let (by, backup, hash) = match &prediction.by {
        By::Pair { backup } => ("pair", Some(plan.gateways[*backup].name.as_str()), None),
        By::Hash(hash) => ("hash", None, Some(*hash)),
        By::Bucket(bucket) => ("bucket", None, Some(u32::from(*bucket))),
    };
    json!({
        "gateway": gateway.name,
        "by": by,
        "backup": backup,
        "value": hash,
        "next_hop_there": gateway.ports[prediction.from].address,
        "next_hop_back": gateway.ports[prediction.to].address,
    })
}
