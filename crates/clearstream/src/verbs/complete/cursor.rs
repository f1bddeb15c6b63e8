//! Finds the argument that is being typed, by clap's definition of the command line.

use clap::{Arg, Command};

/// Where the cursor is in an unfinished command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// Names of the command and its actions: `lab`, `exec`.
    pub(super) command: Vec<String>,
    /// Id of the argument that is being typed.
    pub(super) argument: String,
    /// Bytes of the typed word in front of the argument's value: those of `--lab=`.
    pub(super) value_at: usize,
    /// Ids and values of the arguments before it.
    given: Vec<(String, String)>,
}

impl Cursor {
    /// The cursor behind the word `typed`, which follows the words `before`. `root` has been built.
    ///
    /// `None` where no argument with a value can stand: at an option's name, at a command's, after `--`.
    pub(super) fn find(root: &Command, before: &[&str], typed: &str) -> Option<Self> {
        let mut line = Line::new(root);
        for word in before {
            line.read(word)?;
        }
        let (argument, value_at) = line.argument(typed)?;
        Some(Self {
            argument: argument.get_id().to_string(),
            value_at,
            command: line.names,
            given: line.given,
        })
    }

    /// The first value of another argument.
    pub(super) fn value_of(&self, argument: &str) -> Option<&str> {
        self.values_of(argument).next()
    }

    /// The values of an argument, in their order.
    pub(super) fn values_of(&self, argument: &str) -> impl Iterator<Item = &str> {
        self.given.iter().filter(move |(id, _)| id == argument).map(|(_, value)| value.as_str())
    }
}

/// A command line as far as it has been read.
struct Line<'a> {
    command: &'a Command,
    names: Vec<String>,
    given: Vec<(String, String)>,
    positional_count: usize,
    /// An option whose value is the next word.
    open: Option<&'a Arg>,
}

impl<'a> Line<'a> {
    fn new(command: &'a Command) -> Self {
        Self { command, names: Vec::new(), given: Vec::new(), positional_count: 0, open: None }
    }

    /// Reads one complete word; `None` after `--`, which a program with its arguments follows.
    fn read(&mut self, word: &str) -> Option<()> {
        if let Some(option) = self.open.take().filter(|option| takes(option, word)) {
            self.give(option, word);
        } else if let Some(argument) = self.positional().filter(|one| one.is_trailing_var_arg_set())
        {
            self.give(argument, word);
        } else if word == "--" {
            return None;
        } else if let Some((option, value)) = self.option(word) {
            match value {
                Some(value) => self.give(option, value),
                None if !option.is_require_equals_set() => self.open = Some(option),
                None => {}
            }
        } else if is_option(word) {
            // A flag, or no option of this command.
        } else if let Some(action) = self.action(word) {
            self.names.push(action.get_name().to_owned());
            self.command = action;
        } else {
            if let Some(argument) = self.positional() {
                self.give(argument, word);
            }
            self.positional_count += 1;
        }
        Some(())
    }

    /// The argument whose value the word is, and where in the word the value starts.
    fn argument(&self, word: &str) -> Option<(&'a Arg, usize)> {
        if let Some(option) = self.open.filter(|option| takes(option, word)) {
            return Some((option, 0));
        }
        let trailing = self.positional().filter(|one| one.is_trailing_var_arg_set());
        if trailing.is_none() && is_option(word) {
            let (option, value) = self.option(word)?;
            return value.map(|value| (option, word.len() - value.len()));
        }
        self.positional().map(|argument| (argument, 0))
    }

    fn give(&mut self, argument: &Arg, value: &str) {
        self.given.push((argument.get_id().to_string(), value.to_owned()));
    }

    fn action(&self, word: &str) -> Option<&'a Command> {
        self.command.find_subcommand(word).filter(|_| self.positional_count == 0)
    }

    /// The option with a value that a word begins, and the value if the word has it too.
    fn option<'word>(&self, word: &'word str) -> Option<(&'a Arg, Option<&'word str>)> {
        let with_value = |named: &dyn Fn(&Arg) -> bool| {
            let mut options = self.command.get_arguments();
            options.find(|option| named(option)).filter(|one| one.get_action().takes_values())
        };
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let named = |option: &Arg| {
                let aliases = option.get_all_aliases().unwrap_or_default();
                option.get_long() == Some(name) || aliases.contains(&name)
            };
            return Some((with_value(&named)?, value));
        }
        let letters = word.strip_prefix('-')?;
        // Flags may come before the option in one word: `-4p 5201`.
        letters.char_indices().find_map(|(at, letter)| {
            let option = with_value(&|option| option.get_short() == Some(letter))?;
            let value = &letters[at + letter.len_utf8()..];
            Some((option, Some(value.trim_start_matches('=')).filter(|value| !value.is_empty())))
        })
    }

    /// The positional argument that comes next, without those that follow `--`.
    fn positional(&self) -> Option<&'a Arg> {
        let mut before_count = self.positional_count;
        for argument in self.command.get_positionals().filter(|one| !one.is_last_set()) {
            let count_max = argument.get_num_args().map_or(1, |range| range.max_values());
            if before_count < count_max {
                return Some(argument);
            }
            before_count -= count_max;
        }
        None
    }
}

fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// Whether the word after an option is its value: where the option needs none, another option is not.
fn takes(option: &Arg, word: &str) -> bool {
    let needs_value = option.get_num_args().is_none_or(|range| range.min_values() > 0);
    needs_value || !is_option(word)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::CommandLine;

    /// Command, argument and value's place, for a line whose last word is being typed.
    fn at(line: &str) -> Option<(String, String, usize)> {
        let mut root = CommandLine::command();
        root.build();
        let words: Vec<&str> = line.split(' ').collect();
        let (typed, before) = words.split_last()?;
        let cursor = Cursor::find(&root, before, typed)?;
        Some((cursor.command.join(" "), cursor.argument, cursor.value_at))
    }

    fn some(command: &str, argument: &str, value_at: usize) -> Option<(String, String, usize)> {
        Some((command.to_owned(), argument.to_owned(), value_at))
    }

    #[test]
    fn the_definition_says_which_argument_is_typed() {
        assert_eq!(at("test ge"), some("test", "host", 0));
        assert_eq!(at("--json test ge"), some("test", "host", 0));
        // Values of options before it are not taken for the host.
        assert_eq!(at("test -t 5 -w 1M --cores 0 "), some("test", "host", 0));
        assert_eq!(at("test -Rt 5 "), some("test", "host", 0));
        assert_eq!(at("test -t5 "), some("test", "host", 0));
        assert_eq!(at("test --rr "), some("test", "host", 0));
        assert_eq!(at("test geneva "), None);
        assert_eq!(at("test --no-d"), None);
        assert_eq!(at("lab exec --lab=ds"), some("lab exec", "lab", 6));
        assert_eq!(at("lab exec --lab dsl ne"), some("lab exec", "place", 0));
        assert_eq!(at("lab exec dsl ne"), some("lab exec", "place", 0));
        assert_eq!(at("lab exec dsl near "), None);
        assert_eq!(at("lab exec near -- l"), None);
        assert_eq!(at("port --socket /run/x del va"), some("port del", "name", 0));
        assert_eq!(at("io --threads 2 --la"), some("io", "options", 0));
        assert_eq!(at("la"), None);
    }

    #[test]
    fn an_option_whose_value_may_be_left_out_takes_no_option_for_it() {
        assert_eq!(at("check --example pe"), some("check", "example", 0));
        assert_eq!(at("check --example --pr"), None);
        assert_eq!(at("check --example peterson --print "), some("check", "model", 0));
    }

    #[test]
    fn values_before_the_cursor_are_known() {
        let mut root = CommandLine::command();
        root.build();
        let cursor = Cursor::find(&root, &["lab", "fail", "--lab=dsl", "near", "port"], "e");
        let cursor = cursor.expect("the port");
        assert_eq!(cursor.argument, "port");
        assert_eq!(cursor.value_of("lab"), Some("dsl"));
        assert_eq!(cursor.value_of("kind"), Some("port"));
    }
}
