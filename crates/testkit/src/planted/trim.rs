//! Recording a document: without what no verdict rests on.

use std::fs;
use std::path::Path;

use results::{EndReport, PointOutcome, Results};
use serde_json::Value;

use super::cases::Case;
use super::packed;
use super::recorded::Recorded;

/// Significant digits of a recorded figure.
const DIGITS: i32 = 5;

/// Most streams whose every interval is kept.
const STREAMS_KEPT_MAX: usize = 2;

/// Writes a case's document into `folder` as `NAME.json`; packed, if it is a drawn one.
pub fn record(case: &Case, results: &Results, folder: &Path) -> std::io::Result<()> {
    let recorded = Recorded {
        by: case.by.clone(),
        plants: case.plants.clone(),
        accept: case.accept.clone(),
        results: trimmed(results),
    };
    let mut document = serde_json::to_value(&recorded).map_err(std::io::Error::other)?;
    round(&mut document);
    if case.is_drawn {
        document = packed::pack(&document);
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{}.json", case.name)), format!("{document}\n"))
}

/// Protocol counters that some verdict may rest on.
const COUNTERS: [&str; 14] = [
    "Retrans", "Drop", "Err", "Prune", "Reorder", "ECN", "Loss", "Collaps", "Ofo", "Backlog",
    "Overflow", "Timeout", "DSACK", "Undo",
];

/// Without summaries and verdict, which follow from the points, and what nobody judges.
fn trimmed(results: &Results) -> Results {
    let mut results = results.clone();
    results.summaries.clear();
    results.verdict = None;
    // Where it ran is nobody's business.
    results.command.clear();
    for point in &mut results.points {
        point.command.clear();
        let is_trial = point.experiment.starts_with("confirm:");
        if let PointOutcome::Measured(outcome) = &mut point.outcome {
            let mut ends = outcome.hosts.iter().flat_map(|host| &host.account.streams);
            let is_silent = !ends.any(|stream| stream.sending && stream.tcp.is_some());
            for host in &mut outcome.hosts {
                trim_end(&mut host.account, is_trial, is_silent);
            }
        }
    }
    results
}

/// What was omitted counts for nothing; of an experiment, of UDP and of many streams the totals
/// say enough, those of the senders or, where the senders are silent, of the receivers.
fn trim_end(end: &mut EndReport, is_trial: bool, is_silent: bool) {
    let count = end.streams.len();
    let many = count > STREAMS_KEPT_MAX;
    for stream in &mut end.streams {
        let kept = !many && !is_trial && stream.udp.is_none();
        stream.intervals.retain(|interval| kept && !interval.omitted);
        let tells = stream.sending || is_silent;
        if many && (!tells || (is_trial && count > 2 * STREAMS_KEPT_MAX)) {
            stream.tcp = None;
        }
    }
    let counters = &mut end.counters;
    counters.protocols.retain(|counter| COUNTERS.iter().any(|word| counter.name.contains(word)));
    counters.devices.retain(|device| device.interface != "lo");
    counters.interrupts.clear();
}

/// Rounds every number that is not a whole one.
fn round(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        Value::Number(number) if number.is_f64() => {
            let exact = number.as_f64().unwrap_or(0.0);
            let rounded = format!("{exact:.*e}", DIGITS as usize - 1).parse::<f64>();
            if let Some(rounded) = rounded.ok().and_then(serde_json::Number::from_f64) {
                *number = rounded;
            }
        }
        _ => {}
    }
}
