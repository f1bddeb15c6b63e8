//! Messages that the owner takes by itself, as bytes, without a receive: requests of other endpoints.

use super::Machine;
use crate::matching::Body;
use crate::peer::{State, Target};
use crate::types::{Channel, ClaimId, Memory};

impl Machine {
    /// Hands the bytes of a claimed message to `read` and ends the message; what `read` returns, returned. `None`: the
    /// bytes are not all here ([`receive_claimed`](Self::receive_claimed) fetches them), or the claim names nothing.
    pub fn take_claimed<T>(
        &mut self,
        now_ns: u64,
        claim: ClaimId,
        memory: &mut impl Memory,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let index = self.matcher.unexpected.find(claim.0)?;
        let unexpected = &self.matcher.unexpected[index];
        let source = unexpected.source;
        let is_partial = self.peers[source as usize].inn.target == Target::Unexpected(index);
        if is_partial || matches!(unexpected.body, Body::Announced) {
            return None;
        }
        let unexpected = self.remove_unexpected(index);
        let Body::Eager(bytes) = unexpected.body else { return None };
        let outcome = read(&bytes);
        let known = &self.peers[source as usize];
        if known.state == State::Open && known.sessions_count == unexpected.session {
            self.consume(source, bytes.len() as u32);
        }
        self.pool.put(bytes, unexpected.length as usize);
        if let Some(handle) = unexpected.handle {
            self.say_done(now_ns, source, handle);
        }
        self.retry_refused(now_ns, memory);
        Some(outcome)
    }

    /// Whether messages of a channel wait that no receive has matched. Costs almost nothing.
    #[inline]
    #[must_use]
    pub fn has_unexpected(&self, channel: Channel) -> bool {
        self.matcher.has_arrivals(channel)
    }

    /// How many more sends may be in progress now.
    #[must_use]
    pub fn sends_room(&self) -> usize {
        self.config.operations_max.saturating_sub(self.sends.count())
    }
}
