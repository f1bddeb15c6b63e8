//! `.ltl` files: `#define name expression` and `#property formula` lines in free text.

use std::collections::BTreeMap;

use super::automaton::Automaton;
use super::formula::{Formula, Temporal};
use crate::diagnostic::{At, Diagnostic};
use crate::lexer::{Placed, Token, words};
use crate::parser::check_expression;

/// Propositions and formulas of a file.
#[derive(Debug, Clone, Default)]
pub struct LtlFile {
    /// Proposition → expression of the model.
    pub definitions: BTreeMap<String, String>,
    /// Formulas, in the order of the file.
    pub formulas: Vec<Formula>,
}

impl LtlFile {
    /// Reads a file; lines that begin with neither word are text for people.
    ///
    /// # Errors
    /// The first formula that cannot be read, or a `#define` without a name.
    pub fn parse(text: &str) -> Result<Self, Diagnostic> {
        let mut file = Self::default();
        let mut offset = 0;
        let mut places = BTreeMap::new();
        for line in text.split_inclusive('\n') {
            if let Some(definition) = line.strip_prefix("#define") {
                let definition = definition.trim();
                let (name, expression) =
                    definition.split_once(char::is_whitespace).ok_or_else(|| {
                        let at = At(u32::try_from(offset).unwrap_or(u32::MAX));
                        Diagnostic::new(text, at, "`#define` needs a name and an expression")
                    })?;
                file.definitions.insert(name.to_owned(), expression.trim().to_owned());
                // Where the expression begins: it ends where the line does.
                let blank = line.len() - line.trim_end().len();
                let begins = line.len() - blank - expression.trim().len();
                places.insert(name.to_owned(), offset + begins);
            } else if let Some(formula) = line.strip_prefix("#property") {
                let formula = Formula::parse(formula).map_err(|error| {
                    let at = offset + "#property".len() + error.column as usize - 1;
                    Diagnostic::new(text, At(u32::try_from(at).unwrap_or(u32::MAX)), error.message)
                })?;
                file.formulas.push(formula);
            }
            offset += line.len();
        }
        // A file may define what no formula of it says.
        let is_said = |name: &str| file.formulas.iter().any(|one| says(one.root(), name));
        for (name, expression) in file.definitions.iter().filter(|(name, _)| is_said(name)) {
            check_expression(expression).map_err(|(within, message)| {
                let at = places.get(name).copied().unwrap_or(0) + within;
                Diagnostic::new(text, At(u32::try_from(at).unwrap_or(u32::MAX)), message)
            })?;
        }
        Ok(file)
    }
}

/// A model's text with the negated formula as its property process.
///
/// # Errors
/// A model that has a property or no `system` line, a proposition nobody defined, a formula whose
/// automaton is too large.
pub fn with_property(
    model: &str,
    formula: &Formula,
    definitions: &BTreeMap<String, String>,
) -> Result<String, Diagnostic> {
    const NAME: &str = "LTL_property";
    // Comments may say anything.
    let words = words(model)?;
    let is = |word: &Placed<'_>, name: &str| word.token == Token::Word(name);
    let place = words.iter().rposition(|word| is(word, "system")).ok_or_else(|| {
        let end = words.last().map_or(At(0), |word| word.at);
        Diagnostic::new(model, end, "expected `system`")
    })?;
    let at = words[place].at;
    let end = at.0 as usize;
    if words[place..].iter().any(|word| is(word, "property")) {
        return Err(Diagnostic::new(model, at, "the model has a property of its own"));
    }
    if let Some(unknown) = first_undefined(formula.root(), definitions) {
        let text = format!("nothing defines the proposition `{unknown}` (#define {unknown} …)");
        return Err(Diagnostic::new("", At(0), text));
    }
    let automaton = Automaton::of(&formula.negated());
    if automaton.is_cut() {
        return Err(Diagnostic::new("", At(0), "the formula's automaton is too large"));
    }
    let process = automaton.with_atoms(definitions).to_process(NAME);
    Ok(format!("{}{process}system async property {NAME};\n", &model[..end]))
}

/// Whether a formula mentions a proposition.
fn says(formula: &Temporal, wanted: &str) -> bool {
    match formula {
        Temporal::True | Temporal::False => false,
        Temporal::Atom(name, _) => name == wanted,
        Temporal::Next(a) => says(a, wanted),
        Temporal::And(a, b)
        | Temporal::Or(a, b)
        | Temporal::Until(a, b)
        | Temporal::Release(a, b) => says(a, wanted) || says(b, wanted),
    }
}

/// A proposition that is neither defined nor an expression in braces.
fn first_undefined<'f>(
    formula: &'f Temporal,
    definitions: &BTreeMap<String, String>,
) -> Option<&'f str> {
    match formula {
        Temporal::True | Temporal::False => None,
        Temporal::Atom(name, _) => {
            (!name.starts_with('(') && !definitions.contains_key(name)).then_some(name)
        }
        Temporal::Next(a) => first_undefined(a, definitions),
        Temporal::And(a, b)
        | Temporal::Or(a, b)
        | Temporal::Until(a, b)
        | Temporal::Release(a, b) => {
            first_undefined(a, definitions).or_else(|| first_undefined(b, definitions))
        }
    }
}
