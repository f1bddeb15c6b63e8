//! A program that has an interface's rings by `/dev/netmap` and writes nonsense into them, for the tests that boot a guest.
//!
//! ```text
//! netmap_nonsense INTERFACE ROUNDS SEED    prints how many synchronisations were refused, and how many were not
//! ```
//!
//! In each round cursors, slots and constants of random rings get random values, some of them possible ones, and the rings
//! are synchronised or polled. Whatever is written, each call must return; a refusal must be `EINVAL`.
#![expect(unsafe_code, reason = "it writes what no safe interface of this crate would")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// `NIOCREGIF`, `NIOCTXSYNC`, `NIOCRXSYNC`.
const REGIF: libc::Ioctl = 0xc03c_6992_u32 as libc::Ioctl;
const SYNCS: [libc::Ioctl; 2] = [0x6994, 0x6995];
/// Offsets of rings in `struct netmap_if`, and slots in `struct netmap_ring`.
const IF_RINGS: usize = 56;
const RING_BYTES: usize = 256;
const SLOT_BYTES: usize = 16;

/// `struct nmreq`.
#[repr(C)]
#[derive(Default)]
struct Request {
    name: [u8; 16],
    version: u32,
    offset: u32,
    memory_bytes: u32,
    slots: [u32; 2],
    rings: [u16; 2],
    ring: u16,
    command: u16,
    arguments: [u16; 2],
    argument: u32,
    flags: u32,
    spare: u32,
}

/// An interface's rings, as a program sees them.
struct Rings {
    device: File,
    memory: NonNull<u8>,
    memory_bytes: usize,
    /// Where each ring begins, and its slots.
    places: Vec<(usize, usize)>,
}

impl Rings {
    fn open(interface: &str) -> io::Result<Self> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/netmap")?;
        let mut request = Request { version: 14, flags: 1, ..Request::default() };
        request.name[..interface.len()].copy_from_slice(interface.as_bytes());
        // SAFETY: the request is the structure that this call takes, and lives through it.
        if unsafe { libc::ioctl(device.as_raw_fd(), REGIF, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let memory_bytes = request.memory_bytes as usize;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses; it stays as long as the program.
        let memory =
            unsafe { mmap(std::ptr::null_mut(), memory_bytes, access, flags, &device, 0)? };
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut rings = Self { device, memory, memory_bytes, places: Vec::new() };
        let count = usize::from(request.rings[0]) + usize::from(request.rings[1]);
        for number in 0..count {
            let offset = rings.field::<AtomicU64>(IF_RINGS + 8 * number);
            let offset = offset.load(Ordering::Relaxed) as usize;
            let slots = rings.field::<AtomicU32>(offset + 8).load(Ordering::Relaxed);
            rings.places.push((offset, slots as usize));
        }
        Ok(rings)
    }

    fn field<T>(&self, offset: usize) -> &T {
        assert!(
            offset + size_of::<T>() <= self.memory_bytes && offset.is_multiple_of(size_of::<T>())
        );
        // SAFETY: the offset lies inside the mapping, as was just checked.
        let place = unsafe { self.memory.add(offset) }.cast::<T>();
        // SAFETY: the place is aligned, as was just checked, and lives as long as the program; `T` is an atomic integer, of
        // which any bytes are a value and which others may change.
        unsafe { place.as_ref() }
    }

    /// Writes nonsense into some ring.
    fn scribble(&self, random: &mut Random) {
        let (ring, slots) = self.places[random.below(self.places.len())];
        // head, cur and tail, and seldom what describes the ring.
        for word in [5, 6, 7, 2, 3, 4] {
            if random.below(if word > 4 { 2 } else { 8 }) == 0 {
                let value = random.number(slots);
                self.field::<AtomicU32>(ring + 4 * word).store(value, Ordering::Relaxed);
            }
        }
        for _ in 0..random.below(32) {
            let slot = ring + RING_BYTES + random.below(slots) * SLOT_BYTES;
            let buffer = random.number(2 * slots);
            self.field::<AtomicU32>(slot).store(buffer, Ordering::Relaxed);
            for half in [4, 6] {
                let value = random.number(4096) as u16;
                self.field::<AtomicU16>(slot + half).store(value, Ordering::Relaxed);
            }
        }
    }

    fn synchronise(&self, random: &mut Random) -> io::Result<()> {
        if random.below(4) == 0 {
            let wanted = PollFlags::IN | PollFlags::OUT;
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&self.device, wanted)], Some(&now))?;
            return Ok(());
        }
        let request = SYNCS[random.below(2)];
        // SAFETY: the request takes no argument.
        let answer = unsafe { libc::ioctl(self.device.as_raw_fd(), request, 0) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A possible value, one that is just too large, or any.
    fn number(&mut self, end: usize) -> u32 {
        match self.below(4) {
            0 | 1 => self.below(end) as u32,
            2 => (end + self.below(4)) as u32,
            _ => self.next() as u32,
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [interface, rounds, seed] = &words[..] else { panic!("INTERFACE ROUNDS SEED") };
    let rings = Rings::open(interface).unwrap();
    let mut random = Random(seed.parse().unwrap());
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..rounds.parse().unwrap() {
        rings.scribble(&mut random);
        match rings.synchronise(&mut random) {
            Ok(()) => taken += 1,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    println!("{refused} {taken}");
}
