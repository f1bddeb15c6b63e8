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

/// Has the kernel look for a neighbour; the answer is announced.
pub(crate) fn look_for(socket: &mut NetlinkSocket, interface_index: u32, address: IpAddr) {
    // It is asked for again in a second; a link that is down has no neighbours.
    socket.create(&Neighbour::sought(interface_index, address), Mode::Replace).ok();
}
