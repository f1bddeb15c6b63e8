//! Negative numbers as values of options. clap takes `-5` for an option that nobody knows; here the option before it
//! refuses it, as it refuses every other wrong value.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, Error};

/// Parses a command line.
///
/// # Errors
/// clap's, except that a negative number after an option that takes numbers is a wrong value of that option.
pub(crate) fn matches(command: &Command, arguments: &[OsString]) -> Result<ArgMatches, Error> {
    command.clone().try_get_matches_from(arguments).map_err(|error| {
        if !arguments.iter().any(|word| is_negative(&word.to_string_lossy())) {
            return error;
        }
        let refused = with_hyphens(command.clone()).try_get_matches_from(arguments).err();
        refused.filter(names_negative).unwrap_or(error)
    })
}

/// Whether the error is about a value that is a negative number.
fn names_negative(error: &Error) -> bool {
    let value = error.get(ContextKind::InvalidValue);
    error.kind() == ErrorKind::ValueValidation
        && matches!(value, Some(ContextValue::String(value)) if is_negative(value))
}

fn is_negative(word: &str) -> bool {
    let rest = word.strip_prefix('-').unwrap_or_default();
    rest.starts_with(|first: char| first.is_ascii_digit() || first == '.')
}

/// The same command, whose options take what follows them as their value, whatever it looks like.
fn with_hyphens(command: Command) -> Command {
    let command = command.mut_args(|one| {
        let takes_value = one.get_action().takes_values() && !one.is_positional();
        if takes_value { one.allow_hyphen_values(true) } else { one }
    });
    command.mut_subcommands(with_hyphens)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of which every option that takes a number takes one.
    const NUMBERS: [&str; 6] = ["5", "5ms", "5M", "5%", "100", "0"];

    fn refused(command: &Command, line: &[&str]) -> Option<Error> {
        let words: Vec<OsString> = ["clearstream"].iter().chain(line).map(OsString::from).collect();
        matches(command, &words).err()
    }

    /// Whether this value of the option is refused, whatever else the command line lacks.
    fn refuses(command: &Command, option: &str, value: &str) -> bool {
        let kind = refused(command, &[&format!("{option}={value}")]).map(|error| error.kind());
        matches!(kind, Some(ErrorKind::ValueValidation | ErrorKind::InvalidValue))
    }

    /// Calls `check` with each command and each spelling of its options that take a number.
    fn each_numeric(command: &Command, check: &mut impl FnMut(&Command, &str)) {
        // Each is parsed by itself: the whole command line takes a hundred times as long.
        for one in command.get_arguments().filter(|one| !one.is_positional()) {
            if !one.get_action().takes_values() || one.is_require_equals_set() {
                continue;
            }
            let long = one.get_long().map(|long| format!("--{long}"));
            let short = one.get_short().map(|short| format!("-{short}"));
            for option in long.into_iter().chain(short) {
                let takes_number = NUMBERS.iter().any(|value| !refuses(command, &option, value));
                if takes_number && refuses(command, &option, "x") {
                    check(command, &option);
                }
            }
        }
        for action in command.get_subcommands() {
            each_numeric(action, check);
        }
    }

    #[test]
    fn every_numeric_option_refuses_negative_numbers_as_its_value() {
        let mut count = 0;
        each_numeric(&crate::verbs::help::command(), &mut |command, option| {
            count += 1;
            for value in ["-5", "-0.5", "-5ms", "-5M", "-5%", "-6"] {
                let name = command.get_name();
                let error = refused(command, &[option, value])
                    .unwrap_or_else(|| panic!("{name} {option} {value} is taken"));
                let told = error.to_string();
                assert_eq!(error.kind(), ErrorKind::ValueValidation, "{name}: {told}");
                assert!(told.contains(&format!("invalid value '{value}' for '")), "{told}");
                assert!(!told.contains("not a number"), "{name}: {told}");
            }
        });
        assert!(count > 100, "{count} options take a number");
    }

    #[test]
    fn other_mistakes_are_called_what_they_are() {
        let whole = crate::verbs::help::command();
        for (line, kind) in [
            (&["test", "far", "-5"][..], ErrorKind::UnknownArgument),
            (&["test", "far", "-o", "-5"], ErrorKind::UnknownArgument),
            (&["test", "far", "-6", "-t"], ErrorKind::InvalidValue),
            (&["test", "far", "-6", "-t", "-u"], ErrorKind::InvalidValue),
        ] {
            let error = refused(&whole, line).expect("refused");
            assert_eq!(error.kind(), kind, "{line:?}: {error}");
        }
        assert!(refused(&whole, &["test", "far", "-6", "-t", "5"]).is_none());
    }
}
