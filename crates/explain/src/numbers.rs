//! Arithmetic on figures that may be missing or absurd; never yields NaN.

/// The value if it is finite and above zero.
pub(crate) fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

/// A count as a figure; `None` for 0.
pub(crate) fn counted(count: u64) -> Option<f64> {
    positive(count as f64)
}

/// `part / whole`, 0 to 1; `None` if either is not a usable figure.
pub(crate) fn share(part: f64, whole: f64) -> Option<f64> {
    let quotient = part / positive(whole)?;
    quotient.is_finite().then(|| quotient.clamp(0.0, 1.0))
}

/// `numerator / denominator` if it is finite and above zero.
pub(crate) fn ratio(numerator: f64, denominator: f64) -> Option<f64> {
    positive(numerator / positive(denominator)?)
}

/// 0 up to `from`, 1 from `to` on, linear between them.
pub(crate) fn ramp(value: f64, from: f64, to: f64) -> f64 {
    if value.is_nan() { 0.0 } else { ((value - from) / (to - from)).clamp(0.0, 1.0) }
}

/// A confidence, 0 to 1, that is never below `least`.
pub(crate) fn at_least(least: f64, confidence: f64) -> f64 {
    least + (1.0 - least) * confidence
}

/// The median, in linear time: an hour has many interval samples.
pub(crate) fn middle(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    let at = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(at, f64::total_cmp).1)
}

/// Shares beyond this are clamped: absurd figures have absurd quotients, infinity included.
const SHARE_MAX: f64 = 1e6;

/// A share as text: `97%`, with one decimal below 10%, and as many as it takes where that would be `0.0%`.
pub(crate) fn percent(share: f64) -> String {
    let percent = share.clamp(-SHARE_MAX, SHARE_MAX) * 100.0;
    if percent != 0.0 && percent.abs() < 0.05 {
        return fine_percent(share);
    }
    if percent != 0.0 && percent.abs() < 9.95 {
        format!("{percent:.1}%")
    } else {
        format!("{percent:.0}%")
    }
}

/// `0.012%`: a share of packets, of which a few in a million matter.
pub(crate) fn fine_percent(share: f64) -> String {
    let percent = share.clamp(-SHARE_MAX, SHARE_MAX) * 100.0;
    match percent.abs() {
        0.0 => "0%".to_owned(),
        below if below < 0.0095 => format!("{percent:.4}%"),
        below if below < 0.95 => format!("{percent:.3}%"),
        _ => format!("{percent:.1}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_packets_have_as_many_digits_as_they_need() {
        for (share, text) in
            [(0.0, "0%"), (2e-6, "0.0002%"), (1.2e-4, "0.012%"), (0.05, "5.0%"), (1.0, "100.0%")]
        {
            assert_eq!(fine_percent(share), text);
        }
    }

    #[test]
    fn absurd_figures_are_no_figures() {
        assert_eq!(share(1.0, 0.0), None);
        assert_eq!(share(f64::NAN, 1.0), None);
        assert_eq!(share(3.0, 2.0), Some(1.0));
        assert_eq!(ratio(1.0, f64::INFINITY), None);
        assert_eq!(ratio(f64::INFINITY, 1.0), None);
        assert_eq!(ramp(f64::NAN, 0.0, 1.0), 0.0);
        assert_eq!(middle([f64::NAN]), None);
        assert_eq!(middle([3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
        assert_eq!(percent(f64::INFINITY), "100000000%");
        assert_eq!((percent(0.974), percent(0.012)), ("97%".into(), "1.2%".into()));
        assert_eq!((percent(1.4e-4), percent(0.0)), ("0.014%".into(), "0%".into()));
    }
}
