//! Experiments that vary one setting over several values.

use std::collections::BTreeMap;

use results::{Estimate, Point, WindowUse};

use super::total_rate;

/// Values a setting must take before its experiment is drawn as a sweep.
const SETTINGS_COUNT_MIN: usize = 3;

/// The setting that is a window.
const WINDOW: &str = "window_bytes";

/// Settings a chart has room for.
const SETTINGS_COUNT_MAX: usize = 200;

/// One experiment over one varied setting.
#[derive(Debug)]
pub(crate) struct Sweep<'a> {
    /// Its name in the results.
    pub(crate) experiment: &'a str,
    /// What was varied: `window_bytes`.
    pub(crate) varied: &'a str,
    /// In ascending order of the setting.
    pub(crate) settings: Vec<Setting<'a>>,
}

/// One setting and what it gave.
#[derive(Debug)]
pub(crate) struct Setting<'a> {
    /// Value of what was varied; of a window, the one that was in effect.
    pub(crate) value: f64,
    /// Windows and buffers of the typical repeat, in a sweep of the window.
    pub(crate) window: Option<WindowUse>,
    /// All that was varied.
    pub(crate) varied: &'a BTreeMap<String, f64>,
    /// Goodput of each repeat, all directions together, bit/s.
    pub(crate) repeats: Vec<f64>,
    /// The repeats together.
    pub(crate) estimate: Estimate,
}

impl Sweep<'_> {
    /// Highest median, bit/s.
    pub(crate) fn best_bits_per_s(&self) -> f64 {
        self.settings.iter().map(|setting| setting.estimate.median).fold(0.0, f64::max)
    }

    /// The setting with the highest median.
    pub(crate) fn best_setting(&self) -> Option<&BTreeMap<String, f64>> {
        self.settings
            .iter()
            .max_by(|one, other| one.estimate.median.total_cmp(&other.estimate.median))
            .map(|setting| setting.varied)
    }

    /// Whether the setting is the window, whose law is known.
    pub(crate) fn is_window(&self) -> bool {
        self.varied == WINDOW
    }

    /// Round trip under load where a window was full and held the goodput down, seconds.
    pub(crate) fn loaded_rtt_s(&self) -> Option<f64> {
        let rising = 0.9 * self.best_bits_per_s();
        let below = self.settings.iter().filter(|setting| setting.estimate.median < rising);
        let full = below.filter_map(|setting| setting.window).filter(|window| window.is_full);
        let full: Vec<f64> = full.filter_map(|window| window.rtt_s).collect();
        Estimate::of(&full).map(|estimate| estimate.median)
    }
}

/// Every sweep among the points, in the order of their first point.
pub(crate) fn sweeps(points: &[Point]) -> Vec<Sweep<'_>> {
    let mut experiments: Vec<(&str, Vec<&Point>)> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let is_other =
        |point: &&Point| point.is_confirmation() || super::placement::is_of_placement(point);
    for point in points.iter().filter(|point| !is_other(point)) {
        let place = *places.entry(&point.experiment).or_insert(experiments.len());
        match experiments.get_mut(place) {
            Some((_, members)) => members.push(point),
            None => experiments.push((&point.experiment, vec![point])),
        }
    }
    experiments
        .into_iter()
        .filter_map(|(experiment, members)| sweep(experiment, &members))
        .collect()
}

fn sweep<'a>(experiment: &'a str, points: &[&'a Point]) -> Option<Sweep<'a>> {
    let mut values: BTreeMap<&'a str, Vec<f64>> = BTreeMap::new();
    for (name, value) in points.iter().flat_map(|point| &point.varied) {
        if name.starts_with(results::PREDICTED) {
            continue;
        }
        values.entry(name).or_default().push(*value);
    }
    let (varied, distinct_count) = values
        .into_iter()
        .map(|(name, mut values)| {
            values.sort_by(f64::total_cmp);
            values.dedup();
            (name, values.len())
        })
        .max_by_key(|(_, distinct_count)| *distinct_count)?;
    if distinct_count < SETTINGS_COUNT_MIN {
        return None;
    }
    let settings = settings(points, varied);
    (!settings.is_empty()).then_some(Sweep { experiment, varied, settings })
}

fn settings<'a>(points: &[&'a Point], varied: &str) -> Vec<Setting<'a>> {
    let mut measured: Vec<(f64, &'a Point, f64)> = points
        .iter()
        .filter_map(|point| {
            let value = point.varied.get(varied).copied().filter(|value| value.is_finite())?;
            Some((value, *point, total_rate(point.measured()?)))
        })
        .collect();
    measured.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut settings: Vec<Setting<'a>> = measured
        .chunk_by(|one, other| one.0.total_cmp(&other.0).is_eq())
        .take(SETTINGS_COUNT_MAX)
        .filter_map(|chunk| {
            let (asked, first, _) = chunk.first()?;
            let repeats: Vec<f64> = chunk.iter().map(|(_, _, rate)| *rate).collect();
            let estimate = Estimate::of(&repeats)?;
            let of_window = || chunk.iter().filter_map(|(_, point, _)| window_use(point)).collect();
            let windows: Vec<WindowUse> = if varied == WINDOW { of_window() } else { Vec::new() };
            let window = WindowUse::typical(&windows);
            let value = window.and_then(|window| window.effective_bytes()).unwrap_or(*asked);
            Some(Setting { value, window, varied: &first.varied, repeats, estimate })
        })
        .collect();
    settings.sort_by(|one, other| one.value.total_cmp(&other.value));
    settings
}

fn window_use(point: &Point) -> Option<WindowUse> {
    let (spec, outcome) = point.tested()?;
    outcome.window_use(spec, outcome.directions.first()?.direction)
}
