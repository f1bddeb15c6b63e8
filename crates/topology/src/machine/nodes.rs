//! Memory nodes and their distances (ACPI SLIT, as `/sys/devices/system/node` shows it).

use results::{Absent, MemoryNode};

use super::{core_list, note};
use crate::HostFiles;

/// Reads the online nodes.
pub(super) fn read(files: &HostFiles, absent: &mut Vec<Absent>) -> Vec<MemoryNode> {
    let numbers = core_list(files, "devices/system/node/online").unwrap_or_default();
    if numbers.is_empty() {
        note(absent, "memory nodes", "the kernel has none to show (/sys/devices/system/node)");
    }
    let nodes: Vec<MemoryNode> = numbers.iter().map(|&node| one(files, node)).collect();
    let is_square = nodes.iter().all(|node| node.distances.len() == nodes.len());
    if !nodes.is_empty() && !is_square {
        note(absent, "distances of some memory nodes", "the firmware's table is incomplete");
    }
    nodes
}

fn one(files: &HostFiles, node: u32) -> MemoryNode {
    let folder = format!("devices/system/node/node{node}");
    let distances = files.sys_text(&format!("{folder}/distance")).unwrap_or_default();
    MemoryNode {
        node,
        cores: core_list(files, &format!("{folder}/cpulist")).unwrap_or_default(),
        memory_bytes: files
            .sys_text(&format!("{folder}/meminfo"))
            .and_then(|text| memory_bytes(&text)),
        distances: distances.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect(),
    }
}

/// `Node 0 MemTotal:       32784 kB`, where kB means KiB.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.split_once("MemTotal:"))?.1;
    total.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
