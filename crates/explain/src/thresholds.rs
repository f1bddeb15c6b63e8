//! Every number that decides something in a verdict, by name and with its reason: from which value on a figure counts,
//! and how much one observation weighs against another.

mod fitted;
pub(crate) mod hosts;
pub(crate) mod path;
pub(crate) mod predictions;
pub(crate) mod rivals;
pub(crate) mod rulings;
pub(crate) mod signs;

use crate::numbers::ramp;

pub(crate) use fitted::Fitted;
pub use fitted::{Fit, PlantedCase};

/// Range of a figure over which confidence rises from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ramp {
    /// Up to this value confidence is 0.
    pub(crate) from: f64,
    /// From this value on it is 1.
    pub(crate) to: f64,
}

impl Ramp {
    pub(crate) const fn new(from: f64, to: f64) -> Self {
        Self { from, to }
    }

    /// Confidence, 0 to 1, that a figure is as high as the range asks.
    pub(crate) fn of(self, value: f64) -> f64 {
        ramp(value, self.from, self.to)
    }

    /// Confidence, 0 to 1, that it is not.
    pub(crate) fn not(self, value: f64) -> f64 {
        1.0 - self.of(value)
    }

    /// Mean confidence, 0 to 1, over the values from `low` to `high`, which an uncertain figure may have.
    pub(crate) fn over(self, low: f64, high: f64) -> f64 {
        let width = high - low;
        // Narrower than this, the difference of two areas is lost in rounding.
        if width.is_nan() || width <= high.abs().max(low.abs()) * 1e-6 {
            return self.of(f64::midpoint(low, high));
        }
        // Confidence integrated up to a value.
        let area = |value: f64| {
            let rise = self.to - self.from;
            let part = (value - self.from).clamp(0.0, rise);
            part * part / (2.0 * rise) + (value - self.to).max(0.0)
        };
        ((area(high) - area(low)) / width).clamp(0.0, 1.0)
    }

    /// The range in units of another figure.
    pub(crate) fn times(self, unit: f64) -> Self {
        Self::new(self.from * unit, self.to * unit)
    }

    /// The range moved up by another one.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self::new(self.from + other.from, self.to + other.to)
    }
}

/// Throughput over that before a change, or over another rate: the least and the most that is predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Factors {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Factors {
    pub(crate) const fn new(low: f64, high: f64) -> Self {
        Self { low, high }
    }

    /// The factors over another one.
    pub(crate) fn times(self, factor: f64) -> Self {
        Self::new(self.low * factor, self.high * factor)
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A protocol, a header's size, a law.
    Nature,
    /// How exactly the figure is counted.
    Instrument,
    /// Set by hand; no recorded case decides it alone.
    Chosen,
}

impl Origin {
    fn name(self) -> &'static str {
        match self {
            Self::Nature => "nature",
            Self::Instrument => "instrument",
            Self::Chosen => "chosen",
        }
    }
}

/// A value as the documentation shows it.
trait InWords {
    fn words(&self) -> String;
}

impl InWords for f64 {
    fn words(&self) -> String {
        format!("{self}")
    }
}

impl InWords for Ramp {
    fn words(&self) -> String {
        format!("{} to {}", self.from, self.to)
    }
}

impl InWords for Factors {
    fn words(&self) -> String {
        format!("{} to {}", self.low, self.high)
    }
}

/// A named value, as the documentation lists it.
pub(crate) struct Row {
    /// Name in the source.
    pub(crate) name: &'static str,
    words: fn() -> String,
    origin: Origin,
    why: &'static str,
}

impl Row {
    /// Name, value, origin and reason, as cells of a table.
    fn cells(&self) -> [String; 4] {
        let name = self.name.to_lowercase().replace('_', "-");
        [format!("`{name}`"), (self.words)(), self.origin.name().to_owned(), self.why.to_owned()]
    }
}

/// Defines named values and the table of them.
macro_rules! thresholds {
    ($($name:ident: $kind:ty = $value:expr, $origin:ident, $why:literal;)*) => {
        $(#[doc = $why] pub(crate) const $name: $kind = $value;)*

        pub(super) static ROWS: &[super::Row] = &[$(super::Row {
            name: stringify!($name),
            words: || super::InWords::words(&$name),
            origin: super::Origin::$origin,
            why: $why,
        }),*];
    };
}
use thresholds;

/// Every table, with its heading.
fn tables() -> [(&'static str, &'static [Row]); 6] {
    [
        ("What counts as a sign", signs::ROWS),
        ("The connection and the path", path::ROWS),
        ("The hosts", hosts::ROWS),
        ("What experiments predict", predictions::ROWS),
        ("What a second candidate predicts of them", rivals::ROWS),
        ("How their outcome is ruled on", rulings::ROWS),
    ]
}

/// The chapter of `docs/limits.md` that lists every value.
pub(crate) fn page() -> String {
    let mut page = String::from(PREFACE);
    for (heading, rows) in tables() {
        page +=
            &format!("\n### {heading}\n\n| name | value | origin | reason |\n|---|---|---|---|\n");
        for row in rows {
            page += &format!("| {} |\n", row.cells().join(" | "));
        }
    }
    page + &fitted::page()
}

const PREFACE: &str = "
## Thresholds and weights

These tables list every number that affects a verdict, with its reason. The *confidence* in a sign rises from 0 to 1 over the range that is given;
if the standard error of a symptom is known, several limits use the mean confidence over one such error
to either side. The origin of a number is *nature*: a protocol or a law; *instrument*: the precision with which the figure is counted; or *chosen*:
set by hand, for the reason given. The numbers of the last table are set by the recorded cases of `testdata/planted`.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_reasons_are_given() {
        let mut names: Vec<&str> =
            tables().iter().flat_map(|(_, rows)| rows.iter().map(|row| row.name)).collect();
        let many = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), many, "a name that stands twice");
        for (_, rows) in tables() {
            for row in rows {
                assert!(row.why.len() >= 20, "{}: {}", row.name, row.why);
            }
        }
    }

    #[test]
    fn a_range_moves_and_grows() {
        let range = Ramp::new(0.1, 0.3);
        assert_eq!((range.of(0.1), range.of(0.3), range.not(0.3)), (0.0, 1.0, 0.0));
        assert_eq!(range.times(10.0), Ramp::new(1.0, 3.0));
        assert_eq!(Ramp::new(1.0, 2.0).plus(Ramp::new(0.5, 1.0)), Ramp::new(1.5, 3.0));
        assert_eq!(range.of(f64::NAN), 0.0);
    }

    #[test]
    fn an_uncertain_figure_counts_by_the_mean_over_its_values() {
        let range = Ramp::new(1.0, 3.0);
        for (low, high, mean) in [
            (0.0, 1.0, 0.0),
            (3.0, 9.0, 1.0),
            (1.0, 3.0, 0.5),
            (2.0, 2.0, 0.5),
            // From 0 to 1 nothing, then up to a half: a quarter of one unit in two.
            (0.0, 2.0, 0.125),
            // The same mirrored: the other half, then all.
            (2.0, 4.0, 0.875),
        ] {
            assert!((range.over(low, high) - mean).abs() < 1e-12, "{low} to {high}");
        }
        assert_eq!(range.over(f64::NAN, 1.0), 0.0);
    }
}
