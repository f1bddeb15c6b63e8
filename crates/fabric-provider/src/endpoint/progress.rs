//! What moves packets: an endpoint's polls of its rings and its socket, and its end.

use std::io;
use std::time::{Duration, Instant};

use messaging::Payload;

use super::{Endpoint, Queues};
use crate::card::Card;
use crate::interfaces;
use crate::name::socket_address;
use crate::port::{Port, PortLost};

/// How long a closed endpoint waits for its last messages to be received.
const DRAIN: Duration = Duration::from_secs(5);
/// Bytes and receive calls after which what came is answered: requests for more of a long message leave while the sender
/// still has some to serve.
const BYTES_IN_A_ROW: usize = 64 * 1024;
const RECEIVES_IN_A_ROW: u32 = 32;
/// Polls after a datagram came during which each looks for another.
const POLLS_AFTER_DATAGRAM: u32 = 64;
/// After that, one poll of so many looks, where ranks of this host are reached through memory.
const POLLS_A_DATAGRAM: u32 = 16;
/// Polls in a row that may find more packets than they take in before answers count as late all the same.
const OVERDUE_POLLS_MAX: u32 = 64;

/// What looking for datagrams found.
struct Received {
    came: bool,
    may_have_more: bool,
}

impl Endpoint {
    /// Takes packets in and sends what is due. True: packets came.
    pub(crate) fn progress(&mut self, queues: &mut Queues<'_>) -> bool {
        let now_ns = self.now_ns();
        self.machine.begin_poll(now_ns);
        if let Some(waits) = &mut self.waits {
            waits.poll(now_ns, &self.machine);
            self.show(now_ns);
        }
        let is_overdue = self.machine.poll_deadline_ns().is_some_and(|at_ns| at_ns <= now_ns);
        let mut has_received = self.local.receive(now_ns, &mut self.machine, &mut self.buffers);
        has_received |= self.receive_frames(now_ns);
        has_received |= self.receive_from_card(now_ns);
        let mut may_have_more = has_received;
        if self.is_udps_turn() || is_overdue {
            let datagrams = self.receive_datagrams(now_ns);
            has_received |= datagrams.came;
            may_have_more |= datagrams.may_have_more;
        }
        if is_overdue {
            self.handle_timeouts(now_ns, may_have_more);
        }
        if has_received {
            self.burst.end();
        }
        let now_ns = if has_received { self.now_ns() } else { now_ns };
        self.transmit(now_ns);
        self.settle(queues);
        self.machine.end_poll(now_ns, !may_have_more);
        has_received
    }

    /// What had not been answered by `now_ns` is late once all that had come by then is taken in: this process may have
    /// waited for a core, or computed, while its answers waited for it.
    fn handle_timeouts(&mut self, now_ns: u64, may_have_more: bool) {
        self.overdue_polls += 1;
        if !may_have_more || self.overdue_polls >= OVERDUE_POLLS_MAX {
            self.overdue_polls = 0;
            self.machine.handle_timeouts(now_ns);
        }
    }

    /// Datagrams are looked for at each poll while some come and where there are no rings; else, because it
    /// takes a system call, only at some.
    fn is_udps_turn(&mut self) -> bool {
        self.quiet_polls = self.quiet_polls.wrapping_add(1);
        let has_rings = self.local.has_links()
            || self.port.as_ref().is_some_and(Port::is_used)
            || self.card.as_ref().is_some_and(Card::is_used);
        !has_rings
            || self.quiet_polls < POLLS_AFTER_DATAGRAM
            || self.quiet_polls.is_multiple_of(POLLS_A_DATAGRAM)
    }

    fn receive_frames(&mut self, now_ns: u64) -> bool {
        let Some(port) = &mut self.port else { return false };
        let outcome = port.receive(now_ns, &mut self.machine, &mut self.buffers);
        outcome.unwrap_or_else(|gone| {
            self.leave_port(gone);
            false
        })
    }

    /// From now on what went through the port goes by UDP.
    fn leave_port(&mut self, _gone: PortLost) {
        if let Some(mut port) = self.port.take() {
            port.release(&mut self.machine);
            interfaces::complain("the packet switch has ended; messages go over UDP from now on");
        }
    }

    fn receive_from_card(&mut self, now_ns: u64) -> bool {
        let Some(card) = &mut self.card else { return false };
        let outcome = card.receive(now_ns, &mut self.machine, &mut self.buffers);
        outcome.unwrap_or_else(|gone| {
            self.leave_card(&gone);
            false
        })
    }

    /// From now on what went by the card's queue goes by UDP.
    fn leave_card(&mut self, gone: &io::Error) {
        if let Some(mut card) = self.card.take() {
            card.release(&mut self.machine);
            interfaces::complain(&format!(
                "the network card's queue is gone ({gone}); messages go over UDP from now on"
            ));
        }
    }

    fn receive_datagrams(&mut self, now_ns: u64) -> Received {
        let was_busy = std::mem::take(&mut self.is_udp_busy);
        let mut left_bytes = BYTES_IN_A_ROW;
        for _ in 0..RECEIVES_IN_A_ROW {
            let (machine, buffers) = (&mut self.machine, &mut self.buffers);
            let received =
                self.udp.receive(|packet| machine.handle_packet(now_ns, packet, buffers));
            let Some(bytes) = received else {
                return Received { came: self.is_udp_busy, may_have_more: false };
            };
            self.is_udp_busy = true;
            self.quiet_polls = 0;
            left_bytes = left_bytes.saturating_sub(bytes);
            // A short message that comes alone is not followed by another: looking for one takes a system call.
            let is_alone = !was_busy && bytes < self.udp.packet_bytes_max();
            if is_alone || left_bytes == 0 {
                break;
            }
        }
        Received { came: true, may_have_more: true }
    }

    pub(super) fn transmit(&mut self, now_ns: u64) {
        self.burst.leave();
        loop {
            while let Some(copy) = self.machine.poll_copy() {
                let is_whole = self.local.copy(&copy, &mut self.buffers);
                self.machine.end_copy(now_ns, copy.id, is_whole);
            }
            while self.udp.has_room()
                && let Some(mut transmit) = self.machine.poll_transmit(now_ns)
            {
                let (peer, address) = (transmit.peer, transmit.address);
                let payload = match transmit.payload {
                    Payload::None => &[],
                    Payload::Bytes(bytes) => bytes,
                    Payload::User { buffer, offset, length_bytes } => {
                        self.buffers.part(buffer, offset, length_bytes, &mut self.scratch)
                    }
                };
                let header = transmit.header(payload);
                if address == self.name.address {
                    self.own.push_back([header, payload].concat());
                } else if let Some(way) = self.local.way(peer, &address) {
                    let is_full = self.local.push(way, header, payload);
                    if let Some(peer) = peer.filter(|_| is_full) {
                        self.machine.hold(peer);
                    }
                } else if let Some(port) = self.port.as_mut().filter(|port| port.reaches(&address))
                {
                    match port.push(peer, &address, [header, payload]) {
                        Ok(false) => {}
                        Ok(true) => port.hold(&mut self.machine),
                        Err(gone) => self.leave_port(gone),
                    }
                } else if let Some(to) = socket_address(&address) {
                    let card = self.card.as_mut();
                    let way = card.and_then(|card| Some((card.way(now_ns, to)?, card)));
                    match way.map(|(way, card)| (card.push(peer, way, [header, payload]), card)) {
                        None => self.udp.push(peer, to, header, payload),
                        Some((Ok(false), _)) => {}
                        Some((Ok(true), card)) => card.hold(&mut self.machine),
                        Some((Err(gone), _)) => self.leave_card(&gone),
                    }
                }
            }
            let Some(packet) = self.own.pop_front() else { break };
            self.machine.handle_packet(now_ns, &packet, &mut self.buffers);
        }
        self.udp.flush();
        if let Some(Err(gone)) = self.port.as_mut().map(Port::flush) {
            self.leave_port(gone);
        }
        if let Some(Err(gone)) = self.card.as_mut().map(Card::flush) {
            self.leave_card(&gone);
        }
    }

    /// Waits until the peers have received what was sent to them, for a bounded time, and tells them
    /// that the endpoint closes.
    pub(crate) fn close(&mut self, queues: &mut Queues<'_>) {
        let began = Instant::now();
        while !self.machine.is_drained() && began.elapsed() < DRAIN {
            if !self.progress(queues) {
                std::thread::yield_now();
            }
        }
        let now_ns = self.now_ns();
        self.machine.close(now_ns);
        self.transmit(now_ns);
        self.settle(queues);
        self.report();
        self.live = None;
    }
}
