//! Ports whose client is not another process but something the daemon drives itself: a TAP device, an
//! AF_XDP socket, a link to another port.
//!
//! Each has a thread of its own, which sits at its port as any client does: it has rings, is woken, and
//! sleeps when there is nothing to carry. The devices come from outside as descriptors, opened by
//! whoever has the privilege, in whichever network namespace; the daemon itself needs neither.

mod link;
mod tap;
mod xdp;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use ring::{Receiver, Sender, Violation};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use shm::Bell;
use switch::lightpath::LightpathConfigError;
use sys::SyscallError;
use thiserror::Error;

use crate::attachment::{DeviceKind, DeviceState, LinkWishes, XdpFacts};
use crate::counters::add;
use crate::datapath::Resident;
use crate::name::PortName;
use crate::threads::Threads;

/// Why a device cannot be had, or its thread ended.
#[derive(Debug, Error)]
pub(crate) enum DeviceError {
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    #[error("the device is gone: {0}")]
    Gone(io::Error),
    #[error("{kind} needs {wanted} descriptors, {given} came")]
    Descriptors { kind: &'static str, wanted: usize, given: usize },
    #[error(transparent)]
    Xdp(#[from] port_xdp::PortError),
    #[error(transparent)]
    Ring(#[from] Violation),
    #[error(transparent)]
    Link(#[from] LightpathConfigError),
}

/// A client's seats at both rings of a port, within the daemon.
#[derive(Debug)]
pub(crate) struct Plug {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
}

/// What the thread counts that the switch does not see.
#[derive(Debug, Default)]
pub(crate) struct DeviceCounters {
    /// Frames that the device did not take.
    refused: AtomicU64,
    /// Frames that a link lost on purpose, or had no room for.
    lost: AtomicU64,
}

/// How the daemon asks a thread to end.
#[derive(Debug)]
pub(crate) struct Stop {
    asked: AtomicBool,
    bell: Bell,
}

impl Stop {
    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Where the end of a device is written down, and what ends with whoever drives it.
#[derive(Debug, Default, Clone)]
pub(crate) struct End(Arc<OnceLock<String>>);

impl End {
    /// What went well; an error is the end.
    fn none_of<T>(&self, outcome: Result<T, DeviceError>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                // Set once: nobody goes on after the first.
                self.0.set(error.to_string()).ok();
                None
            }
        }
    }
}

/// A device of a port, or both ports of a link; its thread is told to end with the last handle.
#[derive(Debug)]
pub(crate) struct Device {
    state: DeviceState,
    stop: Arc<Stop>,
    counters: Arc<DeviceCounters>,
    end: End,
    /// Whom to ask what the kernel dropped before the thread saw it.
    socket: Option<OwnedFd>,
    thread: Option<JoinHandle<Option<()>>>,
}

/// How long the end of a device waits for its thread.
const THREAD_END: Duration = Duration::from_millis(200);

impl Drop for Device {
    fn drop(&mut self) {
        self.stop.asked.store(true, Ordering::Relaxed);
        // The bell is ours alone.
        self.stop.bell.ring().ok();
        let thread = self.thread.take();
        // One that the switch's thread drives keeps the other handle.
        let drives = |end: &End| match &thread {
            Some(thread) => !thread.is_finished(),
            None => Arc::strong_count(&end.0) > 1,
        };
        let began = std::time::Instant::now();
        while drives(&self.end) && began.elapsed() < THREAD_END {
            std::thread::sleep(Duration::from_micros(100));
        }
        let Some(thread) = thread else { return };
        // One that hangs in somebody's descriptor ends with the process.
        if thread.is_finished() {
            thread.join().ok();
        }
    }
}

/// A device, and what the thread of its port's switch is to drive, if that is to do it.
type Opened = (Device, Option<Box<dyn Resident>>);

impl Device {
    /// What its port's entry says.
    pub(crate) fn state(&self) -> DeviceState {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let socket = self.socket.as_ref();
        let dropped = socket.and_then(|socket| sys::xdp::statistics(socket.as_fd()).ok());
        let dropped = dropped.unwrap_or_default();
        let lost = dropped.rx_dropped + dropped.rx_ring_full + dropped.rx_fill_ring_empty;
        DeviceState {
            refused: count(&self.counters.refused) + dropped.tx_invalid,
            lost: count(&self.counters.lost) + lost,
            ended: self.end.0.get().cloned(),
            ..self.state.clone()
        }
    }

    /// Drives a device that somebody opened, or leaves that to the switch's own thread.
    pub(crate) fn open(
        kind: DeviceKind,
        fds: Vec<OwnedFd>,
        plug: Plug,
        threads: &Threads,
    ) -> Result<Opened, DeviceError> {
        match kind {
            DeviceKind::Tap => {
                let port = port_tap::Port::from_fd(only("tap", fds)?)?;
                let state = DeviceState::new("tap", port.name());
                let work = move |stop: &Stop, counters: &_| tap::run(&port, plug, stop, counters);
                Ok((Self::start(state, threads, work)?, None))
            }
            DeviceKind::Xdp(facts) => Self::xdp(&facts, fds, plug, threads),
        }
    }

    fn xdp(
        facts: &XdpFacts,
        fds: Vec<OwnedFd>,
        plug: Plug,
        threads: &Threads,
    ) -> Result<Opened, DeviceError> {
        let port = port_xdp::Port::from_fds(fds, facts.takes_parts)?;
        let mode = match (port.is_zero_copy(), facts.is_generic) {
            (true, _) => "zero-copy",
            (false, false) => "copy",
            (false, true) => "copy, generic",
        };
        let state =
            DeviceState { mode: Some(mode.to_owned()), ..DeviceState::new("xdp", &facts.name()) };
        let socket = port.share().map_err(DeviceError::Gone)?;
        let (mut device, mut resident): Opened = (Self::new(state)?, None);
        device.socket = Some(socket);
        if threads.have_one_core() {
            let (counters, end) = (Arc::clone(&device.counters), device.end.clone());
            resident = Some(Box::new(xdp::Inmate { port, plug, counters, end }));
        } else {
            device.work(threads, move |stop, counters| xdp::run(port, plug, stop, counters))?;
        }
        Ok((device, resident))
    }

    fn new(state: DeviceState) -> Result<Self, SyscallError> {
        let stop = Arc::new(Stop { asked: AtomicBool::new(false), bell: Bell::new()? });
        let (counters, end) = Default::default();
        Ok(Self { state, stop, counters, end, socket: None, thread: None })
    }

    /// Joins two ports.
    pub(crate) fn link(
        names: &[PortName; 2],
        wishes: &LinkWishes,
        plugs: [Plug; 2],
        threads: &Threads,
    ) -> Result<Self, DeviceError> {
        let mut pair = link::Pair::new(wishes, plugs)?;
        let name = format!("{} to {}", names[0], names[1]);
        let state = DeviceState { link: Some(*wishes), ..DeviceState::new("link", &name) };
        Self::start(state, threads, move |stop, counters| pair.run(stop, counters))
    }

    fn start(
        state: DeviceState,
        threads: &Threads,
        work: impl FnOnce(&Stop, &DeviceCounters) -> Result<(), DeviceError> + Send + 'static,
    ) -> Result<Self, DeviceError> {
        let mut device = Self::new(state)?;
        device.work(threads, work)?;
        Ok(device)
    }

    /// Begins its thread.
    fn work(
        &mut self,
        threads: &Threads,
        work: impl FnOnce(&Stop, &DeviceCounters) -> Result<(), DeviceError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        let (stop, counters) = (Arc::clone(&self.stop), Arc::clone(&self.counters));
        let (end, threads) = (self.end.clone(), threads.clone());
        let thread = std::thread::Builder::new()
            .name(self.state.name.chars().take(15).collect())
            .spawn(move || {
                let begun = threads.begin().map_err(DeviceError::from);
                end.none_of(begun.and_then(|()| work(&stop, &counters)))
            })
            .map_err(|error| SyscallError::new("clone", self.state.name.clone(), error))?;
        self.thread = Some(thread);
        Ok(())
    }
}

fn only(kind: &'static str, mut fds: Vec<OwnedFd>) -> Result<OwnedFd, DeviceError> {
    let given = fds.len();
    match fds.pop() {
        Some(fd) if given == 1 => Ok(fd),
        _ => Err(DeviceError::Descriptors { kind, wanted: 1, given }),
    }
}

impl Plug {
    /// Puts a packet given in two parts into the ring from its `offset`th slot on, as many slots as it
    /// takes, without handing them over; how many, 0 when there is no room.
    fn put(&mut self, offset: u32, head: &[u8], tail: &[u8]) -> Result<u32, Violation> {
        let all = head.len() + tail.len();
        let each = self.sender.buffer(offset).map_or(0, |buffer| buffer.length_bytes());
        if each == 0 {
            self.sender.reserve(offset + 1)?;
        }
        let each = self.sender.buffer(offset).map_or(0, |buffer| buffer.length_bytes());
        let slots = if each == 0 { return Ok(0) } else { all.div_ceil(each).max(1) };
        // A packet has at most 64 KiB, and a buffer at least 64 bytes.
        let count = slots as u32;
        if self.sender.reserve(offset + count)? < offset + count {
            return Ok(0);
        }
        for number in 0..slots {
            let (from, to) = (number * each, all.min((number + 1) * each));
            let cut = |bytes: &[u8], begins: usize| {
                let at = |at: usize| at.saturating_sub(begins).min(bytes.len());
                (at(from), at(to))
            };
            let ((h0, h1), (t0, t1)) = (cut(head, 0), cut(tail, head.len()));
            let slot = offset + number as u32;
            let wrote = self.sender.buffer(slot).is_some_and(|buffer| {
                buffer.write(0, &head[h0..h1]) && buffer.write(h1 - h0, &tail[t0..t1])
            });
            let length_bytes = u16::try_from(to - from).unwrap_or(u16::MAX);
            if !wrote || !self.sender.put_part(slot, length_bytes, number + 1 < slots) {
                return Ok(0);
            }
        }
        Ok(count)
    }
}

impl Plug {
    /// Slots of the packet that begins at the `offset`th of `arrived`.
    fn packet_slots(&self, offset: u32, arrived: u32) -> u32 {
        let mut slots = 1;
        while offset + slots < arrived && self.receiver.goes_on(offset + slots - 1) {
            slots += 1;
        }
        slots
    }
}

/// Sleeps until one of the descriptors is ready, or the thread is asked to end.
fn sleep(
    stop: &Stop,
    others: &[(BorrowedFd<'_>, PollFlags)],
    timeout: Option<Duration>,
) -> Result<(), SyscallError> {
    let mut set = vec![PollFd::from_borrowed_fd(stop.bell.as_fd(), PollFlags::IN)];
    set.extend(others.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)));
    let timeout = timeout.map(|time| Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    match rustix::event::poll(&mut set, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(SyscallError::new("poll", "device", error)),
    }
}

impl DeviceCounters {
    fn refuse(&self, frames: u64) {
        add(&self.refused, frames);
    }

    fn lose(&self, frames: u64) {
        add(&self.lost, frames);
    }
}
