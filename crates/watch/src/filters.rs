//! Changes of packet filters that the kernel announces.

use std::os::fd::{AsFd, BorrowedFd};

use netlink::{Notified, group};
use sys::SyscallError;
use sys::netlink_socket::{NetlinkError, NetlinkSocket};

use crate::link::WatchError;

/// Listens where the host has packet filters of the plan's.
#[derive(Debug)]
pub(crate) struct FilterChanges {
    socket: NetlinkSocket,
}

impl FilterChanges {
    pub(crate) fn open() -> Result<Self, WatchError> {
        let failed = WatchError::netlink("packet filters");
        let mut socket = NetlinkSocket::open_filters().map_err(failed)?;
        socket.subscribe(&[group::FILTER]).map_err(WatchError::netlink("packet filters"))?;
        rustix::io::ioctl_fionbio(&socket, true)
            .map_err(|error| SyscallError::new("ioctl(FIONBIO)", "netlink", error))?;
        Ok(Self { socket })
    }

    /// Hears what has come; whether any of it may be about the plan's.
    pub(crate) fn take(&mut self, concerns: &dyn Fn(&Notified) -> bool) -> bool {
        let mut is_concerned = false;
        loop {
            match self.socket.notifications() {
                Ok(notifications) if notifications.is_empty() => return is_concerned,
                Ok(notifications) => {
                    let is_it = |object: &Notified| {
                        matches!(object, Notified::FilterTable(_)) && concerns(object)
                    };
                    is_concerned |= notifications.iter().any(|one| is_it(&one.object));
                }
                // Everything may have changed.
                Err(NetlinkError::Lost) => is_concerned = true,
                Err(_malformed) => {}
            }
        }
    }
}

impl AsFd for FilterChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
