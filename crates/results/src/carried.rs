//! What gateways, servers and clients carried while files were written or read: raw gains of their counters, and what
//! follows from them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::{CoreUse, DeviceCounters};
use crate::hosts::Role;
use crate::point::Point;
use crate::work::Work;

/// Of the bytes that a load moved, at least this part crosses the gateways unless a cache kept the rest away.
const CROSSED_MIN: f64 = 0.9;
/// Of the calls on files, at least this part makes a packet of its own; several may share one.
const CALLS_CROSSED_MIN: f64 = 0.1;

/// Counter increments during a phase, at the hosts of a gateway plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Carried {
    /// Name of the plan.
    pub plan: String,
    /// Gateways first, then servers, then clients, each in the plan's order.
    pub hosts: Vec<CarriedHost>,
    /// Which gateway carries which pair of hosts; empty where that depends on ports.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub flows: Vec<CarriedFlow>,
    /// TCP connections between clients, gateways and servers that moved bytes and were established at the end, the
    /// busiest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub connections: Vec<CarriedConnection>,
    /// How many more connections moved bytes.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub connections_left_out_count: u64,
    /// Hosts whose counters could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub absent: Vec<CarriedAbsent>,
    /// Gateways, servers and clients are namespaces of one machine, as in a lab: `busiest_core` says nothing of one of them.
    #[serde(skip_serializing_if = "core::ops::Not::not", default)]
    pub shares_cores: bool,
}

/// Counter increments of one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CarriedHost {
    /// Its name in the plan.
    pub host: String,
    /// `gateway`, `storage` or `client`.
    pub role: Role,
    /// Its interfaces that the plan names.
    pub ports: Vec<CarriedPort>,
    /// TCP segments that the host retransmitted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmits_count: Option<u64>,
    /// The core with the least idle time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub busiest_core: Option<CoreUse>,
}

/// Counter increments of one interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CarriedPort {
    /// Name of its network in the plan.
    pub network: String,
    /// It is on the clients' side of the gateways.
    pub is_client_side: bool,
    /// Increments of its counters.
    pub counters: DeviceCounters,
}

/// Which gateway carries a pair of hosts, by the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CarriedFlow {
    /// The client's name in the plan.
    pub client: String,
    /// The server.
    pub server: String,
    /// The gateway.
    pub gateway: String,
}

/// A TCP connection: what it moved, and how long its round trips were.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CarriedConnection {
    /// The end nearer to the clients: the name of a client, or of a gateway that is a client of the servers itself.
    pub client: String,
    /// The other end: the name of a server, or of a gateway that re-exports the servers' files.
    pub server: String,
    /// Port of the client.
    pub client_port: u16,
    /// Port of the server.
    pub server_port: u16,
    /// The gateway that carries it, by the plan; absent where the plan does not say, as without a hash seed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gateway: Option<String>,
    /// Bytes from the client to the server.
    pub written_bytes: u64,
    /// Bytes from the server to the client.
    pub read_bytes: u64,
    /// Smoothed round-trip time at the end of the phase, seconds, as measured by the end that sent more.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round_trip_s: Option<f64>,
    /// Segments that its ends retransmitted.
    pub retransmits_count: u64,
}

impl CarriedConnection {
    /// Bytes in both directions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.written_bytes.saturating_add(self.read_bytes)
    }
}

/// Round trips of several connections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrips {
    /// The median of the connections, seconds.
    pub median_s: f64,
    /// The longest, seconds.
    pub max_s: f64,
    /// Number of connections.
    pub connections_count: usize,
}

/// A host without counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CarriedAbsent {
    /// Its name in the plan.
    pub host: String,
    /// Why its counters could not be read.
    pub why: String,
}

/// Which way a load moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadWay {
    /// From clients to servers.
    Written,
    /// From servers to clients.
    Read,
    /// Requests and answers: calls on files.
    Calls,
}

/// Where bytes stayed that did not cross.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePlace {
    /// At the clients: they did not reach, or come from, a gateway.
    Client,
    /// At the gateways: they crossed their clients' side and not the servers'.
    Gateway,
}

impl CachePlace {
    /// The name in texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Gateway => "gateway",
        }
    }
}

/// What crossed one gateway in the way of the load.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayShare {
    /// Its name.
    pub gateway: String,
    /// Bytes at its clients' side.
    pub client_side_bytes: u64,
    /// Bytes at its servers' side.
    pub server_side_bytes: u64,
    /// Packets at its clients' side (super-segments count once).
    pub client_side_pkts: u64,
    /// Its part of the bytes at the clients' side of all gateways, 0 to 1; 0 where nothing crossed.
    pub share: f64,
    /// Packets dropped at its interfaces, both ways.
    pub drops_count: u64,
}

/// What follows from a load and what crossed meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossing {
    /// Bytes of the load, or calls.
    pub load: u64,
    /// Which way it goes.
    pub way: LoadWay,
    /// Each gateway.
    pub gateways: Vec<GatewayShare>,
    /// The busiest gateway's bytes by the mean of all gateways; absent where nothing crossed.
    pub imbalance: Option<f64>,
    /// Bytes that crossed the gateways by bytes of the load; absent for calls.
    pub amplification: Option<f64>,
    /// Where a cache kept bytes from crossing.
    pub cached: Option<CachePlace>,
}

impl Carried {
    /// Hosts of one role.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &CarriedHost> {
        self.hosts.iter().filter(move |host| host.role == role)
    }

    /// Round trips of the connections that a gateway carries, or that end at a host; `None` where none was measured.
    #[must_use]
    pub fn round_trips(&self, host: &str) -> Option<RoundTrips> {
        let is_its = |one: &&CarriedConnection| {
            one.server == host || one.client == host || one.gateway.as_deref() == Some(host)
        };
        let its = self.connections.iter().filter(is_its);
        let mut all: Vec<f64> = its.filter_map(|one| one.round_trip_s).collect();
        all.sort_by(f64::total_cmp);
        let max_s = *all.last()?;
        let middle = all.len() / 2;
        let below = if all.len().is_multiple_of(2) { all[middle - 1] } else { all[middle] };
        let median_s = f64::midpoint(below, all[middle]);
        Some(RoundTrips { median_s, max_s, connections_count: all.len() })
    }

    /// What follows for a load of so many bytes, or calls. A missing gateway leaves `cached` and `amplification` open.
    #[must_use]
    pub fn crossing(&self, way: LoadWay, load: u64) -> Crossing {
        let mut gateways: Vec<GatewayShare> =
            self.of_role(Role::Gateway).map(|host| share_of(host, way)).collect();
        let sum = |of: fn(&GatewayShare) -> u64| gateways.iter().map(of).sum::<u64>();
        let client_side = sum(|gateway| gateway.client_side_bytes);
        let server_side = sum(|gateway| gateway.server_side_bytes);
        let packets = sum(|gateway| gateway.client_side_pkts);
        for gateway in gateways.iter_mut().filter(|_| client_side > 0) {
            gateway.share = gateway.client_side_bytes as f64 / client_side as f64;
        }
        let busiest = gateways.iter().map(|gateway| gateway.share).fold(0.0, f64::max);
        let imbalance = (client_side > 0).then_some(busiest * gateways.len() as f64);
        let has_all = !gateways.is_empty() && self.absent.is_empty();
        let is_judged = has_all && load > 0;
        let is_below = |bytes: u64, part: f64| (bytes as f64) < load as f64 * part;
        let cached = match way {
            _ if !is_judged => None,
            LoadWay::Calls => is_below(packets, CALLS_CROSSED_MIN).then_some(CachePlace::Client),
            _ if is_below(client_side, CROSSED_MIN) => Some(CachePlace::Client),
            _ if is_below(server_side, CROSSED_MIN) => Some(CachePlace::Gateway),
            _ => None,
        };
        let has_bytes = is_judged && way != LoadWay::Calls;
        let amplification = has_bytes.then(|| client_side as f64 / load as f64);
        Crossing { load, way, gateways, imbalance, amplification, cached }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn share_of(host: &CarriedHost, way: LoadWay) -> GatewayShare {
    let mut share = GatewayShare {
        gateway: host.host.clone(),
        client_side_bytes: 0,
        server_side_bytes: 0,
        client_side_pkts: 0,
        share: 0.0,
        drops_count: 0,
    };
    for port in &host.ports {
        let counters = &port.counters;
        let drops = [
            counters.rx_drops_count,
            counters.tx_drops_count,
            counters.rx_ring_overruns_count.unwrap_or(0),
        ];
        share.drops_count = drops.into_iter().fold(share.drops_count, u64::saturating_add);
        // Written bytes arrive at the clients' side and leave at the servers'.
        let (bytes, packets) = match (way, port.is_client_side) {
            (LoadWay::Written, true) | (LoadWay::Read, false) => {
                (counters.rx_bytes, counters.rx_pkts)
            }
            (LoadWay::Written, false) | (LoadWay::Read, true) => {
                (counters.tx_bytes, counters.tx_pkts)
            }
            (LoadWay::Calls, _) => {
                (counters.rx_bytes.saturating_add(counters.tx_bytes), counters.rx_pkts)
            }
        };
        if port.is_client_side {
            share.client_side_bytes = share.client_side_bytes.saturating_add(bytes);
            share.client_side_pkts = share.client_side_pkts.saturating_add(packets);
        } else {
            share.server_side_bytes = share.server_side_bytes.saturating_add(bytes);
        }
    }
    share
}

impl Point {
    /// What crossed the gateways while the point's work was done; `None` where nobody looked, or the work was no load on
    /// files.
    #[must_use]
    pub fn crossing(&self) -> Option<(&Carried, Crossing)> {
        let outcome = self.measured()?;
        let carried = outcome.carried.as_ref()?;
        let figure = |name: &str| {
            let found = outcome.figures.iter().find(|figure| figure.name == name)?;
            (found.value.is_finite() && found.value >= 0.0).then_some(found.value as u64)
        };
        let (way, load) = match &self.work {
            Work::FileIo(work) => {
                let is_write = work.access == "write";
                let way = if is_write { LoadWay::Written } else { LoadWay::Read };
                (way, figure("moved_bytes")?)
            }
            Work::FileMetadata(work) => (LoadWay::Calls, work.items_count),
            _ => return None,
        };
        Some((carried, carried.crossing(way, load)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway by the bytes that came in and went out at its clients' side, then at its servers'.
    fn gateway(name: &str, client_side: (u64, u64), server_side: (u64, u64)) -> CarriedHost {
        let port = |is_client_side, (rx_bytes, tx_bytes): (u64, u64)| CarriedPort {
            network: String::new(),
            is_client_side,
            counters: DeviceCounters {
                rx_bytes,
                tx_bytes,
                rx_pkts: rx_bytes / 1000,
                rx_drops_count: 1,
                ..DeviceCounters::default()
            },
        };
        CarriedHost {
            host: name.to_owned(),
            role: Role::Gateway,
            ports: vec![port(true, client_side), port(false, server_side)],
            retransmits_count: None,
            busiest_core: None,
        }
    }

    fn carried(hosts: Vec<CarriedHost>) -> Carried {
        Carried { hosts, ..Carried::default() }
    }

    #[test]
    fn shares_imbalance_and_amplification_follow_from_the_counters() {
        let one = gateway("g1", (3000, 10), (10, 3000));
        let all = carried(vec![one, gateway("g2", (1000, 10), (10, 1000))]);
        let seen = all.crossing(LoadWay::Written, 2000);
        let shares: Vec<f64> = seen.gateways.iter().map(|gateway| gateway.share).collect();
        assert_eq!(shares, [0.75, 0.25]);
        assert_eq!((seen.imbalance, seen.amplification), (Some(1.5), Some(2.0)));
        assert_eq!((seen.cached, seen.gateways[0].drops_count), (None, 2));
    }

    #[test]
    fn round_trips_are_those_of_a_gateway_s_connections_and_of_a_host_s() {
        let connection = |server: &str, gateway: &str, round_trip_s| CarriedConnection {
            client: "c1".to_owned(),
            server: server.to_owned(),
            client_port: 1,
            server_port: 2,
            gateway: Some(gateway.to_owned()),
            written_bytes: 3,
            read_bytes: 4,
            round_trip_s,
            retransmits_count: 0,
        };
        let connections = vec![
            connection("s1", "g1", Some(0.004)),
            connection("s2", "g1", Some(0.002)),
            connection("s2", "g2", None),
        ];
        let all = Carried { connections, ..Carried::default() };
        let of = |host: &str| all.round_trips(host).map(|trips| (trips.median_s, trips.max_s));
        assert_eq!((of("g1"), of("s2")), (Some((0.003, 0.004)), Some((0.002, 0.002))));
        assert_eq!((of("g2"), of("s3")), (None, None));
        assert_eq!(all.round_trips("c1").map(|trips| trips.connections_count), Some(2));
    }

    #[test]
    fn a_cache_is_named_with_its_place() {
        let crossed = |client_side, server_side| {
            let all = carried(vec![gateway("g1", (0, client_side), (server_side, 0))]);
            all.crossing(LoadWay::Read, 1000).cached
        };
        assert_eq!(crossed(1030, 1030), None);
        assert_eq!(crossed(1030, 12), Some(CachePlace::Gateway));
        assert_eq!(crossed(12, 12), Some(CachePlace::Client));
        let calls = carried(vec![gateway("g1", (50_000, 0), (0, 0))]);
        assert_eq!(calls.crossing(LoadWay::Calls, 100).cached, None);
        assert_eq!(calls.crossing(LoadWay::Calls, 1000).cached, Some(CachePlace::Client));
    }

    #[test]
    fn nothing_is_concluded_from_gateways_that_did_not_answer() {
        let absent = CarriedAbsent { host: "g2".to_owned(), why: "no answer".to_owned() };
        let one = carried(vec![gateway("g1", (0, 0), (0, 0))]);
        let one = Carried { absent: vec![absent], ..one };
        let seen = one.crossing(LoadWay::Read, 1000);
        assert_eq!((seen.cached, seen.amplification, seen.imbalance), (None, None, None));
        let none = Carried::default().crossing(LoadWay::Written, 1000);
        assert_eq!((none.cached, none.imbalance), (None, None));
    }
}
