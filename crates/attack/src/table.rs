//! The table of all cases, and the last line.

use crate::rounds::{Row, Verdict};

impl Row {
    fn show(&self) -> String {
        let verdict = match self.verdict() {
            Verdict::Held(note) if note.is_empty() => "held".to_owned(),
            Verdict::Held(note) => format!("held ({note})"),
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

/// The last line, and whether all is well: nothing is broken and something has held, and in a long run
/// everything that was played could be judged.
pub(crate) fn sum(rows: &[Row], is_long: bool, seed: u64, seconds: f64) -> (String, bool) {
    let verdicts: Vec<Verdict> = rows.iter().map(Row::verdict).collect();
    let count = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| is(verdict)).count();
    let held = count(|verdict| matches!(verdict, Verdict::Held(_)));
    let broken = count(|verdict| matches!(verdict, Verdict::Broken(_)));
    let unfit = count(|verdict| matches!(verdict, Verdict::NotJudged(_)));
    let left = count(|verdict| matches!(verdict, Verdict::NotPlayed(_)));
    let rounds: u32 = rows.iter().map(|row| row.rounds).sum();
    let line = format!(
        "attack: {held} held, {broken} broken, {unfit} not judged, {left} not played; {rounds} rounds in \
         {seconds:.0} s, seed {seed}"
    );
    (line, broken == 0 && held > 0 && !(is_long && unfit > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Judgement;
    use crate::rounds::WaitRule;

    #[test]
    fn cases_that_could_not_be_judged_fail_a_long_run_only() {
        let mut held = Row::new("held", WaitRule::Median);
        held.add(&Judgement::default(), 1.0);
        let mut unfit = Row::new("unfit", WaitRule::Median);
        unfit.add(&Judgement { unfit: Some("busy".to_owned()), ..Judgement::default() }, 1.0);
        let mut broken = Row::new("broken", WaitRule::Median);
        broken.add(&Judgement { broken: Some("gone".to_owned()), ..Judgement::default() }, 1.0);
        let rows = [held.clone(), unfit.clone()];
        let (line, is_well) = sum(&rows, false, 7, 2.0);
        assert!(is_well && line.contains("1 held, 0 broken, 1 not judged, 0 not played; 2 rounds"));
        assert!(!sum(&rows, true, 7, 2.0).1);
        assert!(!sum(&[unfit], false, 7, 2.0).1, "nothing has held");
        assert!(!sum(&[held, broken], false, 7, 2.0).1);
    }
}
