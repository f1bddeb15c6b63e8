//! Many changes at once: each group of records is on disk, synced once, before the step it speaks of, so that
//! ten thousand routes take two writes of the journal and not twenty thousand. The order within a group is the
//! order of the changes; whatever ends the process, the next revert looks at each of them.

use settings::{Change, Key};

use super::{
    Applied, ChangeResult, Decision, Engine, LogError, Outcome, Policy, RevertOutcome,
    RevertRequest, Reverted, Step, Trouble, decide, refused_all,
};
use crate::journal::{Entry, Record};
use crate::world::WorldError;

impl Engine<'_> {
    /// Makes changes of different settings together: all announced, all written in their order, all read back. With
    /// [`Policy::AllOrNothing`] one that fails has all of them undone.
    ///
    /// # Errors
    /// Records could not be put on disk. What was made before stays announced and can be reverted.
    pub fn apply_together(
        &mut self,
        changes: &[Change],
        policy: Policy,
    ) -> Result<Applied, LogError> {
        let first_id = self.journal.next_id();
        let keys: Vec<Key> = changes.iter().map(|change| change.key.clone()).collect();
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(changes.len());
        // Index of the change, number of its intent, value before.
        let mut made: Vec<(usize, u32, String)> = Vec::new();
        let mut records: Vec<Record> = Vec::new();
        let mut sides: Vec<(u32, Key)> = Vec::new();
        let mut next_id = first_id;
        for (index, value) in self.world.read_all(&keys).into_iter().enumerate() {
            let change = &changes[index];
            let looked = value
                .map_err(|error| Trouble::of(&error))
                .and_then(|from| self.looks_at(change, from));
            let from = match looked {
                Ok(from) => from,
                Err(trouble) if policy == Policy::AllOrNothing => {
                    return Ok(refused_all(changes, change, trouble));
                }
                Err(trouble) => {
                    outcomes.push(trouble.outcome(change, None));
                    continue;
                }
            };
            let to = change.key.check(&change.to).unwrap_or_else(|_checked| change.to.clone());
            let result = if from == to { ChangeResult::Unchanged } else { ChangeResult::NotTried };
            let key = change.key.clone();
            outcomes.push(Outcome { key, from: Some(from.clone()), to: to.clone(), result });
            if from == to {
                continue;
            }
            for side in self.world.side_effects(&change.key) {
                let Ok(value) = self.world.read(&side) else { continue };
                let told = Change { key: side.clone(), ..change.clone() };
                records.push(Record::Intent(self.intent(next_id, &told, &value, &value, true)));
                sides.push((next_id, side));
                next_id += 1;
            }
            records.push(Record::Intent(self.intent(next_id, change, &from, &to, false)));
            made.push((index, next_id, from));
            next_id += 1;
        }
        let Some((first, ..)) = made.first() else {
            (self.witness)(Step::End);
            return Ok(Applied { outcomes, left: Vec::new() });
        };
        let first = keys[*first].clone();
        (self.witness)(Step::Announce(&first));
        self.record_all(records)?;
        (self.witness)(Step::Write(&first));
        let has_failed = self.write_together(&made, &sides, &mut outcomes)?;
        let mut applied = Applied { outcomes, left: Vec::new() };
        if has_failed && policy == Policy::AllOrNothing {
            self.undo_together(first_id, changes, &mut applied)?;
        }
        (self.witness)(Step::End);
        Ok(applied)
    }

    /// Records objects that something else has made exactly as these changes would, so that they count as this program's:
    /// whoever moves them later, the revert brings back what they are now. Those that are different by now are left out.
    ///
    /// # Errors
    /// Records could not be put on disk.
    pub fn adopt_together(&mut self, changes: &[Change]) -> Result<(), LogError> {
        let keys: Vec<Key> = changes.iter().map(|change| change.key.clone()).collect();
        let mut records: Vec<Record> = Vec::new();
        let mut next_id = self.journal.next_id();
        for (change, now) in changes.iter().zip(self.world.read_all(&keys)) {
            let Some(now) = now.ok().filter(|now| *now == change.to) else { continue };
            records.push(Record::Intent(self.intent(next_id, change, &now, &now, false)));
            records.push(Record::Done { id: next_id, now });
            next_id += 1;
        }
        self.record_all(records)
    }

    /// Writes what was announced, reads it back and records it. Whether any of it failed.
    fn write_together(
        &mut self,
        made: &[(usize, u32, String)],
        sides: &[(u32, Key)],
        outcomes: &mut [Outcome],
    ) -> Result<bool, LogError> {
        let of = |index: usize, outcomes: &[Outcome]| {
            (outcomes[index].key.clone(), outcomes[index].to.clone())
        };
        let values: Vec<(Key, String)> =
            made.iter().map(|(index, ..)| of(*index, outcomes)).collect();
        let first = values[0].0.clone();
        let written = self.world.write_all(&values);
        (self.witness)(Step::ReadBack(&first));
        let keys: Vec<Key> = values.into_iter().map(|(key, _)| key).collect();
        let read_back = self.world.read_all(&keys);
        let mut records = Vec::new();
        let mut has_failed = false;
        for (((index, id, from), written), read) in made.iter().zip(written).zip(read_back) {
            outcomes[*index].result = match (written, read) {
                (Ok(()), Ok(now)) => {
                    records.push(Record::Done { id: *id, now: now.clone() });
                    ChangeResult::Applied { now }
                }
                (Err(error), read) => {
                    if read.is_ok_and(|now| now == *from) {
                        records.push(Record::Undone { id: *id });
                    }
                    failed(&error)
                }
                // It stays announced: a revert finds out what became of it.
                (Ok(()), Err(error)) => failed(&error),
            };
            has_failed |= matches!(outcomes[*index].result, ChangeResult::Failed { .. });
        }
        for (id, side) in sides {
            if let Ok(now) = self.world.read(side) {
                records.push(Record::Done { id: *id, now });
            }
        }
        (self.witness)(Step::RecordDone(&first));
        self.record_all(records)?;
        Ok(has_failed)
    }

    fn undo_together(
        &mut self,
        first_id: u32,
        changes: &[Change],
        applied: &mut Applied,
    ) -> Result<(), LogError> {
        let ids: Vec<u32> = (first_id..self.journal.next_id()).collect();
        let request = RevertRequest { ids: Some(ids), ..RevertRequest::default() };
        let undone = self.revert_together(&request)?;
        applied.settle(undone, changes);
        Ok(())
    }

    /// Undoes changes together, the last one first. Settings that were changed several times go back step by step.
    ///
    /// # Errors
    /// Records could not be put on disk; what was undone before is undone, and the next revert finds it so.
    pub fn revert_together(
        &mut self,
        request: &RevertRequest,
    ) -> Result<Vec<RevertOutcome>, LogError> {
        let request =
            &RevertRequest { force: request.force && self.owner.is_host(), ..request.clone() };
        let mut rest = self.wanted(request);
        let mut outcomes = Vec::new();
        let mut unrecorded = None;
        while !rest.is_empty() {
            let mut keys = std::collections::BTreeSet::new();
            let repeated = rest.iter().position(|entry| !keys.insert(entry.intent.key.clone()));
            let later = rest.split_off(repeated.unwrap_or(rest.len()));
            let results = self.undo_round(&rest, request);
            let settled = rest.iter().zip(&results).filter(|(_, result)| result.is_settled());
            let records: Vec<Record> =
                settled.map(|(entry, _)| Record::Undone { id: entry.intent.id }).collect();
            (self.witness)(Step::RecordUndone(&rest[0].intent.key));
            // A full disk stops no undoing, as in `revert`.
            if let Err(error) = self.log.append_all(&records) {
                unrecorded.get_or_insert(error);
            }
            for record in records {
                self.journal.take(record).map_err(LogError)?;
            }
            for (entry, result) in rest.into_iter().zip(results) {
                if !(entry.intent.is_side_effect && result.is_settled()) {
                    let (key, from) = (entry.intent.key, entry.intent.from);
                    outcomes.push(RevertOutcome { key, from, result });
                }
            }
            rest = later;
        }
        (self.witness)(Step::End);
        match unrecorded {
            Some(error) if self.journal.open().next().is_some() => Err(error),
            _ => Ok(outcomes),
        }
    }

    /// Undoes changes of different settings.
    fn undo_round(&mut self, entries: &[Entry], request: &RevertRequest) -> Vec<Reverted> {
        let keys: Vec<Key> = entries.iter().map(|entry| entry.intent.key.clone()).collect();
        (self.witness)(Step::Undo(&keys[0]));
        let current = self.world.read_all(&keys);
        let mut results: Vec<Option<Reverted>> = Vec::with_capacity(entries.len());
        let mut restored: Vec<(usize, String)> = Vec::new();
        for (index, (entry, current)) in entries.iter().zip(current).enumerate() {
            let current = match current {
                Ok(current) => current,
                Err(WorldError::Absent { reason, .. }) => {
                    results.push(Some(Reverted::Absent { reason }));
                    continue;
                }
                Err(error) => {
                    results.push(Some(not_undone(&error)));
                    continue;
                }
            };
            if self.is_superseded_by_other_owner(entry, &current, request) {
                results.push(Some(Reverted::Foreign { now: current }));
                continue;
            }
            results.push(match decide(entry, &current, request) {
                Decision::Back => Some(Reverted::AlreadyBack),
                Decision::Foreign => Some(Reverted::Foreign { now: current }),
                Decision::Rebooted => Some(Reverted::Rebooted { now: current }),
                Decision::Restore => {
                    restored.push((index, current));
                    None
                }
            });
        }
        let values: Vec<(Key, String)> = restored
            .iter()
            .map(|(index, _)| (keys[*index].clone(), entries[*index].intent.from.clone()))
            .collect();
        if let Some((first, _)) = values.first() {
            (self.witness)(Step::Restore(first));
        }
        let written = self.world.write_all(&values);
        let keys: Vec<Key> = values.iter().map(|(key, _)| key.clone()).collect();
        let read_back = self.world.read_all(&keys);
        for (((index, was), (key, from)), (written, now)) in
            restored.into_iter().zip(&values).zip(written.into_iter().zip(read_back))
        {
            results[index] = Some(match (written, now) {
                (Err(error), _) | (Ok(()), Err(error)) => not_undone(&error),
                (Ok(()), Ok(now)) if now == *from => Reverted::Restored { was },
                (Ok(()), Ok(_other)) => Reverted::Failed {
                    reason: format!("{key}: its former value could not be restored"),
                    is_privilege: false,
                },
            });
        }
        results.into_iter().map(|result| result.unwrap_or(Reverted::AlreadyBack)).collect()
    }

    /// On disk first, then in memory.
    fn record_all(&mut self, records: Vec<Record>) -> Result<(), LogError> {
        self.log.append_all(&records)?;
        records.into_iter().try_for_each(|record| self.journal.take(record).map_err(LogError))
    }
}

fn failed(error: &WorldError) -> ChangeResult {
    let is_privilege = matches!(error, WorldError::Denied { .. });
    ChangeResult::Failed { reason: error.to_string(), is_privilege }
}

fn not_undone(error: &WorldError) -> Reverted {
    let is_privilege = matches!(error, WorldError::Denied { .. });
    Reverted::Failed { reason: error.to_string(), is_privilege }
}
