//! A paper's figures beside ours.

use results::Reproduction;

use super::Section;
use super::verdict::law_badge;
use crate::digest::Digest;
use crate::markup::{Element, el};
use crate::show::{self, DASH};
use crate::table::Table;

/// The section of a reproduced experiment.
pub(crate) fn section(digest: &Digest<'_>) -> Option<Section> {
    let reproduction = digest.results.reproduction.as_ref()?;
    let mut table = Table::new("The paper's figures and ours", 3, &["figure", "the paper", "here"]);
    for figure in &reproduction.figures {
        let here = figure.here.clone().unwrap_or_else(|| format!("{DASH} not measured"));
        table.row([figure.name.clone(), figure.paper.clone(), here]);
    }
    let figures = (!table.is_empty()).then(|| table.into_element());
    // Without a verdict the law leads the page already.
    let is_led = digest.results.verdict.is_none();
    let told = (!is_led).then(|| [intro(reproduction), law(reproduction)]);
    Section::new("reproduction", "Beside the paper", told.into_iter().flatten().chain(figures))
}

fn intro(reproduction: &Reproduction) -> Element {
    el("p")
        .class("lead")
        .child(el("strong").text(&reproduction.id))
        .text(" ")
        .text(&reproduction.title)
        .text(" ")
        .child(el("small").text(&reproduction.source))
}

fn law(reproduction: &Reproduction) -> Element {
    let law = &reproduction.law;
    el("div").class("law").child(law_badge(law.holds)).child(
        el("p")
            .child(el("strong").text(show::sentence(&law.law)))
            .text(". ")
            .text(show::sentence(&law.judged)),
    )
}
