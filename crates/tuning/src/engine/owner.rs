//! Whose change is whose: what a remote client may change, and what it may undo.

use settings::{Change, Key};

use super::{Engine, LogError, RevertRequest};
use crate::journal::{
    ALL_REMOTES_BYTES_MAX, Entry, Owner, REMOTE_BYTES_MAX, REMOTE_CHANGES_MAX, Record, State,
};

impl Engine<'_> {
    /// Why a remote client may not change this: it is a file, somebody else's change of it (or of
    /// what the kernel changes along) is in force, or the client has too many changes already.
    pub(super) fn remote_refusal(&self, key: &Key) -> Option<String> {
        if self.owner.is_host() {
            return None;
        }
        match key {
            Key::File(_) => return Some(format!("{key}: a remote client cannot write files")),
            Key::CpuQuota(_) => {
                return Some(format!("{key}: a remote client cannot change processor quotas"));
            }
            key if key.is_routing() => {
                return Some(format!("{key}: a remote client cannot change how a host routes"));
            }
            _ => {}
        }
        let mut touched = self.world.side_effects(key);
        touched.push(key.clone());
        let mut others = self.journal.open().filter(|entry| entry.intent.owner != self.owner);
        if let Some(entry) = others.find(|entry| touched.contains(&entry.intent.key)) {
            let whose = match entry.intent.owner {
                Owner::Host => "a local user of that host",
                Owner::Remote(_) => "another client",
            };
            let other = &entry.intent.key;
            return Some(format!("{key}: {whose} has changed {other}; not changed"));
        }
        self.too_many().then(|| {
            format!("{key}: too many changes by remote clients are in force; revert some first")
        })
    }

    fn too_many(&self) -> bool {
        let (mut count, mut own_bytes, mut all_bytes) = (0, 0, 0);
        for entry in self.journal.open().filter(|entry| !entry.intent.owner.is_host()) {
            let bytes = entry.intent.bytes();
            all_bytes += bytes;
            if entry.intent.owner == self.owner {
                count += 1;
                own_bytes += bytes;
            }
        }
        count >= REMOTE_CHANGES_MAX
            || own_bytes >= REMOTE_BYTES_MAX
            || all_bytes >= ALL_REMOTES_BYTES_MAX
    }

    /// A value that somebody on this host asks for and a remote client has set already is the host's
    /// from now on: the client's revert leaves it.
    pub(super) fn take_over(&mut self, change: &Change, value: &str) -> Result<(), LogError> {
        let last = self.journal.last_of(&change.key);
        if self.owner.is_host() && last.is_some_and(|last| !last.intent.owner.is_host()) {
            let id = self.announce(change, value, value, false)?;
            self.record(Record::Done { id, now: value.to_owned() })?;
        }
        Ok(())
    }

    /// Whether an undoing on behalf of this engine's owner may touch the change at all.
    pub(super) fn may_undo(&self, entry: &Entry) -> bool {
        self.owner.is_host() || entry.intent.owner == self.owner
    }

    /// Whether a remote client's change is no longer the client's to undo: somebody else has changed
    /// the setting after it, or nobody knows what it was made. Undoing what has just been announced
    /// (by number) is another matter: that is known.
    pub(super) fn is_superseded_by_other_owner(
        &self,
        entry: &Entry,
        current: &str,
        request: &RevertRequest,
    ) -> bool {
        if self.owner.is_host() {
            return false;
        }
        let intent = &entry.intent;
        let mut later = self
            .journal
            .open()
            .filter(|one| one.intent.id > intent.id && one.intent.key == intent.key);
        let is_unknown = entry.state == State::Intended
            && request.ids.is_none()
            && current != intent.from
            && current != intent.to;
        is_unknown || later.any(|one| one.intent.owner != self.owner)
    }
}
