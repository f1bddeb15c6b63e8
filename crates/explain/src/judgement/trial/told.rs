//! What an experiment says of its limit, beside what another limit predicts.

use results::{Companion, Confirmation, Estimate, Limit, Rival, Ruling};

use crate::experiment::Experiment;
use crate::verdict::title;

/// What an experiment says of its limit.
pub(in crate::judgement) struct Told {
    pub(in crate::judgement) outcome: Ruling,
    pub(in crate::judgement) predicted_bits_per_s: f64,
    pub(in crate::judgement) after_bits_per_s: Option<f64>,
    pub(in crate::judgement) text: String,
    /// Lowest and highest throughput that was predicted, bit/s, where it was bounded.
    pub(in crate::judgement) interval: Interval,
}

/// Bounds of a prediction, bit/s.
pub(super) type Interval = (Option<f64>, Option<f64>);

impl Told {
    /// The same beside what the second candidate predicts and what else the limit predicted: as predicted is not
    /// enough where the other limit predicts the same, or something else failed.
    pub(in crate::judgement) fn beside(
        mut self,
        rival: Option<&Rival>,
        companions: &[Companion],
        limit: Limit,
    ) -> Self {
        if self.outcome != Ruling::Confirmed {
            return self;
        }
        if let Some(failed) = companions.iter().find(|companion| !companion.holds) {
            self.outcome = Ruling::Inconclusive;
            let Companion { predicted, measured, .. } = failed;
            self.text += &format!("; but it also predicts {predicted}; measured {measured}");
        } else if let Some(rival) = rival.filter(|rival| !rival.is_separate) {
            self.outcome = Ruling::Inconclusive;
            let (one, other) = (title(limit), title(rival.limit));
            self.text += &format!(
                "; {one} or {other}: the experiment does not distinguish them, as both predict \
                 this outcome"
            );
        }
        self
    }

    /// The outcome in the form that verdicts store; `None` if the experiment measured nothing.
    pub(in crate::judgement) fn confirmation(
        &self,
        experiment: &Experiment,
        before: &Estimate,
    ) -> Option<Confirmation> {
        Some(Confirmation {
            change: experiment.change.to_string(),
            predicted_bits_per_s: self.predicted_bits_per_s,
            before_bits_per_s: before.median,
            after_bits_per_s: self.after_bits_per_s?,
            outcome: self.text.clone(),
            // Every rate is above a bound that noise puts below zero.
            predicted_low_bits_per_s: self.interval.0.filter(|low| *low > 0.0),
            predicted_high_bits_per_s: self.interval.1,
            ruling: Some(self.outcome),
            ..Confirmation::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_second_candidate_predicts_as_well_confirms_nothing() {
        let told = || Told {
            outcome: Ruling::Confirmed,
            predicted_bits_per_s: 1e9,
            after_bits_per_s: Some(1e9),
            text: "as predicted".to_owned(),
            interval: (None, None),
        };
        let rival = |is_separate| Rival {
            limit: Limit::ReceiverCore,
            low_bits_per_s: None,
            high_bits_per_s: None,
            is_separate,
        };
        let failed =
            Companion { predicted: "more".to_owned(), measured: "less".to_owned(), holds: false };
        let word = |rival: Option<&Rival>, companions: &[Companion]| {
            let told = told().beside(rival, companions, Limit::SenderCore);
            (told.outcome, told.text)
        };
        assert_eq!(word(None, &[]).0, Ruling::Confirmed);
        assert_eq!(word(Some(&rival(true)), &[]).0, Ruling::Confirmed);
        let (outcome, text) = word(Some(&rival(false)), &[]);
        assert_eq!(outcome, Ruling::Inconclusive);
        assert!(
            text.contains(
                "the sending core or the receiving core: the experiment does not distinguish them"
            ),
            "{text}"
        );
        let (outcome, text) = word(None, &[failed]);
        assert_eq!(outcome, Ruling::Inconclusive);
        assert!(text.contains("also predicts more; measured less"), "{text}");
    }
}
