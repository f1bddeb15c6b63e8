//! Making a host what the plan wants of it, and putting back what was there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use netlink::{Nexthop, NexthopKind, Route};
use route_plan::{
    Change, Conflict, Difference, HostState, Object, Plan, Role, WantedError, describe, difference,
    first_kernel_with, is_mark_table, wanted,
};
use settings::Key;
use thiserror::Error;
use tuning::journal::{Entry, Intent, Journal};
use tuning::{
    Applied, ChangeResult, Engine, LogError, Outcome, Owner, Policy, RevertOutcome, RevertRequest,
    Step, Store, StoreError, World, check_namespace,
};

use crate::drain::{DrainError, forget, undrained};
use crate::hex::{self, ABSENT, PRESENT};
use crate::marks::{MarksError, find_gateways, read_marks};
use crate::read::{ReadError, read_host};
use crate::world::Network;

/// Why a plan is not applied. Nothing has been changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// What the host has cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The host has not what the plan names.
    #[error(transparent)]
    Wanted(#[from] WantedError),
    /// The kernel has not a setting that the plan needs.
    #[error("{key}: this kernel has no such setting; Linux {since} has it")]
    NoSetting {
        /// The setting.
        key: String,
        /// The first kernel that has it.
        since: &'static str,
    },
    /// Something of others is in the way.
    #[error("{}", lines(.0))]
    Conflicts(Vec<String>),
    /// Packets cannot be marked by the gateway that they come from.
    #[error(transparent)]
    Marks(#[from] MarksError),
    /// Which gateways are drained is not known.
    #[error(transparent)]
    Drained(#[from] DrainError),
    /// The journal cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record could not be put on disk.
    #[error(
        "the journal cannot be written ({0}); `clearstream gateway revert` undoes what was done"
    )]
    Log(#[from] LogError),
}

fn lines(conflicts: &[String]) -> String {
    let first = conflicts.first().map_or("", String::as_str);
    match conflicts.len() {
        0 | 1 => first.to_owned(),
        count => format!("{first} (and {} more conflicts)", count - 1),
    }
}

impl ApplyError {
    /// Whether a kernel or a privilege lacks something.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        match self {
            Self::NoSetting { .. } => true,
            Self::Marks(error) => error.is_missing(),
            Self::Store(error) => error.is_privilege(),
            _other => false,
        }
    }
}

/// How a plan is applied.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the journal is.
    pub state: PathBuf,
    /// Milliseconds since 1970 UTC, for the journal's first line.
    pub now_unix_ms: u64,
    /// Routes of others may be replaced until the plan is reverted.
    pub replaces_foreign: bool,
    /// Gateways that are up; those beyond the end are. Those that are [drained](crate::drain()) are not used either.
    pub up: Vec<bool>,
}

impl Options {
    /// With the journal in a directory, nothing of others touched, all gateways up.
    #[must_use]
    pub fn new(state: &Path, now_unix_ms: u64) -> Self {
        Self { state: state.to_owned(), now_unix_ms, replaces_foreign: false, up: Vec::new() }
    }
}

/// The changes that were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The changes in iproute2's syntax, in their order.
    pub commands: Vec<String>,
    /// What became of each; empty when there was nothing to do.
    pub applied: Applied,
}

/// Makes the host that the thread is on what the plan wants of it: all or nothing, journalled.
///
/// # Errors
/// [`ApplyError`].
pub fn apply(
    plan: &Plan,
    role: Role<'_>,
    options: &Options,
    world: &mut Network,
    witness: &mut dyn FnMut(Step<'_>),
) -> Result<Made, ApplyError> {
    settle_after_boot(&options.state, world, witness)?;
    let bare = read_host(plan.family, [])?;
    let is_up = |at: usize| options.up.get(at).copied().unwrap_or(true);
    let undrained = undrained(plan, &options.state)?.into_iter().enumerate();
    let up: Vec<bool> = undrained.map(|(at, is_undrained)| is_undrained && is_up(at)).collect();
    let state = wanted(plan, role, &bare.interfaces, &up)?;
    let mut found = read_host(plan.family, state.sysctls.iter().map(|(key, _)| key))?;
    check_settings(&state, &found)?;
    read_marks(plan, &state, &mut found)?;
    find_gateways(plan, &state, &mut found)?;
    let Difference { changes, conflicts, unknown } = difference(plan, &state, &found);
    let in_the_way = |conflict: &&Conflict| !(conflict.is_replaceable && options.replaces_foreign);
    let told: Vec<String> = conflicts
        .iter()
        .filter(in_the_way)
        .map(|conflict| {
            let more =
                if conflict.is_replaceable { "; --replace lets it, until revert" } else { "" };
            let there = describe(&conflict.found, &found.interfaces);
            format!("{there}: {}{more}", conflict.reason)
        })
        .collect();
    if !told.is_empty() {
        return Err(ApplyError::Conflicts(told));
    }
    if !unknown.is_empty() {
        return Err(MarksError::unknown(plan, &unknown).into());
    }
    let (commands, changes): (Vec<String>, Vec<settings::Change>) = changes
        .iter()
        .filter_map(|change| {
            let command = route_plan::command(change, &found.interfaces);
            Some((command, to_setting(change, &plan.name)?))
        })
        .unzip();
    let present = present(plan, &state, &found);
    let applied = take(&changes, &present, options, world, witness)?;
    // Another process may have made the same changes since this one looked.
    let commands = commands.into_iter().zip(&applied.outcomes);
    let is_made = |one: &Outcome| !matches!(one.result, ChangeResult::Unchanged);
    let commands = commands.filter(|(_, outcome)| is_made(outcome)).map(|(command, _)| command);
    Ok(Made { commands: commands.collect(), applied })
}

/// What of the plan is there as it is wanted, in the words of the journal.
fn present(plan: &Plan, state: &HostState, found: &route_plan::Found) -> Vec<settings::Change> {
    let protocol = plan.routing.protocol;
    let nexthops = found.nexthops.iter().filter(|one| one.protocol == protocol);
    let routes = found.routes.iter().filter(|one| one.protocol == protocol);
    let rules = found.rules.iter().filter(|one| one.protocol == protocol);
    let objects = nexthops.cloned().map(Object::Nexthop);
    let objects = objects.chain(routes.cloned().map(Object::Route));
    let objects = objects.chain(rules.cloned().map(Object::Rule));
    let objects: Vec<Object> = objects.collect();
    if objects.is_empty() {
        return Vec::new();
    }
    let wanted_nexthops = state.nexthops.iter().cloned().map(Object::Nexthop);
    let wanted_routes = state.routes.iter().cloned().map(Object::Route);
    let wanted_rules = state.rules.iter().cloned().map(Object::Rule);
    let wanted = wanted_nexthops.chain(wanted_routes).chain(wanted_rules);
    let wanted: BTreeMap<Key, Object> =
        wanted.filter_map(|object| Some((key_of(&object)?, object))).collect();
    let is_wanted =
        |object: &Object| key_of(object).is_some_and(|key| wanted.get(&key) == Some(object));
    let changes = objects.into_iter().filter(is_wanted).map(Change::Add);
    changes.filter_map(|change| to_setting(&change, &plan.name)).collect()
}

/// Makes changes that were planned, and counts as made what is `present` without any entry of the journal: another
/// system has configured it by the same plan.
fn take(
    changes: &[settings::Change],
    present: &[settings::Change],
    options: &Options,
    world: &mut Network,
    witness: &mut dyn FnMut(Step<'_>),
) -> Result<Applied, ApplyError> {
    if changes.is_empty() && present.is_empty() {
        return Ok(Applied::default());
    }
    let mut store = Store::open(&options.state)?;
    if let Some(journal) = store.journal() {
        check_namespace(world.host(), journal, &store.path())?;
    }
    let known: BTreeSet<Key> = store.journal().map_or_else(BTreeSet::new, |journal| {
        journal.open().map(|entry| entry.intent.key.clone()).collect()
    });
    let strange = present.iter().filter(|change| !known.contains(&change.key));
    let strange: Vec<settings::Change> = strange.cloned().collect();
    if changes.is_empty() && strange.is_empty() {
        return Ok(Applied::default());
    }
    let header = world.host().header(options.now_unix_ms);
    let (mut journal, mut log) = store.begin(header)?;
    let mut engine =
        Engine { world, log: &mut log, journal: &mut journal, owner: Owner::Host, witness };
    let applied = if changes.is_empty() {
        Applied::default()
    } else {
        engine.apply_together(changes, Policy::AllOrNothing)?
    };
    let is_made = |one: &Outcome| {
        matches!(one.result, ChangeResult::Applied { .. } | ChangeResult::Unchanged)
    };
    if applied.outcomes.iter().all(is_made) {
        engine.adopt_together(&strange)?;
    }
    drop(log);
    if journal.open().next().is_none() {
        store.remove()?;
    }
    Ok(applied)
}

/// Ends the journal of an earlier boot: its objects went with that boot, and settings that something sets at boot to
/// the plan's values go back to those before, so that the new journal knows them.
fn settle_after_boot(
    state: &Path,
    world: &mut Network,
    witness: &mut dyn FnMut(Step<'_>),
) -> Result<(), ApplyError> {
    let boot_id = world.host().boot_id();
    let is_old = |journal: &Journal| journal.header.boot_id != boot_id;
    if !Store::look(state)?.as_ref().is_some_and(is_old) {
        return Ok(());
    }
    let mut store = Store::open(state)?;
    let Some(journal) = store.journal() else { return Ok(()) };
    let header = journal.header.clone();
    let (mut journal, mut log) = store.begin(header)?;
    let request = RevertRequest { has_rebooted: true, ..RevertRequest::default() };
    let mut engine =
        Engine { world, log: &mut log, journal: &mut journal, owner: Owner::Host, witness };
    engine.revert_together(&request)?;
    drop(log);
    if journal.open().next().is_none() {
        store.remove()?;
        return Ok(());
    }
    // What could not be undone stays, for a person to revert.
    let failed = "changes of an earlier boot could not be undone; `clearstream gateway revert` gives the reason";
    Err(ApplyError::Log(LogError(failed.to_owned())))
}

/// Puts back everything that was changed with the journal in `state`; with `force` also what somebody else has changed
/// since. Gone objects need no undoing.
///
/// # Errors
/// The journal cannot be used.
pub fn revert(
    state: &Path,
    force: bool,
    world: &mut Network,
    witness: &mut dyn FnMut(Step<'_>),
) -> Result<Vec<RevertOutcome>, ApplyError> {
    let mut store = Store::open(state)?;
    let Some(journal) = store.journal() else { return Ok(Vec::new()) };
    check_namespace(world.host(), journal, &store.path())?;
    let has_rebooted = journal.header.boot_id != world.host().boot_id();
    let header = journal.header.clone();
    let (mut journal, mut log) = store.begin(header)?;
    if let Some((recorded, now)) = renamed_since(&journal) {
        world.rename(recorded, now);
    }
    let also_ours = moved_since(&journal, world);
    let request = RevertRequest { force, has_rebooted, also_ours, ..RevertRequest::default() };
    let mut engine =
        Engine { world, log: &mut log, journal: &mut journal, owner: Owner::Host, witness };
    let outcomes = engine.revert_together(&request)?;
    drop(log);
    if journal.open().next().is_none() {
        forget(state).map_err(DrainError::from)?;
        store.remove()?;
    }
    Ok(outcomes)
}

/// The interface of a host's settings, where it has another name by now: routes and nexthops of the journal go by its number.
fn renamed_since(journal: &Journal) -> Option<(String, String)> {
    let links = read_host(netlink::Family::V4, []).ok()?.interfaces;
    let recorded = journal.open().find_map(|one| match &one.intent.key {
        Key::Interface { name, .. } if links.index(name).is_none() => Some(name.clone()),
        _other => None,
    })?;
    let index = journal.open().find_map(|one| {
        let (key, to) = (&one.intent.key, &one.intent.to);
        if !matches!(key, Key::Nexthop(_)) {
            return None;
        }
        match hex::parse::<Nexthop>(to)?.kind {
            NexthopKind::Hop(hop) => hop.interface_index,
            _group => None,
        }
    })?;
    Some((recorded, links.name(index)?.to_owned()))
}

/// Values of objects that differ from the journal's and have its protocol number, or are marks and nothing else: this
/// program has changed them since, because a gateway failed ([`move_flows`](crate::move_flows)) or has another hardware
/// address. Those that a later change found in place of an earlier one are among them.
fn moved_since(journal: &Journal, world: &mut Network) -> BTreeSet<(Key, String)> {
    let open: Vec<&Entry> = journal.open().filter(|one| one.intent.key.is_object()).collect();
    let keys: Vec<Key> = open.iter().map(|one| one.intent.key.clone()).collect();
    let values = world.read_all(&keys).into_iter().map(|value| value.unwrap_or_default());
    let mut moved = BTreeSet::new();
    for (one, value) in open.into_iter().zip(values) {
        let Intent { key, from, to, .. } = &one.intent;
        let ours =
            [&value, from].into_iter().filter(|value| *value != to && is_moved(key, to, value));
        moved.extend(ours.map(|value| (key.clone(), value.clone())));
    }
    moved
}

/// Whether a value of an object is of this program's making like the one that the journal says.
fn is_moved(key: &Key, to: &str, value: &str) -> bool {
    match key {
        Key::FilterTable(_) => hex::table(value).is_some_and(|table| is_mark_table(&table)),
        _other => {
            let protocol = protocol_of(key, value);
            protocol.is_some() && protocol == protocol_of(key, to)
        }
    }
}

fn protocol_of(key: &Key, value: &str) -> Option<u8> {
    match key {
        Key::Nexthop(_) => hex::parse::<Nexthop>(value).map(|one| one.protocol),
        Key::Route(_) => hex::parse::<Route>(value).map(|one| one.protocol),
        _other => None,
    }
}

fn check_settings(state: &HostState, found: &route_plan::Found) -> Result<(), ApplyError> {
    let missing = state.sysctls.iter().find(|(key, _)| !found.sysctls.contains_key(key));
    match missing {
        None => Ok(()),
        Some((key, _)) => Err(ApplyError::NoSetting {
            key: key.to_string(),
            since: first_kernel_with(key).unwrap_or("with this protocol family"),
        }),
    }
}

/// A change in the words of the journal; `None` for one that fits no netlink message.
fn to_setting(change: &Change, plan: &str) -> Option<settings::Change> {
    let (key, from, to) = match change {
        Change::Set { key, from, to } => (key.clone(), from.clone(), to.clone()),
        Change::Add(object) => (key_of(object)?, Some(ABSENT.to_owned()), value_of(object)?),
        Change::Replace { from, to } => (key_of(to)?, Some(value_of(from)?), value_of(to)?),
        Change::Remove(object) => (key_of(object)?, Some(value_of(object)?), ABSENT.to_owned()),
    };
    let change = settings::Change::new(key, to).from_value(from);
    Some(change.because(format!("plan {plan}"), ""))
}

fn key_of(object: &Object) -> Option<Key> {
    match object {
        Object::Nexthop(nexthop) => Some(hex::nexthop_key(nexthop)),
        Object::Route(route) => Some(hex::route_key(route)),
        Object::Rule(rule) => hex::rule_key(rule),
        Object::FilterTable(table) => hex::table_key(table),
    }
}

fn value_of(object: &Object) -> Option<String> {
    match object {
        Object::Nexthop(nexthop) => hex::of(nexthop),
        Object::Route(route) => hex::of(route),
        Object::Rule(_) => Some(PRESENT.to_owned()),
        Object::FilterTable(table) => hex::of_table(table),
    }
}
