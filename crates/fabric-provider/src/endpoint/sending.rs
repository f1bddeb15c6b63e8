//! Sends. Short messages of a burst leave several at a time, with one system call and one way through the kernel, which
//! cost more than all else that is done for them.

use messaging::{PeerId, Send, SendMode};

use super::{Endpoint, Outgoing, Queues, flags_of, number_of};
use crate::abi;
use crate::fence::Number;
use crate::operations::Operation;

/// Longest message that waits for further ones, bytes.
const WAITING_BYTES_MAX: u64 = 1024;
/// Messages that leave together, at most.
const TOGETHER_MAX: u32 = 16;
/// Sends further apart than this are no burst, ns.
const GAP_NS: u64 = 20_000;
/// A message that has waited for so long leaves with the next call or when the backstop looks, ns.
const WAIT_NS: u64 = 50_000;

/// Short messages to one peer without a call in between that makes progress. As many wait for each other as have
/// left since the burst began, so that only a program that has sent many in a row sends one later than it posted it.
#[derive(Debug, Default)]
pub(super) struct Burst {
    to: Option<PeerId>,
    left_count: u32,
    waiting_count: u32,
    /// When the last message was queued.
    last_ns: u64,
    /// When the oldest of those that wait was queued.
    since_ns: u64,
    /// A message has waited since the backstop last looked.
    has_waited: bool,
}

impl Burst {
    /// A message was queued. Whether it may wait for the next one.
    fn push(&mut self, now_ns: u64, to: PeerId) -> bool {
        let goes_on = self.to == Some(to) && now_ns.saturating_sub(self.last_ns) < GAP_NS;
        self.last_ns = now_ns;
        if !goes_on {
            self.to = Some(to);
            self.left_count = 0;
        }
        if self.waiting_count == 0 {
            self.since_ns = now_ns;
        }
        self.waiting_count += 1;
        self.waiting_count < self.left_count.min(TOGETHER_MAX) && !self.is_overdue(now_ns)
    }

    fn is_overdue(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.since_ns) >= WAIT_NS
    }

    /// The program has looked, and packets had come: what it sends now may be awaited.
    pub(super) fn end(&mut self) {
        self.to = None;
    }

    /// All that waited leaves.
    pub(super) fn leave(&mut self) {
        self.left_count = self.left_count.saturating_add(self.waiting_count);
        self.waiting_count = 0;
    }
}

/// What the backstop found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looked {
    /// No message has waited since it last looked.
    Idle,
    /// Messages have waited; those that the program left have been sent.
    Busy,
}

impl Endpoint {
    /// Whether a message that was just queued may wait for the next one.
    fn may_wait(&mut self, now_ns: u64, peer: PeerId, out: &Outgoing) -> bool {
        let is_short = out.lent.length_bytes <= WAITING_BYTES_MAX;
        if !is_short || out.mode == SendMode::Synchronous || self.backstop.is_none() {
            self.burst.end();
            return false;
        }
        if !self.burst.push(now_ns, peer) || !self.is_by_datagrams(peer) {
            return false;
        }
        self.burst.has_waited = true;
        self.backstop.as_mut().is_some_and(|backstop| backstop.watch())
    }

    fn is_by_datagrams(&self, peer: PeerId) -> bool {
        let Some(address) = self.machine.peer_address(peer) else { return false };
        address != self.name.address
            && self.local.way(Some(peer), &address).is_none()
            && !self.port.as_ref().is_some_and(|port| port.reaches(&address))
    }

    /// Sends the messages that wait for further ones.
    pub(crate) fn send_waiting(&mut self) {
        if self.burst.waiting_count > 0 {
            let now_ns = self.now_ns();
            self.transmit(now_ns);
        }
    }

    /// Sends the messages that wait, if the program has paused.
    pub(crate) fn look_after_waiting(&mut self) -> Looked {
        let has_waited = std::mem::take(&mut self.burst.has_waited);
        let now_ns = self.now_ns();
        if self.burst.waiting_count == 0 {
            return if has_waited { Looked::Busy } else { Looked::Idle };
        }
        if self.burst.is_overdue(now_ns) {
            self.transmit(now_ns);
        }
        Looked::Busy
    }

    /// Sends a message. Its packets leave at once, as far as they may, unless it is a short one of a burst.
    pub(crate) fn send(&mut self, out: &Outgoing, queues: &mut Queues<'_>) -> Result<(), Number> {
        let outcome = self.begin_send(out);
        match outcome {
            Ok((now_ns, peer)) => {
                if out.mode == SendMode::Inject {
                    self.end_inject(out, queues);
                }
                if !self.may_wait(now_ns, peer, out) {
                    self.transmit(now_ns);
                }
                self.settle(queues);
            }
            Err(libc::EAGAIN) => {
                self.buffers.give_back(out.lent.buffer);
                self.progress(queues);
            }
            Err(_) => self.buffers.give_back(out.lent.buffer),
        }
        outcome.map(|_begun| ())
    }

    /// An inject is over as soon as its bytes are copied.
    fn end_inject(&mut self, out: &Outgoing, queues: &mut Queues<'_>) {
        self.buffers.give_back(out.lent.buffer);
        queues.count(self.binding.send_counter, true);
        if out.is_told {
            let ended = self.ended(abi::SEND | flags_of(out.channel), out.context, None);
            queues.push(self.binding.send_queue, ended);
        }
    }

    /// Returns when it began, and to whom.
    fn begin_send(&mut self, out: &Outgoing) -> Result<(u64, PeerId), Number> {
        let peer = self.peer(out.to)?;
        self.reach(out.to, peer);
        let is_inject = out.mode == SendMode::Inject;
        let flags = abi::SEND | flags_of(out.channel);
        let context = if is_inject {
            0
        } else {
            self.operations.insert(Operation {
                context: out.context,
                flags,
                is_told: out.is_told,
                buffer: out.lent.buffer,
                address: 0,
                is_multi: false,
                is_discarded: false,
                receive: None,
            })
        };
        let send = Send {
            peer,
            channel: out.channel,
            match_bits: out.tag,
            data: out.data,
            buffer: out.lent.buffer,
            offset: 0,
            length_bytes: out.lent.length_bytes,
            mode: out.mode,
            context,
        };
        let now_ns = self.now_ns();
        let outcome = self.machine.send(now_ns, &send, &self.buffers).map(|()| (now_ns, peer));
        if !is_inject && outcome.is_err() {
            self.operations.remove(context);
        }
        outcome.map_err(number_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many messages have been posted each time some leave.
    fn leaving(times_ns: impl Iterator<Item = u64>, to: impl Fn(usize) -> u32) -> Vec<usize> {
        let mut burst = Burst::default();
        let mut at = Vec::new();
        for (number, now_ns) in times_ns.enumerate() {
            if !burst.push(now_ns, PeerId(to(number))) {
                burst.leave();
                at.push(number + 1);
            }
        }
        at
    }

    #[test]
    fn as_many_messages_wait_as_have_left() {
        let burst = leaving((0..64).map(|number| number * 300), |_| 0);
        assert_eq!(burst, [1, 2, 4, 8, 16, 32, 48, 64]);
        let slow = leaving((0..30).map(|number| number * 15_000), |_| 0);
        assert!(
            slow.windows(2).all(|pair| pair[1] - pair[0] <= 5),
            "none waits for long: {slow:?}"
        );
    }

    #[test]
    fn messages_that_are_no_burst_leave_at_once() {
        let each: Vec<usize> = (1..=20).collect();
        assert_eq!(leaving((0..20).map(|number| number * GAP_NS), |_| 0), each, "with pauses");
        assert_eq!(leaving((0..20).map(|number| number * 300), |number| number as u32 % 2), each);
    }
}
