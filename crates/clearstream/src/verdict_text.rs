//! A verdict as text, for the verbs that show one.

use std::fmt::Write;

use compare::Quantity;
use results::{
    AppliedChange, Confirmation, Direction, End, Estimate, Finding, Host, Limit, Point, Results,
    Verdict, Work,
};
use units::show_bit_rate;

use crate::out::columns;
use crate::tables::labelled;

/// How much of a verdict to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The strongest lines of evidence, for use below the figures of `path`.
    Brief,
    /// All evidence, and the likeliest of the limits that were ruled out.
    Full,
    /// All evidence, and all limits that were ruled out.
    All,
}

/// The complete text, with the heading.
pub(crate) fn show(
    results: &Results,
    measured: Option<Estimate>,
    verdict: &Verdict,
    stored: Option<&Verdict>,
    detail: Detail,
) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    if is_file_load(results) {
        writeln!(out, "Load     {}", file_load(results)).ok();
        for rate in phase_rates(results) {
            writeln!(out, "         {rate}").ok();
        }
    } else {
        head(&mut out, results, measured).ok();
    }
    let is_damage = |told: &&Finding| told.code == Finding::DAMAGE;
    for told in crate::foreign::recorded(results).filter(is_damage) {
        wrapped(&mut out, "Damaged  ", &told.text).ok();
    }
    if let Some(why) = &results.partial {
        wrapped(&mut out, "Cut off  ", &format!("the run is not complete: {why}")).ok();
    }
    verdict_lines(&mut out, verdict, detail).ok();
    for change in &results.changes {
        wrapped(&mut out, what_became(change), &applied(change)).ok();
    }
    ruled_out(&mut out, verdict, detail).ok();
    if let Some(stored) = stored {
        let line = format!("the file was written with the verdict {}", stored.limit.name());
        wrapped(&mut out, "Note     ", &line).ok();
    }
    for told in crate::foreign::recorded(results).filter(|told| !is_damage(told)) {
        wrapped(&mut out, "Recorded ", &told.text).ok();
    }
    for absent in &results.absent {
        wrapped(&mut out, "Unseen   ", &format!("{}: {}", absent.what, absent.why)).ok();
    }
    out
}

/// The label of a change: one that did not stay was either tried or never made.
fn what_became(change: &AppliedChange) -> &'static str {
    match (change.is_kept, &change.after) {
        (Some(false), None) => "Not made ",
        (Some(false), Some(_)) => "Reverted ",
        _ => "Changed  ",
    }
}

/// A change that `tune apply` made: where, from what to what, and what measuring with and without it gave.
fn applied(change: &AppliedChange) -> String {
    let end = if change.end == End::Near { "near" } else { "far" };
    let AppliedChange { key, from, to, .. } = change;
    let outcome = change.outcome.as_deref().unwrap_or("its effect was not measured");
    format!("{key} at the {end} end, {from} -> {to}: {outcome}")
}

/// Whether a document holds file-system load and nothing else: it has no far host.
pub(crate) fn is_file_load(results: &Results) -> bool {
    let is_load = |point: &Point| {
        matches!(point.work, Work::FileIo(_) | Work::FileMetadata(_) | Work::FileLocks(_))
    };
    !results.points.is_empty() && results.points.iter().all(is_load)
}

/// A line with the rate of each phase: `write 688 MiB/s (511 MiB/s .. 795 MiB/s, n=4)`.
fn phase_rates(results: &Results) -> impl Iterator<Item = String> {
    let is_rate = |figure: &str| figure == "moved_bytes_per_s" || figure == "items_per_s";
    let summaries = sweep::summarise(&results.points).into_iter();
    summaries.filter(move |summary| is_rate(&summary.figure)).map(|summary| {
        let quantity = Quantity::of_figure(&summary.figure);
        let rate = summary.estimate.text(|value| quantity.show(value));
        format!("{} {rate}", compare::phase_name(&summary.experiment))
    })
}

/// `file system, by vm and nid0002`.
fn file_load(results: &Results) -> String {
    let name = |host: &Host| {
        let name = if host.facts.name.is_empty() { &host.name } else { &host.facts.name };
        name.clone()
    };
    let hosts: Vec<String> = results.hosts.iter().map(name).collect();
    let by = match hosts.split_last() {
        None => return "of a file system".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    };
    format!("of a file system, by {by}")
}

fn head(out: &mut String, results: &Results, measured: Option<Estimate>) -> std::fmt::Result {
    let target = results.path.target.as_str();
    let far = results.far().map_or(target, |far| far.name.as_str());
    let named = |name: &'_ str| {
        if name.is_empty() { "an unnamed host".to_owned() } else { name.to_owned() }
    };
    let test = explain::judged_test(results).or_else(|| results.points.first()?.spec());
    let (near, far) = (named(&results.near().name), named(far));
    // From the sender to the receiver, whose figures these are.
    let (from, to) = match test.map(|test| test.direction) {
        Some(Direction::Reverse) => (far, near),
        _ => (near, far),
    };
    let both = test.is_some_and(|test| test.direction == Direction::Bidirectional);
    let beside = if both { ", with the other direction loaded" } else { "" };
    let carried = measured.map(|rate| format!(": {}{beside}", rate.text(show_bit_rate)));
    let path = format!("{from} -> {to}{}", carried.unwrap_or_default());
    write!(out, "{}", labelled("Path     ", &path))
}

/// The verdict: its evidence, its experiment, the next limit and the advice.
pub(crate) fn verdict_lines(
    out: &mut String,
    verdict: &Verdict,
    detail: Detail,
) -> std::fmt::Result {
    let end = match verdict.end {
        Some(End::Near) => " at the near end",
        Some(End::Far) => " at the far end",
        None => "",
    };
    let is_brief = detail == Detail::Brief;
    let sure = match verdict.confirmed {
        true => ", confirmed by experiment",
        // There is nothing to confirm.
        false if verdict.limit == Limit::NoneFound => "",
        false => ", not confirmed",
    };
    let limit = format!("{}{end}{sure}", verdict.limit.name());
    write!(out, "\n{}", labelled("Verdict  ", &limit))?;
    wrapped(out, "         ", &verdict.summary)?;
    // What the summary says is not repeated; below figures a few more lines suffice.
    let most = if is_brief { 3 } else { usize::MAX };
    let is_new = |text: &str| !verdict.summary.contains(text);
    let evidence = verdict.evidence.iter().filter(|evidence| is_new(&evidence.text));
    for evidence in evidence.take(most) {
        wrapped(out, "       - ", &evidence.text)?;
    }
    if let Some(confirmation) = &verdict.confirmation {
        experiment(out, confirmation, is_new(&confirmation.outcome))?;
    }
    if let (Some(change), false) = (&verdict.host_change, verdict.confirmed) {
        let end = if change.end == End::Near { "near" } else { "far" };
        wrapped(out, "Confirm  ", &format!("at the {end} end, as root: {}", change.command))?;
        let predicted = show_bit_rate(change.predicted_bits_per_s);
        wrapped(out, "         ", &format!("{}; up to {predicted} is predicted", change.text))?;
        if let Some(undo) = &change.undo {
            wrapped(out, "         ", &format!("to undo it: {undo}"))?;
        }
    }
    if let Some(next) = &verdict.next {
        let gives = show_bit_rate(next.bits_per_s);
        let name = match next.limit {
            Limit::NoneFound => "unidentified limit",
            limit => limit.name(),
        };
        let line = format!("{name} at {gives}: {}", next.text);
        wrapped(out, "Next     ", &line)?;
    }
    let most = if is_brief { 3 } else { usize::MAX };
    for (number, advice) in verdict.advice.iter().take(most).enumerate() {
        wrapped(out, if number == 0 { "Advice   " } else { "         " }, advice)?;
    }
    Ok(())
}

/// The experiment: its change, its outcome in a word, and what was predicted beside what was measured.
fn experiment(out: &mut String, told: &Confirmation, is_new: bool) -> std::fmt::Result {
    let word = told.ruling.map_or_else(String::new, |ruling| format!(", {}", ruling.name()));
    let outcome = if is_new { format!(": {}", told.outcome) } else { String::new() };
    wrapped(out, "       - ", &format!("experiment{word}: {}{outcome}", told.change))?;
    let low = told.predicted_low_bits_per_s.filter(|low| *low > 0.0);
    let bounds = (low, told.predicted_high_bits_per_s);
    if let Some(confirms) = confirming(bounds) {
        let mut line = format!(
            "counts as confirmed {confirms}; measured {}",
            show_bit_rate(told.after_bits_per_s)
        );
        if let Some(rival) = &told.rival {
            let name = rival.limit.name();
            let predicted = between((rival.low_bits_per_s, rival.high_bits_per_s));
            line += &match (predicted, rival.is_separate) {
                (Some(predicted), _) => format!("; {name} predicts {predicted}"),
                (None, true) => format!("; {name} predicts otherwise"),
                (None, false) => format!("; {name} predicts no other outcome"),
            };
        }
        wrapped(out, "         ", &line)?;
    }
    for companion in &told.companions {
        let word = if companion.holds { "as predicted" } else { "not as predicted" };
        let line = format!("{word}: {}; measured: {}", companion.predicted, companion.measured);
        wrapped(out, "         ", &line)?;
    }
    Ok(())
}

/// Bounds of the rates that confirm a limit, in words; `None` if there are none.
fn confirming(bounds: (Option<f64>, Option<f64>)) -> Option<String> {
    Some(match bounds {
        (Some(low), Some(high)) => {
            format!("from {} to {}", show_bit_rate(low), show_bit_rate(high))
        }
        (Some(low), None) => format!("from {} up", show_bit_rate(low)),
        (None, Some(high)) => format!("up to {}", show_bit_rate(high)),
        (None, None) => return None,
    })
}

/// Bounds of a rate in words; `None` if there are none.
fn between(bounds: (Option<f64>, Option<f64>)) -> Option<String> {
    Some(match bounds {
        (Some(low), Some(high)) => format!("{} to {}", show_bit_rate(low), show_bit_rate(high)),
        (Some(low), None) => format!("at least {}", show_bit_rate(low)),
        (None, Some(high)) => format!("at most {}", show_bit_rate(high)),
        (None, None) => return None,
    })
}

fn ruled_out(out: &mut String, verdict: &Verdict, detail: Detail) -> std::fmt::Result {
    /// Ruled-out limits to show: enough to see that the neighbouring ones were examined.
    const SHOWN_COUNT: usize = 6;
    if verdict.ruled_out.is_empty() {
        return Ok(());
    }
    // A limit of which nothing was recorded is no better known to be another.
    writeln!(out, "\nRuled out or not measured")?;
    let most = if detail == Detail::All { usize::MAX } else { SHOWN_COUNT };
    for line in verdict.ruled_out.iter().take(most) {
        let label = format!("  {:<22} ", line.limit.name());
        wrapped(out, &label, &line.text)?;
    }
    match verdict.ruled_out.len().saturating_sub(most) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more: --all"),
    }
}

/// Wraps `text` into lines of at most [`columns`] columns, the first after `label`, the rest indented below it.
pub(crate) fn wrapped(out: &mut String, label: &str, text: &str) -> std::fmt::Result {
    let indent = " ".repeat(label.chars().count());
    let mut line = label.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + word.chars().count() > columns() {
            writeln!(out, "{}", line.trim_end())?;
            line.clone_from(&indent);
        }
        line += word;
        line.push(' ');
        is_empty = false;
    }
    writeln!(out, "{}", line.trim_end())
}
