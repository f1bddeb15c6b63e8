//! Routes steered by a watcher: moved off gateways that fail, and put back where the kernel or another daemon has
//! deleted them. Only what the journal says is this program's is touched, and only while nobody applies or reverts.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use netlink::{
    FilterTable, Message, Mode, Nexthop, NexthopFilter, Notified, Route, Target, create,
};
use route_plan::{
    Change, HostState, Interfaces, NEXTHOP_IDS_COUNT, Object, Plan, Role, describe, difference,
    is_mark_table, mark_table_name, overlap, wanted,
};
use settings::Key;
use sys::netlink_socket::NetlinkSocket;
use thiserror::Error;
use tuning::journal::Journal;
use tuning::{Held, Host, Store, StoreError};

use crate::drain::undrained;
use crate::hex;
use crate::marks::{MarksError, read_marks};
use crate::read::{ReadError, read_host};

/// How long somebody else may be at work with the journal: less than an interval of probes.
const LOCK_PATIENCE: Duration = Duration::from_millis(25);
const LOCK_LOOK_EVERY: Duration = Duration::from_millis(2);

/// Why routes cannot be steered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SteeringError {
    /// The plan is not applied on this host.
    #[error(
        "the plan '{0}' is not applied on this host, so its routes cannot be moved; `clearstream gateway apply` first"
    )]
    NotApplied(String),
    /// The plan does not name the host, or it is a gateway.
    #[error("the plan '{plan}' has no host '{host}' that sends over gateways")]
    NoHost {
        /// Name of the plan.
        plan: String,
        /// Name of the host.
        host: String,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The host cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// What the journal's file was when it was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed_ns: i128,
}

/// Steers the routes of one host on which a plan is applied. For the network namespace of the calling thread.
#[derive(Debug)]
pub struct Steered {
    plan: Plan,
    host: String,
    state: PathBuf,
    socket: NetlinkSocket,
    interfaces: Interfaces,
    /// The plan's interface, as the plan names it, and its number, which it keeps when it is renamed.
    interface: (String, Option<u32>),
    /// That it was renamed, until it has been said.
    unsaid: Option<String>,
    stamp: Option<Stamp>,
    /// Objects that the journal says are this program's.
    applied: BTreeSet<Key>,
    /// Whether routes of the plan are among them.
    is_applied: bool,
    is_not_applied_said: bool,
    /// What of others was in the way when it was last looked.
    in_the_way: Vec<String>,
}

impl Steered {
    /// For a host of the plan, whose journal is in `state`.
    ///
    /// # Errors
    /// The plan is not applied here.
    pub fn open(plan: Plan, host: &str, state: &Path) -> Result<Self, SteeringError> {
        let Some(Role::Host(found)) = plan.find(host) else {
            return Err(SteeringError::NoHost { plan: plan.name, host: host.to_owned() });
        };
        let interface = found.port.interface.clone();
        let bare = read_host(plan.family, [])?;
        let interface_index = bare.interfaces.index(&interface);
        let socket = NetlinkSocket::open().map_err(ReadError::socket)?;
        let mut steered = Self {
            plan,
            host: host.to_owned(),
            state: state.to_owned(),
            socket,
            interfaces: bare.interfaces,
            interface: (interface, interface_index),
            unsaid: None,
            stamp: None,
            applied: BTreeSet::new(),
            is_applied: false,
            is_not_applied_said: false,
            in_the_way: Vec::new(),
        };
        steered.read_journal()?;
        if steered.is_applied {
            return Ok(steered);
        }
        Err(SteeringError::NotApplied(steered.plan.name))
    }

    /// Reads the journal again if it has changed.
    fn read_journal(&mut self) -> Result<(), StoreError> {
        let stamp = fs::metadata(self.state.join("journal")).ok().map(|file| Stamp {
            inode: file.ino(),
            bytes: file.size(),
            changed_ns: i128::from(file.ctime()) * 1_000_000_000 + i128::from(file.ctime_nsec()),
        });
        if stamp == self.stamp && stamp.is_some() {
            return Ok(());
        }
        self.applied.clear();
        self.is_applied = false;
        let journal = Store::look(&self.state)?;
        self.stamp = stamp;
        let is_of_now = |journal: &Journal| {
            journal.header.boot_id == Host::default().boot_id()
                && journal.header.namespace == tuning::namespace()
        };
        let Some(journal) = journal.filter(is_of_now) else { return Ok(()) };
        let objects = journal.open().filter(|entry| entry.intent.key.is_object());
        self.applied.extend(objects.map(|entry| entry.intent.key.clone()));
        let Some(role @ Role::Host(host)) = self.plan.find(&self.host) else { return Ok(()) };
        // Routes go by their destinations, whatever number the interface has.
        let invented = Interfaces::invented([host.port.interface.as_str()]);
        let state = wanted(&self.plan, role, &invented, &[]).unwrap_or_default();
        let mut routes = state.routes.iter().map(hex::route_key);
        self.is_applied = routes.any(|key| self.applied.contains(&key));
        Ok(())
    }

    /// Keeps `apply` and `revert` out; `None`: there is nothing to steer, which has been said.
    fn begin(&mut self) -> Result<Option<Held>, String> {
        let mut held = Store::hold(&self.state).map_err(|error| error.to_string())?;
        let until = Instant::now() + LOCK_PATIENCE;
        while held.is_none() && self.state.join("journal").exists() && Instant::now() < until {
            thread::sleep(LOCK_LOOK_EVERY);
            held = Store::hold(&self.state).map_err(|error| error.to_string())?;
        }
        let exists = self.state.join("journal").exists();
        if held.is_none() && exists {
            return Err(
                "another command uses the journal: routes are moved when it has ended".to_owned()
            );
        }
        self.read_journal().map_err(|error| error.to_string())?;
        if held.is_some() && self.is_applied {
            self.is_not_applied_said = false;
            return Ok(held);
        }
        if std::mem::replace(&mut self.is_not_applied_said, true) {
            return Ok(None);
        }
        let name = self.plan.name.clone();
        Err(format!(
            "the plan '{name}' is no longer applied: its gateways are still watched, but no \
             routes are moved"
        ))
    }

    fn wanted(&self, gateways: &[u16]) -> Option<HostState> {
        let role = self.plan.find(&self.host)?;
        let up = self.up(gateways);
        let mut state = wanted(&self.plan, role, &self.interfaces, &up).ok()?;
        // The watcher moves packets, it does not tune.
        state.sysctls.clear();
        Some(state)
    }

    /// For every gateway of the plan whether it is among these; none of them stands for all.
    fn up(&self, gateways: &[u16]) -> Vec<bool> {
        let is_up =
            |index| gateways.is_empty() || gateways.iter().any(|one| usize::from(*one) == index);
        (0..self.plan.gateways.len()).map(is_up).collect()
    }

    fn is_ours(&self, protocol: u8) -> bool {
        protocol == self.plan.routing.protocol
    }

    /// Has groups and plain routes lead over these gateways. Returns how many were replaced.
    ///
    /// # Errors
    /// One line: the kernel refuses, or the plan is no longer applied.
    pub fn lead_over(&mut self, gateways: &[u16]) -> Result<usize, String> {
        let Some(_held) = self.begin()? else { return Ok(0) };
        let Some(state) = self.wanted(gateways) else { return Err(self.no_interface()) };
        let dump = Nexthop::dump(NexthopFilter { groups_only: true, interface_index: None });
        let found: Vec<Nexthop> = self.socket.list(&dump).map_err(|error| error.to_string())?;
        let mut messages = Vec::new();
        for there in found.iter().filter(|there| self.is_ours(there.protocol)) {
            let same = state.nexthops.iter().find(|nexthop| nexthop.id == there.id);
            let is_known = self.applied.contains(&hex::nexthop_key(there));
            if let Some(nexthop) = same.filter(|nexthop| is_known && *nexthop != there) {
                messages.extend(create(nexthop, Mode::Replace));
            }
        }
        for route in self.nets(&state) {
            messages.extend(create(route, Mode::Replace));
        }
        self.send(&messages)
    }

    /// The plain multipath routes beneath the others.
    fn nets<'a>(&'a self, state: &'a HostState) -> impl Iterator<Item = &'a Route> {
        let is_net = |route: &&Route| matches!(route.target, Target::Paths(_));
        let is_known = |route: &&Route| self.applied.contains(&hex::route_key(route));
        state.routes.iter().filter(is_net).filter(is_known)
    }

    /// Puts back what is missing, with these gateways in use. Returns how many objects were created or replaced;
    /// what others have put in their place stays, and is named once.
    ///
    /// # Errors
    /// As [`lead_over`](Self::lead_over), and what is in the way.
    pub fn put_back(&mut self, gateways: &[u16]) -> Result<usize, String> {
        let Some(_held) = self.begin()? else { return Ok(0) };
        let mut found = read_host(self.plan.family, []).map_err(|error| error.to_string())?;
        self.interfaces = found.interfaces.clone();
        self.follow_interface();
        let Some(state) = self.wanted(gateways) else { return Err(self.no_interface()) };
        // Routes are put back whatever becomes of marks.
        let marks = read_marks(&self.plan, &state, &mut found);
        let difference = difference(&self.plan, &state, &found);
        let changes = difference.changes.iter().filter_map(|change| self.message(change));
        let messages: Vec<Message> = changes.collect();
        let mut count = self.send(&messages)?;
        marks.map_err(|error| error.to_string())?;
        for change in &difference.changes {
            if let Some(table) = self.marks_to_put_back(change) {
                count += set_table(table)?;
            }
        }
        let foreign = difference.conflicts.iter().map(|conflict| {
            format!("{}: {}", describe(&conflict.found, &found.interfaces), conflict.reason)
        });
        self.say_in_the_way(foreign.collect())?;
        if !difference.unknown.is_empty() {
            return Err(MarksError::unknown(&self.plan, &difference.unknown).to_string());
        }
        self.unsaid.take().map_or(Ok(count), Err)
    }

    /// The table of marks that a change makes, if this program has made one here and nobody else has changed it.
    fn marks_to_put_back<'a>(&self, change: &'a Change) -> Option<&'a FilterTable> {
        let to = match change {
            Change::Add(Object::FilterTable(to)) => to,
            Change::Replace { from: Object::FilterTable(from), to: Object::FilterTable(to) }
                if is_mark_table(from) =>
            {
                to
            }
            _other => return None,
        };
        hex::table_key(to).is_some_and(|key| self.applied.contains(&key)).then_some(to)
    }

    fn message(&self, change: &Change) -> Option<Message> {
        let (object, mode) = match change {
            Change::Add(object) => (object, Mode::Create),
            Change::Replace { from, to } if protocol(from).is_some_and(|it| self.is_ours(it)) => {
                (to, Mode::Replace)
            }
            _other => return None,
        };
        let (key, message) = match object {
            Object::Nexthop(nexthop) => (hex::nexthop_key(nexthop), create(nexthop, mode)),
            Object::Route(route) => (hex::route_key(route), create(route, mode)),
            Object::Rule(rule) => (hex::rule_key(rule)?, create(rule, mode)),
            Object::FilterTable(_) => return None,
        };
        self.applied.contains(&key).then_some(message.ok()).flatten()
    }

    fn say_in_the_way(&mut self, foreign: Vec<String>) -> Result<(), String> {
        if foreign == self.in_the_way {
            return Ok(());
        }
        self.in_the_way = foreign;
        let more = self.in_the_way.len().saturating_sub(1);
        match self.in_the_way.first() {
            None => Ok(()),
            Some(first) if more == 0 => Err(format!("left unchanged: {first}")),
            Some(first) => Err(format!("left unchanged: {first} (and {more} more)")),
        }
    }

    /// Takes the plan's interface by the name that it has now.
    fn follow_interface(&mut self) {
        let (planned, index) = &self.interface;
        let Some(name) = index.and_then(|index| self.interfaces.name(index)) else { return };
        let own = self.plan.hosts.iter_mut().find(|one| one.name == self.host);
        let Some(host) = own.filter(|host| host.port.interface != name) else { return };
        name.clone_into(&mut host.port.interface);
        self.unsaid = (name != planned).then(|| {
            format!(
                "the interface {planned} of the plan is called {name} now: its routes are still moved, but other \
                 commands, and a watcher that is started, find it only when the plan has that name"
            )
        });
    }

    fn no_interface(&self) -> String {
        let (host, (interface, _index)) = (&self.host, &self.interface);
        format!("the interface {interface}, which the plan names for {host}, does not exist")
    }

    fn send(&mut self, messages: &[Message]) -> Result<usize, String> {
        if messages.is_empty() {
            return Ok(0);
        }
        let outcomes = self.socket.batch(messages).map_err(|error| error.to_string())?;
        let mut refusals = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        match refusals.next() {
            None => Ok(messages.len()),
            Some(first) => {
                let (refused, all) = (1 + refusals.count(), messages.len());
                Err(format!("the kernel refuses {refused} of {all} changes of routes: {first}"))
            }
        }
    }
}

fn protocol(object: &Object) -> Option<u8> {
    match object {
        Object::Nexthop(nexthop) => Some(nexthop.protocol),
        Object::Route(route) => Some(route.protocol),
        Object::Rule(rule) => Some(rule.protocol),
        Object::FilterTable(_) => None,
    }
}

/// Puts a table into its place. Returns how many were, 1.
fn set_table(table: &FilterTable) -> Result<usize, String> {
    NetlinkSocket::open_filters()
        .and_then(|mut socket| socket.set_filter_table(table.family, &table.name, Some(table)))
        .map(|()| 1)
        .map_err(|error| format!("packet filter table {}: {error}", table.name))
}

impl watch::Steering for Steered {
    fn steer(&mut self, gateways: &[u16]) -> Result<(), String> {
        self.lead_over(gateways).map(|_count| ())
    }

    fn restore(&mut self, gateways: &[u16]) -> Result<(), String> {
        self.put_back(gateways).map(|_count| ())
    }

    fn drained(&mut self) -> Option<Vec<u16>> {
        let undrained = undrained(&self.plan, &self.state).ok()?;
        let drained = (0..).zip(undrained).filter(|(_, is_undrained)| !is_undrained);
        Some(drained.map(|(gateway, _)| gateway).collect())
    }

    fn concerns(&self, announced: &Notified) -> bool {
        let ids = self.plan.routing.nexthop_ids;
        match announced {
            Notified::Nexthop(nexthop) => (ids..=ids + NEXTHOP_IDS_COUNT).contains(&nexthop.id),
            Notified::Route(route) => {
                let is_within =
                    |network: &route_plan::Network| overlap(network.prefix, route.destination);
                self.is_ours(route.protocol) || self.plan.networks.iter().any(is_within)
            }
            Notified::FilterTable(name) => *name == mark_table_name(&self.plan).table(),
            _other => true,
        }
    }
}
