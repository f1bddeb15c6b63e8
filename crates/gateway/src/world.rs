//! The world that `tuning`'s engine changes: kernel settings of this host, its nexthops, routes and rules, and its packet
//! filter tables.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use netlink::{
    Configurable, Family, Message, Nexthop, NexthopFilter, NexthopKind, Object, Route, RouteFilter,
    Rule, Target, flag,
};
use settings::{FilterTableName, Key};
use sys::netlink_socket::{NetlinkError, NetlinkSocket};
use tuning::{Host, World, WorldError};

use crate::hex::{self, ABSENT, PRESENT};

/// `EPERM`, as the kernel says it without `CAP_NET_ADMIN`.
const EPERM: i32 = 1;

/// Settings, nexthops, routes, rules and packet filter tables of the calling thread's network namespace.
#[derive(Default)]
pub struct Network {
    host: Host,
    socket: Option<NetlinkSocket>,
    filters: Option<NetlinkSocket>,
    before_each: Option<Box<dyn FnMut()>>,
    /// Interfaces that have another name than the journal's.
    renamed: BTreeMap<String, String>,
}

impl fmt::Debug for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Network").field("host", &self.host).finish_non_exhaustive()
    }
}

/// The objects of this host, by their keys, as netlink bodies.
#[derive(Default)]
struct Listed {
    values: BTreeMap<Key, String>,
    routes: BTreeMap<Key, Route>,
    nexthops: Vec<Nexthop>,
}

/// A request that waits for its batch: whose it is, and what it says.
type Waiting = (usize, Message);

impl Network {
    /// The same, with something done before each single change of an object, for tests that end the process there.
    /// Changes are then sent one by one.
    #[must_use]
    pub fn with_probe(probe: impl FnMut() + 'static) -> Self {
        Self { before_each: Some(Box::new(probe)), ..Self::default() }
    }

    /// Has settings of an interface go by the name that it has now.
    pub(crate) fn rename(&mut self, recorded: String, now: String) {
        self.renamed.insert(recorded, now);
    }

    /// A setting by the name that its interface has now.
    fn now<'a>(&self, key: &'a Key) -> Cow<'a, Key> {
        match key {
            Key::Interface { name, what } => match self.renamed.get(name) {
                Some(now) => Cow::Owned(Key::Interface { name: now.clone(), what: what.clone() }),
                None => Cow::Borrowed(key),
            },
            _other => Cow::Borrowed(key),
        }
    }

    /// The host whose settings they are.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    fn socket(&mut self) -> Result<&mut NetlinkSocket, NetlinkError> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => NetlinkSocket::open()?,
        };
        Ok(self.socket.insert(socket))
    }

    fn filters(&mut self) -> Result<&mut NetlinkSocket, NetlinkError> {
        let socket = match self.filters.take() {
            Some(socket) => socket,
            None => NetlinkSocket::open_filters()?,
        };
        Ok(self.filters.insert(socket))
    }

    /// Makes a packet filter table what the value says, in one step.
    fn write_filters(
        &mut self,
        key: &Key,
        name: FilterTableName,
        value: &str,
    ) -> Result<(), WorldError> {
        let family = family_of(name);
        let table = match value {
            ABSENT => None,
            body => {
                // What a journal says of one table is no reason to make another.
                let table =
                    hex::table(body).filter(|one| hex::table_key(one).as_ref() == Some(key));
                let unreadable = "the journal's value is not a packet filter table of that name";
                Some(table.ok_or_else(|| WorldError::refused(key, unreadable))?)
            }
        };
        self.filters()
            .and_then(|socket| socket.set_filter_table(family, &name.table(), table.as_ref()))
            .map_err(|error| refusal(key, &error))
    }

    /// Lists what the keys speak of: each kind of object at most once.
    fn list<'a>(&mut self, keys: impl Iterator<Item = &'a Key>) -> Result<Listed, NetlinkError> {
        let (mut wants_nexthops, mut wants_rules) = (false, false);
        let mut families = BTreeSet::new();
        let mut filter_names = BTreeSet::new();
        for key in keys {
            match key {
                Key::FilterTable(name) => {
                    filter_names.insert(*name);
                }
                Key::Nexthop(_) => wants_nexthops = true,
                Key::Rule(_) => wants_rules = true,
                Key::Route(name) => {
                    families.insert(hex::filter_of(name).family);
                }
                _setting => {}
            }
        }
        let mut listed = Listed::default();
        if wants_nexthops {
            let socket = self.socket()?;
            listed.nexthops = socket.list(&Nexthop::dump(NexthopFilter::default()))?;
            let each = listed.nexthops.iter();
            listed
                .values
                .extend(each.filter_map(|one| Some((hex::nexthop_key(one), hex::of(one)?))));
        }
        for family in families {
            for route in self.socket()?.routes(RouteFilter::all(family))? {
                let (key, value) = (hex::route_key(&route), hex::of(&route));
                // Of two routes with one name the kernel uses and replaces the first.
                if !listed.values.contains_key(&key) {
                    listed.values.extend(value.map(|value| (key.clone(), value)));
                    listed.routes.insert(key, route);
                }
            }
        }
        for name in filter_names {
            let tables =
                self.filters()?.filter_tables(family_of(name), |other| other == name.table())?;
            for table in tables {
                listed.values.extend(hex::table_key(&table).zip(hex::of_table(&table)));
            }
        }
        if wants_rules {
            for family in [Family::V4, Family::V6] {
                let rules = self.socket()?.list::<Rule>(&Rule::dump(family))?;
                let keys = rules.iter().filter_map(hex::rule_key);
                listed.values.extend(keys.map(|key| (key, PRESENT.to_owned())));
            }
        }
        Ok(listed)
    }

    /// Sends what waits, and says of each request what became of it.
    fn flush(
        &mut self,
        waiting: &mut Vec<Waiting>,
        keys: &[(Key, String)],
        results: &mut [Result<(), WorldError>],
    ) {
        let (places, messages): (Vec<usize>, Vec<Message>) = waiting.drain(..).unzip();
        if messages.is_empty() {
            return;
        }
        let batches: Vec<&[Message]> = match &self.before_each {
            Some(_) => messages.chunks(1).collect(),
            None => vec![&messages[..]],
        };
        let mut places = places.into_iter();
        for batch in batches {
            if let Some(probe) = &mut self.before_each {
                probe();
            }
            let outcomes = self.socket().and_then(|socket| socket.batch(batch));
            match outcomes {
                Ok(outcomes) => {
                    for (place, outcome) in places.by_ref().zip(outcomes) {
                        results[place] = outcome.map_err(|error| {
                            refusal(&keys[place].0, &NetlinkError::Refused(error))
                        });
                    }
                }
                Err(error) => {
                    for place in places.by_ref() {
                        results[place] = Err(refusal(&keys[place].0, &error));
                    }
                    return;
                }
            }
        }
    }

    /// Nexthops that routes or groups use which do not go in this batch, each with its first user. Deleting them would
    /// delete those too, without a word.
    fn in_use(&mut self, going: &BTreeSet<u32>) -> Result<BTreeMap<u32, String>, NetlinkError> {
        let socket = self.socket()?;
        let mut users = BTreeMap::new();
        for family in [Family::V4, Family::V6] {
            for route in socket.routes(RouteFilter::all(family))? {
                if let Target::Nexthop(id) = route.target {
                    let user = format!(
                        "the route to {} of protocol {}",
                        route.destination, route.protocol
                    );
                    users.entry(id).or_insert(user);
                }
            }
        }
        let groups = Nexthop::dump(NexthopFilter { groups_only: true, interface_index: None });
        for group in socket.list::<Nexthop>(&groups)? {
            let NexthopKind::Group { members, .. } = &group.kind else { continue };
            if !going.contains(&group.id) {
                for member in members {
                    users.entry(member.id).or_insert(format!("the group {}", group.id));
                }
            }
        }
        Ok(users)
    }
}

impl World for Network {
    fn read(&mut self, key: &Key) -> Result<String, WorldError> {
        let mut values = self.read_all(std::slice::from_ref(key));
        values.pop().unwrap_or_else(|| Err(WorldError::absent(key, "nothing was read")))
    }

    fn write(&mut self, key: &Key, value: &str) -> Result<(), WorldError> {
        let mut results = self.write_all(&[(key.clone(), value.to_owned())]);
        results.pop().unwrap_or(Ok(()))
    }

    fn read_all(&mut self, keys: &[Key]) -> Vec<Result<String, WorldError>> {
        let listed = if keys.iter().any(Key::is_object) {
            self.list(keys.iter())
        } else {
            Ok(Listed::default())
        };
        keys.iter()
            .map(|key| match &listed {
                _any if !key.is_object() => self.host.read(&self.now(key)),
                Ok(listed) => {
                    Ok(listed.values.get(key).cloned().unwrap_or_else(|| ABSENT.to_owned()))
                }
                Err(error) => Err(refusal(key, error)),
            })
            .collect()
    }

    fn write_all(&mut self, values: &[(Key, String)]) -> Vec<Result<(), WorldError>> {
        let mut results: Vec<Result<(), WorldError>> = vec![Ok(()); values.len()];
        let objects = values.iter().map(|(key, _)| key).filter(|key| key.is_object());
        let listed = match self.list(objects) {
            Ok(listed) => listed,
            Err(error) => {
                return values.iter().map(|(key, _)| Err(refusal(key, &error))).collect();
            }
        };
        let going: BTreeSet<u32> = values
            .iter()
            .filter_map(|(key, value)| match key {
                Key::Nexthop(id) if value == ABSENT => Some(*id),
                _other => None,
            })
            .collect();
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut users: Option<BTreeMap<u32, String>> = None;
        for (place, (key, value)) in values.iter().enumerate() {
            if !key.is_object() {
                self.flush(&mut waiting, values, &mut results);
                if let Some(probe) = &mut self.before_each {
                    probe();
                }
                let now = self.now(key).into_owned();
                results[place] = self.host.write(&now, value);
                continue;
            }
            if let Key::FilterTable(name) = key {
                self.flush(&mut waiting, values, &mut results);
                if let Some(probe) = &mut self.before_each {
                    probe();
                }
                results[place] = self.write_filters(key, *name, value);
                continue;
            }
            if let (Key::Nexthop(id), ABSENT) = (key, value.as_str()) {
                if users.is_none() {
                    self.flush(&mut waiting, values, &mut results);
                    users = self.in_use(&going).ok();
                }
                if let Some(user) = users.as_ref().and_then(|users| users.get(id)) {
                    let reason = format!("{user} uses it and would be removed with it");
                    results[place] = Err(WorldError::refused(key, reason));
                    continue;
                }
            } else {
                // Of two plans, the routes of one come after the nexthops of the other.
                users = None;
            }
            match request(key, value, &listed) {
                Ok(Some(message)) => waiting.push((place, message)),
                Ok(None) => {}
                Err(error) => results[place] = Err(error),
            }
        }
        self.flush(&mut waiting, values, &mut results);
        results
    }

    fn side_effects(&self, key: &Key) -> Vec<Key> {
        if key.is_object() { Vec::new() } else { self.host.side_effects(key) }
    }

    fn objection(&mut self, key: &Key, to: &str) -> Option<WorldError> {
        if key.is_object() { None } else { self.host.objection(key, to) }
    }
}

fn family_of(name: FilterTableName) -> Family {
    if name.is_v6 { Family::V6 } else { Family::V4 }
}

/// The request that gives an object its value; `None` where it has gone by itself.
fn request(key: &Key, value: &str, listed: &Listed) -> Result<Option<Message>, WorldError> {
    let unreadable =
        || WorldError::refused(key, "the journal's value is not a netlink message body for it");
    let is_there = listed.values.contains_key(key);
    let deleted = |message: Result<Message, netlink::CreateError>| {
        message.map(Some).map_err(|error| WorldError::refused(key, error.to_string()))
    };
    match (key, value) {
        (_, ABSENT) if !is_there => Ok(None),
        (Key::Nexthop(id), ABSENT) => deleted(netlink::delete(&Nexthop::group(*id, Vec::new()))),
        (Key::Route(_), ABSENT) => {
            let route = listed.routes.get(key).ok_or_else(unreadable)?;
            deleted(netlink::delete(route))
        }
        (Key::Rule(body), ABSENT) => {
            deleted(netlink::delete(&hex::parse::<Rule>(body).ok_or_else(unreadable)?))
        }
        (Key::Rule(body), _present) => {
            created::<Rule>(body, false).map(Some).ok_or_else(unreadable)
        }
        (Key::Nexthop(_), body) => {
            created::<Nexthop>(body, is_there).map(Some).ok_or_else(unreadable)
        }
        (Key::Route(_), body) => created::<Route>(body, is_there).map(Some).ok_or_else(unreadable),
        _setting => Err(unreadable()),
    }
}

/// The request with exactly this body: what was read is sent back byte for byte.
fn created<O: Configurable + Object>(body: &str, is_there: bool) -> Option<Message> {
    let bytes = hex::bytes(body)?;
    O::parse(&bytes).ok()?;
    let mode = if is_there { flag::REPLACE } else { flag::EXCLUSIVE };
    Some(Message { kind: O::NEW_KIND, flags: flag::CREATE | mode, body: bytes })
}

fn refusal(key: &Key, error: &NetlinkError) -> WorldError {
    match error.errno() {
        Some(EPERM) => WorldError::denied(key, "changing it needs CAP_NET_ADMIN (root)"),
        _other => WorldError::refused(key, error.to_string()),
    }
}
