//! A sink that packets reach later, or never: a lightpath in front of it.

use std::time::Instant;

use shm::{Buffer, Bytes};
use stats::LatencyHistogram;
use switch::delay_line::{DelayLine, PACKET_BYTES_MAX};
use switch::frame::{FrameShape, mark_congestion};
use switch::lightpath::{Lightpath, LightpathCounters, LostPackets, Verdict};
use switch::split::send_survivors;

use crate::end::{EndError, Fill, Filled, Moved, Parts, Sink};
use crate::middle::copy_out;

/// Of the bytes for frames, one frame that waits for the line for so many: it takes 16 bytes, and three
/// times that while a full table of them moves to one twice as long.
const WAITING_SHARE: usize = 128;

/// What one direction has done, for others to read.
#[derive(Debug, Clone, Default)]
pub struct LineReport {
    /// What became of the packets.
    pub counters: LightpathCounters,
    /// Wire bytes waiting for the line.
    pub queue_bytes: u64,
    /// Frames on the fibre or waiting.
    pub held_frames_count: usize,
    /// Frames that have left.
    pub sent_frames_count: u64,
    /// Frames for which the delay line had no memory.
    pub overflow_frames_count: u64,
    /// Frames that the far end did not take.
    pub refused_frames_count: u64,
    /// How late frames left against their due time.
    pub lateness: LatencyHistogram,
}

/// A sink behind a lightpath, which decides about loss, marks and delay at once, and the delay line, which
/// holds packets in memory of its own: the one middle part that copies. [`Sink::flush`] sends what is due.
#[derive(Debug)]
pub struct Delayed<To> {
    to: To,
    path: Lightpath,
    held: DelayLine<LostPackets>,
    began: Instant,
    report: LineReport,
    /// The packet taken last is due already, or one before it.
    is_due: bool,
}

impl<To: Sink> Delayed<To> {
    /// In front of `to`. The frames held take at most `limit_bytes` of memory; those that wait for the line,
    /// which are remembered once more, at most three eighths of that.
    pub fn new(to: To, mut path: Lightpath, limit_bytes: usize) -> Self {
        path.remember_at_most(limit_bytes / WAITING_SHARE);
        let (held, report) = (DelayLine::new(limit_bytes), LineReport::default());
        Self { to, path, held, began: Instant::now(), report, is_due: false }
    }

    /// The clock that everything in it goes by, nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// When the next frame leaves, by that clock.
    #[must_use]
    pub fn next_leaves_ns(&self) -> Option<u64> {
        self.held.next_leaves_ns()
    }

    /// Frames held.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.held.held_count()
    }

    /// What it has done until now.
    pub fn report(&mut self, now_ns: u64) -> &LineReport {
        self.report.counters = *self.path.counters();
        self.report.queue_bytes = self.path.poll_queue_bytes(now_ns);
        self.report.held_frames_count = self.held.held_count();
        &self.report
    }

    /// Decides about the packet of `length` bytes that lies in the delay line's space.
    fn admit(&mut self, length: usize) {
        let now_ns = self.now_ns();
        let packet = &mut self.held.space()[..length];
        let shape = FrameShape::of(packet);
        if let Verdict::Forward { leaves_ns, marked, lost } = self.path.handle_frame(now_ns, &shape)
        {
            if marked {
                mark_congestion(packet);
            }
            if !self.held.hold(length, leaves_ns, lost) {
                self.report.overflow_frames_count += 1;
            }
        }
        self.is_due = self.held.next_leaves_ns().is_some_and(|leaves_ns| leaves_ns <= now_ns);
    }
}

impl<To: Sink> Sink for Delayed<To> {
    fn put<'a>(&mut self, bytes: usize, parts: impl Parts<'a>) -> Result<Moved, EndError> {
        if bytes > PACKET_BYTES_MAX {
            return Ok(Moved::Refused);
        }
        let length = copy_out(self.held.space(), parts);
        self.admit(length);
        Ok(Moved::Given)
    }

    fn fill(&mut self, from: &mut impl Fill) -> Result<Moved, EndError> {
        match from.fill(std::iter::once(Buffer::from(self.held.space())))? {
            Filled::Bytes(bytes) => self.admit(bytes),
            Filled::Dropped => return Ok(Moved::Dropped),
            Filled::Nothing => return Ok(Moved::Nothing),
        }
        Ok(Moved::Given)
    }

    fn is_urgent(&self) -> bool {
        self.is_due
    }

    fn flush(&mut self) -> Result<(), EndError> {
        self.is_due = false;
        loop {
            let now_ns = self.now_ns();
            let (to, report) = (&mut self.to, &mut self.report);
            let mut all_sent = Ok(true);
            let sent = self.held.poll_due(now_ns, |packet, due_ns, lost| {
                report.lateness.record_ns(now_ns - due_ns);
                report.sent_frames_count += 1;
                all_sent = send(to, packet, lost);
            });
            report.refused_frames_count += u64::from(!all_sent?);
            if !sent {
                return self.to.flush();
            }
        }
    }
}

/// Sends what the path has left of a packet; whether the sink took it all.
fn send(to: &mut impl Sink, packet: &[u8], lost: LostPackets) -> Result<bool, EndError> {
    if !lost.any() {
        let moved = to.put(packet.len(), std::iter::once(Bytes::from(packet)))?;
        return Ok(moved == Moved::Given);
    }
    let mut all_sent = Ok(true);
    send_survivors(packet, &FrameShape::of(packet), lost, |headers, payload| {
        let parts = [headers, payload].into_iter().map(Bytes::from);
        if let Ok(all) = &mut all_sent {
            match to.put(headers.len() + payload.len(), parts) {
                Ok(moved) => *all &= moved == Moved::Given,
                Err(error) => all_sent = Err(error),
            }
        }
    });
    all_sent
}
