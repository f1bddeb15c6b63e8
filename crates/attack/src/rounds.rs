//! What the rounds of a case come to.
//!
//! A failure (lost frames, an ended process, a panic, growth, a refused system call) in any round breaks the case. A
//! wait above its limit may be a hiccup of the machine that nothing recorded. In a short run it therefore counts by
//! the median: each case of the switch and of `serve` is played [`REPEATS`] times, whatever the first round shows,
//! and is broken if more than half of the rounds, and at least two, had such a wait. Rounds in which the machine was
//! too busy do not count. A run of [`LONG`] or more judges each round.

use std::time::Duration;

use crate::judge::Judgement;

/// Least number of rounds of a case whose waits are judged.
pub(crate) const REPEATS: u64 = 3;

/// From here on a run is long.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// How waits above their limits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitRule {
    /// One breaks the case. A round that could not be judged leaves the case not judged.
    EachRound,
    /// More than half of the rounds that could be judged break the case.
    Median,
    /// They are only shown: the case takes long and is played once.
    Ignored,
}

/// A case over all its rounds.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    rule: WaitRule,
    pub(crate) rounds: u32,
    /// What all rounds took.
    pub(crate) seconds: f64,
    /// The longest wait of all rounds, milliseconds.
    pub(crate) frame_ms: f64,
    pub(crate) answer_ms: f64,
    pub(crate) lost: u64,
    broken: Option<String>,
    /// Waits above their limits, one for each round that had one and counts.
    slow: Vec<String>,
    /// Why rounds could not be judged.
    unfit: Vec<String>,
    not_played: Option<&'static str>,
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// With what is worth knowing of its waits, or nothing.
    Held(String),
    Broken(String),
    /// The machine was too busy in too many rounds.
    NotJudged(String),
    NotPlayed(&'static str),
}

impl Row {
    pub(crate) fn new(name: &str, rule: WaitRule) -> Self {
        Self {
            name: name.to_owned(),
            rule,
            rounds: 0,
            seconds: 0.0,
            frame_ms: 0.0,
            answer_ms: 0.0,
            lost: 0,
            broken: None,
            slow: Vec::new(),
            unfit: Vec::new(),
            not_played: None,
        }
    }

    /// A case that is left out, for this reason.
    pub(crate) fn not_played(name: &str, why: &'static str) -> Self {
        Self { not_played: Some(why), ..Self::new(name, WaitRule::Ignored) }
    }

    pub(crate) fn add(&mut self, judgement: &Judgement, seconds: f64) {
        self.rounds += 1;
        self.seconds += seconds;
        self.frame_ms = self.frame_ms.max(judgement.frame_ms);
        self.answer_ms = self.answer_ms.max(judgement.answer_ms);
        self.lost += judgement.lost;
        if self.broken.is_none() {
            self.broken.clone_from(&judgement.broken);
        }
        self.unfit.extend(judgement.unfit.clone());
        if judgement.unfit.is_none() || self.rule == WaitRule::EachRound {
            self.slow.extend(judgement.slow.clone());
        }
    }

    /// Whether another round could change the verdict.
    pub(crate) fn is_open(&self) -> bool {
        let is_strict = self.rule == WaitRule::EachRound;
        self.broken.is_none()
            && self.not_played.is_none()
            && !(is_strict && (!self.slow.is_empty() || !self.unfit.is_empty()))
    }

    pub(crate) fn verdict(&self) -> Verdict {
        if let Some(why) = self.not_played {
            return Verdict::NotPlayed(why);
        }
        if let Some(why) = &self.broken {
            return Verdict::Broken(why.clone());
        }
        let (slow, fit) = (self.slow.len(), self.rounds as usize - self.unfit.len());
        let waits = self.slow.first().map(|why| format!("{why} in {slow} of {fit} rounds"));
        match (self.rule, waits, self.unfit.first()) {
            (WaitRule::EachRound, Some(_), _) => Verdict::Broken(self.slow[0].clone()),
            (WaitRule::EachRound, None, Some(why)) => Verdict::NotJudged(why.clone()),
            (WaitRule::Median, Some(why), _) if slow > 1 && 2 * slow > fit => Verdict::Broken(why),
            // One round alone is no median.
            (WaitRule::Median, Some(why), _) if fit == 1 => Verdict::NotJudged(why),
            (WaitRule::Median, None, Some(why)) if fit == 0 => Verdict::NotJudged(why.clone()),
            (WaitRule::Ignored, ..) => Verdict::Held("waits not judged: played once".to_owned()),
            (_, waits, _) => Verdict::Held(waits.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one round was like.
    #[derive(Debug, Clone, Copy)]
    enum Round {
        /// Longest wait of an innocent frame, milliseconds.
        Waited(f64),
        /// The same, while the machine was too busy.
        Unfit(f64),
        Lost,
    }
    use Round::{Lost, Unfit, Waited};

    fn row(rule: WaitRule, rounds: &[Round]) -> Row {
        let mut row = Row::new("case", rule);
        for round in rounds {
            let (frame_ms, unfit) = match *round {
                Waited(frame_ms) => (frame_ms, None),
                Unfit(frame_ms) => (frame_ms, Some("machine too busy".to_owned())),
                Lost => (5.0, None),
            };
            let broken = matches!(round, Lost).then(|| "innocents lost 1 frames".to_owned());
            let slow = (frame_ms > 50.0).then(|| format!("innocents waited {frame_ms:.0} ms"));
            let judgement = Judgement { frame_ms, broken, slow, unfit, ..Judgement::default() };
            row.add(&judgement, 0.1);
        }
        row
    }

    fn verdict(rule: WaitRule, rounds: &[Round]) -> &'static str {
        match row(rule, rounds).verdict() {
            Verdict::Held(_) => "held",
            Verdict::Broken(_) => "broken",
            Verdict::NotJudged(_) => "not judged",
            Verdict::NotPlayed(_) => "not played",
        }
    }

    /// The rounds, and the verdicts by the median and by each round.
    const TABLE: &[(&[Round], &str, &str)] = &[
        (&[Waited(5.0), Waited(5.0), Waited(5.0)], "held", "held"),
        // A hiccup of the machine, in any of the rounds.
        (&[Waited(80.0), Waited(5.0), Waited(5.0)], "held", "broken"),
        (&[Waited(5.0), Waited(5.0), Waited(8_000.0)], "held", "broken"),
        // A switch that is slow.
        (&[Waited(80.0), Waited(80.0), Waited(80.0)], "broken", "broken"),
        (&[Waited(80.0), Waited(5.0), Waited(80.0)], "broken", "broken"),
        (&[Waited(80.0), Waited(80.0)], "broken", "broken"),
        // Generated ones have many rounds.
        (&[Waited(80.0), Waited(80.0), Waited(5.0), Waited(5.0)], "held", "broken"),
        (&[Waited(80.0), Waited(80.0), Waited(80.0), Waited(5.0), Waited(5.0)], "broken", "broken"),
        // A busy machine: its rounds say nothing, and one that is left is no median.
        (&[Unfit(5.0), Unfit(5.0), Unfit(5.0)], "not judged", "not judged"),
        (&[Unfit(80.0), Unfit(80.0), Unfit(80.0)], "not judged", "broken"),
        (&[Unfit(5.0), Unfit(5.0), Waited(5.0)], "held", "not judged"),
        (&[Unfit(5.0), Unfit(5.0), Waited(80.0)], "not judged", "broken"),
        (&[Unfit(5.0), Waited(80.0), Waited(80.0)], "broken", "broken"),
        (&[Unfit(5.0), Waited(80.0), Waited(5.0)], "held", "broken"),
        // What is no wait counts in any round, on any machine.
        (&[Waited(5.0), Waited(5.0), Lost], "broken", "broken"),
        (&[Unfit(5.0), Unfit(5.0), Lost], "broken", "broken"),
        (&[Lost, Waited(5.0), Waited(5.0)], "broken", "broken"),
    ];

    #[test]
    fn waits_count_by_the_median_and_failures_in_each_round() {
        for (rounds, by_median, by_each) in TABLE {
            assert_eq!(verdict(WaitRule::Median, rounds), *by_median, "median of {rounds:?}");
            assert_eq!(verdict(WaitRule::EachRound, rounds), *by_each, "each of {rounds:?}");
        }
        assert_eq!(verdict(WaitRule::Ignored, &[Waited(8_000.0)]), "held");
        assert_eq!(verdict(WaitRule::Ignored, &[Lost]), "broken");
    }

    #[test]
    fn a_wait_that_is_forgiven_is_shown() {
        let row = row(WaitRule::Median, &[Waited(80.0), Waited(5.0), Waited(5.0)]);
        assert_eq!(row.verdict(), Verdict::Held("innocents waited 80 ms in 1 of 3 rounds".into()));
        assert_eq!((row.frame_ms, row.rounds), (80.0, 3));
    }

    #[test]
    fn no_more_rounds_than_the_verdict_needs() {
        assert!(row(WaitRule::Median, &[Waited(80.0), Unfit(5.0)]).is_open());
        assert!(!row(WaitRule::Median, &[Lost]).is_open());
        assert!(!row(WaitRule::EachRound, &[Waited(80.0)]).is_open());
        assert!(!row(WaitRule::EachRound, &[Unfit(5.0)]).is_open());
        assert!(!Row::not_played("case", "needs root").is_open());
    }
}
