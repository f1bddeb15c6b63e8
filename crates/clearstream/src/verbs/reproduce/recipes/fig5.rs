//! C-fig5: one flow, two flows and more, over a short path.

use results::{Direction, LawCheck, PaperFigure, Results};

use super::{Context, Recipe, estimate, figure, setting, undecided};

const EXPERIMENT: &str = "C-fig5";
const RATE: &str = "forward_received_bits_per_s";
const LAW: &str =
    "one flow is limited by a core, several by a shared ceiling: more flows add nothing";

/// Largest factor by which four flows may exceed two for the ceiling to count as shared.
const SHARED_CEILING: f64 = 1.10;

/// Least busy share of its busiest core at which a flow counts as limited by it.
const CORE_BUSY: f64 = 0.85;

pub(super) const RECIPE: Recipe = Recipe {
    id: EXPERIMENT,
    lab: "local40g",
    round: |number, context: &Context<'_>| {
        let flows = [1, 2, 4].map(|flows| {
            setting(EXPERIMENT, "flows", f64::from(flows), context.tcp(flows, Direction::Forward))
        });
        (number == 0).then(|| context.plan(flows.to_vec()))
    },
    judge,
};

fn judge(results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let of = |flows: f64| estimate(results, EXPERIMENT, ("flows", flows), RATE);
    let figures = vec![
        figure("1 flow on one core", "about 21 Gbit/s", of(1.0)),
        figure("2 flows on two cores", "25 Gbit/s", of(2.0)),
        figure("4 flows", "adds nothing", of(4.0)),
    ];
    let (Some(_), Some(two), Some(four)) = (of(1.0), of(2.0), of(4.0)) else {
        return (figures, undecided(LAW, "a test of 1, 2 or 4 flows did not finish"));
    };
    let busiest = busiest_core_of_one_flow(results);
    let gain = four.median / two.median;
    let holds = gain <= SHARED_CEILING && busiest >= CORE_BUSY;
    let judged = format!(
        "the busiest core of one flow was {:.0}% busy (core-limited from {:.0}%); four flows gave \
         {gain:.2} x two (a shared ceiling up to {SHARED_CEILING:.2} x)",
        busiest * 100.0,
        CORE_BUSY * 100.0
    );
    (figures, LawCheck { law: LAW.to_owned(), holds: Some(holds), judged })
}

/// Median over the one-flow tests of their busiest core's busy share.
fn busiest_core_of_one_flow(results: &Results) -> f64 {
    let busy: Vec<f64> = results
        .points
        .iter()
        .filter(|point| point.varied.get("flows") == Some(&1.0))
        .filter_map(|point| point.measured())
        .filter_map(|outcome| {
            let ends = [Some(outcome.near()), outcome.far()];
            ends.into_iter()
                .flatten()
                .flat_map(|end| &end.cores)
                .map(|core| 1.0 - core.idle)
                .max_by(f64::total_cmp)
        })
        .collect();
    stats::median(&busy).unwrap_or(0.0)
}
