//! From values to places on a chart, and the round numbers to write beside its axes.

use crate::show::finite;

/// How an axis spreads its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Equal steps.
    Linear,
    /// Equal ratios.
    Log,
    /// Percentiles by their nines: 90, 99, 99.9 are equally far apart.
    Nines,
}

/// One axis: a range of values laid over a range of pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    spread: Spread,
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Scale {
    /// Values `low..=high` over pixels `start..=end` (which may descend). A range that is empty or
    /// that its spread cannot show is widened until it can.
    pub(crate) fn new(spread: Spread, (low, high): (f64, f64), (start, end): (f64, f64)) -> Self {
        let (mut low, mut high) = (finite(low), finite(high));
        if spread == Spread::Log {
            low = low.max(1e-12);
            high = if high > low * 1.001 { high } else { low * 2.0 };
        } else if high <= low || high - low < high.abs() * 1e-9 {
            high = low + low.abs().max(1.0);
        }
        Self { spread, low, high, start, end }
    }

    /// Where a value lies, pixels; values outside lie on the edge.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = match self.spread {
            Spread::Linear => (finite(value) - self.low) / (self.high - self.low),
            Spread::Log => (finite(value).max(1e-12) / self.low).ln() / (self.high / self.low).ln(),
            Spread::Nines => {
                (nines(value) - nines(self.low)) / (nines(self.high) - nines(self.low))
            }
        };
        self.start + finite(share).clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// The lowest value.
    pub(crate) fn low(&self) -> f64 {
        self.low
    }
}

/// How many nines a percentile has: 90 → 1, 99 → 2, 99.9 → 3.
pub(crate) fn nines(percentile: f64) -> f64 {
    let share_above = 1.0 - finite(percentile).clamp(0.0, 100.0) / 100.0;
    -share_above.max(1e-9).log10()
}

/// Round steps covering `0..=high` in about `wanted` steps; the last is at least `high`.
pub(crate) fn ticks_from_zero(high: f64, wanted: usize) -> Vec<f64> {
    let high = if finite(high) > 0.0 { finite(high) } else { 1.0 };
    let step = round_step(high / wanted.max(1) as f64);
    // A hair's tolerance: 0.3 / 0.1 must not become four steps.
    let steps_count = (high / step - 1e-6).ceil().clamp(1.0, 100.0) as usize;
    (0..=steps_count).map(|index| index as f64 * step).collect()
}

/// Round steps that enclose `low..=high`; from zero when the range begins near it.
pub(crate) fn ticks_around(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let (low, high) = (finite(low).max(0.0), finite(high));
    if low < high * 0.4 || high <= 0.0 {
        return ticks_from_zero(high, wanted);
    }
    // A range that is all noise is not blown up to fill the chart.
    let step = round_step((high - low).max(high * 0.02) / wanted.max(1) as f64);
    let first = (low / step + 1e-6).floor();
    let steps_count = (high / step - first - 1e-6).ceil().clamp(1.0, 100.0) as usize;
    (0..=steps_count).map(|index| (first + index as f64) * step).collect()
}

/// Round values inside `low..=high`, about `wanted` of them.
pub(crate) fn ticks_within(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let (low, high) = (finite(low), finite(high));
    if high <= low {
        return vec![low];
    }
    let step = round_step((high - low) / wanted.max(1) as f64);
    let first = (low / step - 1e-6).ceil() * step;
    (0..=100)
        .map(|index| first + f64::from(index) * step)
        .take_while(|tick| *tick <= high + step * 1e-6)
        .collect()
}

/// Round values on a logarithmic axis: powers of two (`base` 2) or 1-2-5 (`base` 10), thinned to
/// at most `limit`.
pub(crate) fn ticks_log(low: f64, high: f64, base: u32, limit: usize) -> Vec<f64> {
    let (low, high) = (finite(low).max(1e-12), finite(high).max(1e-12));
    let mut ticks = Vec::new();
    if base == 2 {
        let (first, last) = (low.log2().ceil() as i32, (high * 1.000_001).log2().floor() as i32);
        ticks.extend((first..=last).map(|power| 2_f64.powi(power)));
    } else {
        let (first, last) = (low.log10().floor() as i32, high.log10().floor() as i32);
        for power in first..=last {
            ticks.extend([1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
        }
        ticks.retain(|tick| *tick >= low * 0.999_999 && *tick <= high * 1.000_001);
        if ticks.len() > limit {
            ticks.retain(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-6);
        }
    }
    let stride = ticks.len().div_ceil(limit.max(1)).max(1);
    ticks.into_iter().step_by(stride).collect()
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten that is not below `raw`.
fn round_step(raw: f64) -> f64 {
    let power = 10_f64.powf(raw.max(1e-15).log10().floor());
    let digit =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|digit| digit * power >= raw * 0.999_999);
    digit.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover() {
        assert_eq!(ticks_from_zero(9.3, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks_from_zero(0.0, 2), [0.0, 0.5, 1.0]);
        assert_eq!(ticks_around(17.1, 27.4, 5), [15.0, 17.5, 20.0, 22.5, 25.0, 27.5]);
        assert_eq!(ticks_around(1.0, 9.0, 2), [0.0, 5.0, 10.0]);
        assert_eq!(ticks_within(3.0, 11.0, 4), [4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks_log(1000.0, 9000.0, 2, 9), [1024.0, 2048.0, 4096.0, 8192.0]);
        assert_eq!(ticks_log(0.9, 60.0, 10, 9), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn places_values() {
        let linear = Scale::new(Spread::Linear, (0.0, 10.0), (100.0, 0.0));
        assert_eq!((linear.at(0.0), linear.at(5.0), linear.at(99.0)), (100.0, 50.0, 0.0));
        let log = Scale::new(Spread::Log, (1.0, 100.0), (0.0, 10.0));
        assert!((log.at(10.0) - 5.0).abs() < 1e-9);
        let tail = Scale::new(Spread::Nines, (0.0, 99.9), (0.0, 3.0));
        assert!((tail.at(90.0) - 1.0).abs() < 1e-9 && (tail.at(99.0) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn survives_anything() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, 1e308, -1e308, 5e-324];
        for (low, high) in odd.into_iter().flat_map(|a| odd.map(|b| (a, b))) {
            for spread in [Spread::Linear, Spread::Log, Spread::Nines] {
                let scale = Scale::new(spread, (low, high), (0.0, 10.0));
                for value in odd {
                    assert!(
                        (0.0..=10.0).contains(&scale.at(value)),
                        "{spread:?} {low} {high} {value}"
                    );
                }
            }
            assert!(ticks_from_zero(high, 5).len() < 200);
            assert!(ticks_within(low, high, 5).len() < 200);
            assert!(ticks_around(low, high, 5).len() < 200);
            assert!(ticks_log(low, high, 2, 9).len() <= 9);
            assert!(ticks_log(low, high, 10, 9).len() <= 9);
        }
    }
}
