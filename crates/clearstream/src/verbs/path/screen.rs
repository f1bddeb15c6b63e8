//! The path, its figures and the verdict as a screenful of text.

use std::fmt::Write;

use results::{Estimate, HostFacts, PointOutcome, Results};
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

/// The whole text.
pub(super) fn show(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail; `ok` keeps the lines readable.
    path(&mut out, results).ok();
    figures(&mut out, results).ok();
    window_sweep(&mut out, results).ok();
    if let Some(verdict) = &results.verdict {
        verdict_lines(&mut out, verdict, Detail::Brief).ok();
    }
    remarks(&mut out, results).ok();
    out
}

fn path(out: &mut String, results: &Results) -> std::fmt::Result {
    let facts = &results.path;
    let far_name = results.far().map_or(facts.target.as_str(), |far| far.name.as_str());
    let address = facts.address.as_deref().unwrap_or("?");
    let peer = facts.peer.as_deref().unwrap_or("unknown peer");
    writeln!(out, "Path     {} -> {far_name} ({address}, {peer})", results.near().name)?;
    writeln!(out, "         {}", host(results.near()))?;
    match results.far() {
        Some(far) => writeln!(out, "         {}", host(far))?,
        None => writeln!(out, "         far end: {peer} tells nothing of its host")?,
    }
    if let Some(rtt) = &facts.idle_rtt {
        let at = |percentile| rtt.percentile_s(percentile).map_or("?".into(), show_seconds);
        write!(out, "         RTT {} median, {} p99 (idle, {})", at(50.0), at(99.0), rtt.method)?;
        if let Some(mtu) = facts.path_mtu_bytes {
            write!(out, "; path MTU {mtu}")?;
        }
        writeln!(out)?;
    }
    if let Some(lab) = &facts.lab {
        writeln!(out, "         emulated: lab {lab}")?;
    }
    Ok(())
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
    writeln!(out, "\nMeasured {:<22} {:>14}  {:<31} {:>2}", "", "median", "interval", "n")?;
    for (experiment, label, figure) in FIGURES {
        if let Some(estimate) = find(results, experiment, figure) {
            let shown = |value| {
                if figure.ends_with("_share") { show_share(value) } else { show_bit_rate(value) }
            };
            row(out, label, estimate, &shown)?;
        }
    }
    for (figure, label) in
        [("loaded_rtt_p50_s", "RTT under load, p50"), ("loaded_rtt_p99_s", "RTT under load, p99")]
    {
        if let Some(estimate) = find(results, "single-stream", figure) {
            row(out, label, estimate, &show_seconds)?;
        }
    }
    Ok(())
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
    let needed = results.path.bandwidth_delay_product_bytes;
    let suffix = needed.map(|b| format!(" (BDP {})", show_byte_size(b))).unwrap_or_default();
    let [effective, asked, granted] = ["in effect", "asked for", "buffer"];
    writeln!(
        out,
        "\nWindow   {effective:>10}  {asked:>10}  {granted:>10}  {:>8}    throughput{suffix}",
        "RTT"
    )?;
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
            out,
            "         {effective:>10}  {asked:>10}  {granted:>10}  {rtt:>8}  {rate:>12}  {bar}"
        )?;
    }
    Ok(())
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

fn find<'a>(results: &'a Results, experiment: &str, figure: &str) -> Option<&'a Estimate> {
    results
        .summaries
        .iter()
        .find(|summary| summary.experiment == experiment && summary.figure == figure)
        .map(|summary| &summary.estimate)
}
