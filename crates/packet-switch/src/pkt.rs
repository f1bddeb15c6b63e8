//! pkt-gen's jobs: sending frames, taking them in, sending them back, passing them on.
//!
//! Each runs in the calling thread until `stop` says so, which is asked after every batch, and reports
//! what it has done about once a second.

mod echo;
mod flows;
mod frame;
mod generate;
mod sink;

use std::time::{Duration, Instant};

use ring::{Patience, Violation, WaitError};
use sys::SyscallError;
use thiserror::Error;

pub use echo::{BridgeCount, bridge, echo};
pub use flows::{EndpointRange, Flows, MacRange, RangeError};
pub use frame::{FRAME_BYTES_MAX, FRAME_BYTES_MIN, Frame, MacAddress, MacError, Stamp};
pub use generate::{
    Generate, GenerateCount, PingCount, Pinged, Sent, generate, generate_on, ping, ping_on,
};
pub use sink::{Received, Sink, SinkCount, UnderWay, sink, sink_on};

/// Why a run ended early.
#[derive(Debug, Error)]
pub enum PktError {
    /// The other side of a ring broke the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A bell is broken.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    /// A frame is longer than the ring's buffers.
    #[error("frames of {frame_bytes} bytes do not fit the port's buffers")]
    TooLong {
        /// Length of the frame, bytes.
        frame_bytes: usize,
    },
}

impl From<WaitError> for PktError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Violation(error) => Self::Violation(error),
            WaitError::Syscall(error) => Self::Syscall(error),
        }
    }
}

/// How a run waits, and for whom it looks up.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// How long it polls at most before it sleeps; as good as for ever with [`Duration::MAX`].
    pub linger: Duration,
    /// Most frames handed over at once.
    pub batch: u32,
}

/// How long a wait lasts before `stop` is asked again.
const ATTENTION: Duration = Duration::from_millis(100);

impl Manner {
    fn patience(&self) -> Patience {
        Patience { linger: self.linger, timeout: ATTENTION }
    }
}

/// Calls something about once a second, looking at the clock only now and then.
struct Ticker {
    next: Instant,
    until_look: u32,
}

const LOOK_EVERY: u32 = 64;

impl Ticker {
    fn new() -> Self {
        Self { next: Instant::now() + Duration::from_secs(1), until_look: LOOK_EVERY }
    }

    /// Whether a second has passed; `idle` looks at the clock at once.
    fn tick(&mut self, idle: bool) -> bool {
        self.until_look -= 1;
        if self.until_look > 0 && !idle {
            return false;
        }
        self.until_look = LOOK_EVERY;
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.next = now + Duration::from_secs(1);
        true
    }
}

/// Time that all processes of a host agree on, nanoseconds (`CLOCK_MONOTONIC`).
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
