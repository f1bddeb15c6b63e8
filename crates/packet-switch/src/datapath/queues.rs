//! The rings of a port that has several of each kind: a guest's, one pair for each of its queues.
//!
//! A turn serves one transmit ring; the next turn looks at the one behind it first, so no ring keeps the others waiting. A frame
//! is put into the receive ring that its [flow](switch::flow) chooses: frames of a flow stay in order, as long as they
//! come from one ring. Most ports have one pair, which costs them nothing: no flow is computed where no port has more.

use ring::{Slot, Violation};
use shm::Bell;

use super::{Inlet, Marks, Outlet};

/// The owner's seats of a port's transmit rings.
#[derive(Debug)]
pub(crate) struct Inlets {
    first: Inlet,
    more: Vec<Inlet>,
    /// The ring that this turn serves.
    current: usize,
    /// The ring that the next turn looks at first.
    next: usize,
    #[cfg(test)]
    pub(super) fault: Option<QueueFault>,
}

impl Inlets {
    /// Those of a port in the order of their numbers; `None` of none.
    pub(crate) fn of(all: impl IntoIterator<Item = Inlet>) -> Option<Self> {
        let mut all = all.into_iter();
        Some(Self {
            first: all.next()?,
            more: all.collect(),
            current: 0,
            next: 0,
            #[cfg(test)]
            fault: None,
        })
    }

    /// Looks what the client has handed over; whether there is anything to be done. If so, the turn is that ring's. The ring of
    /// a turn that [gave nothing back](Self::release) is looked at first.
    #[inline]
    pub(crate) fn look(&mut self) -> bool {
        if self.more.is_empty() { self.first.look() } else { self.look_at_all() }
    }

    fn look_at_all(&mut self) -> bool {
        let rings = 1 + self.more.len();
        for offset in 0..rings {
            self.current = (self.next + offset) % rings;
            if self.current_mut().look() {
                self.next = self.current;
                return true;
            }
        }
        false
    }

    /// The ring that this turn serves.
    #[inline]
    pub(crate) fn current(&self) -> &Inlet {
        self.current.checked_sub(1).map_or(&self.first, |index| &self.more[index])
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn current_mut(&mut self) -> &mut Inlet {
        match self.current.checked_sub(1) {
            None => &mut self.first,
            Some(index) => &mut self.more[index],
        }
    }

    /// [Ends](Inlet::release) the turn of its ring.
    #[inline]
    pub(crate) fn release(&mut self, marks: &mut Marks, slots: &[Slot]) -> bool {
        let is_woken = self.current_mut().release(marks, slots);
        self.next = if self.current == self.more.len() { 0 } else { self.current + 1 };
        #[cfg(test)]
        if self.fault == Some(QueueFault::SameRingAgain) {
            self.next = self.current;
        }
        is_woken
    }

    /// Asks for a ring of the bell with the next frame on any ring; false when one has come already.
    pub(crate) fn arm(&mut self) -> Result<bool, Violation> {
        self.iter_mut().try_fold(true, |quiet, inlet| Ok(inlet.arm()? && quiet))
    }

    pub(crate) fn disarm(&mut self) {
        self.iter_mut().for_each(Inlet::disarm);
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Inlet> {
        std::iter::once(&mut self.first).chain(&mut self.more)
    }

    /// The bell of each ring.
    pub(crate) fn bells(&self) -> impl Iterator<Item = &Bell> {
        std::iter::once(&self.first).chain(&self.more).map(Inlet::bell)
    }
}

/// The owner's seats of a port's receive rings.
#[derive(Debug)]
pub(crate) struct Outlets {
    pub(super) first: Outlet,
    more: Vec<Outlet>,
    #[cfg(test)]
    pub(super) fault: Option<QueueFault>,
}

/// A fault planted into the choice of rings and into who is woken.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueFault {
    /// Rings take turns, whatever the flow.
    RoundRobin(u32),
    /// What the last ring holds is never handed over.
    LastForgotten,
    /// The ring that a turn served is looked at first by the next.
    SameRingAgain,
    /// All rings of a port share what is known of who was woken.
    SharedWakes,
}

impl Outlets {
    /// Those of a port in the order of their numbers; `None` of none.
    pub(crate) fn of(all: impl IntoIterator<Item = Outlet>) -> Option<Self> {
        let mut all = all.into_iter();
        Some(Self {
            first: all.next()?,
            more: all.collect(),
            #[cfg(test)]
            fault: None,
        })
    }

    /// How many there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        1 + self.more.len()
    }

    /// The ring of that number.
    #[inline]
    pub(crate) fn get(&self, queue: usize) -> Option<&Outlet> {
        if queue == 0 { Some(&self.first) } else { self.more.get(queue - 1) }
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, queue: usize) -> Option<&mut Outlet> {
        if queue == 0 { Some(&mut self.first) } else { self.more.get_mut(queue - 1) }
    }

    /// The ring for frames of the [flow](switch::flow) of that number.
    #[inline]
    pub(crate) fn of_flow(&mut self, flow: u32) -> &mut Outlet {
        if self.more.is_empty() {
            return &mut self.first;
        }
        #[cfg(test)]
        let flow = self.misled(flow);
        match (flow as usize % self.count()).checked_sub(1) {
            None => &mut self.first,
            Some(index) => &mut self.more[index],
        }
    }

    #[cfg(test)]
    fn misled(&mut self, flow: u32) -> u32 {
        let Some(QueueFault::RoundRobin(number)) = &mut self.fault else { return flow };
        *number += 1;
        *number
    }

    /// All of them, in order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Outlet> {
        std::iter::once(&mut self.first).chain(&mut self.more)
    }

    /// The bell of each ring.
    pub(crate) fn bells(&self) -> impl Iterator<Item = &Bell> {
        std::iter::once(&self.first).chain(&self.more).map(Outlet::bell)
    }

    /// The first ring alone, of a port that has no other.
    pub(crate) fn into_first(self) -> Outlet {
        self.first
    }
}
