//! The placement sweep: which pairs of cores to measure, in which order, and what they say.
//!
//! A host of 128 cores has 16 384 pairs with another of its kind, most of them alike. So cores are
//! first put into classes: those equally far from the core that serves the flow's queue, and
//! equally near to the network card (`classes`). One pair a pair of classes is measured, then
//! other members of the best classes, then the best are repeated until the noise no longer hides
//! which is better, all interleaved with runs that are not pinned at all, and all within a stated
//! number of tests.

mod classes;
mod conclusion;
mod figures;
mod rank;

use results::{Direction, Machine, Point, TestLimit, TestSpec};

use crate::plan::{Plan, Setting};
pub use classes::{CoreClass, classes};
pub use conclusion::{conclude, incoming_cores};
pub use rank::chance_of_being_better;

use classes::{all_pairs, class_pairs};
use figures::{contenders, groups, key_of};

/// Experiment of every compared point.
pub const EXPERIMENT: &str = "placement";
/// Experiment of the short, unpinned runs that show which cores serve the flow's queue.
pub const LOOK: &str = "placement-look";
/// What is varied: the core of the near thread.
pub const NEAR_CORE: &str = "near_core";
/// The core of the far thread.
pub const FAR_CORE: &str = "far_core";
/// The core that the near end's interrupt was moved to.
pub const NEAR_INTERRUPT_CORE: &str = "near_interrupt_core";
/// The core that the far end's interrupt was moved to.
pub const FAR_INTERRUPT_CORE: &str = "far_interrupt_core";

/// Rounds a sweep has; a later one may be empty.
pub const ROUNDS_COUNT: u32 = 4;

/// Runs that only look where the flow's packets come in.
const LOOKS_COUNT: u32 = 2;
/// Pairs whose neighbours and further repeats are worth while.
const CONTENDERS_MAX: usize = 3;
/// Order of every round is a shuffle from this seed.
const SEED: u64 = 0x0f14;

/// One end, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub struct EndView<'a> {
    /// What it is made of; without it every core stands for itself.
    pub machine: Option<&'a Machine>,
    /// Cores that may be used there.
    pub usable_cores: &'a [u32],
    /// The interface that carries the path.
    pub interface: Option<&'a str>,
}

/// How thorough a sweep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Repeats of every placement, at least 1.
    pub repeats: u32,
    /// Most tests in all; the two looks are not counted.
    pub points_max: u32,
    /// Every pair of cores, however many: the budget then counts for nothing.
    pub is_exhaustive: bool,
    /// Look closer at the best after the first round.
    pub refines: bool,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Goodput at the receiver, bit/s.
    Goodput(Direction),
    /// Median round trip of requests, seconds.
    RoundTrip,
}

/// A placement sweep between two ends.
#[derive(Debug, Clone)]
pub struct Survey<'a> {
    /// The end that asks.
    pub near: EndView<'a>,
    /// The other end.
    pub far: EndView<'a>,
    /// Both ends run on the same cores (a lab): then it matters how far they are from each other.
    pub shares_machine: bool,
    /// The test, unpinned.
    pub spec: TestSpec,
    /// How thorough.
    pub effort: Effort,
    /// Cores that the near end's interrupt may be moved to; empty: it stays.
    pub near_interrupt_cores: Vec<u32>,
    /// Cores that the far end's interrupt may be moved to; empty: it stays.
    pub far_interrupt_cores: Vec<u32>,
}

impl Metric {
    /// What a test measures of this kind.
    #[must_use]
    pub fn of(spec: &TestSpec) -> Self {
        match &spec.request_response {
            Some(_) => Self::RoundTrip,
            None => Self::Goodput(spec.direction),
        }
    }

    /// The figure's name, as in [`results::Summary::figure`].
    #[must_use]
    pub fn figure(self) -> &'static str {
        match self {
            Self::Goodput(Direction::Reverse) => "reverse_received_bits_per_s",
            Self::Goodput(_) => "forward_received_bits_per_s",
            Self::RoundTrip => "rtt_p50_s",
        }
    }

    /// Whether more of it is better.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Goodput(_))
    }
}

impl Survey<'_> {
    /// The plan of one round, from 0 to [`ROUNDS_COUNT`], given the points measured so far; `None`
    /// when there is nothing (more) to measure in it. Points of this round and later ones are not
    /// looked at, so that a sweep that was cut short goes on with the very same plans.
    #[must_use]
    pub fn round(&self, number: u32, points: &[Point]) -> Option<Plan> {
        let mut plans: Vec<Plan> = Vec::new();
        for round in 0..=number {
            let plan = match round {
                0 => Some(self.look()),
                1 => Some(self.first_round(points)),
                2 => self.neighbours(&plans, points),
                3 => self.settle(&plans, points),
                _ => None,
            };
            if round == number {
                return plan.filter(|plan| !plan.settings().is_empty());
            }
            plans.extend(plan);
        }
        None
    }

    /// Every pair of cores there is.
    #[must_use]
    pub fn pairs_count(&self) -> u64 {
        self.near.usable_cores.len() as u64 * self.far.usable_cores.len() as u64
    }

    fn look(&self) -> Plan {
        let spec = TestSpec {
            limit: TestLimit::DurationS(0.4),
            omit_s: 0.0,
            interval_s: 0.1,
            ..self.spec.clone()
        };
        Plan::new(vec![Setting::new(LOOK, spec)], LOOKS_COUNT, SEED)
    }

    fn first_round(&self, points: &[Point]) -> Plan {
        let (near, far) = incoming_cores(points);
        let near_classes = classes(&self.near, near);
        let far_classes = classes(&self.far, far);
        let repeats = self.effort.repeats.max(1);
        let moves = self.interrupt_moves();
        let everything_costs =
            (self.pairs_count() * moves.len() as u64 + 1).saturating_mul(u64::from(repeats));
        let budget = u64::from(self.effort.points_max);
        // With a third left to look closer, measuring everything needs no classes.
        let all = self.effort.is_exhaustive || everything_costs <= budget * 2 / 3;
        let pairs = if all {
            all_pairs(self.near.usable_cores, self.far.usable_cores)
        } else {
            let machine = self.near.machine.filter(|_| self.shares_machine);
            class_pairs(&near_classes, &far_classes, machine)
        };
        let mut settings: Vec<Setting> = moves
            .iter()
            .flat_map(|moved| pairs.iter().map(move |pair| (*pair, *moved)))
            .map(|(pair, moved)| self.placed(pair, moved))
            .collect();
        let mut repeats = repeats;
        if !all {
            let half = usize::try_from(budget / 2).unwrap_or(usize::MAX);
            repeats = repeats.min(u32::try_from(half / (settings.len() + 1)).unwrap_or(1)).max(2);
            // The nearest classes come first; what does not fit is the farthest.
            settings.truncate((half / repeats as usize).saturating_sub(1).max(1));
        }
        settings.push(self.unpinned());
        Plan::new(settings, repeats, SEED + 1)
    }

    /// Other members of the best classes.
    fn neighbours(&self, earlier: &[Plan], points: &[Point]) -> Option<Plan> {
        let first = earlier.last()?;
        let left = self.left(earlier);
        if !self.effort.refines || left == 0 {
            return None;
        }
        let measured = covered(earlier, points);
        let groups = groups(measured.iter().copied(), Metric::of(&self.spec));
        let (near, far) = incoming_cores(measured.iter().copied());
        let near_classes = classes(&self.near, near);
        let far_classes = classes(&self.far, far);
        let repeats = self.effort.repeats.max(2);
        let room = (left / 2 / repeats as usize).saturating_sub(1);
        let best = contenders(&groups, Metric::of(&self.spec), CONTENDERS_MAX);
        let mut found: Vec<Setting> = Vec::new();
        for place in best.iter().filter_map(|group| group.place()) {
            let share = room.div_ceil(best.len().max(1) * 2).max(1);
            let of = |classes: &[CoreClass], core: u32| {
                let class = classes.iter().find(|class| class.cores.contains(&core));
                class.map_or_else(Vec::new, |class| spread(&class.cores, core, share))
            };
            let near = of(&near_classes, place.near_core).into_iter();
            let far = of(&far_classes, place.far_core).into_iter();
            let pairs = near
                .map(|core| (core, place.far_core))
                .chain(far.map(|core| (place.near_core, core)));
            let moved = (place.near_interrupt_core, place.far_interrupt_core);
            found.extend(pairs.map(|pair| self.placed(pair, moved)));
        }
        let known =
            |setting: &Setting| first.settings().iter().any(|other| other.varied == setting.varied);
        found.retain(|setting| !known(setting));
        let mut settings: Vec<Setting> = Vec::new();
        for setting in found {
            if settings.iter().all(|other| other.varied != setting.varied) {
                settings.push(setting);
            }
        }
        settings.truncate(room);
        (!settings.is_empty()).then(|| Plan::new(settings, repeats, SEED + 2))
    }

    /// The best, the next best and no pinning, repeated until they can be told apart.
    fn settle(&self, earlier: &[Plan], points: &[Point]) -> Option<Plan> {
        /// With six repeats the interval of a median is one of 95%.
        const REPEATS_MIN: u32 = 6;
        let left = self.left(earlier);
        if !self.effort.refines {
            return None;
        }
        let measured = covered(earlier, points);
        let groups = groups(measured.iter().copied(), Metric::of(&self.spec));
        let best = contenders(&groups, Metric::of(&self.spec), CONTENDERS_MAX);
        let mut settings = vec![self.unpinned()];
        settings.extend(best.iter().filter_map(|group| {
            let place = group.place()?;
            let moved = (place.near_interrupt_core, place.far_interrupt_core);
            Some(self.placed((place.near_core, place.far_core), moved))
        }));
        let wanted = REPEATS_MIN.max(self.effort.repeats * 2);
        let done = self.effort.repeats.min(wanted);
        let more = left / settings.len().max(1);
        let repeats = wanted.min(done + u32::try_from(more).unwrap_or(0));
        (repeats > done).then(|| Plan::new(settings, repeats, SEED + 3))
    }

    /// Tests left of the budget after these plans.
    fn left(&self, plans: &[Plan]) -> usize {
        let compared = plans.iter().flat_map(|plan| plan.points());
        let used = compared.filter(|point| point.experiment == EXPERIMENT).count();
        (self.effort.points_max as usize).saturating_sub(used)
    }

    /// Where the interrupts of both ends may be, each once.
    fn interrupt_moves(&self) -> Vec<(Option<u32>, Option<u32>)> {
        let options = |cores: &[u32]| -> Vec<Option<u32>> {
            if cores.is_empty() { vec![None] } else { cores.iter().copied().map(Some).collect() }
        };
        let far = options(&self.far_interrupt_cores);
        options(&self.near_interrupt_cores)
            .into_iter()
            .flat_map(|near| far.iter().map(move |far| (near, *far)))
            .collect()
    }

    fn unpinned(&self) -> Setting {
        Setting::new(EXPERIMENT, self.spec.clone())
    }

    fn placed(
        &self,
        (near, far): (u32, u32),
        (near_interrupt, far_interrupt): (Option<u32>, Option<u32>),
    ) -> Setting {
        let spec = TestSpec {
            near_cores: vec![near],
            far_cores: vec![far],
            near_interrupt_core: near_interrupt,
            far_interrupt_core: far_interrupt,
            ..self.spec.clone()
        };
        let mut setting = Setting::new(EXPERIMENT, spec)
            .varying(NEAR_CORE, f64::from(near))
            .varying(FAR_CORE, f64::from(far));
        for (name, core) in
            [(NEAR_INTERRUPT_CORE, near_interrupt), (FAR_INTERRUPT_CORE, far_interrupt)]
        {
            if let Some(core) = core {
                setting = setting.varying(name, f64::from(core));
            }
        }
        setting
    }
}

/// The points that these plans asked for.
fn covered<'p>(plans: &[Plan], points: &'p [Point]) -> Vec<&'p Point> {
    let asked: std::collections::BTreeSet<_> = plans
        .iter()
        .flat_map(|plan| plan.points())
        .map(|point| (point.experiment.clone(), key_of(&point.varied), point.repeat))
        .collect();
    let key = |point: &Point| (point.experiment.clone(), key_of(&point.varied), point.repeat);
    points.iter().filter(|point| asked.contains(&key(point))).collect()
}

/// Up to `count` members of a class other than `core`, spread over it.
fn spread(cores: &[u32], core: u32, count: usize) -> Vec<u32> {
    let others: Vec<u32> = cores.iter().copied().filter(|other| *other != core).collect();
    let step = others.len().div_ceil(count.max(1)).max(1);
    others.into_iter().step_by(step).collect()
}

#[cfg(test)]
mod tests;
