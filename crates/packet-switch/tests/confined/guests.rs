//! Hostile guests and hypervisors.

#[path = "../../../ports/tests/support/hypervisor.rs"]
#[expect(dead_code, reason = "shared with the tests of the end itself")]
mod hypervisor;

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use hypervisor::{FEATURES, NEXT, Played, WRITE};
use packet_switch::attachment::{Ask, DeviceKind, DeviceState, Shape};
use ports::vm::Listener;
use rustix::fs::SealFlags;
use testkit::serving::wait_until;

use crate::confined::{Confined, Innocents};
use crate::lingering;

fn name() -> packet_switch::PortName {
    "vale1:vm".parse().unwrap()
}

/// Adds the port of a guest; where its hypervisor connects.
fn add(daemon: &Confined) -> PathBuf {
    let path = daemon.path().with_extension("vm");
    let listener = Listener::bind(&path).unwrap();
    let device = DeviceKind::VhostUser { path: path.display().to_string() };
    let ask = Ask::AddDevice { port: name(), device, shape: Shape::of_device() };
    daemon.connect().ask_with(ask, &[listener.as_fd()]).unwrap();
    path
}

fn device(daemon: &Confined) -> DeviceState {
    let entries = daemon.connect().list().unwrap();
    let entry = entries.into_iter().find(|entry| entry.name == name().to_string());
    entry.and_then(|entry| entry.device).unwrap()
}

fn until_trouble(daemon: &Confined, reason: &str) {
    wait_until(reason, || device(daemon).trouble.is_some_and(|why| why.contains(reason)));
}

/// As [`Played::begin`], by a daemon that attends by itself.
fn connect(daemon: &Confined, path: &std::path::Path) -> Played {
    wait_until("nobody is there", || device(daemon).mode.as_deref() == Some("no guest"));
    let mut played = Played::connect(path);
    played.begin(&mut || {}, FEATURES);
    wait_until("it runs", || {
        device(daemon).mode.as_deref() == Some("guest runs, 1 pair of queues")
    });
    played
}

#[test]
fn hostile_guests_harm_their_own_port_only_and_are_named() {
    let daemon = Confined::start("guests");
    let innocents = Innocents::start(daemon.path());
    let path = add(&daemon);
    type Break = fn(&mut Played);
    let breaks: [(Break, &str); 6] = [
        (|played| played.describe(1, 0, (0, 60), 0), "outside the guest's memory"),
        (|played| played.describe(1, 0, (Played::guest_place(1, 0), 60), WRITE), "nothing to read"),
        (|played| played.describe(1, 0, (Played::guest_place(1, 0), 3), 0), "virtio-net header"),
        (
            |played| {
                (0..8)
                    .for_each(|one| played.describe(1, one, (Played::guest_place(1, 0), 9), NEXT));
            },
            "continues at 8",
        ),
        (|played| played.available[1] += 1000, "available index"),
        (|played| played.socket.write_all(&[0xee; 100]).unwrap(), "version 2"),
    ];
    for (break_it, reason) in breaks {
        let mut played = connect(&daemon, &path);
        break_it(&mut played);
        played.post(1, 0);
        until_trouble(&daemon, reason);
    }
    // Memory that could be cut off under the switch.
    let unsealed: OwnedFd =
        rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&unsealed, 1 << 20).unwrap();
    let table = [1_u64, 0, 1 << 20, 0, 0].map(u64::to_le_bytes).concat();
    Played::connect(&path).say(5, &table, &[unsealed.as_fd()]);
    until_trouble(&daemon, "not sealed");
    // Memory without pages: all addresses of the switch would be taken by some guests' worth of it.
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let sparse = rustix::fs::memfd_create("sparse", flags).unwrap();
    rustix::fs::ftruncate(&sparse, 1 << 40).unwrap();
    rustix::fs::fcntl_add_seals(&sparse, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    Played::connect(&path).say(5, &table, &[sparse.as_fd()]);
    until_trouble(&daemon, "more than 512 GiB");
    // A bell at which whoever rings waits for ever.
    let mut played = connect(&daemon, &path);
    rustix::io::write(&played.calls[1], &(u64::MAX - 1).to_ne_bytes()).unwrap();
    rustix::fs::fcntl_setfl(&played.calls[1], rustix::fs::OFlags::empty()).unwrap();
    for sent in 1..=5 {
        played.send(&[0xff; 60]);
        wait_until("it is taken", || played.used(1).0 == sent);
    }
    drop(played);
    // A great many that come and go.
    for _ in 0..200 {
        let played = Played::connect(&path);
        played.say(3, &[], &[]);
    }
    drop(connect(&daemon, &path));
    innocents.end();
    daemon.end();
    std::fs::remove_file(path).unwrap();
}

/// Its port hangs, goes at once when it is deleted, and can be made anew.
#[test]
fn a_hypervisor_whose_descriptors_take_an_hour_to_close_stops_nobody() {
    let daemon = Confined::start("guest-lingers");
    let innocents = Innocents::start(daemon.path());
    let path = add(&daemon);
    let mut far_ends = Vec::new();
    for _ in 0..3 {
        let played = connect(&daemon, &path);
        let (near, far) = lingering();
        far_ends.push(far);
        // Twice, so that the first is closed.
        let number = 0_u64.to_le_bytes();
        played.say(13, &number, &[near.as_fd()]);
        drop(near);
        played.say(13, &number, &[played.calls[0].as_fd()]);
        daemon.connect().ask(Ask::DeletePort { port: name() }).unwrap();
        wait_until("the port is gone", || {
            daemon.connect().list().unwrap().iter().all(|entry| entry.name != name().to_string())
        });
        std::fs::remove_file(&path).unwrap();
        add(&daemon);
    }
    drop(connect(&daemon, &path));
    innocents.end();
    daemon.end();
    std::fs::remove_file(path).unwrap();
}

/// A guest's thread may not end what it rings with (`io_destroy` is refused to it), and the host has few of them
/// (`fs.aio-max-nr`): a port that took one of its own would keep it for as long as the daemon runs.
#[test]
fn ports_of_guests_come_and_go_and_nothing_of_the_kernels_stays() {
    let daemon = Confined::start("guests-go");
    let rings_count = || daemon.mappings_count("[aio]");
    let before = rings_count();
    assert!(before > 0, "it rings by asynchronous requests");
    for _ in 0..10 {
        let path = add(&daemon);
        drop(connect(&daemon, &path));
        daemon.connect().ask(Ask::DeletePort { port: name() }).unwrap();
        wait_until("the port is gone", || {
            daemon.connect().list().unwrap().iter().all(|entry| entry.name != name().to_string())
        });
        std::fs::remove_file(&path).unwrap();
    }
    assert_eq!(rings_count(), before);
    daemon.end();
}
