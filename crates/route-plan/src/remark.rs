//! What a plan allows and its author probably did not mean.

use crate::balance::unused_by_pairs;
use crate::hash::{HashPolicy, member_of, upper_bounds};
use crate::plan::{Mode, Plan};
use stats::Random;

/// Flows that show how much of a second tier is reached.
const PROBES_COUNT: u32 = 20_000;

/// Remarks on a plan, one line each.
pub(crate) fn remarks(plan: &Plan) -> Vec<String> {
    let mut remarks = Vec::new();
    for (index, network) in plan.networks.iter().enumerate() {
        if plan.hosts_of(index).next().is_none() {
            let name = &network.name;
            remarks
                .push(format!("the network '{name}' has no hosts: nothing is routed from there"));
        }
    }
    let routing = &plan.routing;
    if plan.gateways.len() == 1 {
        remarks.push("one gateway: nothing takes over when it fails".to_owned());
    }
    match routing.mode {
        Mode::Pairs => {
            let unused = unused_by_pairs(plan);
            if !unused.is_empty() {
                let names: Vec<&str> =
                    unused.iter().map(|&gateway| plan.gateways[gateway].name.as_str()).collect();
                let names = names.join(", ");
                remarks.push(format!("fewer pairs of hosts than gateways: {names} carry none"));
            }
        }
        Mode::Hash | Mode::Resilient(_) => hashing(plan, &mut remarks),
    }
    if let (Some(seed), true) = (routing.seed, routing.seed == routing.gateway_seed) {
        let reached = second_tier_reached(seed, seed, plan.gateways.len());
        remarks.push(format!(
            "polarisation: gateways hash with the seed of the hosts, so that a gateway's own multipath \
             routes over {} next hops would use {:.0} % of them; give gateways another seed, or none",
            plan.gateways.len(),
            reached * 100.0,
        ));
    }
    remarks
}

fn hashing(plan: &Plan, remarks: &mut Vec<String>) {
    if plan.routing.seed.is_none() {
        remarks.push(
            "no seed: each host hashes with a secret one of its own, so the two ends of a flow choose \
             different gateways and neither can be predicted"
                .to_owned(),
        );
    }
    match plan.routing.policy {
        HashPolicy::Addresses => remarks.push(
            "policy 0: all flows between two hosts take one gateway; one client never gets more from one \
             server than that gateway carries"
                .to_owned(),
        ),
        HashPolicy::Ports => remarks.push(
            "policy 1: since Linux 6.16 a TCP connection from a port that the kernel chose takes the \
             predicted gateway only after the next change of any route (settle); pairs need no hash"
                .to_owned(),
        ),
    }
}

/// The share of next hops that the flows of one gateway reach at a second tier of as many next hops, when the
/// tiers hash with these seeds. 1 with independent seeds, one over the number of next hops with equal ones.
#[must_use]
pub fn second_tier_reached(first_seed: u32, second_seed: u32, ways_count: usize) -> f64 {
    let bounds = upper_bounds(&vec![1; ways_count]);
    let mut reached = vec![false; ways_count];
    let mut random = Random::from_seed(1);
    for _flow in 0..PROBES_COUNT {
        let [a, b, c, d, ports @ ..] = random.bits().to_le_bytes();
        let [one, other, more, last] = ports;
        let flow = crate::hash::Flow::tcp(
            ([10, 0, a, b].into(), u16::from_le_bytes([one, other])),
            ([10, 1, c, d].into(), u16::from_le_bytes([more, last])),
        );
        let first = member_of(flow.hash(first_seed, HashPolicy::Ports), &bounds);
        let second = member_of(flow.hash(second_seed, HashPolicy::Ports), &bounds);
        if let (Some(0), Some(second)) = (first, second) {
            reached[second] = true;
        }
    }
    reached.iter().filter(|&&is_reached| is_reached).count() as f64 / ways_count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_at_two_tiers_polarise() {
        assert_eq!(second_tier_reached(7, 7, 10), 0.1);
        assert_eq!(second_tier_reached(7, 8, 10), 1.0);
    }
}
