//! The keys of a guest.

use packet_switch::Name;
use vm::line::PortType;

use super::section::Section;
use super::{LabFileError, check_name};
use crate::plan::{GuestPlan, HostPlan, LabPlan};

/// What may be said of a guest.
const KEYS: &[&str] = &["memory", "cores", "type", "queues", "trust"];

/// Each is a virtual machine.
const GUESTS_COUNT_MAX: usize = 32;
const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// With less no kernel boots.
const MEMORY_BYTES_MIN: u64 = 64 << 20;
const CORES_MAX: u64 = 16;

/// Reads the guests; their names are those of no host.
pub(super) fn read_guests(
    top: &Section<'_>,
    hosts: &[HostPlan],
) -> Result<Vec<GuestPlan>, LabFileError> {
    let Some(section) = top.section("guest")? else { return Ok(Vec::new()) };
    let mut guests = Vec::new();
    for name in section.keys() {
        check_name(&section, name, name)?;
        if hosts.iter().any(|host| host.name == name) {
            return Err(section.error_at(name, format!("'{name}' is a host already")));
        }
        let guest = section.section(name)?.unwrap_or_else(|| section.clone());
        guest.only(KEYS)?;
        let memory_bytes = guest.size("memory")?.unwrap_or(MEMORY_BYTES_DEFAULT);
        if memory_bytes < MEMORY_BYTES_MIN {
            return Err(guest.error_at("memory", "a guest needs at least 64MiB"));
        }
        let cores = guest.integer("cores")?.unwrap_or(1);
        let cores = u32::try_from(cores).ok().filter(|_| (1..=CORES_MAX).contains(&cores));
        let cores = cores.ok_or_else(|| {
            guest.error_at("cores", format!("a guest has 1 to {CORES_MAX} cores"))
        })?;
        let port_type = match guest.text("type")? {
            None | Some("virtio") => PortType::Virtio,
            Some("ptnet") => PortType::Ptnet,
            Some(_) => return Err(guest.error_at("type", "expected virtio or ptnet")),
        };
        let trust = read_trust(&guest, port_type)?;
        let mut plan = GuestPlan {
            name: name.to_owned(),
            port_type,
            memory_bytes,
            cores,
            queues: None,
            trust,
        };
        plan.queues = read_queues(&guest, &plan)?;
        guests.push(plan);
    }
    match guests.len() {
        0..=GUESTS_COUNT_MAX => Ok(guests),
        count => Err(section.error(format!("{count} guests; at most {GUESTS_COUNT_MAX}"))),
    }
}

fn read_trust(guest: &Section<'_>, port_type: PortType) -> Result<Option<Name>, LabFileError> {
    let Some(group) = guest.text("trust")? else { return Ok(None) };
    if port_type != PortType::Ptnet {
        return Err(guest.error_at("trust", "only guests of type ptnet share a memory"));
    }
    let wrong = |error: packet_switch::NameError| guest.error_at("trust", error.to_string());
    group.parse().map(Some).map_err(wrong)
}

fn read_queues(guest: &Section<'_>, plan: &GuestPlan) -> Result<Option<u32>, LabFileError> {
    let Some(queues) = guest.integer("queues")? else { return Ok(None) };
    let most = plan.queues_max();
    let queues = u32::try_from(queues).ok().filter(|queues| (1..=most).contains(queues));
    let wrong = || match &plan.trust {
        Some(_) => "a guest in a trust group has 1 pair of queues".to_owned(),
        None => format!("a {} guest has 1 to {most} pairs of queues", plan.port_type),
    };
    queues.map(Some).ok_or_else(|| guest.error_at("queues", wrong()))
}

/// A guest has one network device: it is on one switch.
pub(super) fn check_guests(top: &Section<'_>, plan: &LabPlan) -> Result<(), LabFileError> {
    for guest in &plan.guests {
        let name = guest.name.as_str();
        let count = plan.ends().filter(|end| end.host == name).count();
        if count != 1 {
            let section = top.section("guest")?.unwrap_or_else(|| top.clone());
            let message = format!("'{name}' is on {count} switches; a guest is on one");
            return Err(section.error_at(name, message));
        }
    }
    Ok(())
}
