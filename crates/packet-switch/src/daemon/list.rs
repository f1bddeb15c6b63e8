//! Lists of ports and groups, so many entries at a time.

use std::ops::Bound;

use super::entries::{Group, Port};
use super::registry::Registry;
use crate::attachment::Answer;

/// Entries of one list: a message's worth.
const LIST_ENTRIES: usize = 48;

/// What a name in a list stands for.
enum Listed<'a> {
    Port(&'a Port),
    Group(&'a Group),
}

impl Registry {
    /// The next entries in the order of their names. What comes after these is not looked at: anybody may ask, as
    /// often as he likes.
    pub(super) fn list(&self, after: Option<&str>) -> Answer {
        let mut found: Vec<(String, Listed<'_>)> = Vec::new();
        for (switch, entry) in &self.switches {
            let prefix = format!("{switch}:");
            let from = match after.map(|after| (after, after.strip_prefix(&prefix))) {
                None => Bound::Unbounded,
                Some((_, Some(port))) => Bound::Excluded(port),
                Some((after, None)) if prefix.as_str() > after => Bound::Unbounded,
                Some(_) => continue,
            };
            let ports = entry.ports.range::<str, _>((from, Bound::Unbounded));
            let ports = ports.take(LIST_ENTRIES + 1);
            found.extend(ports.map(|(name, port)| (format!("{prefix}{name}"), Listed::Port(port))));
        }
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let groups = self.groups.range::<str, _>((from, Bound::Unbounded)).take(LIST_ENTRIES + 1);
        found.extend(groups.map(|(name, group)| (name.to_string(), Listed::Group(group))));
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        let more = found.len() > LIST_ENTRIES;
        let entries = found.into_iter().take(LIST_ENTRIES).map(|(name, what)| match what {
            Listed::Port(port) => port.entry(name),
            Listed::Group(group) => group.entry(name),
        });
        Answer::Listed { entries: entries.collect(), more, health: self.health }
    }
}
