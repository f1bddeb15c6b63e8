//! Throughput over time with the senders' congestion windows and round-trip times beneath.

use super::{Area, FULL_PX, Figure, NARROW_PX, Swatch};
use crate::digest::series::{Sample, TestSeries, Track, thinned};
use crate::scale::{Scale, Spread, ticks_around, ticks_from_zero, ticks_within};
use crate::show::{self, AxisUnit, Quantity};
use crate::svg::{self, Drawing};
use crate::table::Table;

/// Rows of the chart's table.
const ROWS_MAX: usize = 120;

/// One of the charts that share a time axis.
struct Panel<'a> {
    name: &'static str,
    quantity: Quantity,
    height: f64,
    tracks: &'a [Track],
}

/// The figure of one test; `None` without samples.
pub(crate) fn figure(id: String, title: String, series: &TestSeries) -> Option<Figure> {
    if series.rates.is_empty() {
        return None;
    }
    Some(Figure {
        id,
        title,
        caption: caption(series),
        legend: legend(series),
        wide: draw(series, FULL_PX),
        narrow: draw(series, NARROW_PX),
        table: table(series),
    })
}

fn caption(series: &TestSeries) -> String {
    let spans = series.rates.iter().map(|track| {
        let counted = || track.samples.iter().filter(|sample| sample.at_s >= series.omitted_s);
        let low = counted().map(|sample| sample.low).fold(f64::INFINITY, f64::min);
        let high = counted().map(|sample| sample.high).fold(0.0, f64::max);
        let range = Quantity::Rate.show(low);
        format!("{}: {range} to {}", track.label, show::rate(high))
    });
    let lines: Vec<String> = if series.rates.len() <= 2 { spans.collect() } else { Vec::new() };
    let mut caption = if lines.is_empty() {
        format!("{} lines, one per stream.", series.rates.len())
    } else {
        format!("{}.", lines.join("; "))
    };
    let resent: u64 = series.retransmits.iter().fold(0, |sum, (_, gain)| sum.saturating_add(*gain));
    caption.push_str(&match resent {
        0 if series.windows.is_empty() => String::new(),
        0 => " Nothing was retransmitted.".to_owned(),
        1 => " One segment was retransmitted.".to_owned(),
        many => format!(" {} segments were retransmitted.", show::count(many as f64)),
    });
    caption
}

fn legend(series: &TestSeries) -> Vec<(Swatch, String)> {
    let mut legend: Vec<(Swatch, String)> =
        series.rates.iter().map(|track| (Swatch::Line(track.style), track.label.clone())).collect();
    if enveloped(series) {
        legend.push((Swatch::Fill("band s0"), "lowest to highest interval".to_owned()));
    }
    if series.omitted_s > 0.0 {
        legend.push((Swatch::Fill("omitted"), "start, not counted".to_owned()));
    }
    if !series.retransmits.is_empty() {
        legend.push((Swatch::Stroke("resent"), "retransmissions".to_owned()));
    }
    legend
}

fn enveloped(series: &TestSeries) -> bool {
    series.rates.iter().flat_map(|track| &track.samples).any(|sample| sample.high > sample.low)
}

fn draw(series: &TestSeries, width: f64) -> Drawing {
    let panels: Vec<Panel<'_>> = [
        Panel { name: "goodput", quantity: Quantity::Rate, height: 190.0, tracks: &series.rates },
        Panel {
            name: "congestion window",
            quantity: Quantity::Size,
            height: 62.0,
            tracks: &series.windows,
        },
        Panel {
            name: "smoothed RTT",
            quantity: Quantity::Time,
            height: 62.0,
            tracks: &series.rtts,
        },
    ]
    .into_iter()
    .filter(|panel| !panel.tracks.is_empty())
    .collect();
    let gap = 40.0;
    let panels_height: f64 = panels.iter().map(|panel| panel.height + gap).sum();
    let mut drawing = Drawing::new(width, panels_height + 34.0);
    let (left, right) = (46.0, width - 8.0);
    let time = Scale::new(Spread::Linear, (0.0, series.end_s), (left, right));
    let mut top = 26.0;
    for (index, panel) in panels.iter().enumerate() {
        let area = Area { left, right, top, bottom: top + panel.height };
        draw_panel(&mut drawing, panel, area, &time, series);
        if index == 0 {
            draw_retransmits(&mut drawing, series, area, &time);
        }
        top = area.bottom + gap;
    }
    let area = Area { left, right, top: 0.0, bottom: top - gap };
    let wanted = if width > 600.0 { 10 } else { 5 };
    let ticks: Vec<(f64, String)> = ticks_within(0.0, series.end_s, wanted)
        .into_iter()
        .map(|tick| (tick, show::number(tick)))
        .collect();
    area.x_axis(&mut drawing, &time, &ticks, "seconds since the test began");
    drawing
}

fn draw_panel(
    drawing: &mut Drawing,
    panel: &Panel<'_>,
    area: Area,
    time: &Scale,
    series: &TestSeries,
) {
    let samples = || panel.tracks.iter().flat_map(|track| &track.samples);
    let high = samples().map(|sample| sample.high).fold(0.0, f64::max);
    let low = samples().map(|sample| sample.low).fold(high, f64::min);
    let unit = AxisUnit::of(panel.quantity, high);
    let wanted = if panel.height > 100.0 { 5 } else { 2 };
    let (low, high) = (unit.of_value(low), unit.of_value(high));
    // A round-trip time hardly moves on its own scale from zero; its axis shows where it begins.
    let ticks = if panel.quantity == Quantity::Time {
        ticks_around(low, high, wanted)
    } else {
        ticks_from_zero(high, wanted)
    };
    let (base, top) = (ticks.first().copied().unwrap_or(0.0), ticks.last().copied().unwrap_or(1.0));
    let scale = Scale::new(Spread::Linear, (base, top), (area.bottom, area.top));
    if series.omitted_s > 0.0 {
        let omitted = time.at(series.omitted_s) - area.left;
        drawing.draw(svg::rect(
            "omitted",
            (area.left, area.top),
            (omitted, area.bottom - area.top),
        ));
    }
    let labels: Vec<(f64, String)> =
        ticks.iter().map(|tick| (*tick, show::number(*tick))).collect();
    area.y_axis(drawing, &scale, &labels, &format!("{}, {}", unit.name, panel.name));
    for track in panel.tracks {
        let place =
            |sample: &Sample, value: f64| (time.at(sample.at_s), scale.at(unit.of_value(value)));
        if track.samples.iter().any(|sample| sample.high > sample.low) {
            let upper = track.samples.iter().map(|sample| place(sample, sample.high));
            let lower = track.samples.iter().rev().map(|sample| place(sample, sample.low));
            let outline = format!("{}Z", svg::through(upper.chain(lower)));
            drawing.draw(svg::path(&format!("band s{}", track.style), &outline));
        }
        let data = svg::through(track.samples.iter().map(|sample| place(sample, sample.mean)));
        drawing.draw(svg::path(&format!("line s{}", track.style), &data));
        if let [only] = track.samples.as_slice() {
            drawing.draw(svg::symbol(track.style, place(only, only.mean), 4.0));
        }
    }
}

fn draw_retransmits(drawing: &mut Drawing, series: &TestSeries, area: Area, time: &Scale) {
    let most = series.retransmits.iter().map(|(_, gain)| *gain).max().unwrap_or(1).max(1);
    for (at_s, gain) in &series.retransmits {
        let x = time.at(*at_s);
        let length = 6.0 + 14.0 * (*gain as f64 / most as f64).sqrt();
        drawing.draw(svg::line("resent", (x, area.bottom), (x, area.bottom - length)));
    }
}

fn table(series: &TestSeries) -> Table {
    let mut table = Table::new("Goodput over time", 0, &["seconds"]);
    let tracks: Vec<(Quantity, Vec<Sample>)> = [
        (Quantity::Rate, "", &series.rates),
        (Quantity::Size, "window of ", &series.windows),
        (Quantity::Time, "RTT of ", &series.rtts),
    ]
    .into_iter()
    .flat_map(|(quantity, prefix, tracks)| {
        tracks.iter().map(move |track| (quantity, prefix, track))
    })
    .map(|(quantity, prefix, track)| {
        table.column(format!("{prefix}{}", track.label));
        (quantity, thinned(&track.samples, ROWS_MAX))
    })
    .collect();
    let rows_count = tracks.iter().map(|(_, samples)| samples.len()).max().unwrap_or(0);
    for row in 0..rows_count {
        let moment =
            tracks.iter().find_map(|(_, samples)| samples.get(row)).map(|sample| sample.at_s);
        let cells = tracks.iter().map(|(quantity, samples)| {
            samples
                .get(row)
                .map_or_else(|| show::DASH.to_owned(), |sample| quantity.show(sample.mean))
        });
        let moment = moment.map_or_else(|| show::DASH.to_owned(), show::number);
        table.row(std::iter::once(moment).chain(cells));
    }
    table
}
