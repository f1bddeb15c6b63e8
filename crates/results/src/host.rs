//! A host and its counters.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Facts that a reader needs to judge a host's figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostFacts {
    /// Host name, or the lab's name for it.
    pub name: String,
    /// Kernel release, as `uname -r`.
    pub kernel: String,
    /// Processor model, as `/proc/cpuinfo` names it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub processor: Option<String>,
    /// Cores the measuring process may use.
    pub usable_cores: Vec<u32>,
    /// Cores online on the host.
    pub online_cores_count: u32,
    /// Memory nodes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_nodes_count: Option<u32>,
    /// Memory, bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_bytes: Option<u64>,
    /// Hypervisor under which the host runs, where it reports one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hypervisor: Option<String>,
    /// The interface that carries the path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<InterfaceFacts>,
    /// Kernel settings that affect throughput: `net.ipv4.tcp_rmem` → its text.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// What it is made of: cores, caches, memory nodes, interfaces and their queues.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine: Option<crate::Machine>,
    /// Version of clearstream there; absent for a foreign peer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tool_version: Option<String>,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceFacts {
    /// `eth0`.
    pub name: String,
    /// Kernel driver: `mlx5_core`, `tun`, `veth`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub driver: Option<String>,
    /// Link speed, bit/s; absent when the device does not know or (veth) makes it up.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speed_bits_per_s: Option<f64>,
    /// MTU, bytes.
    pub mtu_bytes: u32,
    /// Receive and transmit queues.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queues_count: Option<(u32, u32)>,
    /// Queueing discipline at the root.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub qdisc: Option<String>,
    /// Rate of a shaping qdisc on this host, bit/s, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub qdisc_rate_bits_per_s: Option<f64>,
    /// The class that sets this rate, where the qdisc is htb: `1:10`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub qdisc_class: Option<String>,
    /// Offloads that are on: `tso`, `gso`, `gro`, `tx-udp-segmentation`.
    #[serde(default)]
    pub offloads: Vec<String>,
    /// Memory node of the device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_node: Option<u32>,
    /// Largest MTU the device takes, bytes (`IFLA_MAX_MTU`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mtu_max_bytes: Option<u32>,
    /// `txqueuelen`, packets.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transmit_queue_pkts: Option<u32>,
    /// Largest super-segment the stack hands it, bytes (`IFLA_GSO_MAX_SIZE`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gso_max_bytes: Option<u32>,
    /// Largest super-segment it joins on receipt, bytes (`IFLA_GRO_MAX_SIZE`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gro_max_bytes: Option<u32>,
    /// Metrics of the route to the other end that bind a connection: `mtu`, `advmss`, `window`,
    /// `cwnd`, `initcwnd`, `rto_min` (`ip-route(8)`), as the kernel holds them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub route_metrics: BTreeMap<String, u64>,
}

/// How one core spent the measured time; shares of it, 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoreUse {
    /// Core number.
    pub core: u32,
    /// In user mode (nice included).
    pub user: f64,
    /// In the kernel on behalf of processes.
    pub system: f64,
    /// In software interrupts: most of the network stack's receive side.
    pub softirq: f64,
    /// In hardware interrupts.
    pub irq: f64,
    /// Idle (waiting for I/O included).
    pub idle: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

/// Increments of the host's counters during a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndCounters {
    /// The interface's own counters.
    #[serde(default)]
    pub devices: Vec<DeviceCounters>,
    /// `/proc/net/softnet_stat`, cores that did anything.
    #[serde(default)]
    pub softnet: Vec<SoftnetCounters>,
    /// Protocol counters that changed: `Tcp.RetransSegs`, `Udp.RcvbufErrors`,
    /// `TcpExt.TCPLostRetransmit`.
    #[serde(default)]
    pub protocols: Vec<CounterDelta>,
    /// Software interrupts a core handled (`/proc/softirqs`), cores that handled any.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub softirqs: Vec<SoftirqCounters>,
    /// Hardware interrupts during the test (`/proc/interrupts`), of devices that fired.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub interrupts: Vec<InterruptCounters>,
    /// Kernel threads of the network stack that ran: `ksoftirqd/3`, `napi/eth0-5`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub kernel_threads: Vec<KernelThreadUse>,
    /// Queueing disciplines of the namespace that passed, dropped or held anything.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub qdiscs: Vec<QdiscCounters>,
    /// The narrowest processor quota this process ran under.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quota: Option<CpuQuota>,
    /// Clock of the cores, where the kernel reports it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub clocks: Vec<CoreClock>,
    /// Time the cores spent in each idle state (`cpuidle`).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub idle_states: Vec<IdleStateUse>,
    /// Memory traffic of each node, where a counter exists (`resctrl` `mbm_total_bytes`).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub memory_traffic: Vec<MemoryTraffic>,
}

/// Software interrupts of one core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SoftirqCounters {
    /// Core number.
    pub core: u32,
    /// Rounds of receive work (`NET_RX`).
    pub net_rx_count: u64,
    /// Rounds of transmit completion (`NET_TX`).
    pub net_tx_count: u64,
}

/// Increments of one interrupt's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptCounters {
    /// Linux interrupt number.
    pub irq: u32,
    /// `mlx5_comp0@pci:0000:41:00.0`, `eth0-TxRx-3`.
    pub name: String,
    /// Times it fired: (core, count), without cores where it did not.
    pub ran: Vec<(u32, u64)>,
}

/// Processor time of a kernel thread of the network stack.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelThreadUse {
    /// `ksoftirqd/3`, `napi/eth0-8193`.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// Time it ran, seconds.
    pub run_s: f64,
    /// Time it was ready while another thread had its core, seconds.
    pub wait_s: f64,
    /// The core it ran on last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub core: Option<u32>,
    /// Cores it may run on.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub allowed_cores: Vec<u32>,
}

/// Increments of a queueing discipline's counters (netlink `TCA_STATS2`), and its settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QdiscCounters {
    /// Its interface.
    pub interface: String,
    /// `fq`, `tbf`, `pfifo`, `bfifo`, `ingress`, `clsact`.
    pub kind: String,
    /// Its handle and its parent's, as `tc` writes them: `1:`, `root`, `ffff:`.
    pub handle: String,
    /// Its parent.
    pub parent: String,
    /// Bytes passed.
    pub sent_bytes: u64,
    /// Packets passed (super-segments count once).
    pub sent_pkts: u64,
    /// Packets dropped; at `ingress` and `clsact` those a filter or policer dropped.
    pub dropped_pkts: u64,
    /// Times a packet had to wait for its rate.
    pub overlimits_count: u64,
    /// Packets requeued because the device refused them.
    pub requeues_count: u64,
    /// Backlog when the test ended, bytes.
    pub backlog_bytes: u64,
    /// Queue limit, bytes (bfifo, tbf), where reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit_bytes: Option<u64>,
    /// Queue limit, packets (pfifo, fq, fq_codel, …), where reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit_pkts: Option<u64>,
    /// Its configured rate, bit/s: of all traffic (tbf, htb, cake), or of each flow (fq).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate_bits_per_s: Option<f64>,
    /// Rate of a policer below it, bit/s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub police_bits_per_s: Option<f64>,
    /// Packets it marked instead of dropping (fq_codel, red, cake: ECN).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub marked_pkts: Option<u64>,
}

/// A control group's processor quota (`cpu.max`, or `cpu.cfs_quota_us` of version 1).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuQuota {
    /// The group, as `/proc/self/cgroup` names it.
    pub group: String,
    /// The file that holds the quota: `cpu.max`, or `cpu.cfs_quota_us` of version 1. Absent in documents of
    /// earlier versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<String>,
    /// Processor time allowed, in cores.
    pub cores: f64,
    /// Length of a period, seconds.
    pub period_s: f64,
    /// Periods that passed with the group active.
    pub periods_count: u64,
    /// Periods in which the group was throttled.
    pub throttled_count: u64,
    /// Time its threads were throttled, all cores together, seconds.
    pub throttled_s: f64,
}

/// A core's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoreClock {
    /// Core number.
    pub core: u32,
    /// Clock when the measured time began, kHz (`scaling_cur_freq`).
    pub first_khz: u64,
    /// Clock when the measured time ended, kHz.
    pub last_khz: u64,
    /// Highest clock that the governor may choose, kHz.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub governor_max_khz: Option<u64>,
    /// Highest clock of the processor, kHz.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hardware_max_khz: Option<u64>,
}

/// One idle state of one core.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IdleStateUse {
    /// Core number.
    pub core: u32,
    /// `POLL`, `C1E`, `C6`.
    pub state: String,
    /// Time to leave it, microseconds.
    pub exit_latency_us: u64,
    /// Times entered.
    pub entered_count: u64,
    /// Time in it, seconds.
    pub time_s: f64,
}

/// Memory traffic of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryTraffic {
    /// The counter's domain: a last-level cache's id, which on most machines is a node's number.
    pub domain: u32,
    /// Bytes read and written.
    pub bytes: u64,
}

/// Increment of one protocol counter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CounterDelta {
    /// `Group.Name`, as in `/proc/net/snmp` and `/proc/net/netstat`.
    pub name: String,
    /// The increment.
    pub gain_count: u64,
}

/// Increments of an interface's counters (`/proc/net/dev`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceCounters {
    /// Interface name.
    pub interface: String,
    /// Bytes in.
    pub rx_bytes: u64,
    /// Packets in (super-segments count once).
    pub rx_pkts: u64,
    /// Dropped on receipt.
    pub rx_drops_count: u64,
    /// Errors on receipt.
    pub rx_errors_count: u64,
    /// Bytes out.
    pub tx_bytes: u64,
    /// Packets out (super-segments count once).
    pub tx_pkts: u64,
    /// Dropped on sending.
    pub tx_drops_count: u64,
    /// Errors on sending.
    pub tx_errors_count: u64,
    /// Dropped because the receive ring was full or the device out of buffers: missed, FIFO and
    /// over-run errors of `rtnl_link_stats64` together.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rx_ring_overruns_count: Option<u64>,
}

/// Increments of one core's softnet counters (kernel `net/core/net-procfs.c`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SoftnetCounters {
    /// Core number.
    pub core: u32,
    /// Packets processed.
    pub processed_pkts: u64,
    /// Dropped: the backlog was full (`net.core.netdev_max_backlog`).
    pub dropped_pkts: u64,
    /// Times the softirq ran out of budget with work left.
    pub squeezed_count: u64,
    /// Packets steered here by RPS.
    pub steered_pkts: u64,
    /// Dropped by the flow limit: one flow filled half the backlog (`net.core.flow_limit_cpu_bitmap`).
    #[serde(default)]
    pub flow_limited_pkts: u64,
}
