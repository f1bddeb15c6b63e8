//! Formulas of linear temporal logic.

use std::rc::Rc;

use super::parser::{Parsed, parse};
use crate::diagnostic::{At, Diagnostic};

/// A formula with the text it was read from.
#[derive(Debug, Clone)]
pub struct Formula {
    pub(super) root: Rc<Temporal>,
    /// The text that places refer to: the formula's own, or that of its file.
    pub(super) source: String,
    pub(super) propositions: Vec<Proposition>,
    warnings: Vec<Diagnostic>,
}

/// An occurrence of a proposition.
#[derive(Debug, Clone)]
pub(super) struct Proposition {
    /// Its name, or the expression in parentheses.
    pub(super) name: String,
    /// The name, or the expression inside the braces, in the source.
    pub(super) at: At,
    /// Whether it is an expression of the model.
    pub(super) is_expression: bool,
}

/// A formula in negation normal form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Temporal {
    /// Holds on every run.
    True,
    /// Holds on no run.
    False,
    /// A proposition, or (`false`) its negation.
    Atom(String, bool),
    /// Conjunction.
    And(Rc<Temporal>, Rc<Temporal>),
    /// Disjunction.
    Or(Rc<Temporal>, Rc<Temporal>),
    /// X: holds from the next state on.
    Next(Rc<Temporal>),
    /// U: the second holds at some time, and the first until then.
    Until(Rc<Temporal>, Rc<Temporal>),
    /// R: the second holds up to and including the state in which the first does, or always.
    Release(Rc<Temporal>, Rc<Temporal>),
}

use Temporal::{And, Atom, False, Next, Or, Release, True, Until};

impl Formula {
    /// Reads a formula: propositions `[a-z_][a-z0-9_=]*` or `{expression of the model}`, `true`, `false`,
    /// `!`, `X`/`O`, `F`/`<>`, `G`/`[]`, `U`, `W`, `R`/`V`, `&&`/`*`/`/\\`, `||`/`+`/`\\/`, `^`, `->`, `<->`,
    /// and SPIN's words for them (`always`, `eventually`, `until`, `implies`, …).
    ///
    /// # Errors
    /// The first error, with line, column and caret.
    pub fn parse(text: &str) -> Result<Self, Diagnostic> {
        Self::parse_from(text, 0)
    }

    /// Reads the formula that begins at `start` and ends with the text. Places refer to the whole text.
    pub(super) fn parse_from(text: &str, start: usize) -> Result<Self, Diagnostic> {
        let Parsed { root, propositions, warnings } = parse(text, start)?;
        Ok(Self { root, source: text.to_owned(), propositions, warnings })
    }

    /// The negation: it holds on exactly the runs on which this formula does not.
    #[must_use]
    pub fn negated(&self) -> Self {
        Self { root: negate(&self.root), warnings: Vec::new(), ..self.clone() }
    }

    /// Warnings about operators that other tools group differently.
    #[must_use]
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The formula in negation normal form.
    #[must_use]
    pub fn root(&self) -> &Temporal {
        &self.root
    }

    /// Whether it has an X, whose meaning partial-order reduction does not preserve.
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

pub(super) fn and(a: Rc<Temporal>, b: Rc<Temporal>) -> Rc<Temporal> {
    match (&*a, &*b) {
        (False, _) | (_, True) => a,
        (True, _) | (_, False) => b,
        _ if a == b => a,
        _ => Rc::new(And(a, b)),
    }
}

pub(super) fn or(a: Rc<Temporal>, b: Rc<Temporal>) -> Rc<Temporal> {
    match (&*a, &*b) {
        (True, _) | (_, False) => a,
        (False, _) | (_, True) => b,
        _ if a == b => a,
        _ => Rc::new(Or(a, b)),
    }
}

pub(super) fn next(a: Rc<Temporal>) -> Rc<Temporal> {
    if matches!(*a, True | False) { a } else { Rc::new(Next(a)) }
}

pub(super) fn until(a: Rc<Temporal>, b: Rc<Temporal>) -> Rc<Temporal> {
    match (&*a, &*b) {
        (_, True | False) | (False, _) => b,
        // F F a
        (True, Until(c, _)) if **c == True => b,
        _ => Rc::new(Until(a, b)),
    }
}

pub(super) fn release(a: Rc<Temporal>, b: Rc<Temporal>) -> Rc<Temporal> {
    match (&*a, &*b) {
        (_, True | False) | (True, _) => b,
        // G G a
        (False, Release(c, _)) if **c == False => b,
        _ => Rc::new(Release(a, b)),
    }
}
