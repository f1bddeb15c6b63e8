//! Copies of what passes a port, for somebody who watches it.
//!
//! Each copy is a frame behind a [`RECORD_BYTES`] header. Whoever watches is never woken, so that
//! nobody can make the switch wait by watching, and what it is too slow for is counted and left out. So is
//! what goes beyond a watcher's share of what all of them may take in a round.

use std::time::SystemTime;

use ring::Slot;
use shm::Buffers;
use switch::vale::PortSet;

use super::{CutOff, Datapath, Marks, Outlet, Packet, PortEnds, work};
use crate::attachment::{RECORD_BYTES, Record};

/// The owner's seat of a watcher's receive ring.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub(crate) serial: u64,
    /// Who watches.
    pub(crate) user: u32,
    outlet: Outlet,
    marks: Marks,
    missed: u32,
    frame: Vec<u8>,
    /// What may still be copied in this round, bytes.
    left: u64,
    round: u64,
}

impl Monitor {
    pub(crate) fn new(serial: u64, user: u32, outlet: Outlet, marks: Marks) -> Self {
        Self { serial, user, outlet, marks, missed: 0, frame: Vec::new(), left: 0, round: 0 }
    }

    /// Before the copies of a turn in that round, in which it has that share of the work.
    pub(super) fn begin(&mut self, round: u64, share: u64) -> Result<(), CutOff> {
        if self.round != round {
            (self.round, self.left) = (round, share);
        }
        self.outlet.refill(&mut self.marks)
    }

    /// Copies a packet, without the `skip_bytes` before its frame.
    pub(super) fn copy(
        &mut self,
        fragments: &[Slot],
        from: &Buffers,
        skip_bytes: usize,
        outgoing: bool,
        now_ns: u64,
    ) {
        let bytes: usize = fragments.iter().map(|slot| usize::from(slot.length_bytes)).sum();
        // Copied twice.
        let work = 2 * (bytes + RECORD_BYTES) as u64;
        let room = self.outlet.slots_for(RECORD_BYTES + bytes.saturating_sub(skip_bytes), 0);
        if work > self.left || room.is_err() {
            self.missed = self.missed.saturating_add(1);
            return;
        }
        self.left -= work;
        self.frame.clear();
        for fragment in fragments {
            let at = self.frame.len();
            self.frame.resize(at + usize::from(fragment.length_bytes), 0);
            let buffer = from.get(fragment.buffer);
            let there = buffer.is_some_and(|buffer| buffer.read(0, &mut self.frame[at..]));
            debug_assert!(there, "checked when the slot was taken");
        }
        let frame = self.frame.get(skip_bytes..).unwrap_or_default();
        let record = Record { seen_ns: now_ns, missed: self.missed, outgoing };
        let head: [u8; RECORD_BYTES] = record.encode();
        match self.outlet.put_bytes(&head, frame, 0) {
            Ok(()) => self.missed = 0,
            Err(_) => self.missed = self.missed.saturating_add(1),
        }
    }

    /// Hands the copies over.
    pub(super) fn end(&mut self) {
        // It looks by itself.
        let _some = self.outlet.publish(&mut self.marks);
    }
}

impl Datapath {
    /// Copies the turn's packets for those who watch the port they come from, if that `begins` with them, or
    /// one they go to.
    #[cold]
    pub(super) fn show(&mut self, source: &PortEnds, destinations: &PortSet, begins: bool) {
        let now_ns = now_ns();
        let all: usize = self.monitors.iter().map(Vec::len).sum();
        let share = work::WATCH_WORK / all.max(1) as u64;
        for id in self.watched.iter() {
            let outgoing = id != source.id;
            if (outgoing && !destinations.contains(id)) || !(outgoing || begins) {
                continue;
            }
            let mut monitors = std::mem::take(&mut self.monitors[id.index()]);
            // Somebody who breaks the protocol of its own ring watches no more.
            let round = self.rounds;
            let broken = monitors.extract_if(.., |monitor| monitor.begin(round, share).is_err());
            broken
                .for_each(|monitor| self.deferred_drop.drop_later(monitor.user, Box::new(monitor)));
            let (from, skip) =
                (source.inlets.current().buffers(), usize::from(source.header_bytes));
            let mut copy = |packet: Packet| {
                let fragments = self.taken.fragments(packet);
                for monitor in &mut monitors {
                    monitor.copy(fragments, from, skip, outgoing, now_ns);
                }
            };
            if outgoing {
                self.batch.packets_for(id).for_each(|index| copy(self.taken.packets[index]));
            } else {
                self.taken.packets.iter().copied().for_each(copy);
            }
            monitors.iter_mut().for_each(Monitor::end);
            if monitors.is_empty() {
                self.watched.remove(id);
            }
            self.monitors[id.index()] = monitors;
        }
    }
}

/// Time of day, nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
