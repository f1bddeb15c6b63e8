//! A learning switch (VALE, netmap's): where each frame of a batch goes.
//!
//! The owner reads a batch of frames from one port, asks [`Forwarder::route`] about each, notes the
//! answers in a [`Batch`], and then serves one destination after the other: each is looked at, written
//! and woken once a batch, however many frames it gets.

mod batch;
mod mac_table;
mod port_set;

pub use batch::{BATCH_PACKETS_MAX, Batch};
pub use mac_table::{AGE_S_MAX, Mac, MacTable};
pub use port_set::{PORTS_MAX, PortId, PortSet};

/// Shortest frame that has both addresses and a type.
pub const FRAME_BYTES_MIN: usize = 14;

/// Why a frame went nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// Not even an Ethernet header, or one torn over two buffers.
    TooShort,
    /// Its destination is on the port it came from.
    SamePort,
    /// To all ports, and there is no other port.
    NoDestination,
    /// The destination's ring had no free slot.
    RingFull,
    /// The destination's buffers are shorter than the frame's.
    TooLong,
    /// Its virtio-net header says what it is not, and the destination takes plain frames only.
    Malformed,
}

impl DropReason {
    /// All of them, in order.
    pub const ALL: [Self; 6] = [
        Self::TooShort,
        Self::SamePort,
        Self::NoDestination,
        Self::RingFull,
        Self::TooLong,
        Self::Malformed,
    ];

    /// As it stands in counters: `ring_full`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::SamePort => "same_port",
            Self::NoDestination => "no_destination",
            Self::RingFull => "ring_full",
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
        }
    }
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Forward to this port.
    To(PortId),
    /// To every port but the one it came from.
    Flood,
    /// Drop, for this reason.
    Drop(DropReason),
}

/// The two addresses a frame begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Destination address.
    pub destination: Mac,
    /// Source address.
    pub source: Mac,
}

impl Addresses {
    /// From a frame's first twelve bytes.
    #[inline]
    #[must_use]
    pub fn of(head: &[u8; 12]) -> Self {
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *head;
        Self {
            destination: Mac::new([d0, d1, d2, d3, d4, d5]),
            source: Mac::new([s0, s1, s2, s3, s4, s5]),
        }
    }
}

/// Which ports there are, and who is behind them.
#[derive(Debug)]
pub struct Forwarder {
    ports: PortSet,
    table: MacTable,
    /// What each port's last frame came from and when that was learned: mostly it is the same again.
    last: Vec<(Mac, u32)>,
}

impl Forwarder {
    /// A switch without ports. `seed` makes the table's hash its own, so that nobody can choose
    /// addresses that collide.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            ports: PortSet::default(),
            table: MacTable::new(seed),
            last: vec![(Mac::NONE, 0); PORTS_MAX],
        }
    }

    /// Adds a port, which has no client yet.
    pub fn add(&mut self, port: PortId) {
        self.ports.insert(port);
        self.last[port.index()] = (Mac::NONE, 0);
    }

    /// Removes a port, and the addresses learned behind it.
    pub fn remove(&mut self, port: PortId) {
        self.ports.remove(port);
        self.table.forget(port);
    }

    /// The switch's ports.
    #[must_use]
    pub fn ports(&self) -> &PortSet {
        &self.ports
    }

    /// Where a frame of `length_bytes` goes that came in at `from`, learning who is there. `now_s` is
    /// any clock that counts seconds.
    #[inline]
    pub fn route(
        &mut self,
        from: PortId,
        addresses: Addresses,
        length_bytes: usize,
        now_s: u32,
    ) -> Verdict {
        if length_bytes < FRAME_BYTES_MIN {
            return Verdict::Drop(DropReason::TooShort);
        }
        let last = &mut self.last[from.index()];
        if *last != (addresses.source, now_s) && !addresses.source.is_group() {
            *last = (addresses.source, now_s);
            let before = self.table.learn(addresses.source, from, now_s);
            if let Some(before) = before.filter(|&before| before != from) {
                // It has moved; were it to move back this very second, it would have to be learned.
                self.last[before.index()] = (Mac::NONE, 0);
            }
        }
        if addresses.destination.is_group() {
            return self.flood(from);
        }
        match self.table.find(addresses.destination, now_s) {
            Some(port) if port == from => Verdict::Drop(DropReason::SamePort),
            Some(port) => Verdict::To(port),
            None => self.flood(from),
        }
    }

    fn flood(&self, from: PortId) -> Verdict {
        let alone = self.ports.iter().all(|port| port == from);
        if alone { Verdict::Drop(DropReason::NoDestination) } else { Verdict::Flood }
    }
}

#[cfg(test)]
mod tests;
