//! A client of the switch with memory of its own, as a guest's keeper has it.

use std::os::fd::AsFd;
use std::sync::Arc;

use packet_switch::PortName;
use packet_switch::attachment::{Ask, Shape};
use packet_switch::client::{ClientError, Connection};
use ring::{Bells, Geometry, Layout, Receiver, Seat, Sender};
use shm::{Bell, Region};

pub const SHAPE: Shape = Shape { slots: 64, buffer_bytes: 2048 };

/// Memory, and the bells of the transmit ring and of the receive ring: that of the switch, that of the client.
#[derive(Debug)]
pub struct OwnMemory {
    pub region: Arc<Region>,
    pub bells: [[Bell; 2]; 2],
}

impl OwnMemory {
    pub fn new() -> Self {
        let geometry = Geometry {
            tx_rings: 1,
            rx_rings: 1,
            slots: SHAPE.slots,
            buffer_bytes: SHAPE.buffer_bytes,
            extra_buffers: 0,
        };
        let region = Region::create("own", geometry.region_bytes().unwrap()).unwrap();
        Layout::format(&region, &geometry).unwrap();
        let bells = || [Bell::new().unwrap(), Bell::new().unwrap()];
        Self { region, bells: [bells(), bells()] }
    }

    /// Attaches it to a port, which is there.
    pub fn attach(
        &self,
        connection: &mut Connection,
        port: &PortName,
        is_fresh: bool,
    ) -> Result<u32, ClientError> {
        let bells = self.bells.each_ref().map(|[theirs, ours]| [theirs, ours]);
        connection.attach_memory(port, is_fresh, self.region.fd().unwrap().as_fd(), bells)
    }

    /// Lends the port and attaches to it.
    pub fn lend(&self, connection: &mut Connection, port: &PortName, is_fresh: bool) -> u32 {
        connection.ask(Ask::LendPort { port: port.clone(), shape: SHAPE }).unwrap();
        self.attach(connection, port, is_fresh).unwrap()
    }

    /// Both ends of the client.
    pub fn ends(&self) -> (Sender, Receiver) {
        let layout = Layout::read(&self.region).unwrap();
        let [tx, rx] = self.bells.each_ref().map(|[theirs, ours]| Bells {
            theirs: theirs.share().unwrap(),
            ours: ours.share().unwrap(),
        });
        let end = |ring| layout.end(&self.region, ring, Seat::User, 1).unwrap();
        let buffers = || layout.buffers(&self.region).unwrap();
        (Sender::join(end(0), buffers(), tx), Receiver::join(end(1), buffers(), rx))
    }
}

impl Default for OwnMemory {
    fn default() -> Self {
        Self::new()
    }
}
