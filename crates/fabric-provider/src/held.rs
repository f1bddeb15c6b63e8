//! Peers whose packets share a way that may be full: they are held back together until there is room.

use messaging::{Machine, PeerId};

/// Who uses such a way.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// By peer.
    is_user: Vec<bool>,
    is_full: bool,
}

impl Users {
    pub(crate) fn add(&mut self, peer: PeerId) {
        let index = peer.0 as usize;
        if self.is_user.len() <= index {
            self.is_user.resize(index + 1, false);
        }
        self.is_user[index] = true;
    }

    /// Whether packets to anybody have gone that way.
    pub(crate) fn are_any(&self) -> bool {
        !self.is_user.is_empty()
    }

    /// There was no room for a further packet.
    pub(crate) fn are_held(&self) -> bool {
        self.is_full
    }

    /// Holds their packets back until there is room.
    pub(crate) fn hold(&mut self, machine: &mut Machine) {
        self.is_full = true;
        self.all().for_each(|peer| machine.hold(peer));
    }

    /// Lets the packets go that were held back.
    pub(crate) fn release(&mut self, machine: &mut Machine) {
        self.is_full = false;
        self.all().for_each(|peer| machine.release(peer));
    }

    fn all(&self) -> impl Iterator<Item = PeerId> {
        (0..).zip(&self.is_user).filter(|(_, is_user)| **is_user).map(|(peer, _)| PeerId(peer))
    }
}
