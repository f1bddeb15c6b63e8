//! A switch whose rounds a test runs by hand, by what is tested: frames, clients that break the protocol, and the work of a
//! round.

use std::sync::mpsc;

use ring::{Bells, Geometry, Layout, Receiver, Seat, Sender, Slot};
use shm::Region;

use super::queues::QueueFault;
use super::*;

mod frames;
mod misdeeds;
mod queues;
mod trust;
mod turns;

const GEOMETRY: Geometry =
    Geometry { tx_rings: 1, rx_rings: 1, slots: 64, buffer_bytes: 256, extra_buffers: 0 };

/// A switch whose rounds a test runs by hand, and the clients at its ports.
struct Bench {
    switch: Datapath,
    trouble: mpsc::Receiver<Trouble>,
    clients: Vec<Client>,
}

struct Client {
    tx: Sender,
    rx: Receiver,
    number: usize,
}

fn bench(clients: usize) -> Bench {
    bench_of(clients, &GEOMETRY)
}

fn bench_of(clients: usize, geometry: &Geometry) -> Bench {
    let (sender, trouble) = mpsc::channel();
    let link = Arc::new(Link::new().unwrap());
    let bell = Bell::new().unwrap();
    let mut switch = Datapath::new(link, sender, bell, Duration::ZERO, 1).unwrap();
    let clients = (0..clients).map(|number| plug(&mut switch, number, geometry)).collect();
    switch.obey();
    Bench { switch, trouble, clients }
}

fn plug(switch: &mut Datapath, number: usize, geometry: &Geometry) -> Client {
    let (port, client) = ends(number, geometry);
    switch.link.send(Command::Add(Box::new(port))).unwrap();
    client
}

fn ends(number: usize, geometry: &Geometry) -> (PortEnds, Client) {
    let region = Region::private(geometry.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, geometry).unwrap();
    let end = |ring, seat| layout.end(&region, ring, seat, 1).unwrap();
    let buffers = || layout.buffers(&region).unwrap();
    let (tx_near, tx_far) = Bells::pair().unwrap();
    let (rx_near, rx_far) = Bells::pair().unwrap();
    let port = PortEnds {
        id: PortId::new(number).unwrap(),
        serial: number as u64 + 1,
        user: 0,
        inlets: Inlets::of([Inlet::new(end(0, Seat::TxOwner), buffers(), tx_far.theirs)]).unwrap(),
        outlets: Outlets::of([Outlet::new(end(1, Seat::RxOwner), buffers(), rx_far.theirs)])
            .unwrap(),
        header_bytes: 0,
        marks: Marks::new(&buffers()),
        kicks: vec![tx_far.ours],
        counters: Arc::default(),
        credit: Credit::default(),
        rest: None,
    };
    let client = Client {
        tx: Sender::join(end(0, Seat::User), buffers(), tx_near),
        rx: Receiver::join(end(1, Seat::User), buffers(), rx_near),
        number,
    };
    (port, client)
}

/// A port's transmit ring by itself, of so many slots, from its client's side and from the switch's.
fn way_in(slots: u32) -> (Sender, Inlet, Marks) {
    let geometry = Geometry { slots, ..GEOMETRY };
    let region = Region::private(geometry.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, &geometry).unwrap();
    let end = |seat| layout.end(&region, 0, seat, 1).unwrap();
    let buffers = || layout.buffers(&region).unwrap();
    let (near, far) = Bells::pair().unwrap();
    let tx = Sender::join(end(Seat::User), buffers(), near);
    (tx, Inlet::new(end(Seat::TxOwner), buffers(), far.theirs), Marks::new(&buffers()))
}

fn frame(from: usize, to: usize, fill: u8) -> [u8; 60] {
    let mut frame = [fill; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to as u8]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from as u8]);
    frame
}

impl Bench {
    fn round(&mut self) -> usize {
        let ports = *self.switch.forwarder.ports();
        self.switch.round(&ports)
    }

    /// Everybody says to everybody who it is, so that the switch knows.
    fn introduce(&mut self) {
        self.introduce_to(|_| 0xff);
    }

    /// Everybody says who it is, to nobody but itself.
    fn introduce_quietly(&mut self) {
        self.introduce_to(|number| number);
    }

    fn introduce_to(&mut self, whom: fn(usize) -> usize) {
        for client in &mut self.clients {
            client.tx.reserve(1).unwrap();
            assert!(client.tx.put(0, &frame(client.number, whom(client.number), 0)));
            client.tx.publish(1).unwrap();
        }
        assert_eq!(self.round(), self.clients.len());
        self.clients.iter_mut().for_each(|client| {
            let count = client.rx.peek(u32::MAX).unwrap();
            client.rx.release(count).unwrap();
        });
    }

    fn send(&mut self, from: usize, to: usize, count: u32) {
        let tx = &mut self.clients[from].tx;
        assert!(tx.reserve(count).unwrap() >= count);
        for offset in 0..count {
            assert!(tx.put(offset, &frame(from, to, offset as u8)));
        }
        tx.publish(count).unwrap();
    }

    fn receive(&mut self, at: usize) -> Vec<Vec<u8>> {
        let rx = &mut self.clients[at].rx;
        let count = rx.peek(u32::MAX).unwrap();
        let frames = (0..count)
            .map(|offset| {
                let mut out = [0; 256];
                let length = rx.copy(offset, &mut out).unwrap();
                out[..length].to_vec()
            })
            .collect();
        rx.release(count).unwrap();
        frames
    }

    fn counters(&self, port: usize) -> crate::counters::PortCount {
        self.switch.ports[port].as_ref().unwrap().counters.read()
    }

    fn slot_of_next_frame(&mut self, client: usize) -> Slot {
        let end = self.clients[client].tx.end();
        end.memory().slot(end.position())
    }
}
