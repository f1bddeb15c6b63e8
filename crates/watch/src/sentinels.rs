//! Sentinels' summaries over UDP: sent by a sentinel, heard by every other host.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use liveness::sentinel::{
    Belief, Believer, BelieverConfig, Opinion, SUMMARY_BYTES_MAX, Summary, Verdict,
};
use liveness::siphash::Key;
use liveness::states::{GatewayCounters, GatewayState, Watcher};

use crate::link::{WatchError, monotonic_ns, unix_us};
use crate::options::{AnnounceOptions, WatchOptions};

/// Most summaries received in a row.
const SUMMARIES_COUNT_MAX: usize = 256;

/// Receives the summaries of sentinels.
#[derive(Debug)]
pub(crate) struct Listening {
    socket: UdpSocket,
    believer: Believer,
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
        Ok(Some(Self { socket: bind(options.near, listen.port)?, believer }))
    }

    pub(crate) fn wakes_at(&self) -> Option<u64> {
        self.believer.wakes_at()
    }

    /// Takes all summaries that are there and hands over what is to be done.
    pub(crate) fn turn(&mut self, mut each: impl FnMut(Belief)) {
        let mut buffer = [0; SUMMARY_BYTES_MAX + 1];
        for _summary in 0..SUMMARIES_COUNT_MAX {
            let Ok((length, _from)) = self.socket.recv_from(&mut buffer) else { break };
            // What is refused is counted there.
            self.believer.handle(monotonic_ns(), &buffer[..length]).ok();
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
    sequence: u64,
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
            sequence: 0,
            before: vec![GatewayCounters::default(); options.gateways.len()],
        }))
    }

    pub(crate) fn wakes_at(&self) -> u64 {
        self.next_ns
    }

    /// Sends a summary if one is due, or at once if a gateway's state `has_changed`.
    pub(crate) fn turn(&mut self, watcher: &Watcher, has_changed: bool) {
        let now_ns = monotonic_ns();
        if now_ns < self.next_ns && !has_changed {
            return;
        }
        self.next_ns = now_ns + u64::from(self.options.interval_ms) * 1_000_000;
        self.sequence = unix_us().max(self.sequence + 1);
        let verdicts = self.before.iter_mut().enumerate();
        let summary = Summary {
            plan_id: self.plan_id,
            sentinel: self.options.number,
            sequence: self.sequence,
            interval_ms: self.options.interval_ms,
            verdicts: verdicts
                .filter_map(|(index, before)| verdict(watcher, index as u16, before))
                .collect(),
        };
        let bytes = summary.encode(&self.key);
        for host in &self.options.hosts {
            // Lost, as on a wire: hosts notice silence.
            self.socket.send_to(&bytes, host).ok();
        }
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
