//! A program that runs on each frame a device receives, and the map of sockets it may hand frames to
//! (kernel `Documentation/bpf/map_xskmap.rst`, `Documentation/bpf/instruction-set.rst`).
//!
//! The program hangs on the device by a link, which is a descriptor: when the last copy of it is closed,
//! however its process ends, the program is off the device, and with it the map.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{Attr, MAP_CREATE, MAP_UPDATE_ELEM, PROG_LOAD, bounded, bpf, done, owned};
use crate::SyscallError;

const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
/// `BPF_XDP` of `enum bpf_attach_type`.
const ATTACH_XDP: u32 = 37;
/// Frames in several pieces do not keep the program off a device.
const PROG_HAS_FRAGMENTS: u32 = 1 << 5;
const FLAG_SKB_MODE: u32 = 1 << 1;
const FLAG_DRIVER_MODE: u32 = 1 << 2;

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
pub struct SocketMap(OwnedFd);

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
    const CALL: &str = "bpf(BPF_PROG_LOAD)";
    let instructions = redirect(map.0.as_raw_fd());
    let count = bounded(instructions.len(), CALL)?;
    let license = c"GPL";
    let load = |flags: u32| {
        let mut attr = Attr::new()
            .word(0, PROG_TYPE_XDP)
            .word(4, count)
            .pointer(8, instructions.as_ptr().addr())
            .pointer(16, license.as_ptr().addr())
            .word(44, flags)
            .name(48, name)
            .word(68, ATTACH_XDP);
        // SAFETY: `insns` and `insn_cnt` describe `instructions`, `license` ends with a NUL; both
        // outlive the call and are only read; no log is asked for.
        let fd = unsafe { bpf(PROG_LOAD, &mut attr) };
        owned(fd, CALL, "XDP program")
    };
    match load(PROG_HAS_FRAGMENTS) {
        // Before Linux 5.18 nobody knew that flag.
        Err(error) if error.source.raw_os_error() == Some(libc::EINVAL) => load(0),
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
fn redirect(map: i32) -> [u64; 6] {
    const LOAD_WORD: u8 = 0x61;
    const LOAD_LONG: u8 = 0x18;
    const MOVE: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    /// `BPF_PSEUDO_MAP_FD`: the number loaded is a map's descriptor.
    const MAP_FD: u8 = 1;
    /// Offset of `rx_queue_index` in `struct xdp_md`.
    const QUEUE: i16 = 16;
    const REDIRECT_MAP: i32 = 51;
    const XDP_PASS: i32 = 2;
    let instruction = |code: u8, to: u8, from: u8, offset: i16, number: i32| {
        let [o0, o1] = offset.to_ne_bytes();
        let [n0, n1, n2, n3] = number.to_ne_bytes();
        // The registers are bit-fields, whose order follows the machine's.
        let registers =
            if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        u64::from_ne_bytes([code, registers, o0, o1, n0, n1, n2, n3])
    };
    [
        instruction(LOAD_WORD, 2, 1, QUEUE, 0),
        instruction(LOAD_LONG, 1, MAP_FD, 0, map),
        instruction(0, 0, 0, 0, 0),
        instruction(MOVE, 3, 0, 0, XDP_PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_program_is_as_a_disassembler_reads_it() {
        let [queue, map, zero, pass, call, exit] = redirect(5);
        assert_eq!(queue.to_le_bytes(), [0x61, 0x12, 16, 0, 0, 0, 0, 0], "r2 = *(u32 *)(r1 + 16)");
        assert_eq!(map.to_le_bytes(), [0x18, 0x11, 0, 0, 5, 0, 0, 0], "r1 = map[fd:5]");
        assert_eq!(zero, 0);
        assert_eq!(pass.to_le_bytes(), [0xb7, 0x03, 0, 0, 2, 0, 0, 0], "r3 = 2");
        assert_eq!(call.to_le_bytes(), [0x85, 0, 0, 0, 51, 0, 0, 0], "call bpf_redirect_map");
        assert_eq!(exit.to_le_bytes(), [0x95, 0, 0, 0, 0, 0, 0, 0], "exit");
    }
}
