//! A queue for the packets of one endpoint of our messages, beside the host's own traffic and other endpoints.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use sys::bpf::steering::{self, Attached, ENDPOINTS_COUNT, Wanted};
use sys::bpf::xdp;
use sys::ethtool::Device;
use sys::interface::RouteSocket;
use sys::xdp::HEADROOM_BYTES;

use super::CHUNK_BYTES;
use super::open::{OpenError, Opened, attach, bind, index, refused, unbound};

/// Bytes of an Ethernet header.
const ETHERNET_BYTES: u32 = 14;
/// Attempts while other endpoints attach the program, or take it along, at the same moment.
const ATTEMPTS_COUNT: u32 = 100;

/// An endpoint's queue, opened.
#[derive(Debug)]
pub struct Steered {
    /// What makes a [`Port`](super::Port).
    pub opened: Opened,
    /// The queue's number.
    pub queue: u32,
    /// Queues of the device.
    pub queues_count: u32,
    /// A frame comes at the other end of the link by the queue of the same number as it left here: a veth pair.
    pub keeps_queues: bool,
    /// The device's hardware address.
    pub hardware_address: [u8; 6],
}

/// Receive queues of a device of the calling thread's network namespace; one where it does not say.
#[must_use]
pub fn queues_count(device: &str) -> u32 {
    let channels = Device::open(device).and_then(|device| device.channels());
    channels.map_or(1, |channels| channels.receive_count + channels.combined_count).max(1)
}

/// Takes the queue of the endpoint at this address and UDP port, which is its number: the number modulo the device's
/// queues. Only packets of this endpoint that come by this queue are taken past the kernel. Endpoints of the same address share the
/// program, however their processes end.
///
/// # Errors
/// See [`OpenError`]; to share the program takes `CAP_SYS_ADMIN`.
pub fn open_steered(device: &str, ip: Ipv4Addr, endpoint: u16) -> Result<Steered, OpenError> {
    let interface_index = index(device)?;
    let link = RouteSocket::open()?.link(device)?;
    let no_ethernet = || OpenError::NoDevice(format!("{device} with an Ethernet address"));
    let hardware_address =
        link.hardware_address.as_slice().try_into().map_err(|_length| no_ethernet())?;
    let keeps_queues = link.kind.as_deref() == Some("veth");
    let queues_count = queues_count(device);
    let queue = u32::from(endpoint) % queues_count;
    let (socket, memory) = unbound()?;
    let takes_parts = bind(&socket, interface_index, device, queue)?;
    let wanted = Wanted { ip, queues_count, ip_bytes_max: ip_bytes_max() };
    let (Attached { link, sockets }, is_generic) = program(device, interface_index, &wanted)?;
    let mut holds = vec![link];
    if keeps_queues && queues_count > 1 {
        holds.push(sender(interface_index, queues_count)?);
    }
    xdp::set_socket(&sockets, endpoint.into(), socket.as_fd())?;
    let opened = Opened { socket, memory, holds, is_generic, takes_parts };
    Ok(Steered { opened, queue, queues_count, keeps_queues, hardware_address })
}

/// Longest packet that fits in a chunk, from its IP header on.
fn ip_bytes_max() -> u16 {
    (CHUNK_BYTES - HEADROOM_BYTES - ETHERNET_BYTES) as u16
}

/// The program of the device's endpoints at this address: that which another endpoint attached, or a new one.
fn program(
    device: &str,
    interface_index: u32,
    wanted: &Wanted,
) -> Result<(Attached, bool), OpenError> {
    let [a, b, c, d] = wanted.ip.octets();
    // As long as the kernel lets a name be.
    let name = format!("cs_mpi_{a:02x}{b:02x}{c:02x}{d:02x}");
    let mut last = OpenError::HasProgram(device.to_owned());
    for _ in 0..ATTEMPTS_COUNT {
        if let Some(number) = RouteSocket::open()?.link(device)?.xdp_program {
            match steering::attached(number, &name).map_err(refused)? {
                Some(attached) => return Ok((attached, false)),
                // It has just gone, or is another's.
                None => std::thread::yield_now(),
            }
            continue;
        }
        let sockets =
            xdp::create_socket_map("clearstream_xsk", ENDPOINTS_COUNT).map_err(refused)?;
        let code = steering::load_receiver(&name, &sockets, wanted).map_err(refused)?;
        match attach(&code, interface_index, device) {
            Ok((link, is_generic)) => return Ok((Attached { link, sockets }, is_generic)),
            // Another endpoint was faster.
            Err(error @ OpenError::HasProgram(_)) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Has our packets leave by the queue by which the other end's endpoint receives.
fn sender(interface_index: u32, queues_count: u32) -> Result<OwnedFd, OpenError> {
    let code = steering::load_sender("cs_mpi_queue", queues_count).map_err(refused)?;
    steering::attach_sender(code.as_fd(), interface_index).map_err(refused)
}
