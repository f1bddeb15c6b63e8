//! The memory's own pace: lines of 64 bytes from one core to another, and nothing else. One thread
//! writes each line whole, the other reads it whole; what a ring of frames can reach at most.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::comparison::Figures;
use crate::host::BenchError;

/// As many as a ring has slots, handed over as many at once as `pkt` does.
const LINES: usize = 1024;
const BATCH: usize = 256;

/// A line; the alignment is that of two, which processors fetch together.
#[repr(align(128))]
struct Cursor(AtomicU64);

#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; 8]);

struct Ring {
    lines: Vec<Line>,
    written: Cursor,
    read: Cursor,
    over: AtomicBool,
}

/// Lines a second.
pub(crate) fn run(length: Duration) -> Result<Figures, BenchError> {
    let ring = Ring {
        lines: (0..LINES).map(|_| Line::default()).collect(),
        written: Cursor(AtomicU64::new(0)),
        read: Cursor(AtomicU64::new(0)),
        over: AtomicBool::new(false),
    };
    let pinned = |core: u32| {
        sys::thread::pin_current(&[core])
            .map_err(|error| BenchError::Failed(format!("core {core}: {error}")))
    };
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| pinned(0).map(|()| ring.write()));
        let reading = scope.spawn(|| {
            let rate = pinned(1).map(|()| ring.read(length));
            ring.over.store(true, Ordering::Relaxed);
            rate
        });
        let rate = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Figures::from([("frames_per_s", rate)]))
    })
}

impl Ring {
    fn write(&self) {
        let mut next = 0;
        while !self.over.load(Ordering::Relaxed) {
            if next + BATCH as u64 > self.read.0.load(Ordering::Acquire) + LINES as u64 {
                spin_loop();
                continue;
            }
            for _ in 0..BATCH {
                let line = &self.lines[next as usize % LINES];
                line.0.iter().for_each(|word| word.store(next, Ordering::Relaxed));
                next += 1;
            }
            self.written.0.store(next, Ordering::Release);
        }
    }

    fn read(&self, length: Duration) -> f64 {
        let (mut next, mut sum, began) = (0, 0_u64, Instant::now());
        while began.elapsed() < length {
            let written = self.written.0.load(Ordering::Acquire);
            if written == next {
                spin_loop();
            }
            while next < written {
                let line = &self.lines[next as usize % LINES];
                let words = line.0.iter().map(|word| word.load(Ordering::Relaxed));
                sum = words.fold(sum, u64::wrapping_add);
                next += 1;
            }
            self.read.0.store(next, Ordering::Release);
        }
        black_box(sum);
        next as f64 / began.elapsed().as_secs_f64()
    }
}
