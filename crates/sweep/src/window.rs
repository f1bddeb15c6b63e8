//! The window sweep and its law.

use results::{Estimate, Point, WindowUse};
use units::{bandwidth_delay_product_bytes, saturating_u64};

/// Smallest window worth asking for, bytes: below it Linux's own minimum (`SOCK_MIN_RCVBUF`) rules.
const WINDOW_BYTES_MIN: f64 = 4096.0;

/// Largest window TCP can advertise, bytes: 65535 scaled by 14 (RFC 7323 section 2.3).
const WINDOW_BYTES_MAX: f64 = (65535_u64 << 14) as f64;

/// Windows around the bandwidth-delay product, ascending: from 1/32 of it to twice it in steps of
/// a factor of 2, half-steps next to the knee where the law bends, rounded to two binary digits'
/// worth so that they read well. Empty when either figure is not a positive number.
///
/// Source: C-fig6 sweeps from small to beyond the BDP; throughput is flat from the BDP on.
///
/// ```
/// let windows = sweep::window_sweep(0.017, 19e9);
/// assert!(windows[0] < 2 << 20 && *windows.last().unwrap() > 70 << 20);
/// ```
#[must_use]
pub fn window_sweep(rtt_s: f64, rate_bits_per_s: f64) -> Vec<u64> {
    const SHARES_OF_BDP: [f64; 9] = [
        1.0 / 32.0,
        1.0 / 16.0,
        0.125,
        0.25,
        0.5,
        std::f64::consts::FRAC_1_SQRT_2,
        1.0,
        1.414,
        2.0,
    ];
    let product = bandwidth_delay_product_bytes(rate_bits_per_s, rtt_s) as f64;
    if product <= 0.0 {
        return Vec::new();
    }
    let mut windows: Vec<u64> =
        SHARES_OF_BDP.iter().map(|share| nice_size(product * share)).collect();
    windows.dedup();
    windows
}

/// One setting of a window sweep: what was asked for, what came of it, and the throughput.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SweptWindow {
    /// Asked for, bytes.
    pub asked_bytes: u64,
    /// The windows and buffers of the typical repeat.
    pub window: WindowUse,
    /// The window in effect, bytes; where the sender tells nothing, what was asked for.
    pub effective_bytes: f64,
    /// Goodput of the repeats, bit/s.
    pub received: Estimate,
}

/// The settings of a window sweep, by their window in effect, ascending. A point that measured nothing
/// counts for nothing.
#[must_use]
pub fn swept_windows(points: &[Point], experiment: &str) -> Vec<SweptWindow> {
    let swept = points.iter().filter(|point| point.experiment == experiment);
    let mut asked: Vec<u64> = swept.clone().filter_map(|it| it.spec()?.window_bytes).collect();
    asked.sort_unstable();
    asked.dedup();
    let of_size = |asked_bytes: u64| {
        let (mut windows, mut rates) = (Vec::new(), Vec::new());
        for (spec, outcome) in swept.clone().filter_map(Point::tested) {
            let Some(direction) = outcome.directions.first() else { continue };
            if spec.window_bytes == Some(asked_bytes) {
                rates.push(direction.received_bits_per_s);
                windows.extend(outcome.window_use(spec, direction.direction));
            }
        }
        let window = WindowUse::typical(&windows).unwrap_or_default();
        let effective_bytes = window.effective_bytes().unwrap_or(asked_bytes as f64);
        let received = Estimate::of(&rates)?;
        Some(SweptWindow { asked_bytes, window, effective_bytes, received })
    };
    let mut settings: Vec<SweptWindow> = asked.into_iter().filter_map(of_size).collect();
    settings.sort_by(|a, b| a.effective_bytes.total_cmp(&b.effective_bytes));
    settings
}

/// The law `T(w) = min(w / RTT, Tmax)` fitted to measured points, and how well they obey it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowModel {
    /// Round-trip time the rising part implies, seconds.
    pub rtt_s: f64,
    /// Where it is flat, bit/s. When no point is flat: the highest measured, a lower bound.
    pub max_bits_per_s: f64,
    /// Share of the variance the model explains, at most 1; negative: worse than a constant.
    pub r2: f64,
    /// Median of `|measured / model - 1|`.
    pub median_relative_error: f64,
    /// Its maximum.
    pub max_relative_error: f64,
    /// Whether any point lies on the flat part.
    pub saturated: bool,
}

impl WindowModel {
    /// What the law gives for a window, bit/s.
    #[must_use]
    pub fn bits_per_s(&self, window_bytes: u64) -> f64 {
        (window_bytes as f64 * 8.0 / self.rtt_s).min(self.max_bits_per_s)
    }
}

/// Fits the law to `(window in bytes, bit/s)` points: for every place the knee may have, the median
/// implied RTT before it and the median throughput after it; the knee with the smallest sum of
/// relative errors wins. Medians, so that one bad point does not move the law. `None` with fewer
/// than three usable points.
#[must_use]
pub fn fit_window_model(points: &[(u64, f64)]) -> Option<WindowModel> {
    let mut points: Vec<(u64, f64)> = points
        .iter()
        .copied()
        .filter(|(window, rate)| *window > 0 && rate.is_normal() && *rate > 0.0)
        .collect();
    points.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    if points.len() < 3 {
        return None;
    }
    (1..=points.len())
        .filter_map(|rising_count| with_knee(&points, rising_count))
        .min_by(|a, b| total_error(a, &points).total_cmp(&total_error(b, &points)))
}

fn with_knee(points: &[(u64, f64)], rising_count: usize) -> Option<WindowModel> {
    let (rising, flat) = points.split_at(rising_count);
    let implied_rtts: Vec<f64> =
        rising.iter().map(|(window, rate)| *window as f64 * 8.0 / rate).collect();
    let flat_rates: Vec<f64> = flat.iter().map(|(_, rate)| *rate).collect();
    let highest = points.iter().map(|(_, rate)| *rate).max_by(f64::total_cmp)?;
    let mut model = WindowModel {
        rtt_s: stats::median(&implied_rtts)?,
        max_bits_per_s: stats::median(&flat_rates).unwrap_or(highest),
        r2: 0.0,
        median_relative_error: 0.0,
        max_relative_error: 0.0,
        saturated: !flat.is_empty(),
    };
    let errors: Vec<f64> = points.iter().map(|point| relative_error(&model, point)).collect();
    model.median_relative_error = stats::median(&errors)?;
    model.max_relative_error = errors.iter().copied().max_by(f64::total_cmp)?;
    model.r2 = explained_share(&model, points);
    (model.rtt_s.is_normal() && model.max_relative_error.is_finite() && model.r2.is_finite())
        .then_some(model)
}

fn total_error(model: &WindowModel, points: &[(u64, f64)]) -> f64 {
    points.iter().map(|point| relative_error(model, point)).sum()
}

fn relative_error(model: &WindowModel, (window_bytes, rate): &(u64, f64)) -> f64 {
    (rate / model.bits_per_s(*window_bytes) - 1.0).abs()
}

/// R squared: 1 - residual sum of squares over total sum of squares.
fn explained_share(model: &WindowModel, points: &[(u64, f64)]) -> f64 {
    // Scaled first: rates of 1e200 in a damaged file must not overflow when squared.
    let scale = model.max_bits_per_s;
    let mean = points.iter().map(|(_, rate)| rate / scale).sum::<f64>() / points.len() as f64;
    let total: f64 = points.iter().map(|(_, rate)| (rate / scale - mean).powi(2)).sum();
    let residual: f64 = points
        .iter()
        .map(|(window, rate)| ((rate - model.bits_per_s(*window)) / scale).powi(2))
        .sum();
    if total > 0.0 { 1.0 - residual / total } else { 1.0 }
}

/// The nearest size with at most three significant binary digits, e.g. 1.25 MiB, 28 KiB.
fn nice_size(bytes: f64) -> u64 {
    let bytes = bytes.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
    let step = (bytes.log2().floor() - 2.0).exp2();
    saturating_u64(((bytes / step).round() * step).min(WINDOW_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use results::{
        Direction, DirectionOutcome, EndReport, HostAccount, StreamEnd, TcpSample, TcpSummary,
        TestOutcome, TestSpec,
    };

    use super::*;

    #[test]
    fn windows_straddle_the_product() {
        for (rtt_s, rate) in [(0.017, 19e9), (1e-4, 40e9), (0.3, 1e6), (0.017, 100e9)] {
            let windows = window_sweep(rtt_s, rate);
            let product = rtt_s * rate / 8.0;
            assert!(windows.is_sorted_by(|a, b| a < b), "{windows:?}");
            assert!(windows.len() >= 4, "{windows:?}");
            assert!(
                windows.iter().filter(|w| (**w as f64) > product * 1.1).count() >= 2,
                "{windows:?}"
            );
        }
        assert!(window_sweep(0.0, 1e9).is_empty());
        assert!(window_sweep(f64::NAN, 1e9).is_empty());
        assert!(window_sweep(f64::INFINITY, 1e9).iter().all(|w| *w as f64 <= WINDOW_BYTES_MAX));
    }

    #[test]
    fn sizes_are_round() {
        let digits = |bytes: u64| u64::BITS - bytes.leading_zeros() - bytes.trailing_zeros();
        assert!(window_sweep(0.017, 19e9).into_iter().all(|bytes| digits(bytes) <= 3));
        assert_eq!(nice_size(1.3 * 1048576.0), 1310720);
    }

    fn points(rtt_s: f64, max: f64, wobble: f64) -> Vec<(u64, f64)> {
        window_sweep(rtt_s, max)
            .into_iter()
            .enumerate()
            .map(|(index, window)| {
                let sign = if index % 2 == 0 { 1.0 } else { -1.0 };
                (window, (window as f64 * 8.0 / rtt_s).min(max) * (1.0 + sign * wobble))
            })
            .collect()
    }

    #[test]
    fn the_law_is_found_again() {
        let model = fit_window_model(&points(0.017, 19e9, 0.03)).expect("nine points");
        assert!((model.rtt_s / 0.017 - 1.0).abs() < 0.04, "{model:?}");
        assert!((model.max_bits_per_s / 19e9 - 1.0).abs() < 0.04, "{model:?}");
        assert!(model.max_relative_error < 0.08 && model.r2 > 0.98 && model.saturated, "{model:?}");
    }

    #[test]
    fn one_wild_point_does_not_move_the_law() {
        let mut points = points(0.017, 19e9, 0.0);
        points[2].1 /= 5.0;
        let model = fit_window_model(&points).expect("nine points");
        assert!((model.rtt_s / 0.017 - 1.0).abs() < 0.02, "{model:?}");
        assert!(model.median_relative_error < 0.02 && model.max_relative_error > 0.7, "{model:?}");
    }

    #[test]
    fn points_that_ignore_the_window_disobey() {
        let flat: Vec<(u64, f64)> =
            window_sweep(0.017, 19e9).into_iter().map(|w| (w, 4e9)).collect();
        let model = fit_window_model(&flat).expect("nine points");
        assert!((model.rtt_s - 0.017).abs() > 0.005, "no such RTT: {model:?}");
        let falling: Vec<(u64, f64)> =
            window_sweep(0.017, 19e9).into_iter().map(|w| (w, 1e18 / w as f64)).collect();
        assert!(fit_window_model(&falling).is_none_or(|m| m.max_relative_error > 0.5));
    }

    /// A point of the sweep: what was asked for, what was advertised and in flight, and the rate.
    fn swept(asked: u64, (advertised, in_flight): (u64, u64), bits_per_s: f64) -> Point {
        let tcp = TcpSample {
            rtt_s: 0.02,
            peer_window_bytes: Some(advertised),
            in_flight_bytes: in_flight,
            ..TcpSample::default()
        };
        let sender = StreamEnd {
            sending: true,
            tcp: Some(TcpSummary { last: tcp, ..TcpSummary::default() }),
            ..StreamEnd::default()
        };
        let account = EndReport { streams: vec![sender], ..EndReport::default() };
        let direction = DirectionOutcome {
            direction: Direction::Forward,
            sent_bytes: 1,
            received_bytes: 1,
            sent_bits_per_s: bits_per_s,
            received_bits_per_s: bits_per_s,
            retransmits_count: None,
            udp: None,
        };
        Point {
            varied: [("window_bytes".to_owned(), asked as f64)].into(),
            ..Point::new(
                "window-sweep",
                TestSpec { window_bytes: Some(asked), ..TestSpec::tcp() },
                TestOutcome {
                    duration_s: 1.0,
                    directions: vec![direction],
                    hosts: HostAccount::of_ends(account, None),
                    ..TestOutcome::default()
                },
            )
        }
    }

    #[test]
    fn a_swept_window_is_the_one_in_effect_and_obeys_the_law() {
        // More is in flight than was asked for; the last is wider than the path needs.
        let points = [
            swept(1 << 20, (1_600_000, 1_500_000), 6.0e8),
            swept(128 << 10, (206_848, 198_656), 7.9e7),
            swept(128 << 10, (206_848, 198_656), 8.0e7),
            swept(8 << 20, (12_000_000, 2_500_000), 1.0e9),
        ];
        let told = swept_windows(&points, "window-sweep");
        let effective: Vec<f64> = told.iter().map(|one| one.effective_bytes).collect();
        assert_eq!(effective, [198_656.0, 1_500_000.0, 12_000_000.0]);
        let asked: Vec<u64> = told.iter().map(|one| one.asked_bytes).collect();
        assert_eq!(asked, [128 << 10, 1 << 20, 8 << 20]);
        assert_eq!(told[0].received.count, 2, "repeats are one setting");
        let curve: Vec<(u64, f64)> =
            told.iter().map(|one| (one.effective_bytes as u64, one.received.median)).collect();
        let model = fit_window_model(&curve).expect("three points");
        assert!((model.rtt_s / 0.02 - 1.0).abs() < 0.01, "the measured round trip: {model:?}");
        assert_eq!(swept_windows(&points, "another"), []);
    }

    proptest! {
        #[test]
        fn any_points_give_a_finite_model_or_none(
            points in prop::collection::vec((any::<u64>(), any::<f64>()), 0..20),
        ) {
            if let Some(model) = fit_window_model(&points) {
                prop_assert!(model.rtt_s.is_finite() && model.max_bits_per_s.is_finite());
                prop_assert!(model.max_relative_error.is_finite() && !model.r2.is_nan());
            }
        }

        #[test]
        fn exact_points_fit_exactly(rtt_ms in 0.1_f64..300.0, gbit in 0.01_f64..100.0) {
            let exact = points(rtt_ms * 1e-3, gbit * 1e9, 0.0);
            if let Some(model) = fit_window_model(&exact) {
                prop_assert!(model.max_relative_error < 0.01, "{model:?}");
            }
        }
    }
}
