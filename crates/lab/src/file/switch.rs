//! The keys of a switch.

use super::address::read_addresses;
use super::direction::{DIRECTION_KEYS, read_direction};
use super::section::Section;
use super::{LabFileError, check_hosts, check_name, default_addresses, read_mtu};
use crate::plan::{DirectionPlan, EndPlan, LabPlan, SwitchPlan};

/// What may be said of a switch.
pub(super) const KEYS: &[&str] = &["name", "hosts", "mtu", "speed", "cores", "seed", "addresses"];

/// Each has threads and a control thread of its own.
const SWITCHES_COUNT_MAX: usize = 16;
/// Longest name of a switch, and of a host on one: they name the packet switch's ports.
const NAME_LEN_MAX: usize = 31;

/// Reads a switch; the plan has the hosts, the links and the switches before it.
pub(super) fn read_switch(
    section: &Section<'_>,
    plan: &LabPlan,
) -> Result<SwitchPlan, LabFileError> {
    section.only(&[KEYS, DIRECTION_KEYS].concat())?;
    let index = plan.switches.len();
    if index >= SWITCHES_COUNT_MAX {
        return Err(section.error(format!("at most {SWITCHES_COUNT_MAX} switches")));
    }
    let name = section.required_text("name")?;
    check_name(section, "name", name)?;
    if plan.switches.iter().any(|other| other.name == name) {
        return Err(section.error_at("name", format!("there is a switch '{name}' already")));
    }
    let hosts = section.text_list("hosts")?;
    if hosts.len() < 2 {
        let message = "a switch joins at least two hosts: write hosts = [\"HOST\", \"HOST\"]";
        return Err(section.error_at("hosts", message));
    }
    let is_guest = |name: &&str| plan.guest(name).is_some();
    let machines: Vec<&str> = hosts.iter().copied().filter(|name| !is_guest(name)).collect();
    check_hosts(section, "hosts", &machines, &plan.hosts)?;
    for (number, host) in hosts.iter().enumerate() {
        if hosts[..number].contains(host) {
            let message = format!("'{host}' is on the switch twice");
            return Err(section.error_at("hosts", message));
        }
    }
    if let Some(long) = hosts.iter().chain([&name]).find(|name| name.len() > NAME_LEN_MAX) {
        let message = format!("'{long}' is longer than the {NAME_LEN_MAX} letters of a port");
        return Err(section.error_at("hosts", message));
    }
    let line = read_line(section)?;
    if let Some(guest) = hosts.iter().find(|name| line.is_some() && is_guest(name)) {
        let message = format!("'{guest}' is a guest: its link to the switch cannot be emulated");
        return Err(section.error_at("hosts", message));
    }
    let rate = line.as_ref().and_then(|line| line.rate_bits_per_s);
    let speed_bits_per_s = section.rate("speed")?.or(rate);
    let mtu_bytes = read_mtu(section)?;
    let end = |(number, host): (usize, &&str)| -> Result<EndPlan, LabFileError> {
        let machine = plan.hosts.iter().find(|machine| machine.name == **host);
        Ok(EndPlan {
            host: (*host).to_owned(),
            interface: format!("eth{}", plan.ends().filter(|end| end.host == **host).count()),
            addresses: read_addresses(section, "hosts", (host, machine), mtu_bytes, || {
                default_addresses(section, 78, index, number + 1)
            })?,
            speed_bits_per_s,
        })
    };
    Ok(SwitchPlan {
        name: name.to_owned(),
        ends: hosts.iter().enumerate().map(end).collect::<Result<_, _>>()?,
        mtu_bytes,
        cores: section.core_list("cores")?,
        line,
    })
}

/// What lies between each host and the switch, when anything is said of it.
fn read_line(section: &Section<'_>) -> Result<Option<DirectionPlan>, LabFileError> {
    let Some(said) = DIRECTION_KEYS.iter().find(|key| section.has(key)) else {
        return match section.has("seed") {
            true => Err(section.error_at(
                "seed",
                "a seed has no effect without delay, loss or another emulated property",
            )),
            false => Ok(None),
        };
    };
    let seed = section.integer("seed")?.unwrap_or(1);
    let line = DirectionPlan { seed, ..read_direction(section, &DirectionPlan::default())? };
    line.config().validate().map_err(|error| section.error_at(said, error.to_string()))?;
    Ok(Some(line))
}
