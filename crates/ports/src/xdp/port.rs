//! Frames out of an open queue and into it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use shm::{Buffer, Buffers, OutsideRegion, Region, RegionError, frames};
use sys::SyscallError;
use sys::xdp::{Descriptor, Rings};
use thiserror::Error;

use super::arrived::Arrived;
use super::open::Opened;
use crate::end::EndError;
use crate::slots::{Arrivals, PACKET_SLOTS_MAX, Part, Space};

use super::{CHUNK_BYTES, MEMORY_BYTES, RECEIVE_CHUNKS, RING_SLOTS};

/// Why descriptors make no port.
#[derive(Debug, Error)]
pub enum PortError {
    /// Not the socket and the memory, or something the kernel refuses.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    /// The memory is not what [`open`](super::open()) makes.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// It is too short.
    #[error(transparent)]
    Outside(#[from] OutsideRegion),
    /// It is too long: what nobody needs would count as the opener's and be somebody else's.
    #[error("the frame memory has {0} bytes; at most {MEMORY_BYTES} are accepted")]
    TooLong(usize),
    /// The socket's rings make no sense.
    #[error("its rings: {0}")]
    Rings(io::Error),
}

/// A frame that arrived, or a part of one.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Contents of the frame.
    pub bytes: Buffer<'a>,
    /// Whether it goes on in the next one.
    pub goes_on: bool,
}

/// What became of frames to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// The kernel has all of them.
    Done,
    /// Some wait for those before them.
    Later,
    /// The device is down; they wait until it is not.
    Down,
}

/// A device's queue; frames lie in memory that the kernel writes, so they are only copied in and out.
#[derive(Debug)]
pub struct Port {
    rings: Rings,
    arrived: Arrived,
    chunks: Buffers,
    /// Chunks to send in that hold no frame.
    free: Vec<u32>,
    is_zero_copy: bool,
    takes_parts: bool,
    socket: OwnedFd,
    /// Closed after the socket.
    _holds: Vec<OwnedFd>,
}

/// Calls to the kernel until it has taken what there is; each takes at least 32 frames.
const FLUSH_CALLS: u32 = 4 * RING_SLOTS / 32;

impl Port {
    /// Takes over what [`open`](super::open()) opened, here or in another process.
    ///
    /// # Errors
    /// The descriptors are something else.
    pub fn new(
        socket: OwnedFd,
        memory: &Arc<Region>,
        takes_parts: bool,
        holds: Vec<OwnedFd>,
    ) -> Result<Self, PortError> {
        let rings = sys::xdp::map_rings(&socket, RING_SLOTS)?;
        let is_zero_copy = sys::xdp::is_zero_copy(socket.as_fd())?;
        if memory.length_bytes() as u64 > MEMORY_BYTES {
            return Err(PortError::TooLong(memory.length_bytes()));
        }
        let chunks = frames::buffers(memory, CHUNK_BYTES)?;
        if chunks.count() < 2 * RECEIVE_CHUNKS {
            let length_bytes = 2 * (RECEIVE_CHUNKS * CHUNK_BYTES) as usize;
            return Err(OutsideRegion { offset: 0, length_bytes }.into());
        }
        // Those first in memory are used first.
        let free = (RECEIVE_CHUNKS..2 * RECEIVE_CHUNKS).rev().collect();
        let mut port = Self {
            rings,
            arrived: Arrived::default(),
            chunks,
            free,
            is_zero_copy,
            takes_parts,
            socket,
            _holds: holds,
        };
        let room = port.rings.fill.reserve(RING_SLOTS).map_err(PortError::Rings)?;
        for chunk in 0..room.min(RECEIVE_CHUNKS) {
            port.rings.fill.put_chunk(chunk, u64::from(chunk) * u64::from(CHUNK_BYTES));
        }
        port.rings.fill.publish(room.min(RECEIVE_CHUNKS));
        Ok(port)
    }

    /// The same from descriptors as they come from elsewhere: socket, memory, and what else holds.
    ///
    /// # Errors
    /// As for [`Port::new`]; also fewer than two.
    pub fn from_fds(fds: Vec<OwnedFd>, takes_parts: bool) -> Result<Self, PortError> {
        let mut fds = fds.into_iter();
        match (fds.next(), fds.next()) {
            (Some(socket), Some(memory)) => {
                Self::new(socket, &Region::attach(memory)?, takes_parts, fds.collect())
            }
            _ => {
                let few = io::ErrorKind::InvalidInput;
                Err(SyscallError::new("AF_XDP port", "fewer than two descriptors", few).into())
            }
        }
    }

    /// Whether the device reads and writes the frames' memory itself.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Frames, or parts, that have arrived.
    ///
    /// # Errors
    /// The rings make no sense.
    #[inline]
    pub fn peek(&mut self) -> io::Result<u32> {
        self.peek_for(1)
    }

    /// The same; looks at the kernel's side when fewer than `wanted` are known of.
    #[inline]
    fn peek_for(&mut self, wanted: u32) -> io::Result<u32> {
        let known = self.rings.rx.peek(wanted)?;
        self.arrived.read(known, |offset| self.rings.rx.get(offset));
        Ok(known)
    }

    /// The `offset`th of them, as it was when [`peek`](Self::peek) saw it first; `None` where the descriptor points out of the memory.
    #[inline]
    #[must_use]
    pub fn frame(&self, offset: u32) -> Option<Frame<'_>> {
        let descriptor = self.arrived.get(offset)?;
        Some(Frame { bytes: self.bytes(descriptor)?, goes_on: descriptor.goes_on })
    }

    /// Where it points to; `None` out of the memory.
    #[inline]
    fn bytes(&self, descriptor: Descriptor) -> Option<Buffer<'_>> {
        let Descriptor { address, length_bytes, .. } = descriptor;
        let chunk = self.chunks.get(u32::try_from(address / u64::from(CHUNK_BYTES)).ok()?)?;
        chunk.cut((address % u64::from(CHUNK_BYTES)) as usize, length_bytes as usize)
    }

    /// Whether the frame of the `offset`th part goes on in the next.
    #[inline]
    #[must_use]
    pub fn goes_on(&self, offset: u32) -> bool {
        self.arrived.get(offset).is_some_and(|descriptor| descriptor.goes_on)
    }

    /// Gives the first `count` back: their chunks are there to receive again.
    ///
    /// # Errors
    /// The rings make no sense.
    pub fn release(&mut self, count: u32) -> io::Result<()> {
        let Rings { rx, fill, .. } = &mut self.rings;
        let given = self.arrived.release(count);
        // As many chunks as the fill ring has slots are on their way, so there is room; a peer that
        // scribbles over the rings loses chunks, its own.
        let room = fill.reserve(count)?.min(count);
        for (offset, Descriptor { address, .. }) in (0..room).zip(given) {
            fill.put_chunk(offset, address - address % u64::from(CHUNK_BYTES));
        }
        fill.publish(room);
        rx.release(count);
        Ok(())
    }

    /// Whether the driver has stopped receiving until somebody polls the port.
    #[must_use]
    pub fn wants_poll(&self) -> bool {
        self.rings.fill.wants_wakeup()
    }

    /// Polls it without waiting, so that such a driver receives again.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn poll_now(&self) -> io::Result<()> {
        let mut set = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut set, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Parts that may be put now.
    ///
    /// # Errors
    /// The rings make no sense.
    pub fn room(&mut self, wanted: u32) -> io::Result<u32> {
        if self.free.len() < wanted as usize {
            self.reclaim()?;
        }
        // No more than RECEIVE_CHUNKS.
        Ok(self.rings.tx.reserve(wanted)?.min(self.free.len() as u32))
    }

    /// The chunk of the `offset`th part to send, to write into; `None` without room.
    #[inline]
    #[must_use]
    pub fn chunk(&self, offset: u32) -> Option<Buffer<'_>> {
        self.chunks.get(self.chunk_number(offset)?)
    }

    /// Says what is in it.
    #[inline]
    pub fn put(&self, offset: u32, length_bytes: u32, goes_on: bool) {
        if let Some(chunk) = self.chunk_number(offset) {
            let address = u64::from(chunk) * u64::from(CHUNK_BYTES);
            self.rings.tx.put(offset, Descriptor { address, length_bytes, goes_on });
        }
    }

    /// Hands the first `count` parts over, and has the kernel send them.
    ///
    /// # Errors
    /// The device was removed.
    pub fn publish(&mut self, count: u32) -> io::Result<Flush> {
        self.free.truncate(self.free.len().saturating_sub(count as usize));
        self.rings.tx.publish(count);
        self.flush()
    }

    /// Has the kernel send what it has not yet.
    ///
    /// # Errors
    /// The device was removed.
    pub fn flush(&mut self) -> io::Result<Flush> {
        for _ in 0..FLUSH_CALLS {
            let before = self.rings.tx.pending();
            if before == 0 || !self.rings.tx.wants_wakeup() {
                return Ok(Flush::Done);
            }
            match sys::xdp::wake(self.socket.as_fd()) {
                Ok(_) if self.rings.tx.pending() == before => return Ok(Flush::Later),
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(Errno::NETDOWN.raw_os_error()) => {
                    return Ok(Flush::Down);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Flush::Later)
    }

    /// Whether the device is still there.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self) -> io::Result<()> {
        match sys::xdp::pending_error(self.socket.as_fd()) {
            Ok(None) => Ok(()),
            Ok(Some(error)) => Err(error),
            Err(error) => Err(error.source),
        }
    }

    /// The socket once more, to ask for its counters.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    fn chunk_number(&self, offset: u32) -> Option<u32> {
        let index = self.free.len().checked_sub(offset as usize + 1)?;
        self.free.get(index).copied()
    }

    /// Takes back the chunks of frames that have been sent.
    fn reclaim(&mut self) -> io::Result<()> {
        let sent = self.rings.completion.peek(RING_SLOTS)?;
        for offset in 0..sent {
            let chunk = self.rings.completion.get(offset).address / u64::from(CHUNK_BYTES);
            let chunk = u32::try_from(chunk).unwrap_or(u32::MAX);
            let ours = (RECEIVE_CHUNKS..2 * RECEIVE_CHUNKS).contains(&chunk);
            if ours && self.free.len() < RECEIVE_CHUNKS as usize {
                self.free.push(chunk);
            }
        }
        self.rings.completion.release(sent);
        Ok(())
    }
}

impl TryFrom<Opened> for Port {
    type Error = PortError;

    fn try_from(opened: Opened) -> Result<Self, PortError> {
        Self::new(opened.socket, &opened.memory, opened.takes_parts, opened.holds)
    }
}

/// Readable when frames have arrived, and in error when the device is gone.
impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Frames looked at before the first is copied: another core has written them.
const AHEAD_FRAMES: u32 = 64;

/// A port that a turn borrows, to take frames from.
impl Arrivals for &mut Port {
    #[inline]
    fn arrived(&mut self, wanted: u32) -> Result<u32, EndError> {
        let arrived = self.peek_for(wanted)?;
        let ahead = 0..arrived.min(AHEAD_FRAMES);
        ahead.filter_map(|slot| self.frame(slot)).for_each(|frame| frame.bytes.prefetch());
        Ok(arrived)
    }

    #[inline]
    fn part(&self, slot: u32) -> Option<Part<'_>> {
        let descriptor = self.arrived.get(slot)?;
        let bytes = self.bytes(descriptor).map(|bytes| bytes.first(usize::MAX));
        Some(Part { bytes, goes_on: descriptor.goes_on })
    }

    fn give_back(&mut self, slots: u32) -> Result<(), EndError> {
        Ok(Port::release(self, slots)?)
    }
}

/// The same to send by.
impl Space for &mut Port {
    #[inline]
    fn reserve(&mut self, wanted: u32) -> Result<u32, EndError> {
        Ok(self.room(wanted)?)
    }

    #[inline]
    fn buffer_bytes(&self) -> usize {
        CHUNK_BYTES as usize
    }

    #[inline]
    fn slots_max(&self) -> u32 {
        if self.takes_parts { PACKET_SLOTS_MAX } else { 1 }
    }

    #[inline]
    fn buffer(&self, slot: u32) -> Option<Buffer<'_>> {
        self.chunk(slot)
    }

    #[inline]
    fn set(&mut self, slot: u32, bytes: usize, goes_on: bool) {
        // At most a chunk's.
        self.put(slot, bytes as u32, goes_on);
    }

    fn hand_over(&mut self, slots: u32) -> Result<(), EndError> {
        self.publish(slots)?;
        Ok(())
    }
}
