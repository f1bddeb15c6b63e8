use super::*;
use crate::example::cumulus;
use crate::hash::HashPolicy;

#[test]
fn pairs_spread_as_evenly_as_whole_pairs_can() {
    let plan = cumulus("pairs");
    let balance = balance(&plan, &Counting::default()).unwrap();
    assert_eq!(balance.flows_count, 1120);
    assert_eq!(balance.loads.iter().sum::<u64>(), 1120);
    assert!(balance.busiest < 1.02, "{}", balance.busiest);
    // Ten servers over six gateways: two on the busiest.
    assert!((balance.sides[0].worst - 1.2).abs() < 1e-9);
    assert_eq!(balance.sides[0].fewest_gateways, 6);
}

/// The figures were measured with another program over the kernel's hash.
#[test]
fn hashing_spreads_one_client_s_flows_far_from_evenly() {
    let mut plan = cumulus("hash");
    plan.routing.policy = HashPolicy::Addresses;
    let medians: Vec<f64> = (1..=100)
        .map(|seed| {
            let counting = Counting { seed: Some(seed), ..Counting::default() };
            balance(&plan, &counting).unwrap().sides[0].median
        })
        .collect();
    let mean = medians.iter().sum::<f64>() / medians.len() as f64;
    assert!((1.8..2.4).contains(&mean), "{mean}");
}

#[test]
fn a_better_seed_is_found_where_the_seed_decides() {
    let mut plan = cumulus("hash");
    assert_eq!(search_seed(&plan, 10), Err(BalanceError::SeedDecidesNothing));
    plan.routing.policy = HashPolicy::Addresses;
    plan.hosts.retain(|host| host.network == 1 || host.number < 16);
    let found = search_seed(&plan, 1000).unwrap();
    assert!(found.balance.busiest < 1.12 && found.median > 1.15, "{found:?}");
    assert!(found.worst >= found.median);
    assert_eq!(search_seed(&cumulus("pairs"), 10), Err(BalanceError::SeedDecidesNothing));
}

#[test]
fn what_is_too_much_or_secret_is_refused() {
    let mut plan = cumulus("hash");
    let counting = Counting { flows_per_pair: 1_000_000, ..Counting::default() };
    assert_eq!(balance(&plan, &counting), Err(BalanceError::TooMany(1_120_000_000)));
    plan.routing.seed = None;
    assert_eq!(balance(&plan, &Counting::default()), Err(BalanceError::NoSeed));
}
