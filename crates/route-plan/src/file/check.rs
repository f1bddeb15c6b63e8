//! From the tables of a plan file to a plan, collecting what is wrong.

mod numbers;
mod peers;

use core::net::IpAddr;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use netlink::{Family, Prefix};

use crate::file::raw::{RawGateway, RawHosts, RawPlan, Text};
use crate::file::{Mistake, line_of};
use crate::marks::HardwareAddress;
use crate::plan::{
    GATEWAYS_COUNT_MAX, Gateway, Host, Network, Plan, Port, WEIGHT_MAX, contains, overlap,
};
use crate::range::{ITEMS_COUNT_MAX, Numerals, expand};

/// Networks that a plan may join.
const NETWORKS_COUNT_MAX: usize = 16;
/// Longest name of anything.
const NAME_BYTES_MAX: usize = 63;
/// Longest name of an interface (`IFNAMSIZ` - 1).
const INTERFACE_BYTES_MAX: usize = 15;

/// Collects mistakes while a plan is made.
pub(super) struct Reader<'a> {
    text: &'a str,
    pub(super) mistakes: Vec<Mistake>,
    /// Who has a name or an address already.
    names: BTreeSet<String>,
    addresses: BTreeMap<IpAddr, String>,
    /// Hardware addresses with their networks.
    hardware: BTreeSet<(String, HardwareAddress)>,
    /// BFD peers with the networks of the hosts that speak with them.
    peers: BTreeSet<(String, IpAddr)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            mistakes: Vec::new(),
            names: BTreeSet::new(),
            addresses: BTreeMap::new(),
            hardware: BTreeSet::new(),
            peers: BTreeSet::new(),
        }
    }

    pub(super) fn wrong(&mut self, place: Range<usize>, reason: impl Into<String>) {
        let reason = settings::text::one_line(&reason.into(), 300);
        self.mistakes.push(Mistake { line: line_of(self.text, place.start), reason });
    }

    pub(super) fn plan(&mut self, raw: &RawPlan) -> Option<Plan> {
        self.check_name(&raw.name);
        let networks = self.networks(raw)?;
        let family = networks.first()?.prefix.family();
        let gateways = self.gateways(raw, &networks);
        let hosts = self.hosts(raw, &networks);
        let routing = self.routing(&raw.routing, &networks, gateways.len());
        let watch = self.watch(&raw.watch);
        self.check_bfd(raw, &gateways);
        let mut plan = Plan {
            name: raw.name.get_ref().clone(),
            family,
            networks,
            gateways,
            hosts,
            routing: routing?,
            watch: watch?,
            remarks: Vec::new(),
        };
        if self.mistakes.is_empty() {
            self.check_shares(raw, &plan);
            plan.remarks = crate::remark::remarks(&plan);
        }
        Some(plan)
    }

    fn check_name(&mut self, name: &Text) {
        if let Some(why) = name_objection(name.get_ref(), NAME_BYTES_MAX) {
            self.wrong(name.span(), format!("the name '{}' {why}", name.get_ref()));
        }
    }

    fn networks(&mut self, raw: &RawPlan) -> Option<Vec<Network>> {
        let mut tables: Vec<_> = raw.network.iter().collect();
        tables.sort_by_key(|(name, _)| name.span().start);
        let mut networks: Vec<Network> = Vec::new();
        for (name, table) in tables {
            self.check_name(name);
            let place = table.prefix.span();
            let prefix = match parse_prefix(table.prefix.get_ref()) {
                Ok(prefix) => prefix,
                Err(reason) => {
                    self.wrong(place, reason);
                    continue;
                }
            };
            for other in &networks {
                if overlap(prefix, other.prefix) {
                    let (known, theirs) = (&other.name, other.prefix);
                    let reason = format!("{prefix} overlaps {theirs} of the network '{known}'");
                    self.wrong(place.clone(), reason);
                } else if prefix.family() != other.prefix.family() {
                    let reason = "a plan has addresses of one family: write one plan for IPv4 and one \
                                  for IPv6, with other tables and nexthop_ids";
                    self.wrong(place.clone(), reason);
                }
            }
            networks.push(Network { name: name.get_ref().clone(), prefix });
        }
        match networks.len() {
            2..=NETWORKS_COUNT_MAX => Some(networks),
            count => {
                if self.mistakes.is_empty() {
                    let reason = format!(
                        "{count} networks; gateways join 2 to {NETWORKS_COUNT_MAX}: write \
                         [network.NAME] with a prefix for each"
                    );
                    self.wrong(raw.name.span(), reason);
                }
                None
            }
        }
    }

    fn gateways(&mut self, raw: &RawPlan, networks: &[Network]) -> Vec<Gateway> {
        let mut gateways = Vec::new();
        for table in &raw.gateway {
            gateways.extend(self.gateway(table, networks));
            if gateways.len() > GATEWAYS_COUNT_MAX {
                let reason = format!(
                    "more than {GATEWAYS_COUNT_MAX} gateways; a multipath route takes no more next hops"
                );
                self.wrong(table.name.span(), reason);
                break;
            }
        }
        if raw.gateway.is_empty() {
            self.wrong(raw.name.span(), "no gateways: write [[gateway]] for each, or for a range");
        }
        gateways
    }

    fn gateway(&mut self, table: &RawGateway, networks: &[Network]) -> Vec<Gateway> {
        let weight = table.weight.as_ref().map_or(1, |weight| *weight.get_ref());
        let weight = u16::try_from(weight).ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
        if let (None, Some(given)) = (weight, &table.weight) {
            let reason =
                format!("a weight of {}; the kernel takes 1 to {WEIGHT_MAX}", given.get_ref());
            self.wrong(given.span(), reason);
        }
        let names = self.expanded(&table.name, Numerals::Decimal);
        for name in &names {
            self.take_name(name, &table.name);
        }
        let tables = [
            Some(&table.addresses),
            Some(&table.interfaces),
            table.hardware_addresses.as_ref(),
            table.bfd_peers.as_ref(),
        ];
        for given in tables.into_iter().flatten() {
            for name in given.get_ref().keys() {
                if networks.iter().all(|network| network.name != *name.get_ref()) {
                    self.wrong(name.span(), unknown_network(name.get_ref(), networks));
                }
            }
        }
        let ports: Vec<Vec<Port>> =
            networks.iter().map(|network| self.ports(table, network, &names)).collect();
        let hardware: Vec<Vec<HardwareAddress>> = networks
            .iter()
            .map(|network| self.hardware_addresses(table, network, names.len()))
            .collect();
        let peers: Vec<Vec<IpAddr>> =
            networks.iter().map(|network| self.bfd_peers(table, network, names.len())).collect();
        let of_number = |number: usize| -> Option<Vec<Port>> {
            ports.iter().map(|ports| ports.get(number).cloned()).collect()
        };
        let gateway = |(number, name): (usize, &String)| {
            let known = hardware.iter().map(|known| known.get(number).copied()).collect();
            Some(Gateway {
                name: name.clone(),
                weight: weight?,
                ports: of_number(number)?,
                hardware_addresses: known,
                bfd_peers: peers.iter().map(|peers| peers.get(number).copied()).collect(),
            })
        };
        names.iter().enumerate().filter_map(gateway).collect()
    }

    /// The ports on one network of the gateways of one table.
    fn ports(&mut self, table: &RawGateway, network: &Network, names: &[String]) -> Vec<Port> {
        let find = |from: &BTreeMap<Text, Text>| {
            from.iter()
                .find(|(name, _)| *name.get_ref() == network.name)
                .map(|(_, one)| one.clone())
        };
        let (Some(addresses), Some(interface)) =
            (find(table.addresses.get_ref()), find(table.interfaces.get_ref()))
        else {
            let what =
                if find(table.addresses.get_ref()).is_none() { "address" } else { "interface" };
            let reason = format!(
                "gateway '{}' has no {what} on the network '{}'",
                table.name.get_ref(),
                network.name
            );
            self.wrong(table.name.span(), reason);
            return Vec::new();
        };
        self.attached(names, &addresses, &interface, network)
    }

    /// The hardware addresses on one network of the gateways of one table, where the plan gives them: as many as names,
    /// or none.
    fn hardware_addresses(
        &mut self,
        table: &RawGateway,
        network: &Network,
        names_count: usize,
    ) -> Vec<HardwareAddress> {
        let given = table.hardware_addresses.iter().flat_map(|given| given.get_ref());
        let mut of_network = given.filter(|(name, _)| *name.get_ref() == network.name);
        let Some((_, given)) = of_network.next() else { return Vec::new() };
        let texts = self.expanded(given, Numerals::Hexadecimal);
        if !texts.is_empty() && texts.len() != names_count {
            let count = texts.len();
            let reason = format!(
                "{count} hardware addresses for {names_count} names; each name needs one address"
            );
            self.wrong(given.span(), reason);
        }
        let mut addresses = Vec::new();
        for text in texts {
            match text.parse::<HardwareAddress>() {
                Ok(address) if !address.is_of_one_station() => {
                    let reason = format!(
                        "{text} is not the address of a single host: no packet comes from it"
                    );
                    self.wrong(given.span(), reason);
                }
                Ok(address) if self.hardware.insert((network.name.clone(), address)) => {
                    addresses.push(address);
                }
                Ok(_same) => {
                    let reason = format!("the hardware address {text} is given twice");
                    self.wrong(given.span(), reason);
                }
                Err(()) => {
                    let reason =
                        format!("'{text}' is not a hardware address; write 02:00:00:00:00:01");
                    self.wrong(given.span(), reason);
                }
            }
        }
        addresses
    }

    /// Names with as many addresses of a network, each behind the interface.
    fn attached(
        &mut self,
        names: &[String],
        addresses: &Text,
        interface: &Text,
        network: &Network,
    ) -> Vec<Port> {
        if let Some(why) = interface_objection(interface.get_ref()) {
            self.wrong(interface.span(), format!("the interface '{}' {why}", interface.get_ref()));
        }
        let texts = self.expanded(addresses, numerals(network));
        if texts.is_empty() || names.is_empty() {
            return Vec::new();
        }
        if texts.len() != names.len() {
            let (count, named) = (texts.len(), names.len());
            let reason = match named {
                1 => format!(
                    "{count} addresses for one name; each name needs one address, and a range of names has brackets: g[1-3]"
                ),
                _ => format!("{count} addresses for {named} names; each name needs one address"),
            };
            self.wrong(addresses.span(), reason);
            return Vec::new();
        }
        let mut ports = Vec::new();
        for (text, name) in texts.iter().zip(names) {
            match self.address(text, name, network) {
                Ok(address) => {
                    let interface = interface.get_ref().clone();
                    ports.push(Port { address, interface });
                }
                Err(reason) => self.wrong(addresses.span(), reason),
            }
        }
        ports
    }

    fn address(&mut self, text: &str, name: &str, network: &Network) -> Result<IpAddr, String> {
        let address: IpAddr =
            text.parse().map_err(|_unreadable| format!("'{text}' is not an address"))?;
        let prefix = network.prefix;
        if !contains(prefix, address) {
            return Err(format!(
                "{address} of '{name}' is outside the network '{}', {prefix}",
                network.name
            ));
        }
        if is_reserved(prefix, address) {
            return Err(format!(
                "{address} of '{name}' is the address of {prefix} itself, or its broadcast address"
            ));
        }
        match self.addresses.insert(address, name.to_owned()) {
            Some(other) => {
                Err(format!("{address} of '{name}' is the address of '{other}' already"))
            }
            None => Ok(address),
        }
    }

    fn hosts(&mut self, raw: &RawPlan, networks: &[Network]) -> Vec<Host> {
        let mut tables: Vec<_> = raw.hosts.iter().collect();
        tables.sort_by_key(|(name, _)| name.span().start);
        let mut hosts = Vec::new();
        let mut counts = vec![0; networks.len()];
        for (_, table) in tables {
            self.hosts_of_table(table, networks, &mut counts, &mut hosts);
            if hosts.len() > ITEMS_COUNT_MAX {
                self.wrong(table.names.span(), format!("more than {ITEMS_COUNT_MAX} hosts"));
                break;
            }
        }
        hosts
    }

    fn hosts_of_table(
        &mut self,
        table: &RawHosts,
        networks: &[Network],
        counts: &mut [usize],
        hosts: &mut Vec<Host>,
    ) {
        let names = self.expanded(&table.names, Numerals::Decimal);
        for name in &names {
            self.take_name(name, &table.names);
        }
        let wanted = table.network.get_ref();
        let Some(index) = networks.iter().position(|network| network.name == *wanted) else {
            self.wrong(table.network.span(), unknown_network(wanted, networks));
            return;
        };
        let ports = self.attached(&names, &table.addresses, &table.interface, &networks[index]);
        for (name, port) in names.into_iter().zip(ports) {
            hosts.push(Host { name, network: index, number: counts[index], port });
            counts[index] += 1;
        }
    }

    fn take_name(&mut self, name: &str, place: &Text) {
        if let Some(why) = name_objection(name, NAME_BYTES_MAX) {
            self.wrong(place.span(), format!("the name '{name}' {why}"));
        } else if !self.names.insert(name.to_owned()) {
            self.wrong(place.span(), format!("'{name}' is already defined; names are unique"));
        }
    }

    fn expanded(&mut self, text: &Text, numerals: Numerals) -> Vec<String> {
        expand(text.get_ref(), numerals).unwrap_or_else(|error| {
            self.wrong(text.span(), error.to_string());
            Vec::new()
        })
    }

    /// Refuses gateways that no bucket or no pair would use although there are enough.
    fn check_shares(&mut self, raw: &RawPlan, plan: &Plan) {
        let shares = crate::balance::smallest_shares(plan);
        for (gateway, what) in shares {
            let name = &plan.gateways[gateway].name;
            let weight = plan.gateways[gateway].weight;
            let total: u32 = plan.weights().iter().map(|&weight| u32::from(weight)).sum();
            let place = place_of_gateway(raw, gateway);
            self.wrong(
                place,
                format!("the weight of '{name}', {weight} of {total}, rounds to nothing: {what}"),
            );
        }
    }
}

/// Where the table of a gateway is, given that every table could be expanded.
fn place_of_gateway(raw: &RawPlan, index: usize) -> Range<usize> {
    let mut seen = 0;
    for table in &raw.gateway {
        seen += expand(table.name.get_ref(), Numerals::Decimal).map_or(0, |names| names.len());
        if index < seen {
            return table.weight.as_ref().map_or(table.name.span(), |weight| weight.span());
        }
    }
    raw.name.span()
}

/// How ranges of a network's addresses count.
fn numerals(network: &Network) -> Numerals {
    match network.prefix.family() {
        Family::V4 => Numerals::Decimal,
        Family::V6 => Numerals::Hexadecimal,
    }
}

fn unknown_network(name: &str, networks: &[Network]) -> String {
    let known: Vec<&str> = networks.iter().map(|network| network.name.as_str()).collect();
    format!("no network '{name}'; there are {}", known.join(", "))
}

fn parse_prefix(text: &str) -> Result<Prefix, String> {
    let wrong = || format!("'{text}' is not a network; write for example 10.10.0.0/24");
    let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_unreadable| wrong())?;
    let bits: u8 = bits.parse().map_err(|_unreadable| wrong())?;
    if bits == 0 {
        return Err(format!("{text} covers all addresses"));
    }
    Prefix::new(address, bits).map_err(|error| error.to_string())
}

/// Whether an address stands for the network, or for all of its hosts.
fn is_reserved(prefix: Prefix, address: IpAddr) -> bool {
    match (prefix.address(), address) {
        (IpAddr::V4(network), IpAddr::V4(address)) if prefix.bits() < 31 => {
            let behind = u32::MAX.checked_shr(prefix.bits().into()).unwrap_or(0);
            address == network || address.to_bits() & behind == behind
        }
        (IpAddr::V6(network), IpAddr::V6(address)) if prefix.bits() < 127 => address == network,
        _all_are_usable => false,
    }
}

fn name_objection(name: &str, bytes_max: usize) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > bytes_max {
        return Some(format!("must have 1 to {bytes_max} characters"));
    }
    let is_plain = name.chars().all(plain) && !name.starts_with(['.', '-']);
    (!is_plain).then(|| {
        "may contain only letters, digits, '.', '_' and '-', and must not begin with '.' or '-'"
            .to_owned()
    })
}

fn interface_objection(name: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    let is_name = !name.is_empty()
        && name.len() <= INTERFACE_BYTES_MAX
        && name != "."
        && name != ".."
        && name.bytes().all(plain);
    (!is_name).then(|| format!("is not an interface name (1 to {INTERFACE_BYTES_MAX} characters)"))
}
