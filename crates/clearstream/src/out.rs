//! All output of the program. Any line may quote a peer, a results file or a device, so text passes
//! through [`Printable`], which makes control characters visible; JSON strings use JSON's own escapes.
//! Only binary data ([`raw_stdout`]) bypasses it.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Columns of running text where standard output is no terminal, and at most where it is a wide one.
const COLUMNS_MAX: usize = 96;
/// Columns of running text on a terminal that is narrower than that, or says so.
const COLUMNS_MIN: usize = 40;

static COLUMNS: AtomicUsize = AtomicUsize::new(COLUMNS_MAX);
static TABLE_COLUMNS: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Wraps running text from now on at the width of the terminal that standard output is, if it is one.
pub(crate) fn fit_terminal() {
    if let Ok(size) = rustix::termios::tcgetwinsize(rustix::stdio::stdout()) {
        let terminal = usize::from(size.ws_col);
        COLUMNS.store(columns_on(terminal), Ordering::Relaxed);
        if terminal > 0 {
            TABLE_COLUMNS.store(terminal.max(COLUMNS_MIN), Ordering::Relaxed);
        }
    }
}

/// Columns of running text on a terminal of this width; 0: the terminal does not know it.
fn columns_on(terminal: usize) -> usize {
    if terminal == 0 { COLUMNS_MAX } else { terminal.clamp(COLUMNS_MIN, COLUMNS_MAX) }
}

/// Columns at which running text on standard output is wrapped: 40 to 96.
pub(crate) fn columns() -> usize {
    COLUMNS.load(Ordering::Relaxed)
}

/// Columns at which tables on standard output are folded: those of its terminal; no bound if it is none.
pub(crate) fn table_columns() -> usize {
    TABLE_COLUMNS.load(Ordering::Relaxed)
}

/// Standard output, for text and JSON. A reader that has gone away (`| head -1`) is no error: the rest of
/// the output is discarded, and the verb ends with the same exit code, that of failed gates included.
pub(crate) fn stdout() -> Printable<io::StdoutLock<'static>> {
    Printable { inner: io::stdout().lock(), forgives_closed: true, begun: Vec::new() }
}

/// Standard output of a verb that prints until its reader goes away; that is then an error.
pub(crate) fn endless_stdout() -> Printable<io::StdoutLock<'static>> {
    Printable::new(io::stdout().lock())
}

/// Standard error, for messages.
pub(crate) fn stderr() -> Printable<io::StderrLock<'static>> {
    Printable::new(io::stderr().lock())
}

/// Whether a line can be written at once: to a pipe that is not full, say. A full one's reader sleeps, or wants this
/// program to.
pub(crate) fn stderr_has_room() -> bool {
    let mut set = [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)];
    // What is closed or fails is found out by the write, at once.
    poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
}

/// Standard output for binary data: captures, and the output of programs in guests.
pub(crate) fn raw_stdout() -> io::StdoutLock<'static> {
    io::stdout().lock()
}

/// Standard output for what a program on another machine writes: unaltered, or made printable on a terminal.
pub(crate) fn foreign_stdout() -> Box<dyn Write> {
    if rustix::termios::isatty(rustix::stdio::stdout()) {
        Box::new(stdout())
    } else {
        Box::new(raw_stdout())
    }
}

/// Overwrites the current line on a terminal's standard error.
pub(crate) fn rewrite(line: &str) -> io::Result<()> {
    write!(io::stderr(), "\r\x1b[K{}", units::printable(line))
}

/// A writer of text that makes control characters visible; line ends and tabs stay.
/// Bytes that are not UTF-8 are replaced.
#[derive(Debug)]
pub(crate) struct Printable<W: Write> {
    inner: W,
    /// Whether a reader that has gone away is ignored.
    forgives_closed: bool,
    /// The first bytes of an incomplete character.
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
            // An incomplete character at the end; in a destructor there is nobody to report a failure to.
            self.inner.write_all("\u{fffd}".as_bytes()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_text_fits_its_terminal_and_stays_readable() {
        let cases = [(0, 96), (20, 40), (60, 60), (80, 80), (96, 96), (300, 96)];
        for (terminal, columns) in cases {
            assert_eq!(columns_on(terminal), columns, "on {terminal} columns");
        }
    }

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
