//! `clearstream help`: the help of a command, as its own `--help` prints it.

use std::ffi::OsString;

use clap::{Command, CommandFactory};

use crate::exit::VerbError;
use crate::{CommandLine, VerbResult};

/// Options of `help`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clearstream help path\n  clearstream help tune apply")]
pub(crate) struct HelpArgs {
    /// The command, then its action where it has several.
    #[arg(value_name = "COMMAND")]
    words: Vec<OsString>,
}

/// The command line with `help COMMAND` written as `COMMAND --help`; any other is unchanged.
pub(crate) fn expanded(arguments: Vec<OsString>) -> Vec<OsString> {
    let asks = arguments.get(1).is_some_and(|verb| verb == "help");
    let has_flag = arguments.iter().skip(2).any(|word| word.to_string_lossy().starts_with('-'));
    if !asks || has_flag {
        return arguments;
    }
    let (program, words) = (arguments[..1].to_vec(), arguments[2..].to_vec());
    [program, words, vec!["--help".into()]].concat()
}

/// Only where an option stands among its words: these belong to the command itself.
pub(crate) fn run(args: &HelpArgs, _json: bool) -> VerbResult {
    let words: Vec<_> = args.words.iter().map(|word| word.to_string_lossy()).collect();
    Err(VerbError::usage(format!("write: clearstream {} --help", words.join(" "))))
}

/// The command or action that the words of a command line name.
pub(crate) fn command_of(arguments: &[OsString]) -> Command {
    let mut command = CommandLine::command();
    command.build();
    for word in arguments.iter().skip(1) {
        match command.find_subcommand(word) {
            Some(found) => command = found.clone(),
            None if word.to_string_lossy().starts_with('-') => {}
            None => break,
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where no terminal tells another width, clap breaks longer lines in the middle.
    const COLUMNS: usize = 100;

    fn check(command: &Command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines() {
            let columns = line.chars().count();
            assert!(columns <= COLUMNS, "{}: {columns} columns: {line}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn what_follows_the_options_keeps_its_lines() {
        check(&CommandLine::command());
    }
}
