//! What went through a port, readable while it goes.
//!
//! Each counter has one writer, the switch's thread, which adds with a plain load and store; readers
//! see each counter at some moment of the last batch.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use switch::vale::DropReason;

/// Frames and bytes, which way and what became of them; one cache line a direction.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct PortCounters {
    pub(crate) incoming: Flow,
    pub(crate) outgoing: Flow,
    pub(crate) wakeups: AtomicU64,
    pub(crate) handed_over: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Flow {
    frames: AtomicU64,
    bytes: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
}

/// What is added at once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    /// Of the frames, those that were not copied.
    pub(crate) handed_over: u64,
    pub(crate) dropped: [u64; DropReason::ALL.len()],
}

impl Tally {
    pub(crate) fn count(&mut self, bytes: u32) {
        self.frames += 1;
        self.bytes += u64::from(bytes);
    }

    /// One frame of so many bytes, delivered or not.
    pub(crate) fn settle(&mut self, outcome: Result<(), DropReason>, frame_bytes: usize) {
        match outcome {
            Ok(()) => self.count(u32::try_from(frame_bytes).unwrap_or(u32::MAX)),
            Err(reason) => self.drop(reason),
        }
    }

    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drop_many(reason, 1);
    }

    pub(crate) fn drop_many(&mut self, reason: DropReason, frames: usize) {
        self.dropped[reason as usize] += frames as u64;
    }
}

/// Adds to a counter that only the calling thread writes.
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    if more > 0 {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}

impl Flow {
    pub(crate) fn add(&self, tally: &Tally) {
        add(&self.frames, tally.frames);
        add(&self.bytes, tally.bytes);
        for (counter, &more) in self.dropped.iter().zip(&tally.dropped) {
            add(counter, more);
        }
    }

    fn read(&self) -> FlowCount {
        let dropped = DropReason::ALL
            .into_iter()
            .zip(&self.dropped)
            .map(|(reason, counter)| (reason.name().to_owned(), counter.load(Ordering::Relaxed)))
            .filter(|&(_, count)| count > 0)
            .collect();
        FlowCount {
            frames: self.frames.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            dropped,
        }
    }
}

impl PortCounters {
    pub(crate) fn read(&self) -> PortCount {
        PortCount {
            incoming: self.incoming.read(),
            outgoing: self.outgoing.read(),
            wakeups: self.wakeups.load(Ordering::Relaxed),
            handed_over: self.handed_over.load(Ordering::Relaxed),
        }
    }
}

/// One direction of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCount {
    /// Incoming: all that the client handed over, whatever became of them. Outgoing: what it was
    /// given.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Incoming: of those frames, the ones that went nowhere. Outgoing: frames that were for this port
    /// and could not be given to it. By reason; a reason that never occurred is not listed.
    pub dropped: BTreeMap<String, u64>,
}

/// What went through a port since it was added, seen from the switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCount {
    /// Frames from the client.
    pub incoming: FlowCount,
    /// Frames to the client.
    pub outgoing: FlowCount,
    /// Times the switch woke the client.
    pub wakeups: u64,
    /// Of the outgoing frames, those whose buffers came from the sender's slots: no byte of them was copied.
    #[serde(default)]
    pub handed_over: u64,
}

impl FlowCount {
    /// Frames dropped for any reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }
}
