//! A region as the memory of an `AF_XDP` socket: its frames go to and fro without a system call each.

use std::os::fd::AsFd;
use std::sync::Arc;

use sys::SyscallError;

use crate::{Buffers, Region};

/// Registers a whole region, cut into buffers of `chunk_bytes`, as a socket's memory. The kernel keeps the
/// pages as long as the socket lives, whoever has them mapped.
///
/// # Errors
/// The chunks are not of 2048 or 4096 bytes, or it is more memory than this user may pin.
pub fn register(
    socket: impl AsFd,
    region: &Arc<Region>,
    chunk_bytes: u32,
) -> Result<(), SyscallError> {
    let failed = || {
        SyscallError::new("setsockopt(XDP_UMEM_REG)", "region", std::io::ErrorKind::InvalidInput)
    };
    let length_bytes = region.length_bytes();
    let start = region.part(0, length_bytes).ok_or_else(failed)?.as_ptr();
    // SAFETY: the region is mapped so long, and never lends references to plain bytes.
    unsafe { sys::xdp::register_memory(socket.as_fd(), start, length_bytes, chunk_bytes) }
}

/// The same region as buffers, for whoever carries the frames.
///
/// # Errors
/// It does not hold a single chunk.
pub fn buffers(region: &Arc<Region>, chunk_bytes: u32) -> Result<Buffers, crate::OutsideRegion> {
    let chunk_bytes = chunk_bytes.max(1) as usize;
    let count = u32::try_from(region.length_bytes() / chunk_bytes).unwrap_or(u32::MAX);
    Buffers::new(region, 0, chunk_bytes, count)
}
