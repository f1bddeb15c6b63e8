//! C-fig6: throughput against window size at a long round-trip time.

use results::{Direction, LawCheck, PaperFigure, Results, TestSpec};
use units::{show_bit_rate, show_byte_size, show_seconds};

use super::{Context, Recipe, setting, undecided};

const OPEN: &str = "C-fig6 unlimited window";
const SWEEP: &str = "C-fig6";
const WINDOW: &str = "window_bytes";
const LAW: &str = "T(w) = min(w / RTT, Tmax)";

/// Largest median relative error of the model, and of its round-trip time against the measured one, with
/// which the law holds.
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
    let swept = sweep::swept_windows(&results.points, SWEEP);
    let bytes = |bytes: f64| units::saturating_u64(bytes);
    let curve: Vec<(u64, f64)> =
        swept.iter().map(|one| (bytes(one.effective_bytes), one.received.median)).collect();
    let mut figures: Vec<PaperFigure> = swept
        .iter()
        .map(|one| PaperFigure {
            name: format!("window {}", show_byte_size(bytes(one.effective_bytes))),
            paper: "on the curve".to_owned(),
            here: Some(format!(
                "{} (asked for {}{})",
                show_bit_rate(one.received.median),
                show_byte_size(one.asked_bytes),
                one.window.receive_buffer_bytes.map_or_else(String::new, |buffer| {
                    format!(", buffer {}", show_byte_size(bytes(buffer)))
                })
            )),
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
    // Only windows that bind count: those on the rising part of the law.
    let rising = 0.9 * model.max_bits_per_s;
    let full = swept.iter().filter(|one| one.window.is_full && one.received.median < rising);
    let loaded: Vec<f64> = full.filter_map(|one| one.window.rtt_s).collect();
    let rtt_s = stats::median(&loaded);
    let is_rtt = rtt_s.is_none_or(|rtt_s| (model.rtt_s / rtt_s - 1.0).abs() <= MODEL_ERROR_MAX);
    let beside = rtt_s.map_or_else(String::new, |rtt_s| {
        format!(" ({} measured under load)", show_seconds(rtt_s))
    });
    let judged = format!(
        "the model with RTT {}{beside} and Tmax {} is off by {:.0}% in the median, {:.0}% at worst; \
         it fits when median and RTT are within {:.0}%",
        show_seconds(model.rtt_s),
        show_bit_rate(model.max_bits_per_s),
        model.median_relative_error * 100.0,
        model.max_relative_error * 100.0,
        MODEL_ERROR_MAX * 100.0
    );
    let holds = Some(model.median_relative_error <= MODEL_ERROR_MAX && is_rtt);
    (figures, LawCheck { law: LAW.to_owned(), holds, judged })
}
