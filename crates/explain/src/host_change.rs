//! Whether a change that a user made to a host confirms the verdict that asked for it.

use results::{Confirmation, Estimate, Evidence, Results, Verdict};
use units::show_bit_rate;

use crate::numbers::{percent, ratio};
use crate::observed::Observed;
use crate::verdict::bound_by;

/// Least gain that is not noise.
const NOISE_MIN: f64 = 0.04;

/// Judges `verdict`, which `before` gave and which asks for a change to a host
/// ([`Verdict::host_change`]), by the same test run after that change. `None` when the verdict asks
/// for none or the documents have no judged test in common.
#[must_use]
pub fn confirm_host_change(before: &Results, verdict: Verdict, after: &Results) -> Option<Verdict> {
    let change = verdict.host_change.clone()?;
    let (was, is) = (Observed::of(before)?, Observed::of(after)?);
    if was.spec != is.spec {
        return None;
    }
    let (old, new) = (was.goodput, is.goodput);
    let gain = ratio(new.median, old.median)? - 1.0;
    let noise = (spread(&old) + spread(&new)).clamp(NOISE_MIN, 1.0);
    let outcome = format!(
        "{} -> {} ({}{}), up to {} predicted; noise {}",
        show_bit_rate(old.median),
        show_bit_rate(new.median),
        if gain < 0.0 { "" } else { "+" },
        percent(gain),
        show_bit_rate(change.predicted_bits_per_s),
        percent(noise)
    );
    let confirmed = gain > noise;
    let confirmation = Confirmation {
        change: change.command.clone(),
        predicted_bits_per_s: change.predicted_bits_per_s,
        before_bits_per_s: old.median,
        after_bits_per_s: new.median,
        outcome: outcome.clone(),
    };
    let word = if confirmed { "confirmed" } else { "refuted" };
    let strongest = verdict.evidence.first().map(|evidence| evidence.text.as_str());
    let bound_by = bound_by(verdict.limit, verdict.end, strongest);
    let summary = format!("{bound_by}; {word} by the change to the host: {outcome}");
    let mut ruled_out = verdict.ruled_out;
    if !confirmed {
        let text = format!("refuted by the change to the host: {outcome}");
        ruled_out.insert(0, Evidence { limit: verdict.limit, text, weight: 0.0 });
    }
    Some(Verdict {
        summary,
        confirmed,
        confirmation: Some(confirmation),
        host_change: None,
        ruled_out,
        ..verdict
    })
}

/// Half the interval over the median; a single run is good to 5% at best.
fn spread(estimate: &Estimate) -> f64 {
    match estimate.count {
        0 | 1 => 0.05,
        _ => ratio((estimate.high - estimate.low) / 2.0, estimate.median).unwrap_or(0.0),
    }
}
