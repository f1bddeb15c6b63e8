//! The order of an experiment's points.

use std::collections::BTreeMap;

use results::{Point, PointOutcome, TestSpec, Work};
use serde::Serialize;
use stats::Random;

/// Experiments, their settings and how often each is repeated.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    settings: Vec<Setting>,
    repeats: u32,
    order: Order,
}

/// The order within the rounds of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// Each shuffled anew, from this seed.
    Shuffled(u64),
    /// As given, and every other round backwards: what a round ends with the next one begins with.
    Turned,
}

/// One setting of one experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Experiment it belongs to; see [`Point::experiment`].
    pub experiment: String,
    /// What was varied: name with unit → value. Together with the experiment it names the setting.
    pub varied: BTreeMap<String, f64>,
    /// The work.
    pub work: Work,
    /// Repeats, where they differ from the plan's.
    pub repeats: Option<u32>,
}

/// One run that a plan asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedPoint {
    /// Experiment.
    pub experiment: String,
    /// Setting.
    pub varied: BTreeMap<String, f64>,
    /// Repeat number, from 0.
    pub repeat: u32,
    /// The work.
    pub work: Work,
}

impl Setting {
    /// A setting that varies nothing and is repeated as often as the plan says.
    #[must_use]
    pub fn new(experiment: impl Into<String>, work: impl Into<Work>) -> Self {
        Self {
            experiment: experiment.into(),
            varied: BTreeMap::new(),
            work: work.into(),
            repeats: None,
        }
    }

    /// The same with its own number of repeats.
    #[must_use]
    pub fn with_repeats(self, repeats: u32) -> Self {
        Self { repeats: Some(repeats), ..self }
    }

    /// The same with one more varied quantity; `name` ends in its unit.
    #[must_use]
    pub fn varying(mut self, name: impl Into<String>, value: f64) -> Self {
        self.varied.insert(name.into(), value);
        self
    }
}

impl Plan {
    /// Every setting `repeats` times (or as often as it says itself), the order of each round drawn
    /// from `seed`.
    #[must_use]
    pub fn new(settings: Vec<Setting>, repeats: u32, seed: u64) -> Self {
        Self { settings, repeats, order: Order::Shuffled(seed) }
    }

    /// Every setting `repeats` times in turns: as given, then backwards, and so on. For settings between
    /// which it costs something to change.
    #[must_use]
    pub fn in_turns(settings: Vec<Setting>, repeats: u32) -> Self {
        Self { settings, repeats, order: Order::Turned }
    }

    /// The settings, as given.
    #[must_use]
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Every point in the order it should run: round by round, each round shuffled anew.
    ///
    /// A setting with fewer repeats than the plan's longest is spread over the rounds rather than
    /// spent in the first ones.
    #[must_use]
    pub fn points(&self) -> Vec<PlannedPoint> {
        let rounds =
            self.settings.iter().map(|setting| self.repeats_of(setting)).max().unwrap_or(0);
        let mut random = match self.order {
            Order::Shuffled(seed) => Some(Random::from_seed(seed)),
            Order::Turned => None,
        };
        let mut points = Vec::new();
        for round in 0..rounds {
            let first = points.len();
            for setting in &self.settings {
                let repeat = share_of(round, self.repeats_of(setting), rounds);
                if share_of(round + 1, self.repeats_of(setting), rounds) > repeat {
                    points.push(PlannedPoint {
                        experiment: setting.experiment.clone(),
                        varied: setting.varied.clone(),
                        repeat,
                        work: setting.work.clone(),
                    });
                }
            }
            match &mut random {
                Some(random) => random.shuffle(&mut points[first..]),
                None if round % 2 == 1 => points[first..].reverse(),
                None => {}
            }
        }
        points
    }

    /// What `done` still lacks, in order. A point that failed is not done: it is asked for again.
    #[must_use]
    pub fn remaining(&self, done: &[Point]) -> Vec<PlannedPoint> {
        let mut points = self.points();
        points.retain(|planned| !done.iter().any(|point| planned.is_done_by(point)));
        points
    }

    /// Whether each of its points was tried, also where it failed.
    #[must_use]
    pub fn was_run(&self, points: &[Point]) -> bool {
        let is_tried = |planned: &PlannedPoint| points.iter().any(|point| planned.is_of(point));
        self.points().iter().all(is_tried)
    }

    /// A fingerprint of the plan: FNV-1a, 64 bits, over its settings, repeats and seed. Equal plans
    /// have equal digests on every machine; it protects against mistakes, not against forgers.
    #[must_use]
    pub fn digest(&self) -> u64 {
        /// What the digest is taken of; the order of fields is part of the journal format.
        #[derive(Serialize)]
        struct Fingerprint<'a> {
            seed: Option<u64>,
            settings: Vec<(&'a str, &'a BTreeMap<String, f64>, &'a Work, u32)>,
        }
        let seed = match self.order {
            Order::Shuffled(seed) => Some(seed),
            Order::Turned => None,
        };
        let settings = self
            .settings
            .iter()
            .map(|setting| {
                let Setting { experiment, varied, work, .. } = setting;
                (experiment.as_str(), varied, work, self.repeats_of(setting))
            })
            .collect();
        let bytes = serde_json::to_vec(&Fingerprint { seed, settings })
            .expect("string keys and plain numbers always have a JSON form");
        fnv1a(&bytes)
    }

    fn repeats_of(&self, setting: &Setting) -> u32 {
        setting.repeats.unwrap_or(self.repeats)
    }
}

impl PlannedPoint {
    /// The test between two hosts, where the work is one.
    #[must_use]
    pub fn spec(&self) -> Option<&TestSpec> {
        self.work.test()
    }

    /// The point that this becomes: begun at a time (milliseconds since 1970 UTC), with what came of
    /// it. Who did the work follows from the options of a test between two hosts; other drivers say.
    #[must_use]
    pub fn point(&self, started_unix_ms: u64, command: String, outcome: PointOutcome) -> Point {
        Point {
            experiment: self.experiment.clone(),
            varied: self.varied.clone(),
            repeat: self.repeat,
            started_unix_ms,
            command,
            by: self.work.workers(),
            work: self.work.clone(),
            outcome,
        }
    }

    fn is_done_by(&self, point: &Point) -> bool {
        !matches!(point.outcome, PointOutcome::Failed(_)) && self.is_of(point)
    }

    fn is_of(&self, point: &Point) -> bool {
        point.repeat == self.repeat
            && point.experiment == self.experiment
            && point.varied == self.varied
    }
}

/// Repeats that are over before round `round` when `repeats` are spread evenly over `rounds`.
fn share_of(round: u32, repeats: u32, rounds: u32) -> u32 {
    let spread = (u64::from(round) * u64::from(repeats)).div_ceil(u64::from(rounds.max(1)));
    u32::try_from(spread).unwrap_or(u32::MAX)
}

/// Fowler, Noll and Vo's hash 1a (RFC 9923).
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64) -> Plan {
        let settings = (0..8)
            .map(|step| {
                Setting::new("sweep", TestSpec::tcp()).varying("window_bytes", f64::from(step))
            })
            .chain([Setting::new("rare", TestSpec::tcp()).with_repeats(2)])
            .collect();
        Plan::new(settings, 5, seed)
    }

    fn done(planned: &PlannedPoint, outcome: PointOutcome) -> Point {
        planned.point(0, String::new(), outcome)
    }

    fn ran() -> PointOutcome {
        PointOutcome::Measured(Box::default())
    }

    #[test]
    fn rounds_hold_every_setting_once_in_an_order_of_their_own() {
        let points = plan(1).points();
        assert_eq!(points.len(), 8 * 5 + 2);
        let rounds: Vec<Vec<i64>> = (0..5)
            .map(|round| {
                let of_round =
                    |point: &&PlannedPoint| point.experiment == "sweep" && point.repeat == round;
                points
                    .iter()
                    .filter(of_round)
                    .map(|point| point.varied["window_bytes"] as i64)
                    .collect()
            })
            .collect();
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..8).collect::<Vec<i64>>());
        }
        assert_ne!(rounds[0], rounds[1], "two rounds of eight in the same order: 1 in 40320");
        let first_of = |repeat| {
            points
                .iter()
                .position(|p| p.experiment == "sweep" && p.repeat == repeat)
                .expect("planned")
        };
        assert!((1..5).all(|repeat| first_of(repeat - 1) < first_of(repeat)));
    }

    #[test]
    fn few_repeats_are_spread_over_the_rounds() {
        let points = plan(1).points();
        let rare: Vec<usize> = points
            .iter()
            .enumerate()
            .filter(|(_, p)| p.experiment == "rare")
            .map(|(at, _)| at)
            .collect();
        assert_eq!(rare.len(), 2);
        assert!(rare[1] - rare[0] > 16, "at {rare:?}");
    }

    #[test]
    fn the_seed_decides_order_and_digest() {
        assert_eq!(plan(1).points(), plan(1).points());
        assert_ne!(plan(1).points(), plan(2).points());
        assert_eq!(plan(1).digest(), plan(1).digest());
        assert_ne!(plan(1).digest(), plan(2).digest());
        let other = Plan::new(vec![Setting::new("sweep", TestSpec::udp(100))], 5, 1);
        assert_ne!(
            other.digest(),
            Plan::new(vec![Setting::new("sweep", TestSpec::tcp())], 5, 1).digest()
        );
    }

    #[test]
    fn a_resumed_run_does_the_rest_in_the_same_order() {
        let (plan, all) = (plan(3), plan(3).points());
        for cut in [0, 1, 17, all.len()] {
            let finished: Vec<Point> =
                all[..cut].iter().map(|planned| done(planned, ran())).collect();
            assert_eq!(plan.remaining(&finished), all[cut..], "cut at {cut}");
        }
        let failed = [done(&all[0], PointOutcome::Failed("refused".into()))];
        assert_eq!(plan.remaining(&failed), all, "a failure is tried again");
    }

    #[test]
    fn turns_go_to_and_fro() {
        let settings = ["off", "on"].map(|name| Setting::new(name, TestSpec::tcp()));
        let turns = Plan::in_turns(settings.to_vec(), 3).points();
        let names: Vec<&str> = turns.iter().map(|point| point.experiment.as_str()).collect();
        assert_eq!(names, ["off", "on", "on", "off", "off", "on"]);
        let repeats: Vec<u32> = turns.iter().map(|point| point.repeat).collect();
        assert_eq!(repeats, [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn an_empty_plan_asks_for_nothing() {
        assert!(Plan::new(Vec::new(), 5, 0).points().is_empty());
        assert!(Plan::new(vec![Setting::new("x", TestSpec::tcp())], 0, 0).points().is_empty());
    }
}
