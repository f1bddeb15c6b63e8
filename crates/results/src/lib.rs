//! The results schema: what every run writes, and all that `explain` and `report` ever read.
//!
//! One document, [`Results`]: the [`Host`]s, the path, the measured [`Point`]s, the [`Verdict`]. A point says
//! which [`Work`] was done, by whom, and what came of it; documents of version 1 are converted when read.
//! Rules: a field's name ends in its unit; what was not measured is absent (never 0) and, where a
//! reader would miss it, listed in [`Results::absent`] with the reason; within a major version
//! fields are only added, so readers ignore what they do not know.

mod carried;
mod ceilings;
mod check;
mod document;
pub mod figure;
mod gate;
mod host;
mod hosts;
mod machine;
mod outcome;
mod placement;
mod point;
mod reproduction;
mod setting;
mod spec;
mod stream;
mod v1;
mod verdict;
mod window;
mod work;

pub use carried::{
    CachePlace, Carried, CarriedAbsent, CarriedConnection, CarriedFlow, CarriedHost, CarriedPort,
    Crossing, GatewayShare, LoadWay, RoundTrips,
};
pub use ceilings::{Ceiling, CeilingLink, CeilingStep, NicCeilings, pcie_bits_per_s};
pub use check::{
    Check, CheckProgress, CheckRun, CheckVerdict, RankTraffic, RunLine, UnreachableCode,
};
pub use document::{
    Absent, AppliedChange, Finding, PathFacts, ReadError, Results, RunKind, SCHEMA_VERSION,
    ToolFacts, json_schema, read_results,
};
pub use figure::{Figure, Series, Unit};
pub use gate::GateResult;
pub use host::{
    CoreClock, CoreUse, CounterDelta, CpuQuota, DeviceCounters, EndCounters, HostFacts,
    IdleStateUse, InterfaceFacts, InterruptCounters, KernelThreadUse, MemoryTraffic, QdiscCounters,
    SoftirqCounters, SoftnetCounters,
};
pub use hosts::{FAR, Host, NEAR, Role};
pub use machine::{
    Cache, Channels, Coalescing, Core, CoreFrequency, IdleState, Interrupt, Machine, MemoryNode,
    NapiThread, Nic, Offload, PcieLink, Proximity, ReceiveQueue, Rings, TransmitQueue,
};
pub use outcome::{
    DirectionOutcome, EndReport, HostAccount, LatencySummary, PercentilePoint,
    RequestResponseOutcome, TestOutcome, UdpLoss, UdpOutcome, show_percentile,
};
pub use placement::{
    PLACEMENT_VERSION, PlacedEnd, PlacedPair, Placement, PlacementError, PlacementFindings,
    RelationFigure, read_placement,
};
pub use point::{CONFIRMATION, Estimate, PREDICTED, Point, PointOutcome, Summary};
pub use reproduction::{LawCheck, PaperFigure, Reproduction};
pub use setting::SettingChange;
pub use spec::{
    Direction, End, Protocol, ReceivePath, RequestResponseSpec, SendPath, TestLimit, TestSpec,
    UdpSpec, WindowSide,
};
pub use stream::{IntervalSample, StreamEnd, TcpSample, TcpSummary, UdpStreamEnd, ZeroCopyShare};
pub use verdict::{
    Companion, Confirmation, Evidence, HostChange, Limit, NextCeiling, Rival, Ruling, Verdict,
};
pub use window::WindowUse;
pub use work::{
    FileIoWork, FileLocksWork, FileMetadataWork, FramesWork, MessagesWork, SearchWork, Work, Worker,
};
