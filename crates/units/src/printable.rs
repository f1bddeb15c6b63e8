//! Text from somebody else, made safe to show.
//!
//! A terminal obeys control characters, and bidirectional controls make text read otherwise than it
//! is. What a peer, a file or a device name says passes through here once, at the place where
//! messages leave the program.

use std::borrow::Cow;
use std::fmt::Write as _;

/// `text` for one line: what a terminal would obey is shown as JSON escapes it (`\u001b`), line ends
/// and tabs too.
///
/// ```
/// assert_eq!(units::printable("no \u{1b}[2Jroom\r\n"), "no \\u001b[2Jroom\\u000d\\u000a");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, commands)
}

/// As [`printable`], but line ends and tabs stay: for output of several lines. What stood in strings
/// of a JSON text is still that text's JSON.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| commands(character) && !matches!(character, '\n' | '\t'))
}

fn escaped(text: &str, is_command: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_command) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_command(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                write!(out, "\\u{unit:04x}").ok();
            }
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// Whether a character tells a terminal or a reader's eye something instead of being shown: C0, DEL,
/// C1, line and paragraph separators, bidirectional controls, tags, and the byte order mark.
fn commands(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_to_a_terminal_are_shown_and_all_else_stays() {
        for (text, shown) in [
            ("", ""),
            ("10 Gbit/s, µs, Größe, 速い", "10 Gbit/s, µs, Größe, 速い"),
            ("\u{1b}]0;x\u{7}", "\\u001b]0;x\\u0007"),
            ("a\rb\nc\td", "a\\u000db\\u000ac\\u0009d"),
            ("\u{9b}2J\u{7f}", "\\u009b2J\\u007f"),
            ("\u{202e}txt.exe\u{2066}", "\\u202etxt.exe\\u2066"),
            ("\u{e0041}", "\\udb40\\udc41"),
        ] {
            assert_eq!(printable(text), shown);
        }
        assert_eq!(printable_lines("a\tb\r\n\u{1b}c\n"), "a\tb\\u000d\n\\u001bc\n");
    }

    #[test]
    fn nothing_that_commands_is_left() {
        let all: String = ('\0'..=char::MAX).collect();
        assert!(!printable(&all).chars().any(commands));
        assert!(
            !printable_lines(&all).chars().any(|one| commands(one) && one != '\n' && one != '\t')
        );
    }
}
