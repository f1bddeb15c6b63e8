//! What tuning reads and sets on an interface besides its addresses: MTU, transmit queue length and
//! the queueing discipline at its root.

use std::io;

use netlink::{Discipline, DisciplineKind, Link, ROOT};

use super::{LinkSettings, RouteSocket};
use crate::SyscallError;

/// What stands at an interface's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootQdisc {
    /// `fq_codel`, `mq`, `noqueue`.
    pub kind: String,
    /// Put there by somebody; otherwise the kernel's own choice, which comes back when a qdisc
    /// somebody put there is deleted.
    pub is_configured: bool,
}

impl RouteSocket {
    /// MTU in bytes and length of the transmit queue in packets.
    ///
    /// # Errors
    /// No such interface.
    pub fn mtu_and_queue(&mut self, name: &str) -> Result<(u32, u32), SyscallError> {
        let call = "rtnetlink getlink";
        let index = self.index(name)?;
        let link = self.netlink.find::<Link>(&Link::get(index));
        let link = link.map_err(|error| error.into_syscall(call, name))?;
        let missing = || SyscallError::new(call, name, io::Error::from(io::ErrorKind::InvalidData));
        link.mtu_bytes.zip(link.tx_queue_pkts).ok_or_else(missing)
    }

    /// Sets the MTU.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`, or a value the device refuses.
    pub fn set_mtu(&mut self, name: &str, bytes: u32) -> Result<(), SyscallError> {
        self.set_link(name, LinkSettings { mtu_bytes: Some(bytes), ..LinkSettings::default() })
    }

    /// Sets the length of the transmit queue.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`, or a value the kernel refuses.
    pub fn set_tx_queue(&mut self, name: &str, pkts: u32) -> Result<(), SyscallError> {
        self.set_link(name, LinkSettings { tx_queue_pkts: Some(pkts), ..LinkSettings::default() })
    }

    /// The queueing discipline at the root.
    ///
    /// # Errors
    /// No such interface, or the kernel lists no qdisc of it.
    pub fn root_qdisc(&mut self, name: &str) -> Result<RootQdisc, SyscallError> {
        let call = "rtnetlink getqdisc";
        let index = self.index(name)?;
        let listed = self.netlink.list::<Discipline>(&DisciplineKind::Qdisc.dump(index, 0));
        let listed = listed.map_err(|error| error.into_syscall(call, name))?;
        let is_root = |qdisc: &Discipline| qdisc.index == index && qdisc.parent == ROOT;
        let root = listed.into_iter().find(is_root);
        let missing = || SyscallError::new(call, name, io::Error::from(io::ErrorKind::NotFound));
        let root = root.ok_or_else(missing)?;
        Ok(RootQdisc { kind: root.kind, is_configured: root.handle != 0 })
    }

    /// Puts a qdisc of this kind, with the kernel's defaults, at the root.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`, or a kind this kernel does not have.
    pub fn replace_root_qdisc(&mut self, name: &str, kind: &str) -> Result<(), SyscallError> {
        let index = self.index(name)?;
        self.netlink
            .request(&Discipline::replace_root(index, kind))
            .map_err(|error| error.into_syscall("rtnetlink newqdisc", format!("{kind} on {name}")))
    }

    /// Deletes the qdisc somebody put at the root; the kernel puts its own choice there.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`, or what stands there is the kernel's own.
    pub fn delete_root_qdisc(&mut self, name: &str) -> Result<(), SyscallError> {
        let index = self.index(name)?;
        self.netlink
            .request(&Discipline::delete_root(index))
            .map_err(|error| error.into_syscall("rtnetlink delqdisc", name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_read() {
        let mut socket = RouteSocket::open().unwrap();
        let (mtu_bytes, _) = socket.mtu_and_queue("lo").unwrap();
        assert_eq!(mtu_bytes, 65_536);
        assert_eq!(
            socket.root_qdisc("lo").unwrap(),
            RootQdisc { kind: "noqueue".to_owned(), is_configured: false }
        );
        assert!(socket.root_qdisc("no-such-dev").is_err());
    }
}
