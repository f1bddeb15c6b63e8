//! Devices as they come from outside: descriptors that somebody else has opened, and says what they are.

use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;

use super::DeviceError;
use crate::attachment::{DeviceKind, TAP_QUEUES_MAX, XdpFacts};

/// A device whose descriptors are what they should be.
#[derive(Debug)]
pub(crate) enum Adopted {
    /// A TAP device's queues.
    Tap(Vec<ports::tap::Port>),
    /// A queue of a network device.
    Xdp {
        /// What its opener says of it.
        facts: XdpFacts,
        port: Box<ports::xdp::Port>,
    },
    /// Where a guest's hypervisor connects.
    Guest {
        /// Path for messages.
        path: String,
        listener: ports::vm::Listener,
    },
}

impl Adopted {
    /// Looks at descriptors that anybody may have sent: it may take as long as whoever did likes. What is
    /// only to be kept open as long as the device is there comes back.
    pub(crate) fn open(
        kind: &DeviceKind,
        mut fds: Vec<OwnedFd>,
    ) -> (Result<Self, DeviceError>, Vec<OwnedFd>) {
        match kind {
            DeviceKind::Tap => {
                let given = fds.len();
                if given == 0 || given > TAP_QUEUES_MAX as usize {
                    return (Err(DeviceError::Queues { given }), fds);
                }
                let queues = fds.into_iter().map(ports::tap::Port::from_fd);
                (queues.collect::<Result<_, _>>().map(Self::Tap).map_err(Into::into), Vec::new())
            }
            DeviceKind::VhostUser { path } => {
                let given = fds.len();
                let Some(fd) = fds.pop().filter(|_| given == 1) else {
                    return (Err(DeviceError::Sockets { given }), fds);
                };
                let adopt = |listener| Self::Guest { path: path.clone(), listener };
                let listener = ports::vm::Listener::from_fd(fd);
                (listener.map(adopt).map_err(Into::into), Vec::new())
            }
            DeviceKind::Xdp(facts) => {
                let rest = fds.split_off(fds.len().min(2));
                let port = ports::xdp::Port::from_fds(fds, facts.takes_parts);
                let adopt = |port| Self::Xdp { facts: facts.clone(), port: Box::new(port) };
                (port.map(adopt).map_err(Into::into), rest)
            }
        }
    }
}

/// By which the thread that received a device's descriptors knows when it is no longer wanted: with the last
/// of these gone it closes what it has kept.
#[derive(Debug, Default)]
pub(crate) struct Keep {
    back: Option<Sender<Adopted>>,
    /// Whether there is something to be kept once the device is accepted.
    has_more: bool,
}

impl Keep {
    pub(crate) fn new(back: Sender<Adopted>) -> Self {
        Self { back: Some(back), has_more: true }
    }

    /// Nothing is kept but the device itself.
    pub(crate) fn until_accepted(self) -> Self {
        Self { has_more: false, ..self }
    }

    /// Keeps the device.
    pub(crate) fn accepted(self) -> Self {
        if self.has_more { self } else { Self::default() }
    }

    /// Refuses the device; that thread closes it.
    pub(crate) fn refuse(self, device: Adopted) {
        if let Some(back) = self.back {
            // A thread that has ended has nothing to wait for.
            back.send(device).ok();
        }
    }
}
