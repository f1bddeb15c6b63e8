//! How the ranks of a job on this host are bound, and which receive queue, interrupt and core get their packets. Pure: the
//! same plan is shown by `clearstream mpi plan` and carried out by `clearstream mpi`.
//!
//! Endpoint *i* of a host gets queue *i* modulo the queues of the interface. A device with flow rules is given one for each
//! endpoint's UDP port; without them its own hash of addresses and ports stays. Each queue's packets are then processed on the
//! cores of its ranks: by the queue's interrupt or NAPI thread where it has one and the ranks share one core, else by receive
//! packet steering (kernel `Documentation/networking/scaling.rst`).

use std::collections::BTreeMap;

use results::{Machine, Nic, Proximity};
use settings::{Change, FlowName, InterfaceKey, Key, list_of, mask_of};

use crate::bind;
use crate::job_map::MappedRank;
use crate::placement::{
    CoreChoice, HereView, QueueChoice, RankPlacement, Receiver, place, receives_on,
};

const RULES_SOURCE: &str = "ethtool(8), -N; kernel Documentation/networking/scaling.rst";
const RPS_SOURCE: &str = "kernel Documentation/networking/scaling.rst, RPS";
const INTERRUPT_SOURCE: &str = "kernel Documentation/core-api/irq/irq-affinity.rst; Open-MX 2009";
/// The feature that switches a device's flow rules.
const RULES_FEATURE: &str = "rx-ntuple-filter";

/// Who binds ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binder {
    /// The launcher, as its user or its defaults say.
    Launcher,
    /// This plan.
    Plan,
}

/// Whether a device directs flows to queues by rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowRules {
    /// It has none; why, as the kernel says.
    Missing(String),
    /// It has none, and the endpoints attach BPF programs that do the same.
    Programs,
    /// It has, and they are switched off.
    Off,
    /// It has.
    On,
}

/// What a job is to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wishes {
    /// Who binds.
    pub binder: Binder,
    /// Why nothing is to be steered, if so.
    pub unsteered: Option<Unsteered>,
    /// What the interface of the endpoints has.
    pub rules: FlowRules,
    /// The first of as many free UDP ports as there are ranks here.
    pub first_port: u16,
}

/// Why packets are left to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsteered {
    /// It was asked for.
    Asked,
    /// No rank is on another host, so that no packet comes by a device.
    OneHost,
    /// Endpoints have ports of a packet switch, not of a device.
    SwitchPort,
    /// The interface shows no receive queues here.
    NoQueues,
    /// The ranks are bound to no core.
    NoCores,
}

/// Where ranks run, and what is changed for them while they do.
#[derive(Debug, Clone, PartialEq)]
pub struct JobPlan {
    /// All ranks.
    pub ranks: Vec<RankPlacement>,
    /// Changes of this host's settings, in order; rules come first.
    pub changes: Vec<Change>,
    /// The first UDP port of this host's endpoints, where rules name them.
    pub first_port: Option<u16>,
    /// Why nothing is steered, if so.
    pub unsteered: Option<Unsteered>,
    /// Why the device's own hash chooses among several queues, if it does.
    pub no_rules: Option<String>,
}

/// Plans a job. `is_launched`: the ranks come from a launcher's own map.
#[must_use]
pub fn plan_job(
    ranks: &[MappedRank],
    is_launched: bool,
    here: HereView<'_>,
    wishes: &Wishes,
) -> JobPlan {
    let nic = here.machine.nic(&here.endpoint.interface);
    let mut plan = JobPlan {
        ranks: place(ranks, is_launched, here),
        changes: Vec::new(),
        first_port: None,
        unsteered: wishes.unsteered,
        no_rules: None,
    };
    let is_away = plan.ranks.iter().any(|rank| !rank.is_here);
    if plan.unsteered.is_none() && (!is_away || here.endpoint.ip.is_loopback()) {
        plan.unsteered = Some(Unsteered::OneHost);
    }
    let home = nic.filter(|_| matches!(plan.unsteered, None | Some(Unsteered::Asked)) && is_away);
    if wishes.binder == Binder::Plan || !is_launched {
        bind_ranks(&mut plan.ranks, here, home);
    }
    if plan.unsteered.is_some() {
        return plan;
    }
    match nic.filter(|nic| !nic.receive_queues.is_empty()) {
        None => plan.unsteered = Some(Unsteered::NoQueues),
        Some(nic) => steer(&mut plan, here.machine, nic, here.endpoint.ip.is_ipv6(), wishes),
    }
    plan
}

/// Gives each rank of this host a core of its own, next to its receive queue; none of them where there are too few.
fn bind_ranks(ranks: &mut [RankPlacement], here: HereView<'_>, nic: Option<&Nic>) {
    let here_count = ranks.iter().filter(|rank| rank.is_here).count();
    let mut cores = own_cores(here.machine, nic, here_count).into_iter();
    for rank in ranks.iter_mut().filter(|rank| rank.is_here) {
        (rank.cores, rank.core_choice) = match cores.next() {
            Some((core, true)) => (vec![core], CoreChoice::Queue),
            Some((core, false)) => (vec![core], CoreChoice::Order),
            None => (Vec::new(), CoreChoice::TooFewCores),
        };
        if let Some(receiver) = &mut rank.receiver {
            receiver.distance = distance(here.machine, &rank.cores, &receiver.cores);
        }
    }
}

/// The core of each rank of this host, and whether its receive queue decided.
fn own_cores(machine: &Machine, nic: Option<&Nic>, count: usize) -> Vec<(u32, bool)> {
    let usable = machine.cores.iter().filter(|core| core.is_usable).count();
    let all = (0..=usable).rev().map(|some| bind::cores(machine, some));
    let mut free = all.into_iter().find(|cores| !cores.is_empty()).unwrap_or_default();
    if free.len() < count {
        return Vec::new();
    }
    let Some(nic) = nic else {
        return free.into_iter().take(count).map(|core| (core, false)).collect();
    };
    let near = |core: &u32| nic.near_cores.contains(core);
    if free.iter().filter(|core| near(core)).count() >= count {
        free.retain(near);
    }
    let homes: Vec<Option<u32>> = (0..count).map(|one| home_of(nic, one)).collect();
    let mut found: Vec<Option<u32>> = vec![None; count];
    for (one, home) in homes.iter().enumerate() {
        if let Some(place) = free.iter().position(|core| Some(*core) == *home) {
            found[one] = Some(free.remove(place));
        }
    }
    let pairs = found.into_iter().zip(homes);
    let chosen = pairs.filter_map(|(found, home)| {
        let core = found.or_else(|| {
            let place = nearest(machine, &free, home)?;
            Some(free.remove(place))
        })?;
        Some((core, home.is_some()))
    });
    chosen.collect()
}

/// The one core on which the packets of an endpoint's queue are processed.
fn home_of(nic: &Nic, endpoint: usize) -> Option<u32> {
    let queue = nic.receive_queues.get(endpoint % nic.receive_queues.len().max(1))?.queue;
    match processed_on(nic, queue).as_slice() {
        [core] => Some(*core),
        _ => None,
    }
}

/// Where in the list is the core to take beside this one: a physical core that shares a cache, then one of the node.
fn nearest(machine: &Machine, free: &[u32], home: Option<u32>) -> Option<usize> {
    let far = |core: u32| {
        let distance = home.and_then(|home| machine.proximity(home, core));
        match distance {
            None | Some(Proximity::SameCore | Proximity::SharedCache) => 0,
            Some(Proximity::SameNode) => 1,
            Some(Proximity::SmtSibling) => 2,
            Some(Proximity::OtherNode) => 3,
        }
    };
    // The first of equals.
    (0..free.len()).min_by_key(|&place| far(free[place]))
}

/// The cores that process a queue's packets now.
fn processed_on(nic: &Nic, queue: u32) -> Vec<u32> {
    let of_queue = Nic {
        receive_queues: nic
            .receive_queues
            .iter()
            .filter(|one| one.queue == queue)
            .cloned()
            .collect(),
        napi_threads: nic
            .napi_threads
            .iter()
            .filter(|one| one.queue == Some(queue))
            .cloned()
            .collect(),
        ..Nic::default()
    };
    let is_its = |one: &&results::Interrupt| {
        one.serves_receive && (one.queue == Some(queue) || nic.receive_queues.len() == 1)
    };
    let interrupts: Vec<_> = nic.interrupts.iter().filter(is_its).cloned().collect();
    receives_on(&of_queue, &interrupts)
}

fn distance(machine: &Machine, rank: &[u32], other: &[u32]) -> Option<Proximity> {
    match (rank, other) {
        (&[core], &[other]) => machine.proximity(core, other),
        _ => None,
    }
}

/// Plans what is changed so that each rank's packets are processed where it runs.
fn steer(plan: &mut JobPlan, machine: &Machine, nic: &Nic, is_ipv6: bool, wishes: &Wishes) {
    let queues: Vec<u32> = nic.receive_queues.iter().map(|queue| queue.queue).collect();
    let here: Vec<usize> = (0..plan.ranks.len()).filter(|&at| plan.ranks[at].is_here).collect();
    if here.iter().all(|&at| plan.ranks[at].cores.is_empty()) {
        plan.unsteered = Some(Unsteered::NoCores);
        return;
    }
    let has_rules = queues.len() > 1 && !matches!(wishes.rules, FlowRules::Missing(_));
    if let (FlowRules::Missing(why), true) = (&wishes.rules, queues.len() > 1) {
        plan.no_rules = Some(why.clone());
    }
    let interface = |what| Key::Interface { name: nic.name.clone(), what };
    let mut cores_of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    if has_rules && wishes.rules == FlowRules::Off {
        let key = interface(InterfaceKey::Feature(RULES_FEATURE.to_owned()));
        let why = "the device's flow rules are switched off";
        plan.changes.push(Change::new(key, "on").because(why, RULES_SOURCE));
    }
    // A queue that no rank has by its number is still one that the device's hash may choose.
    let turns = if has_rules { here.len() } else { here.len().max(queues.len()) };
    for turn in 0..turns {
        let queue = queues[turn % queues.len()];
        let rank = &plan.ranks[here[turn % here.len()]];
        cores_of.entry(queue).or_default().extend(&rank.cores);
        if has_rules
            && wishes.rules != FlowRules::Programs
            && let Ok(offset) = u16::try_from(turn)
        {
            let port = wishes.first_port.saturating_add(offset);
            let key = interface(InterfaceKey::FlowQueue(FlowName { is_ipv6, port }));
            let why = format!("the endpoint of rank {} receives at UDP port {port}", rank.rank);
            let change = Change::new(key, queue.to_string()).from_value(Some("-".to_owned()));
            plan.changes.push(change.because(why, RULES_SOURCE));
        }
    }
    plan.first_port = has_rules.then_some(wishes.first_port);
    for (queue, cores) in &mut cores_of {
        cores.sort_unstable();
        cores.dedup();
        plan.changes.extend(move_processing(nic, *queue, cores));
    }
    let of_all = |cores: &BTreeMap<u32, Vec<u32>>| {
        let mut all: Vec<u32> = cores.values().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    for (turn, &at) in here.iter().enumerate() {
        let rank = &mut plan.ranks[at];
        let Some(receiver) = &mut rank.receiver else { continue };
        let queue = queues[turn % queues.len()];
        receiver.cores = if has_rules {
            receiver.port = wishes.first_port.checked_add(u16::try_from(turn).unwrap_or(u16::MAX));
            to_queue(receiver, queue, &wishes.rules);
            cores_of.get(&queue).cloned().unwrap_or_default()
        } else {
            of_all(&cores_of)
        };
        receiver.distance = distance(machine, &rank.cores, &receiver.cores);
    }
}

/// A rule, or a program, chooses this queue.
fn to_queue(receiver: &mut Receiver, queue: u32, rules: &FlowRules) {
    receiver.queues = vec![queue];
    receiver.queue_choice = match rules {
        FlowRules::Programs => QueueChoice::Program,
        _ => QueueChoice::Rule,
    };
    receiver.interrupts.retain(|one| one.queue == Some(queue));
}

/// The change after which a queue's packets are processed on these cores; none where they are already.
fn move_processing(nic: &Nic, queue: u32, cores: &[u32]) -> Option<Change> {
    if cores.is_empty() || processed_on(nic, queue) == cores {
        return None;
    }
    let why = format!("ranks that receive by queue {queue} run on cores {}", list_of(cores));
    let known = nic.receive_queues.iter().find(|one| one.queue == queue)?;
    let is_steered = !known.rps_cores.is_empty();
    if cores.len() == 1 && !is_steered {
        if let Some(thread) = nic.napi_threads.iter().find(|one| one.queue == Some(queue)) {
            let key = Key::ThreadAffinity(thread.name.clone());
            return Some(Change::new(key, list_of(cores)).because(why, RPS_SOURCE));
        }
        let is_its = |one: &&results::Interrupt| {
            one.serves_receive && (one.queue == Some(queue) || nic.receive_queues.len() == 1)
        };
        if let Some(interrupt) = nic.interrupts.iter().find(is_its) {
            let key = Key::InterruptAffinity(interrupt.irq);
            return Some(Change::new(key, list_of(cores)).because(why, INTERRUPT_SOURCE));
        }
    }
    let what = InterfaceKey::RpsCores(queue);
    let key = Key::Interface { name: nic.name.clone(), what };
    Some(Change::new(key, mask_of(cores)).because(why, RPS_SOURCE))
}

#[cfg(test)]
mod tests;
