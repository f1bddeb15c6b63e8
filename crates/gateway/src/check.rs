//! What has drifted from the plan: objects that are missing, changed or others', and what the kernel would really do
//! with packets to each host of the plan.

use netlink::{
    Bucket, Link, Neighbour, NeighbourFilter, Route, RouteQuestion, Target, neighbour_state,
};
use route_plan::{
    Assignment, Change, Found, HashPolicy, HostState, Interfaces, MarkDifference, Mode, Object,
    Plan, Role, WantedError, bucket_shares, choice, describe, difference, group_id, hop_id, live,
    mark_differences, wanted,
};
use sys::netlink_socket::{NetlinkError, NetlinkSocket};
use thiserror::Error;

use crate::marks::{MarksError, read_marks};
use crate::on_link::off_link_of;
use crate::read::{ReadError, read_host};

/// Drifts of one kind that are told one by one.
const TOLD_COUNT_MAX: usize = 5;

/// Why a host cannot be checked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// What it has cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Packet filters cannot be read.
    #[error(transparent)]
    Marks(#[from] MarksError),
    /// The kernel does not answer.
    #[error("cannot ask the kernel about routes (rtnetlink)")]
    Netlink(#[from] NetlinkError),
}

impl CheckError {
    /// Whether a kernel or a privilege lacks something.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Marks(error) if error.is_missing())
    }
}

/// Something that is not as the plan wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Kind of drift.
    pub kind: DriftKind,
    /// What, in one line.
    pub what: String,
}

/// Kinds of drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriftKind {
    /// An interface of the plan is not there, is down, has no carrier or is not on its network.
    Interface,
    /// A kernel setting has another value.
    Setting,
    /// An object of the plan is not there.
    Missing,
    /// An object of the plan is another.
    Changed,
    /// An object with the plan's protocol is not the plan's.
    Surplus,
    /// Something of others is in the way.
    Foreign,
    /// The kernel sends packets to a host of the plan by another gateway than the plan's.
    Diverted,
    /// The buckets of a resilient group are not shared by the weights.
    Buckets,
    /// A gateway does not answer on the link, or is elsewhere than a host takes it to be.
    Neighbour,
    /// The two ends of a pair of hosts use different gateways.
    Asymmetric,
    /// A host and a gateway on its link take packets of different sizes.
    Mtu,
}

impl DriftKind {
    /// As it is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Setting => "setting",
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Surplus => "surplus",
            Self::Foreign => "foreign",
            Self::Diverted => "diverted",
            Self::Buckets => "buckets",
            Self::Neighbour => "neighbour",
            Self::Asymmetric => "asymmetric",
            Self::Mtu => "mtu",
        }
    }
}

/// Compares the host that the thread is on with the plan while those gateways that are not `up` are out of use; those
/// beyond the end are in use. Empty: nothing has drifted.
///
/// # Errors
/// The host cannot be read.
pub fn check(plan: &Plan, role: Role<'_>, up: &[bool]) -> Result<Vec<Drift>, CheckError> {
    let bare = read_host(plan.family, [])?;
    let mut drifts = Vec::new();
    let state = match wanted(plan, role, &bare.interfaces, up) {
        Ok(state) => state,
        Err(WantedError::NoInterface { interface, .. }) => {
            let what = format!("the interface '{interface}' does not exist");
            return Ok(vec![Drift { kind: DriftKind::Interface, what }]);
        }
    };
    let mut found = read_host(plan.family, state.sysctls.iter().map(|(key, _)| key))?;
    read_marks(plan, &state, &mut found)?;
    objects(plan, &state, &found, &mut drifts);
    let mut socket = NetlinkSocket::open()?;
    links(role, &mut socket, &mut drifts)?;
    let off_link = off_link_of(plan, role, &found);
    drifts.extend(off_link.map(|what| Drift { kind: DriftKind::Interface, what }));
    if let Role::Host(host) = role {
        let mut asker =
            Asker { plan, host, interfaces: &found.interfaces, socket, up: live(plan, up) };
        asker.look_ups(&mut drifts);
        asker.buckets(&mut drifts);
        asker.neighbours(&mut drifts)?;
    }
    Ok(drifts)
}

fn objects(plan: &Plan, state: &HostState, found: &Found, drifts: &mut Vec<Drift>) {
    let difference = difference(plan, state, found);
    let shown = |object: &Object| describe(object, &found.interfaces);
    for change in &difference.changes {
        if let Change::Replace { from: Object::FilterTable(from), to: Object::FilterTable(to) } =
            change
        {
            drifts.extend(mark_differences(from, to).into_iter().map(mark_drift));
            continue;
        }
        drifts.push(match change {
            Change::Set { key, from, to } => Drift {
                kind: DriftKind::Setting,
                what: format!("{key} is {}, not {to}", from.as_deref().unwrap_or("absent")),
            },
            Change::Add(object) => Drift { kind: DriftKind::Missing, what: shown(object) },
            Change::Replace { from, to } => Drift {
                kind: DriftKind::Changed,
                what: format!("found {}, expected {}", shown(from), shown(to)),
            },
            Change::Remove(object) => Drift { kind: DriftKind::Surplus, what: shown(object) },
        });
    }
    for &gateway in &difference.unknown {
        let error = MarksError::unknown(plan, &[gateway]);
        drifts.push(Drift { kind: DriftKind::Neighbour, what: error.to_string() });
    }
    for conflict in &difference.conflicts {
        let what = format!("{}: {}", shown(&conflict.found), conflict.reason);
        drifts.push(Drift { kind: DriftKind::Foreign, what });
    }
}

fn mark_drift(difference: MarkDifference) -> Drift {
    let (kind, what) = match difference {
        MarkDifference::Missing(what) => (DriftKind::Missing, what),
        MarkDifference::Changed(what) => (DriftKind::Changed, what),
        MarkDifference::Surplus(what) => (DriftKind::Surplus, what),
    };
    Drift { kind, what }
}

fn links(
    role: Role<'_>,
    socket: &mut NetlinkSocket,
    drifts: &mut Vec<Drift>,
) -> Result<(), NetlinkError> {
    let ports = match role {
        Role::Gateway(_, gateway) => &gateway.ports[..],
        Role::Host(host) => std::slice::from_ref(&host.port),
    };
    let links = socket.list::<Link>(&Link::dump())?;
    for port in ports {
        let Some(link) = links.iter().find(|link| link.name == port.interface) else { continue };
        let trouble = match (link.is_up(), link.has_carrier()) {
            (false, _) => "is down",
            (true, false) => "has no carrier",
            (true, true) => continue,
        };
        let what = format!("the interface '{}' {trouble}", port.interface);
        drifts.push(Drift { kind: DriftKind::Interface, what });
    }
    Ok(())
}

/// Asks the kernel what it would do.
pub(crate) struct Asker<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) host: &'a route_plan::Host,
    pub(crate) interfaces: &'a Interfaces,
    pub(crate) socket: NetlinkSocket,
    /// For each gateway of the plan, whether it is in use.
    pub(crate) up: Vec<bool>,
}

impl Asker<'_> {
    /// By which gateway the kernel would send a packet to each host that is elsewhere: in the mode `pairs` the pair's,
    /// with a known seed the one that the hash of the addresses names, else any of the plan's.
    fn look_ups(&mut self, drifts: &mut Vec<Drift>) {
        let plan = self.plan;
        let assignment = Assignment::new(&plan.weights());
        let chooser = route_plan::Chooser::new(plan, None);
        let is_known = plan.routing.policy == HashPolicy::Addresses
            && plan.routing.mode == Mode::Hash
            && !self.up.contains(&false);
        let mut diverted = Vec::new();
        for other in plan.hosts.iter().filter(|other| other.network != self.host.network) {
            let by = self.gateway_to(other.port.address);
            let expected = match plan.routing.mode {
                Mode::Pairs => {
                    choice(&assignment, self.host, other).map(|one| one.carrier(&self.up))
                }
                _hashed if is_known => chooser.gateway(self.host, other, [0, 0]),
                _hashed => by.as_ref().ok().copied(),
            };
            let (name, address) = (&other.name, other.port.address);
            match (by, expected) {
                (Ok(by), Some(expected)) if by == expected => {}
                (Ok(by), Some(expected)) => {
                    let (by, expected) = (&plan.gateways[by].name, &plan.gateways[expected].name);
                    diverted.push(format!(
                        "{address} ({name}) is reached through {by}, not {expected}"
                    ));
                }
                (Err(why), _) => diverted.push(format!("{address} ({name}): {why}")),
                (Ok(_), None) => {}
            }
        }
        let count = diverted.len();
        let kind = DriftKind::Diverted;
        drifts.extend(diverted.into_iter().take(TOLD_COUNT_MAX).map(|what| Drift { kind, what }));
        if count > TOLD_COUNT_MAX {
            let what = format!("{} more hosts", count - TOLD_COUNT_MAX);
            drifts.push(Drift { kind, what });
        }
    }

    /// By which gateway the kernel would send a packet to an address, or why by none.
    pub(crate) fn gateway_to(&mut self, address: std::net::IpAddr) -> Result<usize, String> {
        let question =
            RouteQuestion { source: Some(self.host.port.address), ..RouteQuestion::to(address) };
        let route =
            self.socket.find::<Route>(&question.message()).map_err(|error| no_route(&error))?;
        let Target::Paths(paths) = &route.target else {
            return Err("the kernel drops packets to it".to_owned());
        };
        let path = paths.first().ok_or("the kernel has no route")?;
        let is_by = |gateway: &route_plan::Gateway| {
            path.gateway == Some(gateway.ports[self.host.network].address)
        };
        self.plan.gateways.iter().position(is_by).ok_or_else(|| {
            let device = path.interface_index.and_then(|index| self.interfaces.name(index));
            let device = device.unwrap_or("?");
            match path.gateway {
                Some(gateway) => {
                    format!(
                        "it is reached through {gateway} (dev {device}), which is not a gateway \
                         of the plan"
                    )
                }
                None => format!("the kernel treats it as directly connected on {device}"),
            }
        })
    }

    fn buckets(&mut self, drifts: &mut Vec<Drift>) {
        let Mode::Resilient(resilient) = self.plan.routing.mode else { return };
        let group = group_id(self.plan);
        let Ok(buckets) = self.socket.list::<Bucket>(&Bucket::dump(group)) else { return };
        let live: Vec<usize> = (0..self.up.len()).filter(|&gateway| self.up[gateway]).collect();
        let weights: Vec<u16> =
            live.iter().map(|&gateway| self.plan.gateways[gateway].weight).collect();
        let shares = bucket_shares(&weights, resilient.count);
        for (gateway, share) in live.into_iter().zip(shares) {
            let id = hop_id(self.plan, gateway);
            let own = buckets.iter().filter(|one| one.group == group && one.nexthop == id).count();
            if own != usize::from(share) {
                let name = &self.plan.gateways[gateway].name;
                let what = format!("{name} has {own} buckets of group {group}, not {share}");
                drifts.push(Drift { kind: DriftKind::Buckets, what });
            }
        }
    }

    fn neighbours(&mut self, drifts: &mut Vec<Drift>) -> Result<(), NetlinkError> {
        let filter = NeighbourFilter { family: self.plan.family, interface_index: None };
        let neighbours = self.socket.list::<Neighbour>(&Neighbour::dump(filter))?;
        for gateway in &self.plan.gateways {
            let address = gateway.ports[self.host.network].address;
            let has_failed = neighbours
                .iter()
                .any(|one| one.address == address && one.state & neighbour_state::FAILED != 0);
            if has_failed {
                let what = format!("{} ({address}) does not answer on the link", gateway.name);
                drifts.push(Drift { kind: DriftKind::Neighbour, what });
            }
        }
        Ok(())
    }
}

/// Why the kernel names no route, for people: without numbers, where it only has none.
fn no_route(error: &NetlinkError) -> String {
    let has_none = [rustix::io::Errno::NETUNREACH, rustix::io::Errno::HOSTUNREACH];
    match error.errno() {
        Some(number) if has_none.iter().any(|none| none.raw_os_error() == number) => {
            "the kernel has no route to it".to_owned()
        }
        _ => format!("the route to it is not known: {error}"),
    }
}
