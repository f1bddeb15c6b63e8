//! Runs that survive restarts of the switch.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use packet_switch::client::{Attached, Connection, default_socket};
use packet_switch::pkt::{
    self, BridgeCount, GenerateCount, Manner, PingCount, Pinged, PktError, Received, Sent,
    SinkCount,
};
use packet_switch::station::{Backoff, Place, Rejoined, Station};
use units::show_seconds;

use super::drops::{Before, Drops};
use super::show::Show;
use super::{GenArgs, SinkArgs, explain, stop};
use crate::VerbResult;
use crate::exit::VerbError;
use crate::signals;

/// The effect of switch restarts on a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outage {
    /// Number of restarts.
    pub(super) reconnects: u32,
    /// Total time without a switch.
    pub(super) away: Duration,
    /// Frames handed over that no switch took.
    pub(super) lost: u64,
}

impl Outage {
    /// Adds a restart, after which each of these ports is attached again.
    fn add(&mut self, back: &[Rejoined]) {
        self.reconnects += u32::from(!back.is_empty());
        // The ports waited one after the other, so their times add up.
        self.away += back.iter().map(|one| one.away).sum::<Duration>();
        self.lost += back.iter().map(|one| u64::from(one.lost)).sum::<u64>();
    }
}

pub(super) fn generate(
    socket: Option<&Path>,
    place: Place,
    args: &GenArgs,
    manner: Manner,
    show: &mut Show,
) -> VerbResult {
    let (what, mut so_far) = (args.generate(manner), Sent::default());
    let mut report = |count: GenerateCount| show.sent_so_far(&count);
    let Ran { value: count, outage, drops, signal } =
        run(socket, [place], |[port], outage, stop| {
            so_far.away = outage.away;
            let count = pkt::generate_on(&mut port.sender, &what, &mut so_far, &mut report, stop)
                .map_err(failed)?;
            let done = what.count == Some(count.frames)
                || what.duration.is_some_and(|all| count.elapsed >= all);
            Ok((count, done))
        })?;
    let has_end = args.count.is_some() || args.duration.is_some();
    Ok(show.sent(&count, args.slots_only, drops.as_ref(), &outage)?.unless_cut(has_end, signal))
}

pub(super) fn sink(
    socket: Option<&Path>,
    place: Place,
    args: &SinkArgs,
    manner: Manner,
    show: &mut Show,
) -> VerbResult {
    let (what, mut so_far) = (args.sink(manner), Received::default());
    let mut report = |count: SinkCount| show.received_so_far(&count);
    let Ran { value: count, outage, drops, signal } = run(socket, [place], |[port], _, stop| {
        args.announce(port, manner)?;
        let mut count = pkt::sink_on(&mut port.receiver, &what, &mut so_far, &mut report, stop)
            .map_err(failed)?;
        // Frames that a switch delivered remain readable after it ended.
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
    let has_end = args.count.is_some() || args.duration.is_some() || args.quiet.is_some();
    let exit = show.received(&count, (args.check, args.slots_only), drops.as_ref(), &outage)?;
    Ok(exit.unless_cut(has_end, signal))
}

pub(super) fn ping(
    socket: Option<&Path>,
    place: Place,
    args: &GenArgs,
    manner: Manner,
    show: &mut Show,
) -> VerbResult {
    let (what, mut so_far) = (args.generate(manner), Pinged::default());
    let mut report = |count: &PingCount| show.pinged_so_far(count);
    let Ran { outage, signal, .. } = run(socket, [place], |[port], outage, stop| {
        so_far.away = outage.away;
        let ends = (&mut port.sender, &mut port.receiver);
        let done = pkt::ping_on(ends, &what, &mut so_far, &mut report, stop).map_err(failed)?;
        Ok(((), done))
    })?;
    // Without a number of round trips it makes 1000.
    Ok(show.pinged(so_far.count(), &outage)?.unless_cut(true, signal))
}

pub(super) fn echo(
    socket: Option<&Path>,
    place: Place,
    manner: Manner,
    show: &mut Show,
) -> VerbResult {
    let mut so_far = BridgeCount::default();
    let Ran { outage, .. } = run(socket, [place], |[port], _, stop| {
        let mut report = so_far_and(so_far, show);
        let (receiver, sender) = (&mut port.receiver, &mut port.sender);
        so_far += pkt::echo(receiver, sender, &manner, &mut report, stop).map_err(failed)?;
        Ok(((), false))
    })?;
    Ok(show.passed(&so_far, &outage)?)
}

pub(super) fn bridge(
    socket: Option<&Path>,
    places: [Place; 2],
    manner: Manner,
    show: &mut Show,
) -> VerbResult {
    let mut so_far = BridgeCount::default();
    let Ran { outage, .. } = run(socket, places, |[one, other], _, stop| {
        let mut report = so_far_and(so_far, show);
        let one = (&mut one.receiver, &mut one.sender);
        let other = (&mut other.receiver, &mut other.sender);
        so_far += pkt::bridge(one, other, &manner, &mut report, stop).map_err(failed)?;
        Ok(((), false))
    })?;
    Ok(show.passed(&so_far, &outage)?)
}

/// Reports the frames forwarded at this switch and at its predecessors.
fn so_far_and(before: BridgeCount, show: &mut Show) -> impl FnMut(BridgeCount) {
    move |count| {
        let mut all = before;
        all += count;
        show.passed_so_far(&all);
    }
}

fn failed(error: PktError) -> VerbError {
    VerbError::from_error(&error)
}

/// A port of a switch, or a pipe that may outlive its switch.
struct Seat {
    station: Station,
    is_pipe: bool,
    /// Whether the pipe's switch has ended.
    alone: bool,
}

/// What a job came to.
struct Ran<T> {
    value: T,
    outage: Outage,
    /// What the last switch dropped at the first port; `None` for a pipe.
    drops: Option<Drops>,
    /// The signal that ended it before it was done.
    signal: Option<i32>,
}

/// Runs a job on ports, and repeats it after each restart of the switch until it is done.
fn run<T, const PLACES: usize>(
    socket: Option<&Path>,
    places: [Place; PLACES],
    mut go: impl FnMut(
        [&mut Attached; PLACES],
        &Outage,
        &dyn Fn() -> bool,
    ) -> Result<(T, bool), VerbError>,
) -> Result<Ran<T>, VerbError> {
    let socket = socket.map_or_else(default_socket, Path::to_owned);
    let sit = |place: Place| -> Result<Seat, VerbError> {
        let is_pipe = matches!(place, Place::Pipe { .. });
        let station = Station::attach(&socket, place).map_err(|error| explain(&error))?;
        Ok(Seat { station, is_pipe, alone: false })
    };
    let first = places.first().cloned();
    let counters = || first.as_ref().and_then(|place| Before::of(&socket, place));
    let mut before = counters();
    let mut seats = Vec::new();
    for place in places {
        seats.push(sit(place)?);
    }
    let mut outage = Outage::default();
    loop {
        let mut switches: Vec<&Connection> = Vec::new();
        let mut ports = Vec::new();
        for Seat { station, alone, .. } in &mut seats {
            let (connection, port) = station.parts();
            switches.extend((!*alone).then_some(&*connection));
            ports.push(port);
        }
        let ports = ports.try_into().map_err(|_more| VerbError::failed("a place too many"))?;
        let (count, done) = go(ports, &outage, &stop(&switches))?;
        let deserted = seats.iter().any(|seat| !seat.alone && seat.station.is_deserted());
        if done || signalled() || !deserted {
            let signal = signals::caught().filter(|_| !done);
            let drops = before.and_then(|before| before.until_now(&socket));
            return Ok(Ran { value: count, outage, drops, signal });
        }
        for seat in seats.iter_mut().filter(|seat| seat.is_pipe && !seat.alone) {
            seat.alone = go_on_alone(&mut seat.station)?;
        }
        let ports = seats.iter_mut().filter(|seat| !seat.is_pipe);
        rejoin(ports.map(|seat| &mut seat.station), &mut outage)?;
        before = counters();
    }
}

fn signalled() -> bool {
    signals::caught().is_some()
}

/// Whether the switch of a pipe has ended; its users can go on without it.
fn go_on_alone(station: &mut Station) -> Result<bool, VerbError> {
    match station.parts().0.poll_cut_off() {
        Ok(Some((_, why))) => Err(cut_off(&why)),
        Ok(None) => Ok(false),
        Err(_) => {
            say("the switch has ended; the pipe still works between its two ends");
            Ok(true)
        }
    }
}

/// Waits for a restarted switch, for each port that has none.
fn rejoin<'a>(
    stations: impl Iterator<Item = &'a mut Station>,
    outage: &mut Outage,
) -> Result<(), VerbError> {
    let mut back = Vec::new();
    for station in stations {
        if !station.is_deserted() {
            continue;
        }
        if let Ok(Some((_, why))) = station.parts().0.poll_cut_off() {
            return Err(cut_off(&why));
        }
        if outage.reconnects == 0 && back.is_empty() {
            say("the switch has ended; waiting for the next one");
        }
        let rejoined = station.rejoin(Backoff::default(), &signalled);
        back.push(rejoined.map_err(|error| explain(&error))?);
    }
    let Some(away) = back.iter().map(|one| one.away).max() else { return Ok(()) };
    let lost: u32 = back.iter().map(|one| one.lost).sum();
    outage.add(&back);
    say(&format!(
        "the switch is back after {}; {lost} frames that were handed over are lost",
        show_seconds(away.as_secs_f64()),
    ));
    Ok(())
}

fn cut_off(why: &str) -> VerbError {
    VerbError::failed(format!("the switch disconnected this client: {why}"))
}

fn say(line: &str) {
    // A closed stderr does not affect the result.
    writeln!(crate::out::stderr(), "clearstream: {line}").ok();
}
