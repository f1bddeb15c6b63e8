//! Interfaces: which there are, which one carries a path, and what each can do.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netlink::{Link, Route, RouteQuestion, Target, metric};
use results::InterfaceFacts;
use sys::ethtool::{Device, LinkSettings};
use sys::netlink_socket::NetlinkSocket;

use crate::HostFiles;
use crate::qdisc::root_qdisc;

/// An interface of the calling thread's network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// `eth0`.
    pub name: String,
    /// Its number in this namespace.
    pub index: u32,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// The link carries: a cable, or the other end of a pair, is there and up.
    pub has_carrier: bool,
    /// Whether it is the loopback device.
    pub is_loopback: bool,
    /// MTU, bytes.
    pub mtu_bytes: u32,
    /// Hardware address, colons between hexadecimal bytes; empty when it has none.
    pub address: String,
    /// Kind of a software device: `veth`, `tun`, `bridge`.
    pub kind: Option<String>,
    /// Queueing discipline at the root: `noqueue`, `fq_codel`.
    qdisc: Option<String>,
    /// Receive and transmit queues the kernel set aside; the device may use fewer.
    reserved_queues_count: Option<(u32, u32)>,
    limits: Limits,
}

/// What its device and its queue take at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Limits {
    mtu_max_bytes: Option<u32>,
    transmit_queue_pkts: Option<u32>,
    gso_max_bytes: Option<u32>,
    gro_max_bytes: Option<u32>,
}

/// The interfaces of the calling thread's network namespace, in the kernel's order; empty where a
/// sandbox forbids netlink.
#[must_use]
pub fn interfaces() -> Vec<Interface> {
    NetlinkSocket::open().map(|mut socket| list(&mut socket)).unwrap_or_default()
}

/// The interface the kernel would send to this address through: `lo` for an address of this very
/// host. `None` when there is no route.
#[must_use]
pub fn interface_toward(address: IpAddr) -> Option<String> {
    let mut socket = NetlinkSocket::open().ok()?;
    let index = output_index(&route_toward(&mut socket, address)?)?;
    list(&mut socket).into_iter().find(|link| link.index == index).map(|link| link.name)
}

/// What an interface is and can do; `None` when there is none of this name.
#[must_use]
pub fn interface_facts(name: &str) -> Option<InterfaceFacts> {
    let mut socket = NetlinkSocket::open().ok()?;
    let link = list(&mut socket).into_iter().find(|link| link.name == name)?;
    Some(describe(&HostFiles::default(), &mut socket, &link))
}

/// The interface toward an address, described.
pub(crate) fn facts_toward(files: &HostFiles, address: IpAddr) -> Option<InterfaceFacts> {
    let mut socket = NetlinkSocket::open().ok()?;
    let route = route_toward(&mut socket, address)?;
    let index = output_index(&route)?;
    let link = list(&mut socket).into_iter().find(|link| link.index == index)?;
    let route_metrics = route_metrics(&route);
    Some(InterfaceFacts { route_metrics, ..describe(files, &mut socket, &link) })
}

/// The interfaces of a socket's namespace; none where the kernel refuses.
pub(crate) fn links(socket: &mut NetlinkSocket) -> Vec<Link> {
    socket.list(&Link::dump()).unwrap_or_default()
}

/// The way the kernel would send to this address; `None` when there is no route.
fn route_toward(socket: &mut NetlinkSocket, address: IpAddr) -> Option<Route> {
    socket.find(&RouteQuestion::to(address).message()).ok()
}

fn output_index(route: &Route) -> Option<u32> {
    match &route.target {
        Target::Paths(paths) => paths.first()?.interface_index,
        Target::None | Target::Nexthop(_) => None,
    }
}

/// Metrics of a route, by the names of `ip-route(8)`; those that are not set are left out. `cwnd` is
/// told only where it is locked, as it binds only then.
fn route_metrics(route: &Route) -> BTreeMap<String, u64> {
    const NAMES: [(u16, &str); 6] = [
        (metric::MTU, "mtu"),
        (metric::WINDOW, "window"),
        (metric::CWND, "cwnd"),
        (metric::ADVMSS, "advmss"),
        (metric::INITCWND, "initcwnd"),
        (metric::RTO_MIN, "rto_min"),
    ];
    let metrics = &route.metrics;
    let told = NAMES.iter().filter_map(|&(number, name)| {
        let value = metrics.get(number)?;
        let binds = number != metric::CWND || metrics.is_locked(metric::CWND);
        binds.then(|| (name.to_owned(), u64::from(value)))
    });
    told.collect()
}

/// What a device tells of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    /// `mlx5_core`, `veth`.
    pub(crate) driver: Option<String>,
    /// Where it sits, `0000:41:00.0` for PCI.
    pub(crate) bus: Option<String>,
    /// Link speed, bit/s, where it is not made up.
    pub(crate) speed_bits_per_s: Option<f64>,
}

/// What the device of an interface tells of itself.
pub(crate) fn told(files: &HostFiles, link: &Interface, device: Option<&Device>) -> Told {
    let info = device.and_then(|device| device.driver().ok());
    let (driver, bus) = info.map(|info| (info.driver, info.bus)).unzip();
    let is_named = |name: &String| !name.is_empty();
    let driver = driver.filter(is_named).or_else(|| link.kind.clone());
    let speed_bits_per_s = speed(files, link, device, driver.as_deref());
    Told { driver, bus: bus.filter(is_named), speed_bits_per_s }
}

fn describe(files: &HostFiles, socket: &mut NetlinkSocket, link: &Interface) -> InterfaceFacts {
    let device = Device::open(&link.name).ok();
    let told = told(files, link, device.as_ref());
    let features = device.as_ref().and_then(|device| device.active_features().ok());
    let qdisc = root_qdisc(socket, link.index);
    InterfaceFacts {
        name: link.name.clone(),
        speed_bits_per_s: told.speed_bits_per_s,
        mtu_bytes: link.mtu_bytes,
        queues_count: queues(files, link, device.as_ref()),
        qdisc: qdisc.kind.or_else(|| link.qdisc.clone()),
        qdisc_rate_bits_per_s: qdisc.rate_bits_per_s,
        qdisc_class: qdisc.class,
        offloads: offloads(&features.unwrap_or_default()),
        memory_node: told.bus.and_then(|bus| memory_node(files, &bus)),
        driver: told.driver,
        mtu_max_bytes: link.limits.mtu_max_bytes,
        transmit_queue_pkts: link.limits.transmit_queue_pkts,
        gso_max_bytes: link.limits.gso_max_bytes,
        gro_max_bytes: link.limits.gro_max_bytes,
        route_metrics: BTreeMap::new(),
    }
}

fn speed(
    files: &HostFiles,
    link: &Interface,
    device: Option<&Device>,
    driver: Option<&str>,
) -> Option<f64> {
    let settings = device.and_then(|device| device.link().ok()).unwrap_or_else(|| {
        let line =
            sys_of(files, link).and_then(|folder| files.sys_line(&format!("{folder}/speed")));
        let speed_mbit_per_s = line.and_then(|line| line.parse().ok()).filter(|&speed| speed > 0);
        LinkSettings { speed_mbit_per_s, is_fibre: false }
    });
    let told = settings.speed_mbit_per_s?;
    is_believable(driver, told, settings.is_fibre).then(|| f64::from(told) * 1e6)
}

/// A veth claims 10 Gbit/s whatever it does (`drivers/net/veth.c`). A tap claims 10 Gbit/s, before
/// Linux 6.2 10 Mbit/s, of copper until its owner sets what is true (`drivers/net/tun.c`); a lab
/// sets fibre, so that its 10 Gbit/s are believed.
pub(crate) fn is_believable(driver: Option<&str>, mbit_per_s: u32, is_fibre: bool) -> bool {
    match driver {
        Some("veth") => false,
        Some("tun") => is_fibre || !matches!(mbit_per_s, 10 | 10_000),
        _other => true,
    }
}

/// Receive and transmit queues in use: as configured, or as `/sys` lists them. What the kernel set
/// aside says so only when it is one.
fn queues(files: &HostFiles, link: &Interface, device: Option<&Device>) -> Option<(u32, u32)> {
    let configured = device.and_then(|device| device.channels().ok()).map(|channels| {
        let both = channels.combined_count;
        (both.saturating_add(channels.receive_count), both.saturating_add(channels.transmit_count))
    });
    let listed = || {
        let names = files.sys_names(&format!("{}/queues", sys_of(files, link)?));
        let count = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count();
        Some((u32::try_from(count("rx-")).ok()?, u32::try_from(count("tx-")).ok()?))
    };
    let reserved = || link.reserved_queues_count.filter(|&counts| counts == (1, 1));
    configured
        .filter(|&(receive, transmit)| receive > 0 && transmit > 0)
        .or_else(|| listed().filter(|&(receive, transmit)| receive > 0 && transmit > 0))
        .or_else(reserved)
}

/// The device's folder below `/sys`, when what stands there is this very device and not one of
/// another namespace with the same name.
pub(crate) fn sys_of(files: &HostFiles, link: &Interface) -> Option<String> {
    let folder = format!("class/net/{}", link.name);
    let index: u32 = files.sys_line(&format!("{folder}/ifindex"))?.parse().ok()?;
    let address = files.sys_line(&format!("{folder}/address")).unwrap_or_default();
    (index == link.index && address == link.address).then_some(folder)
}

/// The memory node of a PCI device; the kernel writes -1 where there is only one.
fn memory_node(files: &HostFiles, bus: &str) -> Option<u32> {
    if bus.contains('/') {
        return None;
    }
    files.sys_line(&format!("bus/pci/devices/{bus}/numa_node"))?.parse().ok()
}

/// The features that decide throughput, by the short name `ethtool -k` users know, or the kernel's.
fn offloads(active: &[String]) -> Vec<String> {
    const KNOWN: &[(&str, &str)] = &[
        ("tx-tcp-segmentation", "tso"),
        ("tx-tcp6-segmentation", "tso6"),
        ("tx-generic-segmentation", "gso"),
        ("rx-gro", "gro"),
        ("rx-gro-hw", "gro-hw"),
        ("rx-lro", "lro"),
        ("tx-scatter-gather", "sg"),
        ("rx-checksum", "rx-checksum"),
        ("tx-checksum-ip-generic", "tx-checksum"),
        ("tx-checksum-ipv4", "tx-checksum"),
        ("tx-udp-segmentation", "tx-udp-segmentation"),
        ("rx-udp-gro-forwarding", "rx-udp-gro-forwarding"),
        ("rx-gro-list", "rx-gro-list"),
    ];
    let is_active = |name: &str| active.iter().any(|feature| feature == name);
    let mut told: Vec<String> = Vec::new();
    for (kernel_name, name) in KNOWN {
        if is_active(kernel_name) && !told.iter().any(|known| known == name) {
            told.push((*name).to_owned());
        }
    }
    told
}

fn list(socket: &mut NetlinkSocket) -> Vec<Interface> {
    links(socket).into_iter().map(Interface::from).collect()
}

impl From<Link> for Interface {
    fn from(link: Link) -> Self {
        let address = link.hardware_address.iter().map(|byte| format!("{byte:02x}"));
        Self {
            index: link.index,
            is_up: link.is_up(),
            has_carrier: link.has_carrier(),
            is_loopback: link.is_loopback(),
            mtu_bytes: link.mtu_bytes.unwrap_or(0),
            address: address.collect::<Vec<_>>().join(":"),
            reserved_queues_count: link.rx_queues_count.zip(link.tx_queues_count),
            limits: Limits {
                // 0 is the kernel's "no limit known".
                mtu_max_bytes: link.mtu_max_bytes.filter(|&bytes| bytes > 0),
                transmit_queue_pkts: link.tx_queue_pkts,
                gso_max_bytes: link.gso_max_bytes,
                gro_max_bytes: link.gro_max_bytes,
            },
            kind: link.kind,
            qdisc: link.qdisc,
            name: link.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_and_described() {
        let lo = interfaces().into_iter().find(|link| link.is_loopback).unwrap();
        assert_eq!((lo.name.as_str(), lo.index), ("lo", 1));
        assert_eq!(interface_toward("127.0.0.9".parse().unwrap()), Some("lo".into()));
        let facts = interface_facts("lo").unwrap();
        assert_eq!(
            (facts.mtu_bytes, facts.speed_bits_per_s, facts.queues_count),
            (65536, None, Some((1, 1)))
        );
        assert!(facts.offloads.iter().any(|name| name == "tso"), "{facts:?}");
        assert_eq!(interface_facts("no-such-dev0"), None);
    }

    #[test]
    fn made_up_speeds_are_not_believed() {
        assert!(!is_believable(Some("veth"), 10_000, false));
        assert!(!is_believable(Some("tun"), 10, false));
        assert!(!is_believable(Some("tun"), 10_000, false));
        assert!(is_believable(Some("tun"), 10_000, true));
        assert!(is_believable(Some("tun"), 40_000, false));
        assert!(is_believable(Some("mlx5_core"), 10_000, false));
    }

    #[test]
    fn offloads_are_told_once_and_by_their_short_names() {
        let active = [
            "rx-gro",
            "tx-checksum-ipv4",
            "tx-checksum-ip-generic",
            "tx-tcp-segmentation",
            "rx-vlan-filter",
        ];
        let active = active.map(str::to_owned);
        assert_eq!(offloads(&active), ["tso", "gro", "tx-checksum"]);
    }

    #[test]
    fn a_link_is_shown_as_people_write_it() {
        let link = Link {
            name: "eth0".to_owned(),
            hardware_address: vec![2, 0, 0, 0, 0, 0xa],
            mtu_max_bytes: Some(0),
            rx_queues_count: Some(4),
            tx_queues_count: Some(2),
            ..Link::default()
        };
        let shown = Interface::from(link);
        assert_eq!(shown.address, "02:00:00:00:00:0a");
        assert_eq!(shown.limits.mtu_max_bytes, None);
        assert_eq!(shown.reserved_queues_count, Some((4, 2)));
    }

    #[test]
    fn metrics_have_names_and_a_window_binds_only_where_it_is_locked() {
        let mut route = Route::new(netlink::Prefix::all(netlink::Family::V4), Target::None);
        route.metrics.values.extend([(metric::MTU, 9000), (metric::CWND, 10), (5, 7)]);
        assert_eq!(route_metrics(&route), BTreeMap::from([("mtu".to_owned(), 9000)]));
        route.metrics.values.insert(metric::LOCK, 1 << metric::CWND);
        assert_eq!(route_metrics(&route).get("cwnd"), Some(&10));
    }
}
