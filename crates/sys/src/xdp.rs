//! Sockets that take a device queue's frames past the kernel's network stack (`AF_XDP`, kernel
//! `Documentation/networking/af_xdp.rst`, `include/uapi/linux/if_xdp.h`).
//!
//! Called by `ports`. Frames lie in memory that the socket's opener registers, in chunks of one size;
//! four rings say which chunk is whose. The socket's descriptor and the memory's may be handed to another
//! process, which needs no privilege to carry frames.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::SyscallError;
use crate::memory::Mapping;

mod ring;

pub use ring::{Consumer, Descriptor, Producer};

/// Bytes that the kernel keeps free before each frame it receives (`XDP_PACKET_HEADROOM`).
pub const HEADROOM_BYTES: u32 = 256;

/// How a socket gets at its device's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindOptions {
    /// Index of the device.
    pub interface_index: u32,
    /// Which of its queues, from 0.
    pub queue: u32,
    /// Frames longer than a chunk come and go as several descriptors (Linux 6.6).
    pub fragments: bool,
}

/// What the kernel dropped, and why (`struct xdp_statistics`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpStatistics {
    /// For other reasons than the next two.
    pub rx_dropped: u64,
    /// No room in the receive ring.
    pub rx_ring_full: u64,
    /// No free chunk in the fill ring.
    pub rx_fill_ring_empty: u64,
    /// Descriptors to send that made no sense.
    pub tx_invalid: u64,
}

/// The four rings of a socket.
#[derive(Debug)]
pub struct Rings {
    /// Frames that arrived.
    pub rx: Consumer,
    /// Frames to send.
    pub tx: Producer,
    /// Chunks for frames to arrive in.
    pub fill: Producer,
    /// Chunks whose frames have been sent.
    pub completion: Consumer,
}

/// A new socket, non-blocking, of no device yet.
///
/// # Errors
/// No `CAP_NET_RAW`, or a kernel without `CONFIG_XDP_SOCKETS` (`EAFNOSUPPORT`).
pub fn open() -> Result<OwnedFd, SyscallError> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers only.
    let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
    if fd < 0 {
        return Err(SyscallError::last("socket", "AF_XDP"));
    }
    // SAFETY: `fd` was just returned by the kernel and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers memory as chunks of `chunk_bytes` for a socket's frames. The kernel keeps its pages as long as
/// the socket lives, and writes frames into them.
///
/// # Errors
/// The memory does not begin at a page, chunks of that size are not possible, or it is more than this user
/// may pin (`RLIMIT_MEMLOCK`, `ENOBUFS`).
///
/// # Safety
/// From `start` on `length_bytes` bytes are mapped, and nobody has a Rust reference to any of them as long
/// as the socket lives.
pub unsafe fn register_memory(
    socket: BorrowedFd<'_>,
    start: *mut u8,
    length_bytes: usize,
    chunk_bytes: u32,
) -> Result<(), SyscallError> {
    let memory = libc::xdp_umem_reg {
        addr: start.addr() as u64,
        len: length_bytes as u64,
        chunk_size: chunk_bytes,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(socket, libc::XDP_UMEM_REG, &memory)
        .map_err(|error| SyscallError::new("setsockopt(XDP_UMEM_REG)", "AF_XDP", error))
}

/// Makes the four rings, of `slots` slots each, a power of two.
///
/// # Errors
/// They are there already, or no memory is left.
pub fn make_rings(socket: BorrowedFd<'_>, slots: u32) -> Result<(), SyscallError> {
    for (call, option) in [
        ("setsockopt(XDP_UMEM_FILL_RING)", libc::XDP_UMEM_FILL_RING),
        ("setsockopt(XDP_UMEM_COMPLETION_RING)", libc::XDP_UMEM_COMPLETION_RING),
        ("setsockopt(XDP_RX_RING)", libc::XDP_RX_RING),
        ("setsockopt(XDP_TX_RING)", libc::XDP_TX_RING),
    ] {
        set(socket, option, &slots).map_err(|error| SyscallError::new(call, "AF_XDP", error))?;
    }
    Ok(())
}

/// Ties a socket to its queue: without a copy where the driver can, with one elsewhere; the kernel says when
/// it wants to be woken.
///
/// # Errors
/// No such queue (`EINVAL`, also for a wish the kernel does not know), another socket has it (`EBUSY`), or
/// the device is gone.
pub fn bind(socket: BorrowedFd<'_>, options: BindOptions) -> Result<(), SyscallError> {
    let fragments = if options.fragments { libc::XDP_USE_SG } else { 0 };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP | fragments,
        sxdp_ifindex: options.interface_index,
        sxdp_queue_id: options.queue,
        sxdp_shared_umem_fd: 0,
    };
    let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    let pointer = &raw const address;
    // SAFETY: `address` is initialised, `length` is its size, and both live through the call.
    let answer = unsafe { libc::bind(socket.as_raw_fd(), pointer.cast(), length) };
    if answer == 0 {
        return Ok(());
    }
    Err(SyscallError::last("bind(AF_XDP)", format!("queue {}", options.queue)))
}

/// Whether frames of a tied socket reach its memory without a copy.
///
/// # Errors
/// The descriptor is no `AF_XDP` socket.
pub fn is_zero_copy(socket: BorrowedFd<'_>) -> Result<bool, SyscallError> {
    let [flags] = get::<1, u32>(socket, libc::XDP_OPTIONS)
        .map_err(|error| SyscallError::new("getsockopt(XDP_OPTIONS)", "AF_XDP", error))?;
    Ok(flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// What the kernel dropped so far.
///
/// # Errors
/// The descriptor is no `AF_XDP` socket.
pub fn statistics(socket: BorrowedFd<'_>) -> Result<XdpStatistics, SyscallError> {
    let [rx_dropped, _, tx_invalid, rx_ring_full, rx_fill_ring_empty, _] =
        get::<6, u64>(socket, libc::XDP_STATISTICS)
            .map_err(|error| SyscallError::new("getsockopt(XDP_STATISTICS)", "AF_XDP", error))?;
    Ok(XdpStatistics { rx_dropped, rx_ring_full, rx_fill_ring_empty, tx_invalid })
}

/// Lets one [`wake`] send up to so many frames where the kernel copies them (Linux 6.18; 32 before).
///
/// # Errors
/// The kernel has no such setting.
pub fn set_send_budget(socket: BorrowedFd<'_>, frames: u32) -> Result<(), SyscallError> {
    const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
    set(socket, XDP_MAX_TX_SKB_BUDGET, &frames)
        .map_err(|error| SyscallError::new("setsockopt(XDP_MAX_TX_SKB_BUDGET)", "AF_XDP", error))
}

/// Tells the kernel that there are frames to send; true when it may not have sent all of them.
///
/// # Errors
/// The device was removed (`ENXIO`) or is down (`ENETDOWN`).
pub fn wake(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let nothing = std::ptr::null();
    // SAFETY: no bytes and no address are passed.
    let answer = unsafe {
        libc::sendto(socket.as_raw_fd(), nothing, 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
    };
    if answer >= 0 {
        return Ok(false);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(true),
        _ => Err(error),
    }
}

/// The error that a socket has met since the last call, such as the end of its device (`ENETDOWN`).
///
/// # Errors
/// The descriptor is no socket.
pub fn pending_error(socket: BorrowedFd<'_>) -> Result<Option<io::Error>, SyscallError> {
    let number = rustix::net::sockopt::socket_error(socket)
        .map_err(|error| SyscallError::new("getsockopt(SO_ERROR)", "AF_XDP", error))?;
    Ok(number.err().map(io::Error::from))
}

/// Maps the rings of a socket that somebody made with [`make_rings`], of `slots` slots each.
///
/// # Errors
/// The descriptor is no such socket, or its rings have fewer slots.
pub fn map_rings(socket: &impl AsFd, slots: u32) -> Result<Rings, SyscallError> {
    let socket = socket.as_fd();
    let offsets = get::<16, u64>(socket, libc::XDP_MMAP_OFFSETS)
        .map_err(|error| SyscallError::new("getsockopt(XDP_MMAP_OFFSETS)", "AF_XDP", error))?;
    let part = |which: usize, entry_bytes: usize, at: u64| {
        let [producer, consumer, entries, flags] = [0, 1, 2, 3].map(|one| offsets[4 * which + one]);
        let place = ring::Place { producer, consumer, entries, flags, slots, entry_bytes };
        let length = place.length_bytes()?;
        let mapping = Mapping::of_file(socket, length, at, "AF_XDP ring")?;
        ring::Ring::new(mapping, &place)
    };
    let frame = size_of::<libc::xdp_desc>();
    let chunk = size_of::<u64>();
    Ok(Rings {
        rx: Consumer::new(part(0, frame, 0)?),
        tx: Producer::new(part(1, frame, libc::XDP_PGOFF_TX_RING.cast_unsigned())?),
        fill: Producer::new(part(2, chunk, libc::XDP_UMEM_PGOFF_FILL_RING)?),
        completion: Consumer::new(part(3, chunk, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?),
    })
}

fn set<T: Copy>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let pointer = std::ptr::from_ref(value);
    // SAFETY: `pointer` points to a `T`, `length` is its size, and both live through the call.
    let answer = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, pointer.cast(), length)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An integer as the kernel fills it in.
trait Word: Copy + Default {}
impl Word for u32 {}
impl Word for u64 {}

/// An option that consists of `N` integers of one size.
fn get<const N: usize, T: Word>(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<[T; N]>
where
    [T; N]: Sized,
{
    let mut value = [T::default(); N];
    let mut length = size_of_val(&value) as libc::socklen_t;
    let pointer = value.as_mut_ptr();
    let length_pointer = &raw mut length;
    // SAFETY: `pointer` points to `length` bytes of integers, every value of which is valid; the kernel
    // writes no more than that. Both live through the call.
    let answer = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, pointer.cast(), length_pointer)
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    if length as usize == size_of_val(&value) {
        Ok(value)
    } else {
        Err(io::Error::from(io::ErrorKind::InvalidData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_socket_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(map_rings(&file, 64).unwrap_err().call, "getsockopt(XDP_MMAP_OFFSETS)");
        assert!(is_zero_copy(file.as_fd()).is_err());
        assert!(statistics(file.as_fd()).is_err());
        assert!(wake(file.as_fd()).is_err());
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(map_rings(&socket, 64).is_err());
    }
}
