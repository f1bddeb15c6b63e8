//! Interfaces: which there are, which one carries a path, and what each can do.

use std::collections::BTreeMap;
use std::net::IpAddr;

use results::InterfaceFacts;
use sys::ethtool::{Device, LinkSettings};

use crate::HostFiles;
use crate::netlink::{RouteSocket, attribute, text_of, u32_of};
use crate::qdisc::root_qdisc;

/// An interface of the calling thread's network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// `eth0`.
    pub name: String,
    /// Its number in this namespace.
    pub index: u32,
    /// Administratively up.
    pub is_up: bool,
    /// The link carries: a cable, or the other end of a pair, is there and up.
    pub has_carrier: bool,
    /// The loopback device.
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
    RouteSocket::open().map(|socket| list(&socket)).unwrap_or_default()
}

/// The interface the kernel would send to this address through: `lo` for an address of this very
/// host. `None` when there is no route.
#[must_use]
pub fn interface_toward(address: IpAddr) -> Option<String> {
    let socket = RouteSocket::open()?;
    let index = socket.route_toward(address)?;
    list(&socket).into_iter().find(|link| link.index == index).map(|link| link.name)
}

/// What an interface is and can do; `None` when there is none of this name.
#[must_use]
pub fn interface_facts(name: &str) -> Option<InterfaceFacts> {
    let socket = RouteSocket::open()?;
    let link = list(&socket).into_iter().find(|link| link.name == name)?;
    Some(describe(&HostFiles::default(), &socket, &link))
}

/// The interface toward an address, described.
pub(crate) fn facts_toward(files: &HostFiles, address: IpAddr) -> Option<InterfaceFacts> {
    let socket = RouteSocket::open()?;
    let index = socket.route_toward(address)?;
    let link = list(&socket).into_iter().find(|link| link.index == index)?;
    let route_metrics = socket.metrics_toward(address);
    Some(InterfaceFacts { route_metrics, ..describe(files, &socket, &link) })
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

fn describe(files: &HostFiles, socket: &RouteSocket, link: &Interface) -> InterfaceFacts {
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

fn list(socket: &RouteSocket) -> Vec<Interface> {
    socket.links().iter().filter_map(|body| parse_link(body)).collect()
}

/// `struct ifinfomsg` and its attributes (kernel `include/uapi/linux/if_link.h`).
fn parse_link(body: &[u8]) -> Option<Interface> {
    const IFINFOMSG_BYTES: usize = 16;
    const IFF_UP: u32 = 1;
    const IFF_LOOPBACK: u32 = 8;
    const IFF_LOWER_UP: u32 = 1 << 16;
    const IFLA_ADDRESS: u16 = 1;
    const IFLA_IFNAME: u16 = 3;
    const IFLA_MTU: u16 = 4;
    const IFLA_QDISC: u16 = 6;
    const IFLA_TXQLEN: u16 = 13;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    const IFLA_NUM_TX_QUEUES: u16 = 31;
    const IFLA_NUM_RX_QUEUES: u16 = 32;
    const IFLA_GSO_MAX_SIZE: u16 = 41;
    const IFLA_MAX_MTU: u16 = 51;
    const IFLA_GRO_MAX_SIZE: u16 = 58;
    let attributes = body.get(IFINFOMSG_BYTES..)?;
    let find = |kind| attribute(attributes, kind);
    let flags = u32_of(body.get(8..)?)?;
    let address = find(IFLA_ADDRESS).unwrap_or(&[]);
    let reserved =
        || Some((u32_of(find(IFLA_NUM_RX_QUEUES)?)?, u32_of(find(IFLA_NUM_TX_QUEUES)?)?));
    Some(Interface {
        name: text_of(find(IFLA_IFNAME)?)?,
        index: u32_of(body.get(4..)?)?,
        is_up: flags & IFF_UP != 0,
        has_carrier: flags & IFF_LOWER_UP != 0,
        is_loopback: flags & IFF_LOOPBACK != 0,
        mtu_bytes: find(IFLA_MTU).and_then(u32_of).unwrap_or(0),
        address: address.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"),
        kind: find(IFLA_LINKINFO).and_then(|info| text_of(attribute(info, IFLA_INFO_KIND)?)),
        qdisc: find(IFLA_QDISC).and_then(text_of),
        reserved_queues_count: reserved(),
        limits: Limits {
            // 0 is the kernel's "no limit known".
            mtu_max_bytes: find(IFLA_MAX_MTU).and_then(u32_of).filter(|&bytes| bytes > 0),
            transmit_queue_pkts: find(IFLA_TXQLEN).and_then(u32_of),
            gso_max_bytes: find(IFLA_GSO_MAX_SIZE).and_then(u32_of),
            gro_max_bytes: find(IFLA_GRO_MAX_SIZE).and_then(u32_of),
        },
    })
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
    fn any_link_message_is_read_or_refused() {
        bolero::check!().for_each(|body: &[u8]| {
            parse_link(body);
        });
        let mut body = vec![0; 16];
        body[4] = 7;
        body[8] = 1;
        body.extend([9, 0, 3, 0, b'e', b't', b'h', b'0', 0, 0, 0, 0]);
        body.extend([8, 0, 4, 0]);
        body.extend(9000u32.to_ne_bytes());
        let link = parse_link(&body).unwrap();
        assert_eq!(
            (link.name.as_str(), link.index, link.is_up, link.mtu_bytes),
            ("eth0", 7, true, 9000)
        );
    }
}
