use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::rounds::LONG;

/// What to play.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The release program.
    pub(crate) program: PathBuf,
    /// How long in all; the hand-written cases are played whatever it says.
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    /// Cases whose names have this in them; all without.
    pub(crate) only: Option<String>,
    /// Says what there is, and plays nothing.
    pub(crate) list: bool,
}

impl Options {
    /// Whether each round is judged by itself, and cases that take long are played.
    pub(crate) fn is_long(&self) -> bool {
        self.time >= LONG
    }
}

const USAGE: &str =
    "usage: attack [--program PATH] [--seconds N] [--seed N] [--only TEXT] [--list]";

pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut options = Options {
        program: "target/release/clearstream".into(),
        time: Duration::from_secs(30),
        seed: since_epoch.as_secs(),
        only: None,
        list: false,
    };
    while let Some(word) = words.next() {
        if word == "--list" {
            options.list = true;
            continue;
        }
        let value = words.next().ok_or(USAGE)?;
        let number =
            || value.parse::<u64>().map_err(|_not| format!("{word} {value}: not a number"));
        match word.as_str() {
            "--program" => options.program = value.into(),
            "--seconds" => options.time = Duration::from_secs(number()?),
            "--seed" => options.seed = number()?,
            "--only" => options.only = Some(value),
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(options)
}
