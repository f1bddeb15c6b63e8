//! Loads the model for `check`: from a file, or a built-in example.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::CheckArgs;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::store;

/// A model's source text.
#[derive(Debug)]
pub(super) struct Given {
    /// Path of the model's file, or the file name of an example.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Given {
    pub(super) fn new(args: &CheckArgs) -> Result<Self, VerbError> {
        if let Some(Some(name)) = &args.example {
            let example = dve::example(name).ok_or_else(|| {
                let hint = dve::suggest_example(name);
                VerbError::usage(format!(
                    "there is no example {name:?}{hint} `clearstream check --example` lists them"
                ))
            })?;
            return Ok(Self { path: example.file_name().into(), text: example.text.to_owned() });
        }
        // clap requires one of the two.
        let path = args.model.clone().unwrap_or_default();
        Ok(Self { text: read(&path)?, path })
    }

    /// The text with its parameters substituted, and the name to use in messages.
    pub(super) fn expanded(
        &self,
        defined: &[(String, String)],
    ) -> Result<(String, String), VerbError> {
        let name = store::input_name(&self.path);
        if self.path.extension().is_none_or(|extension| extension != "mdve") {
            if defined.is_empty() {
                return Ok((self.text.clone(), name));
            }
            return Err(VerbError::usage(
                "--define sets parameters of .mdve files; this model has none",
            ));
        }
        for (parameter, _) in defined {
            if !words(&self.text).any(|word| word == parameter) {
                return Err(VerbError::usage(format!(
                    "--define {parameter}: nothing in {name} has this name{}",
                    parameters(&self.text)
                )));
            }
        }
        let expanded = dve::expand_parameters(&self.text, defined)
            .map_err(|error| VerbError::usage(format!("{name}:{error}")))?;
        Ok((expanded, format!("{name} (expanded)")))
    }
}

/// The words of a model's text that may be names.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
}

/// `; its parameters are N, K`: those with a default value, `default(N, 3)`.
fn parameters(text: &str) -> String {
    let named = text.split("default(").skip(1).filter_map(|rest| words(rest.trim_start()).next());
    let named: BTreeSet<&str> = named.filter(|name| !name.is_empty()).collect();
    match named.len() {
        0 => String::new(),
        1 => format!("; its parameter is {}", Vec::from_iter(named).join("")),
        _ => format!("; its parameters are {}", Vec::from_iter(named).join(", ")),
    }
}

/// Longest model or file of formulas, as for [`dve::Model::parse`]: reading a device may never end.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Reads a model or a file of formulas; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<String, VerbError> {
    let at = |what: &dyn std::fmt::Display| {
        VerbError::usage(format!("{}: {what}", store::input_name(path)))
    };
    let mut bytes = Vec::new();
    let limit = TEXT_BYTES_MAX + 1;
    let taken = if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    taken.map_err(|error| at(&error))?;
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(at(&"the file is longer than 16 MiB"));
    }
    String::from_utf8(bytes).map_err(|_no_text| at(&"the file is not UTF-8 text"))
}

/// Lists the examples, with a description of each.
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
    writeln!(
        out,
        "\nCheck one with `--example NAME`, print it with `--example NAME --print`; its first comment \
         lists searches to try."
    )?;
    Ok(Exit::Ok)
}
