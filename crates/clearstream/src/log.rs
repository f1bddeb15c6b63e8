//! The log of long-running servers: one line per event on stderr.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use units::Timestamp;

use crate::out;

/// Format of the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log {
    /// Whether each line is a JSON object.
    pub(crate) json: bool,
}

impl Log {
    /// Writes a line: the time, the event's name, and its details.
    pub(crate) fn line(self, event: &str, text: &str) {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at = Timestamp::from_unix(since_epoch.unwrap_or_default());
        // A closed log is no reason to stop serving.
        if self.json {
            let line = serde_json::json!({ "at": at.to_string(), "event": event, "text": text });
            writeln!(out::stderr(), "{line}").ok();
        } else {
            let text = units::printable(text);
            writeln!(out::stderr(), "{at} {event:<9} {text}").ok();
        }
    }
}

/// Log lines per second that clients may cause; the excess is only counted.
const LINES_A_SECOND_MAX: u64 = 100;

/// The log lines that clients cause: not so many that they fill a disk, and none that waits for its reader, because
/// all clients would wait with it.
#[derive(Debug)]
pub(crate) struct ClientLog {
    log: Log,
    second_began: Instant,
    /// Lines written in the current second.
    lines_count: u64,
    /// Lines left out that the log does not tell of yet.
    left_out: u64,
}

impl ClientLog {
    pub(crate) fn new(log: Log) -> Self {
        Self { log, second_began: Instant::now(), lines_count: 0, left_out: 0 }
    }

    /// Writes a line, as [`Log::line`], or counts it.
    pub(crate) fn line(&mut self, event: &str, text: &str) {
        if self.allows(Instant::now(), out::stderr_has_room()) {
            self.write_left_out();
            self.log.line(event, text);
        }
    }

    /// Says what was left out, once that is possible. To be called now and then: after a flood nobody else may come.
    pub(crate) fn settle(&mut self) {
        let (now, has_room) = (Instant::now(), out::stderr_has_room());
        if self.left_out > 0 && has_room && self.begins_second(now) {
            self.write_left_out();
        }
    }

    fn write_left_out(&mut self) {
        if self.left_out > 0 {
            let left_out = std::mem::take(&mut self.left_out);
            let text = format!(
                "{left_out} log lines left out: more than {LINES_A_SECOND_MAX} in a second, or not read in time"
            );
            self.log.line("notice", &text);
        }
    }

    /// Whether one more line may be written; counts it either way.
    fn allows(&mut self, now: Instant, has_room: bool) -> bool {
        self.begins_second(now);
        let allowed = has_room && self.lines_count < LINES_A_SECOND_MAX;
        *(if allowed { &mut self.lines_count } else { &mut self.left_out }) += 1;
        allowed
    }

    fn begins_second(&mut self, now: Instant) -> bool {
        let begins = now.duration_since(self.second_began) >= Duration::from_secs(1);
        if begins {
            (self.second_began, self.lines_count) = (now, 0);
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_limit_or_without_room_are_counted_and_told_once() {
        let mut log = ClientLog::new(Log { json: false });
        let began = log.second_began;
        let written = (0..250).filter(|_| log.allows(began, true)).count();
        assert_eq!((written, log.left_out), (100, 150));
        let next = began + Duration::from_secs(1);
        assert!(!log.allows(next, false) && log.left_out == 151, "nobody reads");
        assert!(log.allows(next, true), "a second later");
        log.write_left_out();
        assert_eq!(log.left_out, 0);
    }
}
