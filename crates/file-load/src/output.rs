//! What a test says while it runs. Rank 0 says it; the program decides where it goes.

use crate::io::summary::Measured;
use crate::meta::summary::Iteration;

/// Something that is said.
#[derive(Debug)]
pub enum Said<'a> {
    /// Text of the tables.
    Text(&'a str),
    /// A remark about the test, in one line.
    Warning(&'a str),
    /// A phase begins: every rank waits. Only said by a team that marks phases.
    PhaseBegins,
    /// It is over at every rank; its name as in `write` or `File creation`.
    PhaseEnds(&'static str),
    /// One access of one repetition of a test (its number) is done.
    Measured(usize, &'a Measured),
    /// An iteration (its number) of so many tasks is done.
    Iterated(u64, u32, &'a Iteration),
}

/// Takes what is said.
pub type Listener = Box<dyn FnMut(Said<'_>) + Send>;

/// A moment, seconds since 1970, as C's `ctime` writes it: `Sun Nov 22 20:35:47 2026`, local time.
#[must_use]
pub fn date(unix_s: i64) -> String {
    sys::local_time::local_time("%a %b %e %H:%M:%S %Y", unix_s)
}

/// A moment, seconds since 1970, as mdtest writes it: `11/22/2026 20:35:50`, local time.
#[must_use]
pub fn stamp(unix_s: i64) -> String {
    sys::local_time::local_time("%m/%d/%Y %H:%M:%S", unix_s)
}
