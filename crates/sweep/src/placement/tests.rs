use results::{
    Cache, Core, DirectionOutcome, EndReport, HostAccount, MemoryNode, Nic, PointOutcome,
    Proximity, StreamEnd, TestOutcome,
};
use stats::Random;

use super::*;

/// Packages of cores that share a cache in groups; a node a package; the card next to the first.
fn machine(packages: u32, cores_each: u32, sharing: u32) -> Machine {
    let count = packages * cores_each;
    let core = |core: u32| Core {
        core,
        package: Some(core / cores_each),
        physical_core: Some(core % cores_each),
        node: Some(core / cores_each),
        is_online: true,
        is_usable: true,
        ..Core::default()
    };
    let cache = |first: u32| Cache {
        level: 3,
        kind: "Unified".into(),
        size_bytes: Some(32 << 20),
        cores: (first..first + sharing).collect(),
    };
    let node = |node: u32| MemoryNode {
        node,
        cores: (node * cores_each..(node + 1) * cores_each).collect(),
        memory_bytes: None,
        distances: (0..packages).map(|other| if other == node { 10 } else { 21 }).collect(),
    };
    Machine {
        cores: (0..count).map(core).collect(),
        caches: (0..count).step_by(sharing as usize).map(cache).collect(),
        nodes: (0..packages).map(node).collect(),
        nics: vec![Nic {
            name: "eth0".into(),
            near_cores: (0..cores_each).collect(),
            ..Nic::default()
        }],
        ..Machine::default()
    }
}

fn usable(machine: &Machine) -> Vec<u32> {
    machine.cores.iter().map(|core| core.core).collect()
}

fn survey<'a>(machine: &'a Machine, cores: &'a [u32], points_max: u32) -> Survey<'a> {
    let end = EndView { machine: Some(machine), usable_cores: cores, interface: Some("eth0") };
    Survey {
        near: end,
        far: end,
        shares_machine: false,
        spec: TestSpec::tcp(),
        effort: Effort { repeats: 3, points_max, is_exhaustive: false, refines: true },
        near_interrupt_cores: Vec::new(),
        far_interrupt_cores: Vec::new(),
    }
}

/// A world whose rate follows from the cores: queues are served by these cores.
struct World<'a> {
    queues: (u32, u32),
    rate: &'a dyn Fn(Option<(u32, u32)>) -> f64,
    noise: f64,
}

impl World<'_> {
    fn run(&self, planned: &crate::PlannedPoint, random: &mut Random) -> Point {
        let spec = planned.spec().expect("placements are of tests");
        let place = spec.near_cores.first().zip(spec.far_cores.first());
        let place = place.map(|(near, far)| (*near, *far));
        let rate = (self.rate)(place) * (1.0 + self.noise * (random.unit() - 0.5));
        let end = |core: u32| EndReport {
            streams: vec![StreamEnd { incoming_core: Some(core), ..StreamEnd::default() }],
            ..EndReport::default()
        };
        let outcome = TestOutcome {
            duration_s: 1.0,
            directions: vec![DirectionOutcome {
                direction: Direction::Forward,
                sent_bytes: 0,
                received_bytes: 0,
                sent_bits_per_s: rate,
                received_bits_per_s: rate,
                retransmits_count: None,
                udp: None,
            }],
            hosts: HostAccount::of_ends(end(self.queues.0), Some(end(self.queues.1))),
            ..TestOutcome::default()
        };
        planned.point(0, String::new(), PointOutcome::Measured(Box::new(outcome)))
    }

    /// Every round; cut short after so many points and begun anew.
    fn sweep(&self, survey: &Survey<'_>, cut_after: Option<usize>) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        for run in 0..2 {
            for number in 0..ROUNDS_COUNT {
                let Some(plan) = survey.round(number, &points) else { continue };
                for planned in plan.remaining(&points) {
                    if run == 0 && cut_after == Some(points.len()) {
                        break;
                    }
                    // Noise that depends on the point alone, not on the order.
                    let seed = plan.digest()
                        ^ u64::from(planned.repeat) << 32
                        ^ key_of(&planned.varied).iter().map(|(_, bits)| bits >> 40).sum::<u64>();
                    points.push(self.run(&planned, &mut Random::from_seed(seed)));
                }
                if run == 0 && cut_after.is_some_and(|cut| points.len() >= cut) {
                    break;
                }
            }
        }
        points
    }
}

/// The paper's law: next to the interrupt is better, on it a little, other packages lose.
fn law(machine: &Machine) -> impl Fn(Option<(u32, u32)>) -> f64 {
    |place| match place {
        None => 18e9,
        Some((near, far)) => {
            let receiver = match machine.proximity(5, far) {
                Some(Proximity::SameCore) => 20e9,
                Some(Proximity::SharedCache) => 22e9,
                Some(Proximity::SameNode) => 19e9,
                _ => 16e9,
            };
            // One member of the best class that only refining finds.
            let gem = if far == 7 { 1.08 } else { 1.0 };
            let sender =
                if machine.proximity(70, near) == Some(Proximity::OtherNode) { 0.9 } else { 1.0 };
            receiver * gem * sender
        }
    }
}

#[test]
fn big_hosts_stay_within_the_budget_and_the_best_is_found() {
    let machine = machine(2, 64, 8);
    let cores = usable(&machine);
    let rate = law(&machine);
    let world = World { queues: (70, 5), rate: &rate, noise: 0.02 };
    for points_max in [60, 120, 300] {
        let survey = survey(&machine, &cores, points_max);
        let points = world.sweep(&survey, None);
        let compared = points.iter().filter(|point| point.experiment == EXPERIMENT).count();
        assert!(compared <= points_max as usize, "{compared} of {points_max}");
        let found = conclude(&survey, &points).expect("measured");
        assert_eq!(found.pairs_count, 128 * 128);
        assert_eq!(machine.proximity(5, found.best.far_core), Some(Proximity::SharedCache));
        assert_ne!(machine.proximity(70, found.best.near_core), Some(Proximity::OtherNode));
        assert!(found.beats_unpinned, "{found:?}");
        assert_eq!((found.near_incoming_core, found.far_incoming_core), (Some(70), Some(5)));
        let of_far: Vec<Proximity> = found
            .relations
            .iter()
            .filter(|one| one.end == results::End::Far)
            .map(|one| one.proximity)
            .collect();
        let steps = [
            Proximity::SameCore,
            Proximity::SharedCache,
            Proximity::SameNode,
            Proximity::OtherNode,
        ];
        assert_eq!(of_far, steps);
    }
    let survey = survey(&machine, &cores, 300);
    let best = conclude(&survey, &world.sweep(&survey, None)).expect("measured").best;
    assert_eq!(best.far_core, 7, "refined to the best of its class");
}

#[test]
fn two_cores_are_measured_wholly_beside_no_pinning() {
    let machine = machine(1, 2, 2);
    let cores = usable(&machine);
    let rate = |place| match place {
        Some((1, 0)) => 14e9,
        Some((0, _)) => 6e9,
        Some(_) => 10e9,
        None => 11e9,
    };
    let world = World { queues: (0, 0), rate: &rate, noise: 0.1 };
    let survey = Survey { shares_machine: true, ..survey(&machine, &cores, 40) };
    let points = world.sweep(&survey, None);
    let found = conclude(&survey, &points).expect("measured");
    assert_eq!((found.measured_pairs_count, found.pairs_count), (4, 4));
    assert_eq!((found.best.near_core, found.best.far_core), (1, 0));
    assert!(found.beats_unpinned && found.ties.is_empty(), "{found:?}");
    assert!(found.unpinned.is_some_and(|unpinned| unpinned.count >= 6));
    // No pinning is measured among the others, not before or after them.
    let plan = survey.round(1, &points).expect("a first round");
    let places: Vec<usize> = plan
        .points()
        .iter()
        .enumerate()
        .filter(|(_, point)| point.varied.is_empty())
        .map(|(place, _)| place / 5)
        .collect();
    assert_eq!(places, [0, 1, 2]);
}

#[test]
fn what_is_no_better_than_no_pinning_is_not_advised() {
    let machine = machine(1, 4, 4);
    let cores = usable(&machine);
    for unpinned in [10e9, 12e9] {
        let rate = move |place: Option<(u32, u32)>| if place.is_none() { unpinned } else { 10e9 };
        let world = World { queues: (0, 1), rate: &rate, noise: 0.05 };
        let survey = survey(&machine, &cores, 120);
        let found = conclude(&survey, &world.sweep(&survey, None)).expect("measured");
        assert!(!found.beats_unpinned, "{found:?}");
    }
}

#[test]
fn a_sweep_cut_anywhere_ends_as_if_it_had_not_been() {
    let machine = machine(2, 8, 4);
    let cores = usable(&machine);
    let rate = law(&machine);
    let world = World { queues: (2, 5), rate: &rate, noise: 0.02 };
    let survey = survey(&machine, &cores, 60);
    let sorted = |mut points: Vec<Point>| {
        points.sort_by_key(|point| (point.experiment.clone(), key_of(&point.varied), point.repeat));
        points.into_iter().map(|point| (point.varied, point.repeat)).collect::<Vec<_>>()
    };
    let whole = sorted(world.sweep(&survey, None));
    for cut in [1, 2, 3, 10, whole.len() - 2] {
        assert_eq!(sorted(world.sweep(&survey, Some(cut))), whole, "cut after {cut}");
    }
}

#[test]
fn hosts_that_tell_nothing_are_swept_core_by_core() {
    let cores = [0, 1, 2];
    let end = EndView { machine: None, usable_cores: &cores, interface: None };
    assert_eq!(classes(&end, Some(1)).len(), 3);
    let machine = Machine::default();
    let survey = Survey { near: end, far: end, ..survey(&machine, &cores, 60) };
    let rate = |place: Option<(u32, u32)>| place.map_or(5e9, |(near, _)| f64::from(near) * 1e9);
    let world = World { queues: (0, 0), rate: &rate, noise: 0.0 };
    let found = conclude(&survey, &world.sweep(&survey, None)).expect("measured");
    assert_eq!(found.best.near_core, 2);
    assert!(!found.beats_unpinned);
}

#[test]
fn moved_interrupts_multiply_the_placements() {
    let machine = machine(1, 2, 2);
    let cores = usable(&machine);
    let survey = Survey { far_interrupt_cores: vec![0, 1], ..survey(&machine, &cores, 200) };
    let plan = survey.round(1, &[]).expect("a first round");
    assert_eq!(plan.settings().len(), 4 * 2 + 1);
    assert!(
        plan.settings().iter().filter(|one| one.varied.contains_key(FAR_INTERRUPT_CORE)).count()
            == 8
    );
}

#[test]
fn a_queue_that_moves_has_no_place() {
    let machine = machine(1, 4, 4);
    let rate = |_place| 1e9;
    let planned = crate::PlannedPoint {
        experiment: LOOK.into(),
        varied: Default::default(),
        repeat: 0,
        work: TestSpec::tcp().into(),
    };
    let look =
        |queues| World { queues, rate: &rate, noise: 0.0 }.run(&planned, &mut Random::from_seed(1));
    assert_eq!(incoming_cores(&[look((1, 2)), look((3, 2))]), (None, Some(2)));
    assert_eq!(incoming_cores(&[]), (None, None));
    let end = EndView { machine: Some(&machine), usable_cores: &[0, 1, 2, 3], interface: None };
    assert_eq!(classes(&end, None).len(), 1, "one node, nothing else known");
}
