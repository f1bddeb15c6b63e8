//! The charts: chain, time, sweeps, latency, cores, lost datagrams.

use super::Section;
use crate::chart::{bars, chain, percentile, sweep, time};
use crate::digest::chain::Chain;
use crate::digest::series::TestSeries;
use crate::digest::{Digest, direction_of};
use crate::markup::{Element, el};

/// Distributions one percentile chart can show apart.
const CURVES_MAX: usize = 6;

/// Tests whose cores are shown unasked.
const CORES_SHOWN_COUNT: usize = 2;

/// The path drawn as a chain.
pub(crate) fn chain_section(digest: &Digest<'_>) -> Option<Section> {
    let chain = Chain::of(digest);
    Section::new("chain-of-places", "The path", [chain::figure(digest, &chain).into_element()])
}

/// Throughput over time: the main test open, the others folded.
pub(crate) fn time_section(digest: &Digest<'_>) -> Option<Section> {
    let figures: Vec<Element> = digest
        .groups
        .iter()
        .enumerate()
        .filter_map(|(index, group)| {
            let outcome = group.typical()?;
            let series = TestSeries::of(outcome, |direction| digest.way(direction));
            let figure = time::figure(format!("time-{index}"), group.label.clone(), &series)?;
            Some((group.label.as_str(), figure.into_element()))
        })
        .enumerate()
        .map(|(place, (label, figure))| if place == 0 { figure } else { folded(label, figure) })
        .collect();
    Section::new("time", "Over time", figures)
}

fn folded(label: &str, figure: Element) -> Element {
    el("details").class("fold").child(el("summary").text(label)).child(figure)
}

/// Every sweep.
pub(crate) fn sweep_section(digest: &Digest<'_>) -> Option<Section> {
    let figures = digest.sweeps.iter().enumerate().map(|(index, one)| {
        sweep::figure(format!("sweep-{index}"), one, digest.idle_rtt_s()).into_element()
    });
    let is_window = digest.sweeps.iter().all(super::super::digest::sweep::Sweep::is_window);
    Section::new("sweeps", if is_window { "Window sweep" } else { "Sweeps" }, figures)
}

/// Latency, idle and under load.
pub(crate) fn latency_section(digest: &Digest<'_>) -> Option<Section> {
    let mut curves: Vec<percentile::Curve<'_>> = Vec::new();
    curves.extend(
        digest
            .idle_rtt()
            .map(|summary| percentile::Curve { label: "Idle path".to_owned(), summary }),
    );
    for group in &digest.groups {
        let Some(outcome) = group.typical() else { continue };
        if let Some(summary) = &outcome.latency_under_load {
            curves.push(percentile::Curve {
                label: format!("Under load: {}", crate::show::continued(&group.label)),
                summary,
            });
        }
        if let Some(answered) = &outcome.request_response {
            curves
                .push(percentile::Curve { label: group.label.clone(), summary: &answered.latency });
        }
    }
    curves.truncate(CURVES_MAX);
    Section::new(
        "latency",
        "Latency",
        percentile::figure("percentiles", &curves).map(|one| one.into_element()),
    )
}

/// Cores of both ends, a figure a test.
pub(crate) fn cores_section(digest: &Digest<'_>) -> Option<Section> {
    let mut figures: Vec<Element> = digest
        .groups
        .iter()
        .enumerate()
        .filter_map(|(index, group)| {
            let outcome = group.typical()?;
            let mut ends = vec![(digest.near_name.as_str(), outcome.near().cores.as_slice())];
            ends.extend(outcome.far().map(|far| (digest.far_name.as_str(), far.cores.as_slice())));
            bars::cores(format!("cores-{index}"), group.label.clone(), &ends)
        })
        .map(|figure| figure.into_element())
        .collect();
    let others = figures.split_off(figures.len().min(CORES_SHOWN_COUNT));
    let count = others.len();
    let others = paired(others).map(|others| {
        let line = format!("Cores in {count} other {}", if count == 1 { "test" } else { "tests" });
        el("details").child(el("summary").text(line)).child(others)
    });
    Section::new("cores", "Cores", [paired(figures), others].into_iter().flatten())
}

/// Lost datagrams, a figure a UDP test and direction.
pub(crate) fn loss_section(digest: &Digest<'_>) -> Option<Section> {
    let mut figures = Vec::new();
    for (index, group) in digest.groups.iter().enumerate() {
        let Some(outcome) = group.typical() else { continue };
        for direction in group.directions() {
            let Some(udp) = direction_of(outcome, direction).and_then(|one| one.udp.as_ref())
            else {
                continue;
            };
            let id = format!("loss-{index}-{}", crate::show::direction(direction));
            let title = if group.directions().len() > 1 {
                format!("{}: {}", group.label, digest.way(direction))
            } else {
                group.label.clone()
            };
            figures.push(bars::loss(id, title, udp).into_element());
        }
    }
    Section::new("loss", "Lost datagrams", paired(figures))
}

/// Figures side by side where there is room.
fn paired(figures: Vec<Element>) -> Option<Element> {
    (!figures.is_empty()).then(|| el("div").class("pairs").children(figures))
}
