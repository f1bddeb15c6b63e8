//! The model that `check` is given: a file's, or one that comes with the program.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::CheckArgs;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// A model's text as it was written.
#[derive(Debug)]
pub(super) struct Given {
    /// Its file, or the name that an example's file would have.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Given {
    pub(super) fn new(args: &CheckArgs) -> Result<Self, VerbError> {
        if let Some(Some(name)) = &args.example {
            let example = dve::example(name).ok_or_else(|| {
                VerbError::usage(format!(
                    "no example is called {name:?}; `clearstream check --example` lists them"
                ))
            })?;
            return Ok(Self { path: example.file_name().into(), text: example.text.to_owned() });
        }
        // One of the two is required.
        let path = args.model.clone().unwrap_or_default();
        Ok(Self { text: read(&path)?, path })
    }

    /// The text with its parameters replaced, and what to call it where something is wrong with it.
    pub(super) fn expanded(
        &self,
        defined: &[(String, String)],
    ) -> Result<(String, String), VerbError> {
        let name = self.path.display().to_string();
        if self.path.extension().is_none_or(|extension| extension != "mdve") {
            if defined.is_empty() {
                return Ok((self.text.clone(), name));
            }
            return Err(VerbError::usage("--define is for .mdve files"));
        }
        let expanded = dve::expand_parameters(&self.text, defined)
            .map_err(|error| VerbError::usage(format!("{name}:{error}")))?;
        Ok((expanded, format!("{name} (expanded)")))
    }
}

/// Longest model or file of formulas, as [`dve::Model::parse`] takes it: a device may never end.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// The text of a model or of a file of formulas.
pub(super) fn read(path: &Path) -> Result<String, VerbError> {
    let at = |what: &dyn std::fmt::Display| VerbError::usage(format!("{}: {what}", path.display()));
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| at(&error))?;
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| at(&error))?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(at(&"longer than 16 MiB"));
    }
    String::from_utf8(bytes).map_err(|_no_text| at(&"this is not text"))
}

/// Names of the examples, and what each shows.
pub(super) fn list_examples(json: bool) -> VerbResult {
    let mut out = crate::out::stdout();
    if json {
        let list: Vec<_> = dve::EXAMPLES
            .iter()
            .map(|example| json!({ "name": example.name, "shows": example.title() }))
            .collect();
        writeln!(out, "{}", json!(list))?;
        return Ok(Exit::Ok);
    }
    for example in dve::EXAMPLES {
        writeln!(out, "{:<22}{}", example.name, example.title())?;
    }
    writeln!(out, "\n--example NAME --print prints one: its comment names searches to try.")?;
    Ok(Exit::Ok)
}
