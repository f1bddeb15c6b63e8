//! How well verdicts do on limits that had no part in setting their thresholds: each family of recordings is judged
//! with the thresholds that the other families set.

use std::collections::BTreeMap;
use std::fmt;

use explain::{Fit, PlantedCase};
use results::Limit;

use super::cases;
use super::recorded::Recorded;

/// Recordings judged with thresholds of their own family's and of other families' making.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Recordings.
    pub judged: usize,
    /// Families, by the limit that was planted.
    pub families: usize,
    /// Recordings named rightly by the thresholds that all of them set.
    pub right_in_training: usize,
    /// Recordings named rightly by the thresholds that the other families set.
    pub right_left_out: usize,
    /// What was misjudged by these: the recording, the verdict on it.
    pub wrong: Vec<(String, String)>,
}

impl LeftOut {
    /// Share named rightly by the thresholds that all recordings set.
    pub fn share_in_training(&self) -> f64 {
        self.right_in_training as f64 / self.judged as f64
    }

    /// Share named rightly by the thresholds that the other families set.
    pub fn share_left_out(&self) -> f64 {
        self.right_left_out as f64 / self.judged as f64
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} recordings of {} families named rightly: {:.1}% by thresholds that they helped to set, {:.1}% by \
             those that the other families set",
            self.judged,
            self.families,
            self.share_in_training() * 100.0,
            self.share_left_out() * 100.0
        )
    }
}

/// Judges every family by the thresholds that the others set.
pub fn left_out(recorded: &[(String, Recorded)]) -> LeftOut {
    let mut families: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
    for (at, (_, one)) in recorded.iter().enumerate() {
        families.entry(one.family()).or_default().push(at);
    }
    let cases = cases(recorded);
    let mut told =
        LeftOut { judged: recorded.len(), families: families.len(), ..LeftOut::default() };
    for family in families.values() {
        let others: Vec<PlantedCase> = (0..cases.len())
            .filter(|at| !family.contains(at))
            .map(|at| cases[at].clone())
            .collect();
        let fit = Fit::of(&others);
        for (name, one) in family.iter().map(|at| &recorded[*at]) {
            told.right_in_training += usize::from(one.judge().1);
            let (verdict, is_right) = one.judge_with(&fit);
            told.right_left_out += usize::from(is_right);
            if !is_right {
                told.wrong.push((name.clone(), verdict.summary));
            }
        }
    }
    told
}

/// What each recording shows of the thresholds that recordings set.
pub fn cases(recorded: &[(String, Recorded)]) -> Vec<PlantedCase> {
    recorded.iter().map(|(_, one)| PlantedCase::of(&one.limits(), &one.results)).collect()
}

impl Recorded {
    /// The limits that name it rightly.
    fn limits(&self) -> Vec<Limit> {
        let known = |name: &str| cases::known().find(|limit| limit.name() == name);
        self.accept.iter().filter_map(|accepted| known(&accepted.limit)).collect()
    }

    /// What was planted: the limit, or nothing where no limit need be named.
    fn family(&self) -> &'static str {
        let limits = self.limits();
        match limits.first() {
            Some(first) if !limits.contains(&Limit::NoneFound) => first.name(),
            _ => Limit::NoneFound.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted::recorded::recorded;

    /// Least share of right verdicts by thresholds that had no part of the judged family.
    const RIGHT_MIN: f64 = 0.90;

    #[test]
    fn thresholds_are_what_the_recordings_set_them_to() {
        let set = Fit::of(&cases(&recorded()));
        assert_eq!(set, Fit::default(), "left: by the recordings; right: in explain's `fitted.rs`");
    }

    /// What is chosen by hand was chosen with all recordings at hand, so the share is an upper bound of what a
    /// stranger's limits would see.
    #[test]
    fn families_that_set_no_threshold_are_named_rightly() {
        let told = left_out(&recorded());
        println!("{told}");
        assert!(told.families >= 15, "only {} families", told.families);
        assert!(told.share_left_out() >= RIGHT_MIN, "misjudged: {:#?}", told.wrong);
    }

    #[test]
    fn thresholds_follow_the_cases_they_are_set_by() {
        let all = cases(&recorded());
        assert_ne!(Fit::of(&all[..all.len() / 2]), Fit::of(&all), "half of them set others");
        assert_ne!(Fit::of(&[]), Fit::of(&all), "without cases the laws set them");
    }
}
