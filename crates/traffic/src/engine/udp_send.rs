//! Bulk senders over UDP.

use std::io;
use std::time::{Duration, Instant};

use results::{TestSpec, UdpSpec};
use sys::datagram::SendBatch;

use super::datagram::{DATAGRAM_BYTES_MAX, Header, stamp_now};
use super::pace::Pace;
use super::shared::add;
use super::worker::{Ending, Worker};

/// Limits to try, in this order, on the datagrams that the kernel cuts out of one send:
/// `UDP_MAX_SEGMENTS` (kernel `include/linux/udp.h`) is 128 since Linux 6.9 and 64 before.
const SEGMENTS_COUNT_MAX: [usize; 3] = [128, 64, 1];

/// How long a peer may refuse datagrams (with ICMP port unreachable) before the stream gives up:
/// the port may not be open yet.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(1);

/// Memory of a sender, in bytes: every message of the batch as full as GSO permits.
pub(super) fn memory_bytes(spec: &TestSpec) -> u64 {
    let Some(udp) = &spec.udp else { return 0 };
    let datagram_bytes = (udp.datagram_bytes as usize).clamp(1, DATAGRAM_BYTES_MAX);
    let segments_count = if udp.gso { segments_fitting(datagram_bytes) } else { 1 };
    let messages_count = (udp.batch_count as usize).clamp(1, sys::datagram::BATCH_COUNT_MAX);
    let message_bytes = segments_count * datagram_bytes + sys::datagram::MESSAGE_OVERHEAD_BYTES;
    (messages_count * message_bytes) as u64
}

/// The most datagrams of this size that fit in one message.
fn segments_fitting(datagram_bytes: usize) -> usize {
    (DATAGRAM_BYTES_MAX / datagram_bytes).clamp(1, SEGMENTS_COUNT_MAX[0])
}

pub(super) fn run(worker: &mut Worker<'_>) -> Ending {
    let Some(udp) = &worker.shared.spec.udp else {
        return Ending::Failed(io::Error::other("the test has no datagram settings"));
    };
    worker.block_bytes = u64::from(udp.datagram_bytes);
    let mut sender = Sender::new(worker, udp);
    let ending = sender.pump(worker);
    if sender.gso_refused {
        let text = "the kernel does not cut datagrams of this size on this path (UDP_SEGMENT)";
        worker.finding("gso-refused", text.to_owned());
    }
    ending
}

struct Sender {
    batch: SendBatch,
    header: Header,
    datagram_bytes: usize,
    /// Datagrams in each message of the batch.
    segments_count: usize,
    gso_refused: bool,
    /// Number of the next datagram; iperf3 counts from 1.
    next: u64,
    /// The last call sent only part of the batch, so it met an error that it did not report. The
    /// next call sends one message only, so that the error is reported.
    fell_short: bool,
    /// Times of the first and the last refusal in a continuing series.
    refused: Option<(Instant, Instant)>,
}

impl Sender {
    fn new(worker: &Worker<'_>, udp: &UdpSpec) -> Self {
        let datagram_bytes = (udp.datagram_bytes as usize).clamp(1, DATAGRAM_BYTES_MAX);
        let messages_count = udp.batch_count.max(1) as usize;
        let mut sender = Self {
            batch: SendBatch::new(1, datagram_bytes),
            header: Header { wide: worker.shared.udp_counters_64bit },
            datagram_bytes,
            segments_count: 1,
            gso_refused: false,
            next: 1,
            fell_short: false,
            refused: None,
        };
        let most = if udp.gso { SEGMENTS_COUNT_MAX[0] } else { 1 };
        sender.cut_into(worker, messages_count, most);
        sender
    }

    /// Configures the socket and the batch for at most `most` datagrams per message.
    fn cut_into(&mut self, worker: &Worker<'_>, messages_count: usize, most: usize) {
        let mut segments_count = most.min(segments_fitting(self.datagram_bytes));
        let segment_bytes = if segments_count > 1 { self.datagram_bytes as u32 } else { 0 };
        let answer = sys::datagram::set_segment_bytes(&worker.stream.socket, segment_bytes);
        if answer.is_err() && segments_count > 1 {
            self.gso_refused = true;
            segments_count = 1;
        }
        self.segments_count = segments_count;
        // Free the old batch first: there may not be room for two.
        self.batch = SendBatch::new(1, 1);
        self.batch = SendBatch::new(messages_count, segments_count * self.datagram_bytes);
    }

    fn pump(&mut self, worker: &mut Worker<'_>) -> Ending {
        let mut pace = worker.shared.spec.offered_bits_per_s.map(Pace::new);
        while worker.goes_on() {
            let messages_count = if self.fell_short { 1 } else { self.batch.count() };
            let whole = (messages_count * self.segments_count) as u64;
            let due = match &mut pace {
                None => whole,
                Some(pace) => match pace.due_count(worker, self.datagram_bytes as u64) {
                    0 => continue,
                    count => count.min(whole),
                },
            };
            let allowed = worker.allowance(due);
            if allowed == 0 {
                return Ending::Spent;
            }
            match self.send(worker, allowed as usize) {
                Ok(sent) => {
                    if let Some(pace) = &mut pace {
                        pace.took(sent * self.datagram_bytes as u64);
                    }
                }
                Err(error) => {
                    if let Some(ending) = self.handle(worker, error) {
                        return ending;
                    }
                }
            }
        }
        Ending::Over
    }

    /// Sends `count` datagrams; returns how many were sent.
    fn send(&mut self, worker: &mut Worker<'_>, count: usize) -> io::Result<u64> {
        let messages_count = count.div_ceil(self.segments_count);
        let stamp = stamp_now();
        let mut number = self.next;
        let mut left = count;
        for index in 0..messages_count {
            let segments = left.min(self.segments_count);
            self.batch.set_length(index, segments * self.datagram_bytes);
            let message = &mut self.batch.message_mut(index)[..segments * self.datagram_bytes];
            for datagram in message.chunks_exact_mut(self.datagram_bytes) {
                self.header.write(datagram, stamp, number);
                number += 1;
            }
            left -= segments;
        }
        let went = self.batch.send(&worker.stream.socket, 0..messages_count)?;
        self.fell_short = went < messages_count;
        let datagrams = ((went * self.segments_count).min(count)) as u64;
        // Datagrams that were not sent keep their numbers: they are written again next time.
        self.next += datagrams;
        let counters = &worker.stream.counters;
        counters.update(|| {
            add(&counters.datagrams, datagrams);
            add(&counters.bytes, datagrams * self.datagram_bytes as u64);
        });
        worker.spend(datagrams);
        Ok(datagrams)
    }

    /// Handles a failed send; returns an ending if the stream cannot go on.
    #[cold]
    fn handle(&mut self, worker: &mut Worker<'_>, error: io::Error) -> Option<Ending> {
        match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(errno) if super::worker::is_pause(errno) => None,
            Some(rustix::io::Errno::NOBUFS | rustix::io::Errno::NOMEM) => {
                add(&worker.stream.counters.send_failures, 1);
                std::thread::sleep(Duration::from_micros(100));
                None
            }
            Some(rustix::io::Errno::CONNREFUSED) => {
                add(&worker.stream.counters.send_failures, 1);
                let now = Instant::now();
                let still = |&(_, last): &(Instant, Instant)| now - last < 2 * REFUSAL_TIME_MAX;
                let (first, _) = self.refused.filter(still).unwrap_or((now, now));
                self.refused = Some((first, now));
                (now - first > REFUSAL_TIME_MAX).then_some(Ending::Failed(error))
            }
            // Too many segments for this kernel, a segment larger than the path's MTU, or a device
            // without checksum offload: try fewer segments, then none.
            Some(rustix::io::Errno::INVAL | rustix::io::Errno::MSGSIZE | rustix::io::Errno::IO)
                if self.segments_count > 1 =>
            {
                let fewer = SEGMENTS_COUNT_MAX.into_iter().find(|&most| most < self.segments_count);
                let fewer = fewer.unwrap_or(1);
                self.gso_refused |= fewer == 1;
                let messages_count = self.batch.count();
                self.cut_into(worker, messages_count, fewer);
                None
            }
            _ => Some(Ending::Failed(error)),
        }
    }
}
