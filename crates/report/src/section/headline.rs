//! The headline numbers: each with its interval and its count.

use results::{Direction, Estimate, LatencySummary, Protocol};

use super::Section;
use crate::chart::bars;
use crate::digest::{Digest, Group, direction_of};
use crate::markup::{Element, el};
use crate::show::{self, DASH, Quantity};
use crate::table::headline as table;

/// Throughput and round trips.
pub(crate) fn section(digest: &Digest<'_>) -> Option<Section> {
    let parts = [goodput(digest), round_trips(digest), request_response(digest)];
    Section::new("figures", "The figures", parts.into_iter().flatten())
}

struct Row {
    label: String,
    estimate: Estimate,
    class: &'static str,
    beside: String,
}

fn goodput(digest: &Digest<'_>) -> Option<Element> {
    let rows: Vec<Row> = digest.groups.iter().flat_map(|group| group_rows(digest, group)).collect();
    if rows.is_empty() {
        return None;
    }
    let high = rows.iter().map(|row| show::finite(row.estimate.high)).fold(0.0, f64::max);
    let body = rows.iter().map(|row| {
        let bar = bars::interval(&row.estimate, high, row.class);
        let svg = el("svg")
            .class("interval")
            .attr("viewBox", format!("0 0 {} {}", bar.width, bar.height))
            .attr("aria-hidden", "true")
            .child(bar.art);
        el("tr")
            .child(el("th").attr("scope", "row").class("w").text(&row.label))
            .child(el("td").class("f big").text(show::rate(row.estimate.median)))
            .child(el("td").class("plot").child(svg))
            .child(interval_cell(&row.estimate, Quantity::Rate))
            .child(el("td").class("w beside").text(&row.beside))
    });
    Some(table("Goodput at the receiver", &["test", "median", "", "interval", "also"], body))
}

fn group_rows(digest: &Digest<'_>, group: &Group<'_>) -> Vec<Row> {
    let directions = group.directions();
    let mut rows: Vec<Row> = directions
        .iter()
        .filter_map(|direction| {
            let estimate = group.rate(*direction)?;
            let label = if directions.len() > 1 {
                format!("{}: {}", group.label, digest.way(*direction))
            } else {
                group.label.clone()
            };
            let class = if *direction == Direction::Reverse { "reverse" } else { "forward" };
            Some(Row { label, estimate, class, beside: beside(group, *direction) })
        })
        .collect();
    if directions.len() > 1 {
        let sum = group.estimate(|outcome| Some(crate::digest::total_rate(outcome)));
        let label = format!("{}: together", group.label);
        rows.extend(sum.map(|estimate| Row {
            label,
            estimate,
            class: "both",
            beside: String::new(),
        }));
    }
    rows
}

/// What a reader must know beside the figure: retransmissions or loss.
fn beside(group: &Group<'_>, direction: Direction) -> String {
    if group.spec.protocol == Protocol::Udp {
        let lost =
            group.estimate(|outcome| direction_of(outcome, direction)?.udp.as_ref()?.lost_share());
        let sent =
            group.estimate(|outcome| Some(direction_of(outcome, direction)?.sent_bits_per_s));
        let sent =
            sent.map_or_else(String::new, |sent| format!(" of {} sent", show::rate(sent.median)));
        return lost.map_or_else(String::new, |lost| {
            format!("{} lost{sent}", units::show_share(lost.median))
        });
    }
    let resent =
        group.estimate(|outcome| Some(direction_of(outcome, direction)?.retransmits_count? as f64));
    resent.map_or_else(String::new, |resent| match resent.median {
        0.0 => "no retransmissions".to_owned(),
        // The middle between two counts.
        many if many < 10.0 && many.fract() != 0.0 => format!("{many:.1} retransmitted (median)"),
        many => format!("{} retransmitted", show::count(many)),
    })
}

fn interval_cell(estimate: &Estimate, quantity: Quantity) -> Element {
    el("td")
        .class("w")
        .text(show::interval(estimate, quantity))
        .text(" ")
        .child(el("small").text(format!("n {}, {}", estimate.count, show::interval_kind(estimate))))
}

fn round_trips(digest: &Digest<'_>) -> Option<Element> {
    let mut rows: Vec<Element> = Vec::new();
    rows.extend(digest.idle_rtt().map(|summary| round_trip_row("Idle path", &[summary])));
    for group in &digest.groups {
        let under_load: Vec<&LatencySummary> = group
            .outcomes
            .iter()
            .filter_map(|outcome| outcome.latency_under_load.as_ref())
            .collect();
        if !under_load.is_empty() {
            rows.push(round_trip_row(
                &format!("Under load: {}", show::continued(&group.label)),
                &under_load,
            ));
        }
        let answered: Vec<&LatencySummary> = group
            .outcomes
            .iter()
            .filter_map(|outcome| Some(&outcome.request_response.as_ref()?.latency))
            .collect();
        if !answered.is_empty() {
            rows.push(round_trip_row(&group.label, &answered));
        }
    }
    if rows.is_empty() {
        return None;
    }
    Some(table("Round-trip time", &["when", "p50", "p99", "p99.9", "highest", "round trips"], rows))
}

fn round_trip_row(label: &str, summaries: &[&LatencySummary]) -> Element {
    let over_repeats = |read: &dyn Fn(&LatencySummary) -> Option<f64>| {
        Estimate::of(&summaries.iter().filter_map(|summary| read(summary)).collect::<Vec<_>>())
    };
    let cell = |estimate: Option<Estimate>, class: &str| {
        let text = estimate.map_or_else(|| DASH.to_owned(), |found| show::seconds(found.median));
        let spread = estimate
            .filter(|found| found.count > 1)
            .map(|found| el("small").text(format!(" {}", show::interval(&found, Quantity::Time))));
        el("td").class(class).text(text).text(" ").maybe(spread)
    };
    let percentile =
        |wanted: f64| over_repeats(&move |summary: &LatencySummary| summary.percentile_s(wanted));
    let count = summaries.iter().fold(0_u64, |sum, summary| sum.saturating_add(summary.count));
    let method = summaries.first().map(|summary| show::method(&summary.method));
    let method = method.unwrap_or_default();
    let runs = if summaries.len() > 1 { format!(", n {}", summaries.len()) } else { String::new() };
    el("tr")
        .child(el("th").attr("scope", "row").class("w").text(label))
        .child(cell(percentile(50.0), "f big"))
        .child(cell(percentile(99.0), "f"))
        .child(cell(percentile(99.9), "f"))
        .child(cell(over_repeats(&|summary: &LatencySummary| Some(summary.max_s)), "f"))
        .child(
            el("td")
                .class("f")
                .text(show::count(count as f64))
                .child(el("small").text(format!(" {}{runs}", show::clip(&method, 24)))),
        )
}

fn request_response(digest: &Digest<'_>) -> Option<Element> {
    let rows: Vec<Element> = digest
        .groups
        .iter()
        .filter_map(|group| {
            let rate = group
                .estimate(|outcome| Some(outcome.request_response.as_ref()?.transactions_per_s))?;
            Some(
                el("tr")
                    .child(el("th").attr("scope", "row").class("w").text(&group.label))
                    .child(el("td").class("f big").text(format!("{}/s", show::count(rate.median))))
                    .child(interval_cell(&rate, Quantity::Plain)),
            )
        })
        .collect();
    (!rows.is_empty()).then(|| table("Transactions", &["test", "median", "interval"], rows))
}
