//! A model of 16 and 64 clients: how evenly their flows would use the paper's six gateways.

use results::PaperFigure;
use route_plan::{Counting, HashPolicy, Mode, Scale, balance, plan_of};

/// Number of gateways in the paper, and of storage servers.
const GATEWAYS_COUNT: usize = 6;
const SERVERS_COUNT: usize = 10;
/// Number of hash seeds; the median over them is reported.
const SEEDS_COUNT: u32 = 25;

/// Load of the busiest gateway over the mean, for hashed flows and for evenly assigned pairs of hosts; `None` if it
/// cannot be computed.
fn busiest(clients_count: usize) -> Option<(f64, f64)> {
    let of = |mode, seed| {
        let policy = HashPolicy::Ports;
        let scale = Scale {
            clients_count,
            servers_count: SERVERS_COUNT,
            gateways_count: GATEWAYS_COUNT,
            mode,
            policy,
            seed: Some(seed),
        };
        Some(balance(&plan_of(&scale).ok()?, &Counting::default()).ok()?.busiest)
    };
    let mut hashed: Vec<f64> = (1..=SEEDS_COUNT).filter_map(|seed| of(Mode::Hash, seed)).collect();
    hashed.sort_by(f64::total_cmp);
    Some((*hashed.get(hashed.len() / 2)?, of(Mode::Pairs, 1)?))
}

/// Rows of the table, and a sentence on what they mean for the total throughput.
pub(super) fn rows() -> (Vec<PaperFigure>, String) {
    let mut rows = Vec::new();
    let mut said = Vec::new();
    for clients in [1, 16, 64] {
        let Some((hashed, pairs)) = busiest(clients) else { continue };
        rows.push(PaperFigure {
            name: format!("model: {clients} clients, busiest of 6 gateways"),
            paper: "-".to_owned(),
            here: Some(format!("{hashed:.2} times the mean by hash, {pairs:.2} by pairs")),
        });
        said.push(format!("{:.0}% for {clients} clients", 100.0 / hashed));
    }
    let said = format!(
        "where gateways bind, a client that writes to all servers at once waits for the busiest gateway, so that hashing \
         leaves of their capacity about {}",
        said.join(", ")
    );
    (rows, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashing_uses_gateways_less_evenly_than_pairs_and_more_clients_help() {
        let [one, few, many] = [1, 16, 64].map(|clients| busiest(clients).expect("computed"));
        assert!(one.0 > few.0 && few.0 > many.0, "{one:?} {few:?} {many:?}");
        assert!([one, few, many].iter().all(|(hashed, pairs)| hashed >= pairs && *pairs >= 1.0));
        assert_eq!(rows().0.len(), 3);
    }
}
