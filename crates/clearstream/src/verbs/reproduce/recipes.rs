//! The experiments between two hosts: their tests, and the judgement of their laws.

mod bidir;
mod fig12;
mod fig14;
mod fig5;
mod fig6;
mod fig7;
mod udp;

use std::collections::BTreeMap;

use results::{
    Direction, Estimate, HostFacts, LawCheck, PaperFigure, Point, Results, TestLimit, TestSpec,
};
use sweep::{Experiment, Plan, Setting};

/// One experiment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recipe {
    /// Identifier in the catalogue.
    pub(super) id: &'static str,
    /// The lab to use if no host is named.
    pub(super) lab: &'static str,
    /// Plans round `number` from the context; later rounds may use the points of earlier ones. `None` ends
    /// the experiment.
    pub(super) round: fn(number: u32, context: &Context<'_>) -> Option<Plan>,
    /// The paper's figures beside the measured ones, and whether the law holds.
    pub(super) judge: fn(&Results) -> (Vec<PaperFigure>, LawCheck),
}

/// The information that a recipe may plan with.
#[derive(Debug)]
pub(super) struct Context<'a> {
    /// Measured time per test, seconds.
    pub(super) duration_s: f64,
    /// Repeats of every setting.
    pub(super) repeats: u32,
    /// Idle round-trip time, seconds.
    pub(super) rtt_s: Option<f64>,
    /// Path MTU, bytes.
    pub(super) path_mtu_bytes: Option<u32>,
    /// The host that runs the tests.
    pub(super) near: &'a HostFacts,
    /// The far host, if it reports its facts.
    pub(super) far: Option<&'a HostFacts>,
    /// Points measured so far.
    pub(super) points: &'a [Point],
}

/// A recipe with the user's options: the experiment that the runner executes.
#[derive(Debug)]
pub(super) struct RecipeRun<'a> {
    recipe: &'a Recipe,
    duration_s: f64,
    repeats: u32,
}

impl<'a> RecipeRun<'a> {
    /// A run of `recipe` with the user's duration and repeats.
    pub(super) fn new(recipe: &'a Recipe, args: &super::ReproduceArgs) -> Self {
        Self { recipe, duration_s: args.duration.as_secs_f64(), repeats: args.repeats }
    }
}

impl Experiment for RecipeRun<'_> {
    fn round(&self, number: u32, so_far: &Results) -> Option<Plan> {
        let rtt = so_far.path.idle_rtt.as_ref();
        let context = Context {
            duration_s: self.duration_s,
            repeats: self.repeats,
            rtt_s: rtt.and_then(|rtt| rtt.percentile_s(50.0)),
            path_mtu_bytes: so_far.path.path_mtu_bytes,
            near: so_far.near(),
            far: so_far.far(),
            points: &so_far.points,
        };
        (self.recipe.round)(number, &context)
    }
}

const RECIPES: [Recipe; 7] = [
    fig5::RECIPE,
    bidir::RECIPE,
    udp::RECIPE,
    fig6::RECIPE,
    fig7::RECIPE,
    fig12::RECIPE,
    fig14::RECIPE,
];

/// The recipe of a catalogue entry.
pub(super) fn find(id: &str) -> Option<&'static Recipe> {
    RECIPES.iter().find(|recipe| recipe.id.eq_ignore_ascii_case(id))
}

/// Seed of the shuffled order of every plan.
const SEED: u64 = 0x2010;

impl Context<'_> {
    /// One TCP test of the requested duration.
    fn tcp(&self, streams: u32, direction: Direction) -> TestSpec {
        TestSpec {
            streams,
            direction,
            limit: TestLimit::DurationS(self.duration_s),
            omit_s: 0.5,
            interval_s: 1.0_f64.min(self.duration_s / 4.0),
            ..TestSpec::tcp()
        }
    }

    fn plan(&self, settings: Vec<Setting>) -> Plan {
        Plan::new(settings, self.repeats, SEED)
    }
}

/// A setting with one varied parameter.
fn setting(experiment: &str, name: &str, value: f64, spec: TestSpec) -> Setting {
    Setting { varied: BTreeMap::from([(name.to_owned(), value)]), ..Setting::new(experiment, spec) }
}

/// A figure of one setting over its repeats.
fn estimate<'a>(
    results: &'a Results,
    experiment: &str,
    varied: (&str, f64),
    figure: &str,
) -> Option<&'a Estimate> {
    results
        .summaries
        .iter()
        .find(|summary| {
            summary.experiment == experiment
                && summary.figure == figure
                && summary.varied.get(varied.0).is_some_and(|value| *value == varied.1)
        })
        .map(|summary| &summary.estimate)
}

/// A rate with its interval.
fn shown(estimate: &Estimate) -> String {
    estimate.text(units::show_bit_rate)
}

fn figure(name: &str, paper: &str, here: Option<&Estimate>) -> PaperFigure {
    PaperFigure { name: name.to_owned(), paper: paper.to_owned(), here: here.map(shown) }
}

/// The undecided judgement if points that the law needs are missing.
pub(super) fn undecided(law: &str, why: &str) -> LawCheck {
    LawCheck { law: law.to_owned(), holds: None, judged: why.to_owned() }
}
