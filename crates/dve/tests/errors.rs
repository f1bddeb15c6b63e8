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
        let error = Model::parse(&text).expect_err(&text);
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
