//! Which receive takes which message: receives in the order of posting, messages in the order of
//! arrival, by source, channel, match bits and mask.
//!
//! Receives that name a source are in a list of that source, the others in one common list. An
//! arriving message is compared with these two lists only, and of the two candidates the one posted
//! first wins. Unexpected messages are in a list of their source and in a list of all.

use crate::slab::{Link, List, NONE, Slab, linked};
use crate::types::{BufferId, Channel, PeerId};

#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) source: Option<PeerId>,
    pub(crate) channel: Channel,
    pub(crate) bits: u64,
    pub(crate) ignore: u64,
    pub(crate) buffer: BufferId,
    pub(crate) offset: u64,
    pub(crate) room: u64,
    /// A multi-message receive ends when fewer bytes than this are left.
    pub(crate) multi: Option<u64>,
    /// Messages being written into a multi-message receive.
    pub(crate) writers: u32,
    pub(crate) context: u64,
    pub(crate) order: u64,
    pub(crate) link: Link,
}
linked!(Posted, 0 => link);

/// Where an unexpected message's bytes are.
#[derive(Debug)]
pub(crate) enum Body {
    /// Here, as many as have arrived.
    Eager(Vec<u8>),
    /// At the sender.
    Announced,
}

/// A message that no receive has matched.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(crate) source: u32,
    pub(crate) channel: Channel,
    pub(crate) bits: u64,
    pub(crate) data: Option<u64>,
    pub(crate) length: u64,
    /// The sender's handle, of an announced or synchronous message.
    pub(crate) handle: Option<u64>,
    /// Address of an announced message in its sender's memory.
    pub(crate) place: Option<u64>,
    pub(crate) body: Body,
    /// The session that it arrived in, as `Peer::sessions_count`.
    pub(crate) session: u64,
    /// The owner has seen it.
    pub(crate) is_shown: bool,
    pub(crate) by_source: Link,
    pub(crate) by_arrival: Link,
}
linked!(Unexpected, 0 => by_source, 1 => by_arrival);

#[derive(Debug, Clone, Copy)]
struct Lane {
    posted: [List<0>; Channel::COUNT],
    unexpected: [List<0>; Channel::COUNT],
}

impl Lane {
    const EMPTY: Self =
        Self { posted: [List::EMPTY; Channel::COUNT], unexpected: [List::EMPTY; Channel::COUNT] };
}

/// Posted receives and unexpected messages.
#[derive(Debug)]
pub(crate) struct Matcher {
    pub(crate) posted: Slab<Posted>,
    pub(crate) unexpected: Slab<Unexpected>,
    lanes: Vec<Lane>,
    posted_any: [List<0>; Channel::COUNT],
    arrivals: [List<1>; Channel::COUNT],
    order: u64,
}

/// Whether match bits differ outside `ignore`.
fn differs(incoming: u64, wanted: u64, ignore: u64) -> bool {
    (incoming ^ wanted) & !ignore != 0
}

impl Matcher {
    pub(crate) fn new() -> Self {
        Self {
            posted: Slab::new(),
            unexpected: Slab::new(),
            lanes: Vec::new(),
            posted_any: [List::EMPTY; Channel::COUNT],
            arrivals: [List::EMPTY; Channel::COUNT],
            order: 0,
        }
    }

    pub(crate) fn add_peer(&mut self) {
        self.lanes.push(Lane::EMPTY);
    }

    /// Whether a posted receive names this source.
    pub(crate) fn is_awaited(&self, source: u32) -> bool {
        self.lanes[source as usize].posted.iter().any(|list| !list.is_empty())
    }

    /// A posted receive that names this source.
    pub(crate) fn awaiting(&self, source: u32) -> Option<u32> {
        self.lanes[source as usize].posted.iter().find_map(List::first)
    }

    /// The receive that takes a message; it stays posted.
    #[inline]
    pub(crate) fn posted_for(&self, source: u32, channel: Channel, bits: u64) -> Option<u32> {
        let lane = &self.lanes[source as usize];
        let named = self.scan_posted(lane.posted[channel.index()], bits);
        let any = self.scan_posted(self.posted_any[channel.index()], bits);
        match (named, any) {
            (Some(named), Some(any)) => {
                let is_named_first = self.posted[named].order < self.posted[any].order;
                Some(if is_named_first { named } else { any })
            }
            (named, any) => named.or(any),
        }
    }

    #[inline]
    fn scan_posted(&self, list: List<0>, bits: u64) -> Option<u32> {
        let mut index = list.front();
        while index != NONE {
            let posted = &self.posted[index];
            if !differs(bits, posted.bits, posted.ignore) {
                return Some(index);
            }
            index = posted.link.next();
        }
        None
    }

    pub(crate) fn post(&mut self, mut posted: Posted) -> u32 {
        posted.order = self.order;
        self.order += 1;
        let (source, channel) = (posted.source, posted.channel.index());
        let index = self.posted.insert(posted);
        let list = match source {
            Some(PeerId(source)) => &mut self.lanes[source as usize].posted[channel],
            None => &mut self.posted_any[channel],
        };
        list.push_back(&mut self.posted, index);
        index
    }

    /// Removes a receive from matching; its record stays.
    pub(crate) fn unpost(&mut self, index: u32) {
        let posted = &self.posted[index];
        let channel = posted.channel.index();
        let list = match posted.source {
            Some(PeerId(source)) => &mut self.lanes[source as usize].posted[channel],
            None => &mut self.posted_any[channel],
        };
        list.remove(&mut self.posted, index);
    }

    pub(crate) fn keep(&mut self, unexpected: Unexpected) -> u32 {
        let (source, channel) = (unexpected.source as usize, unexpected.channel.index());
        let index = self.unexpected.insert(unexpected);
        self.lanes[source].unexpected[channel].push_back(&mut self.unexpected, index);
        self.arrivals[channel].push_back(&mut self.unexpected, index);
        index
    }

    /// The first message that a receive would take; it stays.
    pub(crate) fn unexpected_for(
        &self,
        source: Option<PeerId>,
        channel: Channel,
        bits: u64,
        ignore: u64,
    ) -> Option<u32> {
        let mut index = match source {
            Some(PeerId(source)) => self.lanes[source as usize].unexpected[channel.index()].front(),
            None => self.arrivals[channel.index()].front(),
        };
        while index != NONE {
            let unexpected = &self.unexpected[index];
            if !differs(unexpected.bits, bits, ignore) {
                return Some(index);
            }
            index = match source {
                Some(_) => unexpected.by_source.next(),
                None => unexpected.by_arrival.next(),
            };
        }
        None
    }

    /// Whether messages of a channel wait.
    #[inline]
    pub(crate) fn has_arrivals(&self, channel: Channel) -> bool {
        self.arrivals[channel.index()].front() != NONE
    }

    /// The first message, in the order of arrival, that the owner has not seen and that `fits`.
    pub(crate) fn unseen(&self, channel: Channel, fits: impl Fn(u32) -> bool) -> Option<u32> {
        let mut index = self.arrivals[channel.index()].front();
        while index != NONE {
            let unexpected = &self.unexpected[index];
            if !unexpected.is_shown && fits(index) {
                return Some(index);
            }
            index = unexpected.by_arrival.next();
        }
        None
    }

    /// Removes a message from matching; its record stays.
    pub(crate) fn withdraw(&mut self, index: u32) {
        let unexpected = &self.unexpected[index];
        if !unexpected.by_source.is_linked() {
            return;
        }
        let (source, channel) = (unexpected.source as usize, unexpected.channel.index());
        self.lanes[source].unexpected[channel].remove(&mut self.unexpected, index);
        self.arrivals[channel].remove(&mut self.unexpected, index);
    }
}

#[cfg(test)]
#[path = "matching/tests.rs"]
mod tests;
