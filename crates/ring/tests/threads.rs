//! Two threads and real memory. Under Miri this is where a copy that races with another would be
//! seen: `cargo +nightly miri test -p shm -p ring --lib --test threads`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ring::{Bells, Geometry, Layout, Patience, Receiver, Seat, Sender};
use shm::Region;

const GEOMETRY: Geometry =
    Geometry { tx_rings: 1, rx_rings: 1, slots: 4, buffer_bytes: 128, extra_buffers: 0 };

/// A sender and a receiver at that ring.
fn channel(region: &Arc<Region>, layout: &Layout, ring: u32) -> (Sender, Receiver) {
    let (near, far) = Bells::pair().unwrap();
    let seats = if ring == 0 { (Seat::User, Seat::TxOwner) } else { (Seat::RxOwner, Seat::User) };
    let end = |seat| layout.end(region, ring, seat, 1).unwrap();
    let buffers = || layout.buffers(region).unwrap();
    let sender = Sender::join(end(seats.0), buffers(), near);
    (sender, Receiver::join(end(seats.1), buffers(), far))
}

/// Every frame arrives, in order and whole, on both kinds of ring. `wait` gets something to do.
fn exchange(
    frames: u32,
    ready_to_send: fn(&mut Sender) -> u32,
    ready_to_receive: fn(&mut Receiver) -> u32,
) {
    let region = Region::private(GEOMETRY.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, &GEOMETRY).unwrap();
    for ring in [0, 1] {
        let (mut sender, mut receiver) = channel(&region, &layout, ring);
        let sending = thread::spawn(move || {
            let mut sent = 0;
            while sent < frames {
                let now = ready_to_send(&mut sender).min(frames - sent);
                for offset in 0..now {
                    let number = sent + offset;
                    assert!(sender.put(offset, &[number as u8; 100][..40 + number as usize % 60]));
                }
                sender.publish(now).unwrap();
                sent += now;
            }
        });
        let mut received = 0;
        while received < frames {
            let now = ready_to_receive(&mut receiver);
            for offset in 0..now {
                let number = received + offset;
                let mut out = [0; 128];
                let length = receiver.copy(offset, &mut out).unwrap();
                assert_eq!(out[..length], [number as u8; 100][..40 + number as usize % 60]);
            }
            receiver.release(now).unwrap();
            received += now;
        }
        sending.join().unwrap();
    }
}

#[test]
fn polling_threads_exchange_frames() {
    let frames = if cfg!(miri) { 60 } else { 100_000 };
    let send = |sender: &mut Sender| {
        thread::yield_now();
        sender.reserve(1).unwrap()
    };
    let receive = |receiver: &mut Receiver| {
        thread::yield_now();
        receiver.peek(1).unwrap()
    };
    exchange(frames, send, receive);
}

const PATIENCE: Patience = Patience { linger: Duration::ZERO, timeout: Duration::from_secs(20) };

#[test]
#[cfg(not(miri))]
fn sleeping_threads_wake_each_other() {
    let send = |sender: &mut Sender| {
        let ready = sender.wait(PATIENCE).unwrap();
        assert!(ready > 0, "nobody woke the sender");
        ready
    };
    let receive = |receiver: &mut Receiver| {
        let ready = receiver.wait(PATIENCE).unwrap();
        assert!(ready > 0, "nobody woke the receiver");
        ready
    };
    exchange(20_000, send, receive);
}
