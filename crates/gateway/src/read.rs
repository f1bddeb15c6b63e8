//! What this host has: interfaces, nexthops, routes, rules and settings, each list of one moment.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use netlink::{Family, Link, Nexthop, NexthopFilter, Route, RouteFilter, Rule, table};
use route_plan::{Found, Interfaces};
use settings::{InterfaceKey, Key};
use sys::netlink_socket::{NetlinkError, NetlinkSocket};
use thiserror::Error;

/// A list that the kernel does not give.
#[derive(Debug, Error)]
#[error("cannot list {what} (rtnetlink)")]
pub struct ReadError {
    what: &'static str,
    source: NetlinkError,
}

impl ReadError {
    /// There is no socket to read by.
    pub(crate) fn socket(source: NetlinkError) -> Self {
        Self { what: "anything", source }
    }
}

/// Reads the host, of one address family, and those settings that are named. Settings that the kernel has not are
/// left out, and so are the routes of the table `local`; packet filters and neighbours are read by
/// [`read_marks`](crate::read_marks).
///
/// # Errors
/// The kernel refuses a list.
pub fn read_host<'a>(
    family: Family,
    keys: impl IntoIterator<Item = &'a Key>,
) -> Result<Found, ReadError> {
    let refused = |what| move |source| ReadError { what, source };
    let mut socket = NetlinkSocket::open().map_err(ReadError::socket)?;
    let links = socket.list::<Link>(&Link::dump()).map_err(refused("links"))?;
    let nexthops = Nexthop::dump(NexthopFilter::default());
    let nexthops = socket.list(&nexthops).map_err(refused("nexthops"))?;
    let routes = socket.routes(RouteFilter::all(family)).map_err(refused("routes"))?;
    let rules = socket.list::<Rule>(&Rule::dump(family)).map_err(refused("rules"))?;
    let is_plain = |route: &Route| route.table != table::LOCAL;
    Ok(Found {
        interfaces: Interfaces::new(links.into_iter().map(|link| (link.index, link.name))),
        sysctls: read_settings(keys),
        nexthops,
        routes: routes.into_iter().filter(is_plain).collect(),
        rules,
        ..Found::default()
    })
}

fn read_settings<'a>(keys: impl IntoIterator<Item = &'a Key>) -> BTreeMap<Key, String> {
    let read = |key: &Key| {
        let path = match key {
            Key::Sysctl(name) => Path::new("/proc/sys").join(name.replace('.', "/")),
            Key::Interface { name, what: InterfaceKey::Ipv4(setting) } => {
                Path::new("/proc/sys/net/ipv4/conf").join(name).join(setting)
            }
            Key::Interface { name, what: InterfaceKey::Ipv6(setting) } => {
                Path::new("/proc/sys/net/ipv6/conf").join(name).join(setting)
            }
            _other => return None,
        };
        key.check(&fs::read_to_string(path).ok()?).ok()
    };
    keys.into_iter().filter_map(|key| Some((key.clone(), read(key)?))).collect()
}
