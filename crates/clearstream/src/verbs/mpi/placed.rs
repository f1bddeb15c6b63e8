//! What a job is planned with: the same for `mpi plan` and for the job itself.

use std::ffi::OsString;
use std::net::{TcpListener, UdpSocket};

use crew::{
    Binder, EndpointPlace, FlowRules, HereView, JobPlan, MappedRank, Unsteered, Wishes, plan_job,
};
use results::Machine;
use sys::ethtool::Device;
use sys::flow_rules;
use sys::own_address::{self, Reason};

use super::{Carrier, INTERFACE_VARIABLE, no_interface};
use crate::exit::VerbError;

/// Endpoints get ports beyond those that the kernel gives away by default (`ip_local_port_range`).
const FIRST_PORT: u16 = 61_008;
/// Where the search for free ports ends.
const LAST_PORT: u16 = 65_000;
/// The feature that switches a device's flow rules.
const RULES_FEATURE: &str = "rx-ntuple-filter";

/// What is bound and steered for a job.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct PlacementArgs {
    /// Leave ranks where the launcher puts them. By default the ranks of this host are bound next to their receive queues,
    /// unless the launcher is told how to bind (`--bind-to`, `--cpu-set`, `--rankfile`, `--map-by …:PE=n`).
    #[arg(long)]
    pub(super) no_bind: bool,
    /// Change no setting of this host. By default, packets from other hosts are steered to the cores of their ranks while the
    /// job runs, as far as privileges allow.
    #[arg(long)]
    pub(super) no_steer: bool,
}

/// What a launcher's user says of binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LauncherBinding {
    /// Nothing: its defaults hold.
    Default,
    /// None at all.
    None,
    /// It binds as its user says.
    Chosen,
}

/// Options of Open MPI's launcher that say where ranks are bound.
const BINDING_OPTIONS: [&str; 9] = [
    "-bind-to-core",
    "-bind-to-socket",
    "-bind-to-none",
    "-cpu-set",
    "-cpu-list",
    "-cpus-per-proc",
    "-cpus-per-rank",
    "-rankfile",
    "-rf",
];
/// The same as parameters, in the environment or after `--mca`.
const BINDING_PARAMETERS: [&str; 4] = [
    "hwloc_base_binding_policy",
    "hwloc_default_binding_policy",
    "hwloc_base_cpu_list",
    "rmaps_rank_file_path",
];

/// What these arguments and this environment say of binding.
pub(super) fn launcher_binding(
    arguments: &[OsString],
    variable: impl Fn(&str) -> Option<String>,
) -> LauncherBinding {
    let of_policy = |policy: &str| match policy {
        "none" => LauncherBinding::None,
        _ => LauncherBinding::Chosen,
    };
    let words: Vec<String> = arguments
        .iter()
        .map(|word| {
            let word = word.to_string_lossy();
            word.strip_prefix("--").map_or_else(|| word.to_string(), |rest| format!("-{rest}"))
        })
        .collect();
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).map_or("", String::as_str);
        let says_elements =
            || next.to_ascii_lowercase().split([':', ',']).any(|part| part.starts_with("pe="));
        match word.as_str() {
            "-bind-to" => return of_policy(next),
            "-bind-to-none" => return LauncherBinding::None,
            "-map-by" if says_elements() => return LauncherBinding::Chosen,
            "-mca" | "-prtemca" if BINDING_PARAMETERS.contains(&next) => {
                return of_policy(words.get(at + 2).map_or("", String::as_str));
            }
            option if BINDING_OPTIONS.contains(&option) => return LauncherBinding::Chosen,
            _other => {}
        }
    }
    let of_environment = |name: &&str| {
        let named = |prefix: &str| variable(&format!("{prefix}_MCA_{name}"));
        named("OMPI").or_else(|| named("PRTE"))
    };
    let policy = BINDING_PARAMETERS.iter().find_map(of_environment);
    policy.map_or(LauncherBinding::Default, |policy| of_policy(&policy))
}

/// A job's plan, with what it was made of.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) plan: JobPlan,
    pub(super) endpoint: EndpointPlace,
    pub(super) reason: Reason,
    pub(super) machine: Machine,
    pub(super) binding: LauncherBinding,
    /// This host's name.
    pub(super) host: String,
}

/// Plans a job on this host. `binding`: `None` where no launcher starts it.
pub(super) fn placed(
    ranks: &[MappedRank],
    binding: Option<LauncherBinding>,
    interface: Option<&str>,
    port: Option<&str>,
    carrier: Carrier,
    wanted: &PlacementArgs,
) -> Result<Placed, VerbError> {
    let (endpoint, reason) = endpoint(interface)?;
    let host = own_name();
    let names = names_of(&host);
    let machine = topology::machine();
    let here_count = ranks.iter().filter(|rank| names.contains(&rank.host)).count();
    let unsteered = if wanted.no_steer {
        Some(Unsteered::Asked)
    } else {
        port.is_some().then_some(Unsteered::SwitchPort)
    };
    let is_plans = !wanted.no_bind && binding != Some(LauncherBinding::Chosen);
    let mut rules = rules(&endpoint.interface);
    let mut queues_count = 1;
    if carrier == Carrier::Xdp && matches!(rules, FlowRules::Missing(_)) {
        rules = FlowRules::Programs;
        // The programs choose an endpoint's queue by its port.
        let nic = machine.nic(&endpoint.interface);
        queues_count = nic.map_or(1, |nic| nic.receive_queues.len().max(1));
    }
    let wishes = Wishes {
        binder: if is_plans && binding != Some(LauncherBinding::None) {
            Binder::Plan
        } else {
            Binder::Launcher
        },
        unsteered,
        rules,
        first_port: free_ports(&endpoint, here_count, queues_count),
    };
    let here = HereView { names: &names, machine: &machine, endpoint: &endpoint };
    let plan = plan_job(ranks, binding.is_some(), here, &wishes);
    let binding = binding.unwrap_or(LauncherBinding::Default);
    Ok(Placed { plan, endpoint, reason, machine, binding, host })
}

/// Where this host's endpoints are reached, and why there.
fn endpoint(interface: Option<&str>) -> Result<(EndpointPlace, Reason), VerbError> {
    let variable = std::env::var(INTERFACE_VARIABLE).ok().filter(|value| !value.is_empty());
    let wanted = interface.or(variable.as_deref());
    let Some((chosen, reason)) = own_address::choose(wanted) else {
        return Err(match wanted {
            Some(wanted) => no_interface(wanted),
            None => VerbError::missing("this host has no address"),
        });
    };
    Ok((EndpointPlace { interface: chosen.interface, ip: chosen.ip }, reason))
}

pub(super) fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What launchers call this host: its name, also without its domain, and the loopback.
pub(super) fn names_of(own: &str) -> Vec<String> {
    let short = own.split('.').next().unwrap_or(own);
    [own, short, "localhost", "127.0.0.1"].map(str::to_owned).into()
}

/// Whether the interface directs flows by rules. Asking changes nothing.
fn rules(interface: &str) -> FlowRules {
    let device = match Device::open(interface) {
        Ok(device) => device,
        Err(error) => return FlowRules::Missing(error.source.to_string()),
    };
    if let Err(error) = flow_rules::check(&device) {
        return FlowRules::Missing(error.source.to_string());
    }
    match sys::ethtool_set::feature(&device, RULES_FEATURE) {
        Ok(feature) if !feature.is_on && feature.may_change => FlowRules::Off,
        Ok(feature) if !feature.is_on => {
            FlowRules::Missing(format!("{RULES_FEATURE} is off and fixed"))
        }
        _ => FlowRules::On,
    }
}

/// The first of so many ports that nobody uses at the endpoints' address, a multiple of `step`.
fn free_ports(endpoint: &EndpointPlace, count: usize, step: usize) -> u16 {
    let step = u16::try_from(step).unwrap_or(1).clamp(1, u16::MAX - LAST_PORT);
    let is_free = |port: &u16| {
        let at = (endpoint.ip, *port);
        UdpSocket::bind(at).is_ok() && TcpListener::bind(at).is_ok()
    };
    let mut first = FIRST_PORT.next_multiple_of(step);
    let mut port = first;
    while usize::from(port - first) < count && port < LAST_PORT {
        if !is_free(&port) {
            first = (port + 1).next_multiple_of(step);
            port = first;
            continue;
        }
        port += 1;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(words: &str, set: Option<(&str, &str)>) -> LauncherBinding {
        let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        launcher_binding(&words, |name| {
            set.filter(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
        })
    }

    #[test]
    fn what_the_user_says_of_binding_is_the_launchers_to_do() {
        use LauncherBinding as L;
        for (words, expected) in [
            ("-n 2 ./job", L::Default),
            ("--map-by node ./job", L::Default),
            ("--bind-to core ./job", L::Chosen),
            ("-bind-to socket ./job", L::Chosen),
            ("--bind-to none ./job", L::None),
            ("--map-by slot:PE=2 ./job", L::Chosen),
            ("--rankfile ranks ./job", L::Chosen),
            ("--cpu-set 0-3 ./job", L::Chosen),
            ("--mca hwloc_base_binding_policy core ./job", L::Chosen),
            ("--mca hwloc_base_binding_policy none ./job", L::None),
        ] {
            assert_eq!(binding(words, None), expected, "{words}");
        }
        let variable = Some(("OMPI_MCA_hwloc_base_binding_policy", "core"));
        assert_eq!(binding("-n 2 ./job", variable), L::Chosen);
        let variable = Some(("PRTE_MCA_hwloc_default_binding_policy", "none"));
        assert_eq!(binding("-n 2 ./job", variable), L::None);
    }

    #[test]
    fn ports_that_somebody_uses_are_passed_over() {
        let endpoint = EndpointPlace {
            interface: "lo".to_owned(),
            ip: std::net::Ipv4Addr::new(127, 9, 7, 5).into(),
        };
        let _taken = UdpSocket::bind((endpoint.ip, FIRST_PORT + 2)).expect("a free port");
        assert_eq!(free_ports(&endpoint, 2, 1), FIRST_PORT);
        assert_eq!(free_ports(&endpoint, 3, 1), FIRST_PORT + 3);
        for step in [2, 3, 7] {
            let first = free_ports(&endpoint, 3, step);
            assert!(usize::from(first).is_multiple_of(step) && first > FIRST_PORT + 2, "{first}");
        }
    }

    #[test]
    fn a_device_without_rules_is_reported_with_the_kernels_reason() {
        let FlowRules::Missing(why) = rules("lo") else { panic!("the loopback has none") };
        assert!(why.contains("not supported"), "{why}");
    }
}
