//! Which core each rank has, and which cores process the packets of its host. Pure.

use results::{Machine, Proximity};

use super::study::{Distance, Receive};

/// Most ranks of a host, the paper's.
const RANKS_MAX: usize = 8;

/// Two hosts on the cores of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Cores that may be used.
    pub(super) usable: Vec<u32>,
    /// Cores of each host's ranks, by rank of the host.
    pub(super) ranks: [Vec<u32>; 2],
    /// For each distance that is there, the cores that process packets of each host.
    pub(super) distances: Vec<(Distance, [u32; 2])>,
}

impl Layout {
    /// So many ranks on each host, or one for each core that it can have for itself. `None`: no core is usable.
    pub(super) fn of(machine: &Machine, ranks_per_host: usize) -> Option<Self> {
        let usable: Vec<u32> = machine
            .cores
            .iter()
            .filter(|core| core.is_online && core.is_usable && !core.is_isolated)
            .map(|core| core.core)
            .collect();
        let ranks_per_host = match ranks_per_host {
            1 => 1,
            least => (usable.len() / 2).clamp(least, RANKS_MAX.max(least)),
        };
        let ordered = crew::cores(machine, usable.len().min(2 * ranks_per_host));
        let core = |index: usize| {
            // With fewer cores than ranks the hosts share them: the first ranks of both have the first core.
            let index =
                if ordered.len() >= 2 * ranks_per_host { index } else { index % ranks_per_host };
            Some(*ordered.get(index % ordered.len().max(1))?)
        };
        let of_host = |host: usize| -> Option<Vec<u32>> {
            (0..ranks_per_host).map(|rank| core(host * ranks_per_host + rank)).collect()
        };
        let ranks = if ranks_per_host == 1 {
            [vec![*ordered.first()?], vec![*ordered.last()?]]
        } else {
            [of_host(0)?, of_host(1)?]
        };
        let distances = distances(machine, &usable, [ranks[0][0], ranks[1][0]]);
        Some(Self { usable, ranks, distances })
    }

    /// One rank on each host, both on one core; packets are processed there or on the other.
    pub(super) fn on_one_core(process: u32, other: u32) -> Self {
        Self {
            usable: vec![process, other],
            ranks: [vec![process], vec![process]],
            distances: vec![
                (Distance::SameCore, [process; 2]),
                (Distance::SharedCache, [other; 2]),
            ],
        }
    }

    pub(super) fn ranks_per_host(&self) -> usize {
        self.ranks[0].len()
    }

    pub(super) fn ranks_count(&self) -> usize {
        2 * self.ranks_per_host()
    }

    /// Whether each rank has a core of its own, and its packets can be processed on yet another.
    pub(super) fn has_cores_enough(&self) -> bool {
        self.usable.len() >= 2 * self.ranks_count()
    }

    /// Whether each rank has a core of its own.
    pub(super) fn has_a_core_a_rank(&self) -> bool {
        self.usable.len() >= self.ranks_count()
    }

    /// The device on which a host's rank receives.
    pub(super) fn device(receive: Receive, rank: usize) -> usize {
        if receive == Receive::Queues { rank } else { 0 }
    }

    /// The cores that process, one after the other, what each device of a host receives; none: where the kernel likes.
    pub(super) fn receive_cores(&self, receive: Receive, host: usize) -> Vec<Vec<u32>> {
        let ranks = &self.ranks[host];
        let mut devices = vec![Vec::new(); ranks.len()];
        match receive {
            Receive::RoundRobin => devices[0].clone_from(&self.usable),
            Receive::Single(distance) => {
                let found = self.distances.iter().find(|(one, _)| *one == distance);
                devices[0].extend(found.map(|(_, cores)| cores[host]));
            }
            Receive::FirstCore => devices[0].push(ranks[0]),
            Receive::Queues => {
                devices.iter_mut().zip(ranks).for_each(|(device, core)| device.push(*core));
            }
            Receive::Tcp => {}
        }
        devices
    }
}

/// For each distance cores at that distance from the ranks' cores, of no rank where there are such.
fn distances(machine: &Machine, usable: &[u32], ranks: [u32; 2]) -> Vec<(Distance, [u32; 2])> {
    let of = |distance: Distance| -> Option<[u32; 2]> {
        let is_it = |rank: u32, core: u32| {
            machine.proximity(rank, core).is_some_and(|found| distance_of(found) == Some(distance))
        };
        let pick = |rank: u32, taken: Option<u32>| {
            let fits = || usable.iter().copied().filter(move |core| is_it(rank, *core));
            let is_free = |core: &u32| !ranks.contains(core) && Some(*core) != taken;
            fits().find(is_free).or_else(|| fits().next())
        };
        let near = pick(ranks[0], None)?;
        Some([near, pick(ranks[1], Some(near))?])
    };
    Distance::ALL.into_iter().filter_map(|one| Some((one, of(one)?))).collect()
}

/// The paper's machines had no hardware threads.
fn distance_of(proximity: Proximity) -> Option<Distance> {
    match proximity {
        Proximity::SameCore => Some(Distance::SameCore),
        Proximity::SmtSibling => None,
        Proximity::SharedCache => Some(Distance::SharedCache),
        Proximity::SameNode => Some(Distance::SamePackage),
        Proximity::OtherNode => Some(Distance::OtherPackage),
    }
}

#[cfg(test)]
mod tests {
    use results::{Cache, Core};

    use super::*;

    /// Cores in packages of four, caches shared by two.
    fn machine(cores: u32) -> Machine {
        let core = |core: u32| Core {
            core,
            package: Some(core / 4),
            node: Some(core / 4),
            physical_core: Some(core % 4),
            is_online: true,
            is_usable: true,
            ..Core::default()
        };
        let cache =
            |first: u32| Cache { level: 2, cores: vec![first, first + 1], ..Cache::default() };
        Machine {
            cores: (0..cores).map(core).collect(),
            caches: (0..cores / 2).map(|pair| cache(2 * pair)).collect(),
            ..Machine::default()
        }
    }

    #[test]
    fn on_two_cores_each_host_receives_on_its_own_or_on_the_others() {
        let layout = Layout::of(&machine(2), 1).expect("cores");
        assert_eq!(layout.ranks, [vec![0], vec![1]]);
        let expected = vec![(Distance::SameCore, [0, 1]), (Distance::SharedCache, [1, 0])];
        assert_eq!(layout.distances, expected);
        assert!(!layout.has_cores_enough() && layout.has_a_core_a_rank());
        let many = Layout::of(&machine(2), 2).expect("cores");
        assert_eq!(many.ranks, [vec![0, 1], vec![0, 1]], "the hosts share them");
        assert!(!many.has_a_core_a_rank());
    }

    #[test]
    fn on_the_papers_machine_every_distance_is_there_and_no_rank_is_disturbed() {
        let layout = Layout::of(&machine(8), 1).expect("cores");
        assert!(layout.has_cores_enough());
        let names: Vec<&str> = layout.distances.iter().map(|(one, _)| one.name()).collect();
        assert_eq!(names, ["SC", "S$", "SP", "OP"]);
        let ranks = [layout.ranks[0][0], layout.ranks[1][0]];
        for (distance, cores) in &layout.distances[1..] {
            assert!(cores.iter().all(|core| !ranks.contains(core)), "{distance:?} {cores:?}");
            assert_ne!(cores[0], cores[1], "{distance:?}");
        }
    }

    #[test]
    fn one_rank_a_core_where_there_are_cores() {
        let layout = Layout::of(&machine(8), 2).expect("cores");
        assert_eq!(layout.ranks_per_host(), 4);
        let mut all = layout.ranks.concat();
        all.sort_unstable();
        assert_eq!(all, (0..8).collect::<Vec<u32>>());
        assert!(layout.has_a_core_a_rank() && !layout.has_cores_enough());
    }

    #[test]
    fn a_queue_a_rank_is_processed_on_the_ranks_core() {
        let layout = Layout::of(&machine(2), 2).expect("cores");
        assert_eq!(layout.receive_cores(Receive::Queues, 0), [vec![0], vec![1]]);
        assert_eq!(layout.receive_cores(Receive::FirstCore, 1), [vec![0], vec![]]);
        assert_eq!(layout.receive_cores(Receive::RoundRobin, 0), [vec![0, 1], vec![]]);
        assert_eq!(layout.receive_cores(Receive::Tcp, 0), [vec![], vec![]] as [Vec<u32>; 2]);
        assert_eq!(Layout::device(Receive::Queues, 1), 1);
        assert_eq!(Layout::device(Receive::RoundRobin, 1), 0);
    }
}
