//! What a check found, for people and for programs.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use checker::{Line, Observer, Report, Traffic, Verdict};
use report::{Sequence, SequenceStep, sequence_svg};
use serde_json::{Value, json};
use statespace::Progress;

use crate::progress;
use crate::signals;

/// A line on stderr. That nobody hears it takes nothing from the verdict.
pub(super) fn talk(line: &str) {
    writeln!(crate::out::stderr(), "clearstream: {line}").ok();
}

/// Shows a search on stderr, and stops it on Ctrl-C and SIGTERM.
#[derive(Debug)]
pub(super) struct Terminal<'a>(pub(super) &'a progress::Progress);

impl Observer for Terminal<'_> {
    fn warn(&mut self, text: &str) {
        talk(text);
    }

    /// A line that rewrites itself, where stderr is a terminal.
    fn progress(&mut self, progress: &Progress, ranks: Option<&Traffic>, elapsed: Duration) {
        let mut line = format!("{}, {} queued", figures(progress, elapsed), progress.queued_count);
        if let Some(traffic) = ranks {
            line = format!("{line}, {}", between(traffic, elapsed));
        }
        self.0.show(&line);
    }

    fn checkpoint_written(&mut self, path: &Path, ranks_count: Option<usize>) {
        let ranks = ranks_count.map_or_else(String::new, |count| format!("--ranks {count} "));
        talk(&format!("go on with {ranks}--resume {}", path.display()));
    }

    fn stop(&self) -> Option<String> {
        signals::caught().map(|signal| format!("interrupted by signal {signal}"))
    }
}

/// What went between ranks, in words.
fn between(traffic: &Traffic, elapsed: Duration) -> String {
    if !traffic.has_messages {
        return format!("{} ranks over one set of states", traffic.ranks_count);
    }
    let seconds = elapsed.as_secs_f64().max(1e-9);
    format!(
        "{} ranks, {} messages/s, {:.1} Mbit/s between them, {} states looked at again",
        traffic.ranks_count,
        units::show_count(traffic.batches_count as f64 / seconds),
        traffic.sent_bytes as f64 * 8.0 / seconds / 1e6,
        traffic.again_count,
    )
}

fn figures(progress: &Progress, elapsed: Duration) -> String {
    let rate = progress.states_count as f64 / elapsed.as_secs_f64().max(1e-9);
    format!(
        "{} states ({} states/s), {} transitions, depth {}, {}",
        progress.states_count,
        units::show_count(rate),
        progress.transitions_count,
        progress.depth,
        units::show_byte_size(progress.memory_bytes as u64),
    )
}

/// All reports, as people read them.
pub(super) fn reports(model: &Path, reports: &[Report]) -> String {
    let mut out = String::new();
    for report in reports {
        // Writing to a String does not fail.
        text(&mut out, model, report).ok();
    }
    out
}

/// All reports, as programs read them.
pub(super) fn json(model: &Path, reports: &[Report]) -> String {
    let document = json!({
        "model": model.display().to_string(),
        "checks": reports.iter().map(to_json).collect::<Vec<_>>(),
    });
    format!("{document:#}")
}

fn text(out: &mut String, model: &Path, report: &Report) -> std::fmt::Result {
    let Report { what, verdict, progress, elapsed, .. } = report;
    writeln!(out, "{}: {what}", model.display())?;
    match verdict {
        Verdict::Holds => writeln!(out, "holds")?,
        Verdict::Undecided(why) => {
            let waiting = progress.queued_count;
            let looked_at = progress.states_count.saturating_sub(waiting);
            writeln!(out, "undecided: {why}")?;
            writeln!(
                out,
                "so far: {looked_at} states looked at, {waiting} waiting, no error found"
            )?;
        }
        Verdict::Violated { why, run, turn } => {
            writeln!(out, "violated: {why}, after {} steps", run.len().saturating_sub(1))?;
            for (number, line) in run.iter().enumerate() {
                if let Some(step) = &line.step {
                    writeln!(out, "      {step}")?;
                }
                if *turn == Some(number) {
                    writeln!(out, "      -- from here on it repeats --")?;
                }
                writeln!(out, "{number:4}  {}", line.state)?;
            }
        }
    }
    let stored = progress.memory_bytes as f64 / (progress.states_count as f64).max(1.0);
    writeln!(
        out,
        "{} in {}; {stored:.1} bytes a state of {}",
        figures(progress, *elapsed),
        units::show_seconds(elapsed.as_secs_f64()),
        report.state_bytes,
    )?;
    if let Some(traffic) = &report.ranks {
        writeln!(out, "{}", between(traffic, *elapsed))?;
    }
    for transition in &report.failing {
        writeln!(out, "runs end here with an error, and are not judged: {transition}")?;
    }
    if let Some(unreachable) = &report.unreachable {
        writeln!(out, "{} deadlocks", progress.deadlocks_count)?;
        for transition in &unreachable.transitions {
            writeln!(out, "never taken: {transition}")?;
        }
        for state in &unreachable.states {
            writeln!(out, "never reached: {state}")?;
        }
    }
    Ok(())
}

/// The first violation's run as a drawing, where there is one.
pub(super) fn drawing(reports: &[Report]) -> Option<String> {
    let sequence = reports.iter().find_map(|report| match &report.verdict {
        Verdict::Violated { why, run, turn } => Some(Sequence {
            title: format!("{}: {why}", report.what),
            steps: run
                .iter()
                .filter_map(|line| {
                    let label = line.step.clone()?;
                    Some(SequenceStep { movers: line.movers.clone(), label })
                })
                .collect(),
            repeats_from: *turn,
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
        Verdict::Violated { why, run, turn } => {
            value["verdict"] = json!("violated");
            value["why"] = json!(why);
            value["cycle_begins_at"] = json!(turn);
            let line = |line: &Line| json!({"step": line.step, "movers": line.movers, "state": line.state});
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
