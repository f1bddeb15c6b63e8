//! Lists of settings that papers and institutions published: to look at, and to compare with the
//! running kernel. They are not applied: their figures are those of other hosts and paths, and some
//! of them are gone or harmful today ([`judge`] says which and what came in their place).

mod verdicts;

use serde::Serialize;
use thiserror::Error;

use settings::text::shorten;

pub use verdicts::{Advice, judge};

/// Longest profile that is read, bytes, and most settings of one.
const BYTES_MAX: usize = 256 << 10;
const SETTINGS_MAX: usize = 1024;

/// A published list of settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// `clearstream-2011`.
    pub name: String,
    /// What it is.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// Settings in the published order: name and value.
    pub settings: Vec<(String, String)>,
}

/// Why a profile cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A line that is none of `sysctl.conf(5)`.
    #[error("line {line} is not NAME = VALUE: '{text}'")]
    Malformed {
        /// From 1.
        line: usize,
        /// The line, shortened.
        text: String,
    },
    /// Absurdly large.
    #[error("it is too large for a profile")]
    TooLarge,
}

/// The profiles that come with the program.
const OWN: [(&str, &str); 3] = [
    ("clearstream-2011", include_str!("../profiles/clearstream-2011.conf")),
    ("cumulus-2018", include_str!("../profiles/cumulus-2018.conf")),
    ("esnet-2025", include_str!("../profiles/esnet-2025.conf")),
];

/// Names of the profiles that come with the program.
#[must_use]
pub fn names() -> Vec<&'static str> {
    OWN.iter().map(|(name, _)| *name).collect()
}

/// A profile that comes with the program.
#[must_use]
pub fn own(name: &str) -> Option<Profile> {
    let (name, text) = OWN.iter().find(|(known, _)| *known == name)?;
    read(name, text).ok()
}

/// Reads a profile in the form of `sysctl.conf(5)`; `# title:` and `# source:` say what it is.
///
/// # Errors
/// [`ProfileError`] names the line.
pub fn read(name: &str, text: &str) -> Result<Profile, ProfileError> {
    if text.len() > BYTES_MAX {
        return Err(ProfileError::TooLarge);
    }
    let mut profile = Profile {
        name: shorten(name),
        title: String::new(),
        source: String::new(),
        settings: Vec::new(),
    };
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix(['#', ';']) {
            let told =
                |word: &str| comment.trim().strip_prefix(word).map(|rest| rest.trim().to_owned());
            profile.title = told("title:").unwrap_or(profile.title);
            profile.source = told("source:").unwrap_or(profile.source);
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let malformed = || ProfileError::Malformed { line: number + 1, text: shorten(line) };
        let (key, value) = line.split_once('=').ok_or_else(malformed)?;
        // `-key = value` tells sysctl(8) to ignore a failure.
        let key = key.trim().trim_start_matches('-').replace('/', ".");
        let is_name = !key.is_empty()
            && key.len() <= 128
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if !is_name || profile.settings.len() >= SETTINGS_MAX {
            return Err(malformed());
        }
        let value = value.split_whitespace().map(shorten).collect::<Vec<_>>().join(" ");
        profile.settings.push((key, value));
    }
    Ok(profile)
}

#[cfg(test)]
mod tests;
