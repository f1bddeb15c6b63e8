//! What became of a row: the judgement on rounds, without measuring anything.
//!
//! A contender of ours must run: one that fails is a missed requirement, not an absent figure. A peer
//! may be absent, or fail: then what is required beside it is not judged, and the row says so. Single
//! rounds may fail: of ours at most a fifth, of a peer's less than half. The row then stands on fewer
//! rounds and says why.

use crate::comparison::{Better, Gate, Measured, RowPlan};

/// How much `--gate` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum GateLevel {
    /// Every contender of ours ran and gave its figures: what a run too short to judge can say.
    Runs,
    /// And every required figure and ratio is met.
    Figures,
}

/// What one contender gave of a row's figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fate {
    /// Its rounds, in the row's unit; why some are missing.
    Ran(Vec<f64>, Vec<String>),
    /// It cannot run here.
    Absent(String),
    /// It should have, and did not.
    Failed(String),
}

/// What is required of a row, and whether it is met.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Standing {
    /// Nothing is required.
    Reported,
    /// The requirement, in words, and whether it is met.
    Judged(String, bool),
    /// The requirement, in words, and why nobody can say.
    NotJudged(String, String),
}

/// A row's figures: the best of each side.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Judged {
    /// Our best contender and its rounds.
    pub(crate) ours: (String, Vec<f64>),
    /// The best peer and its rounds; none for a row without peers, or where none ran.
    pub(crate) peer: Option<(String, Vec<f64>)>,
    /// What came of the requirement.
    pub(crate) standing: Standing,
    /// Rounds of these two that gave nothing, and why.
    pub(crate) failed_rounds: Vec<String>,
}

/// Why a row has no figure of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// What it takes is not on this machine.
    Absent(String),
    /// Our contender failed.
    Failed(String),
}

/// Rounds of ours that may fail: one of so many. A program that crashes more often is broken.
const OURS_FAILED_ONE_OF: usize = 5;

/// What a contender gave of a row's figure.
pub(crate) fn fate(measured: &Measured, name: &str, row: &RowPlan) -> Fate {
    if let Some(why) = measured.absent.get(name) {
        return Fate::Absent(why.clone());
    }
    let of_name = |(its, why): &(String, String)| (its == name).then(|| format!("{name}, {why}"));
    let failures: Vec<String> = measured.failures.iter().filter_map(of_name).collect();
    let rounds = measured.rounds.get(name).map(Vec::as_slice).unwrap_or_default();
    // A rate of nothing at all is no rate.
    let counts = |value: &f64| value.is_finite() && (row.better == Better::Lower || *value > 0.0);
    let values: Vec<f64> = rounds
        .iter()
        .filter_map(|figures| figures.get(row.figure).copied())
        .filter(counts)
        .map(|value| value / row.scale)
        .collect();
    let all = rounds.len() + failures.len();
    let is_enough = if is_ours(measured, name, row) {
        OURS_FAILED_ONE_OF * (all - values.len()) <= all
    } else {
        2 * values.len() > all
    };
    if is_enough && !values.is_empty() {
        return Fate::Ran(values, failures);
    }
    Fate::Failed(match failures.last() {
        Some(last) => format!("{} of {all} rounds failed: {last}", failures.len()),
        None => format!("{name} did not tell {}", row.figure),
    })
}

/// Whether this repository answers for it.
fn is_ours(measured: &Measured, name: &str, row: &RowPlan) -> bool {
    row.ours.iter().any(|ours| ours == name) || measured.own.contains(name)
}

/// Our contenders of a row that failed: each is a missed requirement, whatever stands in the row.
pub(crate) fn failures(measured: &Measured, row: &RowPlan) -> Vec<String> {
    let failed = |name: &String| match fate(measured, name, row) {
        Fate::Failed(why) => Some(why),
        Fate::Ran(..) | Fate::Absent(_) => None,
    };
    let own = |name: &&String| is_ours(measured, name, row);
    row.ours.iter().chain(&row.peers).filter(own).filter_map(failed).collect()
}

/// The row's figures and what they mean.
///
/// # Errors
/// None of ours has a figure.
pub(crate) fn judge(measured: &Measured, row: &RowPlan) -> Result<Judged, Missing> {
    let fates = |names: &[String]| -> Vec<(String, Fate)> {
        names.iter().map(|name| (name.clone(), fate(measured, name, row))).collect()
    };
    let (ours, peers) = (fates(&row.ours), fates(&row.peers));
    let Some((name, values, mut failed_rounds)) = best(&ours, row.better) else {
        let failed = ours.iter().any(|(_, fate)| matches!(fate, Fate::Failed(_)));
        let why = reasons(&ours);
        return Err(if failed { Missing::Failed(why) } else { Missing::Absent(why) });
    };
    let peer = best(&peers, row.better).map(|(name, values, failed)| {
        failed_rounds.extend(failed);
        (name, values)
    });
    let median = |values: &[f64]| stats::median(values).unwrap_or(f64::NAN);
    let figure = median(&values);
    let word = if row.better == Better::Higher { "at least" } else { "at most" };
    let meets = |value: f64, limit: f64| match row.better {
        Better::Higher => value >= limit,
        Better::Lower => value <= limit,
    };
    let standing = match (row.gate, &peer) {
        (Gate::None, _) => Standing::Reported,
        (Gate::Figure(limit), _) => {
            Standing::Judged(format!("{word} {limit} {}", row.unit), meets(figure, limit))
        }
        (Gate::Ratio(limit), Some((_, peers))) => {
            Standing::Judged(format!("{word} {limit} x"), meets(figure / median(peers), limit))
        }
        (Gate::Ratio(limit), None) => {
            Standing::NotJudged(format!("{word} {limit} x"), reasons(&peers))
        }
    };
    Ok(Judged { ours: (name, values), peer, standing, failed_rounds })
}

/// The contender with the best median.
fn best(fates: &[(String, Fate)], better: Better) -> Option<(String, Vec<f64>, Vec<String>)> {
    let ran = fates.iter().filter_map(|(name, fate)| match fate {
        Fate::Ran(values, failed) => Some((name.clone(), values.clone(), failed.clone())),
        Fate::Absent(_) | Fate::Failed(_) => None,
    });
    ran.max_by(|(_, one, _), (_, other, _)| {
        let median = |values: &[f64]| stats::median(values).unwrap_or(f64::NAN);
        let order = median(one).total_cmp(&median(other));
        if better == Better::Higher { order } else { order.reverse() }
    })
}

/// Why none of them ran, each reason once.
fn reasons(fates: &[(String, Fate)]) -> String {
    let mut all: Vec<&str> = Vec::new();
    for (_, fate) in fates {
        if let Fate::Absent(why) | Fate::Failed(why) = fate
            && !all.contains(&why.as_str())
        {
            all.push(why);
        }
    }
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Figures;

    fn row(gate: Gate) -> RowPlan {
        RowPlan {
            name: "a row".to_owned(),
            figure: "bits_per_s",
            unit: "Gbit/s",
            scale: 1e9,
            better: Better::Higher,
            ours: vec!["ours".to_owned()],
            peers: vec!["peer".to_owned()],
            gate,
            note: None,
        }
    }

    /// `ok` rounds of so many Gbit/s and `bad` ones that crashed.
    fn rounds(measured: &mut Measured, name: &str, gbit_per_s: f64, ok: usize, bad: usize) {
        let figures = Figures::from([("bits_per_s", gbit_per_s * 1e9)]);
        measured.rounds.insert(name.to_owned(), vec![figures; ok]);
        let crash = |number| (name.to_owned(), format!("round {number}: signal: 11"));
        measured.failures.extend((1..=bad).map(crash));
    }

    fn of(ours: (usize, usize), peer: (usize, usize)) -> Measured {
        let mut measured = Measured::default();
        measured.own.insert("ours".to_owned());
        rounds(&mut measured, "ours", 10.0, ours.0, ours.1);
        rounds(&mut measured, "peer", 8.0, peer.0, peer.1);
        measured
    }

    #[test]
    fn our_contender_that_crashes_is_a_missed_requirement() {
        for gate in [Gate::Ratio(1.0), Gate::Figure(1.0), Gate::None] {
            let measured = of((0, 5), (5, 0));
            assert!(matches!(judge(&measured, &row(gate)), Err(Missing::Failed(_))), "{gate:?}");
            let failed = failures(&measured, &row(gate));
            assert_eq!(failed, ["5 of 5 rounds failed: ours, round 5: signal: 11"]);
        }
        for (good, bad) in [(1, 1), (3, 2), (11, 10), (16, 5)] {
            let failed = failures(&of((good, bad), (2, 0)), &row(Gate::None));
            assert_eq!(failed.len(), 1, "{bad} of {} crashed", good + bad);
        }
        assert_eq!(failures(&of((17, 4), (2, 0)), &row(Gate::None)), [""; 0]);
        assert_eq!(failures(&of((5, 0), (5, 0)), &row(Gate::None)), [""; 0]);
    }

    #[test]
    fn a_crash_of_one_of_several_of_ours_is_missed_too() {
        let mut measured = of((5, 0), (5, 0));
        rounds(&mut measured, "ours, sendfile", 0.0, 0, 5);
        let row = RowPlan {
            ours: vec!["ours".to_owned(), "ours, sendfile".to_owned()],
            ..row(Gate::Ratio(1.0))
        };
        assert_eq!(failures(&measured, &row).len(), 1);
        let judged = judge(&measured, &row).unwrap();
        assert_eq!(judged.standing, Standing::Judged("at least 1 x".to_owned(), true));
    }

    #[test]
    fn a_peer_that_crashes_or_is_absent_is_no_miss_and_not_judged() {
        let crashed = of((5, 0), (0, 5));
        let mut absent = of((5, 0), (0, 0));
        absent.absent.insert("peer".to_owned(), "iperf3 is not installed".to_owned());
        for (measured, why) in [(crashed, "signal: 11"), (absent, "iperf3 is not installed")] {
            assert_eq!(failures(&measured, &row(Gate::Ratio(1.0))), [""; 0]);
            let judged = judge(&measured, &row(Gate::Ratio(1.0))).unwrap();
            let Standing::NotJudged(required, reason) = &judged.standing else {
                panic!("{judged:?}")
            };
            assert_eq!(required, "at least 1 x");
            assert!(reason.contains(why), "{reason}");
            assert_eq!(judged.ours.1, [10.0; 5], "our figure stands all the same");
            let figure = judge(&measured, &row(Gate::Figure(11.0))).unwrap().standing;
            assert_eq!(figure, Standing::Judged("at least 11 Gbit/s".to_owned(), false));
        }
    }

    #[test]
    fn a_bare_loop_of_this_repository_that_crashes_is_missed() {
        let mut measured = of((5, 0), (0, 5));
        measured.own.insert("peer".to_owned());
        assert_eq!(failures(&measured, &row(Gate::Ratio(1.0))).len(), 1);
    }

    #[test]
    fn one_failed_round_of_five_leaves_four() {
        let judged = judge(&of((4, 1), (3, 2)), &row(Gate::Ratio(1.2))).unwrap();
        assert_eq!(judged.ours.1.len(), 4);
        assert_eq!(judged.peer.as_ref().map(|(_, values)| values.len()), Some(3));
        assert_eq!(judged.standing, Standing::Judged("at least 1.2 x".to_owned(), true));
        assert_eq!(judged.failed_rounds[0], "ours, round 1: signal: 11");
        assert_eq!(judged.failed_rounds.len(), 3);
        assert_eq!(failures(&of((4, 1), (5, 0)), &row(Gate::None)), [""; 0]);
    }

    #[test]
    fn a_run_without_its_figure_or_with_none_at_all_is_missed() {
        let mut measured = of((5, 0), (5, 0));
        measured.rounds.insert("ours".to_owned(), vec![Figures::new(); 5]);
        assert_eq!(failures(&measured, &row(Gate::None)), ["ours did not tell bits_per_s"]);
        for nothing in [0.0, f64::NAN, f64::INFINITY] {
            rounds(&mut measured, "ours", nothing, 5, 0);
            assert_eq!(failures(&measured, &row(Gate::None)).len(), 1, "{nothing}");
        }
    }

    #[test]
    fn what_ours_needs_and_is_not_there_is_absent() {
        let mut measured = of((0, 0), (5, 0));
        measured.absent.insert("ours".to_owned(), "mpirun is not installed".to_owned());
        assert_eq!(failures(&measured, &row(Gate::Ratio(1.0))), [""; 0]);
        let missing = judge(&measured, &row(Gate::Ratio(1.0))).unwrap_err();
        assert_eq!(missing, Missing::Absent("mpirun is not installed".to_owned()));
    }
}
