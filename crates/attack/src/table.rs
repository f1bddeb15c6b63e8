//! What came of each case, and the table of all.

use crate::judge::Judgement;

/// A case over all its rounds.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) rounds: u32,
    /// What all rounds took.
    pub(crate) seconds: f64,
    pub(crate) frame_ms: f64,
    pub(crate) answer_ms: f64,
    pub(crate) lost: u64,
    pub(crate) verdict: Verdict,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Held,
    Broken(String),
    /// The machine was too busy each time.
    NotJudged(String),
    /// It takes a user that we are not.
    NotPlayed(&'static str),
}

impl Row {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            rounds: 0,
            seconds: 0.0,
            frame_ms: 0.0,
            answer_ms: 0.0,
            lost: 0,
            verdict: Verdict::Held,
        }
    }

    pub(crate) fn add(&mut self, judgement: &Judgement) {
        self.rounds += 1;
        self.frame_ms = self.frame_ms.max(judgement.frame_ms);
        self.answer_ms = self.answer_ms.max(judgement.answer_ms);
        self.lost += judgement.lost;
        if self.verdict != Verdict::Held {
            return;
        }
        if let Some(why) = &judgement.broken {
            self.verdict = Verdict::Broken(why.clone());
        } else if let Some(why) = &judgement.unfit {
            self.verdict = Verdict::NotJudged(why.clone());
        }
    }

    fn show(&self) -> String {
        let verdict = match &self.verdict {
            Verdict::Held => "held".to_owned(),
            Verdict::Broken(why) => format!("BROKEN: {why}"),
            Verdict::NotJudged(why) => format!("not judged: {why}"),
            Verdict::NotPlayed(why) => format!("not played: {why}"),
        };
        format!(
            "{:<64} {:>6} {:>7.1} {:>8.1} {:>8.1} {:>6}  {verdict}",
            self.name.chars().take(64).collect::<String>(),
            self.rounds,
            self.seconds,
            self.frame_ms,
            self.answer_ms,
            self.lost
        )
    }
}

/// All rows, with what the columns are.
pub(crate) fn show(rows: &[Row]) -> String {
    let head = format!(
        "{:<64} {:>6} {:>7} {:>8} {:>8} {:>6}  {}",
        "attack", "rounds", "seconds", "frame ms", "reply ms", "lost", "verdict"
    );
    [head].into_iter().chain(rows.iter().map(Row::show)).collect::<Vec<_>>().join("\n")
}

/// The last line, and whether all is well.
pub(crate) fn sum(rows: &[Row], seed: u64, seconds: f64) -> (String, bool) {
    let count = |is: fn(&Verdict) -> bool| rows.iter().filter(|row| is(&row.verdict)).count();
    let held = count(|verdict| matches!(verdict, Verdict::Held));
    let broken = count(|verdict| matches!(verdict, Verdict::Broken(_)));
    let unfit = count(|verdict| matches!(verdict, Verdict::NotJudged(_)));
    let left = count(|verdict| matches!(verdict, Verdict::NotPlayed(_)));
    let rounds: u32 = rows.iter().map(|row| row.rounds).sum();
    let line = format!(
        "attack: {held} held, {broken} broken, {unfit} not judged, {left} not played; {rounds} rounds in \
         {seconds:.0} s, seed {seed}"
    );
    (line, broken == 0 && unfit == 0 && held > 0)
}
