//! A rank of an MPI job that measures messages as the Intel MPI Benchmarks do: rank 0 tells how long they take.

use std::time::{Duration, Instant};

use mpi::{MpiError, World};
use serde::{Deserialize, Serialize};
use sys::perf::{CacheCounters, CacheCounts};

/// What rank 0 tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Time of a message (half a round trip, or its share of a window's) or of an exchange, seconds: median of the batches.
    pub(crate) median_s: f64,
    /// The same as a mean over all of them, as IMB tells it.
    pub(crate) mean_s: f64,
    /// Round trips, windows or exchanges that were timed.
    pub(crate) count: u64,
    /// Time measured, seconds.
    pub(crate) duration_s: f64,
    /// Cache accesses and misses meanwhile, if they were to be counted.
    pub(crate) misses: Option<Misses>,
}

/// Cache accesses and misses, all cores together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Misses {
    pub(crate) user_share: f64,
    pub(crate) kernel_share: f64,
    pub(crate) user_count: u64,
    pub(crate) kernel_count: u64,
}

/// Length of a batch, between two readings of the clock.
const BATCH: Duration = Duration::from_millis(2);
/// Time before those that count.
const WARM_UP: Duration = Duration::from_millis(200);
/// Most exchanges of a batch.
const BATCH_COUNT_MAX: u64 = 100_000;
const ORDER: i32 = 1;
const READY: i32 = 2;
const MESSAGE: i32 = 3;
/// Messages of [`Pattern::Stream`] under way at once, as the OSU benchmarks have it.
const WINDOW: usize = 64;

/// What the ranks do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Ranks 0 and 1 send a message back and forth.
    PingPong,
    /// Every rank sends a message to every rank.
    AllToAll,
    /// Rank 0 sends [`WINDOW`] messages at once to rank 1, which answers when it has all, with an empty one.
    Stream,
}

/// Measures messages of so many bytes for so long. Rank 0 gives orders and tells the result; the others follow.
///
/// # Errors
/// A call of MPI failed.
pub(crate) fn take_part(
    world: &mut World,
    pattern: Pattern,
    (bytes, time): (usize, Duration),
    counters: Option<&CacheCounters>,
) -> Result<Option<Told>, MpiError> {
    let parts = match pattern {
        Pattern::AllToAll => world.size(),
        Pattern::Stream => WINDOW,
        Pattern::PingPong => 1,
    };
    // Written once, so that no page is missing later.
    let mut buffers = Buffers { from: vec![1; bytes * parts], to: vec![2; bytes * parts] };
    if world.rank() > 0 {
        loop {
            let mut order = [0; 8];
            world.receive_now(0, ORDER, &mut order)?;
            world.send_now(0, READY, &[])?;
            match u64::from_le_bytes(order) {
                0 => return Ok(None),
                count => exchange(world, pattern, bytes, count, &mut buffers)?,
            }
        }
    }
    let mut count = 1;
    let mut batch = |world: &mut World, count: u64| -> Result<Duration, MpiError> {
        order(world, count)?;
        let began = Instant::now();
        exchange(world, pattern, bytes, count, &mut buffers)?;
        Ok(began.elapsed())
    };
    let began = Instant::now();
    while began.elapsed() < WARM_UP {
        let took = batch(world, count)?;
        count = next_count(count, took);
    }
    let read = || counters.and_then(|counters| counters.read().ok());
    let before = read();
    let (mut batches, mut all, mut busy) = (Vec::new(), 0, Duration::ZERO);
    let began = Instant::now();
    while began.elapsed() < time || batches.is_empty() {
        let took = batch(world, count)?;
        batches.push(took.as_secs_f64() / count as f64);
        (all, busy) = (all + count, busy + took);
        count = next_count(count, took);
    }
    let duration_s = began.elapsed().as_secs_f64();
    let misses = before.zip(read()).map(|(before, after)| Misses::of(after.since(before)));
    order(world, 0)?;
    let parts = match pattern {
        Pattern::PingPong => 2.0,
        Pattern::AllToAll => 1.0,
        Pattern::Stream => WINDOW as f64,
    };
    Ok(Some(Told {
        median_s: stats::median(&batches).unwrap_or(f64::NAN) / parts,
        mean_s: busy.as_secs_f64() / all as f64 / parts,
        count: all,
        duration_s,
        misses,
    }))
}

/// Tells every rank how many exchanges follow, and waits until all know it.
fn order(world: &mut World, count: u64) -> Result<(), MpiError> {
    for rank in 1..world.size() {
        world.send_now(rank, ORDER, &count.to_le_bytes())?;
    }
    for rank in 1..world.size() {
        world.receive_now(rank, READY, &mut [])?;
    }
    Ok(())
}

struct Buffers {
    from: Vec<u8>,
    to: Vec<u8>,
}

fn exchange(
    world: &mut World,
    pattern: Pattern,
    bytes: usize,
    count: u64,
    buffers: &mut Buffers,
) -> Result<(), MpiError> {
    let Buffers { from, to } = buffers;
    for _ in 0..count {
        match (pattern, world.rank()) {
            (Pattern::AllToAll, _) => world.all_to_all(bytes, from, to)?,
            (Pattern::PingPong, 0) => {
                world.send_now(1, MESSAGE, from)?;
                world.receive_now(1, MESSAGE, to)?;
            }
            (Pattern::PingPong, 1) => {
                world.receive_now(0, MESSAGE, to)?;
                world.send_now(0, MESSAGE, from)?;
            }
            (Pattern::Stream, 0) => {
                world.send_many(1, MESSAGE, bytes, from)?;
                world.receive_now(1, READY, &mut [])?;
            }
            (Pattern::Stream, 1) => {
                world.receive_many(0, MESSAGE, bytes, to)?;
                world.send_now(0, READY, &[])?;
            }
            (Pattern::PingPong | Pattern::Stream, _) => {}
        }
    }
    Ok(())
}

/// How many exchanges take about [`BATCH`], if so many took so long.
fn next_count(count: u64, took: Duration) -> u64 {
    let each_s = took.as_secs_f64().max(1e-9) / count.max(1) as f64;
    units::saturating_u64(BATCH.as_secs_f64() / each_s).clamp(1, BATCH_COUNT_MAX)
}

impl Misses {
    fn of(counts: CacheCounts) -> Self {
        let share = |misses: u64, accesses: u64| misses as f64 / accesses.max(1) as f64;
        Self {
            user_share: share(counts.user_misses_count, counts.user_accesses_count),
            kernel_share: share(counts.kernel_misses_count, counts.kernel_accesses_count),
            user_count: counts.user_misses_count,
            kernel_count: counts.kernel_misses_count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_take_as_long_as_they_should() {
        assert_eq!(next_count(1, Duration::from_micros(10)), 200);
        assert_eq!(next_count(200, Duration::from_millis(4)), 100);
        assert_eq!(next_count(1, Duration::from_secs(1)), 1);
        assert_eq!(next_count(1, Duration::ZERO), BATCH_COUNT_MAX);
    }

    #[test]
    fn shares_are_of_accesses() {
        let counts = CacheCounts {
            user_accesses_count: 100,
            user_misses_count: 25,
            kernel_accesses_count: 0,
            kernel_misses_count: 0,
        };
        let misses = Misses::of(counts);
        assert_eq!((misses.user_share, misses.kernel_share), (0.25, 0.0));
    }
}
