//! C-bidir: both directions at once, with one and two flows each way.

use results::{Direction, LawCheck, PaperFigure, Results};

use super::{Context, Recipe, estimate, figure, setting, undecided};

const ONE_WAY: &str = "C-bidir one way";
const BOTH_WAYS: &str = "C-bidir both ways";
const FORWARD: &str = "forward_received_bits_per_s";
const REVERSE: &str = "reverse_received_bits_per_s";
/// Least idle share that one flow must leave for a second flow to have its own core.
const IDLE_TO_SPARE: f64 = 0.4;
const LAW: &str = "traffic in both directions costs a single flow more than it costs the total";

pub(super) const RECIPE: Recipe = Recipe {
    id: "C-bidir",
    lab: "local40g",
    round: |number, context: &Context<'_>| {
        let both = |flows: u32| {
            let value = f64::from(flows);
            [
                setting(ONE_WAY, "flows", value, context.tcp(flows, Direction::Forward)),
                setting(BOTH_WAYS, "flows", value, context.tcp(flows, Direction::Bidirectional)),
            ]
        };
        (number == 0).then(|| context.plan([both(1), both(2)].concat()))
    },
    judge,
};

fn judge(results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let one_way = |flows| estimate(results, ONE_WAY, ("flows", flows), FORWARD);
    let there = |flows| estimate(results, BOTH_WAYS, ("flows", flows), FORWARD);
    let back = |flows| estimate(results, BOTH_WAYS, ("flows", flows), REVERSE);
    let figures = vec![
        figure("1 flow, one way", "about 21 Gbit/s (C-fig5)", one_way(1.0)),
        figure("1 flow each way, forward", "15 Gbit/s", there(1.0)),
        figure("1 flow each way, reverse", "15 Gbit/s", back(1.0)),
        figure("2 flows, one way", "25 Gbit/s (C-fig5)", one_way(2.0)),
        figure("2 flows each way, forward", "23 Gbit/s", there(2.0)),
        figure("2 flows each way, reverse", "23 Gbit/s", back(2.0)),
    ];
    let cost = |flows| {
        let each = f64::midpoint(there(flows)?.median, back(flows)?.median);
        Some(1.0 - each / one_way(flows)?.median)
    };
    let (Some(one), Some(two)) = (cost(1.0), cost(2.0)) else {
        return (figures, undecided(LAW, "a test did not finish"));
    };
    let mut judged = format!(
        "each direction lost {:.0}% against one way with 1 flow, {:.0}% with 2 (the paper: 29% and 8%)",
        one * 100.0,
        two * 100.0
    );
    let holds = one > two;
    if let Some(idle) = idle_one_way(results).filter(|&idle| !holds && idle < IDLE_TO_SPARE) {
        judged.push_str(&format!(
            "; one flow one way left this host's cores only {:.0}% idle, so the reverse \
             direction had to take its processor time from the forward direction, unlike on the \
             paper's hosts with 48 cores",
            idle * 100.0
        ));
    }
    (figures, LawCheck { law: LAW.to_owned(), holds: Some(holds), judged })
}

/// Mean idle share of the near host's processor during one flow in one direction. In a lab both hosts
/// share this processor.
fn idle_one_way(results: &Results) -> Option<f64> {
    let idle: Vec<f64> = results
        .points
        .iter()
        .filter(|point| point.experiment == ONE_WAY && point.varied.get("flows") == Some(&1.0))
        .filter_map(results::Point::measured)
        .flat_map(|outcome| outcome.near().cores.iter().map(|core| core.idle))
        .collect();
    (!idle.is_empty()).then(|| idle.iter().sum::<f64>() / idle.len() as f64)
}
