//! Progress on stderr: one line that overwrites itself on a terminal, and nothing if stderr is
//! not a terminal.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use units::show_seconds;

/// A progress line.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    /// Steps begun, the current one included.
    done_count: usize,
    total_count: usize,
    /// Start of the first step.
    began: Option<Instant>,
}

impl Progress {
    /// Progress of `total_count` steps.
    pub(crate) fn new(total_count: usize) -> Self {
        Self { shown: io::stderr().is_terminal(), done_count: 0, total_count, began: None }
    }

    /// Adds steps to the total.
    pub(crate) fn extend(&mut self, more_count: usize) {
        self.total_count += more_count;
    }

    /// Begins a step named `what`.
    pub(crate) fn begin(&mut self, what: &str) {
        self.done_count += 1;
        self.began.get_or_insert_with(Instant::now);
        self.show(what);
    }

    /// Updates the line within a step.
    pub(crate) fn show(&self, what: &str) {
        if self.shown {
            let elapsed = self.began.map_or(Duration::ZERO, |began| began.elapsed());
            let left = left(elapsed, self.done_count.saturating_sub(1), self.total_count);
            let left = left.map_or_else(String::new, |left| {
                format!(", about {} left", show_seconds(left.as_secs_f64().round()))
            });
            let line = match self.total_count {
                0 | 1 => what.to_owned(),
                total => format!("[{}/{total}{left}] {what}", self.done_count),
            };
            let cut: String = line.chars().take(room_columns()).collect();
            // Informational: a closed stderr does not affect the result.
            crate::out::rewrite(&cut).ok();
        }
    }
}

/// Estimated time for the remaining steps, from the mean of those that ended; `None` before the first
/// one ended.
fn left(elapsed: Duration, ended_count: usize, total_count: usize) -> Option<Duration> {
    let each = elapsed.checked_div(u32::try_from(ended_count).ok()?)?;
    let all = each.saturating_mul(u32::try_from(total_count).unwrap_or(u32::MAX));
    Some(all.saturating_sub(elapsed))
}

/// Columns available to a line that overwrites itself; a line that wraps would stay. If the terminal
/// does not report its width, a conservative default.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_what_ended() {
        let seconds = Duration::from_secs;
        assert_eq!(left(seconds(10), 0, 6), None);
        assert_eq!(left(seconds(10), 2, 6), Some(seconds(20)));
        assert_eq!(left(seconds(70), 6, 6), Some(Duration::ZERO));
    }
}
