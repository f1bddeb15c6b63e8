//! What a lab is made of: the validated form of a lab file, and what the state directory keeps.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use packet_switch::Name;
use serde::{Deserialize, Serialize};
use switch::lightpath::{BurstLoss, JitterShape, LightpathConfig, Shaper};
use vm::line::PortType;

/// Hosts and links.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabPlan {
    /// Under which the lab is up, at most once on a machine.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// In the order of the file.
    pub hosts: Vec<HostPlan>,
    /// In the order of the file.
    #[serde(default)]
    pub guests: Vec<GuestPlan>,
    /// In the order of the file.
    pub links: Vec<LinkPlan>,
    /// In the order of the file.
    #[serde(default)]
    pub switches: Vec<SwitchPlan>,
    /// Hosts get no routes but those of their own networks, and forward nothing: routing is what the lab is for.
    #[serde(default)]
    pub is_unrouted: bool,
    /// A parallel file system that some hosts serve and others mount.
    #[serde(default)]
    pub filesystem: Option<FilesystemPlan>,
}

/// A parallel file system of the lab's own: its data is in memory and goes with the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemPlan {
    /// Whose programs make it.
    pub kind: FilesystemKind,
    /// Below `/mnt` of the clients, it is called so.
    pub name: String,
    /// Hosts that keep the data; the first one also the metadata.
    pub servers: Vec<String>,
    /// Hosts that mount it.
    pub clients: Vec<String>,
    /// Memory that each server may take for data, bytes.
    pub capacity_bytes: u64,
    /// A host that mounts it too and hands it on: clients also see it as this host projects it.
    #[serde(default)]
    pub forwarder: Option<String>,
}

impl FilesystemPlan {
    /// Memory that its servers together may take for data, bytes.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.capacity_bytes.saturating_mul(self.servers.len() as u64)
    }
}

/// Parallel file systems that a lab can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilesystemKind {
    /// MooseFS 3.
    MooseFs,
    /// GlusterFS.
    GlusterFs,
}

impl fmt::Display for FilesystemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MooseFs => "MooseFS",
            Self::GlusterFs => "GlusterFS",
        })
    }
}

impl FilesystemPlan {
    /// Where clients have it.
    #[must_use]
    pub fn mount_point(&self) -> PathBuf {
        Path::new("/mnt").join(&self.name)
    }

    /// Hosts that have a part in it: servers first, then who hands it on, then clients.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &String> {
        self.servers.iter().chain(&self.forwarder).chain(&self.clients)
    }
}

/// A host: a network namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostPlan {
    /// Also its name in the lab's hosts file.
    pub name: String,
    /// Cores its programs run on; empty for all.
    pub cores: Vec<u32>,
    /// Kernel parameters of its network namespace, as `sysctl` spells them.
    pub sysctls: BTreeMap<String, String>,
}

/// A guest: a virtual machine whose network device is a port of one of the lab's switches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPlan {
    /// Among hosts and guests the only one.
    pub name: String,
    /// How it is connected to its port.
    #[serde(default)]
    pub port_type: PortType,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Cores of its own.
    pub cores: u32,
    /// Pairs of queues of its network device; absent: one for each core, as far as it can have so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// The trust group that its port is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<Name>,
}

impl GuestPlan {
    /// Most pairs of queues that it can have.
    #[must_use]
    pub fn queues_max(&self) -> u32 {
        self.port_type.queues_max(self.trust.is_some())
    }

    /// The pairs of queues that it has.
    #[must_use]
    pub fn queues_count(&self) -> u32 {
        self.queues.unwrap_or(self.cores.min(self.queues_max()))
    }
}

/// A link between two hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkPlan {
    /// Both ends; "forward" is from the first to the second.
    pub ends: [EndPlan; 2],
    /// Largest packet, bytes.
    pub mtu_bytes: u32,
    /// What is between the ends.
    pub wire: WirePlan,
}

/// A learning switch that hosts share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SwitchPlan {
    /// Of its kind the only one of the lab.
    pub name: String,
    /// A port each, in the order of the file.
    pub ends: Vec<EndPlan>,
    /// Largest packet, bytes.
    pub mtu_bytes: u32,
    /// Cores its threads run on; empty for all.
    pub cores: Vec<u32>,
    /// What is between each host and its port, each way, with seeds of its own; absent: nothing that
    /// takes time.
    pub line: Option<DirectionPlan>,
}

/// One end of a link, or what is plugged into a switch: an interface of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndPlan {
    /// Name of the host.
    pub host: String,
    /// Name of its interface.
    pub interface: String,
    /// The interface's addresses.
    pub addresses: Vec<AddressPlan>,
    /// The speed the interface says it has, bit/s.
    pub speed_bits_per_s: Option<u64>,
}

/// The smallest MTU with IPv6 (RFC 8200 section 5); below it the kernel takes no such address.
pub(crate) const IPV6_MTU_MIN_BYTES: u32 = 1280;

/// An address with its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressPlan {
    /// The address.
    pub address: IpAddr,
    /// Leading bits that are the network's.
    pub prefix_bits: u8,
}

impl AddressPlan {
    /// The network's own address.
    pub(crate) fn network(&self) -> IpAddr {
        let bits = u32::from(self.prefix_bits);
        match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits)).unwrap_or(0);
                Ipv4Addr::from_bits(v4.to_bits() & mask).into()
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits)).unwrap_or(0);
                Ipv6Addr::from_bits(v6.to_bits() & mask).into()
            }
        }
    }

    /// Whether an address is in the network.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        Self { address, ..*self }.network() == self.network()
    }
}

impl fmt::Display for AddressPlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.prefix_bits)
    }
}

/// What connects two ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum WirePlan {
    /// The kernel's own pair, as fast as it goes.
    Veth(VethPlan),
    /// Two emulated directions.
    Lightpath(Box<LightpathPlan>),
}

/// A veth pair. What is absent is as the kernel makes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VethPlan {
    /// Receive and transmit queues of each end.
    #[serde(default)]
    pub queues_count: Option<u32>,
    /// Generic receive offload; a veth end polls (NAPI) only with it.
    #[serde(default)]
    pub gro: Option<bool>,
    /// TCP segmentation offload; without it the wire carries packets of the MTU, as a real one.
    #[serde(default)]
    pub tso: Option<bool>,
    /// Kernel threads receive packets instead of the sender's core.
    #[serde(default)]
    pub napi_threaded: bool,
    /// Cores of those threads, each end's; absent: wherever the scheduler puts them.
    #[serde(default)]
    pub napi_cores: [Option<u32>; 2],
}

/// An emulated link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LightpathPlan {
    /// From the first end to the second.
    pub forward: DirectionPlan,
    /// From the second end to the first.
    pub backward: DirectionPlan,
    /// Cores the link's threads run on; empty for all.
    pub cores: Vec<u32>,
}

/// One direction of a lightpath, as [`LightpathConfig`] has it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DirectionPlan {
    /// Seed of all random draws.
    pub seed: u64,
    /// One-way delay, nanoseconds.
    pub delay_ns: u64,
    /// To either side, nanoseconds.
    pub jitter_ns: u64,
    /// The jitter is a standard deviation instead of a bound.
    pub jitter_is_normal: bool,
    /// Line rate, bit/s.
    pub rate_bits_per_s: Option<u64>,
    /// Room for frames that wait, wire bytes.
    pub queue_bytes: Option<u64>,
    /// Marks above so many waiting wire bytes.
    pub mark_above_bytes: Option<u64>,
    /// Token bucket on the way.
    pub shaper: Option<ShaperPlan>,
    /// Share of packets lost.
    pub loss: f64,
    /// Losses in bursts.
    pub burst_loss: Option<BurstPlan>,
    /// Share of frames that come late.
    pub reorder: f64,
    /// By so much, nanoseconds.
    pub reorder_by_ns: u64,
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShaperPlan {
    /// In the long run, bit/s.
    pub rate_bits_per_s: u64,
    /// At line rate, bytes.
    pub burst_bytes: u64,
}

/// Gilbert's and Elliott's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BurstPlan {
    /// Probability of a burst beginning, per packet.
    pub enter: f64,
    /// Probability of it ending, per packet.
    pub leave: f64,
    /// Share lost within it.
    pub loss: f64,
}

impl DirectionPlan {
    /// As the pure link wants it.
    #[must_use]
    pub fn config(&self) -> LightpathConfig {
        LightpathConfig {
            seed: self.seed,
            delay_ns: self.delay_ns,
            jitter_ns: self.jitter_ns,
            jitter_shape: match self.jitter_is_normal {
                true => JitterShape::Normal,
                false => JitterShape::Uniform,
            },
            rate_bits_per_s: self.rate_bits_per_s,
            queue_bytes: self.queue_bytes,
            mark_above_bytes: self.mark_above_bytes,
            shaper: self.shaper.map(|shaper| Shaper {
                rate_bits_per_s: shaper.rate_bits_per_s,
                burst_bytes: shaper.burst_bytes,
            }),
            loss: self.loss,
            burst_loss: self.burst_loss.map(|burst| BurstLoss {
                enter: burst.enter,
                leave: burst.leave,
                loss: burst.loss,
            }),
            reorder: self.reorder,
            reorder_by_ns: self.reorder_by_ns,
        }
    }
}

impl LabPlan {
    /// The host of this name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&HostPlan> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The guest of this name.
    #[must_use]
    pub fn guest(&self, name: &str) -> Option<&GuestPlan> {
        self.guests.iter().find(|guest| guest.name == name)
    }

    /// A guest's interface, and the switch that has it.
    #[must_use]
    pub fn guest_end(&self, name: &str) -> Option<(&SwitchPlan, &EndPlan)> {
        self.switches.iter().find_map(|switch| {
            let end = switch.ends.iter().find(|end| end.host == name)?;
            Some((switch, end))
        })
    }

    /// All interfaces: those of links, then those of switches.
    pub(crate) fn ends(&self) -> impl Iterator<Item = &EndPlan> {
        let links = self.links.iter().flat_map(|link| &link.ends);
        links.chain(self.switches.iter().flat_map(|switch| &switch.ends))
    }

    /// The addresses by which others reach a host, those of its first link first.
    pub fn addresses_of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = IpAddr> + 'a {
        self.ends()
            .filter(move |end| end.host == host)
            .flat_map(|end| end.addresses.iter().map(|address| address.address))
    }

    /// A hosts file (`hosts(5)`) that knows every host and guest of the lab.
    #[must_use]
    pub fn hosts_file(&self) -> String {
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost\n");
        let hosts = self.hosts.iter().map(|host| &host.name);
        for name in hosts.chain(self.guests.iter().map(|guest| &guest.name)) {
            for address in self.addresses_of(name) {
                text.push_str(&format!("{address} {name}\n"));
            }
        }
        text
    }
}
