//! The near end of a running test: the client's state machine.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use results::{EndReport, TestSpec};

use super::drain_of;
use crate::client::IntervalPair;
use crate::control::{ALIVE_EVERY, ClientMessage, SILENCE_MAX, ServerMessage};
use crate::engine::{Event, IntervalReport};

/// How long a near interval waits for the far end's report of the same interval.
const PAIRING_PATIENCE: Duration = Duration::from_millis(300);

/// What the client has to do next.
#[derive(Debug, PartialEq)]
pub(crate) enum NearAction {
    /// Send this to the server.
    Say(ClientMessage),
    /// Stop this end's engine, which may already have stopped.
    StopEngine,
    /// Show the user an interval.
    Show(IntervalPair),
}

/// Nothing has arrived from the server for [`SILENCE_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Silence;

/// The client's end of a running test.
#[derive(Debug)]
pub(crate) struct NearRun {
    drain: Duration,
    pairing: Pairing,
    spoke: Instant,
    stopping: bool,
    near_done: bool,
    /// When the server reported that its end is done.
    far_done: Option<Instant>,
    report: Option<EndReport>,
    stopped_because: Option<String>,
    actions: VecDeque<NearAction>,
}

impl NearRun {
    /// A test that both ends have started.
    pub(crate) fn new(now: Instant, spec: &TestSpec) -> Self {
        Self {
            drain: drain_of(spec),
            pairing: Pairing::default(),
            spoke: now,
            stopping: false,
            near_done: false,
            far_done: None,
            report: None,
            stopped_because: None,
            actions: VecDeque::new(),
        }
    }

    /// Whether this end's engine has finished and has no more events.
    pub(crate) fn near_done(&self) -> bool {
        self.near_done
    }

    /// Whether the server's report has arrived; later messages do not belong to this test.
    pub(crate) fn has_report(&self) -> bool {
        self.report.is_some()
    }

    /// Whether both ends are done: there is nothing more to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.near_done && self.report.is_some()
    }

    /// Ends the test early; what was measured so far is reported.
    pub(crate) fn stop(&mut self, now: Instant) {
        if !self.stopping {
            self.stopping = true;
            self.actions.push_back(NearAction::StopEngine);
            self.say(now, ClientMessage::Stop);
        }
    }

    /// Processes an event of this end's engine.
    pub(crate) fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Interval(report) => self.pairing.near.push_back((now, report)),
            Event::Finished if !self.near_done => {
                self.near_done = true;
                self.say(now, ClientMessage::Finished);
            }
            Event::Finished | Event::Quiet => {}
        }
    }

    /// Processes a message from the server.
    pub(crate) fn on_message(&mut self, now: Instant, message: ServerMessage) {
        match message {
            ServerMessage::Interval(wire) => self.pairing.far.push_back(wire.into()),
            ServerMessage::Finished => self.far_done = Some(now),
            ServerMessage::Stopped { reason } => {
                self.actions.push_back(NearAction::StopEngine);
                self.stopped_because.get_or_insert(reason);
            }
            ServerMessage::Report { report } => {
                self.report = Some(*report);
                self.far_done.get_or_insert(now);
            }
            _ => {}
        }
    }

    /// Processes the passing of time. Nothing has arrived from the server for `silent_for`, not
    /// even part of a message.
    ///
    /// # Errors
    /// The server has been silent for too long.
    pub(crate) fn on_time(&mut self, now: Instant, silent_for: Duration) -> Result<(), Silence> {
        self.show(now, PAIRING_PATIENCE);
        if self.far_done.is_some_and(|since| now.duration_since(since) > self.drain) {
            self.actions.push_back(NearAction::StopEngine);
        }
        if silent_for > SILENCE_MAX {
            return Err(Silence);
        }
        if now.duration_since(self.spoke) > ALIVE_EVERY {
            self.say(now, ClientMessage::Alive);
        }
        Ok(())
    }

    /// The next action; `None` if there is none until the next input.
    pub(crate) fn poll(&mut self) -> Option<NearAction> {
        self.actions.pop_front()
    }

    /// The intervals still waiting for the server's report of them.
    pub(crate) fn last_intervals(&mut self, now: Instant) -> impl Iterator<Item = IntervalPair> {
        std::iter::from_fn(move || self.pairing.next(now, Duration::ZERO))
    }

    /// The server's report, and its reason if it stopped the test.
    pub(crate) fn into_parts(self) -> (Option<EndReport>, Option<String>) {
        (self.report, self.stopped_because)
    }

    fn show(&mut self, now: Instant, patience: Duration) {
        while let Some(pair) = self.pairing.next(now, patience) {
            self.actions.push_back(NearAction::Show(pair));
        }
    }

    fn say(&mut self, now: Instant, message: ClientMessage) {
        self.spoke = now;
        self.actions.push_back(NearAction::Say(message));
    }
}

/// Pairs the two ends' reports of the same interval, in order.
#[derive(Debug, Default)]
struct Pairing {
    near: VecDeque<(Instant, IntervalReport)>,
    far: VecDeque<IntervalReport>,
    /// Number of far reports to skip because their near reports were shown without them.
    late_count: usize,
}

impl Pairing {
    fn next(&mut self, now: Instant, patience: Duration) -> Option<IntervalPair> {
        while self.late_count > 0 && self.far.pop_front().is_some() {
            self.late_count -= 1;
        }
        let (since, _) = self.near.front()?;
        if self.far.is_empty() && now.duration_since(*since) < patience {
            return None;
        }
        let (_, near) = self.near.pop_front()?;
        let far = self.far.pop_front();
        self.late_count += usize::from(far.is_none());
        Some(IntervalPair { near, far })
    }
}
