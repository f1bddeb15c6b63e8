//! The log of long-running servers: one line per event on stderr.

use std::io::Write;
use std::time::SystemTime;

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
