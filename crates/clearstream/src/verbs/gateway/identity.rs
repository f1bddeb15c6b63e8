//! Whether this machine is the host of the plan that a command acts for.

use std::net::{IpAddr, UdpSocket};

use route_plan::{Plan, Role};

use super::plan::{own_name, unknown_end};
use crate::exit::VerbError;

/// The host or gateway of the plan that this machine is: `asked`, or the one with this machine's name.
///
/// # Errors
/// The plan has no such host, or this machine is another one: it neither has that name, with or without a domain, nor
/// any of the plan's addresses of it.
pub(super) fn own_role<'a>(
    plan: &'a Plan,
    asked: Option<&str>,
) -> Result<(String, Role<'a>), VerbError> {
    let name = asked.map_or_else(own_name, str::to_owned);
    let role = plan.find(&name).ok_or_else(|| unknown_end(plan, &name, asked.is_some()))?;
    if is_own_name(&name) {
        return Ok((name, role));
    }
    let ports = match role {
        Role::Gateway(_, gateway) => gateway.ports.as_slice(),
        Role::Host(host) => std::slice::from_ref(&host.port),
    };
    // A socket can be bound to an address that is here only.
    let is_here = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    if ports.iter().any(|port| is_here(port.address)) {
        return Ok((name, role));
    }
    let addresses: Vec<String> = ports.iter().map(|port| port.address.to_string()).collect();
    let lacks = format!("and it does not have the address {}", addresses.join(" or "));
    Err(elsewhere(&name, &lacks))
}

/// Refuses a name that is not this machine's, where no plan tells its addresses.
pub(super) fn refuse_other_name(name: &str) -> Result<(), VerbError> {
    if is_own_name(name) {
        return Ok(());
    }
    Err(elsewhere(name, "and only with --plan PLAN can it be identified by its addresses"))
}

fn elsewhere(name: &str, why: &str) -> VerbError {
    VerbError::usage(format!("this machine is not '{name}': its name is '{}', {why}", own_name()))
}

fn is_own_name(name: &str) -> bool {
    let own = own_name();
    own == name || own.split_once('.').is_some_and(|(short, _domain)| short == name)
}
