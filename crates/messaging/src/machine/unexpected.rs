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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Config, Payload};
    use crate::types::{Address, BufferId, Memory, Send, SendMode};
    use crate::{OperationError, Receive};

    struct Sevens;

    impl Memory for Sevens {
        fn write(&mut self, _: BufferId, _: u64, _: &[u8]) {}
        fn read(&self, _: BufferId, _: u64, bytes_count: usize, into: &mut Vec<u8>) {
            into.resize(into.len() + bytes_count, 7);
        }
    }

    /// A machine that has sent itself messages of these lengths, with their places as match bits.
    fn with_messages(messages: &[(u64, SendMode)]) -> Machine {
        let address = Address([1; 32]);
        let mut machine = Machine::new(Config::new(address, 1, [1; 16], [2; 16])).expect("sound");
        let peer = machine.insert_peer(address).expect("room");
        for (match_bits, &(length_bytes, mode)) in (0..).zip(messages) {
            let buffer = BufferId(1);
            let (channel, context) = (Channel::Tagged, match_bits);
            let (data, offset) = (None, 0);
            let send = Send {
                peer,
                channel,
                match_bits,
                data,
                buffer,
                offset,
                length_bytes,
                mode,
                context,
            };
            machine.send(1, &send, &Sevens).expect("room");
        }
        deliver(&mut machine);
        machine
    }

    /// Hands the machine what it sends to itself.
    fn deliver(machine: &mut Machine) {
        while let Some(mut transmit) = machine.poll_transmit(1) {
            let payload = match transmit.payload {
                Payload::None => Vec::new(),
                Payload::Bytes(bytes) => bytes.to_vec(),
                Payload::User { length_bytes, .. } => vec![7; length_bytes],
            };
            let packet = [transmit.header(&payload), &payload].concat();
            machine.handle_packet(1, &packet, &mut Sevens);
        }
    }

    #[test]
    fn each_message_without_a_receive_is_returned_once_with_what_is_here_of_it() {
        let standard = SendMode::Standard;
        let mut machine = with_messages(&[
            (5, standard),
            (9_000, standard),
            (5, SendMode::Synchronous),
            (90_000, standard),
        ]);
        let mut ids = Vec::new();
        for (bits, bytes) in [(0, Some(5)), (1, Some(9_000)), (2, None), (3, None)] {
            let (id, arrived) = machine.poll_unexpected(Channel::Tagged).expect("a message");
            assert_eq!(arrived.match_bits, bits);
            assert_eq!(machine.unexpected_bytes(id), bytes.map(|count| vec![7; count]).as_deref());
            ids.push(id);
        }
        assert_eq!(machine.poll_unexpected(Channel::Tagged), None);
        assert_eq!(machine.poll_unexpected(Channel::Plain), None);
        // Claimed, a message is found by nobody else; taken, it names nothing.
        let claim = machine.claim_unexpected(ids[1]).expect("it waits");
        assert_eq!(machine.claim_unexpected(ids[1]), None);
        assert_eq!(machine.probe(None, Channel::Tagged, 1, 0), None);
        let receive = Receive {
            source: None,
            channel: Channel::Tagged,
            match_bits: 0,
            ignore_bits: 0,
            buffer: BufferId(2),
            offset: 0,
            length_bytes: 9_000,
            multi: None,
            context: 77,
        };
        assert_eq!(machine.receive_claimed(1, claim, &receive, &mut Sevens), Ok(()));
        let again = machine.receive_claimed(1, claim, &receive, &mut Sevens);
        assert_eq!(again, Err(OperationError::NoClaim));
        machine.receive(1, &receive, &mut Sevens).expect("room");
        assert_eq!(machine.claim_unexpected(ids[0]), None);
        assert_eq!(machine.unexpected_bytes(ids[0]), None);
    }

    #[test]
    fn a_claimed_message_is_handed_over_once_if_its_bytes_are_here() {
        let standard = SendMode::Standard;
        let mut machine =
            with_messages(&[(5, standard), (6_000, SendMode::Synchronous), (90_000, standard)]);
        let claims = [(); 3].map(|()| {
            let (id, _arrived) = machine.poll_unexpected(Channel::Tagged).expect("a message");
            machine.claim_unexpected(id).expect("it waits")
        });
        while machine.poll_completion().is_some() {}
        // The synchronous send and the announced one wait.
        assert_eq!(machine.sends_room(), (1 << 20) - 2);
        for (claim, length) in claims.into_iter().zip([Some(5), Some(6_000), None]) {
            let taken = machine.take_claimed(1, claim, &mut Sevens, <[u8]>::to_vec);
            assert_eq!(taken, length.map(|length| vec![7; length]));
            assert_eq!(machine.take_claimed(1, claim, &mut Sevens, |_bytes| ()), None);
        }
        deliver(&mut machine);
        let completion = machine.poll_completion().expect("the synchronous send has ended");
        assert_eq!((completion.context, completion.status), (1, crate::Status::Ok));
        assert_eq!(machine.poll_completion(), None);
    }
}
