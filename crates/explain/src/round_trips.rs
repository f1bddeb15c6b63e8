//! Request-response tests: the parts of a round trip.
//!
//! Each part that a counter or a setting shows is subtracted from the median, and so is what it gained under load; the
//! rest belongs to the wire and the stacks.

pub(crate) mod load;
mod parts;

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
# Requests and responses

If all tests of a document are request/response tests, the verdict says what the median round trip consists of. The
largest part is named if it is at least a quarter of the median; time that no counter shows is attributed to the wire and the stacks. No
experiment confirms the verdict.

| part | from | verdict |
|---|---|---|
| waiting for a core, at either end | run delay of the test's threads (`/proc/PID/schedstat`), for each transaction | `scheduler` |
| leaving idle states, at either end | exit latency of the states that the threads' and interrupts' cores entered, at most once per transaction | `idle-states` |
| the threads' own work, at either end | processor time of the test's threads, for each transaction | `none-found` |
| waiting for an interrupt, at either end | `rx-usecs` (`ethtool -c`) where the driver does not adapt it, or `gro_flush_timeout` where `napi_defer_hard_irqs` masks interrupts: an upper bound, at most what the other parts leave | `interrupt-moderation` |
| waiting behind other requests or packets | the increase of the rest of the round trip over the least loaded test of the document, or of the files given together | `receiver-core` where a thread of an end ran or waited for its core 85% of the time, else `queue` |
| the wire and both stacks | the rest; the shortest round trip is reported beside it | `none-found` |

`clearstream explain LOADED IDLE` compares the same test under load and without: the one with the longer median is explained.
";

/// A part of the round trip.
struct Part {
    limit: Limit,
    /// The end it is spent at; absent for the path.
    end: Option<End>,
    took_s: f64,
    text: String,
}

/// The verdict of a document whose tests are all request-response; `None` for any other.
pub(crate) fn explain(results: &Results) -> Option<Verdict> {
    let loads = load::loads(results);
    let (typical, idle) = (loads.first()?.typical()?, loads.last().filter(|_| loads.len() > 1));
    let mut parts = typical.counted();
    parts.extend(idle.and_then(load::Load::typical).and_then(|idle| typical.queued(&idle)));
    // An upper bound takes no more than what the rest leaves.
    for end in [End::Near, End::Far] {
        let left_s = typical.rest_s(&parts);
        parts.extend(parts::moderation(results, end, left_s));
    }
    parts.sort_by(|one, other| other.took_s.total_cmp(&one.took_s));
    let rest_s = typical.rest_s(&parts);
    let of_median = |took_s: f64| share(took_s, typical.median_s).unwrap_or(0.0);
    let rest = format!(
        "the wire, both stacks and what no counter shows: {} ({}); the shortest round trip was {}",
        show_seconds(rest_s),
        percent(of_median(rest_s)),
        show_seconds(typical.min_s)
    );
    // What takes most is named, unless it is the work itself.
    let worst = parts
        .first()
        .filter(|part| of_median(part.took_s) >= NAMED_MIN && part.limit != Limit::NoneFound);
    let (limit, end) = worst.map_or((Limit::NoneFound, None), |part| (part.limit, part.end));
    let median = show_seconds(typical.median_s);
    let summary = match worst {
        Some(part) => format!("of a round trip of {median}, {}", part.text),
        None => {
            let count = show_count(typical.transactions);
            let work = parts.first().filter(|part| of_median(part.took_s) >= NAMED_MIN);
            let what = work.map_or_else(
                || "no counted part accounts for a quarter of that".to_owned(),
                |work| work.text.clone(),
            );
            format!("a round trip takes {median} (median of {count}); {what}")
        }
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
    let rest = Evidence { limit: Limit::NoneFound, text: rest, weight: 0.0 };
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
        Limit::InterruptModeration => format!(
            "at the {end} end let the interface interrupt at once (ethtool -C DEV adaptive-rx \
             off rx-usecs 0; gro_flush_timeout 0) or poll (net.core.busy_read), and measure \
             again: if the median stays the same, this was not the cause"
        ),
        Limit::ReceiverCore => format!(
            "at the {end} end answer on more cores, or with less work per request: its thread \
             has no time left"
        ),
        Limit::Queue => "find the queue: keep the other traffic below the path's rate, or let requests pass it \
                         (fq, fq_codel or cake where the slowest link is)"
            .to_owned(),
        _ => "compare with the idle path (`explain LOADED IDLE`): what is longer under load is a queue; busy polling \
              (net.core.busy_read) shortens the rest"
            .to_owned(),
    }
}

/// Figures of one test.
#[derive(Clone, Copy)]
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
