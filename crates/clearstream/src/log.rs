//! The log of what serves others: a line an event on stderr.

use std::io::Write;
use std::time::SystemTime;

use units::Timestamp;

use crate::out;

/// Where the lines go, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log {
    /// One JSON object a line.
    pub(crate) json: bool,
}

impl Log {
    /// Writes a line: when, what in a word, and more about it.
    pub(crate) fn line(self, event: &str, text: &str) {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at = Timestamp::from_unix(since_epoch.unwrap_or_default());
        // Nobody reads the log any more: not a reason to stop serving.
        if self.json {
            let line = serde_json::json!({ "at": at.to_string(), "event": event, "text": text });
            writeln!(out::stderr(), "{line}").ok();
        } else {
            let text = units::printable(text);
            writeln!(out::stderr(), "{at} {event:<9} {text}").ok();
        }
    }
}
