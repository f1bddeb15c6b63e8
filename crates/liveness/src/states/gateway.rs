//! What is known about one gateway, and what follows from it.

use std::collections::VecDeque;

use super::config::{Inputs, WatchConfig};
use super::event::{BfdInput, Cause, GatewayState};
use super::rounds::Rounds;

/// Full-size probes that are remembered.
const FULL_COUNT_MAX: usize = 64;

/// Sums since the watcher began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatewayCounters {
    /// Rounds sent through it.
    pub rounds_count: u64,
    /// Probes answered.
    pub answered_count: u64,
    /// Full-size probes sent.
    pub full_count: u64,
    /// Full-size probes answered.
    pub full_answered_count: u64,
    /// Times it failed.
    pub failures_count: u64,
    /// Round trip of the latest answer to a small probe, nanoseconds.
    pub rtt_ns: u64,
    /// Moving average of these, each new one with a weight of 1/8.
    pub rtt_smoothed_ns: u64,
}

/// What the evidence says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Good,
    Suspect,
    /// Healthy again, and held down.
    Damped,
    Failed(Cause),
}

/// What the gateway's BFD session reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BfdEvidence {
    /// The session has never been up: it says nothing.
    Silent,
    Up,
    Failed,
}

#[derive(Debug, Clone)]
pub(super) struct Gateway {
    pub(super) is_probed: bool,
    pub(super) health: Health,
    pub(super) is_used: bool,
    pub(super) is_drained: bool,
    /// The gateway itself says that it is going.
    pub(super) is_leaving: bool,
    pub(super) bfd: BfdEvidence,
    /// What BFD said last; a session begins down, and says nothing new by staying so.
    pub(super) bfd_said: BfdInput,
    pub(super) is_reported: bool,
    pub(super) counters: GatewayCounters,
    /// What was said of it last.
    pub(super) shown: GatewayState,
    pub(super) failed_ns: u64,
    pub(super) missed_count: u32,
    mtu_bytes: Option<u32>,
    /// Newest round answered, and whether each of the 64 rounds before the newest sent was.
    answered: u64,
    answered_bits: u64,
    streak_count: u32,
    full_sent: VecDeque<u64>,
    full_answered: u64,
    full_missed_count: u32,
    full_streak_count: u32,
    unreachable: u64,
    flaps_count: u32,
    is_penalised: bool,
    ready_ns: u64,
    pub(super) hold_down_ns: u64,
    good_ns: u64,
}

impl Gateway {
    pub(super) fn new(inputs: Inputs) -> Self {
        let health = if inputs.was_down { Health::Failed(Cause::Before) } else { Health::Good };
        Self {
            is_probed: inputs.is_probed,
            health,
            is_used: !inputs.was_down,
            is_drained: false,
            is_leaving: false,
            bfd: BfdEvidence::Silent,
            bfd_said: BfdInput::Down,
            is_reported: false,
            counters: GatewayCounters::default(),
            shown: if inputs.was_down { GatewayState::Down } else { GatewayState::Up },
            failed_ns: 0,
            missed_count: 0,
            mtu_bytes: None,
            answered: 0,
            answered_bits: 0,
            streak_count: 0,
            full_sent: VecDeque::with_capacity(FULL_COUNT_MAX),
            full_answered: 0,
            full_missed_count: 0,
            full_streak_count: 0,
            unreachable: 0,
            flaps_count: 0,
            is_penalised: inputs.was_down,
            ready_ns: 0,
            hold_down_ns: 0,
            good_ns: 0,
        }
    }

    /// Notes that a round begins; says how many full-size probes go with it: two once one is unanswered, or
    /// random loss would soon be taken for a hole.
    pub(super) fn begin(&mut self, round: u64, index: usize, config: &WatchConfig) -> u8 {
        self.answered_bits <<= 1;
        self.counters.rounds_count += 1;
        if config.full_every == 0 {
            return 0;
        }
        let is_due = (round + index as u64).is_multiple_of(u64::from(config.full_every));
        let is_open = self.full_sent.back().is_some_and(|last| *last > self.full_answered);
        let is_failed = matches!(self.health, Health::Failed(_) | Health::Damped);
        if !(is_due || is_open || is_failed) {
            return 0;
        }
        if self.full_sent.len() == FULL_COUNT_MAX {
            self.full_sent.pop_front();
        }
        self.full_sent.push_back(round);
        let count = if is_open && !is_failed { 2 } else { 1 };
        self.counters.full_count += u64::from(count);
        count
    }

    /// A probe of a round has not been answered.
    pub(super) fn is_open(&self, round: u64) -> bool {
        let is_full_open = self.full_sent.back() == Some(&round) && self.full_answered < round;
        self.is_probed && (self.answered < round || is_full_open)
    }

    pub(super) fn answer_small(&mut self, round: u64, newest: u64, rtt_ns: u64) {
        let age = newest.saturating_sub(round);
        let bit = if age < 64 { 1 << age } else { 0 };
        if self.answered_bits & bit == 0 {
            self.answered_bits |= bit;
            self.counters.answered_count += 1;
        }
        let smoothed_ns = self.counters.rtt_smoothed_ns;
        self.counters.rtt_ns = rtt_ns;
        self.counters.rtt_smoothed_ns =
            if smoothed_ns == 0 { rtt_ns } else { smoothed_ns - smoothed_ns / 8 + rtt_ns / 8 };
        if round > self.answered {
            self.answered = round;
            self.streak_count = self.streak_count.saturating_add(1);
        }
    }

    pub(super) fn answer_full(&mut self, round: u64) {
        self.counters.full_answered_count += 1;
        self.mtu_bytes = None;
        self.settle_full(round);
    }

    fn settle_full(&mut self, round: u64) {
        if round > self.full_answered {
            self.full_answered = round;
            self.full_streak_count = self.full_streak_count.saturating_add(1);
        }
    }

    /// A router said that a full-size probe does not fit: no hole. Whether it said so with another MTU before.
    pub(super) fn too_big(&mut self, round: u64, mtu_bytes: u32) -> bool {
        self.settle_full(round);
        self.mtu_bytes.replace(mtu_bytes) != Some(mtu_bytes)
    }

    pub(super) fn unreachable(&mut self, round: u64) {
        self.unreachable = self.unreachable.max(round);
    }

    /// Draws the conclusions of the evidence at `now_ns`.
    pub(super) fn evaluate(&mut self, now_ns: u64, rounds: &Rounds, config: &WatchConfig) {
        self.count_missed(now_ns, rounds, config);
        let failing = self.failing(config);
        match (self.health, failing) {
            (Health::Good | Health::Suspect | Health::Damped, Some(cause)) => {
                if self.health != Health::Damped {
                    self.is_penalised = false;
                }
                self.fail(now_ns, cause);
            }
            (Health::Failed(known), Some(cause)) => {
                // That small probes are answered again while full-size ones are not is another failure.
                let is_changed = (known == Cause::MtuHole) != (cause == Cause::MtuHole);
                if is_changed && (cause != Cause::MtuHole || self.streak_count > 0) {
                    self.health = Health::Failed(cause);
                }
            }
            (Health::Failed(_), None) if self.has_recovered(config) => {
                // What is in use needs no damping.
                self.health = if self.is_used || now_ns >= self.ready_ns {
                    Health::Good
                } else {
                    Health::Damped
                };
                self.good_ns = now_ns;
            }
            (Health::Damped, None) if now_ns >= self.ready_ns => {
                self.health = Health::Good;
                self.good_ns = now_ns;
            }
            (Health::Good | Health::Suspect, None) => {
                let is_suspect = self.missed_count >= (config.multiplier - 1).max(1)
                    || (self.is_called_unreachable() && self.missed_count > 0);
                self.health = if is_suspect { Health::Suspect } else { Health::Good };
                if now_ns.saturating_sub(self.good_ns) >= config.stable_ns {
                    self.flaps_count = 0;
                }
            }
            (Health::Failed(_) | Health::Damped, None) => {}
        }
        if matches!(self.health, Health::Good | Health::Suspect) {
            self.hold_down_ns = 0;
        }
    }

    fn count_missed(&mut self, now_ns: u64, rounds: &Rounds, config: &WatchConfig) {
        if !self.is_probed {
            return;
        }
        self.missed_count = rounds.over_after(self.answered, now_ns, config.timeout_ns);
        if self.missed_count > 0 {
            self.streak_count = 0;
        }
        // A full-size probe that was lost together with the small one of its round proves nothing.
        let newest = rounds.newest();
        let is_missed = |round: &&u64| {
            let age = newest.saturating_sub(**round);
            let was_answered = age < 64 && self.answered_bits >> age & 1 == 1;
            was_answered && rounds.is_over(**round, now_ns, config.timeout_ns)
        };
        let after = self.full_sent.iter().rev().take_while(|round| **round > self.full_answered);
        let count = after.filter(is_missed).count();
        self.full_missed_count = u32::try_from(count).unwrap_or(u32::MAX);
        if self.full_missed_count > 0 {
            self.full_streak_count = 0;
        }
    }

    /// Nothing is held against it.
    pub(super) fn is_well(&self) -> bool {
        self.health == Health::Good
            && self.missed_count == 0
            && self.full_missed_count == 0
            && !self.is_called_unreachable()
    }

    /// It has failed by missed rounds, and has answered every one since.
    pub(super) fn is_returning(&self) -> bool {
        let is_missed = matches!(self.health, Health::Failed(Cause::Probes | Cause::Unreachable));
        is_missed && self.missed_count == 0 && self.streak_count > 0
    }

    /// It has answered a round after this one, or is not expected to.
    pub(super) fn has_answered_since(&self, round: u64) -> bool {
        let is_expected = self.is_probed && matches!(self.health, Health::Good | Health::Suspect);
        !is_expected || self.answered > round
    }

    /// It is about to fail.
    pub(super) fn is_doubtful(&self) -> bool {
        let is_missed = self.missed_count > 0 || self.full_missed_count > 0;
        is_missed && matches!(self.health, Health::Good | Health::Suspect)
    }

    fn is_called_unreachable(&self) -> bool {
        self.unreachable > self.answered
    }

    fn failing(&self, config: &WatchConfig) -> Option<Cause> {
        if self.missed_count >= config.multiplier {
            Some(Cause::Probes)
        } else if self.is_called_unreachable() && self.missed_count >= 2 {
            Some(Cause::Unreachable)
        } else if self.bfd == BfdEvidence::Failed {
            Some(Cause::Bfd)
        } else if self.is_reported {
            Some(Cause::Reported)
        } else if self.full_missed_count >= config.multiplier {
            Some(Cause::MtuHole)
        } else {
            None
        }
    }

    fn fail(&mut self, now_ns: u64, cause: Cause) {
        self.health = Health::Failed(cause);
        self.failed_ns = now_ns;
        self.counters.failures_count += 1;
        self.streak_count = 0;
        self.full_streak_count = 0;
    }

    fn has_recovered(&self, config: &WatchConfig) -> bool {
        let needed = match self.health {
            Health::Failed(Cause::MtuHole) => config.up_after,
            _other => 1,
        };
        let is_answered = self.streak_count >= config.up_after
            && (config.full_every == 0 || self.full_streak_count >= needed);
        !self.is_probed || (is_answered && self.missed_count == 0)
    }

    /// Goes out of use for having failed: the hold-down begins, once for each failure.
    pub(super) fn penalise(&mut self, now_ns: u64, config: &WatchConfig) {
        if self.is_penalised {
            return;
        }
        self.is_penalised = true;
        let doublings = self.flaps_count.min(32);
        let hold_down_ns = config.hold_down_ns.saturating_mul(1 << doublings);
        self.hold_down_ns = hold_down_ns.min(config.hold_down_max_ns.max(config.hold_down_ns));
        self.ready_ns = now_ns.saturating_add(self.hold_down_ns);
        self.flaps_count = self.flaps_count.saturating_add(1);
    }

    /// When its hold-down ends, if it waits for nothing else.
    pub(super) fn ready_ns(&self) -> Option<u64> {
        (self.health == Health::Damped).then_some(self.ready_ns)
    }

    pub(super) fn cut_hold_down_short(&mut self, now_ns: u64) {
        self.health = Health::Good;
        self.good_ns = now_ns;
        self.hold_down_ns = 0;
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_drained || self.is_leaving
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        match self.health {
            Health::Failed(cause) => Some(cause),
            _healthy => None,
        }
    }

    pub(super) fn state(&self) -> GatewayState {
        match self.health {
            Health::Failed(_) if self.is_used => GatewayState::Held,
            Health::Failed(Cause::MtuHole) => GatewayState::MtuHole,
            Health::Failed(_) | Health::Damped => GatewayState::Down,
            Health::Good | Health::Suspect if self.is_draining() => GatewayState::Draining,
            Health::Suspect => GatewayState::Suspect,
            Health::Good => GatewayState::Up,
        }
    }
}
