//! Machines we do not have, read from trees of their files; this host beside `lscpu` and hwloc.

use std::fs;
use std::process::Command;

use results::{Machine, Proximity};
use testkit::machines::{self, Shape, Tree};
use topology::{HostFiles, forwarding_cores, machine, machine_from};

fn read(name: &str, shape: &Shape) -> (Tree, Machine) {
    let tree = shape.write(name);
    let machine = machine_from(&HostFiles::at(&tree.root));
    (tree, machine)
}

fn lacks(machine: &Machine, what: &str) -> bool {
    machine.absent.iter().any(|absent| absent.what == what)
}

#[test]
fn the_paper_s_r815_has_the_distances_of_figure_10() {
    let (_tree, r815) = read("r815", &machines::r815());
    assert_eq!((r815.cores.len(), r815.nodes.len()), (48, 8));
    for (node, row) in r815.nodes.iter().zip(machines::FIGURE_10) {
        assert_eq!(node.distances, row, "node {}", node.node);
        assert_eq!((node.cores.len(), node.memory_bytes), (6, Some(16 << 30)));
    }
    for core in &r815.cores {
        assert_eq!(core.package, Some(core.core % 4), "core i is on package i mod 4");
    }
    assert_eq!(r815.proximity(0, 4), Some(Proximity::SharedCache));
    assert_eq!(r815.proximity(0, 24), Some(Proximity::OtherNode));
    assert_eq!(r815.proximity(0, 1), Some(Proximity::OtherNode));
    let nic = r815.nic("eth2").unwrap();
    let link = nic.pcie.as_ref().unwrap();
    assert_eq!((link.speed_gt_per_s, link.lanes_count), (5.0, 8));
    assert_eq!((link.payload_max_bytes, link.read_request_max_bytes), (Some(128), Some(512)));
    assert_eq!(link.narrowest_bridge, None);
    assert_eq!((nic.speed_bits_per_s, nic.interrupts.len()), (Some(40e9), 16));
    assert!(nic.interrupts.iter().all(|at| at.effective_cores == [1]), "core 1, as in section 5");
    assert_eq!(r815.cores[0].frequency.as_ref().unwrap().governor, "ondemand");
}

#[test]
fn a_dual_xeon_has_siblings_and_a_card_on_half_its_lanes() {
    let (_tree, xeon) = read("xeon", &machines::dual_xeon());
    assert_eq!(xeon.proximity(0, 32), Some(Proximity::SmtSibling));
    assert_eq!(xeon.proximity(0, 1), Some(Proximity::SharedCache));
    assert_eq!(xeon.proximity(0, 16), Some(Proximity::OtherNode));
    assert_eq!(xeon.caches.iter().filter(|cache| cache.level == 3).count(), 2);
    assert_eq!(xeon.caches.iter().filter(|cache| cache.level == 1).count(), 64, "two a core");
    let nic = xeon.nic("ens1f0").unwrap();
    let link = nic.pcie.as_ref().unwrap();
    assert_eq!((link.speed_gt_per_s, link.speed_max_gt_per_s), (8.0, Some(16.0)));
    assert_eq!((link.lanes_count, link.lanes_max_count), (8, Some(16)));
    assert_eq!((nic.node, nic.near_cores.first(), nic.near_cores.len()), (Some(1), Some(&16), 32));
    let third = nic.interrupts.iter().find(|at| at.queue == Some(3)).unwrap();
    assert_eq!(
        (third.irq, &third.allowed_cores[..], &third.ran[..]),
        (103, &[19][..], &[(19, 1003)][..])
    );
    assert!(third.serves_receive && third.serves_transmit);
    assert_eq!(nic.transmit_queues[3].xps_cores, [19]);
    let deepest = xeon.cores[0].idle_states.last().unwrap();
    assert_eq!((deepest.name.as_str(), deepest.exit_latency_us), ("C6", 170));
}

#[test]
fn a_narrow_slot_above_the_card_is_named() {
    let mut shape = machines::dual_xeon();
    shape.cards[0].bridge = ("8.0 GT/s PCIe", 4);
    let (_tree, xeon) = read("narrow", &shape);
    let link = xeon.nics[0].pcie.as_ref().unwrap();
    assert_eq!(link.narrowest_bridge.as_deref(), Some("0000:40:01.1"));
    assert_eq!((link.bridge_speed_gt_per_s, link.bridge_lanes_count), (Some(8.0), Some(4)));
}

#[test]
fn chiplets_have_a_cache_each_and_four_nodes_a_package() {
    let (_tree, epyc) = read("chiplets", &machines::chiplets());
    assert_eq!((epyc.cores.len(), epyc.nodes.len()), (128, 8));
    assert_eq!(epyc.caches.iter().filter(|cache| cache.level == 3).count(), 16);
    assert_eq!(epyc.proximity(0, 3), Some(Proximity::SharedCache));
    assert_eq!(epyc.proximity(0, 4), Some(Proximity::SameNode));
    assert_eq!(epyc.proximity(0, 8), Some(Proximity::OtherNode));
    assert_eq!(epyc.nodes[0].distances, [10, 12, 12, 12, 32, 32, 32, 32]);
}

#[test]
fn one_node_and_a_card_without_one() {
    let (_tree, desktop) = read("desktop", &machines::desktop());
    assert_eq!((desktop.nodes.len(), desktop.nodes[0].distances.len()), (1, 1));
    let nic = desktop.nic("eno1").unwrap();
    assert_eq!((nic.node, nic.near_cores.len()), (None, 16), "the kernel writes -1");
    assert!(lacks(&desktop, "clock and governor") && lacks(&desktop, "idle states"));
}

#[test]
fn offline_cores_are_told_and_keep_their_node() {
    let (_tree, xeon) = read("offline", &machines::offline());
    let off: Vec<u32> =
        xeon.cores.iter().filter(|core| !core.is_online).map(|core| core.core).collect();
    assert_eq!(off, (56..64).collect::<Vec<u32>>());
    let core = xeon.core(60).unwrap();
    assert_eq!((core.package, core.node, core.is_usable), (None, Some(1), false));
    assert_eq!(xeon.proximity(28, 60), Some(Proximity::SameNode));
    let counted = xeon.nics[0].interrupts.iter().flat_map(|at| &at.ran).count();
    assert_eq!(counted, 16, "the columns are those of the online cores");
}

#[test]
fn a_container_s_cpuset_says_what_is_usable() {
    let (_tree, container) = read("container", &machines::container());
    let usable: Vec<u32> =
        container.cores.iter().filter(|core| core.is_usable).map(|core| core.core).collect();
    assert_eq!(usable, [2, 3, 4, 5, 34, 35]);
    assert!(container.cores.iter().all(|core| core.is_online));
}

#[test]
fn a_guest_that_tells_nothing_says_what_is_missing() {
    let (_tree, guest) = read("guest", &machines::bare_guest());
    assert_eq!((guest.cores.len(), guest.nodes.len(), guest.caches.len()), (4, 0, 0));
    for what in ["memory nodes", "caches", "clock and governor", "idle states"] {
        assert!(lacks(&guest, what), "{what}: {:?}", guest.absent);
    }
    let nic = guest.nic("eth0").unwrap();
    assert_eq!((nic.speed_bits_per_s, nic.pcie.as_ref()), (None, None));
    assert_eq!(nic.driver.as_deref(), Some("virtio_net"));
    assert_eq!(guest.proximity(0, 1), Some(Proximity::SameNode));
}

#[test]
fn a_host_of_256_cores_fits_a_message_between_hosts() {
    let (_tree, huge) = read("huge", &machines::huge());
    assert_eq!((huge.cores.len(), huge.nics[0].interrupts.len()), (256, 64));
    // `traffic::control::ANSWER_FRAME_BYTES_MAX` is 4 MiB, and there is more in that message.
    let bytes = serde_json::to_vec(&huge).unwrap().len();
    assert!(bytes < 3 << 20, "{bytes}");
}

/// A tree with one file cut, garbled, emptied or gone never panics a reader, nor makes it invent
/// cores.
#[test]
fn damaged_trees_are_read() {
    let mut shape = machines::desktop();
    shape.places.retain(|&core, _| core < 2);
    shape.cards[0].queues = 1;
    shape.idle = &[("C1", 1)];
    shape.clock = Some(("x", "y", 1, 2));
    let tree = shape.write("damaged");
    let mut files = Vec::new();
    let mut folders = vec![tree.root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    let read = || machine_from(&HostFiles::at(&tree.root));
    let whole = read();
    bolero::check!().with_iterations(200).with_type::<(u16, Option<Vec<u8>>)>().for_each(
        |(which, bytes)| {
            let path = &files[usize::from(*which) % files.len()];
            let before = fs::read(path).unwrap();
            match bytes {
                Some(bytes) => fs::write(path, bytes).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            let machine = read();
            fs::write(path, before).unwrap();
            assert!(machine.nics.len() <= 2, "{}", path.display());
            let _proximity = machine.proximity(0, 1);
        },
    );
    assert_eq!(read(), whole, "the tree is as it was");
}

/// Values of a command, a line each; `None` when it is not installed.
fn lines(program: &str, arguments: &[&str]) -> Option<Vec<String>> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Some(lines.map(str::to_owned).collect())
}

#[test]
fn this_host_is_as_lscpu_says() {
    let told = lines("lscpu", &["-p=CPU,SOCKET,NODE"]).expect("lscpu is part of util-linux");
    let machine = machine();
    let online: Vec<_> = machine.cores.iter().filter(|core| core.is_online).collect();
    assert_eq!(online.len(), told.len());
    let mut sockets = Vec::new();
    for (core, line) in online.iter().zip(&told) {
        let words: Vec<&str> = line.split(',').collect();
        assert_eq!(words[0], core.core.to_string());
        // lscpu numbers sockets in the order it meets them.
        if !sockets.contains(&core.package) {
            sockets.push(core.package);
        }
        let nth = sockets.iter().position(|package| *package == core.package);
        assert_eq!(words[1].parse().ok(), nth, "{line}");
        assert_eq!(words[2].parse().ok(), core.node, "{line}");
    }
}

#[test]
fn this_host_is_as_hwloc_says() {
    let Some(count) = lines("hwloc-calc", &["-N", "pu", "all"]) else {
        eprintln!("skipped: needs hwloc-calc");
        return;
    };
    let machine = machine();
    let number = |lines: &[String]| lines[0].trim().parse::<usize>().unwrap();
    let usable = machine.cores.iter().filter(|core| core.is_usable).count();
    assert_eq!(number(&count), usable);
    let caches = |level: u32| machine.caches.iter().filter(|cache| cache.level == level).count();
    for level in [2, 3] {
        let told = lines("hwloc-calc", &["-N", &format!("L{level}"), "all"]).unwrap();
        assert_eq!(number(&told), caches(level), "L{level}");
    }
    let nodes = lines("hwloc-calc", &["-N", "numanode", "all"]).unwrap();
    assert_eq!(number(&nodes), machine.nodes.len().max(1));
}

#[test]
fn forwarding_threads_sit_by_the_card_and_away_from_its_interrupts() {
    let choose = |name: &str, shape: &Shape| {
        let (_tree, machine) = read(&format!("forwarding-{name}"), shape);
        let choice = forwarding_cores(&machine);
        assert!(!choice.why.is_empty());
        let usable = |core: &u32| machine.core(*core).is_some_and(|core| core.is_usable);
        assert!(choice.cores.iter().all(usable), "{name}: {choice:?}");
        choice
    };
    // The paper's: interrupts are on core 1, the card is on node 0.
    let r815 = choose("r815", &machines::r815());
    assert_eq!(r815.cores, [0, 4, 8, 12, 16, 20], "{}", r815.why);
    // A queue a core of the card's node: there is no core without, but there is the node.
    let xeon = choose("xeon", &machines::dual_xeon());
    assert_eq!(xeon.cores, (16..32).chain(48..64).collect::<Vec<u32>>(), "{}", xeon.why);
    // Four queues of it: their cores and those cores' siblings are left out.
    let mut four = machines::dual_xeon();
    four.cards[0].queues = 4;
    let four = choose("four", &four);
    assert_eq!(four.cores, (20..32).chain(52..64).collect::<Vec<u32>>(), "{}", four.why);
    // Nothing known, or nothing to choose from: whatever the kernel chooses.
    assert_eq!(choose("guest", &machines::bare_guest()).cores, [0; 0]);
    let container = choose("container", &machines::container());
    assert!(container.cores.is_empty() || container.cores.len() >= 2, "{container:?}");
    for shape in [machines::desktop(), machines::offline()] {
        let (_tree, machine) = read("forwarding-any", &shape);
        let cores = forwarding_cores(&machine).cores;
        assert!(cores.len() != 1, "one core would be worse than no choice: {cores:?}");
    }
}
