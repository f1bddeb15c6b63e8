//! How evenly a plan's flows spread over its gateways, before a packet is sent.

use stats::Random;
use thiserror::Error;

use crate::assign::Assignment;
use crate::hash::bucket_shares;
use crate::plan::{Host, Mode, Plan};
use crate::predict::Chooser;

/// Flows that are counted at most.
pub const FLOWS_COUNT_MAX: u64 = 100_000_000;
/// First port that clients take by themselves, and how many there are (`ip_local_port_range`).
const PORTS: (u16, u64) = (32_768, 28_232);
/// The port that flows go to; which one it is does not matter to a hash.
const SERVER_PORT: u16 = 1191;

/// How flows are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counting {
    /// Flows of each pair of hosts.
    pub flows_per_pair: u32,
    /// A seed in place of the plan's.
    pub seed: Option<u32>,
    /// Seed of the ports that clients take.
    pub ports_seed: u64,
}

impl Default for Counting {
    fn default() -> Self {
        Self { flows_per_pair: 1, seed: None, ports_seed: 1 }
    }
}

/// The flows of all pairs of hosts, by gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Balance {
    /// Flows in all.
    pub flows_count: u64,
    /// Flows of each gateway.
    pub loads: Vec<u64>,
    /// Flows of the busiest gateway over its share by weight; 1 is even.
    pub busiest: f64,
    /// The same, host by host, for each network that has hosts.
    pub sides: Vec<Side>,
}

/// How evenly the hosts of a network use the gateways, each by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    /// Index of the network.
    pub network: usize,
    /// Median over hosts of the busiest gateway's flows over its share.
    pub median: f64,
    /// Figure of the worst host.
    pub worst: f64,
    /// Name of the worst host.
    pub worst_host: String,
    /// Fewest gateways that one host uses.
    pub fewest_gateways: usize,
    /// Hosts that use no more gateways than that.
    pub hosts_with_fewest: usize,
}

/// Why flows cannot be counted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BalanceError {
    /// More flows than [`FLOWS_COUNT_MAX`].
    #[error("{0} flows are too many; at most {FLOWS_COUNT_MAX} can be counted")]
    TooMany(u64),
    /// The kernel's own seed is secret.
    #[error("this mode hashes flows and the plan has no seed: add `seed` to [routing]")]
    NoSeed,
    /// The seed decides nothing.
    #[error(
        "a seed can be searched only where it alone decides: mode = \"hash\" or \"resilient\" \
         with policy = 0"
    )]
    SeedDecidesNothing,
}

/// Counts the flows of all pairs of hosts of different networks.
///
/// # Errors
/// There are too many of them, or the seed they are hashed with is not known.
pub fn balance(plan: &Plan, counting: &Counting) -> Result<Balance, BalanceError> {
    let flows_count = pairs_count(plan).saturating_mul(counting.flows_per_pair.into());
    if flows_count > FLOWS_COUNT_MAX {
        return Err(BalanceError::TooMany(flows_count));
    }
    let chooser = Chooser::new(plan, counting.seed);
    let mut ports = Random::from_seed(counting.ports_seed);
    let mut counts: Vec<Vec<u32>> = vec![vec![0; plan.gateways.len()]; plan.hosts.len()];
    let by_network = |network: usize| -> Vec<(usize, &Host)> {
        plan.hosts.iter().enumerate().filter(|(_, host)| host.network == network).collect()
    };
    for near in 0..plan.networks.len() {
        for far in near + 1..plan.networks.len() {
            let servers = by_network(far);
            for (client_at, client) in by_network(near) {
                for (server_at, server) in &servers {
                    for _flow in 0..counting.flows_per_pair {
                        let port =
                            if chooser.heeds_ports() { any_port(&mut ports) } else { PORTS.0 };
                        let gateway = chooser
                            .gateway(client, server, [port, SERVER_PORT])
                            .ok_or(BalanceError::NoSeed)?;
                        counts[client_at][gateway] += 1;
                        counts[*server_at][gateway] += 1;
                    }
                }
            }
        }
    }
    Ok(summary(plan, flows_count, &counts))
}

/// Pairs of hosts of different networks.
#[must_use]
pub fn pairs_count(plan: &Plan) -> u64 {
    let counts: Vec<u64> =
        (0..plan.networks.len()).map(|network| plan.hosts_of(network).count() as u64).collect();
    let total: u64 = counts.iter().sum();
    counts.iter().map(|&count| count * (total - count)).sum::<u64>() / 2
}

fn any_port(random: &mut Random) -> u16 {
    PORTS.0.saturating_add(u16::try_from(random.below(PORTS.1)).unwrap_or(0))
}

fn summary(plan: &Plan, flows_count: u64, counts: &[Vec<u32>]) -> Balance {
    let weights = plan.weights();
    let mut loads = vec![0_u64; weights.len()];
    for host in counts {
        loads.iter_mut().zip(host).for_each(|(load, &flows)| *load += u64::from(flows));
    }
    // Every flow was counted at both of its ends.
    loads.iter_mut().for_each(|load| *load /= 2);
    let mut sides = Vec::new();
    for network in 0..plan.networks.len() {
        let mut hosts: Vec<(f64, usize, &str)> = plan
            .hosts
            .iter()
            .zip(counts)
            .filter(|(host, _)| host.network == network)
            .map(|(host, flows)| {
                let flows: Vec<u64> = flows.iter().map(|&flows| flows.into()).collect();
                let used = flows.iter().filter(|&&flows| flows > 0).count();
                (busiest(&flows, &weights), used, host.name.as_str())
            })
            .collect();
        hosts.sort_by(|one, other| one.0.total_cmp(&other.0));
        let fewest = hosts.iter().map(|(_, used, _)| *used).min();
        let (Some((worst, _, name)), Some(fewest)) = (hosts.last(), fewest) else { continue };
        sides.push(Side {
            network,
            median: hosts[hosts.len() / 2].0,
            worst: *worst,
            worst_host: (*name).to_owned(),
            fewest_gateways: fewest,
            hosts_with_fewest: hosts.iter().filter(|(_, used, _)| *used == fewest).count(),
        });
    }
    Balance { flows_count, busiest: busiest(&loads, &weights), loads, sides }
}

/// The greatest load over its share by weight; 1 without load.
fn busiest(loads: &[u64], weights: &[u16]) -> f64 {
    let flows: u64 = loads.iter().sum();
    let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    if flows == 0 {
        return 1.0;
    }
    let relative =
        |(&load, &weight): (&u64, &u16)| load as f64 / (flows as f64 * f64::from(weight) / total);
    loads.iter().zip(weights).map(relative).fold(0.0, f64::max)
}

/// The seed under which known pairs of hosts spread best.
#[derive(Debug, Clone, PartialEq)]
pub struct SeedSearch {
    /// The best seed.
    pub seed: u32,
    /// The balance with it.
    pub balance: Balance,
    /// Median of the busiest gateway over its share, over all seeds that were tried.
    pub median: f64,
    /// The worst of them.
    pub worst: f64,
}

/// Tries the seeds 1 to `seeds_count`: the least load of the busiest gateway, then the best of the worst hosts.
/// Only where the seed alone decides: the addresses are hashed, not the ports.
///
/// # Errors
/// The seed decides nothing, or there is too much to count.
pub fn search_seed(plan: &Plan, seeds_count: u32) -> Result<SeedSearch, BalanceError> {
    if plan.routing.mode == Mode::Pairs || Chooser::new(plan, None).heeds_ports() {
        return Err(BalanceError::SeedDecidesNothing);
    }
    let work = pairs_count(plan).saturating_mul(seeds_count.into());
    if work > FLOWS_COUNT_MAX {
        return Err(BalanceError::TooMany(work));
    }
    let mut tried: Vec<f64> = Vec::new();
    let mut best: Option<(f64, f64, u32, Balance)> = None;
    for seed in 1..=seeds_count.max(1) {
        let balance = balance(plan, &Counting { seed: Some(seed), ..Counting::default() })?;
        tried.push(balance.busiest);
        let worst_host = balance.sides.iter().map(|side| side.worst).fold(0.0, f64::max);
        let is_better = best
            .as_ref()
            .is_none_or(|(busiest, host, ..)| (balance.busiest, worst_host) < (*busiest, *host));
        if is_better {
            best = Some((balance.busiest, worst_host, seed, balance));
        }
    }
    tried.sort_by(f64::total_cmp);
    let (_, _, seed, balance) = best.ok_or(BalanceError::SeedDecidesNothing)?;
    let worst = tried.last().copied().unwrap_or(1.0);
    Ok(SeedSearch { seed, balance, median: tried[tried.len() / 2], worst })
}

/// Gateways whose weight rounds to nothing although there are enough pairs or buckets to go round, each with
/// what it would get.
#[must_use]
pub(crate) fn smallest_shares(plan: &Plan) -> Vec<(usize, String)> {
    match plan.routing.mode {
        Mode::Hash => Vec::new(),
        Mode::Resilient(buckets) => {
            let shares = bucket_shares(&plan.weights(), buckets.count);
            let empty = shares.iter().enumerate().filter(|(_, share)| **share == 0);
            empty.map(|(gateway, _)| (gateway, format!("0 of {} buckets", buckets.count))).collect()
        }
        Mode::Pairs => {
            let pairs = pairs_count(plan);
            if pairs < plan.gateways.len() as u64 {
                return Vec::new();
            }
            let unused = unused_by_pairs(plan).into_iter();
            unused.map(|gateway| (gateway, format!("none of {pairs} pairs"))).collect()
        }
    }
}

/// Gateways that no pair of the plan's hosts names.
#[must_use]
pub(crate) fn unused_by_pairs(plan: &Plan) -> Vec<usize> {
    let assignment = Assignment::new(&plan.weights());
    let counts: Vec<usize> =
        (0..plan.networks.len()).map(|network| plan.hosts_of(network).count()).collect();
    let mut unused: Vec<usize> = (0..plan.gateways.len()).collect();
    for near in 0..counts.len() {
        for far in near + 1..counts.len() {
            let here = assignment.unused(counts[near], counts[far]);
            unused.retain(|gateway| here.contains(gateway));
        }
    }
    unused
}

#[cfg(test)]
mod tests;
