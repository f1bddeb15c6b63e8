//! Host, journal and step machine together: what the command line and the far end's server do.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use settings::{Change, Key};
use thiserror::Error;

use crate::engine::{
    Applied, ChangeResult, Engine, LogError, Policy, RevertOutcome, RevertRequest, Step,
};
use crate::host::{Host, namespace};
use crate::journal::{Journal, Owner, State};
use crate::persist;
use crate::store::{Store, StoreError};
use crate::world::{World, WorldError};

/// Why nothing could be done. One line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TuneError {
    /// The journal cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record could not be put on disk.
    #[error("the journal cannot be written ({0}); `clearstream tune revert` undoes what was done")]
    Log(#[from] LogError),
    /// A setting could not be read.
    #[error(transparent)]
    World(#[from] WorldError),
}

/// Changes a host's settings with a journal in a directory.
#[derive(Debug, Clone)]
pub struct Tuner {
    host: Host,
    state: PathBuf,
    /// Milliseconds since 1970 UTC, for the journal's first line.
    now_unix_ms: u64,
    /// On whose behalf.
    owner: Owner,
}

/// A change of the journal and how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusLine {
    /// The setting.
    pub key: Key,
    /// Before the change.
    pub from: String,
    /// Asked for.
    pub to: String,
    /// Now; absent when it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// How it stands.
    pub standing: Standing,
    /// Why it was changed.
    #[serde(default)]
    pub why: String,
    /// Whose change it is.
    #[serde(default, skip_serializing_if = "Owner::is_host")]
    pub owner: Owner,
}

/// How to undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Undo {
    /// All changes; what somebody else has changed since is left.
    #[default]
    All,
    /// Of each setting only the change that was made last.
    Last,
    /// All changes, over what somebody else has changed since.
    Force,
}

/// How a change of the journal stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It is in force.
    InForce,
    /// It has its former value.
    Back,
    /// Somebody else has set it since.
    Foreign,
    /// Cut short; a revert settles it.
    Unfinished,
    /// It cannot be read (its interface was removed).
    #[serde(rename = "gone")]
    Absent,
}

impl Tuner {
    /// For this host, with the journal in `state`.
    #[must_use]
    pub fn new(host: Host, state: &Path, now_unix_ms: u64) -> Self {
        Self { host, state: state.to_owned(), now_unix_ms, owner: Owner::Host }
    }

    /// The same on behalf of clients from an address: it changes nothing that somebody else has
    /// changed, writes no file but the journal, and sees and undoes only what clients from there have
    /// changed.
    #[must_use]
    pub fn for_client(&self, address: IpAddr) -> Self {
        Self { owner: Owner::Remote(address), ..self.clone() }
    }

    /// Makes changes; with `persist` also the files that make them again at boot.
    ///
    /// # Errors
    /// The journal cannot be used. What became of each change is in the answer.
    pub fn apply(
        &self,
        changes: &[Change],
        policy: Policy,
        persist: bool,
        witness: &mut dyn FnMut(Step<'_>),
    ) -> Result<Applied, TuneError> {
        let mut store = self.open()?;
        let mut host = self.host.clone();
        let begun = store.begin(self.host.header(self.now_unix_ms))?;
        let (mut journal, mut log) = begun;
        let mut wanted = changes.to_vec();
        if persist && self.owner.is_host() {
            wanted.extend(persist::changes(&journal, changes, &mut host));
        }
        let mut engine = Engine {
            world: &mut host,
            log: &mut log,
            journal: &mut journal,
            owner: self.owner,
            witness,
        };
        let applied = engine.apply(&wanted, policy);
        // Where nothing could be announced there is nothing to keep a journal for.
        drop(log);
        if journal.open().next().is_none() {
            store.remove()?;
        }
        Ok(applied?)
    }

    /// Undoes changes; the journal goes when nothing is left in it.
    ///
    /// # Errors
    /// The journal cannot be used. What became of each change is in the answer.
    pub fn revert(
        &self,
        keys: &[Key],
        how: Undo,
        witness: &mut dyn FnMut(Step<'_>),
    ) -> Result<Vec<RevertOutcome>, TuneError> {
        let mut store = self.open()?;
        let Some(known) = store.journal() else { return Ok(Vec::new()) };
        let has_rebooted = self.has_rebooted(known);
        let header = known.header.clone();
        let mut host = self.host.clone();
        let (mut journal, mut log) = store.begin(header)?;
        let request = RevertRequest {
            keys: keys.to_vec(),
            ids: None,
            force: how == Undo::Force,
            last_only: how == Undo::Last,
            has_rebooted,
            ..RevertRequest::default()
        };
        let mut engine = Engine {
            world: &mut host,
            log: &mut log,
            journal: &mut journal,
            owner: self.owner,
            witness,
        };
        let outcomes = engine.revert(&request)?;
        if !keys.is_empty() && self.owner.is_host() {
            persist_the_rest(&mut engine)?;
        }
        drop(log);
        if journal.open().next().is_none() {
            store.remove()?;
        }
        Ok(outcomes)
    }

    /// How the changes of the journal stand.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn status(&self) -> Result<Vec<StatusLine>, TuneError> {
        let Some(journal) = Store::look(&self.state)? else { return Ok(Vec::new()) };
        self.check(&journal)?;
        let mut host = self.host.clone();
        let entries = journal.open().filter(|entry| {
            !entry.intent.is_side_effect
                && (self.owner.is_host() || entry.intent.owner == self.owner)
        });
        let lines = entries.map(|entry| {
            let now = host.read(&entry.intent.key).ok();
            let last = journal.last_of(&entry.intent.key);
            let is_last = last.is_some_and(|one| one.intent.id == entry.intent.id);
            let is_anothers = !self.owner.is_host()
                && last.is_some_and(|one| one.intent.owner != entry.intent.owner);
            let standing = match (&now, &entry.state) {
                (None, _) => Standing::Absent,
                (Some(_), _) if is_anothers => Standing::Foreign,
                (Some(_), State::Intended) => Standing::Unfinished,
                (Some(_), _) if !is_last => Standing::InForce,
                (Some(now), State::Done(done)) if now == done => Standing::InForce,
                (Some(now), _) if *now == entry.intent.from => Standing::Back,
                _ => Standing::Foreign,
            };
            let crate::journal::Intent { key, from, to, why, owner, .. } = entry.intent.clone();
            StatusLine { key, from, to, now, standing, why, owner }
        });
        Ok(lines.collect())
    }

    /// Drops the journal without undoing anything.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn forget(&self) -> Result<(), TuneError> {
        // A damaged journal is exactly what somebody wants to drop.
        let path = self.state.join("journal");
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::Io { path: path.display().to_string(), source }.into())
            }
            _ => Ok(()),
        }
    }

    /// Values of settings; those that this host does not have are left out.
    #[must_use]
    pub fn read(&self, keys: &[Key]) -> BTreeMap<Key, String> {
        let mut host = self.host.clone();
        keys.iter().filter_map(|key| Some((key.clone(), host.read(key).ok()?))).collect()
    }

    /// Where the journal is.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    fn open(&self) -> Result<Store, TuneError> {
        let store = Store::open(&self.state)?;
        if let Some(journal) = store.journal() {
            self.check(journal)?;
        }
        Ok(store)
    }

    fn has_rebooted(&self, journal: &Journal) -> bool {
        journal.header.boot_id != self.host.boot_id()
    }

    fn check(&self, journal: &Journal) -> Result<(), TuneError> {
        Ok(check_namespace(&self.host, journal, &self.state.join("journal"))?)
    }
}

/// Refuses the journal of another network namespace. A namespace's number means something until the next boot only.
///
/// # Errors
/// [`StoreError::OtherNamespace`].
pub fn check_namespace(host: &Host, journal: &Journal, path: &Path) -> Result<(), StoreError> {
    if host.boot_id() == journal.header.boot_id && journal.header.namespace != namespace() {
        let path = path.display().to_string();
        return Err(StoreError::OtherNamespace { path, host: journal.header.host.clone() });
    }
    Ok(())
}

/// Settings that stay changed stay persisted, and no others.
fn persist_the_rest(engine: &mut Engine<'_>) -> Result<(), TuneError> {
    let is_file = |key: &Key| matches!(key, Key::File(_));
    let written: Vec<Key> = engine
        .journal
        .open()
        .filter(|entry| is_file(&entry.intent.key))
        .map(|entry| entry.intent.key.clone())
        .collect();
    if written.is_empty() {
        return Ok(());
    }
    let rest = persist::changes(engine.journal, &[], engine.world);
    let empty = written.into_iter().filter(|key| rest.iter().all(|change| change.key != *key));
    let request = RevertRequest { keys: empty.collect(), ..RevertRequest::default() };
    if !request.keys.is_empty() {
        engine.revert(&request)?;
    }
    engine.apply(&rest, Policy::KeepGoing)?;
    Ok(())
}

impl Applied {
    /// Changes that are in force now.
    pub fn made(&self) -> impl Iterator<Item = &crate::engine::Outcome> {
        self.outcomes.iter().filter(|one| matches!(one.result, ChangeResult::Applied { .. }))
    }
}
