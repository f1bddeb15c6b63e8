//! Debian's ifupdown: it runs iproute2, so it says everything.

use core::fmt::Write as _;

use netlink::Family;

use super::{Emission, HEAD, Source};
use crate::change::{Change, Found, Object, difference};
use crate::command::command;

pub(super) fn emit(source: &Source<'_>, emission: &mut Emission) {
    let interface = &source.port.interface;
    let family = match source.plan.family {
        Family::V4 => "inet",
        Family::V6 => "inet6",
    };
    let mut text = format!(
        "{HEAD}auto {interface}\niface {interface} {family} static\n    address {}\n",
        source.address()
    );
    let changes = difference(source.plan, source.state, &Found::default()).changes;
    let objects: Vec<&Object> = changes
        .iter()
        .filter_map(|change| match change {
            // The emission says that marks are missing.
            Change::Add(Object::FilterTable(_)) => None,
            Change::Add(object) => Some(object),
            _setting => None,
        })
        .collect();
    for object in &objects {
        let change = match object {
            // The kernel replaces no rules.
            Object::Rule(_) => Change::Add((*object).clone()),
            other => Change::Replace { from: (*other).clone(), to: (*other).clone() },
        };
        writeln!(text, "    up {}", command(&change, source.interfaces)).ok();
    }
    for object in objects.iter().rev() {
        let change = Change::Remove((*object).clone());
        writeln!(text, "    down {} || true", command(&change, source.interfaces)).ok();
    }
    emission.files.push(("etc/network/interfaces.d/clearstream-gateway".to_owned(), text));
}
