//! A load measured together with a gateway plan's hosts: their counters are read at the begin and end of each phase.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use file_load::LoadError;
use file_load::team::Member;
use results::{
    CachePlace, Carried, CarriedAbsent, CarriedFlow, CarriedHost, CarriedPort, DeviceCounters,
    LoadWay, Point, Role,
};
use route_plan::{Chooser, Host, Mode, Plan, Port};

use super::connections::Connections;
use super::gauges::{Answer, Gauges};
use crate::exit::VerbError;
use crate::plans::{SSH, read_plan};

/// Most flows that the text shows per gateway.
const FLOWS_SHOWN_MAX: usize = 4;

/// The options on gateways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatewaysCall {
    /// The plan's file.
    pub(crate) plan: PathBuf,
    /// Command that starts a program on a machine of the plan.
    pub(crate) ssh: String,
    /// Path of this program on those machines.
    pub(crate) there: String,
}

impl GatewaysCall {
    pub(super) fn new() -> Self {
        let (ssh, there) = (SSH.to_owned(), "clearstream".to_owned());
        Self { plan: PathBuf::new(), ssh, there }
    }
}

/// Reads counters at the begin and end of phases; does so on rank 0 only, and only if requested.
#[derive(Clone, Default)]
pub(crate) struct Edges(Option<Arc<Mutex<Watched>>>);

/// A host's name, its role, and its ports with their networks.
type Party = (String, Role, Vec<(Port, usize)>);

struct Watched {
    plan: Plan,
    gauges: Gauges,
    /// The clients' network, and their names.
    clients: Option<(usize, Vec<String>)>,
    before: BTreeMap<String, Answer>,
    /// Completed phases, in order.
    done: Vec<(&'static str, Carried)>,
}

impl Edges {
    /// Reads the plan and starts what reads the hosts of a lab. Must be called while this process has one thread and is
    /// on no host of the lab.
    pub(crate) fn open(call: &GatewaysCall, lab: Option<&str>) -> Result<Self, VerbError> {
        let plan = read_plan(&call.plan)?;
        let names: Vec<String> = plan.names().map(str::to_owned).collect();
        let gauges = match lab {
            Some(name) => Gauges::in_lab(name, &names)?,
            None if names.iter().any(|name| name.starts_with('-')) => {
                return Err(VerbError::usage(
                    "the plan has a name that begins with -, which ssh would read as an option",
                ));
            }
            None => Gauges::by_ssh(&call.ssh, &call.there),
        };
        let watched =
            Watched { plan, gauges, clients: None, before: BTreeMap::new(), done: Vec::new() };
        Ok(Self(Some(Arc::new(Mutex::new(watched)))))
    }

    fn with<R>(&self, work: impl FnOnce(&mut Watched) -> R) -> Option<R> {
        let watched = self.0.as_ref()?;
        Some(work(&mut watched.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Sets the hosts on which the ranks run.
    pub(crate) fn meet(&self, members: &[Member]) -> Result<(), LoadError> {
        self.with(|watched| watched.meet(members)).unwrap_or(Ok(()))
    }

    /// Marks the begin of a phase.
    pub(crate) fn begin(&self) {
        self.with(|watched| watched.before = watched.read());
    }

    /// Marks the end of a phase with the given name.
    pub(crate) fn end(&self, name: &'static str) {
        self.with(|watched| {
            let after = watched.read();
            let carried = watched.carried(&after);
            watched.done.push((name, carried));
        });
    }

    /// Removes and returns the phases that ended since the last call.
    pub(crate) fn take(&self) -> Vec<(&'static str, Carried)> {
        self.with(|watched| std::mem::take(&mut watched.done)).unwrap_or_default()
    }
}

impl Watched {
    fn meet(&mut self, members: &[Member]) -> Result<(), LoadError> {
        let mut names: Vec<String> = members.iter().map(|member| member.host.clone()).collect();
        names.sort();
        names.dedup();
        let hosts = names.iter().filter_map(|name| match self.plan.find(name) {
            Some(route_plan::Role::Host(host)) => Some(host),
            _elsewhere => None,
        });
        let mut networks: Vec<usize> = hosts.map(|host| host.network).collect();
        networks.sort_unstable();
        networks.dedup();
        let [network] = networks[..] else {
            let line = format!(
                "--gateways: the ranks run on {}; the plan '{}' has none of these hosts, or has \
                 them on several networks",
                names.join(", "),
                self.plan.name
            );
            return Err(LoadError::Usage(line));
        };
        self.clients = Some((network, names));
        Ok(())
    }

    /// Gateways, servers, and the clients that run ranks, with their ports.
    fn parties(&self) -> Vec<Party> {
        let Some((network, clients)) = &self.clients else { return Vec::new() };
        let mut parties = Vec::new();
        for gateway in &self.plan.gateways {
            let ports = gateway.ports.iter().cloned().zip(0..).collect();
            parties.push((gateway.name.clone(), Role::Gateway, ports));
        }
        let mut add = |host: &Host, role| {
            parties.push((host.name.clone(), role, vec![(host.port.clone(), host.network)]));
        };
        let hosts = &self.plan.hosts;
        hosts
            .iter()
            .filter(|host| host.network != *network)
            .for_each(|host| add(host, Role::Storage));
        hosts
            .iter()
            .filter(|host| clients.contains(&host.name))
            .for_each(|host| add(host, Role::Client));
        parties
    }

    fn read(&mut self) -> BTreeMap<String, Answer> {
        let hosts: Vec<String> = self.parties().into_iter().map(|(name, ..)| name).collect();
        self.gauges.read(&hosts)
    }

    fn carried(&self, after: &BTreeMap<String, Answer>) -> Carried {
        let mut carried = Carried { plan: self.plan.name.clone(), ..Carried::default() };
        let Some((network, clients)) = &self.clients else { return carried };
        let mut connections = Connections::new(&self.plan, *network, clients);
        for (host, role, ports) in self.parties() {
            match (self.before.get(&host), after.get(&host)) {
                (Some(Ok(before)), Some(Ok(after))) => {
                    let gain = after.since(before);
                    connections.add(&gain.connections);
                    match self.ports(&gain.devices, &ports, *network) {
                        Ok(ports) => carried.hosts.push(CarriedHost {
                            role,
                            ports,
                            retransmits_count: gain.retransmits_count,
                            busiest_core: gain.busiest_core,
                            host,
                        }),
                        Err(why) => carried.absent.push(CarriedAbsent { host, why }),
                    }
                }
                (Some(Err(why)), _) | (_, Some(Err(why))) => {
                    carried.absent.push(CarriedAbsent { host, why: why.clone() });
                }
                _not_asked => {
                    carried.absent.push(CarriedAbsent { host, why: "not asked".to_owned() });
                }
            }
        }
        carried.shares_cores = is_one_machine(&carried.hosts, after);
        (carried.connections, carried.connections_left_out_count) = connections.joined();
        if self.plan.routing.mode == Mode::Pairs {
            carried.flows = self.flows(*network, clients);
        }
        carried
    }

    /// The counters of a host's ports; why there are none, which is not the same as nothing having crossed them.
    fn ports(
        &self,
        gain: &[DeviceCounters],
        ports: &[(Port, usize)],
        client_side: usize,
    ) -> Result<Vec<CarriedPort>, String> {
        let port = |(port, of): &(Port, usize)| {
            let counters = gain.iter().find(|device| device.interface == port.interface);
            let absent = || format!("it has no interface {}, which the plan names", port.interface);
            Ok(CarriedPort {
                network: self.plan.networks[*of].name.clone(),
                is_client_side: *of == client_side,
                counters: counters.cloned().ok_or_else(absent)?,
            })
        };
        ports.iter().map(port).collect()
    }

    fn flows(&self, network: usize, clients: &[String]) -> Vec<CarriedFlow> {
        let chooser = Chooser::new(&self.plan, None);
        let hosts = &self.plan.hosts;
        let mut flows = Vec::new();
        for client in hosts.iter().filter(|host| clients.contains(&host.name)) {
            for server in hosts.iter().filter(|host| host.network != network) {
                if let Some(gateway) = chooser.gateway(client, server, [0, 0]) {
                    flows.push(CarriedFlow {
                        client: client.name.clone(),
                        server: server.name.clone(),
                        gateway: self.plan.gateways[gateway].name.clone(),
                    });
                }
            }
        }
        flows
    }
}

/// Whether a gateway is on the machine of a server or client, whose cores are then both's.
fn is_one_machine(hosts: &[CarriedHost], answers: &BTreeMap<String, Answer>) -> bool {
    let readings = |are_gateways: bool| {
        let of_kind = hosts.iter().filter(move |one| (one.role == Role::Gateway) == are_gateways);
        of_kind.filter_map(|one| answers.get(&one.host)?.as_ref().ok())
    };
    readings(true).any(|gateway| readings(false).any(|other| other.is_of_machine_of(gateway)))
}

/// The round trips of a gateway's or server's connections, as text; empty where none was measured.
fn round_trips(carried: &Carried, host: &str) -> String {
    let Some(trips) = carried.round_trips(host) else { return String::new() };
    let (median, max) = (units::show_seconds(trips.median_s), units::show_seconds(trips.max_s));
    match trips.connections_count {
        1 => format!("round trip {median}, 1 connection"),
        count => format!("round trips {median}, longest {max}, {count} connections"),
    }
}

/// What a server's ports carried and dropped, and its connections, as text.
fn server_line(carried: &Carried, server: &CarriedHost) -> String {
    let sum = |of: fn(&DeviceCounters) -> u64| -> u64 {
        server.ports.iter().map(|port| of(&port.counters)).sum()
    };
    let megabytes = |bytes: u64| bytes as f64 * 1e-6;
    let (received, sent) = (megabytes(sum(|all| all.rx_bytes)), megabytes(sum(|all| all.tx_bytes)));
    let dropped = sum(|all| {
        let overruns = all.rx_ring_overruns_count.unwrap_or(0);
        all.rx_drops_count.saturating_add(all.tx_drops_count).saturating_add(overruns)
    });
    let again = server.retransmits_count.unwrap_or(0);
    let trips = round_trips(carried, &server.host);
    format!(
        "  {:<12} server  {received:>10.1} MB received  {sent:>10.1} MB sent  {dropped:>4} dropped  {again:>4} \
         retransmissions  {trips}",
        server.host
    )
}

/// What crossed the gateways during each point, as text.
pub(crate) fn text(points: &[Point]) -> String {
    points.iter().map(block).collect()
}

fn block(point: &Point) -> String {
    let Some((carried, seen)) = point.crossing() else { return String::new() };
    let megabytes = |bytes: u64| bytes as f64 * 1e-6;
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        writeln!(text, "{line}").ok();
    };
    let load = match seen.way {
        LoadWay::Calls => format!("{} calls", seen.load),
        _bytes => format!("{:.1} MB", megabytes(seen.load)),
    };
    let times =
        seen.amplification.map_or_else(String::new, |times| format!(", crossed {times:.2} times"));
    let uneven = seen
        .imbalance
        .map_or_else(String::new, |ratio| format!(", busiest gateway {ratio:.2} times the mean"));
    let (name, plan) = (compare::phase_name(&point.experiment), &carried.plan);
    line(format_args!(
        "\nGateways of '{plan}', {name}, repetition {}: {load}{times}{uneven}",
        point.repeat
    ));
    for gateway in &seen.gateways {
        let flows = carried.flows.iter().filter(|flow| flow.gateway == gateway.gateway);
        let all: Vec<String> =
            flows.map(|flow| format!("{}-{}", flow.client, flow.server)).collect();
        let more = all.len().saturating_sub(FLOWS_SHOWN_MAX);
        let mut flows = all[..all.len() - more].join(" ");
        if more > 0 {
            flows += &format!(" and {more} more");
        }
        line(format_args!(
            "  {:<12} {:>5.1}%  {:>10.1} MB at the clients' side  {:>10.1} MB at the servers'  {:>4} dropped  {flows}",
            gateway.gateway,
            gateway.share * 100.0,
            megabytes(gateway.client_side_bytes),
            megabytes(gateway.server_side_bytes),
            gateway.drops_count
        ));
        let trips = round_trips(carried, &gateway.gateway);
        if !trips.is_empty() {
            line(format_args!("  {:<12} {trips}", ""));
        }
    }
    for server in carried.of_role(Role::Storage) {
        line(format_args!("{}", server_line(carried, server)));
    }
    match seen.cached {
        Some(CachePlace::Client) => line(format_args!(
            "  cached at the client: most of the load did not reach a gateway, so this rate is \
             the cache's, not the file system's"
        )),
        Some(CachePlace::Gateway) => line(format_args!(
            "  cached at the gateway: most of the load did not reach a server, so this rate is \
             the cache's, not the file system's"
        )),
        None => {}
    }
    for one in &carried.absent {
        line(format_args!("  {:<12} no counters: {}", one.host, one.why));
    }
    text
}
