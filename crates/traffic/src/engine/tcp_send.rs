//! Bulk senders over TCP.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use results::{Protocol, SendPath, TestSpec};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use sys::SyscallError;
use sys::memory::Block;

use super::StreamRole;
use super::pace::Pace;
use super::shared::{Stream, add};
use super::tempo::Tempo;
use super::worker::{Ending, PATIENCE, Worker, is_pause};

/// Default bytes per `send`, the same as iperf's.
const BLOCK_BYTES: u64 = 128 << 10;

/// Default bytes per `send` on a fast path: fewer sleeps, and still within a core's second-level
/// cache.
const FAST_BLOCK_BYTES: u64 = 512 << 10;

/// A path is fast if all senders together move a [`FAST_BLOCK_BYTES`] block in less than this, in
/// seconds.
const FAST_BLOCK_TIME_S: f64 = 2e-3;

/// Largest block, in bytes; the kernel accepts less than 2 GiB in one call.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// The byte that is sent.
const FILL: u8 = 0x55;

/// How often a sender that has sent everything checks whether it has arrived.
const DRAIN_TURN: Duration = Duration::from_millis(1);

/// Bytes per `send` for this test, before adapting to a fast path.
pub(super) fn block_bytes(spec: &TestSpec) -> u64 {
    spec.block_bytes.unwrap_or(BLOCK_BYTES).clamp(1, BLOCK_BYTES_MAX)
}

/// A method of passing bytes to the socket.
trait Source {
    /// Sends at most `bytes`; returns how many were sent.
    fn push(&mut self, worker: &Worker<'_>, bytes: usize) -> Result<usize, Errno>;

    /// Accounts for the sends that the kernel has completed since the last call.
    fn settle(&mut self, _worker: &Worker<'_>) {}
}

pub(super) fn run(worker: &mut Worker<'_>) -> Ending {
    let path = worker.shared.spec.send_path;
    let bytes = block_bytes(&worker.shared.spec);
    worker.block_bytes = bytes;
    let carried = match path {
        SendPath::Copy => Ok(carry(worker, &mut Copied)),
        SendPath::Sendfile => Referenced::new(worker).map(|mut source| carry(worker, &mut source)),
        SendPath::Zerocopy => Zerocopy::new(worker).map(|mut source| carry(worker, &mut source)),
    };
    carried.unwrap_or_else(Ending::Unable)
}

fn carry(worker: &mut Worker<'_>, source: &mut impl Source) -> Ending {
    let ending = match pump(worker, source) {
        Ending::Spent => drain(worker),
        ending => ending,
    };
    source.settle(worker);
    ending
}

fn pump(worker: &mut Worker<'_>, source: &mut impl Source) -> Ending {
    let mut pace = worker.shared.spec.offered_bits_per_s.map(Pace::new);
    let mut most = match &pace {
        Some(pace) => pace.portion_bytes(worker.block_bytes),
        None => worker.block_bytes,
    };
    let mut tempo = Tempo::new();
    let senders_count = worker.shared.role_count(StreamRole::Send) as f64;
    let adapts = pace.is_none() && worker.shared.spec.block_bytes.is_none();
    while worker.goes_on() {
        if let Some(pace) = &mut pace
            && !pace.is_due(worker)
        {
            continue;
        }
        let allowed = worker.allowance(most);
        if allowed == 0 {
            return Ending::Spent;
        }
        match source.push(worker, allowed as usize) {
            Ok(sent) => {
                worker.sent(sent as u64);
                if let Some(pace) = &mut pace {
                    pace.took(sent as u64);
                }
                if adapts && let Some(bytes_per_s) = tempo.moved(sent as u64) {
                    let is_fast =
                        bytes_per_s * senders_count * FAST_BLOCK_TIME_S > FAST_BLOCK_BYTES as f64;
                    most = if is_fast { FAST_BLOCK_BYTES } else { BLOCK_BYTES };
                    worker.block_bytes = most;
                }
            }
            Err(error) if is_pause(error) => {}
            Err(error) => return Ending::Failed(error.into()),
        }
    }
    Ending::Over
}

/// Shuts down the sending side and waits until the other end has acknowledged everything.
fn drain(worker: &mut Worker<'_>) -> Ending {
    let socket = &worker.stream.socket;
    if let Err(error) = rustix::net::shutdown(socket, Shutdown::Write) {
        return Ending::Failed(error.into());
    }
    let mut progress = (u64::MAX, Instant::now());
    while worker.goes_on() {
        let queued_bytes = match sys::socket::send_queue_bytes(socket) {
            Ok(0) => return Ending::Spent,
            Ok(bytes) => bytes,
            Err(error) => return Ending::Failed(error.source),
        };
        if let Err(error) = rustix::net::sockopt::socket_error(socket).and_then(|state| state) {
            return Ending::Failed(error.into());
        }
        if queued_bytes != progress.0 {
            progress = (queued_bytes, Instant::now());
        } else if progress.1.elapsed() > worker.silence_max {
            return Ending::Silent(worker.silence_max);
        }
        std::thread::sleep(DRAIN_TURN);
    }
    Ending::Over
}

/// `send` of one warm block.
struct Copied;

impl Source for Copied {
    #[inline]
    fn push(&mut self, worker: &Worker<'_>, bytes: usize) -> Result<usize, Errno> {
        rustix::net::send(&worker.stream.socket, block(worker, bytes), SendFlags::NOSIGNAL)
    }
}

/// `sendfile` of a file in memory.
struct Referenced {
    file: File,
}

impl Referenced {
    fn new(worker: &Worker<'_>) -> Result<Self, SyscallError> {
        sys::zerocopy::block_broken_pipe_signal()?;
        let bytes = source_bytes(&worker.shared.spec);
        Ok(Self { file: sys::memory::file_in_memory(bytes, FILL)? })
    }
}

impl Source for Referenced {
    #[inline]
    fn push(&mut self, worker: &Worker<'_>, bytes: usize) -> Result<usize, Errno> {
        rustix::fs::sendfile(&worker.stream.socket, &self.file, Some(&mut 0), bytes)
    }
}

/// `MSG_ZEROCOPY` of one block. The block is never written to again, so the kernel may read it at
/// any later time.
struct Zerocopy {
    /// The size of each send whose completion has not been seen, oldest first, and the number of
    /// the oldest.
    pending: VecDeque<u64>,
    oldest: u32,
}

/// Completions are read as soon as this many sends await theirs.
const PENDING_COUNT: usize = 64;

impl Zerocopy {
    fn new(worker: &Worker<'_>) -> Result<Self, SyscallError> {
        sys::zerocopy::allow_zero_copy(&worker.stream.socket)?;
        Ok(Self { pending: VecDeque::new(), oldest: 0 })
    }

    /// Waits until there is room for further completion notifications, or for [`PATIENCE`] at most.
    #[cold]
    fn wait(&mut self, worker: &Worker<'_>) {
        let mut socket = [PollFd::new(&worker.stream.socket, PollFlags::empty())];
        let patience = Timespec { tv_sec: 0, tv_nsec: PATIENCE.subsec_nanos().into() };
        // An error other than a signal also shows in the next send.
        poll(&mut socket, Some(&patience)).ok();
        self.settle(worker);
    }
}

impl Source for Zerocopy {
    /// Reads the available completions; only sends whose completion was seen enter the share.
    fn settle(&mut self, worker: &Worker<'_>) {
        let counters = &worker.stream.counters;
        while let Ok(Some(completion)) = sys::zerocopy::next_completion(&worker.stream.socket) {
            // TCP completes in order, so a range starts at the oldest and ends among the pending
            // sends.
            let count = completion.last.wrapping_sub(self.oldest).wrapping_add(1) as usize;
            let done = self.pending.drain(..count.min(self.pending.len()));
            let bytes: u64 = done.sum();
            self.oldest = completion.last.wrapping_add(1);
            add(&counters.zero_copy_asked_bytes, bytes);
            if !completion.copied {
                add(&counters.zero_copied_bytes, bytes);
            }
        }
    }

    #[inline]
    fn push(&mut self, worker: &Worker<'_>, bytes: usize) -> Result<usize, Errno> {
        if self.pending.len() >= PENDING_COUNT {
            self.settle(worker);
        }
        match sys::zerocopy::send_zero_copy(&worker.stream.socket, block(worker, bytes)) {
            Ok(sent) => {
                self.pending.push_back(sent as u64);
                Ok(sent)
            }
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                if errno != Errno::NOBUFS {
                    return Err(errno);
                }
                self.wait(worker);
                Err(Errno::AGAIN)
            }
        }
    }
}

/// The first `bytes` bytes of the block to send.
#[inline]
fn block<'a>(worker: &Worker<'a>, bytes: usize) -> &'a [u8] {
    worker.shared.source.as_ref().and_then(|source| source.get(..bytes)).unwrap_or_default()
}

/// Size of the largest block that a sender may send, in bytes.
pub(super) fn source_bytes(spec: &TestSpec) -> u64 {
    if spec.block_bytes.is_some() { block_bytes(spec) } else { FAST_BLOCK_BYTES }
}

/// Size of the shared block that [`source_of`] returns for this spec, in bytes.
pub(super) fn source_block_bytes(spec: &TestSpec) -> u64 {
    source_bytes(spec).max(FAST_BLOCK_BYTES).next_power_of_two()
}

/// The blocks of all tests of this process. Their content is the same, so tests share one per size;
/// sizes are powers of two. A block is created on first use and freed with its last user.
static SOURCES: Mutex<Vec<Weak<Block>>> = Mutex::new(Vec::new());

/// The block for the TCP senders among these streams, if there are any.
pub(super) fn source_of(
    spec: &TestSpec,
    streams: &[Stream],
) -> Result<Option<Arc<Block>>, SyscallError> {
    let sends = |stream: &Stream| stream.sends_bulk() && stream.protocol == Protocol::Tcp;
    if !streams.iter().any(sends) || spec.send_path == SendPath::Sendfile {
        return Ok(None);
    }
    let bytes = usize::try_from(source_block_bytes(spec)).unwrap_or(usize::MAX);
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    sources.retain(|source| source.strong_count() > 0);
    if let Some(block) = sources.iter().filter_map(Weak::upgrade).find(|one| one.len() == bytes) {
        return Ok(Some(block));
    }
    let mut block = Block::new(bytes)?;
    block.fill(FILL);
    let block = Arc::new(block);
    sources.push(Arc::downgrade(&block));
    Ok(Some(block))
}
