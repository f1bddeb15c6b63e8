//! What tuning changed, and what each change gave: without, predicted, with.

use results::{AppliedChange, Confirmation, End};

use super::{Section, prose};
use crate::chart::bars;
use crate::digest::Digest;
use crate::markup::{Element, el};
use crate::show::{self, DASH};
use crate::table::Table;

/// Changes drawn; the table lists them all.
const DRAWN_MAX: usize = 12;

/// The section of measured changes.
pub(crate) fn section(digest: &Digest<'_>) -> Option<Section> {
    let changes = &digest.results.changes;
    let measured: Vec<&AppliedChange> =
        changes.iter().filter(|change| change.before.is_some() && change.after.is_some()).collect();
    let drawn = measured.iter().take(DRAWN_MAX).enumerate();
    let figures: Vec<Element> =
        drawn.filter_map(|(index, change)| figure(digest, index, change)).collect();
    let pairs = (!figures.is_empty()).then(|| el("div").class("pairs").children(figures));
    let table = (!measured.is_empty()).then(|| table(digest, &measured).into_element());
    Section::new("before-after", "Before and after", pairs.into_iter().chain(table))
}

fn figure(digest: &Digest<'_>, index: usize, change: &AppliedChange) -> Option<Element> {
    let (before, after) = (change.before?, change.after?);
    let outcome = change.outcome.clone().unwrap_or_default();
    let told = Confirmation {
        change: format!("{}: {} -> {}", change.key, change.from, change.to),
        predicted_bits_per_s: change.predicted_bits_per_s.unwrap_or(f64::NAN),
        before_bits_per_s: before.median,
        after_bits_per_s: after.median,
        outcome: outcome.clone(),
        ..Confirmation::default()
    };
    let id = format!("change-{index}");
    let says = format!(
        "{}: without {}, predicted {}, with {}.",
        change.key,
        show::rate(told.before_bits_per_s),
        show::rate(told.predicted_bits_per_s),
        show::rate(told.after_bits_per_s),
    );
    let heading = format!("{} on {}", show::clip(&change.key, 60), host(digest, change.end));
    let why = change.why.as_deref().map(|why| prose("p", &show::clip(why, 400)));
    Some(
        el("figure")
            .attr("id", &id)
            .child(
                el("figcaption")
                    .child(el("h3").attr("id", format!("{id}-title")).text(heading))
                    .maybe(why)
                    .child(el("p").class("hidden").attr("id", format!("{id}-desc")).text(says)),
            )
            .child(bars::experiment(&told).into_svg(&id, "chart"))
            .child(el("p").text(show::clip(&outcome, 400))),
    )
}

fn table(digest: &Digest<'_>, changes: &[&AppliedChange]) -> Table {
    let head = ["setting", "host", "from", "to", "without", "predicted", "with", "turns", "kept"];
    let mut table = Table::new("Each change, measured with and without in turns", 4, &head);
    for change in changes {
        let rate = |value: Option<f64>| value.map_or_else(|| DASH.to_owned(), show::rate);
        let turns = change.after.map_or_else(|| DASH.to_owned(), |one| one.count.to_string());
        let kept = match change.is_kept {
            Some(true) => "yes",
            Some(false) => "no",
            None => DASH,
        };
        table.row([
            show::clip(&change.key, 80),
            host(digest, change.end),
            show::clip(&change.from, 60),
            show::clip(&change.to, 60),
            rate(change.before.map(|one| one.median)),
            rate(change.predicted_bits_per_s),
            rate(change.after.map(|one| one.median)),
            turns,
            kept.to_owned(),
        ]);
    }
    table
}

fn host(digest: &Digest<'_>, end: End) -> String {
    match end {
        End::Near => digest.near_name.clone(),
        End::Far => digest.far_name.clone(),
    }
}
