//! NetworkManager's keyfiles: rules, tables and weighted multipath; no nexthop objects.

use core::fmt::Write as _;

use netlink::{Action, Family, table};

use super::{Emission, HEAD, Source, family_word};

/// Above 0, which connections have that say nothing: of several for an interface the one with the highest comes up.
const PRIORITY: u8 = 100;

pub(super) fn emit(source: &Source<'_>, emission: &mut Emission) {
    let interface = &source.port.interface;
    let family = family_word(source.plan.family);
    // A family that is not named is automatic, and NetworkManager would ask for an IPv4 address by DHCP.
    let other = match source.plan.family {
        Family::V4 => "",
        Family::V6 => "[ipv4]\nmethod=disabled\n\n",
    };
    let mut text = format!(
        "{HEAD}[connection]\nid=clearstream-gateway-{interface}\ntype=ethernet\ninterface-name={interface}\n\
         autoconnect-priority={PRIORITY}\n\n{other}[{family}]\nmethod=manual\naddress1={}\n",
        source.address()
    );
    let mut number = 0;
    for (route, paths) in source.plain_routes() {
        for path in paths {
            let Some(gateway) = path.gateway else { continue };
            number += 1;
            // Without one it is the connection's own, which differs between kinds of devices.
            let metric = route.priority.unwrap_or(0);
            writeln!(text, "route{number}={},{gateway},{metric}", route.destination).ok();
            // Without a weight on every one, equal destinations are separate routes and the first wins.
            let mut options = format!("weight={}", path.weight);
            if route.table != table::MAIN {
                write!(options, ",table={}", route.table).ok();
            }
            writeln!(text, "route{number}_options={options}").ok();
        }
    }
    for (rule, number) in source.state.rules.iter().zip(1..) {
        let (Some(mark), Action::Table(table)) = (rule.mark, rule.action) else { continue };
        let priority = rule.priority.unwrap_or(0);
        let all = if family == "ipv4" { "0.0.0.0/0" } else { "::/0" };
        writeln!(
            text,
            "routing-rule{number}=priority {priority} from {all} fwmark {:#x} table {table}",
            mark.value
        )
        .ok();
    }
    let path = format!(
        "etc/NetworkManager/system-connections/clearstream-gateway-{interface}.nmconnection"
    );
    emission.files.push((path, text));
    emission.lacks.push(source.lack_of_nexthops("NetworkManager"));
    emission.lacks.push(
        "NetworkManager gives routes and rules the protocol `static`: `clearstream gateway \
         check` reports them as foreign, and `apply` refuses to run while they exist"
            .to_owned(),
    );
    emission.lacks.push(
        "the type of the connection is `ethernet`: write `infiniband` for IP over InfiniBand; the file must be \
         root's, with mode 600"
            .to_owned(),
    );
}
