//! What may be set of a port that is there.

use super::entries::{Port, Switch};
use super::registry::{Answered, Refusal, Registry};
use crate::attachment::{Answer, HEADERS_BYTES};
use crate::datapath::Command;
use crate::name::PortName;

impl Registry {
    /// Sets the length of the header before each frame, for the client that is there and those that come.
    pub(super) fn set_header(&mut self, user: u32, name: &PortName, header_bytes: u8) -> Answered {
        if !HEADERS_BYTES.contains(&header_bytes) {
            return Err(Refusal::Header(header_bytes));
        }
        self.set(user, name, |port| {
            port.header_bytes = header_bytes;
            Command::SetHeader { id: port.id, header_bytes }
        })
    }

    /// Has the switch poll a port without end, or no longer.
    pub(super) fn poll_always(&mut self, user: u32, name: &PortName, always: bool) -> Answered {
        self.set(user, name, |port| Command::Poll { id: port.id, always })
    }

    /// As with taking a port away, only for the user that added it, and root; a device's port is as the
    /// device needs it.
    fn set(
        &mut self,
        user: u32,
        name: &PortName,
        change: impl FnOnce(&mut Port) -> Command,
    ) -> Answered {
        let not_there = || Refusal::NotThere(format!("port {name}"));
        let Switch { link, ports, .. } =
            self.switches.get_mut(&name.switch).ok_or_else(not_there)?;
        let port = ports.get_mut(&name.port).ok_or_else(not_there)?;
        if user != port.user && user != 0 {
            return Err(Refusal::Foreign(name.to_string()));
        }
        if port.device.is_some() {
            return Err(Refusal::Taken(format!("{name} (by its device)")));
        }
        link.send(change(port))?;
        Ok(Answer::Done.into())
    }
}
