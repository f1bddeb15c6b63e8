//! A program that runs on each frame a device receives, and the map of sockets it may hand frames to
//! (kernel `Documentation/bpf/map_xskmap.rst`, `Documentation/bpf/instruction-set.rst`).
//!
//! The program hangs on the device by a link, which is a descriptor: when the last copy of it is closed,
//! however its process ends, the program is off the device, and with it the map.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::code::{Code, Size};
use super::{Attr, LINK_CREATE, MAP_CREATE, MAP_UPDATE_ELEM, bpf, done, load_network, owned};
use crate::SyscallError;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;
/// Frames in several pieces do not keep the program off a device.
const PROG_HAS_FRAGMENTS: u32 = 1 << 5;
const FLAG_SKB_MODE: u32 = 1 << 1;
const FLAG_DRIVER_MODE: u32 = 1 << 2;
/// Offset of `rx_queue_index` in `struct xdp_md`.
pub(super) const RECEIVE_QUEUE: i16 = 16;
/// Hands the frame to the host's stack.
pub(super) const XDP_PASS: i32 = 2;
/// `bpf_redirect_map`.
pub(super) const REDIRECT_MAP: i32 = 51;

/// Where on a frame's way the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the device's driver, before the kernel has made anything of the frame.
    Driver,
    /// In the kernel's receive path, for drivers that cannot; the frame is copied first.
    Generic,
}

/// A map of sockets, by queue.
#[derive(Debug)]
pub struct SocketMap(pub(super) OwnedFd);

/// Makes a map of sockets for the queues 0 to `queues - 1`.
///
/// # Errors
/// No privilege (`CAP_BPF` or `CAP_SYS_ADMIN`), or no such map in this kernel.
pub fn create_socket_map(name: &str, queues: u32) -> Result<SocketMap, SyscallError> {
    let mut attr =
        Attr::new().word(0, MAP_TYPE_XSKMAP).word(4, 4).word(8, 4).word(12, queues).name(28, name);
    // SAFETY: the attributes of BPF_MAP_CREATE hold no pointer.
    let fd = unsafe { bpf(MAP_CREATE, &mut attr) };
    owned(fd, "bpf(BPF_MAP_CREATE)", "XSKMAP").map(SocketMap)
}

/// Puts a socket into a map of sockets as the one for `queue`. It leaves when it is closed.
///
/// # Errors
/// The map has no such place or the descriptor is no `AF_XDP` socket.
pub fn set_socket(map: &SocketMap, queue: u32, socket: BorrowedFd<'_>) -> Result<(), SyscallError> {
    let value = socket.as_raw_fd();
    let mut attr = Attr::new()
        .fd(0, map.0.as_raw_fd())
        .pointer(8, (&raw const queue).addr())
        .pointer(16, (&raw const value).addr());
    // SAFETY: `queue` and `value` have the four bytes each of a socket map's key and value; both outlive
    // the call and are only read.
    let answer = unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) };
    done(answer, "bpf(BPF_MAP_UPDATE_ELEM)", "XSKMAP")
}

/// Loads the program that hands each frame to its queue's socket, and to the host's stack where the map has
/// none.
///
/// # Errors
/// No privilege (`CAP_BPF` and `CAP_NET_ADMIN`), or no such program in this kernel.
pub fn load_redirect(name: &str, map: &SocketMap) -> Result<OwnedFd, SyscallError> {
    load(name, &redirect(map.0.as_raw_fd()))
}

/// Loads a program that runs on frames.
pub(super) fn load(name: &str, instructions: &[u64]) -> Result<OwnedFd, SyscallError> {
    let with = |flags| load_network(PROG_TYPE_XDP, ATTACH_XDP, flags, name, instructions);
    match with(PROG_HAS_FRAGMENTS) {
        // Before Linux 5.18 nobody knew that flag.
        Err(error) if error.source.raw_os_error() == Some(libc::EINVAL) => with(0),
        answer => answer,
    }
}

/// Hangs a program on a device until the returned link is closed.
///
/// # Errors
/// The device has a program already (`EBUSY`, `EEXIST`), its driver cannot in that mode, or no privilege.
pub fn attach(
    program: BorrowedFd<'_>,
    interface_index: u32,
    mode: Mode,
) -> Result<OwnedFd, SyscallError> {
    let mut attr =
        Attr::new().fd(0, program.as_raw_fd()).word(4, interface_index).word(8, ATTACH_XDP).word(
            12,
            match mode {
                Mode::Driver => FLAG_DRIVER_MODE,
                Mode::Generic => FLAG_SKB_MODE,
            },
        );
    // SAFETY: the attributes of BPF_LINK_CREATE for an XDP program hold no pointer.
    let fd = unsafe { bpf(LINK_CREATE, &mut attr) };
    owned(fd, "bpf(BPF_LINK_CREATE)", "XDP program")
}

/// `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)`, assembled.
fn redirect(map: i32) -> Vec<u64> {
    let mut code = Code::default();
    code.load(Size::Word, 2, 1, RECEIVE_QUEUE);
    code.load_map(1, map);
    code.set(3, XDP_PASS);
    code.call(REDIRECT_MAP);
    code.exit();
    code.assembled()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_program_is_as_a_disassembler_reads_it() {
        let [queue, map, zero, pass, call, exit] = redirect(5)[..] else { panic!("six") };
        assert_eq!(queue.to_le_bytes(), [0x61, 0x12, 16, 0, 0, 0, 0, 0], "r2 = *(u32 *)(r1 + 16)");
        assert_eq!(map.to_le_bytes(), [0x18, 0x11, 0, 0, 5, 0, 0, 0], "r1 = map[fd:5]");
        assert_eq!(zero, 0);
        assert_eq!(pass.to_le_bytes(), [0xb7, 0x03, 0, 0, 2, 0, 0, 0], "r3 = 2");
        assert_eq!(call.to_le_bytes(), [0x85, 0, 0, 0, 51, 0, 0, 0], "call bpf_redirect_map");
        assert_eq!(exit.to_le_bytes(), [0x95, 0, 0, 0, 0, 0, 0, 0], "exit");
    }
}
