//! The result of a sweep as a screenful of text.

use std::fmt::Write;

use results::{Direction, End, Estimate, PlacementFindings, Results};
use units::{show_bit_rate, show_seconds};

use super::{advice, heat};
use crate::placement::shares_machine;

/// The whole text.
pub(super) fn show(results: &Results) -> String {
    let mut out = String::new();
    if let Some(found) = &results.placement {
        // Writing to a String cannot fail.
        body(&mut out, results, found).ok();
    }
    out
}

fn body(out: &mut String, results: &Results, found: &PlacementFindings) -> std::fmt::Result {
    head(out, results, found)?;
    heat::map(out, results, found)?;
    if let Some(unpinned) = &found.unpinned {
        writeln!(out, "         {:<9}            {}", "unpinned", figure(found, unpinned))?;
    }
    relations(out, found)?;
    let so_far = if results.partial.is_some() { "so far: " } else { "" };
    writeln!(out, "\nBest     {so_far}{}", advice::verdict(found))?;
    if !found.ties.is_empty() {
        let tie = |pair: &results::PlacedPair| {
            format!("near core {}, far core {}", pair.near_core, pair.far_core)
        };
        let ties: Vec<String> = found.ties.iter().take(6).map(tie).collect();
        writeln!(out, "         not distinguishable from it: {}", ties.join("; "))?;
    }
    for (number, line) in found.advice.iter().enumerate() {
        writeln!(out, "{:<8} {line}", if number == 0 { "Advice" } else { "" })?;
    }
    for change in &results.changes {
        let end = if change.end == End::Near { "near" } else { "far" };
        writeln!(out, "Moved    {end} {}: {} -> {}, and back", change.key, change.from, change.to)?;
    }
    for absent in &results.absent {
        writeln!(out, "Unseen   {}: {}", absent.what, absent.why)?;
    }
    Ok(())
}

fn head(out: &mut String, results: &Results, found: &PlacementFindings) -> std::fmt::Result {
    let far = results.far().unwrap_or(results.near());
    let (from, to) = match found.direction {
        Direction::Reverse => (&far.name, &results.near().name),
        _ => (&results.near().name, &far.name),
    };
    let peer = results.path.peer.as_deref().unwrap_or("?");
    let address = results.path.address.as_deref().unwrap_or("?");
    writeln!(out, "Place    {from} -> {to} ({address}, {peer})")?;
    let same = if shares_machine(results) { "; both ends share these cores" } else { "" };
    writeln!(
        out,
        "         {} near and {} far cores{same}; {} of {} pairs measured",
        results.near().usable_cores.len(),
        far.usable_cores.len(),
        found.measured_pairs_count,
        found.pairs_count
    )?;
    let queue = |name: &str, core: Option<u32>| match core {
        Some(core) => format!("core {core} at {name}"),
        None => format!("no fixed core at {name}"),
    };
    writeln!(
        out,
        "Queue    the flow's packets come in on {}, {}",
        queue(&results.near().name, found.near_incoming_core),
        queue(&far.name, found.far_incoming_core)
    )?;
    if let Some(lab) = &results.path.lab {
        writeln!(out, "         emulated: lab {lab}")?;
    }
    Ok(())
}

/// Compares cores by their distance from the interrupt's core, at both ends, as the Open-MX paper does.
fn relations(out: &mut String, found: &PlacementFindings) -> std::fmt::Result {
    if found.relations.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nThread   distance from its queue's core, with the other end on its best core"
    )?;
    for one in &found.relations {
        let end = if one.end == End::Near { "near" } else { "far" };
        writeln!(
            out,
            "         {end:<4} {:<3} {:<30} {}  core {}",
            one.proximity.abbreviation(),
            one.proximity.words(),
            figure(found, &one.estimate),
            one.core
        )?;
    }
    Ok(())
}

fn figure(found: &PlacementFindings, estimate: &Estimate) -> String {
    let show =
        |value| if found.more_is_better { show_bit_rate(value) } else { show_seconds(value) };
    let interval = estimate
        .interval()
        .map_or_else(String::new, |(low, high)| format!("{} .. {}  ", show(low), show(high)));
    format!("{:>11}  {interval}n={}", show(estimate.median), estimate.count)
}
