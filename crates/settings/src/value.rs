//! The values that settings take, each in one form.

use std::fmt;

use crate::catalogue;
use crate::key::{InterfaceKey, Key, KeyError, is_hexadecimal, plain_number};
use crate::text::shorten;

/// Longest value of a setting, bytes; a file of ours is the longest there is.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Longest value of a packet filter table, bytes: 256 rules of some 400 bytes, each two digits, and as much again.
const FILTER_BYTES_MAX: usize = 512 << 10;

impl Key {
    /// The value in the one form that is written and compared: figures with single spaces between
    /// them, masks in lower case without leading zeros.
    ///
    /// # Errors
    /// [`KeyError::Value`] when the setting takes no such value.
    pub fn check(&self, value: &str) -> Result<String, KeyError> {
        let wrong =
            |wanted| KeyError::Value { key: self.to_string(), value: shorten(value), wanted };
        let bytes_max = match self {
            Self::FilterTable(_) => FILTER_BYTES_MAX,
            _other => VALUE_BYTES_MAX,
        };
        if value.len() > bytes_max {
            return Err(wrong("short enough"));
        }
        match self {
            Self::Sysctl(name) => {
                let known =
                    catalogue::sysctl(name).ok_or_else(|| KeyError::Unknown(name.clone()))?;
                known.kind.check(value).ok_or_else(|| wrong(known.kind.wanted()))
            }
            Self::Interface { what, .. } => what.check(value, &wrong),
            Self::InterruptAffinity(_) | Self::ThreadAffinity(_) => {
                core_list(value).ok_or_else(|| wrong("a list of cores: 0-3,8"))
            }
            Self::Governor(_) => word(value).ok_or_else(|| wrong("the name of a governor")),
            Self::CpuQuota(_) => {
                quota(value).ok_or_else(|| wrong("microseconds of a period: max 100000"))
            }
            Self::Nexthop(_) | Self::Route(_) | Self::FilterTable(_) => {
                let is_value = value == "-" || is_hexadecimal(value);
                is_value.then(|| value.to_owned()).ok_or_else(|| wrong("a netlink body, or -"))
            }
            Self::Rule(_) => {
                let is_value = value == "-" || value == "+";
                is_value.then(|| value.to_owned()).ok_or_else(|| wrong("+ or -"))
            }
            Self::File(_) => file_value(value).ok_or_else(|| wrong("a file's contents")),
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
            Self::Ipv4(_) | Self::Ipv6(_) => {
                catalogue::Kind::Number.check(value).ok_or_else(|| wrong("a whole number"))
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
            Self::FlowQueue(_) => {
                let value = value.trim();
                let queue = plain_number(value).map(|queue| queue.to_string());
                let none = (value == "-").then(|| value.to_owned());
                queue.or(none).ok_or_else(|| wrong("a receive queue, or -"))
            }
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
fn mask(text: &str) -> Option<String> {
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

/// The cores as the kernel lists them: `0-3,8`.
#[must_use]
pub fn list_of(cores: &[u32]) -> String {
    let ranges = cores.iter().map(|core| (*core, *core)).collect();
    show_ranges(ranges)
}

/// The cores of a list such as `0-3,8` in rising order, as far as they are below 8192; `None` when it
/// is no list.
#[must_use]
pub fn cores_of(list: &str) -> Option<Vec<u32>> {
    let ranges = merged(ranges_of(list)?);
    Some(
        ranges
            .into_iter()
            .flat_map(|(first, last)| first..=last.min(CORES_COUNT_MAX - 1))
            .collect(),
    )
}

/// More cores than any kernel is built for (`NR_CPUS`).
const CORES_COUNT_MAX: u32 = 8192;

fn core_list(text: &str) -> Option<String> {
    ranges_of(text).map(show_ranges)
}

fn ranges_of(text: &str) -> Option<Vec<(u32, u32)>> {
    let text = text.trim();
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => plain_number(first).zip(plain_number(last)),
        None => plain_number(part).map(|core| (core, core)),
    };
    let ranges: Option<Vec<(u32, u32)>> =
        (text.len() <= 4096).then(|| text.split(',').map(range).collect())?;
    ranges.filter(|ranges| ranges.iter().all(|(first, last)| first <= last))
}

/// Rising, without overlaps, neighbours joined.
fn merged(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    joined
}

fn show_ranges(ranges: Vec<(u32, u32)>) -> String {
    let one = |(first, last): (u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    merged(ranges).into_iter().map(one).collect::<Vec<_>>().join(",")
}

/// `max 100000`, `30000 100000`: microseconds allowed in each period, and the period.
fn quota(text: &str) -> Option<String> {
    let (allowed, period) = text.trim().split_once(' ')?;
    let is_allowed = allowed == "max" || plain_number(allowed).is_some();
    (is_allowed && plain_number(period).is_some()).then(|| format!("{allowed} {period}"))
}

/// The queueing discipline at an interface's root, as the value of [`InterfaceKey::Qdisc`] says it:
/// `fq`, or `noqueue (default)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootQdisc<'a> {
    /// Kind of the discipline: `fq`.
    pub kind: &'a str,
    /// The kernel put it there: it comes back when what was configured in its place is deleted.
    pub is_default: bool,
}

/// Marks what the kernel itself put at a root.
const DEFAULT: &str = " (default)";

impl<'a> RootQdisc<'a> {
    /// What a value says.
    #[must_use]
    pub fn of(value: &'a str) -> Self {
        let default = value.strip_suffix(DEFAULT);
        Self { kind: default.unwrap_or(value), is_default: default.is_some() }
    }
}

impl fmt::Display for RootQdisc<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.kind, if self.is_default { DEFAULT } else { "" })
    }
}

fn qdisc(text: &str) -> Option<String> {
    let text = text.trim();
    word(RootQdisc::of(text).kind).map(|_| text.to_owned())
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
