//! Experiments that vary the cores of a flow's threads.

use std::collections::BTreeMap;

use results::{Estimate, Point};

use super::total_rate;
use crate::show::Quantity;

/// What varies in them.
const NEAR: &str = "near_core";
const FAR: &str = "far_core";
/// Placements one experiment may have here; more are left to the results file.
const PLACES_MAX: usize = 4096;

/// One experiment over cores.
#[derive(Debug)]
pub(crate) struct Placement {
    /// What was compared.
    pub(crate) quantity: Quantity,
    /// Pinned placements, by near and then by far core.
    pub(crate) places: Vec<Place>,
    /// Without pinning.
    pub(crate) unpinned: Option<Estimate>,
}

/// One placement and what it gave.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Core of the near thread; absent when only the other one was pinned.
    pub(crate) near: Option<u32>,
    /// Core of the far thread.
    pub(crate) far: Option<u32>,
    /// Goodput of all directions together, bit/s, or the median round trip, seconds.
    pub(crate) estimate: Estimate,
}

impl Placement {
    /// Whether more is better.
    pub(crate) fn more_is_better(&self) -> bool {
        self.quantity == Quantity::Rate
    }

    /// The better of two figures.
    pub(crate) fn is_better(&self, one: f64, other: f64) -> bool {
        if self.more_is_better() { one > other } else { one < other }
    }

    /// Whether every place names both cores, and there is something to compare.
    pub(crate) fn is_map(&self) -> bool {
        self.places.len() > 1
            && self.places.iter().all(|place| place.near.is_some() && place.far.is_some())
    }

    /// For each core of one end, the best that it gave.
    pub(crate) fn best_by_core(&self, core: fn(&Place) -> Option<u32>) -> BTreeMap<u32, Estimate> {
        let mut best: BTreeMap<u32, Estimate> = BTreeMap::new();
        for place in &self.places {
            let Some(core) = core(place) else { continue };
            let known = best.entry(core).or_insert(place.estimate);
            if self.is_better(place.estimate.median, known.median) {
                *known = place.estimate;
            }
        }
        best
    }
}

/// Whether a point belongs to such an experiment, its unpinned runs included.
pub(crate) fn is_of_placement(point: &Point) -> bool {
    let pins = |point: &Point| [NEAR, FAR].iter().any(|name| point.varied.contains_key(*name));
    point.experiment.starts_with("placement") || pins(point)
}

/// Every such experiment, in the order of its first point.
pub(crate) fn placements(points: &[Point]) -> Vec<Placement> {
    let mut found: Vec<(&str, ByPlace, bool)> = Vec::new();
    let pinned = |experiment: &str| {
        points.iter().any(|point| {
            point.experiment == experiment
                && (point.varied.contains_key(NEAR) || point.varied.contains_key(FAR))
        })
    };
    for point in points {
        let Some((value, is_time)) = figure(point) else { continue };
        let at = match found.iter().position(|(name, ..)| *name == point.experiment) {
            Some(at) => at,
            None if pinned(&point.experiment) => {
                found.push((&point.experiment, BTreeMap::new(), is_time));
                found.len() - 1
            }
            None => continue,
        };
        let (_, places, _) = &mut found[at];
        let key = (core(point, NEAR), core(point, FAR));
        if places.len() < PLACES_MAX || places.contains_key(&key) {
            places.entry(key).or_default().push(value);
        }
    }
    found
        .into_iter()
        .map(|(_, mut places, is_time)| Placement {
            quantity: if is_time { Quantity::Time } else { Quantity::Rate },
            unpinned: places.remove(&(None, None)).and_then(|values| Estimate::of(&values)),
            places: places
                .into_iter()
                .filter_map(|((near, far), values)| {
                    Some(Place { near, far, estimate: Estimate::of(&values)? })
                })
                .collect(),
        })
        .filter(|placement| !placement.places.is_empty())
        .collect()
}

type Key = (Option<u32>, Option<u32>);
type ByPlace = BTreeMap<Key, Vec<f64>>;

fn core(point: &Point, name: &str) -> Option<u32> {
    let value = *point.varied.get(name)?;
    (value.fract() == 0.0 && (0.0..65_536.0).contains(&value)).then_some(value as u32)
}

/// What a point is compared by, and whether that is a time.
fn figure(point: &Point) -> Option<(f64, bool)> {
    let outcome = point.measured()?;
    let value = match &outcome.request_response {
        Some(answered) => (answered.latency.percentile_s(50.0)?, true),
        None => (total_rate(outcome), false),
    };
    value.0.is_finite().then_some(value)
}
