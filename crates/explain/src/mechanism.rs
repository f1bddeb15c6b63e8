//! What a limit is to the diagnosis: one module, one struct, one row of [`TABLE`].

use results::{End, Limit, SettingChange};

use crate::experiment::Experiment;
use crate::limits;
use crate::observed::Observed;
use crate::remedy::Remedy;

/// A way in which a path can be bound. Each judges the same observations on its own mechanism;
/// none looks at what another concluded.
pub(crate) trait Mechanism: Sync {
    /// The name it goes by.
    fn limit(&self) -> Limit;

    /// Its page in the documentation.
    fn page(&self) -> Page;

    /// How far it accounts for the throughput seen, and why.
    fn weigh(&self, seen: &Observed<'_>) -> Opinion;

    /// Experiments that would decide, the most telling first. `headroom` is the throughput the next
    /// ceiling allows, bit/s, as far as one is known.
    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment>;

    /// The change to a host that would confirm it, where no change to the test does.
    fn host_change(&self, _seen: &Observed<'_>, _headroom: Option<f64>) -> Option<Remedy> {
        None
    }

    /// The settings whose change lifts it, most useful first: those of the change that would confirm it,
    /// and where an experiment decides, those that make the gain last.
    fn changes(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<SettingChange> {
        self.host_change(seen, headroom).map(Remedy::stored).unwrap_or_default()
    }

    /// What to change, most useful first.
    fn advice(&self, seen: &Observed<'_>) -> Vec<String>;
}

/// A limit's documentation, from which `docs/limits.md` is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// It, in a sentence: `the receive window`.
    pub(crate) title: &'static str,
    /// What its ceiling is made of.
    pub(crate) ceiling: &'static str,
    /// How it binds.
    pub(crate) mechanism: &'static str,
    /// What shows it.
    pub(crate) evidence: &'static str,
    /// What speaks against it.
    pub(crate) against: &'static str,
    /// What would prove it.
    pub(crate) experiment: &'static str,
    /// What to do about it.
    pub(crate) advice: &'static str,
}

/// What a mechanism says of the observations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opinion {
    /// How far it accounts for the throughput, 0 to 1.
    pub(crate) weight: f64,
    /// Where it lies; absent for the path.
    pub(crate) end: Option<End>,
    /// Lines for it, strongest first, figures with units.
    pub(crate) evidence: Vec<String>,
    /// The line against it, for when its weight is low.
    pub(crate) against: String,
    /// What it would allow at most, bit/s.
    pub(crate) ceiling_bits_per_s: Option<f64>,
}

/// Every mechanism, in the order of the documentation.
pub(crate) static TABLE: [&dyn Mechanism; 28] = [
    &limits::ReceiveWindow,
    &limits::SendBuffer,
    &limits::Loss,
    &limits::CongestionControl,
    &limits::SenderCore,
    &limits::ReceiverCore,
    &limits::LinkRate,
    &limits::Shaper,
    &limits::SendingApplication,
    &limits::ReceivingApplication,
    &limits::Scheduler,
    &limits::CpuQuota,
    &limits::IdleStates,
    &limits::CpuFrequency,
    &limits::Placement,
    &limits::InterruptCore,
    &limits::Pacing,
    &limits::Qdisc,
    &limits::SoftnetBacklog,
    &limits::RingOverrun,
    &limits::Pcie,
    &limits::MemoryBandwidth,
    &limits::Policer,
    &limits::PathMtu,
    &limits::Offloads,
    &limits::CrossTraffic,
    &limits::EcnMarks,
    &limits::Reordering,
];

/// The mechanism of a limit; none for `none-found` and limits this version does not know.
pub(crate) fn of(limit: Limit) -> Option<&'static dyn Mechanism> {
    TABLE.iter().copied().find(|mechanism| mechanism.limit() == limit)
}
