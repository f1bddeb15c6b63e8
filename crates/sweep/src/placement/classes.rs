//! Cores that need no telling apart before one of them has been measured.

use std::collections::BTreeMap;

use results::{Machine, Proximity};

use super::EndView;

/// Cores that are alike as far as the machine's description goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreClass {
    /// How far they are from the core that serves the flow's queue; absent when that is not known.
    pub proximity: Option<Proximity>,
    /// Whether they are next to the network card; absent when the card does not say.
    pub is_near_nic: Option<bool>,
    /// In order.
    pub cores: Vec<u32>,
}

impl CoreClass {
    /// The one that stands for all: not core 0 if another is to be had, for core 0 does the
    /// kernel's housekeeping.
    #[must_use]
    pub fn representative(&self) -> Option<u32> {
        self.cores.iter().find(|core| **core != 0).or(self.cores.first()).copied()
    }
}

/// The classes of one end's usable cores, nearest to the queue first. Two cores are alike when
/// they are equally far from `incoming_core` (in Open-MX's steps and in the distance of their
/// memory nodes), both next to the network card or both not, and both isolated or both not.
/// Without a description of the machine every core is a class of its own.
#[must_use]
pub fn classes(end: &EndView<'_>, incoming_core: Option<u32>) -> Vec<CoreClass> {
    let mut cores: Vec<u32> = end.usable_cores.to_vec();
    cores.sort_unstable();
    cores.dedup();
    let Some(machine) = end.machine.filter(|machine| !machine.cores.is_empty()) else {
        let alone = |core: u32| CoreClass {
            proximity: incoming_core.filter(|known| *known == core).map(|_| Proximity::SameCore),
            is_near_nic: None,
            cores: vec![core],
        };
        return cores.into_iter().map(alone).collect();
    };
    let nic = end.interface.and_then(|name| machine.nic(name));
    let near_nic = |core: u32| {
        let near_cores = &nic?.near_cores;
        (!near_cores.is_empty()).then(|| near_cores.contains(&core))
    };
    let mut found: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for core in cores {
        let proximity = incoming_core.and_then(|other| machine.proximity(other, core));
        let far_from_nic = near_nic(core).map(|near| !near);
        let distance = incoming_core
            .and_then(|other| node_distance(machine, other, core))
            .or_else(|| machine.core(core)?.node.filter(|_| incoming_core.is_none()));
        let isolated = machine.core(core).is_some_and(|core| core.is_isolated);
        found.entry((proximity, far_from_nic, distance, isolated)).or_default().push(core);
    }
    found
        .into_iter()
        .map(|((proximity, far_from_nic, ..), cores)| CoreClass {
            proximity,
            is_near_nic: far_from_nic.map(|far| !far),
            cores,
        })
        .collect()
}

/// Distance between the memory nodes of two cores (ACPI SLIT), where the machine tells it.
fn node_distance(machine: &Machine, from: u32, to: u32) -> Option<u32> {
    let node_of = |core: u32| machine.core(core)?.node;
    let (from, to) = (node_of(from)?, node_of(to)?);
    let place = machine.nodes.iter().position(|node| node.node == to)?;
    machine.nodes.iter().find(|node| node.node == from)?.distances.get(place).copied()
}

/// One pair of cores for each pair of classes; with a machine that both ends share, one for each
/// way its two cores can lie to each other.
pub(super) fn class_pairs(
    near: &[CoreClass],
    far: &[CoreClass],
    shared: Option<&Machine>,
) -> Vec<(u32, u32)> {
    let mut pairs = Vec::new();
    for (one, other) in near.iter().flat_map(|one| far.iter().map(move |other| (one, other))) {
        match shared {
            None => pairs.extend(one.representative().zip(other.representative())),
            Some(machine) => {
                let mut relations = Vec::new();
                for pair in all_pairs(&one.cores, &other.cores) {
                    let relation = machine.proximity(pair.0, pair.1);
                    if !relations.contains(&relation) {
                        relations.push(relation);
                        pairs.push(pair);
                    }
                }
            }
        }
    }
    pairs
}

/// Every pair.
pub(super) fn all_pairs(near: &[u32], far: &[u32]) -> Vec<(u32, u32)> {
    near.iter().flat_map(|one| far.iter().map(move |other| (*one, *other))).collect()
}
