//! The far end of a running test: the server's state machine.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use results::{EndReport, TestLimit, TestSpec};

use super::drain_of;
use crate::control::{ALIVE_EVERY, ClientMessage, Limits, SILENCE_MAX, ServerMessage};
use crate::engine::{Event, IntervalReport};

/// Extra time, beyond its length, for a test to begin and to end.
pub(crate) const MARGIN: Duration = Duration::from_secs(15);
/// A client that sends faster than its permitted rate times this factor is stopped.
const RATE_TOLERANCE: f64 = 1.5;
/// Shorter intervals, in seconds, are too noisy to conclude that a client sends too fast.
const RATE_INTERVAL_MIN_S: f64 = 0.2;

/// What the server has to do next.
#[derive(Debug, PartialEq)]
pub(crate) enum FarAction {
    /// Send this to the client.
    Say(ServerMessage),
    /// Stop this end's engine, which may already have stopped.
    StopEngine,
    /// Record that the client is active, so that it keeps its place.
    Touch,
}

/// How the running part of a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FarEnding {
    /// The report is due ([`FarRun::closing`]): both ends are done, or the server stopped the test
    /// and sent the reason.
    Account,
    /// The client has left.
    Left,
    /// Nothing has arrived from the client for [`SILENCE_MAX`].
    Silent,
}

/// The server's end of a running test.
#[derive(Debug)]
pub(crate) struct FarRun {
    drain: Duration,
    deadline: Instant,
    rate_bits_per_s_max: Option<f64>,
    moved_bytes: u64,
    spoke: Instant,
    /// When the client reported that its end is done.
    near_done: Option<Instant>,
    far_done: bool,
    ending: Option<FarEnding>,
    actions: VecDeque<FarAction>,
}

impl FarRun {
    /// A test that both ends have started.
    pub(crate) fn new(now: Instant, spec: &TestSpec, limits: &Limits) -> Self {
        let margin = match spec.limit {
            TestLimit::DurationS(_) => MARGIN,
            // Such a test has no planned end, so the limit applies exactly.
            TestLimit::TotalBytes(_) | TestLimit::TotalBlocks(_) => Duration::ZERO,
        };
        Self {
            drain: drain_of(spec),
            deadline: now + limits.longest(spec) + margin,
            rate_bits_per_s_max: limits.rate_bits_per_s_max,
            moved_bytes: 0,
            spoke: now,
            near_done: None,
            far_done: false,
            ending: None,
            actions: VecDeque::new(),
        }
    }

    /// Whether this end's engine has finished and has no more events.
    pub(crate) fn far_done(&self) -> bool {
        self.far_done
    }

    /// How the test ended, once it has.
    pub(crate) fn ending(&self) -> Option<FarEnding> {
        self.ending
    }

    /// Processes an event of this end's engine.
    pub(crate) fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Interval(report) => match self.too_fast(&report) {
                Some(reason) => self.stop(now, reason),
                None => self.say(now, ServerMessage::Interval(report.into())),
            },
            Event::Finished if !self.far_done => {
                self.far_done = true;
                self.say(now, ServerMessage::Finished);
            }
            Event::Finished | Event::Quiet => {}
        }
    }

    /// Processes a message from the client.
    pub(crate) fn on_message(&mut self, now: Instant, message: &ClientMessage) {
        match message {
            ClientMessage::Finished => self.near_done = Some(now),
            ClientMessage::Stop => {
                self.actions.push_back(FarAction::StopEngine);
                self.near_done = Some(now);
            }
            ClientMessage::Bye => self.end(FarEnding::Left),
            _ => {}
        }
    }

    /// Processes the passing of time. Nothing has arrived from the client for `silent_for`, not
    /// even part of a message, and the engine has moved `moved_bytes` since the start.
    pub(crate) fn on_time(&mut self, now: Instant, silent_for: Duration, moved_bytes: u64) {
        if moved_bytes != self.moved_bytes {
            self.moved_bytes = moved_bytes;
            self.actions.push_back(FarAction::Touch);
        }
        let drained = |since| self.far_done || now.duration_since(since) > self.drain;
        if silent_for > SILENCE_MAX {
            self.end(FarEnding::Silent);
        } else if now > self.deadline {
            self.stop(now, "the test took longer than this server allows".to_owned());
        } else if self.near_done.is_some_and(drained) {
            self.end(FarEnding::Account);
        } else if now.duration_since(self.spoke) > ALIVE_EVERY {
            self.say(now, ServerMessage::Alive);
        }
    }

    /// The next action; `None` if there is none until the next input.
    pub(crate) fn poll(&mut self) -> Option<FarAction> {
        self.actions.pop_front()
    }

    /// The last messages of the test, after [`FarEnding::Account`], with this end's report.
    pub(crate) fn closing(&self, report: Box<EndReport>) -> impl Iterator<Item = ServerMessage> {
        let finished = (!self.far_done).then_some(ServerMessage::Finished);
        finished.into_iter().chain([ServerMessage::Report { report }])
    }

    /// Why the test is stopped, if the client sends much faster than permitted.
    fn too_fast(&self, report: &IntervalReport) -> Option<String> {
        let max = self.rate_bits_per_s_max?;
        let received_bytes: u64 = report
            .streams
            .iter()
            .filter(|(_, sending, _)| !sending)
            .map(|(_, _, sample)| sample.bytes)
            .sum();
        let seconds = report.end_s - report.start_s;
        let excessive = seconds > RATE_INTERVAL_MIN_S
            && received_bytes as f64 * 8.0 / seconds > max * RATE_TOLERANCE;
        excessive.then(|| {
            format!("the client sends faster than the {} allowed", units::show_bit_rate(max))
        })
    }

    /// Stops the test from this end; the first reason counts.
    pub(crate) fn stop(&mut self, now: Instant, reason: String) {
        if self.ending.is_none() {
            self.say(now, ServerMessage::Stopped { reason });
            self.end(FarEnding::Account);
        }
    }

    fn end(&mut self, ending: FarEnding) {
        self.ending.get_or_insert(ending);
    }

    fn say(&mut self, now: Instant, message: ServerMessage) {
        self.spoke = now;
        self.actions.push_back(FarAction::Say(message));
    }
}
