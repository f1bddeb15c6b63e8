//! Samples of `ss -tin` (iproute2), one or many, with or without the time before each.

use core::fmt;
use std::collections::BTreeMap;

use crate::{FLOWS_MAX, RecordedError, SAMPLES_MAX};

/// So much of the beginning is looked at to know the format, bytes.
const HEAD_BYTES: usize = 65_536;
/// Connections of one socket list that a line may tell are told apart by their addresses; longer ones
/// than this are cut.
const ADDRESS_CHARS_MAX: usize = 80;
/// Least number that is a time since 1970 and not a count, seconds.
const UNIX_FROM_S: f64 = 1e8;
const UNIX_MAX_S: f64 = 1e11;
/// Larger numbers are no figures of a connection.
const NUMBER_MAX: f64 = 1e18;
const DAY_S: f64 = 86_400.0;

/// What one sample says of the connection. Counters are since it began.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sample {
    /// When, seconds on whatever clock the time was written by.
    pub(crate) at_s: Option<f64>,
    pub(crate) receive_queue_bytes: u64,
    pub(crate) send_queue_bytes: u64,
    pub(crate) algorithm: String,
    /// Send, receive.
    pub(crate) window_shifts: Option<(u8, u8)>,
    /// Numbers by the name `ss` gives them: times in its own unit (ms), sizes in bytes, rates in bit/s.
    pub(crate) numbers: BTreeMap<&'static str, f64>,
    pub(crate) is_app_limited: bool,
    /// Whether it lists `sack` among the options of the connection.
    pub(crate) is_sack: bool,
    /// Whether it lists `ts` among them.
    pub(crate) is_timestamped: bool,
}

impl Sample {
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        self.number(name).map(units::saturating_u64)
    }
}

/// The samples of the connection that moved most.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Samples {
    /// Of the host on which `ss` ran, and of the other.
    pub(crate) local: String,
    pub(crate) remote: String,
    /// Whether the host on which it ran sent the data.
    pub(crate) is_sender: bool,
    pub(crate) rows: Vec<Sample>,
    /// Whether the times are of a clock, or (else) of the connection's own account of busy time.
    pub(crate) is_timed: bool,
    pub(crate) others_count: usize,
    pub(crate) damage: Option<Damage>,
}

/// What of the text cannot be relied on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Number of the last line, when the file ends within it.
    cut_line: Option<usize>,
    /// Lines with bytes that no text has, the number of the first, and their bytes.
    garbled_count: usize,
    first_garbled_line: usize,
    garbled_bytes: usize,
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.garbled_count > 0 {
            let (count, bytes) = (self.garbled_count, self.garbled_bytes);
            let lines = if count == 1 { "line is" } else { "lines are" };
            let first = self.first_garbled_line;
            write!(
                out,
                "{count} {lines} damaged ({bytes} bytes, from line {first} on) and were not read"
            )?;
        }
        let Some(line) = self.cut_line else { return Ok(()) };
        let also = if self.garbled_count > 0 { "; " } else { "" };
        write!(out, "{also}the file is truncated within line {line}; its last sample was not read")
    }
}

/// Names of numbers that are kept.
const KEPT: [&str; 34] = [
    "rtt",
    "rttvar",
    "mss",
    "pmtu",
    "rcvmss",
    "advmss",
    "cwnd",
    "ssthresh",
    "bytes_sent",
    "bytes_retrans",
    "bytes_acked",
    "bytes_received",
    "segs_out",
    "segs_in",
    "busy",
    "rwnd_limited",
    "sndbuf_limited",
    "unacked",
    "retrans",
    "lost",
    "sacked",
    "dsack_dups",
    "reordering",
    "reord_seen",
    "rcv_rtt",
    "rcv_space",
    "notsent",
    "minrtt",
    "snd_wnd",
    "rcv_wnd",
    "pacing_rate",
    "delivery_rate",
    "skmem_rb",
    "skmem_tb",
];

/// States of connections, as `ss` writes them.
const STATES: [&str; 10] = [
    "ESTAB",
    "SYN-SENT",
    "SYN-RECV",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "CLOSE-WAIT",
    "LAST-ACK",
    "CLOSING",
    "LISTEN",
];

/// Whether a text looks like the output of `ss -i`.
pub(crate) fn is_ss(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    let is_text = !head.contains(&0) && !head.trim_ascii_start().starts_with(b"{");
    let has = |word: &str| head.windows(word.len()).any(|window| window == word.as_bytes());
    is_text && has(" rto:") && has(" cwnd:")
}

/// Why a listing of `ss` holds no sample: each of its lines is the time that `date +%s.%N` writes before one, a heading, or a
/// connection without the details that `-i` adds. `None` for any other file.
pub(crate) fn without_samples(bytes: &[u8]) -> Option<RecordedError> {
    // Results of many megabytes come here, too, and are done with after one byte.
    let first = bytes.trim_ascii_start().first()?;
    if !first.is_ascii_digit() && !first.is_ascii_uppercase() {
        return None;
    }
    let is_time = |line: &[u8]| {
        let mut parts = line.split(|byte| *byte == b'.');
        let is_digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        let seconds = parts.next().is_some_and(|part| part.len() >= 9 && is_digits(part));
        seconds && parts.next().is_none_or(is_digits) && parts.next().is_none()
    };
    let mut connections_count = 0_usize;
    for line in bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let word = words.next().unwrap_or_default();
        let is_heading = matches!(word, b"State" | b"Netid" | b"Recv-Q");
        if STATES.iter().any(|state| word == state.as_bytes()) {
            connections_count += 1;
        } else if !(line.is_empty() || is_time(line) || is_heading) {
            return None;
        }
    }
    match connections_count {
        0 => Some(RecordedError::TimesOnly),
        _ => Some(RecordedError::NoDetails),
    }
}

/// Reads them.
pub(crate) fn samples(bytes: &[u8]) -> Result<Samples, RecordedError> {
    let mut listing = Listing::default();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let text = String::from_utf8_lossy(&line[..line.len().min(HEAD_BYTES)]);
        let is_garbled =
            |c: char| c == char::REPLACEMENT_CHARACTER || (c.is_control() && !c.is_whitespace());
        if text.contains(is_garbled) {
            listing.garbled(index + 1, line.len());
        } else {
            listing.line(&text);
        }
    }
    listing.cut(bytes);
    let moved = |rows: &[Sample]| {
        let most = |name: &str| rows.last().and_then(|row| row.number(name)).unwrap_or(0.0);
        (most("bytes_acked").max(most("bytes_sent")), most("bytes_received"))
    };
    let others_count = listing.connections.len().saturating_sub(1);
    let all = listing.connections.into_iter().filter(|(_, rows)| !rows.is_empty());
    let ((local, remote), rows) = all
        .max_by(|(_, one), (_, other)| {
            let total = |rows: &[Sample]| moved(rows).0 + moved(rows).1;
            total(one).total_cmp(&total(other))
        })
        .ok_or(RecordedError::NoConnection)?;
    let (sent_bytes, received_bytes) = moved(&rows);
    if sent_bytes + received_bytes <= 0.0 {
        return Err(RecordedError::NoConnection);
    }
    let is_sender = sent_bytes >= received_bytes;
    let damage = Some(listing.damage).filter(|damage| *damage != Damage::default());
    let samples = Samples { local, remote, is_sender, rows, is_timed: true, others_count, damage };
    samples.timed().ok_or(RecordedError::NoTime)
}

impl Samples {
    /// With a time in every row: as written or, where nothing was, the time its data was outstanding.
    fn timed(mut self) -> Option<Self> {
        let first_s = self.rows.first()?.at_s;
        let last_s = self.rows.last()?.at_s;
        let is_written = self.rows.iter().all(|row| row.at_s.is_some());
        if is_written && last_s > first_s {
            return Some(self);
        }
        self.is_timed = false;
        for row in &mut self.rows {
            row.at_s = row.number("busy").map(|busy_ms| busy_ms / 1e3);
        }
        self.rows.retain(|row| row.at_s.is_some());
        let is_told = self.is_sender && self.rows.last()?.at_s? > 0.0;
        is_told.then_some(self)
    }
}

/// What was read so far.
#[derive(Default)]
struct Listing {
    connections: BTreeMap<(String, String), Vec<Sample>>,
    kept_count: usize,
    /// The time written last, and that of the day before it, for clocks that tell no day.
    at_s: Option<f64>,
    days: f64,
    /// The connection whose details come next.
    current: Option<(String, String)>,
    damage: Damage,
}

impl Listing {
    /// Passes over a line that is no text. The sample it belongs to stays as it was.
    fn garbled(&mut self, number: usize, bytes: usize) {
        if self.damage.garbled_count == 0 {
            self.damage.first_garbled_line = number;
        }
        self.damage.garbled_count += 1;
        self.damage.garbled_bytes += bytes;
    }

    /// Drops the sample within which the text ends: of its last number, digits may be missing. The only
    /// sample of a connection is kept, as one that was pasted may lack the line's end.
    fn cut(&mut self, bytes: &[u8]) {
        let is_whole = bytes.last().is_none_or(|last| *last == b'\n');
        let rows = self.current.as_ref().and_then(|pair| self.connections.get_mut(pair));
        if let Some(rows) = rows.filter(|rows| !is_whole && rows.len() > 1) {
            rows.pop();
            self.damage.cut_line = Some(bytes.split(|byte| *byte == b'\n').count());
        }
    }

    fn line(&mut self, line: &str) {
        let is_detail = line.starts_with([' ', '\t']);
        if is_detail && self.current.is_some() {
            self.details(line.split_whitespace());
            return;
        }
        if let Some(at_s) = written_time(line) {
            self.clock(at_s);
        }
        let words: Vec<&str> = line.split_whitespace().take(64).collect();
        let Some(at) = words.windows(4).position(is_connection) else {
            self.current = None;
            return;
        };
        let name = |word: &str| word.chars().take(ADDRESS_CHARS_MAX).collect::<String>();
        let pair = (name(words[at + 2]), name(words[at + 3]));
        let is_new = !self.connections.contains_key(&pair);
        let is_listening = words.contains(&"LISTEN");
        if is_listening
            || self.kept_count >= SAMPLES_MAX
            || (is_new && self.connections.len() >= FLOWS_MAX)
        {
            self.current = None;
            return;
        }
        let queue = |word: &str| word.parse().unwrap_or(0);
        let sample = Sample {
            at_s: self.at_s,
            receive_queue_bytes: queue(words[at]),
            send_queue_bytes: queue(words[at + 1]),
            ..Sample::default()
        };
        self.kept_count += 1;
        self.connections.entry(pair.clone()).or_default().push(sample);
        self.current = Some(pair);
        self.details(words[at + 4..].iter().copied());
    }

    /// Takes a time; a clock that tells no day begins again at midnight.
    fn clock(&mut self, at_s: f64) {
        let is_of_day = at_s < UNIX_FROM_S;
        if is_of_day && self.at_s.is_some_and(|last_s| at_s + self.days + DAY_S / 2.0 < last_s) {
            self.days += DAY_S;
        }
        self.at_s = Some(if is_of_day { at_s + self.days } else { at_s });
    }

    fn details<'a>(&mut self, words: impl Iterator<Item = &'a str>) {
        let rows = self.current.as_ref().and_then(|pair| self.connections.get_mut(pair));
        let Some(sample) = rows.and_then(|rows| rows.last_mut()) else { return };
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            match word.split_once(':') {
                Some(("wscale", shifts)) => {
                    let pair = shifts.split_once(',');
                    let shift = |text: &str| text.parse::<u8>().ok().map(|shift| shift.min(14));
                    sample.window_shifts = pair.and_then(|(a, b)| shift(a).zip(shift(b)));
                }
                Some(("skmem", memory)) => sample.memory(memory),
                Some((name, value)) => sample.take(name, value),
                None if word == "sack" => sample.is_sack = true,
                None if word == "ts" => sample.is_timestamped = true,
                None if word == "app_limited" => sample.is_app_limited = true,
                None if word.ends_with("_rate") => {
                    if let Some(value) = words.next_if(|value| !value.contains(':')) {
                        sample.take(word, value);
                    }
                }
                // The algorithm is the first plain word that is none of the flags before it.
                None => {
                    let is_flag =
                        ["ts", "sack", "ecn", "ecnseen", "fastopen", "send"].contains(&word);
                    let is_name =
                        word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
                    let is_number = word.starts_with(|c: char| c.is_ascii_digit());
                    if sample.algorithm.is_empty() && is_name && !is_flag && !is_number {
                        sample.algorithm = word.chars().take(16).collect();
                    }
                }
            }
        }
    }
}

impl Sample {
    fn take(&mut self, name: &str, value: &str) {
        let Some(name) = KEPT.iter().find(|kept| **kept == name) else { return };
        match (*name, value.split_once('/')) {
            ("rtt", Some((rtt, variation))) => {
                self.keep("rtt", rtt);
                self.keep("rttvar", variation);
            }
            // Outstanding now, and all since the beginning.
            ("retrans", Some((_, total))) => self.keep("retrans", total),
            _ => self.keep(name, value),
        }
    }

    fn keep(&mut self, name: &'static str, value: &str) {
        let value = value.split_once('(').map_or(value, |(value, _share)| value);
        if let Some(value) = number(value) {
            self.numbers.insert(name, value);
        }
    }

    /// `(r0,rb131072,t0,tb87040,…)`.
    fn memory(&mut self, memory: &str) {
        for field in memory.trim_matches(['(', ')']).split(',') {
            for (prefix, name) in [("rb", "skmem_rb"), ("tb", "skmem_tb")] {
                if let Some(bytes) = field.strip_prefix(prefix) {
                    self.keep(name, bytes);
                }
            }
        }
    }
}

/// A number, with the unit that `ss` writes behind it: `12ms`, `231Mbps`.
fn number(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 6] =
        [("Gbps", 1e9), ("Mbps", 1e6), ("Kbps", 1e3), ("bps", 1.0), ("ms", 1.0), ("", 1.0)];
    let (digits, factor) =
        UNITS.into_iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value: f64 = digits.parse().ok().filter(|_| is_plain)?;
    Some(value * factor).filter(|value| *value <= NUMBER_MAX)
}

/// Two queues and two addresses with ports.
fn is_connection(words: &[&str]) -> bool {
    let is_count = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_address = |word: &str| {
        word.rsplit_once(':').is_some_and(|(address, port)| {
            let is_host = address.contains(['.', ':']) || address == "*";
            is_host && !port.is_empty()
        })
    };
    matches!(words, [receive, send, local, remote]
        if is_count(receive) && is_count(send) && is_address(local) && is_address(remote))
}

/// The time in a line: since 1970 (`date +%s.%N`), else of the day (`12:34:56.789`, in `date`'s or
/// ISO 8601's form, or before the line).
fn written_time(line: &str) -> Option<f64> {
    let words = || line.split_whitespace().take(8);
    let unix = words().find_map(|word| {
        let value: f64 = word.parse().ok()?;
        ((UNIX_FROM_S..UNIX_MAX_S).contains(&value) && word.len() >= 10).then_some(value)
    });
    let is_alone = words().count() == 1;
    unix.filter(|_| is_alone).or_else(|| words().find_map(time_of_day))
}

fn time_of_day(word: &str) -> Option<f64> {
    let time = word.rsplit_once('T').map_or(word, |(_, time)| time);
    let end = time.find(|c: char| !c.is_ascii_digit() && !":.,".contains(c)).unwrap_or(time.len());
    let mut parts = time[..end].split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || hour.len() != 2 || minute.len() != 2 || second.len() < 2 {
        return None;
    }
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    let second: f64 = second.replace(',', ".").parse().ok()?;
    let is_time = hour < 24 && minute < 60 && second < 61.0;
    is_time.then(|| f64::from(hour * 3600 + minute * 60) + second)
}
