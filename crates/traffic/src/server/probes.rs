//! Requests other than tests: round trips, the path MTU, counters.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use topology::InterfaceCounters;

use super::registry::{Arrival, Wanted};
use super::session::{Client, SessionEnd};
use crate::control::{ClientMessage, CounterReading, STREAMS_TIMEOUT, ServerMessage, Token};

/// Upper bound on the duration of a series of round trips.
const ECHO_MAX: Duration = Duration::from_secs(60);
/// A series of round trips ends when nothing has arrived for this long.
const ECHO_SILENCE_MAX: Duration = Duration::from_secs(5);
/// Upper bound on the duration of a path MTU search.
const PROBES_MAX: Duration = Duration::from_secs(30);
const LOOK_UP_EVERY: Duration = Duration::from_millis(100);
/// Watching clients send `alive`; one that has sent nothing for this long is considered gone.
const WATCH_SILENCE_MAX: Duration = Duration::from_secs(30);
/// Upper bound on the interfaces that one client may watch.
const INTERFACES_MAX: usize = 64;

/// Returns every byte of one data connection until the client closes it.
pub(super) fn echo(client: &mut Client) -> Result<(), SessionEnd> {
    let token = Token::random();
    let wanted = Wanted { streams_max: 1, probes: false };
    let inbox = client.shared.registry.expect(&token, client.peer.ip(), client.local, wanted);
    client.link.send(&ServerMessage::Accepted { token, spec: None, findings: Vec::new() })?;
    let deadline = Instant::now() + STREAMS_TIMEOUT;
    let mut stream = loop {
        match inbox.next(LOOK_UP_EVERY) {
            Some(Arrival::Tcp { stream, .. }) => break stream,
            _ if Instant::now() > deadline => return Err(SessionEnd::Silent),
            _ => {}
        }
        if let Some(ClientMessage::Bye) = client.next_message(Duration::ZERO)? {
            return Err(SessionEnd::Bye);
        }
    };
    client.began("round trips".to_owned());
    let prepared = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_nodelay(true))
        .and_then(|()| stream.set_read_timeout(Some(ECHO_SILENCE_MAX)))
        .and_then(|()| stream.set_write_timeout(Some(ECHO_SILENCE_MAX)));
    prepared.map_err(|error| SessionEnd::Failed(error.to_string()))?;
    client.link.send(&ServerMessage::Ready)?;
    let deadline = Instant::now() + ECHO_MAX;
    let mut bytes = [0; 64];
    let goes_on = || !client.shared.registry.is_ending() && !client.place.is_taken_back();
    while Instant::now() < deadline && goes_on() {
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => {
                client.place.touch();
                if stream.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Silence or a broken connection: the client sees this end close it.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Reports the padded greetings that arrive, until the client ends the search.
pub(super) fn path_mtu(client: &mut Client) -> Result<(), SessionEnd> {
    let token = Token::random();
    let wanted = Wanted { streams_max: 64, probes: true };
    let inbox = client.shared.registry.expect(&token, client.peer.ip(), client.local, wanted);
    client.link.send(&ServerMessage::Accepted { token, spec: None, findings: Vec::new() })?;
    client.began("path MTU".to_owned());
    let deadline = Instant::now() + PROBES_MAX;
    while Instant::now() < deadline {
        if let Some(Arrival::Probe { payload_bytes }) = inbox.next(Duration::from_millis(10)) {
            client.place.touch();
            client.link.send(&ServerMessage::ProbeSeen { payload_bytes })?;
        }
        match client.next_message(Duration::ZERO)? {
            Some(ClientMessage::Finished) => return Ok(()),
            Some(ClientMessage::Bye) => return Err(SessionEnd::Bye),
            Some(_) | None => {}
        }
    }
    Ok(())
}

/// Sends interface counters at every interval until the client sends `bye` or `stop`.
pub(super) fn watch(
    client: &mut Client,
    mut interfaces: Vec<String>,
    interval_s: f64,
) -> Result<(), SessionEnd> {
    if !(0.1..=60.0).contains(&interval_s) {
        return client.refuse_bad("the interval of a watch is 0.1 to 60 s");
    }
    if interfaces.len() > INTERFACES_MAX {
        return client.refuse_bad("a watch names at most 64 interfaces");
    }
    if interfaces.is_empty() {
        interfaces.extend(topology::interface_toward(client.peer.ip().to_canonical()));
    }
    let known = InterfaceCounters::read();
    let unknown = |name: &&String| !known.iter().any(|device| device.interface == **name);
    if let Some(name) = interfaces.iter().find(unknown) {
        let reason = format!("there is no interface {name:?} on the far host");
        return client.refuse_bad(&reason);
    }
    client.began(format!("watches {}", interfaces.join(", ")));
    let began = Instant::now();
    let interval = Duration::from_secs_f64(interval_s);
    let mut next = began;
    loop {
        let devices = InterfaceCounters::read()
            .into_iter()
            .filter(|device| interfaces.contains(&device.interface))
            .collect();
        let at_s = began.elapsed().as_secs_f64();
        client.link.send(&ServerMessage::Counters(CounterReading { at_s, devices }))?;
        next += interval;
        while Instant::now() < next {
            let left = next.saturating_duration_since(Instant::now());
            match client.next_message(left.min(LOOK_UP_EVERY))? {
                Some(ClientMessage::Bye) => return Err(SessionEnd::Bye),
                Some(ClientMessage::Stop) => return Ok(()),
                Some(_) | None => {}
            }
        }
        if client.link.silent_for() > WATCH_SILENCE_MAX {
            return Err(SessionEnd::Silent);
        }
    }
}
