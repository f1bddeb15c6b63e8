//! Kernel parameters of hosts: a name that this kernel lacks is either misspelt, and refused, or of another kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::LabFileError;
use super::section::Section;

/// Parameters that an older kernel, or a network namespace but the first, lacks: `lab up` notes where they are missing.
const OF_SOME_KERNELS: &[&str] = &[
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.txrehash",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.fib_multipath_hash_fields",
    "net.ipv4.fib_multipath_hash_policy",
    "net.ipv4.fib_multipath_hash_seed",
    "net.ipv4.fib_multipath_use_neigh",
    "net.ipv4.nexthop_compat_mode",
    "net.ipv4.tcp_backlog_ack_defer",
    "net.ipv4.tcp_ecn_option",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_migrate_req",
    "net.ipv4.tcp_pingpong_thresh",
    "net.ipv4.tcp_plb_enabled",
    "net.ipv4.tcp_reflect_tos",
    "net.ipv4.tcp_rto_max_ms",
    "net.ipv4.tcp_rto_min_us",
    "net.ipv4.tcp_shrink_window",
    "net.ipv4.tcp_syn_linear_timeouts",
    "net.ipv4.tcp_tw_reuse_delay",
    "net.ipv4.udp_mem",
    "net.ipv6.fib_multipath_hash_fields",
    "net.ipv6.fib_multipath_hash_policy",
];

/// Folders of modules, which may not be loaded, and of IPv6: a name there is refused only where it is close to a known one.
const OPTIONAL_FOLDERS: &[&str] = &[
    "net.bridge.",
    "net.ipv4.netfilter.",
    "net.ipv4.vs.",
    "net.ipv6.",
    "net.mpls.",
    "net.mptcp.",
    "net.netfilter.",
    "net.sctp.",
    "net.smc.",
    "net.tipc.",
];

/// Parameters that a section sets, in the order of the file.
pub(super) fn read_sysctls(section: &Section<'_>) -> Result<Vec<(String, String)>, LabFileError> {
    let Some(sysctls) = section.section("sysctl")? else { return Ok(Vec::new()) };
    let mut read = Vec::new();
    for name in sysctls.keys() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !name.starts_with("net.") || name.contains("..") || !name.chars().all(plain) {
            let message = format!("'{name}' belongs to no network namespace; only net.* does");
            return Err(sysctls.error_at(name, message));
        }
        if let Some(message) = objection(name, kernel_has, kernel_names) {
            return Err(sysctls.error_at(name, message));
        }
        read.push((name.to_owned(), sysctls.scalar(name)?.unwrap_or_default()));
    }
    Ok(read)
}

/// Whether parameters switch IPv6 off for the interfaces that a host gets later. `default` is written after `all`,
/// which sets both.
pub(super) fn has_ipv6(parameter: impl Fn(&str) -> Option<String>) -> bool {
    let scopes = ["default", "all"].iter();
    let set = scopes.filter_map(|scope| parameter(&format!("net.ipv6.conf.{scope}.disable_ipv6")));
    set.map(|value| value.trim() == "0").next().unwrap_or(true)
}

/// Whether this machine's kernel has IPv6.
pub(super) fn kernel_has_ipv6() -> bool {
    let net = Path::new("/proc/sys/net");
    !net.join("ipv4").is_dir() || net.join("ipv6").is_dir()
}

/// Why a parameter can be that of no host.
fn objection(
    name: &str,
    is_known: impl Fn(&str) -> bool,
    names: impl Fn() -> BTreeSet<String>,
) -> Option<String> {
    let (name, interface) = of_any_interface(name);
    if let Some(interface) = interface {
        return Some(format!(
            "'{interface}' does not exist yet when parameters are set; write \"{name}\", which new interfaces take over"
        ));
    }
    if is_known(&name) || OF_SOME_KERNELS.contains(&name.as_str()) {
        return None;
    }
    let mut known = names();
    // Without /proc nothing can be told.
    if known.is_empty() {
        return None;
    }
    known.extend(OF_SOME_KERNELS.iter().map(|&known| known.to_owned()));
    let near = match closest(&name, &known) {
        Some(near) => format!("; did you mean '{near}'?"),
        None if OPTIONAL_FOLDERS.iter().any(|folder| name.starts_with(folder)) => return None,
        None => "; `sysctl -a -r ^net` lists them".to_owned(),
    };
    Some(format!("the kernel has no parameter '{name}'{near}"))
}

/// The known name with the most parts of this one whose only other part is close: the parts before it are long and
/// alike, and would make everything seem close.
fn closest<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a str> {
    let parts: Vec<&str> = name.split('.').collect();
    (0..parts.len()).rev().find_map(|at| {
        let candidates = known.iter().filter_map(|known| {
            let other: Vec<&str> = known.split('.').collect();
            let is_alike = other.len() == parts.len()
                && (0..parts.len()).all(|part| part == at || parts[part] == other[part]);
            is_alike.then(|| other[at])
        });
        let near = units::closest(parts[at], candidates)?;
        let whole: Vec<&str> = parts
            .iter()
            .enumerate()
            .map(|(part, own)| if part == at { near } else { own })
            .collect();
        known.get(&whole.join(".")).map(String::as_str)
    })
}

/// `net.ipv4.conf.eth0.rp_filter` as that of `default`, with the interface.
fn of_any_interface(name: &str) -> (String, Option<&str>) {
    for folder in ["net.ipv4.conf.", "net.ipv6.conf.", "net.ipv4.neigh.", "net.ipv6.neigh."] {
        let Some((interface, key)) =
            name.strip_prefix(folder).and_then(|rest| rest.rsplit_once('.'))
        else {
            continue;
        };
        // A misspelt `default` is no interface.
        let is_interface = !["all", "default", "lo"].contains(&interface)
            && units::closest(interface, ["all", "default"]).is_none();
        if is_interface {
            return (format!("{folder}default.{key}"), Some(interface));
        }
    }
    (name.to_owned(), None)
}

fn kernel_has(name: &str) -> bool {
    Path::new("/proc/sys").join(name.replace('.', "/")).is_file()
}

/// All parameters below `net` that belong to no single interface.
fn kernel_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut ahead = vec![("net".to_owned(), Path::new("/proc/sys/net").to_owned())];
    while let Some((name, folder)) = ahead.pop() {
        let is_of_interfaces = name.ends_with(".conf") || name.ends_with(".neigh");
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let last = entry.file_name().to_string_lossy().into_owned();
            let whole = format!("{name}.{last}");
            let Ok(kind) = entry.file_type() else { continue };
            let is_general = !is_of_interfaces || ["all", "default"].contains(&last.as_str());
            if kind.is_file() {
                names.insert(whole);
            } else if kind.is_dir() && is_general {
                ahead.push((whole, entry.path()));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_parameter_is_told_from_one_of_another_kernel() {
        let known = || {
            [
                "core.somaxconn",
                "ipv4.tcp_rmem",
                "ipv4.tcp_wmem",
                "ipv4.conf.default.rp_filter",
                "netfilter.nf_log_all_netns",
            ]
            .map(|name| format!("net.{name}"))
            .into_iter()
            .collect::<BTreeSet<_>>()
        };
        let of = |name: &str| objection(name, |name| known().contains(name), known);
        for name in [
            "net.ipv4.tcp_rmem",
            "net.ipv4.fib_multipath_hash_seed",
            "net.netfilter.nf_conntrack_max",
            "net.ipv6.conf.all.disable_ipv6",
        ] {
            assert_eq!(of(name), None, "{name}");
        }
        for (name, words) in [
            ("net.ipv4.tcp_rmen", "did you mean 'net.ipv4.tcp_rmem'?"),
            ("net.ipvv4.tcp_rmem", "did you mean 'net.ipv4.tcp_rmem'?"),
            (
                "net.ipv4.fib_multipath_hash_sead",
                "did you mean 'net.ipv4.fib_multipath_hash_seed'?",
            ),
            ("net.ipv4.conf.defualt.rp_filter", "did you mean 'net.ipv4.conf.default.rp_filter'?"),
            ("net.netfilter.nf_log_all_netsn", "did you mean 'net.netfilter.nf_log_all_netns'?"),
            ("net.ipv4.frobnicate", "no parameter 'net.ipv4.frobnicate'; `sysctl -a"),
            ("net.ipv4.conf.eth0.rp_filter", "write \"net.ipv4.conf.default.rp_filter\", which"),
        ] {
            let message = of(name).unwrap_or_default();
            assert!(message.contains(words), "{name}: {message}");
        }
        assert_eq!(objection("net.ipv4.tcp_rmen", |_| false, BTreeSet::new), None, "no /proc");
    }

    #[test]
    fn ipv6_is_off_where_the_last_parameter_written_says_so() {
        let with = |set: &[(&str, &str)]| {
            has_ipv6(|name| {
                let found = set.iter().find(|(scope, _)| name.contains(&format!(".{scope}.")));
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(with(&[]));
        assert!(!with(&[("all", "1")]));
        assert!(with(&[("all", "1"), ("default", "0")]));
        assert!(!with(&[("default", "1")]));
    }
}
