//! What can be changed: one typed name for every setting, how it is written, and which values it
//! takes. Anything read from a journal, a plan or a peer passes through [`Key::from_str`] and
//! [`Key::check`] before it comes near the host.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sys::ethtool_set::Parameter;
use thiserror::Error;

use crate::catalogue;

/// Longest value of a setting, bytes; a file of ours is the longest there is.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 10;

/// A setting of a host. As text: `net.ipv4.tcp_rmem`, `eth0/mtu`, `eth0/rx-0/rps_cpus`,
/// `irq:27/affinity`, `cpu:3/governor`, `file:etc/sysctl.d/90-clearstream.conf`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A kernel setting below `/proc/sys/net` of the documented list ([`catalogue::SYSCTLS`]).
    Sysctl(String),
    /// A setting of an interface.
    Interface {
        /// `eth0`.
        name: String,
        /// Which.
        what: InterfaceKey,
    },
    /// `/proc/irq/N/smp_affinity_list`: the cores an interrupt may run on.
    InterruptAffinity(u32),
    /// `cpufreq/scaling_governor` of a core.
    Governor(u32),
    /// A file that makes settings survive a reboot; the path is relative to the root.
    File(PersistedFile),
}

/// A setting of an interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    #[error("'{0}' is no setting this program changes")]
    Unknown(String),
    /// Not a value of this setting.
    #[error("{key}: '{value}' is not {wanted}")]
    Value {
        /// The setting.
        key: String,
        /// The value, shortened.
        value: String,
        /// What it takes.
        wanted: &'static str,
    },
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let unknown = || KeyError::Unknown(shorten(text));
        if text.len() > 256 {
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
            Self::Governor(core) => write!(out, "cpu:{core}/governor"),
            Self::File(file) => write!(out, "file:{}", file.path()),
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
    /// The value in the one form that is written and compared: figures with single spaces between
    /// them, masks in lower case without leading zeros.
    ///
    /// # Errors
    /// [`KeyError::Value`] when the setting takes no such value.
    pub fn check(&self, value: &str) -> Result<String, KeyError> {
        let wrong =
            |wanted| KeyError::Value { key: self.to_string(), value: shorten(value), wanted };
        if value.len() > VALUE_BYTES_MAX {
            return Err(wrong("short enough"));
        }
        match self {
            Self::Sysctl(name) => {
                let known =
                    catalogue::sysctl(name).ok_or_else(|| KeyError::Unknown(name.clone()))?;
                known.kind.check(value).ok_or_else(|| wrong(known.kind.wanted()))
            }
            Self::Interface { what, .. } => what.check(value, &wrong),
            Self::InterruptAffinity(_) => {
                core_list(value).ok_or_else(|| wrong("a list of cores: 0-3,8"))
            }
            Self::Governor(_) => word(value).ok_or_else(|| wrong("the name of a governor")),
            Self::File(_) => file_value(value).ok_or_else(|| wrong("a file's contents")),
        }
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

impl InterfaceKey {
    fn check(
        &self,
        value: &str,
        wrong: &dyn Fn(&'static str) -> KeyError,
    ) -> Result<String, KeyError> {
        match self {
            Self::Mtu | Self::TxQueueLength | Self::Parameter(_) | Self::RfsEntries(_) => {
                let number = plain_number(value.trim()).ok_or_else(|| wrong("a whole number"))?;
                Ok(number.to_string())
            }
            Self::Qdisc => qdisc(value).ok_or_else(|| wrong("a qdisc, or KIND (default)")),
            Self::Feature(_) => match value.trim() {
                state @ ("on" | "off") => Ok(state.to_owned()),
                _ => Err(wrong("on or off")),
            },
            Self::ThreadedNapi => match value.trim() {
                state @ ("0" | "1") => Ok(state.to_owned()),
                _ => Err(wrong("0 or 1")),
            },
            Self::RssTable => {
                let queues: Option<Vec<u32>> =
                    value.split_ascii_whitespace().map(plain_number).collect();
                let queues = queues.filter(|queues| !queues.is_empty() && queues.len() <= 4096);
                let queues = queues.ok_or_else(|| wrong("a list of queues"))?;
                Ok(queues.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
            }
            Self::RpsCores(_) | Self::XpsCores(_) => {
                mask(value).ok_or_else(|| wrong("a hexadecimal mask of cores"))
            }
        }
    }
}

/// A core mask as the kernel prints it, without leading zeros and with its commas kept in place.
pub(crate) fn mask(text: &str) -> Option<String> {
    let digits: String = text.trim().to_ascii_lowercase().replace(',', "");
    let is_mask = !digits.is_empty()
        && digits.len() <= 1024
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_mask {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    let padded = if digits.is_empty() { "0" } else { digits };
    // Groups of 32 bits from the right.
    let mut groups: Vec<&str> = Vec::new();
    let mut rest = padded;
    while rest.len() > 8 {
        let (head, tail) = rest.split_at(rest.len() - 8);
        groups.push(tail);
        rest = head;
    }
    groups.push(rest);
    groups.reverse();
    Some(groups.join(","))
}

/// The mask of these cores.
#[must_use]
pub fn mask_of(cores: &[u32]) -> String {
    let words = cores.iter().max().map_or(1, |most| (*most as usize).min(4095) / 4 + 1);
    let mut nibbles = vec![0_u8; words];
    for core in cores.iter().filter(|core| **core <= 4095) {
        nibbles[*core as usize / 4] |= 1 << (core % 4);
    }
    let digits: String = nibbles
        .iter()
        .rev()
        .filter_map(|nibble| char::from_digit(u32::from(*nibble), 16))
        .collect();
    mask(&digits).unwrap_or_else(|| "0".to_owned())
}

fn core_list(text: &str) -> Option<String> {
    let text = text.trim();
    let is_range = |part: &str| match part.split_once('-') {
        Some((first, last)) => plain_number(first).is_some() && plain_number(last).is_some(),
        None => plain_number(part).is_some(),
    };
    (text.len() <= 4096 && !text.is_empty() && text.split(',').all(is_range))
        .then(|| text.to_owned())
}

fn qdisc(text: &str) -> Option<String> {
    let text = text.trim();
    let kind = text.strip_suffix(" (default)").unwrap_or(text);
    word(kind).map(|_| text.to_owned())
}

pub(crate) fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let is_word = !text.is_empty()
        && text.len() <= 32
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    is_word.then(|| text.to_owned())
}

/// `-` for no file, `+` and the contents, `>` and the target of a link.
fn file_value(text: &str) -> Option<String> {
    (text == "-" || text.starts_with('+') || text.starts_with('>')).then(|| text.to_owned())
}

fn is_interface_name(name: &str) -> bool {
    // What `dev_valid_name` (kernel net/core/dev.c) accepts.
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    !name.is_empty() && name.len() < 16 && name != "." && name != ".." && name.bytes().all(plain)
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

/// Untrusted text for a message: printable, and not long.
pub(crate) fn shorten(text: &str) -> String {
    one_line(text, 60)
}

/// Text as one line of at most so many characters.
pub(crate) fn one_line(text: &str, characters_max: usize) -> String {
    let clean = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let mut short: String = clean.take(characters_max).collect();
    if text.chars().nth(characters_max).is_some() {
        short.push('…');
    }
    short
}

/// Text of a stranger: one line of at most so many characters, printable ASCII only, so that it
/// cannot dress up a terminal, a page or a file.
pub(crate) fn plain_line(text: &str, characters_max: usize) -> String {
    let plain = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    text.chars().take(characters_max).map(plain).collect()
}

#[cfg(test)]
mod tests;
