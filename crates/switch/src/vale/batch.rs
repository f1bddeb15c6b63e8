//! The frames of a batch, sorted by destination.

use super::port_set::{PORTS_MAX, PortId, PortSet};

/// Most packets of a batch.
pub const BATCH_PACKETS_MAX: usize = 1024;

const END: u16 = u16::MAX;

#[derive(Debug, Clone, Copy)]
struct List {
    first: u16,
    last: u16,
}

const EMPTY: List = List { first: END, last: END };

/// Which packets go where: a list a destination, and one for those that go everywhere. Packets are
/// numbers; each port gets its own and everybody's in the order in which they were pushed.
#[derive(Debug)]
pub struct Batch {
    next: Vec<u16>,
    lists: Vec<List>,
    flood: List,
    touched: PortSet,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            next: Vec::with_capacity(BATCH_PACKETS_MAX),
            lists: vec![EMPTY; PORTS_MAX],
            flood: EMPTY,
            touched: PortSet::default(),
        }
    }
}

impl Batch {
    /// Forgets the last batch.
    pub fn clear(&mut self) {
        for port in self.touched.iter() {
            self.lists[port.index()] = EMPTY;
        }
        (self.touched, self.flood) = (PortSet::default(), EMPTY);
        self.next.clear();
    }

    /// The next packet goes to one port, to all (`Some(None)`), or nowhere. Packets are numbered as
    /// they are pushed; beyond [`BATCH_PACKETS_MAX`] they go nowhere.
    #[inline]
    pub fn push(&mut self, to: Option<Option<PortId>>) {
        let Some(packet) = u16::try_from(self.next.len()).ok().filter(|&packet| packet < END)
        else {
            return;
        };
        self.next.push(END);
        let list = match to {
            None => return,
            Some(None) => &mut self.flood,
            Some(Some(port)) => {
                self.touched.insert(port);
                &mut self.lists[port.index()]
            }
        };
        if list.first == END {
            list.first = packet;
        } else {
            self.next[usize::from(list.last)] = packet;
        }
        list.last = packet;
    }

    /// The ports that get anything, out of `ports`; `from` gets nothing of what goes everywhere.
    #[must_use]
    pub fn destinations(&self, ports: &PortSet, from: PortId) -> PortSet {
        if self.flood.first == END {
            return self.touched;
        }
        let mut all = *ports;
        all.remove(from);
        all
    }

    /// The packets for `port`, in order.
    pub fn packets_for(&self, port: PortId) -> impl Iterator<Item = usize> + '_ {
        let (mut own, mut all) = (self.lists[port.index()].first, self.flood.first);
        std::iter::from_fn(move || {
            let nearest = if own < all { &mut own } else { &mut all };
            if *nearest == END {
                return None;
            }
            let packet = usize::from(*nearest);
            *nearest = self.next[packet];
            Some(packet)
        })
    }
}
