//! A pair of packet rings in a sealed region, one a direction: packets to a rank of this host and from it.
//!
//! The peer may write anything into the region at any time. Cursors are checked by [`ring::End`]; a packet's
//! length is read once and its bytes are copied out once, before the machine sees them. Nobody sleeps on
//! a ring, so the wake-up half of its protocol is not used: completion queues are polled and yield.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use ring::{End, Geometry, Layout, LayoutError, Mapped, Seat, Slot, SlotFlags, Violation};
use shm::{Buffers, Region, RegionError};

/// Bytes of a packet: two pages of payload, and the longest header of a packet with payload.
pub(crate) const PACKET_BYTES_MAX: u16 = 8192 + 128;
/// Room for a packet that is taken from a ring.
pub(crate) type Packet = [u8; PACKET_BYTES_MAX as usize];
/// Packets of a direction, one more than can wait: both directions and their cursors fit into 2 MiB.
const SLOTS: u32 = 112;
/// Most packets taken from one ring in a row.
const PACKETS_IN_A_ROW: u32 = 32;

/// What a region of a pair holds.
const GEOMETRY: Geometry = Geometry {
    tx_rings: 1,
    rx_rings: 1,
    slots: SLOTS,
    buffer_bytes: PACKET_BYTES_MAX as u32,
    extra_buffers: 0,
};

/// Which end made the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    Us,
    Them,
}

/// Why there is no pair.
#[derive(Debug)]
pub(crate) enum RingsError {
    /// The kernel gave no memory.
    Memory(RegionError),
    /// What the peer handed over is no pair of rings.
    Layout(LayoutError),
}

impl From<RegionError> for RingsError {
    fn from(error: RegionError) -> Self {
        Self::Memory(error)
    }
}

impl From<LayoutError> for RingsError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl std::fmt::Display for RingsError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(error) => error.fmt(formatter),
            Self::Layout(error) => error.fmt(formatter),
        }
    }
}

/// Both rings, as one end uses them.
#[derive(Debug)]
pub(crate) struct Rings {
    sender: End<Mapped>,
    receiver: End<Mapped>,
    buffers: Buffers,
}

impl Rings {
    /// A new pair, and its region for the peer.
    pub(crate) fn create() -> Result<(Self, Arc<Region>), RingsError> {
        let region = Region::create("clearstream-fi", GEOMETRY.region_bytes()?)?;
        let layout = Layout::format(&region, &GEOMETRY)?;
        Ok((Self::join(&region, &layout, Maker::Us)?, region))
    }

    /// The pair in a region that the peer handed over.
    pub(crate) fn attach(region: OwnedFd) -> Result<Self, RingsError> {
        let bytes = GEOMETRY.region_bytes()?.next_multiple_of(shm::REGION_BYTES_MULTIPLE);
        let region = Region::attach_up_to(region, bytes)?;
        let layout = Layout::read(&region)?;
        Self::join(&region, &layout, Maker::Them)
    }

    fn join(region: &Arc<Region>, layout: &Layout, maker: Maker) -> Result<Self, RingsError> {
        let (send_ring, receive_ring, seats) = match maker {
            Maker::Us => (0, 1, [Seat::User, Seat::User]),
            Maker::Them => (1, 0, [Seat::RxOwner, Seat::TxOwner]),
        };
        Ok(Self {
            sender: layout.end(region, send_ring, seats[0], 1)?,
            receiver: layout.end(region, receive_ring, seats[1], 1)?,
            buffers: layout.buffers(region)?,
        })
    }

    /// Whether a further packet may be pushed.
    pub(crate) fn has_room(&mut self) -> Result<bool, Violation> {
        Ok(self.sender.available() > 0 || self.sender.observe()? > 0)
    }

    /// Hands a packet to the peer: header and payload. One that does not fit, or for which there is no room,
    /// is lost, as on any path.
    pub(crate) fn push(&mut self, header: &[u8], payload: &[u8]) {
        if self.sender.available() == 0 {
            return;
        }
        let index = self.sender.index(0);
        let slot = self.sender.memory().slot(index);
        let Some(buffer) = self.buffers.get(slot.buffer) else { return };
        let Ok(length_bytes) = u16::try_from(header.len() + payload.len()) else { return };
        if !buffer.write(0, header) || !buffer.write(header.len(), payload) {
            return;
        }
        let slot = Slot { length_bytes, flags: SlotFlags(0), ..slot };
        self.sender.memory().set_slot(index, slot);
        self.sender.advance(1);
    }

    /// Takes packets in, some at a time, each copied to `packet` first; true: some came.
    pub(crate) fn receive(
        &mut self,
        packet: &mut Packet,
        mut each: impl FnMut(&[u8]),
    ) -> Result<bool, Violation> {
        let count = match self.receiver.available() {
            0 => self.receiver.observe()?,
            known => known,
        };
        for _ in 0..count.min(PACKETS_IN_A_ROW) {
            let slot = self.receiver.memory().slot(self.receiver.index(0));
            let packet = &mut packet[..usize::from(PACKET_BYTES_MAX.min(slot.length_bytes))];
            let buffer = self.buffers.get(slot.buffer);
            let is_read = buffer.is_some_and(|buffer| buffer.read(0, packet));
            // The peer may have the slot again before the packet is processed: it was copied.
            self.receiver.advance(1);
            if is_read {
                each(packet);
            }
        }
        Ok(count > 0)
    }
}

/// A descriptor of the region, to hand over.
pub(crate) fn descriptor(region: &Region) -> BorrowedFd<'_> {
    region.fd().expect("a region that was created has one")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Rings, Rings, Arc<Region>) {
        let (near, region) = Rings::create().unwrap();
        let far = Rings::attach(descriptor(&region).try_clone_to_owned().unwrap()).unwrap();
        (near, far, region)
    }

    fn came(rings: &mut Rings) -> Vec<Vec<u8>> {
        let (mut room, mut all) = ([0; PACKET_BYTES_MAX as usize], Vec::new());
        while rings.receive(&mut room, |packet| all.push(packet.to_vec())).unwrap() {}
        all
    }

    /// Operations against an oracle: what was pushed while there was room comes out, in order, once.
    #[test]
    fn packets_come_out_as_they_went_in_both_ways() {
        bolero::check!().with_type::<Vec<(u8, u16)>>().for_each(|steps| {
            let (mut near, mut far, _region) = pair();
            let mut under_way = [Vec::new(), Vec::new()];
            for (number, &(step, length)) in steps.iter().enumerate() {
                let way = usize::from(step & 1);
                let [from, to] =
                    if way == 0 { [&mut near, &mut far] } else { [&mut far, &mut near] };
                if step & 2 == 0 {
                    let length = usize::from(length) % (usize::from(PACKET_BYTES_MAX) + 1);
                    let packet = vec![number as u8; length];
                    let (header, payload) = packet.split_at(length.min(64));
                    for _ in 0..step / 4 {
                        if !from.has_room().unwrap() {
                            assert_eq!(under_way[way].len(), SLOTS as usize - 1);
                            break;
                        }
                        from.push(header, payload);
                        under_way[way].push(packet.clone());
                    }
                } else {
                    assert_eq!(came(to), std::mem::take(&mut under_way[way]));
                }
            }
        });
    }

    #[test]
    fn a_full_ring_says_so_and_loses_nothing() {
        let (mut near, mut far, _region) = pair();
        let mut count = 0_u32;
        while near.has_room().unwrap() {
            near.push(&count.to_le_bytes(), &[]);
            count += 1;
        }
        assert_eq!(count, SLOTS - 1);
        near.push(b"lost", &[]);
        let all = came(&mut far);
        assert!(all.iter().zip(0_u32..).all(|(packet, number)| *packet == number.to_le_bytes()));
        assert_eq!(all.len(), count as usize);
        assert!(near.has_room().unwrap());
    }

    /// A peer that writes anything anywhere in the region, at any time.
    #[test]
    fn any_memory_is_packets_or_a_violation() {
        bolero::check!().with_type::<Vec<(u32, u32)>>().for_each(|writes| {
            let (mut near, _far, region) = pair();
            let words = region.length_bytes() / 4;
            let view = region.view::<std::sync::atomic::AtomicU32>(0, words).unwrap();
            let mut room = [0; PACKET_BYTES_MAX as usize];
            for &(at, value) in writes {
                // Mostly where cursors and slots are.
                let at = if at & 1 == 0 { at as usize / 2 % 8192 } else { at as usize % words };
                let value = if value & 1 == 0 { value / 2 % (2 * SLOTS) } else { value };
                view[at].store(value, std::sync::atomic::Ordering::Relaxed);
                let mut count = 0;
                let outcome = near.receive(&mut room, |packet| {
                    assert!(packet.len() <= PACKET_BYTES_MAX.into());
                    count += 1;
                });
                assert!(count <= PACKETS_IN_A_ROW);
                if outcome.is_err() || near.has_room().is_err() {
                    return;
                }
                near.push(&[1; 40], &[2; 100]);
            }
        });
    }

    #[test]
    fn foreign_memory_is_refused() {
        let empty = Region::create("empty", 1).unwrap();
        let attached = Rings::attach(descriptor(&empty).try_clone_to_owned().unwrap());
        assert!(matches!(attached, Err(RingsError::Layout(LayoutError::Foreign { .. }))));
        let one = Geometry { rx_rings: 0, ..GEOMETRY };
        Layout::format(&empty, &one).unwrap();
        let attached = Rings::attach(descriptor(&empty).try_clone_to_owned().unwrap());
        assert!(matches!(attached, Err(RingsError::Layout(LayoutError::NoRing(1)))));
        let large = Region::create("large", 8 << 20).unwrap();
        let attached = Rings::attach(descriptor(&large).try_clone_to_owned().unwrap());
        assert!(matches!(attached, Err(RingsError::Memory(RegionError::Size { .. }))));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(matches!(
            Rings::attach(file.into()),
            Err(RingsError::Memory(RegionError::Unsealed))
        ));
    }
}
