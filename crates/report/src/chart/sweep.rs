//! Throughput over one varied setting; for the window with its law and the bandwidth-delay product.

use results::WindowUse;

use super::{Area, FULL_PX, Figure, NARROW_PX, Swatch};
use crate::digest::sweep::{Setting, Sweep};
use crate::scale::{Scale, Spread, ticks_from_zero, ticks_log, ticks_within};
use crate::show::{self, AxisUnit, Quantity};
use crate::svg::{self, Drawing};
use crate::table::Table;

/// Points of the model's curve.
const CURVE_POINTS_COUNT: usize = 96;

/// The law of the window: `T(w) = min(w / RTT, Tmax)`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowLaw {
    /// Round-trip time under load where windows were full; else of the idle path. Seconds.
    pub(crate) rtt_s: f64,
    /// The plateau, bit/s.
    pub(crate) most_bits_per_s: f64,
}

impl WindowLaw {
    fn rate(self, window_bytes: f64) -> f64 {
        (window_bytes * 8.0 / self.rtt_s).min(self.most_bits_per_s)
    }

    /// Where the two parts meet, bytes.
    pub(crate) fn knee_bytes(self) -> f64 {
        self.most_bits_per_s * self.rtt_s / 8.0
    }
}

/// The figure of one sweep.
pub(crate) fn figure(id: String, sweep: &Sweep<'_>, rtt_s: Option<f64>) -> Figure {
    let law = sweep
        .loaded_rtt_s()
        .or(rtt_s)
        .filter(|_| sweep.is_window())
        .map(|rtt_s| WindowLaw { rtt_s, most_bits_per_s: sweep.best_bits_per_s() })
        .filter(|law| law.knee_bytes() > 0.0);
    let axes = Axes::of(sweep, law);
    let mut legend = vec![(Swatch::Marked(0), "median, with its interval".to_owned())];
    if sweep.settings.iter().any(|setting| setting.repeats.len() > 1) {
        legend.push((Swatch::Ring("repeat"), "each repeat".to_owned()));
    }
    if law.is_some() {
        legend
            .push((Swatch::Stroke("model"), "model: min(window / RTT, highest median)".to_owned()));
        legend.push((Swatch::Stroke("mark-line"), "bandwidth-delay product".to_owned()));
    }
    let name = axis_name(sweep);
    Figure {
        id,
        title: format!("Goodput by {name}"),
        caption: caption(sweep, law),
        legend,
        wide: draw(sweep, law, &axes, FULL_PX),
        narrow: draw(sweep, law, &axes, NARROW_PX),
        table: table(sweep, law),
    }
}

/// What the axis shows: `window in effect`, `block size`.
fn axis_name(sweep: &Sweep<'_>) -> String {
    let name = show::words(sweep.varied);
    let is_measured = sweep.settings.iter().any(|setting| setting.window.is_some());
    if is_measured { format!("{name} in effect") } else { name }
}

fn caption(sweep: &Sweep<'_>, law: Option<WindowLaw>) -> String {
    let most = show::rate(sweep.best_bits_per_s());
    let Some(law) = law else {
        let settings = units::count_of(sweep.settings.len() as u64, "setting");
        return format!("Highest median {most}, over {settings}.");
    };
    let errors = sweep.settings.iter().filter_map(|setting| law_error(setting, law));
    let worst = errors.fold(0.0_f64, |worst, error| worst.max(error.abs()));
    format!(
        "{most} at {} needs a window of {} (the bandwidth-delay product). The measured medians stay within \
         {} of the model.",
        show::seconds(law.rtt_s),
        show::size(law.knee_bytes()),
        show::share(worst),
    )
}

/// How far a setting lies from the law, as a share of the law's figure.
fn law_error(setting: &Setting<'_>, law: WindowLaw) -> Option<f64> {
    let expected = law.rate(setting.value);
    (expected > 0.0).then(|| setting.estimate.median / expected - 1.0)
}

/// What both drawings share.
struct Axes {
    spread: Spread,
    low: f64,
    high: f64,
    x_unit: AxisUnit,
    y_unit: AxisUnit,
    y_ticks: Vec<f64>,
}

impl Axes {
    fn of(sweep: &Sweep<'_>, law: Option<WindowLaw>) -> Self {
        let values = || sweep.settings.iter().map(|setting| setting.value);
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::MIN, f64::max));
        let is_log = low > 0.0 && high / low >= 16.0;
        let margin = (high - low).abs() * 0.03;
        let (spread, low, high) = if is_log {
            (Spread::Log, low / 1.2, high * 1.2)
        } else {
            (Spread::Linear, low - margin, high + margin)
        };
        let highest =
            sweep.settings.iter().flat_map(|setting| &setting.repeats).copied().fold(0.0, f64::max);
        let highest = law.map_or(highest, |law| highest.max(law.most_bits_per_s));
        let y_unit = AxisUnit::of(Quantity::Rate, highest);
        let x_unit = AxisUnit::of(Quantity::of(sweep.varied), high);
        let y_ticks = ticks_from_zero(y_unit.of_value(highest), 5);
        Self { spread, low, high, x_unit, y_unit, y_ticks }
    }

    fn x_ticks(&self, quantity: Quantity, wanted: usize) -> Vec<(f64, String)> {
        let values = match (self.spread, quantity) {
            (Spread::Log, Quantity::Size) => ticks_log(self.low, self.high, 2, wanted),
            (Spread::Log, _) => ticks_log(self.low, self.high, 10, wanted),
            _ => ticks_within(
                self.x_unit.of_value(self.low),
                self.x_unit.of_value(self.high),
                wanted,
            )
            .into_iter()
            .map(|tick| self.x_unit.to_base(tick))
            .collect(),
        };
        values.into_iter().map(|value| (value, self.x_unit.tick(value))).collect()
    }
}

fn draw(sweep: &Sweep<'_>, law: Option<WindowLaw>, axes: &Axes, width: f64) -> Drawing {
    let height = if width > 600.0 { 340.0 } else { 280.0 };
    let mut drawing = Drawing::new(width, height);
    let area = Area { left: 46.0, right: width - 8.0, top: 26.0, bottom: height - 42.0 };
    let x = Scale::new(axes.spread, (axes.low, axes.high), (area.left, area.right));
    let top_value = axes.y_ticks.last().copied().unwrap_or(1.0);
    let y = Scale::new(Spread::Linear, (0.0, top_value), (area.bottom, area.top));
    let y_labels: Vec<(f64, String)> =
        axes.y_ticks.iter().map(|tick| (*tick, show::number(*tick))).collect();
    area.y_axis(&mut drawing, &y, &y_labels, &format!("{}, goodput", axes.y_unit.name));
    let quantity = Quantity::of(sweep.varied);
    let name = axis_name(sweep);
    let x_title =
        if axes.x_unit.name.is_empty() { name } else { format!("{name}, {}", axes.x_unit.name) };
    let wanted = if width > 600.0 { 12 } else { 6 };
    area.x_axis(&mut drawing, &x, &axes.x_ticks(quantity, wanted), &x_title);
    if let Some(law) = law {
        draw_law(&mut drawing, law, axes, area, &x, &y);
    }
    for setting in &sweep.settings {
        draw_setting(&mut drawing, setting, quantity, axes, &x, &y);
    }
    drawing
}

fn draw_law(drawing: &mut Drawing, law: WindowLaw, axes: &Axes, area: Area, x: &Scale, y: &Scale) {
    let knee = law.knee_bytes();
    let step = |index: usize| {
        let share = index as f64 / CURVE_POINTS_COUNT as f64;
        match axes.spread {
            Spread::Log => axes.low * (axes.high / axes.low).powf(share),
            _ => axes.low + (axes.high - axes.low) * share,
        }
    };
    let mut windows: Vec<f64> = (0..=CURVE_POINTS_COUNT).map(step).collect();
    windows.extend((axes.low < knee && knee < axes.high).then_some(knee));
    windows.sort_by(f64::total_cmp);
    let place = |window: f64| (x.at(window), y.at(axes.y_unit.of_value(law.rate(window))));
    drawing.draw(svg::path("model", &svg::through(windows.into_iter().map(place))));
    if axes.low < knee && knee < axes.high {
        let at = x.at(knee);
        drawing.draw(svg::line("mark-line", (at, area.top), (at, area.bottom)));
        let label = format!("BDP {}", show::size(knee));
        // To the left of its line, where the rising curve leaves room.
        drawing.draw(svg::text("t strong end", (at - 7.0, area.top + 12.0), label));
    }
}

fn draw_setting(
    drawing: &mut Drawing,
    setting: &Setting<'_>,
    quantity: Quantity,
    axes: &Axes,
    x: &Scale,
    y: &Scale,
) {
    let at_x = x.at(setting.value);
    let at_y = |rate: f64| y.at(axes.y_unit.of_value(rate));
    let estimate = &setting.estimate;
    for rate in setting.repeats.iter().take(50) {
        drawing.draw(svg::circle("repeat", (at_x, at_y(*rate)), 2.6));
    }
    let (low, high) = (at_y(estimate.low), at_y(estimate.high));
    let cap = 5.0;
    let says = format!(
        "{}: {}, {} ({}, n {})",
        quantity.show(setting.value),
        show::rate(estimate.median),
        show::interval(estimate, Quantity::Rate),
        show::interval_kind(estimate),
        estimate.count,
    );
    drawing.mark(
        &says,
        [
            svg::line("whisker", (at_x, low), (at_x, high)),
            svg::line("whisker", (at_x - cap, low), (at_x + cap, low)),
            svg::line("whisker", (at_x - cap, high), (at_x + cap, high)),
            svg::symbol(0, (at_x, at_y(estimate.median)), 5.0),
        ],
    );
}

fn table(sweep: &Sweep<'_>, law: Option<WindowLaw>) -> Table {
    let name = axis_name(sweep);
    let mut table = Table::new(
        &format!("Goodput by {name}"),
        0,
        &[&name, "median", "interval", "kind of interval", "n"],
    );
    let has_windows = sweep.settings.iter().any(|setting| setting.window.is_some());
    if has_windows {
        ["advertised", "in flight", "asked for", "receive buffer", "RTT under load"]
            .into_iter()
            .for_each(|name| table.column(name.to_owned()));
    }
    if law.is_some() {
        table.column("model".to_owned());
        table.column("deviation from the model".to_owned());
    }
    for setting in &sweep.settings {
        let estimate = &setting.estimate;
        let mut cells = vec![
            Quantity::of(sweep.varied).show(setting.value),
            show::rate(estimate.median),
            show::interval(estimate, Quantity::Rate),
            show::interval_kind(estimate),
            estimate.count.to_string(),
        ];
        if has_windows {
            cells.extend(window_cells(setting.window.unwrap_or_default()));
        }
        if let Some(law) = law {
            let error = law_error(setting, law);
            cells.push(show::rate(law.rate(setting.value)));
            cells.push(
                error.map_or_else(
                    || show::DASH.to_owned(),
                    |error| format!("{:+.1}%", error * 100.0),
                ),
            );
        }
        table.row(cells);
    }
    table
}

fn window_cells(window: WindowUse) -> [String; 5] {
    let shown = |value: Option<f64>, show: fn(f64) -> String| {
        value.map_or_else(|| show::DASH.to_owned(), show)
    };
    [
        shown(window.advertised_bytes, show::size),
        shown(window.in_flight_bytes, show::size),
        shown(window.asked_bytes, show::size),
        shown(window.receive_buffer_bytes, show::size),
        shown(window.rtt_s, show::seconds),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use results::Estimate;

    use super::*;

    /// Three windows over 16 ms, drawn on the phone's width: every coordinate can be checked by hand.
    #[test]
    fn geometry_of_a_small_sweep() {
        let varied = BTreeMap::new();
        let setting = |value: f64, rates: &[f64]| Setting {
            value,
            window: None,
            varied: &varied,
            repeats: rates.to_vec(),
            estimate: Estimate::of(rates).expect("rates"),
        };
        let settings = vec![
            setting(1_000_000.0, &[0.5e9]),
            setting(4_000_000.0, &[1.9e9, 2.0e9, 2.1e9]),
            setting(16_000_000.0, &[4.0e9]),
        ];
        let sweep = Sweep { experiment: "window-sweep", varied: "window_bytes", settings };
        let law = WindowLaw { rtt_s: 0.016, most_bits_per_s: sweep.best_bits_per_s() };
        assert_eq!(law.knee_bytes(), 8_000_000.0);
        let drawing = draw(&sweep, Some(law), &Axes::of(&sweep, Some(law)), NARROW_PX);
        let (art, marks) = (drawing.art.into_markup(), drawing.marks.into_markup());
        // Plot from x 46 to 332 and y 26 (4 Gbit/s) to 238 (0); the axis is log from 1/1.2 to 19.2 MB.
        for expected in [
            "<line class=\"axis\" x1=\"46\" y1=\"238\" x2=\"332\" y2=\"238\"/>",
            "<line class=\"mark-line\" x1=\"252.2\" y1=\"26\" x2=\"252.2\" y2=\"238\"/>",
            "<text class=\"t strong end\" x=\"245.2\" y=\"38\">BDP 7.63 MiB</text>",
            "L332 26\"/>",
        ] {
            assert!(art.contains(expected), "{expected} not in {art}");
        }
        for expected in [
            "aria-label=\"3.81 MiB: 2.00 Gbit/s, 1.90 to 2.10 Gbit/s (whole range, 75% confidence, n 3)\"",
            "<circle class=\"symbol s0\" cx=\"62.6\" cy=\"211.5\" r=\"5\"/>",
            "<circle class=\"symbol s0\" cx=\"189\" cy=\"132\" r=\"5\"/>",
            "<line class=\"whisker\" x1=\"189\" y1=\"137.3\" x2=\"189\" y2=\"126.7\"/>",
            "<circle class=\"symbol s0\" cx=\"315.4\" cy=\"26\" r=\"5\"/>",
        ] {
            assert!(marks.contains(expected), "{expected} not in {marks}");
        }
    }
}
