//! The results themselves, inside the page.

use results::{PointOutcome, Results, TestOutcome};

use super::Section;
use crate::markup::{Element, el};
use crate::show;

/// The embedded document and how to get it out. `bytes_max` bounds it: a longer document loses the
/// samples of its intervals, and stays out altogether when that is not enough.
pub(crate) fn section(results: &Results, bytes_max: usize) -> Option<Section> {
    let (json, note) = embedded(results, bytes_max);
    let script = json.map(|json| {
        el("script").attr("type", "application/json").attr("id", "results").script_json(&json)
    });
    let download = script.is_some().then(|| el("p").attr("id", "download"));
    Section::new("data", "Data", [Some(el("p").text(note)), download, script].into_iter().flatten())
}

fn embedded(results: &Results, bytes_max: usize) -> (Option<String>, String) {
    if let Some(json) = json_within(results, bytes_max) {
        let size = show::size(json.len() as f64);
        let note = format!(
            "This page holds its own results ({size} of JSON, in the element with the id results)."
        );
        return (Some(json), note);
    }
    match json_within(&without_intervals(results), bytes_max) {
        Some(json) => {
            let note = "This page holds its results without the samples over time, which would make it too long; \
                        they are in the results file.";
            (Some(json), note.to_owned())
        }
        None => (
            None,
            "The results are too long for this page; they are in the results file.".to_owned(),
        ),
    }
}

fn json_within(results: &Results, bytes_max: usize) -> Option<String> {
    // Serializing a document of plain data fails only for maps whose keys are no strings.
    serde_json::to_string(results).ok().filter(|json| json.len() <= bytes_max)
}

fn without_intervals(results: &Results) -> Results {
    let mut thin = results.clone();
    let thin_test = |outcome: &mut TestOutcome| {
        let streams = outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams);
        streams.for_each(|stream| stream.intervals.clear());
    };
    for point in &mut thin.points {
        if let PointOutcome::Measured(outcome) = &mut point.outcome {
            thin_test(outcome);
        }
    }
    thin
}

/// Kept apart so that the page's body ends with it.
pub(crate) fn script(source: &'static str) -> Element {
    el("script").own_source(source)
}
