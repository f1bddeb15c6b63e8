//! What is going on, on stderr, for somebody who waits: one line that rewrites itself on a
//! terminal, and nothing at all where stderr is not one.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use units::show_seconds;

/// A line of progress.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    /// Steps that began, the one under way included.
    done_count: usize,
    total_count: usize,
    /// When the first step began.
    began: Option<Instant>,
}

impl Progress {
    /// For `total_count` steps.
    pub(crate) fn new(total_count: usize) -> Self {
        Self { shown: io::stderr().is_terminal(), done_count: 0, total_count, began: None }
    }

    /// More steps than first thought.
    pub(crate) fn extend(&mut self, more_count: usize) {
        self.total_count += more_count;
    }

    /// A step begins.
    pub(crate) fn begin(&mut self, what: &str) {
        self.done_count += 1;
        self.began.get_or_insert_with(Instant::now);
        self.show(what);
    }

    /// The step goes on.
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
            // Progress is a courtesy; a closed stderr takes nothing from the result.
            crate::out::rewrite(&cut).ok();
        }
    }
}

/// How long the steps that are left will take if they take as long as those that ended; unknown
/// before the first one ended.
fn left(elapsed: Duration, ended_count: usize, total_count: usize) -> Option<Duration> {
    let each = elapsed.checked_div(u32::try_from(ended_count).ok()?)?;
    let all = each.saturating_mul(u32::try_from(total_count).unwrap_or(u32::MAX));
    Some(all.saturating_sub(elapsed))
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
