//! Gateways, the far host behind them and the host whose watcher is tested.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use liveness::probe::{Answer, SizeClass, Unreachable, UnreachableKind};
use liveness::states::{Ask, Event, EventKind, GatewayState, Inputs, Output, WatchConfig, Watcher};
use stats::Random;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1000 * MS;

/// A gateway as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gateway {
    /// Hangs, does not forward, or has lost its far port: no answer comes.
    pub(crate) is_dead: bool,
    /// Loses full-size packets.
    pub(crate) has_mtu_hole: bool,
    /// Says what it cannot forward, instead of keeping silent.
    pub(crate) is_honest: bool,
    /// Share of probes lost.
    pub(crate) loss: f64,
    pub(crate) delay_ns: u64,
}

impl Default for Gateway {
    fn default() -> Self {
        let (is_dead, has_mtu_hole, is_honest) = (false, false, false);
        Self { is_dead, has_mtu_hole, is_honest, loss: 0.0, delay_ns: MS }
    }
}

/// What arrives at the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at_ns: u64,
    gateway: u16,
    round: u64,
    is_full: bool,
    sent_ns: u64,
    is_error: bool,
}

pub(crate) struct World {
    pub(crate) watcher: Watcher,
    pub(crate) gateways: Vec<Gateway>,
    /// The far host answers.
    pub(crate) far_answers: bool,
    pub(crate) now_ns: u64,
    /// What the host's clock shows beside the true time.
    pub(crate) clock_skew_ns: i64,
    /// The host does nothing until then.
    pub(crate) asleep_until_ns: u64,
    /// What the processors' figures say was stolen since the watcher became doubtful.
    pub(crate) stolen_ns: u64,
    was_doubtful: bool,
    /// The watcher is woken late by up to so much.
    pub(crate) lateness_ns: u64,
    pub(crate) events: Vec<(u64, EventKind)>,
    pub(crate) asked_count: u64,
    /// What is lost on purpose.
    pub(crate) is_lost: fn(&Ask) -> bool,
    pub(crate) random: Random,
    flying: BinaryHeap<Reverse<Arrival>>,
    used: Vec<u16>,
}

impl World {
    pub(crate) fn new(config: WatchConfig, gateways: usize, seed: u64) -> Self {
        Self::with(config, &vec![Inputs::default(); gateways], seed)
    }

    pub(crate) fn with(config: WatchConfig, inputs: &[Inputs], seed: u64) -> Self {
        let watcher = Watcher::new(config, inputs).unwrap();
        let used = watcher.used().collect();
        Self {
            watcher,
            gateways: vec![Gateway::default(); inputs.len()],
            far_answers: true,
            now_ns: S,
            clock_skew_ns: 0,
            asleep_until_ns: 0,
            stolen_ns: 0,
            was_doubtful: false,
            lateness_ns: MS / 10,
            events: Vec::new(),
            asked_count: 0,
            is_lost: |_| false,
            random: Random::from_seed(seed),
            flying: BinaryHeap::new(),
            used,
        }
    }

    /// What the host's clock shows.
    pub(crate) fn clock_ns(&self) -> u64 {
        self.now_ns.saturating_add_signed(self.clock_skew_ns)
    }

    pub(crate) fn run(&mut self, for_ns: u64) {
        let end_ns = self.now_ns + for_ns;
        loop {
            let wakes_ns = self.watcher.wakes_at();
            let wakes_ns = if wakes_ns > u64::MAX / 2 {
                u64::MAX
            } else {
                wakes_ns.saturating_add_signed(-self.clock_skew_ns)
                    + self.random.below(self.lateness_ns + 1)
            };
            let arrives_ns = self.flying.peek().map_or(u64::MAX, |Reverse(one)| one.at_ns);
            let next_ns = wakes_ns.min(arrives_ns).max(self.asleep_until_ns).max(self.now_ns);
            if next_ns > end_ns {
                self.now_ns = end_ns;
                return;
            }
            self.now_ns = next_ns;
            self.wake();
        }
    }

    /// One turn of the host: what has arrived first, then what is due.
    pub(crate) fn wake(&mut self) {
        while let Some(Reverse(arrival)) = self.flying.peek().copied() {
            if arrival.at_ns > self.now_ns {
                break;
            }
            self.flying.pop();
            self.arrive(arrival);
        }
        if self.was_doubtful {
            self.watcher.handle_stolen(self.clock_ns(), self.stolen_ns);
        }
        for turn in 0.. {
            assert!(turn < 10_000, "the watcher does not come to rest");
            let Some(output) = self.watcher.poll(self.clock_ns()) else { break };
            match output {
                Output::Ask(ask) => self.send(ask),
                Output::Event(event) => self.hear(event),
            }
        }
        self.was_doubtful = self.watcher.is_doubtful();
        let used: Vec<u16> = self.watcher.used().collect();
        assert!(!used.is_empty(), "no gateway in use at {}", self.now_ns);
        assert_eq!(used, self.used, "the gateways in use are those announced");
    }

    fn hear(&mut self, event: Event) {
        if let EventKind::Use { gateways } = &event.kind {
            assert!(!gateways.is_empty());
            self.used.clone_from(gateways);
        }
        self.events.push((self.now_ns, event.kind));
    }

    fn send(&mut self, ask: Ask) {
        self.asked_count += 1;
        let gateway = self.gateways[usize::from(ask.gateway)];
        let is_full = ask.size == SizeClass::Full;
        let is_stopped = gateway.is_dead || (is_full && gateway.has_mtu_hole);
        let is_lost = (self.is_lost)(&ask) || self.random.chance(gateway.loss);
        if is_lost || !self.far_answers || (is_stopped && !gateway.is_honest) {
            return;
        }
        let arrival = Arrival {
            at_ns: self.now_ns + gateway.delay_ns,
            gateway: ask.gateway,
            round: ask.round,
            is_full,
            sent_ns: self.now_ns,
            is_error: is_stopped,
        };
        self.flying.push(Reverse(arrival));
    }

    fn arrive(&mut self, arrival: Arrival) {
        let Arrival { gateway, round, is_full, is_error, .. } = arrival;
        let size = if is_full { SizeClass::Full } else { SizeClass::Small };
        if is_error {
            let is_dead = self.gateways[usize::from(gateway)].is_dead;
            let kind =
                if is_dead { UnreachableKind::Code(0) } else { UnreachableKind::TooBig(1400) };
            let heard = Unreachable { gateway, round, size, kind };
            self.watcher.handle_unreachable(self.clock_ns(), &heard);
        } else {
            let rtt_ns = self.now_ns - arrival.sent_ns;
            self.watcher.handle_answer(&Answer { gateway, round, size, rtt_ns });
        }
    }

    /// The host does nothing for a while; with `is_lossy` what arrives meanwhile is lost.
    pub(crate) fn sleep(&mut self, for_ns: u64, is_lossy: bool) {
        self.asleep_until_ns = self.now_ns + for_ns;
        if is_lossy {
            let until_ns = self.asleep_until_ns;
            self.flying.retain(|Reverse(arrival)| arrival.at_ns > until_ns);
        }
    }

    pub(crate) fn used(&self) -> &[u16] {
        &self.used
    }

    pub(crate) fn state(&self, gateway: u16) -> GatewayState {
        self.watcher.state(gateway).unwrap()
    }

    /// When a gateway first entered a state after `from_ns`.
    pub(crate) fn entered(&self, wanted: u16, state: GatewayState, from_ns: u64) -> Option<u64> {
        let is_it = |kind: &EventKind| matches!(kind, EventKind::State { gateway, to, .. } if *gateway == wanted && *to == state);
        let found = self.events.iter().find(|(at_ns, kind)| *at_ns >= from_ns && is_it(kind));
        found.map(|(at_ns, _)| *at_ns)
    }

    /// Events that say that a gateway failed.
    pub(crate) fn alarms(&self) -> Vec<&(u64, EventKind)> {
        let is_alarm = |kind: &EventKind| match kind {
            EventKind::State { to, .. } => {
                matches!(to, GatewayState::Down | GatewayState::MtuHole | GatewayState::Held)
            }
            EventKind::Use { .. } | EventKind::AllFailed { .. } => true,
            _other => false,
        };
        self.events.iter().filter(|(_, kind)| is_alarm(kind)).collect()
    }

    pub(crate) fn count(&self, is_it: impl Fn(&EventKind) -> bool) -> usize {
        self.events.iter().filter(|(_, kind)| is_it(kind)).count()
    }
}
