//! Where an endpoint is: its address, its ports and its key.

use super::{COPY_BYTES_MAX, random};
use crate::fence::Number;
use crate::presence::Presence;
use crate::transport::Udp;
use crate::{interfaces, planned};

/// Where an endpoint is opened, and what it is called.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) place: interfaces::Place,
    /// 0: any free one.
    pub(crate) port: u16,
    /// Eight bytes of its address that no other endpoint has.
    pub(crate) unique: [u8; 8],
    pub(crate) key: [u8; 16],
    /// Longest message that is copied, so that its send completes at once.
    pub(crate) copy_bytes_max: u64,
    /// Sources of messages are told as peers, not as addresses of an address vector.
    pub(crate) tells_peers: bool,
}

impl Site {
    /// Any free port of the address that endpoints use, and a name that nobody can guess.
    pub(super) fn chosen() -> Result<Self, Number> {
        let place = interfaces::choose().map_err(|_line| libc::ENODEV)?;
        Ok(Self {
            place,
            port: 0,
            unique: random()?,
            key: random()?,
            copy_bytes_max: COPY_BYTES_MAX,
            tells_peers: false,
        })
    }
}

/// A UDP port and the TCP port of the same number; `port` 0: any.
fn sockets(place: &interfaces::Place, port: u16) -> std::io::Result<(Udp, Presence)> {
    let mut tries = 0;
    loop {
        let udp = Udp::open(place, port)?;
        tries += 1;
        match Presence::open(udp.local_address()?) {
            Ok(presence) => return Ok((udp, presence)),
            Err(error)
                if error.kind() != std::io::ErrorKind::AddrInUse || tries > 100 || port != 0 =>
            {
                return Err(error);
            }
            Err(_taken) => {}
        }
    }
}

/// The same at the port that was planned for this rank, if any, unless somebody has taken it. `has_queue`: else at one of
/// the ports whose receive queue is this rank's by its number on the host.
pub(super) fn planned_sockets(
    place: &interfaces::Place,
    port: u16,
    has_queue: bool,
) -> std::io::Result<(Udp, Presence)> {
    let Some(planned) = (port == 0).then(planned::port).flatten() else {
        let queues_count = has_queue.then(|| ports::xdp::queues_count(&place.interface));
        let mut of_queue = queues_count.into_iter().flat_map(planned::ports_of_queue);
        let found = of_queue.find_map(|port| sockets(place, port).ok());
        return found.map_or_else(|| sockets(place, port), Ok);
    };
    sockets(place, planned).or_else(|error| {
        interfaces::complain_of(&format!(
            "UDP port {planned} of {} cannot be used ({error}): packets to this rank are not steered",
            place.ip
        ));
        sockets(place, port)
    })
}
