//! Files by POSIX calls, and buffers that O_DIRECT accepts.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

/// Alignment of buffers, bytes: a page.
const ALIGNMENT: usize = 4096;

/// A transfer that moves less than it should is repeated for the rest so often.
const RETRIES_MAX: u32 = 10_000;

/// Bytes that begin at a page, as O_DIRECT needs it.
#[derive(Debug, Clone)]
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// A buffer of zeros.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { bytes, start, length }
    }

    /// Its bytes.
    #[must_use]
    pub fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    /// Its bytes, to be changed.
    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// Opens or creates a file for reading and writing, as IOR does: without truncating it.
///
/// # Errors
/// The system's reason.
pub fn create(path: &str, is_direct: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::RDWR | direct(is_direct) | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o664))?)
}

/// Opens a file for reading.
///
/// # Errors
/// The system's reason.
pub fn open(path: &str, is_direct: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | direct(is_direct) | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn direct(is_direct: bool) -> OFlags {
    if is_direct { OFlags::DIRECT } else { OFlags::empty() }
}

/// Writes a whole buffer; with `once` only what one call takes. Gives the bytes written.
///
/// # Errors
/// The system's reason.
pub fn write_at(fd: &OwnedFd, bytes: &[u8], offset: u64, once: bool) -> io::Result<u64> {
    move_at(bytes.len(), once, |done| {
        Ok(rustix::io::pwrite(fd, &bytes[done..], offset + done as u64)?)
    })
}

/// Fills a whole buffer; with `once` only what one call gives. Gives the bytes read, less at the end of
/// the file.
///
/// # Errors
/// The system's reason.
pub fn read_at(fd: &OwnedFd, bytes: &mut [u8], offset: u64, once: bool) -> io::Result<u64> {
    move_at(bytes.len(), once, |done| {
        Ok(rustix::io::pread(fd, &mut bytes[done..], offset + done as u64)?)
    })
}

fn move_at(
    length: usize,
    once: bool,
    mut call: impl FnMut(usize) -> io::Result<usize>,
) -> io::Result<u64> {
    let mut done = 0;
    let mut retries = 0;
    while done < length {
        match call(done) {
            Ok(0) => break,
            Ok(moved) => done += moved,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        retries += 1;
        if once || retries > RETRIES_MAX {
            break;
        }
    }
    Ok(done as u64)
}

/// Closes a file. Some file systems report only here that data was lost on its way to the server.
///
/// # Errors
/// The system's reason.
pub fn close(fd: OwnedFd) -> io::Result<()> {
    sys::file_lock::close(fd)
}

/// Length of a file, bytes.
///
/// # Errors
/// The system's reason.
pub fn length(path: &str) -> io::Result<u64> {
    Ok(rustix::fs::stat(path)?.st_size.cast_unsigned())
}

/// Whether the path exists.
#[must_use]
pub fn exists(path: &str) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXISTS).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_at_a_page() {
        for length in [8, 4096, 47_008] {
            let mut buffer = AlignedBuffer::new(length);
            assert_eq!(buffer.get().as_ptr().align_offset(ALIGNMENT), 0);
            assert_eq!((buffer.get().len(), buffer.get_mut().len()), (length, length));
        }
    }

    #[test]
    fn a_transfer_goes_on_after_a_part_unless_only_one_call_is_wanted() {
        let mut parts = [Ok(3), Err(io::ErrorKind::Interrupted.into()), Ok(5)].into_iter();
        assert_eq!(move_at(8, false, |_| parts.next().expect("a call")).expect("moved"), 8);
        assert_eq!(move_at(8, true, |_| Ok(3)).expect("moved"), 3);
        assert_eq!(move_at(8, false, |done| Ok(if done == 0 { 4 } else { 0 })).expect("moved"), 4);
        assert!(move_at(8, false, |_| Err(io::ErrorKind::StorageFull.into())).is_err());
    }
}
