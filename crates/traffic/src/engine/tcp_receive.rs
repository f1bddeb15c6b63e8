//! Bulk receivers over TCP.

use results::{ReceivePath, TestSpec};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use sys::SyscallError;
use sys::memory::Block;
use sys::zerocopy::ReceiveWindow;

use super::StreamRole;
use super::pace::Pace;
use super::shared::add;
use super::tempo::Tempo;
use super::worker::{Ending, Worker, is_pause};

/// Default bytes per `recv`.
const BLOCK_BYTES: u64 = 512 << 10;

/// How much may queue before the receiver is woken, in seconds of data: each wake-up costs a few
/// microseconds on the core that processes the segments, and that core limits a fast stream.
const LOW_WATER_TIME_S: f64 = 100e-6;

/// Below this amount, in bytes, any arrival wakes the receiver.
const LOW_WATER_BYTES_MIN: u64 = 32 << 10;

/// Upper bound on the amount that may queue, in bytes: half a block, so that one call reads it all.
const LOW_WATER_BYTES_MAX: u64 = 256 << 10;

/// Largest block, in bytes.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// A method of reading bytes from the socket.
trait Sink {
    /// Reads at most `bytes`; returns how many were read, 0 at the end of the stream.
    fn pull(&mut self, worker: &Worker<'_>, bytes: usize) -> Result<usize, Errno>;
}

/// Upper bound on the bytes per `recv` for this test.
pub(super) fn block_bytes(spec: &TestSpec) -> u64 {
    spec.block_bytes.unwrap_or(BLOCK_BYTES).clamp(1, BLOCK_BYTES_MAX)
}

pub(super) fn run(worker: &mut Worker<'_>) -> Ending {
    let spec = &worker.shared.spec;
    let path = spec.receive_path;
    let bytes = block_bytes(spec);
    worker.block_bytes = bytes;
    let pumped = match path {
        ReceivePath::Copy => Copied::new(bytes).map(|mut sink| pump(worker, &mut sink)),
        ReceivePath::Discard => Copied::new(bytes).map(|Copied { block, .. }| {
            pump(worker, &mut Copied { block, flags: RecvFlags::TRUNC })
        }),
        ReceivePath::Zerocopy => Mapped::new(worker, bytes).map(|mut sink| pump(worker, &mut sink)),
    };
    pumped.unwrap_or_else(Ending::Unable)
}

fn pump(worker: &mut Worker<'_>, sink: &mut impl Sink) -> Ending {
    let mut pace = worker.shared.spec.read_bits_per_s.map(Pace::new);
    let most = match &pace {
        Some(pace) => pace.portion_bytes(worker.block_bytes),
        None => worker.block_bytes,
    } as usize;
    let mut wakes = pace.is_none().then(Wakes::new);
    let mut any = false;
    while worker.goes_on() {
        if let Some(pace) = &mut pace
            && !pace.is_due(worker)
        {
            continue;
        }
        match sink.pull(worker, most) {
            Ok(0) => return Ending::Closed,
            Ok(bytes) => {
                if !any {
                    any = true;
                    worker.shared.first_byte();
                }
                worker.received(bytes as u64);
                if let Some(wakes) = &mut wakes {
                    wakes.came(worker, bytes as u64);
                }
                if let Some(pace) = &mut pace {
                    pace.took(bytes as u64);
                }
            }
            Err(error) if is_pause(error) => {}
            Err(error) => return Ending::Failed(error.into()),
        }
    }
    Ending::Over
}

/// Delays wake-ups until they are worth their cost (`SO_RCVLOWAT`). Acknowledgements and the window
/// are not delayed: see kernel `net/ipv4/tcp_input.c`, `__tcp_ack_snd_check`; and a window that
/// runs out wakes the receiver, see `tcp_epollin_ready`.
struct Wakes {
    tempo: Tempo,
    low_water_bytes: u64,
}

impl Wakes {
    fn new() -> Self {
        Self { tempo: Tempo::new(), low_water_bytes: 1 }
    }

    #[inline]
    fn came(&mut self, worker: &Worker<'_>, bytes: u64) {
        let rate = self.tempo.moved(bytes);
        if bytes < self.low_water_bytes {
            // Woken by the timeout or by a window that ran out: the path is no longer that fast.
            self.set(worker, 1);
        } else if let Some(bytes_per_s) = rate {
            self.adapt(worker, bytes_per_s);
        }
    }

    #[cold]
    fn adapt(&mut self, worker: &Worker<'_>, bytes_per_s: f64) {
        // The receivers share the core, so each may wait in proportion.
        let receivers_count = worker.shared.role_count(StreamRole::Receive) as f64;
        let worth = (bytes_per_s * receivers_count * LOW_WATER_TIME_S) as u64;
        // The window must never depend on waking the reader early enough. The kernel's buffer size
        // is twice the window.
        let buffer_bytes = sys::socket::receive_buffer_bytes(&worker.stream.socket).unwrap_or(0);
        let most = LOW_WATER_BYTES_MAX.min(worker.block_bytes / 2).min(buffer_bytes / 8);
        let worth = worth.min(most);
        let worth = if worth < LOW_WATER_BYTES_MIN { 1 } else { worth };
        if worth.abs_diff(self.low_water_bytes) > self.low_water_bytes / 4 {
            self.set(worker, worth);
        }
    }

    fn set(&mut self, worker: &Worker<'_>, bytes: u64) {
        self.low_water_bytes = bytes;
        // If the kernel refuses, the receiver is only woken more often.
        sys::socket::set_receive_low_water(&worker.stream.socket, bytes as u32).ok();
    }
}

/// `recv` into one warm block; with `MSG_TRUNC` the kernel drops the bytes instead.
struct Copied {
    block: Block,
    flags: RecvFlags,
}

impl Copied {
    fn new(bytes: u64) -> Result<Self, SyscallError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Self { block: Block::new(bytes)?, flags: RecvFlags::empty() })
    }
}

impl Sink for Copied {
    #[inline]
    fn pull(&mut self, worker: &Worker<'_>, bytes: usize) -> Result<usize, Errno> {
        let block = &mut self.block[..bytes];
        let (_stored, came) = rustix::net::recv(&worker.stream.socket, block, self.flags)?;
        Ok(came)
    }
}

/// `TCP_ZEROCOPY_RECEIVE`: full pages are mapped, the rest is copied.
struct Mapped {
    window: ReceiveWindow,
    copy: Copied,
}

/// Smallest window, in bytes: mapping has a cost per call, so a window holds more than a block.
const WINDOW_BYTES_MIN: u64 = 1 << 20;

impl Mapped {
    fn new(worker: &Worker<'_>, bytes: u64) -> Result<Self, SyscallError> {
        let window_bytes = bytes.max(WINDOW_BYTES_MIN).next_multiple_of(4096);
        let window_bytes = usize::try_from(window_bytes).unwrap_or(usize::MAX);
        let window = ReceiveWindow::new(&worker.stream.socket, window_bytes)?;
        Ok(Self { window, copy: Copied::new(bytes)? })
    }
}

impl Sink for Mapped {
    fn pull(&mut self, worker: &Worker<'_>, bytes: usize) -> Result<usize, Errno> {
        let socket = &worker.stream.socket;
        // Waits for data or the end of the stream.
        if rustix::net::recv(socket, &mut [0], RecvFlags::PEEK)?.1 == 0 {
            return Ok(0);
        }
        let counters = &worker.stream.counters;
        let mapped = match self.window.advance(socket) {
            Ok(mapped) => mapped,
            Err(error) => return Err(Errno::from_io_error(&error.source).unwrap_or(Errno::IO)),
        };
        let mut came = mapped.mapped_bytes;
        add(&counters.zero_copied_bytes, came as u64);
        if mapped.to_copy_bytes > 0 || came == 0 {
            let most = if came == 0 { bytes } else { bytes.min(mapped.to_copy_bytes) };
            came += self.copy.pull(worker, most)?;
        }
        add(&counters.zero_copy_asked_bytes, came as u64);
        Ok(came)
    }
}
