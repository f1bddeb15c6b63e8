//! Latency by percentile, the tail stretched as in HdrHistogram's plots.

use std::collections::BTreeSet;

use results::LatencySummary;

use super::{Area, FULL_PX, Figure, NARROW_PX, Swatch};
use crate::scale::{Scale, Spread, ticks_around, ticks_log};
use crate::show::{self, AxisUnit, DASH, Quantity};
use crate::svg::{self, Drawing};
use crate::table::Table;

/// Percentiles written on the axis.
const TICKS: [(f64, &str); 7] = [
    (0.0, "0"),
    (50.0, "50"),
    (90.0, "90"),
    (99.0, "99"),
    (99.9, "99.9"),
    (99.99, "99.99"),
    (99.999, "99.999"),
];

/// Above this ratio of the highest to the lowest the vertical axis is logarithmic.
const LINEAR_RATIO_MAX: f64 = 20.0;

/// One distribution.
#[derive(Debug)]
pub(crate) struct Curve<'a> {
    pub(crate) label: String,
    pub(crate) summary: &'a LatencySummary,
}

impl Curve<'_> {
    /// Percentile and seconds, ascending, from the lowest to the highest sample.
    fn points(&self) -> Vec<(f64, f64)> {
        let summary = self.summary;
        let last = 100.0 * (1.0 - 1.0 / (summary.count.max(2) as f64));
        let listed = summary.percentiles.iter().map(|point| (point.percentile, point.value_s));
        let mut points: Vec<(f64, f64)> = std::iter::once((0.0, summary.min_s))
            .chain(listed.filter(|(percentile, _)| *percentile < last))
            .chain(std::iter::once((last, summary.max_s)))
            .filter(|(percentile, value_s)| {
                (0.0..=100.0).contains(percentile) && value_s.is_finite()
            })
            .map(|(percentile, value_s)| (percentile, show::finite(value_s).max(0.0)))
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    }
}

/// The figure of some distributions; `None` without any.
pub(crate) fn figure(id: &str, curves: &[Curve<'_>]) -> Option<Figure> {
    if curves.is_empty() {
        return None;
    }
    let methods: BTreeSet<&str> =
        curves.iter().map(|curve| curve.summary.method.as_str()).collect();
    let legend = curves
        .iter()
        .enumerate()
        .map(|(style, curve)| {
            let method = show::clip(&show::method(&curve.summary.method), 24);
            let how = if methods.len() > 1 { format!(" ({method})") } else { String::new() };
            (Swatch::Marked(style), format!("{}{how}", curve.label))
        })
        .collect();
    Some(Figure {
        id: id.to_owned(),
        title: "Round-trip time by percentile".to_owned(),
        caption: caption(curves),
        legend,
        wide: draw(curves, FULL_PX),
        narrow: draw(curves, NARROW_PX),
        table: table(curves),
    })
}

fn caption(curves: &[Curve<'_>]) -> String {
    let parts: Vec<String> = curves
        .iter()
        .take(2)
        .map(|curve| {
            let shown = |percentile| curve.summary.percentile_s(percentile).map(show::seconds);
            let median = shown(50.0).unwrap_or_else(|| DASH.to_owned());
            let most = shown(99.0).map_or_else(String::new, |most| format!(", 99% under {most}"));
            format!("{}: median {median}{most}", curve.label)
        })
        .collect();
    format!("{}. The last point of each line is its highest round trip.", parts.join("; "))
}

fn draw(curves: &[Curve<'_>], width: f64) -> Drawing {
    let height = if width > 600.0 { 320.0 } else { 280.0 };
    let mut drawing = Drawing::new(width, height);
    let area = Area { left: 46.0, right: width - 14.0, top: 26.0, bottom: height - 42.0 };
    let points: Vec<Vec<(f64, f64)>> = curves.iter().map(Curve::points).collect();
    let all = || points.iter().flatten();
    let high_s = all().map(|(_, value_s)| *value_s).fold(0.0, f64::max);
    let low_s = all().map(|(_, value_s)| *value_s).fold(high_s, f64::min);
    let last = all().map(|(percentile, _)| *percentile).fold(90.0, f64::max);
    let x = Scale::new(Spread::Nines, (0.0, last), (area.left, area.right));
    let unit = AxisUnit::of(Quantity::Time, high_s);
    let (y, ticks) = vertical(unit.of_value(low_s), unit.of_value(high_s), area);
    let labels: Vec<(f64, String)> =
        ticks.into_iter().map(|tick| (tick, show::number(tick))).collect();
    area.y_axis(&mut drawing, &y, &labels, &format!("{}, round-trip time", unit.name));
    let x_labels: Vec<(f64, String)> = TICKS
        .iter()
        .filter(|(percentile, _)| *percentile <= last)
        .map(|(percentile, label)| (*percentile, (*label).to_owned()))
        .collect();
    area.x_axis(&mut drawing, &x, &x_labels, "percentile");
    for (style, (curve, points)) in curves.iter().zip(&points).enumerate() {
        let places: Vec<(f64, f64)> = points
            .iter()
            .map(|(percentile, value_s)| (x.at(*percentile), y.at(unit.of_value(*value_s))))
            .collect();
        drawing.draw(svg::path(
            &format!("line s{}", style % 8),
            &svg::through(places.iter().copied()),
        ));
        for (place, (percentile, value_s)) in places.iter().zip(points) {
            let says = format!(
                "{}: {}% under {}",
                curve.label,
                show::number(*percentile),
                show::seconds(*value_s)
            );
            drawing.mark(&says, [svg::symbol(style, *place, 3.6)]);
        }
    }
    drawing
}

fn vertical(low: f64, high: f64, area: Area) -> (Scale, Vec<f64>) {
    if low > 0.0 && high / low > LINEAR_RATIO_MAX {
        let (low, high) = (low / 1.3, high * 1.3);
        let scale = Scale::new(Spread::Log, (low, high), (area.bottom, area.top));
        return (scale, ticks_log(low, high, 10, 8));
    }
    let ticks = ticks_around(low, high, 5);
    let (base, top) = (ticks.first().copied().unwrap_or(0.0), ticks.last().copied().unwrap_or(1.0));
    (Scale::new(Spread::Linear, (base, top), (area.bottom, area.top)), ticks)
}

fn table(curves: &[Curve<'_>]) -> Table {
    let mut table = Table::new("Round-trip time by percentile", 1, &["what", "how", "n", "lowest"]);
    let mut listed: Vec<f64> = curves
        .iter()
        .flat_map(|curve| &curve.summary.percentiles)
        .map(|point| point.percentile)
        .collect();
    listed.retain(|percentile| percentile.is_finite());
    listed.sort_by(f64::total_cmp);
    listed.dedup();
    listed.truncate(16);
    for percentile in &listed {
        table.column(format!("{}%", show::number(*percentile)));
    }
    for name in ["highest", "mean", "deviation"] {
        table.column(name.to_owned());
    }
    for curve in curves {
        let summary = curve.summary;
        let mut cells = vec![
            curve.label.clone(),
            show::method(&summary.method),
            show::count(summary.count as f64),
            show::seconds(summary.min_s),
        ];
        cells.extend(listed.iter().map(|percentile| {
            summary.percentile_s(*percentile).map_or_else(|| DASH.to_owned(), show::seconds)
        }));
        cells.extend([summary.max_s, summary.mean_s, summary.deviation_s].map(show::seconds));
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use results::PercentilePoint;

    use super::*;

    #[test]
    fn a_caption_leaves_out_what_too_few_round_trips_do_not_tell() {
        let few = LatencySummary {
            count: 20,
            min_s: 0.01,
            mean_s: 0.01,
            deviation_s: 0.0,
            max_s: 0.012,
            percentiles: vec![PercentilePoint { percentile: 50.0, value_s: 0.01 }],
            method: "tcp-rr".to_owned(),
        };
        let curve = Curve { label: "under load".to_owned(), summary: &few };
        let told = caption(&[curve]);
        assert!(told.starts_with("under load: median 10.0 ms. "), "{told}");
    }
}
