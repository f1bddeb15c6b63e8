//! Memory that guests and clients hand over. It may have no pages: then it costs them nothing, and the switch addresses.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use packet_switch::PortName;
use packet_switch::attachment::{Answer, Ask, DeviceKind, Shape};
use ports::vm::Listener;
use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use testkit::own_memory::{OwnMemory, SHAPE};

use super::descriptors::{SEALED, memfd};
use super::{Hostile, Raw, SMALL, broadcast};
use crate::case::{Case, Door, Scene};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Switch, "guests with more memory than there are addresses", sparse),
    Case::of(Door::Switch, "lent memory of any length, with bells of any kind", lengths),
    Case::of(Door::Switch, "every field of lent memory at its extremes", lent_words),
    Case::of(Door::Switch, "memory tables and lent memory at random", any).generated(),
];

const GIB: u64 = 1 << 30;
/// What the switch may use for all ports (`--memory`) unless told otherwise, bytes.
const MEMORY: u64 = 8 * GIB;
/// Guests that a process serves are 128 at most: some are left to others.
const GUESTS: u32 = 100;

fn sealed(bytes: u64) -> Option<OwnedFd> {
    memfd(MemfdFlags::ALLOW_SEALING, bytes, SEALED)
}

fn port_name(name: &str) -> Result<PortName, String> {
    name.parse().map_err(|error| format!("{name}: {error}"))
}

/// A hypervisor at a port of its own.
#[derive(Debug)]
struct Hypervisor {
    _listener: Listener,
    path: std::path::PathBuf,
    socket: UnixStream,
}

impl Hypervisor {
    fn begin(scene: &Scene, raw: &Raw, number: u32) -> Result<Self, String> {
        let path = scene.folder.join(format!("vm{number}"));
        std::fs::remove_file(&path).ok();
        let listener = Listener::bind(&path).map_err(|error| error.to_string())?;
        let device = DeviceKind::VhostUser { path: path.display().to_string() };
        let shape = Shape { slots: 2, buffer_bytes: 64 };
        let port = port_name(&format!("vale3:vm{number}"))?;
        match raw.ask(Ask::LendDevice { port, device, shape }, &[listener.as_fd()])?.0 {
            Answer::Done => {}
            other => return Err(format!("guest {number}: {other:?}")),
        }
        let socket = connect(&path)?;
        Ok(Self { _listener: listener, path, socket })
    }

    fn say(&self, [request, flags]: [u32; 2], payload: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let header = [request, flags, payload.len() as u32].map(u32::to_le_bytes).concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return false;
        }
        let parts = [IoSlice::new(&header), IoSlice::new(payload)];
        rustix::net::sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL).is_ok()
    }

    /// Hands over a memory table with a file for each region; whether the switch takes it.
    fn share(&mut self, table: &[[u64; 4]], files: &[OwnedFd]) -> bool {
        let count = (table.len() as u64).to_le_bytes();
        let words = table.concat().into_iter().flat_map(u64::to_le_bytes);
        let payload: Vec<u8> = count.into_iter().chain(words).collect();
        let fds: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        let mut answer = [0; 20];
        // Version 1: `SET_PROTOCOL_FEATURES`, acknowledgements; `SET_MEM_TABLE`, which is to be acknowledged.
        self.say([16, 1], &(1_u64 << 3).to_le_bytes(), &[])
            && self.say([5, 1 | 8], &payload, &fds)
            && self.socket.read_exact(&mut answer).is_ok()
            && answer[12..] == [0; 8]
    }

    /// A table of files without pages of so many bytes each.
    fn share_sparse(&mut self, files: u64, bytes: u64) -> bool {
        let table: Vec<[u64; 4]> =
            (0..files).map(|number| [number * bytes, bytes, number * bytes, 0]).collect();
        let files: Vec<OwnedFd> = table.iter().filter_map(|_| sealed(bytes)).collect();
        let is_taken = self.share(&table, &files);
        if !is_taken && let Ok(socket) = connect(&self.path) {
            // Who is refused is disconnected, and may come again.
            self.socket = socket;
        }
        is_taken
    }
}

fn connect(path: &std::path::Path) -> Result<UnixStream, String> {
    let socket = UnixStream::connect(path).map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(super::ANSWER)).map_err(|error| error.to_string())?;
    Ok(socket)
}

/// From as much as a table holds down to a page: whoever has all of that has left the switch no address.
fn sparse(scene: &mut Scene) -> Result<(), String> {
    let raw = Raw::connect(&scene.socket)?;
    let mut sizes = (12..=40).rev().map(|power| (1, 1_u64 << power));
    let mut next = Some((8, 1 << 40));
    let mut guests = Vec::new();
    for number in 0..GUESTS {
        let mut guest = Hypervisor::begin(scene, &raw, number)?;
        while let Some((files, bytes)) = next
            && !guest.share_sparse(files, bytes)
        {
            next = sizes.next();
        }
        guests.push(guest);
    }
    for number in 0..8 {
        Hostile::attach(&scene.socket, &format!("vale{number}:late"), SMALL)
            .map_err(|why| format!("an attachment beside {GUESTS} guests: {why}"))?;
    }
    Ok(())
}

/// What lent memory may come with; none where there is no such descriptor.
type Bell = fn() -> Option<OwnedFd>;

const BELLS: &[Bell] = &[
    || rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).ok(),
    || {
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).ok()?;
        super::bells::jam(&bell);
        Some(bell)
    },
    || rustix::pipe::pipe().ok().map(|ends| ends.1),
    || std::fs::File::open("/dev/zero").ok().map(Into::into),
    || sealed(8 << 20),
    || UnixStream::pair().ok().map(|ends| ends.0.into()),
];

/// Attaches memory of so many bytes to a port that is lent; whether the switch takes it.
fn attach(raw: &Raw, port: &PortName, bytes: u64, bell: Bell) -> Result<bool, String> {
    raw.ask(Ask::LendPort { port: port.clone(), shape: SMALL }, &[])?;
    let Some(memory) = memfd(MemfdFlags::ALLOW_SEALING, bytes, SEALED) else { return Ok(false) };
    let bells: Vec<OwnedFd> = (0..4).filter_map(|_| bell()).collect();
    let fds: Vec<BorrowedFd<'_>> =
        std::iter::once(&memory).chain(&bells).map(AsFd::as_fd).collect();
    let ask = Ask::AttachMemory { port: port.clone(), is_fresh: true, trust: None };
    Ok(matches!(raw.ask(ask, &fds)?.0, Answer::Attached { .. }))
}

fn lengths(scene: &mut Scene) -> Result<(), String> {
    let page = 4096;
    let edges =
        [0, 1, page, 2 << 20, 4 * GIB, 4 * GIB + page, 1 << 40, 127 << 40, i64::MAX as u64 - 4095];
    let (raw, mut taken) = (Raw::connect(&scene.socket)?, 0);
    for (number, bytes) in (0..).zip(edges) {
        for (kind, bell) in (0..).zip(BELLS) {
            let port = port_name(&format!("vale0:lent{number}x{kind}"))?;
            taken += if attach(&raw, &port, bytes, *bell)? { bytes } else { 0 };
        }
    }
    let (plain, mut many) = (BELLS[0], Vec::new());
    for number in 0..8 {
        let raw = Raw::connect(&scene.socket)?;
        let port = port_name(&format!("vale0:many{number}"))?;
        taken += if attach(&raw, &port, 4 * GIB, plain)? { 4 * GIB } else { 0 };
        many.push(raw);
    }
    if taken == 0 {
        return Err("no lent memory was taken".to_owned());
    }
    if taken > MEMORY {
        let (taken, most) = (taken >> 20, MEMORY >> 20);
        return Err(format!("{taken} MiB of lent memory were taken, {most} allowed"));
    }
    Ok(())
}

/// A port whose rings are in memory of this client's own.
fn lent(scene: &Scene, port: &str) -> Result<Option<Hostile>, String> {
    let (raw, memory, port) = (Raw::connect(&scene.socket)?, OwnMemory::new(), port_name(port)?);
    raw.ask(Ask::LendPort { port: port.clone(), shape: SHAPE }, &[])?;
    let bells = memory.bells.iter().flatten().map(AsFd::as_fd);
    let fds: Vec<BorrowedFd<'_>> = memory.region.fd().into_iter().chain(bells).collect();
    let ask = Ask::AttachMemory { port, is_fresh: true, trust: None };
    // The last port of that name may be on its way out.
    let Answer::Attached { .. } = raw.ask(ask, &fds)?.0 else { return Ok(None) };
    let bells: Result<Vec<OwnedFd>, _> =
        memory.bells.iter().flatten().map(|bell| bell.as_fd().try_clone_to_owned()).collect();
    let bells = bells.map_err(|error| error.to_string())?;
    Hostile::over(raw, Arc::clone(&memory.region), bells, SHAPE.slots).map(Some)
}

fn lent_words(scene: &mut Scene) -> Result<(), String> {
    let mut lent_count = 0;
    for edge in [0, 1, 63, 64, 0x7fff_ffff, u32::MAX] {
        for part in 0..4 {
            let port = format!("vale0:own{edge}x{part}");
            let Some(hostile) = lent(scene, &port)? else { continue };
            lent_count += 1;
            let next = hostile.send(0, &broadcast(20, 60), 2048);
            // The header, the users' words, the owners', and a ring.
            let (header, slots) = hostile.ring_words(part % 2);
            for word in [0..1024, 1024..1056, 2048..2080, header.start..slots.end][part].clone() {
                hostile.words[word].store(edge, Ordering::Relaxed);
            }
            hostile.publish(next);
            std::thread::sleep(Duration::from_micros(500));
        }
    }
    if lent_count == 0 { Err("no memory could be lent".to_owned()) } else { Ok(()) }
}

fn any(scene: &mut Scene) -> Result<(), String> {
    let raw = Raw::connect(&scene.socket)?;
    let mut guest = Hypervisor::begin(scene, &raw, 0)?;
    while !scene.is_over() {
        let regions = scene.random.below(9);
        let table: Vec<[u64; 4]> =
            (0..regions).map(|_| [0; 4].map(|_: u64| scene.nasty())).collect();
        let bytes = scene.nasty() & !0xfff;
        let files = regions + scene.random.below(2);
        let files: Vec<OwnedFd> = (0..files).filter_map(|_| sealed(bytes)).collect();
        if !guest.share(&table, &files) {
            guest.socket = connect(&guest.path)?;
        }
        let (bell, bytes) = (scene.pick(BELLS), scene.nasty());
        attach(&Raw::connect(&scene.socket)?, &port_name("vale0:any")?, bytes, bell)?;
        if let Some(hostile) = lent(scene, "vale0:scribbled")? {
            for step in 0..2_000_u32 {
                let place = scene.random.below(hostile.doubles.len().min(4096) as u64) as usize;
                hostile.doubles[place].store(scene.nasty(), Ordering::Relaxed);
                if step % 64 == 0 {
                    hostile.ring();
                }
            }
        }
    }
    Ok(())
}
