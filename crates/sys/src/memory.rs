//! Mappings the traffic engine needs: blocks to send from and receive into, files in memory.

use std::ffi::c_int;
use std::fs::File;
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;

use crate::SyscallError;

/// A mapping of this process, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<libc::c_void>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for Mapping {}

// SAFETY: through a shared reference nothing is written.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(
        length: usize,
        protection: c_int,
        flags: c_int,
        fd: Option<BorrowedFd<'_>>,
        object: &'static str,
    ) -> Result<Self, SyscallError> {
        let length = length.max(1);
        let number = fd.map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: the kernel chooses the address, so nothing mapped already is touched; callers
        // in this module never pass MAP_FIXED.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, number, 0) };
        if start == libc::MAP_FAILED {
            return Err(SyscallError::last("mmap", object));
        }
        let start = NonNull::new(start).expect("mmap gives no null page unasked");
        Ok(Self { start, length })
    }

    /// `length` bytes of a file from `offset` on, which others may write at any time.
    pub(crate) fn of_file(
        fd: impl AsFd,
        length: usize,
        offset: u64,
        object: &'static str,
    ) -> Result<Self, SyscallError> {
        let too_far = |_| SyscallError::new("mmap", object, std::io::ErrorKind::InvalidInput);
        let offset = libc::off_t::try_from(offset).map_err(too_far)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let (anywhere, number) = (std::ptr::null_mut(), fd.as_fd().as_raw_fd());
        // SAFETY: the kernel chooses the address, so nothing mapped already is touched.
        let start =
            unsafe { libc::mmap(anywhere, length.max(1), protection, flags, number, offset) };
        if start == libc::MAP_FAILED {
            return Err(SyscallError::last("mmap", object));
        }
        let start = NonNull::new(start).expect("mmap gives no null page unasked");
        Ok(Self { start, length: length.max(1) })
    }

    /// Address of `length` bytes from `offset` for values of type `T`, if they lie inside and it is
    /// aligned.
    pub(crate) fn part<T>(&self, offset: usize, length: usize) -> Option<NonNull<T>> {
        let end = offset.checked_add(length)?;
        if end > self.length {
            return None;
        }
        // SAFETY: `offset <= end <= self.length`.
        let part = unsafe { self.start.cast::<u8>().add(offset) };
        Some(part.cast()).filter(|part| part.is_aligned())
    }

    pub(crate) fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `length` are what mmap gave; nobody borrows from a value being
        // dropped. A failure would leak the mapping, no more.
        unsafe { libc::munmap(self.start.as_ptr(), self.length) };
    }
}

/// Zeroed memory that starts at a page and lies in huge pages where the host has them.
#[derive(Debug)]
pub struct Block {
    mapping: Mapping,
    offset: usize,
    length: usize,
}

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Most memory a block of this many bytes takes once all of it has been touched.
#[must_use]
pub fn block_resident_bytes(bytes: u64) -> u64 {
    bytes.max(1).div_ceil(HUGE_PAGE_BYTES as u64).saturating_mul(HUGE_PAGE_BYTES as u64)
}

impl Block {
    /// A block of this many bytes. Its memory is taken as it is touched, not before.
    ///
    /// # Errors
    /// The host has not that much address space.
    pub fn new(bytes: usize) -> Result<Self, SyscallError> {
        let length = bytes.max(1);
        // One huge page more than needed, so that the block can start where one starts.
        let whole = length.next_multiple_of(HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapping = Mapping::new(whole, protection, flags, None, "anonymous memory")?;
        let address = mapping.address();
        let offset = address.next_multiple_of(HUGE_PAGE_BYTES) - address;
        // SAFETY: the advice concerns this mapping only and keeps its contents. Where huge pages
        // are switched off it is refused, and small ones serve.
        unsafe { libc::madvise(mapping.start.as_ptr(), whole, libc::MADV_HUGEPAGE) };
        Ok(Self { mapping, offset, length })
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.mapping.start.as_ptr().cast::<u8>();
        // SAFETY: `offset` is less than a huge page, and the mapping is that much longer than
        // `length`.
        let start = unsafe { start.add(self.offset) };
        // SAFETY: the bytes lie within one private mapping that lives as long as `self`, are
        // initialised (anonymous memory is zero) and are written through `&mut self` only.
        unsafe { std::slice::from_raw_parts(start, self.length) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.mapping.start.as_ptr().cast::<u8>();
        // SAFETY: as in `deref`.
        let start = unsafe { start.add(self.offset) };
        // SAFETY: as in `deref`; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(start, self.length) }
    }
}

/// A file in memory filled with one byte (`memfd_create(2)`): what `sendfile` sends from.
///
/// # Errors
/// No memory left, or a kernel without memfd (Linux before 3.17).
pub fn file_in_memory(bytes: u64, fill: u8) -> Result<File, SyscallError> {
    let name = "clearstream-block";
    let mut file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(|error| SyscallError::new("memfd_create", name, error))?;
    let chunk = [fill; 4096];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(4096) as usize;
        file.write_all(&chunk[..length])
            .map_err(|error| SyscallError::new("write", "file in memory", error))?;
        left -= length as u64;
    }
    Ok(file)
}

/// A read-only mapping of a socket's receive queue, for `TCP_ZEROCOPY_RECEIVE`.
pub(crate) fn map_socket(socket: impl AsFd, length: usize) -> Result<Mapping, SyscallError> {
    let fd = Some(socket.as_fd());
    Mapping::new(length, libc::PROT_READ, libc::MAP_SHARED, fd, "TCP socket")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn a_block_is_aligned_and_writable_to_its_last_byte() {
        for bytes in [1, 4096, (3 << 20) + 1] {
            let mut block = Block::new(bytes).unwrap();
            assert_eq!(block.len(), bytes);
            assert!(block.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES));
            assert!(block.iter().all(|&byte| byte == 0));
            block.fill(7);
            assert_eq!(block[bytes - 1], 7);
        }
    }

    #[test]
    fn a_file_holds_what_was_asked() {
        let mut file = file_in_memory(10_001, 0x55).unwrap();
        file.rewind().unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, vec![0x55; 10_001]);
    }
}
