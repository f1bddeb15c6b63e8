use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use shm::Socket;

use crate::attachment::Delivery;

/// Numbers connections in the daemon's life.
pub(crate) type SessionId = u64;

/// A connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) socket: Arc<Socket>,
    pub(crate) user: u32,
    pub(crate) state: State,
    /// In which of the daemon's hearings it was heard last.
    pub(crate) heard: u64,
}

/// What is done about what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It is listened to.
    Ready,
    /// A message with descriptors waits for a thread to receive it, since then.
    Waiting(Instant),
    /// A thread receives one.
    Busy,
}

impl Session {
    /// Sends it something; false when it does not read.
    pub(crate) fn tell(&self, delivery: &Delivery) -> bool {
        let fds: Vec<BorrowedFd<'_>> = delivery.fds.iter().map(AsFd::as_fd).collect();
        self.socket.send(&delivery.answer.encode(), &fds).is_ok()
    }
}
