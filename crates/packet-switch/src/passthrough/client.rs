//! The owner's seats at a client's rings, held by a device's queue: what the switch does at a port, with the same checks,
//! and no switch. A frame is copied once: between the frames' memory of the queue and the client's buffers.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ports::slots::Space;
use ports::xdp::Port;
use ports::{EndError, FromSlots, Moved, Sink, ToSlots, carry};
use ring::{Bells, Geometry, Layout, LayoutError, Seat, SlotFlags};
use shm::{Bell, Buffer, Region};

use crate::datapath::{FRAGMENTS_MAX, Inlet, Marks, Outlet, Taken};
use crate::device::xdp::Rings;
use crate::device::{DeviceCounters, DeviceError, TURN};

/// No frame is shorter than its header; the kernel's own senders see to that.
const FRAME_BYTES_MIN: u32 = 14;

/// A client's rings.
#[derive(Debug)]
pub(super) struct Client {
    inlet: Inlet,
    outlet: Outlet,
    marks: Marks,
    /// Rung by the client when it has sent, and when it has made room.
    bells: [Bell; 2],
    /// What serves turn after turn, so that none allocates.
    taken: Taken,
    lengths: Vec<u16>,
    /// Whole packets found no room at the device.
    is_stuck: bool,
}

impl Client {
    /// At the transmit ring and the receive ring of a region, made anew or as they were left; `seed` as of
    /// [`ring::End::join`].
    pub(super) fn join(
        region: &Arc<Region>,
        geometry: &Geometry,
        [tx, rx]: [Bells; 2],
        is_fresh: bool,
        seed: u32,
    ) -> Result<Self, LayoutError> {
        let layout = if is_fresh {
            Layout::format(region, geometry)?
        } else {
            Layout::resume(region, geometry)?
        };
        let buffers = || layout.buffers(region);
        let inlet_end = layout.end(region, 0, Seat::TxOwner, seed)?;
        let outlet_end = layout.end(region, 1, Seat::RxOwner, seed)?;
        Ok(Self {
            inlet: Inlet::new(inlet_end, buffers()?, tx.theirs),
            outlet: Outlet::new(outlet_end, buffers()?, rx.theirs),
            marks: Marks::new(&buffers()?),
            bells: [tx.ours, rx.ours],
            taken: Taken::default(),
            lengths: Vec::new(),
            is_stuck: false,
        })
    }
}

impl Rings for Client {
    fn receive(&mut self, port: &mut Port, counters: &DeviceCounters) -> Result<u32, DeviceError> {
        self.outlet.refill(&mut self.marks)?;
        let Self { outlet, marks, lengths, .. } = self;
        let room = Room { outlet, marks, lengths };
        let turn = carry(&mut FromSlots::new(port), &mut ToSlots::new(room), TURN)?;
        counters.refuse(turn.refused);
        Ok(turn.packets)
    }

    fn send(&mut self, port: &mut Port, counters: &DeviceCounters) -> Result<u32, DeviceError> {
        self.is_stuck = false;
        if !self.inlet.look() {
            return Ok(0);
        }
        self.inlet.take(&mut self.marks, &mut self.taken)?;
        let mut device = ToSlots::new(port);
        let (mut packets, mut refused) = (0, 0);
        for packet in &self.taken.packets {
            let parts = self.taken.fragments(*packet).iter().filter_map(|slot| {
                let buffer = self.inlet.buffers().get(slot.buffer)?;
                Some(buffer.first(slot.length_bytes.into()))
            });
            let moved = match packet.bytes {
                ..FRAME_BYTES_MIN => Moved::Refused,
                bytes => device.put(bytes as usize, parts)?,
            };
            if moved == Moved::NoRoom {
                self.is_stuck = true;
                break;
            }
            refused += u32::from(moved == Moved::Refused);
            packets += 1;
        }
        device.flush()?;
        counters.refuse(refused);
        self.inlet.put_back(&mut self.marks, &mut self.taken, packets);
        if packets > 0 && self.inlet.release(&mut self.marks, &self.taken.slots) {
            self.inlet.bell().ring()?;
        }
        // At most a turn's worth.
        Ok(packets as u32)
    }

    fn has_frames(&mut self) -> Result<bool, DeviceError> {
        Ok(self.is_stuck)
    }

    fn arm_frames(&mut self) -> Result<bool, DeviceError> {
        Ok(self.inlet.arm().map_err(EndError::from)?)
    }

    fn arm_room(&mut self) -> Result<bool, DeviceError> {
        Ok(self.outlet.arm().map_err(EndError::from)?)
    }

    fn disarm(&mut self, room: bool) -> Result<(), DeviceError> {
        self.inlet.disarm();
        self.bells[0].clear_now()?;
        if room {
            self.outlet.disarm();
            self.bells[1].clear_now()?;
        }
        Ok(())
    }

    fn fds(&mut self, room: bool) -> Vec<BorrowedFd<'_>> {
        self.bells.iter().take(1 + usize::from(room)).map(AsFd::as_fd).collect()
    }
}

/// Slots of the client's receive ring, as of the last refill.
struct Room<'a> {
    outlet: &'a mut Outlet,
    marks: &'a mut Marks,
    /// Of the slots of a packet whose last is not filled yet.
    lengths: &'a mut Vec<u16>,
}

impl Space for Room<'_> {
    fn reserve(&mut self, _wanted: u32) -> Result<u32, EndError> {
        Ok(self.outlet.filled() + self.outlet.free())
    }

    fn buffer_bytes(&self) -> usize {
        self.outlet.buffer_bytes().min(u16::MAX.into())
    }

    fn slots_max(&self) -> u32 {
        (FRAGMENTS_MAX as u32).min(self.outlet.slots() / 2)
    }

    fn buffer(&self, slot: u32) -> Option<Buffer<'_>> {
        self.outlet.buffer(slot.checked_sub(self.outlet.filled())?)
    }

    fn set(&mut self, slot: u32, bytes: usize, goes_on: bool) {
        // Of a packet that was given up before its end nothing stays.
        self.lengths.truncate(slot.saturating_sub(self.outlet.filled()) as usize);
        // At most a buffer's.
        self.lengths.push(bytes as u16);
        if goes_on {
            return;
        }
        // At most 64 slots; netmap's receivers find their number in every one.
        let count = (self.lengths.len() as u16) << 8;
        let last = self.lengths.len() - 1;
        for (number, length_bytes) in self.lengths.drain(..).enumerate() {
            let more = if number < last { SlotFlags::MORE_FRAGMENTS } else { 0 };
            self.outlet.set_filled(length_bytes, SlotFlags(count | more));
        }
    }

    fn hand_over(&mut self, _slots: u32) -> Result<(), EndError> {
        // All that are filled.
        if self.outlet.publish(self.marks) && self.outlet.must_ring() {
            self.outlet.bell().ring()?;
        }
        Ok(())
    }
}
