//! Progress on stderr: one line that overwrites itself on a terminal; elsewhere, as in the log of a batch job, a line each
//! minute.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use units::show_seconds;

/// Time between two lines where they do not overwrite each other; a run that is over before has none.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// A progress line.
#[derive(Debug)]
pub(crate) struct Progress {
    on_terminal: bool,
    /// How long it had run when it last wrote to a log.
    logged_at: Duration,
    /// Steps begun, the current one included.
    done_count: usize,
    total_count: usize,
    /// Start of the first step.
    began: Option<Instant>,
}

impl Progress {
    /// Progress of `total_count` steps.
    pub(crate) fn new(total_count: usize) -> Self {
        let on_terminal = io::stderr().is_terminal();
        Self { on_terminal, logged_at: Duration::ZERO, done_count: 0, total_count, began: None }
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
        let elapsed = self.elapsed();
        // A log that nobody reads does not hold the run up.
        if !self.on_terminal && is_due(elapsed, self.logged_at) && crate::out::stderr_has_room() {
            self.logged_at = elapsed;
            writeln!(crate::out::stderr(), "clearstream: {}", self.line(what, elapsed)).ok();
        }
    }

    /// Updates the line within a step.
    pub(crate) fn show(&self, what: &str) {
        if self.on_terminal {
            let line = self.line(what, self.elapsed());
            let cut: String = line.chars().take(room_columns()).collect();
            // Informational: a closed stderr does not affect the result.
            crate::out::rewrite(&cut).ok();
        }
    }

    fn elapsed(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    fn line(&self, what: &str, elapsed: Duration) -> String {
        let left = left(elapsed, self.done_count.saturating_sub(1), self.total_count);
        let left = left.map_or_else(String::new, |left| {
            format!(", about {} left", show_seconds(left.as_secs_f64().round()))
        });
        match self.total_count {
            0 | 1 => what.to_owned(),
            total => format!("[{}/{total}{left}] {what}", self.done_count),
        }
    }
}

/// Whether a log gets a line now.
fn is_due(elapsed: Duration, logged_at: Duration) -> bool {
    elapsed.saturating_sub(logged_at) >= LOG_EVERY
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
        if self.on_terminal {
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

    #[test]
    fn a_log_has_a_line_a_minute_and_none_of_a_short_run() {
        let mut logged_at = Duration::ZERO;
        let mut lines = Vec::new();
        for at in (0..200).step_by(7).map(Duration::from_secs) {
            if is_due(at, logged_at) {
                logged_at = at;
                lines.push(at.as_secs());
            }
        }
        assert_eq!(lines, [63, 126, 189]);
    }
}
