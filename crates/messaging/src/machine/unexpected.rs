//! Unexpected messages, for an owner that looks at each before a receive takes it (MX's unexpected handler).

use super::Machine;
use crate::matching::Body;
use crate::peer::Target;
use crate::types::{Arrived, Channel, ClaimId, PeerId, UnexpectedId};

impl Machine {
    /// The next message that no receive has matched, in the order of arrival; each is returned once, as soon as all of
    /// it is here that comes before a receive. It stays in matching. Costs time in proportion to the messages of the
    /// channel that wait.
    pub fn poll_unexpected(&mut self, channel: Channel) -> Option<(UnexpectedId, Arrived)> {
        let index = self.matcher.unseen(channel, |index| self.is_whole(index))?;
        self.matcher.unexpected[index].is_shown = true;
        let unexpected = &self.matcher.unexpected[index];
        let arrived = Arrived {
            source: PeerId(unexpected.source),
            match_bits: unexpected.bits,
            data: unexpected.data,
            length_bytes: unexpected.length,
        };
        Some((UnexpectedId(self.matcher.unexpected.handle(index)), arrived))
    }

    /// No more of it comes before a receive.
    fn is_whole(&self, index: u32) -> bool {
        let source = self.matcher.unexpected[index].source;
        self.peers[source as usize].inn.target != Target::Unexpected(index)
    }

    /// The bytes of such a message; none where they are still at the sender, the sender waits for the match, or something
    /// has taken the message.
    #[must_use]
    pub fn unexpected_bytes(&self, id: UnexpectedId) -> Option<&[u8]> {
        let index = self.matcher.unexpected.find(id.0)?;
        let unexpected = &self.matcher.unexpected[index];
        match &unexpected.body {
            Body::Eager(bytes) if unexpected.handle.is_none() => Some(bytes),
            Body::Eager(_) | Body::Announced => None,
        }
    }

    /// Removes such a message from matching, as [`claim`](Self::claim) does; none where something has taken it.
    pub fn claim_unexpected(&mut self, id: UnexpectedId) -> Option<ClaimId> {
        let index = self.matcher.unexpected.find(id.0)?;
        if !self.matcher.unexpected[index].by_source.is_linked() {
            return None;
        }
        self.matcher.withdraw(index);
        Some(ClaimId(id.0))
    }
}
