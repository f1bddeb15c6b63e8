//! What models mean, one micro-model a rule: state, transition and deadlock counts by the plainest
//! search there is. Rules and counts are `DiVinE` 2.4's.

use std::collections::{HashSet, VecDeque};

use dve::{Fault, Model, Steps};

/// What a plain breadth-first search found.
#[derive(Debug, PartialEq)]
struct Counts {
    states: usize,
    transitions: usize,
    deadlocks: usize,
    faults: Vec<Fault>,
}

fn search(text: &str) -> Counts {
    let model = Model::parse(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let mut steps = Steps::new(&model);
    let mut seen = HashSet::from([model.initial().to_vec()]);
    let mut queue = VecDeque::from([model.initial().to_vec()]);
    let (mut transitions, mut deadlocks, mut faults) = (0, 0, Vec::new());
    while let Some(state) = queue.pop_front() {
        let count = steps.each(&state, |step, next| {
            faults.extend(step.fault);
            if seen.insert(next.to_vec()) {
                queue.push_back(next.to_vec());
            }
        });
        transitions += count;
        deadlocks += usize::from(count == 0);
    }
    Counts { states: seen.len(), transitions, deadlocks, faults }
}

/// States, transitions, deadlocks; nothing may go wrong.
fn counts(text: &str) -> (usize, usize, usize) {
    let Counts { states, transitions, deadlocks, faults } = search(text);
    assert_eq!(faults, [], "{text}");
    (states, transitions, deadlocks)
}

/// Whether a guard over `byte a[3] = {1,2,3}, b = 5; int i = -5; const byte k = 7;` lets a step through.
fn holds(guard: &str) -> bool {
    let text = format!(
        "byte a[3] = {{1, 2, 3}}, b = 5; int i = -5; const byte k = 7; const int t[2] = {{4, -4}};
         process P {{ state q, r; init q; trans q -> r {{ guard {guard}; }}; }} system async;"
    );
    counts(&text).0 == 2
}

#[test]
fn expressions() {
    let true_ones = [
        "b == 5 and i == -5 and k == 7 and a[2] == 3 and t[1] == -4 and t[b - 5] == 4",
        "a == 1",
        "32767 + 1 - 1 == 32767",
        "(3000 * 3000) / 3000 == 3000",
        "-7 / 2 == -3 and -7 % 2 == -1",
        "-8 >> 1 == -4 and 1 << 33 == 2",
        "10 - 3 - 2 == 5 and 100 / 5 / 2 == 10 and 20 % 7 % 4 == 2",
        "(1 or 0 and 0) == 0",
        "(4 & 6 == 6) == 0",
        "(6 & 3 | 8 ^ 1) == 11",
        "~0 == -1 and not 0 and not not 5 == 1",
        "0 imply 0",
        "(1 imply 0) == 0",
        "b < 3 and a[b] == 0 or 1",
        "P.q and not P.r",
        "P.q == 1",
        "4294967297 == 1",
        "1 /* two */ == // one\n 1",
    ];
    for guard in true_ones {
        assert!(holds(guard), "{guard}");
    }
    // What stands right of `and` counts as true only above 0.
    assert!(holds("i") && !holds("true and i") && holds("true and b"));
}

#[test]
fn faults_lead_to_one_error_state() {
    let step = |body: &str| {
        let text = format!(
            "byte b = 255, a[2]; int i = 32767; byte n = 2, z;
             process P {{ state q, r; init q; trans q -> r {{ {body} }}; }} system async;"
        );
        let found = search(&text);
        assert_eq!((found.states, found.transitions, found.deadlocks), (2, 1, 1), "{body}");
        found.faults
    };
    assert_eq!(step("effect b = b + 1;"), [Fault::ValueOutOfRange]);
    assert_eq!(step("effect b = -1;"), [Fault::ValueOutOfRange]);
    assert_eq!(step("effect i = i + 1;"), [Fault::ValueOutOfRange]);
    assert_eq!(step("effect a[n] = 1;"), [Fault::IndexOutOfRange]);
    assert_eq!(step("effect z = a[n];"), [Fault::IndexOutOfRange]);
    assert_eq!(step("guard a[n] == 0;"), [Fault::IndexOutOfRange]);
    assert_eq!(step("guard 1 / z == 0;"), [Fault::DivisionByZero]);
    assert_eq!(step("effect z = 1 % z;"), [Fault::DivisionByZero]);
}

#[test]
fn effects_are_sequential_and_see_the_new_location() {
    let text = "byte s = 1, u = 2, x; process P { state q, r, t; init q;
        trans q -> r { effect s = u, u = s, x = P.r; }, r -> t { guard s == 2 and u == 2 and x == 1; }; }
        system async;";
    assert_eq!(counts(text), (3, 2, 1));
}

#[test]
fn partners_meet() {
    // Two senders, two receivers: every pair is a step.
    let text = "channel c; process S1 { state q, r; init q; trans q -> r { sync c!; }; }
        process S2 { state q, r; init q; trans q -> r { sync c!; }; }
        process R1 { state q, r; init q; trans q -> r { sync c?; }; }
        process R2 { state q, r; init q; trans q -> r { sync c?; }; } system async;";
    assert_eq!(counts(text), (6, 8, 1));
    // A process does not meet itself.
    let alone = "channel c; process P { state q, r; init q; trans q -> r { sync c!; }, q -> r { sync c?; }; }
        system async;";
    assert_eq!(counts(alone), (1, 0, 1));
}

#[test]
fn values_pass_one_after_another_and_the_receiver_moves_first() {
    let text = "byte x = 1, y = 2, z; channel c;
        process S { state q, r; init q; trans q -> r { sync c!{x, y}; effect z = 2; }; }
        process R { state q, r, t; init q; trans q -> r { sync c?{y, x}; },
            r -> t { guard x == 1 and y == 1 and z == 2; }; } system async;";
    assert_eq!(counts(text), (3, 2, 1));
    let both = "byte z; channel c; process S { state q, r; init q; trans q -> r { sync c!; effect z = 1; }; }
        process R { state q, r; init q; trans q -> r { sync c?; effect z = 2; }; } system async;";
    assert_eq!(search(both).faults, [Fault::AssignedTwice]);
}

#[test]
fn buffers_are_queues() {
    let text = "channel {byte, int} c[2]; byte n; int m; byte sum;
        process S { byte i; state q, r; init q;
            trans q -> q { guard i < 3; sync c!{i, 0 - i}; effect i = i + 1; }; }
        process R { state q; init q; trans q -> q { sync c?{n, m}; effect sum = sum + n - m; }; }
        system async;";
    // After 3 puts and k takes with at most 2 in the buffer: pairs (puts, takes).
    assert_eq!(counts(text), (9, 10, 1));
    // A typed buffer cuts what it takes; the receiver's range still counts.
    let cut = "channel {byte} c[1]; int x = 257; byte y; process P { state q, r, s, t; init q;
        trans q -> r { sync c!x; }, r -> s { sync c?y; }, s -> t { guard y == 1; }; } system async;";
    assert_eq!(counts(cut), (4, 3, 1));
}

#[test]
fn committed_states_go_first() {
    let text = "process A { state q, r, s; init q; commit r; trans q -> r {}, r -> s {}; }
        process B { state q, r; init q; trans q -> r {}; } system async;";
    assert_eq!(counts(text), (6, 6, 1));
    let stuck = "process A { state q, r; init q; commit r; trans q -> r {}; }
        process B { state q; init q; trans q -> q {}; } system async;";
    assert_eq!(counts(stuck), (2, 2, 1));
}

#[test]
fn a_property_moves_in_every_step() {
    let text = "byte x; process P { state q, r; init q; trans q -> r { effect x = 1; }; }
        process L { state a, b; init a; accept b; trans a -> a {}, a -> b { guard x == 1; },
            b -> b { guard x == 1; }; } system async property L;";
    // q,a -> r,a -> (the system stands still) r,a and r,b -> r,b
    assert_eq!(counts(text), (3, 4, 0));
    let model = Model::parse(text).unwrap();
    assert!(model.has_property() && !model.is_accepting(model.initial()));
}

#[test]
fn assertions_are_checked_where_they_stand() {
    let text = "byte x; process P { state q, r; init q; assert r: x == 0, q: x == 0;
        trans q -> r { effect x = 1; }; } system async;";
    let model = Model::parse(text).unwrap();
    assert!(model.has_assertions() && model.violated_assertions(model.initial()).is_empty());
    let mut violated = Vec::new();
    Steps::new(&model).each(model.initial(), |_, next| violated = model.violated_assertions(next));
    assert_eq!(violated.len(), 1);
    assert_eq!((violated[0].line, violated[0].column), (1, 51));
}

#[test]
fn what_is_wrong_is_said_where() {
    let wrong = |text: &str| Model::parse(text).expect_err(text);
    let process = "process P { state q; init q; }";
    let cases = [
        ("byte x = 256; system async;".to_owned(), "`x` cannot hold 256; its range is 0 to 255"),
        (format!("byte x, x; {process} system async;"), "`x` is declared twice"),
        (format!("{process} system sync;"), "`system sync` is not supported"),
        (format!("{process} system async property L;"), "there is no process `L`"),
        ("process P { state q; init r; } system async;".to_owned(), "there is no state `r`"),
        ("process P { state q; init q; trans q -> q { guard y; }; } system async;".to_owned(),
            "there is no variable `y`"),
        ("const byte k = 1; process P { state q; init q; trans q -> q { effect k = 2; }; } system async;"
            .to_owned(), "`k` is a constant"),
        ("channel c; process P { state q; init q; trans q -> q { sync c!1; }, q -> q { sync c?; }; }
          system async;".to_owned(), "`c` carries 1 value at a time, 0 given"),
        ("process P { state q; init q".to_owned(), "expected `;`, found the end of the model"),
        ("byte a[0]; system async;".to_owned(), "at least one element"),
        ("/* no end".to_owned(), "this comment is not closed"),
        ("byte b @".to_owned(), "unexpected character `@`"),
        (format!("byte b[65536]; {process} system async;"), "a state may have 32768 bytes"),
        (format!("const byte k[65536]; {process} system async;"), "too many constants"),
        ("const byte k = 1; process P { state q; init q; trans q -> q { guard k[0]; }; } system async;"
            .to_owned(), "`k` is not an array"),
        (format!("channel c; {process} process L {{ state q; init q; trans q -> q {{ sync c!; }}; }}
          system async property L;"), "a property process cannot send or receive"),
    ];
    for (text, message) in cases {
        let error = wrong(&text);
        assert!(error.message.contains(message), "{text}: {error}");
    }
    let error = wrong("byte x;\nprocess P {\n\tstate q; init r;\n} system async;");
    assert_eq!(
        error.to_string(),
        "3:16: there is no state `r` in `P`; its states are: q\n    \tstate q; init r;\n    \t              ^"
    );
}

#[test]
fn other_groupings_are_warned_of() {
    let warnings = |guard: &str| {
        let text = format!(
            "byte a, b, c; process P {{ state q; init q; trans q -> q {{ guard {guard}; }}; }}
            system async;"
        );
        Model::parse(&text).unwrap().warnings().len()
    };
    assert_eq!(warnings("a == 1 and b == 2 and c == 3"), 0);
    assert_eq!(warnings("a + b + c > 0"), 0);
    assert!(warnings("a or b and c") > 0);
    assert!(warnings("a - b - c") > 0);
}

#[test]
fn any_text_is_a_model_or_an_error() {
    let seeds = [
        "byte x; process P { state q; init q; trans q -> q { guard x < 3; effect x = x + 1; }; } system async;",
    ];
    bolero::check!().with_type::<(Vec<u8>, usize, usize)>().for_each(|(bytes, from, to)| {
        let seed = seeds[0];
        let (from, to) = (from % seed.len(), to % seed.len());
        let noise = String::from_utf8_lossy(bytes);
        let (head, tail) = (&seed[..from.min(to)], &seed[from.max(to)..]);
        for text in [noise.to_string(), format!("{head}{noise}{tail}")] {
            match Model::parse(&text) {
                Ok(model) => {
                    let mut steps = Steps::new(&model);
                    steps.each(model.initial(), |step, next| {
                        assert!(!model.show_step(&step).is_empty());
                        assert!(!model.show_state(next).is_empty());
                    });
                }
                Err(error) => assert!(error.to_string().ends_with('^')),
            }
        }
    });
}
