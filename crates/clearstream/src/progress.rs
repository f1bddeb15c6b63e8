//! What is going on, on stderr, for somebody who waits: one line that rewrites itself on a
//! terminal, and nothing at all where stderr is not one.

use std::io::{self, IsTerminal};

/// A line of progress.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    done_count: usize,
    total_count: usize,
}

impl Progress {
    /// For `total_count` steps.
    pub(crate) fn new(total_count: usize) -> Self {
        Self { shown: io::stderr().is_terminal(), done_count: 0, total_count }
    }

    /// More steps than first thought.
    pub(crate) fn extend(&mut self, more_count: usize) {
        self.total_count += more_count;
    }

    /// A step begins.
    pub(crate) fn begin(&mut self, what: &str) {
        self.done_count += 1;
        self.show(what);
    }

    /// The step goes on.
    pub(crate) fn show(&self, what: &str) {
        if self.shown {
            let line = format!("[{}/{}] {what}", self.done_count, self.total_count);
            let cut: String = line.chars().take(room_columns()).collect();
            // Progress is a courtesy; a closed stderr takes nothing from the result.
            crate::out::rewrite(&cut).ok();
        }
    }
}

/// Columns of a line that rewrites itself: one that the terminal wraps would stay. As little as a
/// line of text where the terminal does not say.
fn room_columns() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
    match usize::from(columns) {
        0 => 79,
        columns => columns.saturating_sub(1).min(100),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            crate::out::rewrite("").ok();
        }
    }
}
