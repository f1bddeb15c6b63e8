//! Programs that find the packets of our messages among frames and steer each by the endpoint that it is for
//! (`docs/messages.md`, Steering). Those are UDP datagrams over IPv4, without options or fragments, that begin as version 1 does.
//!
//! One program hands the packets of endpoints that have a socket to that socket, where port and steering field name the
//! endpoint and they came by its own queue; it lets everything else pass. It hangs on the device by a link, of which each
//! endpoint there has a copy, so that the last one takes it along. The other program runs on what leaves: the queue by
//! which a packet leaves one end of a veth pair is the one by which it comes at the other end, so there it stands for the
//! flow rules of a network card.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::code::{Code, If, Operation, STACK, Size};
use super::xdp::{RECEIVE_QUEUE, REDIRECT_MAP, SocketMap, XDP_PASS};
use super::{Attr, LINK_CREATE, bpf, load_network, next, object_info, open_map, open_numbered};
use super::{owned, text, word, xdp};
use crate::SyscallError;

const PROG_GET_FD_BY_ID: libc::c_int = 13;
const LINK_GET_FD_BY_ID: libc::c_int = 30;
const LINK_GET_NEXT_ID: libc::c_int = 31;
const PROG_TYPE_SCHED_CLS: u32 = 3;
/// `BPF_TCX_EGRESS` of `enum bpf_attach_type`.
const ATTACH_TCX_EGRESS: u32 = 47;
/// `TCX_NEXT`: other programs, and then the device, have the packet.
const TCX_NEXT: i32 = -1;
/// Offset of `queue_mapping` in `struct __sk_buff`; before a queue was chosen, it is one more than the queue wished for.
const QUEUE_WISH: i16 = 12;
/// `bpf_skb_load_bytes` and `bpf_xdp_load_bytes`.
const LOAD_OF_PACKET: i32 = 26;
const LOAD_OF_FRAME: i32 = 189;
/// The packets' first byte.
const MAGIC: i32 = 0xc1;

// Offsets in a frame; addresses are not looked at.
const ETHER_TYPE: i16 = 12;
const IP_VERSION: i16 = 14;
const IP_LENGTH: i16 = 16;
const IP_FRAGMENT: i16 = 20;
const IP_PROTOCOL: i16 = 23;
const IP_DESTINATION: i16 = 30;
const UDP_DESTINATION: i16 = 36;
const PACKET: i16 = 42;
const ENDPOINT: i16 = PACKET + 2;
const FRAME_END: i16 = ENDPOINT + 2;
/// Where the bytes from [`ETHER_TYPE`] on are copied to, from the stack's end; the address is aligned there.
const COPY: i16 = -38;

/// Registers that calls leave alone.
const CONTEXT: u8 = 6;
const ENDPOINT_REGISTER: u8 = 7;

/// Bytes of `struct bpf_prog_info` and of `struct bpf_link_info` as far as they are read here.
const PROGRAM_INFO_BYTES: usize = 80;
const LINK_INFO_BYTES: usize = 32;

/// Number of endpoints, as many as there are ports.
pub const ENDPOINTS_COUNT: u32 = 1 << 16;

/// What the first program looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The endpoints' address.
    pub ip: Ipv4Addr,
    /// Receive queues of the device; an endpoint's is its number modulo these.
    pub queues_count: u32,
    /// Longer packets do not fit where frames arrive, and pass.
    pub ip_bytes_max: u16,
}

/// Loads the program that hands packets to sockets.
///
/// # Errors
/// No privilege (`CAP_BPF` and `CAP_NET_ADMIN`), or no such program in this kernel.
pub fn load_receiver(
    name: &str,
    sockets: &SocketMap,
    wanted: &Wanted,
) -> Result<OwnedFd, SyscallError> {
    xdp::load(name, &receiver(sockets.0.as_raw_fd(), wanted))
}

/// Loads the program that chooses by which queue packets leave.
///
/// # Errors
/// As [`load_receiver`].
pub fn load_sender(name: &str, queues_count: u32) -> Result<OwnedFd, SyscallError> {
    load_network(PROG_TYPE_SCHED_CLS, ATTACH_TCX_EGRESS, 0, name, &sender(queues_count))
}

/// Hangs the program that [`load_sender`] loaded on a device until the returned link is closed.
///
/// # Errors
/// No privilege, or a kernel before Linux 6.6.
pub fn attach_sender(
    program: BorrowedFd<'_>,
    interface_index: u32,
) -> Result<OwnedFd, SyscallError> {
    let mut attr =
        Attr::new().fd(0, program.as_raw_fd()).word(4, interface_index).word(8, ATTACH_TCX_EGRESS);
    // SAFETY: the attributes of BPF_LINK_CREATE for such a program hold no pointer.
    let fd = unsafe { bpf(LINK_CREATE, &mut attr) };
    owned(fd, "bpf(BPF_LINK_CREATE)", "tcx program")
}

/// A program that somebody attached.
#[derive(Debug)]
pub struct Attached {
    /// Holds the program on its device.
    pub link: OwnedFd,
    /// The sockets that it hands packets to.
    pub sockets: SocketMap,
}

/// The program with this number, if its name is this one; `None` for another program, and for one that has gone meanwhile.
///
/// # Errors
/// No privilege (`CAP_SYS_ADMIN`).
pub fn attached(program: u32, name: &str) -> Result<Option<Attached>, SyscallError> {
    let Some(sockets) = present(sockets_of(program, name))?.flatten() else { return Ok(None) };
    let mut id = 0;
    while let Some(link) = next(LINK_GET_NEXT_ID, id, "bpf(BPF_LINK_GET_NEXT_ID)")? {
        id = link;
        let opened = open_numbered(LINK_GET_FD_BY_ID, id, "bpf(BPF_LINK_GET_FD_BY_ID)");
        let Some(link) = present(opened)? else { continue };
        let mut info = [0; LINK_INFO_BYTES];
        // SAFETY: what the kernel reads of `info` is zero, so there is no pointer in it.
        unsafe { object_info(link.as_fd(), &mut info, "link") }?;
        // Behind its type and its own number.
        if word(&info, 8) == program {
            return Ok(Some(Attached { link, sockets }));
        }
    }
    Ok(None)
}

/// The one map of a program of this name.
fn sockets_of(program: u32, name: &str) -> Result<Option<SocketMap>, SyscallError> {
    let program = open_numbered(PROG_GET_FD_BY_ID, program, "bpf(BPF_PROG_GET_FD_BY_ID)")?;
    let mut map = 0_u32;
    let mut info = [0; PROGRAM_INFO_BYTES];
    info[52..56].copy_from_slice(&1_u32.to_ne_bytes());
    info[56..64].copy_from_slice(&((&raw mut map).addr() as u64).to_ne_bytes());
    // SAFETY: `map_ids` points to one number, as `nr_map_ids` says; it outlives the call.
    unsafe { object_info(program.as_fd(), &mut info, "program") }?;
    if text(&info[64..80]) != name {
        return Ok(None);
    }
    open_map(map).map(|map| Some(SocketMap(map)))
}

/// An object that may have gone, or is not there yet.
fn present<T>(answer: Result<T, SyscallError>) -> Result<Option<T>, SyscallError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(error) if matches!(error.source.raw_os_error(), Some(libc::ENOENT | libc::EAGAIN)) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn receiver(sockets: i32, wanted: &Wanted) -> Vec<u64> {
    let mut code = find(LOAD_OF_FRAME);
    load(&mut code, Size::Half, ENDPOINT);
    code.read_little_endian(4);
    code.jump(If::DiffersFromRegister(ENDPOINT_REGISTER), 4);
    load(&mut code, Size::Word, IP_DESTINATION);
    code.jump(If::DiffersFrom(i32::from_ne_bytes(wanted.ip.octets())), 4);
    load(&mut code, Size::Half, IP_LENGTH);
    code.read_network_order(4);
    code.jump(If::IsMoreThan(wanted.ip_bytes_max.into()), 4);
    choose_queue(&mut code, wanted.queues_count);
    code.load(Size::Word, 5, CONTEXT, RECEIVE_QUEUE);
    code.jump(If::DiffersFromRegister(5), 4);
    code.load_map(1, sockets);
    code.copy(2, ENDPOINT_REGISTER);
    code.set(3, XDP_PASS);
    code.call(REDIRECT_MAP);
    code.exit();
    code.land();
    code.set(0, XDP_PASS);
    code.exit();
    code.assembled()
}

/// The port decides alone: the first packet to an endpoint does not name it, and the kernel has all packets of a socket leave by
/// the queue of the first.
fn sender(queues_count: u32) -> Vec<u64> {
    let mut code = find(LOAD_OF_PACKET);
    choose_queue(&mut code, queues_count);
    code.calculate(Operation::Add, 4, 1);
    code.store_word(CONTEXT, QUEUE_WISH, 4);
    code.land();
    code.set(0, TCX_NEXT);
    code.exit();
    code.assembled()
}

/// Jumps away for all packets but those that begin as our messages do; leaves the port that they go to, their endpoint's
/// number, in [`ENDPOINT_REGISTER`].
fn find(load_helper: i32) -> Code {
    let mut code = Code::default();
    code.copy(CONTEXT, 1);
    code.set(2, ETHER_TYPE.into());
    code.copy(3, STACK);
    code.calculate(Operation::Add, 3, COPY.into());
    code.set(4, (FRAME_END - ETHER_TYPE).into());
    code.call(load_helper);
    code.jump(If::DiffersFrom(0), 0);
    for (size, offset, number) in [
        (Size::Half, ETHER_TYPE, u16::from_ne_bytes([0x08, 0x00]).into()),
        (Size::Byte, IP_VERSION, 0x45),
        (Size::Byte, IP_PROTOCOL, libc::IPPROTO_UDP),
        (Size::Byte, PACKET, MAGIC),
    ] {
        load(&mut code, size, offset);
        code.jump(If::DiffersFrom(number), 4);
    }
    load(&mut code, Size::Half, IP_FRAGMENT);
    code.calculate(Operation::And, 4, u16::from_ne_bytes([0x3f, 0xff]).into());
    code.jump(If::DiffersFrom(0), 4);
    code.load(Size::Half, ENDPOINT_REGISTER, STACK, COPY + UDP_DESTINATION - ETHER_TYPE);
    code.read_network_order(ENDPOINT_REGISTER);
    code
}

/// Loads a field of the frame into register 4.
fn load(code: &mut Code, size: Size, offset: i16) {
    code.load(size, 4, STACK, COPY + offset - ETHER_TYPE);
}

/// The endpoint's queue, in register 4.
fn choose_queue(code: &mut Code, queues_count: u32) {
    code.copy(4, ENDPOINT_REGISTER);
    // A device has no more queues than there are ports.
    code.calculate(Operation::Modulo, 4, queues_count.clamp(1, ENDPOINTS_COUNT).cast_signed());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_aligned_where_they_are_copied_to() {
        for (offset, bytes) in [
            (ETHER_TYPE, 2),
            (IP_LENGTH, 2),
            (IP_FRAGMENT, 2),
            (IP_DESTINATION, 4),
            (UDP_DESTINATION, 2),
            (ENDPOINT, 2),
        ] {
            let at = COPY + offset - ETHER_TYPE;
            assert!(at % bytes == 0 && at + bytes <= 0, "{offset}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_none_and_without_privilege_that_is_said() {
        match attached(u32::MAX, "none") {
            Ok(found) => assert!(found.is_none()),
            Err(error) => assert!(error.is_privilege(), "{error}"),
        }
    }
}
