//! A queue of a network device for one client alone: joined to the client's rings without a switch in between.
//!
//! Nothing is learned, looked up or shared: each frame that arrives at the queue goes to the client, each that the client
//! sends goes out, and nobody else can attach. The program that makes the client's memory, a guest's keeper, opens the queue and carries
//! the frames, by a thread that gives up all system calls that this does not need. The device is the host's again when
//! that process ends, however it ends.

mod client;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ports::EndError;
use ports::xdp::{OpenError, Port, PortError};
use ring::{Bells, Geometry, LayoutError};
use shm::Region;
use sys::SyscallError;
use thiserror::Error;

use crate::daemon::random_seed;
use crate::device::{
    DeviceCounters, DeviceError, Stop, dropped_by_kernel, received_and_dropped, xdp,
};
use crate::panics;
use crate::threads::Threads;
use client::Client;

/// How long the thread that carries has to end.
const THREAD_END: Duration = Duration::from_secs(1);

/// Why a queue cannot be had, or no longer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PassthroughError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What was opened is of no use.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The client's memory is not as it should be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// No thread, bell or descriptor left.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    /// The device has gone, or cannot be used any longer.
    #[error("{0}")]
    Gone(String),
}

/// An open queue, and the client that it serves.
#[derive(Debug)]
pub struct Passthrough {
    mode: &'static str,
    takes_parts: bool,
    counters: Arc<DeviceCounters>,
    /// Whom to ask what the kernel dropped.
    socket: OwnedFd,
    /// What it had dropped before there was a client.
    lost_before: Option<u64>,
    /// Between two clients.
    port: Option<Port>,
    carrier: Option<Carrier>,
}

/// The thread that carries, and how it is told to end.
#[derive(Debug)]
struct Carrier {
    stop: Arc<Stop>,
    thread: JoinHandle<(Port, Result<(), DeviceError>)>,
}

impl Passthrough {
    /// Takes a queue of `device` of the calling thread's network namespace.
    ///
    /// # Errors
    /// There is no such queue, another program has it, or a privilege is missing.
    pub fn open(device: &str, queue: u32) -> Result<Self, PassthroughError> {
        let opened = ports::xdp::open(device, queue)?;
        let (is_generic, takes_parts) = (opened.is_generic, opened.takes_parts);
        let port = Port::try_from(opened)?;
        let dup = |error| SyscallError::new("dup", device, error);
        Ok(Self {
            mode: xdp::mode(port.is_zero_copy(), is_generic),
            takes_parts,
            counters: Arc::default(),
            socket: port.share().map_err(dup)?,
            lost_before: None,
            port: Some(port),
            carrier: None,
        })
    }

    /// Joins it to the rings of a client until [`part`](Self::part): a transmit ring and a receive ring of that geometry,
    /// made anew or as an earlier owner left them.
    ///
    /// # Errors
    /// The region is too short, a cursor in it is no slot's, or no thread is to be had.
    pub fn join(
        &mut self,
        region: &Arc<Region>,
        geometry: &Geometry,
        bells: [Bells; 2],
        is_fresh: bool,
    ) -> Result<(), PassthroughError> {
        let mut client = Client::join(region, geometry, bells, is_fresh, random_seed() as u32)?;
        let has_client = || PassthroughError::Gone("it has a client".to_owned());
        let mut port = self.port.take().ok_or_else(has_client)?;
        if is_fresh {
            // These came for nobody.
            let early = port.peek().and_then(|arrived| port.release(arrived));
            early.map_err(|error| PassthroughError::Gone(EndError::from(error).to_string()))?;
        }
        let dropped = received_and_dropped(&dropped_by_kernel(&self.socket));
        self.lost_before.get_or_insert(dropped);
        let stop = Arc::new(Stop::new()?);
        let (told, counters) = (Arc::clone(&stop), Arc::clone(&self.counters));
        let carry = move || {
            let threads = Threads { cores: Vec::new(), confined: true };
            let outcome = threads.begin().map_err(DeviceError::from).and_then(|()| {
                let work = || xdp::run(&mut port, &mut client, &told, &counters);
                panics::caught(work).unwrap_or_else(|why| Err(DeviceError::Fault(why)))
            });
            (port, outcome)
        };
        let thread = std::thread::Builder::new()
            .name("passthrough".to_owned())
            .spawn(carry)
            .map_err(|error| SyscallError::new("clone", "passthrough", error))?;
        self.carrier = Some(Carrier { stop, thread });
        Ok(())
    }

    /// Whether it has a client.
    #[must_use]
    pub fn has_client(&self) -> bool {
        self.carrier.is_some()
    }

    /// Lets the client go, if there is one; nothing of its memory is used from then on.
    ///
    /// # Errors
    /// The device has gone, or the thread hangs in a doorbell of the client's.
    pub fn part(&mut self) -> Result<(), PassthroughError> {
        let Some(carrier) = &self.carrier else { return Ok(()) };
        carrier.stop.ask();
        let until = Instant::now() + THREAD_END;
        while !carrier.thread.is_finished() {
            if Instant::now() > until {
                return Err(PassthroughError::Gone(
                    "a doorbell of its client is jammed".to_owned(),
                ));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        self.poll_end().map(drop)
    }

    /// Why the client was cut off, if it was: it broke the protocol, and may join again.
    ///
    /// # Errors
    /// The device has gone.
    pub fn poll_end(&mut self) -> Result<Option<String>, PassthroughError> {
        let ended = self.carrier.take_if(|carrier| carrier.thread.is_finished());
        let Some(ended) = ended else { return Ok(None) };
        let panicked = |panic: Box<dyn std::any::Any + Send>| panics::words(&*panic);
        let (port, outcome) =
            ended.thread.join().map_err(|panic| PassthroughError::Gone(panicked(panic)))?;
        match outcome {
            Ok(()) => {
                self.port = Some(port);
                Ok(None)
            }
            Err(
                why @ (DeviceError::CutOff(_)
                | DeviceError::End(EndError::Ring(_) | EndError::Bell(_))),
            ) => {
                self.port = Some(port);
                Ok(Some(why.to_string()))
            }
            Err(why) => Err(PassthroughError::Gone(why.to_string())),
        }
    }

    /// How frames get to the device: `zero-copy`, `copy`, or `copy, generic`.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        self.mode
    }

    /// Whether frames longer than a chunk of 4096 bytes come and go in several parts.
    #[must_use]
    pub fn takes_parts(&self) -> bool {
        self.takes_parts
    }

    /// Frames of the client's that the device did not take: too long, or too short.
    #[must_use]
    pub fn refused_frames(&self) -> u64 {
        let refused = self.counters.refused.load(Ordering::Relaxed);
        refused + dropped_by_kernel(&self.socket).tx_invalid
    }

    /// Frames that the kernel had to drop because the client was too slow, or had no rings, since it joined first.
    #[must_use]
    pub fn lost_frames(&self) -> u64 {
        let dropped = received_and_dropped(&dropped_by_kernel(&self.socket));
        self.lost_before.map_or(0, |before| dropped.saturating_sub(before))
    }
}

impl Drop for Passthrough {
    fn drop(&mut self) {
        // A thread that hangs in a doorbell has the device until it does no longer.
        self.part().ok();
    }
}
