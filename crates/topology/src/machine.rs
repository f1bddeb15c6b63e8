//! What a host is made of: cores, caches, memory nodes, interfaces, queues, interrupts.
//!
//! Everything comes from the kernel's files (`/sys/devices/system`, `/sys/class/net`, `/proc`), so
//! that a recorded tree reads like a host; what only a live kernel tells (ethtool, netlink) is
//! laid over it.

mod caches;
mod cores;
mod ethtool;
mod interrupts;
mod napi;
mod nics;
mod nodes;
mod pcie;
mod threads;

use results::{Absent, Machine};

use crate::HostFiles;
use crate::device::{self, Interface};
use crate::files::parse_list;
use threads::KernelThreads;

/// What this host is made of, as the calling thread sees it. Changes nothing and needs no
/// privilege; takes some milliseconds, and some tens on a host of hundreds of cores.
#[must_use]
pub fn machine() -> Machine {
    let mut files = HostFiles::default();
    let mut machine = Machine::default();
    let links: Vec<_> = crate::interfaces().into_iter().filter(|link| !link.is_loopback).collect();
    let is_shown = |link: &Interface| device::sys_of(&HostFiles::default(), link).is_some();
    if !links.iter().all(is_shown)
        && let Some(own) = HostFiles::of_this_namespace()
    {
        files = own;
    }
    let sources = links.iter().map(|link| nics::Source::of_link(&files, link)).collect();
    fill(&files, sources, &mut machine);
    let has_queues = links.iter().any(|link| link.is_up);
    let instances = napi::Instances::read(has_queues);
    for (nic, link) in machine.nics.iter_mut().zip(sorted(links)) {
        debug_assert_eq!(nic.name, link.name, "both are in the order of names");
        ethtool::lay_over(nic, &mut machine.absent);
        instances.lay_over(&files, link.index, nic);
    }
    if instances.is_unknown {
        note(
            &mut machine.absent,
            "which queue each interrupt and NAPI thread serves, from the kernel",
            "this kernel does not report it (Linux 6.8 does); it is read from their names instead",
        );
    }
    machine
}

fn sorted(mut links: Vec<Interface>) -> Vec<Interface> {
    links.sort_by(|a, b| a.name.cmp(&b.name));
    links
}

/// What a recorded tree of files says; never asks the kernel of this host.
#[must_use]
pub fn machine_from(files: &HostFiles) -> Machine {
    let mut machine = Machine::default();
    fill(files, nics::Source::all_in(files), &mut machine);
    machine
}

fn fill(files: &HostFiles, sources: Vec<nics::Source>, machine: &mut Machine) {
    let online = cores::online(files);
    machine.nodes = nodes::read(files, &mut machine.absent);
    machine.cores = cores::read(files, &online, &machine.nodes, &mut machine.absent);
    machine.caches = caches::read(files, &online, &mut machine.absent);
    let threads = KernelThreads::read(files);
    machine.irqbalance_runs = threads.irqbalance_runs;
    machine.rfs_entries_count =
        files.proc("sys/net/core/rps_sock_flow_entries").and_then(|text| text.trim().parse().ok());
    let interrupts = interrupts::Table::read(files);
    for source in sources {
        let nic = nics::read(files, source, &interrupts, &threads, &mut machine.absent);
        machine.nics.push(nic);
    }
    machine.nics.sort_by(|a, b| a.name.cmp(&b.name));
}

/// Notes that something could not be read.
fn note(absent: &mut Vec<Absent>, what: impl Into<String>, why: impl Into<String>) {
    absent.push(Absent { what: what.into(), why: why.into() });
}

/// A list of cores in a file below `/sys`; `None` when the file is not there.
fn core_list(files: &HostFiles, path: &str) -> Option<Vec<u32>> {
    let mut cores = parse_list(&files.sys_text(path)?);
    cores.sort_unstable();
    cores.dedup();
    Some(cores)
}

/// A number in a file below `/sys`.
fn number<T: std::str::FromStr>(files: &HostFiles, path: &str) -> Option<T> {
    files.sys_line(path)?.parse().ok()
}

#[cfg(test)]
mod tests;
