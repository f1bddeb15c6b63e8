//! Where the threads ran: heat map, bars, and what follows.

use results::{End, PlacementFindings};

use super::{Section, prose};
use crate::chart::heat_map;
use crate::digest::Digest;
use crate::digest::placement::placements;
use crate::markup::{Element, el};
use crate::show::{self, Quantity};
use crate::table::Table;

/// The section of a placement sweep, or of a reproduction that varied cores.
pub(crate) fn section(digest: &Digest<'_>) -> Option<Section> {
    let mut parts: Vec<Element> = Vec::new();
    if let Some(found) = &digest.results.placement {
        parts.push(el("p").class("lead").text(verdict(digest, found)));
        parts.extend(advice(found));
    }
    for (index, placement) in placements(&digest.results.points).iter().enumerate() {
        let names = [digest.near_name.as_str(), digest.far_name.as_str()];
        let figures = [
            heat_map::map(format!("heat-{index}"), placement),
            heat_map::bars(format!("by-core-{index}"), placement, names),
        ];
        let figures: Vec<Element> =
            figures.into_iter().flatten().map(|figure| figure.into_element()).collect();
        if !figures.is_empty() {
            parts.push(el("div").class("pairs").children(figures));
        }
    }
    parts.extend(digest.results.placement.as_ref().and_then(|found| relations(digest, found)));
    Section::new("placement", "Placement", parts)
}

fn quantity(found: &PlacementFindings) -> Quantity {
    if found.more_is_better { Quantity::Rate } else { Quantity::Time }
}

/// In one sentence: the best against none.
pub(super) fn verdict(digest: &Digest<'_>, found: &PlacementFindings) -> String {
    let show = |value| quantity(found).show(value);
    let best = &found.best;
    let place = format!(
        "{} core {}, {} core {}: {}",
        digest.near_name,
        best.near_core,
        digest.far_name,
        best.far_core,
        show(best.estimate.median)
    );
    let Some(unpinned) = &found.unpinned else {
        return format!("Best of those measured: {place}.");
    };
    let gain = found.gain.map_or_else(|| show::DASH.to_owned(), show::share);
    let chance =
        found.chance.map_or_else(|| show::DASH.to_owned(), |chance| format!("{chance:.3}"));
    if found.beats_unpinned {
        let without = show(unpinned.median);
        format!("{place}, {gain} better than {without} without pinning (p = {chance}).")
    } else {
        format!(
            "Leave it unpinned: the best placement, {place}, is not better than {} without pinning \
             beyond the noise ({gain}, p = {chance}).",
            show(unpinned.median)
        )
    }
}

fn advice(found: &PlacementFindings) -> Option<Element> {
    if found.unpinned.is_some() && !found.beats_unpinned {
        // The sentence above has said it.
        return None;
    }
    let items: Vec<Element> =
        found.advice.iter().take(20).map(|line| prose("li", &show::clip(line, 400))).collect();
    (!items.is_empty()).then(|| el("ul").class("commands").children(items))
}

fn relations(digest: &Digest<'_>, found: &PlacementFindings) -> Option<Element> {
    let heads = ["thread", "from the core of its queue", "median", "interval", "n", "core"];
    let mut table = Table::new("Distance between a thread and its queue", 2, &heads);
    for one in &found.relations {
        let name = if one.end == End::Near { &digest.near_name } else { &digest.far_name };
        table.row([
            name.clone(),
            format!("{} {}", one.proximity.abbreviation(), one.proximity.words()),
            quantity(found).show(one.estimate.median),
            show::interval(&one.estimate, quantity(found)),
            one.estimate.count.to_string(),
            one.core.to_string(),
        ]);
    }
    (!table.is_empty()).then(|| table.into_element())
}
