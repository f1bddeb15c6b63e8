//! The server's end of one test.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use results::{End, Finding, Protocol, TestSpec};

use super::registry::{Arrival, Inbox, Wanted};
use super::session::{Client, SessionEnd};
use super::sockets::drain;
use crate::control::{
    ClientMessage, Refusal, RefusalCode, SILENCE_MAX, STREAMS_TIMEOUT, ServerMessage, StreamPlan,
    Token, admit, streams_of,
};
use crate::engine::{
    BufferCaps, EndPlan, Need, RunningEnd, Samples, StreamRole, StreamSocket, need_of,
    prepare_socket,
};
use crate::interrupts::{self, MoveError, Moved};
use crate::outcome::note;
use crate::running::{FarAction, FarEnding, FarRun, MARGIN, TURN};

/// Upper bound on queued repeated greetings of a UDP stream.
const GREETINGS_MAX: usize = 10_000;
/// Messages of a client processed before the clock and the engine are checked again.
const MESSAGES_A_TURN: usize = 64;

/// Serves one test, from the request to the report.
pub(super) fn serve(client: &mut Client, spec: TestSpec) -> Result<(), SessionEnd> {
    let (spec, findings) = match admit(spec, &client.shared.config.limits) {
        Ok(admitted) => admitted,
        Err(refusal) => return client.refuse(refusal),
    };
    let plans = streams_of(&spec);
    let longest = client.shared.config.limits.longest(&spec);
    let need = need_of_test(&spec, &plans, longest, client.shared.buffer_caps);
    // Held until every resource of the test is freed.
    let _share = match client.place.take(need) {
        Ok(share) => share,
        Err(refusal) => return client.refuse(refusal),
    };
    client.place.touch();
    let moved = spec
        .far_interrupt_core
        .map(|core| interrupts::move_to(core, client.peer.ip().to_canonical(), End::Far));
    let moved = match moved.transpose() {
        Ok(moved) => moved,
        Err(error) => {
            let is_busy = matches!(error, MoveError::Busy(_));
            let code = if is_busy { RefusalCode::Busy } else { RefusalCode::Other };
            return client.refuse(Refusal::new(code, error.to_string()));
        }
    };
    client.began(crate::describe_test(&spec));
    let token = Token::random();
    let wanted = Wanted { streams_max: plans.len(), probes: false };
    let inbox = client.shared.registry.expect(&token, client.peer.ip(), client.local, wanted);
    // Only the connections that are about to be made need it.
    let offered = spec
        .receive_window_bytes()
        .filter(|_| spec.protocol == Protocol::Tcp)
        .and_then(|window_bytes| client.shared.listeners.offer_window(window_bytes));
    let accepted = Some(Box::new(spec.clone()));
    client.link.send(&ServerMessage::Accepted { token, spec: accepted, findings })?;
    let mut noticed = Vec::new();
    let Some(streams) = collect(client, &spec, &plans, &inbox, &mut noticed)? else {
        return Ok(());
    };
    drop(offered);
    // Further connections of the client are closed.
    drop(inbox);
    client.link.send(&ServerMessage::Ready)?;
    if !wait_for_go(client)? {
        return Ok(());
    }
    // Discard greetings that were in flight when their stream was confirmed.
    let datagrams = streams.iter().filter(|stream| stream.udp);
    datagrams.for_each(|stream| drain(&stream.socket.socket, GREETINGS_MAX));
    let streams = streams.into_iter().map(|stream| stream.socket).collect();
    let plan = EndPlan { spec: spec.clone(), end: End::Far, streams, udp_counters_64bit: true };
    let engine = match RunningEnd::start(plan) {
        Ok(engine) => engine,
        Err(error) => {
            return Err(SessionEnd::Failed(format!("the far end cannot run it: {error}")));
        }
    };
    client.link.send(&ServerMessage::Started)?;
    let run = FarRun::new(Instant::now(), &spec, &client.shared.config.limits);
    Trial { client, run, engine }.finish(noticed, moved)
}

/// Upper bound on the resources of the test's far end.
fn need_of_test(
    spec: &TestSpec,
    plans: &[StreamPlan],
    longest: Duration,
    caps: BufferCaps,
) -> Need {
    let streams: Vec<_> = plans.iter().map(|plan| (plan.protocol, plan.far)).collect();
    let intervals = (longest + MARGIN).as_secs_f64() / spec.interval_s;
    need_of(spec, &streams, Samples::All(units::saturating_u64(intervals) + 2), caps)
}

struct Stream {
    socket: StreamSocket,
    udp: bool,
}

/// Waits for all data connections; `None` if the client has cancelled the test.
fn collect(
    client: &mut Client,
    spec: &TestSpec,
    plans: &[StreamPlan],
    inbox: &Inbox,
    findings: &mut Vec<Finding>,
) -> Result<Option<Vec<Stream>>, SessionEnd> {
    let deadline = Instant::now() + STREAMS_TIMEOUT;
    let mut streams: Vec<Option<Stream>> = plans.iter().map(|_| None).collect();
    while streams.iter().any(Option::is_none) {
        if let Some(arrival) = inbox.next(TURN)
            && let Some((index, socket, udp)) = opened(arrival)
            && let Some(plan) = plans.get(usize::from(index))
            && streams[usize::from(index)].is_none()
            && udp == (plan.protocol == Protocol::Udp)
        {
            if !udp && spec.receive_window_bytes().is_none() {
                // A connection made while another test was offered a large window would otherwise
                // keep a fixed buffer.
                sys::socket::release_buffers(&socket).ok();
            }
            let noticed = prepare_socket(&socket, spec, plan.far == StreamRole::Send);
            note(findings, noticed, End::Far);
            let socket = StreamSocket { index: u32::from(index), role: plan.far, socket };
            streams[usize::from(index)] = Some(Stream { socket, udp });
            client.link.send(&ServerMessage::StreamConnected { index })?;
            continue;
        }
        match client.next_message(Duration::ZERO)? {
            Some(ClientMessage::Bye) => return Err(SessionEnd::Bye),
            Some(ClientMessage::Stop) => return Ok(None),
            Some(_) | None => {}
        }
        if Instant::now() > deadline {
            let missing = streams.iter().filter(|stream| stream.is_none()).count();
            return Err(SessionEnd::Failed(format!(
                "{missing} of {} data connections did not arrive within {} s",
                plans.len(),
                STREAMS_TIMEOUT.as_secs()
            )));
        }
    }
    Ok(Some(streams.into_iter().flatten().collect()))
}

fn opened(arrival: Arrival) -> Option<(u16, OwnedFd, bool)> {
    match arrival {
        Arrival::Tcp { index, stream } => {
            stream.set_nonblocking(false).ok()?;
            Some((index, stream.into(), false))
        }
        Arrival::Udp { index, socket, .. } => Some((index, UdpSocket::into(socket), true)),
        Arrival::Foreign { .. } | Arrival::Probe { .. } => None,
    }
}

fn wait_for_go(client: &mut Client) -> Result<bool, SessionEnd> {
    let deadline = Instant::now() + SILENCE_MAX;
    while Instant::now() < deadline {
        match client.next_message(TURN)? {
            Some(ClientMessage::Go) => return Ok(true),
            Some(ClientMessage::Stop) => return Ok(false),
            Some(ClientMessage::Bye) => return Err(SessionEnd::Bye),
            Some(_) | None => {}
        }
    }
    Err(SessionEnd::Silent)
}

/// A running test: carries out the actions of [`FarRun`].
struct Trial<'a> {
    client: &'a mut Client,
    run: FarRun,
    engine: RunningEnd,
}

impl Trial<'_> {
    /// Runs the test to its end and sends the report.
    fn finish(mut self, mut noticed: Vec<Finding>, moved: Option<Moved>) -> Result<(), SessionEnd> {
        // Returning early drops the engine, which ends its threads.
        loop {
            match self.run.ending() {
                None => self.turn()?,
                Some(FarEnding::Account) => break,
                Some(FarEnding::Left) => return Err(SessionEnd::Bye),
                Some(FarEnding::Silent) => return Err(SessionEnd::Silent),
            }
        }
        self.engine.stop();
        let mut report = Box::new(self.engine.finish().report);
        report.findings.append(&mut noticed);
        if let Some(moved) = moved {
            moved.undo(&mut report, End::Far);
        }
        for message in self.run.closing(report) {
            self.client.link.send(&message)?;
        }
        Ok(())
    }

    /// Passes events and messages of both sides to the state machine, once.
    fn turn(&mut self) -> Result<(), SessionEnd> {
        // A finished engine has no more events and must not be polled in a tight loop.
        let mut patience = TURN;
        if !self.run.far_done() {
            patience = Duration::ZERO;
            let event = self.engine.next_event(TURN);
            self.run.on_event(Instant::now(), event);
            self.carry_out()?;
        }
        // Bounded: a client that never stops sending must not keep this loop going.
        for _ in 0..MESSAGES_A_TURN {
            if self.run.ending().is_some() {
                return Ok(());
            }
            let message = match self.client.next_message(patience) {
                Err(end @ SessionEnd::Ending) => {
                    // The client still gets the report of what was measured.
                    self.run.stop(Instant::now(), end.to_string());
                    return self.carry_out();
                }
                other => other?,
            };
            let Some(message) = message else { break };
            patience = Duration::ZERO;
            self.run.on_message(Instant::now(), &message);
            self.carry_out()?;
        }
        let silent_for = self.client.link.silent_for();
        self.run.on_time(Instant::now(), silent_for, self.engine.moved_bytes());
        self.carry_out()
    }

    fn carry_out(&mut self) -> Result<(), SessionEnd> {
        while let Some(action) = self.run.poll() {
            match action {
                FarAction::Say(message) => self.client.link.send(&message)?,
                FarAction::StopEngine => self.engine.stop(),
                FarAction::Touch => self.client.place.touch(),
            }
        }
        Ok(())
    }
}
