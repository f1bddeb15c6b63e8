//! The journal: what was changed from what to what, one JSON record a line, each on disk before the
//! step it speaks of. Pure: bytes in, entries out.
//!
//! A change is an *intent* (written and synced before anything is touched), then *done* with the
//! value read back, then, after a revert, *undone*. A line cut short by a crash is the last one and
//! counts for nothing: what it would have said has not happened yet, or is found out by looking.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use settings::Key;
use thiserror::Error;

/// Longest journal that is read, bytes. No longer one can be written: beyond
/// [`INTENT_BYTES_MAX`] nothing is announced any more, and what is still written then is what becomes
/// of the changes announced by then: of the one under way a value read back, of each a short line when
/// it is undone. An announcement is longer than that line.
pub const JOURNAL_BYTES_MAX: usize = 64 << 20;

/// A journal this long takes no more announcements, bytes.
pub const INTENT_BYTES_MAX: usize = 16 << 20;

/// The same for changes of remote clients: the rest is the host's own.
pub const REMOTE_INTENT_BYTES_MAX: usize = 8 << 20;

/// Open changes one remote client may have, and what they may take in the journal together, bytes.
pub const REMOTE_CHANGES_MAX: usize = 256;
/// See [`REMOTE_CHANGES_MAX`].
pub const REMOTE_BYTES_MAX: usize = 512 << 10;

/// What the open changes of all remote clients may take in the journal, bytes.
pub const ALL_REMOTES_BYTES_MAX: usize = 2 << 20;

/// Whose change it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// Somebody on this host.
    #[default]
    Host,
    /// Clients from this address, which is all that is known of them.
    Remote(IpAddr),
}

impl Owner {
    /// Whether it is somebody on this host.
    #[must_use]
    pub fn is_host(&self) -> bool {
        *self == Self::Host
    }
}

const MARK: &str = "clearstream-tune";
const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// `clearstream-tune`.
    pub journal: String,
    /// 1.
    pub version: u32,
    /// `/proc/sys/kernel/random/boot_id` when it was begun.
    pub boot_id: String,
    /// The network namespace (inode number), which names one only until the next boot.
    pub namespace: u64,
    /// The host's name.
    pub host: String,
    /// Milliseconds since 1970 UTC.
    pub began_unix_ms: u64,
}

impl Header {
    /// A header of this version.
    #[must_use]
    pub fn new(boot_id: String, namespace: u64, host: String, began_unix_ms: u64) -> Self {
        Self { journal: MARK.to_owned(), version: VERSION, boot_id, namespace, host, began_unix_ms }
    }
}

/// What is about to be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Number within the journal, from 0.
    pub id: u32,
    /// The setting.
    pub key: Key,
    /// Its value before.
    pub from: String,
    /// The value to write.
    pub to: String,
    /// The kernel changes it by itself when the next one is written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_side_effect: bool,
    /// Whose change it is.
    #[serde(default, skip_serializing_if = "Owner::is_host")]
    pub owner: Owner,
    /// Why, in one line.
    #[serde(default)]
    pub why: String,
    /// Where that is documented.
    #[serde(default)]
    pub source: String,
}

impl Intent {
    /// About what it takes in the journal, bytes; its values and reasons need no escapes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        128 + 2 * self.from.len() + 2 * self.to.len() + self.why.len() + self.source.len()
    }
}

/// Any other line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Record {
    /// About to be changed.
    Intent(Intent),
    /// Changed.
    Done {
        /// Number of its intent.
        id: u32,
        /// The value read back.
        now: String,
    },
    /// Back at its former value, or no longer ours.
    Undone {
        /// Number of its intent.
        id: u32,
    },
}

/// How far a change got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Announced; whether it was made is to be found out.
    Intended,
    /// Made; this was read back.
    Done(String),
    /// Undone.
    Undone,
}

/// A change and how far it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What was announced.
    pub intent: Intent,
    /// How far it got.
    pub state: State,
}

/// A journal as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// The first line.
    pub header: Header,
    /// Changes in the order they were made.
    pub entries: Vec<Entry>,
}

/// Why a journal cannot be used. Nothing is touched then.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Not a line this program writes.
    #[error("line {line} is not a journal record ({reason})")]
    Malformed {
        /// From 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// Written by a later version.
    #[error("it is of version {0}, this program reads version {VERSION}")]
    Version(u32),
    /// Absurdly large.
    #[error("{0} bytes are more than a journal may have ({JOURNAL_BYTES_MAX})")]
    TooLarge(usize),
}

/// A journal and how many of the bytes are whole lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// `None` when not even the first line was finished: nothing was changed.
    pub journal: Option<Journal>,
    /// Bytes of whole lines; what follows was cut short and goes before anything is appended.
    pub whole_bytes: usize,
}

/// Reads a journal.
///
/// # Errors
/// [`JournalError`]: any line but a last one cut short is not what this program writes.
pub fn decode(bytes: &[u8]) -> Result<Decoded, JournalError> {
    if bytes.len() > JOURNAL_BYTES_MAX {
        return Err(JournalError::TooLarge(bytes.len()));
    }
    let whole_bytes = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    if whole_bytes == 0 {
        // A first line cut short is a beginning of what a first line begins with.
        let start = format!("{{\"journal\":\"{MARK}\",");
        let known = bytes.len().min(start.len());
        if bytes[..known] != start.as_bytes()[..known] {
            return Err(malformed(1, "it is not a journal"));
        }
        return Ok(Decoded { journal: None, whole_bytes: 0 });
    }
    let mut lines = bytes[..whole_bytes - 1].split(|&byte| byte == b'\n').enumerate();
    let first = lines.next().map_or(&[][..], |(_, line)| line);
    let mut journal = Journal { header: header(first)?, entries: Vec::new() };
    for (index, line) in lines {
        let record: Record =
            serde_json::from_slice(line).map_err(|error| malformed(index + 1, &error))?;
        journal.take(record).map_err(|reason| malformed(index + 1, &reason))?;
    }
    Ok(Decoded { journal: Some(journal), whole_bytes })
}

fn header(line: &[u8]) -> Result<Header, JournalError> {
    #[derive(Deserialize)]
    struct Versioned {
        journal: String,
        version: u32,
    }
    let known: Versioned = serde_json::from_slice(line).map_err(|error| malformed(1, &error))?;
    if known.journal != MARK {
        return Err(malformed(1, "it is not a journal of this program"));
    }
    if known.version != VERSION {
        return Err(JournalError::Version(known.version));
    }
    serde_json::from_slice(line).map_err(|error| malformed(1, &error))
}

fn malformed(line: usize, reason: &(impl ToString + ?Sized)) -> JournalError {
    JournalError::Malformed { line, reason: settings::text::shorten(&reason.to_string()) }
}

/// One line with its end.
#[must_use]
pub fn encode(line: &impl Serialize) -> Vec<u8> {
    // Text and numbers only: there is nothing that JSON could refuse.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

impl Journal {
    /// A journal without changes.
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self { header, entries: Vec::new() }
    }

    /// The number of the next change.
    #[must_use]
    pub fn next_id(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Changes that are not undone, in the order they were made.
    pub fn open(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state != State::Undone)
    }

    /// Takes a record in; the text says why it does not fit.
    ///
    /// # Errors
    /// It speaks of a change that was never announced, or has a value its setting cannot have.
    pub fn take(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Intent(mut intent) => {
                if intent.id != self.next_id() {
                    return Err(format!("change {} follows {}", intent.id, self.entries.len()));
                }
                let check =
                    |value: &str| intent.key.check(value).map_err(|error| error.to_string());
                let (from, to) = (check(&intent.from)?, check(&intent.to)?);
                (intent.from, intent.to) = (from, to);
                self.entries.push(Entry { intent, state: State::Intended });
            }
            Record::Done { id, now } => {
                let entry = self.entry(id)?;
                let now = entry.intent.key.check(&now).map_err(|error| error.to_string())?;
                entry.state = State::Done(now);
            }
            Record::Undone { id } => self.entry(id)?.state = State::Undone,
        }
        Ok(())
    }

    /// The last of the open changes of a setting.
    #[must_use]
    pub fn last_of(&self, key: &Key) -> Option<&Entry> {
        self.open().rev().find(|entry| entry.intent.key == *key)
    }

    /// The same journal without what is undone, its changes numbered anew; as records.
    #[must_use]
    pub fn compacted(&self) -> (Self, Vec<Record>) {
        let mut journal = Self::new(self.header.clone());
        let mut records = Vec::new();
        for entry in self.open() {
            let id = journal.next_id();
            let intent = Intent { id, ..entry.intent.clone() };
            records.push(Record::Intent(intent.clone()));
            if let State::Done(now) = &entry.state {
                records.push(Record::Done { id, now: now.clone() });
            }
            journal.entries.push(Entry { intent, state: entry.state.clone() });
        }
        (journal, records)
    }

    fn entry(&mut self, id: u32) -> Result<&mut Entry, String> {
        self.entries.get_mut(id as usize).ok_or_else(|| format!("no change has the number {id}"))
    }
}

#[cfg(test)]
mod tests;
