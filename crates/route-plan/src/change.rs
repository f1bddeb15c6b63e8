//! From what a host has and what it is to have: the changes between, in an order in which every packet finds a
//! way throughout, and what of others stands in the way.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use netlink::{FilterTable, Nexthop, NexthopKind, Prefix, Route, Rule, Target, table};
use settings::Key;

use crate::interfaces::Interfaces;
use crate::marks::{self, HardwareAddress};
use crate::plan::Plan;
use crate::wanted::{HostState, NEXTHOP_IDS_COUNT};

/// What a host has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The host's interfaces.
    pub interfaces: Interfaces,
    /// The settings that the plan names; those that the kernel has not are missing.
    pub sysctls: BTreeMap<Key, String>,
    /// All nexthops and groups.
    pub nexthops: Vec<Nexthop>,
    /// All routes of the plan's family, those of the table `local` left out.
    pub routes: Vec<Route>,
    /// All rules of the plan's family.
    pub rules: Vec<Rule>,
    /// Packet filter tables of the plan's family with names of this program's.
    pub filter_tables: Vec<FilterTable>,
    /// Hardware addresses of neighbours.
    pub neighbours: BTreeMap<IpAddr, HardwareAddress>,
}

/// A nexthop, group, route, rule or packet filter table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A nexthop or group.
    Nexthop(Nexthop),
    /// A route.
    Route(Route),
    /// A rule.
    Rule(Rule),
    /// A packet filter table with everything in it.
    FilterTable(FilterTable),
}

/// One change of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A kernel setting.
    Set {
        /// Key of the setting.
        key: Key,
        /// Its value; `None` where the kernel has no such setting.
        from: Option<String>,
        /// The value wanted.
        to: String,
    },
    /// An object is created.
    Add(Object),
    /// Something takes the place of another in one step.
    Replace {
        /// The present object.
        from: Object,
        /// The wanted object.
        to: Object,
    },
    /// Something of the plan's protocol that it no longer wants is deleted.
    Remove(Object),
}

/// Something of others where the plan would put its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The present object.
    pub found: Object,
    /// What of the plan it is in the way of, in one line.
    pub reason: String,
    /// The plan's own would take its place, and it could be put back as it was.
    pub is_replaceable: bool,
}

/// What there is to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Difference {
    /// In the order they are to be made.
    pub changes: Vec<Change>,
    /// What is in the way.
    pub conflicts: Vec<Conflict>,
    /// Gateways (indices) whose packets cannot be marked, because their hardware addresses are not known. The table of
    /// marks is left as it is then.
    pub unknown: Vec<usize>,
}

/// What the kernel takes for one and the same route: creating the second replaces the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// Number of the table.
    pub table: u32,
    /// Destination prefix.
    pub destination: Prefix,
    /// From these addresses only (IPv6).
    pub source: Option<Prefix>,
    /// Of this type of service only (IPv4).
    pub tos: u8,
    /// Metric; 0 if the route has none.
    pub metric: u32,
}

impl RouteKey {
    /// The key of a route.
    #[must_use]
    pub fn of(route: &Route) -> Self {
        Self {
            table: route.table,
            destination: route.destination,
            source: route.source,
            tos: route.tos,
            metric: route.priority.unwrap_or(0),
        }
    }
}

/// Compares a host with what the plan wants of it.
#[must_use]
pub fn difference(plan: &Plan, wanted: &HostState, found: &Found) -> Difference {
    let mut builder = Builder {
        plan,
        wanted,
        found,
        difference: Difference::default(),
        rebuilt: BTreeSet::new(),
    };
    builder.sysctls();
    let (with_nexthops, plain): (Vec<&Route>, Vec<&Route>) =
        wanted.routes.iter().partition(|route| matches!(route.target, Target::Nexthop(_)));
    builder.routes(&plain);
    builder.rebuild();
    builder.nexthops();
    builder.routes(&with_nexthops);
    builder.rules();
    builder.marks();
    builder.leftovers();
    builder.difference
}

struct Builder<'a> {
    plan: &'a Plan,
    wanted: &'a HostState,
    found: &'a Found,
    difference: Difference,
    /// Nexthops that cannot be changed in place: they are deleted, and their routes with them.
    rebuilt: BTreeSet<u32>,
}

impl Builder<'_> {
    fn sysctls(&mut self) {
        for (key, to) in &self.wanted.sysctls {
            let from = self.found.sysctls.get(key);
            if from != Some(to) {
                let change = Change::Set { key: key.clone(), from: from.cloned(), to: to.clone() };
                self.difference.changes.push(change);
            }
        }
    }

    fn is_ours(&self, protocol: u8) -> bool {
        protocol == self.plan.routing.protocol
    }

    fn conflict(&mut self, found: Object, reason: impl Into<String>) {
        let reason = reason.into();
        self.difference.conflicts.push(Conflict { found, reason, is_replaceable: false });
    }

    fn routes(&mut self, routes: &[&Route]) {
        let known: BTreeMap<RouteKey, &Route> =
            self.found.routes.iter().map(|route| (RouteKey::of(route), route)).collect();
        for &route in routes {
            let Some(&there) = known.get(&RouteKey::of(route)) else {
                self.add(Object::Route(route.clone()));
                continue;
            };
            if !self.is_ours(there.protocol) {
                let (to, table) = (route.destination, route.table);
                let reason =
                    format!("the plan's own route to {to} in table {table} would replace it");
                let found = Object::Route(there.clone());
                self.difference.conflicts.push(Conflict { found, reason, is_replaceable: true });
            }
            let is_lost = matches!(there.target, Target::Nexthop(id) if self.rebuilt.contains(&id));
            if is_lost {
                self.add(Object::Route(route.clone()));
            } else if there != route {
                self.replace(Object::Route(there.clone()), Object::Route(route.clone()));
            }
        }
    }

    /// Deletes nexthops that the kernel would not change into those that are wanted. Meanwhile packets go by
    /// the plain routes beneath.
    fn rebuild(&mut self) {
        let wanted: BTreeMap<u32, &Nexthop> =
            self.wanted.nexthops.iter().map(|nexthop| (nexthop.id, nexthop)).collect();
        let found = self.found;
        for there in &found.nexthops {
            let Some(nexthop) = wanted.get(&there.id) else { continue };
            if self.is_ours(there.protocol) && !is_changeable(&there.kind, &nexthop.kind) {
                self.rebuilt.insert(there.id);
            }
        }
        // A group whose members all go is deleted by the kernel as well.
        for group in &found.nexthops {
            if let NexthopKind::Group { members, .. } = &group.kind
                && members.iter().all(|member| self.rebuilt.contains(&member.id))
                && self.is_ours(group.protocol)
            {
                self.rebuilt.insert(group.id);
            }
        }
        self.remove_nexthops(&self.rebuilt.clone());
    }

    /// Deletes nexthops of ours, groups first, and before them the routes that use them.
    fn remove_nexthops(&mut self, ids: &BTreeSet<u32>) {
        let found = self.found;
        for route in &found.routes {
            let Target::Nexthop(id) = route.target else { continue };
            if !ids.contains(&id) {
                continue;
            }
            if self.is_ours(route.protocol) {
                self.remove(Object::Route(route.clone()));
            } else {
                let reason =
                    format!("it uses the plan's nexthop {id} and would be removed with it");
                self.conflict(Object::Route(route.clone()), reason);
            }
        }
        let is_group = |one: &&Nexthop| matches!(one.kind, NexthopKind::Group { .. });
        let of_ids = found.nexthops.iter().filter(|one| ids.contains(&one.id));
        let (groups, hops): (Vec<&Nexthop>, Vec<&Nexthop>) = of_ids.partition(is_group);
        for nexthop in groups.into_iter().chain(hops) {
            let foreign = found.nexthops.iter().find(|group| {
                !self.is_ours(group.protocol)
                    && matches!(&group.kind, NexthopKind::Group { members, .. }
                        if members.iter().any(|member| member.id == nexthop.id))
            });
            if let Some(group) = foreign {
                let reason =
                    format!("its member {} is the plan's and would be removed", nexthop.id);
                self.conflict(Object::Nexthop(group.clone()), reason);
            }
            self.remove(Object::Nexthop(nexthop.clone()));
        }
    }

    fn nexthops(&mut self) {
        let found = self.found;
        let known: BTreeMap<u32, &Nexthop> =
            found.nexthops.iter().map(|nexthop| (nexthop.id, nexthop)).collect();
        for nexthop in &self.wanted.nexthops {
            let there = known.get(&nexthop.id).filter(|_| !self.rebuilt.contains(&nexthop.id));
            let Some(&there) = there else {
                self.add(Object::Nexthop(nexthop.clone()));
                continue;
            };
            if !self.is_ours(there.protocol) {
                let reason = self.taken_number(there.id);
                self.conflict(Object::Nexthop(there.clone()), reason);
            } else if there != nexthop {
                self.replace(Object::Nexthop(there.clone()), Object::Nexthop(nexthop.clone()));
            }
        }
        let first = self.plan.routing.nexthop_ids;
        let is_wanted = |id: u32| self.wanted.nexthops.iter().any(|nexthop| nexthop.id == id);
        let strangers: Vec<Nexthop> = found
            .nexthops
            .iter()
            .filter(|there| (first..first + NEXTHOP_IDS_COUNT).contains(&there.id))
            .filter(|there| !self.is_ours(there.protocol) && !is_wanted(there.id))
            .cloned()
            .collect();
        for stranger in strangers {
            let reason = self.taken_number(stranger.id);
            self.conflict(Object::Nexthop(stranger), reason);
        }
    }

    fn rules(&mut self) {
        let found = self.found;
        for rule in &self.wanted.rules {
            if !found.rules.contains(rule) {
                self.add(Object::Rule(rule.clone()));
            }
        }
        let tables = self.tables();
        let priorities: BTreeSet<Option<u32>> =
            self.wanted.rules.iter().map(|rule| rule.priority).collect();
        let own = self.plan.routing.protocol;
        for there in found.rules.iter().filter(|there| there.protocol != own) {
            if priorities.contains(&there.priority) {
                let other = other("rule_priority", self.plan.routing.lines.rule_priority);
                let reason = format!("the plan has a rule of that priority: {other}");
                self.conflict(Object::Rule(there.clone()), reason);
            }
        }
        for there in found.routes.iter().filter(|there| there.protocol != own) {
            let is_told =
                self.difference.conflicts.iter().any(
                    |conflict| matches!(&conflict.found, Object::Route(route) if route == there),
                );
            if tables.contains(&there.table) && !is_told {
                let other = other("tables", self.plan.routing.lines.tables);
                let reason = format!("table {} is the plan's: {other}", there.table);
                self.conflict(Object::Route(there.clone()), reason);
            }
        }
    }

    /// Marks lead into the tables, so they come when these are complete and go before.
    fn marks(&mut self) {
        let there = marks::there(self.plan, self.found);
        if let Some(there) = there.filter(|there| !marks::is_mark_table(there)) {
            let reason = "it has rules of others, which would be removed with it".to_owned();
            let found = Object::FilterTable(there.clone());
            self.difference.conflicts.push(Conflict { found, reason, is_replaceable: true });
        }
        if self.wanted.steering.is_empty() {
            if let Some(there) = there {
                self.remove(Object::FilterTable(there.clone()));
            }
            return;
        }
        match (marks::mark_table(self.plan, &self.wanted.steering, self.found), there) {
            (Err(unknown), _) => self.difference.unknown = unknown,
            (Ok(table), None) => self.add(Object::FilterTable(table)),
            (Ok(table), Some(there)) if table != *there => {
                self.replace(Object::FilterTable(there.clone()), Object::FilterTable(table));
            }
            (Ok(_same), Some(_)) => {}
        }
    }

    fn taken_number(&self, id: u32) -> String {
        let other = other("nexthop_ids", self.plan.routing.lines.nexthop_ids);
        format!("the plan's nexthop_ids include {id}: {other}")
    }

    /// The tables that the plan uses on this host, besides the kernel's own.
    fn tables(&self) -> BTreeSet<u32> {
        let tables = self.wanted.routes.iter().map(|route| route.table);
        tables.filter(|&one| one != table::MAIN).collect()
    }

    /// What has the plan's protocol and is not wanted any more.
    fn leftovers(&mut self) {
        let found = self.found;
        for rule in &found.rules {
            if self.is_ours(rule.protocol) && !self.wanted.rules.contains(rule) {
                self.remove(Object::Rule(rule.clone()));
            }
        }
        let stale: BTreeSet<u32> = {
            let wanted: BTreeSet<u32> = self.wanted.nexthops.iter().map(|one| one.id).collect();
            let ours = found.nexthops.iter().filter(|there| self.is_ours(there.protocol));
            let ids = ours.map(|there| there.id);
            ids.filter(|id| !wanted.contains(id) && !self.rebuilt.contains(id)).collect()
        };
        let wanted: BTreeSet<RouteKey> = self.wanted.routes.iter().map(RouteKey::of).collect();
        for route in &found.routes {
            let goes_with = matches!(route.target, Target::Nexthop(id)
                if self.rebuilt.contains(&id) || stale.contains(&id));
            let is_unwanted = !wanted.contains(&RouteKey::of(route));
            if self.is_ours(route.protocol) && is_unwanted && !goes_with {
                self.remove(Object::Route(route.clone()));
            }
        }
        // Routes that are wanted have left these nexthops by now.
        let before = self.difference.changes.len();
        self.remove_nexthops(&stale);
        let mut at = 0;
        self.difference.changes.retain(|change| {
            at += 1;
            let is_replaced = matches!(change, Change::Remove(Object::Route(route))
                if wanted.contains(&RouteKey::of(route)));
            at <= before || !is_replaced
        });
    }

    fn add(&mut self, object: Object) {
        self.difference.changes.push(Change::Add(object));
    }

    fn replace(&mut self, from: Object, to: Object) {
        self.difference.changes.push(Change::Replace { from, to });
    }

    fn remove(&mut self, object: Object) {
        self.difference.changes.push(Change::Remove(object));
    }
}

/// Why a nexthop of others is in the way.
/// Where the plan's file gets another number, in words.
fn other(key: &str, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("change `{key}` in line {line} of the plan"),
        None => format!("set `{key}` in [routing] of the plan"),
    }
}

/// Whether the kernel replaces the one by the other: not a hop by a group, nor the type of a group, nor the
/// number of its buckets.
fn is_changeable(from: &NexthopKind, to: &NexthopKind) -> bool {
    match (from, to) {
        (
            NexthopKind::Group { resilience: from, .. },
            NexthopKind::Group { resilience: to, .. },
        ) => from.map(|one| one.buckets_count) == to.map(|one| one.buckets_count),
        (NexthopKind::Group { .. }, _) | (_, NexthopKind::Group { .. }) => false,
        _single => true,
    }
}

#[cfg(test)]
mod tests;
