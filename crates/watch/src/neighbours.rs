use std::collections::BTreeMap;
use std::net::IpAddr;

use liveness::probe::MacAddress;
use netlink::{Family, Mode, Neighbour, NeighbourFilter, neighbour_state};
use sys::netlink_socket::NetlinkSocket;

use crate::link::WatchError;

/// The Ethernet address of a neighbour, where it is known.
pub(crate) fn mac(neighbour: &Neighbour) -> Option<MacAddress> {
    let is_failed = neighbour.state & neighbour_state::FAILED != 0;
    neighbour.hardware_address.as_slice().try_into().ok().filter(|_| !is_failed)
}

/// The neighbours of an interface that the kernel knows.
pub(crate) fn known(
    socket: &mut NetlinkSocket,
    interface_index: u32,
    address: IpAddr,
) -> Result<Vec<Neighbour>, WatchError> {
    let family = if address.is_ipv6() { Family::V6 } else { Family::V4 };
    let filter = NeighbourFilter { family, interface_index: Some(interface_index) };
    let listed = socket.list::<Neighbour>(&Neighbour::dump(filter));
    let mut listed = listed.map_err(WatchError::netlink("neighbours"))?;
    listed.retain(|one| one.interface_index == interface_index);
    Ok(listed)
}

/// Of the looks for a gateway that is down, every so many the kernel asks everybody on the link: it may have come back with
/// another Ethernet address. Until then the kernel asks the old one, and where others still send to it, for a minute.
const EVERYBODY_EVERY: u32 = 4;

/// Looks for gateways on the link.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// How often each gateway that is down has been looked for.
    looks: BTreeMap<IpAddr, u32>,
}

impl Search {
    /// Has the kernel look for a gateway; the answer is announced.
    pub(crate) fn look(
        &mut self,
        socket: &mut NetlinkSocket,
        interface_index: u32,
        address: IpAddr,
        is_down: bool,
    ) {
        let count = self.looks.entry(address).or_default();
        *count = if is_down { *count + 1 } else { 0 };
        if *count == EVERYBODY_EVERY {
            *count = 0;
            forget(socket, interface_index, address);
        }
        look_for(socket, interface_index, address);
    }

    /// A gateway need not be looked for.
    pub(crate) fn end(&mut self, address: IpAddr) {
        self.looks.remove(&address);
    }
}

/// Has the kernel forget where a neighbour is, unless somebody has set it for good.
fn forget(socket: &mut NetlinkSocket, interface_index: u32, address: IpAddr) {
    const FIXED: u16 =
        neighbour_state::PERMANENT | neighbour_state::NOARP | neighbour_state::FAILED;
    let Ok(known) = known(socket, interface_index, address) else { return };
    let is_it = |one: &&Neighbour| one.address == address && !one.hardware_address.is_empty();
    if known.iter().find(is_it).is_some_and(|one| one.state & FIXED == 0) {
        // It is tried again a few looks later.
        socket.create(&Neighbour::lost(interface_index, address), Mode::Replace).ok();
    }
}

fn look_for(socket: &mut NetlinkSocket, interface_index: u32, address: IpAddr) {
    // It is asked for again in a second; a link that is down has no neighbours.
    socket.create(&Neighbour::sought(interface_index, address), Mode::Replace).ok();
}
