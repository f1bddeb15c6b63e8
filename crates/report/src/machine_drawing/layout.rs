//! Who sits in what: packages, nodes in them, caches in those, physical cores, their threads.

use std::collections::{BTreeMap, BTreeSet};

use results::{Cache, Core, Machine};

/// A host taken apart.
#[derive(Debug, Default)]
pub(super) struct Layout<'a> {
    pub(super) packages: Vec<Package<'a>>,
    /// Cores that nobody places: offline ones, as a rule.
    pub(super) unplaced: Vec<&'a Core>,
    /// Interfaces whose node is not known or not drawn, by index.
    pub(super) nics: Vec<usize>,
}

/// A package; without a number where the kernel tells none.
#[derive(Debug)]
pub(super) struct Package<'a> {
    pub(super) number: Option<u32>,
    pub(super) nodes: Vec<Node<'a>>,
}

/// A memory node's part of a package.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) number: Option<u32>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) groups: Vec<Group<'a>>,
    pub(super) nics: Vec<usize>,
}

/// The cores below one last-level cache.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) cache: Option<&'a Cache>,
    /// Physical cores: their threads.
    pub(super) physical: Vec<Vec<&'a Core>>,
}

impl<'a> Layout<'a> {
    pub(super) fn of(machine: &'a Machine) -> Self {
        let package_of_node: BTreeMap<u32, u32> =
            machine.cores.iter().filter_map(|core| Some((core.node?, core.package?))).collect();
        let mut layout = Self::default();
        let mut places: BTreeMap<(Option<u32>, Option<u32>), Vec<&Core>> = BTreeMap::new();
        for core in &machine.cores {
            let package = core.package.or_else(|| package_of_node.get(&core.node?).copied());
            if core.is_online || package.is_some() {
                places.entry((package, core.node)).or_default().push(core);
            } else {
                layout.unplaced.push(core);
            }
        }
        let mut drawn = BTreeSet::new();
        for ((package, number), cores) in places {
            if layout.packages.last().is_none_or(|last| last.number != package) {
                layout.packages.push(Package { number: package, nodes: Vec::new() });
            }
            let Some(into) = layout.packages.last_mut() else { continue };
            let is_first = number.is_some_and(|number| drawn.insert(number));
            let known = machine.nodes.iter().find(|node| Some(node.node) == number);
            into.nodes.push(Node {
                number,
                memory_bytes: known.and_then(|node| node.memory_bytes),
                groups: groups(machine, &cores),
                nics: if is_first { nics_of(machine, number) } else { Vec::new() },
            });
        }
        layout.nics = (0..machine.nics.len())
            .filter(|&at| machine.nics[at].node.is_none_or(|node| !drawn.contains(&node)))
            .collect();
        layout
    }
}

fn nics_of(machine: &Machine, node: Option<u32>) -> Vec<usize> {
    (0..machine.nics.len()).filter(|&at| machine.nics[at].node == node).collect()
}

/// Cores by the highest cache they share, then by physical core.
fn groups<'a>(machine: &'a Machine, cores: &[&'a Core]) -> Vec<Group<'a>> {
    let mut last_level: BTreeMap<u32, &Cache> = BTreeMap::new();
    for cache in machine.caches.iter().filter(|cache| cache.level >= 2) {
        for &core in &cache.cores {
            let known = last_level.entry(core).or_insert(cache);
            if known.level < cache.level {
                *known = cache;
            }
        }
    }
    let mut groups: Vec<Group<'_>> = Vec::new();
    // Keyed by the cache's first core and level: each cache stands once in a machine.
    let mut at: BTreeMap<Option<(u32, Option<u32>)>, usize> = BTreeMap::new();
    let mut physical_at: BTreeMap<(usize, Option<u32>, u32), usize> = BTreeMap::new();
    for &core in cores {
        let cache = last_level.get(&core.core).copied();
        let key = cache.map(|cache| (cache.level, cache.cores.first().copied()));
        let group = *at.entry(key).or_insert_with(|| {
            groups.push(Group { cache, physical: Vec::new() });
            groups.len() - 1
        });
        let Some(into) = groups.get_mut(group) else { continue };
        let place = core.physical_core.map(|number| {
            *physical_at.entry((group, core.die, number)).or_insert_with(|| {
                into.physical.push(Vec::new());
                into.physical.len() - 1
            })
        });
        match place.and_then(|place| into.physical.get_mut(place)) {
            Some(threads) => threads.push(core),
            None => into.physical.push(vec![core]),
        }
    }
    groups
}
