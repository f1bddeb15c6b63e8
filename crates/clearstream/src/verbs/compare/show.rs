//! Renders a comparison as text.

use std::fmt::Write;

use compare::{
    ComparedFigure, Comparison, Counted, HostChange, JudgedBy, OneSided, Outcome, Quantity, Side,
};
use units::{Timestamp, count_of};

use crate::tables::{Folds, labelled};
use crate::verdict_text::wrapped;

/// Columns of a table, and the index of the one with the intervals.
const COLUMNS: usize = 6;
const INTERVAL: usize = 4;

/// Longest setting name, in characters; longer ones are cut.
const SETTING_CHARACTERS_MAX: usize = 96;

/// Figures listed without `--all` even if unchanged.
const LISTED: [&str; 9] = [
    "received_bits_per_s",
    "transactions_per_s",
    "received_pkts_per_s",
    "states_per_s",
    "moved_bytes_per_s",
    "items_per_s",
    "lost_share",
    "rtt_p50_s",
    "rtt_p99_s",
];

/// Most figures without a result, one-sided settings and host changes listed without `--all`.
const LISTED_MAX: usize = 12;

/// How the columns `B - A` and `interval` are computed.
const DIFFERENCE: [&str; 2] = [
    "B - A: the median of all pairwise differences, not the difference of the medians",
    "interval: of at least 95% confidence, unless another is given",
];

/// What the mark beside `n` means.
const BY_SPREAD: [&str; 2] = [
    "*: too few values for the rank test; judged by their spread (Student's test), which is taken as at",
    "   least that of all figures of this kind; it assumes that noise is roughly normal",
];

/// The whole text.
pub(super) fn text(comparison: &Comparison, is_all: bool) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    write_text(&mut out, comparison, is_all).ok();
    out
}

fn write_text(out: &mut String, comparison: &Comparison, is_all: bool) -> std::fmt::Result {
    *out += &labelled("A  ", &side(&comparison.a));
    *out += &labelled("B  ", &side(&comparison.b));
    for why in comparison.a.partial.iter().chain(&comparison.b.partial) {
        writeln!(out, "   not complete: {why}")?;
    }
    for what in comparison.a.not_recorded.iter().chain(&comparison.b.not_recorded) {
        wrapped(out, "   ", &format!("{what}: settings that were not recorded are assumed equal"))?;
    }
    *out += &labelled("   ", counted(comparison));
    if is_same(comparison) {
        writeln!(out, "\nA and B are the same measurements.")?;
    }
    let alike: Vec<&ComparedFigure> = comparison.alike().collect();
    let unlike: Vec<&ComparedFigure> = comparison.unlike().collect();
    // What is decided comes first.
    let leads = decides(&unlike) && !decides(&alike);
    if leads {
        unlike_outcomes(out, comparison, &unlike, is_all)?;
    }
    if alike.is_empty() {
        writeln!(out, "\nNo test has the same settings on both sides.")?;
    } else {
        outcomes(out, comparison, &alike, is_all)?;
    }
    if !leads && !unlike.is_empty() {
        unlike_outcomes(out, comparison, &unlike, is_all)?;
    }
    if !comparison.figures.is_empty() {
        writeln!(out)?;
        out.extend(DIFFERENCE.map(|line| labelled("", line)));
        if comparison.figures.iter().any(is_by_spread) {
            out.extend(BY_SPREAD.map(|line| labelled("", line)));
        }
        if let Some(count) = comparison.repeats_wanted() {
            let is_runs = comparison.figures.iter().all(|figure| figure.counted == Counted::Runs);
            let line = format!(
                "With {} compared, {count} {} on each side are needed to detect one that differs alone",
                count_of(comparison.figures.len() as u64, "figure"),
                if is_runs { "runs" } else { "repeats" }
            );
            *out += &labelled("", &line);
        }
    }
    one_sided(out, "A", "B", &comparison.only_a, is_all)?;
    one_sided(out, "B", "A", &comparison.only_b, is_all)?;
    hosts(out, &comparison.host_changes, is_all)
}

/// Whether both sides hold the same runs.
fn is_same(comparison: &Comparison) -> bool {
    let Comparison { a, b, figures, only_a, only_b, host_changes } = comparison;
    (a.first_unix_ms, a.last_unix_ms) == (b.first_unix_ms, b.last_unix_ms)
        && a.files.len() == b.files.len()
        && only_a.is_empty()
        && only_b.is_empty()
        && host_changes.is_empty()
        && figures.iter().all(|figure| figure.a == figure.b)
}

/// Whether any of the figures differs beyond the noise.
fn decides(figures: &[&ComparedFigure]) -> bool {
    let is_beyond =
        |outcome| matches!(outcome, Outcome::Worse | Outcome::Better | Outcome::Different);
    figures.iter().any(|figure| is_beyond(figure.outcome))
}

/// Whether a difference was told by the spread of a few values.
fn is_by_spread(figure: &ComparedFigure) -> bool {
    figure.judged_by == Some(JudgedBy::Spread) && figure.outcome != Outcome::TooFew
}

/// The figures of tests whose settings differ, set apart.
fn unlike_outcomes(
    out: &mut String,
    comparison: &Comparison,
    figures: &[&ComparedFigure],
    is_all: bool,
) -> std::fmt::Result {
    writeln!(
        out,
        "\n--- Tests whose settings differ: the settings alone may explain the difference"
    )?;
    outcomes(out, comparison, figures, is_all)?;
    writeln!(out, "---")
}

/// Figures by what their comparison says.
fn outcomes(
    out: &mut String,
    comparison: &Comparison,
    figures: &[&ComparedFigure],
    is_all: bool,
) -> std::fmt::Result {
    let with = |outcome: Outcome| -> Vec<&ComparedFigure> {
        figures.iter().copied().filter(|figure| figure.outcome == outcome).collect()
    };
    let changed = [
        ("Worse, beyond the noise", Outcome::Worse),
        ("Better, beyond the noise", Outcome::Better),
        ("Different, beyond the noise", Outcome::Different),
    ];
    for (title, outcome) in changed {
        table(out, title, &with(outcome))?;
    }
    if changed.iter().all(|(_, outcome)| with(*outcome).is_empty()) {
        writeln!(out)?;
        wrapped(out, "", &format!("{}.", comparison.without_difference(figures)))?;
    }
    for (title, outcome) in [
        ("Within the noise", Outcome::Indistinguishable),
        ("Too few repeats to tell", Outcome::TooFew),
    ] {
        let all = with(outcome);
        let is_listed = |figure: &&ComparedFigure| {
            is_all || LISTED.iter().any(|ending| figure.figure.ends_with(ending))
        };
        let most = if is_all { usize::MAX } else { LISTED_MAX };
        let listed: Vec<&ComparedFigure> =
            all.iter().copied().filter(is_listed).take(most).collect();
        table(out, title, &listed)?;
        let rest = (all.len() - listed.len()) as u64;
        if listed.is_empty() && rest > 0 {
            writeln!(out, "\n{title}: {} (shown with --all)", count_of(rest, "figure"))?;
        } else if rest > 0 {
            writeln!(out, "   and {} (shown with --all)", count_of(rest, "more figure"))?;
        }
    }
    Ok(())
}

fn side(side: &Side) -> String {
    let day = |unix_ms| {
        let moment = Timestamp { unix_ms }.to_string();
        moment.replace('T', " ").replace('Z', " UTC")
    };
    match side.files.len() {
        1 => format!("{} ({})", side.name, day(side.first_unix_ms)),
        many => {
            let (first, last) = (day(side.first_unix_ms), day(side.last_unix_ms));
            format!("{} ({many} runs, {first} to {last})", side.name)
        }
    }
}

/// Explains what counts as one value of the comparison.
fn counted(comparison: &Comparison) -> &'static str {
    let is_runs = |figure: &ComparedFigure| figure.counted == Counted::Runs;
    match (comparison.figures.iter().any(is_runs), comparison.figures.iter().all(is_runs)) {
        (_, true) => "each run counts once, by the median of its repeats",
        (true, false) => {
            "each run counts once, by the median of its repeats, where there are enough runs"
        }
        (false, false) => {
            "each repeat counts once: what differs between whole runs is not part of the noise"
        }
    }
}

/// Lists the figures below the settings they belong to.
fn table(out: &mut String, title: &str, figures: &[&ComparedFigure]) -> std::fmt::Result {
    if figures.is_empty() {
        return Ok(());
    }
    let rows: Vec<[String; COLUMNS]> = figures.iter().map(|figure| row(figure)).collect();
    let head = ["", "A", "B", "B - A", "interval", "n"].map(str::to_owned);
    let mut widths = [0; COLUMNS];
    for row in rows.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; COLUMNS]| {
        let mut line = String::from("    ");
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            match column {
                0 | INTERVAL => write!(line, " {cell:<width$} ").ok(),
                _ => write!(line, " {cell:>width$} ").ok(),
            };
        }
        line.trim_end().to_owned()
    };
    let (head, rows): (String, Vec<String>) = (line(&head), rows.iter().map(line).collect());
    let folds = Folds::of(rows.iter().chain([&head]).map(String::as_str));
    writeln!(out, "\n{title}\n{}", folds.line(&head))?;
    let mut above = None;
    for (figure, row) in figures.iter().zip(&rows) {
        let test = Some((&figure.setting, &figure.differing_settings));
        if test != above {
            writeln!(out, "   {}", cut(&figure.setting, SETTING_CHARACTERS_MAX))?;
            if !figure.is_alike() {
                wrapped(out, "      ", &figure.differing_words())?;
            }
            above = test;
        }
        writeln!(out, "{}", folds.line(row))?;
    }
    Ok(())
}

fn row(figure: &ComparedFigure) -> [String; COLUMNS] {
    let show = |value| Quantity::of_figure(&figure.figure).show(value);
    let worth = match (figure.confidence * 100.0).floor() {
        percent if percent >= 95.0 => String::new(),
        percent => format!(" ({percent}%)"),
    };
    let interval = match figure.a.count.min(figure.b.count) {
        0 | 1 => "one value".to_owned(),
        _ => format!("{}{worth}", figure.shown_interval()),
    };
    [
        figure.words(),
        show(figure.a.median),
        show(figure.b.median),
        figure.shown_difference(),
        interval,
        format!(
            "{}, {}{}",
            figure.a.count,
            figure.b.count,
            if is_by_spread(figure) { " *" } else { "" }
        ),
    ]
}

fn one_sided(
    out: &mut String,
    letter: &str,
    other: &str,
    side: &[OneSided],
    is_all: bool,
) -> std::fmt::Result {
    if side.is_empty() {
        return Ok(());
    }
    let shown = if is_all { side.len() } else { side.len().min(LISTED_MAX) };
    writeln!(out, "\nOnly in {letter}")?;
    for one in &side[..shown] {
        let figures = match one.words().as_slice() {
            [only] => only.clone(),
            many => format!("{} figures", many.len()),
        };
        writeln!(out, "   {}: {figures}", cut(&one.setting, 80))?;
        writeln!(out, "      {}", one.why.words(other))?;
    }
    match side.len() - shown {
        0 => Ok(()),
        rest => {
            writeln!(out, "   and {} (shown with --all)", count_of(rest as u64, "more setting"))
        }
    }
}

fn hosts(out: &mut String, changes: &[HostChange], is_all: bool) -> std::fmt::Result {
    if changes.is_empty() {
        return writeln!(out, "\nThe known facts of the hosts and the path are the same.");
    }
    let shown = if is_all { changes.len() } else { changes.len().min(LISTED_MAX * 2) };
    writeln!(out, "\nHosts and path")?;
    for change in &changes[..shown] {
        let (HostChange { host, fact, .. }, [a, b]) = (change, change.shown());
        writeln!(out, "   {host} {fact}: {} -> {}", cut(&a, 60), cut(&b, 60))?;
    }
    match changes.len() - shown {
        0 => Ok(()),
        rest => {
            writeln!(out, "   and {} (shown with --all)", count_of(rest as u64, "more difference"))
        }
    }
}

fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(columns - 1).collect();
    short.push('…');
    // What is cut within parentheses still ends them.
    if short.matches('(').count() > short.matches(')').count() {
        short.push(')');
    }
    short
}
