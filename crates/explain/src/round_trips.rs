//! Request-response tests: the parts of a round trip.
//!
//! Each part that a counter shows is subtracted from the median; the rest belongs to the wire and the stacks.

use results::{
    End, EndReport, Evidence, Limit, Point, Results, StreamEnd, TestOutcome, Verdict, Work,
};
use units::{show_count, show_seconds};

use crate::numbers::{percent, positive, share};
use crate::observed::end_name;
use crate::verdict;

/// Share of the median from which a part is named as the limit.
const NAMED_MIN: f64 = 0.25;
/// Share of the median from which a part gets a line of evidence.
const TOLD_MIN: f64 = 0.01;
/// Idle states with a shorter exit latency have no visible cost, microseconds.
const EXIT_MIN_US: u64 = 2;

/// The section of `docs/limits.md` about request-response tests.
pub(crate) const PAGE: &str = "
# Requests and answers

A document whose tests are all requests and answers gets a verdict on what its median round trip is made of. A part
that takes a quarter of it is named; what no counter shows is attributed to the wire and the stacks. No experiment confirms it.

| part | from | verdict |
|---|---|---|
| waiting for a core, at either end | run delay of the test's threads (`/proc/PID/schedstat`), for each transaction | `scheduler` |
| leaving idle states, at either end | exit latency of the states that the threads' and interrupts' cores entered, at most once per transaction | `idle-states` |
| the wire and both stacks | the rest; the shortest round trip is reported beside it | `none-found` |
";

/// A part of the round trip, spent at one end.
struct Part {
    limit: Limit,
    end: End,
    took_s: f64,
    text: String,
}

/// The verdict of a document whose tests are all request-response; `None` for any other.
pub(crate) fn explain(results: &Results) -> Option<Verdict> {
    let tests = results.points.iter().filter(|point| !point.is_confirmation());
    let seen: Vec<Seen<'_>> = tests.filter_map(Seen::of).collect();
    // The repeat with the median result is judged.
    let mut order: Vec<&Seen<'_>> = seen.iter().collect();
    order.sort_by(|one, other| one.median_s.total_cmp(&other.median_s));
    let typical = order.get(order.len() / 2)?;
    let mut parts = typical.parts();
    parts.sort_by(|one, other| other.took_s.total_cmp(&one.took_s));
    let told_s: f64 = parts.iter().map(|part| part.took_s).sum();
    let of_median = |took_s: f64| share(took_s, typical.median_s).unwrap_or(0.0);
    let rest = format!(
        "the wire, both stacks and what no counter tells: {} ({}); the shortest round trip was {}",
        show_seconds((typical.median_s - told_s).max(0.0)),
        percent(of_median((typical.median_s - told_s).max(0.0))),
        show_seconds(typical.min_s)
    );
    let worst = parts.first().filter(|part| of_median(part.took_s) >= NAMED_MIN);
    let (limit, end) = worst.map_or((Limit::NoneFound, None), |part| (part.limit, Some(part.end)));
    let median = show_seconds(typical.median_s);
    let summary = match worst {
        Some(part) => format!("of a round trip of {median}, {}", part.text),
        None => format!(
            "a round trip takes {median} (median of {}); no host accounts for a quarter of it",
            show_count(typical.transactions)
        ),
    };
    let (named, small): (Vec<&Part>, Vec<&Part>) =
        parts.iter().partition(|part| of_median(part.took_s) >= TOLD_MIN);
    let line = |part: &Part| Evidence {
        limit: part.limit,
        text: format!("{} ({})", part.text, percent(of_median(part.took_s))),
        weight: of_median(part.took_s),
    };
    let first = Evidence {
        limit,
        text: summary.clone(),
        weight: worst.map_or(0.0, |part| of_median(part.took_s)),
    };
    let rest = Evidence { limit, text: rest, weight: 0.0 };
    let evidence = [first].into_iter().chain(named.into_iter().map(line)).chain([rest]).collect();
    let ruled_out = small.into_iter().map(line).collect();
    let plain = verdict::unproven(limit, end, summary, vec![advice(limit, end)]);
    Some(Verdict { evidence, ruled_out, ..plain })
}

fn advice(limit: Limit, end: Option<End>) -> String {
    let end = end.map_or("near", end_name);
    match limit {
        Limit::Scheduler => format!(
            "at the {end} end give the thread a core of its own (--cores, isolcpus) or a real-time class: others \
             run when it is woken"
        ),
        Limit::IdleStates => format!(
            "keep the {end} end's cores awake: cpupower idle-set -D 10, or tuned-adm profile network-latency"
        ),
        _ => "compare with the idle path (`path`): what is longer under load is a queue; interrupt moderation \
              (ethtool -c) and busy polling (net.core.busy_read) move the rest"
            .to_owned(),
    }
}

/// Figures of one test.
struct Seen<'a> {
    outcome: &'a TestOutcome,
    median_s: f64,
    min_s: f64,
    transactions: f64,
}

impl<'a> Seen<'a> {
    fn of(point: &'a Point) -> Option<Self> {
        let (Work::RoundTrips(_), outcome) = (&point.work, point.measured()?) else { return None };
        let told = outcome.request_response.as_ref()?;
        Some(Self {
            outcome,
            median_s: positive(told.latency.percentile_s(50.0)?)?,
            min_s: told.latency.min_s,
            transactions: positive(told.transactions_count as f64)?,
        })
    }

    fn parts(&self) -> Vec<Part> {
        let ends = [(End::Near, Some(self.outcome.near())), (End::Far, self.outcome.far())];
        let told = ends.into_iter().filter_map(|(end, report)| Some((end, report?)));
        told.flat_map(|(end, report)| {
            [self.waiting(end, report), self.waking(end, report)].into_iter().flatten()
        })
        .collect()
    }

    /// Time that the end's thread waits for a core, per transaction: each one wakes the thread once.
    fn waiting(&self, end: End, report: &EndReport) -> Option<Part> {
        let took_s = positive(waiting_s(report, self.transactions)?)?;
        let name = end_name(end);
        let text = format!(
            "the {name} end's thread waits {} for a core after each wake-up",
            show_seconds(took_s)
        );
        Some(Part { limit: Limit::Scheduler, end, took_s, text })
    }

    /// Wake-up time of the cores that process packets and run threads; each wakes at most once per transaction.
    fn waking(&self, end: End, report: &EndReport) -> Option<Part> {
        let took_s = positive(waking_s(report, self.transactions)?)?;
        let name = end_name(end);
        let text = format!(
            "the {name} end's cores take {} to leave their idle states",
            show_seconds(took_s)
        );
        Some(Part { limit: Limit::IdleStates, end, took_s, text })
    }
}

/// Time that an end's threads wait for a core, per transaction, seconds; 0 if they never wait.
pub(crate) fn waiting_s(report: &EndReport, transactions: f64) -> Option<f64> {
    let waited = report.streams.iter().map(|stream| stream.thread_wait_s);
    let waited_s = waited.reduce(|sum, one| Some(sum? + one?))??;
    Some(waited_s / transactions)
}

/// Wake-up time of an end's cores that process packets and run threads, seconds per transaction: each wakes at
/// most once per transaction. `None` if the end told no idle states.
pub(crate) fn waking_s(report: &EndReport, transactions: f64) -> Option<f64> {
    let cores =
        |stream: &StreamEnd| stream.cores.first().copied().into_iter().chain(stream.incoming_core);
    let mut used: Vec<u32> = report.streams.iter().flat_map(cores).collect();
    used.sort_unstable();
    used.dedup();
    let states = &report.counters.idle_states;
    let of_core = |core: &u32| -> f64 {
        let left = states.iter().filter(|state| state.core == *core);
        let left: Vec<(f64, f64)> = left
            .filter(|state| state.exit_latency_us >= EXIT_MIN_US)
            .map(|state| (state.entered_count as f64, state.exit_latency_us as f64 * 1e-6))
            .collect();
        let entered: f64 = left.iter().map(|(count, _)| count).sum();
        let spent_s: f64 = left.iter().map(|(count, exit_s)| count * exit_s).sum();
        spent_s / entered.max(transactions).max(1.0)
    };
    let is_told = !states.is_empty() && !used.is_empty();
    is_told.then(|| used.iter().map(of_core).sum())
}
