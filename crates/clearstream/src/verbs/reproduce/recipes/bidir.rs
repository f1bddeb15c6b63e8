//! C-bidir: both directions at once, one and two flows each way.

use results::{Direction, LawCheck, PaperFigure, Results};

use super::{Context, Recipe, estimate, figure, setting, undecided};

const ONE_WAY: &str = "C-bidir one way";
const BOTH_WAYS: &str = "C-bidir both ways";
const FORWARD: &str = "forward_received_bits_per_s";
const REVERSE: &str = "reverse_received_bits_per_s";
const LAW: &str = "duplex costs one flow more than it costs the sum";

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
    let judged = format!(
        "each direction lost {:.0}% against one way with 1 flow, {:.0}% with 2 (the paper: 29% and 8%)",
        one * 100.0,
        two * 100.0
    );
    (figures, LawCheck { law: LAW.to_owned(), holds: Some(one > two), judged })
}
