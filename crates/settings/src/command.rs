//! The shell command that makes a change by hand.

use std::borrow::Cow;

use crate::change::Change;
use crate::key::{InterfaceKey, Key};
use crate::value::RootQdisc;

/// The command a person would type as root to give `key` the value `to`. Every part that comes from a
/// host stands as one word of the shell.
#[must_use]
pub fn command(key: &Key, to: &str) -> String {
    match key {
        Key::Interface { name, what } => of_interface(&word(name), what, to),
        Key::InterruptAffinity(irq) => {
            format!("echo {} > /proc/irq/{irq}/smp_affinity_list", word(to))
        }
        Key::ThreadAffinity(name) => format!("taskset -pc {} {}", word(to), process_of(name)),
        Key::Governor(core) => {
            format!(
                "echo {} > /sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor",
                word(to)
            )
        }
        Key::CpuQuota(group) => {
            format!("echo {} > {}", word(to), word(&format!("/sys/fs/cgroup{group}/cpu.max")))
        }
        Key::File(file) => format!("edit /{}", file.path()),
        Key::Nexthop(id) => format!("ip nexthop {} id {id}", replace_or_delete(to)),
        Key::Route(route) => {
            let (address, bits) = route.destination;
            let (table, metric) = (route.table, route.metric);
            let verb = replace_or_delete(to);
            format!("ip route {verb} {address}/{bits} table {table} metric {metric}")
        }
        Key::Rule(_) if to == "-" => "ip rule del".to_owned(),
        Key::Rule(_) => "ip rule add".to_owned(),
        Key::FilterTable(name) => {
            let verb = if to == "-" { "delete" } else { "add" };
            format!("nft {verb} table {} {}", name.family(), name.table())
        }
        Key::Sysctl(name) => format!("sysctl -w {name}={}", word(to)),
    }
}

/// The commands of several changes as one line of the shell.
#[must_use]
pub fn commands(changes: &[Change]) -> String {
    let each = changes.iter().map(|change| command(&change.key, &change.to));
    each.collect::<Vec<_>>().join("; ")
}

fn of_interface(name: &str, what: &InterfaceKey, to: &str) -> String {
    use InterfaceKey as I;
    let file = |path: String| format!("echo {} > /sys/class/net/{name}/{path}", word(to));
    match what {
        I::Mtu => format!("ip link set dev {name} mtu {}", word(to)),
        I::TxQueueLength => format!("ip link set dev {name} txqueuelen {}", word(to)),
        I::Qdisc if RootQdisc::of(to).is_default => format!("tc qdisc del dev {name} root"),
        I::Qdisc => format!("tc qdisc replace dev {name} root {}", word(to)),
        I::Feature(feature) => format!("ethtool -K {name} {feature} {}", word(to)),
        I::RssTable => format!("ethtool -X {name} …"),
        I::RpsCores(queue) => file(format!("queues/rx-{queue}/rps_cpus")),
        I::RfsEntries(queue) => file(format!("queues/rx-{queue}/rps_flow_cnt")),
        I::XpsCores(queue) => file(format!("queues/tx-{queue}/xps_cpus")),
        I::ThreadedNapi => file("threaded".to_owned()),
        I::FlowQueue(flow) if to == "-" => format!("ethtool -N {name} delete …  # {flow}"),
        I::FlowQueue(flow) => {
            let family = if flow.is_ipv6 { "udp6" } else { "udp4" };
            format!(
                "ethtool -N {name} flow-type {family} dst-port {} action {}",
                flow.port,
                word(to)
            )
        }
        // Slashes, because the name of an interface may have dots.
        I::Ipv4(what) => format!("sysctl -w net/ipv4/conf/{name}/{what}={}", word(to)),
        I::Ipv6(what) => format!("sysctl -w net/ipv6/conf/{name}/{what}={}", word(to)),
        I::Parameter(_) => {
            let words = what.to_string();
            let (flag, option) = match words.split_once('-') {
                Some(("ring", option)) => ("-G", option),
                Some(("channels", option)) => ("-L", option),
                Some((_, option)) => ("-C", option),
                None => ("-C", words.as_str()),
            };
            let to = match (option.starts_with("adaptive"), to) {
                (true, "1") => "on".into(),
                (true, _) => "off".into(),
                (false, _) => word(to),
            };
            format!("ethtool {flag} {name} {option} {to}")
        }
    }
}

/// Whoever makes such changes says the rest of the words (`clearstream gateway plan`): a value is a
/// netlink body.
fn replace_or_delete(to: &str) -> &'static str {
    if to == "-" { "del" } else { "replace" }
}

/// The process id of a kernel thread. `pgrep` looks at the first 15 letters of a name only.
fn process_of(name: &str) -> String {
    if name.len() <= 15 {
        return format!("$(pgrep -x {})", word(name));
    }
    format!("$(grep -lxF {} /proc/[0-9]*/comm | cut -d/ -f3)", word(name))
}

/// Text as one word of the shell.
#[must_use]
pub fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, to: &str) -> String {
        command(&key.parse().expect(key), to)
    }

    #[test]
    fn every_kind_of_setting_has_a_command() {
        for (key, to, command) in [
            ("net.ipv4.tcp_sack", "1", "sysctl -w net.ipv4.tcp_sack=1"),
            ("net.ipv4.tcp_rmem", "1 2 3", "sysctl -w net.ipv4.tcp_rmem='1 2 3'"),
            ("eth0/mtu", "9000", "ip link set dev eth0 mtu 9000"),
            ("eth0/ring-rx", "512", "ethtool -G eth0 rx 512"),
            ("eth0/channels-combined", "4", "ethtool -L eth0 combined 4"),
            ("eth0/coalesce-adaptive-rx", "1", "ethtool -C eth0 adaptive-rx on"),
            ("eth0/coalesce-rx-usecs", "8", "ethtool -C eth0 rx-usecs 8"),
            ("eth0/feature-rx-gro", "on", "ethtool -K eth0 rx-gro on"),
            ("eth0/qdisc", "fq", "tc qdisc replace dev eth0 root fq"),
            ("eth0/qdisc", "noqueue (default)", "tc qdisc del dev eth0 root"),
            ("eth0/rx-1/rps_cpus", "ff", "echo ff > /sys/class/net/eth0/queues/rx-1/rps_cpus"),
            (
                "eth0/udp4-61008/queue",
                "3",
                "ethtool -N eth0 flow-type udp4 dst-port 61008 action 3",
            ),
            ("eth0/udp4-61008/queue", "-", "ethtool -N eth0 delete …  # udp4-61008"),
            ("eth0.7/ipv4/rp_filter", "2", "sysctl -w net/ipv4/conf/eth0.7/rp_filter=2"),
            ("nexthop:7", "-", "ip nexthop del id 7"),
            ("route:254,1,0,10.0.0.0/8", "-", "ip route del 10.0.0.0/8 table 254 metric 1"),
            ("irq:27/affinity", "0-3", "echo 0-3 > /proc/irq/27/smp_affinity_list"),
            ("thread:napi/eth0-8193/affinity", "1", "taskset -pc 1 $(pgrep -x napi/eth0-8193)"),
            (
                "thread:napi/enp65s0f0np0-8193/affinity",
                "1",
                "taskset -pc 1 $(grep -lxF napi/enp65s0f0np0-8193 /proc/[0-9]*/comm | cut -d/ -f3)",
            ),
            ("cgroup:/box/cpu.max", "max 100000", "echo 'max 100000' > /sys/fs/cgroup/box/cpu.max"),
        ] {
            assert_eq!(of(key, to), command);
        }
    }

    #[test]
    fn a_name_that_the_shell_would_read_otherwise_is_quoted() {
        assert_eq!(of("$(id)/mtu", "9000"), "ip link set dev '$(id)' mtu 9000");
        assert_eq!(of("a'b/mtu", "9000"), "ip link set dev 'a'\\''b' mtu 9000");
        assert_eq!(
            of("cgroup:/a b;c/cpu.max", "max 1"),
            "echo 'max 1' > '/sys/fs/cgroup/a b;c/cpu.max'"
        );
    }

    #[test]
    fn commands_of_several_changes_are_one_line() {
        let change = |key: &str, to: &str| Change::new(key.parse().expect(key), to);
        let both = [change("eth0/feature-rx-gro", "on"), change("net.ipv4.tcp_sack", "1")];
        assert_eq!(commands(&both), "ethtool -K eth0 rx-gro on; sysctl -w net.ipv4.tcp_sack=1");
    }
}
