//! How a session begins: `Hello`, `Cookie`, `Open`, `Accept`, tagged with the key of the end that
//! answers.
//!
//! A `Hello` leaves no state: its answer has a cookie that only this endpoint can compute, over the
//! contents of the `Hello` and the number of sessions with that peer so far. A recorded `Hello` or
//! `Open` therefore opens nothing, and a session in use ends only for an `Open` with a fresh
//! cookie, which its sender can obtain only by receiving at the address it claims. When both ends
//! initiate at the same time, the one with the smaller address continues and the other answers.

use super::{Machine, REPLIES_MAX, stamp};
use crate::peer::{Inbound, Must, Outbound, Peer, State};
use crate::tag::{HashKey, Key};
use crate::types::{Event, Failure};
use crate::wire::{
    FLAG_LATE, GREETING_BYTES, Greeting, Header, Kind, NO_SESSION, PacketHeader, u64_at,
};

impl Machine {
    /// Requests a session if there is none.
    pub(super) fn want_session(&mut self, now_ns: u64, peer: u32) {
        if self.peers[peer as usize].state != State::Idle {
            return;
        }
        let nonce = self.draw();
        let known = &mut self.peers[peer as usize];
        known.state = State::Greeting;
        known.nonce = nonce;
        known.cookie = 0;
        known.must.greet = true;
        known.due.answer_ns = now_ns + known.rtt.timeout_ns(self.config.ack_delay_ns);
        self.mark_ready(peer);
        self.arm(peer);
    }

    pub(super) fn handle_greeting(&mut self, now_ns: u64, header: &Header, packet: &[u8]) {
        let Some(greeting) = Greeting::parse(packet).filter(|_| packet.len() == GREETING_BYTES)
        else {
            self.counters.malformed_pkts += 1;
            return;
        };
        if greeting.to != self.config.address || greeting.from == self.config.address {
            self.counters.stray_pkts += 1;
            return;
        }
        // The end that answers has its own key, which the initiator knows.
        let is_question = matches!(header.kind, Kind::Hello | Kind::Open);
        let key = if is_question { Some(self.own_key) } else { self.key_of(header, &greeting) };
        let Some(key) = key else {
            self.counters.stray_pkts += 1;
            return;
        };
        if header.tag != tag_greeting(key, packet) {
            self.counters.forged_pkts += 1;
            return;
        }
        match header.kind {
            Kind::Hello => self.handle_hello(now_ns, header, &greeting),
            Kind::Cookie => self.handle_cookie(now_ns, header, &greeting),
            Kind::Open => self.handle_open(now_ns, header, &greeting),
            _ => self.handle_accept(now_ns, header, &greeting),
        }
    }

    /// The key of the peer that an answer claims to come from.
    fn key_of(&self, header: &Header, greeting: &Greeting) -> Option<Key> {
        let peer = self.peers.get(header.session as usize)?;
        (peer.address == greeting.from).then_some(peer.key)
    }

    /// The cookie for this greeting, given the number of sessions so far.
    fn cookie(&self, greeting: &Greeting) -> u64 {
        let sessions_count = self
            .by_address
            .get(&greeting.from)
            .map_or(0, |&index| self.peers[index as usize].sessions_count);
        let name: [u64; 4] =
            std::array::from_fn(|at| u64_at(&greeting.from.0, 8 * at).expect("32 bytes"));
        let [a, b, c, d] = name;
        let index = u64::from(greeting.index);
        let words = [6, a, b, c, d, greeting.instance, greeting.nonce, index, sessions_count];
        self.secret.prf(&words)
    }

    /// Whether this end has initiated a session too, and continues with its own request.
    fn insists(&self, peer: Option<u32>) -> bool {
        peer.map(|index| &self.peers[index as usize]).is_some_and(|peer| {
            matches!(peer.state, State::Greeting | State::Opening)
                && self.config.address < peer.address
        })
    }

    fn handle_hello(&mut self, now_ns: u64, header: &Header, greeting: &Greeting) {
        let peer = self.by_address.get(&greeting.from).copied();
        if self.insists(peer) || self.replies.len() >= REPLIES_MAX {
            return;
        }
        if let Some(peer) = peer.filter(|&index| self.has_nonce(index, greeting)) {
            let known = &mut self.peers[peer as usize];
            if greeting.cookie == 0 {
                // The session is open here; `Accept` was lost, or this is an old packet.
                known.must.accept = true;
                return self.mark_ready(peer);
            } else if greeting.cookie == known.cookie {
                // The peer only asks whether this end still has the session.
                known.must.ack = true;
                self.heard(now_ns, peer);
                return self.mark_ready(peer);
            }
        }
        let reply = Greeting { cookie: self.cookie(greeting), ..self.greeting(0, greeting) };
        self.replies.push_back((Kind::Cookie, greeting.index, header.stamp, reply));
    }

    /// Whether the session with this peer is open and began with this nonce.
    fn has_nonce(&self, peer: u32, greeting: &Greeting) -> bool {
        let peer = &self.peers[peer as usize];
        peer.state == State::Open
            && (peer.nonce, peer.instance) == (greeting.nonce, greeting.instance)
    }

    fn has_session(&self, peer: u32, greeting: &Greeting) -> bool {
        self.has_nonce(peer, greeting) && self.peers[peer as usize].cookie == greeting.cookie
    }

    /// An answer of this endpoint to `to`.
    fn greeting(&self, index: u32, to: &Greeting) -> Greeting {
        Greeting {
            from: self.config.address,
            to: to.from,
            instance: self.config.instance,
            nonce: to.nonce,
            cookie: to.cookie,
            index,
            endpoint: self.config.endpoint,
            packet_bytes_max: self.config.packet_bytes_max,
            way_in_bytes: self.way_in_bytes(),
        }
    }

    fn handle_cookie(&mut self, now_ns: u64, header: &Header, greeting: &Greeting) {
        let Some(known) = self.peers.get_mut(header.session as usize) else { return };
        let peer = header.session;
        if known.address != greeting.from || known.nonce != greeting.nonce {
            self.counters.stray_pkts += 1;
            return;
        }
        match known.state {
            State::Greeting => {
                let known = &mut self.peers[peer as usize];
                known.cookie = greeting.cookie;
                known.state = State::Opening;
                known.must.greet = true;
                known.remote_endpoint = greeting.endpoint;
                self.heard(now_ns, peer);
                self.sample_echo(now_ns, peer, header);
                self.mark_ready(peer);
            }
            // The peer was asked after the session began and answers as if there were none: it
            // restarted, or gave the session up.
            State::Open if (header.echo.wrapping_sub(known.begun) as i32) > 0 => {
                self.fail_peer(now_ns, peer, Failure::Restarted);
            }
            _ => {}
        }
    }

    fn handle_open(&mut self, now_ns: u64, header: &Header, greeting: &Greeting) {
        let mut peer = self.by_address.get(&greeting.from).copied();
        if let Some(peer) = peer.filter(|&index| self.has_session(index, greeting)) {
            self.peers[peer as usize].must.accept = true;
            self.mark_ready(peer);
            return;
        }
        if self.insists(peer) || greeting.cookie != self.cookie(greeting) {
            self.counters.stray_pkts += 1;
            return;
        }
        if peer.is_none() {
            let Ok(new) = self.insert_peer(greeting.from) else {
                self.counters.refused_pkts += 1;
                return;
            };
            self.events.push_back(Event::PeerAppeared(new));
            peer = Some(new.0);
        }
        let Some(peer) = peer else { return };
        if self.peers[peer as usize].state == State::Open {
            self.fail_peer(now_ns, peer, Failure::Restarted);
        }
        let known = &mut self.peers[peer as usize];
        known.nonce = greeting.nonce;
        known.cookie = greeting.cookie;
        known.must.accept = true;
        self.begin(now_ns, peer, greeting, header.credit, false);
        self.sample_echo(now_ns, peer, header);
    }

    fn handle_accept(&mut self, now_ns: u64, header: &Header, greeting: &Greeting) {
        let Some(known) = self.peers.get(header.session as usize) else { return };
        // The nonce is that of this request; the cookie is the one the session began with at the
        // peer.
        let is_awaited = matches!(known.state, State::Greeting | State::Opening)
            && (known.address, known.nonce) == (greeting.from, greeting.nonce);
        if is_awaited {
            self.peers[header.session as usize].cookie = greeting.cookie;
            self.begin(now_ns, header.session, greeting, header.credit, true);
            self.sample_echo(now_ns, header.session, header);
        }
    }

    /// Opens the session: both ends have the keys. Queued messages can be sent now.
    fn begin(
        &mut self,
        now_ns: u64,
        peer: u32,
        greeting: &Greeting,
        credit_bytes: u32,
        is_asking: bool,
    ) {
        let window = self.config.eager_window_bytes();
        let own_key = self.own_key;
        let limit_bytes = self.packet_bytes_max(peer);
        let known = &mut self.peers[peer as usize];
        let context = [known.nonce, known.cookie];
        let key = if is_asking { known.key } else { own_key };
        let session = key.derive(3, &[]);
        let [asks, answers] = [7, 8].map(|label| session.derive(label, &context));
        known.hash_key = (key != own_key).then(|| HashKey::new(key));
        (known.send_key, known.receive_key) =
            if is_asking { (asks, answers) } else { (answers, asks) };
        known.state = State::Open;
        known.begun = stamp(now_ns);
        known.sessions_count += 1;
        known.instance = greeting.instance;
        known.remote_index = greeting.index;
        known.remote_endpoint = greeting.endpoint;
        // A correct peer never sends less than 256.
        known.packet_bytes_max = greeting.packet_bytes_max.max(256).min(limit_bytes);
        restart(known, window, credit_bytes);
        if greeting.way_in_bytes > 0 {
            known.out.window.limit(greeting.way_in_bytes.into());
        }
        self.heard(now_ns, peer);
        self.mark_ready(peer);
    }

    /// The capacity of the receive path, for greetings; capped at the largest 32-bit number.
    fn way_in_bytes(&self) -> u32 {
        u32::try_from(self.config.pull_bytes_max).unwrap_or(u32::MAX)
    }

    /// Opens an endpoint's session with itself; the transport loops its packets back.
    pub(super) fn begin_with_itself(&mut self, peer: u32) {
        let window = self.config.eager_window_bytes();
        let nonce = self.draw();
        let key = self.secret.derive(9, &[nonce]);
        let known = &mut self.peers[peer as usize];
        known.nonce = nonce;
        (known.send_key, known.receive_key) = (key, key);
        known.state = State::Open;
        known.sessions_count += 1;
        known.instance = self.config.instance;
        known.remote_index = peer;
        known.remote_endpoint = self.config.endpoint;
        known.packet_bytes_max = self.config.packet_bytes_max;
        restart(known, window, window);
    }

    /// The header of a greeting to a peer, in its present state.
    pub(super) fn plan_greeting(&mut self, now_ns: u64, peer: u32, kind: Kind) -> PacketHeader {
        let known = &self.peers[peer as usize];
        let session = if kind == Kind::Accept { known.remote_index } else { NO_SESSION };
        let greeting = Greeting {
            from: self.config.address,
            to: known.address,
            instance: self.config.instance,
            nonce: known.nonce,
            cookie: known.cookie,
            index: peer,
            endpoint: self.config.endpoint,
            packet_bytes_max: self.packet_bytes_max(peer),
            way_in_bytes: self.way_in_bytes(),
        };
        let (endpoint, echo) = (known.remote_endpoint, known.inn.stamp);
        let key = if kind == Kind::Accept { self.own_key } else { known.key };
        self.write_greeting(now_ns, (kind, key), session, endpoint, echo, &greeting)
    }

    pub(super) fn write_greeting(
        &self,
        now_ns: u64,
        (kind, key): (Kind, Key),
        session: u32,
        endpoint: u16,
        echo: u32,
        greeting: &Greeting,
    ) -> PacketHeader {
        let header = Header {
            kind,
            endpoint,
            session,
            tag: 0,
            seq: 0,
            ack: 0,
            stamp: stamp(now_ns),
            echo,
            credit: self.config.eager_window_bytes(),
            flags: if self.is_behind { FLAG_LATE } else { 0 },
            channel: 0,
            bytes: GREETING_BYTES as u16,
        };
        let mut packet = PacketHeader::new();
        header.put(&mut packet);
        greeting.put(&mut packet);
        let tag = tag_greeting(key, packet.bytes());
        packet.set_tag(tag);
        packet
    }
}

fn tag_greeting(key: Key, packet: &[u8]) -> u64 {
    crate::tag::greeting_tag(key.derive(3, &[]), packet)
}

/// Resets what belongs to a session; messages queued for the next one stay.
fn restart(peer: &mut Peer, window_bytes: u32, credit_bytes: u32) {
    let (queue, sends) = (peer.out.queue, peer.out.sends);
    peer.out = Outbound::new(u64::from(peer.packet_bytes_max), credit_bytes);
    (peer.out.queue, peer.out.sends) = (queue, sends);
    peer.inn = Inbound::new(window_bytes);
    peer.due = crate::peer::Due { keepalive_ns: peer.due.keepalive_ns, ..Default::default() };
    peer.must = Must { accept: peer.must.accept, ..Must::default() };
}
