//! A netmap memory region as a program maps it: descriptors of interfaces, rings, buffers.
//!
//! ```text
//! this process's memory       descriptors of interfaces, then rings: netmap_ring and its slots
//! the switch's, or ours too   what the switch keeps at its beginning, then the buffers
//! ```
//!
//! The program maps both, one behind the other, and netmap's offsets lead from a ring to its buffers. So the
//! rings that the program writes are never those that the switch reads, and the buffers are the same.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::{FIRST_BUFFER, Layout};
use rustix::io::Errno;
use shm::{Buffers, Region, View};

use crate::abi::{interface, ring as ring_abi};
use crate::user::or;

/// Bytes of an interface's descriptor, as many as the offsets of 249 rings need.
pub const INTERFACE_BYTES: usize = 2048;
/// Interfaces of a memory.
pub const INTERFACES: usize = 64;
/// Rings of a memory.
pub const RINGS: usize = 128;
/// Most slots of a ring.
pub const SLOTS_MAX: u32 = ring::SLOTS_MAX;
/// Bytes from one ring to the next: a whole number of pages.
pub const RING_BYTES: usize = 17 * 4096;
/// Where the rings begin.
pub const RINGS_OFFSET: usize = INTERFACES * INTERFACE_BYTES;

/// Buffers of the memory that is not a port's own; pages are taken when touched.
const SHARED_BUFFERS: u32 = 1 << 16;
const SHARED_BUFFER_BYTES: usize = 2048;

/// A region.
#[derive(Debug)]
pub struct Memory {
    id: u16,
    front: Arc<Region>,
    back: Arc<Region>,
    buffers: Buffers,
    buffers_offset: usize,
    pool: Mutex<Pool>,
}

/// What is taken.
#[derive(Debug)]
struct Pool {
    interfaces: Vec<bool>,
    rings: Vec<bool>,
    buffers: Vec<bool>,
    /// Where the last search for a buffer ended.
    next_buffer: usize,
}

fn no_memory<E>(_: E) -> Errno {
    Errno::NOMEM
}

impl Memory {
    /// Buffers of this process alone.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn alone(id: u16) -> Result<Arc<Self>, Errno> {
        let bytes = SHARED_BUFFERS as usize * SHARED_BUFFER_BYTES;
        let back = Region::create("netmap-buffers", bytes as u64).map_err(no_memory)?;
        Self::new(id, back, 0, SHARED_BUFFER_BYTES, SHARED_BUFFERS)
    }

    /// The buffers of a port or pipe. Those that its rings do not hold are free for this process, or at a
    /// pipe, which another process may share, one half of them.
    ///
    /// # Errors
    /// `ENOMEM`, or `EIO` for a region that is none.
    pub fn of_switch(
        id: u16,
        region: &Arc<Region>,
        half: Option<bool>,
    ) -> Result<Arc<Self>, Errno> {
        let layout = Layout::read(region).map_err(or(Errno::IO))?;
        let (offset, bytes) = (layout.buffers_offset() as usize, layout.buffer_bytes() as usize);
        let memory = Self::new(id, Arc::clone(region), offset, bytes, layout.buffers_count())?;
        let mut pool = memory.pool();
        let (first, end) = (layout.first_extra_buffer() as usize, pool.buffers.len());
        let middle = first + end.saturating_sub(first) / 2;
        let free = match half {
            None => first..end,
            Some(false) => first..middle,
            Some(true) => middle..end,
        };
        for (index, used) in pool.buffers.iter_mut().enumerate() {
            *used = !free.contains(&index);
        }
        drop(pool);
        Ok(memory)
    }

    fn new(
        id: u16,
        back: Arc<Region>,
        buffers_offset: usize,
        buffer_bytes: usize,
        count: u32,
    ) -> Result<Arc<Self>, Errno> {
        let front_bytes = RINGS_OFFSET + RINGS * RING_BYTES;
        let front = Region::create("netmap-rings", front_bytes as u64).map_err(no_memory)?;
        let buffers =
            Buffers::new(&back, buffers_offset, buffer_bytes, count).map_err(no_memory)?;
        let mut taken = vec![false; count as usize];
        taken.iter_mut().take(FIRST_BUFFER as usize).for_each(|used| *used = true);
        let pool = Pool {
            interfaces: vec![false; INTERFACES],
            rings: vec![false; RINGS],
            buffers: taken,
            next_buffer: 0,
        };
        Ok(Arc::new(Self { id, front, back, buffers, buffers_offset, pool: Mutex::new(pool) }))
    }

    /// What programs call it.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// The two regions a program maps, in order.
    #[must_use]
    pub fn parts(&self) -> [&Arc<Region>; 2] {
        [&self.front, &self.back]
    }

    /// Bytes a program maps.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.front.length_bytes() + self.back.length_bytes()
    }

    /// Where the buffers begin in what a program maps.
    #[must_use]
    pub fn buffers_offset(&self) -> usize {
        self.front.length_bytes() + self.buffers_offset
    }

    /// The buffers.
    #[must_use]
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Whether a slot may name it.
    #[inline]
    #[must_use]
    pub fn has_buffer(&self, buffer: u32) -> bool {
        (FIRST_BUFFER..self.buffers.count()).contains(&buffer)
    }

    /// Room for an interface's descriptor: its offset.
    ///
    /// # Errors
    /// `ENOMEM`: all are taken.
    pub fn take_interface(&self) -> Result<usize, Errno> {
        take(&mut self.pool().interfaces).map(|index| index * INTERFACE_BYTES)
    }

    /// Gives it back.
    pub fn free_interface(&self, offset: usize) {
        free(&mut self.pool().interfaces, offset / INTERFACE_BYTES);
    }

    /// Room for a ring: its offset.
    ///
    /// # Errors
    /// `ENOMEM`: all are taken.
    pub fn take_ring(&self) -> Result<usize, Errno> {
        take(&mut self.pool().rings).map(|index| RINGS_OFFSET + index * RING_BYTES)
    }

    /// Gives it back.
    pub fn free_ring(&self, offset: usize) {
        free(&mut self.pool().rings, offset.saturating_sub(RINGS_OFFSET) / RING_BYTES);
    }

    /// A buffer that nobody holds.
    #[must_use]
    pub fn take_buffer(&self) -> Option<u32> {
        let mut pool = self.pool();
        let start = pool.next_buffer;
        let count = pool.buffers.len();
        let index = (start..count).chain(0..start).find(|&index| !pool.buffers[index])?;
        pool.buffers[index] = true;
        pool.next_buffer = index + 1;
        u32::try_from(index).ok()
    }

    /// Gives one back; any number may be named.
    pub fn free_buffer(&self, buffer: u32) {
        if self.has_buffer(buffer) {
            free(&mut self.pool().buffers, buffer as usize);
        }
    }

    /// So many buffers as a list, each with the number of the next at its beginning; the first, and how
    /// many there were to be had.
    #[must_use]
    pub fn take_list(&self, wanted: u32) -> (u32, u32) {
        let (mut first, mut count) = (0_u32, 0);
        while count < wanted {
            let Some(buffer) = self.take_buffer() else { break };
            let place = self.buffers.get(buffer);
            if !place.is_some_and(|place| place.write(0, &first.to_le_bytes())) {
                break;
            }
            (first, count) = (buffer, count + 1);
        }
        (first, count)
    }

    /// Frees a list that a program left; it may lead anywhere, and in a circle.
    pub fn free_list(&self, first: u32) {
        let mut buffer = first;
        for _ in 0..self.buffers.count() {
            let Some(place) = self.buffers.get(buffer).filter(|_| self.has_buffer(buffer)) else {
                return;
            };
            let mut next = [0; 4];
            if !place.read(0, &mut next) {
                return;
            }
            self.free_buffer(buffer);
            buffer = u32::from_le_bytes(next);
        }
    }

    /// Words of an interface's descriptor.
    ///
    /// # Errors
    /// `EIO`: no such place.
    pub fn interface_words(&self, offset: usize) -> Result<View<AtomicU32>, Errno> {
        self.front.view(offset, INTERFACE_BYTES / 4).map_err(or(Errno::IO))
    }

    /// Words of a ring's header.
    ///
    /// # Errors
    /// `EIO`: no such place.
    pub fn ring_words(&self, offset: usize) -> Result<View<AtomicU32>, Errno> {
        self.front.view(offset, ring_abi::HEADER_BYTES / 4).map_err(or(Errno::IO))
    }

    /// Slots of a ring, two words each.
    ///
    /// # Errors
    /// `EIO`: no such place.
    pub fn ring_slots(
        &self,
        offset: usize,
        slots: u32,
    ) -> Result<View<std::sync::atomic::AtomicU64>, Errno> {
        let at = offset + ring_abi::HEADER_BYTES;
        self.front.view(at, slots as usize * 2).map_err(or(Errno::IO))
    }

    /// Most rings whose offsets a descriptor has room for.
    #[must_use]
    pub const fn offsets_max() -> usize {
        (INTERFACE_BYTES - interface::HEADER_BYTES) / 8
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take(places: &mut [bool]) -> Result<usize, Errno> {
    let index = places.iter().position(|used| !used).ok_or(Errno::NOMEM)?;
    places[index] = true;
    Ok(index)
}

fn free(places: &mut [bool], index: usize) {
    if let Some(used) = places.get_mut(index) {
        *used = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_go_round() {
        let memory = Memory::alone(1).unwrap();
        let (first, count) = memory.take_list(3);
        assert_eq!(count, 3);
        assert!(memory.has_buffer(first));
        memory.free_list(first);
        let (_, all) = memory.take_list(u32::MAX);
        assert_eq!(all, SHARED_BUFFERS - FIRST_BUFFER, "all but the two that are nobody's");
        assert_eq!(memory.take_buffer(), None);
    }

    #[test]
    fn a_list_may_lead_anywhere() {
        let memory = Memory::alone(1).unwrap();
        let (first, _) = memory.take_list(2);
        let circle = memory.buffers().get(first).unwrap();
        assert!(circle.write(0, &first.to_le_bytes()));
        memory.free_list(first);
        memory.free_list(u32::MAX);
        memory.free_list(1);
    }
}
