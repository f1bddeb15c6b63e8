//! The step machine over a host in memory, ended at every step of apply and of every revert after it:
//! the next revert restores everything. What is in memory here is the host; the machine, the records
//! and their reading are the real ones.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::memory::{Disk, Memory};
use proptest::prelude::*;
use tuning::journal::decode;
use tuning::{
    Applied, Change, ChangeResult, Engine, Key, Owner, Policy, RevertOutcome, RevertRequest,
    Reverted, World, WorldError,
};

fn key(text: &str) -> Key {
    text.parse().expect("known")
}

const KEYS: [&str; 5] =
    ["eth0/mtu", "eth0/txqueuelen", "eth0/rx-0/rps_flow_cnt", "net.ipv4.tcp_sack", "eth0/ring-rx"];

fn host() -> Memory {
    let values = KEYS.iter().enumerate().map(|(n, name)| (key(name), (n * 64).to_string()));
    Memory { values: values.collect(), rounds: Some(key("eth0/rx-0/rps_flow_cnt")), refuses: None }
}

fn changes() -> Vec<Change> {
    let to = ["9000", "5000", "100", "1", "512"];
    let pairs = KEYS.iter().zip(to);
    pairs
        .map(|(name, to)| Change {
            key: key(name),
            from: None,
            to: to.to_owned(),
            why: String::new(),
            source: String::new(),
        })
        .collect()
}

/// Ends the process (here: unwinds) at a step.
fn killing_at(at: usize) -> impl FnMut(tuning::Step<'_>) {
    let mut step = 0;
    move |_| {
        if step == at {
            std::panic::resume_unwind(Box::new("killed"));
        }
        step += 1;
    }
}

fn apply(world: &mut Memory, disk: &Disk, policy: Policy, at: usize) -> Option<Applied> {
    let (mut log, mut journal) = (disk, disk.journal());
    catch_unwind(AssertUnwindSafe(|| {
        let mut witness = killing_at(at);
        let mut engine = Engine {
            world,
            log: &mut log,
            journal: &mut journal,
            owner: Owner::Host,
            witness: &mut witness,
        };
        engine.apply(&changes(), policy).expect("the disk takes it")
    }))
    .ok()
}

fn revert(world: &mut Memory, disk: &Disk, at: usize) -> Option<Vec<RevertOutcome>> {
    let (mut log, mut journal) = (disk, disk.journal());
    catch_unwind(AssertUnwindSafe(|| {
        let mut witness = killing_at(at);
        let mut engine = Engine {
            world,
            log: &mut log,
            journal: &mut journal,
            owner: Owner::Host,
            witness: &mut witness,
        };
        engine.revert(&RevertRequest::default()).expect("the disk takes it")
    }))
    .ok()
}

#[test]
fn killed_at_any_step_of_apply_and_of_revert_the_next_revert_restores_all() {
    let before = host();
    let mut pairs = 0;
    for apply_at in 0.. {
        let (mut world, disk) = (before.clone(), Disk::new());
        let ended = apply(&mut world, &disk, Policy::AllOrNothing, apply_at).is_some();
        for revert_at in 0.. {
            let (mut world, disk) = (world.clone(), Disk(RefCell::new(disk.0.borrow().clone())));
            let finished = revert(&mut world, &disk, revert_at).is_some();
            revert(&mut world, &disk, usize::MAX).expect("nobody kills it");
            assert_eq!(world, before, "apply ended at {apply_at}, revert at {revert_at}");
            assert_eq!(disk.journal().open().count(), 0);
            pairs += 1;
            if finished {
                break;
            }
        }
        if ended {
            assert!(apply_at > 4 * KEYS.len() - 1, "{apply_at} steps");
            break;
        }
    }
    assert!(pairs > 200, "{pairs} pairs of kill points");
}

#[test]
fn a_journal_cut_at_any_byte_still_restores_all() {
    let before = host();
    let (mut world, disk) = (before.clone(), Disk::new());
    let start = disk.0.borrow().len();
    apply(&mut world, &disk, Policy::AllOrNothing, usize::MAX).expect("nobody kills it");
    let whole = disk.0.borrow().clone();
    // A cut loses what was appended last, never what was synced before it: replay the writes that
    // had been made by then.
    for length in start..=whole.len() {
        let decoded = decode(&whole[..length]).expect("a cut is no damage");
        let journal = decoded.journal.expect("its first line");
        let mut cut_world = before.clone();
        for entry in &journal.entries {
            cut_world.write(&entry.intent.key, &entry.intent.to).expect("taken");
        }
        let cut = Disk(RefCell::new(whole[..decoded.whole_bytes].to_vec()));
        revert(&mut cut_world, &cut, usize::MAX).expect("nobody kills it");
        assert_eq!(cut_world, before, "cut after {length} bytes");
    }
}

#[test]
fn one_refusal_of_five_undoes_the_others_or_is_left_out() {
    let mut world = Memory { refuses: Some(key("net.ipv4.tcp_sack")), ..host() };
    let before = world.clone();
    let disk = Disk::new();
    let applied = apply(&mut world, &disk, Policy::AllOrNothing, usize::MAX).expect("ends");
    assert_eq!(world, before, "all or nothing");
    let failed = |applied: &Applied| {
        let failed = applied.outcomes.iter();
        failed
            .filter(|one| matches!(one.result, ChangeResult::Failed { is_privilege: true, .. }))
            .count()
    };
    assert_eq!(failed(&applied), 1);
    assert!(applied.outcomes.iter().any(|one| one.result == ChangeResult::RolledBack));
    assert!(applied.outcomes.iter().any(|one| one.result == ChangeResult::NotTried));
    assert_eq!(disk.journal().open().count(), 0);
    let applied = apply(&mut world, &disk, Policy::KeepGoing, usize::MAX).expect("ends");
    assert_eq!((failed(&applied), applied.made().count()), (1, 4));
    world.refuses = None;
    revert(&mut world, &disk, usize::MAX).expect("ends");
    assert_eq!(world.values, before.values);
}

#[test]
fn somebody_elses_value_is_reported_and_left() {
    let (mut world, disk) = (host(), Disk::new());
    apply(&mut world, &disk, Policy::AllOrNothing, usize::MAX).expect("ends");
    world.values.insert(key("eth0/mtu"), "1400".into());
    let outcomes = revert(&mut world, &disk, usize::MAX).expect("ends");
    let foreign: Vec<_> = outcomes.iter().filter(|one| !one.result.is_settled()).collect();
    assert_eq!(foreign.len(), 1);
    assert_eq!(foreign[0].result, Reverted::Foreign { now: "1400".into() });
    assert_eq!(world.values[&key("eth0/mtu")], "1400");
    assert_eq!(disk.journal().open().count(), 1, "it stays in the journal");
    let (mut log, mut journal) = (&disk, disk.journal());
    let mut engine = Engine {
        world: &mut world,
        log: &mut log,
        journal: &mut journal,
        owner: Owner::Host,
        witness: &mut |_| {},
    };
    let request = RevertRequest { force: true, ..RevertRequest::default() };
    engine.revert(&request).expect("ends");
    assert_eq!(world, host());
}

/// The kernel lengthens one setting whenever another is written.
#[derive(Debug)]
struct Along(Memory);

impl World for Along {
    fn read(&mut self, key: &Key) -> Result<String, WorldError> {
        self.0.read(key)
    }

    fn write(&mut self, to: &Key, value: &str) -> Result<(), WorldError> {
        self.0.write(to, value)?;
        if *to == key("eth0/mtu") {
            self.0.values.insert(key("eth0/txqueuelen"), "999".into());
        }
        Ok(())
    }

    fn side_effects(&self, of: &Key) -> Vec<Key> {
        if *of == key("eth0/mtu") { vec![key("eth0/txqueuelen")] } else { Vec::new() }
    }
}

#[test]
fn what_the_kernel_changed_along_goes_with_the_change() {
    for at in [0, 1, 2, 3, usize::MAX] {
        let (mut world, disk) = (Along(host()), Disk::new());
        let (mut log, mut journal) = (&disk, disk.journal());
        catch_unwind(AssertUnwindSafe(|| {
            let mut witness = killing_at(at);
            let mut engine = Engine {
                world: &mut world,
                log: &mut log,
                journal: &mut journal,
                owner: Owner::Host,
                witness: &mut witness,
            };
            engine.apply(&changes()[..1], Policy::AllOrNothing).expect("the disk takes it");
        }))
        .ok();
        let (mut log, mut journal) = (&disk, disk.journal());
        let mut engine = Engine {
            world: &mut world,
            log: &mut log,
            journal: &mut journal,
            owner: Owner::Host,
            witness: &mut |_| {},
        };
        let request = RevertRequest { keys: vec![key("eth0/mtu")], ..RevertRequest::default() };
        engine.revert(&request).expect("ends");
        assert_eq!(world.0, host(), "ended at {at}");
        assert_eq!(disk.journal().open().count(), 0);
    }
}

#[test]
fn the_last_change_of_a_setting_can_be_taken_back_alone() {
    let (mut world, disk) = (host(), Disk::new());
    let (mut log, mut journal) = (&disk, disk.journal());
    let mut engine = Engine {
        world: &mut world,
        log: &mut log,
        journal: &mut journal,
        owner: Owner::Host,
        witness: &mut |_| {},
    };
    for to in ["3000", "4000"] {
        let change = Change { to: to.into(), ..changes()[0].clone() };
        engine.apply(&[change], Policy::AllOrNothing).expect("ends");
    }
    let last = RevertRequest { last_only: true, ..RevertRequest::default() };
    engine.revert(&last).expect("ends");
    assert_eq!(engine.world.read(&key("eth0/mtu")).as_deref(), Ok("3000"));
    engine.revert(&last).expect("ends");
    assert_eq!(world, host());
}

#[test]
fn after_a_reboot_what_the_boot_set_is_no_conflict() {
    let (mut world, disk) = (host(), Disk::new());
    apply(&mut world, &disk, Policy::AllOrNothing, usize::MAX).expect("ends");
    // Three ways a boot leaves a setting: as it was before, as persisted, at a third value.
    world.values.insert(key("eth0/mtu"), "0".into());
    world.values.insert(key("net.ipv4.tcp_sack"), "7".into());
    let (mut log, mut journal) = (&disk, disk.journal());
    let mut engine = Engine {
        world: &mut world,
        log: &mut log,
        journal: &mut journal,
        owner: Owner::Host,
        witness: &mut |_| {},
    };
    let request = RevertRequest { has_rebooted: true, ..RevertRequest::default() };
    let outcomes = engine.revert(&request).expect("ends");
    assert!(outcomes.iter().all(|one| one.result.is_settled()), "{outcomes:?}");
    assert_eq!(world.values[&key("net.ipv4.tcp_sack")], "7", "the boot's own");
    assert_eq!(world.values[&key("eth0/txqueuelen")], "64");
    assert_eq!(disk.journal().open().count(), 0);
}

proptest! {
    #[test]
    fn any_changes_in_any_order_are_undone(
        picks in prop::collection::vec((0..KEYS.len(), 0_u32..4000), 1..12),
        at in 0_usize..80,
    ) {
        let before = host();
        let (mut world, disk) = (before.clone(), Disk::new());
        let wanted: Vec<Change> = picks.iter().map(|(index, to)| Change {
            key: key(KEYS[*index]), from: None, to: to.to_string(),
            why: String::new(), source: String::new(),
        }).collect();
        let (mut log, mut journal) = (&disk, disk.journal());
        catch_unwind(AssertUnwindSafe(|| {
            let mut witness = killing_at(at);
            let mut engine = Engine {
                world: &mut world, log: &mut log, journal: &mut journal, owner: Owner::Host, witness: &mut witness,
            };
            engine.apply(&wanted, Policy::KeepGoing).expect("the disk takes it");
        })).ok();
        revert(&mut world, &disk, usize::MAX).expect("nobody kills it");
        prop_assert_eq!(world, before);
    }
}

/// A setting that was announced counts as ours whatever the kernel made of it. An object is what was written, or
/// somebody else's.
#[test]
fn an_announced_object_that_is_another_by_now_is_left() {
    let entry = |key: &str, from: &str, to: &str, state| {
        let intent = tuning::journal::Intent {
            id: 0,
            key: key.parse().expect("known"),
            from: from.to_owned(),
            to: to.to_owned(),
            is_side_effect: false,
            owner: Owner::Host,
            why: String::new(),
            source: String::new(),
        };
        tuning::journal::Entry { intent, state }
    };
    use tuning::journal::State;
    let decide = |entry, now| tuning::decide(&entry, now, &RevertRequest::default());
    let nexthop = |state| entry("nexthop:7", "-", "aa", state);
    assert_eq!(decide(nexthop(State::Intended), "-"), tuning::Decision::Back);
    assert_eq!(decide(nexthop(State::Intended), "aa"), tuning::Decision::Restore);
    assert_eq!(decide(nexthop(State::Intended), "bb"), tuning::Decision::Foreign);
    assert_eq!(decide(nexthop(State::Done("aa".to_owned())), "bb"), tuning::Decision::Foreign);
    let replaced = entry("nexthop:7", "cc", "aa", State::Done("aa".to_owned()));
    assert_eq!(decide(replaced, "-"), tuning::Decision::Restore);
    let setting = entry("eth0/mtu", "1500", "9000", State::Intended);
    assert_eq!(decide(setting, "8999"), tuning::Decision::Restore);
}
