//! One test against our own server, the near end of it.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use results::{Direction, End, EndReport, Finding, Protocol, TestOutcome, TestSpec};
use rustix::net::{bind, sockopt};
use sys::socket::{Family, Transport, new_socket};

use super::dial::connect_prepared;
use super::{ANSWER_TIMEOUT, ClientError, IntervalPair, Session};
use crate::control::{
    ALIVE_EVERY, ClientMessage, Purpose, SILENCE_MAX, STREAMS_TIMEOUT, ServerMessage, StreamPlan,
    Token, UDP_GREETING_EVERY, streams_of,
};
use crate::engine::{
    EndOutcome, EndPlan, Event, IntervalReport, RunningEnd, StreamRole, StreamSocket,
    prepare_socket, tcp_socket,
};
use crate::interrupts::{Moved, move_to};
use crate::outcome;

/// How often the loop looks at both sides.
const TURN: Duration = Duration::from_millis(20);
/// What this end may still find in its sockets after the far end has said it is done.
const DRAIN_TCP: Duration = Duration::from_secs(3);
const DRAIN_UDP: Duration = Duration::from_millis(200);
/// How long an interval waits for the far end's report of the same one.
const PAIRING_PATIENCE: Duration = Duration::from_millis(300);

impl Session {
    /// Runs one test; see [`super::run_test`]. The session can run another one afterwards.
    ///
    /// # Errors
    /// [`ClientError`]; unless it is a refusal the session is of no more use.
    pub fn run_test(
        &mut self,
        spec: &TestSpec,
        on_interval: &mut dyn FnMut(&IntervalPair),
        should_stop: &dyn Fn() -> bool,
    ) -> Result<TestOutcome, ClientError> {
        self.say(&ClientMessage::Start { spec: Box::new(spec.clone()) })?;
        let (token, spec, mut findings) = self.accepted(spec)?;
        let address = self.address.ip().to_canonical();
        let moved = spec.near_interrupt_core.map(|core| move_to(core, address, End::Near));
        let moved = moved.transpose()?;
        let mut opened = self.open_streams(&spec, &token, should_stop)?;
        opened.iter_mut().for_each(|stream| {
            outcome::note(&mut findings, std::mem::take(&mut stream.findings), End::Near);
        });
        let streams = opened.into_iter().map(|stream| stream.socket).collect();
        let running = self.begin(&spec, streams)?;
        let mut trial = Trial::new(self, &spec, on_interval);
        trial.findings = findings;
        trial.run(running, moved, should_stop)
    }

    /// The token, and the test as the server will run it.
    fn accepted(
        &mut self,
        asked: &TestSpec,
    ) -> Result<(Token, TestSpec, Vec<Finding>), ClientError> {
        match self.answer(ANSWER_TIMEOUT)? {
            ServerMessage::Accepted { token, spec: Some(spec), findings } => {
                // A server may slow a test down and nothing else: this end allocates by the spec.
                let same =
                    TestSpec { offered_bits_per_s: asked.offered_bits_per_s, ..*spec.clone() };
                if asked.far_interrupt_core.is_some() && spec.far_interrupt_core.is_none() {
                    return Err(ClientError::Unsupported {
                        target: self.target.to_string(),
                        what: "move interrupts (its clearstream is older)",
                    });
                }
                if same != *asked {
                    return Err(self.unexpected("it changed the test"));
                }
                Ok((token, *spec, findings))
            }
            _ => Err(self.unexpected("no answer to a request")),
        }
    }

    /// Starts both ends, each before it can be sent anything it would miss.
    fn begin(
        &mut self,
        spec: &TestSpec,
        streams: Vec<StreamSocket>,
    ) -> Result<RunningEnd, ClientError> {
        let plan =
            EndPlan { spec: spec.clone(), end: End::Near, streams, udp_counters_64bit: true };
        let receives_only = spec.direction == Direction::Reverse && spec.request_response.is_none();
        if receives_only {
            let running = RunningEnd::start(plan)?;
            self.say(&ClientMessage::Go)?;
            self.await_started()?;
            return Ok(running);
        }
        self.say(&ClientMessage::Go)?;
        self.await_started()?;
        Ok(RunningEnd::start(plan)?)
    }

    fn await_started(&mut self) -> Result<(), ClientError> {
        match self.answer(ANSWER_TIMEOUT)? {
            ServerMessage::Started => Ok(()),
            _ => Err(self.unexpected("it did not start")),
        }
    }

    fn open_streams(
        &mut self,
        spec: &TestSpec,
        token: &Token,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Vec<Opened>, ClientError> {
        let deadline = Instant::now() + STREAMS_TIMEOUT;
        let mut opened = Vec::new();
        for plan in streams_of(spec) {
            let greeting = Purpose::Stream { token: token.clone(), index: plan.index }.greeting();
            let socket = open(self.address, spec, &plan, deadline).and_then(|(fd, findings)| {
                rustix::io::write(&fd, &greeting)?;
                Ok((fd, findings))
            });
            let (socket, findings) = socket.map_err(|source| {
                let what = format!("data connection {} to {}", plan.index, self.target);
                ClientError::socket(what, source)
            })?;
            let index = u32::from(plan.index);
            let socket = StreamSocket { index, role: plan.near, socket };
            opened.push(Opened { plan, greeting, socket, findings, confirmed: false });
        }
        self.await_ready(&mut opened, deadline, should_stop)?;
        Ok(opened)
    }

    /// Waits until the server has every stream, repeating what UDP may have lost.
    fn await_ready(
        &mut self,
        opened: &mut [Opened],
        deadline: Instant,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<(), ClientError> {
        let mut greeted = Instant::now();
        while Instant::now() < deadline {
            match self.hear(UDP_GREETING_EVERY / 2)? {
                Some(ServerMessage::StreamConnected { index }) => {
                    if let Some(stream) = opened.get_mut(usize::from(index)) {
                        stream.confirmed = true;
                    }
                }
                Some(ServerMessage::Ready) => return Ok(()),
                Some(_) | None => {}
            }
            if should_stop() {
                return Err(ClientError::Stopped);
            }
            if greeted.elapsed() >= UDP_GREETING_EVERY {
                greeted = Instant::now();
                opened.iter().for_each(Opened::greet_again);
            }
        }
        Err(self.unexpected("the data connections did not get through"))
    }
}

/// A data connection under way.
struct Opened {
    plan: StreamPlan,
    greeting: [u8; crate::control::GREETING_BYTES],
    socket: StreamSocket,
    findings: Vec<Finding>,
    confirmed: bool,
}

impl Opened {
    fn greet_again(&self) {
        if self.plan.protocol == Protocol::Udp && !self.confirmed {
            // A refusal (ICMP) here is that of an earlier one; the deadline decides.
            rustix::io::write(&self.socket.socket, &self.greeting).ok();
        }
    }
}

fn open(
    address: SocketAddr,
    spec: &TestSpec,
    plan: &StreamPlan,
    deadline: Instant,
) -> io::Result<(OwnedFd, Vec<Finding>)> {
    let family = Family::of(&address);
    let fd = match plan.protocol {
        Protocol::Tcp => tcp_socket(family, spec).map_err(io::Error::other)?,
        Protocol::Udp => new_socket(family, Transport::Udp).map_err(io::Error::other)?,
    };
    let findings = prepare_socket(&fd, spec, plan.near == StreamRole::Send);
    if let Some(first_port) = spec.first_port {
        let port = first_port.checked_add(plan.index).ok_or_else(|| {
            io::Error::other(format!("port {first_port} + {} is beyond 65535", plan.index))
        })?;
        let any = match family {
            Family::Ipv4 => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            Family::Ipv6 => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        };
        sockopt::set_socket_reuseaddr(&fd, true)?;
        bind(&fd, &any)?;
    }
    let fd = match plan.protocol {
        Protocol::Tcp => connect_prepared(fd, address, deadline)?,
        Protocol::Udp => {
            rustix::net::connect(&fd, &address)?;
            fd
        }
    };
    Ok((fd, findings))
}

/// A running test.
struct Trial<'a> {
    session: &'a mut Session,
    spec: &'a TestSpec,
    on_interval: &'a mut dyn FnMut(&IntervalPair),
    findings: Vec<Finding>,
    pairing: Pairing,
    drain: Duration,
    spoke: Instant,
    near_done: bool,
    far_done: Option<Instant>,
    report: Option<EndReport>,
}

impl<'a> Trial<'a> {
    fn new(
        session: &'a mut Session,
        spec: &'a TestSpec,
        on_interval: &'a mut dyn FnMut(&IntervalPair),
    ) -> Self {
        let now = Instant::now();
        Self {
            session,
            spec,
            on_interval,
            findings: Vec::new(),
            pairing: Pairing::default(),
            drain: if spec.protocol == Protocol::Udp { DRAIN_UDP } else { DRAIN_TCP },
            spoke: now,
            near_done: false,
            far_done: None,
            report: None,
        }
    }

    fn run(
        mut self,
        mut running: RunningEnd,
        moved: Option<Moved>,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<TestOutcome, ClientError> {
        let mut stopping = false;
        // Leaving early drops `running`, which ends its threads.
        while !(self.near_done && self.report.is_some()) {
            if should_stop() && !stopping {
                stopping = true;
                running.stop();
                self.say(&ClientMessage::Stop)?;
            }
            self.take_event(&mut running)?;
            self.take_messages(&running)?;
            self.emit(PAIRING_PATIENCE);
            if self.far_done.is_some_and(|since| since.elapsed() > self.drain) {
                running.stop();
            }
            if self.session.link.silent_for() > SILENCE_MAX {
                return Err(self.session.silent());
            }
            if self.spoke.elapsed() > ALIVE_EVERY {
                self.say(&ClientMessage::Alive)?;
            }
        }
        self.emit(Duration::ZERO);
        let mut near: EndOutcome = running.finish();
        near.report.findings.append(&mut self.findings);
        if let Some(moved) = moved {
            moved.undo(&mut near.report, End::Near);
        }
        Ok(outcome::assemble(self.spec, near, self.report))
    }

    fn take_event(&mut self, running: &mut RunningEnd) -> Result<(), ClientError> {
        if self.near_done {
            return Ok(());
        }
        match running.next_event(TURN) {
            Event::Interval(report) => self.pairing.near.push_back((Instant::now(), report)),
            Event::Finished => {
                self.near_done = true;
                self.say(&ClientMessage::Finished)?;
            }
            Event::Quiet => {}
        }
        Ok(())
    }

    fn take_messages(&mut self, running: &RunningEnd) -> Result<(), ClientError> {
        // A finished engine has no more events to wait for.
        let mut patience = if self.near_done { TURN } else { Duration::ZERO };
        while let Some(message) = self.session.hear(patience)? {
            patience = Duration::ZERO;
            match message {
                ServerMessage::Interval(wire) => self.pairing.far.push_back(wire.into()),
                ServerMessage::Finished => self.far_done = Some(Instant::now()),
                ServerMessage::Stopped { reason } => {
                    running.stop();
                    let code = "stopped-by-server".to_owned();
                    self.findings.push(Finding { end: Some(End::Far), code, text: reason });
                }
                ServerMessage::Report { report } => {
                    self.report = Some(*report);
                    self.far_done.get_or_insert_with(Instant::now);
                    return Ok(());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn emit(&mut self, patience: Duration) {
        while let Some(pair) = self.pairing.next(patience) {
            (self.on_interval)(&pair);
        }
    }

    fn say(&mut self, message: &ClientMessage) -> Result<(), ClientError> {
        self.spoke = Instant::now();
        self.session.say(message)
    }
}

/// Brings the two ends' reports of the same interval together, in order.
#[derive(Debug, Default)]
struct Pairing {
    near: VecDeque<(Instant, IntervalReport)>,
    far: VecDeque<IntervalReport>,
    /// Far reports whose near ones could not wait: to be passed over when they come.
    late_count: usize,
}

impl Pairing {
    fn next(&mut self, patience: Duration) -> Option<IntervalPair> {
        while self.late_count > 0 && self.far.pop_front().is_some() {
            self.late_count -= 1;
        }
        let (since, _) = self.near.front()?;
        if self.far.is_empty() && since.elapsed() < patience {
            return None;
        }
        let (_, near) = self.near.pop_front()?;
        let far = self.far.pop_front();
        self.late_count += usize::from(far.is_none());
        Some(IntervalPair { near, far })
    }
}
