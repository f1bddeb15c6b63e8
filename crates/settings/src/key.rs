//! What can be changed: one typed name for every setting, and how it is written. Anything read from a
//! journal, a plan, a results file or a peer passes through [`Key::from_str`] and [`Key::check`] before
//! it comes near the host.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

mod filter_table;
mod flow;
mod route;

pub use filter_table::FilterTableName;
pub use flow::FlowName;
pub use route::RouteName;

use crate::catalogue;
use crate::text::shorten;

/// Longest name of a setting, bytes; a control group's path is the longest part of one.
const KEY_BYTES_MAX: usize = 1024;

/// A setting of a host. As text: `net.ipv4.tcp_rmem`, `eth0/mtu`, `eth0/rx-0/rps_cpus`,
/// `irq:27/affinity`, `thread:napi/eth0-8193/affinity`, `cpu:3/governor`, `cgroup:/box/cpu.max`,
/// `file:etc/sysctl.d/90-clearstream.conf`.
///
/// Later versions add families; a world answers that it has no setting of a family it does not know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Key {
    /// A kernel setting below `/proc/sys/net` of the documented list ([`catalogue::SYSCTLS`]).
    Sysctl(String),
    /// A setting of an interface.
    Interface {
        /// Name of the interface: `eth0`.
        name: String,
        /// The part of the interface.
        what: InterfaceKey,
    },
    /// `/proc/irq/N/smp_affinity_list`: the cores an interrupt may run on.
    InterruptAffinity(u32),
    /// The cores that the kernel thread of this name may run on: one of threaded NAPI,
    /// `napi/eth0-8193`.
    ThreadAffinity(String),
    /// `cpufreq/scaling_governor` of a core.
    Governor(u32),
    /// `cpu.max` of the control group at this path below the root of the hierarchy (version 2): the
    /// processor time its threads may have.
    CpuQuota(String),
    /// A file that makes settings survive a reboot; the path is relative to the root.
    File(PersistedFile),
    /// The nexthop object or group with this number.
    Nexthop(u32),
    /// The route that the kernel knows by this.
    Route(RouteName),
    /// The rule with this netlink body, as hexadecimal digits: a rule has no other name than itself.
    Rule(String),
    /// A packet filter table of this program's with everything in it.
    FilterTable(FilterTableName),
}

/// A setting of an interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum InterfaceKey {
    /// Largest packet, bytes.
    Mtu,
    /// Transmit queue, packets.
    TxQueueLength,
    /// Queueing discipline at the root.
    Qdisc,
    /// A number `ethtool` sets.
    Parameter(Parameter),
    /// An offload or other feature, by the kernel's name.
    Feature(String),
    /// RSS indirection table: queue numbers.
    RssTable,
    /// Cores RPS hands a receive queue's packets to (hexadecimal mask).
    RpsCores(u32),
    /// Entries of a receive queue's RFS table.
    RfsEntries(u32),
    /// Cores whose traffic XPS sends to a transmit queue (hexadecimal mask).
    XpsCores(u32),
    /// Packet processing in kernel threads.
    ThreadedNapi,
    /// The receive queue to which a flow rule of the device directs datagrams (`ethtool -N`); `-`: there is no such rule.
    FlowQueue(FlowName),
    /// `net.ipv4.conf.INTERFACE.NAME`, one of [`catalogue::IPV4_OF_INTERFACE`].
    Ipv4(&'static str),
    /// `net.ipv6.conf.INTERFACE.NAME`, one of [`catalogue::IPV6_OF_INTERFACE`].
    Ipv6(&'static str),
}

/// One number of a device that `ethtool` sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Parameter {
    /// Receive descriptors (`ethtool -g`, RX).
    RingReceive,
    /// Transmit descriptors (`ethtool -g`, TX).
    RingTransmit,
    /// Receive-only channels (`ethtool -l`, RX).
    ChannelsReceive,
    /// Transmit-only channels (`ethtool -l`, TX).
    ChannelsTransmit,
    /// Channels that do both (`ethtool -l`, Combined).
    ChannelsCombined,
    /// Wait after a received packet, microseconds (`ethtool -c`, rx-usecs).
    CoalesceReceiveUsecs,
    /// Packets before an interrupt, receive (`rx-frames`).
    CoalesceReceiveFrames,
    /// Wait after a sent packet, microseconds (`tx-usecs`).
    CoalesceTransmitUsecs,
    /// Packets before an interrupt, transmit (`tx-frames`).
    CoalesceTransmitFrames,
    /// The driver adapts the receive side, 0 or 1 (`Adaptive RX`).
    CoalesceReceiveAdaptive,
    /// The driver adapts the transmit side, 0 or 1 (`Adaptive TX`).
    CoalesceTransmitAdaptive,
}

/// A file [`Key::File`] may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PersistedFile {
    /// Kernel settings, read at boot by `systemd-sysctl` (`sysctl.d(5)`).
    Sysctl,
    /// All other settings, read by our unit.
    Settings,
    /// The unit (`systemd.service(5)`).
    Unit,
    /// What makes the unit start at boot.
    UnitLink,
    /// Interrupts that `irqbalance` shall leave alone (`irqbalance(1)`).
    IrqbalanceDropIn,
}

/// Every file, with its path below the root.
pub const FILES: [(PersistedFile, &str); 5] = [
    (PersistedFile::Sysctl, "etc/sysctl.d/90-clearstream.conf"),
    (PersistedFile::Settings, "etc/clearstream/tune.conf"),
    (PersistedFile::Unit, "etc/systemd/system/clearstream-tune.service"),
    (
        PersistedFile::UnitLink,
        "etc/systemd/system/multi-user.target.wants/clearstream-tune.service",
    ),
    (
        PersistedFile::IrqbalanceDropIn,
        "etc/systemd/system/irqbalance.service.d/90-clearstream.conf",
    ),
];

/// `ethtool` parameters by our names.
pub const PARAMETERS: [(Parameter, &str); 11] = [
    (Parameter::RingReceive, "ring-rx"),
    (Parameter::RingTransmit, "ring-tx"),
    (Parameter::ChannelsReceive, "channels-rx"),
    (Parameter::ChannelsTransmit, "channels-tx"),
    (Parameter::ChannelsCombined, "channels-combined"),
    (Parameter::CoalesceReceiveUsecs, "coalesce-rx-usecs"),
    (Parameter::CoalesceReceiveFrames, "coalesce-rx-frames"),
    (Parameter::CoalesceTransmitUsecs, "coalesce-tx-usecs"),
    (Parameter::CoalesceTransmitFrames, "coalesce-tx-frames"),
    (Parameter::CoalesceReceiveAdaptive, "coalesce-adaptive-rx"),
    (Parameter::CoalesceTransmitAdaptive, "coalesce-adaptive-tx"),
];

/// Why a key or a value is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Not the name of a setting.
    #[error("'{0}' is not a setting that this program changes")]
    Unknown(String),
    /// Not a value of this setting.
    #[error("{key}: '{value}' is not {wanted}")]
    Value {
        /// Key of the setting.
        key: String,
        /// The value, shortened.
        value: String,
        /// Values that the setting accepts.
        wanted: &'static str,
    },
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let unknown = || KeyError::Unknown(shorten(text));
        if text.len() > KEY_BYTES_MAX {
            return Err(unknown());
        }
        if let Some(path) = text.strip_prefix("file:") {
            let file = FILES.iter().find(|(_, known)| *known == path);
            return file.map(|(file, _)| Self::File(*file)).ok_or_else(unknown);
        }
        if let Some(rest) = text.strip_prefix("irq:") {
            let number = rest.strip_suffix("/affinity").and_then(plain_number);
            return number.map(Self::InterruptAffinity).ok_or_else(unknown);
        }
        if let Some(rest) = text.strip_prefix("thread:") {
            let name = rest.strip_suffix("/affinity").filter(|name| is_thread_name(name));
            return name.map(|name| Self::ThreadAffinity(name.to_owned())).ok_or_else(unknown);
        }
        if let Some(rest) = text.strip_prefix("cgroup:") {
            let group = rest.strip_suffix("/cpu.max").filter(|group| is_group(group));
            return group.map(|group| Self::CpuQuota(group.to_owned())).ok_or_else(unknown);
        }
        if let Some(number) = text.strip_prefix("nexthop:") {
            return plain_number(number).map(Self::Nexthop).ok_or_else(unknown);
        }
        if let Some(route) = text.strip_prefix("route:") {
            return RouteName::parse(route).map(Self::Route).ok_or_else(unknown);
        }
        if let Some(body) = text.strip_prefix("rule:") {
            let is_body = is_hexadecimal(body);
            return if is_body { Ok(Self::Rule(body.to_owned())) } else { Err(unknown()) };
        }
        if let Some(table) = text.strip_prefix("nft:") {
            return FilterTableName::parse(table).map(Self::FilterTable).ok_or_else(unknown);
        }
        if let Some(rest) = text.strip_prefix("cpu:") {
            let number = rest.strip_suffix("/governor").and_then(plain_number);
            return number.map(Self::Governor).ok_or_else(unknown);
        }
        let Some((name, what)) = text.split_once('/') else {
            let known = catalogue::sysctl(text).is_some();
            return if known { Ok(Self::Sysctl(text.to_owned())) } else { Err(unknown()) };
        };
        if !is_interface_name(name) {
            return Err(unknown());
        }
        let what = InterfaceKey::parse(what).ok_or_else(unknown)?;
        Ok(Self::Interface { name: name.to_owned(), what })
    }
}

impl InterfaceKey {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "mtu" => Self::Mtu,
            "txqueuelen" => Self::TxQueueLength,
            "qdisc" => Self::Qdisc,
            "rss" => Self::RssTable,
            "threaded" => Self::ThreadedNapi,
            other => {
                if let Some((parameter, _)) = PARAMETERS.iter().find(|(_, name)| *name == other) {
                    return Some(Self::Parameter(*parameter));
                }
                if let Some(name) = other.strip_prefix("feature-") {
                    return is_feature_name(name).then(|| Self::Feature(name.to_owned()));
                }
                let (queue, what) = other.split_once('/')?;
                let one_of =
                    |known: &[&'static str]| known.iter().copied().find(|one| *one == what);
                match queue {
                    "ipv4" => return one_of(catalogue::IPV4_OF_INTERFACE).map(Self::Ipv4),
                    "ipv6" => return one_of(catalogue::IPV6_OF_INTERFACE).map(Self::Ipv6),
                    _queue => {}
                }
                if what == "queue" {
                    return FlowName::parse(queue).map(Self::FlowQueue);
                }
                match (queue.split_at_checked(3)?, what) {
                    (("rx-", number), "rps_cpus") => Self::RpsCores(plain_number(number)?),
                    (("rx-", number), "rps_flow_cnt") => Self::RfsEntries(plain_number(number)?),
                    (("tx-", number), "xps_cpus") => Self::XpsCores(plain_number(number)?),
                    _ => return None,
                }
            }
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl(name) => out.write_str(name),
            Self::Interface { name, what } => write!(out, "{name}/{what}"),
            Self::InterruptAffinity(irq) => write!(out, "irq:{irq}/affinity"),
            Self::ThreadAffinity(name) => write!(out, "thread:{name}/affinity"),
            Self::Governor(core) => write!(out, "cpu:{core}/governor"),
            Self::CpuQuota(group) => write!(out, "cgroup:{group}/cpu.max"),
            Self::File(file) => write!(out, "file:{}", file.path()),
            Self::Nexthop(id) => write!(out, "nexthop:{id}"),
            Self::Route(route) => write!(out, "route:{route}"),
            Self::Rule(body) => write!(out, "rule:{body}"),
            Self::FilterTable(name) => write!(out, "nft:{name}"),
        }
    }
}

impl fmt::Display for InterfaceKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mtu => out.write_str("mtu"),
            Self::TxQueueLength => out.write_str("txqueuelen"),
            Self::Qdisc => out.write_str("qdisc"),
            Self::Parameter(parameter) => {
                let known = PARAMETERS.iter().find(|(known, _)| known == parameter);
                out.write_str(known.map_or("?", |(_, name)| name))
            }
            Self::Feature(name) => write!(out, "feature-{name}"),
            Self::RssTable => out.write_str("rss"),
            Self::RpsCores(queue) => write!(out, "rx-{queue}/rps_cpus"),
            Self::RfsEntries(queue) => write!(out, "rx-{queue}/rps_flow_cnt"),
            Self::XpsCores(queue) => write!(out, "tx-{queue}/xps_cpus"),
            Self::ThreadedNapi => out.write_str("threaded"),
            Self::FlowQueue(flow) => write!(out, "{flow}/queue"),
            Self::Ipv4(name) => write!(out, "ipv4/{name}"),
            Self::Ipv6(name) => write!(out, "ipv6/{name}"),
        }
    }
}

impl PersistedFile {
    /// Path below the root.
    #[must_use]
    pub fn path(self) -> &'static str {
        FILES.iter().find(|(file, _)| *file == self).map_or("", |(_, path)| path)
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Key {
    /// The setting that says on which cores a source of packet work runs, from the name that a placement
    /// file gives it: `irq 42`, `napi/eth0-8193`.
    #[must_use]
    pub fn of_packet_source(name: &str) -> Option<Self> {
        match name.strip_prefix("irq ") {
            Some(number) => plain_number(number).map(Self::InterruptAffinity),
            None => is_thread_name(name).then(|| Self::ThreadAffinity(name.to_owned())),
        }
    }

    /// The name of the source of packet work whose cores it sets: `irq 42`, `napi/eth0-8193`. `None` for
    /// every other setting.
    #[must_use]
    pub fn packet_source(&self) -> Option<String> {
        match self {
            Self::InterruptAffinity(irq) => Some(format!("irq {irq}")),
            Self::ThreadAffinity(name) => Some(name.clone()),
            _ => None,
        }
    }

    /// Whether it decides where packets go, and so what a host forwards and accepts for others.
    #[must_use]
    pub fn is_routing(&self) -> bool {
        const PARTS: [&str; 4] = [".conf.", "fib_multipath", "ip_forward", "fwmark"];
        match self {
            Self::Sysctl(name) => PARTS.iter().any(|part| name.contains(part)),
            Self::Interface { what, .. } => {
                matches!(what, InterfaceKey::Ipv4(_) | InterfaceKey::Ipv6(_))
            }
            other => other.is_object(),
        }
    }

    /// Whether it is an object that is there or not, and that the kernel neither rounds nor clamps: what is
    /// there and is not what was written is somebody else's.
    #[must_use]
    pub fn is_object(&self) -> bool {
        matches!(self, Self::Nexthop(_) | Self::Route(_) | Self::Rule(_) | Self::FilterTable(_))
    }

    /// The interface it belongs to.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Interface { name, .. } => Some(name),
            _ => None,
        }
    }
}

fn is_interface_name(name: &str) -> bool {
    // What `dev_valid_name` (kernel net/core/dev.c) accepts.
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    !name.is_empty() && name.len() < 16 && name != "." && name != ".." && name.bytes().all(plain)
}

/// A kernel thread of threaded NAPI: `napi/INTERFACE-ID`, cut short by kernels before 5.17. No other
/// thread is a setting: what a program pins is the program's own.
fn is_thread_name(name: &str) -> bool {
    let interface = name.strip_prefix("napi/");
    name.len() <= 32
        && interface.is_some_and(|rest| {
            !rest.is_empty()
                && rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:".contains(&byte))
        })
}

/// A control group's path: `/system.slice/box.service`. The root group has no quota.
fn is_group(path: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name != "." && name != ".." && !name.contains(char::is_control)
    };
    path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_name))
}

/// Whole bytes in lower case.
pub(crate) fn is_hexadecimal(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    !text.is_empty() && text.len().is_multiple_of(2) && text.bytes().all(digit)
}

fn is_feature_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.len() <= 32 && name.bytes().all(plain)
}

/// Digits only: no sign, no blanks.
pub(crate) fn plain_number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
