//! A queue of the guest's, as its hypervisor sets it up piece by piece.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use shm::{Bell, View};
use sys::eventfd::Signaller;
use virtqueue::{Options, Queue, Rings, SIZE_MAX};

use super::memory::Memory;
use super::message::Addresses;

/// The areas, where they lie in the guest's memory.
pub(super) struct Areas {
    descriptors: View<AtomicU64>,
    available: View<AtomicU16>,
    used_head: View<AtomicU16>,
    used: View<AtomicU32>,
    used_tail: View<AtomicU16>,
}

impl Areas {
    fn map(memory: &Memory, addresses: &Addresses, size: u32) -> Option<Self> {
        let size = usize::try_from(size).ok().filter(|size| *size <= usize::from(SIZE_MAX))?;
        let entries = addresses.used.checked_add(4)?;
        let tail = entries.checked_add(8 * size as u64)?;
        Some(Self {
            descriptors: memory.view(addresses.descriptors, 2 * size)?,
            available: memory.view(addresses.available, size + 3)?,
            used_head: memory.view(addresses.used, 2)?,
            used: memory.view(entries, 2 * size)?,
            used_tail: memory.view(tail, 1)?,
        })
    }
}

impl Rings for Areas {
    #[inline]
    fn descriptors(&self) -> &[AtomicU64] {
        &self.descriptors
    }
    #[inline]
    fn available(&self) -> &[AtomicU16] {
        &self.available
    }
    #[inline]
    fn used_head(&self) -> &[AtomicU16] {
        &self.used_head
    }
    #[inline]
    fn used(&self) -> &[AtomicU32] {
        &self.used
    }
    #[inline]
    fn used_tail(&self) -> &[AtomicU16] {
        &self.used_tail
    }
}

#[derive(Debug, Default)]
pub(super) struct Vring {
    pub(super) size: u32,
    pub(super) addresses: Option<Addresses>,
    pub(super) base: u16,
    pub(super) kick: Option<Bell>,
    pub(super) call: Option<Bell>,
    pub(super) error: Option<Bell>,
    /// As `SET_VRING_ENABLE` said, which counts only where protocol features were negotiated.
    pub(super) is_enabled: bool,
    /// The hypervisor wants it to run.
    pub(super) is_started: bool,
    /// The running queue.
    pub(super) queue: Option<Queue<Areas>>,
}

/// Why a queue that the hypervisor started does not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum StartError {
    #[error("a queue's areas lie outside the guest's memory")]
    Outside,
    #[error(transparent)]
    Queue(#[from] virtqueue::Violation),
}

impl Vring {
    /// Stops it; it goes on at the same entry if it is started again.
    pub(super) fn stop(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.base = queue.taken();
        }
    }

    /// Lets it run if it is to and can.
    pub(super) fn start(
        &mut self,
        memory: &Memory,
        options: Options,
        needs_enabling: bool,
    ) -> Result<(), StartError> {
        self.stop();
        let may = self.is_started && (self.is_enabled || !needs_enabling);
        let Some(addresses) = self.addresses.filter(|_| may) else { return Ok(()) };
        let areas = Areas::map(memory, &addresses, self.size).ok_or(StartError::Outside)?;
        let mut queue = Queue::new(areas, self.size, options, self.base)?;
        queue.disarm();
        self.queue = Some(queue);
        Ok(())
    }

    /// Shows the guest what was given back, and wakes it if it asked for that.
    pub(super) fn publish(&mut self, signaller: Option<&Signaller>) {
        if !self.queue.as_mut().is_some_and(Queue::publish) {
            return;
        }
        if let Some(call) = &self.call {
            wake(call, signaller);
        }
    }
}

/// Rings whatever the hypervisor gave for a bell; whether that is one is its own affair.
pub(super) fn wake(bell: &Bell, signaller: Option<&Signaller>) {
    match signaller {
        Some(signaller) => drop(bell.ring_by(signaller)),
        None => drop(bell.ring()),
    }
}
