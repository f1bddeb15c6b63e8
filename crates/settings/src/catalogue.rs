//! The kernel settings this program may change, what each takes, and where it is documented.

use crate::value::word;

/// What a kernel setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One whole number, which may be negative.
    Number,
    /// Three whole numbers.
    Triple,
    /// One word: an algorithm or a qdisc.
    Word,
    /// Several words.
    Words,
}

/// A kernel setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sysctl {
    /// Name of the setting: `net.ipv4.tcp_rmem`.
    pub name: &'static str,
    /// Kind of its values.
    pub kind: Kind,
    /// One for the whole machine: a network namespace other than the first one shows it read-only
    /// or not at all.
    pub is_global: bool,
}

const fn own(name: &'static str, kind: Kind) -> Sysctl {
    Sysctl { name, kind, is_global: false }
}

const fn global(name: &'static str, kind: Kind) -> Sysctl {
    Sysctl { name, kind, is_global: true }
}

/// Sources: kernel `Documentation/networking/ip-sysctl.rst`,
/// `Documentation/admin-guide/sysctl/net.rst`; which are per namespace: kernel
/// `net/ipv4/sysctl_net_ipv4.c`, `net/core/sysctl_net_core.c`.
pub const SYSCTLS: &[Sysctl] = &[
    global("net.core.busy_poll", Kind::Number),
    global("net.core.busy_read", Kind::Number),
    global("net.core.default_qdisc", Kind::Word),
    global("net.core.netdev_budget", Kind::Number),
    global("net.core.netdev_budget_usecs", Kind::Number),
    global("net.core.netdev_max_backlog", Kind::Number),
    own("net.core.optmem_max", Kind::Number),
    global("net.core.rmem_default", Kind::Number),
    global("net.core.rmem_max", Kind::Number),
    global("net.core.rps_sock_flow_entries", Kind::Number),
    global("net.core.wmem_default", Kind::Number),
    global("net.core.wmem_max", Kind::Number),
    own("net.ipv4.conf.all.accept_redirects", Kind::Number),
    own("net.ipv4.conf.all.arp_announce", Kind::Number),
    own("net.ipv4.conf.all.arp_ignore", Kind::Number),
    own("net.ipv4.conf.all.forwarding", Kind::Number),
    own("net.ipv4.conf.all.ignore_routes_with_linkdown", Kind::Number),
    own("net.ipv4.conf.all.rp_filter", Kind::Number),
    own("net.ipv4.conf.all.send_redirects", Kind::Number),
    own("net.ipv4.conf.all.src_valid_mark", Kind::Number),
    own("net.ipv4.conf.default.forwarding", Kind::Number),
    own("net.ipv4.fib_multipath_hash_policy", Kind::Number),
    own("net.ipv4.fib_multipath_hash_seed", Kind::Number),
    own("net.ipv4.fib_multipath_use_neigh", Kind::Number),
    own("net.ipv4.fwmark_reflect", Kind::Number),
    own("net.ipv4.ip_forward", Kind::Number),
    global("net.ipv4.tcp_allowed_congestion_control", Kind::Words),
    own("net.ipv4.tcp_adv_win_scale", Kind::Number),
    own("net.ipv4.tcp_autocorking", Kind::Number),
    own("net.ipv4.tcp_congestion_control", Kind::Word),
    own("net.ipv4.tcp_ecn", Kind::Number),
    own("net.ipv4.tcp_fin_timeout", Kind::Number),
    own("net.ipv4.tcp_fwmark_accept", Kind::Number),
    own("net.ipv4.tcp_limit_output_bytes", Kind::Number),
    global("net.ipv4.tcp_mem", Kind::Triple),
    own("net.ipv4.tcp_moderate_rcvbuf", Kind::Number),
    own("net.ipv4.tcp_mtu_probing", Kind::Number),
    own("net.ipv4.tcp_no_metrics_save", Kind::Number),
    own("net.ipv4.tcp_notsent_lowat", Kind::Number),
    own("net.ipv4.tcp_rmem", Kind::Triple),
    own("net.ipv4.tcp_sack", Kind::Number),
    own("net.ipv4.tcp_shrink_window", Kind::Number),
    own("net.ipv4.tcp_slow_start_after_idle", Kind::Number),
    own("net.ipv4.tcp_timestamps", Kind::Number),
    own("net.ipv4.tcp_tw_reuse", Kind::Number),
    own("net.ipv4.tcp_window_scaling", Kind::Number),
    own("net.ipv4.tcp_wmem", Kind::Triple),
    global("net.ipv4.udp_mem", Kind::Triple),
    own("net.ipv4.udp_rmem_min", Kind::Number),
    own("net.ipv6.conf.all.accept_redirects", Kind::Number),
    own("net.ipv6.conf.all.forwarding", Kind::Number),
    own("net.ipv6.conf.all.ignore_routes_with_linkdown", Kind::Number),
    own("net.ipv6.conf.default.forwarding", Kind::Number),
    own("net.ipv6.fib_multipath_hash_policy", Kind::Number),
    own("net.ipv6.fwmark_reflect", Kind::Number),
    own("net.mptcp.enabled", Kind::Number),
];

/// What IPv4 keeps for each interface below `net.ipv4.conf`; each takes one number.
pub const IPV4_OF_INTERFACE: &[&str] = &[
    "accept_redirects",
    "arp_announce",
    "arp_ignore",
    "forwarding",
    "ignore_routes_with_linkdown",
    "rp_filter",
    "send_redirects",
    "src_valid_mark",
];

/// What IPv6 keeps for each interface below `net.ipv6.conf`; each takes one number.
pub const IPV6_OF_INTERFACE: &[&str] =
    &["accept_ra", "accept_redirects", "forwarding", "ignore_routes_with_linkdown"];

/// The setting of this name, if this program may change it.
#[must_use]
pub fn sysctl(name: &str) -> Option<&'static Sysctl> {
    SYSCTLS.iter().find(|known| known.name == name)
}

impl Kind {
    /// The value in the form it is compared in; `None` when it is not of this kind.
    #[must_use]
    pub fn check(self, value: &str) -> Option<String> {
        let parts: Vec<&str> = value.split_ascii_whitespace().collect();
        let numbers = || parts.iter().all(|part| part.parse::<i64>().is_ok_and(plain_digits(part)));
        let is_right = match self {
            Self::Number => parts.len() == 1 && numbers(),
            Self::Triple => parts.len() == 3 && numbers(),
            Self::Word => parts.len() == 1 && word(parts[0]).is_some(),
            Self::Words => parts.len() <= 64 && parts.iter().all(|part| word(part).is_some()),
        };
        is_right.then(|| parts.join(" "))
    }

    pub(crate) fn wanted(self) -> &'static str {
        match self {
            Self::Number => "a whole number",
            Self::Triple => "three whole numbers",
            Self::Word => "one word",
            Self::Words => "words",
        }
    }
}

/// Numbers stand as the kernel prints them: no sign but a minus, no leading zeros.
fn plain_digits(text: &str) -> impl Fn(i64) -> bool + '_ {
    move |number| number.to_string() == text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_within_its_families_and_names_nothing_twice() {
        let mut names: Vec<&str> = SYSCTLS.iter().map(|known| known.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SYSCTLS.len());
        assert!(names.iter().all(|name| name.starts_with("net.")));
    }

    #[test]
    fn numbers_are_as_the_kernel_prints_them() {
        assert_eq!(Kind::Number.check("-1\n").as_deref(), Some("-1"));
        for wrong in ["", "007", "+1", "1 2", "1e3", "x"] {
            assert_eq!(Kind::Number.check(wrong), None, "{wrong}");
        }
    }
}
