//! Who watches which port.

use super::make::{self, MakeError};
use super::memory::Lease;
use super::registry::{Answered, Refusal, Registry, attached};
use super::session::SessionId;
use crate::attachment::Shape;
use crate::datapath::Command;
use crate::name::PortName;

/// Most watchers of a port: each takes the switch another copy.
const WATCHERS_MAX: usize = 8;

/// Somebody who watches a port.
#[derive(Debug)]
pub(super) struct Watcher {
    session: SessionId,
    attachment: u32,
    serial: u64,
    lease: Lease,
}

impl Watcher {
    /// The memory of its ring.
    pub(super) fn into_lease(self) -> Lease {
        self.lease
    }

    pub(super) fn whose(&self) -> (SessionId, u32) {
        (self.session, self.attachment)
    }
}

impl Registry {
    /// Gives a watcher a ring of its own; as with taking a port away, only the user that added it, and
    /// root.
    pub(super) fn watch(&mut self, session: SessionId, user: u32, name: &PortName) -> Answered {
        self.check_attachments(session)?;
        let shape = Shape { slots: 4096, ..Shape::of_device() };
        let bytes = make::region_bytes(shape, 2).map_err(MakeError::from)?;
        self.memory.reserve(bytes)?;
        let (serial, attachment) = (self.next_serial(), self.next_attachment());
        let not_there = || Refusal::NotThere(format!("port {name}"));
        let switch = self.switches.get_mut(&name.switch).ok_or_else(not_there)?;
        let port = switch.ports.get_mut(&name.port).ok_or_else(not_there)?;
        if user != port.user && user != 0 {
            return Err(Refusal::Foreign(name.to_string()));
        }
        if port.watchers.len() >= WATCHERS_MAX {
            return Err(Refusal::Limit { what: "watchers of a port", max: WATCHERS_MAX as u64 });
        }
        let (monitor, region, handout) = make::monitor(port.id, (serial, user), shape)?;
        switch.link.send(Command::Watch { id: port.id, monitor: Box::new(monitor) })?;
        let lease = self.memory.lease(region, bytes);
        port.watchers.push(Watcher { session, attachment, serial, lease });
        Ok(attached(attachment, handout, 0))
    }

    /// Takes the rings of watchers back whom `whom` names.
    pub(super) fn unwatch(&mut self, whom: impl Fn(SessionId, u32) -> bool) {
        for switch in self.switches.values_mut() {
            for port in switch.ports.values_mut() {
                let gone = |one: &mut Watcher| whom(one.session, one.attachment);
                for watcher in port.watchers.extract_if(.., gone) {
                    let end = Command::Unwatch { id: port.id, serial: watcher.serial };
                    // The link's bell is ours alone.
                    switch.link.send(end).ok();
                    self.memory.end(watcher.lease);
                }
            }
        }
    }

    /// How many watches a connection keeps.
    pub(super) fn watches_of(&self, session: SessionId) -> usize {
        let ports = self.switches.values().flat_map(|switch| switch.ports.values());
        ports.flat_map(|port| &port.watchers).filter(|one| one.session == session).count()
    }

    /// Who watches a port.
    pub(super) fn watchers_of(&self, name: &PortName) -> Vec<(SessionId, u32)> {
        let watchers = self.port(name).map_or(&[][..], |port| &port.watchers);
        watchers.iter().map(Watcher::whose).collect()
    }

    /// Takes the rings of all watchers of a port back, which goes.
    pub(super) fn unwatch_port(&mut self, name: &PortName) {
        let all = self.watchers_of(name);
        self.unwatch(|session, attachment| all.contains(&(session, attachment)));
    }
}
