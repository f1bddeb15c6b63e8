//! Netlink bodies as text, for the journal.

use core::fmt::Write as _;

use netlink::{Configurable, Mode, Object, RouteFilter, create};
use settings::{Key, RouteName};

use netlink::{Family, FilterTable, Nexthop, Prefix, Route, Rule};
use route_plan::RouteKey;

/// There is no such object.
pub(crate) const ABSENT: &str = "-";
/// The rule is there.
pub(crate) const PRESENT: &str = "+";

/// The body that creates an object, as hexadecimal digits; `None` for one that fits no message.
pub(crate) fn of<O: Configurable>(object: &O) -> Option<String> {
    text(&create(object, Mode::Create).ok()?.body)
}

fn text(body: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(2 * body.len());
    for byte in body {
        write!(text, "{byte:02x}").ok()?;
    }
    Some(text)
}

/// The object with this body.
pub(crate) fn parse<O: Object>(text: &str) -> Option<O> {
    O::parse(&bytes(text)?).ok()
}

/// The bytes of a body.
pub(crate) fn bytes(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect()
}

/// The key of a nexthop.
pub(crate) fn nexthop_key(nexthop: &Nexthop) -> Key {
    Key::Nexthop(nexthop.id)
}

/// The key of a route.
pub(crate) fn route_key(route: &Route) -> Key {
    let key = RouteKey::of(route);
    let part = |prefix: Prefix| (prefix.address(), prefix.bits());
    Key::Route(RouteName {
        table: key.table,
        metric: key.metric,
        tos: key.tos,
        destination: part(key.destination),
        source: key.source.map(part),
    })
}

/// The key of a rule.
pub(crate) fn rule_key(rule: &Rule) -> Option<Key> {
    of(rule).map(Key::Rule)
}

/// The messages that make a packet filter table, as hexadecimal digits.
pub(crate) fn of_table(table: &FilterTable) -> Option<String> {
    text(&table.encode().ok()?)
}

/// The packet filter table of these messages.
pub(crate) fn table(text: &str) -> Option<FilterTable> {
    FilterTable::decode(&bytes(text)?).ok()
}

/// The key of a packet filter table; `None` for those of others.
pub(crate) fn table_key(table: &FilterTable) -> Option<Key> {
    let family = match table.family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    format!("nft:{family}/{}", table.name).parse().ok()
}

/// All routes of the family of a route's key.
pub(crate) fn filter_of(name: &RouteName) -> RouteFilter {
    RouteFilter::all(Family::of(name.destination.0))
}
