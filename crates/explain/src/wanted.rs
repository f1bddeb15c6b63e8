//! The rate that a path should carry once its hosts' windows do not limit it; every window and buffer is
//! sized for this rate.

use results::{Direction, Limit, Point, Results};
use units::show_bit_rate;

use crate::ceiling::{ETHERNET_QDISC_BYTES, ETHERNET_WIRE_BYTES};
use crate::ceilings::Headers;
use crate::diagnosis::{diagnose, opinions};
use crate::mechanism::Opinion;
use crate::numbers::positive;
use crate::observed::Observed;
use crate::verdict::lowest_ceiling;

/// A rate to size windows for, and its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Payload rate, bit/s.
    pub bits_per_s: f64,
    /// Describes where the rate comes from.
    pub source: String,
    /// Whether the rate is known of the path, and not an extrapolation.
    pub is_known: bool,
}

/// The rate that one stream should reach in direction `way`, in which it reached `rate` bit/s.
#[must_use]
pub fn wanted(results: &Results, way: Direction, rate: f64) -> Wanted {
    let Some(seen) = Observed::of(results).filter(|seen| seen.spec.direction == way) else {
        return of(results, way, rate, rate, None, false);
    };
    let verdict = results.verdict.as_ref().map(|verdict| verdict.limit);
    let limit = verdict
        .filter(|limit| *limit != Limit::NoneFound)
        .or_else(|| Some(diagnose(results).best().filter(|best| best.is_suspected())?.limit));
    let reached = reached_by_experiment(results).unwrap_or(0.0).max(seen.rate());
    let next = next(&seen, &opinions(&seen), limit);
    of(results, way, reached, seen.rate(), next, limit.is_some_and(is_window))
}

impl Wanted {
    /// The rate for the judged test while its limits are weighed; `tried`: what an experiment reached, bit/s.
    pub(crate) fn of(seen: &Observed<'_>, opinions: &[Opinion], tried: Option<f64>) -> Self {
        let rate = seen.rate();
        let next = next(seen, opinions, None);
        of(seen.results(), seen.spec.direction, rate.max(tried.unwrap_or(0.0)), rate, next, true)
    }
}

/// Whether a window or a buffer is the limit, both of which one option of a test sets.
pub(crate) fn is_window(limit: Limit) -> bool {
    matches!(limit, Limit::ReceiveWindow | Limit::SendBuffer)
}

/// The lowest ceiling except those of windows and of the limit that binds.
fn next(seen: &Observed<'_>, opinions: &[Opinion], limit: Option<Limit>) -> Option<(Limit, f64)> {
    let next = lowest_ceiling(seen, opinions, |one| is_window(one) || Some(one) == limit, 0.0)?;
    Some((next.limit, next.bits_per_s))
}

/// Throughput of the experiment that confirmed the verdict, bit/s.
fn reached_by_experiment(results: &Results) -> Option<f64> {
    let verdict = results.verdict.as_ref().filter(|verdict| verdict.confirmed)?;
    positive(verdict.confirmation.as_ref()?.after_bits_per_s)
}

/// The lowest known rate of the path itself; if none is known, the best throughput of any test, at least
/// `reached`.
fn of(
    results: &Results,
    way: Direction,
    reached: f64,
    rate: f64,
    next: Option<(Limit, f64)>,
    is_window: bool,
) -> Wanted {
    let best = best(results, way).fold(reached, f64::max);
    let next = next.filter(|(_, bits_per_s)| *bits_per_s >= best);
    let binds = |limit: Limit| format!("then {} binds", limit.name());
    let (bits_per_s, source, is_known) = match (line(results), next) {
        (Some((line, text)), Some((limit, next))) if next < line => {
            (next, format!("{}; {text}", binds(limit)), true)
        }
        // One stream shows that the path carries its rate, whatever the arithmetic of headers says.
        (Some((line, text)), _) if line >= best * 0.9 => (line.max(rate), text, true),
        (_, Some((limit, next))) => (next, binds(limit), true),
        _ if best > rate * 1.1 => (best, "the best any test here got through".to_owned(), false),
        _ if is_window => {
            (rate * 2.0, "at least twice; no rate of the path is known".to_owned(), false)
        }
        _ => (best, "measured".to_owned(), false),
    };
    Wanted { bits_per_s, source, is_known }
}

/// The lowest payload rate of the ends' interfaces and their shapers, with its source.
pub(crate) fn line(results: &Results) -> Option<(f64, String)> {
    let mtu = f64::from(results.path.path_mtu_bytes.unwrap_or(1500).clamp(576, 65_535));
    let headers_bytes = f64::from(Headers::of_path(&results.path).bytes());
    let goodput =
        |line: f64, framing_bytes: f64| line * (mtu - headers_bytes) / (mtu + framing_bytes);
    let hosts = [Some(results.near()), results.far()];
    let links = hosts.into_iter().flatten().filter_map(|host| host.interface.as_ref());
    let known = links.flat_map(|link| {
        let line = link.speed_bits_per_s.map(|line| {
            let payload = goodput(line, ETHERNET_WIRE_BYTES);
            (payload, format!("{}, {} less headers", link.name, show_bit_rate(line)))
        });
        let shaped = link
            .qdisc_rate_bits_per_s
            .map(|line| (goodput(line, ETHERNET_QDISC_BYTES), format!("shaper on {}", link.name)));
        [line, shaped].into_iter().flatten()
    });
    let known = known.filter(|(line, _)| positive(*line).is_some());
    known.min_by(|a, b| a.0.total_cmp(&b.0))
}

/// Throughput of each test in direction `way`, experiments excepted; bit/s.
fn best(results: &Results, way: Direction) -> impl Iterator<Item = f64> {
    let points = results.points.iter().filter(|point: &&Point| !point.is_confirmation());
    points.filter_map(move |point| {
        let told = &point.measured()?.directions;
        positive(told.iter().find(|one| one.direction == way)?.received_bits_per_s)
    })
}

/// Round trip of the idle path, (median), for which windows and buffers are sized, seconds.
pub(crate) fn idle_rtt_s(results: &Results) -> Option<f64> {
    results.path.idle_rtt.as_ref()?.percentile_s(50.0).and_then(positive)
}
