//! The path, its figures and the verdict as a screenful of text.

use std::fmt::Write;

use results::{Direction, Estimate, HostFacts, Point, PointOutcome, Results, Summary};
use units::{count_of, show_bit_rate, show_byte_size, show_seconds, show_share};

use crate::verdict_text::{Detail, verdict_lines, wrapped};

/// Rows of figures: experiment, label, and the figure's name in the summaries.
const FIGURES: [(&str, &str, &str); 12] = [
    ("single-stream", "one stream", "forward_received_bits_per_s"),
    ("multi-stream", "four streams", "forward_received_bits_per_s"),
    ("reverse", "one stream, reverse", "reverse_received_bits_per_s"),
    ("single-stream", "one stream, reverse", "reverse_received_bits_per_s"),
    ("multi-stream", "four streams, reverse", "reverse_received_bits_per_s"),
    ("forward", "one stream, forward", "forward_received_bits_per_s"),
    ("bidirectional", "both ways, forward", "forward_received_bits_per_s"),
    ("bidirectional", "both ways, reverse", "reverse_received_bits_per_s"),
    ("udp", "UDP delivered", "forward_received_bits_per_s"),
    ("udp", "UDP lost", "forward_lost_share"),
    ("udp", "UDP delivered, reverse", "reverse_received_bits_per_s"),
    ("udp", "UDP lost, reverse", "reverse_lost_share"),
];

/// The whole text; `way` is the direction that is judged.
pub(super) fn show(results: &Results, way: Direction) -> String {
    let mut out = String::new();
    path(&mut out, results);
    // Writing to a String cannot fail; `ok` keeps the lines readable.
    if let Some(line) = uneven(&results.summaries, way) {
        wrapped(&mut out, "Uneven   ", &line).ok();
    }
    figures(&mut out, results).ok();
    window_sweep(&mut out, results).ok();
    if let Some(verdict) = &results.verdict {
        verdict_lines(&mut out, verdict, Detail::Brief).ok();
    }
    remarks(&mut out, results).ok();
    out
}

fn path(out: &mut String, results: &Results) {
    let facts = &results.path;
    let far_name = results.far().map_or(facts.target.as_str(), |far| far.name.as_str());
    let address = facts.address.as_deref().unwrap_or("?");
    let peer = facts.peer.as_deref().unwrap_or("unknown peer");
    let mut tell = |label: &str, text: &str| out.push_str(&crate::tables::labelled(label, text));
    let below = "         ";
    tell("Path     ", &format!("{} -> {far_name} ({address}, {peer})", results.near().name));
    tell(below, &host(results.near()));
    let unknown = || format!("far end: {peer} does not report facts about its host");
    tell(below, &results.far().map_or_else(unknown, host));
    if let Some(rtt) = &facts.idle_rtt {
        let at = |percentile| rtt.percentile_s(percentile).map(show_seconds);
        let median = at(50.0).unwrap_or_else(|| "?".to_owned());
        let tail = match at(99.0) {
            Some(tail) => format!("{tail} p99"),
            None => format!("p99: n too small ({})", rtt.count),
        };
        let mtu = facts.path_mtu_bytes.map(|mtu| format!("; path MTU {mtu}")).unwrap_or_default();
        tell(below, &format!("RTT {median} median, {tail} (idle, {}){mtu}", rtt.method));
    }
    if let Some(lab) = &facts.lab {
        tell(below, &format!("emulated: lab {lab}"));
    }
}

/// Share of the UDP test's datagrams that may be lost or in a long queue; `None` where hardly any are.
fn not_arrived(points: &[Point]) -> Option<Estimate> {
    const HARDLY_ANY: f64 = 0.001;
    let of = |point: &Point| {
        let spec = point.spec().filter(|_| point.experiment == "udp")?;
        let udp = point.measured()?.directions.first()?.udp.as_ref()?;
        let all = udp.sent_count.max(1) as f64;
        Some(udp.undecided_count(spec) as f64 / all)
    };
    let shares: Vec<f64> = points.iter().filter_map(of).collect();
    Estimate::of(&shares).filter(|estimate| estimate.median >= HARDLY_ANY)
}

/// Directions that differ by less are called alike: the ranges of three repeats lie apart by chance now and then.
const UNEVEN_RATIO: f64 = 1.15;

/// The same where a direction has fewer than three repeats, whose range says little.
const UNEVEN_RATIO_OF_FEW: f64 = 1.5;

/// How the direction that is not judged differs from the judged one; `None` if it does not, by more than the noise of
/// both.
fn uneven(summaries: &[Summary], way: Direction) -> Option<String> {
    let of = |experiment: &str, way: Direction| {
        find(summaries, experiment, &format!("{}_received_bits_per_s", name(way)))
    };
    let other = if way == Direction::Reverse { Direction::Forward } else { Direction::Reverse };
    let (own, far) = (of("single-stream", way)?, of(name(other), other)?);
    let ((own_low, own_high), (far_low, far_high)) = (own.interval()?, far.interval()?);
    let (slow, fast) = (own.median.min(far.median), own.median.max(far.median));
    let is_apart = own_high < far_low || far_high < own_low;
    let is_few = own.count.min(far.count) < 3;
    let least = if is_few { UNEVEN_RATIO_OF_FEW } else { UNEVEN_RATIO };
    if !is_apart || slow <= 0.0 || fast / slow < least {
        return None;
    }
    let how = if far.median < own.median { "slower" } else { "faster" };
    let option = if other == Direction::Reverse { "with -R" } else { "without -R" };
    Some(format!(
        "{} is {:.1} times {how} than {}: {} against {}; the verdict is on {} only, `path` {option} judges {}",
        name(other),
        fast / slow,
        name(way),
        show_bit_rate(far.median),
        show_bit_rate(own.median),
        name(way),
        name(other),
    ))
}

fn name(way: Direction) -> &'static str {
    if way == Direction::Reverse { "reverse" } else { "forward" }
}

fn host(facts: &HostFacts) -> String {
    let mut parts = vec![format!("{}: Linux {}", facts.name, facts.kernel)];
    if let Some(processor) = &facts.processor {
        parts.push(format!("{}, {processor}", count_of(facts.usable_cores.len() as u64, "core")));
    }
    if let Some(interface) = &facts.interface {
        let speed = interface.speed_bits_per_s.map(show_bit_rate);
        let driver = interface.driver.as_deref().unwrap_or("?");
        parts.push(format!(
            "{} ({driver}{}{})",
            interface.name,
            if speed.is_some() { ", " } else { "" },
            speed.unwrap_or_default()
        ));
    }
    parts.join("; ")
}

fn figures(out: &mut String, results: &Results) -> std::fmt::Result {
    if results.summaries.is_empty() {
        return Ok(());
    }
    let mut table =
        format!("Measured {:<22} {:>14}  {:<31} {:>2}\n", "", "median", "interval", "n");
    for (experiment, label, figure) in FIGURES {
        if let Some(estimate) = find(&results.summaries, experiment, figure) {
            let shown = |value| {
                if figure.ends_with("_share") { show_share(value) } else { show_bit_rate(value) }
            };
            row(&mut table, label, estimate, &shown)?;
        }
    }
    if let Some(estimate) = not_arrived(&results.points) {
        row(&mut table, "UDP not arrived", &estimate, &show_share)?;
    }
    for (figure, label) in
        [("loaded_rtt_p50_s", "RTT under load, p50"), ("loaded_rtt_p99_s", "RTT under load, p99")]
    {
        if let Some(estimate) = find(&results.summaries, "single-stream", figure) {
            row(&mut table, label, estimate, &show_seconds)?;
        } else if find(&results.summaries, "single-stream", "loaded_rtt_p50_s").is_some() {
            writeln!(table, "         {label:<22} {:>14}", "n too small")?;
        }
    }
    write!(out, "\n{}", crate::tables::fit(&table))
}

fn row(
    out: &mut String,
    label: &str,
    estimate: &Estimate,
    shown: &dyn Fn(f64) -> String,
) -> std::fmt::Result {
    let (interval, sure) = match estimate.interval() {
        Some((low, high)) => (
            format!("{} .. {}", shown(low), shown(high)),
            format!("({:.0}%)", estimate.confidence * 100.0),
        ),
        None => ("none: one run".to_owned(), String::new()),
    };
    writeln!(
        out,
        "         {label:<22} {:>14}  {interval:<25} {sure:<5} {:>2}",
        shown(estimate.median),
        estimate.count
    )
}

fn window_sweep(out: &mut String, results: &Results) -> std::fmt::Result {
    let points = sweep::swept_windows(&results.points, "window-sweep");
    let rate = |point: &sweep::SweptWindow| point.received.median;
    let Some(best) = points.iter().map(rate).max_by(f64::total_cmp) else {
        return Ok(());
    };
    let suffix = bandwidth_delay(results).unwrap_or_default();
    let [effective, asked, granted] = ["in effect", "asked for", "buffer"];
    let mut table = format!(
        "Window   {effective:>10}  {asked:>10}  {granted:>10}  {:>8}    throughput{suffix}\n",
        "RTT"
    );
    let size = |bytes: f64| show_byte_size(units::saturating_u64(bytes));
    let dash = || "-".to_owned();
    for point in points {
        let bar = "#".repeat(units::saturating_u64(rate(&point) / best * 30.0) as usize);
        let effective = size(point.effective_bytes);
        let asked = show_byte_size(point.asked_bytes);
        let granted = point.window.receive_buffer_bytes.map_or_else(dash, size);
        let rtt = point.window.rtt_s.map_or_else(dash, show_seconds);
        let rate = show_bit_rate(rate(&point));
        writeln!(
            table,
            "         {effective:>10}  {asked:>10}  {granted:>10}  {rtt:>8}  {rate:>12}  {bar}"
        )?;
    }
    write!(out, "\n{}", crate::tables::fit(&table))
}

/// The bandwidth-delay product, and the rate that it is of: the best that TCP reached, not what the path should carry.
fn bandwidth_delay(results: &Results) -> Option<String> {
    let bytes = results.path.bandwidth_delay_product_bytes?;
    let rtt_s = results.path.idle_rtt.as_ref()?.percentile_s(50.0)?;
    let rate = bytes as f64 * 8.0 / rtt_s;
    Some(format!(" (BDP {} at {})", show_byte_size(bytes), show_bit_rate(rate)))
}

fn remarks(out: &mut String, results: &Results) -> std::fmt::Result {
    let failed = results
        .points
        .iter()
        .filter(|point| matches!(point.outcome, PointOutcome::Failed(_)))
        .count();
    if failed > 0 {
        let tests = count_of(results.points.len() as u64, "test");
        writeln!(out, "\nFailed   {failed} of {tests}; see the report")?;
    }
    if !results.findings.is_empty() || !results.absent.is_empty() {
        writeln!(out)?;
    }
    for finding in results.findings.iter().take(5) {
        wrapped(out, "Note     ", &finding.text)?;
    }
    for absent in &results.absent {
        wrapped(out, "Unseen   ", &format!("{}: {}", absent.what, absent.why))?;
    }
    Ok(())
}

fn find<'a>(summaries: &'a [Summary], experiment: &str, figure: &str) -> Option<&'a Estimate> {
    summaries
        .iter()
        .find(|summary| summary.experiment == experiment && summary.figure == figure)
        .map(|summary| &summary.estimate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mbit/s of the repeats of the judged direction and of the other one.
    fn told(way: Direction, own: &[f64], other: &[f64]) -> Option<String> {
        let [own_name, other_name] = match way {
            Direction::Reverse => ["reverse", "forward"],
            _ => ["forward", "reverse"],
        };
        let summary = |experiment: &str, way: &str, values: &[f64]| Summary {
            experiment: experiment.to_owned(),
            varied: std::collections::BTreeMap::new(),
            figure: format!("{way}_received_bits_per_s"),
            estimate: Estimate::of(&values.iter().map(|rate| rate * 1e6).collect::<Vec<_>>())
                .expect("values"),
        };
        let of = [summary("single-stream", own_name, own), summary(other_name, other_name, other)];
        uneven(&of, way)
    }

    #[test]
    fn a_direction_that_differs_beyond_the_noise_is_named() {
        let line = told(Direction::Forward, &[940.0, 938.0, 941.0], &[235.0, 230.0, 240.0]);
        let expected = "reverse is 4.0 times slower than forward: 235 Mbit/s against 940 Mbit/s; \
                        the verdict is on forward only, `path` with -R judges reverse";
        assert_eq!(line.as_deref(), Some(expected));
        let line = told(Direction::Reverse, &[235.0, 236.0], &[470.0, 471.0]).unwrap_or_default();
        assert!(line.starts_with("forward is 2.0 times faster than reverse"), "{line}");
        assert!(line.ends_with("`path` without -R judges forward"), "{line}");
        for (own, other) in [
            // Their intervals overlap, they are close, one has no interval.
            (&[940.0, 200.0, 500.0][..], &[235.0, 300.0, 250.0][..]),
            (&[940.0, 941.0], &[900.0, 901.0]),
            (&[940.0], &[235.0, 236.0]),
            // Two values differ by a quarter often enough.
            (&[4490.0, 4470.0, 9300.0], &[3100.0, 4100.0]),
        ] {
            assert_eq!(told(Direction::Forward, own, other), None);
        }
    }
}
