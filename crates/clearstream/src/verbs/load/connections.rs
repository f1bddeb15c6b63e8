//! TCP connections of a phase, as both ends counted them, with the names of the plan.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use results::CarriedConnection;
use route_plan::{Chooser, Plan};
use topology::ConnectionReading;

/// Connections that are kept of one phase.
const KEPT_COUNT_MAX: usize = 256;

/// The connections of one phase.
pub(super) struct Connections<'a> {
    plan: &'a Plan,
    /// The clients' network.
    network: usize,
    chooser: Chooser<'a>,
    names: BTreeMap<IpAddr, Party>,
    all: BTreeMap<[SocketAddr; 2], Both>,
}

/// Who has an address.
#[derive(Debug, Clone, Copy)]
enum Party {
    /// Index in the plan's hosts.
    Host(usize),
    /// Index in the plan's gateways.
    Gateway(usize),
}

/// What one end or both counted.
#[derive(Debug, Default)]
struct Both {
    written_bytes: u64,
    read_bytes: u64,
    retransmits_count: u64,
    /// Bytes that an end sent, and its round-trip time in microseconds.
    trips: Vec<(u64, u32)>,
}

impl<'a> Connections<'a> {
    /// Without connections yet, for these clients on this network.
    pub(super) fn new(plan: &'a Plan, network: usize, clients: &[String]) -> Self {
        let mut names = BTreeMap::new();
        for (index, host) in plan.hosts.iter().enumerate() {
            if host.network != network || clients.contains(&host.name) {
                names.insert(host.port.address, Party::Host(index));
            }
        }
        for (index, gateway) in plan.gateways.iter().enumerate() {
            let addresses = gateway.ports.iter().map(|port| port.address);
            names.extend(addresses.map(|address| (address, Party::Gateway(index))));
        }
        Self { plan, network, chooser: Chooser::new(plan, None), names, all: BTreeMap::new() }
    }

    /// Adds what one host's ends counted. Connections with strangers, and among clients or servers, are left out.
    pub(super) fn add(&mut self, ends: &[ConnectionReading]) {
        for end in ends {
            let Some(place) = self.in_order(end.local, end.remote) else { continue };
            let is_client = place[0] == end.local;
            let (written, read) = if is_client {
                (end.sent_bytes, end.received_bytes)
            } else {
                (end.received_bytes, end.sent_bytes)
            };
            let both = self.all.entry(place).or_default();
            // The ends are read one after the other; the later one has counted more.
            both.written_bytes = both.written_bytes.max(written);
            both.read_bytes = both.read_bytes.max(read);
            both.retransmits_count = both.retransmits_count.saturating_add(end.retransmits_count);
            both.trips.push((end.sent_bytes, end.rtt_us));
        }
    }

    /// Both ends, the one nearer to the clients first; `None` if they are not on different sides of the gateways.
    fn in_order(&self, one: SocketAddr, other: SocketAddr) -> Option<[SocketAddr; 2]> {
        let distance = |end: SocketAddr| {
            Some(match self.names.get(&end.ip())? {
                Party::Host(index) if self.plan.hosts[*index].network == self.network => 0,
                Party::Gateway(_) => 1,
                Party::Host(_) => 2,
            })
        };
        let (near, far): (u8, u8) = (distance(one)?, distance(other)?);
        match near.cmp(&far) {
            std::cmp::Ordering::Less => Some([one, other]),
            std::cmp::Ordering::Greater => Some([other, one]),
            std::cmp::Ordering::Equal => None,
        }
    }

    /// The connections, the busiest first, and how many more there were.
    pub(super) fn joined(self) -> (Vec<CarriedConnection>, u64) {
        let mut all: Vec<CarriedConnection> =
            self.all.iter().filter_map(|(ends, both)| self.carried(*ends, both)).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.bytes()));
        let left_out = all.len().saturating_sub(KEPT_COUNT_MAX);
        all.truncate(KEPT_COUNT_MAX);
        (all, left_out as u64)
    }

    fn carried(&self, [near, far]: [SocketAddr; 2], both: &Both) -> Option<CarriedConnection> {
        let parties = [self.names.get(&near.ip())?, self.names.get(&far.ip())?];
        let gateway = match parties {
            [Party::Gateway(index), _] | [_, Party::Gateway(index)] => Some(*index),
            [Party::Host(client), Party::Host(server)] => {
                let (client, server) = (&self.plan.hosts[*client], &self.plan.hosts[*server]);
                // A server's kernel hashes the true ports; a client's may have chosen before it knew its own.
                self.chooser.gateway(server, client, [far.port(), near.port()])
            }
        };
        let [client, server] = parties.map(|party| match party {
            Party::Host(index) => self.plan.hosts[*index].name.clone(),
            Party::Gateway(index) => self.plan.gateways[*index].name.clone(),
        });
        let measured = both.trips.iter().filter(|(_, rtt_us)| *rtt_us > 0);
        let round_trip = measured.max_by_key(|(sent_bytes, _)| *sent_bytes);
        Some(CarriedConnection {
            client,
            server,
            client_port: near.port(),
            server_port: far.port(),
            gateway: gateway.map(|index| self.plan.gateways[index].name.clone()),
            written_bytes: both.written_bytes,
            read_bytes: both.read_bytes,
            round_trip_s: round_trip.map(|(_, rtt_us)| f64::from(*rtt_us) * 1e-6),
            retransmits_count: both.retransmits_count,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::plans::read_plan;

    use super::*;

    fn end(
        local: &str,
        remote: &str,
        (sent, received): (u64, u64),
        rtt_us: u32,
    ) -> ConnectionReading {
        let of = |text: &str| text.parse().expect("an end");
        ConnectionReading {
            local: of(local),
            remote: of(remote),
            rtt_us,
            retransmits_count: 1,
            sent_bytes: sent,
            received_bytes: received,
        }
    }

    #[test]
    fn both_ends_make_one_connection_with_the_names_of_the_plan() {
        let plan = read_plan("cumulus".as_ref()).expect("the built-in plan");
        let network = plan.hosts.iter().find(|host| host.name == "c1").expect("a client").network;
        let mut connections = Connections::new(&plan, network, &["c1".to_owned()]);
        let (c1, s2, g1) = ("10.100.0.1:4000", "10.10.0.22:9422", "10.100.0.91:9900");
        connections.add(&[end(c1, s2, (1000, 5), 300), end(c1, g1, (7, 8), 0)]);
        connections.add(&[end(s2, c1, (5, 990), 900)]);
        // Of a client without ranks.
        connections.add(&[end(s2, "10.100.0.3:1", (1, 1), 1)]);
        // Not over a gateway, and a stranger.
        connections.add(&[end(c1, "10.100.0.2:1", (1, 1), 1), end(c1, "192.0.2.1:1", (1, 1), 1)]);
        let (all, left_out) = connections.joined();
        let [first, second] = &all[..] else { panic!("{all:?}") };
        assert_eq!((first.client.as_str(), first.server.as_str()), ("c1", "s2"));
        assert_eq!((first.client_port, first.server_port), (4000, 9422));
        assert_eq!((first.written_bytes, first.read_bytes, first.retransmits_count), (1000, 5, 2));
        // The round trips of the end that sent more.
        assert_eq!(first.round_trip_s, Some(300.0 * 1e-6));
        assert!(first.gateway.is_some());
        assert_eq!((second.server.as_str(), second.gateway.as_deref()), ("g1", Some("g1")));
        assert_eq!((second.round_trip_s, left_out), (None, 0));
    }
}
