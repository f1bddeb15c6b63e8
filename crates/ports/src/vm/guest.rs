//! A guest's device: what its hypervisor has set up, and its queues.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use sys::SyscallError;
use sys::eventfd::Signaller;
use thiserror::Error;
use virtqueue::{Chain, Options, Violation};

use super::connection::{Connection, ConnectionError, Listener};
use super::memory::{Memory, Place};
use super::protocol::{self, Feature};
use super::vring::{StartError, Vring, wake};

/// Most pairs of queues of a guest.
pub(super) const PAIRS_MAX: usize = 16;

/// Which rule of virtio-net a guest broke.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum QueueFault {
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("a segment of {bytes} bytes at {address:#x} outside the guest's memory")]
    Outside { address: u64, bytes: u32 },
    #[error("a chain of {0} bytes, less than a virtio-net header")]
    Short(u32),
    #[error("a chain to send with nothing to read, or one to receive with nothing to write")]
    Direction,
}

/// Where a port's guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuestState {
    /// No hypervisor has connected.
    #[default]
    Waiting,
    /// One has; the guest's driver does not run.
    Connected,
    /// So many pairs of queues run.
    Running {
        /// Pairs of queues.
        pairs: usize,
    },
}

/// The port of a guest: listens for a hypervisor, serves one at a time, and listens again when that has gone.
pub struct Guest {
    listener: Listener,
    connection: Option<Connection>,
    pub(super) memory: Memory,
    pub(super) vrings: Vec<Vring>,
    pub(super) features: u64,
    pub(super) protocol_features: u64,
    /// Pairs that run; frames to the guest are spread over them.
    pub(super) pairs: usize,
    pub(super) signaller: Option<Arc<Signaller>>,
    trouble: Option<String>,
    /// What serves frame after frame, so that none allocates.
    pub(super) chain: Chain,
    pub(super) places: Vec<Place>,
    pub(super) heads: Vec<(u16, usize)>,
    pub(super) scratch: Vec<u8>,
    pub(super) next: usize,
    /// Which queue had no room for a frame last, and how many chains it would have to have to be asked again.
    pub(super) stuck: (usize, u16),
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Guest").field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Guest {
    /// One that will connect there. A signaller wakes it without ever waiting for it; guests may share one.
    #[must_use]
    pub fn new(listener: Listener, signaller: Option<Arc<Signaller>>) -> Self {
        Self {
            listener,
            connection: None,
            memory: Memory::default(),
            vrings: new_vrings(),
            features: 0,
            protocol_features: 0,
            pairs: 0,
            signaller,
            trouble: None,
            chain: Chain::default(),
            places: Vec::new(),
            heads: Vec::new(),
            scratch: Vec::new(),
            next: 0,
            stuck: (0, 1),
        }
    }

    /// State of the connection and the queues.
    #[must_use]
    pub fn state(&self) -> GuestState {
        match (&self.connection, self.pairs) {
            (None, _) => GuestState::Waiting,
            (Some(_), 0) => GuestState::Connected,
            (Some(_), pairs) => GuestState::Running { pairs },
        }
    }

    /// What it or its hypervisor did wrong last.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Hears what the hypervisor says, and accepts one where there is none; never waits for either. A second one is
    /// turned away. True when something was heard.
    ///
    /// # Errors
    /// The listening socket is broken.
    pub fn attend(&mut self) -> Result<bool, SyscallError> {
        let mut heard = self.hear();
        while let Some(connection) = self.listener.accept()? {
            if self.connection.is_none() {
                self.connection = Some(connection);
                heard |= self.hear();
            } else {
                self.trouble = Some("a second hypervisor was turned away".to_owned());
            }
        }
        Ok(heard)
    }

    fn hear(&mut self) -> bool {
        let mut heard = false;
        while let Some(mut connection) = self.connection.take() {
            let outcome = match connection.next_message() {
                Ok(Some((message, fds))) => {
                    protocol::handle(self, &mut connection, &message, fds).map(|()| true)
                }
                Ok(None) => Ok(false),
                Err(error) => Err(protocol::ProtocolError::from(error)),
            };
            match outcome {
                Ok(more) => {
                    self.connection = Some(connection);
                    heard |= more;
                    if !more {
                        break;
                    }
                }
                Err(error) => {
                    self.leave(&error);
                    heard = true;
                }
            }
        }
        heard
    }

    /// Forgets all that a hypervisor set up.
    fn leave(&mut self, why: &protocol::ProtocolError) {
        let is_end = matches!(why, protocol::ProtocolError::Connection(ConnectionError::Closed));
        if !is_end {
            self.trouble = Some(why.to_string());
        }
        self.connection = None;
        self.vrings = new_vrings();
        self.memory = Memory::default();
        (self.features, self.protocol_features, self.pairs) = (0, 0, 0);
    }

    /// Stops all queues until the guest resets them, and says why.
    pub(super) fn stop_for(&mut self, fault: &QueueFault) {
        self.trouble = Some(fault.to_string());
        self.vrings.iter_mut().for_each(|vring| {
            vring.stop();
            vring.is_started = false;
            if let Some(error) = &vring.error {
                wake(error, self.signaller.as_deref());
            }
        });
        self.pairs = 0;
    }

    /// Lets the queue run, or stops it, as the hypervisor has it now.
    pub(super) fn settle(&mut self, number: usize) {
        let options = Options {
            event_index: self.has(Feature::EventIndex),
            indirect: self.has(Feature::Indirect),
        };
        let needs_enabling = self.has(Feature::ProtocolFeatures);
        let Some(vring) = self.vrings.get_mut(number) else { return };
        if let Err(error) = vring.start(&self.memory, options, needs_enabling) {
            return self.stop_for(&error.into());
        }
        let runs = |vring: Option<&Vring>| vring.is_some_and(|vring| vring.queue.is_some());
        let pairs =
            |pair: &usize| runs(self.vrings.get(2 * pair)) && runs(self.vrings.get(2 * pair + 1));
        self.pairs = (0..PAIRS_MAX).take_while(pairs).count();
    }

    pub(super) fn has(&self, feature: Feature) -> bool {
        self.features & feature.bit() != 0
    }

    /// Bytes of virtio-net header in its memory.
    pub(super) fn header_bytes(&self) -> usize {
        let is_long = self.has(Feature::Version1) || self.has(Feature::MergeBuffers);
        if is_long { 12 } else { 10 }
    }

    /// Queues that it sends on.
    pub(super) fn senders(&mut self) -> impl Iterator<Item = &mut Vring> {
        self.vrings.iter_mut().skip(1).step_by(2).take(self.pairs)
    }

    /// Asks to be told when the guest sends; false when it has sent just now.
    pub fn arm(&mut self) -> bool {
        let mut outcome = Ok(true);
        for vring in self.senders() {
            if let Some(queue) = &mut vring.queue {
                outcome = queue.arm().map(|is_idle| outcome == Ok(true) && is_idle);
                if outcome != Ok(true) {
                    break;
                }
            }
        }
        self.settle_arming(outcome)
    }

    /// Asks to be told when the guest has room to receive; false when it has made some just now.
    pub fn arm_room(&mut self) -> bool {
        let (number, chains) = self.stuck;
        let queue = self.vrings.get_mut(number).and_then(|vring| vring.queue.as_mut());
        let outcome = queue.map_or(Ok(true), |queue| queue.arm_for(chains));
        self.settle_arming(outcome)
    }

    fn settle_arming(&mut self, outcome: Result<bool, Violation>) -> bool {
        outcome.unwrap_or_else(|why| {
            self.stop_for(&why.into());
            false
        })
    }

    /// No longer asks to be told of either, and forgets that it was.
    pub fn disarm(&mut self) {
        for vring in &mut self.vrings {
            if let Some(queue) = &mut vring.queue {
                queue.disarm();
            }
            if let Some(kick) = vring.kick.as_ref().filter(|_| vring.is_started) {
                // What is no eventfd rings in vain.
                kick.clear_now().ok();
            }
        }
    }

    /// Readable when the hypervisor or the guest has something; with `room`, also when that has room.
    pub fn fds(&self, sends: bool, room: bool) -> Vec<BorrowedFd<'_>> {
        let mut all = vec![self.listener.as_fd()];
        all.extend(self.connection.as_ref().map(AsFd::as_fd));
        let vrings = self.vrings.iter().take(2 * self.pairs).enumerate();
        let heard = vrings.filter(|(number, _)| if number % 2 == 1 { sends } else { room });
        all.extend(heard.filter_map(|(_, vring)| vring.kick.as_ref().map(AsFd::as_fd)));
        all
    }
}

fn new_vrings() -> Vec<Vring> {
    (0..2 * PAIRS_MAX).map(|_| Vring::default()).collect()
}
