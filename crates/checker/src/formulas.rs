//! Formulas to check a model for.

use std::collections::BTreeMap;

use dve::Model;
use dve::ltl::{Definition, Formula, LtlFile, product};

use crate::CheckError;

/// The option with which a formula is given.
const OPTION: &str = "--ltl";

/// Formulas to check a model for, one after the other.
#[derive(Debug)]
pub struct Formulas {
    /// What errors cite: the option, or the name of the file.
    source: String,
    list: Vec<(String, Formula)>,
    definitions: BTreeMap<String, Definition>,
}

impl Formulas {
    /// One formula.
    ///
    /// # Errors
    /// [`CheckError::Formula`] with line, column and an excerpt.
    pub fn parse(formula: &str) -> Result<Self, CheckError> {
        let parsed = Formula::parse(formula)
            .map_err(|error| CheckError::Formula(format!("{OPTION}:{error}")))?;
        let list = vec![(formula.to_owned(), parsed)];
        Ok(Self { source: OPTION.to_owned(), list, definitions: BTreeMap::new() })
    }

    /// The properties in the text of a file of `#define` and `#property` lines; `name` is the file's.
    ///
    /// # Errors
    /// [`CheckError::Formula`] with line, column and an excerpt, or because there is no property.
    pub fn parse_file(name: &str, text: &str) -> Result<Self, CheckError> {
        let file =
            LtlFile::parse(text).map_err(|error| CheckError::Formula(format!("{name}:{error}")))?;
        if file.formulas.is_empty() {
            return Err(CheckError::Formula(format!("{name}: the file has no #property line")));
        }
        let label = |number: usize| format!("{name} property {}", number + 1);
        let list = file.formulas.into_iter().enumerate().map(|(number, one)| (label(number), one));
        Ok(Self { source: name.to_owned(), list: list.collect(), definitions: file.definitions })
    }

    /// Each formula, with the name under which it is reported.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, &Formula)> {
        self.list.iter().map(|(label, formula)| (label.as_str(), formula))
    }

    /// Warnings about a formula, each with the place it refers to.
    pub(crate) fn warnings(&self, formula: &Formula) -> Vec<String> {
        formula.warnings().iter().map(|warning| format!("{}:{warning}", self.source)).collect()
    }

    /// The model with a property process that accepts what violates the formula.
    pub(crate) fn product(&self, model: &Model, formula: &Formula) -> Result<Model, CheckError> {
        product(model, formula, &self.definitions)
            .map_err(|error| CheckError::Formula(format!("{}:{error}", self.source)))
    }
}
