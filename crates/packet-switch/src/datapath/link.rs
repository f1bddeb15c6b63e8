//! Between the control thread and a switch's thread.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use shm::Bell;
use switch::vale::PortId;
use sys::SyscallError;

use super::sleep::WakeSet;
use super::{Monitor, PortEnds, Resident};

/// Of what tells wake-ups from each other: more of them than there are between two looks at it.
const NUMBER_BITS: u32 = 24;

/// What the control thread asks of a switch.
#[derive(Debug)]
pub(crate) enum Command {
    Add(Box<PortEnds>),
    /// Drives a device from now on, until its port is removed.
    Reside {
        serial: u64,
        resident: Box<dyn Resident>,
    },
    Remove {
        id: PortId,
        serial: u64,
    },
    SetHeader {
        id: PortId,
        header_bytes: u8,
    },
    /// Whether to poll it without end.
    Poll {
        id: PortId,
        always: bool,
    },
    Watch {
        id: PortId,
        monitor: Box<Monitor>,
    },
    Unwatch {
        id: PortId,
        serial: u64,
    },
    Stop,
}

/// Commands to a switch's thread. It looks at a flag each round and takes the lock only when there is
/// something.
///
/// *A jammed bell.* Whether a write to an eventfd may block is a property of the descriptor's open
/// file, which the daemon shares with the client. A hostile client can clear `O_NONBLOCK`, fill the
/// counter to the brim and go to sleep: then the switch would hang in the call that wakes it. So it is
/// woken by a call that never waits ([`sys::eventfd`]). Where the kernel has none, the thread says in [`Link::ringing`] that it is waking somebody, with a new number each time; the control
/// thread looks now and then, and when it sees the same number again it empties the counter and takes
/// that client's port away.
#[derive(Debug)]
pub(crate) struct Link {
    commands: Mutex<Vec<Command>>,
    waiting: AtomicBool,
    bell: Bell,
    /// Where the thread sleeps.
    wake_set: WakeSet,
    /// The wake-up under way, see [`Link::wake_up`]; 0 for none: serial numbers begin at 1.
    pub(crate) ringing: AtomicU64,
    /// The thread's folder below `/proc`, as that numbers it: it may be that of an outer namespace.
    thread: OnceLock<PathBuf>,
}

impl Link {
    pub(crate) fn new() -> Result<Self, SyscallError> {
        let bell = Bell::new()?;
        Ok(Self {
            commands: Mutex::new(Vec::new()),
            waiting: AtomicBool::new(false),
            wake_set: WakeSet::new(&bell)?,
            bell,
            ringing: AtomicU64::new(0),
            thread: OnceLock::new(),
        })
    }

    /// What stands in `ringing` during the `number`th wake-up, which is for the port of that serial number. Its place
    /// among the ports would not do: while the thread hangs, the port may go and its place be another's.
    pub(crate) fn wake_up(number: u64, serial: u64) -> u64 {
        serial << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1)
    }

    /// The serial number of the port that the wake-up is for.
    pub(crate) fn serial_of(ringing: u64) -> u64 {
        ringing >> NUMBER_BITS
    }

    /// To be called by the switch's thread when it begins.
    pub(crate) fn begin(&self) {
        if let Ok(folder) = std::fs::read_link("/proc/thread-self") {
            // A switch has one thread, which begins once.
            self.thread.set(Path::new("/proc").join(folder)).ok();
        }
    }

    /// Whether the thread sleeps within that wake-up. One that is only out of luck, without a core or
    /// stopped, does not: nobody is to blame for that.
    pub(crate) fn hangs_in(&self, ringing: u64) -> bool {
        let text = self.thread.get().map(|folder| std::fs::read_to_string(folder.join("stat")));
        // The name stands in parentheses and may hold anything; the state follows it.
        let state = text
            .and_then(Result::ok)
            .and_then(|text| text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()));
        // Without `/proc`, as long as it takes has to do.
        let asleep = state.is_none_or(|state| matches!(state, 'S' | 'D'));
        asleep && self.ringing.load(Ordering::Relaxed) == ringing
    }

    pub(crate) fn send(&self, command: Command) -> Result<(), SyscallError> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.waiting.store(true, Ordering::Release);
        self.bell.ring()
    }

    #[inline]
    pub(crate) fn has_commands(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    pub(crate) fn take_commands(&self) -> Vec<Command> {
        self.waiting.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// To which the bell of a new port is added before its client has it: whoever holds an eventfd can
    /// make the kernel's bookkeeping of who waits for it long (`epoll_ctl(2)`, `ELOOP`).
    pub(crate) fn wake_set(&self) -> &WakeSet {
        &self.wake_set
    }
}
