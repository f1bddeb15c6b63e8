//! The near end of one test against our own server.

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
    ANSWER_FRAME_BYTES_MAX, ClientMessage, Purpose, STREAMS_TIMEOUT, ServerMessage, StreamPlan,
    Token, UDP_GREETING_EVERY, report_bytes_max, streams_of,
};
use crate::engine::{
    EndOutcome, EndPlan, RunningEnd, StreamRole, StreamSocket, prepare_socket, tcp_socket,
};
use crate::interrupts::move_to;
use crate::outcome;
use crate::running::{NearAction, NearRun, TURN};

impl Session {
    /// Runs one test; see [`super::run_test`]. The session can run further tests afterwards.
    ///
    /// # Errors
    /// [`ClientError`]; unless it is a refusal, the session is no longer usable.
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
        let engine = self.begin(&spec, streams)?;
        let run = NearRun::new(Instant::now(), &spec);
        self.link.set_frame_bytes_max(report_bytes_max(&spec));
        let trial = Trial { session: self, on_interval, run, engine };
        let Finished { mut near, far, cut_short } = trial.finish(should_stop)?;
        self.link.set_frame_bytes_max(ANSWER_FRAME_BYTES_MAX);
        near.report.findings.append(&mut findings);
        if let Some(moved) = moved {
            moved.undo(&mut near.report, End::Near);
        }
        let measured = outcome::assemble(&spec, near, far);
        match cut_short {
            None => Ok(measured),
            Some(why) => Err(ClientError::cut_short(why, measured)),
        }
    }

    /// Receives the server's grant: the token, the test as the server will run it, and the server's
    /// findings.
    fn accepted(
        &mut self,
        asked: &TestSpec,
    ) -> Result<(Token, TestSpec, Vec<Finding>), ClientError> {
        match self.answer(ANSWER_TIMEOUT)? {
            ServerMessage::Accepted { token, spec: Some(spec), findings } => {
                // A server may only slow a test down: this end allocates according to the spec.
                let same =
                    TestSpec { offered_bits_per_s: asked.offered_bits_per_s, ..*spec.clone() };
                if asked.far_interrupt_core.is_some() && spec.far_interrupt_core.is_none() {
                    return Err(ClientError::NoExtension {
                        target: self.target.to_string(),
                        version: self.tool_version.clone(),
                        what: "move interrupts",
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

    /// Starts both ends, each before it can be sent anything that it would miss.
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

    /// Waits until the server has all streams, repeating UDP greetings, which may be lost.
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
        Err(self.unexpected("the data connections could not be made"))
    }
}

/// A data connection being set up.
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
            // A refusal (ICMP) here answers an earlier greeting; the deadline decides.
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

/// A running test: carries out the actions of [`NearRun`].
struct Trial<'a> {
    session: &'a mut Session,
    on_interval: &'a mut dyn FnMut(&IntervalPair),
    run: NearRun,
    engine: RunningEnd,
}

/// What both ends have measured.
struct Finished {
    near: EndOutcome,
    far: Option<EndReport>,
    /// Why the test ended before its time, if the far end was the reason.
    cut_short: Option<ClientError>,
}

impl Trial<'_> {
    /// Runs the test to its end and collects what was measured.
    ///
    /// # Errors
    /// The far end ended the test, or was lost, before this end had moved a byte.
    fn finish(mut self, should_stop: &dyn Fn() -> bool) -> Result<Finished, ClientError> {
        let broken = self.run_to_end(should_stop).err();
        for pair in self.run.last_intervals(Instant::now()) {
            (self.on_interval)(&pair);
        }
        let (far, stopped_because) = self.run.into_parts();
        let target = self.session.target.to_string();
        let stopped = stopped_because.map(|reason| ClientError::Far { target, reason });
        let cut_short = stopped.or(broken);
        match cut_short {
            // Dropping the engine ends its threads.
            Some(why) if self.engine.moved_bytes() == 0 => Err(why),
            cut_short => Ok(Finished { near: self.engine.finish(), far, cut_short }),
        }
    }

    fn run_to_end(&mut self, should_stop: &dyn Fn() -> bool) -> Result<(), ClientError> {
        while !self.run.is_over() {
            if should_stop() {
                self.run.stop(Instant::now());
                self.carry_out()?;
            }
            if !self.run.near_done() {
                let event = self.engine.next_event(TURN);
                self.run.on_event(Instant::now(), event);
                self.carry_out()?;
            }
            self.take_messages()?;
            let silent_for = self.session.link.silent_for();
            if self.run.on_time(Instant::now(), silent_for).is_err() {
                return Err(self.session.silent());
            }
            self.carry_out()?;
        }
        Ok(())
    }

    fn take_messages(&mut self) -> Result<(), ClientError> {
        // A finished engine has no more events to wait for.
        let mut patience = if self.run.near_done() { TURN } else { Duration::ZERO };
        let had_report = self.run.has_report();
        while let Some(message) = self.session.hear(patience)? {
            patience = Duration::ZERO;
            self.run.on_message(Instant::now(), message);
            self.carry_out()?;
            if self.run.has_report() && !had_report {
                break;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self) -> Result<(), ClientError> {
        while let Some(action) = self.run.poll() {
            match action {
                NearAction::Say(message) => self.session.say(&message)?,
                NearAction::StopEngine => self.engine.stop(),
                NearAction::Show(pair) => (self.on_interval)(&pair),
            }
        }
        Ok(())
    }
}
