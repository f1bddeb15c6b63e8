//! The compared figure of every placement, from points.

use std::collections::BTreeMap;

use results::{Estimate, PlacedPair, Point};

use super::rank::chance_of_being_better;
use super::{EXPERIMENT, FAR_CORE, FAR_INTERRUPT_CORE, Metric, NEAR_CORE, NEAR_INTERRUPT_CORE};

/// Above this a difference may be chance.
pub(super) const CHANCE_MAX: f64 = 0.05;

/// A setting as something to compare and sort.
pub(super) type Key = Vec<(String, u64)>;

/// The key of what was varied.
pub(super) fn key_of(varied: &BTreeMap<String, f64>) -> Key {
    varied.iter().map(|(name, value)| (name.clone(), value.to_bits())).collect()
}

/// The repeats of one placement.
#[derive(Debug, Clone)]
pub(super) struct Group<'p> {
    pub(super) varied: &'p BTreeMap<String, f64>,
    pub(super) values: Vec<f64>,
    pub(super) points: Vec<&'p Point>,
}

impl Group<'_> {
    pub(super) fn is_unpinned(&self) -> bool {
        self.varied.is_empty()
    }

    pub(super) fn median(&self) -> f64 {
        stats::median(&self.values).unwrap_or(f64::NAN)
    }

    /// The placement; `None` when nothing is pinned.
    pub(super) fn place(&self) -> Option<PlacedPair> {
        Some(PlacedPair {
            near_core: self.core(NEAR_CORE)?,
            far_core: self.core(FAR_CORE)?,
            near_interrupt_core: self.core(NEAR_INTERRUPT_CORE),
            far_interrupt_core: self.core(FAR_INTERRUPT_CORE),
            estimate: Estimate::of(&self.values)?,
        })
    }

    fn core(&self, name: &str) -> Option<u32> {
        let value = *self.varied.get(name)?;
        u32::try_from(units::saturating_u64(value)).ok()
    }
}

/// The compared points by their placement, in the order they first appear.
pub(super) fn groups<'p>(
    points: impl IntoIterator<Item = &'p Point>,
    metric: Metric,
) -> Vec<Group<'p>> {
    let mut groups: Vec<Group<'p>> = Vec::new();
    for point in points.into_iter().filter(|point| point.experiment == EXPERIMENT) {
        let Some(value) = value_of(point, metric) else { continue };
        match groups.iter_mut().find(|group| *group.varied == point.varied) {
            Some(group) => {
                group.values.push(value);
                group.points.push(point);
            }
            None => groups.push(Group {
                varied: &point.varied,
                values: vec![value],
                points: vec![point],
            }),
        }
    }
    groups
}

fn value_of(point: &Point, metric: Metric) -> Option<f64> {
    let outcome = point.measured()?;
    let value = match metric {
        Metric::Goodput(direction) => {
            outcome.directions.iter().find(|one| one.direction == direction)?.received_bits_per_s
        }
        Metric::RoundTrip => outcome.request_response.as_ref()?.latency.percentile_s(50.0)?,
    };
    value.is_finite().then_some(value)
}

/// Pinned placements, best median first.
pub(super) fn ranked<'g, 'p>(groups: &'g [Group<'p>], metric: Metric) -> Vec<&'g Group<'p>> {
    let mut pinned: Vec<&Group<'p>> =
        groups.iter().filter(|group| group.place().is_some()).collect();
    pinned.sort_by(|a, b| match metric.more_is_better() {
        true => b.median().total_cmp(&a.median()),
        false => a.median().total_cmp(&b.median()),
    });
    pinned
}

/// The best placement and those that the noise does not tell from it, at most `count`, and at
/// least the next best.
pub(super) fn contenders<'g, 'p>(
    groups: &'g [Group<'p>],
    metric: Metric,
    count: usize,
) -> Vec<&'g Group<'p>> {
    let ranked = ranked(groups, metric);
    let mut found: Vec<&Group<'p>> = Vec::new();
    for group in ranked {
        let in_doubt = found.first().is_none_or(|best| !is_clearly_better(best, group, metric));
        if found.len() < 2 || in_doubt {
            found.push(group);
        }
    }
    found.truncate(count);
    found
}

/// Whether the noise does not hide that `better` is.
pub(super) fn is_clearly_better(better: &Group<'_>, other: &Group<'_>, metric: Metric) -> bool {
    // The float of 1/20 is not exactly the float of 0.05.
    chance_of_being_better(&better.values, &other.values, metric.more_is_better())
        <= CHANCE_MAX * 1.000_001
}
