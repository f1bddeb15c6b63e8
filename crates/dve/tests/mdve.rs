//! Models with parameters, expanded as m4 would.

use dve::{Model, expand_parameters};

fn expand(text: &str, values: &[(&str, &str)]) -> String {
    let values: Vec<(String, String)> =
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    expand_parameters(text, &values).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn macros_are_replaced_as_m4_does() {
    let cases = [
        ("define(a, b)a ab a_b", "b ab a_b"),
        ("define(`f', `<$1|$2|$#|`$0'>')f(x, y) f(x) f", "<x|y|2|f> <x||1|f> <||0|f>"),
        ("define(a, `b')define(b, c)a `a' ``a''", "c a `a'"),
        ("default(N, 3)N default(N, 4)N", "3 3"),
        ("eval(2 + 3 * 4 - (1 << 2)) eval(-7 / 2) eval(1 == 1 && 2 > 3 || !0)", "10 -3 1"),
        ("ifelse(1, 2, no, 1, 1, yes, else) ifelse(a, b, c) ifdef(`N', y, n)", "yes  n"),
        ("forloop(i, 0, 2, `i,')forloop(i, 1, 0, `x')", "0,1,2,"),
        ("forloop(i,1,2,`forloop(j,1,i,`(i.j)')')", "(1.1)(2.1)(2.2)"),
        ("myloop(i, 0, 2, `p[i] == 0', ` and ')", "p[0] == 0 and p[1] == 0 and p[2] == 0"),
        ("define(N, 2)forallx(`P_`'x ')", "P_0 P_1 "),
        ("bool b = true; // true `\nbool", "byte b = 1; // true `\nbyte"),
        ("a dnl gone\nb incr(4) decr(4) undefine(`q')$1", "a b 5 3 $1"),
        ("define(f, `$@;$*')f(`a', `b')", "a,b;a,b"),
    ];
    for (text, wanted) in cases {
        assert_eq!(expand(text, &[]), wanted, "{text}");
    }
    assert_eq!(expand("default(N, 3)N", &[("N", "7")]), "7");
}

const RING: &str = "default(N, 2)
byte token = 0;
define(station, `process S_$1 {
  state idle, has;
  init idle;
  trans
    idle -> has { guard token == $1; },
    has -> idle { effect token = eval(($1 + 1) % N); };
}
')
forloop(i, 0, N - 1, `station(i)')
system async;
";

#[test]
fn a_model_takes_its_parameters() {
    for count in ["1", "2", "5"] {
        let model = Model::parse(&expand(RING, &[("N", count)])).unwrap();
        assert_eq!(model.state_bytes(), 1 + count.parse::<usize>().unwrap());
    }
}

#[test]
fn errors_have_a_place() {
    let cases = [
        ("a\n  define(b, c", "2:9: these arguments are not closed"),
        ("x `y", "1:3: this quotation is not closed"),
        ("\neval(1 +)", "2:1: `1 +` is not a number"),
        ("eval(1 / 0)", "1:1: `1 / 0` is not a number"),
        ("define(a, a)a", "1:13: the macros expand without end"),
        ("define(a, `a a')a", "1:17: the macros expand without end"),
        ("include(/etc/passwd)", "1:1: the macro `include` is not supported"),
        ("forloop(i, 0, 99999999, x)", "1:1: this loop is too long"),
    ];
    for (text, wanted) in cases {
        let error = expand_parameters(text, &[]).expect_err(text).to_string();
        assert!(error.starts_with(wanted), "{text}: {error}");
    }
}

#[test]
fn any_text_expands_or_is_refused() {
    bolero::check!().with_max_len(200).for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let text = text.replace('#', "define(").replace('%', "forloop(i,0,3,").replace('@', "`i'");
        expand_parameters(&text, &[("N".to_owned(), "2".to_owned())]).ok();
    });
}
