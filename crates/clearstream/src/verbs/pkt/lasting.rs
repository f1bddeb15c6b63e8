//! Runs that go on when the switch is started anew.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use packet_switch::client::{Attached, default_socket};
use packet_switch::pkt::{self, GenerateCount, Manner, PktError, Received, Sent, SinkCount};
use packet_switch::station::{Backoff, Place, Rejoined, Station};
use units::show_seconds;

use super::show::Show;
use super::{GenArgs, SinkArgs, explain, stop};
use crate::VerbResult;
use crate::exit::VerbError;
use crate::signals;

/// What the ends of switches took from a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outage {
    /// How often there was a new one.
    pub(super) reconnects: u32,
    /// How long there was none.
    pub(super) away: Duration,
    /// Frames handed over that no switch took.
    pub(super) lost: u64,
}

impl Outage {
    fn add(&mut self, back: Rejoined) {
        self.reconnects += 1;
        self.away += back.away;
        self.lost += u64::from(back.lost);
    }
}

/// Runs `pkt gen`.
pub(super) fn generate(
    socket: Option<&Path>,
    place: Place,
    args: &GenArgs,
    manner: Manner,
    show: &mut Show,
) -> VerbResult {
    let (what, mut so_far) = (args.generate(manner), Sent::default());
    let mut report = |count: GenerateCount| show.sent_so_far(&count);
    let (count, outage) = run(socket, place, |port, outage, stop| {
        so_far.away = outage.away;
        let count = pkt::generate_on(&mut port.sender, &what, &mut so_far, &mut report, stop)
            .map_err(failed)?;
        let done = what.count == Some(count.frames)
            || what.duration.is_some_and(|all| count.elapsed >= all);
        Ok((count, done))
    })?;
    Ok(show.sent(&count, &outage)?)
}

/// Runs `pkt sink`.
pub(super) fn sink(
    socket: Option<&Path>,
    place: Place,
    args: &SinkArgs,
    manner: Manner,
    show: &mut Show,
) -> VerbResult {
    let (what, mut so_far) = (args.sink(manner), Received::default());
    let mut report = |count: SinkCount| show.received_so_far(&count);
    let (count, outage) = run(socket, place, |port, _, stop| {
        args.announce(port, manner)?;
        let mut count = pkt::sink_on(&mut port.receiver, &what, &mut so_far, &mut report, stop)
            .map_err(failed)?;
        // What a switch has delivered is there, also when it has gone.
        let left = port.receiver.peek(u32::MAX).map_err(PktError::from).map_err(failed)?;
        let upto = count.frames + u64::from(left);
        if left > 0 && stop() && signals::caught().is_none() {
            let rest =
                pkt::Sink { count: Some(what.count.unwrap_or(upto).min(upto)), ..what.clone() };
            count = pkt::sink_on(&mut port.receiver, &rest, &mut so_far, &mut report, &|| false)
                .map_err(failed)?;
        }
        Ok((count, what.count == Some(count.frames) || !stop()))
    })?;
    Ok(show.received(&count, args.check, &outage)?)
}

fn failed(error: PktError) -> VerbError {
    VerbError::from_error(&error)
}

/// Does something at a port until it is done, again and again when a switch ends meanwhile.
fn run<T>(
    socket: Option<&Path>,
    place: Place,
    mut go: impl FnMut(&mut Attached, &Outage, &dyn Fn() -> bool) -> Result<(T, bool), VerbError>,
) -> Result<(T, Outage), VerbError> {
    let socket = socket.map_or_else(default_socket, Path::to_owned);
    let is_pipe = matches!(place, Place::Pipe { .. });
    let mut station = Station::attach(&socket, place).map_err(|error| explain(&error))?;
    let (mut outage, mut alone) = (Outage::default(), false);
    let signalled = || signals::caught().is_some();
    loop {
        let (connection, port) = station.parts();
        let (count, done) = if alone {
            go(port, &outage, &signalled)?
        } else {
            go(port, &outage, &stop(connection))?
        };
        if done || alone || signalled() || !station.is_deserted() {
            return Ok((count, outage));
        }
        if is_pipe {
            match station.parts().0.poll_cut_off() {
                Ok(Some((_, why))) => {
                    return Err(VerbError::failed(format!("the switch cut us off: {why}")));
                }
                Ok(None) => continue,
                Err(_) => say("the switch has gone; the pipe goes on between those who have it"),
            }
            alone = true;
            continue;
        }
        if outage.reconnects == 0 {
            say("the switch has gone; waiting for the next one");
        }
        let back =
            station.rejoin(Backoff::default(), &signalled).map_err(|error| explain(&error))?;
        outage.add(back);
        say(&format!(
            "the switch is back after {}; {} frames that were handed over are lost",
            show_seconds(back.away.as_secs_f64()),
            back.lost
        ));
    }
}

fn say(line: &str) {
    // A closed stderr takes nothing from the result.
    writeln!(io::stderr(), "clearstream: {line}").ok();
}
