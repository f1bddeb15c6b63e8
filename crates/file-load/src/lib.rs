//! File-system load in the words of IOR and mdtest.
//!
//! Command lines, offsets, data, orders of tasks, reductions and texts are pure modules. An engine runs
//! them by the ranks of a job: each rank's work on a thread of its own ([`team`]), while the thread that
//! may call MPI carries messages, keeps the job alive and watches for a file system that hangs.

#![forbid(unsafe_code)]

pub mod c_random;
pub mod clock;
pub mod error;
pub mod io;
pub mod latency;
pub mod locks;
pub mod meta;
pub mod output;
pub mod pattern;
pub mod posix;
pub mod size;
pub mod team;
pub mod watch;
pub mod words;

mod messenger;

pub use error::LoadError;
pub use messenger::{Limits, Work, run_alone, run_rank, run_threads};
