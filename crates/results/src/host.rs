//! A host and its counters.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a reader must know of a host to judge its figures.
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
    /// Under a hypervisor, and which, when the host says so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hypervisor: Option<String>,
    /// The interface that carries the path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<InterfaceFacts>,
    /// Kernel settings that bear on throughput: `net.ipv4.tcp_rmem` → its text.
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
    /// Offloads that are on: `tso`, `gso`, `gro`, `tx-udp-segmentation`.
    #[serde(default)]
    pub offloads: Vec<String>,
    /// Memory node of the device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_node: Option<u32>,
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

/// What the host's counters gained while a test ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndCounters {
    /// The interface's own counters.
    #[serde(default)]
    pub devices: Vec<DeviceCounters>,
    /// `/proc/net/softnet_stat`, cores that did anything.
    #[serde(default)]
    pub softnet: Vec<SoftnetCounters>,
    /// Protocol counters that moved: `Tcp.RetransSegs`, `Udp.RcvbufErrors`, `TcpExt.TCPLostRetransmit`.
    #[serde(default)]
    pub protocols: Vec<CounterDelta>,
}

/// One protocol counter's gain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CounterDelta {
    /// `Group.Name`, as in `/proc/net/snmp` and `/proc/net/netstat`.
    pub name: String,
    /// Gain.
    pub gain_count: u64,
}

/// An interface's gain (`/proc/net/dev`).
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
}

/// One core's softnet gain (kernel `net/core/net-procfs.c`).
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
}
