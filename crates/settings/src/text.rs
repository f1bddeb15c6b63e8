//! Text that came from elsewhere, made fit for one line of a message or a journal.

/// Untrusted text for a message: printable, and not long.
#[must_use]
pub fn shorten(text: &str) -> String {
    one_line(text, 60)
}

/// Text as one line of at most so many characters.
#[must_use]
pub fn one_line(text: &str, characters_max: usize) -> String {
    let clean = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let mut short: String = clean.take(characters_max).collect();
    if text.chars().nth(characters_max).is_some() {
        short.push('…');
    }
    short
}

/// Text of a stranger: one line of at most so many characters, printable ASCII only, so that it
/// cannot dress up a terminal, a page or a file.
#[must_use]
pub fn plain_line(text: &str, characters_max: usize) -> String {
    let plain = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    text.chars().take(characters_max).map(plain).collect()
}
