//! C-fig6: throughput over the window at a long round-trip time.

use results::{Direction, LawCheck, PaperFigure, Results, TestSpec};
use units::{show_bit_rate, show_byte_size, show_seconds};

use super::{Context, Recipe, setting, undecided};

const OPEN: &str = "C-fig6 unlimited window";
const SWEEP: &str = "C-fig6";
const WINDOW: &str = "window_bytes";
const RATE: &str = "forward_received_bits_per_s";
const LAW: &str = "T(w) = min(w / RTT, Tmax)";

/// The law holds when the median relative error of the model is below this.
const MODEL_ERROR_MAX: f64 = 0.15;

pub(super) const RECIPE: Recipe = Recipe { id: SWEEP, lab: "glif2010", round, judge };

fn round(number: u32, context: &Context<'_>) -> Option<sweep::Plan> {
    let open = context.tcp(1, Direction::Forward);
    if number == 0 {
        return Some(context.plan(vec![setting(OPEN, "streams", 1.0, open)]));
    }
    let reached: Vec<f64> = context
        .points
        .iter()
        .filter(|point| point.experiment == OPEN)
        .filter_map(|point| Some(point.measured()?.directions.first()?.received_bits_per_s))
        .collect();
    let best = stats::median(&reached).filter(|_| number == 1)?;
    let settings = sweep::window_sweep(context.rtt_s?, best)
        .into_iter()
        .map(|window_bytes| {
            let spec = TestSpec { window_bytes: Some(window_bytes), ..open.clone() };
            setting(SWEEP, WINDOW, window_bytes as f64, spec)
        })
        .collect();
    Some(context.plan(settings))
}

fn judge(results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let mut curve: Vec<(u64, f64)> = results
        .summaries
        .iter()
        .filter(|summary| summary.experiment == SWEEP && summary.figure == RATE)
        .filter_map(|summary| {
            let window_bytes = units::saturating_u64(*summary.varied.get(WINDOW)?);
            Some((window_bytes, summary.estimate.median))
        })
        .collect();
    curve.sort_unstable_by_key(|(window_bytes, _)| *window_bytes);
    let mut figures: Vec<PaperFigure> = curve
        .iter()
        .map(|(window_bytes, bits_per_s)| PaperFigure {
            name: format!("window {}", show_byte_size(*window_bytes)),
            paper: "on the curve".to_owned(),
            here: Some(show_bit_rate(*bits_per_s)),
        })
        .collect();
    let Some(model) = sweep::fit_window_model(&curve) else {
        return (figures, undecided(LAW, "too few windows were measured"));
    };
    let needed = units::bandwidth_delay_product_bytes(model.max_bits_per_s, model.rtt_s);
    figures.insert(
        0,
        PaperFigure {
            name: "window needed (rate x RTT)".to_owned(),
            paper: "19 Gbit/s x 17 ms = 40.4 MB".to_owned(),
            here: Some(format!(
                "{} x {} = {:.1} MB",
                show_bit_rate(model.max_bits_per_s),
                show_seconds(model.rtt_s),
                needed as f64 / 1e6
            )),
        },
    );
    let judged = format!(
        "the model with RTT {} and Tmax {} is off by {:.0}% in the median (up to {:.0}% is a fit), \
         {:.0}% at worst",
        show_seconds(model.rtt_s),
        show_bit_rate(model.max_bits_per_s),
        model.median_relative_error * 100.0,
        MODEL_ERROR_MAX * 100.0,
        model.max_relative_error * 100.0
    );
    let holds = Some(model.median_relative_error <= MODEL_ERROR_MAX);
    (figures, LawCheck { law: LAW.to_owned(), holds, judged })
}
