//! Two ways to take a device's frames into a program with TCP segments whole: a TAP device (kernel
//! `Documentation/networking/tuntap.rst`, `include/uapi/linux/if_tun.h`), and a packet socket on one
//! end of a veth pair (`packet(7)`), for users who may not open `/dev/net/tun`.
//!
//! Called by `ports`. Both speak the same: a virtio-net header, then the frame.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::SyscallError;

/// Bytes of the virtio-net header before every frame: the legacy one, without a buffer count.
pub const VNET_HEADER_BYTES: usize = 10;

/// What TAP devices are made with.
pub const DEVICE: &str = "/dev/net/tun";
/// `MISC_MAJOR` and `TUN_MINOR`.
const TUN_NUMBER: (u32, u32) = (10, 200);
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
const TUNSETVNETLE: libc::c_ulong = 0x4004_54dc;
const IFF_TAP: i32 = 0x0002;
const IFF_MULTI_QUEUE: i32 = 0x0100;
const IFF_NO_PI: i32 = 0x1000;
const IFF_VNET_HDR: i32 = 0x4000;

const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;
const TUN_F_USO4: libc::c_ulong = 0x20;
const TUN_F_USO6: libc::c_ulong = 0x40;

/// What the kernel will hand over unsegmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapOffloads {
    /// UDP datagrams of one `UDP_SEGMENT` send too (Linux 6.2 and later).
    pub udp_segments: bool,
}

/// Creates the TAP device `name` in the calling thread's network namespace and returns its one
/// queue, non-blocking. The device goes when the descriptor is closed.
///
/// # Errors
/// No `/dev/net/tun`, no permission to open it, no `CAP_NET_ADMIN`, a name already taken or too
/// long.
pub fn open_tap(name: &str) -> Result<(OwnedFd, TapOffloads), SyscallError> {
    open_queue(name, 0)
}

/// The same with several queues. A flow's frames come out of one of them: that into which frames of
/// the other way were written last, or any one until there were some (kernel `drivers/net/tun.c`,
/// `tun_automq_select_queue`). The device goes with the last.
///
/// # Errors
/// As [`open_tap`]; more queues than the kernel allows a device, 256, or it knows only one.
pub fn open_tap_queues(
    name: &str,
    count: u32,
) -> Result<(Vec<OwnedFd>, TapOffloads), SyscallError> {
    let mut offloads = TapOffloads { udp_segments: false };
    let queues = (0..count).map(|_| {
        let (fd, its) = open_queue(name, IFF_MULTI_QUEUE)?;
        offloads = its;
        Ok(fd)
    });
    Ok((queues.collect::<Result<_, SyscallError>>()?, offloads))
}

fn open_queue(name: &str, more_flags: i32) -> Result<(OwnedFd, TapOffloads), SyscallError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(DEVICE, flags, Mode::empty())
        .map_err(|error| SyscallError::new("open", DEVICE, error))?;
    create(&fd, name, more_flags)?;
    little_endian_headers(&fd, name)?;
    let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
    let udp_segments = set_offloads(&fd, name, tcp | TUN_F_USO4 | TUN_F_USO6).is_ok();
    if !udp_segments {
        set_offloads(&fd, name, tcp)?;
    }
    Ok((fd, TapOffloads { udp_segments }))
}

/// Checks that a descriptor from elsewhere is a queue of a TAP device as [`open_tap`] makes them, makes
/// it non-blocking, and says what the device is called.
///
/// # Errors
/// It is something else.
pub fn adopt_tap(fd: &OwnedFd) -> Result<String, SyscallError> {
    const CALL: &str = "ioctl(TUNGETIFF)";
    // Anybody's file (FUSE) may answer the request below, and then every read of it.
    let is_tun = rustix::fs::fstat(fd).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == TUN_NUMBER
    });
    if !is_tun {
        let object = "the descriptor handed over is not of /dev/net/tun";
        return Err(SyscallError::new(CALL, object, std::io::ErrorKind::InvalidInput));
    }
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: TUNGETIFF writes one `ifreq`, which lives through the call; another kind of file
    // refuses the request, whose number is the tun driver's own.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), TUNGETIFF, &raw mut request) };
    if answer != 0 {
        return Err(SyscallError::last(CALL, "the descriptor handed over"));
    }
    // SAFETY: TUNGETIFF has written the flags' member of the union; it is an integer anyhow.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    let name: Vec<u8> =
        request.ifr_name.iter().map(|&byte| byte.cast_unsigned()).take_while(|&b| b != 0).collect();
    let name = String::from_utf8_lossy(&name).into_owned();
    let wanted = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if flags & wanted != wanted {
        let object = format!("{name}: a TAP device with virtio-net headers is needed");
        return Err(SyscallError::new(CALL, object, std::io::ErrorKind::InvalidInput));
    }
    set_header_bytes(fd, &name)?;
    little_endian_headers(fd, &name)?;
    rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK)
        .map_err(|error| SyscallError::new("fcntl(F_SETFL)", name.clone(), error))?;
    Ok(name)
}

fn set_header_bytes(fd: &OwnedFd, name: &str) -> Result<(), SyscallError> {
    let bytes = libc::c_int::try_from(VNET_HEADER_BYTES).unwrap_or(0);
    // SAFETY: TUNSETVNETHDRSZ reads one int, which lives through the call.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETHDRSZ, &raw const bytes) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("ioctl(TUNSETVNETHDRSZ)", name)) }
}

/// Opens a packet socket on the interface `name` of the calling thread's network namespace, for
/// all frames that arrive there and none that leave, non-blocking, with `buffer_bytes` for each
/// direction as far as the host's limits allow.
///
/// # Errors
/// No `CAP_NET_RAW`, or no such interface.
pub fn open_packet_socket(name: &str, buffer_bytes: u32) -> Result<OwnedFd, SyscallError> {
    let index = crate::interface::RouteSocket::open()?.index(name)?;
    let fd = rustix::net::socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
    .map_err(|error| SyscallError::new("socket", "AF_PACKET", error))?;
    let on = 1;
    for (call, option, value) in [
        ("setsockopt(PACKET_VNET_HDR)", libc::PACKET_VNET_HDR, on),
        ("setsockopt(PACKET_IGNORE_OUTGOING)", PACKET_IGNORE_OUTGOING, on),
        ("setsockopt(PACKET_QDISC_BYPASS)", libc::PACKET_QDISC_BYPASS, on),
    ] {
        set_option(&fd, libc::SOL_PACKET, option, value)
            .map_err(|error| SyscallError::new(call, name, error))?;
    }
    let bytes = i32::try_from(buffer_bytes).unwrap_or(i32::MAX);
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set_option(&fd, libc::SOL_SOCKET, force, bytes).is_err() {
            // Cut to the host's limit, never refused.
            set_option(&fd, libc::SOL_SOCKET, plain, bytes).ok();
        }
    }
    bind_to_interface(&fd, index, name)?;
    Ok(fd)
}

/// Has a device take in frames to every address for as long as the returned descriptor is open.
///
/// # Errors
/// No `CAP_NET_RAW`, or no such interface.
pub fn hold_promiscuous(interface_index: u32, name: &str) -> Result<OwnedFd, SyscallError> {
    // Of no protocol: it receives nothing itself.
    let flags = SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
        .map_err(|error| SyscallError::new("socket", "AF_PACKET", error))?;
    let request = libc::packet_mreq {
        mr_ifindex: interface_index.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let length = size_of::<libc::packet_mreq>() as libc::socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP);
    let pointer = &raw const request;
    // SAFETY: `pointer` points to a `packet_mreq`, `length` is its size, and both live through the call.
    let answer = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, pointer.cast(), length) };
    if answer == 0 {
        return Ok(fd);
    }
    Err(SyscallError::last("setsockopt(PACKET_ADD_MEMBERSHIP)", name))
}

const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

fn set_option(
    fd: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> Result<(), std::io::Error> {
    let len = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    let value = &raw const value;
    // SAFETY: `value` points to an int, `len` is its size, and both live through the call.
    let answer = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value.cast(), len) };
    if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn bind_to_interface(fd: &OwnedFd, index: u32, name: &str) -> Result<(), SyscallError> {
    // SAFETY: all-zero is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
    address.sll_protocol = u16::try_from(libc::ETH_P_ALL).unwrap_or(0).to_be();
    address.sll_ifindex = i32::try_from(index).unwrap_or(0);
    let len = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or(0);
    let address = &raw const address;
    // SAFETY: `address` is initialised, `len` is its size, and both live through the call.
    let answer = unsafe { libc::bind(fd.as_raw_fd(), address.cast(), len) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("bind(AF_PACKET)", name)) }
}

fn create(fd: &OwnedFd, name: &str, more_flags: i32) -> Result<(), SyscallError> {
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    crate::interface::write_name(&mut request.ifr_name, name)
        .map_err(|error| SyscallError::new("ioctl(TUNSETIFF)", name, error))?;
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | more_flags).unwrap_or(0);
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives through the call.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF, &raw mut request) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("ioctl(TUNSETIFF)", name)) }
}

fn little_endian_headers(fd: &OwnedFd, name: &str) -> Result<(), SyscallError> {
    let yes: libc::c_int = 1;
    // SAFETY: TUNSETVNETLE reads one int, which lives through the call.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETLE, &raw const yes) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("ioctl(TUNSETVNETLE)", name)) }
}

fn set_offloads(fd: &OwnedFd, name: &str, offloads: libc::c_ulong) -> Result<(), SyscallError> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD, offloads) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last("ioctl(TUNSETOFFLOAD)", name)) }
}
