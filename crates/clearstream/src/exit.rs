//! Exit codes, decided in one place, with their one-line messages.

use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::out;

/// How a verb ended that ran without error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success: exit code 0.
    Ok,
    /// Success, but a gate or a paper's law does not hold.
    GateFailed,
    /// Part of the work was done; the output says what is missing.
    Partial,
    /// The checked model violates a property.
    Violated,
    /// The check ended before the whole model was searched.
    Undecided,
    /// A program run on the user's behalf ended with this code.
    Program(u8),
    /// A signal of this number ended the run.
    Signal(i32),
}

impl Exit {
    /// How a run that a signal may have ended has ended. For a run without an end of its own (a daemon, an
    /// endless display) a signal is the regular end.
    pub(crate) fn of_run(has_end: bool, signal: Option<i32>) -> Self {
        match signal {
            Some(number) if has_end => Self::Signal(number),
            _ => Self::Ok,
        }
    }

    /// This, unless it is a success and a signal cut the run short.
    pub(crate) fn unless_cut(self, has_end: bool, signal: Option<i32>) -> Self {
        if self == Self::Ok { Self::of_run(has_end, signal) } else { self }
    }
}

/// Why a verb failed: one line, with its causes after colons.
#[derive(Debug)]
pub(crate) struct VerbError {
    kind: Kind,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Failed,
    Usage,
    Missing,
    Partial,
    /// The reader of our output is gone: not an error.
    BrokenPipe,
}

impl VerbError {
    /// The work failed: exit code 1.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self { kind: Kind::Failed, message: plain(&message) }
    }

    /// The request is invalid: exit code 2.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { kind: Kind::Usage, message: plain(&message) }
    }

    /// The same, with more words at its end.
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.message += more;
        self
    }

    /// The same, with what came before it at its beginning.
    pub(crate) fn after(mut self, first: &Self) -> Self {
        self.message = format!("{}; then {}", first.message, self.message);
        self
    }

    /// A failure after a part of the work was done: exit code 5. Other kinds stay what they are.
    pub(crate) fn with_part_done(self) -> Self {
        if self.kind == Kind::Failed { Self { kind: Kind::Partial, ..self } } else { self }
    }

    /// A privilege or kernel feature is missing, named in the message: exit code 4.
    pub(crate) fn missing(message: impl fmt::Display) -> Self {
        Self { kind: Kind::Missing, message: plain(&message) }
    }

    /// Part of the work was done: exit code 5.
    pub(crate) fn partial(message: impl fmt::Display) -> Self {
        Self { kind: Kind::Partial, message: plain(&message) }
    }

    /// A file that the user named cannot be read: exit code 2.
    pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::usage(format!("{}: {error}", crate::store::input_name(path)))
    }

    /// Its exit code.
    pub(crate) fn code(&self) -> u8 {
        match self.kind {
            Kind::BrokenPipe => 0,
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Missing => 4,
            Kind::Partial => 5,
        }
    }

    /// An error reported by another process of this program, which would have ended with this code.
    pub(crate) fn of_code(code: u8, message: impl fmt::Display) -> Self {
        match code {
            2 => Self::usage(message),
            4 => Self::missing(message),
            5 => Self::partial(message),
            _ => Self::failed(message),
        }
    }

    /// The work failed because of `error`; the message includes its causes.
    pub(crate) fn from_error(error: &dyn Error) -> Self {
        Self::failed(chain(error))
    }
}

impl fmt::Display for VerbError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl From<lab::LabError> for VerbError {
    fn from(error: lab::LabError) -> Self {
        let line = chain(&error);
        if error.is_missing_privilege() {
            Self::missing(line)
        } else if error.is_usage() {
            Self::usage(line)
        } else {
            Self::failed(line)
        }
    }
}

impl From<vm::VmError> for VerbError {
    fn from(error: vm::VmError) -> Self {
        let line = chain(&error);
        if error.is_missing() {
            Self::missing(line)
        } else if error.is_usage() {
            Self::usage(line)
        } else {
            Self::failed(line)
        }
    }
}

impl From<io::Error> for VerbError {
    fn from(error: io::Error) -> Self {
        let kind =
            if error.kind() == io::ErrorKind::BrokenPipe { Kind::BrokenPipe } else { Kind::Failed };
        let message = match error.kind() {
            // Errors of files are named where they occur; this one comes from the verb's output.
            io::ErrorKind::StorageFull => plain(&format_args!("standard output: {error}")),
            _ => plain(&error),
        };
        Self { kind, message }
    }
}

/// A message without the numbers that [`io::Error`] puts behind the system's words: `(os error 2)`.
pub(crate) fn plain(message: &dyn fmt::Display) -> String {
    let message = message.to_string();
    let mut parts = message.split(" (os error ");
    let mut line = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                line += rest
            }
            _ => {
                line += " (os error ";
                line += part;
            }
        }
    }
    line
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}

/// The process's exit code; prints the one-line message if there is one.
pub(crate) fn code(result: crate::VerbResult) -> ExitCode {
    ExitCode::from(settle(result))
}

/// Like [`code`], as a number.
pub(crate) fn settle(result: crate::VerbResult) -> u8 {
    match result {
        Ok(Exit::Ok) => 0,
        Ok(Exit::GateFailed) => 3,
        Ok(Exit::Partial) => 5,
        Ok(Exit::Violated) => 10,
        Ok(Exit::Undecided) => 11,
        Ok(Exit::Program(code)) => code,
        Ok(Exit::Signal(number)) => u8::try_from(128 + number).unwrap_or(255),
        Err(error) => {
            if error.kind != Kind::BrokenPipe {
                complain(&error.message);
            }
            error.code()
        }
    }
}

/// Reports clap's messages: help on stdout is a success, anything else is one line and a usage error.
/// `asked_of` is the command that rejected its arguments.
pub(crate) fn usage(mut error: clap::Error, asked_of: &clap::Command) -> ExitCode {
    let asked = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if asked {
        match error.print() {
            // A reader that has gone away does not change the exit code.
            Err(refused) if refused.kind() != io::ErrorKind::BrokenPipe => {
                return code(Err(refused.into()));
            }
            _ => {}
        }
        return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    }
    suggest_what_is_shown(&mut error, asked_of);
    let mut line = one_line(&error.to_string());
    for help in missing_arguments(&error, asked_of) {
        line.push_str("; ");
        line.push_str(&help);
    }
    line.push_str(&known_commands(&error, asked_of));
    line.push_str(&missing_dashes(&error, asked_of));
    let is_count = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument | ErrorKind::UnknownArgument | ErrorKind::TooManyValues
    );
    if is_count {
        line.push_str(&format!("; usage: {}", usage_line(asked_of)));
    }
    complain(&format!("{line} (see --help)"));
    ExitCode::from(2)
}

/// Takes commands and options out of clap's suggestions that the help does not show: the program calls
/// itself with them.
fn suggest_what_is_shown(error: &mut clap::Error, asked_of: &clap::Command) {
    let asked = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => String::new(),
    };
    let is_shown = |name: &str| {
        is_near(&asked, name)
            && asked_of.find_subcommand(name).is_some_and(|one| !one.is_hide_set())
    };
    let is_shown_option = |name: &str| {
        let hidden = asked_of.get_arguments().filter(|argument| argument.is_hide_set());
        let mut names = hidden.filter_map(clap::Arg::get_long);
        !names.any(|hidden| name.trim_start_matches('-') == hidden)
    };
    retain(error, ContextKind::SuggestedSubcommand, is_shown);
    retain(error, ContextKind::SuggestedArg, is_shown_option);
    // `'VERB --option' exists`, of another command that has the option.
    if let Some(ContextValue::StyledStrs(told)) = error.get(ContextKind::Suggested) {
        let is_hidden = |text: &clap::builder::StyledStr| {
            let text = text.to_string();
            let first = text.trim_start_matches('\'').split([' ', '\'']).next().unwrap_or_default();
            text.starts_with('\'')
                && (asked_of.find_subcommand(first).is_some_and(clap::Command::is_hide_set))
        };
        let kept: Vec<_> = told.iter().filter(|text| !is_hidden(text)).cloned().collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(kept));
    }
}

/// Whether a command may be meant by a word: misspelt, or only begun. clap also suggests words that share a few letters.
pub(crate) fn is_near(word: &str, name: &str) -> bool {
    let is_begun = word.len() > 1 && (name.starts_with(word) || word.starts_with(name));
    is_begun || units::closest(word, [name]).is_some()
}

/// Drops what is not wanted of one kind of suggestion, and the kind itself if nothing is left.
fn retain(error: &mut clap::Error, kind: ContextKind, is_wanted: impl Fn(&str) -> bool) {
    let all = match error.remove(kind) {
        Some(ContextValue::Strings(all)) => all,
        Some(ContextValue::String(one)) => vec![one],
        _ => return,
    };
    let mut kept: Vec<String> = all.into_iter().filter(|name| is_wanted(name)).collect();
    let value = match kept.len() {
        0 => return,
        1 => ContextValue::String(kept.swap_remove(0)),
        _ => ContextValue::Strings(kept),
    };
    error.insert(kind, value);
}

/// The subcommands that there are, if the given one resembles none of them; the program itself has too many.
fn known_commands(error: &clap::Error, asked_of: &clap::Command) -> String {
    const LISTED_MAX: usize = 12;
    let is_unlike = error.kind() == ErrorKind::InvalidSubcommand
        && error.get(ContextKind::SuggestedSubcommand).is_none();
    let shown = asked_of.get_subcommands().filter(|one| !one.is_hide_set());
    let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
    match names.len() {
        1..=LISTED_MAX if is_unlike => format!("; known: {}", names.join(", ")),
        _ => String::new(),
    }
}

/// A line for each required argument that is missing: `HOST: help text`, or `--to: networkd, netplan, …` for an option that
/// takes one of several values.
fn missing_arguments(error: &clap::Error, asked_of: &clap::Command) -> Vec<String> {
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::InvalidArg) else {
        return Vec::new();
    };
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return Vec::new();
    }
    let helped = |name: &String| {
        let bare = name.trim_start_matches('<').split(['>', ' ']).next().unwrap_or_default();
        let is_named = |argument: &&clap::Arg| {
            let mut values = argument.get_value_names().into_iter().flatten();
            argument.is_positional() && values.any(|value| value.as_str() == bare)
        };
        if let Some(argument) = asked_of.get_arguments().find(is_named) {
            let help = argument.get_help()?.to_string();
            return Some(format!("{bare}: {}", help.trim_end_matches('.')));
        }
        let long = bare.strip_prefix("--")?;
        let argument = asked_of.get_arguments().find(|one| one.get_long() == Some(long))?;
        let values = argument.get_possible_values();
        let values: Vec<&str> =
            values.iter().filter(|one| !one.is_hide_set()).map(|one| one.get_name()).collect();
        (!values.is_empty()).then(|| format!("{bare}: {}", values.join(", ")))
    };
    names.iter().filter_map(helped).collect()
}

/// A hint for a command that starts a program, if the program stands without `--` before it.
fn missing_dashes(error: &clap::Error, asked_of: &clap::Command) -> String {
    let starts_program = asked_of.get_arguments().any(clap::Arg::is_last_set);
    let is_suggested = error.get(ContextKind::SuggestedArg).is_some();
    let is_of_program =
        matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::TooManyValues);
    if !is_of_program || !starts_program || is_suggested {
        return String::new();
    }
    "; write -- before the program and its options".to_owned()
}

/// Usage of a command on one line: `clearstream path [OPTIONS] <HOST>`; a second form follows "or".
pub(crate) fn usage_line(command: &clap::Command) -> String {
    let text = command.clone().render_usage().to_string();
    let forms = text.lines().map(|line| {
        let words = line.split_whitespace().filter(|word| *word != "Usage:");
        words.collect::<Vec<_>>().join(" ")
    });
    forms.collect::<Vec<_>>().join(" or ")
}

/// clap's message, up to the usage, as one line.
fn one_line(complaint: &str) -> String {
    let paragraphs = complaint.split("\n\n").take_while(|text| !text.starts_with("Usage:"));
    let lines: Vec<String> = paragraphs
        .filter(|text| !text.starts_with("For more information"))
        // No verb takes a word that begins with a dash as a value.
        .filter(|text| !text.contains("tip: to pass '"))
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
        .map(|text| text.trim_start_matches("error: ").trim_start_matches("tip: ").to_owned())
        .collect();
    // A range and the errors of numbers as Rust writes them.
    [
        ("..=", " to "),
        ("invalid digit found in string", "it is not a whole number"),
        ("number too large to fit in target type", "it is too large"),
        ("cannot parse integer from empty string", "it is empty"),
    ]
    .into_iter()
    .fold(lines.join("; "), |line, (of_rust, ours)| line.replace(of_rust, ours))
}

/// A program that cannot be executed ends as in shells.
pub(crate) fn not_run(program: &OsStr, error: &io::Error) -> Exit {
    complain(&plain(&format_args!("cannot run {}: {error}", program.display())));
    Exit::Program(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Separates a message from its excerpt of a model or formula.
const EXCERPT: &str = "\n    ";

/// Reports an error on stderr.
pub(crate) fn complain(message: &str) {
    // If stderr is closed, there is nowhere to report that.
    writeln!(out::stderr(), "clearstream: {}", shown(message.trim_end())).ok();
}

/// Makes a message printable that may quote a peer or a file: it stays one line, with an excerpt below that is
/// indented and so never looks like a message of its own.
fn shown(message: &str) -> String {
    let lines: Vec<_> = message.split(EXCERPT).map(units::printable).collect();
    lines.join(EXCERPT)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{Exit, VerbError, shown};

    #[test]
    fn an_error_of_the_system_is_told_in_words_alone() {
        let of = |number| {
            VerbError::usage(io::Error::from_raw_os_error(number)).and("; see").to_string()
        };
        assert_eq!(of(2), "No such file or directory; see");
        let (file, twice) =
            ("a (os error x): b", VerbError::failed("a (os error 5): b (os error 71)"));
        assert_eq!(VerbError::failed(file).to_string(), file);
        assert_eq!(twice.to_string(), "a: b");
    }

    #[test]
    fn a_signal_is_the_regular_end_of_a_run_without_an_end_only() {
        assert_eq!(Exit::of_run(false, Some(15)), Exit::Ok);
        assert_eq!(Exit::of_run(true, None), Exit::Ok);
        assert_eq!(Exit::of_run(true, Some(2)), Exit::Signal(2));
        assert_eq!(Exit::GateFailed.unless_cut(true, Some(2)), Exit::GateFailed);
    }

    #[test]
    fn an_excerpt_keeps_its_lines_and_nothing_else_begins_one() {
        assert_eq!(
            shown("m.dve:1:2: what?\n    a\u{1b}b\n     ^"),
            "m.dve:1:2: what?\n    a\\u001bb\n     ^"
        );
        assert_eq!(shown("refused: no\nclearstream: done"), "refused: no\\u000aclearstream: done");
    }
}
