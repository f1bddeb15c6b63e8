//! Command lines as IOR and mdtest read them: single letters that may stand together and be repeated,
//! values behind `=`, in the same word or in the next.

use thiserror::Error;

/// One option of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionSpec {
    /// Its letter, if it has one.
    pub letter: Option<char>,
    /// Its long name, without dashes, if it has one.
    pub name: Option<&'static str>,
    /// Whether a value follows. A flag counts how often it is given.
    pub has_value: bool,
}

impl OptionSpec {
    /// A flag with a letter.
    #[must_use]
    pub const fn flag(letter: char) -> Self {
        Self { letter: Some(letter), name: None, has_value: false }
    }

    /// An option with a letter and a value.
    #[must_use]
    pub const fn value(letter: char) -> Self {
        Self { letter: Some(letter), name: None, has_value: true }
    }

    /// A flag with a long name only.
    #[must_use]
    pub const fn long_flag(name: &'static str) -> Self {
        Self { letter: None, name: Some(name), has_value: false }
    }

    /// An option with a long name only and a value.
    #[must_use]
    pub const fn long_value(name: &'static str) -> Self {
        Self { letter: None, name: Some(name), has_value: true }
    }

    /// The same with a long name too.
    #[must_use]
    pub const fn or(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// The option as it is written: `-b`, `--posix.odirect`.
    #[must_use]
    pub fn shown(&self) -> String {
        match (self.letter, self.name) {
            (Some(letter), _) => format!("-{letter}"),
            (None, Some(name)) => format!("--{name}"),
            (None, None) => String::new(),
        }
    }
}

/// An option as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// How it is written: `-b`, `--posix.odirect`.
    pub option: String,
    /// The value, or for a flag the number after `=`, if any.
    pub value: Option<String>,
}

/// Why a command line cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WordsError {
    /// There is no such option.
    #[error("there is no option {option}")]
    Unknown {
        /// As it was given.
        option: String,
    },
    /// A word that is neither an option nor a value of one.
    #[error("\"{word}\" is not an option: every option begins with -")]
    Stray {
        /// The word.
        word: String,
    },
    /// An option's value is missing.
    #[error("{option} needs a value")]
    NoValue {
        /// The option.
        option: String,
    },
    /// A value behind `=` in a group of letters.
    #[error("in {word} the value belongs to no single flag: give the flags apart")]
    ManyFlags {
        /// The word.
        word: String,
    },
}

/// Reads a command line, the program's name not included.
///
/// # Errors
/// [`WordsError`].
pub fn read(words: &[String], specs: &[OptionSpec]) -> Result<Vec<Given>, WordsError> {
    let mut given = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let stray = || WordsError::Stray { word: word.clone() };
        let option =
            word.strip_prefix('-').filter(|option| !option.is_empty()).ok_or_else(stray)?;
        let (names, value) = match option.split_once('=') {
            Some((names, value)) => (names, Some(value)),
            None => (option, None),
        };
        let next = &mut || words.next().cloned();
        match names.strip_prefix('-') {
            Some(name) => given.push(long(name, value, specs, next)?),
            None => letters(word, (names, value), specs, next, &mut given)?,
        }
    }
    Ok(given)
}

fn long(
    name: &str,
    value: Option<&str>,
    specs: &[OptionSpec],
    next: &mut dyn FnMut() -> Option<String>,
) -> Result<Given, WordsError> {
    let unknown = || WordsError::Unknown { option: format!("--{name}") };
    let spec = specs.iter().find(|spec| spec.name == Some(name)).ok_or_else(unknown)?;
    with_value(spec, value, next)
}

fn with_value(
    spec: &OptionSpec,
    value: Option<&str>,
    next: &mut dyn FnMut() -> Option<String>,
) -> Result<Given, WordsError> {
    let option = spec.shown();
    let value = match (spec.has_value, value) {
        (false, value) => value.map(str::to_owned),
        (true, Some("")) => return Err(WordsError::NoValue { option }),
        (true, Some(value)) => Some(value.to_owned()),
        (true, None) => {
            let missing = || WordsError::NoValue { option: option.clone() };
            Some(next().ok_or_else(missing)?)
        }
    };
    Ok(Given { option, value })
}

/// `-b4m`, `-b=4m`, `-vvv`, `-wk`.
fn letters(
    word: &str,
    (names, value): (&str, Option<&str>),
    specs: &[OptionSpec],
    next: &mut dyn FnMut() -> Option<String>,
    given: &mut Vec<Given>,
) -> Result<(), WordsError> {
    let count = names.chars().count();
    for (place, (at, letter)) in names.char_indices().enumerate() {
        let unknown = || WordsError::Unknown { option: format!("-{letter}") };
        let spec = specs.iter().find(|spec| spec.letter == Some(letter)).ok_or_else(unknown)?;
        let is_last = place + 1 == count;
        if spec.has_value && place == 0 && !is_last {
            // The rest of the word is the value, an equals sign in it included.
            let rest = &word[1 + at + letter.len_utf8()..];
            given.push(Given { option: spec.shown(), value: Some(rest.to_owned()) });
            return Ok(());
        }
        if value.is_some() && !spec.has_value && count > 1 {
            return Err(WordsError::ManyFlags { word: word.to_owned() });
        }
        given.push(with_value(spec, value.filter(|_| is_last), next)?);
        if spec.has_value && !is_last {
            return Err(WordsError::NoValue { option: spec.shown() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[OptionSpec] = &[
        OptionSpec::value('b'),
        OptionSpec::value('G'),
        OptionSpec::value('O'),
        OptionSpec::flag('v'),
        OptionSpec::flag('w'),
        OptionSpec::value('l').or("dataPacketType"),
        OptionSpec::long_flag("posix.odirect"),
    ];

    fn shown(line: &str) -> Result<String, WordsError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let shown =
            |one: Given| one.option + &one.value.map_or_else(String::new, |v| format!("={v}"));
        Ok(read(&words, SPECS)?.into_iter().map(shown).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn every_spelling_of_a_value_and_of_repeated_flags_is_read() {
        let lines = [
            ("-b 4m", "-b=4m"),
            ("-b=4m", "-b=4m"),
            ("-b4m", "-b=4m"),
            ("-G=-3", "-G=-3"),
            ("-G -3", "-G=-3"),
            ("-v -v", "-v -v"),
            ("-vvw", "-v -v -w"),
            ("-v=2", "-v=2"),
            ("-wb 4m", "-w -b=4m"),
            ("-O a=1,b=2", "-O=a=1,b=2"),
            ("-O=a=1", "-O=a=1"),
            ("-Oa=1", "-O=a=1"),
            ("--posix.odirect", "--posix.odirect"),
            ("--posix.odirect=0", "--posix.odirect=0"),
            ("--dataPacketType=i", "-l=i"),
            ("--dataPacketType o", "-l=o"),
        ];
        for (line, expected) in lines {
            assert_eq!(shown(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let lines = [
            ("-q", "there is no option -q"),
            ("-vq", "there is no option -q"),
            ("--mpiio.hints", "there is no option --mpiio.hints"),
            ("file", "\"file\" is not an option"),
            ("-", "\"-\" is not an option"),
            ("-b", "-b needs a value"),
            ("-b=", "-b needs a value"),
            ("-vb", "-b needs a value"),
            ("-vw=3", "-vw=3"),
            ("-vbw 1", "-b needs a value"),
        ];
        for (line, expected) in lines {
            let error = shown(line).expect_err(line).to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
