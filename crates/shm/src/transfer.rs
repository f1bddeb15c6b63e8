//! Messages between a descriptor and buffers, without a copy in between.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use sys::vectored::{self, Part};

use crate::{Buffer, Bytes};

/// Most buffers of one message, as a packet has slots.
pub const BUFFERS_MAX: usize = 64;

/// Reads one message into `buffers`, filling each before the next; its length, or `None` when there is
/// none. Buffers beyond [`BUFFERS_MAX`] stay empty.
///
/// # Errors
/// As `readv(2)`.
pub fn read_into<'a>(
    fd: impl AsFd,
    buffers: impl Iterator<Item = Buffer<'a>>,
) -> io::Result<Option<usize>> {
    let mut parts = [Part::new(std::ptr::null_mut(), 0); BUFFERS_MAX];
    let mut count = 0;
    for (part, buffer) in parts.iter_mut().zip(buffers) {
        *part = buffer.as_part();
        count += 1;
    }
    // SAFETY: each part is a whole buffer, which its region keeps mapped and writable as long as the
    // borrow lasts.
    settle(|fd| unsafe { vectored::read(fd, &parts[..count]) }, fd.as_fd())
}

/// Writes these parts as one message; false when there is no room for it now.
///
/// # Errors
/// As `writev(2)`.
pub fn write_from<'a>(fd: impl AsFd, bytes: impl Iterator<Item = Bytes<'a>>) -> io::Result<bool> {
    let mut parts = [Part::new(std::ptr::null_mut(), 0); BUFFERS_MAX];
    let mut count = 0;
    for (part, bytes) in parts.iter_mut().zip(bytes) {
        *part = bytes.as_part();
        count += 1;
    }
    // SAFETY: each part may be read as long as the borrow lasts: a buffer's as above, or a slice's.
    let wrote = settle(|fd| unsafe { vectored::write(fd, &parts[..count]) }, fd.as_fd())?;
    Ok(wrote.is_some())
}

fn settle(
    call: impl Fn(BorrowedFd<'_>) -> io::Result<usize>,
    fd: BorrowedFd<'_>,
) -> io::Result<Option<usize>> {
    match call(fd) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::{Buffers, Region};

    #[test]
    fn a_message_is_spread_over_buffers_and_put_together() {
        let region = Region::private(8192).unwrap();
        let buffers = Buffers::new(&region, 0, 64, 8).unwrap();
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let some = || (1..4).filter_map(|index| buffers.get(index));
        assert_eq!(read_into(&reader, some()).unwrap(), None);
        let message: Vec<u8> = (0..150).collect();
        rustix::io::write(&writer, &message).unwrap();
        assert_eq!(read_into(&reader, some()).unwrap(), Some(150));
        assert!(
            write_from(&writer, some().zip([64, 64, 22]).map(|(one, length)| one.first(length)))
                .unwrap()
        );
        let mut back = [0; 200];
        assert_eq!(rustix::io::read(&reader, &mut back).unwrap(), 150);
        assert_eq!(back[..150], message);
        // No more than there is, whatever length is asked for.
        assert!(write_from(&writer, some().map(|one| one.first(usize::MAX))).unwrap());
        assert_eq!(rustix::io::read(&reader, &mut back).unwrap(), 192);
        drop(writer);
        assert_eq!(read_into(&reader, some()).unwrap(), Some(0));
    }
}
