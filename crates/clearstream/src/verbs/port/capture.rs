//! `port capture`: writes a port's frames to a pcap file with nanosecond timestamps.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use packet_switch::PortName;
use packet_switch::attachment::Record;
use packet_switch::client::{Attached, Connection};
use ring::Patience;

use super::explain;
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::signals;

/// Magic number of pcap with nanosecond timestamps (pcap-savefile(5)).
const MAGIC: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
/// Longest frame written, bytes: a super-segment with headers.
const SNAP_BYTES: u32 = 262_144;
/// Polling interval: a capture gets no wake-ups.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Conditions, besides a signal, that end a capture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Until {
    pub(super) count: Option<u64>,
    pub(super) duration: Option<Duration>,
}

#[derive(Debug, Default)]
struct Captured {
    frames: u64,
    missed: u64,
}

pub(super) fn run(
    connection: &mut Connection,
    port: &PortName,
    path: &Path,
    until: Until,
    json: bool,
) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let mut watched = connection.watch(port).map_err(|error| explain(&error))?;
    let named = |error: io::Error| VerbError::failed(format!("{}: {error}", path.display()));
    let file: Box<dyn Write> = match path.to_str() {
        Some("-") => Box::new(crate::out::raw_stdout()),
        _ => Box::new(sys::private::create(path).map_err(named)?),
    };
    let mut out = BufWriter::new(file);
    out.write_all(&header()).and_then(|()| out.flush()).map_err(named)?;
    if !json {
        writeln!(crate::out::stderr(), "capturing {port} into {}; Ctrl-C ends it", path.display())
            .ok();
    }
    let began = Instant::now();
    let mut captured = Captured::default();
    let mut space = vec![0; SNAP_BYTES as usize];
    let (gone, signal) = loop {
        let ended = until.count.is_some_and(|count| captured.frames >= count)
            || until.duration.is_some_and(|time| began.elapsed() >= time);
        if ended {
            break (None, None);
        }
        if let Some(number) = signals::caught() {
            break (None, Some(number));
        }
        if connection.has_news() {
            let why = match connection.poll_cut_off() {
                Ok(Some((_, why))) => why,
                _ => "the switch has ended".to_owned(),
            };
            break (Some(why), None);
        }
        let patience = Patience { linger: Duration::ZERO, timeout: LOOK_EVERY };
        let arrived =
            watched.receiver.wait(patience).map_err(|error| VerbError::from_error(&error))?;
        if arrived > 0 {
            let most = until.count.map_or(u64::MAX, |count| count - captured.frames);
            take(&mut watched, arrived, most, &mut space, &mut out, &mut captured)
                .map_err(named)?;
        }
    };
    out.flush().map_err(named)?;
    let Captured { frames, missed } = captured;
    if json && path.to_str() != Some("-") {
        writeln!(
            crate::out::stdout(),
            "{}",
            serde_json::json!({ "frames": frames, "missed": missed })
        )?;
    } else {
        writeln!(crate::out::stderr(), "{frames} frames, {missed} missed").ok();
    }
    if let Some(why) = &gone {
        writeln!(crate::out::stderr(), "clearstream: {why}: the file holds what came until then")
            .ok();
    }
    if missed > 0 || gone.is_some() {
        return Ok(Exit::Partial);
    }
    let has_end = until.count.is_some() || until.duration.is_some();
    Ok(Exit::of_run(has_end, signal))
}

fn take(
    watched: &mut Attached,
    arrived: u32,
    most: u64,
    space: &mut [u8],
    out: &mut impl Write,
    captured: &mut Captured,
) -> io::Result<()> {
    let before = captured.frames;
    let (mut slot, mut bytes) = (0, 0);
    while slot < arrived && captured.frames - before < most {
        let left = &mut space[bytes..];
        let length = watched.receiver.copy(slot, left).unwrap_or(0).min(left.len());
        bytes += length;
        let whole = !watched.receiver.goes_on(slot);
        slot += 1;
        if !whole {
            continue;
        }
        if let Some((record, frame)) = Record::split(&space[..bytes]) {
            captured.missed += u64::from(record.missed);
            captured.frames += 1;
            out.write_all(&packet_header(&record, frame.len()))?;
            out.write_all(frame)?;
        }
        bytes = 0;
    }
    watched.receiver.release(slot).map_err(|error| error.source)
}

fn header() -> Vec<u8> {
    let version = [2_u16.to_le_bytes(), 4_u16.to_le_bytes()].concat();
    let words = [0, 0, SNAP_BYTES, LINKTYPE_ETHERNET].map(u32::to_le_bytes).concat();
    [&MAGIC.to_le_bytes()[..], &version, &words].concat()
}

fn packet_header(record: &Record, frame_bytes: usize) -> Vec<u8> {
    // Wraps in 2106, as the format's field does.
    let seconds = (record.seen_ns / 1_000_000_000) as u32;
    let nanoseconds = (record.seen_ns % 1_000_000_000) as u32;
    // At most SNAP_BYTES.
    let length = frame_bytes as u32;
    [seconds, nanoseconds, length, length].map(u32::to_le_bytes).concat()
}
