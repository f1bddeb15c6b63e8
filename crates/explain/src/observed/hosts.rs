//! How busy the two hosts are: their threads and cores, by the medians over the repeats.

use results::CoreUse;

use super::{HostView, Observed};
use crate::numbers::percent;
use crate::symptoms::names;
use crate::thresholds::signs;

impl Observed<'_> {
    /// Confidence, 0 to 1, that the hosts, not the path, are full: a thread never sleeps, or no core is idle, all the
    /// more while a thread waits for one.
    pub(crate) fn hosts_full(&self) -> f64 {
        let full = |host: &HostView<'_>| {
            let waits = self.shown().host_reaches(host.end, names::THREAD_WAIT, signs::FULL_WAIT);
            let said = signs::HOSTS_FULL_BY_CORES
                + (1.0 - signs::HOSTS_FULL_BY_CORES) * waits.unwrap_or(0.0);
            self.starved(host).unwrap_or(0.0).max(said * self.exhausted(host))
        };
        full(&self.sender).max(full(&self.receiver))
    }

    /// Confidence, 0 to 1, that a host's thread never slept: a stage that never waits for the others is the slowest
    /// one. `None` if the thread's times are unknown.
    pub(crate) fn starved(&self, host: &HostView<'_>) -> Option<f64> {
        self.shown().thread_busy(host.end).map(|busy| signs::STARVED.of(busy))
    }

    /// Describes a host's thread:
    /// `thread ran 62% and waited for its core 37% of the time (core 1: 0% idle, 38% softirq)`.
    pub(crate) fn thread_text(&self, host: &HostView<'_>) -> Option<String> {
        let who = if host.is_process { "process" } else { "thread" };
        let mut text = format!("{who} ran {}", percent(self.shown().thread_ran(host.end)?));
        if let Some(waited) = self.shown().host(host.end, names::THREAD_WAIT) {
            text += &format!(" and waited for its core {}", percent(waited));
        }
        text += " of the time";
        if let Some(core) = &host.core {
            let CoreUse { core, idle, softirq, .. } = core;
            text +=
                &format!(" (core {core}: {} idle, {} softirq)", percent(*idle), percent(*softirq));
        }
        Some(text)
    }

    /// Idle time of a host's cores, in cores.
    pub(crate) fn idle_cores(&self, host: &HostView<'_>) -> Option<f64> {
        Some(self.shown().host(host.end, names::IDLE)? * host.cores.len() as f64)
    }

    /// Mean idle share, 0 to 1, of an end's cores in the test over several streams.
    pub(crate) fn idle_with_several(&self, host: &HostView<'_>) -> Option<f64> {
        let is_sender = host.end == self.sender.end;
        let name =
            if is_sender { names::SENDER_IDLE_SEVERAL } else { names::RECEIVER_IDLE_SEVERAL };
        self.shown().path(name)
    }

    /// Confidence, 0 to 1, that an end has no idle core left: in the judged test or, if that leaves a
    /// little idle time, once more streams use it up without carrying more.
    pub(crate) fn exhausted(&self, host: &HostView<'_>) -> f64 {
        let idle = self.shown().host(host.end, names::IDLE);
        let lacks = |range| self.shown().host_reaches(host.end, names::IDLE, range);
        let now = lacks(signs::EXHAUSTED_IDLE).map_or(0.0, |idle| 1.0 - idle);
        let asked_for_more =
            self.idle_with_several(host).zip(idle).map_or(0.0, |(several, idle)| {
                let in_vain =
                    self.streams_gain().map_or(0.0, |gain| signs::STREAMS_IN_VAIN.not(gain));
                in_vain
                    * signs::EXHAUSTED_BY_SEVERAL.not(several)
                    * signs::NEARLY_EXHAUSTED.not(idle)
            });
        now.max(asked_for_more) * self.feels_its_cores(host)
    }

    /// Confidence, 0 to 1, that full cores slow this flow. If its thread gets a core as soon as it is ready and packets
    /// take next to no time, the cores are full of work of lower priority.
    fn feels_its_cores(&self, host: &HostView<'_>) -> f64 {
        let of_host = |name: &str| self.shown().host(host.end, name);
        let Some((run, wait)) = of_host(names::THREAD_RUN).zip(of_host(names::THREAD_WAIT)) else {
            return 1.0;
        };
        let softirq = of_host(names::SOFTIRQ_MOST).unwrap_or(0.0);
        signs::FELT_RUN.of(run).max(signs::FELT_WAIT.of(wait)).max(signs::FELT_SOFTIRQ.of(softirq))
    }
}
