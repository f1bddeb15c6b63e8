//! Which gateway each pair of hosts uses in the mode `pairs`: weighted round robin, computed alike on both
//! ends, so that both name the same gateway and no kernel has to hash.

/// The round of gateways that pairs take their turns in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Each gateway as often as its weight, divided by the common divisor of all weights, spread evenly.
    slots: Vec<usize>,
    /// For each gateway the round without it, in which its pairs take their backups.
    others: Vec<Vec<usize>>,
}

/// The gateway of a pair, and the one that takes over when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Choice {
    /// Index of the gateway.
    pub primary: usize,
    /// Index of its backup; the gateway itself where it is the only one.
    pub backup: usize,
}

impl Assignment {
    /// For gateways of these weights, each at least 1.
    #[must_use]
    pub fn new(weights: &[u16]) -> Self {
        let divisor = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
        let mut turns: Vec<(u64, usize)> = Vec::new();
        for (gateway, &weight) in weights.iter().enumerate() {
            let turns_count = u64::from(weight / divisor);
            // The middle of each of the gateway's equal parts of the round.
            let middle = |turn: u64| ((2 * turn + 1) << 32) / turns_count;
            turns.extend((0..turns_count).map(|turn| (middle(turn), gateway)));
        }
        turns.sort_unstable();
        let slots: Vec<usize> = turns.into_iter().map(|(_, gateway)| gateway).collect();
        let without = |gateway| slots.iter().copied().filter(|&other| other != gateway).collect();
        let others = (0..weights.len()).map(without).collect();
        Self { slots, others }
    }

    /// The gateway of the pair of host `one` of the network that comes first in the plan and host `other`
    /// of the one that comes later, both counted from 0 on their networks. `None` without gateways.
    #[must_use]
    pub fn choice(&self, one: usize, other: usize) -> Option<Choice> {
        let length = self.slots.len();
        let primary = *self.slots.get((one + other).checked_rem(length)?)?;
        // The pairs of a gateway, seen from either end, go through its backups one by one.
        let turn = one / length + other / length + one % length;
        let others = self.others.get(primary)?;
        let backup = turn.checked_rem(others.len()).map_or(primary, |turn| others[turn]);
        Some(Choice { primary, backup })
    }

    /// Gateways that no pair of so many hosts and so many others uses.
    #[must_use]
    pub fn unused(&self, ones_count: usize, others_count: usize) -> Vec<usize> {
        let turns =
            if ones_count == 0 || others_count == 0 { 0 } else { ones_count + others_count - 1 };
        let mut is_used = vec![false; self.others.len()];
        self.slots.iter().take(turns).for_each(|&gateway| is_used[gateway] = true);
        (0..is_used.len()).filter(|&gateway| !is_used[gateway]).collect()
    }
}

impl Choice {
    /// The gateway that carries the pair when those that are not `up` have failed: the primary, its
    /// backup, or the next one after that. With all of them down it is the primary: routes stay as they are.
    #[must_use]
    pub fn carrier(&self, up: &[bool]) -> usize {
        let is_up = |gateway: usize| up.get(gateway).copied().unwrap_or(true);
        let after = (1..up.len()).map(|step| (self.backup + step) % up.len());
        let mut candidates = [self.primary, self.backup].into_iter().chain(after);
        candidates.find(|&gateway| is_up(gateway)).unwrap_or(self.primary)
    }
}

fn greatest_common_divisor(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn loads(assignment: &Assignment, pairs: impl Iterator<Item = (usize, usize)>) -> Vec<usize> {
        let mut loads = vec![0; assignment.others.len()];
        pairs.for_each(|(one, other)| loads[assignment.choice(one, other).unwrap().primary] += 1);
        loads
    }

    proptest! {
        /// The busiest gateway of any host has at most one pair more than an even share.
        #[test]
        fn equal_weights_share_a_host_s_pairs_evenly(
            gateways in 1_usize..40, ones in 1_usize..60, others in 1_usize..60, weight in 1_u16..9,
        ) {
            let assignment = Assignment::new(&vec![weight; gateways]);
            for one in 0..ones {
                let loads = loads(&assignment, (0..others).map(|other| (one, other)));
                prop_assert!(loads.iter().all(|&load| load <= others.div_ceil(gateways)));
            }
            for other in 0..others {
                let loads = loads(&assignment, (0..ones).map(|one| (one, other)));
                prop_assert!(loads.iter().all(|&load| load <= ones.div_ceil(gateways)));
            }
            let all = (0..ones).flat_map(|one| (0..others).map(move |other| (one, other)));
            let loads = loads(&assignment, all);
            let spread = loads.iter().max().unwrap() - loads.iter().min().unwrap();
            prop_assert!(spread <= (ones % gateways).min(others % gateways), "{loads:?}");
        }

        /// Whole rounds give each gateway exactly its weight's share; any stretch is off by less than two.
        #[test]
        fn unequal_weights_are_kept(weights in proptest::collection::vec(1_u16..=256, 1..12)) {
            let assignment = Assignment::new(&weights);
            let length = assignment.slots.len();
            let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
            let round = loads(&assignment, (0..length).map(|other| (3, other)));
            for (gateway, load) in round.iter().enumerate() {
                prop_assert_eq!(*load as u64 * total, u64::from(weights[gateway]) * length as u64);
            }
            let part = length / 2 + 1;
            let stretch = loads(&assignment, (0..part).map(|other| (0, other)));
            for (gateway, load) in stretch.iter().enumerate() {
                let share = part as f64 * f64::from(weights[gateway]) / total as f64;
                prop_assert!((*load as f64 - share).abs() < 2.0, "{load} for {share}");
            }
        }

        /// A gateway's failure moves its own pairs and no others, and spreads them.
        #[test]
        fn a_failure_moves_only_its_own_pairs(
            weights in proptest::collection::vec(1_u16..6, 2..12), failed in 0_usize..12,
        ) {
            let failed = failed % weights.len();
            let assignment = Assignment::new(&weights);
            let mut up = vec![true; weights.len()];
            up[failed] = false;
            let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
            for one in 0..60 {
                for other in 0..60 {
                    let choice = assignment.choice(one, other).unwrap();
                    let after = choice.carrier(&up);
                    if choice.primary == failed {
                        prop_assert_ne!(after, failed);
                        *taken.entry(after).or_default() += 1;
                    } else {
                        prop_assert_eq!(after, choice.primary);
                    }
                }
            }
            prop_assert_eq!(taken.len(), weights.len() - 1);
        }
    }

    #[test]
    fn the_last_gateways_are_held() {
        let choice = Choice { primary: 1, backup: 2 };
        assert_eq!(choice.carrier(&[true, false, false]), 0);
        assert_eq!(choice.carrier(&[false, false, false]), 1);
        assert_eq!(Assignment::new(&[7]).choice(3, 4), Some(Choice { primary: 0, backup: 0 }));
        assert_eq!(Assignment::new(&[]).choice(0, 0), None);
    }

    #[test]
    fn unused_gateways_are_those_that_no_pair_names() {
        let weights = [100, 1, 100];
        let assignment = Assignment::new(&weights);
        assert_eq!(assignment.unused(4, 2), [1]);
        assert!(assignment.unused(200, 2).is_empty());
        assert_eq!(assignment.unused(0, 5), [0, 1, 2]);
    }
}
