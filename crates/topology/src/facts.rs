//! The facts of this host.

use std::collections::BTreeMap;
use std::net::IpAddr;

use results::HostFacts;

use crate::files::parse_list;
use crate::{CoreTimes, HostFiles, device};

/// Kernel settings that bear on throughput (kernel `Documentation/networking/ip-sysctl.rst`,
/// `Documentation/admin-guide/sysctl/net.rst`).
const SYSCTLS: &[&str] = &[
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_shrink_window",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.mptcp.enabled",
];

/// What a reader must know of this host; with `toward`, also the interface that carries the path
/// to that address. Takes a few milliseconds and changes nothing.
#[must_use]
pub fn host_facts(toward: Option<IpAddr>) -> HostFacts {
    host_facts_from(&HostFiles::default(), toward)
}

/// The facts with the files of a recorded tree; names, cores and interface remain this host's.
pub(crate) fn host_facts_from(files: &HostFiles, toward: Option<IpAddr>) -> HostFacts {
    /// Enough for the first core's entry; the rest repeats it, and reading a core's entry may
    /// interrupt that core for its frequency.
    const CPUINFO_BYTES_MAX: u64 = 4096;
    let cpuinfo = files.proc_head("cpuinfo", CPUINFO_BYTES_MAX).unwrap_or_default();
    let uname = rustix::system::uname();
    HostFacts {
        name: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        processor: processor(&cpuinfo),
        usable_cores: sys::thread::usable_cores().unwrap_or_default(),
        online_cores_count: online_cores(files),
        memory_nodes_count: memory_nodes(files),
        memory_bytes: files.proc("meminfo").and_then(|text| memory_bytes(&text)),
        hypervisor: hypervisor(files, &cpuinfo),
        interface: toward.and_then(|address| device::facts_toward(files, address)),
        sysctls: sysctls(files),
        machine: Some(crate::machine()),
        tool_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
    }
}

fn sysctls(files: &HostFiles) -> BTreeMap<String, String> {
    let read = |name: &str| {
        let text = files.proc(&format!("sys/{}", name.replace('.', "/")))?;
        // Vectors come with tabs between their figures.
        let value = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        Some((name.to_owned(), value))
    };
    SYSCTLS.iter().filter_map(|name| read(name)).collect()
}

/// The processor's name; each architecture has its own key, and arm64 has none.
fn processor(cpuinfo: &str) -> Option<String> {
    ["model name", "cpu model", "cpu", "uarch"].iter().find_map(|key| field(cpuinfo, key))
}

fn online_cores(files: &HostFiles) -> u32 {
    let listed = files.sys_line("devices/system/cpu/online").map(|line| parse_list(&line).len());
    let count = listed.filter(|&count| count > 0);
    u32::try_from(count.unwrap_or_else(|| CoreTimes::read_from(files).cores_count())).unwrap_or(0)
}

fn memory_nodes(files: &HostFiles) -> Option<u32> {
    let nodes = parse_list(&files.sys_line("devices/system/node/online")?);
    u32::try_from(nodes.len()).ok().filter(|&count| count > 0)
}

/// `MemTotal:  32784 kB`, where kB means KiB.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    let total = field(meminfo, "MemTotal")?;
    total.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Which hypervisor, in the order of who knows best: Xen's own file, the processor's signature, the
/// maker of the machine. `unnamed` when the processor says that there is one and nobody says which.
fn hypervisor(files: &HostFiles, cpuinfo: &str) -> Option<String> {
    if let Some(kind) = files.sys_line("hypervisor/type") {
        return Some(kind);
    }
    let flags = field(cpuinfo, "flags").unwrap_or_default();
    if flags.split_ascii_whitespace().any(|flag| flag == "hypervisor") {
        let named = signature().or_else(|| files.sys_line("class/dmi/id/sys_vendor"));
        return Some(named.unwrap_or_else(|| "unnamed".to_owned()));
    }
    // No such flag outside x86: only makers that make nothing but virtual machines tell.
    let maker = files.sys_line("class/dmi/id/sys_vendor")?;
    ["QEMU", "Amazon EC2", "Google", "VMware", "Xen"]
        .iter()
        .any(|name| maker.starts_with(name) && flags.is_empty())
        .then_some(maker)
}

/// The hypervisor's twelve letters at CPUID leaf 0x4000_0000 (kernel
/// `arch/x86/include/asm/cpuid/api.h`).
#[cfg(target_arch = "x86_64")]
fn signature() -> Option<String> {
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    let letters: Vec<u8> =
        [leaf.ebx, leaf.ecx, leaf.edx].into_iter().flat_map(u32::to_le_bytes).collect();
    let text = String::from_utf8(letters).ok()?;
    let text = text.trim_matches(|c: char| c == '\0' || c == ' ');
    let known = match text {
        "KVMKVMKVM" => "KVM",
        "Microsoft Hv" => "Hyper-V",
        "VMwareVMware" => "VMware",
        "XenVMMXenVMM" => "Xen",
        "TCGTCGTCGTCG" => "QEMU TCG",
        other => other,
    };
    let printable = !known.is_empty() && known.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    printable.then(|| known.to_owned())
}

#[cfg(not(target_arch = "x86_64"))]
fn signature() -> Option<String> {
    None
}

/// The first `key : value` of a text.
fn field(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        let value = value.trim();
        (found.trim() == key && !value.is_empty()).then(|| value.to_owned())
    })
}

#[cfg(test)]
mod tests;
