//! Where everything lies in a region.
//!
//! ```text
//! page 0   header: magic, version, counts and offsets, then a line a ring
//! page 1   CSB, 64 bytes a ring, written by users
//! page 2   CSB, 64 bytes a ring, written by owners
//! page 3   kept free for netmap's interface descriptors
//! page 4   rings: 256 bytes of netmap_ring, then 16 bytes a slot; each ring begins a page
//! …        buffers; 0 and 1 are never used
//! ```
//!
//! The header is written once. It lies in shared memory, so whoever reads it takes a copy and
//! believes it only after every ring and the last buffer turned out to lie inside the region.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use shm::{Buffers, OutsideRegion, Region, View};
use thiserror::Error;

use crate::end::{End, Seat, Violation};
use crate::mapped::{CSB_WORDS, Mapped, SLOT_WORDS};
use crate::slot::{Slot, SlotFlags};

/// "CSRINGS1", little-endian.
const MAGIC: u64 = 0x3153_474e_4952_5343;
/// Version of the layout.
pub const VERSION: u32 = 1;

const PAGE_BYTES: usize = 4096;
/// Bytes of a ring's entry in either CSB.
pub const CSB_ENTRY_BYTES: usize = 64;
/// Where the users' CSB begins.
pub const USER_CSB_OFFSET: usize = PAGE_BYTES;
/// Where the owners' begins.
pub const OWNER_CSB_OFFSET: usize = 2 * PAGE_BYTES;
const RINGS_OFFSET: usize = 4 * PAGE_BYTES;
/// Bytes of `netmap_ring` before a ring's slots.
pub const RING_HEADER_BYTES: usize = 256;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 8 * SLOT_WORDS;

/// Most rings of a region: as many CSB entries as a page has.
pub const RINGS_MAX: u32 = 64;
/// Most slots of a ring, as netmap's.
pub const SLOTS_MAX: u32 = 4096;
/// Longest buffer; a slot's length is 16 bits.
pub const BUFFER_BYTES_MAX: u32 = 65_536;
/// Buffers as long as netmap's, and one cache line apart from a power of two: with 2048 the first
/// lines of all frames would share a few sets of each cache.
pub const BUFFER_BYTES_DEFAULT: u32 = 2048 + 64;
/// Buffers 0 and 1 are no slot's.
pub const FIRST_BUFFER: u32 = 2;
const BUFFERS_MAX: u64 = 1 << 21;

/// Which way packets go, seen by the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the user to the owner.
    Transmit,
    /// From the owner to the user.
    Receive,
}

/// What a region is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Transmit rings; they come first.
    pub tx_rings: u32,
    /// Receive rings.
    pub rx_rings: u32,
    /// Slots of each ring, 2 to [`SLOTS_MAX`]; one of them is never in use.
    pub slots: u32,
    /// Bytes of each buffer, a multiple of 64 from 64 to [`BUFFER_BYTES_MAX`].
    pub buffer_bytes: u32,
    /// Buffers beyond those that the slots hold at the beginning.
    pub extra_buffers: u32,
}

/// Why a region or a geometry is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A count or size is beyond what a region may have.
    #[error("{what} is {value}: {from} to {to} is possible")]
    Range {
        /// Name of the count or size.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Smallest possible.
        from: u64,
        /// Largest possible.
        to: u64,
    },
    /// The region does not begin as one of ours.
    #[error("not a region of packet rings (magic {magic:#x}, version {version})")]
    Foreign {
        /// First word of the region.
        magic: u64,
        /// Version that the region states.
        version: u32,
    },
    /// Something does not lie inside the region.
    #[error(transparent)]
    Outside(#[from] OutsideRegion),
    /// There is no such ring.
    #[error("there is no ring {0}")]
    NoRing(u32),
    /// The seat's own cursor is not a slot.
    #[error(transparent)]
    Cursor(#[from] Violation),
}

impl Geometry {
    /// Length of a region for this.
    ///
    /// # Errors
    /// A count or size is out of range.
    pub fn region_bytes(&self) -> Result<u64, LayoutError> {
        let layout = self.layout()?;
        let buffers = u64::from(layout.buffers_count) * u64::from(layout.buffer_bytes);
        Ok(u64::from(layout.buffers_offset) + buffers)
    }

    fn layout(&self) -> Result<Layout, LayoutError> {
        let rings_count = self.tx_rings.saturating_add(self.rx_rings);
        range("the number of rings", rings_count, 1, RINGS_MAX)?;
        range("the number of slots", self.slots, 2, SLOTS_MAX)?;
        range("the number of extra buffers", self.extra_buffers, 0, 1_u32 << 20)?;
        check_buffer_bytes(self.buffer_bytes)?;
        let ring_bytes = RING_HEADER_BYTES + self.slots as usize * SLOT_BYTES;
        let stride = ring_bytes.next_multiple_of(PAGE_BYTES);
        let place = |ring: u32| RingPlace {
            direction: if ring < self.tx_rings { Direction::Transmit } else { Direction::Receive },
            slots: self.slots,
            offset: small(RINGS_OFFSET + ring as usize * stride),
        };
        Ok(Layout {
            rings: (0..rings_count).map(place).collect(),
            buffers_offset: small(RINGS_OFFSET + rings_count as usize * stride),
            buffer_bytes: self.buffer_bytes,
            buffers_count: FIRST_BUFFER + rings_count * self.slots + self.extra_buffers,
        })
    }
}

/// Offsets of rings are far below 4 GiB: 64 rings of 4096 slots take 17 MiB.
fn small(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

fn range(
    what: &'static str,
    value: impl Into<u64>,
    from: u32,
    to: impl Into<u64>,
) -> Result<(), LayoutError> {
    let (value, from, to) = (value.into(), from.into(), to.into());
    if (from..=to).contains(&value) {
        Ok(())
    } else {
        Err(LayoutError::Range { what, value, from, to })
    }
}

fn check_buffer_bytes(bytes: u32) -> Result<(), LayoutError> {
    range("the length of a buffer", bytes, 64, BUFFER_BYTES_MAX)?;
    range("the length of a buffer modulo 64", bytes % 64, 0, 0_u32)
}

/// Where a ring lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingPlace {
    /// Which way packets go.
    pub direction: Direction,
    /// Number of slots.
    pub slots: u32,
    /// Where its `netmap_ring` begins, bytes from the start of the region.
    pub offset: u32,
}

/// Where everything lies: a private copy, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    rings: Vec<RingPlace>,
    buffers_offset: u32,
    buffer_bytes: u32,
    buffers_count: u32,
}

/// `u32` words of the header: magic and version 3, then these.
const HEADER_WORDS: usize = 8;
const RING_WORDS: usize = 4;

impl Layout {
    /// Writes a new region: header, CSB, rings with a buffer in each slot. Buffers beyond those of the
    /// slots have no owner yet; [`Layout::first_extra_buffer`] is the first.
    ///
    /// # Errors
    /// A count or size is out of range, or the region too short.
    pub fn format(region: &Arc<Region>, geometry: &Geometry) -> Result<Self, LayoutError> {
        let layout = geometry.layout()?;
        layout.buffers(region)?;
        layout.format_rings(region, 0..small(layout.rings.len()), FIRST_BUFFER..)?;
        Ok(layout)
    }

    /// Writes some rings of a region anew, with the next of `buffers` in each slot, and the header; the other rings stay as
    /// they are.
    ///
    /// # Errors
    /// There is no such ring, or the region is too short.
    pub fn format_rings(
        &self,
        region: &Arc<Region>,
        rings: impl IntoIterator<Item = u32>,
        buffers: impl IntoIterator<Item = u32>,
    ) -> Result<(), LayoutError> {
        let mut buffers = buffers.into_iter();
        for ring in rings {
            let (place, memory) = (self.place(ring)?, self.memory(region, ring)?);
            self.write_netmap_ring(region, ring, place)?;
            for (index, buffer) in (0..place.slots).zip(&mut buffers) {
                memory.set_slot(index, Slot { buffer, length_bytes: 0, flags: SlotFlags(0) });
            }
            End::format(&memory, place.direction == Direction::Transmit, place.slots);
        }
        self.write_header(region)
    }

    /// Where everything lies in a region that was [formatted](Self::format) so and has been in use since: nothing
    /// in it is read or changed.
    ///
    /// # Errors
    /// A count or size is out of range, or the region too short.
    pub fn resume(region: &Arc<Region>, geometry: &Geometry) -> Result<Self, LayoutError> {
        let layout = geometry.layout()?;
        layout.check(region)?;
        Ok(layout)
    }

    /// Reads the header of a region that somebody else made, and checks that everything it names
    /// lies inside.
    ///
    /// # Errors
    /// It is not one of ours, or does not hold what it claims.
    pub fn read(region: &Arc<Region>) -> Result<Self, LayoutError> {
        let words = region.view::<AtomicU32>(0, PAGE_BYTES / 4)?;
        let word = |index: usize| words[index].load(Ordering::Acquire);
        let (magic, version) = (u64::from(word(0)) | u64::from(word(1)) << 32, word(2));
        if magic != MAGIC || version != VERSION {
            return Err(LayoutError::Foreign { magic, version });
        }
        let rings_count = word(3);
        range("the number of rings", rings_count, 1, RINGS_MAX)?;
        let ring = |ring: usize| {
            let at = HEADER_WORDS + ring * RING_WORDS;
            RingPlace {
                direction: if word(at) == 0 { Direction::Transmit } else { Direction::Receive },
                slots: word(at + 1),
                offset: word(at + 2),
            }
        };
        let layout = Self {
            rings: (0..rings_count as usize).map(ring).collect(),
            buffers_offset: word(4),
            buffer_bytes: word(5),
            buffers_count: word(6),
        };
        layout.check(region)?;
        Ok(layout)
    }

    fn check(&self, region: &Arc<Region>) -> Result<(), LayoutError> {
        check_buffer_bytes(self.buffer_bytes)?;
        range("the number of buffers", self.buffers_count, FIRST_BUFFER, BUFFERS_MAX)?;
        for (ring, place) in (0..).zip(&self.rings) {
            range("the number of slots", place.slots, 2, SLOTS_MAX)?;
            self.memory(region, ring)?;
        }
        self.buffers(region)?;
        Ok(())
    }

    fn write_header(&self, region: &Arc<Region>) -> Result<(), LayoutError> {
        let words = region.view::<AtomicU32>(0, PAGE_BYTES / 4)?;
        let put = |index: usize, value: u32| words[index].store(value, Ordering::Relaxed);
        put(3, small(self.rings.len()));
        put(4, self.buffers_offset);
        put(5, self.buffer_bytes);
        put(6, self.buffers_count);
        for (ring, place) in self.rings.iter().enumerate() {
            let at = HEADER_WORDS + ring * RING_WORDS;
            put(at, u32::from(place.direction == Direction::Receive));
            put(at + 1, place.slots);
            put(at + 2, place.offset);
        }
        put(2, VERSION);
        let [low, high] = [MAGIC as u32, (MAGIC >> 32) as u32];
        put(1, high);
        words[0].store(low, Ordering::Release);
        Ok(())
    }

    /// The constant fields of `struct netmap_ring`, so that a program that knows netmap's rings finds
    /// its buffers.
    fn write_netmap_ring(
        &self,
        region: &Arc<Region>,
        ring: u32,
        place: &RingPlace,
    ) -> Result<(), LayoutError> {
        let long = region.view::<AtomicU64>(place.offset as usize, 1)?;
        let to_buffers = u64::from(self.buffers_offset) - u64::from(place.offset);
        long[0].store(to_buffers, Ordering::Relaxed);
        let words = region.view::<AtomicU32>(place.offset as usize + 8, 3)?;
        words[0].store(place.slots, Ordering::Relaxed);
        words[1].store(self.buffer_bytes, Ordering::Relaxed);
        let kind = u32::from(place.direction == Direction::Receive);
        words[2].store(ring | kind << 16, Ordering::Relaxed);
        Ok(())
    }

    /// The rings.
    #[must_use]
    pub fn rings(&self) -> &[RingPlace] {
        &self.rings
    }

    /// Where the buffers begin, bytes from the start of the region.
    #[must_use]
    pub fn buffers_offset(&self) -> u32 {
        self.buffers_offset
    }

    /// Bytes of a buffer.
    #[must_use]
    pub fn buffer_bytes(&self) -> u32 {
        self.buffer_bytes
    }

    /// Buffers, the two unused ones counted.
    #[must_use]
    pub fn buffers_count(&self) -> u32 {
        self.buffers_count
    }

    /// The first buffer that no slot holds at the beginning.
    #[must_use]
    pub fn first_extra_buffer(&self) -> u32 {
        FIRST_BUFFER + self.rings.iter().map(|place| place.slots).sum::<u32>()
    }

    /// Takes a seat at a ring; see [`End::join`] for `asked`.
    ///
    /// # Errors
    /// No such ring, it does not lie inside the region, or the seat's cursor is not a slot.
    pub fn end(
        &self,
        region: &Arc<Region>,
        ring: u32,
        seat: Seat,
        asked: u32,
    ) -> Result<End<Mapped>, LayoutError> {
        let place = self.place(ring)?;
        Ok(End::join(self.memory(region, ring)?, seat, place.slots, asked)?)
    }

    /// The buffers.
    ///
    /// # Errors
    /// They do not lie inside the region.
    pub fn buffers(&self, region: &Arc<Region>) -> Result<Buffers, LayoutError> {
        let (offset, bytes) = (self.buffers_offset as usize, self.buffer_bytes as usize);
        Ok(Buffers::new(region, offset, bytes, self.buffers_count)?)
    }

    fn place(&self, ring: u32) -> Result<&RingPlace, LayoutError> {
        self.rings.get(ring as usize).ok_or(LayoutError::NoRing(ring))
    }

    fn memory(&self, region: &Arc<Region>, ring: u32) -> Result<Mapped, LayoutError> {
        let place = self.place(ring)?;
        let csb = |offset: usize| -> Result<View<AtomicU32>, OutsideRegion> {
            region.view(offset + ring as usize * CSB_ENTRY_BYTES, CSB_WORDS)
        };
        let slots_offset = place.offset as usize + RING_HEADER_BYTES;
        let slots = region.view(slots_offset, place.slots as usize * SLOT_WORDS)?;
        Ok(Mapped::new(csb(USER_CSB_OFFSET)?, csb(OWNER_CSB_OFFSET)?, slots))
    }
}

#[cfg(test)]
mod tests;
