//! Reading a plan from TOML. Everything that is wrong with it is reported, each mistake with its line.

mod check;
mod raw;
mod words;

use core::fmt;

use thiserror::Error;

use crate::file::check::Reader;
use crate::file::raw::RawPlan;
use crate::plan::Plan;

/// Longest plan that is read, bytes.
pub const PLAN_BYTES_MAX: usize = 1 << 20;
/// Mistakes that are reported; a plan with more has one cause many times.
const MISTAKES_COUNT_MAX: usize = 50;

/// A plan that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct PlanError {
    /// The file.
    pub file: String,
    /// At least one, in the order of the file.
    pub mistakes: Vec<Mistake>,
}

/// One thing that is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong and why.
    pub reason: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.mistakes.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{}:{}: {}", self.file, mistake.line, mistake.reason)?;
        }
        Ok(())
    }
}

/// Reads and checks a plan; `file` is for errors.
///
/// # Errors
/// Everything that is wrong with it, as far as one mistake does not hide another.
pub fn parse_plan(file: &str, text: &str) -> Result<Plan, PlanError> {
    let failed = |mistakes| PlanError { file: file.to_owned(), mistakes };
    if text.len() > PLAN_BYTES_MAX {
        let reason = format!("{} bytes; a plan has at most {PLAN_BYTES_MAX}", text.len());
        return Err(failed(vec![Mistake { line: 1, reason }]));
    }
    let raw: RawPlan = toml::from_str(text).map_err(|error| {
        let line = line_of(text, error.span().map_or(0, |span| span.start));
        let reason = words::reason(error.message(), text.lines().nth(line - 1).unwrap_or(""));
        failed(vec![wrong_brackets(text).unwrap_or(Mistake { line, reason })])
    })?;
    let mut reader = Reader::new(text);
    let plan = reader.plan(&raw);
    let mut mistakes = reader.mistakes;
    mistakes.sort();
    mistakes.dedup();
    mistakes.truncate(MISTAKES_COUNT_MAX);
    match plan {
        Some(plan) if mistakes.is_empty() => Ok(plan),
        _incomplete => Err(failed(mistakes)),
    }
}

/// A table with single brackets where there are several, or double ones where there is one: serde calls them maps and
/// sequences.
fn wrong_brackets(text: &str) -> Option<Mistake> {
    let table = toml::de::DeTable::parse(text).ok()?;
    table.get_ref().iter().find_map(|(key, value)| {
        let name = key.get_ref().as_ref();
        let brackets = match (name, value.get_ref()) {
            ("gateway", toml::de::DeValue::Table(_)) => "[[gateway]], with double brackets",
            ("routing", toml::de::DeValue::Array(_)) => "[routing], with single brackets",
            ("watch", toml::de::DeValue::Array(_)) => "[watch], with single brackets",
            ("network" | "hosts", toml::de::DeValue::Array(_)) => {
                "[network.NAME] and [hosts.NAME], with single brackets"
            }
            _ => return None,
        };
        let line = line_of(text, key.span().start);
        Some(Mistake { line, reason: format!("'{name}': write {brackets}") })
    })
}

/// The line of a place in a text, from 1.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests;
