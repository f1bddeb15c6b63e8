//! Long messages from the memory of a process of this host, with one copy (`process_vm_readv`).
//!
//! A process proves which memory is its own by a [`Secret`]: random bytes at an address that it names. Whoever
//! finds them there reads that process and no other that has its number by now, or in another namespace.
//! The sender wipes the secret before it gives a buffer back whose message the receiver may still be
//! reading: bytes that were read count only if the secret is there *after* they were.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes of a secret.
pub(crate) const SECRET_BYTES: usize = 16;
/// Parts of one call, less than the kernel's `UIO_MAXIOV`.
const PARTS_IN_A_CALL: usize = 256;

/// This process's secret for one peer. It does not move.
#[derive(Debug)]
pub(crate) struct Secret(Box<[AtomicU64; 2]>);

impl Secret {
    pub(crate) fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        let word = |at: usize| {
            AtomicU64::new(u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte])))
        };
        Self(Box::new([word(0), word(8)]))
    }

    /// Where it is in this process's memory.
    pub(crate) fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }

    pub(crate) fn bytes(&self) -> [u8; SECRET_BYTES] {
        let [first, last] =
            self.0.each_ref().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        std::array::from_fn(|at| if at < 8 { first[at] } else { last[at - 8] })
    }

    /// From now on the peer's reads do not count.
    pub(crate) fn wipe(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        // Before anything that the program writes into its buffers next.
        fence(Ordering::SeqCst);
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// A process whose memory can be read.
#[derive(Debug)]
pub(crate) struct Process {
    pid: libc::pid_t,
    secret_at: u64,
    secret: [u8; SECRET_BYTES],
}

impl Process {
    /// The process with this number, if it has the secret at that address and may be read.
    ///
    /// # Errors
    /// The kernel forbids it, or it is another process.
    pub(crate) fn find(pid: u32, secret_at: u64, secret: [u8; SECRET_BYTES]) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(|_large| io::ErrorKind::InvalidInput)?;
        let process = Self { pid, secret_at, secret };
        if process.is_there()? { Ok(process) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn is_there(&self) -> io::Result<bool> {
        let mut found = [0; SECRET_BYTES];
        let into = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: found.len() };
        // SAFETY: `found` has room for as many bytes and nobody else uses it.
        unsafe { self.read_all(self.secret_at, &mut [into]) }?;
        Ok(self.secret != [0; SECRET_BYTES] && found == self.secret)
    }

    /// Reads the bytes at an address of the process into `parts`, all of them, while they are the message's.
    ///
    /// # Errors
    /// Not all could be read, or the process no longer vouches for them.
    ///
    /// # Safety
    /// Each part may be written, and no reference to it exists.
    pub(crate) unsafe fn copy(&self, place: u64, parts: &mut [libc::iovec]) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.read_all(place, parts) }?;
        if self.is_there()? { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// # Safety
    /// As [`copy`](Self::copy).
    unsafe fn read_all(&self, place: u64, parts: &mut [libc::iovec]) -> io::Result<()> {
        let (mut place, mut filled_count) = (place, 0);
        while let Some(first) = parts.get(filled_count) {
            if first.iov_len == 0 {
                filled_count += 1;
                continue;
            }
            let left = &mut parts[filled_count..];
            let now = &left[..left.len().min(PARTS_IN_A_CALL)];
            let bytes = now.iter().map(|part| part.iov_len).sum();
            let from = libc::iovec {
                iov_base: std::ptr::without_provenance_mut(place as usize),
                iov_len: bytes,
            };
            // SAFETY: the parts may be written (the caller's promise); the other address is of the other
            // process, and the kernel checks it.
            let count = unsafe {
                libc::process_vm_readv(
                    self.pid,
                    now.as_ptr(),
                    now.len() as u64,
                    &raw const from,
                    1,
                    0,
                )
            };
            let mut count = match usize::try_from(count) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(_negative) => return Err(io::Error::last_os_error()),
            };
            place = place.wrapping_add(count as u64);
            for part in left {
                let taken = count.min(part.iov_len);
                part.iov_base = part.iov_base.wrapping_byte_add(taken);
                part.iov_len -= taken;
                count -= taken;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(bytes: &mut [u8], sizes: &[usize]) -> Vec<libc::iovec> {
        let mut at = bytes.as_mut_ptr();
        let mut parts = Vec::new();
        for &iov_len in sizes {
            parts.push(libc::iovec { iov_base: at.cast(), iov_len });
            at = at.wrapping_add(iov_len);
        }
        parts
    }

    /// The reader is the process itself, which the kernel always allows.
    #[test]
    fn bytes_count_only_while_the_secret_is_there() {
        let secret = Secret::new([7; SECRET_BYTES]);
        let message: Vec<u8> = (0..3_000_000).map(|at| (at % 251) as u8).collect();
        let place = message.as_ptr().expose_provenance() as u64;
        let us = std::process::id();
        assert!(Process::find(us, secret.address(), [8; SECRET_BYTES]).is_err(), "another secret");
        let process = Process::find(us, secret.address(), secret.bytes()).unwrap();
        let mut read = vec![0; message.len()];
        let sizes: Vec<usize> = (0..600).map(|_| 5_000).collect();
        // SAFETY: `read` has room for the sizes' sum and is not used meanwhile.
        unsafe { process.copy(place, &mut parts(&mut read, &sizes)) }.unwrap();
        assert!(read == message);
        secret.wipe();
        // SAFETY: as above.
        let outcome = unsafe { process.copy(place, &mut parts(&mut read, &sizes)) };
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_address_of_nothing_is_an_error() {
        let secret = Secret::new([7; SECRET_BYTES]);
        let process = Process::find(std::process::id(), secret.address(), secret.bytes()).unwrap();
        let mut read = vec![0; 100];
        for place in [0, 4096, u64::MAX - 10, 1 << 63] {
            // SAFETY: `read` has that room and is not used meanwhile.
            let outcome = unsafe { process.copy(place, &mut parts(&mut read, &[100])) };
            assert!(outcome.is_err(), "{place}");
        }
    }
}
