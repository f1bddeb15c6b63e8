//! Words of a model.

use crate::diagnostic::{At, Diagnostic};

/// A word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'s> {
    /// A name or a keyword; the parser knows which where.
    Word(&'s str),
    /// A decimal number, wrapped into 32 bits as C's `atoi` does.
    Number(i32),
    /// Punctuation.
    Mark(&'static str),
    /// The end.
    End,
}

/// A word and where it begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'s> {
    pub(crate) token: Token<'s>,
    pub(crate) at: At,
}

/// Longest first, so that `<=` is not `<` and `=`.
const MARKS: [&str; 33] = [
    "->", "==", "!=", "<=", ">=", "<<", ">>", "&&", "||", "{", "}", "(", ")", "[", "]", ",", ";",
    ":", ".", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "?",
];

/// Splits a model into words; the last is [`Token::End`].
pub(crate) fn words(source: &str) -> Result<Vec<Placed<'_>>, Diagnostic> {
    let (mut words, mut rest, mut end) = (Vec::new(), source, At(0));
    loop {
        rest = skip_blank(source, rest)?;
        let at = place(source, rest);
        let Some(first) = rest.chars().next() else {
            // Where the text is cut off, not where the blanks behind it end.
            let at = if words.is_empty() { at } else { end };
            words.push(Placed { token: Token::End, at });
            return Ok(words);
        };
        let (token, length) = if first.is_ascii_alphabetic() || first == '_' {
            let length = span(rest, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '#'));
            (Token::Word(&rest[..length]), length)
        } else if first.is_ascii_digit() {
            let length = span(rest, |c| c.is_ascii_digit());
            let digits = rest[..length].bytes().map(|digit| i32::from(digit - b'0'));
            let number = digits.fold(0i32, |sum, digit| sum.wrapping_mul(10).wrapping_add(digit));
            (Token::Number(number), length)
        } else if let Some(mark) = MARKS.into_iter().find(|mark| rest.starts_with(mark)) {
            (Token::Mark(mark), mark.len())
        } else {
            return Err(Diagnostic::new(
                source,
                at,
                format!("unexpected character `{}`", first.escape_debug()),
            ));
        };
        words.push(Placed { token, at });
        rest = &rest[length..];
        end = place(source, rest);
    }
}

/// Skips blanks, comments and continued lines.
fn skip_blank<'s>(source: &'s str, mut rest: &'s str) -> Result<&'s str, Diagnostic> {
    loop {
        rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.find('\n').map_or("", |end| &comment[end..]);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment.find("*/").ok_or_else(|| {
                Diagnostic::new(source, place(source, rest), "this comment is not closed by `*/`")
            })?;
            rest = &comment[end + 2..];
        } else if let Some(next) = rest.strip_prefix("\\\n").or(rest.strip_prefix("\\\r\n")) {
            rest = next;
        } else {
            return Ok(rest);
        }
    }
}

fn span(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|letter| !belongs(letter)).unwrap_or(text.len())
}

fn place(source: &str, rest: &str) -> At {
    At(u32::try_from(source.len() - rest.len()).unwrap_or(u32::MAX))
}
