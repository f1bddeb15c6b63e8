//! The example models against SPIN: `spin/NAME.pml` is the same model in Promela, one statement for each
//! transition, so that SPIN without its reductions counts the same states and transitions.

use std::path::Path;
use std::process::Command;

use checker::{Options, Ranks, check};
use dve::{Model, expand_parameters};
use sys::private::Scratch;

/// An example, the states that SPIN 6.5.2 stores, and its transitions: stored and matched.
const COUNTS: [(&str, u64, u64); 9] = [
    ("check-then-set", 9, 17),
    ("set-then-check", 8, 13),
    ("peterson", 20, 35),
    ("bounded-buffer", 53, 89),
    ("readers-writers", 5, 11),
    ("philosophers", 26, 52),
    ("philosophers-ordered", 26, 52),
    ("token-ring", 6, 7),
    ("elevator", 100, 235),
];

#[test]
fn examples_have_the_states_that_spin_counts() {
    for (name, states, transitions) in COUNTS {
        let example = dve::example(name).expect("an example");
        let text = if example.has_parameters {
            expand_parameters(example.text, &[]).expect("a model")
        } else {
            example.text.to_owned()
        };
        let model = Model::parse(&text).expect("a model");
        let options = Options { is_full: true, allow_deadlock: true, ..Options::default() };
        let reports = check(&model, None, &options, &mut Ranks::One, &mut ()).expect("a report");
        let counts = (reports[0].progress.states_count, reports[0].progress.transitions_count);
        // SPIN counts the arrival in the initial state as a transition.
        assert_eq!(counts, (states, transitions - 1), "{name}");
    }
}

#[test]
fn recorded_counts_are_those_of_the_installed_spin() {
    if Command::new("spin").arg("-V").output().is_err() {
        println!("skipped: needs spin");
        return;
    }
    for (name, states, transitions) in COUNTS {
        let scratch = Scratch::new("spin").expect("a folder");
        let path = scratch.path();
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/spin/{name}.pml"));
        std::fs::copy(model, path.join("model.pml")).expect("a copy");
        run(path, "spin", &["-a", "-o1", "-o3", "model.pml"]);
        run(path, "cc", &["-w", "-DNOREDUCE", "-DSAFETY", "-o", "pan", "pan.c"]);
        let pan = path.join("pan");
        let told = run(path, pan.to_str().expect("text"), &["-c0", "-n"]);
        let number = |what: &str| {
            let line = told.lines().find(|line| line.contains(what)).expect(what);
            line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok())
        };
        let counts = (number("states, stored"), number("transitions ("));
        assert_eq!(counts, (Some(states), Some(transitions)), "{name}\n{told}");
    }
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).current_dir(folder).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{program}: {text}{}", String::from_utf8_lossy(&done.stderr));
    text
}
