//! Undoing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use settings::Key;

use super::{Engine, LogError, Step};
use crate::journal::{Entry, Record, State};
use crate::world::WorldError;

/// What to undo.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RevertRequest {
    /// Only changes of these settings; empty: all.
    pub keys: Vec<Key>,
    /// Only changes with these numbers.
    pub ids: Option<Vec<u32>>,
    /// Overwrite what somebody else has changed since. A remote client never does.
    pub force: bool,
    /// Of each setting only the change that was made last.
    pub last_only: bool,
    /// The host has booted since the journal was begun.
    pub has_rebooted: bool,
    /// Values that are ours although the journal does not know them: this program set them since.
    pub also_ours: BTreeSet<(Key, String)>,
}

impl RevertRequest {
    fn asks_for(&self, entry: &Entry) -> bool {
        let of_key = self.keys.is_empty() || self.keys.contains(&entry.intent.key);
        of_key && self.ids.as_ref().is_none_or(|ids| ids.contains(&entry.intent.id))
    }
}

/// What becomes of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It has its former value: nothing to write.
    Back,
    /// Write the former value.
    Restore,
    /// Somebody else has set it since: leave it.
    Foreign,
    /// The boot has set it to a third value: our change is gone.
    Rebooted,
}

/// Decides by what the setting is now. A change that was announced and never recorded as done may or
/// may not have been made, and the kernel may have rounded it: then anything but the former value is
/// taken for ours.
#[must_use]
pub fn decide(entry: &Entry, current: &str, request: &RevertRequest) -> Decision {
    let intent = &entry.intent;
    // What something else had made, and has taken away since, is not this program's to make.
    let is_gone_again = intent.key.is_object() && intent.from == intent.to && current == "-";
    if current == intent.from || is_gone_again {
        return Decision::Back;
    }
    let is_ours = match &entry.state {
        // An object is what was written or it is not ours; one that went by itself stands in nobody's way.
        State::Intended if intent.key.is_object() => current == intent.to,
        State::Done(_) if intent.key.is_object() && current == "-" => true,
        State::Done(now) => current == now || current == intent.to,
        State::Intended => !request.has_rebooted || current == intent.to,
        State::Undone => false,
    };
    let is_known =
        request.also_ours.iter().any(|(key, value)| *key == intent.key && value == current);
    if is_ours || is_known || request.force {
        Decision::Restore
    } else if request.has_rebooted {
        Decision::Rebooted
    } else {
        Decision::Foreign
    }
}

/// What became of undoing a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevertOutcome {
    /// The setting.
    pub key: Key,
    /// Its value before the change.
    pub from: String,
    /// What happened.
    pub result: Reverted,
}

/// What happened when undoing a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reverted {
    /// The former value was written and read back.
    Restored {
        /// What stood there.
        was: String,
    },
    /// It had its former value already.
    AlreadyBack,
    /// Somebody else has set it since; left.
    Foreign {
        /// What stands there.
        now: String,
    },
    /// The boot has set it to something else; left, and no longer ours.
    Rebooted {
        /// What stands there.
        now: String,
    },
    /// The setting no longer exists (its interface was removed): nothing to undo.
    #[serde(rename = "gone")]
    Absent {
        /// What is missing.
        reason: String,
    },
    /// It could not be undone; it stays in the journal.
    Failed {
        /// One line.
        reason: String,
        /// A privilege is missing.
        is_privilege: bool,
    },
}

impl Reverted {
    /// Whether nothing is left to do.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::Foreign { .. } | Self::Failed { .. })
    }
}

impl Engine<'_> {
    /// Undoes changes, the last one first.
    ///
    /// # Errors
    /// A record could not be put on disk; what was undone before it is undone, and the next revert
    /// finds it so.
    pub fn revert(&mut self, request: &RevertRequest) -> Result<Vec<RevertOutcome>, LogError> {
        let request =
            &RevertRequest { force: request.force && self.owner.is_host(), ..request.clone() };
        let wanted = self.wanted(request);
        let mut outcomes = Vec::new();
        // A full disk stops no undoing: what was put back and could not be recorded so, the next
        // revert finds back, and a journal with nothing left to undo goes whole.
        let mut unrecorded = None;
        for entry in wanted {
            (self.witness)(Step::Undo(&entry.intent.key));
            let result = self.undo(&entry, request);
            if result.is_settled() {
                (self.witness)(Step::RecordUndone(&entry.intent.key));
                let record = Record::Undone { id: entry.intent.id };
                if let Err(error) = self.log.append(&record) {
                    unrecorded.get_or_insert(error);
                }
                self.journal.take(record).map_err(LogError)?;
            }
            // What the kernel changed along is only worth a line when something is wrong with it.
            if !(entry.intent.is_side_effect && result.is_settled()) {
                let (key, from) = (entry.intent.key, entry.intent.from);
                outcomes.push(RevertOutcome { key, from, result });
            }
        }
        (self.witness)(Step::End);
        match unrecorded {
            Some(error) if self.journal.open().next().is_some() => Err(error),
            _ => Ok(outcomes),
        }
    }

    /// The open changes that are asked for, the last one first; what the kernel changed along goes
    /// with the change it was announced for.
    pub(super) fn wanted(&self, request: &RevertRequest) -> Vec<Entry> {
        let mut wanted: Vec<Entry> = Vec::new();
        let mut goes_along = false;
        for entry in self.journal.entries.iter().rev() {
            let is_open = entry.state != State::Undone;
            let is_asked = self.may_undo(entry) && request.asks_for(entry);
            if !entry.intent.is_side_effect {
                let is_known = || wanted.iter().any(|known| known.intent.key == entry.intent.key);
                goes_along = is_asked && !(request.last_only && is_known());
            }
            let is_wanted =
                if entry.intent.is_side_effect { goes_along || is_asked } else { goes_along };
            if is_open && is_wanted && self.may_undo(entry) {
                wanted.push(entry.clone());
            }
        }
        wanted
    }

    fn undo(&mut self, entry: &Entry, request: &RevertRequest) -> Reverted {
        let (key, from) = (&entry.intent.key, &entry.intent.from);
        let failed = |error: &WorldError| Reverted::Failed {
            reason: error.to_string(),
            is_privilege: matches!(error, WorldError::Denied { .. }),
        };
        let current = match self.world.read(key) {
            Ok(current) => current,
            Err(WorldError::Absent { reason, .. }) => return Reverted::Absent { reason },
            Err(error) => return failed(&error),
        };
        if self.is_superseded_by_other_owner(entry, &current, request) {
            return Reverted::Foreign { now: current };
        }
        match decide(entry, &current, request) {
            Decision::Back => return Reverted::AlreadyBack,
            Decision::Foreign => return Reverted::Foreign { now: current },
            Decision::Rebooted => return Reverted::Rebooted { now: current },
            Decision::Restore => {}
        }
        (self.witness)(Step::Restore(key));
        if let Err(error) = self.world.write(key, from) {
            return failed(&error);
        }
        match self.world.read(key) {
            Ok(now) if now == *from => Reverted::Restored { was: current },
            Ok(now) => Reverted::Failed {
                reason: format!("{key}: could not be restored to {from}; it is {now}"),
                is_privilege: false,
            },
            Err(error) => failed(&error),
        }
    }
}
