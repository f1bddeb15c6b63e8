//! Messages that no receive has matched, for libraries that look at each before a receive takes it, and peers that are
//! tried again.

use messaging::{Arrived, Channel, ClaimId, Failure, PeerId, UnexpectedId};

use super::{Endpoint, Incoming, Queues};
use crate::abi;
use crate::buffers::Lent;

impl Endpoint {
    /// The next message that was not returned before, with its bytes where they are here and no more than this.
    pub(crate) fn next_unmatched(
        &mut self,
        channel: Channel,
        bytes_max: usize,
    ) -> Option<(UnexpectedId, Arrived, Option<Vec<u8>>)> {
        let (id, arrived) = self.machine.poll_unexpected(channel)?;
        let bytes = self.machine.unexpected_bytes(id).filter(|bytes| bytes.len() <= bytes_max);
        let bytes = bytes.map(<[u8]>::to_vec);
        Some((id, arrived, bytes))
    }

    /// Takes such a message and throws it away.
    pub(crate) fn discard(&mut self, id: UnexpectedId, queues: &mut Queues<'_>) {
        if let Some(claim) = self.machine.claim_unexpected(id) {
            self.discard_claimed(claim, queues);
        }
    }

    /// Takes the first message of a channel, which has no bytes that anybody wants.
    pub(crate) fn take_envelope(
        &mut self,
        channel: Channel,
        queues: &mut Queues<'_>,
    ) -> Option<Arrived> {
        let (claim, arrived) = self.machine.claim(None, channel, 0, u64::MAX)?;
        self.discard_claimed(claim, queues);
        Some(arrived)
    }

    fn discard_claimed(&mut self, claim: ClaimId, queues: &mut Queues<'_>) {
        let incoming = Incoming {
            from: abi::ADDR_UNSPEC,
            channel: Channel::Tagged,
            tag: 0,
            ignore: 0,
            lent: Lent::NOTHING,
            is_multi: false,
            context: 0,
            is_told: false,
            is_discarded: true,
        };
        let receive = self.insert_receive(&incoming, None);
        let now_ns = self.now_ns();
        let outcome = self.machine.receive_claimed(now_ns, claim, &receive, &mut self.buffers);
        if outcome.is_err() {
            self.operations.remove(receive.context);
        }
        self.transmit(now_ns);
        self.settle(queues);
    }

    /// The message that a receive from any source would take now.
    pub(crate) fn matching(&self, channel: Channel, bits: u64, ignore: u64) -> Option<Arrived> {
        self.machine.probe(None, channel, bits, ignore)
    }

    /// Why a peer failed, if it did.
    pub(crate) fn failure(&self, peer: PeerId) -> Option<Failure> {
        self.machine.peer_failure(peer)
    }

    /// Permits a peer that failed a new session.
    pub(crate) fn reconnect(&mut self, peer: PeerId) {
        // Only peers that the table has are asked for.
        self.machine.reconnect(peer).ok();
        self.local.retry(peer);
    }

    /// The peer of this name, which is also its address: entered where it is new.
    pub(crate) fn peer_of(
        &mut self,
        name: &crate::name::Name,
    ) -> Result<PeerId, crate::fence::Number> {
        let peer = self
            .machine
            .insert_keyed_peer(name.address, &name.key)
            .map_err(super::endings::number_of)?;
        self.introduce(peer.0.into(), name)?;
        Ok(peer)
    }

    pub(crate) fn peer_address(&self, peer: PeerId) -> Option<messaging::Address> {
        self.machine.peer_address(peer)
    }

    /// Whether packets to a peer go through memory that both share.
    pub(crate) fn is_local(&self, peer: PeerId) -> bool {
        self.peer_address(peer)
            .is_some_and(|address| self.local.way(Some(peer), &address).is_some())
    }

    /// Counts since the endpoint was opened.
    pub(crate) fn counters(&self) -> &messaging::Counters {
        self.machine.counters()
    }
}
