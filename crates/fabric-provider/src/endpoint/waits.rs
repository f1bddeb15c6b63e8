//! How long the program waited for messages, and whose: known only where it is told to somebody.

use messaging::{Machine, PeerId};

/// Two polls further apart are not one wait: the program computed in between, or had no core.
const GAP_NS_MAX: u64 = 50_000;
/// So much waiting at a time is charged to the peers that are awaited then.
const CHARGE_NS: u64 = 100_000;

/// What is known of the waiting so far.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// What [`queued_ns`] was when the endpoint began.
    queued_before_ns: u64,
    /// Polls with little between them, in sum.
    polled_ns: u64,
    uncharged_ns: u64,
    last_ns: u64,
    /// By peer: waiting while a message or an answer of this peer was awaited. Where several peers are awaited, each
    /// has all of it.
    by_peer: Vec<u64>,
}

impl Waits {
    /// From now on.
    pub(super) fn begin() -> Self {
        Self { queued_before_ns: queued_ns(), ..Self::default() }
    }

    /// For how long the program's first thread, which calls MPI in most, was ready to run and had no core. 0 where
    /// the kernel does not tell (no `CONFIG_SCHED_INFO`).
    pub(super) fn queued_ns(&self) -> u64 {
        queued_ns().saturating_sub(self.queued_before_ns)
    }

    /// Records a poll.
    pub(super) fn poll(&mut self, now_ns: u64, machine: &Machine) {
        let gap_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        if gap_ns > GAP_NS_MAX {
            return;
        }
        self.polled_ns += gap_ns;
        self.uncharged_ns += gap_ns;
        if self.uncharged_ns < CHARGE_NS {
            return;
        }
        let charge_ns = std::mem::take(&mut self.uncharged_ns);
        self.by_peer.resize(machine.peers_count() as usize, 0);
        for (peer, waited_ns) in (0..).zip(&mut self.by_peer) {
            if machine.awaits(PeerId(peer)) {
                *waited_ns += charge_ns;
            }
        }
    }

    pub(super) fn polled_ns(&self) -> u64 {
        self.polled_ns
    }

    /// The peers that were waited for, and how long.
    pub(super) fn by_peer(&self) -> impl Iterator<Item = (PeerId, u64)> {
        let all = (0..).zip(&self.by_peer);
        all.filter(|(_, waited_ns)| **waited_ns > 0).map(|(peer, ns)| (PeerId(peer), *ns))
    }
}

fn queued_ns() -> u64 {
    sys::thread::schedstat(std::process::id().cast_signed()).map_or(0, |stat| stat.wait_ns)
}

#[cfg(test)]
mod tests {
    use messaging::{Address, Channel, Config, Memory, Receive};

    use super::*;

    struct Nothing;

    impl Memory for Nothing {
        fn write(&mut self, _: messaging::BufferId, _: u64, _: &[u8]) {}
        fn read(&self, _: messaging::BufferId, _: u64, _: usize, _: &mut Vec<u8>) {}
        fn place(&self, _: messaging::BufferId, _: u64) -> Option<u64> {
            None
        }
    }

    #[test]
    fn polls_in_a_row_are_charged_to_who_is_awaited_and_computing_to_nobody() {
        let address = |number| Address([number; 32]);
        let mut machine = Machine::new(Config::new(address(1), 1, [1; 16], [2; 16])).unwrap();
        let [slow, other] = [2, 3].map(|number| machine.insert_peer(address(number)).unwrap());
        let receive = Receive {
            source: Some(slow),
            channel: Channel::Tagged,
            match_bits: 0,
            ignore_bits: 0,
            buffer: messaging::BufferId(1),
            offset: 0,
            length_bytes: 8,
            multi: None,
            context: 1,
        };
        machine.receive(1, &receive, &mut Nothing).unwrap();
        let mut waits = Waits::default();
        for poll in 0..1000 {
            waits.poll(poll * 1_000, &machine);
        }
        // It computes for a second, then polls once.
        waits.poll(1_000_000_000, &machine);
        assert_eq!(waits.polled_ns(), 999_000);
        let by_peer: Vec<_> = waits.by_peer().collect();
        assert_eq!(by_peer, [(slow, 900_000)]);
        assert!(!machine.awaits(other));
    }
}
