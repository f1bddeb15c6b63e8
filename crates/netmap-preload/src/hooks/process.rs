//! This process's memory, reached as the kernel reaches it: a bad address is an error and no crash.

use std::ffi::c_void;

use rustix::io::Errno;

use crate::user::UserMemory;

/// This process.
#[derive(Debug)]
pub(super) struct ThisProcess;

fn piece(address: u64, length: usize) -> libc::iovec {
    libc::iovec { iov_base: address as usize as *mut c_void, iov_len: length }
}

fn whole(copied: isize, length: usize) -> Result<(), Errno> {
    if usize::try_from(copied) == Ok(length) { Ok(()) } else { Err(Errno::FAULT) }
}

impl UserMemory for ThisProcess {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno> {
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        let remote = piece(address, out.len());
        // SAFETY: no argument.
        let pid = unsafe { libc::getpid() };
        // SAFETY: `local` is `out`, writable for its length; the kernel checks the other address.
        let copied =
            unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        whole(copied, out.len())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let local =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = piece(address, bytes.len());
        // SAFETY: no argument.
        let pid = unsafe { libc::getpid() };
        // SAFETY: `local` is `bytes`, which is only read; the other address is one that the program asked
        // to have written, and the kernel checks it.
        let copied =
            unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
        whole(copied, bytes.len())
    }
}
