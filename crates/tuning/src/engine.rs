//! The step machine: applies changes and undoes them so that whatever ends the process between any
//! two steps, the next revert restores everything.
//!
//! The order of a change is: announce (on disk), write, read back, record (on disk). Undoing goes
//! through the open changes backwards and decides each by looking ([`decide`]); doing it again finds
//! nothing to do.

mod owner;
mod together;
mod undo;

use serde::{Deserialize, Serialize};
use settings::text::{one_line, plain_line};
use settings::{Change, InterfaceKey, Key, RootQdisc};
use thiserror::Error;

use crate::journal::{Intent, Journal, Owner, Record, State};
use crate::world::{World, WorldError};

pub use undo::{Decision, RevertOutcome, RevertRequest, Reverted, decide};

/// Where records go; returns when they are on disk.
pub trait Log {
    /// Appends and syncs one record.
    ///
    /// # Errors
    /// The disk's answer, in one line.
    fn append(&mut self, record: &Record) -> Result<(), LogError>;

    /// Appends several and syncs them together.
    ///
    /// # Errors
    /// The disk's answer, in one line; some of them may be there.
    fn append_all(&mut self, records: &[Record]) -> Result<(), LogError> {
        records.iter().try_for_each(|record| self.append(record))
    }
}

/// A record could not be put on disk. What it announces has not been done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LogError(pub String);

/// A step the machine is about to take or has taken; for progress, and for tests that end the
/// process there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// About to announce a change.
    Announce(&'a Key),
    /// Announced; about to write.
    Write(&'a Key),
    /// Written; about to read back.
    ReadBack(&'a Key),
    /// About to record that it is done.
    RecordDone(&'a Key),
    /// About to look whether and how to undo.
    Undo(&'a Key),
    /// About to write the former value.
    Restore(&'a Key),
    /// About to record that it is undone.
    RecordUndone(&'a Key),
    /// Everything asked for is done.
    End,
}

/// Longest reason and source that are kept, characters.
const WHY_CHARACTERS_MAX: usize = 300;

/// What to do when one change of several fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Undo those that were made.
    #[default]
    AllOrNothing,
    /// Go on with the others.
    KeepGoing,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The setting.
    pub key: Key,
    /// Before; absent when it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Asked for.
    pub to: String,
    /// What happened.
    pub result: ChangeResult,
}

/// What happened to a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeResult {
    /// Made; this was read back.
    Applied {
        /// The value read back, which the kernel may have rounded or clamped.
        now: String,
    },
    /// It had that value already.
    Unchanged,
    /// Not made.
    Failed {
        /// One line.
        reason: String,
        /// A privilege is missing.
        is_privilege: bool,
    },
    /// Made and undone, because another one failed.
    RolledBack,
    /// Not tried, because another one failed.
    NotTried,
}

/// What became of all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// In the order they were tried.
    pub outcomes: Vec<Outcome>,
    /// What rolling back left behind, if it did.
    pub left: Vec<RevertOutcome>,
}

impl Applied {
    /// After all that was made has been undone: says so of each, and names the changes that were not tried.
    fn settle(&mut self, undone: Vec<RevertOutcome>, changes: &[Change]) {
        self.left = undone.into_iter().filter(|outcome| !outcome.result.is_settled()).collect();
        for outcome in &mut self.outcomes {
            let stays = self.left.iter().any(|left| left.key == outcome.key);
            if matches!(outcome.result, ChangeResult::Applied { .. }) && !stays {
                outcome.result = ChangeResult::RolledBack;
            }
        }
        let untried = changes.iter().skip(self.outcomes.len()).map(not_tried);
        self.outcomes.extend(untried.collect::<Vec<_>>());
    }
}

/// The machine over one host and its journal.
pub struct Engine<'a> {
    /// The host.
    pub world: &'a mut dyn World,
    /// Where records go.
    pub log: &'a mut dyn Log,
    /// The journal as it stands on disk.
    pub journal: &'a mut Journal,
    /// On whose behalf: a remote client changes only what nobody else has changed, and undoes only
    /// what it has changed itself.
    pub owner: Owner,
    /// Told of every step.
    pub witness: &'a mut dyn FnMut(Step<'_>),
}

impl Engine<'_> {
    /// Makes changes, one after the other.
    ///
    /// # Errors
    /// A record could not be put on disk. What was made before it stays announced and can be
    /// reverted.
    pub fn apply(&mut self, changes: &[Change], policy: Policy) -> Result<Applied, LogError> {
        let mut applied = Applied::default();
        let first = self.journal.next_id();
        if policy == Policy::AllOrNothing {
            // What is known to fail is said before anything is touched.
            let doomed =
                changes.iter().find_map(|change| Some((change, self.looks(change).err()?)));
            if let Some((doomed, reason)) = doomed {
                let doomed = doomed.clone();
                return Ok(refused_all(changes, &doomed, reason));
            }
        }
        for change in changes {
            let outcome = self.apply_one(change)?;
            let has_failed = matches!(outcome.result, ChangeResult::Failed { .. });
            applied.outcomes.push(outcome);
            if has_failed && policy == Policy::AllOrNothing {
                self.roll_back(first, changes, &mut applied)?;
                break;
            }
        }
        (self.witness)(Step::End);
        Ok(applied)
    }

    fn roll_back(
        &mut self,
        first: u32,
        changes: &[Change],
        applied: &mut Applied,
    ) -> Result<(), LogError> {
        let ids: Vec<u32> = (first..self.journal.next_id()).collect();
        let request = RevertRequest { ids: Some(ids), ..RevertRequest::default() };
        let undone = self.revert(&request)?;
        applied.settle(undone, changes);
        Ok(())
    }

    /// The value before; why the change cannot be made, as far as looking tells.
    fn looks(&mut self, change: &Change) -> Result<String, Trouble> {
        let from = self.world.read(&change.key).map_err(|error| Trouble::of(&error))?;
        self.looks_at(change, from)
    }

    /// The same for a setting whose value is known.
    fn looks_at(&mut self, change: &Change, from: String) -> Result<String, Trouble> {
        let to = change.key.check(&change.to).map_err(|error| Trouble::plain(&error))?;
        if let Some(expected) = &change.from
            && *expected != from
            && from != to
        {
            let reason = if change.key.is_object() {
                format!("{}: its value has changed since the change was planned", change.key)
            } else {
                format!(
                    "{}: it is now {from}, but the change was planned for {expected}",
                    change.key
                )
            };
            return Err(Trouble { reason, is_privilege: false });
        }
        if from != to {
            if let Some(reason) = self.remote_refusal(&change.key) {
                return Err(Trouble { reason, is_privilege: false });
            }
            if let Some(reason) = self.cannot_go_back(&change.key, &from) {
                return Err(Trouble { reason, is_privilege: false });
            }
            if let Some(error) = self.world.objection(&change.key, &to) {
                return Err(Trouble::of(&error));
            }
        }
        Ok(from)
    }

    /// A qdisc somebody configured has options that are not read, so it could not be put back.
    fn cannot_go_back(&self, key: &Key, from: &str) -> Option<String> {
        let Key::Interface { what: InterfaceKey::Qdisc, .. } = key else { return None };
        let ours = self
            .journal
            .open()
            .any(|entry| entry.intent.key == *key && entry.state == State::Done(from.to_owned()));
        (!RootQdisc::of(from).is_default && !ours).then(|| {
            format!(
                "{key}: {from} was configured there by hand, and its options could not be \
                 restored"
            )
        })
    }

    fn apply_one(&mut self, change: &Change) -> Result<Outcome, LogError> {
        let key = &change.key;
        let from = match self.looks(change) {
            Ok(from) => from,
            Err(trouble) => return Ok(trouble.outcome(change, None)),
        };
        let to = key.check(&change.to).unwrap_or_else(|_checked| change.to.clone());
        let outcome =
            |result| Outcome { key: key.clone(), from: Some(from.clone()), to: to.clone(), result };
        if from == to {
            self.take_over(change, &from)?;
            return Ok(outcome(ChangeResult::Unchanged));
        }
        (self.witness)(Step::Announce(key));
        let sides = self.announce_sides(change)?;
        let id = self.announce(change, &from, &to, false)?;
        (self.witness)(Step::Write(key));
        let written = self.world.write(key, &to);
        (self.witness)(Step::ReadBack(key));
        let read_back = self.world.read(key);
        match (written, read_back) {
            (Ok(()), Ok(now)) => {
                (self.witness)(Step::RecordDone(key));
                self.record(Record::Done { id, now: now.clone() })?;
                for (side_id, side) in sides {
                    if let Ok(now) = self.world.read(&side) {
                        self.record(Record::Done { id: side_id, now })?;
                    }
                }
                Ok(outcome(ChangeResult::Applied { now }))
            }
            (Err(error), Ok(now)) if now == from => {
                for id in sides.into_iter().map(|(id, _)| id).chain([id]) {
                    self.record(Record::Undone { id })?;
                }
                Ok(Trouble::of(&error).outcome(change, Some(from.clone())))
            }
            // It stays announced: a revert finds out what became of it.
            (Err(error), _) | (Ok(()), Err(error)) => {
                Ok(Trouble::of(&error).outcome(change, Some(from.clone())))
            }
        }
    }

    fn announce_sides(&mut self, change: &Change) -> Result<Vec<(u32, Key)>, LogError> {
        let mut sides = Vec::new();
        for side in self.world.side_effects(&change.key) {
            let Ok(value) = self.world.read(&side) else { continue };
            let told = Change {
                key: side.clone(),
                why: format!("the kernel may change it with {}", change.key),
                ..change.clone()
            };
            sides.push((self.announce(&told, &value, &value, true)?, side));
        }
        Ok(sides)
    }

    fn announce(
        &mut self,
        change: &Change,
        from: &str,
        to: &str,
        is_side_effect: bool,
    ) -> Result<u32, LogError> {
        let intent = self.intent(self.journal.next_id(), change, from, to, is_side_effect);
        let id = intent.id;
        self.record(Record::Intent(intent))?;
        Ok(id)
    }

    fn intent(
        &self,
        id: u32,
        change: &Change,
        from: &str,
        to: &str,
        is_side_effect: bool,
    ) -> Intent {
        let line = if self.owner.is_host() { one_line } else { plain_line };
        Intent {
            id,
            key: change.key.clone(),
            from: from.to_owned(),
            to: to.to_owned(),
            is_side_effect,
            owner: self.owner,
            why: line(&change.why, WHY_CHARACTERS_MAX),
            source: line(&change.source, WHY_CHARACTERS_MAX),
        }
    }

    /// On disk first, then in memory.
    fn record(&mut self, record: Record) -> Result<(), LogError> {
        self.log.append(&record)?;
        self.journal.take(record).map_err(LogError)
    }
}

impl std::fmt::Debug for Engine<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Engine").field("journal", &self.journal).finish_non_exhaustive()
    }
}

/// Why a change was not made.
struct Trouble {
    reason: String,
    is_privilege: bool,
}

impl Trouble {
    fn of(error: &WorldError) -> Self {
        Self { reason: error.to_string(), is_privilege: matches!(error, WorldError::Denied { .. }) }
    }

    fn plain(error: &dyn std::error::Error) -> Self {
        Self { reason: error.to_string(), is_privilege: false }
    }

    fn outcome(self, change: &Change, from: Option<String>) -> Outcome {
        let Self { reason, is_privilege } = self;
        let result = ChangeResult::Failed { reason, is_privilege };
        Outcome { key: change.key.clone(), from, to: change.to.clone(), result }
    }
}

fn not_tried(change: &Change) -> Outcome {
    let result = ChangeResult::NotTried;
    Outcome { key: change.key.clone(), from: None, to: change.to.clone(), result }
}

fn refused_all(changes: &[Change], doomed: &Change, trouble: Trouble) -> Applied {
    let mut trouble = Some(trouble);
    let outcomes = changes.iter().map(|change| {
        let taken = (change == doomed).then(|| trouble.take()).flatten();
        taken.map_or_else(|| not_tried(change), |trouble| trouble.outcome(change, None))
    });
    Applied { outcomes: outcomes.collect(), left: Vec::new() }
}
