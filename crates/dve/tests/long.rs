//! Long rows of operators and deep nesting: a row's length is bounded by the model's text alone, depth
//! by a limit with a line of its own, and neither by the stack.

use std::fmt::Write;
use std::thread;

use dve::{Model, Steps};

/// Half of what a thread of a Rust program has.
const SMALL_STACK_BYTES: usize = 1 << 20;

/// On a small stack: what recurs with the length of a row ends the test.
fn on_a_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::Builder::new().stack_size(SMALL_STACK_BYTES).spawn(work);
    thread.expect("a thread").join().expect("the stack is enough")
}

fn model(expression: &str) -> String {
    format!(
        "byte a[4] = {{1, 2, 3, 4}}, x; process P {{ state q, r; init q;
         trans q -> r {{ guard {expression}; effect x = 7; }}; }} system async;"
    )
}

/// Whether the guard lets the only step through.
fn holds(expression: &str) -> bool {
    let model = Model::parse(&model(expression)).unwrap_or_else(|error| panic!("{error}"));
    Steps::new(&model).each(model.initial(), |step, _| assert_eq!(step.fault, None)) == 1
}

/// `of` 0, of 1, ... joined by an operator.
fn row(count: usize, operator: &str, of: impl Fn(usize) -> String) -> String {
    (0..count).map(of).collect::<Vec<_>>().join(operator)
}

#[test]
fn a_row_of_a_hundred_thousand_operands_means_what_a_short_one_means() {
    let long = 100_000;
    on_a_small_stack(move || {
        assert!(holds(&row(long, " and ", |n| format!("a[{}] == {}", n % 4, n % 4 + 1))));
        assert!(!holds(&row(long, " and ", |n| format!("a[0] == {}", 1 + n / (long - 1)))));
        assert!(holds(&row(long, " or ", |n| format!("a[0] == {}", 2 - n / (long - 1)))));
        assert!(holds(&format!("{} == {long}", row(long, " + ", |_| "a[0]".to_owned()))));
        assert!(holds(&format!("-{} == -{long}", row(long, " - ", |_| "a[0]".to_owned()))));
        // Tighter operators within looser ones, at both ends of a row.
        let sums = row(long / 2, " + ", |_| "a[1] * a[2]".to_owned());
        assert!(holds(&format!("{} == {sums}", long / 2 * 6)));
    });
}

#[test]
fn a_long_row_is_also_an_initial_value_an_index_an_effect_and_an_assertion() {
    on_a_small_stack(|| {
        let ones = row(20_000, " + ", |_| "1".to_owned());
        let text = format!(
            "int k = {ones}; byte a[4]; process P {{ state q, r; init q; assert r: {ones} == k;
             trans q -> r {{ effect a[{ones} - 19997] = ({ones}) / 5000; }}; }} system async;"
        );
        let model = Model::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let mut ends = Vec::new();
        Steps::new(&model).each(model.initial(), |_, next| {
            assert!(model.violated_assertions(next).is_empty());
            ends.push(model.show_state(next));
        });
        assert_eq!(ends, ["P.r k=20000 a={0,0,0,4}"]);
    });
}

#[test]
fn an_error_at_the_end_of_a_long_row_is_said_where_it_is() {
    on_a_small_stack(|| {
        let row = row(50_000, " + ", |_| "1".to_owned());
        let error = Model::parse(&format!("int k = {row} +; system async;")).expect_err("wrong");
        assert!(error.message.contains("expected a value, found `;`"), "{error}");
        let error = Model::parse(&model(&format!("{row} + y"))).expect_err("wrong");
        assert!(error.message.contains("there is no variable `y`"), "{error}");
        let error = Model::parse(&format!("int k = {row} / 0; system async;")).expect_err("wrong");
        assert!(error.to_string().starts_with("1:"), "{error}");
    });
}

#[test]
fn nesting_is_refused_in_a_line_however_deep_it_is() {
    on_a_small_stack(|| {
        for depth in [1_000, 1_000_000] {
            let ways = [
                ("(".repeat(depth), ")".repeat(depth)),
                ("not ".repeat(depth), String::new()),
                ("- ".repeat(depth), String::new()),
                ("a[".repeat(depth), "]".repeat(depth)),
                ("1 + (".repeat(depth), ")".repeat(depth)),
            ];
            for (open, close) in ways {
                let error = Model::parse(&model(&format!("{open}x{close}"))).expect_err("deep");
                assert_eq!(error.message, "this expression is nested too deeply");
            }
        }
    });
}

/// The deepest tree there can be: every level of operators on the right of every nesting.
#[test]
fn what_is_nested_as_deeply_as_it_may_be_needs_little_stack() {
    on_a_small_stack(|| {
        let mut text = "1".to_owned();
        let mut depth = 0;
        while let Ok(model) = Model::parse(&model(&text)) {
            let mut steps = Steps::new(&model);
            steps.each(model.initial(), |_, _| {});
            let mut wider = String::new();
            write!(wider, "0 imply 1 and 1 | 1 == 1 < 1 << 1 + 1 * ({text})").expect("text");
            text = wider;
            depth += 1;
        }
        assert!(depth > 150, "{depth} levels");
    });
}

/// What a text of some length makes the parser hold is in proportion to it: twice the text, twice
/// the time and the code, not four times.
#[test]
fn the_work_of_a_row_grows_with_its_length_only() {
    let time = |count: usize| {
        let text = model(&row(count, " + ", |_| "x".to_owned()));
        let mut best = std::time::Duration::MAX;
        for _ in 0..3 {
            let began = std::time::Instant::now();
            Model::parse(&text).unwrap_or_else(|error| panic!("{error}"));
            best = best.min(began.elapsed());
        }
        best
    };
    // A square law would take 256 times as long.
    let (short, long) = (time(4_000), time(64_000));
    assert!(long < short * 100, "{short:?} for 4000 operands, {long:?} for 64 000");
}
