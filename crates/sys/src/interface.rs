//! Network interfaces by their names: making, addressing, bringing up, over
//! [`netlink_socket`](crate::netlink_socket).
//!
//! A [`RouteSocket`] acts in the network namespace its thread was in when it was opened. Every
//! request waits for the kernel's acknowledgement, so that each error belongs to one request.

mod tuning;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink::{
    Address, Family, Link, Mode, Neighbour, NeighbourFilter, Path, Prefix, Route, Target, VethPair,
    neighbour_state, protocol,
};

use crate::SyscallError;
use crate::ethtool::PORT_FIBRE;
use crate::netlink_socket::NetlinkSocket;

pub use netlink::LinkSettings;
pub use tuning::RootQdisc;

const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
const ETHTOOL_SLINKSETTINGS: u32 = 0x4d;

/// Named operations on the interfaces of one network namespace.
#[derive(Debug)]
pub struct RouteSocket {
    netlink: NetlinkSocket,
}

impl RouteSocket {
    /// For the calling thread's network namespace.
    ///
    /// # Errors
    /// No socket is to be had.
    pub fn open() -> Result<Self, SyscallError> {
        let netlink =
            NetlinkSocket::open().map_err(|error| error.into_syscall("socket", "NETLINK_ROUTE"))?;
        Ok(Self { netlink })
    }

    /// Makes a veth pair: the first of `names` here, the second in the namespace behind
    /// `peer_namespace`; each with so many queues either way, or one.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`, no veth in this kernel, or a name that is taken.
    pub fn add_veth(
        &mut self,
        [name, peer_name]: [&str; 2],
        peer_namespace: BorrowedFd<'_>,
        queues_count: Option<u32>,
    ) -> Result<(), SyscallError> {
        let peer_namespace = peer_namespace.as_raw_fd();
        let pair = VethPair { name, peer_name, peer_namespace, queues_count };
        self.netlink
            .request(&pair.message())
            .map_err(|error| error.into_syscall("rtnetlink newlink", name))
    }

    /// Changes an interface.
    ///
    /// # Errors
    /// No such interface, or a value the device refuses (an MTU beyond its limit).
    pub fn set_link(&mut self, name: &str, settings: LinkSettings) -> Result<(), SyscallError> {
        let index = self.index(name)?;
        self.netlink
            .request(&settings.message(index))
            .map_err(|error| error.into_syscall("rtnetlink setlink", name))
    }

    /// An interface as it is.
    ///
    /// # Errors
    /// No such interface.
    pub fn link(&mut self, name: &str) -> Result<Link, SyscallError> {
        let index = self.index(name)?;
        self.netlink
            .find(&Link::get(index))
            .map_err(|error| error.into_syscall("rtnetlink getlink", name))
    }

    /// The hardware address of an Ethernet neighbour of an interface, as far as the kernel knows it.
    ///
    /// # Errors
    /// No such interface.
    pub fn neighbour(&mut self, name: &str, ip: Ipv4Addr) -> Result<Option<[u8; 6]>, SyscallError> {
        let interface_index = Some(self.index(name)?);
        let filter = NeighbourFilter { family: Family::V4, interface_index };
        let all: Vec<Neighbour> = self
            .netlink
            .list(&Neighbour::dump(filter))
            .map_err(|error| error.into_syscall("rtnetlink getneigh", name))?;
        let is_it = |one: &&Neighbour| {
            one.address == ip
                && Some(one.interface_index) == interface_index
                && one.state != neighbour_state::FAILED
        };
        Ok(all.iter().find(is_it).and_then(|one| one.hardware_address.as_slice().try_into().ok()))
    }

    /// Gives an interface an address, ready for use at once: IPv6 without duplicate detection.
    ///
    /// # Errors
    /// No such interface, or it has that address already.
    pub fn add_address(
        &mut self,
        name: &str,
        address: IpAddr,
        prefix_bits: u8,
    ) -> Result<(), SyscallError> {
        let index = self.index(name)?;
        self.netlink.create(&Address::new(index, address, prefix_bits), Mode::Create).map_err(
            |error| error.into_syscall("rtnetlink newaddr", format!("{address} on {name}")),
        )
    }

    /// Routes `destination/prefix_bits` through `gateway`.
    ///
    /// # Errors
    /// The gateway is not reachable from here, or the route exists.
    pub fn add_route(
        &mut self,
        destination: IpAddr,
        prefix_bits: u8,
        gateway: IpAddr,
    ) -> Result<(), SyscallError> {
        let call = "rtnetlink newroute";
        let object = format!("{destination}/{prefix_bits} via {gateway}");
        let prefix = Prefix::new(destination, prefix_bits)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
            .map_err(|error| SyscallError::new(call, &object, error))?;
        let route = Route {
            protocol: protocol::STATIC,
            ..Route::new(prefix, Target::Paths(vec![Path::via(gateway)]))
        };
        self.netlink.create(&route, Mode::Create).map_err(|error| error.into_syscall(call, object))
    }

    /// The interface's number.
    ///
    /// # Errors
    /// No such interface.
    pub fn index(&self, name: &str) -> Result<u32, SyscallError> {
        rustix::net::netdevice::name_to_index(&self.netlink, name)
            .map_err(|error| SyscallError::new("ioctl(SIOCGIFINDEX)", name, error))
    }

    /// Has the device say this speed when asked (`ethtool`, `/sys/class/net/NAME/speed`), and that
    /// it is of fibre: a TAP device nobody has set claims 10 Gbit/s of copper. TAP devices take it,
    /// most others do not.
    ///
    /// # Errors
    /// The device refuses.
    pub fn set_speed(&self, name: &str, megabits_per_s: u32) -> Result<(), SyscallError> {
        // struct ethtool_link_settings: 12 words, then three link-mode masks whose length in words
        // the kernel must be told as it told us.
        let mut words = [0_u32; 12 + 3 * 127];
        words[0] = ETHTOOL_GLINKSETTINGS;
        self.ethtool(name, &mut words)?;
        // Byte 15, the masks' length in words, is negative in the first answer: what to ask with.
        let mut bytes = words[3].to_ne_bytes();
        bytes[3] = bytes[3].wrapping_neg();
        words[3] = u32::from_ne_bytes(bytes);
        words[0] = ETHTOOL_GLINKSETTINGS;
        self.ethtool(name, &mut words)?;
        words[0] = ETHTOOL_SLINKSETTINGS;
        words[1] = megabits_per_s;
        let mut bytes = words[2].to_ne_bytes();
        bytes[1] = PORT_FIBRE;
        words[2] = u32::from_ne_bytes(bytes);
        self.ethtool(name, &mut words)
    }

    fn ethtool(&self, name: &str, words: &mut [u32; 12 + 3 * 127]) -> Result<(), SyscallError> {
        // SAFETY: all-zero is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        write_name(&mut request.ifr_name, name)
            .map_err(|error| SyscallError::new("ioctl(SIOCETHTOOL)", name, error))?;
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        let socket = self.netlink.as_fd().as_raw_fd();
        // SAFETY: link settings fill at most the 12 words and 3 masks of 127 words that `words` has.
        let answer = unsafe { libc::ioctl(socket, libc::SIOCETHTOOL as _, &raw mut request) };
        if answer == 0 { Ok(()) } else { Err(SyscallError::last("ioctl(SIOCETHTOOL)", name)) }
    }
}

/// Copies an interface name into a request, NUL-terminated.
pub(crate) fn write_name(
    to: &mut [libc::c_char; libc::IFNAMSIZ],
    name: &str,
) -> Result<(), rustix::io::Errno> {
    if name.is_empty() || name.len() >= to.len() || name.bytes().any(|byte| byte == 0) {
        return Err(rustix::io::Errno::INVAL);
    }
    for (slot, byte) in to.iter_mut().zip(name.bytes()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_is_named() {
        let mut socket = RouteSocket::open().unwrap();
        let error = socket.set_link("no-such-dev", LinkSettings::default()).unwrap_err();
        assert_eq!(error.object, "no-such-dev");
        assert_eq!(error.source.raw_os_error(), Some(libc::ENODEV));
    }
}
