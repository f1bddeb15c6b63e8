//! Ports of devices: their threads sit where other ports have clients.

use std::sync::Arc;

use sys::SyscallError;

use super::Notice;
use super::make;
use super::memory::Share;
use super::registry::{Refusal, Registry};
use super::session::SessionId;
use crate::attachment::{DeviceKind, HEADER_BYTES, Kind, LinkConfig, Shape};
use crate::datapath::{Command, Resident};
use crate::device::{Adopted, Device, Keep, Plug, device_bytes, link_bytes};
use crate::name::PortName;

/// Whose the attachments of devices are: no connection has this number.
const DAEMON: SessionId = 0;

impl Registry {
    pub(super) fn add_device(
        &mut self,
        user: u32,
        name: &PortName,
        kind: &DeviceKind,
        shape: Shape,
        adopted: Adopted,
        keep: Keep,
    ) -> Result<(), Refusal> {
        let inside = (kind.header_bytes(), device_bytes(kind));
        let plug = match self.add_inner_port(user, name, shape, inside) {
            Ok(plug) => plug,
            Err(why) => {
                keep.refuse(adopted);
                return Err(why);
            }
        };
        let shares = self.shares_of(&[name]);
        let signaller = self.signallers.of_guests();
        let device = Device::drive(adopted, keep, plug, shares, signaller, &self.threads).and_then(
            |(device, resident)| {
                let seated = resident.map_or(Ok(()), |resident| self.seat(name, resident));
                seated.map(|()| device).map_err(Into::into)
            },
        );
        self.settle(&[name], device)
    }

    /// From now on the port goes with that connection.
    pub(super) fn lend(&mut self, name: &PortName, session: SessionId) {
        if let Some(port) = self.port_mut(name) {
            port.lender = Some(session);
        }
    }

    /// A connection has closed: the ports that it lent go.
    pub(super) fn take_back_lent(&mut self, session: SessionId, notice: &mut dyn FnMut(Notice)) {
        let lent = self.switches.iter().flat_map(|(switch, entry)| {
            let ports = entry.ports.iter().filter(|(_, port)| port.lender == Some(session));
            ports.map(|(port, _)| PortName { switch: switch.clone(), port: port.clone() })
        });
        for name in lent.collect::<Vec<_>>() {
            // Root may delete any port, and this one is there.
            self.delete_port(0, &name, notice).ok();
        }
    }

    pub(super) fn add_link(
        &mut self,
        user: u32,
        names: &[PortName; 2],
        config: &LinkConfig,
    ) -> Result<(), Refusal> {
        let [one, other] = names;
        let shape = Shape::of_device();
        let inside = (HEADER_BYTES, link_bytes(config, self.memory.bytes_max));
        let first = self.add_inner_port(user, one, shape, inside)?;
        let second = match self.add_inner_port(user, other, shape, inside) {
            Ok(plug) => plug,
            Err(why) => {
                self.drop_inner_port(one);
                return Err(why);
            }
        };
        let shares = self.shares_of(&[one, other]);
        let (most, plugs) = (self.memory.bytes_max, [first, second]);
        let device = Device::link(names, config, most, plugs, shares, &self.threads);
        self.settle(&[one, other], device)
    }

    /// A new port whose client is within the daemon: with so many bytes of header, and so many of memory that
    /// the client takes.
    fn add_inner_port(
        &mut self,
        user: u32,
        name: &PortName,
        shape: Shape,
        (header_bytes, client_bytes): (u8, u64),
    ) -> Result<Plug, Refusal> {
        if self.port(name).is_some() {
            return Err(Refusal::Exists(name.to_string()));
        }
        self.new_port(user, name, shape, Kind::Port)?;
        if let Some(port) = self.port_mut(name) {
            port.header_bytes = header_bytes;
        }
        let plug = self.plug_inner(user, name, client_bytes);
        if plug.is_err() {
            self.forget_port(name);
        }
        plug
    }

    fn plug_inner(&mut self, user: u32, name: &PortName, bytes: u64) -> Result<Plug, Refusal> {
        let (role, shape) = self.free_port(user, name, bytes)?;
        let attachment = self.next_attachment();
        let (ends, region, plug) = make::inner_port(role, shape)?;
        self.join(name, (DAEMON, attachment), ends, (region, bytes))?;
        Ok(plug)
    }

    /// What counts for these ports, for the threads of their device.
    fn shares_of(&self, names: &[&PortName]) -> Vec<Share> {
        let clients = names.iter().filter_map(|name| self.port(name)?.client.as_ref());
        clients.map(|client| client.lease.share()).collect()
    }

    /// Gives the ports their device, or takes them away again when there is none.
    fn settle(
        &mut self,
        names: &[&PortName],
        device: Result<Device, crate::device::DeviceError>,
    ) -> Result<(), Refusal> {
        match device {
            Ok(device) => {
                let device = Arc::new(device);
                for name in names {
                    if let Some(port) = self.port_mut(name) {
                        port.device = Some(Arc::clone(&device));
                    }
                }
                Ok(())
            }
            Err(error) => {
                names.iter().for_each(|name| self.drop_inner_port(name));
                Err(error.into())
            }
        }
    }

    /// Has the thread of the port's switch drive its device.
    fn seat(&self, name: &PortName, resident: Box<dyn Resident>) -> Result<(), SyscallError> {
        let client = self.port(name).and_then(|port| port.client.as_ref());
        let switch = self.switches.get(&name.switch);
        match switch.zip(client) {
            Some((switch, client)) => {
                switch.link.send(Command::Reside { serial: client.serial, resident })
            }
            None => Ok(()),
        }
    }

    fn drop_inner_port(&mut self, name: &PortName) {
        let client = self.port(name).and_then(|port| port.client.as_ref());
        if let Some(serial) = client.map(|client| client.serial) {
            self.detach_serial(serial, &mut |_| {});
        }
        self.forget_port(name);
    }

    /// The port itself and, if it is one end of a link, the other.
    pub(super) fn ports_of_one_device(&self, name: &PortName) -> Vec<PortName> {
        let Some(device) = self.port(name).and_then(|port| port.device.as_ref()) else {
            return vec![name.clone()];
        };
        let its = |other: &Option<Arc<Device>>| {
            other.as_ref().is_some_and(|other| Arc::ptr_eq(other, device))
        };
        let ports = self.switches.iter().flat_map(|(switch, entry)| {
            entry.ports.iter().map(move |(port, entry)| (switch, port, entry))
        });
        ports
            .filter(|(_, _, entry)| its(&entry.device))
            .map(|(switch, port, _)| PortName { switch: switch.clone(), port: port.clone() })
            .collect()
    }
}
