//! Marks of packets by the gateway that they came from, as a packet filter table: with them, answers to clients that
//! the plan does not know go by the gateway by which the request came.

use core::fmt;
use core::str::FromStr;

use netlink::{
    Comparison, Expression, FilterChain, FilterHook, FilterRule, FilterTable, MetaKey, PayloadBase,
};

use crate::change::Found;
use crate::plan::Plan;
use crate::wanted::Steering;

/// The table's only chain.
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
}

impl Marking {
    fn rule(&self) -> FilterRule {
        let mut interface = self.interface.clone().into_bytes();
        interface.resize(INTERFACE_BYTES, 0);
        let equal = |value: Vec<u8>| Expression::Compare(Comparison::Equal, value);
        let expressions = vec![
            Expression::LoadMeta(MetaKey::InputName),
            equal(interface),
            Expression::LoadMeta(MetaKey::InputType),
            equal(ETHERNET.to_ne_bytes().to_vec()),
            SOURCE,
            equal(self.hardware_address.0.to_vec()),
            Expression::Load(self.mark.to_ne_bytes().to_vec()),
            Expression::SetMeta(MetaKey::Mark),
        ];
        FilterRule::with_comment(expressions, &self.gateway)
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
        };
        (marking.rule() == *rule).then_some(marking)
    }
}

/// The name of the table of a plan.
#[must_use]
pub fn mark_table_name(plan: &Plan) -> settings::FilterTableName {
    let is_v6 = plan.family == netlink::Family::V6;
    settings::FilterTableName { is_v6, protocol: plan.routing.protocol }
}

/// Whether a table has nothing in it but marks as this program makes them.
#[must_use]
pub fn is_mark_table(table: &FilterTable) -> bool {
    let is_ours = |chain: &FilterChain| {
        let mut rules = chain.rules.iter();
        FilterChain { rules: Vec::new(), ..chain.clone() } == chain_of(Vec::new())
            && rules.all(|rule| Marking::of(rule).is_some())
    };
    table.other.is_empty() && table.chains.iter().all(is_ours)
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
                let marking = Marking { interface, hardware_address, mark: one.mark, gateway };
                rules.push(marking.rule());
            }
            None => unknown.push(one.gateway),
        }
    }
    let chains = vec![chain_of(rules)];
    if unknown.is_empty() {
        Ok(FilterTable { family: plan.family, name, chains, other: Vec::new() })
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

/// What of the plan's table is missing, changed or not the plan's in the one that is there, one line each.
#[must_use]
pub fn mark_differences(found: &FilterTable, wanted: &FilterTable) -> Vec<MarkDifference> {
    use MarkDifference as D;
    let table = &wanted.name;
    let bare = chain_of(Vec::new());
    let mut differences = Vec::new();
    match found.chains.iter().find(|chain| chain.name == CHAIN) {
        None => {
            return vec![D::Missing(format!("chain {CHAIN} of the packet filter table {table}"))];
        }
        Some(chain) if (&chain.hook, &chain.other) != (&bare.hook, &bare.other) => {
            let what = format!("chain {CHAIN} of the packet filter table {table} is another");
            differences.push(D::Changed(what));
        }
        Some(_same) => {}
    }
    let is_own = |rule: &&FilterRule| Marking::of(rule).is_none();
    let strangers = found.chains.iter().flat_map(|chain| &chain.rules).filter(is_own).count();
    let chains = found.chains.iter().filter(|chain| chain.name != CHAIN).count();
    for (count, what) in
        [(strangers, "rules"), (chains, "chains"), (found.other.len(), "attributes")]
    {
        if count > 0 {
            let what = format!("{count} {what} of others in the packet filter table {table}");
            differences.push(D::Surplus(what));
        }
    }
    let (present, planned) = (markings(found), markings(wanted));
    for one in &planned {
        let (gateway, address) = (&one.gateway, one.hardware_address);
        match present.iter().find(|known| known.mark == one.mark) {
            None => {
                let what = format!("mark {} of packets from {gateway} ({address})", one.mark);
                differences.push(D::Missing(what));
            }
            Some(known) if known != one => {
                let (other, interface) = (known.hardware_address, &known.interface);
                let what = format!(
                    "mark {} is of packets from {} ({other}, {interface}), not from {gateway} ({address}, {})",
                    one.mark, known.gateway, one.interface
                );
                differences.push(D::Changed(what));
            }
            Some(_same) => {}
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
    let family = if table.family == netlink::Family::V6 { "ip6" } else { "ip" };
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
    for one in markings(table) {
        commands.push(format!(
            "add rule {place} {CHAIN} iifname \"{}\" ether saddr {} meta mark set {} comment \"{}\"",
            one.interface, one.hardware_address, one.mark, one.gateway
        ));
    }
    format!("nft '{}'", commands.join("; "))
}

/// A table in a few words.
pub(crate) fn describe_table(table: &FilterTable) -> String {
    let family = if table.family == netlink::Family::V6 { "ip6" } else { "ip" };
    format!("packet filter table {family} {} ({} marks)", table.name, markings(table).len())
}

#[cfg(test)]
mod tests;
