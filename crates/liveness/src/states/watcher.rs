//! The watcher: rounds of probes out, evidence in, decisions out.

use std::collections::VecDeque;

use thiserror::Error;

use super::config::{Inputs, WatchConfig, WatchConfigError};
use super::event::{BfdInput, Event, EventKind, GatewayState};
use super::gateway::{BfdEvidence, Gateway, GatewayCounters};
use super::rounds::Rounds;
use super::selection::{self, Tier};
use crate::probe::{Answer, SizeClass, Unreachable, UnreachableKind};
use crate::steady::SteadyClock;

/// Small probes of a round through a gateway that is suspect: at 1 % of random loss the last of three rounds
/// is then missed ten thousand times more rarely, and detection takes no longer.
const SUSPECT_PROBES_COUNT: u8 = 3;

/// So many times in a row missed rounds are put down to processors that were taken away: a failure that happens at the
/// same time is found after as many more times `multiplier` rounds at most.
const STARVED_COUNT_MAX: u8 = 2;

/// A probe to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Index of the gateway to probe through.
    pub gateway: u16,
    /// Size of the probe.
    pub size: SizeClass,
    /// To be handed back with the answer.
    pub round: u64,
}

/// Work for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send a probe.
    Ask(Ask),
    /// Say what has happened; on [`EventKind::Use`] move the routes.
    Event(Event),
}

/// Why a gateway cannot be drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DrainError {
    /// No other healthy gateway would be left.
    #[error("gateway {0} is the last one in use: bring another up before draining it")]
    Last(u16),
    /// There is no such gateway.
    #[error("there is no gateway {0}")]
    Unknown(u16),
}

/// Watches the gateways between this host and a far one.
#[derive(Debug, Clone)]
pub struct Watcher {
    config: WatchConfig,
    /// Interval while all is well, if longer: sentinels watch as well.
    relaxed_ns: Option<u64>,
    clock: SteadyClock,
    gateways: Vec<Gateway>,
    rounds: Rounds,
    next_round_ns: Option<u64>,
    /// Newest round that was looked at after its timeout.
    checked_round: u64,
    has_carrier: bool,
    /// Times in a row that missed rounds were put down to processors that were taken away.
    starved_count: u8,
    /// The newest round then.
    starved_round: u64,
    tier: Tier,
    is_changed: bool,
    outputs: VecDeque<Output>,
}

impl Watcher {
    /// A watcher whose gateways are up unless they were down before. Its first round is due at once.
    ///
    /// # Errors
    /// The configuration makes no sense.
    pub fn new(config: WatchConfig, gateways: &[Inputs]) -> Result<Self, WatchConfigError> {
        config.validate()?;
        if gateways.is_empty() || gateways.len() > usize::from(u16::MAX) {
            return Err(WatchConfigError::Gateways(gateways.len()));
        }
        let mut gateways: Vec<Gateway> = gateways.iter().copied().map(Gateway::new).collect();
        if gateways.iter().all(|gateway| !gateway.is_used) {
            gateways.iter_mut().for_each(|gateway| gateway.is_used = true);
        }
        Ok(Self {
            config,
            relaxed_ns: None,
            clock: SteadyClock::default(),
            gateways,
            rounds: Rounds::new(),
            next_round_ns: None,
            checked_round: 0,
            has_carrier: true,
            starved_count: 0,
            starved_round: 0,
            tier: Tier::Healthy,
            is_changed: true,
            outputs: VecDeque::with_capacity(64),
        })
    }

    /// Indices of the gateways in use, never none.
    pub fn used(&self) -> impl Iterator<Item = u16> {
        let used = self.gateways.iter().enumerate().filter(|(_, gateway)| gateway.is_used);
        used.map(|(index, _)| index as u16)
    }

    /// State of a gateway.
    #[must_use]
    pub fn state(&self, gateway: u16) -> Option<GatewayState> {
        Some(self.gateways.get(usize::from(gateway))?.state())
    }

    /// Sums of a gateway.
    #[must_use]
    pub fn counters(&self, gateway: u16) -> Option<GatewayCounters> {
        Some(self.gateways.get(usize::from(gateway))?.counters)
    }

    /// A probe has been answered. Looked at with the next [`poll`](Self::poll).
    pub fn handle_answer(&mut self, answer: &Answer) {
        let newest = self.rounds.newest();
        let Some(gateway) = self.gateways.get_mut(usize::from(answer.gateway)) else { return };
        if answer.round == 0 || answer.round > newest {
            return;
        }
        match answer.size {
            SizeClass::Small => gateway.answer_small(answer.round, newest, answer.rtt_ns),
            SizeClass::Full => gateway.answer_full(answer.round),
        }
    }

    /// A router could not forward a probe.
    pub fn handle_unreachable(&mut self, now_ns: u64, heard: &Unreachable) {
        self.advance(now_ns);
        let newest = self.rounds.newest();
        let Some(gateway) = self.gateways.get_mut(usize::from(heard.gateway)) else { return };
        if heard.round == 0 || heard.round > newest {
            return;
        }
        match (heard.kind, heard.size) {
            (UnreachableKind::TooBig(mtu_bytes), SizeClass::Full) => {
                if gateway.too_big(heard.round, mtu_bytes) {
                    self.say(now_ns, EventKind::PathMtu { gateway: heard.gateway, mtu_bytes });
                }
            }
            _unreachable => gateway.unreachable(heard.round),
        }
        self.is_changed = true;
    }

    /// This host's own link has gone down or come up again.
    pub fn handle_carrier(&mut self, now_ns: u64, is_up: bool) {
        self.advance(now_ns);
        if self.has_carrier == is_up {
            return;
        }
        self.has_carrier = is_up;
        self.rounds.discount_all();
        self.say(now_ns, EventKind::Carrier { is_up });
        if is_up {
            self.next_round_ns = None;
        }
    }

    /// Whether a gateway is about to fail for missed rounds, so that it matters whether they are its fault.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.gateways.iter().any(Gateway::is_doubtful)
    }

    /// While the watcher [`is_doubtful`](Self::is_doubtful), a processor of this machine was taken away for so long
    /// altogether. What this host's kernel or a neighbour on it should have done on that processor was not done, so from half
    /// an interval on the missed rounds prove nothing; but no more than twice in a row.
    pub fn handle_stolen(&mut self, now_ns: u64, stolen_ns: u64) {
        self.advance(now_ns);
        if stolen_ns < self.config.interval_ns / 2 || self.starved_count >= STARVED_COUNT_MAX {
            return;
        }
        self.starved_count += 1;
        self.starved_round = self.rounds.newest();
        self.rounds.discount_all();
        self.is_changed = true;
        self.say(now_ns, EventKind::Starved { stolen_ns });
    }

    /// BFD says something about a gateway. A session that has never been up says nothing.
    pub fn handle_bfd(&mut self, now_ns: u64, gateway: u16, input: BfdInput) {
        self.advance(now_ns);
        let index = gateway;
        let Some(gateway) = self.gateways.get_mut(usize::from(index)) else { return };
        let is_news = std::mem::replace(&mut gateway.bfd_said, input) != input;
        gateway.is_leaving = input == BfdInput::Leaving;
        gateway.bfd = match (input, gateway.bfd) {
            (BfdInput::Up, _) => BfdEvidence::Up,
            (BfdInput::Down, BfdEvidence::Up | BfdEvidence::Failed) => BfdEvidence::Failed,
            (BfdInput::Down, BfdEvidence::Silent) => BfdEvidence::Silent,
            // It left in good order; until it comes up again it says nothing.
            (BfdInput::Leaving, _) => BfdEvidence::Silent,
        };
        self.is_changed = true;
        if is_news {
            self.say(now_ns, EventKind::Bfd { gateway: index, says: input });
        }
    }

    /// Sentinels say that a gateway has failed or works. This host's own probes go out at once.
    pub fn handle_reported(&mut self, now_ns: u64, gateway: u16, is_failed: bool) {
        self.advance(now_ns);
        let Some(gateway) = self.gateways.get_mut(usize::from(gateway)) else { return };
        if gateway.is_reported != is_failed {
            gateway.is_reported = is_failed;
            self.is_changed = true;
            self.next_round_ns = None;
        }
    }

    /// From now on rounds are this far apart while all gateways are healthy; `None`: as configured.
    pub fn relax(&mut self, interval_ns: Option<u64>) {
        self.relaxed_ns = interval_ns.filter(|ns| *ns > self.config.interval_ns);
        self.next_round_ns = None;
    }

    /// Takes a gateway out of use, or ends that.
    ///
    /// # Errors
    /// It is the last one in use, or there is none of this index.
    pub fn set_draining(
        &mut self,
        now_ns: u64,
        gateway: u16,
        is_drained: bool,
    ) -> Result<(), DrainError> {
        self.advance(now_ns);
        let index = usize::from(gateway);
        if index >= self.gateways.len() {
            return Err(DrainError::Unknown(gateway));
        }
        let is_left =
            |(other, one): (usize, &Gateway)| other != index && one.is_used && !one.is_draining();
        if is_drained && !self.gateways.iter().enumerate().any(is_left) {
            return Err(DrainError::Last(gateway));
        }
        self.gateways[index].is_drained = is_drained;
        self.is_changed = true;
        Ok(())
    }

    /// When [`poll`](Self::poll) has something to do next, unless something is handled before.
    #[must_use]
    pub fn wakes_at(&self) -> u64 {
        if !self.outputs.is_empty() {
            return 0;
        }
        if !self.has_carrier {
            return u64::MAX;
        }
        if self.is_changed {
            return 0;
        }
        let Some(round_ns) = self.next_round_ns else { return 0 };
        let ready = self.gateways.iter().filter_map(Gateway::ready_ns).min();
        let check_ns = self.check_ns().filter(|_| !self.can_check_late());
        let wakes_ns = round_ns.min(check_ns.unwrap_or(u64::MAX));
        self.clock.raw(wakes_ns.min(ready.unwrap_or(u64::MAX)))
    }

    /// The next thing to do now, if any; to be called until there is none, after everything that has
    /// arrived was handled.
    pub fn poll(&mut self, now_ns: u64) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let steady_ns = self.advance(now_ns);
        if !self.has_carrier {
            return self.outputs.pop_front();
        }
        let is_round_due = self.next_round_ns.is_none_or(|at_ns| at_ns <= steady_ns);
        let is_check_due = self.check_ns().is_some_and(|at_ns| at_ns <= steady_ns);
        let is_ready = |gateway: &Gateway| gateway.ready_ns().is_some_and(|at| at <= steady_ns);
        if is_round_due {
            self.notice_oversleep(now_ns, steady_ns);
        }
        if is_round_due || is_check_due || self.is_changed || self.gateways.iter().any(is_ready) {
            self.is_changed = false;
            if is_check_due {
                self.checked_round = self.rounds.newest();
            }
            self.conclude(now_ns, steady_ns);
        }
        if is_round_due || (is_check_due && self.must_hurry()) {
            self.begin_round(steady_ns);
        }
        self.outputs.pop_front()
    }

    /// A relaxed watcher that misses an answer does not wait for the next relaxed round.
    fn must_hurry(&self) -> bool {
        self.relaxed_ns.is_some() && self.gateways.iter().any(|one| one.missed_count > 0)
    }

    /// Nothing follows from the first missed answer of a gateway that is well, so the next round is soon enough to
    /// notice it. From then on each round is looked at after its timeout, and a failure is found no later.
    fn can_check_late(&self) -> bool {
        self.relaxed_ns.is_none()
            && self.config.multiplier > 1
            && self.gateways.iter().all(Gateway::is_well)
    }

    /// When the newest round is to be looked at for missing answers.
    fn check_ns(&self) -> Option<u64> {
        let newest = self.rounds.newest();
        let is_open =
            self.checked_round < newest && self.gateways.iter().any(|one| one.is_open(newest));
        let sent_ns = self.rounds.newest_sent_ns().filter(|_| is_open)?;
        Some(sent_ns.saturating_add(self.config.timeout_ns))
    }

    fn notice_oversleep(&mut self, now_ns: u64, steady_ns: u64) {
        let Some(due_ns) = self.next_round_ns else { return };
        let late_ns = steady_ns - due_ns;
        if late_ns > self.config.interval_ns {
            self.rounds.discount_open(due_ns, self.config.timeout_ns);
            self.say(now_ns, EventKind::Overslept { late_ns });
        }
    }

    fn begin_round(&mut self, steady_ns: u64) {
        let is_well = |one: &Gateway| one.state() == GatewayState::Up && one.missed_count == 0;
        let relaxed_ns = self.relaxed_ns.filter(|_| self.gateways.iter().all(is_well));
        let interval_ns = relaxed_ns.unwrap_or(self.config.interval_ns);
        // Rounds keep their beat; after a long sleep a new one begins.
        self.next_round_ns = Some(match self.next_round_ns {
            Some(due_ns) if due_ns <= steady_ns && steady_ns - due_ns < interval_ns => {
                due_ns.saturating_add(interval_ns)
            }
            _none => steady_ns.saturating_add(interval_ns),
        });
        let round = self.rounds.begin(steady_ns);
        for (index, gateway) in self.gateways.iter_mut().enumerate() {
            if !gateway.is_probed {
                continue;
            }
            let fulls_count = gateway.begin(round, index, &self.config);
            let is_suspect = gateway.state() == GatewayState::Suspect;
            let ask = |size| Output::Ask(Ask { gateway: index as u16, size, round });
            for _ in 0..if is_suspect { SUSPECT_PROBES_COUNT } else { 1 } {
                self.outputs.push_back(ask(SizeClass::Small));
            }
            for _ in 0..fulls_count {
                self.outputs.push_back(ask(SizeClass::Full));
            }
        }
    }

    /// Draws the conclusions of all evidence and says what has changed.
    fn conclude(&mut self, now_ns: u64, steady_ns: u64) {
        for gateway in &mut self.gateways {
            gateway.evaluate(steady_ns, &self.rounds, &self.config);
        }
        if self.gateways.iter().all(|one| one.has_answered_since(self.starved_round)) {
            self.starved_count = 0;
        }
        let at_once_ns = self.config.interval_ns.saturating_mul(self.config.multiplier.into());
        let (tier, mut chosen) =
            selection::select(&self.gateways, steady_ns.saturating_sub(at_once_ns).max(1));
        if tier == Tier::Healthy && !self.is_worth_it(&chosen) {
            chosen = self.gateways.iter().map(|gateway| gateway.is_used).collect();
        }
        if tier == Tier::Damped {
            self.cut_hold_downs_short(now_ns, steady_ns, &chosen);
        }
        let mut is_other = false;
        for (gateway, is_chosen) in self.gateways.iter_mut().zip(chosen) {
            is_other |= gateway.is_used != is_chosen;
            gateway.is_used = is_chosen;
            if gateway.cause().is_some() && !is_chosen {
                gateway.penalise(steady_ns, &self.config);
            }
        }
        if is_other {
            let gateways = self.used().collect();
            self.say(now_ns, EventKind::Use { gateways });
        }
        self.say_tier(now_ns, tier);
        self.say_states(now_ns);
    }

    /// Routes do not move where all gateways that they would lead over have just missed a round as well: either
    /// these fail at the same time, by something that is no gateway's fault, or they answer within a round.
    fn is_worth_it(&self, chosen: &[bool]) -> bool {
        let mut gateways = self.gateways.iter().zip(chosen);
        gateways.any(|(one, is_chosen)| *is_chosen && !(one.is_probed && one.missed_count > 0))
    }

    fn cut_hold_downs_short(&mut self, now_ns: u64, steady_ns: u64, chosen: &[bool]) {
        for index in (0..chosen.len()).filter(|index| chosen[*index]) {
            self.gateways[index].cut_hold_down_short(steady_ns);
            self.say(now_ns, EventKind::HoldDownCutShort { gateway: index as u16 });
        }
    }

    fn say_tier(&mut self, now_ns: u64, tier: Tier) {
        let before = std::mem::replace(&mut self.tier, tier);
        if before != Tier::Held && tier == Tier::Held {
            let held = self.used().collect();
            self.say(now_ns, EventKind::AllFailed { held });
        } else if before == Tier::Held && tier != Tier::Held {
            self.say(now_ns, EventKind::AllFailedEnded);
        }
    }

    fn say_states(&mut self, now_ns: u64) {
        for index in 0..self.gateways.len() {
            let gateway = &mut self.gateways[index];
            let (from, to) = (gateway.shown, gateway.state());
            if from == to {
                continue;
            }
            gateway.shown = to;
            let kind = EventKind::State {
                gateway: index as u16,
                from,
                to,
                cause: gateway.cause(),
                is_used: gateway.is_used,
                missed_count: gateway.missed_count,
                hold_down_ns: gateway.hold_down_ns,
            };
            self.say(now_ns, kind);
        }
    }

    fn say(&mut self, at_ns: u64, kind: EventKind) {
        self.outputs.push_back(Output::Event(Event { at_ns, kind }));
    }

    fn advance(&mut self, now_ns: u64) -> u64 {
        let (steady_ns, by_ns) = self.clock.advance(now_ns);
        if by_ns > 0 {
            self.say(now_ns, EventKind::ClockWentBack { by_ns });
        }
        steady_ns
    }
}
