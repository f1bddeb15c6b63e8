//! `clearstream help`: prints a command's help, as its own `--help` does, or the text of a topic.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory};
use serde_json::json;

use crate::exit::{Exit, VerbError, is_near};
use crate::topics::{self, Topic};
use crate::{CommandLine, VerbResult};

/// Options of `help`.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct HelpArgs {
    /// A command, with its subcommand if it has any; or a topic.
    #[arg(value_name = "COMMAND|TOPIC")]
    words: Vec<OsString>,
}

fn after_help() -> String {
    format!(
        "Examples:\n  clearstream help path\n  clearstream help tune apply\n  \
         clearstream help limits | less\n  clearstream help schema > results.schema.json\n\n{}",
        topics::list()
    )
}

/// Rewrites `help COMMAND` as `COMMAND --help`; any other command line is unchanged.
pub(crate) fn expanded(arguments: Vec<OsString>) -> Vec<OsString> {
    let asks = arguments.get(1).is_some_and(|verb| verb == "help");
    let has_flag = arguments.iter().skip(2).any(|word| word.to_string_lossy().starts_with('-'));
    if !asks || has_flag {
        return arguments;
    }
    let (program, words) = (arguments[..1].to_vec(), arguments[2..].to_vec());
    let is_topic = words.len() == 1 && is_topic(&words[0].to_string_lossy());
    if is_topic || unknown_word(&words).is_some() {
        return arguments;
    }
    [program, words, vec!["--help".into()]].concat()
}

/// Place of the first word that is neither a command nor an action of the command before it.
fn unknown_word(words: &[OsString]) -> Option<usize> {
    let mut command = CommandLine::command();
    for (at, word) in words.iter().enumerate() {
        match command.find_subcommand(word) {
            Some(found) => command = found.clone(),
            None => return Some(at),
        }
    }
    None
}

/// Prints a topic. A command arrives here only with an option among its words, which belongs to the
/// command itself; words that are neither command nor topic arrive here too.
pub(crate) fn run(args: &HelpArgs, json: bool) -> VerbResult {
    let words: Vec<_> = args.words.iter().map(|word| word.to_string_lossy()).collect();
    let mut out = crate::out::stdout();
    match &words[..] {
        [] if json => writeln!(out, "{}", list())?,
        [] => write!(out, "{}", command().render_help())?,
        [name] if name == topics::SCHEMA => {
            let schema = results::json_schema();
            serde_json::to_writer_pretty(&mut out, &schema).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        [name] if is_topic(name) => {
            let Some(topic) = Topic::named(name) else { return Ok(Exit::Ok) };
            let markdown = topic.markdown();
            if json {
                let topic =
                    json!({ "topic": topic.name, "about": topic.about, "markdown": markdown });
                writeln!(out, "{topic}")?;
            } else {
                write!(out, "{}", topics::plain(&topics::blocks(&markdown)))?;
            }
        }
        [word] if CommandLine::command().find_subcommand(&**word).is_none() => {
            let topics: Vec<&str> =
                topics::TOPICS.iter().map(|topic| topic.name).chain([topics::SCHEMA]).collect();
            return Err(VerbError::usage(format!(
                "no command or topic '{}'{}; topics: {}; `clearstream help` lists the commands",
                word.escape_debug(),
                similar_to(word),
                topics.join(", ")
            )));
        }
        _ => {
            let has_flag = words.iter().any(|word| word.starts_with('-'));
            let unknown = unknown_word(&args.words).filter(|at| *at > 0 && !has_flag);
            let line = match unknown {
                Some(at) => {
                    let (command, word) = (words[..at].join(" "), words[at].escape_debug());
                    format!(
                        "'{command}' has no action '{word}'; write: clearstream {command} --help"
                    )
                }
                None if is_topic(&words[0]) => {
                    format!("write: clearstream help {}", words[0].escape_debug())
                }
                None => {
                    let command = words.join(" ");
                    format!("the help of a command is text; write: clearstream {command} --help")
                }
            };
            return Err(VerbError::usage(line));
        }
    }
    Ok(Exit::Ok)
}

/// All commands and topics, each with the line that describes it.
fn list() -> serde_json::Value {
    let command = CommandLine::command();
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    let about = |one: &Command| one.get_about().map(ToString::to_string).unwrap_or_default();
    let commands: Vec<_> =
        shown.map(|one| json!({ "command": one.get_name(), "about": about(one) })).collect();
    let topic = |one: &Topic| json!({ "topic": one.name, "about": one.about });
    let topics: Vec<_> = topics::TOPICS.iter().map(topic).collect();
    json!({ "commands": commands, "topics": topics })
}

/// `; similar: 'path'`, or nothing where neither a command nor a topic is.
fn similar_to(word: &str) -> String {
    let topics = topics::TOPICS.iter().map(|topic| topic.name).chain([topics::SCHEMA]);
    let command = CommandLine::command().subcommands(topics.map(Command::new));
    let refused = command.clone().try_get_matches_from(["clearstream", word]).err();
    let similar = match refused.as_ref().and_then(|one| one.get(ContextKind::SuggestedSubcommand)) {
        Some(ContextValue::Strings(similar)) => similar.as_slice(),
        Some(ContextValue::String(similar)) => std::slice::from_ref(similar),
        _ => &[],
    };
    // The most similar comes last. Commands that the program calls itself with are none of a person's.
    let is_shown = |name: &&String| {
        is_near(word, name) && command.find_subcommand(name).is_some_and(|one| !one.is_hide_set())
    };
    let best = similar.iter().rev().find(is_shown);
    best.map(|name| format!("; similar: '{name}'")).unwrap_or_default()
}

fn is_topic(name: &str) -> bool {
    name == topics::SCHEMA || Topic::named(name).is_some()
}

/// The whole command line. Actions without a text of their own below their options have their verb's examples of them.
pub(crate) fn command() -> Command {
    with_examples(CommandLine::command(), "clearstream")
}

/// `words` are those that select the command.
fn with_examples(mut command: Command, words: &str) -> Command {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let names: Vec<String> =
        command.get_subcommands().map(|action| action.get_name().to_owned()).collect();
    for name in names {
        let words = format!("{words} {name}");
        let is_of_action = |line: &&str| {
            let rest = line.split_once(&words).map(|(_, rest)| rest);
            line.starts_with("  ")
                && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let examples: Vec<&str> = text.lines().filter(is_of_action).collect();
        command = command.mut_subcommand(&name, |action| {
            let has_text = action.get_after_help().is_some() || examples.is_empty();
            let action = match has_text {
                true => action,
                false => {
                    let title = if examples.len() == 1 { "Example" } else { "Examples" };
                    action.after_help(format!("{title}:\n{}", examples.join("\n")))
                }
            };
            with_examples(action, &words)
        });
    }
    command
}

/// The command or action that the words of a command line select.
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

    /// Width of the help if the terminal reports none; clap itself would break longer lines in the middle.
    const COLUMNS: usize = 100;

    fn check(command: &Command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines() {
            let columns = line.chars().count();
            assert!(columns <= COLUMNS, "{}: {columns} columns: {line}", command.get_name());
            // Who has installed the program need not have its repository.
            assert!(!line.contains("docs/"), "{}: {line}", command.get_name());
        }
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn what_follows_the_options_keeps_its_lines() {
        check(&command());
    }

    /// The first three have the help of other programs, the others take nothing that needs an example.
    const PLAIN: [&str; 5] = [
        "clearstream iperf3",
        "clearstream io",
        "clearstream meta",
        "clearstream gateway undrain",
        "clearstream gateway count",
    ];

    #[test]
    fn every_command_that_the_help_shows_has_an_example() {
        fn without(command: &Command, words: &str, found: &mut Vec<String>) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            if !text.lines().any(|line| line.starts_with("  ") && line.contains("clearstream")) {
                found.push(words.to_owned());
            }
            for action in command.get_subcommands().filter(|action| !action.is_hide_set()) {
                without(action, &format!("{words} {}", action.get_name()), found);
            }
        }
        let mut found = Vec::new();
        without(&command(), "clearstream", &mut found);
        found.retain(|words| !PLAIN.contains(&words.as_str()));
        assert!(found.is_empty(), "{found:#?}");
    }
}
