//! A plan as the configuration of the systems that set hosts up at boot, and what each of them cannot say.

mod ifupdown;
mod network_manager;
mod networkd;
mod units;

use netlink::{Family, Path, Route, Target};
use settings::{InterfaceKey, Key};

use crate::interfaces::Interfaces;
use crate::plan::{Mode, Plan, Port, Role};
use crate::wanted::{HostState, WantedError, wanted};

/// A system that configures hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// systemd-networkd.
    Networkd,
    /// NetworkManager's keyfiles.
    NetworkManager,
    /// netplan over networkd.
    Netplan,
    /// Debian's ifupdown.
    Ifupdown,
    /// An Ansible playbook that installs the plan and our own units on all its machines.
    Ansible,
    /// Our own systemd units, which apply the plan and watch its gateways.
    Unit,
}

/// Every system, with its name.
pub const SYSTEMS: [(System, &str); 6] = [
    (System::Networkd, "networkd"),
    (System::NetworkManager, "networkmanager"),
    (System::Netplan, "netplan"),
    (System::Ifupdown, "ifupdown"),
    (System::Ansible, "ansible"),
    (System::Unit, "unit"),
];

/// Configuration files of one host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Emission {
    /// Paths below the root with their contents.
    pub files: Vec<(String, String)>,
    /// What the system cannot say, one line each; empty: the files are the whole plan.
    pub lacks: Vec<String>,
}

/// Where a package installs this program.
pub const PACKAGED_PROGRAM: &str = "/usr/bin/clearstream";

/// Whether a path means the same in a unit as elsewhere: absolute, and without spaces, quotes, `$`, `%` and the like.
#[must_use]
pub fn is_plain_path(path: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._+-".contains(letter);
    path.starts_with('/') && path.chars().all(is_plain)
}

/// The first line of every file.
const HEAD: &str = "# Made by `clearstream gateway emit`; change the plan and emit it again.\n";
const SYSCTL_FILE: &str = "etc/sysctl.d/80-clearstream-gateway.conf";

/// The files that make a host of the plan what it is to be, at boot and by the system that it has. Units run `program`, an
/// absolute path of which [`is_plain_path`] holds.
///
/// # Errors
/// Never for a plan that was read; the interfaces are taken to be there.
pub fn emit(
    plan: &Plan,
    role: Role<'_>,
    system: System,
    program: &str,
) -> Result<Emission, WantedError> {
    let ports = ports_of(role);
    let interfaces = Interfaces::invented(ports.iter().map(|port| port.interface.as_str()));
    let state = wanted(plan, role, &interfaces, &[])?;
    let mut emission = Emission::default();
    // A playbook is for all hosts, whose settings differ; the unit sets them on each.
    if system != System::Ansible {
        emission.files.push((SYSCTL_FILE.to_owned(), sysctl_file(&state)));
    }
    if let Role::Host(host) = role {
        let source = Source {
            plan,
            port: &host.port,
            network: host.network,
            state: &state,
            interfaces: &interfaces,
        };
        match system {
            System::Networkd => networkd::emit(&source, &mut emission),
            System::Netplan => networkd::emit_netplan(&source, &mut emission),
            System::NetworkManager => network_manager::emit(&source, &mut emission),
            System::Ifupdown => ifupdown::emit(&source, &mut emission),
            System::Ansible | System::Unit => {}
        }
        let has_marks = match system {
            System::Ansible | System::Unit => None,
            System::Ifupdown => Some("`clearstream gateway apply` makes them"),
            _other_protocol => Some("only `unit` and `ansible` make them"),
        };
        if let (false, Some(instead)) = (state.steering.is_empty(), has_marks) {
            let lack = format!("these files lack the marks of `follow` (nftables); {instead}");
            emission.lacks.push(lack);
        }
    }
    match system {
        System::Unit => units::emit(plan, role, program, &mut emission),
        System::Ansible => units::emit_playbook(plan, program, &mut emission),
        _own_routes => {}
    }
    Ok(emission)
}

/// What the emitters of one host start from.
struct Source<'a> {
    plan: &'a Plan,
    port: &'a Port,
    network: usize,
    state: &'a HostState,
    interfaces: &'a Interfaces,
}

impl Source<'_> {
    /// The host's address with the bits of its network.
    fn address(&self) -> String {
        format!("{}/{}", self.port.address, self.plan.networks[self.network].prefix.bits())
    }

    /// Routes without nexthop objects, with their paths.
    fn plain_routes(&self) -> impl Iterator<Item = (&Route, &[Path])> {
        self.state.routes.iter().filter_map(|route| match &route.target {
            Target::Paths(paths) => Some((route, &paths[..])),
            Target::None | Target::Nexthop(_) => None,
        })
    }

    /// What a system without nexthop objects leaves out.
    fn lack_of_nexthops(&self, name: &str) -> String {
        let what = match self.plan.routing.mode {
            Mode::Pairs => "the routes of pairs are",
            Mode::Hash => "the group of all gateways is",
            Mode::Resilient(_) => "the resilient group of all gateways is",
        };
        format!(
            "{name} has no nexthop groups: {what} missing, which leaves only the plain multipath \
             route; `unit` and `ansible` express the whole plan"
        )
    }
}

fn ports_of(role: Role<'_>) -> &[Port] {
    match role {
        Role::Gateway(_, gateway) => &gateway.ports,
        Role::Host(host) => core::slice::from_ref(&host.port),
    }
}

fn sysctl_file(state: &HostState) -> String {
    let mut text = HEAD.to_owned();
    for (key, value) in &state.sysctls {
        // Slashes, because the name of an interface may have dots.
        text.push_str(&format!("{} = {value}\n", sysctl_name(key)));
    }
    text
}

fn sysctl_name(key: &Key) -> String {
    match key {
        Key::Sysctl(name) => name.replace('.', "/"),
        Key::Interface { name, what: InterfaceKey::Ipv4(setting) } => {
            format!("net/ipv4/conf/{name}/{setting}")
        }
        Key::Interface { name, what: InterfaceKey::Ipv6(setting) } => {
            format!("net/ipv6/conf/{name}/{setting}")
        }
        other => other.to_string(),
    }
}

/// `ipv4` or `ipv6`, as several systems name families.
fn family_word(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    }
}

#[cfg(test)]
mod tests;
