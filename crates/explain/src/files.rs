//! File-system load: which limit binds it, from the counters of gateways, servers and clients.
//!
//! Pure rules over the counter differences in [`results::Carried`]. No experiment confirms anything here: each
//! verdict names the change that would.

use std::fmt::Write as _;

use results::{
    CachePlace, Carried, CarriedHost, CoreUse, Crossing, Evidence, Limit, Point, Results, Role,
    Verdict, Work,
};

use crate::numbers::percent;
use crate::verdict;

/// Least weight at which a limit is named.
const SUSPECTED: f64 = 0.35;
/// A core with a smaller idle share has no time left.
const IDLE_MAX: f64 = 0.05;
/// Share of a core's time in the kernel from which it is taken to forward packets.
const NETWORK_MIN: f64 = 0.3;
/// Share of the crossing packets dropped by a gateway from which drops cost throughput.
const DROPPED_MIN: f64 = 1e-4;
/// Load of the busiest gateway over the mean from which gateways count as unevenly used.
const UNEVEN_MIN: f64 = 1.2;

/// The documentation of one limit in `docs/limits.md`.
pub(crate) struct FilesPage {
    limit: Limit,
    title: &'static str,
    rows: [(&'static str, &'static str); 4],
}

/// Limits of file-system load, in the order in which they are examined. The cache comes first: it changes the
/// meaning of every other figure.
pub(crate) const PAGES: [FilesPage; 5] = [
    FilesPage {
        limit: Limit::FileCache,
        title: "a cache answered",
        rows: [
            (
                "Mechanism",
                "A client's page cache, or one of a host that forwards file operations, answers without contacting a server. The figure is the cache's, not the file system's.",
            ),
            (
                "Evidence",
                "Less than 0.9 of the bytes read or written crossed the clients' side of the gateways (the cache is at the client) or their servers' side (at the gateway); or fewer packets than a tenth of the calls.",
            ),
            ("Against it", "The bytes crossed both sides."),
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
            ("Mechanism", "A gateway's core is saturated, or its queues drop."),
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
                "More gateways; interrupts on more cores; weights by capacity, which `clearstream gateway weights PLAN` measures (PLAN: the plan's file).",
            ),
        ],
    },
    FilesPage {
        limit: Limit::FewFlows,
        title: "too few flows for so many gateways",
        rows: [
            (
                "Mechanism",
                "A pair of client and server, or a connection, takes one gateway. Few pairs leave gateways unused while another carries more than its share.",
            ),
            (
                "Evidence",
                "The busiest gateway carries at least 1.2 times the mean of all, and there are fewer than four pairs, or hashed connections, for each gateway.",
            ),
            ("Against it", "Gateways are used evenly, or there are many pairs."),
            (
                "Advice",
                "More clients or servers; `clearstream gateway plan PLAN --simulate --clients N` predicts how the flows of N clients spread (PLAN: the plan's file).",
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
         them; the advice says what would. `clearstream explain BEFORE --after AFTER` then judges that change: lower \
         rates beyond the noise confirm a cache that answers no longer, higher ones any other limit that was lifted. \
         The sizes are not judged, as nothing predicts them.\n",
    );
    for page in &PAGES {
        write!(text, "\n## `{}`: {}\n\n| | |\n|---|---|\n", page.limit.name(), page.title).ok();
        for (row, words) in page.rows {
            writeln!(text, "| {row} | {words} |").ok();
        }
    }
    text
}

/// How far a limit accounts for a point, with the line of evidence for or against it.
struct Opinion {
    limit: Limit,
    weight: f64,
    text: String,
}

/// The verdict on file-system load that was measured together with gateways; `None` for any other document.
pub(crate) fn explain(results: &Results) -> Option<Verdict> {
    let seen: Vec<(&Point, &Carried, Crossing)> = results
        .points
        .iter()
        .filter_map(|point| point.crossing().map(|(carried, crossing)| (point, carried, crossing)))
        .collect();
    let is_repeated = seen.iter().any(|(point, ..)| point.repeat > 0);
    let mut opinions: Vec<Opinion> = Vec::new();
    for page in &PAGES {
        let of_page = seen.iter().map(|(point, carried, crossing)| {
            let (weight, text) = weigh(page.limit, carried, crossing);
            let weight = if weight.is_nan() { 0.0 } else { weight.clamp(0.0, 1.0) };
            let text = format!("{}: {text}", of_phase(point, is_repeated));
            Opinion { limit: page.limit, weight, text }
        });
        let strongest =
            of_page.reduce(|best, one| if one.weight > best.weight { one } else { best });
        opinions.push(strongest?);
    }
    // The sort is stable: of equal weights the first in the table wins.
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
    let advice = page.map(|page| advice(page, results)).into_iter().collect();
    let plain = verdict::unproven(limit, None, summary, advice);
    Some(Verdict { evidence: found, ruled_out, ..plain })
}

/// `write`, or `write, repetition 2` where there are several; repeats are counted from 0.
fn of_phase(point: &Point, is_repeated: bool) -> String {
    let phase = point.experiment.strip_suffix("-0").unwrap_or(&point.experiment);
    match is_repeated {
        true => format!("{phase}, repetition {}", point.repeat.saturating_add(1)),
        false => phase.to_owned(),
    }
}

/// The advice of a page as a line of a verdict, which is no sentence, with the plan's file where the command that made the
/// results names it.
fn advice(page: &FilesPage, results: &Results) -> String {
    let sentence = page.rows[3].1.trim_end_matches('.');
    let mut letters = sentence.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    let advice: String = first.into_iter().chain(letters).collect();
    match plan_file(&results.command) {
        Some(file) => advice.replace(" (PLAN: the plan's file)", "").replace("PLAN", &file),
        None => advice,
    }
}

/// The value of `--gateways`, where it can stand in a command as it is.
fn plan_file(command: &[String]) -> Option<String> {
    let at = command.iter().position(|word| word.starts_with("--gateways"))?;
    let file = match command[at].split_once('=') {
        Some((_, file)) => file,
        None => command.get(at + 1)?,
    };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    let is_file = !file.is_empty() && !file.starts_with('-') && file.chars().all(is_plain);
    is_file.then(|| file.to_owned())
}

/// The options of a command line `PROGRAM [--json] VERB OPTIONS`, for the shell.
fn options_of(verb: &str, command: &[String]) -> String {
    let mut words = command.iter().skip_while(|word| *word != verb).skip(1).peekable();
    if words.peek().is_none() {
        return "OPTIONS".to_owned();
    }
    words.map(|word| settings::word(word)).collect::<Vec<_>>().join(" ")
}

/// The answer on file-system load during which no gateway was watched; `None` for any other document.
pub(crate) fn unwatched(results: &Results) -> Option<Verdict> {
    let is_load = |point: &Point| {
        matches!(point.work, Work::FileIo(_) | Work::FileMetadata(_) | Work::FileLocks(_))
    };
    let first = results.points.first().filter(|_| results.points.iter().all(is_load))?;
    let is_locks = results.points.iter().all(|point| matches!(point.work, Work::FileLocks(_)));
    let (summary, advice) = if is_locks {
        let summary = "a test of file locks: it has no throughput that a limit could explain";
        (summary, Vec::new())
    } else {
        let verb = if matches!(first.work, Work::FileMetadata(_)) { "meta" } else { "io" };
        let again = format!(
            "where the files are behind gateways, repeat it with their counters: `clearstream {verb} --gateways PLAN {}` \
             (PLAN: the file of the gateway plan, on whose hosts the ranks must run)",
            options_of(verb, &results.command)
        );
        let summary = "a file-system load whose limit is not known: no counters of gateways and servers were recorded";
        (summary, vec![again])
    };
    Some(verdict::unproven(Limit::NoneFound, None, summary.to_owned(), advice))
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

/// Weighs a full core at a host of this role; `weight` is what one counts, 0 to 1.
fn of_hosts(carried: &Carried, role: Role, weight: f64) -> (f64, String) {
    let name = match &role {
        Role::Gateway => "gateway",
        Role::Storage => "server",
        _client => "client",
    };
    if shares_cores(carried) {
        return (
            0.0,
            format!(
                "all hosts share the cores of one machine, which do not show how busy a {name} is"
            ),
        );
    }
    let busy = |use_: &CoreUse| 1.0 - use_.idle;
    // A host that carried next to nothing is not what the load waited for.
    let bytes = |host: &CarriedHost| -> u64 {
        let counters = host.ports.iter().map(|port| &port.counters);
        counters.map(|all| all.rx_bytes.saturating_add(all.tx_bytes)).sum()
    };
    let (sum, count) =
        carried.of_role(role.clone()).fold((0, 0), |(sum, count): (u64, u64), host| {
            (sum.saturating_add(bytes(host)), count + 1)
        });
    let has_part = |host: &&CarriedHost| bytes(host) >= sum / count.max(1) / 2;
    let cores = carried
        .of_role(role.clone())
        .filter(has_part)
        .filter_map(|host| Some((host, host.busiest_core?)));
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

/// Whether the hosts are on one machine: that was recorded, or a gateway and a server report the same core.
fn shares_cores(carried: &Carried) -> bool {
    if carried.shares_cores {
        return true;
    }
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
    // Where connections are hashed, each of them takes one gateway, else each pair of hosts.
    let (flows, noun) = match carried.flows.len() {
        0 => (carried.connections.len(), "connections"),
        pairs => (pairs, "pairs of client and server"),
    };
    let line = format!(
        "{used} of {gateways_count} gateways carried at least half of an equal share each, and the busiest \
         {imbalance:.2} equal shares; {flows} {noun}"
    );
    // Where neither is known, unused gateways show that the flows are few.
    let is_few = if flows > 0 { flows < 4 * gateways_count } else { used < gateways_count };
    let is_uneven = imbalance >= UNEVEN_MIN && is_few;
    (if is_uneven { (0.35 + 0.5 * (1.0 - 1.0 / imbalance)).min(0.75) } else { 0.0 }, line)
}
