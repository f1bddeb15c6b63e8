//! One session: states, timers, poll sequences (RFC 5880 sections 6.2, 6.5 and 6.8).

use std::collections::VecDeque;

use serde::Serialize;
use stats::Random;
use thiserror::Error;

use super::packet::{ControlPacket, Diagnostic, State};
use crate::steady::SteadyClock;

/// A session that is not Up sends no more often than this (RFC 5880 section 6.8.3).
const SLOW_TX_US: u32 = 1_000_000;

/// Which end starts the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends from the start.
    Active,
    /// Sends once the peer has been heard.
    Passive,
}

/// What a session is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionConfig {
    /// Which end begins; one of the two must be active.
    pub role: Role,
    /// The interval to send at, microseconds, at least 1; the peer may demand a longer one.
    pub desired_min_tx_us: u32,
    /// The shortest interval to receive at, microseconds, at least 1.
    pub required_min_rx_us: u32,
    /// So many packets missed in a row take the peer's session down; at least 1.
    pub detect_multiplier: u8,
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SessionConfigError {
    /// An interval of 0.
    #[error("a BFD interval must be at least 1 microsecond")]
    ZeroInterval,
    /// A multiplier of 0.
    #[error("a BFD detection multiplier must be at least 1")]
    ZeroMultiplier,
}

impl SessionConfig {
    pub(super) fn validate(&self) -> Result<(), SessionConfigError> {
        if self.desired_min_tx_us == 0 || self.required_min_rx_us == 0 {
            return Err(SessionConfigError::ZeroInterval);
        }
        if self.detect_multiplier == 0 {
            return Err(SessionConfigError::ZeroMultiplier);
        }
        Ok(())
    }
}

/// A session has changed its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StateChange {
    /// When, on the session's clock.
    pub at_ns: u64,
    /// Former state.
    pub from: State,
    /// New state.
    pub to: State,
    /// Why, by this end.
    pub diagnostic: Diagnostic,
    /// Why the peer's session changed last, by the peer.
    pub remote_diagnostic: Diagnostic,
}

/// What the peer's last packet said.
#[derive(Debug, Clone, Copy)]
struct Remote {
    state: State,
    diagnostic: Diagnostic,
    discriminator: u32,
    desired_min_tx_us: u32,
    required_min_rx_us: u32,
    detect_multiplier: u8,
    is_demand: bool,
}

/// A sequence of packets with the poll bit, until one with the final bit answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Poll {
    Idle,
    Running,
    /// The intervals changed once more: another sequence follows.
    RunningThenAgain,
}

/// State machine of one session.
#[derive(Debug, Clone)]
pub struct Session {
    config: SessionConfig,
    discriminator: u32,
    clock: SteadyClock,
    random: Random,
    state: State,
    diagnostic: Diagnostic,
    remote: Remote,
    heard_ns: Option<u64>,
    /// Intervals in force while a poll sequence announces others, microseconds.
    sending_tx_us: u32,
    detecting_rx_us: u32,
    poll: Poll,
    is_final_due: bool,
    /// The last packet but for its poll and final bits, and when it was sent.
    sent: Option<(u64, ControlPacket)>,
    /// Interval that the next periodic packet was timed by, and when it is due.
    next: Option<(u64, u64)>,
    changes: VecDeque<StateChange>,
}

impl Session {
    /// A session that is Down and sends at once if it is active. `discriminator` must not be 0 and must be
    /// this host's only one of that number; `seed` decides the jitter.
    ///
    /// # Errors
    /// The configuration makes no sense.
    pub fn new(
        config: SessionConfig,
        discriminator: u32,
        seed: u64,
    ) -> Result<Self, SessionConfigError> {
        config.validate()?;
        Ok(Self {
            discriminator: discriminator.max(1),
            clock: SteadyClock::default(),
            random: Random::from_seed(seed),
            state: State::Down,
            diagnostic: Diagnostic::None,
            remote: Remote {
                state: State::Down,
                diagnostic: Diagnostic::None,
                discriminator: 0,
                desired_min_tx_us: 0,
                required_min_rx_us: 1,
                detect_multiplier: 0,
                is_demand: false,
            },
            heard_ns: None,
            sending_tx_us: config.desired_min_tx_us,
            detecting_rx_us: config.required_min_rx_us,
            poll: Poll::Idle,
            is_final_due: false,
            sent: None,
            next: None,
            changes: VecDeque::new(),
            config,
        })
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Its discriminator.
    #[must_use]
    pub fn discriminator(&self) -> u32 {
        self.discriminator
    }

    /// State of the peer's session, as the peer said last.
    #[must_use]
    pub fn remote_state(&self) -> State {
        self.remote.state
    }

    /// Without a packet for so long the session goes Down; `None` before the peer has been heard.
    #[must_use]
    pub fn detection_ns(&self) -> Option<u64> {
        self.heard_ns?;
        let interval_us = self.detecting_rx_us.max(self.remote.desired_min_tx_us);
        Some(u64::from(self.remote.detect_multiplier) * u64::from(interval_us) * 1000)
    }

    /// The interval between periodic packets before jitter; `None` where none are to be sent.
    #[must_use]
    pub fn interval_ns(&self) -> Option<u64> {
        let is_silent = (self.config.role == Role::Passive && self.remote.discriminator == 0)
            || self.remote.required_min_rx_us == 0
            || self.is_demanded_off();
        let own_us = if self.state == State::Up {
            self.sending_tx_us
        } else {
            self.sending_tx_us.max(SLOW_TX_US)
        };
        (!is_silent).then(|| u64::from(own_us.max(self.remote.required_min_rx_us)) * 1000)
    }

    fn is_demanded_off(&self) -> bool {
        let both_up = self.state == State::Up && self.remote.state == State::Up;
        self.remote.is_demand && both_up && self.poll == Poll::Idle
    }

    /// The next change of state.
    pub fn poll_change(&mut self) -> Option<StateChange> {
        self.changes.pop_front()
    }

    /// Takes a packet that has been found to be for this session ([`Sessions`](super::Sessions)).
    pub fn handle_packet(&mut self, now_ns: u64, packet: &ControlPacket) {
        let now_ns = self.clock.advance(now_ns).0;
        // A packet that comes after the detection time comes too late.
        self.expire(now_ns);
        self.remote = Remote {
            state: packet.state,
            diagnostic: packet.diagnostic,
            discriminator: packet.my_discriminator,
            desired_min_tx_us: packet.desired_min_tx_us,
            required_min_rx_us: packet.required_min_rx_us,
            detect_multiplier: packet.detect_multiplier,
            is_demand: packet.is_demand,
        };
        if packet.is_final {
            self.finish_poll();
        }
        if self.state == State::AdminDown {
            return;
        }
        self.heard_ns = Some(now_ns);
        match (self.state, packet.state) {
            (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => {
                self.enter(now_ns, State::Down, Diagnostic::NeighborSignaledDown);
            }
            (State::Down, State::Down) => self.enter(now_ns, State::Init, Diagnostic::None),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.enter(now_ns, State::Up, Diagnostic::None);
            }
            _unchanged => {}
        }
        self.is_final_due |= packet.is_poll;
        self.retime(now_ns);
    }

    /// Takes the session down, and tells the peer.
    pub fn take_down(&mut self, now_ns: u64) {
        let now_ns = self.clock.advance(now_ns).0;
        if self.state != State::AdminDown {
            self.enter(now_ns, State::AdminDown, Diagnostic::AdministrativelyDown);
            self.poll = Poll::Idle;
            self.is_final_due = false;
            self.retime(now_ns);
        }
    }

    /// Ends [`take_down`](Self::take_down): the session is Down and can come up.
    pub fn bring_up(&mut self, now_ns: u64) {
        let now_ns = self.clock.advance(now_ns).0;
        if self.state == State::AdminDown {
            self.enter(now_ns, State::Down, Diagnostic::None);
            self.heard_ns = None;
            self.retime(now_ns);
        }
    }

    /// Changes the intervals, microseconds. While the session is Up, a longer sending interval and a shorter
    /// receiving one take effect when the peer has confirmed them.
    ///
    /// # Errors
    /// An interval of 0.
    pub fn set_intervals(
        &mut self,
        now_ns: u64,
        desired_min_tx_us: u32,
        required_min_rx_us: u32,
    ) -> Result<(), SessionConfigError> {
        let config = SessionConfig { desired_min_tx_us, required_min_rx_us, ..self.config };
        config.validate()?;
        if config == self.config {
            return Ok(());
        }
        let now_ns = self.clock.advance(now_ns).0;
        self.config = config;
        if self.state == State::Up {
            self.sending_tx_us = self.sending_tx_us.min(desired_min_tx_us);
            self.detecting_rx_us = self.detecting_rx_us.max(required_min_rx_us);
            self.start_poll();
        } else {
            self.apply_intervals();
        }
        self.retime(now_ns);
        Ok(())
    }

    /// When [`poll`](Self::poll) has something to do next, unless something is handled before;
    /// `None`: never.
    #[must_use]
    pub fn wakes_at(&self) -> Option<u64> {
        if self.is_final_due || self.has_news() {
            return Some(0);
        }
        let send_ns = self.next.map(|(_, at_ns)| at_ns);
        let steady_ns = [send_ns, self.expires_ns()].into_iter().flatten().min()?;
        Some(self.clock.raw(steady_ns))
    }

    /// The next packet to send now, if any; to be called until there is none.
    pub fn poll(&mut self, now_ns: u64) -> Option<ControlPacket> {
        let now_ns = self.clock.advance(now_ns).0;
        self.expire(now_ns);
        if std::mem::take(&mut self.is_final_due) {
            // The peer's timers run by what it was told last: the answer tells everything, whatever is due.
            let packet = self.packet();
            self.sent = Some((now_ns, packet));
            self.retime_from(now_ns);
            return Some(ControlPacket { is_final: true, ..packet });
        }
        let is_due = self.next.is_some_and(|(_, at_ns)| at_ns <= now_ns);
        if !is_due && !self.has_news() {
            return None;
        }
        let packet = self.packet();
        self.sent = Some((now_ns, packet));
        self.retime_from(now_ns);
        Some(ControlPacket { is_poll: self.poll != Poll::Idle, ..packet })
    }

    /// Whether the peer should hear at once what has changed (RFC 5880 section 6.8.7), above all that
    /// this end is Up: otherwise it would wait up to a second, the interval from before.
    fn has_news(&self) -> bool {
        let is_news = self.sent.is_none_or(|(_, sent)| sent != self.packet());
        is_news && self.interval_ns().is_some()
    }

    fn packet(&self) -> ControlPacket {
        let desired_min_tx_us = if self.state == State::Up {
            self.config.desired_min_tx_us
        } else {
            self.config.desired_min_tx_us.max(SLOW_TX_US)
        };
        ControlPacket {
            diagnostic: self.diagnostic,
            state: self.state,
            is_poll: false,
            is_final: false,
            is_control_plane_independent: false,
            is_demand: false,
            detect_multiplier: self.config.detect_multiplier,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_min_tx_us,
            required_min_rx_us: self.config.required_min_rx_us,
            required_min_echo_rx_us: 0,
        }
    }

    fn enter(&mut self, now_ns: u64, to: State, diagnostic: Diagnostic) {
        let from = std::mem::replace(&mut self.state, to);
        self.diagnostic = diagnostic;
        let remote_diagnostic = self.remote.diagnostic;
        let at_ns = self.clock.raw(now_ns);
        self.changes.push_back(StateChange { at_ns, from, to, diagnostic, remote_diagnostic });
        if to == State::Up {
            // The interval has changed from a second to what was configured.
            self.start_poll();
        } else {
            self.apply_intervals();
            self.poll = Poll::Idle;
        }
    }

    fn start_poll(&mut self) {
        self.poll = match self.poll {
            Poll::Idle => Poll::Running,
            Poll::Running | Poll::RunningThenAgain => Poll::RunningThenAgain,
        };
    }

    fn finish_poll(&mut self) {
        match self.poll {
            Poll::Idle => {}
            Poll::RunningThenAgain => self.poll = Poll::Running,
            Poll::Running => {
                self.poll = Poll::Idle;
                self.apply_intervals();
            }
        }
    }

    fn apply_intervals(&mut self) {
        self.sending_tx_us = self.config.desired_min_tx_us;
        self.detecting_rx_us = self.config.required_min_rx_us;
    }

    fn expires_ns(&self) -> Option<u64> {
        Some(self.heard_ns?.saturating_add(self.detection_ns()?))
    }

    fn expire(&mut self, now_ns: u64) {
        if self.expires_ns().is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        self.heard_ns = None;
        self.remote.discriminator = 0;
        if matches!(self.state, State::Init | State::Up) {
            self.enter(now_ns, State::Down, Diagnostic::DetectionTimeExpired);
        }
        self.retime(now_ns);
    }

    /// Times the next periodic packet anew if the interval has changed: a peer that has just asked for a
    /// shorter one does not wait for the end of the longer one.
    fn retime(&mut self, now_ns: u64) {
        let interval_ns = self.interval_ns();
        if interval_ns != self.next.map(|(interval_ns, _)| interval_ns) {
            self.retime_from(self.sent.map_or(now_ns, |(at_ns, _)| at_ns));
        }
    }

    fn retime_from(&mut self, start_ns: u64) {
        self.next = self.interval_ns().map(|interval_ns| {
            let most = if self.config.detect_multiplier == 1 { 0.15 } else { 0.25 };
            let share = 0.75 + most * self.random.unit();
            (interval_ns, start_ns.saturating_add((interval_ns as f64 * share) as u64))
        });
    }
}
