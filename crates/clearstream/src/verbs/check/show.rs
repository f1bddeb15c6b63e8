//! Output of a check, as text and JSON.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use checker::{Observer, Report, TraceState, Traffic, Verdict};
use report::{Sequence, SequenceStep, sequence_svg};
use serde_json::{Value, json};
use statespace::Progress;
use units::count_of;

use crate::progress;
use crate::signals;

/// Fewest states at which the memory of one is shown: below, it is what the empty tables take.
const MANY_STATES: u64 = 10_000;

/// Writes a line to stderr. A closed stderr does not affect the verdict.
pub(super) fn talk(line: &str) {
    writeln!(crate::out::stderr(), "clearstream: {line}").ok();
}

/// Shows the progress of a search on stderr, and stops it on Ctrl-C and SIGTERM.
#[derive(Debug)]
pub(super) struct Terminal<'a>(pub(super) &'a progress::Progress);

impl Observer for Terminal<'_> {
    fn warn(&mut self, text: &str) {
        talk(text);
    }

    /// Updates the progress line, if stderr is a terminal.
    fn progress(&mut self, progress: &Progress, ranks: Option<&Traffic>, elapsed: Duration) {
        let mut line = format!("{}, {} queued", figures(progress, elapsed), progress.queued_count);
        if let Some(traffic) = ranks {
            line = format!("{line}, {}", between(traffic, elapsed));
        }
        self.0.show(&line);
    }

    fn checkpoint_written(&mut self, path: &Path, ranks_count: Option<usize>) {
        let ranks = ranks_count.map_or_else(String::new, |count| format!("--ranks {count} "));
        talk(&format!("checkpoint written; continue with {ranks}--resume {}", path.display()));
    }

    fn stop(&self) -> Option<String> {
        signals::caught().map(|signal| format!("interrupted by signal {signal}"))
    }
}

/// The message traffic between ranks, as text.
fn between(traffic: &Traffic, elapsed: Duration) -> String {
    let ranks = count_of(traffic.ranks_count as u64, "rank");
    if !traffic.has_messages {
        return format!("{ranks} sharing one set of states");
    }
    let seconds = elapsed.as_secs_f64().max(1e-9);
    format!(
        "{ranks}, {} messages/s, {:.1} Mbit/s between them, {} explored again",
        units::show_count(traffic.batches_count as f64 / seconds),
        traffic.sent_bytes as f64 * 8.0 / seconds / 1e6,
        count_of(traffic.again_count, "state"),
    )
}

/// Shortest search whose rate is shown: a shorter one mostly sets up its tables.
const RATED_MIN: Duration = Duration::from_millis(100);

fn figures(progress: &Progress, elapsed: Duration) -> String {
    let rate = progress.states_count as f64 / elapsed.as_secs_f64().max(1e-9);
    let rate = match elapsed < RATED_MIN {
        true => String::new(),
        false => format!(" ({} states/s)", units::show_count(rate)),
    };
    // A depth-first search has left its path when it ends.
    let depth = match progress.depth {
        0 => String::new(),
        depth => format!(", depth {depth}"),
    };
    format!(
        "{}{rate}, {}{depth}, {} of memory",
        count_of(progress.states_count, "state"),
        count_of(progress.transitions_count, "transition"),
        units::show_byte_size(progress.memory_bytes as u64),
    )
}

/// All reports as text.
pub(super) fn reports(model: &Path, reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        // Writing to a String cannot fail.
        text(&mut out, model, report).ok();
    }
    out
}

/// All reports as JSON.
pub(super) fn json(model: &Path, reports: &[Report]) -> String {
    let document = json!({
        "model": model.display().to_string(),
        "checks": reports.iter().map(to_json).collect::<Vec<_>>(),
    });
    format!("{document:#}")
}

fn text(out: &mut String, model: &Path, report: &Report) -> std::fmt::Result {
    let Report { what, verdict, progress, elapsed, .. } = report;
    writeln!(out, "{}: {what}", crate::store::input_name(model))?;
    match verdict {
        Verdict::Holds => writeln!(out, "holds")?,
        Verdict::Undecided(why) => {
            let waiting = progress.queued_count;
            let explored = progress.states_count.saturating_sub(waiting);
            writeln!(out, "undecided: {why}")?;
            let explored = count_of(explored, "state");
            writeln!(out, "so far: {explored} explored, {waiting} queued, no error found")?;
        }
        Verdict::Violated { why, run, cycle_start } => {
            // The excerpt, if any, is printed below the line.
            let (why, excerpt) = why.split_once('\n').unwrap_or((why, ""));
            writeln!(out, "violated: {why}, {}", length(run.len(), *cycle_start))?;
            if !excerpt.is_empty() {
                writeln!(out, "{excerpt}")?;
            }
            for (number, line) in run.iter().enumerate() {
                if let Some(step) = &line.step {
                    writeln!(out, "      {step}")?;
                }
                if *cycle_start == Some(number) {
                    writeln!(out, "      -- the cycle begins here --")?;
                }
                writeln!(out, "{number:4}  {}", line.state)?;
            }
        }
    }
    let stored = progress.memory_bytes as f64 / (progress.states_count as f64).max(1.0);
    let each = match progress.states_count {
        MANY_STATES.. => format!("{stored:.1} bytes per state, "),
        _ => String::new(),
    };
    writeln!(
        out,
        "{}, {}; {each}state vector: {}",
        figures(progress, *elapsed),
        units::show_seconds(elapsed.as_secs_f64()),
        count_of(report.state_bytes as u64, "byte"),
    )?;
    if let Some(traffic) = &report.ranks {
        writeln!(out, "{}", between(traffic, *elapsed))?;
    }
    for transition in &report.failing {
        writeln!(out, "run-time error, run not judged by the formula: {transition}")?;
    }
    if let Some(unreachable) = &report.unreachable {
        writeln!(out, "{}", count_of(progress.deadlocks_count, "deadlock"))?;
        for transition in &unreachable.transitions {
            writeln!(out, "never taken: {transition}")?;
        }
        for state in &unreachable.states {
            writeln!(out, "never reached: {state}")?;
        }
    }
    Ok(())
}

/// Describes the length of a trace of `states_count` states, in steps. The states from `cycle_start` on form
/// a cycle, whose first state appears twice.
fn length(states_count: usize, cycle_start: Option<usize>) -> String {
    let steps = states_count.saturating_sub(1);
    match cycle_start {
        None => format!("after {}", count_of(steps as u64, "step")),
        Some(start) => {
            let cycle = count_of(steps.saturating_sub(start) as u64, "step");
            format!("{} to a cycle of {cycle}", count_of(start as u64, "step"))
        }
    }
}

/// The reason without the excerpt of the model below it.
pub(super) fn reason(why: &str) -> &str {
    why.lines().next().unwrap_or_default()
}

/// The first violation's run as an SVG drawing, if there is a violation.
pub(super) fn drawing(reports: &[Report]) -> Option<String> {
    let sequence = reports.iter().find_map(|report| match &report.verdict {
        Verdict::Violated { why, run, cycle_start } => Some(Sequence {
            title: format!("{}: {}", report.what, reason(why)),
            steps: run
                .iter()
                .filter_map(|line| {
                    let label = line.step.clone()?;
                    Some(SequenceStep { movers: line.movers.clone(), label })
                })
                .collect(),
            repeats_from: *cycle_start,
        }),
        _ => None,
    })?;
    Some(sequence_svg(&sequence))
}

fn to_json(report: &Report) -> Value {
    let Report { what, verdict, progress, state_bytes, elapsed, unreachable, ranks, .. } = report;
    let mut value = json!({
        "checked": what,
        "states_count": progress.states_count,
        "transitions_count": progress.transitions_count,
        "depth": progress.depth,
        "queued_count": progress.queued_count,
        "memory_bytes": progress.memory_bytes,
        "state_bytes": state_bytes,
        "duration_s": elapsed.as_secs_f64(),
    });
    match verdict {
        Verdict::Holds => value["verdict"] = json!("holds"),
        Verdict::Undecided(why) => {
            value["verdict"] = json!("undecided");
            value["why"] = json!(why);
        }
        Verdict::Violated { why, run, cycle_start } => {
            value["verdict"] = json!("violated");
            value["why"] = json!(reason(why));
            value["cycle_begins_at"] = json!(cycle_start);
            let line = |line: &TraceState| json!({"step": line.step, "movers": line.movers, "state": line.state});
            value["run"] = run.iter().map(line).collect();
        }
    }
    if let Some(traffic) = ranks {
        value["ranks_count"] = json!(traffic.ranks_count);
        value["messages_count"] = json!(traffic.batches_count);
        value["looked_at_again_count"] = json!(traffic.again_count);
        value["sent_bytes"] = json!(traffic.sent_bytes);
    }
    if !report.failing.is_empty() {
        value["failing"] = json!(report.failing);
    }
    if let Some(unreachable) = unreachable {
        value["deadlocks_count"] = json!(progress.deadlocks_count);
        value["never_taken"] = json!(unreachable.transitions);
        value["never_reached"] = json!(unreachable.states);
    }
    value
}
