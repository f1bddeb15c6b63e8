//! Measures how fast this host copies memory, which bounds every copying send and receive.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use results::Machine;

/// Duration of the measurement.
const COPY_TIME: Duration = Duration::from_millis(400);
/// Smallest and largest buffer per thread, bytes: larger than caches, smaller than memory.
const BUFFER_BYTES: (u64, u64) = (8 << 20, 64 << 20);
/// Divisor of the memory: all buffers together take at most an eighth of it.
const MEMORY_SHARE: u64 = 8;

/// Bytes per second that all usable cores together copy from memory to memory; `None` if there is no
/// room for buffers larger than the caches.
pub(super) fn copy_bytes_per_s(machine: &Machine) -> Option<f64> {
    let threads = machine.cores.iter().filter(|core| core.is_usable).count().max(1);
    let bytes = buffer_bytes(machine, threads as u64)?;
    let start = Barrier::new(threads);
    let copied: u128 = thread::scope(|scope| {
        let work = || {
            let from = vec![1u8; bytes];
            let mut to = vec![0u8; bytes];
            start.wait();
            let began = Instant::now();
            let mut copied = 0u128;
            while began.elapsed() < COPY_TIME {
                to.copy_from_slice(black_box(&from));
                black_box(&mut to);
                copied += bytes as u128;
            }
            // Each thread's own rate, so that a late start of one does not lower the others'.
            (copied as f64 / began.elapsed().as_secs_f64()) as u128
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).sum()
    });
    Some(copied as f64).filter(|&rate| rate > 0.0)
}

/// Buffer size per thread, bytes: twice the total size of the last-level caches, divided by the threads.
fn buffer_bytes(machine: &Machine, threads: u64) -> Option<usize> {
    let last = machine.caches.iter().map(|cache| cache.level).max().unwrap_or(0);
    let caches = machine.caches.iter().filter(|cache| cache.level == last);
    let cached: u64 = caches.filter_map(|cache| cache.size_bytes).sum();
    let wanted = (cached * 2 / threads).clamp(BUFFER_BYTES.0, BUFFER_BYTES.1);
    let memory: u64 = machine.nodes.iter().filter_map(|node| node.memory_bytes).sum();
    // Half each for source and target; a host that does not report its memory gets the smallest buffers.
    let room = if memory == 0 { BUFFER_BYTES.0 } else { memory / MEMORY_SHARE / threads / 2 };
    usize::try_from(wanted.min(room)).ok().filter(|&bytes| bytes >= 1 << 20)
}
