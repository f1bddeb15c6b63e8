//! C-fig7: traffic in and out at both ends, every second.

use results::{Direction, End, EndReport, LawCheck, PaperFigure, Results};

use super::{Context, Recipe, setting, undecided};

const EXPERIMENT: &str = "C-fig7";
const LAW: &str = "what one end sends the other receives";

/// Largest relative difference at which both ends' counts agree: data in flight while the two read their
/// counters, at different moments.
const AGREES: f64 = 0.03;

pub(super) const RECIPE: Recipe = Recipe {
    id: EXPERIMENT,
    lab: "glif2010",
    round: |number, context: &Context<'_>| {
        let mut spec = context.tcp(1, Direction::Bidirectional);
        spec.interval_s = 1.0_f64.min(context.duration_s);
        (number == 0).then(|| context.plan(vec![setting(EXPERIMENT, "flows", 1.0, spec)]))
    },
    judge,
};

fn judge(results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let mut figures = Vec::new();
    let mut worst: Option<f64> = None;
    for point in results.points.iter().filter(|point| point.experiment == EXPERIMENT) {
        let Some(outcome) = point.measured() else { continue };
        let Some(far) = outcome.far() else { continue };
        let seconds = outcome.duration_s.max(f64::MIN_POSITIVE);
        for (name, from, to) in [
            ("near to far", (outcome.near(), End::Near), (far, End::Far)),
            ("far to near", (far, End::Far), (outcome.near(), End::Near)),
        ] {
            let (sent, received) =
                (bytes(from.0, from.1, results, true), bytes(to.0, to.1, results, false));
            let (Some(sent), Some(received)) = (sent, received) else { continue };
            let kbit = |bytes: u64| bytes as f64 * 8.0 / seconds / 1e3;
            figures.push(PaperFigure {
                name: format!("{name}, Kbit/s out and in, repeat {}", point.repeat + 1),
                paper: "a moving line".to_owned(),
                here: Some(format!("{:.0} out, {:.0} in", kbit(sent), kbit(received))),
            });
            let apart = (sent as f64 - received as f64).abs() / (sent.max(received).max(1) as f64);
            worst = Some(worst.map_or(apart, |known| known.max(apart)));
        }
    }
    let Some(worst) = worst else {
        return (figures, undecided(LAW, "the far end's counters could not be seen"));
    };
    let judged = format!(
        "the two ends' interface counters differ by at most {:.2}% (agree up to {:.0}%)",
        worst * 100.0,
        AGREES * 100.0
    );
    (figures, LawCheck { law: LAW.to_owned(), holds: Some(worst <= AGREES), judged })
}

/// Bytes that the path's interface at this end sent or received during the test.
fn bytes(report: &EndReport, end: End, results: &Results, sent: bool) -> Option<u64> {
    let host = match end {
        End::Near => Some(results.near()),
        End::Far => results.far(),
    };
    let name = &host?.interface.as_ref()?.name;
    let device = report.counters.devices.iter().find(|device| device.interface == *name)?;
    Some(if sent { device.tx_bytes } else { device.rx_bytes })
}
