//! A guest by vhost-user, against a hypervisor and a driver that are played here, in the plainest way: what goes in
//! comes out, and what is hostile ends with a reason.

#[path = "support/hypervisor.rs"]
mod hypervisor;

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hypervisor::{FEATURES, GUEST_AT, MEMORY_BYTES, NEXT, Played, USER_AT, WRITE};
use ports::end::PACKET_BYTES_MAX;
use ports::vm::{FromGuest, Guest, GuestState, Listener, ToGuest};
use ports::{FromRing, ToRing, carry};
use ring::{Bells, Geometry, Layout, Receiver, Seat, Sender};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use shm::Region;
use sys::eventfd::Signaller;

fn ring() -> (ToRing, FromRing) {
    let geometry =
        Geometry { tx_rings: 1, rx_rings: 0, slots: 128, buffer_bytes: 2112, extra_buffers: 0 };
    let region = Region::private(geometry.region_bytes().unwrap()).unwrap();
    let layout = Layout::format(&region, &geometry).unwrap();
    let (near, far) = Bells::pair().unwrap();
    let end = |seat| layout.end(&region, 0, seat, 1).unwrap();
    let buffers = || layout.buffers(&region).unwrap();
    (
        ToRing::new(Sender::join(end(Seat::User), buffers(), near)),
        FromRing::new(Receiver::join(end(Seat::TxOwner), buffers(), far)),
    )
}

/// The port, and where its socket is.
fn listening(name: &str) -> (Guest, PathBuf) {
    let path = std::env::temp_dir().join(format!("clearstream-{name}-{}", std::process::id()));
    let fd = Listener::bind(&path).unwrap().as_fd().try_clone_to_owned().unwrap();
    (Guest::new(Listener::from_fd(fd).unwrap(), Signaller::new().ok().map(Arc::new)), path)
}

fn attend(guest: &mut Guest) {
    guest.attend().unwrap();
}

fn arrived(from: &mut FromRing) -> Vec<Vec<u8>> {
    struct Kept(Vec<Vec<u8>>);
    impl ports::Sink for Kept {
        fn put<'a>(
            &mut self,
            bytes: usize,
            parts: impl ports::end::Parts<'a>,
        ) -> Result<ports::Moved, ports::EndError> {
            let mut packet = Vec::with_capacity(bytes);
            for part in parts {
                let at = packet.len();
                packet.resize(at + part.length_bytes(), 0);
                assert!(part.read(0, &mut packet[at..]));
            }
            self.0.push(packet);
            Ok(ports::Moved::Given)
        }
        fn fill(&mut self, _: &mut impl ports::end::Fill) -> Result<ports::Moved, ports::EndError> {
            Ok(ports::Moved::Nothing)
        }
        fn flush(&mut self) -> Result<(), ports::EndError> {
            Ok(())
        }
    }
    let mut kept = Kept(Vec::new());
    carry(from, &mut kept, 64).unwrap();
    kept.0
}

fn given(to: &mut ToRing, packet: &[u8]) {
    use ports::Sink;
    let part = std::iter::once(shm::Bytes::from(packet));
    assert_eq!(to.put(packet.len(), part).unwrap(), ports::Moved::Given);
    to.flush().unwrap();
}

fn frame(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7) as u8).collect()
}

#[test]
fn frames_pass_both_ways_whole() {
    let (mut guest, path) = listening("guest-frames");
    let mut played = Played::connect(&path);
    guest.attend().unwrap();
    assert_eq!(guest.state(), GuestState::Connected);
    played.begin(&mut || attend(&mut guest), FEATURES);
    assert_eq!((guest.state(), guest.trouble()), (GuestState::Running { pairs: 1 }, None));
    let (mut to, mut from) = ring();
    for (number, bytes) in [60, 1514, 65_000].into_iter().enumerate() {
        played.send(&frame(bytes));
        assert_eq!(carry(&mut FromGuest(&mut guest), &mut to, 64).unwrap().packets, 1);
        assert_eq!(arrived(&mut from), [[vec![0; 10], frame(bytes)].concat()]);
        assert_eq!(played.used(1).0, number as u16 + 1);
        assert!(played.calls[1].wait(Some(Duration::from_secs(20))).unwrap(), "the guest is woken");
    }
    // Three buffers are merged into one packet, whose header says so.
    played.make_room(5, 2000);
    given(&mut to, &[vec![0; 10], frame(5000)].concat());
    assert_eq!(carry(&mut from, &mut ToGuest(&mut guest), 64).unwrap().packets, 1);
    assert_eq!(played.used(0), (3, vec![2000, 2000, 1012]));
    let whole: Vec<u8> = (0..3).flat_map(|one| played.read(Played::place(0, one), 2000)).collect();
    assert_eq!((&whole[..10], &whole[10..12]), (&[0; 10][..], &[3, 0][..]));
    assert_eq!(whole[12..5012], frame(5000));
    // Two are left: a longer packet waits until there is room, and is not lost.
    given(&mut to, &[vec![0; 10], frame(5000)].concat());
    let turn = carry(&mut from, &mut ToGuest(&mut guest), 64).unwrap();
    assert_eq!((turn.packets, turn.last), (0, ports::Moved::NoRoom));
    assert!(guest.arm_room(), "nothing has come");
    played.make_room(1, 2000);
    assert!(!guest.arm_room(), "there is more than there was");
    assert_eq!(carry(&mut from, &mut ToGuest(&mut guest), 64).unwrap().packets, 1);
    assert_eq!(played.used(0).0, 6);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn guests_without_offloads_get_finished_frames() {
    let (mut guest, path) = listening("guest-plain");
    let mut played = Played::connect(&path);
    // No checksums, no segmentation, no merged buffers: one chain a frame.
    played.begin(&mut || attend(&mut guest), 1 << 32 | 1 << 30);
    let (mut to, mut from) = ring();
    played.make_room(4, 1600);
    // UDP over IPv4 whose checksum is left to the device.
    let mut udp = [&[2; 12][..], &[8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0]].concat();
    udp.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9, 0, 12, 0x14, 0x20, 1, 2, 3, 4]);
    let header = [1, 0, 0, 0, 0, 0, 34, 0, 6, 0];
    given(&mut to, &[&header[..], &udp].concat());
    // Longer than any chain that the guest has.
    given(&mut to, &[vec![0; 10], frame(1600)].concat());
    let turn = carry(&mut from, &mut ToGuest(&mut guest), 64).unwrap();
    assert_eq!((turn.packets, turn.refused), (2, 1));
    assert_eq!(played.used(0), (1, vec![12 + udp.len()]));
    let got = played.read(Played::place(0, 0), 12 + udp.len());
    assert_eq!((&got[..10], &got[12..52]), (&[0; 10][..], &udp[..40]), "no flag is left");
    let sum: u32 = got[46..].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let with_pseudo_header = sum + 0x0a00 + 1 + 0x0a00 + 2 + 17 + 12;
    let folded = (with_pseudo_header & 0xffff) + (with_pseudo_header >> 16);
    assert_eq!(folded, 0xffff, "the checksum is right: {got:x?}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn hostile_queues_stop_with_a_reason_and_start_anew() {
    let (mut guest, path) = listening("guest-hostile");
    let mut played = Played::connect(&path);
    played.begin(&mut || attend(&mut guest), FEATURES);
    let (mut to, mut from) = ring();
    let at = Played::guest_place(1, 0);
    let outside = GUEST_AT + MEMORY_BYTES as u64;
    type Break = fn(&mut Played, u64);
    let breaks: [(Break, &str); 7] = [
        (|played, at| played.describe(1, 0, (at, 60), WRITE), "nothing to read"),
        (|played, at| played.describe(1, 0, (at, 11), 0), "less than a virtio-net header"),
        (|played, at| played.describe(1, 0, (at, u32::MAX), 0), "outside the guest's memory"),
        (|played, _| played.describe(1, 0, (u64::MAX, 60), 0), "outside the guest's memory"),
        (|played, at| played.describe(1, 0, (at, 0), 0), "length 0"),
        (|played, at| played.describe(1, 0, (at, 16), 4 | NEXT), "indirect"),
        (|played, _| played.available[1] += 100, "available index"),
    ];
    for (break_it, reason) in breaks {
        break_it(&mut played, at);
        played.post(1, 0);
        carry(&mut FromGuest(&mut guest), &mut to, 64).unwrap();
        assert!(guest.trouble().unwrap().contains(reason), "{:?}", guest.trouble());
        assert_eq!(guest.state(), GuestState::Connected, "nothing runs: {reason}");
        // The guest resets its device.
        played.ask(&mut || attend(&mut guest), 11, &Played::pair(0, 0));
        played.ask(&mut || attend(&mut guest), 11, &Played::pair(1, 0));
        played.start();
        guest.attend().unwrap();
        assert_eq!(guest.state(), GuestState::Running { pairs: 1 });
        played.send(&frame(100));
        assert_eq!(carry(&mut FromGuest(&mut guest), &mut to, 64).unwrap().packets, 1);
        assert_eq!(arrived(&mut from).len(), 1);
    }
    // The same on the way to the guest.
    played.describe(0, 0, (outside - 8, 100), WRITE);
    played.post(0, 0);
    given(&mut to, &[0; 90]);
    assert_eq!(carry(&mut from, &mut ToGuest(&mut guest), 64).unwrap().refused, 1);
    assert!(guest.trouble().unwrap().contains("outside the guest's memory"));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn hypervisors_come_and_go() {
    let (mut guest, path) = listening("guest-comes");
    let (mut to, mut from) = ring();
    let mut played = Played::connect(&path);
    played.begin(&mut || attend(&mut guest), FEATURES);
    // A table in the middle of traffic, under which the queues go on.
    played.send(&frame(60));
    let half = MEMORY_BYTES as u64 / 2;
    played.share(&[(GUEST_AT, half, USER_AT, 0), (GUEST_AT + half, half, USER_AT + half, half)]);
    guest.attend().unwrap();
    assert_eq!(carry(&mut FromGuest(&mut guest), &mut to, 64).unwrap().packets, 1);
    assert_eq!(arrived(&mut from).len(), 1);
    // One guest at a time.
    let mut second = Played::connect(&path);
    guest.attend().unwrap();
    assert_eq!(second.socket.read(&mut [0; 1]).unwrap(), 0, "it is turned away");
    assert_eq!(guest.trouble(), Some("a second hypervisor was turned away"));
    assert_eq!(guest.state(), GuestState::Running { pairs: 1 });
    // Killed, and another takes its place.
    drop(played);
    let mut next = Played::connect(&path);
    next.begin(&mut || attend(&mut guest), FEATURES);
    next.send(&frame(60));
    assert_eq!(carry(&mut FromGuest(&mut guest), &mut to, 64).unwrap().packets, 1);
    // What is no message ends the connection, and the port listens again.
    next.socket.write_all(&[0xff; 12]).unwrap();
    guest.attend().unwrap();
    assert_eq!(guest.state(), GuestState::Waiting);
    assert!(guest.trouble().unwrap().contains("version 3"), "{:?}", guest.trouble());
    // So does a table of memory that could be cut off, and one that names more than there is.
    for bad in [(GUEST_AT, MEMORY_BYTES as u64 + 1, USER_AT, 0), (u64::MAX, 4096, USER_AT, 0)] {
        let hostile = Played::connect(&path);
        guest.attend().unwrap();
        hostile.share(&[bad]);
        guest.attend().unwrap();
        assert_eq!(guest.state(), GuestState::Waiting);
        assert!(guest.trouble().unwrap().contains("guest memory"), "{:?}", guest.trouble());
    }
    std::fs::remove_file(path).unwrap();
}

/// Whatever bytes come as messages: no panic, and the port goes on.
#[test]
fn any_messages_leave_the_port_listening() {
    let (mut guest, path) = listening("guest-fuzz");
    assert!(Listener::bind(&path).is_err(), "it is served");
    let (mut to, mut from) = ring();
    let mut random = stats::Random::from_seed(3);
    for round in 0..300 {
        let mut played = Played::connect(&path);
        if round % 2 == 0 {
            played.begin(&mut || attend(&mut guest), FEATURES);
        }
        for _ in 0..20 {
            let payload: Vec<u8> = match random.below(3) {
                0 => (0..random.below(80)).map(|_| random.bits() as u8).collect(),
                1 => Played::pair(random.below(3) as u32, random.below(300) as u32),
                _ => [0, 1, 512, random.bits()].map(u64::to_le_bytes).concat(),
            };
            let bell = played.kicks[0].as_fd();
            let fds = vec![bell; random.below(3) as usize];
            let request = random.below(26) as u32;
            let header = [request, 1, payload.len() as u32].map(u32::to_le_bytes).concat();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
            let parts = [IoSlice::new(&header), IoSlice::new(&payload)];
            // It may have closed already.
            let flags = SendFlags::NOSIGNAL;
            rustix::net::sendmsg(&played.socket, &parts, &mut control, flags).ok();
            guest.attend().unwrap();
            given_if_room(&mut to);
            carry(&mut from, &mut ToGuest(&mut guest), 64).unwrap();
            carry(&mut FromGuest(&mut guest), &mut to, 64).unwrap();
        }
        drop(played);
        guest.attend().unwrap();
    }
    let mut last = Played::connect(&path);
    last.begin(&mut || attend(&mut guest), FEATURES);
    assert_eq!(guest.state(), GuestState::Running { pairs: 1 });
    std::fs::remove_file(path).unwrap();
}

fn given_if_room(to: &mut ToRing) {
    use ports::Sink;
    const { assert!(PACKET_BYTES_MAX > 100) };
    let packet = [0; 100];
    to.put(packet.len(), std::iter::once(shm::Bytes::from(&packet[..]))).unwrap();
    to.flush().unwrap();
}

/// What another user left behind in a shared folder: root could remove it, and must not.
#[test]
fn root_a_deserted_socket_of_another_users_is_left_alone() {
    let path = std::env::temp_dir().join(format!("clearstream-foreign-{}", std::process::id()));
    drop(Listener::bind(&path).unwrap());
    drop(Listener::bind(&path).expect("a deserted one of one's own is replaced"));
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    let before = rustix::fs::lstat(&path).unwrap();
    let error = Listener::bind(&path).unwrap_err();
    assert_eq!(error.source.kind(), std::io::ErrorKind::PermissionDenied);
    let after = rustix::fs::lstat(&path).unwrap();
    assert_eq!((after.st_ino, after.st_uid), (before.st_ino, 65534));
    std::fs::remove_file(&path).unwrap();
}
