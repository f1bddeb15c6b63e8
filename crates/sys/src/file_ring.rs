//! Reads and writes of files by `io_uring(7)`: many under way at once from one thread.
//!
//! The ring owns the buffers, one a slot, and lends a buffer only while no call on it is under way. So no
//! memory that the kernel may write to is ever seen, moved or freed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::SyscallError;
use crate::memory::{Block, Mapping};

/// Most calls under way.
pub const DEPTH_MAX: u32 = 4096;

/// `struct io_uring_params` as numbers of 32 bits, and where its parts lie.
const PARAMETERS: usize = 30;
const FEATURES: usize = 5;
const SUBMISSIONS: usize = 10;
const COMPLETIONS: usize = 20;

const SINGLE_MAPPING: u32 = 1;
const ENTRIES_OFFSET: u64 = 0x1000_0000;
const GET_EVENTS: libc::c_uint = 1;
const READ: u64 = 22;
const WRITE: u64 = 23;

/// Numbers of 64 bits in an entry of the submission queue.
const ENTRY_WORDS: usize = 8;

/// What is done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// The buffer is filled from the file.
    Read,
    /// The buffer is written to the file.
    Write,
}

/// A call that has ended.
#[derive(Debug)]
pub struct Completed {
    /// The slot whose buffer it used.
    pub slot: usize,
    /// Bytes moved, or the system's reason.
    pub moved: io::Result<u64>,
}

/// A ring with a buffer for each call that can be under way.
#[derive(Debug)]
pub struct FileRing {
    fd: OwnedFd,
    /// Both queues; what the places below point into.
    queues: Mapping,
    entries: Mapping,
    sq_tail: NonNull<AtomicU32>,
    sq_mask: u32,
    sq_array: NonNull<AtomicU32>,
    cq_head: NonNull<AtomicU32>,
    cq_tail: NonNull<AtomicU32>,
    cq_mask: u32,
    cq_entries: NonNull<AtomicU64>,
    buffers: Vec<Block>,
    is_busy: Vec<bool>,
}

// SAFETY: it lends atomics only, in mappings that it holds and that are bound to no thread.
unsafe impl Send for FileRing {}

impl FileRing {
    /// A ring of `depth` slots, rounded up to a power of two, with a page-aligned buffer each.
    ///
    /// # Errors
    /// The kernel has no `io_uring` (before 5.4, or switched off), or not for this user; no memory is left;
    /// `depth` is 0 or more than [`DEPTH_MAX`].
    pub fn new(depth: u32, buffer_bytes: usize) -> Result<Self, SyscallError> {
        let invalid =
            |why: &str| SyscallError::new("io_uring_setup", why, io::ErrorKind::Unsupported);
        if depth == 0 || depth > DEPTH_MAX {
            return Err(invalid("a depth from 1 to 4096 is needed"));
        }
        let mut parameters = [0_u32; PARAMETERS];
        let start = parameters.as_mut_ptr();
        // SAFETY: `start` points to the 120 bytes of `io_uring_params`, all of which may be zero; the kernel
        // writes no more than that.
        let number = unsafe { libc::syscall(libc::SYS_io_uring_setup, depth, start) };
        let raw = i32::try_from(number).unwrap_or(-1);
        if raw < 0 {
            return Err(SyscallError::last("io_uring_setup", format!("{depth} entries")));
        }
        // SAFETY: the kernel has just given this descriptor to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        if parameters[FEATURES] & SINGLE_MAPPING == 0 {
            return Err(invalid("Linux 5.4 or later is needed"));
        }
        let (slots, cq_slots) = (parameters[0] as usize, parameters[1] as usize);
        let at = |place: usize| parameters[place] as usize;
        let array = at(SUBMISSIONS + 6);
        let completed = at(COMPLETIONS + 5);
        let length = (array + slots * 4).max(completed + cq_slots * 16);
        let queues = Mapping::of_file(&fd, length, 0, "io_uring")?;
        let entries_bytes = slots * ENTRY_WORDS * 8;
        let entries = Mapping::of_file(&fd, entries_bytes, ENTRIES_OFFSET, "io_uring")?;
        let outside = || invalid("its queues lie outside their mapping");
        let number = |place: usize| queues.part::<AtomicU32>(at(place), 4).ok_or_else(outside);
        let buffers: Result<Vec<Block>, SyscallError> =
            (0..depth).map(|_| Block::new(buffer_bytes)).collect();
        Ok(Self {
            sq_tail: number(SUBMISSIONS + 1)?,
            sq_mask: parameters[0] - 1,
            sq_array: queues.part(array, slots * 4).ok_or_else(outside)?,
            cq_head: number(COMPLETIONS)?,
            cq_tail: number(COMPLETIONS + 1)?,
            cq_mask: parameters[1] - 1,
            cq_entries: queues.part(completed, cq_slots * 16).ok_or_else(outside)?,
            buffers: buffers?,
            is_busy: vec![false; depth as usize],
            fd,
            queues,
            entries,
        })
    }

    /// Number of slots.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.is_busy.len()
    }

    /// Slots whose call is under way.
    #[must_use]
    pub fn busy_count(&self) -> usize {
        self.is_busy.iter().filter(|is_busy| **is_busy).count()
    }

    /// A slot without a call under way.
    #[must_use]
    pub fn free_slot(&self) -> Option<usize> {
        self.is_busy.iter().position(|is_busy| !is_busy)
    }

    /// The buffer of a slot.
    ///
    /// # Panics
    /// While a call on it is under way, or there is no such slot.
    pub fn buffer(&mut self, slot: usize) -> &mut [u8] {
        assert!(!self.is_busy[slot], "a call on slot {slot} is under way");
        &mut self.buffers[slot]
    }

    /// Begins a call on a file with the whole buffer of a slot.
    ///
    /// # Errors
    /// The system's reason; nothing is under way then.
    ///
    /// # Panics
    /// While a call on the slot is under way, or there is no such slot.
    pub fn begin(
        &mut self,
        slot: usize,
        call: Call,
        file: impl AsFd,
        offset: u64,
    ) -> io::Result<()> {
        assert!(!self.is_busy[slot], "a call on slot {slot} is under way");
        let buffer = &mut self.buffers[slot];
        let (address, length) = (buffer.as_mut_ptr().addr() as u64, buffer.len());
        let length = u32::try_from(length).map_err(|_large| io::ErrorKind::InvalidInput)?;
        let operation = if call == Call::Read { READ } else { WRITE };
        let fd = file.as_fd().as_raw_fd().cast_unsigned();
        let words = [
            operation | u64::from(fd) << 32,
            offset,
            address,
            u64::from(length),
            slot as u64,
            0,
            0,
            0,
        ];
        let tail = self.number(self.sq_tail).load(Ordering::Relaxed);
        let index = tail & self.sq_mask;
        for (word, value) in words.into_iter().enumerate() {
            self.entry_word(index, word).store(value, Ordering::Relaxed);
        }
        // SAFETY: the index is below the number of slots, and so many were checked to lie in the mapping.
        let place = unsafe { self.sq_array.add(index as usize) };
        self.number(place).store(index, Ordering::Relaxed);
        self.number(self.sq_tail).store(tail.wrapping_add(1), Ordering::Release);
        // From here on the kernel may use the buffer, unless it says that it took nothing.
        match self.enter(1, 0) {
            Ok(1) => {
                self.is_busy[slot] = true;
                Ok(())
            }
            done => {
                self.number(self.sq_tail).store(tail, Ordering::Release);
                done.and(Err(io::ErrorKind::WouldBlock.into()))
            }
        }
    }

    /// Waits until a call has ended.
    ///
    /// # Errors
    /// None is under way, or the system cannot wait.
    pub fn wait(&mut self) -> io::Result<Completed> {
        if self.busy_count() == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        loop {
            let head = self.number(self.cq_head).load(Ordering::Relaxed);
            if head != self.number(self.cq_tail).load(Ordering::Acquire) {
                let at = (head & self.cq_mask) as usize * 2;
                let (slot, result) = (self.completion_word(at), self.completion_word(at + 1));
                self.number(self.cq_head).store(head.wrapping_add(1), Ordering::Release);
                let slot = usize::try_from(slot).map_err(|_large| io::ErrorKind::InvalidData)?;
                let is_busy = self.is_busy.get_mut(slot).ok_or(io::ErrorKind::InvalidData)?;
                *is_busy = false;
                let result = (result as u32).cast_signed();
                let moved = u64::try_from(result)
                    .map_err(|_negative| io::Error::from_raw_os_error(result.wrapping_neg()));
                return Ok(Completed { slot, moved });
            }
            match self.enter(0, 1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }

    /// Hands over entries and waits for completions; gives the entries taken.
    fn enter(&self, entries: u32, completions: u32) -> io::Result<i64> {
        let fd = self.fd.as_raw_fd();
        let none = std::ptr::null::<libc::sigset_t>();
        let flags = if completions > 0 { GET_EVENTS } else { 0 };
        let call = libc::SYS_io_uring_enter;
        // SAFETY: the ring is open; entries point to buffers of busy slots, which are neither lent nor freed
        // until their completion has been seen; no signal set is passed.
        let taken = unsafe { libc::syscall(call, fd, entries, completions, flags, none, 0_usize) };
        if taken < 0 { Err(io::Error::last_os_error()) } else { Ok(taken) }
    }

    fn number(&self, place: NonNull<AtomicU32>) -> &AtomicU32 {
        debug_assert!(self.queues.length() > 0, "a ring keeps its mapping");
        // SAFETY: checked on creation to lie in the mapping, which `self` keeps, and to be aligned; every bit
        // pattern is an integer.
        unsafe { place.as_ref() }
    }

    fn entry_word(&self, index: u32, word: usize) -> &AtomicU64 {
        let at = (index as usize * ENTRY_WORDS + word) * 8;
        let place = self.entries.part::<AtomicU64>(at, 8).expect("an entry of the mapping");
        // SAFETY: `part` has checked that it lies in the mapping, which `self` keeps, and is aligned.
        unsafe { place.as_ref() }
    }

    fn completion_word(&self, at: usize) -> u64 {
        // SAFETY: `at` is below twice the number of completions, and so many were checked to lie in the mapping.
        let place = unsafe { self.cq_entries.add(at) };
        // SAFETY: as before; the mapping lives as long as `self`.
        let word = unsafe { place.as_ref() };
        word.load(Ordering::Relaxed)
    }
}

impl Drop for FileRing {
    /// Waits for the calls that are under way; buffers whose calls cannot be waited for are never freed.
    fn drop(&mut self) {
        while self.busy_count() > 0 {
            if self.wait().is_err() {
                std::mem::forget(std::mem::take(&mut self.buffers));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> OwnedFd {
        rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).expect("memory")
    }

    #[test]
    fn many_calls_are_under_way_and_each_moves_its_own_buffer() {
        let (file, mut ring) = (file(), FileRing::new(5, 4096).expect("io_uring"));
        assert_eq!(ring.depth(), 5);
        for round in 0..4_u64 {
            for slot in 0..5 {
                ring.buffer(slot).fill(slot as u8 + 1);
                ring.begin(slot, Call::Write, &file, (round * 5 + slot as u64) * 4096)
                    .expect("begun");
            }
            assert!(ring.free_slot().is_none());
            while ring.busy_count() > 0 {
                assert_eq!(ring.wait().expect("a completion").moved.expect("written"), 4096);
            }
        }
        ring.begin(3, Call::Read, &file, 12 * 4096).expect("begun");
        let done = ring.wait().expect("a completion");
        assert_eq!((done.slot, done.moved.expect("read")), (3, 4096));
        assert!(ring.buffer(3).iter().all(|&byte| byte == 3), "slot 2 wrote there");
        assert!(ring.wait().is_err(), "nothing is under way");
    }

    #[test]
    fn a_failed_call_names_its_reason_and_a_read_beyond_the_end_moves_nothing() {
        let mut ring = FileRing::new(1, 512).expect("io_uring");
        let reader = rustix::fs::open("/", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
        ring.begin(0, Call::Read, reader.expect("a directory"), 0).expect("begun");
        let failed = ring.wait().expect("a completion").moved.expect_err("a directory");
        assert_eq!(failed.raw_os_error(), Some(libc::EISDIR));
        ring.begin(0, Call::Read, file(), 0).expect("begun");
        assert_eq!(ring.wait().expect("a completion").moved.expect("nothing"), 0);
        assert!(FileRing::new(0, 512).is_err() && FileRing::new(DEPTH_MAX + 1, 512).is_err());
    }

    #[test]
    fn a_ring_that_is_dropped_waits_for_its_calls() {
        let file = file();
        let mut ring = FileRing::new(8, 1 << 20).expect("io_uring");
        for slot in 0..8 {
            ring.buffer(slot).fill(9);
            ring.begin(slot, Call::Write, &file, (slot as u64) << 20).expect("begun");
        }
        drop(ring);
        assert_eq!(rustix::fs::fstat(&file).expect("a size").st_size, 8 << 20);
    }
}
