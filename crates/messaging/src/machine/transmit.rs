//! Packets to send: one per call, a header and a reference to payload bytes.

use super::arrive::hidden;
use super::{Machine, stamp};
use crate::peer::{Class, Flight, FlightState, Peer, Source, State};
use crate::slab::{Link, NONE};
use crate::tag::{HashKey, Key};
use crate::types::{Address, BufferId, PeerId};
use crate::wire::{
    ANNOUNCED_BYTES, EAGER_BYTES, FLAG_ACK_NOW, FLAG_AGAIN, FLAG_DATA, FLAG_LATE, FLAG_PLACED,
    FLAG_SYNC, FLAG_TAGGED, Fragment, Header, Kind, MORE_BYTES, PLACED_BYTES, PacketHeader,
    SACK_WORDS,
};

/// Consecutive packets to one peer, which a device or a kernel can accept as one batch.
pub(super) const BURST_PKTS: u32 = 44;

/// The bytes of a packet after its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// No payload.
    None,
    /// Bytes that the machine holds.
    Bytes(&'a [u8]),
    /// Bytes in a buffer of the owner. They must be read before the next packet is passed to the
    /// machine.
    User {
        /// The buffer that was passed to [`send`](Machine::send).
        buffer: BufferId,
        /// Where the payload begins in the buffer, in bytes.
        offset: u64,
        /// Length of the payload.
        length_bytes: usize,
    },
}

impl Payload<'_> {
    fn length_bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::User { length_bytes, .. } => *length_bytes,
        }
    }
}

/// A packet to send.
#[derive(Debug)]
pub struct Transmit<'a> {
    /// The destination; none for an answer to a greeting.
    pub peer: Option<PeerId>,
    /// The address of the destination.
    pub address: Address,
    /// The bytes after the header.
    pub payload: Payload<'a>,
    header: PacketHeader,
    seal: Option<(Key, &'a HashKey, u64, bool)>,
}

impl Transmit<'_> {
    /// Length of the whole packet.
    #[must_use]
    pub fn packet_bytes(&self) -> usize {
        self.header.bytes().len() + self.payload.length_bytes()
    }

    /// The header with its tag. `payload` is all of what follows it: the bytes of
    /// [`Payload::Bytes`], or those that [`Payload::User`] names, in one slice.
    #[must_use]
    pub fn header(&mut self, payload: &[u8]) -> &[u8] {
        if let Some((key, hash_key, hidden, covers)) = self.seal.take() {
            let covered = if covers { payload } else { &[] };
            let head = self.header.bytes();
            let tag = crate::tag::tag(key, hash_key, hidden, head, covered, payload.len());
            self.header.set_tag(tag);
        }
        self.header.bytes()
    }
}

/// What to send next to a peer.
#[derive(Debug, Clone, Copy)]
enum Plan {
    Greet(Kind),
    Bare(Kind),
    Pull(u32),
    Fragment(u32, Fragment, u64),
    Flight(u32),
}

impl Machine {
    /// The next packet to send. Peers take turns.
    pub fn poll_transmit(&mut self, now_ns: u64) -> Option<Transmit<'_>> {
        if let Some((kind, session, echo, greeting)) = self.replies.pop_front() {
            self.counters.sent_pkts += 1;
            let header =
                self.write_greeting(now_ns, (kind, self.own_key), session, 0, echo, &greeting);
            let address = greeting.to;
            return Some(Transmit {
                peer: None,
                address,
                payload: Payload::None,
                header,
                seal: None,
            });
        }
        loop {
            let peer = self.ready.first()?;
            let may_plan = self.burst_pkts < BURST_PKTS && !self.peers[peer as usize].is_held;
            let plan = if may_plan { self.plan(now_ns, peer) } else { None };
            if let Some(plan) = plan {
                self.burst_pkts += 1;
                self.counters.sent_pkts += 1;
                return Some(self.write(now_ns, peer, plan));
            }
            let is_turn_over = self.burst_pkts >= BURST_PKTS;
            self.burst_pkts = 0;
            self.ready.remove(&mut self.peers, peer);
            if is_turn_over {
                self.ready.push_back(&mut self.peers, peer);
            }
        }
    }

    fn plan(&mut self, now_ns: u64, peer: u32) -> Option<Plan> {
        let known = &mut self.peers[peer as usize];
        if std::mem::take(&mut known.must.greet) {
            let kind = match known.state {
                State::Greeting | State::Open => Some(Kind::Hello),
                State::Opening => Some(Kind::Open),
                _ => None,
            };
            if let Some(kind) = kind {
                return Some(Plan::Greet(kind));
            }
        }
        if std::mem::take(&mut known.must.close) && matches!(known.state, State::Failed(_)) {
            return Some(Plan::Bare(Kind::Close));
        }
        if known.state != State::Open {
            return None;
        }
        if std::mem::take(&mut known.must.accept) {
            return Some(Plan::Greet(Kind::Accept));
        }
        // Only a bare `Ack` reports which packets are missing, and answers a `Ping`.
        if known.must.ack && known.needs_bare_ack() {
            return Some(Plan::Bare(Kind::Ack));
        }
        if std::mem::take(&mut known.must.ping) {
            return Some(Plan::Bare(Kind::Ping));
        }
        if let Some(block) = known.pulls.to_ask.pop_front(&mut self.blocks) {
            return Some(Plan::Pull(block));
        }
        if let Some(flight) = self.next_lost(now_ns, peer).or_else(|| self.cut(now_ns, peer)) {
            return Some(Plan::Flight(flight));
        }
        if let Some((send, fragment, bytes)) = self.next_fragment(peer) {
            return Some(Plan::Fragment(send, fragment, bytes));
        }
        self.peers[peer as usize].must.ack.then_some(Plan::Bare(Kind::Ack))
    }

    /// A lost packet, to be retransmitted now.
    fn next_lost(&mut self, now_ns: u64, peer: u32) -> Option<u32> {
        let out = &mut self.peers[peer as usize].out;
        let is_full = out.under_way_bytes > 0 && out.under_way_bytes >= out.window.bytes();
        if out.lost_count == 0 || is_full {
            return None;
        }
        let mut index = out.flights.front();
        while self.flights[index].state != FlightState::Lost {
            index = self.flights[index].link.next();
        }
        out.lost_count -= 1;
        self.counters.resent_pkts += 1;
        self.flights[index].is_repeated = true;
        self.launch(now_ns, peer, index);
        Some(index)
    }

    fn launch(&mut self, now_ns: u64, peer: u32, index: u32) {
        let out = &mut self.peers[peer as usize].out;
        let flight = &mut self.flights[index];
        flight.state = FlightState::UnderWay;
        flight.sent_ns = now_ns;
        flight.order = out.order;
        out.order = out.order.wrapping_add(1);
        out.under_way_bytes += u64::from(flight.packet_bytes);
        if self.peers[peer as usize].due.answer_ns == 0 {
            self.await_answer(now_ns, peer);
        }
    }

    /// Cuts the next packet off the queued messages, if the window and the pace permit it.
    fn cut(&mut self, now_ns: u64, peer: u32) -> Option<u32> {
        let known = &mut self.peers[peer as usize];
        let index = known.out.queue.first()?;
        let is_full = known.out.next_seq >= known.out.oldest_seq + crate::peer::WINDOW_PKTS / 2
            || known.out.under_way_bytes >= known.out.window.bytes();
        if is_full && !known.out.flights.is_empty() {
            return None;
        }
        if !self.may_go_by_pace(now_ns, peer) {
            return None;
        }
        self.choose_class(peer, index)?;
        let known = &mut self.peers[peer as usize];
        let send = &mut self.sends[index];
        let is_first = send.cut_bytes == 0;
        let header_bytes = match send.class {
            Class::Eager if !is_first => MORE_BYTES,
            Class::Eager if send.is_sync => ANNOUNCED_BYTES,
            Class::Eager => EAGER_BYTES,
            Class::Announced if send.place.is_some() => PLACED_BYTES,
            Class::Announced => ANNOUNCED_BYTES,
            Class::Done(_) => crate::wire::DONE_BYTES,
        };
        let rest_bytes = if send.class == Class::Eager { send.length - send.cut_bytes } else { 0 };
        let payload_bytes = rest_bytes.min(u64::from(known.packet_bytes_max) - header_bytes as u64);
        let flight = self.flights.insert(Flight {
            seq: known.out.next_seq,
            send: index,
            offset: send.cut_bytes,
            payload_bytes: payload_bytes as u16,
            packet_bytes: header_bytes as u16 + payload_bytes as u16,
            is_first,
            state: FlightState::UnderWay,
            is_repeated: false,
            is_probe: false,
            order: 0,
            sent_ns: 0,
            link: Link::OUT,
        });
        send.cut_bytes += payload_bytes;
        send.unacked_pkts += 1;
        send.is_cut = send.class != Class::Eager || send.cut_bytes == send.length;
        if send.is_cut {
            known.out.queue.remove(&mut self.sends, index);
        }
        known.out.next_seq += 1;
        known.out.flights.push_back(&mut self.flights, flight);
        self.pace(now_ns, peer, header_bytes as u64 + payload_bytes);
        self.launch(now_ns, peer, flight);
        Some(flight)
    }

    /// Before its first packet, decides whether a message is eager: only if the peer has room for
    /// it. None: wait, since an acknowledgement in flight may bring credit.
    fn choose_class(&mut self, peer: u32, index: u32) -> Option<()> {
        let out = &mut self.peers[peer as usize].out;
        let send = &mut self.sends[index];
        if send.class != Class::Eager || send.cut_bytes > 0 {
            return Some(());
        }
        let free_bytes = out.credit_bytes.wrapping_sub(out.eager_bytes);
        if send.length > u64::from(free_bytes) && send.length > 0 {
            if !out.flights.is_empty() {
                return None;
            }
            send.class = Class::Announced;
            send.awaits_done = true;
            self.counters.announced_for_room += 1;
            return Some(());
        }
        out.eager_bytes = out.eager_bytes.wrapping_add(send.length as u32);
        Some(())
    }

    /// Paces packets slightly faster than one window per round trip, in short bursts.
    fn may_go_by_pace(&mut self, now_ns: u64, peer: u32) -> bool {
        let known = &mut self.peers[peer as usize];
        let slack_ns = (known.rtt.smoothed_ns() / 2).max(30_000);
        if known.out.paced_ns <= now_ns + slack_ns {
            return true;
        }
        known.due.pace_ns = known.out.paced_ns - slack_ns;
        self.arm(peer);
        false
    }

    fn pace(&mut self, now_ns: u64, peer: u32, packet_bytes: u64) {
        let known = &mut self.peers[peer as usize];
        let out = &mut known.out;
        let spare = if out.window.is_starting() { 2 } else { 1 };
        let interval_ns = packet_bytes * known.rtt.smoothed_ns() / (out.window.bytes() * spare);
        out.paced_ns = out.paced_ns.max(now_ns) + interval_ns * 4 / 5;
    }

    fn write(&mut self, now_ns: u64, peer: u32, plan: Plan) -> Transmit<'_> {
        let address = self.peers[peer as usize].address;
        if let Plan::Greet(kind) = plan {
            let header = self.plan_greeting(now_ns, peer, kind);
            let payload = Payload::None;
            return Transmit { peer: Some(PeerId(peer)), address, payload, header, seal: None };
        }
        let mut header = self.next_header(now_ns, peer);
        let mut packet = PacketHeader::new();
        let mut payload = None;
        match plan {
            Plan::Greet(_) => {}
            Plan::Bare(kind) => self.write_bare(peer, kind, &mut header, &mut packet),
            Plan::Pull(block) => {
                let (request, fragment_bytes) = self.write_request(block);
                header.kind = Kind::Pull;
                header.bytes = fragment_bytes;
                header.put(&mut packet);
                request.put(&mut packet);
            }
            Plan::Fragment(send, fragment, bytes) => {
                header.kind = Kind::Data;
                header.put(&mut packet);
                fragment.put(&mut packet);
                payload = Some((send, fragment.offset, bytes as usize));
            }
            Plan::Flight(flight) => {
                self.write_flight(peer, flight, &mut header, &mut packet);
                let flight = &self.flights[flight];
                if flight.payload_bytes > 0 {
                    payload = Some((flight.send, flight.offset, flight.payload_bytes.into()));
                }
            }
        }
        let known = &self.peers[peer as usize];
        let seq = match plan {
            Plan::Flight(flight) => self.flights[flight].seq,
            _ => known.out.next_seq,
        };
        let hidden = hidden(seq, known.inn.next_seq);
        let payload = payload.map_or(Payload::None, |(send, offset, length_bytes)| {
            match &self.sends[send].source {
                Source::Copy(copy) => {
                    let offset = offset as usize;
                    Payload::Bytes(&copy[offset..offset + length_bytes])
                }
                Source::User(buffer, start) => {
                    Payload::User { buffer: *buffer, offset: start + offset, length_bytes }
                }
            }
        });
        if !matches!(plan, Plan::Pull(_)) {
            packet.set_bytes((packet.bytes().len() + payload.length_bytes()) as u16);
        }
        let hash_key = known.hash_key.as_ref().unwrap_or(&self.hash_key);
        let seal = Some((known.send_key, hash_key, hidden, self.config.tags_payloads));
        Transmit { peer: Some(PeerId(peer)), address, payload, header: packet, seal }
    }

    /// The header of a packet sent to a peer now; it acknowledges everything received.
    fn next_header(&mut self, now_ns: u64, peer: u32) -> Header {
        let window_bytes = self.config.eager_window_bytes();
        let known = &mut self.peers[peer as usize];
        let inn = &mut known.inn;
        inn.credit_sent = inn.consumed_bytes.wrapping_add(window_bytes);
        inn.unacked_pkts = 0;
        known.due.ack_ns = 0;
        let held_ns = now_ns.saturating_sub(inn.stamp_at_ns);
        known.must.ack &= known.needs_bare_ack();
        let inn = &known.inn;
        let echo = match inn.stamp {
            0 => 0,
            stamp => stamp.wrapping_add((held_ns >> 6) as u32).max(1),
        };
        let mut flags = if self.config.tags_payloads { FLAG_TAGGED } else { 0 };
        if inn.is_late {
            flags |= FLAG_LATE;
        }
        Header {
            kind: Kind::Ack,
            endpoint: known.remote_endpoint,
            session: known.remote_index,
            tag: 0,
            seq: known.out.next_seq as u32,
            ack: inn.next_seq as u32,
            stamp: stamp(now_ns),
            echo,
            credit: inn.credit_sent,
            flags,
            channel: 0,
            bytes: 0,
        }
    }

    fn write_bare(
        &mut self,
        peer: u32,
        kind: Kind,
        header: &mut Header,
        packet: &mut PacketHeader,
    ) {
        header.kind = kind;
        if kind == Kind::Close {
            header.channel = self.close_reason(peer);
        }
        let Peer { must, inn, out, .. } = &mut self.peers[peer as usize];
        if kind == Kind::Ping {
            out.ping = out.ping.checked_add(1).unwrap_or(1);
            out.ping_order = out.order;
            out.order = out.order.wrapping_add(1);
            header.channel = out.ping;
            self.counters.pings += 1;
        }
        if kind == Kind::Ack {
            (must.ack, must.answer) = (false, false);
            header.channel = inn.ping;
            if std::mem::take(&mut must.again) {
                header.flags |= FLAG_AGAIN;
            }
        }
        header.put(packet);
        if kind != Kind::Ack {
            return;
        }
        let inn = &self.peers[peer as usize].inn;
        let mut words = [0_u64; SACK_WORDS];
        let mut words_count = 0;
        let mut index = inn.early.front();
        while index != NONE {
            // A packet refused when its turn came has no bit.
            let ahead = self.early[index].seq - inn.next_seq;
            if let Some(bit) = ahead.checked_sub(1).map(|bit| bit as usize)
                && let Some(word) = words.get_mut(bit / 64)
            {
                *word |= 1 << (bit % 64);
                words_count = bit / 64 + 1;
            }
            index = self.early[index].link.next();
        }
        packet.put_u64s(&words[..words_count]);
    }

    fn write_flight(&self, peer: u32, flight: u32, header: &mut Header, packet: &mut PacketHeader) {
        let flight = &self.flights[flight];
        let send = &self.sends[flight.send];
        header.seq = flight.seq as u32;
        header.channel = send.channel as u8;
        header.kind = match send.class {
            Class::Eager if flight.is_first => Kind::Eager,
            Class::Eager => Kind::More,
            Class::Announced => Kind::Announce,
            Class::Done(_) => Kind::Done,
        };
        let is_eager_end = send.class == Class::Eager
            && flight.offset + u64::from(flight.payload_bytes) == send.length;
        // The sender waits for the acknowledgement: to release a buffer, for room in the window, or
        // after a timeout.
        let is_awaited = is_eager_end && send.context.is_some() && !send.is_sync;
        let out = &self.peers[peer as usize].out;
        if is_awaited || flight.is_repeated || 2 * out.under_way_bytes >= out.window.bytes() {
            header.flags |= FLAG_ACK_NOW;
        }
        if send.is_sync && send.class == Class::Eager {
            header.flags |= FLAG_SYNC;
        }
        if send.data.is_some() {
            header.flags |= FLAG_DATA;
        }
        let place = send.place.filter(|_| send.class == Class::Announced);
        if place.is_some() {
            header.flags |= FLAG_PLACED;
        }
        header.put(packet);
        match send.class {
            Class::Done(handle) => packet.put_u64s(&[handle]),
            Class::Eager if !flight.is_first => {}
            _ => {
                packet.put_u64s(&[send.bits, send.data.unwrap_or(0), send.length]);
                if send.is_sync || send.class == Class::Announced {
                    packet.put_u64s(&[self.sends.handle(flight.send)]);
                }
                if let Some(place) = place {
                    packet.put_u64s(&[place]);
                }
            }
        }
    }
}

/// Prints the address as 64 hexadecimal digits.
impl std::fmt::Display for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}
