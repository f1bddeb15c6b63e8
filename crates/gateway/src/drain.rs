//! Gateways taken out of use on purpose, and put back: a host's flows leave them by the same few messages that move
//! flows off a gateway that has failed. Which gateways are drained stands in a file beside the journal, so that
//! applying the plan again, and a reboot, leave them drained.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use netlink::{Message, Mode, Route, Target, create};
use route_plan::{Change, Found, Host, NET_METRIC, Object, Plan, Role, difference, live, wanted};
use settings::Key;
use sys::durable::{self, DurableError};
use sys::netlink_socket::NetlinkSocket;
use thiserror::Error;
use tuning::{Store, StoreError, check_namespace};

use crate::moves::{MoveError, replace};
use crate::read::{ReadError, read_host};

/// The file's name in the state directory: names of gateways, one a line.
const FILE: &str = "drained";
/// Longer ones were not written by this program: 256 names.
const FILE_BYTES_MAX: usize = 64 << 10;

/// Why a gateway is not drained, or not put back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DrainError {
    /// There are no routes of the plan to move.
    #[error("the plan '{0}' is not applied on this host; `clearstream gateway apply` first")]
    NotApplied(String),
    /// No other gateway is in use.
    #[error(
        "{gateway} is the last gateway in use on {host}: its flows would have no route; undrain \
         another gateway first"
    )]
    Last {
        /// Name of the gateway.
        gateway: String,
        /// Name of the host.
        host: String,
    },
    /// What the host has cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The journal cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The list of drained gateways cannot be read.
    #[error("{}: cannot read which gateways are drained", .path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It cannot be written; no flow has been moved.
    #[error("cannot record which gateways are drained, so no flow was moved")]
    Write(#[from] DurableError),
    /// Flows could not be moved.
    #[error(transparent)]
    Move(#[from] MoveError),
}

/// For every gateway of the plan whether it may carry flows of the host whose journal is in `state`: whether it is not
/// drained.
///
/// # Errors
/// The list is there and cannot be read.
pub fn undrained(plan: &Plan, state: &Path) -> Result<Vec<bool>, DrainError> {
    let names = names(state)?;
    Ok(plan.gateways.iter().map(|gateway| !names.contains(&gateway.name)).collect())
}

/// For every gateway of the plan whether flows of the host that the thread is on use it now, whoever moved them.
///
/// # Errors
/// What the host has, or the list of drained gateways, cannot be read.
pub fn used(plan: &Plan, host: &Host, state: &Path) -> Result<Vec<bool>, DrainError> {
    Ok(in_use(plan, host, &read_host(plan.family, [])?, &names(state)?))
}

fn names(state: &Path) -> Result<BTreeSet<String>, DrainError> {
    let path = state.join(FILE);
    let failed = |source| DrainError::List { path: path.clone(), source };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(failed(error)),
    };
    if text.len() > FILE_BYTES_MAX {
        return Err(failed(io::Error::other(
            "it is too long to have been written by this program",
        )));
    }
    Ok(text.lines().map(str::to_owned).collect())
}

/// Takes the list away: nothing is applied any more.
pub(crate) fn forget(state: &Path) -> Result<(), DurableError> {
    let path = state.join(FILE);
    if fs::symlink_metadata(&path).is_ok() { durable::remove(&path) } else { Ok(()) }
}

/// Moves the flows of the host that the thread is on off a gateway (`is_drained`), or lets them return to it, and
/// writes it down. The way to be is complete before the one before is left: each group and route is replaced by one
/// message. Gateways that are out of use for another reason, as a watcher found them, stay so. Returns the number of
/// objects replaced; 0: it was so already.
///
/// # Errors
/// [`DrainError`]. Nothing has been moved, unless it says so.
pub fn drain(
    plan: &Plan,
    host: &Host,
    state: &Path,
    gateway: usize,
    is_drained: bool,
) -> Result<usize, DrainError> {
    let not_applied = || DrainError::NotApplied(plan.name.clone());
    if Store::look(state)?.is_none() {
        return Err(not_applied());
    }
    // Nobody applies or reverts meanwhile.
    let store = Store::open(state)?;
    let journal = store.journal().ok_or_else(not_applied)?;
    let world = tuning::Host::default();
    check_namespace(&world, journal, &store.path())?;
    let is_route = |key: &Key| matches!(key, Key::Route(_));
    let is_now = journal.header.boot_id == world.boot_id();
    if !is_now || !journal.open().any(|entry| is_route(&entry.intent.key)) {
        return Err(not_applied());
    }
    let found = read_host(plan.family, [])?;
    let mut names = names(state)?;
    let name = &plan.gateways[gateway].name;
    let mut up = in_use(plan, host, &found, &names);
    up[gateway] = !is_drained;
    if !up.contains(&true) {
        return Err(DrainError::Last { gateway: name.clone(), host: host.name.clone() });
    }
    let is_new = if is_drained { names.insert(name.clone()) } else { names.remove(name) };
    if is_new {
        let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
        durable::replace(&state.join(FILE), lines.as_bytes())?;
    }
    Ok(move_to(plan, host, &up, &found)?)
}

/// Which gateways the host's flows use now: those of the plain route beneath the others.
fn in_use(plan: &Plan, host: &Host, found: &Found, drained: &BTreeSet<String>) -> Vec<bool> {
    let is_net = |route: &&Route| {
        route.protocol == plan.routing.protocol && route.priority == Some(NET_METRIC)
    };
    let net = found.routes.iter().find(is_net).map(|route| &route.target);
    let is_used = |gateway: &route_plan::Gateway| match net {
        Some(Target::Paths(paths)) => {
            let address = Some(gateway.ports[host.network].address);
            paths.iter().any(|path| path.gateway == address)
        }
        _gone => !drained.contains(&gateway.name),
    };
    let used: Vec<bool> = plan.gateways.iter().map(is_used).collect();
    live(plan, &used)
}

/// Replaces what of the plan's own leads elsewhere than over these gateways.
fn move_to(plan: &Plan, host: &Host, up: &[bool], found: &Found) -> Result<usize, MoveError> {
    let state = wanted(plan, Role::Host(host), &found.interfaces, up)?;
    let is_ours = |protocol: u8| protocol == plan.routing.protocol;
    let message = |change: &Change| match change {
        Change::Replace { from: Object::Nexthop(from), to: Object::Nexthop(to) }
            if is_ours(from.protocol) =>
        {
            create(to, Mode::Replace).ok()
        }
        Change::Replace { from: Object::Route(from), to: Object::Route(to) }
            if is_ours(from.protocol) =>
        {
            create(to, Mode::Replace).ok()
        }
        _other => None,
    };
    let changes = difference(plan, &state, found).changes;
    let messages: Vec<Message> = changes.iter().filter_map(message).collect();
    if messages.is_empty() {
        return Ok(0);
    }
    replace(&mut NetlinkSocket::open()?, &messages)
}
