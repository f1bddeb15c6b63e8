//! What an end spends of each round trip.

use results::{End, EndReport, Limit, Nic, Results};
use units::show_seconds;

use super::{Part, Seen, waiting_s, waking_s};
use crate::numbers::{positive, share};
use crate::observed::end_name;

/// A thread that ran or waited for its core for this share of the time had none left.
const BUSY_MIN: f64 = 0.85;

impl Seen<'_> {
    /// The parts that counters of both ends show.
    pub(super) fn counted(&self) -> Vec<Part> {
        let ends = [(End::Near, Some(self.outcome.near())), (End::Far, self.outcome.far())];
        let told = ends.into_iter().filter_map(|(end, report)| Some((end, report?)));
        let parts = told.flat_map(|(end, report)| {
            [self.waiting(end, report), self.waking(end, report), self.working(end, report)]
        });
        parts.flatten().collect()
    }

    /// What no counter shows, seconds.
    pub(super) fn rest_s(&self, parts: &[Part]) -> f64 {
        (self.median_s - parts.iter().map(|part| part.took_s).sum::<f64>()).max(0.0)
    }

    /// What the round trip gained over a less loaded test, beyond what was counted at both ends.
    pub(super) fn queued(&self, idle: &Seen<'_>) -> Option<Part> {
        let took_s = positive(self.rest_s(&self.counted()) - idle.rest_s(&idle.counted()))?;
        let full = [End::Near, End::Far].into_iter().find(|end| self.has_no_time(*end));
        let (place, limit) = match full {
            Some(end) => (
                format!("for the {} end's thread, which has no time left", end_name(end)),
                Limit::ReceiverCore,
            ),
            None => ("in a queue of the path or of a device".to_owned(), Limit::Queue),
        };
        let text = format!(
            "{} go to waiting behind others {place} (median {} idle, {} under load)",
            show_seconds(took_s),
            show_seconds(idle.median_s),
            show_seconds(self.median_s)
        );
        Some(Part { limit, end: full, took_s, text })
    }

    fn has_no_time(&self, end: End) -> bool {
        let report = match end {
            End::Near => Some(self.outcome.near()),
            End::Far => self.outcome.far(),
        };
        let streams = report.into_iter().flat_map(|report| &report.streams);
        let busy = streams.filter_map(|stream| {
            let ran_s = stream.thread_user_s? + stream.thread_system_s?;
            share(ran_s + stream.thread_wait_s.unwrap_or(0.0), self.outcome.duration_s)
        });
        busy.fold(0.0, f64::max) >= BUSY_MIN
    }

    /// Time that the end's thread waits for a core, per transaction: each one wakes the thread once.
    fn waiting(&self, end: End, report: &EndReport) -> Option<Part> {
        let took_s = positive(waiting_s(report, self.transactions)?)?;
        let name = end_name(end);
        let text = format!(
            "the {name} end's thread waits {} for a core after each wake-up",
            show_seconds(took_s)
        );
        Some(Part { limit: Limit::Scheduler, end: Some(end), took_s, text })
    }

    /// Wake-up time of the cores that process packets and run threads; each wakes at most once per transaction.
    fn waking(&self, end: End, report: &EndReport) -> Option<Part> {
        let took_s = positive(waking_s(report, self.transactions)?)?;
        let name = end_name(end);
        let text = format!(
            "the {name} end's cores take {} to leave their idle states",
            show_seconds(took_s)
        );
        Some(Part { limit: Limit::IdleStates, end: Some(end), took_s, text })
    }

    /// Processor time of the end's threads, per transaction. One that never sleeps polls: what it ran is no cost of the
    /// transaction.
    fn working(&self, end: End, report: &EndReport) -> Option<Part> {
        if self.has_no_time(end) {
            return None;
        }
        let ran = report
            .streams
            .iter()
            .map(|stream| Some(stream.thread_user_s? + stream.thread_system_s?));
        let ran_s = ran.reduce(|sum, one| Some(sum? + one?))??;
        let took_s = positive(ran_s / self.transactions)?;
        let name = end_name(end);
        let text =
            format!("the {name} end's thread works {} on each transaction", show_seconds(took_s));
        Some(Part { limit: Limit::NoneFound, end: Some(end), took_s, text })
    }
}

/// How long an end's interface may wait before it hands a packet over, up to `most_s`, seconds.
pub(super) fn moderation(results: &Results, end: End, most_s: f64) -> Option<Part> {
    let host = match end {
        End::Near => results.near(),
        End::Far => results.far()?,
    };
    let name = &host.interface.as_ref()?.name;
    let nic = host.machine.as_ref()?.nic(name)?;
    let (setting, waits_s) = setting_s(nic)?;
    let took_s = positive(waits_s.min(most_s))?;
    let text = format!(
        "the {} end's interface {name} may hold each packet back for {} ({setting})",
        end_name(end),
        show_seconds(took_s)
    );
    Some(Part { limit: Limit::InterruptModeration, end: Some(end), took_s, text })
}

/// The setting that delays packets most, and its time in seconds.
fn setting_s(nic: &Nic) -> Option<(String, f64)> {
    let fixed = nic.coalescing.filter(|told| !told.is_receive_adaptive && told.receive_usecs > 0);
    let fixed = fixed.map(|told| {
        (format!("rx-usecs {}", told.receive_usecs), f64::from(told.receive_usecs) * 1e-6)
    });
    let masked = nic.defer_hard_irqs_count.is_some_and(|count| count > 0);
    let flushed = nic.gro_flush_timeout_ns.filter(|ns| masked && *ns > 0);
    let flushed = flushed.map(|ns| (format!("gro_flush_timeout {ns} ns"), ns as f64 * 1e-9));
    fixed.into_iter().chain(flushed).max_by(|one, other| one.1.total_cmp(&other.1))
}
