//! Formulas.
//!
//! The grammar is that of `DiVinE`'s `.ltl` files, in which all binary operators have one precedence
//! and associate left: `a && b U c` is `(a && b) U c`, `p -> q -> r` is `(p -> q) -> r`. Where the
//! usual precedences would give another formula, a warning says so.

use std::rc::Rc;

use crate::diagnostic::{At, Diagnostic};
use crate::parser::check_expression;

/// A formula: its meaning, and what a reader should be warned of.
#[derive(Debug, Clone)]
pub struct Formula {
    pub(super) root: Rc<Temporal>,
    warnings: Vec<Diagnostic>,
}

/// A formula in negation normal form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Temporal {
    /// Holds.
    True,
    /// Does not.
    False,
    /// A proposition, or (`false`) its negation.
    Atom(String, bool),
    /// Both.
    And(Rc<Temporal>, Rc<Temporal>),
    /// At least one.
    Or(Rc<Temporal>, Rc<Temporal>),
    /// In the next state.
    Next(Rc<Temporal>),
    /// The first until the second, which comes.
    Until(Rc<Temporal>, Rc<Temporal>),
    /// The second until and when the first, or for ever.
    Release(Rc<Temporal>, Rc<Temporal>),
}

use Temporal::{And, Atom, False, Next, Or, Release, True, Until};

impl Formula {
    /// Reads a formula: atoms `[a-z_][a-z0-9_=]*` or `{expression of the model}`, `true`, `false`,
    /// `!`, `X`/`O`, `F`/`<>`, `G`/`[]`, `U`, `W`, `R`/`V`, `&&`/`*`, `||`/`+`, `^`, `->`, `<->`.
    ///
    /// # Errors
    /// What is wrong, where, with a caret.
    pub fn parse(text: &str) -> Result<Self, Diagnostic> {
        let mut parser = Parser { text, rest: text, depth: 0, size: 0, warnings: Vec::new() };
        let root = parser.formula()?;
        if parser.peek().is_some() {
            return Err(parser.error("expected an operator"));
        }
        Ok(Self { root, warnings: parser.warnings })
    }

    /// What holds exactly where this does not.
    #[must_use]
    pub fn negated(&self) -> Self {
        Self { root: negate(&self.root), warnings: Vec::new() }
    }

    /// What a reader should be warned of.
    #[must_use]
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The formula in negation normal form.
    #[must_use]
    pub fn root(&self) -> &Temporal {
        &self.root
    }

    /// Whether it says something of the next state, which a reduced search would not respect.
    #[must_use]
    pub fn has_next(&self) -> bool {
        fn search(formula: &Temporal) -> bool {
            match formula {
                True | False | Atom(..) => false,
                Next(_) => true,
                And(a, b) | Or(a, b) | Until(a, b) | Release(a, b) => search(a) || search(b),
            }
        }
        search(&self.root)
    }
}

/// The negation, in negation normal form.
pub(super) fn negate(formula: &Temporal) -> Rc<Temporal> {
    match formula {
        True => Rc::new(False),
        False => Rc::new(True),
        Atom(name, holds) => Rc::new(Atom(name.clone(), !holds)),
        And(a, b) => or(negate(a), negate(b)),
        Or(a, b) => and(negate(a), negate(b)),
        Next(a) => next(negate(a)),
        Until(a, b) => release(negate(a), negate(b)),
        Release(a, b) => until(negate(a), negate(b)),
    }
}

fn and(a: Rc<Temporal>, b: Rc<Temporal>) -> Rc<Temporal> {
    match (&*a, &*b) {
        (False, _) | (_, True) => a,
        (True, _) | (_, False) => b,
        _ if a == b => a,
        _ => Rc::new(And(a, b)),
    }
}

fn or(a: Rc<Temporal>, b: Rc<Temporal>) -> Rc<Temporal> {
    match (&*a, &*b) {
        (True, _) | (_, False) => a,
        (False, _) | (_, True) => b,
        _ if a == b => a,
        _ => Rc::new(Or(a, b)),
    }
}

fn next(a: Rc<Temporal>) -> Rc<Temporal> {
    if matches!(*a, True | False) { a } else { Rc::new(Next(a)) }
}

fn until(a: Rc<Temporal>, b: Rc<Temporal>) -> Rc<Temporal> {
    match (&*a, &*b) {
        (_, True | False) | (False, _) => b,
        // F F a
        (True, Until(c, _)) if **c == True => b,
        _ => Rc::new(Until(a, b)),
    }
}

fn release(a: Rc<Temporal>, b: Rc<Temporal>) -> Rc<Temporal> {
    match (&*a, &*b) {
        (_, True | False) | (True, _) => b,
        // G G a
        (False, Release(c, _)) if **c == False => b,
        _ => Rc::new(Release(a, b)),
    }
}

/// Deepest nesting, and most operators: both bound the translation.
const DEPTH_MAX: u32 = 100;
const SIZE_MAX: u32 = 400;

/// Two operands: name, how tightly it usually binds, whether chains of it usually group right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Binary {
    name: &'static str,
    level: u8,
}

const BINARIES: [(&str, Binary); 13] = [
    ("<->", Binary { name: "<->", level: 0 }),
    ("->", Binary { name: "->", level: 1 }),
    ("||", Binary { name: "||", level: 2 }),
    ("+", Binary { name: "||", level: 2 }),
    ("^", Binary { name: "^", level: 3 }),
    ("&&", Binary { name: "&&", level: 4 }),
    ("*", Binary { name: "&&", level: 4 }),
    ("U", Binary { name: "U", level: 5 }),
    ("W", Binary { name: "W", level: 5 }),
    ("R", Binary { name: "R", level: 5 }),
    ("V", Binary { name: "R", level: 5 }),
    ("/\\", Binary { name: "&&", level: 4 }),
    ("\\/", Binary { name: "||", level: 2 }),
];

struct Parser<'s> {
    text: &'s str,
    rest: &'s str,
    depth: u32,
    size: u32,
    warnings: Vec<Diagnostic>,
}

impl Parser<'_> {
    fn formula(&mut self) -> Result<Rc<Temporal>, Diagnostic> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("this formula is nested too deeply"));
        }
        let at = self.at();
        let mut left = self.unary()?;
        let mut before: Option<Binary> = None;
        while let Some(operator) = self.binary() {
            self.size += 1;
            if self.size > SIZE_MAX {
                return Err(self.error("this formula is too long"));
            }
            let is_chain = |last: Binary| {
                last.name == operator.name && matches!(operator.name, "&&" | "||" | "<->" | "^")
            };
            if before.is_some_and(|last| last.level <= operator.level && !is_chain(last)) {
                let text = "all binary operators group from the left here; add parentheses";
                self.warnings.push(Diagnostic::new(self.text, at, text));
            }
            let right = self.unary()?;
            left = combine(operator.name, left, right);
            before = Some(operator);
        }
        self.depth -= 1;
        Ok(left)
    }

    fn unary(&mut self) -> Result<Rc<Temporal>, Diagnostic> {
        self.depth += 1;
        self.size += 1;
        if self.depth > DEPTH_MAX || self.size > SIZE_MAX {
            return Err(self.error("this formula is too long"));
        }
        let formula = self.operand()?;
        self.depth -= 1;
        Ok(formula)
    }

    fn operand(&mut self) -> Result<Rc<Temporal>, Diagnostic> {
        if self.eat("!") {
            return Ok(negate(&*self.unary()?));
        }
        if self.eat("[]") || self.eat("G") {
            return Ok(release(Rc::new(False), self.unary()?));
        }
        if self.eat("<>") || self.eat("F") {
            return Ok(until(Rc::new(True), self.unary()?));
        }
        if self.eat("X") || self.eat("O") {
            return Ok(next(self.unary()?));
        }
        if self.eat("(") {
            let inner = self.formula()?;
            if !self.eat(")") {
                return Err(self.error("expected `)`"));
            }
            return Ok(inner);
        }
        if self.eat("{") {
            let Some(end) = self.rest.find('}') else {
                return Err(self.error("expected `}` after an expression"));
            };
            let expression = &self.rest[..end];
            check_expression(expression).map_err(|(offset, message)| {
                let at = self.text.len() - self.rest.len() + offset;
                Diagnostic::new(self.text, At(u32::try_from(at).unwrap_or(u32::MAX)), message)
            })?;
            let name = format!("({})", expression.trim());
            self.rest = &self.rest[end + 1..];
            return Ok(Rc::new(Atom(name, true)));
        }
        self.peek();
        let is_first = |c: char| c.is_ascii_lowercase() || c == '_';
        let belongs = |c: char| is_first(c) || c.is_ascii_digit() || c == '=';
        if !self.rest.starts_with(is_first) {
            return Err(self.error("expected a proposition"));
        }
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(Rc::new(match name {
            "true" => True,
            "false" => False,
            _ => Atom(name.to_owned(), true),
        }))
    }

    fn binary(&mut self) -> Option<Binary> {
        let found = BINARIES.into_iter().find(|(sign, _)| self.eat(sign));
        found.map(|(_, operator)| operator)
    }

    /// The next letter that is not blank.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn eat(&mut self, sign: &str) -> bool {
        self.peek();
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn at(&mut self) -> At {
        self.peek();
        At(u32::try_from(self.text.len() - self.rest.len()).unwrap_or(u32::MAX))
    }

    fn error(&mut self, message: &str) -> Diagnostic {
        let at = self.at();
        Diagnostic::new(self.text, at, message)
    }
}

fn combine(operator: &str, a: Rc<Temporal>, b: Rc<Temporal>) -> Rc<Temporal> {
    match operator {
        "&&" => and(a, b),
        "||" => or(a, b),
        "->" => or(negate(&a), b),
        "<->" => or(and(a.clone(), b.clone()), and(negate(&a), negate(&b))),
        "^" => or(and(a.clone(), negate(&b)), and(negate(&a), b)),
        "U" => until(a, b),
        "W" => release(b.clone(), or(a, b)),
        _ => release(a, b),
    }
}
