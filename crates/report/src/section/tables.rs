//! Every summary, every point, every command.

use results::{Point, PointOutcome, TestLimit};

use super::{Section, command};
use crate::digest::Digest;
use crate::markup::{Element, el};
use crate::show::{self, DASH, Quantity};
use crate::table::Table;

/// Distinct commands listed at most.
const COMMANDS_MAX: usize = 200;

/// Summaries and points, folded.
pub(crate) fn section(digest: &Digest<'_>) -> Option<Section> {
    Section::new("tables", "Tables", [summaries(digest), points(digest)].into_iter().flatten())
}

fn summaries(digest: &Digest<'_>) -> Option<Element> {
    let head = ["experiment", "setting", "figure", "median", "interval", "what interval", "n"];
    let mut table = Table::new("Summaries: repeats taken together", 3, &head);
    for summary in &digest.results.summaries {
        let quantity = Quantity::of(&summary.figure);
        table.row([
            summary.experiment.clone(),
            show::setting(&summary.varied),
            show::words(&summary.figure),
            quantity.show(summary.estimate.median),
            show::interval(&summary.estimate, quantity),
            show::interval_kind(&summary.estimate),
            summary.estimate.count.to_string(),
        ]);
    }
    let line = format!("{} summaries", digest.results.summaries.len());
    (!table.is_empty()).then(|| table.into_details(&line))
}

fn points(digest: &Digest<'_>) -> Option<Element> {
    let head = [
        "experiment",
        "setting",
        "test",
        "repeat",
        "began",
        "measured for",
        "forward",
        "reverse",
        "retransmits",
        "lost",
        "transactions",
        "RTT p50",
        "RTT p99",
    ];
    let mut table = Table::new("Points: every single run", 3, &head);
    for point in &digest.results.points {
        table.row(point_cells(point));
    }
    let failed = digest
        .results
        .points
        .iter()
        .filter(|point| matches!(point.outcome, PointOutcome::Failed(_)))
        .count();
    let mut line = format!("{} single runs", digest.results.points.len());
    if failed > 0 {
        line.push_str(&format!(", {failed} failed"));
    }
    (!table.is_empty()).then(|| table.into_details(&line))
}

fn point_cells(point: &Point) -> Vec<String> {
    let mut cells = vec![
        point.experiment.clone(),
        show::setting(&point.varied),
        asked(point),
        point.repeat.to_string(),
        show::moment(point.started_unix_ms),
    ];
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| DASH.to_owned());
    match &point.outcome {
        PointOutcome::Failed(why) => cells.push(format!("failed: {why}")),
        PointOutcome::RoundTrips(summary) => {
            cells.extend(std::iter::repeat_n(DASH.to_owned(), 6));
            cells.push(or_dash(summary.percentile_s(50.0).map(show::seconds)));
            cells.push(or_dash(summary.percentile_s(99.0).map(show::seconds)));
        }
        PointOutcome::Measured(outcome) => {
            let rate = |direction| {
                super::super::digest::direction_of(outcome, direction)
                    .map(|one| show::rate(one.received_bits_per_s))
            };
            let sum = |read: fn(&results::DirectionOutcome) -> Option<u64>| {
                let told = outcome.directions.iter().filter_map(read);
                told.reduce(u64::saturating_add).map(|count| count.to_string())
            };
            let latency = outcome
                .latency_under_load
                .as_ref()
                .or(outcome.request_response.as_ref().map(|answered| &answered.latency));
            let percentile = |wanted| {
                latency.and_then(|summary| summary.percentile_s(wanted)).map(show::seconds)
            };
            cells.push(show::seconds(outcome.duration_s));
            cells.extend(
                [
                    rate(results::Direction::Forward),
                    rate(results::Direction::Reverse),
                    sum(|one| one.retransmits_count),
                    sum(|one| one.udp.as_ref().map(|udp| udp.lost_count)),
                    outcome
                        .request_response
                        .as_ref()
                        .map(|answered| format!("{}/s", show::count(answered.transactions_per_s))),
                    percentile(50.0),
                    percentile(99.0),
                ]
                .map(or_dash),
            );
        }
    }
    cells
}

/// The test in few words: `TCP, both, 8 streams, 10 s`.
fn asked(point: &Point) -> String {
    let spec = &point.spec;
    let mut words = vec![show::protocol(spec.protocol).to_owned()];
    if spec.request_response.is_some() {
        words.push("request/response".to_owned());
    } else {
        words.push(show::direction(spec.direction).to_owned());
    }
    let streams =
        if spec.streams == 1 { "1 stream".to_owned() } else { format!("{} streams", spec.streams) };
    words.push(streams);
    words.push(match spec.limit {
        TestLimit::DurationS(seconds) => show::seconds(seconds),
        TestLimit::TotalBytes(bytes) => show::size(bytes as f64),
        TestLimit::TotalBlocks(blocks) => format!("{} blocks", show::count(blocks as f64)),
    });
    if let Some(window) = spec.window_bytes {
        words.push(format!("window {}", show::size(window as f64)));
    }
    words.join(", ")
}

/// The command of the run and of every distinct test.
pub(crate) fn commands_section(digest: &Digest<'_>) -> Option<Section> {
    let run = show::shell_line(&digest.results.command);
    let whole = (!run.trim().is_empty()).then(|| el("p").child(command(&run)));
    let mut distinct: Vec<&str> = Vec::new();
    let mut known = std::collections::BTreeSet::new();
    for point in &digest.results.points {
        let line = point.command.trim();
        if !line.is_empty() && known.insert(line) && distinct.len() < COMMANDS_MAX {
            distinct.push(line);
        }
    }
    let each = (!distinct.is_empty()).then(|| {
        el("details")
            .child(
                el("summary")
                    .text(format!("{} single tests, each by its own command", distinct.len())),
            )
            .child(
                el("ul")
                    .class("commands")
                    .children(distinct.iter().map(|line| el("li").child(command(line)))),
            )
    });
    Section::new("commands", "Commands", [whole, each].into_iter().flatten())
}
