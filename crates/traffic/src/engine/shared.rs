//! State shared by the threads of one end: the clock, the phase of the test, the counters.

use std::os::fd::OwnedFd;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Instant;

use results::{End, Protocol, TestLimit, TestSpec};
use sys::SyscallError;
use sys::memory::Block;

use super::{StreamRole, tcp_send};

/// The phases of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Bytes do not count yet.
    Omitted,
    /// Bytes count.
    Measured,
    /// The test is over: threads terminate.
    Over,
}

/// The counters of one stream's thread. The thread is the only writer and the sampler the only
/// reader, so plain loads and stores suffice, and [`Counters::update`] for those that must agree; each stream has its own
/// cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) bytes: AtomicU64,
    pub(super) datagrams: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) reordered: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) send_failures: AtomicU64,
    pub(super) joined_batches: AtomicU64,
    /// Datagrams in the fullest message that a receiver saw.
    pub(super) segments_max: AtomicU64,
    pub(super) zero_copy_asked_bytes: AtomicU64,
    pub(super) zero_copied_bytes: AtomicU64,
    pub(super) idle_ns: AtomicU64,
    /// Jitter in seconds, as the bits of an `f64`.
    pub(super) jitter_bits: AtomicU64,
    /// What a UDP receiver's `StandingDelay` has seen.
    pub(super) delay_windows: AtomicU64,
    pub(super) delay_sum_ns: AtomicI64,
    pub(super) delay_least_ns: AtomicI64,
    /// Time of the last byte on the end's clock; recorded only if the limit is not a duration.
    pub(super) last_byte_ns: AtomicU64,
    /// Bytes counted before the measured time, recorded by the thread itself so that limits in
    /// bytes are exact.
    pub(super) bytes_before: AtomicU64,
    /// Core on which the thread was last seen, plus one; 0 before it ran.
    pub(super) core_plus_1: AtomicU32,
    /// Odd while the thread writes counters that must agree with each other.
    updates: AtomicU64,
}

impl Counters {
    /// Writes counters that must agree with each other. To be called only by the thread that they belong to.
    pub(super) fn update(&self, write: impl FnOnce()) {
        let begun = self.updates.load(Ordering::Relaxed).wrapping_add(1);
        self.updates.store(begun, Ordering::Relaxed);
        // Who sees any of what is written then sees that it was begun.
        fence(Ordering::Release);
        write();
        self.updates.store(begun.wrapping_add(1), Ordering::Release);
    }

    /// Reads counters that agree with each other: what was read while they were written is read again.
    pub(super) fn agreeing<T>(&self, read: impl Fn() -> T) -> T {
        // The thread may have lost its core in the middle; one that never gets it back keeps nobody waiting.
        const TRIES_MAX: u32 = 10_000;
        for _ in 0..TRIES_MAX {
            let before = self.updates.load(Ordering::Acquire);
            let value = read();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.updates.load(Ordering::Relaxed) == before {
                return value;
            }
            std::thread::yield_now();
        }
        read()
    }
}

/// Adds to a counter that only the calling thread writes.
pub(super) fn add(counter: &AtomicU64, gain: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(gain), Ordering::Relaxed);
}

/// One stream, as its thread and the sampler see it.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) index: u32,
    pub(super) role: StreamRole,
    pub(super) protocol: Protocol,
    pub(super) socket: OwnedFd,
    /// Stored from the start: a socket forgets its addresses when its connection is reset.
    pub(super) local: String,
    pub(super) remote: String,
    pub(super) counters: Counters,
}

impl Stream {
    pub(super) fn sends_bulk(&self) -> bool {
        self.role == StreamRole::Send
    }

    /// Whether this stream is part of the report: a probe and its answers are not.
    pub(super) fn counts(&self, spec: &TestSpec) -> bool {
        match self.role {
            StreamRole::Send | StreamRole::Receive | StreamRole::Request => true,
            StreamRole::Respond => spec.request_response.is_some(),
            StreamRole::Probe => false,
        }
    }
}

/// One end of a running test.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) spec: TestSpec,
    pub(super) end: End,
    pub(super) udp_counters_64bit: bool,
    pub(super) streams: Vec<Stream>,
    /// Zero of the clock of all times in `_ns` here.
    epoch: Instant,
    /// The phase in the low two bits, the interval number above: a single word for threads to
    /// compare.
    signal: AtomicU64,
    /// What is left of a limit in bytes (TCP), datagrams (UDP) or transactions.
    pub(super) budget: Option<AtomicU64>,
    /// What receivers without an end of stream (UDP) still wait for.
    pub(super) awaited: Option<AtomicU64>,
    /// When the first byte arrived at any receiver; 0 before.
    first_byte_ns: AtomicU64,
    /// Running threads that count for the report; the test ends with the last of them.
    busy_threads: AtomicUsize,
    stop_asked: AtomicBool,
    sampler: OnceLock<Thread>,
    /// What TCP senders send; never written to. All senders share it, also those of other tests, so
    /// that it stays in the caches.
    pub(super) source: Option<Arc<Block>>,
}

impl Shared {
    pub(super) fn new(
        spec: TestSpec,
        end: End,
        udp_counters_64bit: bool,
        streams: Vec<Stream>,
    ) -> Result<Self, SyscallError> {
        let busy = streams.iter().filter(|stream| stream.counts(&spec)).count();
        let (budget, awaited) = (budget_of(&spec), budget_of(&spec));
        let phase = if spec.omit_s > 0.0 { Phase::Omitted } else { Phase::Measured };
        let source = tcp_send::source_of(&spec, &streams)?;
        Ok(Self {
            spec,
            end,
            udp_counters_64bit,
            streams,
            epoch: Instant::now(),
            signal: AtomicU64::new(phase as u64),
            budget: budget.map(AtomicU64::new),
            awaited: awaited.map(AtomicU64::new),
            first_byte_ns: AtomicU64::new(0),
            busy_threads: AtomicUsize::new(busy),
            stop_asked: AtomicBool::new(false),
            sampler: OnceLock::new(),
            source,
        })
    }

    /// Nanoseconds since the end was set up; never 0.
    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// The word that threads compare in their loops; it changes with the phase and with every
    /// interval.
    pub(super) fn signal(&self) -> u64 {
        self.signal.load(Ordering::Relaxed)
    }

    /// Announces a phase and, with it, a new interval. Called by one thread at a time: the sampler
    /// while it runs, the owner afterwards.
    pub(super) fn announce(&self, phase: Phase) {
        let interval = (self.signal() >> 2) + 1;
        self.signal.store(interval << 2 | phase as u64, Ordering::Release);
    }

    /// Number of streams of this end with this role.
    pub(super) fn role_count(&self, role: StreamRole) -> usize {
        self.streams.iter().filter(|stream| stream.role == role).count()
    }

    pub(super) fn phase_of(signal: u64) -> Phase {
        match signal & 3 {
            0 => Phase::Omitted,
            1 => Phase::Measured,
            _ => Phase::Over,
        }
    }

    pub(super) fn first_byte_ns(&self) -> Option<u64> {
        Some(self.first_byte_ns.load(Ordering::Acquire)).filter(|&ns| ns != 0)
    }

    /// Records a receiver's first byte; the earliest one starts the clock.
    pub(super) fn first_byte(&self) {
        let now_ns = self.now_ns();
        let first =
            self.first_byte_ns.compare_exchange(0, now_ns, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_ok() {
            self.wake_sampler();
        }
    }

    pub(super) fn ask_to_stop(&self) {
        self.stop_asked.store(true, Ordering::Release);
        self.wake_sampler();
    }

    pub(super) fn stop_is_asked(&self) -> bool {
        self.stop_asked.load(Ordering::Acquire)
    }

    pub(super) fn busy_threads(&self) -> usize {
        self.busy_threads.load(Ordering::Acquire)
    }

    pub(super) fn thread_ended(&self, stream: &Stream) {
        if stream.counts(&self.spec) {
            self.busy_threads.fetch_sub(1, Ordering::AcqRel);
            self.wake_sampler();
        }
    }

    /// Must be called by the sampler before anything else.
    pub(super) fn i_am_the_sampler(&self) {
        self.sampler.set(std::thread::current()).expect("an end has one sampler");
    }

    fn wake_sampler(&self) {
        if let Some(thread) = self.sampler.get() {
            thread.unpark();
        }
    }
}

/// The limit in the senders' units: bytes (TCP), datagrams (UDP) or transactions.
fn budget_of(spec: &TestSpec) -> Option<u64> {
    let per_datagram = spec.udp.as_ref().map(|udp| u64::from(udp.datagram_bytes.max(1)));
    let per_request =
        spec.request_response.as_ref().map(|pair| u64::from(pair.request_bytes.max(1)));
    let unit_bytes = per_request.or(per_datagram);
    match (spec.limit, unit_bytes) {
        (TestLimit::DurationS(_), _) => None,
        (TestLimit::TotalBytes(bytes), None) => Some(bytes),
        (TestLimit::TotalBytes(bytes), Some(unit_bytes)) => Some(bytes.div_ceil(unit_bytes)),
        (TestLimit::TotalBlocks(blocks), None) => {
            Some(blocks.saturating_mul(tcp_send::block_bytes(spec)))
        }
        (TestLimit::TotalBlocks(units), Some(_)) => Some(units),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two counters that are written together, no reader sees one without the other.
    #[test]
    fn counters_that_are_read_together_agree() {
        const WRITES_COUNT: u64 = 200_000;
        let counters = Counters::default();
        let pair = || {
            let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            (load(&counters.datagrams), load(&counters.bytes))
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=WRITES_COUNT {
                    counters.update(|| {
                        counters.datagrams.store(number, Ordering::Relaxed);
                        std::hint::black_box(number);
                        counters.bytes.store(number * 64, Ordering::Relaxed);
                    });
                }
            });
            loop {
                let (datagrams, bytes) = counters.agreeing(pair);
                assert_eq!(bytes, datagrams * 64);
                if datagrams == WRITES_COUNT {
                    break;
                }
            }
        });
    }
}
