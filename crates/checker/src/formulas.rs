//! Formulas to check a model for.

use std::collections::BTreeMap;

use dve::ltl::{Formula, LtlFile, with_property};
use dve::{At, Diagnostic, Model};

use crate::CheckError;

/// Formulas to check a model for, one after the other.
#[derive(Debug)]
pub struct Formulas {
    /// The formula itself, or the name of the file.
    given: String,
    list: Vec<(String, Formula)>,
    definitions: BTreeMap<String, String>,
}

impl Formulas {
    /// One formula.
    ///
    /// # Errors
    /// [`CheckError::Formula`] with line, column and an excerpt.
    pub fn parse(formula: &str) -> Result<Self, CheckError> {
        let parsed = Formula::parse(formula)
            .map_err(|error| CheckError::Formula(format!("--ltl:{error}")))?;
        let list = vec![(formula.to_owned(), parsed)];
        Ok(Self { given: formula.to_owned(), list, definitions: BTreeMap::new() })
    }

    /// The properties in the text of a file of `#define` and `#property` lines; `name` is the file's.
    ///
    /// # Errors
    /// [`CheckError::Formula`] with line, column and an excerpt, or because there is no property.
    pub fn parse_file(name: &str, text: &str) -> Result<Self, CheckError> {
        let file =
            LtlFile::parse(text).map_err(|error| CheckError::Formula(format!("{name}:{error}")))?;
        if file.formulas.is_empty() {
            return Err(CheckError::Formula(format!("{name} has no #property line")));
        }
        let label = |number: usize| format!("{name} property {}", number + 1);
        let list = file.formulas.into_iter().enumerate().map(|(number, one)| (label(number), one));
        Ok(Self { given: name.to_owned(), list: list.collect(), definitions: file.definitions })
    }

    /// Each formula and what to call it.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, &Formula)> {
        self.list.iter().map(|(label, formula)| (label.as_str(), formula))
    }

    /// The model with a property process that accepts what violates the formula.
    pub(crate) fn product(
        &self,
        model: &Model,
        (label, formula): (&str, &Formula),
    ) -> Result<Model, CheckError> {
        let text = with_property(model.source(), formula, &self.definitions)
            .map_err(|error| CheckError::Formula(format!("{label}: {}", error.message)))?;
        Model::parse(&text)
            .map_err(|error| CheckError::Formula(in_formula(label, &self.given, &error)))
    }
}

/// What is wrong with a proposition: the model's parser met it in the property process that was made of
/// the formula, where nobody has written it.
fn in_formula(label: &str, given: &str, error: &Diagnostic) -> String {
    let from = error.text.chars().skip(error.column as usize - 1);
    let word: String = from.take_while(|&one| one.is_alphanumeric() || one == '_').collect();
    let is_part = |one: char| one.is_alphanumeric() || one == '_';
    let mut places = given.match_indices(&word).map(|(at, _)| at).filter(|&at| {
        !given[..at].ends_with(is_part) && !given[at + word.len()..].starts_with(is_part)
    });
    match places.next() {
        Some(at) if !word.is_empty() && label == given => {
            let at = At(u32::try_from(at).unwrap_or(u32::MAX));
            format!("--ltl:{}", Diagnostic::new(given, at, error.message.clone()))
        }
        _ => format!("{label}: {}", error.message),
    }
}
