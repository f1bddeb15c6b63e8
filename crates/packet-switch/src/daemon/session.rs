use std::os::fd::{AsFd, BorrowedFd};

use shm::Socket;

use crate::attachment::Delivery;

/// Numbers connections in the daemon's life.
pub(crate) type SessionId = u64;

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) socket: Socket,
    pub(crate) user: u32,
}

impl Session {
    /// Sends it something; false when it does not read.
    pub(crate) fn tell(&self, delivery: &Delivery) -> bool {
        let fds: Vec<BorrowedFd<'_>> = delivery.fds.iter().map(AsFd::as_fd).collect();
        self.socket.send(&delivery.answer.encode(), &fds).is_ok()
    }
}
