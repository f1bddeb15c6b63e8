//! What a host is made of: cores, caches, memory nodes, network interfaces and the way between them.
//!
//! "Core" is what the kernel numbers as a CPU: with SMT, two of them share one physical core.
//! Everything that could not be read is absent; [`Machine::absent`] says why where a reader would
//! miss it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Absent;

/// A host's parts, as `clearstream topo` shows them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Cores, by number; offline ones too.
    pub cores: Vec<Core>,
    /// Caches, each once, with the cores that share it; by level, then by first core.
    #[serde(default)]
    pub caches: Vec<Cache>,
    /// Memory nodes, by number.
    #[serde(default)]
    pub nodes: Vec<MemoryNode>,
    /// Network interfaces, loopback left out, by name.
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// `irqbalance` is running, which moves interrupts by itself.
    #[serde(default)]
    pub irqbalance_runs: bool,
    /// Entries of the global RFS table (`net.core.rps_sock_flow_entries`); 0: off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rfs_entries_count: Option<u32>,
    /// What could not be read, and why.
    #[serde(default)]
    pub absent: Vec<Absent>,
}

/// One core (a logical CPU).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Core {
    /// The kernel's number.
    pub core: u32,
    /// The package (socket) it is in (`topology/physical_package_id`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub package: Option<u32>,
    /// The die in the package (`topology/die_id`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub die: Option<u32>,
    /// The physical core in the package (`topology/core_id`); SMT siblings share it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub physical_core: Option<u32>,
    /// Its memory node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<u32>,
    /// The kernel runs programs on it.
    pub is_online: bool,
    /// This process may use it (affinity, cpuset).
    pub is_usable: bool,
    /// Isolated from the scheduler at boot (`isolcpus`).
    #[serde(default)]
    pub is_isolated: bool,
    /// Clock and governor, where the kernel controls them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub frequency: Option<CoreFrequency>,
    /// Idle states, shallow first: (name, exit latency in us, disabled).
    #[serde(default)]
    pub idle_states: Vec<IdleState>,
}

/// How a core's clock is controlled (`cpufreq`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoreFrequency {
    /// `performance`, `powersave`, `schedutil`.
    pub governor: String,
    /// `intel_pstate`, `acpi-cpufreq`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    /// Lowest clock that the governor may choose, kHz.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_khz: Option<u64>,
    /// Highest clock that the governor may choose, kHz.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_khz: Option<u64>,
    /// Highest clock of the processor, kHz.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hardware_max_khz: Option<u64>,
    /// Clock when last read, kHz.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub current_khz: Option<u64>,
}

/// An idle state of a core (`cpuidle`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IdleState {
    /// `C1E`, `C6`.
    pub name: String,
    /// Time to leave it, microseconds.
    pub exit_latency_us: u64,
    /// Switched off.
    pub is_disabled: bool,
}

/// A cache and who shares it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cache {
    /// 1, 2, 3.
    pub level: u32,
    /// `Data`, `Instruction`, `Unified`.
    pub kind: String,
    /// Size, bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub size_bytes: Option<u64>,
    /// The cores that share it.
    pub cores: Vec<u32>,
}

/// A memory node and its distances.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryNode {
    /// The kernel's number.
    pub node: u32,
    /// Numbers of its cores.
    pub cores: Vec<u32>,
    /// Its memory, bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_bytes: Option<u64>,
    /// Distance to each online node in the order of `nodes`; 10 is the node itself (ACPI SLIT).
    #[serde(default)]
    pub distances: Vec<u32>,
}

/// A network interface and everything that feeds it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Nic {
    /// `eth0`.
    pub name: String,
    /// `mlx5_core`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    /// The interface has a carrier.
    pub is_up: bool,
    /// Link speed, bit/s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speed_bits_per_s: Option<f64>,
    /// MTU, bytes.
    pub mtu_bytes: u32,
    /// Memory node next to it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<u32>,
    /// Cores next to it (`local_cpulist`).
    #[serde(default)]
    pub near_cores: Vec<u32>,
    /// Its PCI Express link; absent for virtual devices.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pcie: Option<PcieLink>,
    /// Receive queues.
    #[serde(default)]
    pub receive_queues: Vec<ReceiveQueue>,
    /// Transmit queues.
    #[serde(default)]
    pub transmit_queues: Vec<TransmitQueue>,
    /// Its interrupts; which queue each serves where the driver's naming says so.
    #[serde(default)]
    pub interrupts: Vec<Interrupt>,
    /// Packet processing in kernel threads instead of softirqs (`/sys/class/net/X/threaded`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub is_napi_threaded: Option<bool>,
    /// The threads of threaded NAPI.
    #[serde(default)]
    pub napi_threads: Vec<NapiThread>,
    /// Polls without packets before the interrupt is armed again (`napi_defer_hard_irqs`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub defer_hard_irqs_count: Option<u32>,
    /// How long such a poll waits, nanoseconds (`gro_flush_timeout`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gro_flush_timeout_ns: Option<u64>,
    /// Channels in use: combined, receive, transmit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub channels: Option<Channels>,
    /// Descriptor rings.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rings: Option<Rings>,
    /// Interrupt coalescing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub coalescing: Option<Coalescing>,
    /// Number of entries of each receive queue in the RSS indirection table.
    #[serde(default)]
    pub rss_spread: Vec<u32>,
    /// Offloads, on or off: `tcp-segmentation-offload`, `generic-receive-offload`.
    #[serde(default)]
    pub offloads: Vec<Offload>,
}

/// An offload's state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Offload {
    /// The kernel's name for it (`ethtool -k`).
    pub name: String,
    /// Whether it is on.
    pub is_on: bool,
    /// Whether it can be switched.
    pub may_change: bool,
}

/// A PCI Express link: what it runs at and what it could.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PcieLink {
    /// `0000:41:00.0`.
    pub address: String,
    /// Current speed, 10^9 transfers/s per lane: 2.5, 5, 8, 16, 32, 64.
    pub speed_gt_per_s: f64,
    /// Lanes in use.
    pub lanes_count: u32,
    /// Highest speed of the device, 10^9 transfers/s per lane.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speed_max_gt_per_s: Option<f64>,
    /// Lanes that the device supports.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lanes_max_count: Option<u32>,
    /// Largest payload of a transaction, bytes (MaxPayload of the device's control register).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub payload_max_bytes: Option<u32>,
    /// Largest read request the device makes, bytes (MaxReadRequest, same register).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read_request_max_bytes: Option<u32>,
    /// The bridge above that is narrower than the device's own link, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub narrowest_bridge: Option<String>,
    /// Speed of that bridge, 10^9 transfers/s per lane.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bridge_speed_gt_per_s: Option<f64>,
    /// The lanes of that bridge.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bridge_lanes_count: Option<u32>,
}

/// A receive queue's steering in software.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiveQueue {
    /// Number.
    pub queue: u32,
    /// Cores RPS may hand packets to; empty: off.
    #[serde(default)]
    pub rps_cores: Vec<u32>,
    /// Entries of this queue's RFS table; 0: off.
    #[serde(default)]
    pub rfs_entries_count: u32,
    /// The NAPI instance that polls it, where the kernel reports it (Linux 6.8 and later).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub napi_id: Option<u32>,
}

/// A transmit queue's choice in software.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransmitQueue {
    /// Number.
    pub queue: u32,
    /// Cores whose traffic XPS sends here; empty: off.
    #[serde(default)]
    pub xps_cores: Vec<u32>,
    /// The NAPI instance that cleans it, where the kernel reports it (Linux 6.8 and later).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub napi_id: Option<u32>,
}

/// An interrupt: where it may run and where it did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interrupt {
    /// Linux interrupt number.
    pub irq: u32,
    /// `mlx5_comp0@pci:0000:41:00.0`, `eth0-TxRx-3`.
    pub name: String,
    /// The queue it serves, where its name says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queue: Option<u32>,
    /// It serves the receive queue of that number.
    #[serde(default)]
    pub serves_receive: bool,
    /// It serves the transmit queue of that number.
    #[serde(default)]
    pub serves_transmit: bool,
    /// Cores it may run on (`smp_affinity_list`).
    #[serde(default)]
    pub allowed_cores: Vec<u32>,
    /// Cores it is delivered to (`effective_affinity_list`).
    #[serde(default)]
    pub effective_cores: Vec<u32>,
    /// Times it ran since boot: (core, count), without cores where it never ran.
    #[serde(default)]
    pub ran: Vec<(u32, u64)>,
}

/// A kernel thread of threaded NAPI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NapiThread {
    /// Process id.
    pub pid: u32,
    /// `napi/eth0-8193`.
    pub name: String,
    /// The NAPI instance it polls.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub napi_id: Option<u32>,
    /// The receive queue of that instance.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queue: Option<u32>,
    /// Cores it may run on.
    #[serde(default)]
    pub allowed_cores: Vec<u32>,
    /// The core it last ran on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_core: Option<u32>,
}

/// Channels in use and possible (`ethtool -l`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Channels {
    /// Receive only.
    pub receive_count: u32,
    /// Transmit only.
    pub transmit_count: u32,
    /// Combined receive and transmit.
    pub combined_count: u32,
    /// Receive only, at most.
    pub receive_max_count: u32,
    /// Transmit only, at most.
    pub transmit_max_count: u32,
    /// Combined receive and transmit, at most.
    pub combined_max_count: u32,
}

/// Descriptor rings, now and at most (`ethtool -g`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rings {
    /// Receive descriptors.
    pub receive_count: u32,
    /// Transmit descriptors.
    pub transmit_count: u32,
    /// Receive descriptors, at most.
    pub receive_max_count: u32,
    /// Transmit descriptors, at most.
    pub transmit_max_count: u32,
}

/// Interrupt coalescing (`ethtool -c`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Coalescing {
    /// The driver adapts the receive side by itself.
    pub is_receive_adaptive: bool,
    /// The driver adapts the transmit side by itself.
    pub is_transmit_adaptive: bool,
    /// Wait after a received packet, microseconds.
    pub receive_usecs: u32,
    /// Packets before an interrupt, receive.
    pub receive_frames_count: u32,
    /// Wait after a sent packet, microseconds.
    pub transmit_usecs: u32,
    /// Packets before an interrupt, transmit.
    pub transmit_frames_count: u32,
}

/// How far two cores are from each other, in Open-MX's terms.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Proximity {
    /// SC: the very same core.
    SameCore,
    /// The other thread of the same physical core.
    SmtSibling,
    /// S$: another core below the same last-level (or a shared) cache.
    SharedCache,
    /// SP: the same memory node or package, no shared cache.
    SameNode,
    /// OP: another node or package.
    OtherNode,
}

impl Machine {
    /// How far two cores are apart; `None` when either is not a core of this machine.
    #[must_use]
    pub fn proximity(&self, a: u32, b: u32) -> Option<Proximity> {
        let (first, second) = (self.core(a)?, self.core(b)?);
        if a == b {
            return Some(Proximity::SameCore);
        }
        let same = |x: Option<u32>, y: Option<u32>| x.is_some() && x == y;
        let same_package = same(first.package, second.package);
        if same_package
            && same(first.physical_core, second.physical_core)
            && first.die == second.die
        {
            return Some(Proximity::SmtSibling);
        }
        let share_cache = |cache: &Cache| {
            cache.level >= 2 && cache.cores.contains(&a) && cache.cores.contains(&b)
        };
        if self.caches.iter().any(share_cache) {
            return Some(Proximity::SharedCache);
        }
        let same_node = match (first.node, second.node) {
            (Some(x), Some(y)) => x == y,
            _ => same_package || first.package.is_none(),
        };
        Some(if same_node { Proximity::SameNode } else { Proximity::OtherNode })
    }

    /// A core by its number.
    #[must_use]
    pub fn core(&self, number: u32) -> Option<&Core> {
        self.cores.iter().find(|core| core.core == number)
    }

    /// An interface by its name.
    #[must_use]
    pub fn nic(&self, name: &str) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.name == name)
    }
}
