//! The verdict: which link of the chain binds, how we know, and what to do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::setting::SettingChange;
use crate::spec::End;

/// A possible bottleneck. Later versions add limits; none is ever renamed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Limit {
    /// The receiver's window (configured, clamped or tuned too small) over the round-trip time.
    ReceiveWindow,
    /// The sender's socket buffer.
    SendBuffer,
    /// Packets are lost, which reduces the congestion window.
    Loss,
    /// Losses are repaired one a round trip, because SACK was not negotiated.
    LossRecovery,
    /// The congestion window without loss: ramp, or the algorithm's choice.
    CongestionControl,
    /// The sending core is saturated.
    SenderCore,
    /// The receiving core is saturated.
    ReceiverCore,
    /// The line rate of an interface.
    LinkRate,
    /// A shaper on a host or on the path: a rate below the line's.
    Shaper,
    /// The sending application offers no more.
    SendingApplication,
    /// The receiving application reads no faster.
    ReceivingApplication,
    /// A thread is ready and is not run: others are preferred on its core, or it is woken late.
    Scheduler,
    /// A control group's processor quota (`cpu.max`): its threads are stopped for part of each period.
    CpuQuota,
    /// The hypervisor takes the core away from the guest (steal).
    Steal,
    /// Cores fall asleep between packets and take time to wake.
    IdleStates,
    /// Cores run below their highest clock.
    CpuFrequency,
    /// Thread, packet work and device lie on cores that share no cache, or on other memory nodes.
    Placement,
    /// The core (or threaded-NAPI thread) that serves the interface's receive queue is saturated.
    InterruptCore,
    /// The sender's kernel spaces the packets: `SO_MAX_PACING_RATE`, fq's `maxrate`.
    Pacing,
    /// The sending host's own queueing discipline drops: its queue is too short.
    Qdisc,
    /// The backlog between device and protocol overflows (`net.core.netdev_max_backlog`).
    SoftnetBacklog,
    /// The device's receive ring overflows.
    RingOverrun,
    /// The PCI Express link of the interface.
    Pcie,
    /// Memory bandwidth of the node that holds the buffers.
    MemoryBandwidth,
    /// A policer: packets above a rate are dropped at once, not queued.
    Policer,
    /// Small segments: the path's or the connection's MTU makes each byte cost more packets.
    PathMtu,
    /// Segmentation or receive offloads are off, so that every packet passes the stack separately.
    Offloads,
    /// Other traffic takes part of an interface's line.
    CrossTraffic,
    /// The path marks packets (ECN), which reduces the congestion window.
    EcnMarks,
    /// Packets arrive out of order and are considered lost.
    Reordering,
    /// The return path carries fewer acknowledgements than the sender needs.
    ReturnPath,
    /// A cache answered file operations: the figure is not the file system's.
    FileCache,
    /// A gateway between clients and servers of a file system.
    Gateway,
    /// Too few flows of file operations for the number of gateways.
    FewFlows,
    /// A server of a file system.
    StorageServer,
    /// A core of a file system's client.
    ClientCore,
    /// Interrupt moderation: an interface waits before it interrupts, and each round trip with it.
    InterruptModeration,
    /// Requests or packets wait in a queue under load, behind others.
    Queue,
    /// The path loses full segments and does not say that they are too large; small packets pass.
    MtuBlackHole,
    /// Nothing measured explains the figure.
    NoneFound,
}

impl Limit {
    /// Every limit of a path, in the order of the documentation.
    pub const ALL: [Self; 32] = [
        Self::ReceiveWindow,
        Self::SendBuffer,
        Self::Loss,
        Self::LossRecovery,
        Self::CongestionControl,
        Self::SenderCore,
        Self::ReceiverCore,
        Self::LinkRate,
        Self::Shaper,
        Self::SendingApplication,
        Self::ReceivingApplication,
        Self::Scheduler,
        Self::CpuQuota,
        Self::Steal,
        Self::IdleStates,
        Self::CpuFrequency,
        Self::Placement,
        Self::InterruptCore,
        Self::Pacing,
        Self::Qdisc,
        Self::SoftnetBacklog,
        Self::RingOverrun,
        Self::Pcie,
        Self::MemoryBandwidth,
        Self::Policer,
        Self::PathMtu,
        Self::Offloads,
        Self::CrossTraffic,
        Self::EcnMarks,
        Self::Reordering,
        Self::ReturnPath,
        Self::NoneFound,
    ];

    /// Every limit of file-system load over gateways.
    pub const OF_FILES: [Self; 5] =
        [Self::FileCache, Self::Gateway, Self::FewFlows, Self::StorageServer, Self::ClientCore];

    /// Every limit that is told by an account of its own instead of being weighed against the others: of round trips, and
    /// of transfers of which nothing arrives.
    pub const OF_ACCOUNTS: [Self; 3] = [Self::InterruptModeration, Self::Queue, Self::MtuBlackHole];

    /// The name in JSON and on the terminal.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReceiveWindow => "receive-window",
            Self::SendBuffer => "send-buffer",
            Self::Loss => "loss",
            Self::LossRecovery => "loss-recovery",
            Self::CongestionControl => "congestion-control",
            Self::SenderCore => "sender-core",
            Self::ReceiverCore => "receiver-core",
            Self::LinkRate => "link-rate",
            Self::Shaper => "shaper",
            Self::SendingApplication => "sending-application",
            Self::ReceivingApplication => "receiving-application",
            Self::Scheduler => "scheduler",
            Self::CpuQuota => "cpu-quota",
            Self::Steal => "steal",
            Self::IdleStates => "idle-states",
            Self::CpuFrequency => "cpu-frequency",
            Self::Placement => "placement",
            Self::InterruptCore => "interrupt-core",
            Self::Pacing => "pacing",
            Self::Qdisc => "qdisc",
            Self::SoftnetBacklog => "softnet-backlog",
            Self::RingOverrun => "ring-overrun",
            Self::Pcie => "pcie",
            Self::MemoryBandwidth => "memory-bandwidth",
            Self::Policer => "policer",
            Self::PathMtu => "path-mtu",
            Self::Offloads => "offloads",
            Self::CrossTraffic => "cross-traffic",
            Self::EcnMarks => "ecn-marks",
            Self::Reordering => "reordering",
            Self::ReturnPath => "return-path",
            Self::FileCache => "file-cache",
            Self::Gateway => "gateway",
            Self::FewFlows => "few-flows",
            Self::StorageServer => "storage-server",
            Self::ClientCore => "client-core",
            Self::InterruptModeration => "interrupt-moderation",
            Self::Queue => "queue",
            Self::MtuBlackHole => "mtu-black-hole",
            Self::NoneFound => "none-found",
        }
    }
}

/// The bottleneck, with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The binding limit.
    pub limit: Limit,
    /// The end where the limit lies; absent for the path itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end: Option<End>,
    /// One sentence for people.
    pub summary: String,
    /// Figures that support the verdict, strongest first.
    pub evidence: Vec<Evidence>,
    /// Whether changing that one thing changed the figure as predicted.
    pub confirmed: bool,
    /// The experiment that decided `confirmed`; absent when none could be run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub confirmation: Option<Confirmation>,
    /// The change to a host that would confirm it, where a change to the test alone cannot: for the
    /// user to make. Absent when an experiment decided or none is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host_change: Option<HostChange>,
    /// The settings whose change lifts the limit, most useful first: what `clearstream tune apply --from`
    /// makes. Empty where no setting lifts it, and in files of older versions.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub changes: Vec<SettingChange>,
    /// What to change, most useful first.
    pub advice: Vec<String>,
    /// The next ceiling.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<NextCeiling>,
    /// Limits that were considered and why they do not bind.
    #[serde(default)]
    pub ruled_out: Vec<Evidence>,
}

/// One line of evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The limit it concerns.
    pub limit: Limit,
    /// The line, figures with units in it.
    pub text: String,
    /// How far that limit accounts for the figure, 0 (not at all) to 1 (wholly).
    pub weight: f64,
}

/// The experiment that tried to refute the verdict.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmation {
    /// What was changed, in words: `window 4.00 MiB -> 8.00 MiB`.
    pub change: String,
    /// Throughput that the verdict predicted, bit/s.
    pub predicted_bits_per_s: f64,
    /// Throughput before the change, bit/s.
    pub before_bits_per_s: f64,
    /// Throughput after the change, bit/s.
    pub after_bits_per_s: f64,
    /// The outcome, in words.
    pub outcome: String,
    /// Lowest throughput that the limit predicted before the experiment ran, bit/s; absent in files of older
    /// versions, and where a share of datagrams or losses was predicted instead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predicted_low_bits_per_s: Option<f64>,
    /// Highest throughput that it predicted, bit/s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predicted_high_bits_per_s: Option<f64>,
    /// What the outcome says of the limit; absent in files of older versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ruling: Option<Ruling>,
    /// The second candidate, and what it predicts for the same change; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rival: Option<Rival>,
    /// What else the limit predicted of its experiments. One that failed keeps it from being confirmed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub companions: Vec<Companion>,
}

/// What the outcome of an experiment says of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Ruling {
    /// As the limit predicts, and not as the second candidate does; all that it predicts besides holds.
    Confirmed,
    /// Outside of what the limit predicts.
    Refuted,
    /// The change was not made, the noise is larger than its effect, the second candidate predicts the same, or
    /// something else that the limit predicts failed.
    Inconclusive,
}

impl Ruling {
    /// The word in JSON and on the terminal.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// What the second candidate predicts for an experiment on the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rival {
    /// The second candidate.
    pub limit: Limit,
    /// Lowest throughput that it predicts, bit/s; absent if it predicts other things than a rate, or nothing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub low_bits_per_s: Option<f64>,
    /// Highest throughput that it predicts, bit/s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub high_bits_per_s: Option<f64>,
    /// Whether the two predictions exclude each other, so that the outcome decides between them.
    pub is_separate: bool,
}

/// Something else that a limit predicts of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Companion {
    /// What was predicted, in words.
    pub predicted: String,
    /// What was measured, in words.
    pub measured: String,
    /// Whether it came as predicted.
    pub holds: bool,
}

/// The next bottleneck if the binding limit were lifted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NextCeiling {
    /// The limit that would then bind; `none-found` if an experiment stopped at a rate that nothing explains.
    pub limit: Limit,
    /// The rate that it would allow, bit/s.
    pub bits_per_s: f64,
    /// How this ceiling was derived.
    pub text: String,
}

/// A change to a host that would confirm a verdict, for its user to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostChange {
    /// On which host.
    pub end: End,
    /// The command that makes it, to be run there as root.
    pub command: String,
    /// The command that reverts it; absent where the previous state is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub undo: Option<String>,
    /// Throughput of the same test afterwards that the verdict predicts, bit/s.
    pub predicted_bits_per_s: f64,
    /// What would confirm it and what would refute it, in words.
    pub text: String,
}
