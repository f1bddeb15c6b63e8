//! Sentinels' summaries over UDP: sent by a sentinel, heard by every other host.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use liveness::sentinel::{
    Belief, Believer, BelieverConfig, CHALLENGE_BYTES, Challenge, Opinion, RefusedSummaryError,
    SUMMARY_BYTES_MAX, Summary, Verdict,
};
use liveness::siphash::Key;
use liveness::states::{GatewayCounters, GatewayState, Watcher};

use crate::link::{WatchError, monotonic_ns, unguessable};
use crate::options::{AnnounceOptions, WatchOptions};

/// Most messages received in a row.
const MESSAGES_COUNT_MAX: usize = 256;

/// Receives the summaries of sentinels.
#[derive(Debug)]
pub(crate) struct Listening {
    socket: UdpSocket,
    believer: Believer,
    key: Key,
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Listening {
    pub(crate) fn open(options: &WatchOptions) -> Result<Option<Self>, WatchError> {
        let Some(listen) = &options.sentinels else { return Ok(None) };
        let believer = Believer::new(&BelieverConfig {
            key: options.key,
            plan_id: options.plan_id,
            gateways_count: u16::try_from(options.gateways.len()).unwrap_or(u16::MAX),
            sentinels: listen.numbers.clone(),
        });
        let (socket, key) = (bind(options.near, listen.port)?, options.key);
        Ok(Some(Self { socket, believer, key }))
    }

    pub(crate) fn wakes_at(&self) -> Option<u64> {
        self.believer.wakes_at()
    }

    /// Takes all summaries that are there and hands over what is to be done.
    pub(crate) fn turn(&mut self, mut each: impl FnMut(Belief)) {
        let mut buffer = [0; SUMMARY_BYTES_MAX + 1];
        for _summary in 0..MESSAGES_COUNT_MAX {
            let Ok((length, from)) = self.socket.recv_from(&mut buffer) else { break };
            let now_ns = monotonic_ns();
            // What is refused is counted there.
            let refused = self.believer.handle(now_ns, &buffer[..length]).err();
            let Some(RefusedSummaryError::OtherSession(sentinel)) = refused else { continue };
            if let Some(challenge) = self.believer.challenge(now_ns, sentinel, unguessable()) {
                self.socket.send_to(&challenge.encode(&self.key), from).ok();
            }
        }
        while let Some(belief) = self.believer.poll(monotonic_ns()) {
            each(belief);
        }
    }
}

/// Sends what this host knows to others.
#[derive(Debug)]
pub(crate) struct Announcing {
    socket: UdpSocket,
    options: AnnounceOptions,
    key: Key,
    plan_id: u64,
    next_ns: u64,
    session: u64,
    sequence: u64,
    /// Of each host, the nonce of its challenge that has not been answered, or 0.
    nonces: Vec<u64>,
    before: Vec<GatewayCounters>,
}

impl Announcing {
    pub(crate) fn open(options: &WatchOptions) -> Result<Option<Self>, WatchError> {
        let Some(announce) = &options.announce else { return Ok(None) };
        Ok(Some(Self {
            socket: bind(options.near, 0)?,
            options: announce.clone(),
            key: options.key,
            plan_id: options.plan_id,
            next_ns: 0,
            session: unguessable(),
            sequence: 0,
            nonces: vec![0; announce.hosts.len()],
            before: vec![GatewayCounters::default(); options.gateways.len()],
        }))
    }

    pub(crate) fn wakes_at(&self) -> u64 {
        self.next_ns
    }

    /// Sends a summary to all hosts if one is due, or at once if a gateway's state `has_changed`; otherwise to those that have
    /// challenged this sentinel.
    pub(crate) fn turn(&mut self, watcher: &Watcher, has_changed: bool) {
        let is_challenged = self.hear_challenges();
        let now_ns = monotonic_ns();
        let is_for_all = now_ns >= self.next_ns || has_changed;
        if !is_for_all && !is_challenged {
            return;
        }
        if is_for_all {
            self.next_ns = now_ns + u64::from(self.options.interval_ms) * 1_000_000;
        }
        self.sequence += 1;
        let verdicts = self.before.iter_mut().enumerate();
        let mut summary = Summary {
            plan_id: self.plan_id,
            sentinel: self.options.number,
            session: self.session,
            sequence: self.sequence,
            nonce: 0,
            interval_ms: self.options.interval_ms,
            verdicts: verdicts
                .filter_map(|(index, before)| verdict(watcher, index as u16, before))
                .collect(),
        };
        let to_all = summary.encode(&self.key);
        for (host, nonce) in self.options.hosts.iter().zip(&mut self.nonces) {
            // Lost, as on a wire: hosts notice silence.
            match std::mem::take(nonce) {
                0 if is_for_all => {
                    self.socket.send_to(&to_all, host).ok();
                }
                0 => {}
                asked => {
                    summary.nonce = asked;
                    self.socket.send_to(&summary.encode(&self.key), host).ok();
                }
            }
        }
    }

    /// Notes who is to be answered: hosts that are told anyway, at the addresses that the plan gives them, so that a
    /// challenge with a false source makes nobody else receive anything.
    fn hear_challenges(&mut self) -> bool {
        let mut buffer = [0; CHALLENGE_BYTES + 1];
        for _challenge in 0..MESSAGES_COUNT_MAX {
            let Ok((length, from)) = self.socket.recv_from(&mut buffer) else { break };
            let Ok(challenge) = Challenge::parse(&buffer[..length], &self.key) else { continue };
            if (challenge.plan_id, challenge.sentinel) != (self.plan_id, self.options.number) {
                continue;
            }
            let mut hosts = self.options.hosts.iter().zip(&mut self.nonces);
            if let Some((_, nonce)) = hosts.find(|(host, _)| host.ip() == from.ip()) {
                *nonce = challenge.nonce;
            }
        }
        self.nonces.iter().any(|nonce| *nonce != 0)
    }
}

/// What is said of a gateway; loss since the last summary.
fn verdict(watcher: &Watcher, gateway: u16, before: &mut GatewayCounters) -> Option<Verdict> {
    let counters = watcher.counters(gateway)?;
    let opinion = match watcher.state(gateway)? {
        GatewayState::Up | GatewayState::Suspect | GatewayState::Draining => Opinion::Works,
        GatewayState::Down | GatewayState::Held => Opinion::Failed,
        GatewayState::MtuHole => Opinion::MtuHole,
    };
    let sent = counters.rounds_count.saturating_sub(before.rounds_count);
    let answered = counters.answered_count.saturating_sub(before.answered_count);
    *before = counters;
    let loss = sent.saturating_sub(answered) * 100 / sent.max(1);
    Some(Verdict {
        gateway,
        opinion,
        loss_percent: u8::try_from(loss).unwrap_or(100),
        rtt_us: u32::try_from(counters.rtt_smoothed_ns / 1000).unwrap_or(u32::MAX),
    })
}

fn bind(address: IpAddr, port: u16) -> Result<UdpSocket, WatchError> {
    let taken = |source| WatchError::Port { port, address, source };
    let socket = UdpSocket::bind(SocketAddr::new(address, port)).map_err(taken)?;
    socket.set_nonblocking(true).map_err(taken)?;
    Ok(socket)
}
