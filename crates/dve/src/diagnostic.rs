//! Errors that point into the model's text.

use std::fmt;

use thiserror::Error;

/// A place in a model's text: byte offset from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct At(pub u32);

/// What is wrong with a model, and where. Shown as `line:column: message`, the line, and a caret.
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

impl Diagnostic {
    /// Finds line and column of a place.
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

    /// The place in the source it was made for, bytes from its start.
    pub(crate) fn offset(&self, source: &str) -> usize {
        let start: usize =
            source.split_inclusive('\n').take(self.line as usize - 1).map(str::len).sum();
        let before = self.text.chars().take(self.column as usize - 1);
        start + before.map(char::len_utf8).sum::<usize>()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, message, text } = self;
        // Tabs before the caret stay tabs, so that it stands below its character.
        let indent: String = text
            .chars()
            .take(*column as usize - 1)
            .map(|letter| if letter == '\t' { '\t' } else { ' ' })
            .collect();
        write!(out, "{line}:{column}: {message}\n    {text}\n    {indent}^")
    }
}
