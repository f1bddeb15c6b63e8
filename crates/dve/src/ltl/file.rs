//! `.ltl` files, `#define name expression` and `#property formula` lines in free text; and the product of a model and
//! a formula.

use std::collections::BTreeMap;

use super::automaton::Automaton;
use super::formula::{Formula, Proposition};
use crate::diagnostic::{At, Diagnostic};
use crate::lexer::{Placed, Token, words};
use crate::model::Model;
use crate::parser::check_expression;
use crate::suggest::did_you_mean_or_list;

/// Propositions and formulas of a file.
#[derive(Debug, Clone, Default)]
pub struct LtlFile {
    /// The expression of the model that each proposition stands for.
    pub definitions: BTreeMap<String, Definition>,
    /// Formulas, in the order of the file.
    pub formulas: Vec<Formula>,
}

/// What a `#define` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The expression of the model.
    pub expression: String,
    /// Where it stands in the file.
    pub at: At,
}

impl LtlFile {
    /// Reads a file; lines that begin with neither `#define` nor `#property` are comments.
    ///
    /// # Errors
    /// The first formula that cannot be read, or a `#define` without a name.
    pub fn parse(text: &str) -> Result<Self, Diagnostic> {
        let mut file = Self::default();
        let mut offset = 0;
        for line in text.split_inclusive('\n') {
            if let Some(definition) = line.strip_prefix("#define") {
                let definition = definition.trim();
                let (name, expression) =
                    definition.split_once(char::is_whitespace).ok_or_else(|| {
                        let wanted = "`#define` needs a name and an expression";
                        Diagnostic::new(text, At::of(offset), wanted)
                    })?;
                let expression = expression.trim().to_owned();
                // The expression ends where the line does.
                let at = At::of(offset + line.trim_end().len() - expression.len());
                file.definitions.insert(name.to_owned(), Definition { expression, at });
            } else if line.starts_with("#property") {
                let before = &text[..offset + line.trim_end().len()];
                file.formulas.push(Formula::parse_from(before, offset + "#property".len())?);
            }
            offset += line.len();
        }
        // A file may define what none of its formulas uses.
        for (name, Definition { expression, at }) in &file.definitions {
            let is_used = |formula: &Formula| {
                formula.propositions.iter().any(|used| !used.is_expression && used.name == *name)
            };
            if file.formulas.iter().any(is_used) {
                check_expression(expression).map_err(|(within, message)| {
                    Diagnostic::new(text, At::of(at.0 as usize + within), message)
                })?;
            }
        }
        Ok(file)
    }
}

/// The name of a property process that is made from a formula.
pub(crate) const NAME: &str = "LTL_property";

/// A model's text with the negated formula as its property process.
///
/// # Errors
/// A model that has a property or no `system` line, a proposition without definition, a formula whose
/// automaton is too large. Places refer to the formula's text, for the model to the model's.
pub fn with_property(
    model: &str,
    formula: &Formula,
    definitions: &BTreeMap<String, Definition>,
) -> Result<String, Diagnostic> {
    let declarations = declarations(model)?;
    let undefined = |one: &&Proposition| !one.is_expression && !definitions.contains_key(&one.name);
    if let Some(unknown) = formula.propositions.iter().find(undefined) {
        let name = &unknown.name;
        let text = if definitions.is_empty() {
            format!("`{name}` is not defined; expressions of the model stand in braces: {{{name}}}")
        } else {
            let known = definitions.keys().map(String::as_str);
            let hint = did_you_mean_or_list(name, "defined are", known);
            format!("`{name}` is not defined{hint}")
        };
        return Err(Diagnostic::new(&formula.source, unknown.at, text));
    }
    let automaton = Automaton::of(&formula.negated());
    if automaton.is_cut() {
        let text = "the formula's automaton has too many states";
        return Err(Diagnostic::new(&formula.source, At(0), text));
    }
    let process = automaton.with_definitions(definitions).to_process(NAME);
    Ok(format!("{declarations}{process}system async property {NAME};\n"))
}

/// A model and the negated formula as its property process: a run that this process accepts violates the
/// formula.
///
/// # Errors
/// As [`with_property`]; a proposition that does not fit the model.
pub fn product(
    model: &Model,
    formula: &Formula,
    definitions: &BTreeMap<String, Definition>,
) -> Result<Model, Diagnostic> {
    let text = with_property(model.source(), formula, definitions)?;
    check_propositions(model.source(), formula, definitions)?;
    let product = Model::parse(&text)?;
    Ok(Model { is_property_made: true, ..product })
}

/// Compiles each proposition as a guard of its own, so that an error can be shown where it was written.
fn check_propositions(
    model: &str,
    formula: &Formula,
    definitions: &BTreeMap<String, Definition>,
) -> Result<(), Diagnostic> {
    let mut text = declarations(model)?.to_owned();
    text += &format!("process {NAME} {{ state q; init q; trans ");
    // Where each begins in this text, its length, and where it was written.
    let mut places = Vec::new();
    for (number, one) in formula.propositions.iter().enumerate() {
        let (expression, at) = match definitions.get(&one.name) {
            Some(defined) if !one.is_expression => {
                (format!("({})", defined.expression), defined.at)
            }
            _ => (one.name.clone(), one.at),
        };
        text += if number > 0 { ", q -> q { guard " } else { "q -> q { guard " };
        // Behind the parenthesis.
        places.push((text.len() + 1, expression.len(), at));
        text += &format!("{expression}; }}");
    }
    if places.is_empty() {
        return Ok(());
    }
    text += "; } system async;";
    let Err(error) = Model::parse(&text) else { return Ok(()) };
    let offset = error.offset(&text);
    let place = places
        .iter()
        .find(|(begin, length, _)| (begin.saturating_sub(1)..begin + length).contains(&offset));
    Err(match place {
        Some((begin, _, at)) => {
            let at = At::of(at.0 as usize + offset.saturating_sub(*begin));
            Diagnostic::new(&formula.source, at, error.message)
        }
        None => error,
    })
}

/// The model's text in front of `system`.
fn declarations(model: &str) -> Result<&str, Diagnostic> {
    // Comments may contain any word.
    let words = words(model)?;
    let is = |word: &Placed<'_>, name: &str| word.token == Token::Word(name);
    let place = words.iter().rposition(|word| is(word, "system")).ok_or_else(|| {
        let end = words.last().map_or(At(0), |word| word.at);
        Diagnostic::new(model, end, "expected `system`")
    })?;
    let at = words[place].at;
    if words[place..].iter().any(|word| is(word, "property")) {
        let text =
            "the model has a property process of its own: it cannot be checked for a formula too";
        return Err(Diagnostic::new(model, at, text));
    }
    Ok(&model[..at.0 as usize])
}
