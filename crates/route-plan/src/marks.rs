//! Marks of packets by the gateway that they came from, as a packet filter table: with them, answers to clients that
//! the plan does not know go by the gateway by which the request came. Sockets keep the mark of a TCP connection; of UDP
//! a map remembers it.

use core::fmt;
use core::str::FromStr;

use netlink::{
    Comparison, Expression, Family, FilterChain, FilterHook, FilterMap, FilterRule, FilterTable,
    MetaKey, PayloadBase,
};

use crate::change::Found;
use crate::plan::Plan;
use crate::wanted::Steering;

mod udp;

/// The chain of packets that come.
const CHAIN: &str = "follow";
/// That of rules that change packets: before addresses are translated, after connections are known.
const PRIORITY: i32 = -150;
/// `IFNAMSIZ`.
const INTERFACE_BYTES: usize = 16;
/// `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;
/// The source address in an Ethernet header.
const SOURCE: Expression =
    Expression::LoadPayload { base: PayloadBase::Link, offset_bytes: 6, length_bytes: 6 };

/// An Ethernet address: `02:00:00:00:00:01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HardwareAddress(pub [u8; 6]);

impl FromStr for HardwareAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let byte = |part: &str| {
            let is_digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_digits.then(|| u8::from_str_radix(part, 16).ok()).flatten().ok_or(())
        };
        let bytes: Vec<u8> = text.split(':').map(byte).collect::<Result<_, ()>>()?;
        bytes.try_into().map(Self).map_err(|_other_length| ())
    }
}

impl HardwareAddress {
    /// Whether packets can come from it: it is neither a group's nor zero.
    pub(crate) fn is_of_one_station(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for HardwareAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(out, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(out, ":{byte:02x}"))
    }
}

/// What a rule of the table does.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Marking {
    interface: String,
    hardware_address: HardwareAddress,
    mark: u32,
    /// The gateway's name.
    gateway: String,
    /// The family of the UDP packets whose answers are to have the mark too.
    udp: Option<Family>,
}

impl Marking {
    /// Compares where a packet comes from.
    fn origin(&self) -> Vec<Expression> {
        let mut interface = self.interface.clone().into_bytes();
        interface.resize(INTERFACE_BYTES, 0);
        let equal = |value: Vec<u8>| Expression::Compare(Comparison::Equal, value);
        vec![
            Expression::LoadMeta(MetaKey::InputName),
            equal(interface),
            Expression::LoadMeta(MetaKey::InputType),
            equal(ETHERNET.to_ne_bytes().to_vec()),
            SOURCE,
            equal(self.hardware_address.0.to_vec()),
        ]
    }

    fn rule(&self) -> FilterRule {
        let mut expressions = self.origin();
        expressions.push(Expression::Load(self.mark.to_ne_bytes().to_vec()));
        expressions.push(Expression::SetMeta(MetaKey::Mark));
        expressions.extend(self.udp.into_iter().flat_map(udp::remember));
        FilterRule::with_comment(expressions, &self.gateway)
    }

    /// The rule before it, where UDP is remembered.
    fn forgetting(&self) -> Option<FilterRule> {
        let mut expressions = self.origin();
        expressions.extend(udp::forget(self.udp?, self.mark));
        Some(FilterRule::with_comment(expressions, &self.gateway))
    }

    /// What a rule does, if it is one of this program's.
    fn of(rule: &FilterRule) -> Option<Self> {
        let [
            _,
            Expression::Compare(_, interface),
            _,
            _,
            _,
            Expression::Compare(_, source),
            Expression::Load(mark),
            _,
            more @ ..,
        ] = &rule.expressions[..]
        else {
            return None;
        };
        let end = interface.iter().position(|&byte| byte == 0)?;
        let marking = Self {
            interface: String::from_utf8(interface[..end].to_vec()).ok()?,
            hardware_address: HardwareAddress(source[..].try_into().ok()?),
            mark: u32::from_ne_bytes(mark[..].try_into().ok()?),
            gateway: rule.comment()?,
            udp: [Family::V4, Family::V6].into_iter().find(|&family| udp::remember(family) == more),
        };
        (marking.rule() == *rule).then_some(marking)
    }
}

/// Which of a chain's rules this program has not made.
fn strange_rules(chain: &FilterChain) -> impl Iterator<Item = &FilterRule> {
    let own = chain.rules.iter().filter_map(Marking::of);
    let both = own.flat_map(|one| {
        [Family::V4, Family::V6].map(|family| Marking { udp: Some(family), ..one.clone() })
    });
    let forgetting: Vec<FilterRule> = both.filter_map(|one| one.forgetting()).collect();
    let rules = chain.rules.iter();
    rules.filter(move |rule| Marking::of(rule).is_none() && !forgetting.contains(rule))
}

/// The name of the table of a plan.
#[must_use]
pub fn mark_table_name(plan: &Plan) -> settings::FilterTableName {
    let is_v6 = plan.family == Family::V6;
    settings::FilterTableName { is_v6, protocol: plan.routing.protocol }
}

/// Whether a table has nothing in it but marks as this program makes them.
#[must_use]
pub fn is_mark_table(table: &FilterTable) -> bool {
    let bare = |chain: &FilterChain| FilterChain { rules: Vec::new(), ..chain.clone() };
    let answer = udp::chain(table.family);
    let is_ours = |chain: &FilterChain| {
        let is_marks = bare(chain) == chain_of(Vec::new()) && strange_rules(chain).next().is_none();
        let is_answer = bare(chain) == bare(&answer)
            && chain.rules.iter().all(|rule| answer.rules.contains(rule));
        is_marks || is_answer
    };
    // Another version of this program may remember for longer, or more.
    let is_own_map = |map: &FilterMap| {
        let own = udp::map(table.family);
        let FilterMap { timeout_ms, entries_count_max, .. } = *map;
        *map == FilterMap { timeout_ms, entries_count_max, ..own }
    };
    table.other.is_empty() && table.chains.iter().all(is_ours) && table.maps.iter().all(is_own_map)
}

fn chain_of(rules: Vec<FilterRule>) -> FilterChain {
    let hook = FilterHook {
        kind: "filter".to_owned(),
        number: FilterHook::BEFORE_ROUTING,
        priority: PRIORITY,
        policy: FilterHook::ACCEPT,
    };
    FilterChain { name: CHAIN.to_owned(), hook: Some(hook), rules, other: Vec::new() }
}

/// The table that a host is to have, given which hardware addresses are known: that in the plan, else that of the
/// neighbour, else that in the table that is there. `Err` has the gateways for which none is known.
pub(crate) fn mark_table(
    plan: &Plan,
    steering: &[Steering],
    found: &Found,
) -> Result<FilterTable, Vec<usize>> {
    let name = mark_table_name(plan).table();
    let present = there(plan, found).map(markings).unwrap_or_default();
    let mut unknown = Vec::new();
    let mut rules = Vec::new();
    for one in steering {
        let kept = || present.iter().find(|known| known.mark == one.mark);
        let known = one.hardware_address.or_else(|| found.neighbours.get(&one.address).copied());
        let gateway = &plan.gateways[one.gateway].name;
        match known.or_else(|| {
            kept().filter(|known| known.gateway == *gateway).map(|known| known.hardware_address)
        }) {
            Some(hardware_address) => {
                let (interface, gateway) = (one.interface.clone(), gateway.clone());
                let udp = plan.routing.follow_udp.then_some(plan.family);
                let marking = Marking { interface, hardware_address, mark: one.mark, gateway, udp };
                rules.extend(marking.forgetting());
                rules.push(marking.rule());
            }
            None => unknown.push(one.gateway),
        }
    }
    let family = plan.family;
    let (mut chains, mut maps) = (vec![chain_of(rules)], Vec::new());
    if plan.routing.follow_udp {
        chains.push(udp::chain(family));
        maps.push(udp::map(family));
    }
    if unknown.is_empty() {
        Ok(FilterTable { family, name, chains, maps, other: Vec::new() })
    } else {
        Err(unknown)
    }
}

/// The plan's table that a host has.
pub(crate) fn there<'a>(plan: &Plan, found: &'a Found) -> Option<&'a FilterTable> {
    let name = mark_table_name(plan).table();
    found.filter_tables.iter().find(|table| table.family == plan.family && table.name == name)
}

fn markings(table: &FilterTable) -> Vec<Marking> {
    table.chains.iter().flat_map(|chain| &chain.rules).filter_map(Marking::of).collect()
}

/// A difference between two tables of marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkDifference {
    /// Something of the plan's is not there.
    Missing(String),
    /// Something is another than the plan's.
    Changed(String),
    /// Something is there that the plan does not have.
    Surplus(String),
}

/// Chains and maps that are missing, changed or left over; while there are such, rules are not looked at.
fn differences_of_structure(found: &FilterTable, wanted: &FilterTable) -> Vec<MarkDifference> {
    use MarkDifference as D;
    let table = &wanted.name;
    let mut differences = Vec::new();
    for chain in &wanted.chains {
        let name = &chain.name;
        match found.chains.iter().find(|one| one.name == *name) {
            None => {
                let what = format!("chain {name} of the packet filter table {table}");
                differences.push(D::Missing(what));
            }
            Some(one) if (&one.hook, &one.other) != (&chain.hook, &chain.other) => {
                let what = format!(
                    "chain {name} of the packet filter table {table} differs from the plan's"
                );
                differences.push(D::Changed(what));
            }
            Some(_same) => {}
        }
    }
    for map in wanted.maps.iter().filter(|map| !found.maps.contains(map)) {
        let what = format!("map {} of the packet filter table {table}", map.name);
        let is_other = found.maps.iter().any(|one| one.name == map.name);
        differences.push(if is_other {
            D::Changed(what + " differs from the plan's")
        } else {
            D::Missing(what)
        });
    }
    let answer = udp::chain(found.family);
    if !wanted.chains.contains(&answer) && found.chains.contains(&answer) {
        let what = format!("marks of UDP answers in the packet filter table {table}");
        differences.push(D::Surplus(what));
    }
    differences
}

/// What others have put into the table.
fn strangers(found: &FilterTable, wanted: &FilterTable) -> Vec<MarkDifference> {
    let table = &wanted.name;
    let answer = udp::chain(found.family);
    let rules = found.chains.iter().flat_map(strange_rules);
    let rules = rules.filter(|rule| !answer.rules.contains(rule)).count();
    let has = |name: &str| wanted.chains.iter().any(|chain| chain.name == *name);
    let chains = found.chains.iter().filter(|chain| !has(&chain.name)).count();
    let maps = found.maps.iter().filter(|map| !wanted.maps.contains(map)).count();
    let counts =
        [(rules, "rules"), (chains, "chains"), (maps, "maps"), (found.other.len(), "attributes")];
    let present = counts.into_iter().filter(|(count, _)| *count > 0);
    let words = present.map(|(count, what)| {
        format!("{count} {what} of others in the packet filter table {table}")
    });
    words.map(MarkDifference::Surplus).collect()
}

/// What of the plan's table is missing, changed or not the plan's in the one that is there, one line each.
#[must_use]
pub fn mark_differences(found: &FilterTable, wanted: &FilterTable) -> Vec<MarkDifference> {
    use MarkDifference as D;
    let table = &wanted.name;
    let mut differences = differences_of_structure(found, wanted);
    if !differences.is_empty() {
        return differences;
    }
    differences.extend(strangers(found, wanted));
    let (present, planned) = (markings(found), markings(wanted));
    for one in &planned {
        let (gateway, address) = (&one.gateway, one.hardware_address);
        match present.iter().find(|known| known.mark == one.mark) {
            None => {
                let what = format!("mark {} of packets from {gateway} ({address})", one.mark);
                differences.push(D::Missing(what));
            }
            Some(known) if *known == (Marking { udp: known.udp, ..one.clone() }) => {
                if known.udp != one.udp {
                    let is = if known.udp.is_some() { "is" } else { "is not" };
                    let mark = one.mark;
                    let what =
                        format!("mark {mark} of packets from {gateway} {is} remembered for UDP");
                    differences.push(D::Changed(what));
                }
            }
            Some(known) => {
                let (other, interface) = (known.hardware_address, &known.interface);
                let what = format!(
                    "mark {} is set on packets from {} ({other}, {interface}), not on those from \
                     {gateway} ({address}, {})",
                    one.mark, known.gateway, one.interface
                );
                differences.push(D::Changed(what));
            }
        }
    }
    for known in present.iter().filter(|known| planned.iter().all(|one| one.mark != known.mark)) {
        let what = format!("mark {} of packets from {}", known.mark, known.gateway);
        differences.push(D::Surplus(what));
    }
    if differences.is_empty() && found != wanted {
        differences.push(D::Changed(format!("the rules of the packet filter table {table}")));
    }
    differences
}

/// A table in the words of `nft`, as one command.
pub(crate) fn nft_command(verb: &str, table: &FilterTable) -> String {
    let family = if table.family == Family::V6 { "ip6" } else { "ip" };
    let own = format!("table {family} {}", table.name);
    let delete = format!("delete {own}");
    let mut commands = match verb {
        "del" => return format!("nft {delete}"),
        "replace" => vec![delete],
        _add => Vec::new(),
    };
    commands.push(format!("add {own}"));
    let place = format!("{family} {}", table.name);
    commands.push(format!(
        "add chain {place} {CHAIN} {{ type filter hook prerouting priority {PRIORITY}; policy accept; }}"
    ));
    let udp = table.maps.iter().find(|map| **map == udp::map(table.family));
    if udp.is_some() {
        commands.insert(commands.len() - 1, udp::map_command(table.family, &place));
    }
    for one in markings(table) {
        let from = format!("iifname \"{}\" ether saddr {}", one.interface, one.hardware_address);
        if let Some(family) = one.udp {
            let forget = udp::forget_words(family, one.mark);
            let gateway = &one.gateway;
            commands.push(format!("add rule {place} {CHAIN} {from}{forget} comment \"{gateway}\""));
        }
        let remember = one.udp.map(udp::remember_words).unwrap_or_default();
        commands.push(format!(
            "add rule {place} {CHAIN} {from} meta mark set {}{remember} comment \"{}\"",
            one.mark, one.gateway
        ));
    }
    if udp.is_some() {
        commands.extend(udp::chain_commands(table.family, &place));
    }
    format!("nft '{}'", commands.join("; "))
}

/// A table in a few words.
pub(crate) fn describe_table(table: &FilterTable) -> String {
    let family = if table.family == Family::V6 { "ip6" } else { "ip" };
    let udp = if table.maps.is_empty() { "" } else { ", UDP too" };
    format!("packet filter table {family} {} ({} marks{udp})", table.name, markings(table).len())
}

#[cfg(test)]
mod tests;
