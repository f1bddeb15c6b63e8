//! Ports whose client is not another process but something the daemon drives itself: a TAP device, an
//! AF_XDP socket, a guest, a link to another port.
//!
//! Each has a thread of its own, which sits at its port as any client does: it has rings, is woken, and
//! sleeps when there is nothing to carry. The devices come from outside as descriptors, opened by
//! whoever has the privilege, in whichever network namespace; the daemon itself needs neither.

mod adopted;
mod guest;
mod link;
mod tap;
pub(crate) mod xdp;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ports::{EndError, FromRing, ToRing};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use shm::Bell;
use switch::lightpath::LightpathConfigError;
use sys::SyscallError;
use sys::eventfd::Signaller;
use sys::sandbox::Calls;
use sys::xdp::XdpStatistics;
use thiserror::Error;

use crate::attachment::{DeviceKind, DeviceState, LinkConfig, TAP_QUEUES_MAX, XdpFacts};
use crate::counters::add;
use crate::daemon::Share;
use crate::datapath::{CutOff, Resident};
use crate::line::SharedReport;
use crate::name::PortName;
use crate::panics;
use crate::threads::{THREAD_NAME_MAX, Threads};

pub(crate) use adopted::{Adopted, Keep};

/// Why a device cannot be had, or its thread ended.
#[derive(Debug, Error)]
pub(crate) enum DeviceError {
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    #[error(transparent)]
    End(#[from] EndError),
    #[error("tap needs a descriptor a queue, 1 to {TAP_QUEUES_MAX}; {given} came")]
    Queues { given: usize },
    #[error("the switch is full ({most} guests)")]
    Guests { most: usize },
    #[error("vhost-user needs one listening socket; {given} descriptors came")]
    Sockets { given: usize },
    #[error(transparent)]
    Xdp(#[from] ports::xdp::PortError),
    #[error(transparent)]
    Link(#[from] LightpathConfigError),
    #[error(transparent)]
    CutOff(#[from] CutOff),
    #[error("{0}")]
    Fault(String),
}

/// Packets between two looks at the other direction.
pub(crate) const TURN: u32 = 64;

/// A client's seats at both rings of a port, within the daemon.
#[derive(Debug)]
pub(crate) struct Plug {
    pub(crate) to: ToRing,
    pub(crate) from: FromRing,
}

/// What the thread counts that the switch does not see.
#[derive(Debug, Default)]
pub(crate) struct DeviceCounters {
    /// Frames that the device did not take.
    pub(crate) refused: AtomicU64,
}

/// How the daemon asks a thread to end.
#[derive(Debug)]
pub(crate) struct Stop {
    asked: AtomicBool,
    bell: Bell,
}

impl Stop {
    pub(crate) fn new() -> Result<Self, SyscallError> {
        Ok(Self { asked: AtomicBool::new(false), bell: Bell::new()? })
    }

    /// Asks.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
        // The bell is ours alone.
        self.bell.ring().ok();
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Rings when it is.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }
}

/// Records the end of a device, and what ends with its driver thread.
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

/// A device of a port, or both ports of a link; its threads are told to end with the last handle.
#[derive(Debug)]
pub(crate) struct Device {
    state: DeviceState,
    stop: Arc<Stop>,
    counters: Arc<DeviceCounters>,
    end: End,
    /// Whom to ask what the kernel dropped before the thread saw it.
    socket: Option<OwnedFd>,
    /// What it had dropped before the port gave it memory for frames.
    lost_before: u64,
    /// Both directions of a link.
    lines: Vec<SharedReport>,
    /// Where a guest is.
    guest: Option<guest::SharedStatus>,
    threads: Vec<JoinHandle<Option<()>>>,
    /// The memory of its ports, which counts as long as any thread of it runs.
    shares: Vec<Share>,
    /// What else is open as long as it is there.
    _keep: Keep,
}

/// What the kernel counts at a queue; nothing where it does not say.
pub(crate) fn dropped_by_kernel(socket: &OwnedFd) -> XdpStatistics {
    sys::xdp::statistics(socket.as_fd()).unwrap_or_default()
}

/// Frames that arrived at a queue and found no place.
pub(crate) fn received_and_dropped(counted: &XdpStatistics) -> u64 {
    counted.rx_dropped + counted.rx_ring_full + counted.rx_fill_ring_empty
}

/// What a thread takes: of its stack, and what the allocator keeps for it.
const THREAD_BYTES: u64 = 512 << 10;

/// What a device takes besides its port, at most, bytes.
pub(crate) fn device_bytes(kind: &DeviceKind) -> u64 {
    match kind {
        DeviceKind::Tap | DeviceKind::VhostUser { .. } => THREAD_BYTES,
        DeviceKind::Xdp(_) => THREAD_BYTES + ports::xdp::MEMORY_BYTES,
    }
}

/// What each of a link's two ports takes besides its rings, at most, bytes.
pub(crate) fn link_bytes(config: &LinkConfig, memory_bytes_max: u64) -> u64 {
    link::direction_bytes(config, memory_bytes_max)
}

/// How long the end of a device waits for its threads.
const THREAD_END: Duration = Duration::from_millis(200);

impl Drop for Device {
    fn drop(&mut self) {
        self.stop.ask();
        // One that the switch's thread drives keeps the other handle.
        let is_driven = || match &self.threads[..] {
            [] => Arc::strong_count(&self.end.0) > 1,
            threads => threads.iter().any(|thread| !thread.is_finished()),
        };
        let began = std::time::Instant::now();
        while is_driven() && began.elapsed() < THREAD_END {
            std::thread::sleep(Duration::from_micros(100));
        }
        // One that hangs in somebody's descriptor ends with the process.
        for thread in self.threads.drain(..).filter(JoinHandle::is_finished) {
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
        let dropped = socket.map(dropped_by_kernel).unwrap_or_default();
        let mut lost = received_and_dropped(&dropped).saturating_sub(self.lost_before);
        let mut refused = count(&self.counters.refused) + dropped.tx_invalid;
        for line in &self.lines {
            let report = line.lock().unwrap_or_else(PoisonError::into_inner);
            let packets = &report.counters;
            lost += packets.dropped_queue_pkts
                + packets.dropped_loss_pkts
                + packets.dropped_burst_pkts
                + report.overflow_frames_count;
            refused += report.refused_frames_count;
        }
        let ended = self.end.0.get().cloned();
        let mut state = DeviceState { refused, lost, ended, ..self.state.clone() };
        if let Some(guest) = &self.guest {
            guest.lock().unwrap_or_else(PoisonError::into_inner).tell(&mut state);
        }
        state
    }

    /// Drives a device that somebody opened, or leaves that to the switch's own thread.
    pub(crate) fn drive(
        adopted: Adopted,
        keep: Keep,
        plug: Plug,
        shares: Vec<Share>,
        signaller: Option<Arc<Signaller>>,
        threads: &Threads,
    ) -> Result<Opened, DeviceError> {
        let (mut device, resident) = match adopted {
            Adopted::Tap(queues) => (Self::tap(queues, plug, shares, threads)?, None),
            Adopted::Guest { path, listener } => {
                // Without a signaller its thread rings the guest's bells itself, and waits for nobody but that guest.
                let guest = ports::vm::Guest::new(listener, signaller);
                (Self::guest(&path, guest, plug, shares, threads)?, None)
            }
            Adopted::Xdp { facts, port } => Self::xdp(&facts, *port, plug, shares, threads)?,
        };
        device._keep = keep.accepted();
        Ok((device, resident))
    }

    fn tap(
        queues: Vec<ports::tap::Port>,
        plug: Plug,
        shares: Vec<Share>,
        threads: &Threads,
    ) -> Result<Self, DeviceError> {
        let count = u32::try_from(queues.len()).unwrap_or(u32::MAX);
        let name = queues.first().map_or("", |first| first.name());
        let state =
            DeviceState { queues: (count > 1).then_some(count), ..DeviceState::new("tap", name) };
        let mut device = Self::new(state, shares)?;
        device.work(threads, move |stop, counters| tap::run(queues, plug, stop, counters))?;
        Ok(device)
    }

    fn guest(
        path: &str,
        guest: ports::vm::Guest,
        plug: Plug,
        shares: Vec<Share>,
        threads: &Threads,
    ) -> Result<Self, DeviceError> {
        let place = guest::Place::take()?;
        let mut device = Self::new(DeviceState::new("vhost-user", path), shares)?;
        let status = guest::SharedStatus::default();
        device.guest = Some(Arc::clone(&status));
        device.work_with(Calls::Guest, threads, move |stop, counters| {
            let outcome = guest::run(guest, plug, stop, counters, &status);
            drop(place);
            outcome
        })?;
        Ok(device)
    }

    fn xdp(
        facts: &XdpFacts,
        port: ports::xdp::Port,
        plug: Plug,
        shares: Vec<Share>,
        threads: &Threads,
    ) -> Result<Opened, DeviceError> {
        let mode = Some(xdp::mode(port.is_zero_copy(), facts.is_generic).to_owned());
        let state = DeviceState { mode, ..DeviceState::new("xdp", &facts.name()) };
        let socket = port.share().map_err(EndError::from)?;
        let (mut device, mut resident): Opened = (Self::new(state, shares)?, None);
        device.lost_before = received_and_dropped(&dropped_by_kernel(&socket));
        device.socket = Some(socket);
        if threads.have_one_core() {
            let (counters, end) = (Arc::clone(&device.counters), device.end.clone());
            let shares = device.shares.clone();
            resident =
                Some(Box::new(xdp::DrivenQueue { port, plug, counters, end, _shares: shares }));
        } else {
            let (mut port, mut plug) = (port, plug);
            device.work(threads, move |stop, counters| {
                xdp::run(&mut port, &mut plug, stop, counters)
            })?;
        }
        Ok((device, resident))
    }

    fn new(state: DeviceState, shares: Vec<Share>) -> Result<Self, SyscallError> {
        let stop = Arc::new(Stop::new()?);
        let (counters, end) = Default::default();
        let (lines, threads) = (Vec::new(), Vec::new());
        Ok(Self {
            state,
            stop,
            counters,
            end,
            socket: None,
            lost_before: 0,
            lines,
            guest: None,
            threads,
            shares,
            _keep: Keep::default(),
        })
    }

    /// Joins two ports.
    pub(crate) fn link(
        names: &[PortName; 2],
        config: &LinkConfig,
        memory_bytes_max: u64,
        plugs: [Plug; 2],
        shares: Vec<Share>,
        threads: &Threads,
    ) -> Result<Self, DeviceError> {
        let name = format!("{} to {}", names[0], names[1]);
        let state = DeviceState { link: Some(*config), ..DeviceState::new("link", &name) };
        let mut device = Self::new(state, shares)?;
        for (line, report) in link::lines(config, memory_bytes_max, plugs, &device.stop)? {
            device.work(threads, move |_, _| Ok(line.run()?))?;
            device.lines.push(report);
        }
        Ok(device)
    }

    /// Begins a thread of it.
    fn work(
        &mut self,
        threads: &Threads,
        work: impl FnOnce(&Stop, &DeviceCounters) -> Result<(), DeviceError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        self.work_with(Calls::Carry, threads, work)
    }

    /// Begins one that keeps these system calls.
    fn work_with(
        &mut self,
        calls: Calls,
        threads: &Threads,
        work: impl FnOnce(&Stop, &DeviceCounters) -> Result<(), DeviceError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        let (stop, counters) = (Arc::clone(&self.stop), Arc::clone(&self.counters));
        let (end, threads, shares) = (self.end.clone(), threads.clone(), self.shares.clone());
        let thread = std::thread::Builder::new()
            .name(panics::printable(&self.state.name, THREAD_NAME_MAX))
            .spawn(move || {
                let begun = threads.begin_with(calls).map_err(DeviceError::from);
                // A panic ends this device and no other.
                let carry = || begun.and_then(|()| work(&stop, &counters));
                let outcome = panics::caught(carry);
                // All that it held has gone, however long that took.
                drop(shares);
                end.none_of(outcome.unwrap_or_else(|why| Err(DeviceError::Fault(why))))
            })
            .map_err(|error| SyscallError::new("clone", self.state.name.clone(), error))?;
        self.threads.push(thread);
        Ok(())
    }
}

/// Sleeps until one of the descriptors is ready, or the thread is asked to end.
fn sleep(
    stop: &Stop,
    others: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> Result<(), SyscallError> {
    let mut set = vec![PollFd::from_borrowed_fd(stop.bell.as_fd(), PollFlags::IN)];
    set.extend(others.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
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
    pub(crate) fn refuse(&self, frames: u32) {
        add(&self.refused, frames.into());
    }
}
