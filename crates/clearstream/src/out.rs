//! Where output leaves the program. What a peer, a results file or a device says may be part of any
//! line, so everything passes through [`Printable`], which shows what a terminal would obey; in the
//! strings of JSON it does so in JSON's own way. Only bytes that are no text ([`raw_stdout`]) go around it.

use std::io::{self, Write};

/// Standard output, for people and for JSON. A reader that has gone away (`| head -1`) is no error: what is
/// left of the output is discarded, and the verb ends as it would have, failed gates included.
pub(crate) fn stdout() -> Printable<io::StdoutLock<'static>> {
    Printable { inner: io::stdout().lock(), forgives_closed: true, begun: Vec::new() }
}

/// Standard output of a verb that prints until its reader goes away, which is then an error.
pub(crate) fn endless_stdout() -> Printable<io::StdoutLock<'static>> {
    Printable::new(io::stdout().lock())
}

/// Standard error, for people.
pub(crate) fn stderr() -> Printable<io::StderrLock<'static>> {
    Printable::new(io::stderr().lock())
}

/// Standard output for bytes that are no text: captures.
pub(crate) fn raw_stdout() -> io::StdoutLock<'static> {
    io::stdout().lock()
}

/// Writes a line over the one before it, on a terminal's standard error.
pub(crate) fn rewrite(line: &str) -> io::Result<()> {
    write!(io::stderr(), "\r\x1b[K{}", units::printable(line))
}

/// A writer of text whose control characters are shown instead of written; line ends and tabs stay.
/// What is not UTF-8 is replaced.
#[derive(Debug)]
pub(crate) struct Printable<W: Write> {
    inner: W,
    /// Whether a reader that has gone away is no error.
    forgives_closed: bool,
    /// The beginning of a character whose rest has not come.
    begun: Vec<u8>,
}

impl<W: Write> Printable<W> {
    fn new(inner: W) -> Self {
        Self { inner, forgives_closed: false, begun: Vec::new() }
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let joined;
        let bytes = if self.begun.is_empty() {
            bytes
        } else {
            joined = [std::mem::take(&mut self.begun).as_slice(), bytes].concat();
            joined.as_slice()
        };
        let (whole, rest) = match std::str::from_utf8(bytes) {
            Err(error) if error.error_len().is_none() => bytes.split_at(error.valid_up_to()),
            _ => (bytes, &[][..]),
        };
        self.begun.extend_from_slice(rest);
        let text = String::from_utf8_lossy(whole);
        let written = self.inner.write_all(units::printable_lines(&text).as_bytes());
        self.forgiven(written)
    }

    fn forgiven(&self, done: io::Result<()>) -> io::Result<()> {
        match done {
            Err(error) if self.forgives_closed && error.kind() == io::ErrorKind::BrokenPipe => {
                Ok(())
            }
            other => other,
        }
    }
}

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.inner.flush();
        self.forgiven(flushed)
    }
}

impl<W: Write> Drop for Printable<W> {
    fn drop(&mut self) {
        if !self.begun.is_empty() {
            // A character cut off at the end; nobody is left to tell of a failure.
            self.inner.write_all("\u{fffd}".as_bytes()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(pieces: &[&[u8]]) -> String {
        let mut bytes = Vec::new();
        let mut out = Printable::new(&mut bytes);
        for piece in pieces {
            out.write_all(piece).expect("memory");
        }
        drop(out);
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn text_stays_and_commands_are_shown_however_it_is_cut() {
        let text = "µ\t\u{9b}2J\n\u{202e}ok\u{1b}";
        let shown = "µ\t\\u009b2J\n\\u202eok\\u001b";
        for cut in 0..=text.len() {
            let (front, back) = text.as_bytes().split_at(cut);
            assert_eq!(through(&[front, back]), shown, "cut at {cut}");
        }
        assert_eq!(through(&[b"a\xffb\xc2"]), "a\u{fffd}b\u{fffd}");
    }

    /// A pipe whose reader has gone away.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_reader_that_has_gone_ends_only_endless_output() {
        let mut finite = Printable { inner: Closed, forgives_closed: true, begun: Vec::new() };
        finite.write_all(b"a line\n").expect("discarded");
        finite.flush().expect("discarded");
        let mut endless = Printable::new(Closed);
        let refused = endless.write_all(b"a line\n").expect_err("nobody reads");
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        // Written at once, so that dropping them has nothing left to write.
        assert!(finite.begun.is_empty() && endless.begun.is_empty());
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({ "a": "\u{1b}\u{9b}\u{202e}\u{e0001}\r" });
        let shown = through(&[value.to_string().as_bytes()]);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), value);
        assert!(!shown.chars().any(char::is_control) && !shown.contains('\u{202e}'), "{shown}");
    }
}
