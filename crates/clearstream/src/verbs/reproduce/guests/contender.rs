//! What connects the guests.

use std::fmt;

use vm::line::PortType;

/// A network device of a guest, and what it is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Contender {
    /// The port's rings in the guest's hands.
    Ptnet,
    /// A stock virtio-net driver on a port of the switch.
    VhostUser,
    /// A stock virtio-net driver on a TAP device in a bridge of the kernel's.
    Bridge,
}

impl Contender {
    pub(super) const ALL: [Self; 3] = [Self::Ptnet, Self::VhostUser, Self::Bridge];

    /// The one that an experiment's name ends in.
    pub(super) fn of(experiment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| experiment.ends_with(&format!(", {one}")))
    }

    pub(super) fn port_type(self) -> PortType {
        match self {
            Self::Ptnet => PortType::Ptnet,
            Self::VhostUser => PortType::Virtio,
            Self::Bridge => PortType::Tap,
        }
    }

    /// Beginning of its guests' names, and of its switch's.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Ptnet => "ptnet",
            Self::VhostUser => "vhost",
            Self::Bridge => "tap",
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ptnet => "ptnet",
            Self::VhostUser => "vhost-user",
            Self::Bridge => "tap+bridge",
        })
    }
}
