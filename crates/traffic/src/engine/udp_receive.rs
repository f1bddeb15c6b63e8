//! Bulk receivers over UDP.

use std::io;
use std::sync::atomic::Ordering;

use results::{TestSpec, UdpSpec};
use rustix::io::Errno;
use sys::datagram::{ReceiveBatch, Received};

use super::datagram::{DATAGRAM_BYTES_MAX, Header, unix_now_ns};
use super::pace::Pace;
use super::sequence::{Jitter, SequenceTracker, StandingDelay};
use super::worker::{Ending, Worker, is_pause};

/// Memory limit of a batch, in bytes: about the size of a second-level cache.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Number of messages in a batch, and bytes of each.
fn batch_of(udp: &UdpSpec, joins: bool) -> (usize, usize) {
    let message_bytes = if joins { DATAGRAM_BYTES_MAX } else { udp.datagram_bytes as usize };
    let message_bytes = message_bytes.clamp(1, DATAGRAM_BYTES_MAX);
    let count = (udp.batch_count as usize).clamp(1, (BATCH_BYTES_MAX / message_bytes).max(1));
    (count, message_bytes)
}

/// Memory of a receiver, in bytes.
pub(super) fn memory_bytes(spec: &TestSpec) -> u64 {
    let Some(udp) = &spec.udp else { return 0 };
    let (count, message_bytes) = batch_of(udp, udp.gro);
    let batch = count * (message_bytes + sys::datagram::MESSAGE_OVERHEAD_BYTES);
    (batch + SequenceTracker::MEMORY_BYTES) as u64
}

pub(super) fn run(worker: &mut Worker<'_>) -> Ending {
    let Some(udp) = &worker.shared.spec.udp else {
        return Ending::Failed(io::Error::other("the test has no datagram settings"));
    };
    worker.block_bytes = u64::from(udp.datagram_bytes);
    let joins = udp.gro
        && match sys::datagram::set_joining(&worker.stream.socket, true) {
            Ok(()) => true,
            Err(error) => {
                worker.finding("gro-refused", format!("{error}: {}", error.source));
                false
            }
        };
    let (count, message_bytes) = batch_of(udp, joins);
    let mut receiver = Receiver {
        batch: ReceiveBatch::new(count, message_bytes),
        header: Header { wide: worker.shared.udp_counters_64bit },
        tracker: SequenceTracker::default(),
        jitter: Jitter::default(),
        delay: StandingDelay::default(),
        joined_count: 0,
        segments_count_max: 1,
        last_sent_ns: i64::MIN,
    };
    receiver.pump(worker)
}

struct Receiver {
    batch: ReceiveBatch,
    header: Header,
    tracker: SequenceTracker,
    jitter: Jitter,
    delay: StandingDelay,
    joined_count: u64,
    /// Datagrams in the fullest message so far.
    segments_count_max: u64,
    last_sent_ns: i64,
}

impl Receiver {
    fn pump(&mut self, worker: &mut Worker<'_>) -> Ending {
        let mut pace = worker.shared.spec.read_bits_per_s.map(Pace::new);
        let mut any = false;
        while worker.goes_on() {
            if let Some(pace) = &mut pace
                && !pace.is_due(worker)
            {
                continue;
            }
            let count = match self.batch.receive(&worker.stream.socket) {
                Ok(count) => count,
                Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                    // A refusal answers what this end sent before the test and is ignored.
                    Some(errno) if is_pause(errno) || errno == Errno::CONNREFUSED => continue,
                    _ => return Ending::Failed(error),
                },
            };
            if !any {
                any = true;
                worker.shared.first_byte();
            }
            let before = self.tracker.received_count;
            let bytes = self.take(count);
            self.publish(worker, bytes);
            if let Some(pace) = &mut pace {
                pace.took(bytes);
            }
            if worker.has_all(self.tracker.received_count - before) {
                return Ending::Spent;
            }
        }
        Ending::Over
    }

    /// Examines every datagram of the received messages; returns their total bytes.
    fn take(&mut self, count: usize) -> u64 {
        let came_ns = unix_now_ns();
        self.delay.begin(came_ns);
        let mut bytes = 0;
        for index in 0..count {
            let Received { payload, segment_bytes } = self.batch.message(index);
            bytes += payload.len() as u64;
            self.joined_count += u64::from(payload.len() > segment_bytes);
            let segments_count = payload.len().div_ceil(segment_bytes).max(1) as u64;
            self.segments_count_max = self.segments_count_max.max(segments_count);
            for datagram in payload.chunks(segment_bytes) {
                let Some((sent_ns, number)) = self.header.read(datagram) else {
                    // Not ours: too short to carry a number.
                    self.tracker.received_count += 1;
                    continue;
                };
                let wide = self.header.wide;
                let number = if wide { number } else { self.tracker.widened(number as u32) };
                self.tracker.observe(number);
                // Datagrams with one time stamp were passed to the kernel together: only the first
                // of them says something about the path.
                if sent_ns != self.last_sent_ns {
                    self.last_sent_ns = sent_ns;
                    self.jitter.observe(sent_ns, came_ns);
                    self.delay.observe(sent_ns, came_ns);
                }
            }
        }
        bytes
    }

    fn publish(&self, worker: &mut Worker<'_>, bytes: u64) {
        let stream = worker.stream;
        let (counters, tracker) = (&stream.counters, &self.tracker);
        counters.update(|| {
            counters.datagrams.store(tracker.received_count, Ordering::Relaxed);
            counters.lost.store(tracker.lost_count, Ordering::Relaxed);
            counters.reordered.store(tracker.reordered_count, Ordering::Relaxed);
            counters.duplicates.store(tracker.duplicate_count, Ordering::Relaxed);
            counters.joined_batches.store(self.joined_count, Ordering::Relaxed);
            counters.segments_max.store(self.segments_count_max, Ordering::Relaxed);
            counters.jitter_bits.store(self.jitter.jitter_s().to_bits(), Ordering::Relaxed);
            let delay = self.delay.figures();
            counters.delay_windows.store(delay.windows_count, Ordering::Relaxed);
            counters.delay_sum_ns.store(delay.sum_ns, Ordering::Relaxed);
            counters.delay_least_ns.store(delay.least_ns, Ordering::Relaxed);
            worker.received(bytes);
        });
    }
}
