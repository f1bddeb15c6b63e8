//! An interface's rings by `/dev/netmap` (netmap's `net/netmap.h`, API 14), as the driver of `guest/ptnet` offers it, and netmap's
//! own module.
//!
//! Called by the program's `rings`. Frames are sent on the first transmit ring, and received from all receive rings.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::SyscallError;
use crate::memory::Mapping;

const DEVICE: &str = "/dev/netmap";
const API: u16 = 14;
/// `NIOCCTRL`.
const CTRL: libc::Ioctl = 0xc058_6997_u32 as libc::Ioctl;
/// `NIOCTXSYNC`.
const TXSYNC: libc::Ioctl = 0x6994;
/// `NIOCRXSYNC`.
const RXSYNC: libc::Ioctl = 0x6995;
/// `NETMAP_REQ_REGISTER`.
const REGISTER: u16 = 1;
/// `NETMAP_REQ_PORT_HDR_GET`.
const PORT_HDR_GET: u16 = 7;
/// `NR_REG_ALL_NIC`.
const ALL_NIC: u32 = 1;
/// `NR_REG_ONE_NIC`.
const ONE_NIC: u32 = 4;

/// Words of 4 bytes in `struct netmap_if`, bytes before its offsets of rings.
const IF_TX_RINGS: usize = 6;
const IF_RX_RINGS: usize = 7;
/// Most receive rings that are used.
const RX_RINGS_MAX: usize = 64;
const IF_HOST_TX_RINGS: usize = 9;
const IF_BYTES: usize = 56;
/// Words in `struct netmap_ring`, and bytes before its slots.
const RING_SLOTS: usize = 2;
const RING_BUFFER_BYTES: usize = 3;
const RING_HEAD: usize = 5;
const RING_CUR: usize = 6;
const RING_TAIL: usize = 7;
const RING_BYTES: usize = 256;
/// Bytes of `struct netmap_slot`, and where its fields lie.
const SLOT_BYTES: usize = 16;
const SLOT_BUFFER: usize = 0;
const SLOT_LENGTH: usize = 4;
const SLOT_FLAGS: usize = 6;

/// `struct nmreq_header`.
#[repr(C)]
struct Header {
    version: u16,
    kind: u16,
    reserved: u32,
    name: [u8; 64],
    options: u64,
    body: u64,
}

/// `struct nmreq_register`.
#[repr(C)]
#[derive(Default)]
struct Register {
    offset: u64,
    memory_bytes: u64,
    slots: [u32; 2],
    rings: [u16; 2],
    host_rings: [u16; 2],
    memory_id: u16,
    ring: u16,
    mode: u32,
    extra_buffers: u32,
    pad: u32,
    flags: u64,
}

/// `struct nmreq_port_hdr`.
#[repr(C)]
#[derive(Default)]
struct PortHeader {
    bytes: u32,
    pad: u32,
}

/// An interface's rings: the first that transmits and all that receive; the interface gets them back when this is dropped.
#[derive(Debug)]
pub struct NetmapPort {
    device: File,
    memory: Mapping,
    tx: RingPlace,
    rx: Vec<RingPlace>,
    header_bytes: usize,
}

/// Where a ring lies in the mapping.
#[derive(Debug, Clone, Copy)]
struct RingPlace {
    offset: usize,
    /// Where buffer 0 lies.
    buffers: usize,
    buffer_bytes: usize,
    slots_count: u32,
}

impl NetmapPort {
    /// Takes an interface's rings.
    ///
    /// # Errors
    /// No `/dev/netmap`, no such interface there (`ENXIO`), another program has it (`EBUSY`), or what the device says of
    /// its memory is impossible (`EINVAL`).
    pub fn open(interface: &str) -> Result<Self, SyscallError> {
        Self::register(interface, None)
    }

    /// Takes the pair of rings of one queue; other programs can have the others.
    ///
    /// # Errors
    /// As [`open`](Self::open); there is no such queue (`EINVAL`).
    pub fn open_queue(interface: &str, queue: u16) -> Result<Self, SyscallError> {
        Self::register(interface, Some(queue))
    }

    fn register(interface: &str, queue: Option<u16>) -> Result<Self, SyscallError> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open(DEVICE)
            .map_err(|error| SyscallError::new("open", DEVICE, error))?;
        let mode = if queue.is_some() { ONE_NIC } else { ALL_NIC };
        let mut register = Register { mode, ring: queue.unwrap_or(0), ..Register::default() };
        control(&device, interface, REGISTER, &mut register)?;
        let mut header = PortHeader::default();
        control(&device, interface, PORT_HDR_GET, &mut header)?;
        let absurd =
            || SyscallError::new("ioctl(NIOCCTRL)", interface, io::ErrorKind::InvalidInput);
        let bytes = usize::try_from(register.memory_bytes).map_err(|_too_large| absurd())?;
        let memory = Mapping::of_file(&device, bytes, 0, DEVICE)?;
        let start = usize::try_from(register.offset).map_err(|_too_large| absurd())?;
        let only = queue.map(usize::from);
        let (tx, rx) = places(&memory, start, only).ok_or_else(absurd)?;
        let header_bytes = header.bytes as usize;
        Ok(Self { device, memory, tx, rx, header_bytes })
    }

    /// Bytes of virtio-net header before each frame.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Puts `frame`, header included, into the next slots, `most` at most, and hands them over; how many it was.
    ///
    /// # Errors
    /// The interface is gone (`ENXIO`), or the frame is longer than a buffer (`EMSGSIZE`).
    pub fn send(&mut self, frame: &[u8], most: u32) -> Result<u32, SyscallError> {
        if frame.len() > self.tx.buffer_bytes {
            let error = io::Error::from_raw_os_error(libc::EMSGSIZE);
            return Err(SyscallError::new("send", DEVICE, error));
        }
        let ring = self.tx;
        let (head, count) = self.free(ring);
        let count = count.min(most);
        let mut slot = head;
        for _ in 0..count {
            if let Some(buffer) = self.buffer(ring, slot, frame.len()) {
                // SAFETY: `buffer` is of `frame.len()` bytes of the mapping, and `frame` is not in it: nobody gets a
                // reference to it.
                unsafe {
                    buffer.copy_from_nonoverlapping(NonNull::from(frame).cast(), frame.len())
                };
            }
            if let Some(length) = self.slot::<AtomicU16>(ring, slot, SLOT_LENGTH) {
                length.store(frame.len() as u16, Ordering::Relaxed);
            }
            if let Some(flags) = self.slot::<AtomicU16>(ring, slot, SLOT_FLAGS) {
                flags.store(0, Ordering::Relaxed);
            }
            slot = if slot + 1 == ring.slots_count { 0 } else { slot + 1 };
        }
        self.advance(ring, slot);
        self.sync(TXSYNC, "ioctl(NIOCTXSYNC)")?;
        Ok(count)
    }

    /// Takes what has arrived, without a look into it; how many slots it was.
    ///
    /// # Errors
    /// The interface is gone (`ENXIO`).
    pub fn receive(&mut self) -> Result<u32, SyscallError> {
        self.sync(RXSYNC, "ioctl(NIOCRXSYNC)")?;
        let mut slots = 0;
        for &ring in &self.rx {
            let (head, count) = self.free(ring);
            self.advance(ring, (head + count) % ring.slots_count);
            slots += count;
        }
        Ok(slots)
    }

    /// Sleeps until the transmit ring has room, a signal comes, or `longest` is over.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn wait_for_room(&self, longest: Duration) -> Result<(), SyscallError> {
        self.wait(PollFlags::OUT, longest)
    }

    /// Sleeps until a frame has arrived, a signal comes, or `longest` is over.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn wait_for_frames(&self, longest: Duration) -> Result<(), SyscallError> {
        self.wait(PollFlags::IN, longest)
    }

    fn wait(&self, event: PollFlags, longest: Duration) -> Result<(), SyscallError> {
        let mut fds = [PollFd::new(&self.device, event)];
        let timeout = Timespec::try_from(longest).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut fds, Some(&timeout)) {
            // A signal is looked for by the caller.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(SyscallError::new("poll", DEVICE, error)),
        }
        if fds[0].revents().contains(PollFlags::ERR) {
            let error = io::Error::from_raw_os_error(libc::ENXIO);
            return Err(SyscallError::new("poll", DEVICE, error));
        }
        Ok(())
    }

    fn sync(&self, request: libc::Ioctl, name: &'static str) -> Result<(), SyscallError> {
        // SAFETY: the request takes no argument.
        let answer = unsafe { libc::ioctl(self.device.as_raw_fd(), request, 0) };
        if answer < 0 { Err(SyscallError::last(name, DEVICE)) } else { Ok(()) }
    }

    /// The next slot of a ring, and how many from there on are this program's.
    fn free(&self, ring: RingPlace) -> (u32, u32) {
        let word = |index| {
            word(&self.memory, ring.offset, index).map_or(0, |word| word.load(Ordering::Acquire))
        };
        let (head, tail) = (word(RING_HEAD) % ring.slots_count, word(RING_TAIL) % ring.slots_count);
        (head, (tail + ring.slots_count - head) % ring.slots_count)
    }

    fn advance(&self, ring: RingPlace, to: u32) {
        for index in [RING_CUR, RING_HEAD] {
            if let Some(word) = word(&self.memory, ring.offset, index) {
                word.store(to, Ordering::Release);
            }
        }
    }

    /// A field of a slot.
    fn slot<T: Field>(&self, ring: RingPlace, slot: u32, offset: usize) -> Option<&T> {
        let slot = ring.offset + RING_BYTES + slot as usize * SLOT_BYTES;
        T::of(&self.memory, slot + offset)
    }

    /// The buffer of a slot, if it has `length` bytes.
    fn buffer(&self, ring: RingPlace, slot: u32, length: usize) -> Option<NonNull<u8>> {
        let number =
            self.slot::<AtomicU32>(ring, slot, SLOT_BUFFER)?.load(Ordering::Relaxed) as usize;
        let offset = number.checked_mul(ring.buffer_bytes)?.checked_add(ring.buffers)?;
        self.memory.part(offset, length.min(ring.buffer_bytes))
    }
}

/// Integers that the kernel may change at any time.
trait Field: Sized {
    /// The one at an offset, if it lies inside and is aligned.
    fn of(memory: &Mapping, offset: usize) -> Option<&Self> {
        let place: NonNull<Self> = memory.part(offset, size_of::<Self>())?;
        // SAFETY: the place lies in the mapping, which outlives the reference, and is aligned; any bytes are a
        // value, and others change it only as an atomic may be changed.
        Some(unsafe { place.as_ref() })
    }
}

impl Field for AtomicU16 {}
impl Field for AtomicU32 {}
impl Field for AtomicU64 {}

/// A word of 4 bytes behind an offset.
fn word(memory: &Mapping, offset: usize, index: usize) -> Option<&AtomicU32> {
    AtomicU32::of(memory, offset.checked_add(4 * index)?)
}

/// The first transmit ring and the receive rings, at least one, of the interface described at `start`, or those of `only` one
/// queue; `None` if they do not lie in the memory, or if other queues' transmit rings are shown beside those of `only` one.
fn places(
    memory: &Mapping,
    start: usize,
    only: Option<usize>,
) -> Option<(RingPlace, Vec<RingPlace>)> {
    let count = |index| Some(word(memory, start, index)?.load(Ordering::Relaxed) as usize);
    let first_rx = count(IF_TX_RINGS)?.checked_add(count(IF_HOST_TX_RINGS)?)?;
    let tx = place(memory, start, only.unwrap_or(0))?;
    let all = 0..count(IF_RX_RINGS)?.clamp(1, RX_RINGS_MAX);
    if only.is_some_and(|queue| queue >= all.end || Some(queue) >= count(IF_TX_RINGS)) {
        return None;
    }
    // libnetmap takes every ring for the program's own that has an offset.
    let is_shown = |number| ring_offset(memory, start, number) != Some(0);
    if only.is_some_and(|queue| all.clone().any(|one| one != queue && is_shown(one))) {
        return None;
    }
    let rx = only
        .map_or(all, |queue| queue..queue + 1)
        .map(|number| place(memory, start, first_rx.checked_add(number)?))
        .collect::<Option<_>>()?;
    Some((tx, rx))
}

/// Where a ring lies behind `start`, bytes; 0 of one that the program does not have.
fn ring_offset(memory: &Mapping, start: usize, number: usize) -> Option<u64> {
    let at = start.checked_add(IF_BYTES)?.checked_add(number.checked_mul(8)?)?;
    Some(AtomicU64::of(memory, at)?.load(Ordering::Relaxed))
}

fn place(memory: &Mapping, start: usize, number: usize) -> Option<RingPlace> {
    let from_start = ring_offset(memory, start, number)?;
    let offset = start.checked_add(usize::try_from(from_start).ok()?)?;
    let from_ring = AtomicU64::of(memory, offset)?.load(Ordering::Relaxed);
    let buffers = offset.checked_add(usize::try_from(from_ring).ok()?)?;
    let value = |index| Some(word(memory, offset, index)?.load(Ordering::Relaxed));
    let (slots_count, buffer_bytes) = (value(RING_SLOTS)?, value(RING_BUFFER_BYTES)? as usize);
    let slots_bytes = (slots_count as usize).checked_mul(SLOT_BYTES)?;
    memory.part::<u8>(offset, RING_BYTES.checked_add(slots_bytes)?)?;
    (slots_count > 1).then_some(RingPlace { offset, buffers, buffer_bytes, slots_count })
}

/// One request about an interface; `body` is what it says and what comes back.
fn control<B>(device: &File, interface: &str, kind: u16, body: &mut B) -> Result<(), SyscallError> {
    let mut name = [0; 64];
    let long = || SyscallError::new("ioctl(NIOCCTRL)", interface, io::ErrorKind::InvalidInput);
    name.get_mut(..interface.len())
        .filter(|_| interface.len() < 64)
        .ok_or_else(long)?
        .copy_from_slice(interface.as_bytes());
    let body = (&raw mut *body).expose_provenance() as u64;
    let mut header = Header { version: API, kind, reserved: 0, name, options: 0, body };
    let argument = &raw mut header;
    // SAFETY: `header` is the request's structure and lives through the call; its body is the structure that the kind of
    // request asks for (the two callers pair them), exclusively borrowed until then.
    let answer = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), CTRL, argument) };
    if answer < 0 { Err(SyscallError::last("ioctl(NIOCCTRL)", interface)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_lengths_of_netmaps() {
        assert_eq!(
            [size_of::<Header>(), size_of::<Register>(), size_of::<PortHeader>()],
            [88, 56, 8]
        );
    }

    fn memory(words: &[(usize, u64)]) -> Mapping {
        let file = crate::memory::file_in_memory(1 << 16, 0).unwrap();
        let memory = Mapping::of_file(&file, 1 << 16, 0, "test").unwrap();
        for (offset, value) in words {
            AtomicU64::of(&memory, *offset).unwrap().store(*value, Ordering::Relaxed);
        }
        memory
    }

    #[test]
    fn rings_are_found_behind_those_of_the_host() {
        // One transmit ring, one receive ring, one transmit ring of the host's.
        let (both, host) = (1 | 1 << 32, 1 << 32);
        let found = places(
            &memory(&[
                (24, both),
                (32, host),
                (56, 4096),
                (72, 8192),
                (4096, 12_288),
                (4104, 16 | 2048 << 32),
                (8192, 8192),
                (8200, 8 | 2048 << 32),
            ]),
            0,
            None,
        );
        let (tx, rx) = found.unwrap();
        let [rx] = rx[..] else { panic!("{rx:?}") };
        assert_eq!((tx.offset, tx.buffers, tx.slots_count), (4096, 16_384, 16));
        assert_eq!((rx.offset, rx.buffers, rx.buffer_bytes), (8192, 16_384, 2048));
    }

    #[test]
    fn a_queues_interface_shows_no_ring_of_another_queue() {
        // Two pairs of rings, of which the program has the second.
        let own = [(24, 2 | 2 << 32), (64, 4096), (80, 4096), (4104, 16 | 2048 << 32)];
        let (tx, rx) = places(&memory(&own), 0, Some(1)).unwrap();
        assert_eq!((tx.offset, rx.len()), (4096, 1));
        let with_first: Vec<_> = own.into_iter().chain([(56, 4096)]).collect();
        assert!(places(&memory(&with_first), 0, Some(1)).is_none());
    }

    #[test]
    fn rings_outside_the_memory_are_none() {
        for wrong in [(56, 1 << 16), (56, u64::MAX), (4104, u64::from(u32::MAX)), (4104, 1)] {
            let right = [(24, 1 | 1 << 32), (56, 4096), (64, 4096), (4104, 16 | 2048 << 32)];
            assert!(places(&memory(&right), 0, None).is_some());
            assert!(places(&memory(&right), 0, Some(0)).is_some());
            assert!(places(&memory(&right), 0, Some(1)).is_none(), "there is one queue");
            let words: Vec<_> = right.into_iter().chain([wrong]).collect();
            assert!(places(&memory(&words), 0, None).is_none(), "{wrong:?}");
        }
    }
}
