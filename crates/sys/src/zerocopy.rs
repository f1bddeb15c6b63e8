//! Without a copy: `MSG_ZEROCOPY` sends and their completions, `sendfile`, `TCP_ZEROCOPY_RECEIVE`.
//!
//! Called by the traffic engine. Source: kernel `Documentation/networking/msg_zerocopy.rst`, and
//! `tcp_zerocopy_receive` in kernel `net/ipv4/tcp.c`.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use crate::memory::{Mapping, map_socket};
use crate::{SyscallError, socket};

/// `MSG_ZEROCOPY` (kernel `include/linux/socket.h`).
const MSG_ZEROCOPY: c_int = 0x400_0000;
/// `SO_EE_ORIGIN_ZEROCOPY` (kernel `include/uapi/linux/errqueue.h`).
const ORIGIN_ZEROCOPY: u8 = 5;
/// `SO_EE_CODE_ZEROCOPY_COPIED` (kernel `include/uapi/linux/errqueue.h`).
const CODE_COPIED: u8 = 1;
/// `TCP_ZEROCOPY_RECEIVE` (kernel `include/uapi/linux/tcp.h`).
const TCP_ZEROCOPY_RECEIVE: c_int = 35;

/// Keeps `SIGPIPE` from the calling thread: unlike `send`, `sendfile` cannot be told not to raise it
/// when the peer has closed.
///
/// # Errors
/// `pthread_sigmask` failed.
pub fn block_broken_pipe_signal() -> Result<(), SyscallError> {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `signals` is writable; the call initialises it.
    unsafe { libc::sigemptyset(signals.as_mut_ptr()) };
    // SAFETY: `signals` is initialised and SIGPIPE is a signal.
    unsafe { libc::sigaddset(signals.as_mut_ptr(), libc::SIGPIPE) };
    let (how, old) = (libc::SIG_BLOCK, std::ptr::null_mut());
    // SAFETY: `signals` is initialised and lives through the call; the old mask is not asked for.
    let error = unsafe { libc::pthread_sigmask(how, signals.as_ptr(), old) };
    if error == 0 {
        return Ok(());
    }
    Err(SyscallError::new("pthread_sigmask", "SIGPIPE", io::Error::from_raw_os_error(error)))
}

/// Allows `MSG_ZEROCOPY` on a socket (`SO_ZEROCOPY`, Linux 4.14).
///
/// # Errors
/// `setsockopt` failed: an older kernel.
pub fn allow_zero_copy(fd: impl AsFd) -> Result<(), SyscallError> {
    let call = "setsockopt(SO_ZEROCOPY)";
    socket::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, &1, call)
}

/// Sends with `MSG_ZEROCOPY`. The kernel may read `block` until the completion of this call is
/// seen by [`next_completion`]: what is written to it before then may be sent. (Memory that is
/// freed before then is kept by the kernel, so nothing worse can happen.)
///
/// # Errors
/// As `send(2)`; `ENOBUFS` when too many completions wait to be read.
pub fn send_zero_copy(fd: impl AsFd, block: &[u8]) -> io::Result<usize> {
    let (fd, flags) = (fd.as_fd().as_raw_fd(), MSG_ZEROCOPY | libc::MSG_NOSIGNAL);
    // SAFETY: `block` is valid for reads of its length through the call; afterwards the kernel
    // holds the pages, not the addresses.
    let sent = unsafe { libc::send(fd, block.as_ptr().cast(), block.len(), flags) };
    usize::try_from(sent).map_err(|_negative| io::Error::last_os_error())
}

/// Some `MSG_ZEROCOPY` sends are done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Number of the first of them; the successful sends of a socket are counted from 0, modulo
    /// 2^32.
    pub first: u32,
    /// Number of the last of them.
    pub last: u32,
    /// Whether the kernel copied after all.
    pub copied: bool,
}

/// The next completion in a socket's error queue; `None` when there is none now.
///
/// # Errors
/// `recvmsg` failed.
pub fn next_completion(fd: impl AsFd) -> io::Result<Option<Completion>> {
    #[repr(C, align(8))]
    struct Control([u8; 128]);
    let mut control = Control([0; 128]);
    // SAFETY: all-zero is a valid `msghdr`: null pointers with lengths of 0.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    let (fd, flags) = (fd.as_fd().as_raw_fd(), libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT);
    // SAFETY: `header` is valid; its control buffer is writable for the length it states and lives
    // through the call; it has no vectors.
    let answer = unsafe { libc::recvmsg(fd, &raw mut header, flags) };
    if answer < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    let length = header.msg_controllen.min(control.0.len());
    Ok(parse_completion(&control.0[..length]))
}

/// The completion among control messages: `cmsghdr`, then `sock_extended_err`.
fn parse_completion(control: &[u8]) -> Option<Completion> {
    let word = |at: usize| Some(u32::from_ne_bytes(control.get(at..at + 4)?.try_into().ok()?));
    let byte = |at: usize| control.get(at).copied();
    let level_and_type = (word(8)?.cast_signed(), word(12)?.cast_signed());
    let is_error = level_and_type == (libc::SOL_IP, libc::IP_RECVERR)
        || level_and_type == (libc::SOL_IPV6, libc::IPV6_RECVERR);
    // `sock_extended_err`: errno, origin, type, code, padding, info, data.
    if !is_error || word(16)? != 0 || byte(20)? != ORIGIN_ZEROCOPY {
        return None;
    }
    Some(Completion { first: word(24)?, last: word(28)?, copied: byte(22)? & CODE_COPIED != 0 })
}

/// A window onto a TCP socket's receive queue: whole pages appear in it without a copy.
#[derive(Debug)]
pub struct ReceiveWindow {
    mapping: Mapping,
}

/// What one look through a [`ReceiveWindow`] gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// Bytes mapped, and taken from the queue.
    pub mapped_bytes: usize,
    /// Bytes next in the queue that must be received with a copy, because they do not fill pages.
    pub to_copy_bytes: usize,
}

/// `struct tcp_zerocopy_receive` (kernel `include/uapi/linux/tcp.h`), its first 16 bytes: all there
/// is since Linux 4.18.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct ZeroCopyReceive {
    address: u64,
    length: u32,
    recv_skip_hint: u32,
}

const _: () = assert!(size_of::<ZeroCopyReceive>() == 16);

impl socket::Plain for ZeroCopyReceive {}

impl ReceiveWindow {
    /// A window of this many bytes onto a connected socket (Linux 4.18).
    ///
    /// # Errors
    /// `mmap` failed: not a TCP socket, or an older kernel.
    pub fn new(fd: impl AsFd, bytes: usize) -> Result<Self, SyscallError> {
        Ok(Self { mapping: map_socket(fd, bytes)? })
    }

    /// Replaces what the window shows by what is next in the queue of `fd`, which must be the
    /// socket it was made for (another one is refused by the kernel).
    ///
    /// # Errors
    /// `getsockopt` failed; `EIO` at the end of the stream.
    pub fn advance(&mut self, fd: impl AsFd) -> Result<Mapped, SyscallError> {
        let ask = ZeroCopyReceive {
            address: self.mapping.address() as u64,
            length: u32::try_from(self.mapping.length()).unwrap_or(u32::MAX),
            recv_skip_hint: 0,
        };
        let call = "getsockopt(TCP_ZEROCOPY_RECEIVE)";
        let (answer, _length) =
            socket::get(fd.as_fd(), libc::IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, ask, call)?;
        Ok(Mapped {
            mapped_bytes: answer.length as usize,
            to_copy_bytes: answer.recv_skip_hint as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn loopback_admits_that_it_copied() {
        let (near, far) = pair();
        allow_zero_copy(&near).unwrap();
        assert_eq!(next_completion(&near).unwrap(), None);
        for _ in 0..3 {
            assert_eq!(send_zero_copy(&near, &[1; 50_000]).unwrap(), 50_000);
        }
        let mut taken = vec![0; 150_000];
        io::Read::read_exact(&mut &far, &mut taken).unwrap();
        let (began, mut next) = (Instant::now(), 0);
        while next < 3 {
            assert!(began.elapsed() < Duration::from_secs(5), "completions are missing");
            if let Some(completion) = next_completion(&near).unwrap() {
                assert_eq!(completion.first, next);
                assert!(completion.copied);
                next = completion.last + 1;
            }
        }
    }

    #[test]
    fn completions_are_taken_apart_without_panic() {
        for length in 0..64 {
            assert_eq!(parse_completion(&vec![0xff; length]), None);
        }
    }

    #[test]
    fn a_window_maps_pages_or_says_what_to_copy() {
        let (near, far) = pair();
        let mut window = ReceiveWindow::new(&far, 1 << 20).unwrap();
        (&near).write_all(&[9; 100_000]).unwrap();
        let mut taken = 0;
        while taken < 100_000 {
            far.peek(&mut [0]).unwrap();
            let Mapped { mapped_bytes, to_copy_bytes } = window.advance(&far).unwrap();
            taken += mapped_bytes;
            assert!(mapped_bytes + to_copy_bytes > 0);
            if to_copy_bytes > 0 {
                let mut copy = vec![0; to_copy_bytes];
                taken += io::Read::read(&mut &far, &mut copy).unwrap();
            }
        }
        assert_eq!(taken, 100_000);
        drop(near);
        far.peek(&mut [0]).unwrap();
        assert_eq!(window.advance(&far).unwrap_err().source.raw_os_error(), Some(libc::EIO));
    }
}
