//! Mistakes in models: each is answered by one line that says what to write instead, at its place.

use dve::Model;

/// Where the `^` of a text stands: line, column; and the text without it.
fn marked(text: &str) -> (String, u32, u32) {
    let place = text.find('^').expect("a place");
    let before = &text[..place];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    (text.replacen('^', "", 1), line as u32, column as u32)
}

#[test]
fn mistakes_are_answered_by_what_to_write() {
    let process = |body: &str| format!("byte x, y;\nprocess P {{ {body} }}\nsystem async;\n");
    let transition =
        |inside: &str| process(&format!("state q, r; init q; trans q -> r {{ {inside} }};"));
    let mistakes = [
        ("^proces P { }".to_owned(), "did you mean `process`?"),
        ("^bool x;".to_owned(), "the types are `byte` (0 to 255) and `int`"),
        ("^active proctype P() { skip }".to_owned(), "this is Promela"),
        ("byte ^input;".to_owned(), "`input` is a reserved word"),
        ("byte x; channel a, c^[2]; system async;".to_owned(), "`channel {byte} c[2];`"),
        ("byte a[^N]; system async;".to_owned(), "a size is a number"),
        ("byte a[^0]; system async;".to_owned(), "at least one element"),
        ("byte x;^\n".to_owned(), "a model ends with `system async;`"),
        (process("^stat q; init q;"), "did you mean `state`?"),
        (process("state q; ^trans q -> q {};"), "expected `init STATE;`, found `trans`"),
        (process("state q; init ^w;"), "there is no state `w` in `P`; its states are: q"),
        (
            process("state q, r; init q; trans q -> r {}; ^assert q: x == 0;"),
            "`assert` must come before `trans`",
        ),
        (
            process("state q, r; init q; trans q -> r {}; ^r -> q {};"),
            "transitions are separated by `,`",
        ),
        (
            process("state q, r; init q; trans q -> r {} ^r -> q {};"),
            "expected `,` or `;` after a transition",
        ),
        (
            "process P { state q, r; init q; trans q -> r {} ^}".to_owned(),
            "the last transition ends with `;`",
        ),
        ("process P { state q; init q; trans q -> q {}, ^}".to_owned(), "not with `,`"),
        (process("state q, ready; init q; trans q -> ^raedy {};"), "did you mean `ready`?"),
        (transition("^gaurd x == 1;"), "did you mean `guard`?"),
        (transition("guard x ^= 1;"), "`==` compares"),
        (transition("effect x = 1; ^y = 2;"), "assignments are separated by `,`"),
        (transition("effect x = 1; ^guard y == 2;"), "the order is `guard`, `sync`, `effect`"),
        (transition("effect x ^== 1;"), "`=` assigns, `==` compares"),
        (transition("effect x ^+= 1;"), "write `x = x + 1`"),
        (transition("effect x = 1 + ^;"), "expected a value, found `;`"),
        (transition("effect ^P.r = 1;"), "a process changes its state by a transition"),
        (transition("guard []^ x;"), "--ltl"),
        (transition("guard ^z == 1;"), "there is no variable `z`; the variables are: x, y"),
        (transition("guard ^q;"), "of the state write `P.q`"),
        (transition("sync ^c!;"), "there is no channel `c`"),
        (transition("guard x == 1 ^}"), "expected `;`, found `}`"),
    ];
    for (text, wanted) in mistakes {
        let text = text.replace("guard []^ x", "guard ^[] x");
        let (text, line, column) = marked(&text);
        let errors = Model::parse_or_errors(&text).expect_err(&text);
        let [error] = &errors[..] else { panic!("one mistake, several errors: {errors:#?}") };
        assert!(error.message.contains(wanted), "{wanted}:\n{error}");
        assert_eq!((error.line, error.column), (line, column), "{error}");
        assert!(error.message.len() < 140 && !error.message.contains('\n'), "{error}");
    }
}

#[test]
fn names_close_to_a_declared_one_are_suggested() {
    let text = "channel request; byte counter;
        process Left { byte own; state idle; init idle; }
        process P { state q; init q; trans q -> q { INSIDE }; } system async;";
    for (inside, wanted) in [
        ("guard Counter == 1;", "did you mean `counter`?"),
        ("guard Left.ilde;", "did you mean `idle`?"),
        ("guard Lef.idle;", "did you mean `Left`?"),
        ("guard Left->onw == 0;", "did you mean `own`?"),
        ("guard own == 0;", "write `Left->own`"),
        ("guard Left == 0;", "write `Left.STATE`"),
        ("sync reqest!;", "did you mean `request`?"),
    ] {
        let error = Model::parse(&text.replace("INSIDE", inside)).expect_err(inside);
        assert!(error.message.contains(wanted), "{error}");
    }
}

/// Line and message of each error.
fn errors(text: &str) -> Vec<(u32, String)> {
    let errors = Model::parse_or_errors(text).expect_err(text);
    errors.into_iter().map(|error| (error.line, error.message)).collect()
}

/// The model's errors are in these lines and say this, and there are no others.
fn expect_errors(text: &str, wanted: &[(u32, &str)]) {
    let found = errors(text);
    let is_same = |((line, message), (wanted_line, words)): (&(u32, String), &(u32, &str))| {
        line == wanted_line && message.contains(words)
    };
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    assert!(found.iter().zip(wanted).all(is_same), "{found:#?}");
}

#[test]
fn independent_errors_of_names_and_types_are_reported_in_one_run() {
    let text = "byte x = 300;
const int N = M;
byte y = 1 / N, x;
channel {byte} c[2];
process P { byte own[2]; state q, r, q; init s;
commit t;
assert q: z == 1;
trans
q -> r { guard z == 1 and w == 2; sync c!x, x; effect N = 1; },
q -> u { guard z == 1; sync d!; effect x[0] = 1, y = own[v]; };
}
system async property Q;
";
    let text = text.replace("sync c!x, x;", "sync c!{x, x};");
    expect_errors(
        &text,
        &[
            (1, "`x` cannot hold 300"),
            (2, "no variable `M`"),
            (3, "`x` is declared twice"),
            (5, "`q` is declared twice"),
            (5, "no state `s`"),
            (6, "no state `t`"),
            (7, "no variable `z`"),
            (9, "no variable `w`"),
            (9, "`c` carries 1 value at a time, 2 given"),
            (9, "`N` is a constant"),
            (10, "no state `u`"),
            (10, "no channel `d`"),
            (10, "`x` is not an array"),
            (10, "no variable `v`"),
            (12, "no process `Q`"),
        ],
    );
}

#[test]
fn syntax_errors_are_reported_together_without_follow_up_errors() {
    let text = "byte x, ;
bool y;
process P { byte 1; byte z;
state q, r; init q;
trans q -> r { guard x = 1; effect x = 1; },
q -> r { sync c!{x y}; effect z = P->z; },
-> q { effect x += 1; },
r -> q { guard x == 1 };
}
process Q { stat q; init q; trans q -> q { guard ; }; }
process R { state q; init q; trans q -> q { effect x = ; }; }
system sync;
";
    expect_errors(
        text,
        &[
            (1, "expected a name, found `;`"),
            (2, "the types are"),
            (3, "expected a name, found `1`"),
            (5, "`==` compares"),
            (6, "expected `}`, found `y`"),
            (7, "write `x = x + 1`"),
            (8, "expected `;`, found `}`"),
            (10, "did you mean `state`?"),
            (11, "expected a value, found `;`"),
            (12, "`system sync` is not supported"),
        ],
    );
    // Where it is not certain what goes on, nothing more is said of the process.
    expect_errors(
        "process P { state q, r; init q; trans q -> r {}; r -> q { guard ; }; }\nsystem async;",
        &[(1, "transitions are separated by `,`")],
    );
    expect_errors("process P { state q; init q; trans q -> q { guard ;", &[(1, "a value")]);
}

#[test]
fn at_most_twenty_errors_are_reported_and_many_cost_little() {
    let declarations: String = (0..1000).map(|at| format!("byte v{at} = w{at};\n")).collect();
    assert_eq!(errors(&format!("{declarations}system async;")).len(), 20);
    let syntax = "byte ;\n".repeat(1000);
    assert_eq!(errors(&format!("{syntax}system async;")).len(), 20);
    // One undeclared name, in a model of a megabyte.
    let sum = "z + ".repeat(1 << 18);
    let text = format!("byte x = {sum}1;\nsystem async;");
    expect_errors(&text, &[(1, "there is no variable `z`")]);
}

#[test]
fn no_change_to_a_model_makes_errors_without_order_or_end() {
    let text = "const byte N = 2; byte x = N, a[3]; channel {byte, int} c[2]; channel d;
process P { int y; state q, r; init q; commit r; assert q: x < 2;
trans q -> r { guard x == a[N] and Q.s; sync d!x; effect x = x + 1, a[1] = y; },
-> q { sync c?{x, y}; }; }
process Q { state s; init s; accept s; trans s -> s { sync d?a[0]; }, s -> s { sync c!{1, 2}; }; }
system async;";
    assert!(Model::parse_or_errors(text).is_ok());
    let words: Vec<&str> = text.split_inclusive([' ', ';', '\n']).collect();
    bolero::check!().with_type::<Vec<(u16, u16)>>().for_each(|swaps| {
        let mut words = words.clone();
        for (one, other) in swaps {
            let (one, other) = (usize::from(*one) % words.len(), usize::from(*other) % words.len());
            words.swap(one, other);
        }
        let text = words.concat();
        let Err(errors) = Model::parse_or_errors(&text) else { return };
        assert!((1..=20).contains(&errors.len()), "{text}\n{errors:#?}");
        let places: Vec<_> = errors.iter().map(|error| (error.line, error.column)).collect();
        assert!(places.is_sorted(), "{text}\n{errors:#?}");
        assert_eq!(Model::parse(&text).expect_err("as before"), errors[0]);
    });
}
