//! Errors that point into the model's text.

use std::fmt;

use thiserror::Error;

/// A place in a model's text: byte offset from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct At(pub u32);

impl At {
    /// A byte offset; what does not fit into 32 bits becomes the greatest that does.
    pub(crate) fn of(offset: usize) -> Self {
        Self(u32::try_from(offset).unwrap_or(u32::MAX))
    }
}

/// Most errors that one reading of a model reports.
pub(crate) const ERRORS_MAX: usize = 20;

/// An error and its position. Displayed as `line:column: message`, the line, and a caret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct Diagnostic {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// The line's text.
    pub text: String,
}

/// Longest part of a line that is displayed, characters, and how many of them precede the caret.
const SHOWN_MAX: usize = 96;
const SHOWN_BEFORE: usize = 60;

impl Diagnostic {
    /// Computes line and column of a place in the text.
    #[must_use]
    pub fn new(source: &str, at: At, message: impl Into<String>) -> Self {
        let offset = (at.0 as usize).min(source.len());
        // A place inside a character belongs to its beginning.
        let offset = (0..=offset).rev().find(|&at| source.is_char_boundary(at)).unwrap_or(0);
        let (before, after) = source.split_at(offset);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let rest = after.find('\n').map_or(after, |end| &after[..end]);
        let count = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX - 1);
        let lines = before.bytes().filter(|&byte| byte == b'\n').count();
        Self {
            line: u32::try_from(lines).unwrap_or(u32::MAX - 1) + 1,
            column: count(&before[start..]) + 1,
            message: message.into(),
            text: format!("{}{}", &before[start..], rest.trim_end()),
        }
    }

    /// The byte offset in the source that it was made for.
    pub(crate) fn offset(&self, source: &str) -> usize {
        let start: usize =
            source.split_inclusive('\n').take(self.line as usize - 1).map(str::len).sum();
        let before = self.text.chars().take(self.column as usize - 1);
        start + before.map(char::len_utf8).sum::<usize>()
    }

    /// The line as it is displayed, at most [`SHOWN_MAX`] characters of it, and the characters in front of the
    /// caret. Control characters could be commands to a terminal and are replaced; tabs stay.
    fn excerpt(&self) -> (String, String) {
        let clean = |letter: char| {
            if letter.is_control() && letter != '\t' { char::REPLACEMENT_CHARACTER } else { letter }
        };
        let letters: Vec<char> = self.text.chars().map(clean).collect();
        let column = self.column as usize - 1;
        let (mut start, mut end) = (0, letters.len());
        if letters.len() > SHOWN_MAX {
            start = column.saturating_sub(SHOWN_BEFORE);
            end = (start + SHOWN_MAX).min(letters.len());
        }
        let (mut text, mut indent) = (String::new(), String::new());
        if start > 0 {
            text += "… ";
            indent += "  ";
        }
        text.extend(&letters[start..end]);
        if end < letters.len() {
            text += " …";
        }
        // Tabs in front of the caret stay tabs, so that it stands below its character.
        let before = letters.iter().take(column).skip(start);
        indent.extend(before.map(|&letter| if letter == '\t' { '\t' } else { ' ' }));
        (text, indent)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, message, .. } = self;
        let (text, indent) = self.excerpt();
        write!(out, "{line}:{column}: {message}\n    {text}\n    {indent}^")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The character above the caret.
    fn pointed_at(shown: &str) -> Option<char> {
        let mut lines = shown.lines().skip(1);
        let (text, caret) = (lines.next()?, lines.next()?);
        text.chars().nth(caret.chars().count() - 1)
    }

    #[test]
    fn caret_stands_below_its_character() {
        let long = format!("{}!{}", "x".repeat(500), "y".repeat(500));
        for source in ["ab!cd", "\tä\t!", "first\nsecond!\nthird", "\u{1b}[2J!", "!", &long] {
            let at = source.find('!').expect("a mark");
            let shown = Diagnostic::new(source, At::of(at), "wrong").to_string();
            assert_eq!(pointed_at(&shown), Some('!'), "{shown}");
            assert!(shown.lines().all(|line| line.chars().count() <= 4 + SHOWN_MAX + 4), "{shown}");
            assert!(!shown.contains('\u{1b}'), "{shown:?}");
        }
    }
}
