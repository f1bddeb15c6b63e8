//! Every summary, every point, every command.

use results::{Figure, Point, PointOutcome, Protocol, TestLimit, TestSpec, Work};
use units::{count_of, noun};

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
    let head = ["experiment", "setting", "figure", "median", "interval", "kind of interval", "n"];
    let mut table = Table::new("Summaries: repeats taken together", 3, &head);
    for summary in &digest.results.summaries {
        let quantity = Quantity::of(&summary.figure);
        table.row([
            show::name(&summary.experiment),
            show::setting(&summary.varied),
            compare::figure_words(&summary.figure),
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
    let points = &digest.results.points;
    let has_other_work = points.iter().any(|point| point.spec().is_none());
    let mut table = Table::new("Points: every single run", 3, &head);
    if has_other_work {
        table.column("figures".to_owned());
    }
    for point in points {
        let mut cells = point_cells(point);
        if has_other_work {
            cells.resize(head.len(), String::new());
            cells.push(other_figures(point));
        }
        table.row(cells);
    }
    let failed = digest
        .results
        .points
        .iter()
        .filter(|point| matches!(point.outcome, PointOutcome::Failed(_)))
        .count();
    let mut line = count_of(digest.results.points.len() as u64, "single run");
    if failed > 0 {
        line.push_str(&format!(", {failed} failed"));
    }
    (!table.is_empty()).then(|| table.into_details(&line))
}

fn point_cells(point: &Point) -> Vec<String> {
    let mut cells = vec![
        show::name(&point.experiment),
        show::setting(&point.varied),
        asked(point),
        point.repeat.to_string(),
        show::moment(point.started_unix_ms),
    ];
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| DASH.to_owned());
    match &point.outcome {
        PointOutcome::Failed(why) => cells.push(format!("failed: {why}")),
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
                .or(outcome.request_response.as_ref().map(|answered| &answered.latency))
                .or(outcome.round_trips.as_ref());
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
    match &point.work {
        Work::Bulk(spec) | Work::RoundTrips(spec) | Work::Datagrams(spec) => asked_of_test(spec),
        Work::Frames(frames) => {
            let bytes = if frames.slots_only { "slots only" } else { "written and read" };
            let (size, through) = (frames.frame_bytes, &frames.through);
            format!("{size}-byte frames, {bytes}, through a {through}")
        }
        Work::Search(search) => {
            format!("search of {}, {}", search.model, count_of(search.ranks_count, "rank"))
        }
        Work::FileIo(io) => {
            let files = if io.has_file_per_rank { "one file per rank" } else { "one file" };
            format!(
                "{} by {}, {files}, {} a transfer",
                io.access,
                count_of(io.ranks_count, "rank"),
                count_of(io.transfer_bytes, "byte")
            )
        }
        Work::FileLocks(locks) => format!("{}: {}", locks.lock, locks.what),
        Work::FileMetadata(meta) => {
            let ranks = count_of(meta.ranks_count, "rank");
            format!("{} by {ranks}, {}", meta.phase, count_of(meta.items_count, "item"))
        }
        Work::Messages(work) => {
            let ranks = count_of(work.ranks_count, "rank");
            let size = work.message_bytes.map(|bytes| format!(", {}", count_of(bytes, "byte")));
            format!("{} by {ranks} of {}{}", work.pattern, work.by, size.unwrap_or_default())
        }
        _ => DASH.to_owned(),
    }
}

/// The figures of work that is no test between two hosts; the columns hold those of a test.
fn other_figures(point: &Point) -> String {
    if point.spec().is_some() {
        return DASH.to_owned();
    }
    let shown = |figure: Figure| {
        format!(
            "{} {}",
            compare::figure_words(&figure.name),
            Quantity::of(&figure.name).show(figure.value)
        )
    };
    point.figures().into_iter().map(shown).collect::<Vec<String>>().join(", ")
}

fn asked_of_test(spec: &TestSpec) -> String {
    let mut words = vec![show::protocol(spec.protocol).to_owned()];
    if spec.request_response.is_some() {
        words.push("request/response".to_owned());
    } else {
        words.push(show::direction(spec.direction).to_owned());
    }
    words.push(count_of(spec.streams, "stream"));
    words.push(match spec.limit {
        TestLimit::DurationS(seconds) => show::seconds(seconds),
        TestLimit::TotalBytes(bytes) => show::size(bytes as f64),
        TestLimit::TotalBlocks(blocks) => {
            let unit = if spec.protocol == Protocol::Udp { "datagram" } else { "block" };
            format!("{} {}", show::count(blocks as f64), noun(blocks, unit))
        }
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
            .child(el("summary").text(match distinct.len() {
                1 => "1 single test and its command".to_owned(),
                many => format!("{many} single tests, each by its own command"),
            }))
            .child(
                el("ul")
                    .class("commands")
                    .children(distinct.iter().map(|line| el("li").child(command(line)))),
            )
    });
    Section::new("commands", "Commands", [whole, each].into_iter().flatten())
}
