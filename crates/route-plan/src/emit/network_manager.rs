//! NetworkManager's keyfiles: rules, tables and weighted multipath; no nexthop objects.

use core::fmt::Write as _;

use netlink::{Action, table};

use super::{Emission, HEAD, Source, family_word};

pub(super) fn emit(source: &Source<'_>, emission: &mut Emission) {
    let interface = &source.port.interface;
    let family = family_word(source.plan.family);
    let mut text = format!(
        "{HEAD}[connection]\nid=clearstream-gateway-{interface}\ntype=ethernet\ninterface-name={interface}\n\n\
         [{family}]\nmethod=manual\naddress1={}\n",
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
        "the type of the connection is `ethernet`: write `infiniband` for IP over InfiniBand; the file must be \
         root's, with mode 600"
            .to_owned(),
    );
}
