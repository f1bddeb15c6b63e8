//! Automata against the definition of the logic, on infinite words that repeat.

use std::collections::{BTreeMap, HashSet};

use dve::ltl::{Automaton, Definition, Formula, LtlFile, Temporal, product, with_property};
use stats::Random;

/// A word `prefix cycle cycle …` over sets of the propositions a, b, c (bits).
struct Word {
    letters: Vec<u8>,
    /// Where the cycle begins.
    turn: usize,
}

impl Word {
    fn random(random: &mut Random) -> Self {
        let length = 1 + random.below(6) as usize;
        let letters = (0..length).map(|_| random.below(8) as u8).collect();
        Self { letters, turn: random.below(length as u64) as usize }
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.letters.len() { self.turn } else { place + 1 }
    }

    fn has(&self, place: usize, atom: &str) -> bool {
        self.letters[place] >> (atom.as_bytes()[0] - b'a') & 1 == 1
    }

    /// Where a formula holds, by its definition: fixpoints over the places of the word.
    fn holds(&self, formula: &Temporal) -> Vec<bool> {
        let places = self.letters.len();
        match formula {
            Temporal::True => vec![true; places],
            Temporal::False => vec![false; places],
            Temporal::Atom(name, wanted) => {
                (0..places).map(|place| self.has(place, name) == *wanted).collect()
            }
            Temporal::And(a, b) => zip(&self.holds(a), &self.holds(b), |a, b| a && b),
            Temporal::Or(a, b) => zip(&self.holds(a), &self.holds(b), |a, b| a || b),
            Temporal::Next(a) => {
                let inner = self.holds(a);
                (0..places).map(|place| inner[self.after(place)]).collect()
            }
            Temporal::Until(a, b) => {
                self.fixpoint(false, &self.holds(a), &self.holds(b), |a, b, n| b || a && n)
            }
            Temporal::Release(a, b) => {
                self.fixpoint(true, &self.holds(a), &self.holds(b), |a, b, n| b && (a || n))
            }
        }
    }

    fn fixpoint(
        &self,
        begin: bool,
        a: &[bool],
        b: &[bool],
        rule: fn(bool, bool, bool) -> bool,
    ) -> Vec<bool> {
        let mut now = vec![begin; self.letters.len()];
        loop {
            let next: Vec<bool> = (0..now.len())
                .map(|place| rule(a[place], b[place], now[self.after(place)]))
                .collect();
            if next == now {
                return now;
            }
            now = next;
        }
    }

    /// Whether an automaton accepts the word: an accepting state on a cycle of their product.
    fn is_accepted(&self, automaton: &Automaton) -> bool {
        let next = |(state, place): (usize, usize)| -> Vec<(usize, usize)> {
            let fits = |edge: &&dve::ltl::Edge| {
                edge.literals.iter().all(|(atom, wanted)| self.has(place, atom) == *wanted)
            };
            let edges = automaton.edges(state).iter().filter(fits);
            edges.map(|edge| (edge.to, self.after(place))).collect()
        };
        let reach = |from: Vec<(usize, usize)>| {
            let mut seen: HashSet<(usize, usize)> = HashSet::new();
            let mut stack = from;
            while let Some(at) = stack.pop() {
                if seen.insert(at) {
                    stack.extend(next(at));
                }
            }
            seen
        };
        let on_cycle = |at: &(usize, usize)| reach(next(*at)).contains(at);
        reach(vec![(0, 0)]).iter().any(|at| automaton.is_accepting(at.0) && on_cycle(at))
    }
}

fn zip(a: &[bool], b: &[bool], rule: fn(bool, bool) -> bool) -> Vec<bool> {
    a.iter().zip(b).map(|(&a, &b)| rule(a, b)).collect()
}

fn random_formula(random: &mut Random, depth: u32) -> String {
    let atom = ["a", "b", "c", "true", "!a"][random.below(5) as usize].to_owned();
    if depth == 0 {
        return atom;
    }
    let mut inner = || random_formula(random, depth - 1);
    let (one, other) = (inner(), inner());
    match random.below(10) {
        0 => atom,
        1 => format!("!({one})"),
        2 => format!("X ({one})"),
        3 => format!("F ({one})"),
        4 => format!("G ({one})"),
        5 => format!("({one}) U ({other})"),
        6 => format!("({one}) R ({other})"),
        7 => format!("({one}) W ({other})"),
        8 => format!("({one}) && ({other})"),
        _ => format!("({one}) -> ({other})"),
    }
}

#[test]
fn automata_accept_exactly_the_words_their_formula_holds_on() {
    let mut random = Random::from_seed(2);
    let (mut accepted, mut words) = (0, 0);
    for _ in 0..600 {
        let text = random_formula(&mut random, 3);
        let formula = Formula::parse(&text).unwrap();
        let (automaton, complement) = (Automaton::of(&formula), Automaton::of(&formula.negated()));
        for _ in 0..12 {
            let word = Word::random(&mut random);
            let holds = word.holds(formula.root())[0];
            assert_eq!(word.is_accepted(&automaton), holds, "{text} on {:?}", word.letters);
            assert_eq!(word.is_accepted(&complement), !holds, "not {text} on {:?}", word.letters);
            accepted += usize::from(holds);
            words += 1;
        }
    }
    assert!(accepted > words / 5 && accepted < words * 4 / 5, "{accepted} of {words}");
}

#[test]
fn well_known_automata_are_small() {
    for (formula, states) in
        [("G a", 1), ("F a", 2), ("G F a", 2), ("F G a", 2), ("a U b", 2), ("G (a -> F b)", 2)]
    {
        let automaton = Automaton::of(&Formula::parse(formula).unwrap());
        assert!(automaton.states_count() <= states, "{formula}: {}", automaton.states_count());
    }
}

#[test]
fn binary_operators_group_from_the_left_and_say_so() {
    let same = |a: &str, b: &str| {
        let (a, b) = (Formula::parse(a).unwrap(), Formula::parse(b).unwrap());
        assert_eq!(a.root(), b.root());
        a.warnings().len()
    };
    assert_eq!(same("a && b U c", "(a && b) U c"), 1);
    assert_eq!(same("a -> b -> c", "(a -> b) -> c"), 1);
    assert_eq!(same("a && b && c", "(a && b) && c"), 0);
    assert_eq!(same("a U b && c", "(a U b) && c"), 0);
    assert_eq!(same("[] <> a", "G F a"), 0);
    assert_eq!(same("a W b", "b R (a || b)"), 0);
}

#[test]
fn what_is_wrong_with_an_expression_is_shown_in_the_formula() {
    let wrong = |text: &str| Formula::parse(text).expect_err(text).to_string();
    let shown = "1:14: expected a value, found the end of the expression\n    F {y} U {x ==} U {z}\n                 ^";
    assert_eq!(wrong("F {y} U {x ==} U {z}"), shown);
    assert!(wrong("G {x == 1) or (x == 2}").starts_with("1:10: expected an operator, found `)`"));
    let error = LtlFile::parse("#define p x = 1\n#property G p\n").expect_err("no comparison");
    assert_eq!((error.line, error.column), (1, 13));
    // What no formula says may be anything.
    assert!(LtlFile::parse("#define p x = 1\n#define q x\n#property G q\n").is_ok());
}

#[test]
fn spin_operators_are_aliases() {
    let ways = [
        ("[] (p -> <> q)", "G (p -> F q)"),
        ("always (p implies eventually q)", "G (p -> F q)"),
        ("not p until q", "(!p) U q"),
        ("(p and q) or r", "(p && q) || r"),
        ("p /\\ (q \\/ r)", "p && (q || r)"),
        ("p weakuntil q", "p W q"),
        ("p V q", "p R q"),
        ("next p equivalent q", "X p <-> q"),
        // In the place of a proposition such a word is one.
        ("always && p", "(always) && p"),
    ];
    for (spin, ours) in ways {
        let parsed =
            [spin, ours].map(|text| Formula::parse(text).unwrap_or_else(|error| panic!("{error}")));
        assert_eq!(parsed[0].root(), parsed[1].root(), "{spin}");
    }
}

/// A mistake, the column of its caret, and what the message must say.
#[test]
fn mistakes_in_formulas_are_answered_by_what_to_write() {
    let mistakes = [
        ("G P.critical", 3, "expressions of the model stand in braces: {P.critical}"),
        ("[] !(x == 1 && y)", 6, "{x == 1}"),
        ("F a[1] > 0", 3, "{a[1] > 0}"),
        ("G (p => q)", 6, "implication is `->`"),
        ("p & q", 3, "write `&&`"),
        ("G p)", 4, "closes no parenthesis"),
        ("G (p", 5, "expected `)`"),
        ("G", 2, "expected a proposition, found the end"),
        ("G {x = 1}", 6, "`==` compares"),
        ("F {x == 1", 4, "expected `}`"),
        ("p q", 3, "expected an operator or the end of the formula, found `q`"),
    ];
    for (text, column, wanted) in mistakes {
        let error = Formula::parse(text).expect_err(text);
        assert!(error.message.contains(wanted), "{error}");
        assert_eq!((error.line, error.column), (1, column), "{error}");
    }
    for text in ["G p", "x==1 U y=2", "GFp->q", "F<>p", "G[]p", "p<->q"] {
        assert!(Formula::parse(text).is_ok(), "{text}");
    }
}

#[test]
fn a_proposition_that_does_not_fit_the_model_is_shown_where_it_was_written() {
    let text = "byte count;\nprocess P { byte own; state q, r; init q; trans q -> r {}; }\nsystem async;\n";
    let model = dve::Model::parse(text).expect("a model");
    let none = BTreeMap::new();
    let inline = [
        ("G F {P.w}", (1, 8), "its states are: q, r"),
        ("G {count == 1} && F {coutn > 0}", (1, 22), "did you mean `count`?"),
        ("F {Q.r}", (1, 4), "the processes are: P"),
        ("G {own == 0}", (1, 4), "write `P->own`"),
        ("F {r}", (1, 4), "write `P.r`"),
        ("G p", (1, 3), "{p}"),
        ("F { 1 + P->onw}", (1, 12), "did you mean `own`?"),
    ];
    for (formula, place, wanted) in inline {
        let formula = Formula::parse(formula).expect("a formula");
        let error = product(&model, &formula, &none).expect_err("it does not fit");
        assert!(error.message.contains(wanted), "{error}");
        assert_eq!((error.line, error.column), place, "{error}");
    }
    let file = LtlFile::parse(
        "text\n#define a P.q\n#define b  P.x\n#property G a\n#property F (a && b)\n#property G c\n",
    );
    let file = file.expect("a file");
    assert!(product(&model, &file.formulas[0], &file.definitions).is_ok());
    let wrong = |number: usize| {
        let error = product(&model, &file.formulas[number], &file.definitions).expect_err("wrong");
        (error.line, error.column, error.text)
    };
    assert_eq!(wrong(1), (3, 14, "#define b  P.x".to_owned()));
    assert_eq!(wrong(2), (6, 13, "#property G c".to_owned()));
}

/// Whatever is shown of a run cites lines of the file: the property made of a formula has none.
#[test]
fn a_run_of_a_product_shows_the_model_alone() {
    let text = "byte x;\nprocess P { state q, r; init q; trans q -> r {}; }\nsystem async;\n";
    let model = dve::Model::parse(text).expect("a model");
    let formula = Formula::parse("F {x == 1}").expect("a formula");
    let product = product(&model, &formula, &BTreeMap::new()).expect("a product");
    let mut shown = product.show_state(product.initial());
    dve::Steps::new(&product).each(product.initial(), |step, next| {
        shown += &format!("; {}; {}", product.show_step(&step), product.show_state(next));
    });
    assert_eq!(shown, "P.q x=0; P: q -> r (line 2); P.r x=0");
}

#[test]
fn formulas_become_property_processes() {
    let model = "byte x;\nprocess P { state q, r; init q; trans q -> r { effect x = 1; }, r -> q { effect x = 0; }; }\nsystem async;\n";
    let file =
        LtlFile::parse("responds\n#define on x == 1\n#property G F on\n#property G !on\n").unwrap();
    let parsed = |formula: &Formula, names: &BTreeMap<String, Definition>| {
        dve::Model::parse(&with_property(model, formula, names).unwrap()).unwrap()
    };
    assert!(parsed(&file.formulas[0], &file.definitions).has_property());
    let inline = Formula::parse("G F {x == 1}").unwrap();
    assert!(parsed(&inline, &BTreeMap::new()).has_property());
    let commented = format!("{model}// a system without a property\n");
    let product = with_property(&commented, &inline, &BTreeMap::new()).unwrap();
    assert!(dve::Model::parse(&product).unwrap().has_property());
    let unknown = with_property(model, &file.formulas[0], &BTreeMap::new()).unwrap_err();
    assert!(unknown.message.contains("`on`"), "{unknown}");
    let error = LtlFile::parse("text\n#property G (a\n").unwrap_err();
    assert_eq!(error.line, 2);
}

#[test]
fn any_text_is_a_formula_or_an_error() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let alphabet = b"abXFGUWR!&|()<>-[]{} =*^";
        let shaped: String = bytes
            .iter()
            .map(|byte| alphabet[usize::from(*byte) % alphabet.len()] as char)
            .collect();
        for text in [shaped, String::from_utf8_lossy(bytes).into_owned()] {
            if let Err(error) = Formula::parse(&text) {
                assert!(error.to_string().ends_with('^'));
            }
        }
    });
}
