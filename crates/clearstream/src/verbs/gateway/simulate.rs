//! `clearstream gateway plan --simulate`: how flows would spread with other numbers of hosts and gateways.

use std::io::Write;

use route_plan::{Balance, Counting, HashPolicy, Mode, Plan, Scale, balance, plan_of};
use serde_json::json;

use super::plan::print_json;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// Seeds tried if the plan has none.
const SEEDS_COUNT: u32 = 20;

/// Options of a simulation.
#[derive(Debug, clap::Args)]
pub(super) struct SimulationOptions {
    /// Count the flows for other numbers of hosts and gateways, in the plan's mode.
    #[arg(long)]
    simulate: bool,
    /// Hosts of the first network [default: the plan's].
    #[arg(long, value_name = "N", requires = "simulate")]
    clients: Option<usize>,
    /// Hosts of the second network [default: the plan's].
    #[arg(long, value_name = "N", requires = "simulate")]
    servers: Option<usize>,
    /// Gateways of equal weight [default: the plan's].
    #[arg(long, value_name = "N", requires = "simulate")]
    gateways: Option<usize>,
    /// Connections of each pair of hosts.
    #[arg(long, value_name = "N", requires = "simulate", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    flows: u32,
}

impl SimulationOptions {
    pub(super) fn is_wanted(&self) -> bool {
        self.simulate
    }
}

/// Runs a simulation: in the plan's mode and, for comparison, in the two others.
pub(super) fn run(options: &SimulationOptions, plan: &Plan, json: bool) -> VerbResult {
    let scale = Scale {
        clients_count: options.clients.unwrap_or_else(|| plan.hosts_of(0).count()),
        servers_count: options.servers.unwrap_or_else(|| plan.hosts_of(1).count()),
        gateways_count: options.gateways.unwrap_or(plan.gateways.len()),
        mode: plan.routing.mode,
        policy: plan.routing.policy,
        seed: None,
    };
    let modes = [
        ("pairs", Mode::Pairs, HashPolicy::Ports),
        ("hash, policy 1", Mode::Hash, HashPolicy::Ports),
        ("hash, policy 0", Mode::Hash, HashPolicy::Addresses),
    ];
    let mut rows = Vec::new();
    for (name, mode, policy) in modes {
        let seeds: Vec<u32> = match (mode, plan.routing.seed) {
            (Mode::Pairs, _) => vec![1],
            (_, Some(seed)) => vec![seed],
            (_, None) => (1..=SEEDS_COUNT).collect(),
        };
        let simulated = plan_of(&Scale { mode, policy, ..scale }).map_err(VerbError::usage)?;
        let counted = |&seed: &u32| {
            let counting = Counting {
                flows_per_pair: options.flows,
                seed: Some(seed),
                ports_seed: seed.into(),
            };
            balance(&simulated, &counting).map_err(|error| VerbError::usage(&error))
        };
        let mut balances: Vec<Balance> = seeds.iter().map(counted).collect::<Result<_, _>>()?;
        balances.sort_by(|one, other| one.busiest.total_cmp(&other.busiest));
        rows.push((name, seeds.len(), balances));
    }
    if json {
        let rows: Vec<_> =
            rows.iter().map(|(name, _, balances)| row_json(name, balances)).collect();
        return print_json(&json!({
            "clients": scale.clients_count,
            "servers": scale.servers_count,
            "gateways": scale.gateways_count,
            "flows_per_pair": options.flows,
            "modes": rows,
        }));
    }
    show(&scale, options.flows, &rows)
}

fn row_json(name: &str, balances: &[Balance]) -> serde_json::Value {
    let middle = &balances[balances.len() / 2];
    json!({
        "mode": name,
        "seeds": balances.len(),
        "busiest_over_share_median": middle.busiest,
        "busiest_over_share_worst": balances.last().map(|worst| worst.busiest),
        "client_busiest_over_share_median": middle.sides.first().map(|side| side.median),
        "client_busiest_over_share_worst": middle.sides.first().map(|side| side.worst),
    })
}

fn show(scale: &Scale, flows: u32, rows: &[(&str, usize, Vec<Balance>)]) -> VerbResult {
    let mut out = crate::out::stdout();
    let heading = format!(
        "{} clients x {} servers, {} per pair, over {} gateways; load of the busiest gateway \
         relative to its share:",
        scale.clients_count,
        scale.servers_count,
        units::show_count_of(u64::from(flows), "flow"),
        scale.gateways_count
    );
    write!(out, "{}", crate::tables::labelled("", &heading))?;
    let mut table = format!(
        "{:<16} {:>6} {:>8} {:>8} {:>14} {:>13}\n",
        "mode", "seeds", "median", "worst", "client median", "client worst"
    );
    for (name, seeds_count, balances) in rows {
        let middle = &balances[balances.len() / 2];
        let worst = balances.last().map_or(1.0, |balance| balance.busiest);
        let client = middle.sides.first();
        table += &format!(
            "{name:<16} {seeds_count:>6} {:>8.3} {worst:>8.3} {:>14.2} {:>13.2}\n",
            middle.busiest,
            client.map_or(1.0, |side| side.median),
            client.map_or(1.0, |side| side.worst),
        );
    }
    write!(out, "{}", crate::tables::fit(&table))?;
    Ok(Exit::Ok)
}
