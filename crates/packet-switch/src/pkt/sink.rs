//! Taking frames in.

use std::time::{Duration, Instant};

use ring::Receiver;
use stats::LatencyHistogram;

use super::frame::{FRAME_BYTES_MIN, Stamp};
use super::{Manner, PktError, Ticker, now_ns};

/// What to receive.
#[derive(Debug, Clone)]
pub struct Sink {
    /// Looks at the stamps: order, gaps and how long the frames were under way.
    pub check: bool,
    /// Counts frames by their slots and reads none, as pkt-gen does. Otherwise every byte is read.
    pub slots_only: bool,
    /// How many; without end without.
    pub count: Option<u64>,
    /// When to end; `None`: at a signal.
    pub duration: Option<Duration>,
    /// Ends when nothing has come for so long, once something has.
    pub quiet: Option<Duration>,
    /// How, and how many at once.
    pub manner: Manner,
}

/// Frames received, and their stamps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SinkCount {
    /// Frames received.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// From the first frame to the last.
    pub elapsed: Duration,
    /// The frames' bytes, eight at a time as little-endian numbers, the last filled up with zeros, added
    /// up modulo 2^64; 0 of frames that were not read.
    pub content_sum: u64,
    /// With `check`: frames that are missing between the first and the last.
    pub missing: u64,
    /// With `check`: frames that came after a later one.
    pub late: u64,
    /// With `check`: frames without a stamp.
    pub foreign: u64,
    /// With `check`: time under way; same host only.
    pub under_way: Option<UnderWay>,
}

/// How long frames were under way, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnderWay {
    /// Mean transit time, seconds.
    pub mean_s: f64,
    /// Half took no longer.
    pub p50_s: f64,
    /// 99 of a hundred took no longer.
    pub p99_s: f64,
    /// Longest transit time, seconds.
    pub max_s: f64,
}

impl UnderWay {
    fn of(times: &LatencyHistogram) -> Option<Self> {
        let (mean_s, max_s) = (times.mean_s()?, times.max_s()?);
        let [p50_s, p99_s] = [times.percentile_s(50.0)?, times.percentile_s(99.0)?];
        Some(Self { mean_s, p50_s, p99_s, max_s })
    }
}

/// Takes frames in.
///
/// # Errors
/// The ring broke.
pub fn sink(
    receiver: &mut Receiver,
    what: &Sink,
    report: &mut dyn FnMut(SinkCount),
    stop: &dyn Fn() -> bool,
) -> Result<SinkCount, PktError> {
    sink_on(receiver, what, &mut Received::default(), report, stop)
}

/// The same, from where a former run was interrupted: its frames, gaps and time count on.
///
/// # Errors
/// As [`sink`].
pub fn sink_on(
    receiver: &mut Receiver,
    what: &Sink,
    tally: &mut Received,
    report: &mut dyn FnMut(SinkCount),
    stop: &dyn Fn() -> bool,
) -> Result<SinkCount, PktError> {
    let mut ticker = Ticker::new();
    let began = *tally.began.get_or_insert_with(Instant::now);
    let mut last_progress = Instant::now();
    while !stop() && what.count.is_none_or(|count| tally.count.frames < count) {
        let mut arrived = receiver.peek(1)?;
        let waited = arrived == 0;
        if waited {
            arrived = receiver.wait(what.manner.patience())?;
        }
        let most = what.count.map_or(u64::MAX, |count| count - tally.count.frames);
        let now = u64::from(arrived.min(what.manner.batch)).min(most) as u32;
        tally.take(receiver, what, now);
        receiver.release(now)?;
        let looked = ticker.tick(now == 0);
        if looked {
            report(tally.counted());
        }
        // The clock is asked when nothing came, and otherwise only as often as the ticker does.
        if now == 0 {
            let quiet_since = last_progress.max(tally.last.unwrap_or(last_progress));
            let over = |limit: Option<Duration>, since: Instant| {
                limit.is_some_and(|limit| since.elapsed() >= limit)
            };
            if over(what.duration, began)
                || (tally.count.frames > 0 && over(what.quiet, quiet_since))
            {
                break;
            }
        } else {
            // Frames that come one by one, and the last of all, have a time of their own.
            if waited || u64::from(now) == most {
                tally.until_mark = 0;
            }
            last_progress = tally.mark();
            if what.duration.is_some_and(|limit| last_progress - began >= limit) {
                break;
            }
        }
    }
    Ok(tally.counted())
}

/// The words of so many bytes added up, the last filled up with zeros.
#[inline]
fn sum<const BYTES: usize>(bytes: &[u8; BYTES]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words.fold(u64::from_le_bytes(last), u64::wrapping_add)
}

/// The same of a frame of any length.
fn sum_of_all(buffer: &shm::Buffer<'_>, length: usize) -> u64 {
    const AT_ONCE: usize = 64;
    let mut all = 0_u64;
    let whole = length - length % AT_ONCE;
    for offset in (0..whole).step_by(AT_ONCE) {
        all = all.wrapping_add(buffer.take::<AT_ONCE>(offset).as_ref().map_or(0, sum));
    }
    let mut last = [0; AT_ONCE];
    // The frame lies in the buffer, so this does too.
    let there = buffer.read(whole, &mut last[..length - whole]);
    if there { all.wrapping_add(sum(&last)) } else { all }
}

/// How many frames ahead memory is asked for: each frame lies in the sender's cache, in a line of its own
/// that no processor guesses.
const AHEAD_FRAMES: u32 = 16;

/// Batches between two questions for the time while frames keep coming.
const MARK_EVERY: u32 = 16;

/// How far a run has come that goes on elsewhere when it is interrupted.
#[derive(Debug, Default)]
pub struct Received {
    began: Option<Instant>,
    count: SinkCount,
    first: Option<Instant>,
    last: Option<Instant>,
    until_mark: u32,
    next_sequence: Option<u64>,
    under_way: LatencyHistogram,
    /// Frames that were under way for as long, and not yet in the histogram: those of a batch.
    alike: (u64, u64),
}

impl Received {
    fn take(&mut self, receiver: &Receiver, what: &Sink, frames: u32) {
        if frames == 0 {
            return;
        }
        if self.first.is_none() {
            let now = Instant::now();
            (self.first, self.last) = (Some(now), Some(now));
        }
        let now = if what.check { now_ns() } else { 0 };
        let (mut taken, mut bytes, mut content_sum) = (0_u64, 0_u64, 0_u64);
        for offset in 0..frames {
            let Some((buffer, length)) = receiver.frame(offset) else { continue };
            taken += 1;
            bytes += length as u64;
            if what.slots_only {
                continue;
            }
            if offset + AHEAD_FRAMES < frames
                && let Some((ahead, _)) = receiver.frame(offset + AHEAD_FRAMES)
            {
                ahead.prefetch();
            }
            let head = buffer.take::<FRAME_BYTES_MIN>(0);
            // Of the usual length the compiler knows how many words there are.
            let content = match &head {
                Some(head) if length == FRAME_BYTES_MIN => sum(head),
                _ => sum_of_all(&buffer, length),
            };
            content_sum = content_sum.wrapping_add(content);
            if what.check {
                let head = head.as_ref().filter(|_| length >= FRAME_BYTES_MIN);
                self.check(head.and_then(Stamp::decode), now);
            }
        }
        self.count.frames += taken;
        self.count.bytes += bytes;
        self.count.content_sum = self.count.content_sum.wrapping_add(content_sum);
    }

    fn check(&mut self, stamp: Option<Stamp>, now: u64) {
        let Some(stamp) = stamp else {
            self.count.foreign += 1;
            return;
        };
        let under_way_ns = now.saturating_sub(stamp.sent_ns);
        if self.alike.0 != under_way_ns {
            self.gather();
            self.alike = (under_way_ns, 0);
        }
        self.alike.1 += 1;
        let expected = self.next_sequence.unwrap_or(stamp.sequence);
        if stamp.sequence >= expected {
            self.count.missing += stamp.sequence - expected;
            self.next_sequence = Some(stamp.sequence.saturating_add(1));
        } else {
            self.count.late += 1;
        }
    }

    /// The time of the last batch, as near as it is looked at.
    fn mark(&mut self) -> Instant {
        if self.until_mark == 0 || self.last.is_none() {
            self.until_mark = MARK_EVERY;
            self.last = Some(Instant::now());
        }
        self.until_mark -= 1;
        self.last.unwrap_or_else(Instant::now)
    }

    fn gather(&mut self) {
        let (under_way_ns, frames) = std::mem::take(&mut self.alike);
        self.under_way.record_many_ns(under_way_ns, frames);
    }

    fn counted(&mut self) -> SinkCount {
        let elapsed = match (self.first, self.last) {
            (Some(first), Some(last)) => last - first,
            _ => Duration::ZERO,
        };
        self.gather();
        SinkCount { elapsed, under_way: UnderWay::of(&self.under_way), ..self.count }
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use ring::{Bells, Geometry, Layout, Seat, Sender};

    use super::super::{Frame, Generate, MacAddress, generate};
    use super::*;

    const SLOTS: u32 = 8;

    /// Both ends of a new ring.
    fn ends(buffer_bytes: u32) -> (Sender, Receiver) {
        let geometry =
            Geometry { tx_rings: 1, rx_rings: 0, slots: SLOTS, buffer_bytes, extra_buffers: 0 };
        let region = shm::Region::private(geometry.region_bytes().unwrap()).unwrap();
        let layout = Layout::format(&region, &geometry).unwrap();
        let (near, far) = Bells::pair().unwrap();
        let end = |seat| layout.end(&region, 0, seat, 1).unwrap();
        let buffers = || layout.buffers(&region).unwrap();
        let sender = Sender::join(end(Seat::User), buffers(), near);
        (sender, Receiver::join(end(Seat::TxOwner), buffers(), far))
    }

    fn taking(count: u64, slots_only: bool) -> Sink {
        let manner = Manner { linger: Duration::ZERO, batch: SLOTS };
        Sink { check: false, slots_only, count: Some(count), duration: None, quiet: None, manner }
    }

    #[test]
    fn few_frames_take_as_long_as_they_take() {
        let (mut sender, mut receiver) = ends(64);
        let pause = Duration::from_millis(5);
        std::thread::spawn(move || {
            for _ in 0..3 {
                assert!(sender.reserve(1).unwrap() > 0 && sender.put(0, &[0; 60]));
                sender.publish(1).unwrap();
                // Taken in, with its time, before the next goes out.
                while sender.reserve(7).unwrap() < 7 {
                    std::thread::yield_now();
                }
                std::thread::sleep(pause);
            }
        });
        let count = sink(&mut receiver, &taking(3, true), &mut |_| {}, &|| false).unwrap();
        assert!(count.frames == 3 && count.elapsed >= pause, "{count:?}");
    }

    #[test]
    fn every_byte_of_a_frame_is_read_unless_only_slots_are_asked_for() {
        for length in [1, 7, 8, 59, 60, 61, 63, 64, 65, 128, 191, 192] {
            let (mut sender, mut receiver) = ends(192);
            let frame: Vec<u8> = (0..length).map(|at| (at * 37 + 11) as u8).collect();
            let words = frame.chunks(8).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            });
            let expected = words.fold(0, u64::wrapping_add);
            for slots_only in [false, true] {
                assert!(sender.reserve(1).unwrap() > 0 && sender.put(0, &frame));
                sender.publish(1).unwrap();
                let count = sink(&mut receiver, &taking(1, slots_only), &mut |_| {}, &|| false);
                let content_sum = if slots_only { 0 } else { expected };
                assert_eq!(count.unwrap().content_sum, content_sum, "{length}, {slots_only}");
            }
        }
    }

    /// The receiver spoils each buffer before it gives it back.
    #[test]
    fn every_frame_is_written_whole_with_its_number_unless_only_slots_are_asked_for() {
        const FRAMES: u32 = 5 * SLOTS;
        for slots_only in [false, true] {
            let (mut sender, mut receiver) = ends(64);
            let frame = Frame::new(MacAddress([2; 6]), MacAddress([4; 6]), FRAME_BYTES_MIN);
            let template = frame.bytes().to_vec();
            let manner = Manner { linger: Duration::ZERO, batch: SLOTS };
            let what = Generate {
                frame,
                flows: None,
                slots_only,
                rate_per_s: None,
                count: Some(FRAMES.into()),
                duration: None,
                manner,
            };
            let sending = std::thread::spawn(move || {
                generate(&mut sender, &what, &mut |_| {}, &|| false).map(|_| ())
            });
            let (mut whole, mut number) = (0, 0);
            while number < FRAMES {
                let arrived = receiver.wait(manner.patience()).unwrap();
                for offset in 0..arrived {
                    let (buffer, length) = receiver.frame(offset).unwrap();
                    let bytes = buffer.take::<FRAME_BYTES_MIN>(0).unwrap();
                    let stamp = Stamp::decode(&bytes);
                    let numbered = stamp.is_some_and(|stamp| stamp.sequence == u64::from(number));
                    let alike = bytes[..Stamp::OFFSET] == template[..Stamp::OFFSET];
                    whole += u32::from(length == FRAME_BYTES_MIN && alike && numbered);
                    assert!(buffer.write(0, &[0xee; FRAME_BYTES_MIN]));
                    number += 1;
                }
                receiver.release(arrived).unwrap();
            }
            sending.join().unwrap().unwrap();
            // Of those not written again only the very first has the number it should have.
            assert_eq!(whole, if slots_only { 1 } else { FRAMES });
        }
    }
}
