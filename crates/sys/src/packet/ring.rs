//! Packets that the kernel copies into memory of this process as they arrive (`PACKET_RX_RING` with `TPACKET_V2`, kernel
//! `Documentation/networking/packet_mmap.rst`): taking one costs no system call.
//!
//! A frame belongs to the kernel until its status says otherwise, and again once its status is 0. Frames are handed over
//! in their order in the ring; one that another core is still writing holds up those behind it.

use std::ffi::c_int;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Instruction, MacAddress, bind, unbound};
use crate::SyscallError;
use crate::memory::Mapping;
use crate::socket::{self, Family};

/// `PACKET_RX_RING`, `PACKET_VERSION` and `TPACKET_V2` (kernel `include/uapi/linux/if_packet.h`).
const PACKET_RX_RING: c_int = 5;
const PACKET_VERSION: c_int = 10;
const TPACKET_V2: c_int = 1;
/// `TP_STATUS_USER`: the frame belongs to this process.
const STATUS_USER: u32 = 1;
/// `TP_STATUS_KERNEL`.
const STATUS_KERNEL: u32 = 0;

const FRAME_BYTES: usize = 256;
/// What the kernel allocates at a time.
const BLOCK_BYTES: usize = 64 << 10;
const BLOCK_FRAMES_COUNT: usize = BLOCK_BYTES / FRAME_BYTES;
const BLOCKS_COUNT_MAX: usize = 256;

/// Offsets in a frame: `struct tpacket2_hdr`, and at the next multiple of 16 `struct sockaddr_ll`.
const LENGTH_AT: usize = 4;
const KEPT_AT: usize = 8;
const PACKET_AT: usize = 14;
const SECONDS_AT: usize = 16;
const NANOSECONDS_AT: usize = 20;
const SOURCE_AT: usize = 32 + 12;
/// Where the kernel puts the packet of a `SOCK_DGRAM` socket: both structures, 52 bytes, rounded up to 64, and 16.
const HEAD_BYTES: usize = 80;

/// So much of each packet is kept.
pub const KEPT_BYTES: usize = FRAME_BYTES - HEAD_BYTES;

/// A packet that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Captured<'a> {
    /// Ethernet address it came from.
    pub source_mac: MacAddress,
    /// Its first [`KEPT_BYTES`], or all of it if it is shorter.
    pub packet: &'a [u8],
    /// How long it was.
    pub packet_bytes: usize,
    /// When the kernel took it in: time since 1970 on the system's clock, which may be set meanwhile.
    pub arrived: Duration,
}

/// What arrives at a packet socket.
pub struct ReceiveRing {
    mapping: Mapping,
    frames_count: usize,
    /// The frame that is filled next, or that holds the packet to be taken next.
    next: usize,
    /// Copy of the frame that was taken last.
    frame: Box<[u8; FRAME_BYTES]>,
}

impl ReceiveRing {
    /// Opens a non-blocking socket as [`open`](super::open) does, whose packets arrive in a ring. A packet for which no
    /// frame is free is lost; there are at least `frames_count` and at most 65 536.
    ///
    /// # Errors
    /// As [`open`](super::open), or the kernel has no memory for the ring.
    pub fn open(
        interface_index: u32,
        family: Family,
        filter: &[Instruction],
        frames_count: usize,
    ) -> Result<(OwnedFd, Self), SyscallError> {
        let fd = unbound(filter)?;
        let call = "setsockopt(PACKET_VERSION)";
        socket::set(fd.as_fd(), libc::SOL_PACKET, PACKET_VERSION, &TPACKET_V2, call)?;
        let blocks_count = frames_count.div_ceil(BLOCK_FRAMES_COUNT).clamp(1, BLOCKS_COUNT_MAX);
        let frames_count = blocks_count * BLOCK_FRAMES_COUNT;
        // `struct tpacket_req`.
        let request = [BLOCK_BYTES, blocks_count, FRAME_BYTES, frames_count]
            .map(|number| u32::try_from(number).expect("at most 65 536"));
        let call = "setsockopt(PACKET_RX_RING)";
        socket::set(fd.as_fd(), libc::SOL_PACKET, PACKET_RX_RING, &request, call)?;
        let mapping = Mapping::of_file(&fd, blocks_count * BLOCK_BYTES, 0, "AF_PACKET")?;
        bind(&fd, interface_index, family)?;
        let frame = Box::new([0; FRAME_BYTES]);
        Ok((fd, Self { mapping, frames_count, next: 0, frame }))
    }

    /// Packets that there is room for.
    #[must_use]
    pub fn frames_count(&self) -> usize {
        self.frames_count
    }

    /// Takes the next packet, if one is there.
    pub fn take(&mut self) -> Option<Captured<'_>> {
        let place = self.place();
        // SAFETY: the place is aligned and in the mapping, which `self` keeps; every bit pattern is an integer.
        let status = unsafe { place.cast::<AtomicU32>().as_ref() };
        // Whoever sees the status sees the frame.
        if status.load(Ordering::Acquire) & STATUS_USER == 0 {
            return None;
        }
        // SAFETY: `FRAME_BYTES` from the place on lie in the mapping. The kernel does not write them before the
        // status is 0 again, and no other process has the ring mapped: its socket was made here and is not inherited.
        unsafe {
            place.copy_to_nonoverlapping(NonNull::from(&mut *self.frame).cast(), FRAME_BYTES)
        };
        // The frame was read before.
        status.store(STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.frames_count;
        Some(captured(&self.frame))
    }

    fn place(&self) -> NonNull<u8> {
        let place = self.mapping.part::<AtomicU32>(self.next * FRAME_BYTES, FRAME_BYTES);
        place.expect("the mapping has all frames, at multiples of their size").cast()
    }
}

impl fmt::Debug for ReceiveRing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ReceiveRing({})", self.frames_count)
    }
}

/// What a frame says; lengths and offsets that lead out of it are cut off.
fn captured(frame: &[u8; FRAME_BYTES]) -> Captured<'_> {
    let word = |at: usize| frame[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    let half = |at: usize| frame[at..].first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes));
    let begin = usize::from(half(PACKET_AT)).min(FRAME_BYTES);
    let end = begin.saturating_add(word(KEPT_AT) as usize).min(FRAME_BYTES);
    Captured {
        source_mac: frame[SOURCE_AT..].first_chunk().copied().unwrap_or_default(),
        packet: &frame[begin..end],
        packet_bytes: word(LENGTH_AT) as usize,
        arrived: Duration::from_secs(word(SECONDS_AT).into())
            + Duration::from_nanos(word(NANOSECONDS_AT).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_any_bytes_is_read_without_panic() {
        for byte in [0, 1, 0x7f, 0xff] {
            let frame = [byte; FRAME_BYTES];
            let captured = captured(&frame);
            assert!(captured.packet.len() <= FRAME_BYTES);
        }
    }

    #[test]
    fn a_frame_tells_source_length_and_time() {
        let mut frame = [0; FRAME_BYTES];
        frame[LENGTH_AT..][..4].copy_from_slice(&1500_u32.to_ne_bytes());
        frame[KEPT_AT..][..4].copy_from_slice(&176_u32.to_ne_bytes());
        frame[PACKET_AT..][..2].copy_from_slice(&80_u16.to_ne_bytes());
        frame[SECONDS_AT..][..4].copy_from_slice(&7_u32.to_ne_bytes());
        frame[NANOSECONDS_AT..][..4].copy_from_slice(&9_u32.to_ne_bytes());
        frame[SOURCE_AT..][..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        frame[HEAD_BYTES..].fill(0x45);
        let expected = Captured {
            source_mac: [2, 0, 0, 0, 0, 1],
            packet: &[0x45; KEPT_BYTES],
            packet_bytes: 1500,
            arrived: Duration::new(7, 9),
        };
        assert_eq!(captured(&frame), expected);
    }
}
