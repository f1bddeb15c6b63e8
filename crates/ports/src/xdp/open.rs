//! Opening a device's queue.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use shm::{Region, RegionError};
use sys::SyscallError;
use sys::bpf::xdp::{self as program, Mode};
use sys::interface::RouteSocket;
use sys::xdp::BindOptions;
use thiserror::Error;

use super::{CHUNK_BYTES, RECEIVE_CHUNKS, RING_SLOTS};

/// Why a queue cannot be had.
#[derive(Debug, Error)]
pub enum OpenError {
    /// No interface of that name in this network namespace.
    #[error("there is no device {0} in this network namespace")]
    NoDevice(String),
    /// The device has fewer queues.
    #[error("{device} has no queue {queue} that both receives and sends")]
    NoQueue {
        /// Name of the device.
        device: String,
        /// Number of the queue.
        queue: u32,
    },
    /// Another socket has the queue.
    #[error("queue {queue} of {device} is in use by another AF_XDP socket")]
    QueueTaken {
        /// Name of the device.
        device: String,
        /// Number of the queue.
        queue: u32,
    },
    /// The device runs a program already, which stays.
    #[error("{0} has an XDP program already, which is left alone (see `ip link show dev {0}`)")]
    HasProgram(String),
    /// This user may not.
    #[error("a port of a device's queue needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")]
    Privilege(#[source] SyscallError),
    /// More pinned memory than this user may have.
    #[error("a port pins {} MiB, beyond this user's limit (ulimit -l)", .0 >> 20)]
    Memory(usize),
    /// The kernel was built without what it takes.
    #[error(
        "this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS) or no XDP programs (CONFIG_BPF_SYSCALL)"
    )]
    Kernel(#[source] SyscallError),
    /// The kernel refused something else.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    /// No memory to be had.
    #[error(transparent)]
    Region(#[from] RegionError),
}

/// An open queue.
#[derive(Debug)]
pub struct Opened {
    /// The socket, with its rings made and tied to the queue.
    pub socket: OwnedFd,
    /// The memory of its frames.
    pub memory: Arc<Region>,
    /// What holds the program on the device, and the device promiscuous.
    pub holds: Vec<OwnedFd>,
    /// Whether the program runs in the kernel's receive path instead of the driver.
    pub is_generic: bool,
    /// Whether frames longer than a chunk go in several parts.
    pub takes_parts: bool,
}

/// Takes a queue of `device` of the calling thread's network namespace.
///
/// # Errors
/// See [`OpenError`].
pub fn open(device: &str, queue: u32) -> Result<Opened, OpenError> {
    let interface_index = index(device)?;
    let (socket, memory) = unbound()?;
    let map =
        program::create_socket_map("clearstream_xsk", queue.saturating_add(1)).map_err(refused)?;
    let code = program::load_redirect("clearstream_xdp", &map).map_err(refused)?;
    let (link, is_generic) = attach(&code, interface_index, device)?;
    let takes_parts = bind(&socket, interface_index, device, queue)?;
    program::set_socket(&map, queue, socket.as_fd())?;
    let promiscuous = sys::tap::hold_promiscuous(interface_index, device)?;
    Ok(Opened { socket, memory, holds: vec![link, promiscuous], is_generic, takes_parts })
}

pub(super) fn index(device: &str) -> Result<u32, OpenError> {
    let gone = |_| OpenError::NoDevice(device.to_owned());
    RouteSocket::open()?.index(device).map_err(gone)
}

/// A socket of no queue yet, with its rings and the memory of its frames.
pub(super) fn unbound() -> Result<(OwnedFd, Arc<Region>), OpenError> {
    let socket = sys::xdp::open().map_err(refused)?;
    let chunks = 2 * RECEIVE_CHUNKS as usize;
    let memory_bytes = chunks * CHUNK_BYTES as usize;
    let memory = Region::create("clearstream-xdp", memory_bytes as u64)?;
    shm::frames::register(&socket, &memory, CHUNK_BYTES).map_err(|error| match errno(&error) {
        Some(Errno::NOBUFS) => OpenError::Memory(memory_bytes),
        _ => OpenError::Syscall(error),
    })?;
    sys::xdp::make_rings(socket.as_fd(), RING_SLOTS)?;
    // Kernels that do not know it send fewer at a time.
    sys::xdp::set_send_budget(socket.as_fd(), RING_SLOTS).ok();
    Ok((socket, memory))
}

fn errno(error: &SyscallError) -> Option<Errno> {
    error.source.raw_os_error().map(Errno::from_raw_os_error)
}

/// What it means that the kernel does not even begin.
pub(super) fn refused(error: SyscallError) -> OpenError {
    if error.is_privilege() {
        return OpenError::Privilege(error);
    }
    match errno(&error) {
        Some(Errno::AFNOSUPPORT | Errno::NOSYS | Errno::INVAL) => OpenError::Kernel(error),
        _ => OpenError::Syscall(error),
    }
}

/// In the driver, or where that cannot, in the kernel's receive path; true for the latter.
pub(super) fn attach(
    code: &OwnedFd,
    interface_index: u32,
    device: &str,
) -> Result<(OwnedFd, bool), OpenError> {
    let mut attached = program::attach(code.as_fd(), interface_index, Mode::Driver);
    let mut is_generic = false;
    if let Err(error) = &attached
        && !matches!(errno(error), Some(Errno::BUSY | Errno::EXIST | Errno::PERM))
    {
        is_generic = true;
        attached = program::attach(code.as_fd(), interface_index, Mode::Generic);
    }
    match attached {
        Ok(link) => Ok((link, is_generic)),
        Err(error) => Err(match errno(&error) {
            Some(Errno::BUSY | Errno::EXIST) => OpenError::HasProgram(device.to_owned()),
            _ => refused(error),
        }),
    }
}

/// Ties the socket to the queue; whether frames may be of several parts.
pub(super) fn bind(
    socket: &OwnedFd,
    interface_index: u32,
    device: &str,
    queue: u32,
) -> Result<bool, OpenError> {
    let options = BindOptions { interface_index, queue, fragments: true };
    if sys::xdp::bind(socket.as_fd(), options).is_ok() {
        return Ok(true);
    }
    // Before Linux 6.6, and with some drivers still, a frame is one descriptor.
    let bound = sys::xdp::bind(socket.as_fd(), BindOptions { fragments: false, ..options });
    let device = device.to_owned();
    bound.map_err(|error| match errno(&error) {
        Some(Errno::INVAL) => OpenError::NoQueue { device, queue },
        Some(Errno::BUSY) => OpenError::QueueTaken { device, queue },
        _ => OpenError::Syscall(error),
    })?;
    Ok(false)
}
