//! Memory that ports, pipes, devices and links take. It counts until it is really given back: what has left may wait
//! in the queue of a [deferred drop](crate::deferred_drop), and for how long is up to clients, whose descriptors
//! are closed there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use shm::Region;

use super::refusal::Refusal;

/// The account of a daemon.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) bytes_max: u64,
    used_bytes: Arc<AtomicU64>,
    /// Leases of attachments that have ended, whose regions some thread still holds.
    ended: Vec<Lease>,
}

/// Bytes that count as used until the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    counted: Arc<Counted>,
}

impl Share {
    fn bytes(&self) -> u64 {
        self.counted.bytes
    }
}

#[derive(Debug)]
struct Counted {
    used_bytes: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A count alone: it orders no other memory.
        self.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The memory of an attachment: a region, and what its client within the daemon takes besides.
///
/// The switch's thread holds the region, so whether it is gone is asked of the region itself.
#[derive(Debug)]
pub(super) struct Lease {
    region: Weak<Region>,
    share: Share,
}

impl Lease {
    /// For threads that hold some of that memory.
    pub(super) fn share(&self) -> Share {
        self.share.clone()
    }
}

impl Memory {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, used_bytes: Arc::default(), ended: Vec::new() }
    }

    /// Refuses what is beyond the limit, and says whether there will be room once what has left is freed. Nothing is reserved: the control thread is the only one that takes.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), Refusal> {
        let used_bytes = self.used_bytes();
        if used_bytes.saturating_add(bytes) <= self.bytes_max {
            return Ok(());
        }
        let ended_bytes: u64 = self.ended.iter().map(|lease| lease.share.bytes()).sum();
        if used_bytes.saturating_sub(ended_bytes).saturating_add(bytes) <= self.bytes_max {
            return Err(Refusal::Freeing { max: self.bytes_max });
        }
        Err(Refusal::Limit { what: "bytes of all regions, links and devices", max: self.bytes_max })
    }

    pub(super) fn take(&self, bytes: u64) -> Share {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        let used_bytes = Arc::clone(&self.used_bytes);
        Share { counted: Arc::new(Counted { used_bytes, bytes }) }
    }

    pub(super) fn lease(&self, region: Weak<Region>, bytes: u64) -> Lease {
        Lease { region, share: self.take(bytes) }
    }

    /// An attachment has ended: its memory counts until nobody in this process holds it.
    pub(super) fn end(&mut self, lease: Lease) {
        self.ended.push(lease);
    }

    /// All that counts now.
    pub(super) fn used_bytes(&mut self) -> u64 {
        // A region counts no more from the moment in which its last holder begins to unmap it: the kernel does
        // that for however long its pages take, and for no client's sake any longer.
        self.ended.retain(|lease| lease.region.strong_count() > 0);
        self.used_bytes.load(Ordering::Relaxed)
    }
}
