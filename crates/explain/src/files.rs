//! File-system load: what binds it, from what gateways, servers and clients carried meanwhile.
//!
//! Pure rules over the raw gains of counters in [`results::Carried`]. Nothing is confirmed by an experiment here: each
//! verdict names the change that would.

use std::fmt::Write as _;

use results::{
    CachePlace, Carried, CoreUse, Crossing, Evidence, Limit, Point, Results, Role, Verdict,
};

use crate::numbers::percent;

/// Least weight at which a limit is named.
const SUSPECTED: f64 = 0.35;
/// A core with less idle time has none left.
const IDLE_MAX: f64 = 0.05;
/// Of a core's time, spent on the network's behalf: that much is forwarding or serving, not something else.
const NETWORK_MIN: f64 = 0.3;
/// Of the packets that crossed, dropped by a gateway: from here on it costs throughput.
const DROPPED_MIN: f64 = 1e-4;
/// The busiest gateway by the mean: from here on gateways are used unevenly.
const UNEVEN_MIN: f64 = 1.2;

/// One limit's documentation: what `docs/limits.md` says of it.
pub(crate) struct FilesPage {
    limit: Limit,
    title: &'static str,
    rows: [(&'static str, &'static str); 4],
}

/// Limits of file-system load, in the order in which they are looked at: a cache makes every other figure mean
/// something else.
pub(crate) const PAGES: [FilesPage; 5] = [
    FilesPage {
        limit: Limit::FileCache,
        title: "a cache answered",
        rows: [
            (
                "Mechanism",
                "A client's page cache, or one of a host that forwards file operations, answers without asking a server. The figure is the cache's, not the file system's.",
            ),
            (
                "Evidence",
                "Less than 0.9 of the bytes read or written crossed the clients' side of the gateways (the cache is at the client) or their servers' side (at the gateway); or fewer packets than a tenth of the calls.",
            ),
            ("Against it", "The bytes crossed."),
            (
                "Advice",
                "Read what another client wrote (`-C` with ranks on several clients), more than the cache holds, or with O_DIRECT; `-e` for writing. A gateway's cache is not defeated from the client.",
            ),
        ],
    },
    FilesPage {
        limit: Limit::Gateway,
        title: "a gateway",
        rows: [
            ("Mechanism", "A gateway has no time left to forward, or its queues drop."),
            (
                "Evidence",
                "Packets dropped at its interfaces; a core without idle time that works for the network.",
            ),
            (
                "Against it",
                "No drops, and its cores have time. Where gateways share their cores with clients (a lab on one machine), cores say nothing.",
            ),
            (
                "Advice",
                "More gateways; interrupts on more cores; `clearstream gateway weights` by capacity.",
            ),
        ],
    },
    FilesPage {
        limit: Limit::FewFlows,
        title: "too few flows for so many gateways",
        rows: [
            (
                "Mechanism",
                "A pair of client and server, or a connection, takes one gateway. Few pairs leave gateways unused while another carries more than its part.",
            ),
            (
                "Evidence",
                "The busiest gateway carries at least 1.2 times the mean of all, and there are fewer than four pairs for each gateway.",
            ),
            ("Against it", "Gateways are used evenly, or there are many pairs."),
            (
                "Advice",
                "More clients or servers; `clearstream gateway plan --simulate` says what to expect of N clients.",
            ),
        ],
    },
    FilesPage {
        limit: Limit::StorageServer,
        title: "a server",
        rows: [
            ("Mechanism", "A server has no time left."),
            ("Evidence", "A core of a server without idle time."),
            ("Against it", "Its cores have time, or are those of the clients."),
            ("Advice", "More servers, or files spread over more of them."),
        ],
    },
    FilesPage {
        limit: Limit::ClientCore,
        title: "a client's core",
        rows: [
            (
                "Mechanism",
                "The client of the file system, or the application, has no time left on the core it runs on.",
            ),
            ("Evidence", "A core of a client without idle time."),
            ("Against it", "Its cores have time, or are those of the servers."),
            ("Advice", "More ranks on more cores, larger transfers, more clients."),
        ],
    },
];

/// The sections of `docs/limits.md` about files.
pub(crate) fn pages() -> String {
    let mut text = String::from(
        "\n# The limits of file-system load\n\n`clearstream explain` names one of these for results of \
         `clearstream io` and `meta` that were joined with a gateway plan (`--gateways`). No experiment confirms \
         them; the advice says what would.\n",
    );
    for page in &PAGES {
        write!(text, "\n## `{}`: {}\n\n| | |\n|---|---|\n", page.limit.name(), page.title).ok();
        for (row, words) in page.rows {
            writeln!(text, "| {row} | {words} |").ok();
        }
    }
    text
}

/// How far a limit accounts for a point, and the line for or against it.
struct Opinion {
    limit: Limit,
    weight: f64,
    text: String,
}

/// The verdict of a document of file-system load that was joined with gateways; `None` for any other.
pub(crate) fn explain(results: &Results) -> Option<Verdict> {
    let seen: Vec<(&Point, &Carried, Crossing)> = results
        .points
        .iter()
        .filter_map(|point| point.crossing().map(|(carried, crossing)| (point, carried, crossing)))
        .collect();
    let mut opinions: Vec<Opinion> = Vec::new();
    for page in &PAGES {
        let of_page = seen.iter().map(|(point, carried, crossing)| {
            let (weight, text) = weigh(page.limit, carried, crossing);
            let weight = if weight.is_nan() { 0.0 } else { weight.clamp(0.0, 1.0) };
            let text = format!("{} {}: {text}", point.experiment, point.repeat);
            Opinion { limit: page.limit, weight, text }
        });
        let strongest =
            of_page.reduce(|best, one| if one.weight > best.weight { one } else { best });
        opinions.push(strongest?);
    }
    // The first of equals: a stable sort keeps the order of the table.
    opinions.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    let (found, others): (Vec<_>, Vec<_>) =
        opinions.into_iter().partition(|opinion| opinion.weight >= SUSPECTED);
    let evidence = |opinion: Opinion| Evidence {
        limit: opinion.limit,
        text: opinion.text,
        weight: opinion.weight,
    };
    let found: Vec<Evidence> = found.into_iter().map(evidence).collect();
    let ruled_out = others.into_iter().map(evidence).collect();
    let limit = found.first().map_or(Limit::NoneFound, |first| first.limit);
    let page = PAGES.iter().find(|page| page.limit == limit);
    let summary = match (page, found.first()) {
        (Some(page), Some(first)) => format!("{}; {}", page.title, first.text),
        _none => "gateways, servers and clients had room, as far as their counters tell".to_owned(),
    };
    Some(Verdict {
        limit,
        end: None,
        summary,
        evidence: found,
        confirmed: false,
        confirmation: None,
        host_change: None,
        changes: Vec::new(),
        advice: page.map(|page| page.rows[3].1.to_owned()).into_iter().collect(),
        next: None,
        ruled_out,
    })
}

fn weigh(limit: Limit, carried: &Carried, crossing: &Crossing) -> (f64, String) {
    match limit {
        Limit::FileCache => cache(crossing),
        Limit::Gateway => gateway(carried, crossing),
        Limit::FewFlows => few_flows(carried, crossing),
        Limit::StorageServer => of_hosts(carried, Role::Storage, 0.6),
        _client => of_hosts(carried, Role::Client, 0.5),
    }
}

fn cache(crossing: &Crossing) -> (f64, String) {
    let crossed = crossing.amplification.map_or_else(
        || "too few packets crossed for so many calls".to_owned(),
        |times| {
            format!(
                "{times:.2} times the bytes of the load crossed the gateways' side of the clients"
            )
        },
    );
    match crossing.cached {
        Some(CachePlace::Client) => (1.0, format!("cached at the client: {crossed}")),
        Some(CachePlace::Gateway) => {
            let at_servers: u64 = crossing.gateways.iter().map(|one| one.server_side_bytes).sum();
            let part = at_servers as f64 / crossing.load.max(1) as f64;
            (
                1.0,
                format!(
                    "cached at the gateway: {crossed}, and {part:.2} times that of the servers"
                ),
            )
        }
        None if crossing.amplification.is_some() => (0.0, crossed),
        None => (0.0, "no cache is seen".to_owned()),
    }
}

fn gateway(carried: &Carried, crossing: &Crossing) -> (f64, String) {
    let dropped: u64 = crossing.gateways.iter().map(|one| one.drops_count).sum();
    let packets: u64 = crossing.gateways.iter().map(|one| one.client_side_pkts).sum();
    let part = dropped as f64 / packets.max(1) as f64;
    if dropped > 0 && part >= DROPPED_MIN {
        let worst = crossing.gateways.iter().max_by_key(|one| one.drops_count);
        let name = worst.map_or("", |one| one.gateway.as_str());
        return (
            0.9,
            format!("gateways dropped {dropped} packets ({}), most of them {name}", percent(part)),
        );
    }
    of_hosts(carried, Role::Gateway, 0.8)
}

/// A core without time left at a host of this role.
fn of_hosts(carried: &Carried, role: Role, weight: f64) -> (f64, String) {
    let name = match &role {
        Role::Gateway => "gateway",
        Role::Storage => "server",
        _client => "client",
    };
    if shares_cores(carried) {
        return (
            0.0,
            format!("{name}: all hosts are on the cores of one machine, which say nothing of one"),
        );
    }
    let busy = |use_: &CoreUse| 1.0 - use_.idle;
    let cores = carried.of_role(role.clone()).filter_map(|host| Some((host, host.busiest_core?)));
    let busiest = cores
        .filter(|(_, core)| core.idle.is_finite())
        .max_by(|one, other| busy(&one.1).total_cmp(&busy(&other.1)));
    let Some((host, core)) = busiest else {
        return (0.0, format!("{name}: no core was seen"));
    };
    let line = format!(
        "{name} {}: core {} was busy {} of the time",
        host.host,
        core.core,
        percent(busy(&core))
    );
    let forwards = core.softirq + core.irq + core.system >= NETWORK_MIN;
    let is_full = core.idle <= IDLE_MAX && (role != Role::Gateway || forwards);
    (if is_full { weight } else { 0.0 }, line)
}

/// Whether hosts of different roles tell the very same core: they are on one machine.
fn shares_cores(carried: &Carried) -> bool {
    let first = |role| carried.of_role(role).find_map(|host| host.busiest_core);
    let (gateway, storage) = (first(Role::Gateway), first(Role::Storage));
    gateway.is_some() && gateway == storage
}

fn few_flows(carried: &Carried, crossing: &Crossing) -> (f64, String) {
    let gateways_count = crossing.gateways.len();
    let Some(imbalance) = crossing.imbalance.filter(|_| gateways_count > 1) else {
        return (0.0, "flows: there is one gateway, or nothing crossed".to_owned());
    };
    let fair = 1.0 / gateways_count as f64;
    let used = crossing.gateways.iter().filter(|one| one.share >= fair / 2.0).count();
    let pairs = carried.flows.len();
    let line = format!(
        "{used} of {gateways_count} gateways carried half their part or more, the busiest {imbalance:.2} times the \
         mean; {pairs} pairs of client and server"
    );
    // Where the plan does not tell pairs, unused gateways do.
    let is_few = if pairs > 0 { pairs < 4 * gateways_count } else { used < gateways_count };
    let is_uneven = imbalance >= UNEVEN_MIN && is_few;
    (if is_uneven { (0.35 + 0.5 * (1.0 - 1.0 / imbalance)).min(0.75) } else { 0.0 }, line)
}
