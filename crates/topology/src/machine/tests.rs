use std::path::Path;

use super::*;

#[test]
fn an_empty_tree_gives_absences_not_inventions() {
    let machine = machine_from(&HostFiles::at(Path::new("/nonexistent")));
    assert!(machine.cores.is_empty() && machine.nics.is_empty() && machine.nodes.is_empty());
    for what in ["cores", "caches", "memory nodes", "usable cores"] {
        assert!(machine.absent.iter().any(|absent| absent.what == what), "{what}");
    }
}

#[test]
fn this_host_has_the_cores_the_scheduler_gives_us() {
    let machine = machine();
    let usable: Vec<u32> =
        machine.cores.iter().filter(|core| core.is_usable).map(|core| core.core).collect();
    assert_eq!(usable, sys::thread::usable_cores().unwrap());
    for core in &machine.cores {
        assert_eq!(machine.proximity(core.core, core.core), Some(results::Proximity::SameCore));
    }
}
