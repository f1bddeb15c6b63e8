//! The grammar in `docs/dve.md` and the parser accept the same texts; the examples use all of it.

use std::collections::{BTreeSet, HashMap};

use stats::Random;

use super::{KEYWORDS, parse};
use crate::lexer::{Token, words};

const REFERENCE: &str = include_str!("../../../../docs/dve.md");

/// An expression of the grammar's notation.
#[derive(Debug, Clone)]
enum Production {
    Terminal(String),
    Rule(String),
    Sequence(Vec<Self>),
    Choice(Vec<Self>),
    Optional(Box<Self>),
    Repeated(Box<Self>),
    /// Nothing matches it: what is left of a production that was taken out.
    Nothing,
}

use Production::{Choice, Nothing, Optional, Repeated, Rule, Sequence, Terminal};

/// Rules by name. `name` and `number` are lexical and have none.
type Grammar = HashMap<String, Production>;

/// The grammar of the reference.
fn grammar() -> Grammar {
    let text = REFERENCE.split("```ebnf\n").nth(1).and_then(|rest| rest.split("```").next());
    let mut tokens = Notation { rest: text.expect("a grammar"), found: Vec::new() }.all();
    tokens.reverse();
    let mut grammar = Grammar::new();
    while let Some(name) = tokens.pop() {
        assert_eq!(tokens.pop().as_deref(), Some("="), "after {name}");
        let production = choice(&mut tokens);
        assert!(grammar.insert(name.clone(), production).is_none(), "{name} twice");
    }
    grammar
}

/// Words of the notation: names, signs, and terminals with their quotes.
struct Notation<'s> {
    rest: &'s str,
    found: Vec<String>,
}

impl Notation<'_> {
    fn all(mut self) -> Vec<String> {
        loop {
            self.rest = self.rest.trim_start();
            let Some(first) = self.rest.chars().next() else { return self.found };
            let end = match first {
                '"' => 2 + self.rest[1..].find('"').expect("a closed terminal"),
                letter if letter.is_ascii_alphabetic() => {
                    self.rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.rest.len())
                }
                _ => first.len_utf8(),
            };
            self.found.push(self.rest[..end].to_owned());
            self.rest = &self.rest[end..];
        }
    }
}

fn choice(tokens: &mut Vec<String>) -> Production {
    let mut ways = vec![sequence(tokens)];
    while tokens.last().is_some_and(|token| token == "|") {
        tokens.pop();
        ways.push(sequence(tokens));
    }
    if ways.len() == 1 { ways.swap_remove(0) } else { Choice(ways) }
}

fn sequence(tokens: &mut Vec<String>) -> Production {
    let mut parts = Vec::new();
    while let Some(token) = tokens.last() {
        // A rule ends where the next one begins.
        let is_next_rule = tokens.len() > 1 && tokens[tokens.len() - 2] == "=";
        if is_next_rule || matches!(token.as_str(), "|" | ")" | "]" | "}") {
            break;
        }
        let token = tokens.pop().expect("looked at");
        let mut inside = |close: &str| {
            let inner = choice(tokens);
            assert_eq!(tokens.pop().as_deref(), Some(close));
            inner
        };
        parts.push(match token.as_str() {
            "(" => inside(")"),
            "[" => Optional(Box::new(inside("]"))),
            "{" => Repeated(Box::new(inside("}"))),
            word => match word.strip_prefix('"').and_then(|word| word.strip_suffix('"')) {
                Some(terminal) => Terminal(terminal.to_owned()),
                None => Rule(token),
            },
        });
    }
    Sequence(parts)
}

/// Recognises texts by a grammar alone, without the parser.
struct Recogniser<'g> {
    grammar: &'g Grammar,
    words: Vec<Token<'g>>,
    /// Where a rule that begins at a place can end.
    known: HashMap<(&'g str, usize), BTreeSet<usize>>,
}

impl<'g> Recogniser<'g> {
    fn accepts(grammar: &'g Grammar, text: &'g str) -> bool {
        let Ok(words) = words(text) else { return false };
        let words: Vec<_> = words.into_iter().map(|word| word.token).collect();
        let end = words.len() - 1;
        let mut one = Recogniser { grammar, words, known: HashMap::new() };
        one.rule("model", 0).contains(&end)
    }

    fn rule(&mut self, name: &'g str, at: usize) -> BTreeSet<usize> {
        let is = match (name, self.words[at]) {
            ("name", Token::Word(word)) => Some(!KEYWORDS.contains(&word)),
            ("number", Token::Number(_)) => Some(true),
            ("name" | "number", _) => Some(false),
            _ => None,
        };
        if let Some(is) = is {
            return is.then_some(at + 1).into_iter().collect();
        }
        if let Some(known) = self.known.get(&(name, at)) {
            return known.clone();
        }
        let production = self.grammar.get(name).unwrap_or_else(|| panic!("no rule {name}"));
        let ends = self.ends(production, at);
        self.known.insert((name, at), ends.clone());
        ends
    }

    fn ends(&mut self, production: &'g Production, at: usize) -> BTreeSet<usize> {
        match production {
            Nothing => BTreeSet::new(),
            Terminal(word) => {
                let is = match self.words[at] {
                    Token::Word(found) => found == word,
                    Token::Mark(found) => found == word,
                    Token::Number(_) | Token::End => false,
                };
                is.then_some(at + 1).into_iter().collect()
            }
            Rule(name) => self.rule(name, at),
            Sequence(parts) => {
                let mut ends = BTreeSet::from([at]);
                for part in parts {
                    ends = ends.into_iter().flat_map(|at| self.ends(part, at)).collect();
                }
                ends
            }
            Choice(ways) => ways.iter().flat_map(|way| self.ends(way, at)).collect(),
            Optional(inner) => {
                let mut ends = self.ends(inner, at);
                ends.insert(at);
                ends
            }
            Repeated(inner) => {
                let mut ends = BTreeSet::from([at]);
                let mut fresh = vec![at];
                while let Some(at) = fresh.pop() {
                    for end in self.ends(inner, at) {
                        if ends.insert(end) {
                            fresh.push(end);
                        }
                    }
                }
                ends
            }
        }
    }
}

/// Makes texts by a grammar.
struct Generator<'g> {
    grammar: &'g Grammar,
    /// How many rules deep the shallowest text of a rule is.
    heights: HashMap<&'g str, usize>,
    random: Random,
    words: Vec<String>,
}

impl<'g> Generator<'g> {
    fn new(grammar: &'g Grammar, seed: u64) -> Self {
        let mut heights = HashMap::from([("name", 0), ("number", 0)]);
        for _ in 0..grammar.len() {
            for (name, production) in grammar {
                if let Some(height) = height(&heights, production) {
                    heights.insert(name, height + 1);
                }
            }
        }
        Self { grammar, heights, random: Random::from_seed(seed), words: Vec::new() }
    }

    fn text(&mut self) -> Vec<String> {
        self.words.clear();
        self.add(&self.grammar["model"]);
        std::mem::take(&mut self.words)
    }

    fn add(&mut self, production: &'g Production) {
        // Long texts come to an end: nothing optional any more.
        let is_long = self.words.len() > 60;
        match production {
            Nothing => unreachable!("the grammar is whole"),
            Terminal(word) => self.words.push(word.clone()),
            Rule(name) if name == "name" => {
                let names = ["a", "b", "state_1", "P", "x$", "_y#"];
                let name = names[self.random.below(names.len() as u64) as usize];
                self.words.push(name.to_owned());
            }
            Rule(name) if name == "number" => {
                self.words.push((1 + self.random.below(9)).to_string());
            }
            Rule(name) => self.add(&self.grammar[name]),
            Sequence(parts) => parts.iter().for_each(|part| self.add(part)),
            Choice(ways) => {
                let way = if is_long {
                    let height = |way: &&Production| height(&self.heights, way);
                    ways.iter().min_by_key(height).expect("a way")
                } else {
                    &ways[self.random.below(ways.len() as u64) as usize]
                };
                self.add(way);
            }
            Optional(inner) => {
                if !is_long && self.random.below(2) == 0 {
                    self.add(inner);
                }
            }
            Repeated(inner) => {
                while self.words.len() <= 60 && self.random.below(2) == 0 {
                    self.add(inner);
                }
            }
        }
    }
}

fn height(known: &HashMap<&str, usize>, production: &Production) -> Option<usize> {
    match production {
        Terminal(_) | Optional(_) | Repeated(_) => Some(0),
        Nothing => None,
        Rule(name) => known.get(name.as_str()).copied(),
        Sequence(parts) => {
            let heights: Option<Vec<usize>> =
                parts.iter().map(|part| height(known, part)).collect();
            heights.map(|heights| heights.into_iter().max().unwrap_or(0))
        }
        Choice(ways) => ways.iter().filter_map(|way| height(known, way)).min(),
    }
}

#[test]
fn every_text_of_the_grammar_is_parsed() {
    let grammar = grammar();
    let mut generator = Generator::new(&grammar, 1);
    for _ in 0..2000 {
        let text = generator.text().join(" ");
        assert!(Recogniser::accepts(&grammar, &text), "the test's own parts agree: {text}");
        if let Err(error) = parse(&text) {
            panic!("{error:#?}\n{text}");
        }
    }
}

#[test]
fn texts_beside_the_grammar_are_rejected() {
    let grammar = grammar();
    let mut generator = Generator::new(&grammar, 2);
    let mut random = Random::from_seed(3);
    let mut rejected = 0;
    for _ in 0..4000 {
        let mut words = generator.text();
        let other = generator.text();
        let place = random.below(words.len() as u64) as usize;
        match random.below(4) {
            0 => drop(words.remove(place)),
            1 => words.insert(place, other[place % other.len()].clone()),
            2 => words[place].clone_from(&other[random.below(other.len() as u64) as usize]),
            _ => {
                let next = (place + 1) % words.len();
                words.swap(place, next);
            }
        }
        let text = words.join(" ");
        let (ours, theirs) = (parse(&text).is_ok(), Recogniser::accepts(&grammar, &text));
        assert_eq!(ours, theirs, "parser: {ours}, grammar: {theirs}: {text}");
        rejected += usize::from(!ours);
    }
    assert!(rejected > 1000, "{rejected}");
}

/// The grammar without one of its parts, and that part, for each part that can be taken out.
fn with_one_part_less(grammar: &Grammar) -> Vec<(String, Grammar)> {
    fn reduced(production: &Production, to: &mut Vec<(String, Production)>) {
        let around = |inner: &Production, wrap: &dyn Fn(Production) -> Production| {
            let mut found = Vec::new();
            reduced(inner, &mut found);
            found.into_iter().map(|(what, inner)| (what, wrap(inner))).collect::<Vec<_>>()
        };
        match production {
            Nothing | Terminal(_) | Rule(_) => {}
            Sequence(parts) | Choice(parts) => {
                let is_choice = matches!(production, Choice(_));
                for (place, part) in parts.iter().enumerate() {
                    let replaced = |with: Production| {
                        let mut parts = parts.clone();
                        parts[place] = with;
                        if is_choice { Choice(parts) } else { Sequence(parts) }
                    };
                    to.extend(around(part, &replaced));
                    if is_choice {
                        to.push((format!("{part:?}"), replaced(Nothing)));
                    }
                }
            }
            Optional(inner) => {
                to.extend(around(inner, &|inner| Optional(Box::new(inner))));
                to.push((format!("{inner:?}"), Sequence(Vec::new())));
            }
            Repeated(inner) => {
                to.extend(around(inner, &|inner| Repeated(Box::new(inner))));
                to.push((format!("{inner:?}"), Sequence(Vec::new())));
            }
        }
    }
    let mut all = Vec::new();
    for (name, production) in grammar {
        let mut found = Vec::new();
        reduced(production, &mut found);
        for (what, production) in found {
            let mut smaller = grammar.clone();
            smaller.insert(name.clone(), production);
            all.push((format!("{name}: {what}"), smaller));
        }
    }
    all
}

#[test]
fn every_production_is_used_by_an_example() {
    let in_reference =
        REFERENCE.split("```dve\n").skip(1).filter_map(|rest| rest.split("```").next());
    let shipped = crate::EXAMPLES.iter().filter(|example| !example.has_parameters);
    let models: Vec<&str> = in_reference.chain(shipped.map(|example| example.text)).collect();
    let grammar = grammar();
    for model in &models {
        assert!(Recogniser::accepts(&grammar, model), "{model}");
    }
    let parts = with_one_part_less(&grammar);
    assert!(parts.len() > 60, "{}", parts.len());
    for (what, smaller) in parts {
        let is_used = models.iter().any(|model| !Recogniser::accepts(&smaller, model));
        assert!(is_used, "no example uses {what}");
    }
}
