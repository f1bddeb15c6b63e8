//! File-system load over gateways: a figure for each phase.

use super::Section;
use crate::chart::gateways;
use crate::digest::Digest;
use crate::markup::{Element, el};

/// Phases that are drawn; all stand in the results file.
const FIGURES_MAX: usize = 16;

/// What each gateway carried in each phase.
pub(crate) fn section(digest: &Digest<'_>) -> Option<Section> {
    let joined = digest.results.points.iter().filter_map(|point| Some((point, point.crossing()?)));
    let mut figures: Vec<Element> = joined
        .enumerate()
        .map(|(index, (point, (carried, seen)))| {
            let title = format!(
                "{}, repetition {}",
                crate::show::clip(compare::phase_name(&point.experiment), 60),
                point.repeat
            );
            gateways::figure(format!("gateways-{index}"), title, carried, &seen).into_element()
        })
        .collect();
    let left_out = figures.split_off(figures.len().min(FIGURES_MAX)).len();
    let rest = (left_out > 0).then(|| {
        let line = format!("{left_out} more phases are in the results file.");
        el("p").class("note").text(line)
    });
    Section::new("gateways", "Gateways", figures.into_iter().chain(rest))
}
