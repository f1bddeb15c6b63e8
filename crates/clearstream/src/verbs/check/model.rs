//! Loads the model for `check`: from a file, or a built-in example.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::CheckArgs;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};

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
        let name = self.path.display().to_string();
        if self.path.extension().is_none_or(|extension| extension != "mdve") {
            if defined.is_empty() {
                return Ok((self.text.clone(), name));
            }
            return Err(VerbError::usage(
                "--define sets parameters of .mdve files; this model has none",
            ));
        }
        let expanded = dve::expand_parameters(&self.text, defined)
            .map_err(|error| VerbError::usage(format!("{name}:{error}")))?;
        Ok((expanded, format!("{name} (expanded)")))
    }
}

/// Longest model or file of formulas, as for [`dve::Model::parse`]: reading a device may never end.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Reads a model or a file of formulas; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<String, VerbError> {
    let at = |what: &dyn std::fmt::Display| VerbError::usage(format!("{}: {what}", path.display()));
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
