//! Addresses of a lab file: what the kernel would refuse later is refused with its line.

use std::net::IpAddr;

use super::section::Section;
use super::sysctl::{has_ipv6, kernel_has_ipv6};
use super::{LabFileError, fits};
use crate::plan::{AddressPlan, EndPlan, HostPlan, IPV6_MTU_MIN_BYTES, LabPlan};

/// Given addresses, or the default ones; `key` lists the hosts that may have any.
pub(super) fn read_addresses(
    section: &Section<'_>,
    key: &str,
    (name, host): (&str, Option<&HostPlan>),
    mtu_bytes: u32,
    default: impl FnOnce() -> Result<Vec<AddressPlan>, LabFileError>,
) -> Result<Vec<AddressPlan>, LabFileError> {
    let off = ipv6_is_off(host);
    if let Some(addresses) = section.section("addresses")? {
        let known = section.text_list(key)?;
        addresses.only(&known)?;
        if addresses.has(name) {
            let mut given: Vec<AddressPlan> = Vec::new();
            for text in addresses.text_list(name)? {
                let refused = |why: String| addresses.error_at(name, why);
                let one = parse_address(text).map_err(refused)?;
                if let (IpAddr::V6(_), Some(why)) = (one.address, &off) {
                    return Err(refused(format!("{text} of '{name}': {why}")));
                }
                if !fits(&one, mtu_bytes) {
                    let least = IPV6_MTU_MIN_BYTES;
                    return Err(refused(format!(
                        "{} needs an MTU of at least {least} bytes",
                        one.address
                    )));
                }
                given.push(one);
            }
            return Ok(given);
        }
    }
    let mut addresses = default()?;
    addresses.retain(|one| fits(one, mtu_bytes) && (one.address.is_ipv4() || off.is_none()));
    Ok(addresses)
}

/// Why a host has no IPv6.
fn ipv6_is_off(host: Option<&HostPlan>) -> Option<String> {
    if !kernel_has_ipv6() {
        return Some("this machine's kernel has no IPv6; write an IPv4 address".to_owned());
    }
    let is_on = host.is_none_or(|host| has_ipv6(|name| host.sysctls.get(name).cloned()));
    (!is_on).then(|| "its sysctl disable_ipv6 switches IPv6 off".to_owned())
}

fn parse_address(text: &str) -> Result<AddressPlan, String> {
    let example = "write for example 10.0.0.1/24 or fd00::1/64";
    let Some((address, prefix)) = text.split_once('/') else {
        let is_address = text.parse::<IpAddr>().is_ok();
        let what = if is_address { "has no prefix length" } else { "is not an address" };
        return Err(format!("'{text}' {what}; {example}"));
    };
    let wrong = |_not_an_address| format!("'{address}' is not an address; {example}");
    let address: IpAddr = address.parse().map_err(wrong)?;
    let (most, family) = if address.is_ipv6() { (128, "IPv6") } else { (32, "IPv4") };
    let prefix_bits = prefix.parse().ok().filter(|bits| (1..=most).contains(bits));
    let prefix_bits: u8 = prefix_bits.ok_or_else(|| {
        format!("'{text}': the prefix of an {family} address has 1 to {most} bits")
    })?;
    let plan = AddressPlan { address, prefix_bits };
    match reserved(&plan) {
        Some(what) => Err(format!("'{text}' is {what}; {example}")),
        None => Ok(plan),
    }
}

/// What an address is that no host can have.
fn reserved(plan: &AddressPlan) -> Option<&'static str> {
    let is_broadcast = |address| matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    match plan.address {
        address if address.is_unspecified() => Some("no host's address"),
        address if address.is_multicast() => Some("a multicast address"),
        address if address.is_loopback() => Some("a loopback address"),
        address if is_broadcast(address) => Some("the broadcast address"),
        // With 31 bits both addresses are hosts' (RFC 3021).
        IpAddr::V4(v4) if plan.prefix_bits <= 30 => {
            let hosts = u32::MAX >> plan.prefix_bits;
            match v4.to_bits() & hosts {
                0 => Some("the address of the network itself"),
                bits if bits == hosts => Some("the broadcast address of its network"),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Refuses what only all ends together show: two hosts with one address, and hosts that share a link and no network.
pub(super) fn check_networks(top: &Section<'_>, plan: &LabPlan) -> Result<(), LabFileError> {
    let mut seen: Vec<(usize, &str, IpAddr)> = Vec::new();
    let links = plan.links.iter().map(|link| &link.ends[..]);
    let shared = links.chain(plan.switches.iter().map(|switch| &switch.ends[..]));
    let sections = top.sections("link")?.into_iter().chain(top.sections("switch")?);
    for (network, (section, ends)) in sections.zip(shared).enumerate() {
        let refused = |hosts: [&str; 2], message: String| refused(&section, hosts, message);
        for end in ends {
            for address in end.addresses.iter().map(|given| given.address) {
                let known = seen.iter().find(|(other_network, host, known)| {
                    // Without routes, one address may stand on networks that have nothing in common.
                    let is_near = network == *other_network || !plan.is_unrouted;
                    *known == address && is_near && (network == *other_network || *host != end.host)
                });
                if let Some((_, host, _)) = known {
                    let message = match *host == end.host {
                        true => format!("'{host}' has the address {address} twice"),
                        false => format!("'{}' has the address {address} of '{host}'", end.host),
                    };
                    return refused([&end.host, host], message);
                }
                seen.push((network, &end.host, address));
            }
        }
        if let Some((own, next)) = strangers(ends).filter(|_| !plan.is_unrouted) {
            let message = format!(
                "{} of '{}' and {} of '{}' are in different networks: give both an address of one",
                own.1, own.0, next.1, next.0
            );
            return refused([own.0, next.0], message);
        }
    }
    Ok(())
}

/// An error at the address of one of the hosts that the file gives.
fn refused(section: &Section<'_>, hosts: [&str; 2], message: String) -> Result<(), LabFileError> {
    let addresses = section.section("addresses")?;
    let given = addresses.filter(|addresses| hosts.iter().any(|host| addresses.has(host)));
    let Some(addresses) = given else { return Err(section.error(message)) };
    let host = hosts.into_iter().find(|host| addresses.has(host)).unwrap_or(hosts[0]);
    Err(addresses.error_at(host, message))
}

/// A host with its address, for messages.
type Named<'a> = (&'a str, String);

/// The first two ends with addresses of one family, of which one has no network with an address of the other.
fn strangers(ends: &[EndPlan]) -> Option<(Named<'_>, Named<'_>)> {
    for own in ends {
        for next in ends.iter().filter(|next| next.host != own.host) {
            for is_ipv4 in [true, false] {
                let of_family = |end: &'_ EndPlan| -> Vec<AddressPlan> {
                    let all = end.addresses.iter().copied();
                    all.filter(|one| one.address.is_ipv4() == is_ipv4).collect()
                };
                let (owns, nexts) = (of_family(own), of_family(next));
                let (Some(first), Some(other)) = (owns.first(), nexts.first()) else { continue };
                let reaches =
                    |next: &AddressPlan| owns.iter().any(|own| own.contains(next.address));
                if !nexts.iter().any(reaches) {
                    return Some(((&own.host, first.to_string()), (&next.host, other.to_string())));
                }
            }
        }
    }
    None
}
