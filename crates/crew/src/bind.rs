//! Which core each rank runs on.

use std::env;

use results::{Core, Machine};

/// What the launchers say of this process among those of its host: its number, how many there are.
const LOCAL: [[&str; 2]; 3] = [
    ["OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
    ["SLURM_LOCALID", "SLURM_TASKS_PER_NODE"],
];

/// Cores for so many ranks of this host, in their order: physical cores before their siblings, packages
/// in turn. None where there are fewer usable cores than ranks, so that the scheduler shares them out.
#[must_use]
pub fn cores(machine: &Machine, ranks_count: usize) -> Vec<u32> {
    let cores = order(&machine.cores);
    if cores.len() < ranks_count { Vec::new() } else { cores[..ranks_count].to_vec() }
}

/// Usable cores, the best first: one of each physical core before its siblings, and from one package
/// after the other, so that as much cache and memory bandwidth as there is goes to a rank.
fn order(cores: &[Core]) -> Vec<u32> {
    let mut keyed: Vec<((usize, usize, u32), u32)> = Vec::new();
    let usable =
        || cores.iter().filter(|core| core.is_online && core.is_usable && !core.is_isolated);
    for core in usable() {
        let before = || usable().take_while(|other| other.core != core.core);
        let is_sibling = |other: &&Core| {
            core.physical_core.is_some()
                && (other.physical_core, other.die, other.package)
                    == (core.physical_core, core.die, core.package)
        };
        let siblings = before().filter(is_sibling).count();
        let beside = before().filter(|other| other.package == core.package).count();
        keyed.push(((siblings, beside, core.package.unwrap_or(0)), core.core));
    }
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, core)| core).collect()
}

/// The cores for the threads of this process of an MPI job, in which each process has so many; none where its launcher has
/// bound it already, or where there are too few.
#[must_use]
pub fn process_cores(machine: &Machine, threads_count: usize) -> Vec<u32> {
    let online = machine.cores.iter().filter(|core| core.is_online).count();
    let usable = machine.cores.iter().filter(|core| core.is_usable).count();
    let number = |name: &str| env::var(name).ok()?.parse::<usize>().ok();
    let local = LOCAL.iter().find_map(|[rank, count]| Some((number(rank)?, number(count)?)));
    let Some((rank, count)) = local.filter(|_| usable == online) else { return Vec::new() };
    let all = cores(machine, count * threads_count);
    all.chunks(threads_count.max(1)).nth(rank).map(<[u32]>::to_vec).unwrap_or_default()
}

/// Binds the calling thread.
pub fn bind_thread(core: u32) {
    // A courtesy: a rank that may not be bound searches as well.
    sys::thread::pin_current(&[core]).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(core: u32, package: u32, physical: u32) -> Core {
        let (package, physical_core) = (Some(package), Some(physical));
        Core { core, package, physical_core, is_online: true, is_usable: true, ..Core::default() }
    }

    #[test]
    fn each_rank_has_a_physical_core_and_packages_take_turns() {
        // Two packages of two physical cores with two siblings each, numbered as Linux does.
        let cores: Vec<Core> = (0..8).map(|one| core(one, one % 2, one / 2 % 2)).collect();
        assert_eq!(order(&cores), [0, 1, 2, 3, 4, 5, 6, 7]);
        // Siblings side by side.
        let cores: Vec<Core> = (0..8).map(|one| core(one, one / 4, one / 2 % 2)).collect();
        assert_eq!(order(&cores), [0, 4, 2, 6, 1, 5, 3, 7]);
        let mut some = cores.clone();
        some[0].is_usable = false;
        some[4].is_isolated = true;
        assert_eq!(order(&some), [1, 5, 2, 6, 3, 7]);
        let machine = Machine { cores: some, ..Machine::default() };
        assert_eq!(super::cores(&machine, 2), [1, 5]);
        assert!(super::cores(&machine, 7).is_empty(), "fewer cores than ranks");
    }
}
