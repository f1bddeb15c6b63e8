//! A model of 16 and 64 clients on the paper's six gateways, from the rates that were measured here: what a client
//! moves by itself, what one gateway passes on, and how evenly hashed flows use gateways.

use results::PaperFigure;
use route_plan::{Counting, HashPolicy, Mode, Scale, balance, plan_of};

/// Number of gateways in the paper, and of storage servers.
const GATEWAYS_COUNT: usize = 6;
const SERVERS_COUNT: usize = 10;
/// Number of hash seeds; the median over them is reported.
const SEEDS_COUNT: u32 = 25;
/// Numbers of clients: what is measured, and the paper's.
const CLIENTS: [usize; 3] = [1, 16, 64];

/// Rates of one kind of access, bytes per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// Of one client, natively.
    pub(super) native: f64,
    /// Of one client through a gateway that does not cache.
    pub(super) projected: f64,
    /// The most that one gateway passed on to any number of clients.
    pub(super) gateway: f64,
}

/// Totals of many clients, bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Totals {
    hashed: f64,
    pairs: f64,
    projected: f64,
}

/// A client writes to all servers at once and waits for the busiest gateway. Projected clients are spread evenly over
/// the gateways.
fn totals(clients_count: usize, measured: &Measured, (hashed, pairs): (f64, f64)) -> Totals {
    let clients = clients_count as f64;
    let capacity = GATEWAYS_COUNT as f64 * measured.gateway;
    let native = |busiest: f64| (clients * measured.native).min(capacity / busiest);
    let projected = (clients * measured.projected).min(capacity);
    Totals { hashed: native(hashed), pairs: native(pairs), projected }
}

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

/// Rows of the table, and a sentence on the totals; without rates for an access that was not measured.
pub(super) fn rows(measured: &[(&str, Option<Measured>)]) -> (Vec<PaperFigure>, String) {
    let mut rows = Vec::new();
    let mut said = Vec::new();
    let mut row = |name: String, here: String| {
        rows.push(PaperFigure { name, paper: "-".to_owned(), here: Some(here) });
    };
    for clients in CLIENTS {
        let Some(uneven) = busiest(clients) else { continue };
        let (hashed, pairs) = uneven;
        row(
            format!("model: {}, busiest of 6 gateways", clients_text(clients)),
            format!("{hashed:.2} times the mean by hash, {pairs:.2} by pairs"),
        );
        for (access, rates) in measured {
            let Some(rates) = rates else { continue };
            let all = totals(clients, rates, uneven);
            let [hashed, pairs, projected] =
                [all.hashed, all.pairs, all.projected].map(super::judge::megabytes);
            row(
                format!("model: {access}, {}", clients_text(clients)),
                format!("native {hashed} by hash, {pairs} by pairs; projected {projected}"),
            );
            if clients > 1 {
                let ratio = all.hashed / all.projected;
                said.push(format!("{access} {clients} clients {ratio:.2}"));
            }
        }
    }
    let said = format!(
        "a client that uses all servers at once waits for the busiest of its gateways; native totals with hashed flows, in \
         times of projected ones that use all gateways evenly: {}",
        said.join(", ")
    );
    (rows, said)
}

fn clients_text(count: usize) -> String {
    if count == 1 { "1 client".to_owned() } else { format!("{count} clients") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Measured = Measured { native: 5e8, projected: 2e8, gateway: 2.5e8 };

    #[test]
    fn hashing_uses_gateways_less_evenly_than_pairs_and_more_clients_help() {
        let [one, few, many] = [1, 16, 64].map(|clients| busiest(clients).expect("computed"));
        assert!(one.0 > few.0 && few.0 > many.0, "{one:?} {few:?} {many:?}");
        assert!([one, few, many].iter().all(|(hashed, pairs)| hashed >= pairs && *pairs >= 1.0));
    }

    #[test]
    fn one_client_is_bound_by_itself_and_many_by_the_busiest_gateway() {
        let one = totals(1, &RATES, (1.8, 1.2));
        assert_eq!((one.hashed, one.projected), (5e8, 2e8));
        let many = totals(64, &RATES, (1.25, 1.0));
        assert_eq!(many, Totals { hashed: 1.2e9, pairs: 1.5e9, projected: 1.5e9 });
    }

    #[test]
    fn what_was_not_measured_gives_no_totals() {
        let (rows, said) = rows(&[("write", Some(RATES)), ("read", None)]);
        assert_eq!(rows.len(), 6);
        assert!(said.contains("write 16 clients 0.8") && !said.contains("read"), "{said}");
    }
}
