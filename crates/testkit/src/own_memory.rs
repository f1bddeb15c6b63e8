//! A client of the switch with memory of its own, or a trust group's, as a guest's keeper has it.

use std::sync::Arc;

use packet_switch::attachment::{Ask, Shape, TRUST_SEATS, TrustSeat};
use packet_switch::client::{ClientError, Connection};
use packet_switch::{Name, PortName};
use ring::{Bells, Geometry, Layout, Receiver, Seat, Sender};
use shm::{Bell, Region};

pub const SHAPE: Shape = Shape { slots: 64, buffer_bytes: 2048 };

/// Memory, and the bells of the transmit ring and of the receive ring: that of the switch, that of the client.
#[derive(Debug)]
pub struct OwnMemory {
    pub region: Arc<Region>,
    pub bells: [[Bell; 2]; 2],
    /// In the memory of a trust group.
    pub seat: Option<TrustSeat>,
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
        Self { region, bells: Self::new_bells(), seat: None }
    }

    /// A member of a trust group, not attached yet; the port is lent.
    pub fn join(connection: &mut Connection, port: &PortName, group: &Name) -> Self {
        connection.ask(Ask::LendPort { port: port.clone(), shape: SHAPE }).unwrap();
        let (seat, memory) = connection.join_group(port, group).unwrap();
        let region = Region::attach(memory).unwrap();
        Self { region, bells: Self::new_bells(), seat: Some(seat) }
    }

    fn new_bells() -> [[Bell; 2]; 2] {
        let bells = || [Bell::new().unwrap(), Bell::new().unwrap()];
        [bells(), bells()]
    }

    /// Attaches it to a port, which is there.
    pub fn attach(
        &self,
        connection: &mut Connection,
        port: &PortName,
        is_fresh: bool,
    ) -> Result<u32, ClientError> {
        let bells = self.bells.each_ref().map(|[theirs, ours]| [theirs, ours]);
        let memory = self.region.fd().unwrap();
        match &self.seat {
            Some(seat) => connection.attach_member(port, seat, memory, bells),
            None => connection.attach_memory(port, is_fresh, memory, &[bells]),
        }
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
        let (tx_ring, rx_ring) = match &self.seat {
            Some(TrustSeat { seat, .. }) => (u32::from(*seat), u32::from(TRUST_SEATS + seat)),
            None => (0, 1),
        };
        (Sender::join(end(tx_ring), buffers(), tx), Receiver::join(end(rx_ring), buffers(), rx))
    }
}

impl Default for OwnMemory {
    fn default() -> Self {
        Self::new()
    }
}
