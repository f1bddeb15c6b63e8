//! What a host believes of what sentinels say.

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;

use super::challenge::Challenge;
use super::summary::{MalformedSummaryError, Opinion, Summary};
use crate::siphash::Key;
use crate::steady::SteadyClock;

/// A sentinel is silent after so many of its intervals.
const SILENT_INTERVALS: u64 = 3;
/// After so many summaries in a row a sentinel is relied on.
const TRUSTED_COUNT: u32 = 5;
/// What a sentinel may say its interval is, milliseconds.
const INTERVAL_MS: std::ops::RangeInclusive<u32> = 10..=10_000;

/// A sentinel is challenged no more often than this.
const CHALLENGE_INTERVAL_NS: u64 = 250_000_000;
/// A challenge must be answered within this.
const CHALLENGE_NS: u64 = 2_000_000_000;

/// What a believer is made with.
#[derive(Debug, Clone)]
pub struct BelieverConfig {
    /// The plan's key.
    pub key: Key,
    /// The plan's number.
    pub plan_id: u64,
    /// Number of gateways.
    pub gateways_count: u16,
    /// Numbers of the sentinels that are listened to.
    pub sentinels: Vec<u32>,
}

/// Why a summary was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RefusedSummaryError {
    /// The packet is not a summary.
    #[error(transparent)]
    Malformed(#[from] MalformedSummaryError),
    /// It belongs to another plan.
    #[error("the summary belongs to plan {0:#x}")]
    OtherPlan(u64),
    /// Its sender is not a sentinel of the plan.
    #[error("the plan has no sentinel {0}")]
    UnknownSentinel(u32),
    /// It is no newer than the last of its sentinel's session.
    #[error("the summary is no newer than the last of sentinel {0}")]
    Replayed(u32),
    /// Its session is not known, and it answers no challenge: [`Believer::challenge`] the sentinel.
    #[error("sentinel {0} has begun another session, or this is a replayed summary")]
    OtherSession(u32),
}

/// What a host is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belief {
    /// Sentinels watch: its own probes may be relaxed, or must be at full rate again.
    Relax(bool),
    /// Sentinels say that a gateway has failed, or no longer.
    Reported {
        /// Index of the gateway.
        gateway: u16,
        /// Whether it has failed.
        is_failed: bool,
    },
}

#[derive(Debug, Clone, Default)]
struct Sentinel {
    /// What it has proved to be running.
    session: Option<u64>,
    sequence: u64,
    /// Nonce of the challenge that it has not answered, and when it was made.
    challenge: Option<(u64, u64)>,
    heard: Option<u64>,
    silent_ns: u64,
    streak_count: u32,
    failed: Vec<bool>,
}

/// Listens to the sentinels of a plan.
#[derive(Debug, Clone)]
pub struct Believer {
    key: Key,
    plan_id: u64,
    clock: SteadyClock,
    sentinels: BTreeMap<u32, Sentinel>,
    reported: Vec<bool>,
    is_relaxed: bool,
    beliefs: VecDeque<Belief>,
    refused_count: u64,
}

impl Believer {
    /// A believer that has heard no sentinel: its host watches by itself.
    #[must_use]
    pub fn new(config: &BelieverConfig) -> Self {
        let count = usize::from(config.gateways_count);
        let sentinel = || Sentinel { failed: vec![false; count], ..Sentinel::default() };
        Self {
            key: config.key,
            plan_id: config.plan_id,
            clock: SteadyClock::default(),
            sentinels: config.sentinels.iter().map(|number| (*number, sentinel())).collect(),
            reported: vec![false; count],
            is_relaxed: false,
            beliefs: VecDeque::new(),
            refused_count: 0,
        }
    }

    /// Summaries refused so far.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.refused_count
    }

    /// Takes a summary.
    ///
    /// # Errors
    /// It was discarded and counted.
    pub fn handle(&mut self, now_ns: u64, bytes: &[u8]) -> Result<(), RefusedSummaryError> {
        let now_ns = self.clock.advance(now_ns).0;
        let outcome = self.take(now_ns, bytes);
        self.refused_count += u64::from(outcome.is_err());
        outcome
    }

    fn take(&mut self, now_ns: u64, bytes: &[u8]) -> Result<(), RefusedSummaryError> {
        let summary = Summary::parse(bytes, &self.key)?;
        if summary.plan_id != self.plan_id {
            return Err(RefusedSummaryError::OtherPlan(summary.plan_id));
        }
        let number = summary.sentinel;
        let sentinel = self.sentinels.get_mut(&number);
        let sentinel = sentinel.ok_or(RefusedSummaryError::UnknownSentinel(number))?;
        if sentinel.session != Some(summary.session) {
            if !sentinel.is_answer(now_ns, summary.nonce) {
                return Err(RefusedSummaryError::OtherSession(number));
            }
            sentinel.session = Some(summary.session);
            sentinel.challenge = None;
            sentinel.streak_count = 0;
        } else if summary.sequence <= sentinel.sequence {
            return Err(RefusedSummaryError::Replayed(number));
        }
        if sentinel.is_silent(now_ns) {
            sentinel.streak_count = 0;
        }
        let interval_ms = summary.interval_ms.clamp(*INTERVAL_MS.start(), *INTERVAL_MS.end());
        sentinel.sequence = summary.sequence;
        sentinel.heard = Some(now_ns);
        sentinel.silent_ns = u64::from(interval_ms) * 1_000_000 * SILENT_INTERVALS;
        sentinel.streak_count = sentinel.streak_count.saturating_add(1);
        sentinel.failed.fill(false);
        for verdict in &summary.verdicts {
            if let Some(failed) = sentinel.failed.get_mut(usize::from(verdict.gateway)) {
                *failed = matches!(verdict.opinion, Opinion::Failed | Opinion::MtuHole);
            }
        }
        Ok(())
    }

    /// A challenge for a sentinel whose session is not known, to be sent to where its summary came from; `None` if it was
    /// challenged within the last quarter second. `nonce` must be random.
    pub fn challenge(&mut self, now_ns: u64, sentinel: u32, nonce: u64) -> Option<Challenge> {
        let now_ns = self.clock.advance(now_ns).0;
        let known = self.sentinels.get_mut(&sentinel)?;
        let is_early = |(_, made_ns): (u64, u64)| now_ns - made_ns < CHALLENGE_INTERVAL_NS;
        if known.challenge.is_some_and(is_early) {
            return None;
        }
        let nonce = nonce.max(1);
        known.challenge = Some((nonce, now_ns));
        Some(Challenge { plan_id: self.plan_id, sentinel, nonce })
    }

    /// When [`poll`](Self::poll) has something to do next, unless something is handled before.
    #[must_use]
    pub fn wakes_at(&self) -> Option<u64> {
        let heard = self.sentinels.values().filter(|sentinel| sentinel.streak_count > 0);
        let silent = heard.filter_map(|one| Some(one.heard?.saturating_add(one.silent_ns)));
        silent.min().map(|at_ns| self.clock.raw(at_ns).saturating_add(1))
    }

    /// The next thing to do now, if any; to be called until there is none.
    pub fn poll(&mut self, now_ns: u64) -> Option<Belief> {
        if let Some(belief) = self.beliefs.pop_front() {
            return Some(belief);
        }
        let now_ns = self.clock.advance(now_ns).0;
        for sentinel in self.sentinels.values_mut().filter(|one| one.is_silent(now_ns)) {
            sentinel.streak_count = 0;
        }
        let trusted =
            || self.sentinels.values().filter(|sentinel| sentinel.streak_count >= TRUSTED_COUNT);
        let is_relaxed = trusted().next().is_some();
        if self.is_relaxed != is_relaxed {
            self.is_relaxed = is_relaxed;
            self.beliefs.push_back(Belief::Relax(is_relaxed));
        }
        let sighted: Vec<&Sentinel> = trusted().filter(|sentinel| !sentinel.is_blind()).collect();
        for (index, reported) in self.reported.iter_mut().enumerate() {
            let votes = sighted.iter().filter(|sentinel| sentinel.failed[index]).count();
            let is_failed = votes * 2 > sighted.len();
            if *reported != is_failed {
                *reported = is_failed;
                self.beliefs.push_back(Belief::Reported { gateway: index as u16, is_failed });
            }
        }
        self.beliefs.pop_front()
    }
}

impl Sentinel {
    fn is_answer(&self, now_ns: u64, nonce: u64) -> bool {
        self.challenge.is_some_and(|(asked, made_ns)| {
            nonce == asked && now_ns.saturating_sub(made_ns) <= CHALLENGE_NS
        })
    }

    fn is_silent(&self, now_ns: u64) -> bool {
        self.heard.is_none_or(|heard_ns| now_ns.saturating_sub(heard_ns) > self.silent_ns)
    }

    fn is_blind(&self) -> bool {
        !self.failed.contains(&false)
    }
}
