//! Making a lab's network in the kernel: namespaces, devices, addresses, parameters.
//!
//! Runs in the anchor while it has one thread. Everything made here is held by descriptors of this
//! process and goes with it.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use ports::tap::Port;
use sys::interface::{LinkSettings, RouteSocket};
use sys::namespace;

use crate::LabError;
use crate::plan::{EndPlan, HostPlan, LabPlan, LightpathPlan, LinkPlan, SwitchPlan, WirePlan};
use crate::routes;
use crate::veth::{self, PinnedThread};

/// The network as it stands.
#[derive(Default)]
pub(crate) struct Network {
    /// Per host of the plan.
    pub(crate) namespaces: Vec<OwnedFd>,
    /// The links that need threads.
    pub(crate) lightpaths: Vec<Ports>,
    /// Per switch of the plan, a TAP device for each of its hosts.
    pub(crate) switches: Vec<Vec<Port>>,
    /// Kernel threads that `lab up` is to pin.
    pub(crate) threads: Vec<PinnedThread>,
    /// What could not be had.
    pub(crate) notes: Vec<String>,
    /// Kept for as long as the ports in it.
    pub(crate) workshop: Workshop,
}

/// The two ends of an emulated link.
pub(crate) struct Ports {
    /// Which of the plan's links.
    pub(crate) link_index: usize,
    pub(crate) plan: LightpathPlan,
    pub(crate) ends: [Arc<Port>; 2],
}

/// Packets a device queues until the link's thread has read them: more than a full window.
const TX_QUEUE_PKTS: u32 = 10_000;

/// Makes everything the plan names.
pub(crate) fn make(plan: &LabPlan) -> Result<Network, LabError> {
    let mut network = Network::default();
    for host in &plan.hosts {
        let forwards = routes::forwards(plan, &host.name);
        let namespace = make_host(host, forwards, &mut network.notes)?;
        network.namespaces.push(namespace);
    }
    for (link_index, link) in plan.links.iter().enumerate() {
        if let Some(ports) = make_link(plan, link_index, link, &mut network)? {
            network.lightpaths.push(ports);
        }
    }
    for switch in &plan.switches {
        let taps = make_switch(plan, switch, &mut network)?;
        network.switches.push(taps);
    }
    for route in routes::routes(plan) {
        if let Some(namespace) = network.namespaces.get(route.host_index) {
            namespace::enter_network(namespace.as_fd())?;
            RouteSocket::open()?.add_route(route.network, route.prefix_bits, route.gateway)?;
        }
    }
    if network.workshop.ports_count > 0 {
        network.notes.push(
            "this user may not open /dev/net/tun: links use packet sockets, which are slower and \
             may drop bursts (net.core.rmem_max)"
                .to_owned(),
        );
    }
    Ok(network)
}

fn make_host(
    host: &HostPlan,
    forwards: bool,
    notes: &mut Vec<String>,
) -> Result<OwnedFd, LabError> {
    let namespace = namespace::unshare_network()?;
    RouteSocket::open()?.set_link("lo", LinkSettings { up: true, ..LinkSettings::default() })?;
    // Addresses are unique by plan: no second of silence for detecting duplicates, and nobody to
    // ask for routes.
    for name in ["accept_dad", "dad_transmits", "router_solicitations"] {
        for scope in ["all", "default"] {
            // A kernel without IPv6 has nothing to switch off.
            fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/{name}"), "0").ok();
        }
    }
    if forwards {
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").ok();
        fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").ok();
    }
    for (name, value) in &host.sysctls {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        if !set_sysctl(Path::new(&path), value)
            .map_err(|error| refused_sysctl(&host.name, name, value, &error))?
        {
            // Only a name that some kernels lack has come this far.
            let host = &host.name;
            notes.push(format!("{host}: sysctl {name} is not set: this kernel has none"));
        }
    }
    Ok(namespace)
}

/// Writes a parameter; `false` where the kernel has none of that name. A value that the kernel does not know may be
/// refused by the same code, "no such file", as a missing name: of a congestion control without its module, for example.
fn set_sysctl(path: &Path, value: &str) -> io::Result<bool> {
    let mut file = match fs::OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    file.write_all(value.as_bytes())?;
    Ok(true)
}

/// A parameter of the lab file that the kernel has and does not set.
fn refused_sysctl(host: &str, name: &str, value: &str, error: &io::Error) -> LabError {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!(
                "no network namespace may set it; remove it from the lab file, or set it for the whole \
                 machine, as root: sysctl -w {name}='{value}'"
            )
        }
        _ => "write a value in the lab file that the kernel accepts".to_owned(),
    };
    LabError::NotPermitted {
        what: format!("host {host}: the kernel refuses the sysctl {name} = {value}: {error}"),
        advice,
    }
}

fn make_link(
    plan: &LabPlan,
    link_index: usize,
    link: &LinkPlan,
    network: &mut Network,
) -> Result<Option<Ports>, LabError> {
    let [first, second] = &link.ends;
    let near = namespace_of(plan, first, &network.namespaces)?;
    let far = namespace_of(plan, second, &network.namespaces)?;
    let ports = match &link.wire {
        WirePlan::Veth(pair) => {
            namespace::enter_network(near.as_fd())?;
            let names = [first.interface.as_str(), second.interface.as_str()];
            RouteSocket::open()?.add_veth(names, far.as_fd(), pair.queues_count)?;
            None
        }
        WirePlan::Lightpath(path) => {
            let first_port = make_port(first, near.as_fd(), link, &mut network.workshop)?;
            let second_port = make_port(second, far.as_fd(), link, &mut network.workshop)?;
            let ends = [Arc::new(first_port), Arc::new(second_port)];
            Some(Ports { link_index, plan: (**path).clone(), ends })
        }
    };
    let (mut notes, mut threads) = (Vec::new(), Vec::new());
    for (which, (end, namespace)) in [(first, near), (second, far)].into_iter().enumerate() {
        namespace::enter_network(namespace.as_fd())?;
        configure(end, link.mtu_bytes, &mut notes)?;
        if let WirePlan::Veth(pair) = &link.wire {
            threads.extend(veth::settle(pair, which, end, &mut notes));
        }
    }
    network.notes.extend(notes);
    network.threads.extend(threads);
    Ok(ports)
}

fn make_switch(
    plan: &LabPlan,
    switch: &SwitchPlan,
    network: &mut Network,
) -> Result<Vec<Port>, LabError> {
    let mut taps = Vec::new();
    // Guests bring their own devices.
    for end in switch.ends.iter().filter(|end| plan.guest(&end.host).is_none()) {
        namespace::enter_network(namespace_of(plan, end, &network.namespaces)?.as_fd())?;
        let tap = Port::tap(&end.interface).map_err(|error| match error.call {
            "open" => LabError::NotPermitted {
                what: format!("a switch needs TAP devices: {error}: {}", error.source),
                advice: "let this user open /dev/net/tun (chmod 666), or run as root".to_owned(),
            },
            _ => error.into(),
        })?;
        configure(end, switch.mtu_bytes, &mut network.notes)?;
        taps.push(tap);
    }
    Ok(taps)
}

fn namespace_of<'a>(
    plan: &LabPlan,
    end: &EndPlan,
    namespaces: &'a [OwnedFd],
) -> Result<&'a OwnedFd, LabError> {
    let host = plan.hosts.iter().position(|host| host.name == end.host);
    host.and_then(|index| namespaces.get(index))
        .ok_or_else(|| LabError::NotStarted(format!("no host '{}'", end.host)))
}

/// Where the far ends of veth pairs lie whose near ends are interfaces of emulated links, when this
/// user may not have TAP devices.
#[derive(Default)]
pub(crate) struct Workshop {
    namespace: Option<OwnedFd>,
    ports_count: usize,
}

fn make_port(
    end: &EndPlan,
    host: BorrowedFd<'_>,
    link: &LinkPlan,
    workshop: &mut Workshop,
) -> Result<Port, LabError> {
    namespace::enter_network(host)?;
    match Port::tap(&end.interface) {
        Err(error) if error.call == "open" => {}
        other => return Ok(other?),
    }
    let namespace = match workshop.namespace.take() {
        Some(namespace) => namespace,
        None => {
            let namespace = namespace::unshare_network()?;
            // Nobody speaks here.
            fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").ok();
            namespace
        }
    };
    namespace::enter_network(host)?;
    let name = format!("port{}", workshop.ports_count);
    workshop.ports_count += 1;
    RouteSocket::open()?.add_veth([&end.interface, &name], namespace.as_fd(), None)?;
    namespace::enter_network(namespace.as_fd())?;
    let settings =
        LinkSettings { mtu_bytes: Some(link.mtu_bytes), up: true, ..LinkSettings::default() };
    RouteSocket::open()?.set_link(&name, settings)?;
    workshop.namespace = Some(namespace);
    Ok(Port::packet(&name)?)
}

fn configure(end: &EndPlan, mtu_bytes: u32, notes: &mut Vec<String>) -> Result<(), LabError> {
    let mut route = RouteSocket::open()?;
    let interface = &end.interface;
    route.set_link(
        interface,
        LinkSettings {
            mtu_bytes: Some(mtu_bytes),
            tx_queue_pkts: Some(TX_QUEUE_PKTS),
            up: true,
            ..LinkSettings::default()
        },
    )?;
    for address in &end.addresses {
        route.add_address(interface, address.address, address.prefix_bits)?;
    }
    if let Some(speed) = end.speed_bits_per_s {
        let megabits = u32::try_from(speed.div_ceil(1_000_000)).unwrap_or(u32::MAX);
        if let Err(error) = route.set_speed(interface, megabits) {
            let (host, source) = (&end.host, &error.source);
            notes.push(format!("{host}: cannot set the reported speed of {interface}: {source}"));
        }
    }
    Ok(())
}
