//! Reading a lab file.
//!
//! The whole file is understood before anything is made. An error is one line: file, line number,
//! what is wrong, and for a word nobody knows the nearest one that is known.

mod address;
mod direction;
mod filesystem;
mod guest;
mod section;
mod switch;
mod sysctl;
mod veth;

use std::net::IpAddr;

use thiserror::Error;
use toml::de::DeTable;

use crate::file::address::{check_networks, read_addresses};
use crate::file::direction::{DIRECTION_KEYS, read_direction};
use crate::file::filesystem::read_filesystem;
use crate::file::guest::{check_guests, read_guests};
use crate::file::section::Section;
use crate::file::switch::read_switch;
use crate::file::sysctl::read_sysctls;
use crate::file::veth::{VETH_KEYS, read_veth, refuse_veth_keys};
use crate::plan::{
    AddressPlan, DirectionPlan, EndPlan, HostPlan, IPV6_MTU_MIN_BYTES, LabPlan, LightpathPlan,
    LinkPlan, WirePlan,
};

/// What is wrong with a lab file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}:{line}: {message}")]
pub struct LabFileError {
    /// The file, or the name of a built-in lab.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// What, and what to write instead.
    pub message: String,
}

/// Longest name of a lab or host: it becomes a host name and part of a path.
const NAME_LEN_MAX: usize = 63;
const HOSTS_COUNT_MAX: usize = 250;
const MTU_BYTES_DEFAULT: u64 = 1500;
/// TAP and veth devices take no more.
const MTU_BYTES_MAX: u64 = 65_521;

/// Reads a lab file's text; `file` is for errors.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse_lab(file: &str, text: &str) -> Result<LabPlan, LabFileError> {
    let parsed = DeTable::parse(text).map_err(|error| {
        let line = section::line_of(text, error.span().map_or(0, |span| span.start));
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        LabFileError { file: file.to_owned(), line, message }
    })?;
    let top = Section::top(file, text, parsed.get_ref());
    top.only(&[
        "name",
        "description",
        "sysctl",
        "host",
        "guest",
        "link",
        "switch",
        "routes",
        "filesystem",
    ])?;
    let name = top.required_text("name")?;
    check_name(&top, "name", name)?;
    let hosts = read_hosts(&top)?;
    let guests = read_guests(&top, &hosts)?;
    let mut links = Vec::new();
    for section in top.sections("link")? {
        links.push(read_link(&section, links.len(), &hosts, &links)?);
    }
    let mut plan = LabPlan {
        name: name.to_owned(),
        description: top.text("description")?.unwrap_or("").to_owned(),
        hosts,
        guests,
        links,
        switches: Vec::new(),
        is_unrouted: !top.flag("routes")?.unwrap_or(true),
        filesystem: None,
    };
    for section in top.sections("switch")? {
        let switch = read_switch(&section, &plan)?;
        plan.switches.push(switch);
    }
    check_guests(&top, &plan)?;
    check_networks(&top, &plan)?;
    if let Some(section) = top.section("filesystem")? {
        plan.filesystem = Some(read_filesystem(&section, &plan)?);
    }
    Ok(plan)
}

fn read_hosts(top: &Section<'_>) -> Result<Vec<HostPlan>, LabFileError> {
    let Some(section) = top.section("host")? else {
        if top.has("guest") {
            return Ok(Vec::new());
        }
        return Err(top.error("a lab needs hosts: write [host.NAME] for each"));
    };
    let mut hosts = Vec::new();
    for name in section.keys() {
        check_name(&section, name, name)?;
        let host = section.section(name)?.unwrap_or_else(|| section.clone());
        host.only(&["cores", "sysctl"])?;
        let mut sysctls = read_sysctls(top)?;
        sysctls.extend(read_sysctls(&host)?);
        hosts.push(HostPlan {
            name: name.to_owned(),
            cores: host.core_list("cores")?,
            sysctls: sysctls.into_iter().collect(),
        });
    }
    match hosts.len() {
        0 => Err(top.error("a lab needs hosts: write [host.NAME] for each")),
        1..=HOSTS_COUNT_MAX => Ok(hosts),
        count => Err(section.error(format!("{count} hosts; at most {HOSTS_COUNT_MAX}"))),
    }
}

/// Keys of a link, whatever its wire.
const LINK_KEYS: &[&str] = &["between", "wire", "mtu", "speed", "seed", "cores", "addresses"];

fn read_link(
    section: &Section<'_>,
    index: usize,
    hosts: &[HostPlan],
    earlier: &[LinkPlan],
) -> Result<LinkPlan, LabFileError> {
    let known = [LINK_KEYS, &["forward", "backward"], DIRECTION_KEYS, VETH_KEYS].concat();
    section.only(&known)?;
    let between = section.text_list("between")?;
    let &[first, second] = &between[..] else {
        return Err(section.error_at("between", "write between = [\"HOST\", \"HOST\"]"));
    };
    check_hosts(section, "between", &between, hosts)?;
    if first == second {
        return Err(section.error_at("between", format!("'{first}' is linked to itself")));
    }
    let mtu_bytes = read_mtu(section)?;
    let wire = read_wire(section, index, [first, second])?;
    let speeds = match &wire {
        WirePlan::Veth(_) => [None, None],
        WirePlan::Lightpath(path) => [path.forward.rate_bits_per_s, path.backward.rate_bits_per_s],
    };
    let speed = section.rate("speed")?;
    let end = |host: &str, which: usize| -> Result<EndPlan, LabFileError> {
        let plan = hosts.iter().find(|plan| plan.name == host);
        Ok(EndPlan {
            host: host.to_owned(),
            interface: format!("eth{}", links_of(host, earlier)),
            addresses: read_addresses(section, "between", (host, plan), mtu_bytes, || {
                default_addresses(section, 77, index, which + 1)
            })?,
            speed_bits_per_s: speed.or(speeds[which]),
        })
    };
    Ok(LinkPlan { ends: [end(first, 0)?, end(second, 1)?], mtu_bytes, wire })
}

/// Refuses names that no host has.
fn check_hosts(
    section: &Section<'_>,
    key: &str,
    named: &[&str],
    hosts: &[HostPlan],
) -> Result<(), LabFileError> {
    match named.iter().find(|name| !hosts.iter().any(|known| known.name == **name)) {
        None => Ok(()),
        Some(name) => {
            let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
            let message = format!("no host '{name}'{}", section::nearest(name, &names));
            Err(section.error_at(key, message))
        }
    }
}

fn read_mtu(section: &Section<'_>) -> Result<u32, LabFileError> {
    let mtu_bytes = section.size("mtu")?.unwrap_or(MTU_BYTES_DEFAULT);
    match u32::try_from(mtu_bytes) {
        Ok(bytes) if (68..=MTU_BYTES_MAX).contains(&mtu_bytes) => Ok(bytes),
        _ => {
            let message = format!("mtu {mtu_bytes} is outside 68 to {MTU_BYTES_MAX} bytes");
            Err(section.error_at("mtu", message))
        }
    }
}

fn read_wire(
    section: &Section<'_>,
    index: usize,
    hosts: [&str; 2],
) -> Result<WirePlan, LabFileError> {
    match section.text("wire")?.unwrap_or("lightpath") {
        "veth" => Ok(WirePlan::Veth(read_veth(section, hosts)?)),
        "lightpath" => {
            refuse_veth_keys(section)?;
            let seed = section.integer("seed")?.unwrap_or(1 + 2 * index as u64);
            let common = read_direction(section, &DirectionPlan::default())?;
            let side = |key: &str, seed: u64| -> Result<DirectionPlan, LabFileError> {
                let mut direction = match section.section(key)? {
                    Some(own) => {
                        own.only(DIRECTION_KEYS)?;
                        read_direction(&own, &common)?
                    }
                    None => common.clone(),
                };
                direction.seed = seed;
                direction
                    .config()
                    .validate()
                    .map_err(|error| section.error_at(key, error.to_string()))?;
                Ok(direction)
            };
            Ok(WirePlan::Lightpath(Box::new(LightpathPlan {
                forward: side("forward", seed)?,
                backward: side("backward", seed.wrapping_add(1))?,
                cores: section.core_list("cores")?,
            })))
        }
        other => {
            let near = section::nearest(other, &["lightpath", "veth"]);
            Err(section.error_at("wire", format!("unknown wire '{other}'{near}")))
        }
    }
}

fn fits(address: &AddressPlan, mtu_bytes: u32) -> bool {
    address.address.is_ipv4() || mtu_bytes >= IPV6_MTU_MIN_BYTES
}

/// 10.77.LINK.1 and .2 with fd77:LINK::1 and ::2, on the links; 10.78 and fd78 on the switches.
fn default_addresses(
    section: &Section<'_>,
    kind: u8,
    index: usize,
    number: usize,
) -> Result<Vec<AddressPlan>, LabFileError> {
    let too_many = |_beyond_255| section.error("at most 256 links");
    let byte = u8::try_from(index).map_err(too_many)?;
    // There are no more hosts than a network has room for.
    let last = u8::try_from(number).map_err(too_many)?;
    let prefix = if kind == 77 { 0xfd77 } else { 0xfd78 };
    let v4 = IpAddr::from([10, kind, byte, last]);
    let v6 = IpAddr::from([prefix, u16::from(byte), 0, 0, 0, 0, 0, u16::from(last)]);
    Ok(vec![
        AddressPlan { address: v4, prefix_bits: 24 },
        AddressPlan { address: v6, prefix_bits: 64 },
    ])
}

fn links_of(host: &str, links: &[LinkPlan]) -> usize {
    links.iter().flat_map(|link| &link.ends).filter(|end| end.host == host).count()
}

/// Names become host names and directories.
fn check_name(section: &Section<'_>, key: &str, name: &str) -> Result<(), LabFileError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let well_formed = !name.is_empty()
        && name.len() <= NAME_LEN_MAX
        && name.chars().all(plain)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if well_formed {
        return Ok(());
    }
    let message = format!("'{name}' is not a name; letters, digits, - and _, up to {NAME_LEN_MAX}");
    Err(section.error_at(key, message))
}

#[cfg(test)]
mod tests;
