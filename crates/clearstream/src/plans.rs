//! Reads gateway plans: from a file, by built-in name, or from standard input.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use route_plan::{PLAN_BYTES_MAX, Plan, parse_plan};

use crate::exit::VerbError;

/// Command that starts a program on a plan's machine. It never prompts, and fails after 10 s on an unreachable machine.
pub(crate) const SSH: &str = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10";

/// Built-in plans, for the program's labs.
const PLANS: &[(&str, &str)] = &[("cumulus", include_str!("../../../labs/gateways/cumulus.toml"))];

/// Names of the built-in plans.
pub(crate) fn builtin_names() -> impl Iterator<Item = &'static str> {
    PLANS.iter().map(|(name, _)| *name)
}

/// Whether there is a built-in plan of this name.
pub(crate) fn is_builtin(name: &str) -> bool {
    PLANS.iter().any(|(known, _)| *known == name)
}

/// A plan's text: from a file, from a built-in plan, or from standard input (`-`).
pub(crate) fn plan_text(path: &Path) -> Result<String, VerbError> {
    let builtin = PLANS.iter().find(|(name, _)| Path::new(name) == path && !path.exists());
    match builtin {
        Some((_, text)) => Ok((*text).to_owned()),
        // A bare word is meant as the name of a plan.
        None if path.to_str().is_some_and(|name| !name.contains(['/', '.', '-']))
            && !path.exists() =>
        {
            let name = path.display();
            let known = builtin_names().collect::<Vec<_>>().join(", ");
            Err(VerbError::usage(format!(
                "no plan '{name}'; built in: {known}; or give a file, NAME.toml"
            )))
        }
        None => read_text(path, PLAN_BYTES_MAX),
    }
}

/// Reads and checks a plan, as [`parse`] does.
pub(crate) fn read_plan(path: &Path) -> Result<Plan, VerbError> {
    parse(path, &plan_text(path)?)
}

/// Checks a plan's text. If there are several mistakes, each gets a line on standard error.
pub(crate) fn parse(path: &Path, text: &str) -> Result<Plan, VerbError> {
    parse_plan(&path.display().to_string(), text).map_err(|error| {
        let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
        if lines.len() < 2 {
            return VerbError::usage(&error);
        }
        let mut out = crate::out::stderr();
        for line in &lines {
            // The error itself is returned below.
            writeln!(out, "{line}").ok();
        }
        VerbError::usage(format!("{}: {} errors, listed above", error.file, lines.len()))
    })
}

/// Reads a text file, or standard input (`-`), of at most `bytes_max` bytes.
pub(crate) fn read_text(path: &Path, bytes_max: usize) -> Result<String, VerbError> {
    let failed = |error: std::io::Error| VerbError::usage(format!("{}: {error}", path.display()));
    let mut text = String::new();
    let file: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        _path => Box::new(File::open(path).map_err(failed)?),
    };
    file.take(bytes_max as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() > bytes_max {
        let path = path.display();
        return Err(VerbError::usage(format!("{path}: longer than {bytes_max} bytes")));
    }
    Ok(text)
}
