//! CSB mode: cursors in the program's memory instead of the rings' headers, and the loop that serves them.
//!
//! What netmap calls a kernel loop runs here in the thread that asks for it, until another ends it. Each look
//! at the program's cursors is a system call, so that memory that has gone is an error and no crash.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::ring::{Ring, Synced};
use crate::user::{Fields, UserMemory};

/// Bytes of an entry either way.
const ENTRY_BYTES: u64 = 64;
/// Longest sleep between two looks, also when a program asks for longer: somebody may end the loop.
const SLEEP_MAX: Duration = Duration::from_millis(20);

const RUNNING: u8 = 1;
const STOPPING: u8 = 2;

/// The entries of a descriptor's rings, transmit rings first.
#[derive(Debug)]
pub struct Csb {
    rings: Vec<Arc<Ring>>,
    /// From the program: `head`, `cur`, whether it wants to be rung for.
    to_us: u64,
    /// To the program: `hwcur`, `hwtail`, whether we do.
    to_program: u64,
    state: AtomicU8,
}

/// How the loop waits and whom it wakes: a pair of eventfds a ring, negative for none.
#[derive(Debug, Clone, Default)]
pub struct Wiring {
    /// Rung by the program.
    pub kicks: Vec<i32>,
    /// Rung for the program.
    pub interrupts: Vec<i32>,
    /// How long to sleep where there are no kicks.
    pub sleep: Duration,
}

impl Csb {
    /// Takes the cursors over from the rings' headers.
    ///
    /// # Errors
    /// `EFAULT`: the entries are not there. `EINVAL`: they lie across a boundary.
    pub fn new(
        rings: Vec<Arc<Ring>>,
        to_us: u64,
        to_program: u64,
        user: &dyn UserMemory,
    ) -> Result<Self, Errno> {
        if rings.is_empty() || !(to_us | to_program).is_multiple_of(ENTRY_BYTES) {
            return Err(Errno::INVAL);
        }
        let csb = Self { rings, to_us, to_program, state: AtomicU8::new(0) };
        for (at, ring) in (0..).zip(&csb.rings) {
            let (head, cur) = ring.cursors();
            let mut entry = Fields(vec![0; 8]);
            entry.set_u32(0, head);
            entry.set_u32(4, cur);
            user.write(csb.entry(to_us, at)?, &entry.0)?;
            csb.tell(at, ring, user)?;
        }
        Ok(csb)
    }

    /// Serves the rings until [`stop`](Self::stop); `idle` is called before each sleep.
    ///
    /// # Errors
    /// `EBUSY`: another thread does. `EINVAL`: not a pair of eventfds a ring. `EFAULT`: the entries have
    /// gone. `EIO`: the switch has.
    pub fn run(
        &self,
        wiring: &Wiring,
        user: &dyn UserMemory,
        idle: &dyn Fn(),
    ) -> Result<(), Errno> {
        let fits = |list: &[i32]| list.is_empty() || list.len() == self.rings.len();
        if !fits(&wiring.kicks) || !fits(&wiring.interrupts) {
            return Err(Errno::INVAL);
        }
        if self.state.fetch_or(RUNNING, Ordering::SeqCst) & RUNNING != 0 {
            return Err(Errno::BUSY);
        }
        let outcome = self.serve(wiring, user, idle);
        self.state.store(0, Ordering::SeqCst);
        outcome
    }

    /// Ends [`run`](Self::run), also one that is about to begin, and waits for its end.
    pub fn stop(&self) {
        self.state.fetch_or(STOPPING, Ordering::SeqCst);
        while self.state.load(Ordering::SeqCst) & RUNNING != 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn serve(&self, wiring: &Wiring, user: &dyn UserMemory, idle: &dyn Fn()) -> Result<(), Errno> {
        while self.state.load(Ordering::SeqCst) & STOPPING == 0 {
            let mut progress = false;
            for (at, ring) in (0..).zip(&self.rings) {
                progress |= self.serve_ring(at, ring, wiring, user)?;
            }
            if !progress {
                idle();
                self.sleep(wiring);
            }
        }
        Ok(())
    }

    fn serve_ring(
        &self,
        at: u64,
        ring: &Ring,
        wiring: &Wiring,
        user: &dyn UserMemory,
    ) -> Result<bool, Errno> {
        let mut entry = Fields(vec![0; 16]);
        user.read(self.entry(self.to_us, at)?, &mut entry.0)?;
        let before = ring.positions();
        if ring.sync_at(entry.u32(0), entry.u32(4), user) == Synced::Broken {
            return Err(Errno::IO);
        }
        if ring.positions() == before {
            return Ok(false);
        }
        self.tell(at, ring, user)?;
        let interrupt = wiring.interrupts.get(at as usize).copied().unwrap_or(-1);
        if entry.u32(8) != 0 && interrupt >= 0 {
            ring_for(interrupt);
        }
        Ok(true)
    }

    /// Writes `hwcur` and `hwtail`, and that kicks are always welcome.
    fn tell(&self, at: u64, ring: &Ring, user: &dyn UserMemory) -> Result<(), Errno> {
        let (hwcur, hwtail) = ring.positions();
        let mut entry = Fields(vec![0; 12]);
        entry.set_u32(0, hwcur);
        entry.set_u32(4, hwtail);
        entry.set_u32(8, 1);
        user.write(self.entry(self.to_program, at)?, &entry.0)
    }

    fn entry(&self, start: u64, at: u64) -> Result<u64, Errno> {
        start.checked_add(at * ENTRY_BYTES).ok_or(Errno::FAULT)
    }

    fn sleep(&self, wiring: &Wiring) {
        let kicks: Vec<i32> = wiring.kicks.iter().copied().filter(|kick| *kick >= 0).collect();
        if kicks.len() < self.rings.len() {
            std::thread::sleep(wiring.sleep.min(SLEEP_MAX));
            return;
        }
        let armed = self.rings.iter().filter(|ring| ring.arm()).count();
        if armed == self.rings.len() {
            wait_for_any(&kicks, &self.rings);
        }
        self.rings.iter().for_each(|ring| ring.disarm());
    }
}

/// A descriptor that the program named.
fn borrowed<'a>(fd: i32) -> BorrowedFd<'a> {
    // SAFETY: not minus one. The program said that it is open; if it is not, calls fail as in the kernel.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

fn ring_for(fd: i32) {
    // A bad descriptor harms the program that named it.
    rustix::io::write(borrowed(fd), &1_u64.to_ne_bytes()).ok();
}

/// Sleeps until the program kicks or the switch rings, and takes the kicks in.
fn wait_for_any(kicks: &[i32], rings: &[Arc<Ring>]) {
    let bells = rings.iter().filter_map(|ring| ring.with_waker(|fd| fd.as_raw_fd()));
    let all: Vec<i32> = kicks.iter().copied().chain(bells).collect();
    let mut set: Vec<PollFd<'_>> =
        all.iter().map(|fd| PollFd::from_borrowed_fd(borrowed(*fd), PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: SLEEP_MAX.subsec_nanos().into() };
    if rustix::event::poll(&mut set, Some(&timeout)).is_err() {
        return;
    }
    for (kick, entry) in kicks.iter().zip(&set) {
        // Only then: an eventfd of the program's may be one that blocks.
        if entry.revents().contains(PollFlags::IN) {
            rustix::io::read(borrowed(*kick), &mut [0; 8]).ok();
        }
    }
}
