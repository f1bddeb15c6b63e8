//! What a plan says about watching, as options of the crate `watch`.

use std::net::{IpAddr, SocketAddr};

use liveness::bfd::{self, Hops, SessionConfig};
use liveness::probe::Ports;
use liveness::siphash::Key;
use liveness::states::WatchConfig;
use route_plan::{Bfd, Gateway, Host, Plan, WatchMode};
use thiserror::Error;
use watch::{
    AnnounceOptions, BfdPeer, GatewayOptions, ReflectOptions, SentinelOptions, WatchOptions,
};

/// So many far hosts of each network are asked, so that one of them may be away.
const FAR_COUNT: usize = 2;
/// So many hosts of each network are its sentinels.
const SENTINELS_COUNT: usize = 2;
/// UDP port that sentinels' summaries come to.
const SENTINEL_PORT: u16 = 3997;
/// Between two summaries of a sentinel, milliseconds. Changed states are sent at once.
const SUMMARY_INTERVAL_MS: u32 = 500;
/// Between two own probes of a host whose sentinels are heard.
const RELAXED_NS: u64 = 1_000_000_000;
/// The hold-down doubles up to so many times the first.
const HOLD_DOWN_GROWTH: u64 = 32;
/// Of what a source sends when all is well, what a reflector answers: suspect gateways are asked more often.
const REFLECTED_SHARE: u64 = 8;
const RATE_MIN: u64 = 1000;

/// Between full-size probes, where rounds are not longer apart. An MTU black hole is detected this much later than a
/// dead gateway at most.
const FULL_INTERVAL_MS: u128 = 200;

/// Why a host cannot be watched from.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The plan has no host on another network.
    #[error("the plan '{0}' has no host on another network that could reflect probes")]
    NoFarHost(String),
    /// A name given for a far host is not one.
    #[error("'{name}' is not a host of the plan on another network than {host}")]
    NotFar {
        /// Name that the plan does not have.
        name: String,
        /// The host that watches.
        host: String,
    },
    /// BFD over several hops is asked for, and there is nobody to speak it with.
    #[error(
        "--bfd=multihop: no [[gateway]] of the plan has `bfd_peers` for '{network}', the network of {host}"
    )]
    NoBfdPeers {
        /// The host that watches.
        host: String,
        /// Its network.
        network: String,
    },
}

/// What the command line asks for beside the plan.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Names of the far hosts that reflect; none: two of each network.
    pub far: Vec<String>,
    /// Whom BFD is spoken with; `None`: as the plan says.
    pub bfd: Option<Bfd>,
    /// A full-size probe goes with every so many rounds; `None`: five times a second.
    pub full_every: Option<u32>,
    /// Names of gateways that were down when the last watcher ended.
    pub were_down: Vec<String>,
}

/// A number of the plan that probes carry: of its name, networks and gateways. Hosts may be added without it changing.
#[must_use]
pub fn plan_id(plan: &Plan) -> u64 {
    let mut text = plan.name.clone();
    for network in &plan.networks {
        text += &format!("\n{} {}", network.name, network.prefix);
    }
    for gateway in &plan.gateways {
        text += &format!("\n{}", gateway.name);
        for port in &gateway.ports {
            text += &format!(" {}", port.address);
        }
    }
    let tag = Key::new([0; 16]).tag(text.as_bytes());
    tag.iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte))
}

/// The hosts that reflect the probes of `host`: two of each other network, or those that are named.
///
/// # Errors
/// There is none, or a name is not a far host's.
pub fn far_hosts<'a>(
    plan: &'a Plan,
    host: &Host,
    names: &[String],
) -> Result<Vec<&'a Host>, OptionsError> {
    let mut found = Vec::new();
    for name in names {
        let far = plan.hosts.iter().find(|far| far.name == *name && far.network != host.network);
        let not_far = || OptionsError::NotFar { name: name.clone(), host: host.name.clone() };
        found.push(far.ok_or_else(not_far)?);
    }
    if names.is_empty() {
        for network in (0..plan.networks.len()).filter(|network| *network != host.network) {
            let all: Vec<&Host> = plan.hosts_of(network).collect();
            let first = host.number * FAR_COUNT;
            let chosen = (first..).take(FAR_COUNT.min(all.len()));
            found.extend(chosen.map(|number| all[number % all.len()]));
        }
    }
    if found.is_empty() { Err(OptionsError::NoFarHost(plan.name.clone())) } else { Ok(found) }
}

/// How a host of the plan watches its gateways.
///
/// # Errors
/// [`OptionsError`].
pub fn watch_options(
    plan: &Plan,
    host: &Host,
    key: Key,
    asked: &Asked,
) -> Result<WatchOptions, OptionsError> {
    let far = far_hosts(plan, host, &asked.far)?;
    let bfd = asked.bfd.unwrap_or(plan.watch.bfd);
    let gateways: Vec<GatewayOptions> = plan
        .gateways
        .iter()
        .map(|gateway| GatewayOptions {
            name: gateway.name.clone(),
            address: gateway.ports[host.network].address,
            is_probed: true,
            bfd: bfd_peer(plan, host, gateway, bfd),
        })
        .collect();
    if asked.bfd == Some(Bfd::Multihop) && gateways.iter().all(|gateway| gateway.bfd.is_none()) {
        let (host, network) = (host.name.clone(), plan.networks[host.network].name.clone());
        return Err(OptionsError::NoBfdPeers { host, network });
    }
    let interval_us = u32::try_from(plan.watch.interval.as_micros()).unwrap_or(u32::MAX).max(1);
    let (sentinels, announce) = sentinels(plan, host);
    Ok(WatchOptions {
        plan: plan.name.clone(),
        plan_id: plan_id(plan),
        key,
        ports: Ports::default(),
        interface: host.port.interface.clone(),
        near: host.port.address,
        far: far.iter().map(|far| far.port.address).collect(),
        gateways,
        timing: timing(plan, asked.full_every),
        bfd: SessionConfig {
            role: bfd::Role::Active,
            desired_min_tx_us: interval_us,
            required_min_rx_us: interval_us,
            detect_multiplier: plan.watch.multiplier,
        },
        were_down: asked.were_down.clone(),
        sentinels,
        announce,
        has_filters: plan.routing.follow == Some(host.network),
    })
}

/// Whom a host speaks BFD with about a gateway.
fn bfd_peer(plan: &Plan, host: &Host, gateway: &Gateway, bfd: Bfd) -> Option<BfdPeer> {
    match bfd {
        Bfd::Off => None,
        Bfd::OneHop => {
            Some(BfdPeer { address: gateway.ports[host.network].address, hops: Hops::One })
        }
        Bfd::Multihop => {
            let hops = Hops::Several { ttl_min: plan.watch.bfd_ttl_min };
            gateway.bfd_peers[host.network].map(|address| BfdPeer { address, hops })
        }
    }
}

fn timing(plan: &Plan, full_every: Option<u32>) -> WatchConfig {
    let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let hold_down_ns = ns(plan.watch.hold_down);
    let rounds = FULL_INTERVAL_MS / plan.watch.interval.as_millis().max(1);
    WatchConfig {
        full_every: full_every.unwrap_or(u32::try_from(rounds.max(1)).unwrap_or(1)),
        multiplier: plan.watch.multiplier.into(),
        up_after: plan.watch.up_after.into(),
        hold_down_ns,
        hold_down_max_ns: hold_down_ns.saturating_mul(HOLD_DOWN_GROWTH),
        ..WatchConfig::with_interval(ns(plan.watch.interval))
    }
}

/// In the mode `sentinel` the first hosts of each network tell the others of it what they see.
fn sentinels(plan: &Plan, host: &Host) -> (Option<SentinelOptions>, Option<AnnounceOptions>) {
    if plan.watch.mode != WatchMode::Sentinel {
        return (None, None);
    }
    let number = |host: &Host| u32::try_from(host.number).unwrap_or(u32::MAX);
    let of_network = || plan.hosts_of(host.network);
    if host.number < SENTINELS_COUNT {
        let others = of_network().filter(|other| other.number >= SENTINELS_COUNT);
        let hosts = others.map(|other| SocketAddr::new(other.port.address, SENTINEL_PORT));
        let interval_ms = SUMMARY_INTERVAL_MS;
        let number = number(host);
        return (None, Some(AnnounceOptions { number, interval_ms, hosts: hosts.collect() }));
    }
    let numbers = of_network().filter(|other| other.number < SENTINELS_COUNT).map(number);
    let (port, relaxed_ns) = (SENTINEL_PORT, RELAXED_NS);
    (Some(SentinelOptions { port, numbers: numbers.collect(), relaxed_ns }), None)
}

/// How a host of the plan reflects the probes of the hosts on other networks, and of nobody else.
#[must_use]
pub fn reflect_options(plan: &Plan, host: &Host, key: Key) -> ReflectOptions {
    let others = plan.hosts.iter().filter(|other| other.network != host.network);
    let sources: Vec<IpAddr> = others.map(|other| other.port.address).collect();
    let interval_us = plan.watch.interval.as_micros().max(1);
    let rounds_per_s = u64::try_from(1_000_000_u128.div_ceil(interval_us)).unwrap_or(u64::MAX);
    let rate = rounds_per_s.saturating_mul(plan.gateways.len() as u64 * REFLECTED_SHARE);
    let rate_per_s = u32::try_from(rate.max(RATE_MIN)).unwrap_or(u32::MAX);
    ReflectOptions {
        plan_id: plan_id(plan),
        key,
        ports: Ports::default(),
        interface: host.port.interface.clone(),
        address: host.port.address,
        sources,
        rate_per_s,
        burst_count: rate_per_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(more: &str) -> Plan {
        let text = format!(
            "name = \"p\"\n[network.c]\nprefix = \"10.1.0.0/16\"\n[network.s]\nprefix = \"10.2.0.0/24\"\n\
             [[gateway]]\nnames = \"g[1-3]\"\naddresses = {{ c = \"10.1.9.[1-3]\", s = \"10.2.0.[1-3]\" }}\n\
             interfaces = {{ c = \"a\", s = \"b\" }}\n\
             [hosts.c]\nnetwork = \"c\"\nnames = \"c[1-5]\"\naddresses = \"10.1.0.[1-5]\"\ninterface = \"a\"\n\
             [hosts.s]\nnetwork = \"s\"\nnames = \"s[1-3]\"\naddresses = \"10.2.0.[11-13]\"\ninterface = \"b\"\n{more}"
        );
        route_plan::parse_plan("p.toml", &text).unwrap()
    }

    fn names(plan: &Plan, host: &str, named: &[&str]) -> Result<Vec<String>, String> {
        let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
        let host = plan.hosts.iter().find(|one| one.name == host).unwrap();
        let far = far_hosts(plan, host, &named).map_err(|error| error.to_string())?;
        Ok(far.iter().map(|far| far.name.clone()).collect())
    }

    #[test]
    fn far_hosts_are_two_of_each_other_network_and_shared_out_or_those_named() {
        let plan = plan("");
        assert_eq!(names(&plan, "c1", &[]).unwrap(), ["s1", "s2"]);
        assert_eq!(names(&plan, "c2", &[]).unwrap(), ["s3", "s1"]);
        assert_eq!(names(&plan, "s3", &[]).unwrap(), ["c5", "c1"]);
        assert_eq!(names(&plan, "c1", &["s3"]).unwrap(), ["s3"]);
        let refused = names(&plan, "c1", &["c2"]).unwrap_err();
        assert_eq!(refused, "'c2' is not a host of the plan on another network than c1");
    }

    #[test]
    fn the_plans_numbers_are_the_watchers() {
        let plan = plan(
            "[watch]\ninterval = \"20ms\"\nmultiplier = 4\nhold_down = \"1s\"\nmode = \"sentinel\"\n",
        );
        let host = |name: &str| plan.hosts.iter().find(|one| one.name == name).unwrap();
        let of = |name| watch_options(&plan, host(name), Key::new([1; 16]), &Asked::default());
        let sentinel = of("c2").unwrap();
        assert_eq!(sentinel.timing.timeout_ns, 15_000_000);
        assert_eq!(sentinel.timing.full_every, 10);
        assert_eq!(
            (sentinel.timing.multiplier, sentinel.timing.hold_down_max_ns),
            (4, 32_000_000_000)
        );
        let announced = sentinel.announce.unwrap();
        assert_eq!((announced.number, announced.hosts.len()), (1, 3));
        let told = of("c3").unwrap();
        assert_eq!(told.sentinels.unwrap().numbers, [0, 1]);
        assert!(told.announce.is_none() && sentinel.sentinels.is_none());
        let reflected = reflect_options(&plan, host("s1"), Key::new([1; 16]));
        assert_eq!(reflected.sources.len(), 5);
        assert_eq!(reflected.rate_per_s, 50 * 3 * 8);
        let other = plan_id(&self::plan("[routing]\nmode = \"hash\"\n"));
        assert_eq!(plan_id(&plan), other, "modes and times are no matter of probes");
    }
}
