//! The interface between a limit and the diagnosis: one module, one struct, one row of [`TABLE`].

use results::{End, Limit, SettingChange};

use crate::advice::Advice;
use crate::experiment::Experiment;
use crate::limits;
use crate::observed::Observed;
use crate::remedy::Remedy;

/// A way in which a path can be limited. Each mechanism judges the same observations on its own;
/// none sees another's conclusion. Signs, stages and experiments that several need stand in modules of
/// [`limits`] that are no limit's.
pub(crate) trait Mechanism: Sync {
    /// The limit that this mechanism explains.
    fn limit(&self) -> Limit;

    /// Its section of `docs/limits.md`.
    fn page(&self) -> Page;

    /// How far the limit accounts for the observed throughput, and why.
    fn weigh(&self, seen: &Observed<'_>) -> Opinion;

    /// Experiments that would decide, the most telling first. `headroom` is the throughput that the next
    /// ceiling allows, bit/s, if one is known.
    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment>;

    /// The change to a host that would confirm the limit, if no change to the test does.
    fn host_change(&self, _seen: &Observed<'_>, _headroom: Option<f64>) -> Option<Remedy> {
        None
    }

    /// Changes of settings that lift the limit, most useful first: those that would confirm it or, if an
    /// experiment decides, those that make the gain last.
    fn changes(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<SettingChange> {
        self.host_change(seen, headroom).map(Remedy::stored).unwrap_or_default()
    }

    /// Advice to the user, most useful first.
    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice>;
}

/// A limit's documentation, from which `docs/limits.md` is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// Name of the limit in a sentence: `the receive window`.
    pub(crate) title: &'static str,
    /// What its ceiling is computed from.
    pub(crate) ceiling: &'static str,
    /// How it limits throughput.
    pub(crate) mechanism: &'static str,
    /// Observations that indicate it.
    pub(crate) evidence: &'static str,
    /// Observations that speak against it.
    pub(crate) against: &'static str,
    /// The experiment that would prove it.
    pub(crate) experiment: &'static str,
    /// Advice to the user.
    pub(crate) advice: &'static str,
}

/// A mechanism's conclusion from the observations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opinion {
    /// How far it accounts for the throughput, 0 to 1.
    pub(crate) weight: f64,
    /// What costs its weight most; absent if nothing costs it much.
    pub(crate) doubt: Option<&'static str>,
    /// The end it is at; absent for the path.
    pub(crate) end: Option<End>,
    /// Evidence for it, one line each, strongest first, figures with units.
    pub(crate) evidence: Vec<String>,
    /// The line that speaks against it, shown if its weight is low.
    pub(crate) against: String,
    /// Highest throughput it would allow, bit/s. One that was exceeded counts for nothing, but for an estimate of what
    /// a window or a buffer holds ([`crate::diagnosis::opinions`]).
    pub(crate) ceiling_bits_per_s: Option<f64>,
}

/// Every mechanism, in the order of the documentation.
pub(crate) static TABLE: [&dyn Mechanism; 31] = [
    &limits::ReceiveWindow,
    &limits::SendBuffer,
    &limits::Loss,
    &limits::LossRecovery,
    &limits::CongestionControl,
    &limits::SenderCore,
    &limits::ReceiverCore,
    &limits::LinkRate,
    &limits::Shaper,
    &limits::SendingApplication,
    &limits::ReceivingApplication,
    &limits::Scheduler,
    &limits::CpuQuota,
    &limits::Steal,
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
    &limits::ReturnPath,
];

/// The mechanism of a limit; `None` for `none-found` and for limits unknown to this version.
pub(crate) fn of(limit: Limit) -> Option<&'static dyn Mechanism> {
    TABLE.iter().copied().find(|mechanism| mechanism.limit() == limit)
}
