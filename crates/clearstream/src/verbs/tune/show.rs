//! Plans and their outcomes as text.

use std::fmt::Write;
use std::path::PathBuf;

use results::{End, Results};
use traffic::client::{Family, Target};
use tuning::plan::{Plan, PlannedChange, Risk};
use tuning::{ChangeResult, Key, Outcome, Owner, RevertOutcome, Reverted, Standing, StatusLine};
use units::{show_bit_rate, show_byte_size, show_seconds};

use super::StateOptions;
use super::trials::IN_FORCE_BEFORE;
use crate::granted::end_name;
use crate::verdict_text::wrapped;

/// The complete text of a plan.
pub(super) fn plan(plan: &Plan, results: &Results) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail; `ok` keeps the lines readable.
    head(&mut out, plan, results).ok();
    for change in &plan.changes {
        planned(&mut out, change, results).ok();
    }
    if plan.changes.is_empty() && plan.by_hand.is_empty() {
        writeln!(out, "\nNothing to change: no measurement calls for it.").ok();
    }
    if !plan.by_hand.is_empty() {
        writeln!(out, "\n`tune apply` cannot change the limiting setting; to change it by hand:")
            .ok();
    }
    for line in &plan.by_hand {
        wrapped(&mut out, "  ", line).ok();
    }
    if !plan.remarks.is_empty() {
        writeln!(out).ok();
    }
    for remark in &plan.remarks {
        wrapped(&mut out, "Kept     ", remark).ok();
    }
    out
}

/// A verdict and the changes that it recommends.
pub(super) fn changes(plan: &Plan, results: &Results) -> String {
    let mut out = String::new();
    if let Some(verdict) = &results.verdict {
        wrapped(&mut out, "Verdict  ", &verdict.summary).ok();
    }
    for change in &plan.changes {
        planned(&mut out, change, results).ok();
    }
    out
}

fn head(out: &mut String, plan: &Plan, results: &Results) -> std::fmt::Result {
    let far = results.far().map_or(results.path.target.as_str(), |far| far.name.as_str());
    let near = results.near().name.as_str();
    let (from, to) = if plan.is_reverse { (far, near) } else { (near, far) };
    write!(out, "{}", crate::tables::labelled("Path     ", &format!("{from} -> {to}")))?;
    let mut figures = Vec::new();
    figures.extend(plan.rtt_s.map(|rtt_s| format!("RTT {}", show_seconds(rtt_s))));
    figures
        .extend(plan.measured_bits_per_s.map(|rate| format!("one stream {}", show_bit_rate(rate))));
    if let Some(target) = plan.target_bits_per_s {
        let source = plan.target_source.as_deref().unwrap_or("measured");
        figures.push(format!("should carry {} ({source})", show_bit_rate(target)));
    }
    figures.extend(
        plan.bandwidth_delay_product_bytes
            .map(|bytes| format!("BDP of that {}", show_byte_size(bytes))),
    );
    wrapped(out, "         ", &figures.join("; "))?;
    if let Some(verdict) = &results.verdict {
        wrapped(out, "Verdict  ", &verdict.summary)?;
    }
    Ok(())
}

fn planned(out: &mut String, change: &PlannedChange, results: &Results) -> std::fmt::Result {
    let host = match change.end {
        End::Near => results.near().name.as_str(),
        End::Far => results.far().map_or("far", |far| far.name.as_str()),
    };
    let from = change.from.as_deref().unwrap_or("?");
    writeln!(out, "\n{} end ({host})", end_name(change.end))?;
    writeln!(out, "  {}: {from} -> {}", change.key, change.to)?;
    wrapped(out, "  why     ", &change.why)?;
    wrapped(out, "  effect  ", &change.effect)?;
    let risk = match change.risk {
        Risk::Low => "low",
        Risk::Medium => "medium",
        Risk::High => "high, made only when named with --only",
    };
    wrapped(out, "  risk    ", &format!("{risk}; {}", change.danger))?;
    wrapped(out, "  source  ", &change.source)?;
    writeln!(out, "  command {}", change.command())
}

/// The outcome of a requested change, on one line.
pub(super) fn outcome(end: End, outcome: &Outcome) -> String {
    let Outcome { key, from, to, result } = outcome;
    let from = from.as_deref().unwrap_or("?");
    let (end, key) = (end_name(end), short_file(key, from, to));
    match result {
        ChangeResult::Applied { now } if now == to => format!("{end}  {key}  done"),
        ChangeResult::Applied { now } => format!("{end}  {key}  done; the kernel set it to {now}"),
        ChangeResult::Unchanged => format!("{end}  {key}  has that value already"),
        ChangeResult::Failed { reason, .. } => format!("{end}  FAILED: {reason}"),
        ChangeResult::RolledBack => format!("{end}  {key}  reverted"),
        ChangeResult::NotTried => format!("{end}  {key}  not tried"),
    }
}

/// The changes that were in force before, one per line.
pub(super) fn in_force(changes: &[&PlannedChange]) -> String {
    let line = |one: &&PlannedChange| {
        format!("{}  {}: {}  {IN_FORCE_BEFORE}\n", end_name(one.end), one.key, one.to)
    };
    changes.iter().map(line).collect()
}

/// `KEY: FROM -> TO`; for a file, only what happens to it.
fn short_file(key: &Key, from: &str, to: &str) -> String {
    if !is_file(key) {
        return format!("{key}: {from} -> {to}");
    }
    let what = if from == "-" { "written" } else { "replaced" };
    format!("{key} ({what})")
}

fn is_file(key: &Key) -> bool {
    matches!(key, Key::File(_))
}

/// The commands that revert the changes, one per line and ready to paste: for this host, and the far one.
pub(super) fn undo(near: bool, far: Option<&Target>, state: &StateOptions) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    if near {
        let place = |flag: &str, path: &Option<PathBuf>| {
            let path = path.as_ref().map(|path| quoted(&path.display().to_string()));
            path.map_or_else(String::new, |path| format!(" {flag} {path}"))
        };
        let (root, state) = (place("--root", &state.root), place("--state", &state.state));
        writeln!(out, "Undo     clearstream tune revert{state}{root}").ok();
    }
    if let Some(far) = far {
        writeln!(out, "Undo     clearstream tune revert --far {}", words(far)).ok();
    }
    out
}

/// A far host as arguments of a command: its name, its port and family where they were given.
pub(super) fn words(Target { host, port, family }: &Target) -> String {
    let family = match family {
        Some(Family::V4) => " -4",
        Some(Family::V6) => " -6",
        None => "",
    };
    let is_usual = *port == traffic::server::DEFAULT_PORT;
    let port = if is_usual { String::new() } else { format!(" -p {port}") };
    format!("{}{port}{family}", quoted(host))
}

/// Quotes a word for a shell command.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A reverted change, on one line.
pub(super) fn reverted(outcome: &RevertOutcome) -> String {
    let RevertOutcome { key, from, result } = outcome;
    let is_file = is_file(key);
    let from = if is_file { "as it was" } else { from.as_str() };
    match result {
        Reverted::Restored { .. } if is_file => format!("{key}: {from}"),
        Reverted::Restored { was } => format!("{key}: {was} -> {from}"),
        Reverted::AlreadyBack => format!("{key}: {from} already"),
        Reverted::Foreign { now } => format!(
            "{key}: changed to {} by something else since; left unchanged (--force restores \
             {from})",
            now.lines().next().unwrap_or_default()
        ),
        Reverted::Rebooted { now } => {
            format!("{key}: a reboot has reset it to {now}; nothing to revert")
        }
        Reverted::Absent { reason } => format!("{key}: {reason}; nothing to undo"),
        Reverted::Failed { reason, .. } => format!("FAILED: {reason}"),
    }
}

/// A change in the journal, on one line.
pub(super) fn standing(line: &StatusLine) -> String {
    let StatusLine { key, from, to, now, standing, owner, .. } = line;
    let now = now.as_deref().unwrap_or("?");
    let text = short_file(key, from, to);
    let how = match standing {
        Standing::InForce if now == to || is_file(key) => format!("{text}  in force"),
        Standing::InForce => format!("{text}  in force (the kernel set it to {now})"),
        Standing::Back => format!("{text}  back at its former value"),
        Standing::Foreign => format!("{text}  changed to {now} by something else since"),
        Standing::Unfinished => {
            format!("{text}  interrupted (now {now}); `clearstream tune revert` completes it")
        }
        Standing::Absent => format!("{text}  absent"),
    };
    match owner {
        Owner::Host => how,
        Owner::Remote(address) => format!("{how}, for a client from {address}"),
    }
}
