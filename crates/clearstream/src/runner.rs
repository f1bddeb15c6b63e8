//! Runs the points of a plan against a target, one after the other, each on disk before the next.

use std::time::{SystemTime, UNIX_EPOCH};

use results::{Point, PointOutcome};
use sweep::{Plan, PlannedPoint};
use traffic::client::{ClientError, IntervalPair};
use traffic::engine::IntervalReport;
use units::{Timestamp, show_bit_rate};

use crate::exit::VerbError;
use crate::far::{self, FarEnd};
use crate::progress::Progress;
use crate::signals;
use crate::store::PointLog;

/// How a plan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Every point was run.
    Complete,
    /// The user's signal came first.
    Interrupted(i32),
}

/// Points tried in a row without an answer before the run gives up on the peer.
const FAILURES_IN_A_ROW_MAX: u32 = 3;

/// Runs every point of `plan` that is not in `points` yet and adds them there.
///
/// A point that fails is recorded with its reason and the run goes on; three failures in a row
/// mean that the peer is gone, and that ends it.
///
/// # Errors
/// The peer is gone, or the journal cannot be written.
pub(crate) fn run(
    plan: &Plan,
    far_end: &mut FarEnd,
    points: &mut Vec<Point>,
    log: &mut PointLog,
    progress: &mut Progress,
) -> Result<Ended, VerbError> {
    let mut failures_in_a_row = 0;
    for planned in plan.remaining(points) {
        if let Some(number) = signals::caught() {
            return Ok(Ended::Interrupted(number));
        }
        let (point, error) = measure(&planned, far_end, progress);
        if let Some(number) = signals::caught() {
            // Cut short: not a measurement. The next run takes it up again.
            return Ok(Ended::Interrupted(number));
        }
        log.append(&point)?;
        points.push(point);
        failures_in_a_row = if error.is_some() { failures_in_a_row + 1 } else { 0 };
        match error {
            Some(error) if failures_in_a_row == FAILURES_IN_A_ROW_MAX => {
                return Err(far::explain(&error));
            }
            _ => {}
        }
    }
    Ok(Ended::Complete)
}

/// Now, for a results file.
pub(crate) fn now_unix_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix(since_epoch).unix_ms
}

fn measure(
    planned: &PlannedPoint,
    far: &mut FarEnd,
    progress: &mut Progress,
) -> (Point, Option<ClientError>) {
    let what = describe(planned);
    progress.begin(&what);
    let started_unix_ms = now_unix_ms();
    let mut on_interval = |pair: &IntervalPair| {
        progress.show(&format!("{what}  {}", show_bit_rate(bits_per_s(&pair.near))));
    };
    let Some(spec) = planned.spec() else {
        let why = "this work is no test between two hosts".to_owned();
        return (planned.point(started_unix_ms, String::new(), PointOutcome::Failed(why)), None);
    };
    let run = far.run_test(spec, &mut on_interval, &|| signals::caught().is_some());
    let (outcome, error) = match run {
        Ok(outcome) => (PointOutcome::Measured(Box::new(outcome)), None),
        Err(error) => (PointOutcome::Failed(crate::exit::chain(&error)), Some(error)),
    };
    let command = crate::verbs::options::command_line(far.target(), spec);
    (planned.point(started_unix_ms, command, outcome), error)
}

/// Payload rate over the streams of one interval, bit/s.
fn bits_per_s(interval: &IntervalReport) -> f64 {
    let bytes: u64 = interval.streams.iter().map(|(_, _, sample)| sample.bytes).sum();
    bytes as f64 * 8.0 / (interval.end_s - interval.start_s).max(f64::MIN_POSITIVE)
}

fn describe(planned: &PlannedPoint) -> String {
    let settings: Vec<String> =
        planned.varied.iter().map(|(name, value)| show_setting(name, *value)).collect();
    format!("{} {} (repeat {})", planned.experiment, settings.join(" "), planned.repeat + 1)
}

/// A varied parameter as people read it: its unit comes from its name.
pub(crate) fn show_setting(name: &str, value: f64) -> String {
    if let Some(stem) = name.strip_suffix("_bytes") {
        format!("{stem} {}", units::show_byte_size(units::saturating_u64(value)))
    } else if let Some(stem) = name.strip_suffix("_bits_per_s") {
        format!("{stem} {}", show_bit_rate(value))
    } else {
        format!("{name} {value}")
    }
}
