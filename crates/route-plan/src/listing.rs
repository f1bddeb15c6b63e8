//! Routing files that exist already, held against a plan: rules and routes in iproute2's syntax, as
//! `/etc/sysconfig/network-scripts/rule-*` and `route-*` have them and `ip route show` prints them.

use core::net::IpAddr;
use std::collections::BTreeMap;

use netlink::Prefix;

use crate::plan::{Plan, contains};

/// Longest statement that is looked at, words.
const WORDS_COUNT_MAX: usize = 4096;

/// Something in a listing that contradicts the plan or the listing itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where it stands, from 1; the first line of each statement.
    pub lines: Vec<usize>,
    /// What kind of contradiction it is.
    pub kind: FindingKind,
    /// What is wrong and why, in one line.
    pub reason: String,
}

/// Kinds of contradictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// An earlier rule takes the packets of a later one.
    RuleShadowed,
    /// A multipath route leaves a gateway out.
    GatewayMissing,
    /// A next hop is not on the link, or is no gateway.
    NoSuchNextHop,
    /// A network that lies behind the gateways is said to be on the link.
    NetworkOnLink,
    /// A destination is not a network of the plan.
    UnknownNetwork,
    /// No packet of a host has what the rule looks for.
    RuleMatchesNothing,
}

/// One rule or route: the words of a line and of those that continue it.
struct Statement<'a> {
    line: usize,
    words: Vec<&'a str>,
}

/// What is wrong with a listing of a host on the network with index `network`, kind by kind.
#[must_use]
pub fn review(plan: &Plan, network: usize, listing: &str) -> Vec<Finding> {
    let mut review = Review { plan, network, found: BTreeMap::new(), rules: BTreeMap::new() };
    for statement in statements(listing) {
        match &statement.words[..] {
            ["from", selector, ..] => review.rule(&statement, selector),
            ["local" | "broadcast" | "multicast" | "anycast", ..] => {}
            _route => review.route(&statement),
        }
    }
    let finding = |(kind, found): (FindingKind, Found)| {
        let several = if found.subjects.len() > 1 { "are" } else { "is" };
        let subjects = list(&found.subjects);
        let reason = found.reason.replace("{}", &subjects).replace("{is}", several);
        Finding { lines: found.lines, kind, reason }
    };
    review.found.into_iter().map(finding).collect()
}

/// Subjects that the same is wrong with.
#[derive(Default)]
struct Found {
    lines: Vec<usize>,
    subjects: Vec<String>,
    reason: String,
}

struct Review<'a> {
    plan: &'a Plan,
    network: usize,
    found: BTreeMap<FindingKind, Found>,
    /// Selectors of rules with their line and table.
    rules: BTreeMap<String, (usize, String)>,
}

impl Review<'_> {
    /// Reports a subject; `reason` has `{}` where the subjects stand.
    fn report(&mut self, kind: FindingKind, line: usize, subject: String, reason: &str) {
        let found = self.found.entry(kind).or_default();
        if !found.lines.contains(&line) {
            found.lines.push(line);
        }
        if !found.subjects.contains(&subject) {
            found.subjects.push(subject);
        }
        reason.clone_into(&mut found.reason);
    }

    fn rule(&mut self, statement: &Statement<'_>, selector: &str) {
        let table = after(&statement.words, "table").or(after(&statement.words, "lookup"));
        let table = table.unwrap_or("main").to_owned();
        let line = statement.line;
        match self.rules.get(selector) {
            Some((earlier, taken)) if *taken != table => {
                let subject = format!(
                    "'from {selector} table {table}' (line {earlier} looks into table {taken} for it)"
                );
                let reason = "{} {is} never reached";
                self.report(FindingKind::RuleShadowed, line, subject, reason);
            }
            Some(_same) => {}
            None => {
                self.rules.insert(selector.to_owned(), (line, table));
            }
        }
        let address = selector.split('/').next().and_then(|text| text.parse::<IpAddr>().ok());
        let owner = address.and_then(|address| {
            let mut gateways = self.plan.gateways.iter();
            gateways.find(|gateway| gateway.ports.iter().any(|port| port.address == address))
        });
        if owner.is_some() {
            let reason = "rules from {} match nothing: packets of hosts have the hosts' own addresses as \
                          their source, so the tables are not used and the return path is hashed again";
            self.report(FindingKind::RuleMatchesNothing, line, selector.to_owned(), reason);
        }
    }

    fn route(&mut self, statement: &Statement<'_>) {
        let words = &statement.words;
        let line = statement.line;
        let destination = words.first().copied().unwrap_or("");
        let prefix = parse_prefix(destination);
        let own = self.plan.networks[self.network].prefix;
        let hops: Vec<&str> =
            words.windows(2).filter(|pair| pair[0] == "via").map(|pair| pair[1]).collect();
        for hop in &hops {
            self.hop(line, hop, own);
        }
        let Some(prefix) = prefix else { return };
        if is_loopback(prefix) || prefix == own {
            return;
        }
        let Some(known) = self.plan.networks.iter().find(|network| network.prefix == prefix) else {
            let nearest = self.plan.networks.iter().enumerate().find(|(at, _)| *at != self.network);
            let meant = nearest.map_or_else(String::new, |(_, network)| {
                format!("; '{}' is {}", network.name, network.prefix)
            });
            let reason = format!("{{}} {{is}} not in the plan{meant}");
            self.report(FindingKind::UnknownNetwork, line, prefix.to_string(), &reason);
            return;
        };
        if hops.is_empty() && after(words, "dev").is_some() {
            let name = known.name.clone();
            let subject = format!("{prefix} ('{name}')");
            let reason = "{} {is} declared to be on the link, but it lies behind the gateways";
            self.report(FindingKind::NetworkOnLink, line, subject, reason);
        }
        if words.contains(&"nexthop") {
            let missing: Vec<String> = self
                .plan
                .gateways
                .iter()
                .filter(|gateway| {
                    let address = gateway.ports[self.network].address.to_string();
                    !hops.contains(&address.as_str())
                })
                .map(|gateway| {
                    format!("{} of '{}'", gateway.ports[self.network].address, gateway.name)
                })
                .collect();
            let count = self.plan.gateways.len();
            for subject in missing {
                let reason =
                    format!("{{}} {{is}} missing in a multipath route over {count} gateways");
                self.report(FindingKind::GatewayMissing, line, subject, &reason);
            }
        }
    }

    fn hop(&mut self, line: usize, hop: &str, own: Prefix) {
        let Ok(address) = hop.parse::<IpAddr>() else { return };
        let is_gateway =
            self.plan.gateways.iter().any(|one| one.ports[self.network].address == address);
        if is_gateway {
            return;
        }
        if !contains(own, address) {
            let reason = format!("next hop {{}} {{is}} not on the link, which is {own}");
            self.report(FindingKind::NoSuchNextHop, line, hop.to_owned(), &reason);
        } else {
            let reason = "next hop {} {is} none of the plan's gateways";
            self.report(FindingKind::NoSuchNextHop, line, hop.to_owned(), reason);
        }
    }
}

fn after<'a>(words: &[&'a str], word: &str) -> Option<&'a str> {
    words.windows(2).find(|pair| pair[0] == word).map(|pair| pair[1])
}

fn parse_prefix(text: &str) -> Option<Prefix> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, bits.parse().ok()),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    match bits {
        Some(bits) => Prefix::new(address, bits).ok(),
        None => Some(Prefix::host(address)),
    }
}

fn is_loopback(prefix: Prefix) -> bool {
    prefix.address().is_loopback()
}

/// A line that begins with a blank, or follows a backslash, belongs to the one before it.
fn statements(listing: &str) -> Vec<Statement<'_>> {
    let mut statements: Vec<Statement<'_>> = Vec::new();
    let mut goes_on = false;
    for (number, line) in listing.lines().enumerate() {
        let text = line.split('#').next().unwrap_or("");
        let words = text.trim_end_matches([' ', '\t', '\\']).split_whitespace();
        let is_continued = goes_on || text.starts_with([' ', '\t']);
        goes_on = text.trim_end().ends_with('\\');
        match statements.last_mut() {
            Some(statement) if is_continued => {
                let room = WORDS_COUNT_MAX.saturating_sub(statement.words.len());
                statement.words.extend(words.take(room));
            }
            _first => {
                let words: Vec<&str> = words.take(WORDS_COUNT_MAX).collect();
                if !words.is_empty() {
                    statements.push(Statement { line: number + 1, words });
                }
            }
        }
    }
    statements
}

fn list(subjects: &[String]) -> String {
    const SHOWN_COUNT_MAX: usize = 6;
    let mut shown: Vec<String> = subjects.iter().take(SHOWN_COUNT_MAX).cloned().collect();
    if subjects.len() > SHOWN_COUNT_MAX {
        shown.push(format!("{} more", subjects.len() - SHOWN_COUNT_MAX));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::cumulus;

    const STORAGE: &str = include_str!("../tests/data/cumulus-storage.listing");
    const COMPUTE: &str = include_str!("../tests/data/cumulus-compute.listing");

    #[test]
    fn the_paper_s_listings_have_five_contradictions_and_rules_that_match_nothing() {
        let plan = cumulus("pairs");
        let storage = review(&plan, 1, STORAGE);
        let kinds: Vec<FindingKind> = storage.iter().map(|finding| finding.kind).collect();
        assert_eq!(
            kinds,
            [
                FindingKind::RuleShadowed,
                FindingKind::GatewayMissing,
                FindingKind::NoSuchNextHop,
                FindingKind::NetworkOnLink,
                FindingKind::RuleMatchesNothing,
            ]
        );
        let reasons: Vec<&str> = storage.iter().map(|finding| finding.reason.as_str()).collect();
        assert_eq!(
            reasons[0],
            "'from 10.10.0.12 table 2' (line 4 looks into table 1 for it) is never reached"
        );
        assert!(reasons[1].starts_with("10.10.0.12 of 'sn2' is missing"), "{reasons:?}");
        assert!(
            reasons[2].starts_with("next hop 10.10.1.91, 10.10.1.92")
                && reasons[2].ends_with("10.10.1.96 are not on the link, which is 10.10.0.0/24"),
            "{reasons:?}"
        );
        assert!(reasons[3].starts_with("10.100.0.0/16 ('compute') is declared"), "{reasons:?}");
        assert_eq!(storage[0].lines, [5]);
        assert_eq!(storage[2].lines.len(), 6);
        let compute = review(&plan, 0, COMPUTE);
        assert_eq!(compute.len(), 1, "{compute:?}");
        assert_eq!(compute[0].kind, FindingKind::UnknownNetwork);
        let reason = "10.10.1.0/24 is not in the plan; 'storage' is 10.10.0.0/24";
        assert_eq!((compute[0].reason.as_str(), compute[0].lines.len()), (reason, 7));
    }

    #[test]
    fn a_listing_that_follows_the_plan_has_no_findings() {
        let plan = cumulus("pairs");
        let hops: String =
            (91..97).map(|last| format!(" nexthop via 10.100.0.{last} \\\n")).collect();
        let listing = format!("10.10.0.0/24 proto 77 \\\n{hops}\n10.100.0.0/16 dev ipogif0\n");
        assert_eq!(review(&plan, 0, &listing), []);
    }

    #[test]
    fn any_listing_is_reviewed() {
        let plan = cumulus("pairs");
        bolero::check!().with_type::<String>().for_each(|text| {
            assert!(review(&plan, 0, text).len() <= 6);
        });
    }
}
