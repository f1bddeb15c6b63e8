//! Hostile clients of the switch: what they share.

pub(crate) mod bells;
pub(crate) mod crowds;
pub(crate) mod descriptors;
pub(crate) mod devices;
pub(crate) mod frames;
pub(crate) mod guests;
pub(crate) mod memory;
#[path = "../../packet-switch/tests/confined/of_every.rs"]
mod of_every;
pub(crate) mod requests;
pub(crate) mod storms;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use packet_switch::attachment::{Answer, Ask, PipeEnd, Request, Shape};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use shm::{Message, Region, Socket, View};

use crate::case::Case;
use crate::judge::WAIT_MAX;

/// All attacks on the switch.
pub(crate) fn cases() -> Vec<Case> {
    [
        requests::CASES,
        descriptors::CASES,
        memory::CASES,
        bells::CASES,
        frames::CASES,
        storms::CASES,
        devices::CASES,
        guests::CASES,
        crowds::CASES,
    ]
    .concat()
}

/// How long an attacker waits for an answer before it says that there is none.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// How long an attacker waits who has done all he does: three times what an innocent may wait, so that a wait that he
/// causes before the last third is seen to be too long, and more than the time between two looks of the daemon around.
pub(crate) const DWELL: Duration = WAIT_MAX.saturating_mul(3);

/// A connection that sends what it likes.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) socket: Socket,
}

/// What came back.
#[derive(Debug)]
pub(crate) enum Heard {
    Answer(Box<Answer>, Vec<OwnedFd>),
    /// The daemon has closed the connection.
    Closed,
    /// Nothing in time.
    Nothing,
}

impl Raw {
    pub(crate) fn connect(path: &Path) -> Result<Self, String> {
        let socket = Socket::connect(path).map_err(|error| error.to_string())?;
        // Whoever does not read its answers must not be waited for by itself.
        rustix::fs::fcntl_setfl(&socket, rustix::fs::OFlags::NONBLOCK)
            .map_err(|error| format!("fcntl: {error}"))?;
        Ok(Self { socket })
    }

    /// False when it cannot be sent now, or never more.
    pub(crate) fn say(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return false;
        }
        let flags = SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags).is_ok()
    }

    pub(crate) fn hear(&self, within: Duration) -> Heard {
        let until = Instant::now() + within;
        loop {
            match self.socket.receive() {
                Ok(Message::Received { bytes, fds }) => match Answer::decode(&bytes) {
                    Ok(Answer::CutOff { .. }) => {}
                    Ok(answer) => return Heard::Answer(Box::new(answer), fds),
                    Err(_) => return Heard::Closed,
                },
                Ok(Message::Nothing) => {}
                Ok(_) | Err(_) => return Heard::Closed,
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Heard::Nothing;
            }
            let timeout =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut set = [PollFd::new(&self.socket, PollFlags::IN)];
            rustix::event::poll(&mut set, Some(&timeout)).ok();
        }
    }

    /// Asks and waits; no answer at all is an error.
    pub(crate) fn ask(
        &self,
        ask: Ask,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), String> {
        self.ask_bytes(&Request::encode(ask), fds)?
            .ok_or_else(|| "the connection was closed".to_owned())
    }

    /// The same with any bytes; none when the daemon closes instead.
    pub(crate) fn ask_bytes(
        &self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Option<(Answer, Vec<OwnedFd>)>, String> {
        if !self.say(bytes, fds) {
            return Ok(None);
        }
        match self.hear(ANSWER) {
            Heard::Answer(answer, fds) => Ok(Some((*answer, fds))),
            Heard::Closed => Ok(None),
            Heard::Nothing => {
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
                Err(format!("no answer within {ANSWER:?} to {text}"))
            }
        }
    }
}

/// Where the users' words lie in a region, and the owners', bytes; `docs/attachment.md`.
const USERS: usize = 4096;
const OWNERS: usize = 8192;
/// Words of 32 bits of one ring there.
const CSB_WORDS: usize = 16;
/// `netmap_ring` before its slots.
const RING_HEADER_BYTES: usize = 256;
/// Words of 32 bits of a slot: buffer, length and flags, and a pointer of two, which nobody uses.
const SLOT_WORDS: usize = 4;

/// An attachment whose memory is written as one likes.
#[derive(Debug)]
pub(crate) struct Hostile {
    pub(crate) raw: Raw,
    pub(crate) region: Arc<Region>,
    /// Memory as words of 32 bits.
    pub(crate) words: View<AtomicU32>,
    /// As words of 64.
    pub(crate) doubles: View<AtomicU64>,
    /// To ring and to wait for, of the transmit ring and then of the receive ring.
    pub(crate) bells: Vec<OwnedFd>,
    pub(crate) slots: u32,
}

/// Small, so that many can be had.
pub(crate) const SMALL: Shape = Shape { slots: 64, buffer_bytes: 2112 };

impl Hostile {
    /// Attaches to a port; retries while the last one of that name is on its way out.
    pub(crate) fn attach(socket: &Path, port: &str, shape: Shape) -> Result<Self, String> {
        let port = port.parse().map_err(|error| format!("{port}: {error}"))?;
        Self::insist(socket, shape, &Ask::AttachPort { port, shape })
    }

    /// Opens an end of a pipe, the same way.
    pub(crate) fn open_pipe(socket: &Path, group: &str, end: PipeEnd) -> Result<Self, String> {
        let group: packet_switch::Name =
            group.parse().map_err(|error| format!("{group}: {error}"))?;
        Self::insist(socket, SMALL, &Ask::OpenPipe { group, end, shape: SMALL })
    }

    fn insist(socket: &Path, shape: Shape, ask: &Ask) -> Result<Self, String> {
        let raw = Raw::connect(socket)?;
        let until = Instant::now() + ANSWER;
        loop {
            let (answer, fds) = raw.ask(ask.clone(), &[])?;
            match answer {
                Answer::Attached { .. } => return Self::of(raw, fds, shape.slots),
                Answer::Refused { why, .. } if Instant::now() > until => return Err(why),
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    pub(crate) fn of(raw: Raw, mut fds: Vec<OwnedFd>, slots: u32) -> Result<Self, String> {
        if fds.len() != 5 {
            return Err(format!("{} descriptors with an attachment", fds.len()));
        }
        let region = Region::attach(fds.remove(0)).map_err(|error| error.to_string())?;
        Self::over(raw, region, fds, slots)
    }

    /// One whose memory and bells are known.
    pub(crate) fn over(
        raw: Raw,
        region: Arc<Region>,
        bells: Vec<OwnedFd>,
        slots: u32,
    ) -> Result<Self, String> {
        let bytes = region.length_bytes();
        let words = region.view(0, bytes / 4).map_err(|error| error.to_string())?;
        let doubles = region.view(0, bytes / 8).map_err(|error| error.to_string())?;
        Ok(Self { raw, region, words, doubles, bells, slots })
    }

    /// A word of the user's side of a ring: 0 head, 1 cur, 2 sleeps.
    pub(crate) fn set_user(&self, ring: usize, word: usize, value: u32) {
        self.words[USERS / 4 + ring * CSB_WORDS + word].store(value, Ordering::SeqCst);
    }

    /// A word of the switch's side: 0 hwcur, 1 hwtail, 2 sleeps.
    pub(crate) fn set_owner(&self, ring: usize, word: usize, value: u32) {
        self.words[OWNERS / 4 + ring * CSB_WORDS + word].store(value, Ordering::SeqCst);
    }

    pub(crate) fn owner(&self, ring: usize, word: usize) -> u32 {
        self.words[OWNERS / 4 + ring * CSB_WORDS + word].load(Ordering::SeqCst)
    }

    fn header(&self, word: usize) -> u32 {
        self.words[word].load(Ordering::Relaxed)
    }

    /// Offset of a ring's slots, bytes, as the header says; 0 for nonsense.
    fn slots_at(&self, ring: usize) -> usize {
        let offset = self.header(8 + 4 * ring + 2) as usize + RING_HEADER_BYTES;
        if offset + self.slots as usize * 16 <= self.region.length_bytes() { offset } else { 0 }
    }

    /// Words of 32 bits of a ring: its header's, then its slots'.
    pub(crate) fn ring_words(&self, ring: usize) -> (Range<usize>, Range<usize>) {
        let slots_at = self.slots_at(ring) / 4;
        let header_at = slots_at.saturating_sub(RING_HEADER_BYTES / 4);
        (header_at..slots_at, slots_at..slots_at + self.slots as usize * SLOT_WORDS)
    }

    /// What stands in a slot: buffer, length, flags from the lowest bit on.
    pub(crate) fn slot(&self, ring: usize, index: u32) -> u64 {
        self.doubles[self.slots_at(ring) / 8 + index as usize * 2].load(Ordering::SeqCst)
    }

    pub(crate) fn set_slot(&self, ring: usize, index: u32, buffer: u32, length: u16, flags: u16) {
        let word = u64::from(buffer) | u64::from(length) << 32 | u64::from(flags) << 48;
        self.doubles[self.slots_at(ring) / 8 + index as usize * 2].store(word, Ordering::SeqCst);
    }

    /// Writes bytes into the buffer of a slot of the transmit ring.
    pub(crate) fn fill(&self, index: u32, bytes: &[u8]) {
        let buffer = self.slot(0, index) as u32 as usize;
        let start = self.header(4) as usize + buffer * self.header(5) as usize;
        for (number, part) in bytes.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..part.len()].copy_from_slice(part);
            if let Some(place) = self.words.get(start / 4 + number) {
                place.store(u32::from_le_bytes(word), Ordering::Relaxed);
            }
        }
    }

    /// Says that the switch may take slots up to `head`, and rings.
    pub(crate) fn publish(&self, head: u32) {
        self.set_user(0, 1, head);
        self.set_user(0, 0, head);
        self.ring();
    }

    pub(crate) fn ring(&self) {
        rustix::io::write(&self.bells[0], &1_u64.to_ne_bytes()).ok();
    }

    /// Sends one frame in as many slots as it takes, from slot `first` on; the slot after it.
    pub(crate) fn send(&self, first: u32, frame: &[u8], buffer_bytes: usize) -> u32 {
        let parts: Vec<&[u8]> = frame.chunks(buffer_bytes).collect();
        for (number, part) in (0..).zip(&parts) {
            let index = (first + number) % self.slots;
            let more = if (number as usize) + 1 < parts.len() { 0x20 } else { 0 };
            self.fill(index, part);
            self.set_slot(0, index, self.slot(0, index) as u32, part.len() as u16, more);
        }
        (first + parts.len() as u32) % self.slots
    }
}

/// A broadcast frame from a station of the attackers.
pub(crate) fn broadcast(station: u8, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0xee; bytes.max(14)];
    frame[..6].copy_from_slice(&[0xff; 6]);
    frame[6..12].copy_from_slice(&[0x02, 0xba, 0xd0, 0, 0, station]);
    frame[12..14].copy_from_slice(&[0x88, 0xb6]);
    frame
}

/// Copies of a descriptor, to send and forget.
pub(crate) fn copies<'a>(fd: &'a impl AsFd, count: usize) -> Vec<BorrowedFd<'a>> {
    vec![fd.as_fd(); count]
}
