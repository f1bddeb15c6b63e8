//! The view as text: 80 columns, or 60 without bars, one line per interval, the heading every 20 lines.

use super::meter::Meter;
use super::{Ends, Ticks};

/// Lines between two headings.
const HEADING_EVERY: u64 = 20;
/// Columns of a line with bars, and of the figures before them, of one end and of both.
const WIDE_COLUMNS: usize = 80;
const ONE_COLUMNS: usize = 49;
const BOTH_COLUMNS: usize = 59;

/// Characters for eight levels of a bar, lowest first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bars(&'static [char; 8]);

impl Bars {
    /// Block characters if the locale can show them, else ASCII ones.
    pub(super) fn of_locale() -> Self {
        let variable = ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        let utf8 = variable.is_some_and(|value| {
            let value = value.to_ascii_uppercase();
            value.contains("UTF-8") || value.contains("UTF8")
        });
        if utf8 { Self::blocks() } else { Self::ascii() }
    }

    pub(super) fn blocks() -> Self {
        Self(&['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'])
    }

    pub(super) fn ascii() -> Self {
        Self(&['_', '.', ':', '-', '=', '+', '*', '#'])
    }

    /// Bars of the last `width` values, the newest at the right, scaled to the highest of them.
    fn line(self, values: impl DoubleEndedIterator<Item = f64>, width: usize) -> String {
        let mut last: Vec<f64> = values.rev().take(width).collect();
        last.reverse();
        let top = last.iter().copied().fold(0.0, f64::max);
        let blank = std::iter::repeat_n(' ', width - last.len());
        blank.chain(last.iter().map(|value| self.bar(value / top))).collect()
    }

    /// The bar of a share, 0 to 1; NaN (all values are 0) gives the lowest bar.
    fn bar(self, share: f64) -> char {
        let level = units::saturating_u64((share * 8.0).ceil() - 1.0);
        self.0[usize::try_from(level).unwrap_or(0).min(7)]
    }
}

/// The lines for the latest interval, with the heading before them when it is due.
pub(super) fn lines(ends: &Ends, ticks: Ticks, bars: Bars) -> String {
    let mut text = String::new();
    if (ticks.count - 1).is_multiple_of(HEADING_EVERY) {
        text.push_str(&heading(ends));
    }
    match (&ends.far, ends.near.first()) {
        (Some(far), Some(near)) => text.push_str(&both(near, far, ticks, bars)),
        _one_end => ends.near.iter().for_each(|meter| text.push_str(&one(meter, ticks, bars))),
    }
    text
}

/// The totals: one line per direction of each interface.
pub(super) fn summary(ends: &Ends) -> String {
    let mut text = String::new();
    for (end, meter) in ends.meters() {
        let totals = &meter.totals;
        let mut line = |way: &str, mean: f64, peak: f64| {
            let (mean, peak) = (megabits(Some(mean)), megabits(Some(peak)));
            let what = format!("{end} {} {way}", meter.interface);
            let measured_s = totals.measured_s;
            let figures = format!("mean {mean:>12} peak {peak:>12} Mbit/s, {measured_s:.1} s");
            text.push_str(&format!("{what:<24} {figures}\n"));
        };
        line("in", totals.in_bits_per_s_mean, totals.in_bits_per_s_peak);
        line("out", totals.out_bits_per_s_mean, totals.out_bits_per_s_peak);
    }
    text
}

/// The line without its bars, which follow the figures, on a terminal that has no room for them.
fn for_terminal(line: String, figures_columns: usize) -> String {
    let has_room = crate::out::table_columns() >= WIDE_COLUMNS;
    trimmed(if has_room { line } else { line.chars().take(figures_columns).collect() })
}

fn heading(ends: &Ends) -> String {
    let Some(far) = &ends.far else {
        let columns = ["in Mbit/s", "out Mbit/s", "in (recent)", "out (recent)"];
        let [input, output, late_in, late_out] = columns;
        let line = format!(
            "{:>7} {:<15} {input:>12} {output:>12} {late_in:<15} {late_out}",
            "s", "interface"
        );
        return for_terminal(line, ONE_COLUMNS);
    };
    let near = ends.near.first().map_or("", |meter| meter.interface.as_str());
    let (near, far) = (format!("near {near}"), format!("far {}", far.interface));
    let above = for_terminal(format!("{:>7} {near:>25} {far:>25}  near", ""), BOTH_COLUMNS);
    let [input, output] = ["in Mbit/s", "out Mbit/s"];
    let columns =
        format!("{:>7} {input:>12} {output:>12} {input:>12} {output:>12}  {:<9} out", "s", "in");
    above + &for_terminal(columns, BOTH_COLUMNS)
}

fn one(meter: &Meter, ticks: Ticks, bars: Bars) -> String {
    const WIDTH: usize = 14;
    let current = meter.current;
    let input = bars.line(meter.history.iter().map(|(_at_s, rates)| rates.in_bits_per_s), WIDTH);
    let output = bars.line(meter.history.iter().map(|(_at_s, rates)| rates.out_bits_per_s), WIDTH);
    let line = format!(
        "{:>7.1} {:<15} {:>12} {:>12} {input:<WIDTH$}  {output}",
        ticks.elapsed_s,
        meter.interface,
        megabits(current.map(|rates| rates.in_bits_per_s)),
        megabits(current.map(|rates| rates.out_bits_per_s)),
    );
    for_terminal(line, ONE_COLUMNS)
}

fn both(near: &Meter, far: &Meter, ticks: Ticks, bars: Bars) -> String {
    const WIDTH: usize = 9;
    let input = bars.line(near.history.iter().map(|(_at_s, rates)| rates.in_bits_per_s), WIDTH);
    let output = bars.line(near.history.iter().map(|(_at_s, rates)| rates.out_bits_per_s), WIDTH);
    let (near, far) = (near.current, far.current);
    let line = format!(
        "{:>7.1} {:>12} {:>12} {:>12} {:>12}  {input:<WIDTH$} {output}",
        ticks.elapsed_s,
        megabits(near.map(|rates| rates.in_bits_per_s)),
        megabits(near.map(|rates| rates.out_bits_per_s)),
        megabits(far.map(|rates| rates.in_bits_per_s)),
        megabits(far.map(|rates| rates.out_bits_per_s)),
    );
    for_terminal(line, BOTH_COLUMNS)
}

/// A rate in Mbit/s, `9,876.543`; a dash if it was not measured.
pub(super) fn megabits(bits_per_s: Option<f64>) -> String {
    let Some(bits_per_s) = bits_per_s else { return "-".to_owned() };
    let kilobits = units::saturating_u64((bits_per_s / 1000.0).round());
    format!("{}.{:03}", grouped(kilobits / 1000), kilobits % 1000)
}

/// A count with digit groups: `9,876`.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn trimmed(line: String) -> String {
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests;
