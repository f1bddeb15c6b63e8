//! A lab's guests: virtual machines at ports of its switches.
//!
//! Each has a keeper of its own beside the anchor, which ends it as soon as the anchor has ended, and a folder in the lab's.

use std::time::Duration;

use vm::accelerator::{choose, qemu_version, tsc_khz};
use vm::line::{MachineConfig, PortType, mac_of, quoted};
use vm::{Machine, Place, ShellEnd, Start};

use crate::lab::Lab;
use crate::plan::{GuestPlan, LabPlan};
use crate::routes::routes_of;
use crate::{LabError, Program};

/// Longest until a guest has booted, on a machine on which many want the cores.
const READY_MAX: Duration = Duration::from_secs(300);
/// What runs them.
const QEMU: &str = "qemu-system-x86_64";

/// Boots the lab's guests, all at once, and gives each its name, addresses and routes. What could not be had, one line each.
pub(crate) fn start(lab: &Lab, program: &Program) -> Result<Vec<String>, LabError> {
    let plan = lab.plan();
    if plan.guests.is_empty() {
        return Ok(Vec::new());
    }
    let image = vm::image::find(&vm::image::default_folder())?;
    let is_ptnet = |guest: &GuestPlan| guest.port_type == PortType::Ptnet;
    if let Some(why) = image.no_ptnet.filter(|_| plan.guests.iter().any(is_ptnet)) {
        return Err(vm::VmError::NoDriver(why).into());
    }
    let version = qemu_version(QEMU.as_ref())?;
    let choice = choose(QEMU.as_ref());
    let tsc_khz = tsc_khz(choice.accelerator);
    let keeper = program.keeper();
    let mut machines = Vec::new();
    for guest in &plan.guests {
        let (switch, _) =
            plan.guest_end(&guest.name).ok_or_else(|| LabError::unknown_host(plan, &guest.name))?;
        let wrong = |error: packet_switch::NameError| LabError::NotStarted(error.to_string());
        let port = format!("{}:{}", switch.name, guest.name).parse().map_err(wrong)?;
        let config = MachineConfig {
            name: guest.name.clone(),
            port_type: guest.port_type,
            trust: guest.trust.clone(),
            switch: lab.switch_socket(&switch.name),
            kernel: Some(image.kernel.clone()),
            initrd: Some(image.initrd.clone()),
            disk: None,
            memory_bytes: guest.memory_bytes,
            cores: guest.cores,
            queues: guest.queues_count(),
            mac: mac_of(&port),
            port: Some(port),
            passthrough: None,
            append: String::new(),
            has_shell: true,
            accelerator: choice.accelerator,
            tsc_khz,
            qemu: QEMU.into(),
            qemu_version: version,
        };
        let start = Start { config: &config, program: &keeper, owner: Some(lab.pid()) };
        machines.push(Machine::start_in(&Place::at(lab.dir.path())?, start)?);
    }
    for (guest, machine) in plan.guests.iter().zip(&machines) {
        settle(plan, guest, machine)?;
    }
    let why = choice.why.map(|why| format!("guests run under {}: {why}", choice.accelerator));
    Ok(why.into_iter().collect())
}

/// Waits until it has booted, and makes it a part of the lab.
fn settle(plan: &LabPlan, guest: &GuestPlan, machine: &Machine) -> Result<(), LabError> {
    let script = script(plan, &guest.name);
    let mut said = Vec::new();
    let mut shell = machine.shell(READY_MAX)?;
    match shell.run(&["sh", "-ec", &script], &mut said, None)? {
        ShellEnd::Status(0) => Ok(()),
        end => {
            let said = String::from_utf8_lossy(&said);
            let last = units::printable(said.lines().last().unwrap_or_default()).into_owned();
            Err(LabError::NotStarted(format!("guest {}: {end:?}: {last}", guest.name)))
        }
    }
}

/// What a guest's shell runs to be a part of the lab.
fn script(plan: &LabPlan, name: &str) -> String {
    let mut script = format!(
        "hostname {name}\nmkdir -p /etc\nprintf %s {} >/etc/hosts\n",
        quoted(&plan.hosts_file())
    );
    let Some((switch, end)) = plan.guest_end(name) else { return script };
    // Addresses are unique by plan.
    script += "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad\n";
    script += &format!("ip link set eth0 mtu {} up\n", switch.mtu_bytes);
    for address in &end.addresses {
        script += &format!("ip addr add {}/{} dev eth0\n", address.address, address.prefix_bits);
    }
    for route in routes_of(plan, name, 0) {
        let (network, bits) = (route.network, route.prefix_bits);
        script += &format!("ip route add {network}/{bits} via {}\n", route.gateway);
    }
    script
}

impl Lab {
    /// A guest of the lab.
    ///
    /// # Errors
    /// The lab has none of that name, or it has ended.
    pub fn guest(&self, name: &str) -> Result<Machine, LabError> {
        let plan = self.plan();
        plan.guest(name).ok_or_else(|| LabError::unknown_host(plan, name))?;
        let found = Machine::find_in(&Place::at(self.dir.path())?, name)?;
        found.ok_or_else(|| LabError::GuestEnded { lab: plan.name.clone(), guest: name.to_owned() })
    }

    /// Ends its guests, once its anchor has ended.
    pub(crate) fn end_guests(&self) -> Result<(), LabError> {
        for guest in &self.plan().guests {
            // Whose keeper ends at the same time has nothing left to be found.
            let found =
                Place::at(self.dir.path()).and_then(|place| Machine::find_in(&place, &guest.name));
            if let Ok(Some(machine)) = found {
                machine.end()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_told_its_name_addresses_routes_and_neighbours() {
        let text = "name = \"x\"\n[guest.vm]\n[host.r]\n[host.far]\n\
                    [[switch]]\nname = \"lan\"\nhosts = [\"vm\", \"r\"]\nmtu = 9000\n\
                    [[link]]\nbetween = [\"r\", \"far\"]\n";
        let plan = crate::file::parse_lab("x", text).unwrap();
        let script = script(&plan, "vm");
        for line in [
            "hostname vm",
            "ip link set eth0 mtu 9000 up",
            "ip addr add 10.78.0.1/24 dev eth0",
            "ip addr add fd78::1/64 dev eth0",
            "ip route add 10.77.0.0/24 via 10.78.0.2",
            "ip route add fd77::/64 via fd78::2",
            "10.77.0.2 far",
            "10.78.0.1 vm",
        ] {
            assert!(script.lines().any(|said| said == line), "{line} in {script}");
        }
    }
}
