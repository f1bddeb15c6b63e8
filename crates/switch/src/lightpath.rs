//! One direction of a link: what happens to a frame between two ports.
//!
//! A frame meets, in this order: the queue (tail drop, marks), the shaper's token bucket, the line
//! (serialisation at its rate), the fibre (delay, jitter, loss, reordering). [`Lightpath`] decides
//! whether and when a frame is released at the moment it arrives, and keeps no bytes: the owner holds them until
//! [`Forward::leaves_ns`](Verdict::Forward).
//!
//! A super-segment counts as the wire packets it stands for: each carries headers and
//! [`WIRE_OVERHEAD_BYTES`](crate::frame::WIRE_OVERHEAD_BYTES), each finds room in the queue or does
//! not, each is lost or is not, as on a real path; the survivors travel on together
//! ([`split`](crate::split)). Marks, delay, jitter and reordering apply to the frame as a whole. It
//! leaves when its last bit would.
//!
//! Frames keep their order unless `reorder` says otherwise. Everything is decided by the seed and
//! the arrival times.

mod config;
mod jitter;
mod line;
mod lost;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use stats::Random;

pub use config::{BurstLoss, JitterShape, LightpathConfig, LightpathConfigError, Shaper};
pub use lost::LostPackets;

use crate::frame::FrameShape;
use jitter::Jitter;
use line::{Bucket, Line};

/// Most frames that wait for the line, whatever its queue, unless
/// [`remember_at_most`](Lightpath::remember_at_most) says less.
pub const WAITING_FRAMES_MAX: usize = 1 << 20;

/// What becomes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It leaves at the far end.
    Forward {
        /// When, on the caller's clock.
        leaves_ns: u64,
        /// Set Congestion Experienced on it.
        marked: bool,
        /// Wire packets that do not make it.
        lost: LostPackets,
    },
    /// None of it makes it.
    Drop(DropReason),
}

/// Why a frame was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// No room in the queue.
    Queue,
    /// Random loss.
    Loss,
    /// A loss burst.
    Burst,
}

/// What a direction has done so far. Packets are wire packets: a super-segment counts as many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LightpathCounters {
    /// Frames that arrived, super-segments counted once.
    pub arrived_frames_count: u64,
    /// Wire packets that arrived.
    pub arrived_pkts: u64,
    /// Wire packets sent on.
    pub delivered_pkts: u64,
    /// Their bytes, Ethernet overhead counted.
    pub delivered_wire_bytes: u64,
    /// Wire packets for which the queue had no room.
    pub dropped_queue_pkts: u64,
    /// Wire packets lost at random.
    pub dropped_loss_pkts: u64,
    /// Wire packets lost in bursts.
    pub dropped_burst_pkts: u64,
    /// Wire packets in frames that were marked.
    pub marked_pkts: u64,
    /// Frames made late to be overtaken.
    pub reordered_frames_count: u64,
    /// Most wire bytes that ever waited.
    pub queue_bytes_max: u64,
}

/// One direction of a link.
#[derive(Debug, Clone)]
pub struct Lightpath {
    config: LightpathConfig,
    random: Random,
    line: Option<Line>,
    bucket: Option<Bucket>,
    jitter: Jitter,
    /// What has not left the line yet: (when it will have, its wire bytes), in order.
    waiting: VecDeque<(u64, u64)>,
    waiting_bytes: u64,
    waiting_frames_max: usize,
    in_burst: bool,
    last_leaves_ns: u64,
    counters: LightpathCounters,
}

impl Lightpath {
    /// An idle direction.
    ///
    /// # Errors
    /// The configuration makes no sense.
    pub fn new(config: LightpathConfig) -> Result<Self, LightpathConfigError> {
        config.validate()?;
        Ok(Self {
            random: Random::from_seed(config.seed),
            line: config.rate_bits_per_s.map(Line::new),
            bucket: config.shaper.map(Bucket::new),
            jitter: Jitter::new(config.jitter_ns, config.jitter_shape),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            waiting_frames_max: WAITING_FRAMES_MAX,
            in_burst: false,
            last_leaves_ns: 0,
            counters: LightpathCounters::default(),
            config,
        })
    }

    /// Lets no more frames wait for the line, whatever its queue: each is remembered, with 16 bytes.
    pub fn remember_at_most(&mut self, frames: usize) {
        self.waiting_frames_max = frames.min(WAITING_FRAMES_MAX);
    }

    /// Decides about a frame that arrives at `now_ns`, which must not go backwards.
    pub fn handle_frame(&mut self, now_ns: u64, shape: &FrameShape) -> Verdict {
        self.counters.arrived_frames_count += 1;
        self.counters.arrived_pkts += u64::from(shape.packets_count);
        self.leave_line(now_ns);
        let accepted_count = self.enter_queue(shape);
        if accepted_count == 0 {
            return Verdict::Drop(DropReason::Queue);
        }
        let marked = self.mark(shape, accepted_count);
        let sent_ns = self.pass_line(now_ns, shape.wire_bytes(accepted_count));
        let (lost, reason) = self.lose(shape.packets_count, accepted_count);
        let survivors_count = shape.packets_count - lost.count(shape.packets_count);
        if survivors_count == 0 {
            return Verdict::Drop(reason);
        }
        self.counters.delivered_pkts += u64::from(survivors_count);
        self.counters.delivered_wire_bytes += lost.surviving_wire_bytes(shape);
        Verdict::Forward { leaves_ns: self.cross(now_ns, sent_ns), marked, lost }
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> &LightpathCounters {
        &self.counters
    }

    /// Wire bytes that wait for the line at `now_ns`.
    pub fn poll_queue_bytes(&mut self, now_ns: u64) -> u64 {
        self.leave_line(now_ns);
        self.waiting_bytes
    }

    fn leave_line(&mut self, now_ns: u64) {
        while let Some((_, bytes)) = self.waiting.pop_front_if(|(left_ns, _)| *left_ns <= now_ns) {
            self.waiting_bytes -= bytes;
        }
    }

    /// How many of the frame's packets find room.
    fn enter_queue(&mut self, shape: &FrameShape) -> u32 {
        let room_bytes = match self.config.queue_bytes {
            _ if self.waiting.len() >= self.waiting_frames_max => 0,
            Some(limit) => limit.saturating_sub(self.waiting_bytes),
            None => u64::MAX,
        };
        let mut accepted_count = shape.packets_within(room_bytes);
        if accepted_count < shape.packets_count {
            // Those that share their fate find room together.
            accepted_count -= accepted_count % LostPackets::sharing(shape.packets_count);
        }
        self.counters.dropped_queue_pkts += u64::from(shape.packets_count - accepted_count);
        accepted_count
    }

    fn mark(&mut self, shape: &FrameShape, accepted_count: u32) -> bool {
        let above = self.config.mark_above_bytes.is_some_and(|most| self.waiting_bytes > most);
        let marked = above && shape.marks_understood;
        if marked {
            self.counters.marked_pkts += u64::from(accepted_count);
        }
        marked
    }

    /// When the frame's last bit is on the fibre.
    fn pass_line(&mut self, now_ns: u64, wire_bytes: u64) -> u64 {
        let ready_ns = match &mut self.bucket {
            Some(bucket) => bucket.pass(now_ns, wire_bytes),
            None => now_ns,
        };
        let sent_ns = match &mut self.line {
            Some(line) => line.send(ready_ns, wire_bytes),
            None => ready_ns,
        };
        if sent_ns > now_ns {
            self.waiting.push_back((sent_ns, wire_bytes));
            self.waiting_bytes += wire_bytes;
            self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(self.waiting_bytes);
        }
        sent_ns
    }

    /// Which of the packets do not cross: those beyond `accepted_count` were never sent, the
    /// others have their chance. Also why the last of them was lost.
    fn lose(&mut self, packets_count: u32, accepted_count: u32) -> (LostPackets, DropReason) {
        let mut lost = LostPackets::beyond(accepted_count, packets_count);
        let mut reason = DropReason::Loss;
        if self.config.loss == 0.0 && self.config.burst_loss.is_none() {
            return (lost, reason);
        }
        // One draw for all that share their fate: at most 128 a frame.
        let sharing = LostPackets::sharing(packets_count);
        for index in (0..accepted_count).step_by(sharing as usize) {
            let Some(why) = self.loses_one(sharing) else { continue };
            reason = why;
            let newly = u64::from(lost.lose(index, packets_count));
            match why {
                DropReason::Burst => self.counters.dropped_burst_pkts += newly,
                DropReason::Loss | DropReason::Queue => self.counters.dropped_loss_pkts += newly,
            }
        }
        (lost, reason)
    }

    /// Whether the next `sharing` packets, which are lost together, are lost.
    fn loses_one(&mut self, sharing: u32) -> Option<DropReason> {
        if let Some(burst) = self.config.burst_loss {
            let change = burst.change(self.in_burst, sharing);
            self.in_burst ^= self.random.chance(change);
            if self.in_burst && self.random.chance(burst.loss) {
                return Some(DropReason::Burst);
            }
        }
        let lost = self.config.loss > 0.0 && self.random.chance(self.config.loss);
        lost.then_some(DropReason::Loss)
    }

    /// When the frame comes out of the fibre.
    fn cross(&mut self, now_ns: u64, sent_ns: u64) -> u64 {
        let offset_ns = self.jitter.offset_ns(now_ns, &mut self.random);
        let delay_ns = units::saturating_u64(self.config.delay_ns as f64 + offset_ns);
        let leaves_ns = sent_ns.saturating_add(delay_ns);
        if self.config.reorder > 0.0 && self.random.chance(self.config.reorder) {
            self.counters.reordered_frames_count += 1;
            // Those behind it overtake: it does not hold them up.
            let after_ns = leaves_ns.max(self.last_leaves_ns);
            return after_ns.saturating_add(self.config.reorder_by_ns);
        }
        self.last_leaves_ns = self.last_leaves_ns.max(leaves_ns);
        self.last_leaves_ns
    }
}

#[cfg(test)]
mod tests;
