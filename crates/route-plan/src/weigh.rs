//! Weights of gateways from rates that were measured through them.

use stats::{MedianInterval, median_interval};

use crate::plan::WEIGHT_MAX;

/// The smallest weight of a proposal is at most this: finer shares than measurements tell apart.
const PARTS_MAX: u16 = 16;
/// How far a weight may be from the measured ratio where the spread is smaller.
const TOLERANCE: f64 = 0.05;

/// What a gateway carried, and the weight that follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weighed {
    /// The median of its rates and where it lies.
    pub rate: MedianInterval,
    /// 1 to [`WEIGHT_MAX`].
    pub weight: u16,
}

/// Weights for all gateways.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// In the order of the gateways.
    pub gateways: Vec<Weighed>,
    /// Some gateway differs from another by more than the spread of both, and by enough for another weight. If not, all
    /// weights are 1.
    pub is_different: bool,
}

/// The smallest weights that say what was measured: each within the spread of its gateway's rates, and within 5 % where the
/// spread is smaller. Gateways whose intervals overlap, directly or through others', have one weight. `rates` are of
/// each gateway, in any unit. `None` when a gateway has none above 0.
#[must_use]
pub fn propose(rates: &[Vec<f64>]) -> Option<Proposal> {
    let measured: Option<Vec<MedianInterval>> =
        rates.iter().map(|rates| median_interval(rates).filter(|rate| rate.median > 0.0)).collect();
    let measured = measured?;
    let told_apart = told_apart(&measured);
    let least = told_apart.iter().map(|rate| rate.median).fold(f64::INFINITY, f64::min);
    let is_different = told_apart.iter().any(|rate| rate.median > least);
    let weights = if is_different {
        let says = |weights: &Vec<u16>, parts: u16| {
            told_apart.iter().zip(weights).all(|(rate, weight)| {
                let said = f64::from(*weight) / f64::from(parts) * least;
                let spread = (rate.high - rate.low) / 2.0;
                (said - rate.median).abs() <= spread.max(TOLERANCE * rate.median)
            })
        };
        let fits = (1..=PARTS_MAX).map(|parts| (parts, weights(&told_apart, least, parts)));
        let mut fits = fits.filter(|(parts, weights)| says(weights, *parts));
        fits.next().map_or_else(|| weights(&told_apart, least, PARTS_MAX), |(_, weights)| weights)
    } else {
        vec![1; measured.len()]
    };
    let is_different = weights.iter().any(|weight| *weight != weights[0]);
    let gateways = measured.into_iter().zip(weights);
    let gateways = gateways.map(|(rate, weight)| Weighed { rate, weight }).collect();
    Some(Proposal { gateways, is_different })
}

/// The rates as far as they differ: gateways whose intervals overlap, directly or through others', get one rate, the
/// median of theirs.
fn told_apart(measured: &[MedianInterval]) -> Vec<MedianInterval> {
    let mut order: Vec<usize> = (0..measured.len()).collect();
    order.sort_by(|one, other| measured[*one].low.total_cmp(&measured[*other].low));
    let mut alike: Vec<(f64, Vec<usize>)> = Vec::new();
    for at in order {
        let MedianInterval { low, high, .. } = measured[at];
        match alike.last_mut() {
            Some((reach, members)) if low <= *reach => {
                *reach = reach.max(high);
                members.push(at);
            }
            _apart => alike.push((high, vec![at])),
        }
    }
    let mut rates = measured.to_vec();
    for (_, members) in alike {
        let medians: Vec<f64> = members.iter().map(|at| measured[*at].median).collect();
        let median = stats::median(&medians).unwrap_or(0.0);
        for at in members {
            rates[at].median = median;
        }
    }
    rates
}

/// Each rate in parts of the least one; where that is too much for the fastest, in parts of a larger one.
fn weights(measured: &[MedianInterval], least: f64, parts: u16) -> Vec<u16> {
    let most = measured.iter().map(|rate| rate.median).fold(0.0, f64::max);
    let scale = (f64::from(parts) / least).min(f64::from(WEIGHT_MAX) / most);
    let weight = |rate: &MedianInterval| {
        let rounded = (rate.median * scale).round().clamp(1.0, f64::from(WEIGHT_MAX));
        (1..=WEIGHT_MAX).rev().find(|weight| f64::from(*weight) <= rounded).unwrap_or(1)
    };
    measured.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weights_of(rates: &[&[f64]]) -> (Vec<u16>, bool) {
        let rates: Vec<Vec<f64>> = rates.iter().map(|rates| rates.to_vec()).collect();
        let proposal = propose(&rates).unwrap();
        let weights = proposal.gateways.iter().map(|gateway| gateway.weight).collect();
        (weights, proposal.is_different)
    }

    #[test]
    fn weights_are_the_smallest_that_say_what_was_measured() {
        let steady: &[&[f64]] =
            &[&[200.0, 199.0, 201.0], &[50.0, 50.5, 49.5], &[198.0, 200.0, 202.0]];
        assert_eq!(weights_of(steady), (vec![4, 1, 4], true));
        let halves: &[&[f64]] = &[&[150.0, 151.0, 149.0], &[100.0, 101.0, 99.0]];
        assert_eq!(weights_of(halves), (vec![3, 2], true));
    }

    #[test]
    fn what_the_noise_hides_is_no_difference() {
        let noisy: &[&[f64]] = &[&[80.0, 100.0, 120.0], &[90.0, 110.0, 130.0]];
        assert_eq!(weights_of(noisy), (vec![1, 1], false));
        let steady: &[&[f64]] = &[&[95.0, 95.1, 95.2], &[95.3, 95.4, 95.5]];
        assert_eq!(weights_of(steady), (vec![1, 1], false));
    }

    #[test]
    fn a_chain_of_overlapping_intervals_has_one_weight() {
        // The first and the last do not overlap; both overlap the one between them.
        let chain: &[&[f64]] = &[&[1.0e9, 1.6e9], &[1.5e9, 2.9e9], &[2.3e9, 3.6e9]];
        assert_eq!(weights_of(chain), (vec![1, 1, 1], false));
        let beside: &[&[f64]] = &[&[1.0e9, 1.6e9], &[10.0e9, 10.1e9], &[1.5e9, 1.7e9]];
        let (weights, is_different) = weights_of(beside);
        assert!(is_different && weights[0] == weights[2] && weights[1] > weights[0], "{weights:?}");
    }

    #[test]
    fn a_slow_gateway_beside_a_very_fast_one_keeps_a_share() {
        let far_apart: &[&[f64]] = &[&[1e11, 1e11, 1e11], &[1e6, 1e6, 1e6]];
        assert_eq!(weights_of(far_apart), (vec![WEIGHT_MAX, 1], true));
    }

    #[test]
    fn a_gateway_that_was_not_measured_has_no_weight() {
        assert_eq!(propose(&[vec![1.0], Vec::new()]), None);
        assert_eq!(propose(&[vec![1.0], vec![0.0]]), None);
    }

    proptest! {
        /// Whatever was measured, weights are in range, and a faster gateway has no smaller one.
        #[test]
        fn weights_are_in_range_and_in_order(
            rates in prop::collection::vec(prop::collection::vec(1.0_f64..1e12, 1..8), 1..20),
        ) {
            let mut gateways = propose(&rates).unwrap().gateways;
            for (one, other) in gateways.iter().flat_map(|one| gateways.iter().map(move |two| (one, two))) {
                let overlaps = one.rate.low <= other.rate.high && other.rate.low <= one.rate.high;
                prop_assert!(!overlaps || one.weight == other.weight);
            }
            gateways.sort_by(|one, other| one.rate.median.total_cmp(&other.rate.median));
            prop_assert!(gateways.iter().all(|one| (1..=WEIGHT_MAX).contains(&one.weight)));
            prop_assert!(gateways.is_sorted_by_key(|one| one.weight));
        }
    }
}
