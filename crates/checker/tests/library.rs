//! The checker as its callers use it: options to reports, and what an observer hears.

use std::path::Path;
use std::time::Duration;

use checker::{
    Bounds, CheckError, Formulas, Observer, Options, Ranks, Simulation, Traffic, Verdict, check,
};
use dve::Model;
use statespace::{Fairness, LossyStorage, Progress};
use sys::private::Scratch;

/// Counters that all run from 0 to `last` and begin anew.
fn counters(count: usize, last: usize) -> Model {
    let mut text = format!("byte n[{count}];\n");
    for me in 0..count {
        let next = format!("n[{me}] = (n[{me}] + 1) % {}", last + 1);
        text +=
            &format!("process P{me} {{ state s; init s; trans s -> s {{ effect {next}; }}; }}\n");
    }
    Model::parse(&(text + "system async;\n")).expect("a model")
}

/// Notes what it hears and stops the search after so many questions.
#[derive(Debug, Default)]
struct Listener {
    checkpoints: Vec<Option<usize>>,
    warnings: usize,
    stop_now: bool,
}

impl Observer for Listener {
    fn warn(&mut self, _text: &str) {
        self.warnings += 1;
    }

    fn progress(&mut self, _progress: &Progress, _ranks: Option<&Traffic>, _elapsed: Duration) {}

    fn checkpoint_written(&mut self, _path: &Path, ranks_count: Option<usize>) {
        self.checkpoints.push(ranks_count);
    }

    fn stop(&self) -> Option<String> {
        self.stop_now.then(|| "enough".to_owned())
    }
}

fn ranks_of(count: usize, has_messages: bool) -> Ranks {
    Ranks::new((count, 1), None, has_messages).expect("threads")
}

#[test]
fn one_rank_and_threads_report_the_same() {
    let model = counters(3, 8);
    let options = Options { is_full: true, ..Options::default() };
    for mut ranks in [Ranks::One, ranks_of(2, false), ranks_of(3, true)] {
        let reports = check(&model, None, &options, &mut ranks, &mut ()).expect("reports");
        let [report] = &reports[..] else { panic!("{reports:?}") };
        assert!(matches!(report.verdict, Verdict::Holds), "{report:?}");
        assert_eq!((report.progress.states_count, report.progress.transitions_count), (729, 2187));
        assert!(report.unreachable.is_some());
    }
}

#[test]
fn each_formula_has_a_report_in_order() {
    let model = counters(2, 3);
    let text = "#define low n[0] < 4\n#define mid n[0] == 2\n#property G low\n#property G F mid\n";
    let formulas = Formulas::parse_file("two.ltl", text).expect("formulas");
    let holds = |fairness, ranks: &mut Ranks| -> Vec<bool> {
        let options = Options { fairness, ..Options::default() };
        let reports = check(&model, Some(&formulas), &options, ranks, &mut ()).expect("reports");
        reports.iter().map(|report| matches!(report.verdict, Verdict::Holds)).collect()
    };
    for mut ranks in [Ranks::One, ranks_of(2, false)] {
        assert_eq!(holds(None, &mut ranks), [true, false], "P1 may move for ever");
        assert_eq!(holds(Some(Fairness::Weak), &mut ranks), [true, true]);
    }
}

#[test]
fn an_observer_stops_a_search() {
    let model = counters(4, 200);
    for mut ranks in all_ranks() {
        let mut listener = Listener { stop_now: true, ..Listener::default() };
        let options = Options::default();
        let reports = check(&model, None, &options, &mut ranks, &mut listener).expect("a report");
        let Verdict::Undecided(why) = &reports[0].verdict else { panic!("{reports:?}") };
        assert_eq!(why, "enough");
    }
}

fn all_ranks() -> [Ranks; 3] {
    [Ranks::One, ranks_of(2, false), ranks_of(2, true)]
}

/// Runs end in a deadlock (x != 1), with an error (x == 1), or never.
const ENDS: &str = "byte x;\nprocess P { state a, b, c, never; init a; assert a: LIMIT;\n trans\n \
                    a -> b { effect x = 1; }, a -> b { effect x = 2; }, b -> c { effect x = 4 / (x - 1); },\n \
                    c -> never { guard x == 9; };\n}\nsystem async;\n";

#[test]
fn a_runtime_error_is_not_counted_as_a_deadlock() {
    let text = ENDS.replace("LIMIT", "x == 0");
    let model = Model::parse(&text).expect("a model");
    let lossy = Some(LossyStorage::HashCompaction);
    for mut ranks in all_ranks() {
        let full = Options { is_full: true, ..Options::default() };
        let reports = check(&model, None, &full, &mut ranks, &mut ()).expect("a report");
        assert_eq!(reports[0].progress.deadlocks_count, 1, "{reports:?}");
    }
    // The search counts the state at which it stops.
    let options = Options { kept: lossy, allow_deadlock: true, ..Options::default() };
    for (left_out, expected) in [("a -> b { effect x = 2; },", 0), ("a -> b { effect x = 1; },", 1)]
    {
        let model = Model::parse(&text.replace(left_out, "").replace("assert a: x == 0;", ""));
        let model = model.expect("a model");
        let reports = check(&model, None, &options, &mut Ranks::One, &mut ()).expect("a report");
        assert_eq!(reports[0].progress.deadlocks_count, expected, "{left_out}: {reports:?}");
    }
}

#[test]
fn unreachable_code_is_known_only_after_a_whole_search() {
    // The initial state fails its assertion: its successors are not looked at.
    let model = Model::parse(&ENDS.replace("LIMIT", "x == 1")).expect("a model");
    for is_full in [false, true] {
        for mut ranks in all_ranks() {
            let options = Options { is_full, ..Options::default() };
            let reports = check(&model, None, &options, &mut ranks, &mut ()).expect("a report");
            let [report] = &reports[..] else { panic!("{reports:?}") };
            assert!(matches!(report.verdict, Verdict::Violated { .. }), "{report:?}");
            let never = report.unreachable.as_ref().map(|code| code.transitions.len());
            assert_eq!(never, is_full.then_some(1), "{report:?}");
        }
    }
}

#[test]
fn bounds_that_do_not_suffice_for_the_first_state_leave_a_small_model_undecided() {
    let model = counters(2, 2);
    let formula = Formulas::parse("G {n[0] < 9}").expect("a formula");
    let of = |memory_bytes, time| Bounds { memory_bytes, time, is_reduced: false };
    let bounds = [of(Some(1024), None), of(None, Some(Duration::ZERO))];
    for (bounds, word) in bounds.into_iter().zip(["--memory", "--time"]) {
        for fairness in [None, Some(Fairness::Weak)] {
            for mut ranks in all_ranks() {
                let options = Options { bounds, fairness, ..Options::default() };
                let formulas = [None, Some(&formula)];
                for formulas in formulas.into_iter().filter(|of| of.is_some() || fairness.is_none())
                {
                    let reports = check(&model, formulas, &options, &mut ranks, &mut ());
                    let reports = reports.expect("a report");
                    let Verdict::Undecided(why) = &reports[0].verdict else {
                        panic!("{reports:?}")
                    };
                    assert!(why.contains(word), "{why}");
                }
            }
        }
    }
}

#[test]
fn a_stopped_search_is_written_down_and_gone_on_with() {
    let scratch = Scratch::new("checker-library").expect("a folder of its own");
    let model = counters(3, 60);
    let whole = Options { is_full: true, ..Options::default() };
    let states = |options: &Options, ranks: &mut Ranks, listener: &mut Listener| {
        let reports = check(&model, None, options, ranks, listener).expect("a report");
        (matches!(reports[0].verdict, Verdict::Holds), reports[0].progress.states_count)
    };
    for (name, wanted) in [("one", None), ("two", Some(2))] {
        let ranks = || if wanted.is_none() { Ranks::One } else { ranks_of(2, false) };
        let file = scratch.path().join(name);
        let mut listener = Listener { stop_now: true, ..Listener::default() };
        let cut = Options { checkpoint: Some(file.clone()), ..whole.clone() };
        assert!(!states(&cut, &mut ranks(), &mut listener).0);
        assert_eq!(listener.checkpoints, [wanted]);
        let resumed = Options { resume: Some(file), ..whole.clone() };
        assert_eq!(states(&resumed, &mut ranks(), &mut Listener::default()), (true, 61 * 61 * 61));
    }
}

#[test]
fn options_that_do_not_fit_are_errors_of_usage() {
    let model = counters(1, 1);
    let bounds = |memory_bytes| Bounds { memory_bytes, ..Bounds::default() };
    let wrong = [
        Options { fairness: Some(Fairness::Weak), ..Options::default() },
        Options {
            kept: Some(LossyStorage::HashCompaction),
            checkpoint: Some("never-written".into()),
            ..Options::default()
        },
        Options {
            kept: Some(LossyStorage::Bitstate { table_bytes: 4096 }),
            bounds: bounds(Some(1024)),
            ..Options::default()
        },
        Options { resume: Some("not-there".into()), ..Options::default() },
    ];
    for options in wrong {
        let error = check(&model, None, &options, &mut Ranks::One, &mut ());
        let error = error.expect_err("it cannot be");
        assert!(error.is_usage(), "{error}");
    }
    let error = Formulas::parse("G (").expect_err("no formula");
    assert!(matches!(error, CheckError::Formula(_)) && error.is_usage(), "{error}");
    let unknown = Formulas::parse("G {q < 4}").expect("a formula");
    let mut listener = Listener::default();
    let error = check(&model, Some(&unknown), &Options::default(), &mut Ranks::One, &mut listener);
    let error = error.expect_err("no such variable");
    assert!(error.is_usage() && error.to_string().starts_with("--ltl:1:"), "{error}");
    assert_eq!(listener.warnings, 0);
}

#[test]
fn a_simulation_goes_forth_and_back() {
    let model = counters(2, 3);
    let mut simulation = Simulation::new(&model);
    let (start, choices) = (simulation.state(), simulation.choices().count());
    assert_eq!((simulation.depth(), choices), (0, 2));
    assert!(!simulation.back() && !simulation.take(2));
    assert!(simulation.take(1));
    assert_ne!(simulation.state(), start);
    assert!(simulation.back());
    assert_eq!((simulation.depth(), simulation.state()), (0, start));
}
