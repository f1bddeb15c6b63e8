//! Frames that the switch dropped during a run, from the counters of its ports.

use std::collections::BTreeMap;
use std::path::Path;

use packet_switch::attachment::Entry;
use packet_switch::client::Connection;
use packet_switch::counters::FlowCount;
use packet_switch::station::Place;

/// Frames by the reason for which they were dropped.
pub(super) type Reasons = BTreeMap<String, u64>;

/// Frames that the switch dropped while a run lasted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Drops {
    /// Of the frames that the run's port sent: no port was to have them.
    pub(super) sent: Reasons,
    /// For the run's port: it could not be given them.
    pub(super) to_us: Reasons,
    /// For other ports of the same switch, whoever sent them.
    pub(super) to_others: BTreeMap<String, Reasons>,
}

/// The ports of a switch when a run begins.
#[derive(Debug)]
pub(super) struct Before {
    port: String,
    entries: Vec<Entry>,
}

impl Before {
    /// Reads the counters of the switch at `socket`; `None` for a pipe, whose frames pass no switch, and if the
    /// switch does not answer.
    pub(super) fn of(socket: &Path, place: &Place) -> Option<Self> {
        let Place::Port(port) = place else { return None };
        Some(Self { port: port.to_string(), entries: entries(socket)? })
    }

    /// What was dropped since; `None` if the switch does not answer.
    pub(super) fn until_now(&self, socket: &Path) -> Option<Drops> {
        Some(self.until(&entries(socket)?))
    }

    fn until(&self, now: &[Entry]) -> Drops {
        let switch = self.port.split_once(':').map(|(switch, _)| switch);
        let mut drops = Drops::default();
        for entry in now {
            let Some(count) = &entry.count else { continue };
            let before = self.entries.iter().find(|one| one.name == entry.name);
            let before = before.and_then(|one| one.count.as_ref());
            let to = more(before.map(|count| &count.outgoing), &count.outgoing);
            if entry.name == self.port {
                drops.sent = more(before.map(|count| &count.incoming), &count.incoming);
                drops.to_us = to;
            } else if entry.name.split_once(':').map(|(switch, _)| switch) == switch
                && !to.is_empty()
            {
                drops.to_others.insert(entry.name.clone(), to);
            }
        }
        drops
    }
}

fn entries(socket: &Path) -> Option<Vec<Entry>> {
    Connection::open(socket).and_then(|mut connection| connection.list()).ok()
}

fn more(before: Option<&FlowCount>, now: &FlowCount) -> Reasons {
    let known =
        |reason: &str| before.and_then(|count| count.dropped.get(reason)).copied().unwrap_or(0);
    let grown = now
        .dropped
        .iter()
        .map(|(reason, count)| (reason.clone(), count.saturating_sub(known(reason))));
    grown.filter(|(_, count)| *count > 0).collect()
}

impl Drops {
    /// Between a sender and whoever was to receive: `the switch dropped 3 for vale0:b (ring_full)`.
    pub(super) fn words_of_sender(&self) -> String {
        let own = (!self.sent.is_empty()).then(|| words(&self.sent, "of them"));
        let others = self.to_others.iter().map(|(port, to)| words(to, &format!("for {port}")));
        let all: Vec<String> = own.into_iter().chain(others).collect();
        if all.is_empty() {
            return "; the switch dropped none".to_owned();
        }
        format!("; the switch dropped {}", all.join(", "))
    }

    /// In front of a receiver.
    pub(super) fn words_of_receiver(&self) -> String {
        if self.to_us.is_empty() {
            return "; the switch dropped none for this port".to_owned();
        }
        format!("; the switch dropped {}", words(&self.to_us, "for this port"))
    }
}

/// `3 of them (ring_full)`, or with several reasons `3 of them (1 too_long, 2 ring_full)`.
fn words(reasons: &Reasons, whose: &str) -> String {
    let listed: Vec<String> = match reasons.len() {
        1 => reasons.keys().cloned().collect(),
        _ => reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect(),
    };
    format!("{} {whose} ({})", reasons.values().sum::<u64>(), listed.join(", "))
}

#[cfg(test)]
mod tests {
    use packet_switch::attachment::{Kind, Shape};
    use packet_switch::counters::PortCount;

    use super::*;

    fn entry(name: &str, incoming: &[(&str, u64)], outgoing: &[(&str, u64)]) -> Entry {
        let flow = |dropped: &[(&str, u64)]| FlowCount {
            dropped: dropped.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
            ..FlowCount::default()
        };
        let (incoming, outgoing) = (flow(incoming), flow(outgoing));
        Entry {
            name: name.to_owned(),
            kind: Kind::Port,
            shape: Shape::default(),
            attached: 1,
            count: Some(PortCount { incoming, outgoing, wakeups: 0, handed_over: 0 }),
            last_cut_off: None,
            device: None,
            header_bytes: 0,
            trust: None,
        }
    }

    #[test]
    fn only_what_was_dropped_meanwhile_counts() {
        let before = Before {
            port: "vale0:a".to_owned(),
            entries: vec![
                entry("vale0:a", &[("same_port", 1)], &[]),
                entry("vale0:b", &[], &[("ring_full", 5)]),
            ],
        };
        let drops = before.until(&[
            entry("vale0:a", &[("same_port", 1), ("no_destination", 2)], &[("too_long", 4)]),
            entry("vale0:b", &[("no_destination", 9)], &[("ring_full", 8)]),
            entry("vale0:new", &[], &[("ring_full", 1), ("too_long", 1)]),
            entry("vale1:b", &[], &[("ring_full", 7)]),
        ]);
        assert_eq!(
            drops.words_of_sender(),
            "; the switch dropped 2 of them (no_destination), 3 for vale0:b (ring_full), \
             2 for vale0:new (1 ring_full, 1 too_long)"
        );
        assert_eq!(drops.words_of_receiver(), "; the switch dropped 4 for this port (too_long)");
        let none = before.until(&before.entries);
        assert_eq!(none.words_of_sender(), "; the switch dropped none");
    }
}
