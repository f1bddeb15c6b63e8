//! Ratios of the figures of two settings, repeat by repeat, and what their spread lets be said.

use std::collections::BTreeMap;

use results::Estimate;

/// The first figure over the second of the same repeat.
pub(super) fn paired(over: &BTreeMap<u32, f64>, under: &BTreeMap<u32, f64>) -> Option<Estimate> {
    let ratios = over.iter().filter_map(|(repeat, over)| {
        under.get(repeat).filter(|under| **under > 0.0).map(|under| over / under)
    });
    Estimate::of(&ratios.collect::<Vec<f64>>())
}

/// Whether a ratio is above a value; `None` where its repeats lie on both sides, or there is only one.
pub(super) fn is_above(ratio: &Estimate, value: f64) -> Option<bool> {
    let (low, high) = ratio.interval()?;
    if low > value { Some(true) } else { (high < value).then_some(false) }
}

/// All of them; false as soon as one is, else `None` as soon as one is.
pub(super) fn all(answers: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let answers: Vec<Option<bool>> = answers.into_iter().collect();
    if answers.contains(&Some(false)) {
        return Some(false);
    }
    (!answers.contains(&None)).then_some(true)
}

pub(super) fn shown(ratio: &Estimate) -> String {
    ratio.text(|ratio| format!("{ratio:.2} x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_where_repeats_disagree() {
        let above = |values: &[f64]| is_above(&Estimate::of(values).expect("values"), 1.0);
        assert_eq!(above(&[1.1, 1.2, 1.3]), Some(true));
        assert_eq!(above(&[0.7, 0.8, 0.9]), Some(false));
        assert_eq!(above(&[0.7, 1.2, 1.3]), None);
        assert_eq!(above(&[2.0]), None);
        assert_eq!(all([Some(true), None]), None);
        assert_eq!(all([None, Some(false)]), Some(false));
        assert_eq!(all([Some(true); 2]), Some(true));
    }

    #[test]
    fn only_figures_of_one_repeat_are_compared() {
        let over = BTreeMap::from([(0, 2.0), (1, 6.0), (2, 5.0)]);
        let under = BTreeMap::from([(0, 1.0), (1, 2.0), (3, 9.0)]);
        let ratio = paired(&over, &under).expect("two");
        assert_eq!((ratio.count, ratio.low, ratio.high), (2, 2.0, 3.0));
    }
}
