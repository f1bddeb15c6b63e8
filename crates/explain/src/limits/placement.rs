//! Threads that run far from the cores that process their packets.

use results::{End, Limit, Machine, Proximity};

use super::causes::{device_nodes, distance, misplaced};
use super::lifted;
use super::processor::processor_binds;
use crate::advice::Advice;
use crate::change::Change;
use crate::experiment::{Experiment, Rule};
use crate::mechanism::{Mechanism, Opinion, Page};
use crate::observed::{HostView, Observed, end_name};
use crate::thresholds::{predictions, signs};

#[derive(Debug)]
pub(crate) struct Placement;

impl Mechanism for Placement {
    fn limit(&self) -> Limit {
        Limit::Placement
    }

    fn page(&self) -> Page {
        Page {
            title: "the placement of threads",
            ceiling: "the thread next to its packets",
            mechanism: "A thread's core shares no cache with the core that takes its packets off the device, \
                or lies on another memory node than the device: each byte crosses between caches or nodes, \
                and a core that has no time left spends it on waiting for memory.",
            evidence: "The thread's core, the core its packets came in on (`SO_INCOMING_CPU`), the device's \
                memory node, and the caches and nodes between them; the thread never sleeps.",
            against: "They share a cache; or the thread has time to spare, so its place does not matter.",
            experiment: "The same test with the thread next to its packets: a gain beyond the noise.",
            advice: "Pin the thread to a core of the device's node that shares a cache with the one that \
                takes the interrupts; `clearstream place` finds the best pair.",
        }
    }

    fn weigh(&self, seen: &Observed<'_>) -> Opinion {
        let host = worse(seen);
        let weight = signs::SEEN * processor_binds(seen, host) * misplaced(host);
        Opinion {
            weight,
            doubt: None,
            end: Some(host.end),
            evidence: evidence(seen, host),
            against: match (distance(host), host.machine()) {
                (Some((proximity, thread, packets)), _) => {
                    format!(
                        "its thread on core {thread}, its packets on core {packets}: {}",
                        words(proximity)
                    )
                }
                (None, Some(_)) => "where its packets came in is unknown".to_owned(),
                (None, None) => "no host reports its caches and memory nodes".to_owned(),
            },
            ceiling_bits_per_s: None,
        }
    }

    fn experiments(&self, seen: &Observed<'_>, headroom: Option<f64>) -> Vec<Experiment> {
        let host = worse(seen);
        let Some(better) = better_core(host) else { return Vec::new() };
        let change =
            Change::MoveCores { end: host.end, from: host.pinned.clone(), to: vec![better] };
        let mut experiment =
            lifted(self.limit(), seen, change, predictions::PLACEMENT_MOST, headroom);
        // An unpinned thread may already have run next to its packets.
        if host.pinned.is_empty() {
            experiment.rule = Rule::Eases;
        }
        vec![experiment]
    }

    fn advice(&self, seen: &Observed<'_>) -> Vec<Advice> {
        let host = worse(seen);
        let option = if host.end == End::Near { "--cores" } else { "--far-cores" };
        let mut lines = Vec::new();
        if let Some(core) = better_core(host) {
            lines.push(format!(
                "run the {} end's thread on core {core}: {option} {core}",
                end_name(host.end)
            ));
        }
        lines.push("let clearstream place HOST find the best pair of cores".to_owned());
        Advice::all(lines)
    }
}

fn worse<'s, 'a>(seen: &'s Observed<'a>) -> &'s HostView<'a> {
    let weigh = |host: &HostView<'_>| processor_binds(seen, host) * misplaced(host);
    if weigh(&seen.receiver) > weigh(&seen.sender) { &seen.receiver } else { &seen.sender }
}

/// A core next to the packets: one that shares a cache with the core they arrived on, else one of the
/// device's node.
fn better_core(host: &HostView<'_>) -> Option<u32> {
    let machine = host.machine()?;
    let now = host.thread.core?;
    let usable: Vec<u32> = machine
        .cores
        .iter()
        .filter(|core| core.is_online && core.is_usable && core.core != now)
        .map(|core| core.core)
        .collect();
    let device_node = device_nodes(host).map(|(_, device)| device);
    let on_node = |core: &u32| {
        device_node.is_none() || machine.core(*core).and_then(|core| core.node) == device_node
    };
    let rank = |core: u32| -> Option<(Proximity, u32)> {
        let packets = host.thread.incoming_core?;
        Some((near_first(machine, core, packets)?, core))
    };
    let by_packets = usable.iter().copied().filter(on_node).filter_map(rank).min();
    let limit = distance(host).map(|found| found.0);
    match by_packets {
        // Only if it is nearer than the present core, or on the device's node when the present one is not.
        Some((proximity, core))
            if device_node.is_some() || limit.is_some_and(|now| proximity < now) =>
        {
            Some(core)
        }
        _ => usable.into_iter().find(|core| device_node.is_some() && on_node(core)),
    }
}

/// Rank of a core next to the packets' core: sharing a cache is best. The packets' own core and its SMT
/// sibling rank as any core of the node, because they would share its time.
fn near_first(machine: &Machine, core: u32, packets: u32) -> Option<Proximity> {
    match machine.proximity(core, packets)? {
        Proximity::SameCore | Proximity::SmtSibling => Some(Proximity::SameNode),
        other => Some(other),
    }
}

fn words(proximity: Proximity) -> &'static str {
    match proximity {
        Proximity::SameCore => "the same core",
        Proximity::SmtSibling => "two threads of one core",
        Proximity::SharedCache => "they share a cache",
        Proximity::SameNode => "the same node, no cache in common",
        Proximity::OtherNode => "different memory nodes",
    }
}

fn evidence(seen: &Observed<'_>, host: &HostView<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some((proximity, thread, packets)) = distance(host) {
        lines.push(format!(
            "{}: its thread ran on core {thread}, its packets came in on core {packets}: {}",
            host.name(),
            words(proximity)
        ));
    }
    if let (Some((own, device)), Some(interface)) = (device_nodes(host), host.interface()) {
        lines.push(format!(
            "{}: its thread ran on memory node {own}, {} is on node {device}",
            host.name(),
            interface.name
        ));
    }
    lines.extend(seen.thread_text(host).map(|text| format!("{}: {text}", host.name())));
    lines
}
