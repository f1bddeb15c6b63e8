//! Taking frames in.

use std::time::{Duration, Instant};

use ring::Receiver;
use stats::LatencyHistogram;

use super::frame::{FRAME_BYTES_MIN, Stamp};
use super::{Manner, PktError, Ticker, now_ns};

/// What to take in.
#[derive(Debug, Clone)]
pub struct Sink {
    /// Reads the stamps: order, gaps and how long the frames were under way. Without it frames are
    /// counted and not touched, as pkt-gen does.
    pub check: bool,
    /// How many; without end without.
    pub count: Option<u64>,
    /// For how long.
    pub duration: Option<Duration>,
    /// Ends when nothing has come for so long, once something has.
    pub quiet: Option<Duration>,
    /// How, and how many at once.
    pub manner: Manner,
}

/// What came.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SinkCount {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From the first frame to the last.
    pub elapsed: Duration,
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
    /// Mean of all.
    pub mean_s: f64,
    /// Half took no longer.
    pub p50_s: f64,
    /// 99 of a hundred took no longer.
    pub p99_s: f64,
    /// The longest.
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
        tally.take(receiver, what.check, now);
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
    fn take(&mut self, receiver: &Receiver, check: bool, frames: u32) {
        if frames == 0 {
            return;
        }
        if self.first.is_none() {
            let now = Instant::now();
            (self.first, self.last) = (Some(now), Some(now));
        }
        let now = if check { now_ns() } else { 0 };
        for offset in 0..frames {
            let Some((buffer, length)) = receiver.frame(offset) else { continue };
            self.count.frames += 1;
            self.count.bytes += length as u64;
            if check {
                let mut head = [0; FRAME_BYTES_MIN];
                let whole = length >= FRAME_BYTES_MIN && buffer.read(0, &mut head);
                self.check(if whole { Stamp::decode(&head) } else { None }, now);
            }
        }
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

    use super::*;

    #[test]
    fn few_frames_take_as_long_as_they_take() {
        let geometry =
            Geometry { tx_rings: 1, rx_rings: 0, slots: 8, buffer_bytes: 64, extra_buffers: 0 };
        let region = shm::Region::private(geometry.region_bytes().unwrap()).unwrap();
        let layout = Layout::format(&region, &geometry).unwrap();
        let (near, far) = Bells::pair().unwrap();
        let end = |seat| layout.end(&region, 0, seat, 1).unwrap();
        let buffers = || layout.buffers(&region).unwrap();
        let mut sender = Sender::join(end(Seat::User), buffers(), near);
        let mut receiver = Receiver::join(end(Seat::TxOwner), buffers(), far);
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
        let manner = Manner { linger: Duration::ZERO, batch: 8 };
        let what = Sink { check: false, count: Some(3), duration: None, quiet: None, manner };
        let count = sink(&mut receiver, &what, &mut |_| {}, &|| false).unwrap();
        assert!(count.frames == 3 && count.elapsed >= pause, "{count:?}");
    }
}
