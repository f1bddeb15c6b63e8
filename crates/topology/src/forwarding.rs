//! Where threads that forward frames are best placed: next to the network card, and not where its interrupts
//! are served.

use std::collections::BTreeSet;

use results::{Machine, Nic, Proximity};

/// Cores for a switch's threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardingCores {
    /// Which; empty where any will do, because no choice is known to be better.
    pub cores: Vec<u32>,
    /// Why these, for people.
    pub why: String,
}

/// Fewer than this would have a switch's threads wait for each other.
const CORES_MIN: usize = 2;

/// Chooses among the cores that this process may use: those of the memory node of the fastest card that is up,
/// without those (and their SMT siblings) that serve a card's receive interrupts. Where too few of them are
/// free of interrupts, all of the node; where that is no choice at all, none.
#[must_use]
pub fn forwarding_cores(machine: &Machine) -> ForwardingCores {
    let any = |why: &str| ForwardingCores { cores: Vec::new(), why: why.to_owned() };
    let usable: Vec<u32> = machine
        .cores
        .iter()
        .filter(|core| core.is_online && core.is_usable)
        .map(|core| core.core)
        .collect();
    let up = || machine.nics.iter().filter(|nic| nic.is_up);
    let speed = |nic: &&Nic| nic.speed_bits_per_s.unwrap_or(0.0);
    let known = |nic: &&Nic| nic.node.is_some() || !nic.interrupts.is_empty();
    let fastest = up().filter(known).max_by(|one, other| speed(one).total_cmp(&speed(other)));
    let Some(card) = fastest else { return any("no card is up whose place is known") };
    let near: Vec<u32> = match card.node {
        Some(_) => usable.iter().copied().filter(|one| card.near_cores.contains(one)).collect(),
        None => usable.clone(),
    };
    let served: BTreeSet<u32> = up()
        .flat_map(|nic| &nic.interrupts)
        .filter(|interrupt| interrupt.serves_receive)
        .flat_map(|interrupt| interrupt.effective_cores.iter().copied())
        .collect();
    let is_busy = |core: u32| {
        let siblings = [Proximity::SameCore, Proximity::SmtSibling].map(Some);
        served.iter().any(|&one| siblings.contains(&machine.proximity(one, core)))
    };
    let free: Vec<u32> = near.iter().copied().filter(|&core| !is_busy(core)).collect();
    let beside = match card.node {
        Some(node) => format!("node {node}, where {} is", card.name),
        None => format!("as near to {} as any", card.name),
    };
    if free.len() >= CORES_MIN && free.len() < usable.len() {
        ForwardingCores { cores: free, why: format!("{beside}; no receive interrupts") }
    } else if near.len() >= CORES_MIN && near.len() < usable.len() {
        let why = format!("{beside}; most of its cores serve receive interrupts");
        ForwardingCores { cores: near, why }
    } else if usable.len() <= CORES_MIN {
        any("there is no core to spare")
    } else {
        any("none is known to be better than another")
    }
}
