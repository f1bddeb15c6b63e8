//! Remote clients: whatever they ask, in any order among what this host's people do, the host's keys
//! and files stay as they are, and everything can be undone.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::memory::{Disk, Memory};
use proptest::prelude::*;
use tuning::journal::{Entry, Record, State};
use tuning::remote::{Answer, Request, handle};
use tuning::{
    Change, Engine, Host, Key, Log, LogError, Owner, Policy, RevertRequest, Standing, Tuner, Undo,
    World,
};

const KEYS: [&str; 5] = [
    "eth0/mtu",
    "eth0/txqueuelen",
    "eth0/rx-0/rps_flow_cnt",
    "net.ipv4.tcp_sack",
    "file:etc/sysctl.d/90-clearstream.conf",
];

fn key(text: &str) -> Key {
    text.parse().expect("known")
}

fn client(number: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, number])
}

fn host() -> Memory {
    let value = |name: &str, number: usize| match name.starts_with("file:") {
        true => "+by hand\n".to_owned(),
        false => number.to_string(),
    };
    let values = KEYS.iter().enumerate().map(|(n, name)| (key(name), value(name, n * 64)));
    Memory { values: values.collect(), rounds: Some(key(KEYS[2])), refuses: None }
}

fn change(index: usize, to: u32) -> Change {
    let is_file = KEYS[index].starts_with("file:");
    Change {
        key: key(KEYS[index]),
        from: None,
        to: if is_file { format!("+{to}\n") } else { to.to_string() },
        why: "a reason".to_owned(),
        source: String::new(),
    }
}

/// Something somebody does.
#[derive(Debug, Clone)]
enum Act {
    /// The host (0) or a client asks for changes.
    Apply { who: u8, changes: Vec<(usize, u32)>, goes_on: bool },
    /// They undo.
    Revert { who: u8, keys: Vec<usize>, force: bool, last_only: bool },
    /// Somebody on the host sets it without this program.
    ByHand { index: usize, to: u32 },
    /// The server is killed in the middle of a client's change, before or after the write.
    Killed { who: u8, index: usize, to: u32, is_written: bool },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let index = 0..KEYS.len();
    let one = prop_oneof![
        4 => (0_u8..3, prop::collection::vec((index.clone(), 0_u32..5), 1..4), any::<bool>())
            .prop_map(|(who, changes, goes_on)| Act::Apply { who, changes, goes_on }),
        4 => (0_u8..3, prop::collection::vec(index.clone(), 0..3), any::<bool>(), any::<bool>())
            .prop_map(|(who, keys, force, last_only)| Act::Revert { who, keys, force, last_only }),
        1 => (index.clone(), 0_u32..5).prop_map(|(index, to)| Act::ByHand { index, to }),
        1 => (1_u8..3, 0..4_usize, 0_u32..5, any::<bool>())
            .prop_map(|(who, index, to, is_written)| Act::Killed { who, index, to, is_written }),
    ];
    prop::collection::vec(one, 1..24)
}

fn owner(who: u8) -> Owner {
    if who == 0 { Owner::Host } else { Owner::Remote(client(who)) }
}

/// Does it with the real machine on the journal as it stands on disk.
fn act(world: &mut Memory, disk: &Disk, act: &Act) {
    let (mut log, mut journal) = (disk, disk.journal());
    let who = match act {
        Act::Apply { who, .. } | Act::Revert { who, .. } | Act::Killed { who, .. } => *who,
        Act::ByHand { .. } => 0,
    };
    let mut witness = |_: tuning::Step<'_>| {};
    let mut engine = Engine {
        world,
        log: &mut log,
        journal: &mut journal,
        owner: owner(who),
        witness: &mut witness,
    };
    match act {
        Act::Apply { changes, goes_on, .. } => {
            let changes: Vec<Change> = changes.iter().map(|(at, to)| change(*at, *to)).collect();
            let policy = if *goes_on { Policy::KeepGoing } else { Policy::AllOrNothing };
            engine.apply(&changes, policy).expect("the disk takes it");
        }
        Act::Revert { keys, force, last_only, .. } => {
            let keys = keys.iter().map(|at| key(KEYS[*at])).collect();
            let request = RevertRequest {
                keys,
                force: *force,
                last_only: *last_only,
                ..RevertRequest::default()
            };
            engine.revert(&request).expect("the disk takes it");
        }
        Act::ByHand { index, to } => {
            world.write(&key(KEYS[*index]), &change(*index, *to).to).expect("taken");
        }
        Act::Killed { index, to, is_written, .. } => {
            let key = key(KEYS[*index]);
            let is_free = journal.open().all(|entry| entry.intent.key != key);
            let (from, to) = (world.values[&key].clone(), to.to_string());
            if !is_free || from == to {
                return;
            }
            let intent = tuning::journal::Intent {
                id: journal.next_id(),
                key: key.clone(),
                from,
                to: to.clone(),
                is_side_effect: false,
                owner: owner(who),
                why: String::new(),
                source: String::new(),
            };
            log.append(&Record::Intent(intent)).expect("the disk takes it");
            if *is_written {
                world.write(&key, &to).expect("taken");
            }
        }
    }
}

/// Changes that are in force, by whose they are.
fn open(disk: &Disk, is_whose: impl Fn(&Owner) -> bool) -> Vec<(Key, Entry)> {
    let journal = disk.journal();
    let entries = journal.open().filter(|entry| is_whose(&entry.intent.owner));
    entries.map(|entry| (entry.intent.key.clone(), entry.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_clients_ask_what_others_have_changed_stays(all in acts()) {
        let (mut world, disk) = (host(), Disk::new());
        // What the host's people have set last, by this program or by hand, after any client.
        let mut by_host: BTreeMap<Key, String> = BTreeMap::new();
        for one in &all {
            let before = world.clone();
            let others = |who: u8| open(&disk, |whose| *whose != owner(who));
            match one {
                Act::Apply { who, changes, .. } if *who > 0 => {
                    let (others_before, own) = (others(*who), owner(*who));
                    act(&mut world, &disk, one);
                    prop_assert_eq!(others(*who), others_before.clone(), "{:?}", one);
                    for (key, value) in &before.values {
                        let is_named = changes.iter().any(|(at, _)| *key == self::key(KEYS[*at]));
                        let is_others = others_before.iter().any(|(other, _)| other == key);
                        let is_file = matches!(key, Key::File(_));
                        if !is_named || is_others || is_file {
                            prop_assert_eq!(&world.values[key], value, "{:?} of {:?}", one, own);
                        }
                    }
                }
                Act::Revert { who, .. } if *who > 0 => {
                    let own = open(&disk, |whose| *whose == owner(*who));
                    let others_before = others(*who);
                    act(&mut world, &disk, one);
                    prop_assert_eq!(others(*who), others_before.clone(), "{:?}", one);
                    for (key, value) in &before.values {
                        let is_own = own.iter().any(|(one, _)| one == key);
                        let is_others = others_before.iter().any(|(other, _)| other == key);
                        let is_set_by_host = by_host.get(key) == Some(value)
                            && own.iter().all(|(one, entry)| {
                                let is_made = entry.state == State::Done(value.clone());
                                one != key || !(is_made || entry.intent.to == *value)
                            });
                        if !is_own || is_others || is_set_by_host {
                            prop_assert_eq!(&world.values[key], value, "{:?}", one);
                        }
                    }
                }
                _ => act(&mut world, &disk, one),
            }
            for (key, value) in &world.values {
                let is_by_hand = matches!(one, Act::ByHand { index, .. } if *key == self::key(KEYS[*index]));
                let is_by_host = matches!(one, Act::Apply { who: 0, .. });
                if is_by_hand || (is_by_host && before.values[key] != *value) {
                    by_host.insert(key.clone(), value.clone());
                } else if before.values[key] != *value {
                    by_host.remove(key);
                }
            }
        }
        // The host's own revert can always undo everything, clients' changes too.
        let undo = Act::Revert { who: 0, keys: Vec::new(), force: true, last_only: false };
        act(&mut world, &disk, &undo);
        prop_assert_eq!(disk.journal().open().count(), 0);
    }

    #[test]
    fn without_a_hand_in_between_the_hosts_revert_restores_all(all in acts()) {
        let (mut world, disk) = (host(), Disk::new());
        let before = world.clone();
        for one in all.iter().filter(|one| !matches!(one, Act::ByHand { .. })) {
            act(&mut world, &disk, one);
        }
        act(&mut world, &disk, &Act::Revert { who: 0, keys: vec![], force: false, last_only: false });
        prop_assert_eq!(world, before);
        prop_assert_eq!(disk.journal().open().count(), 0);
    }
}

/// A value that a client has set and the host then asks for is the host's.
#[test]
fn what_the_host_asks_for_too_is_not_undone_by_the_client() {
    let (mut world, disk) = (host(), Disk::new());
    let ask = |who| Act::Apply { who, changes: vec![(0, 4)], goes_on: false };
    act(&mut world, &disk, &ask(1));
    act(&mut world, &disk, &ask(0));
    act(&mut world, &disk, &Act::Revert { who: 1, keys: vec![], force: true, last_only: false });
    assert_eq!(world.values[&key(KEYS[0])], "4");
    act(&mut world, &disk, &Act::Revert { who: 0, keys: vec![], force: false, last_only: false });
    assert_eq!(world, host());
}

/// A disk that takes so many records more.
struct LimitedDisk<'a>(&'a Disk, usize);

impl Log for LimitedDisk<'_> {
    fn append(&mut self, record: &Record) -> Result<(), LogError> {
        if self.1 == 0 {
            return Err(LogError("no space left".to_owned()));
        }
        self.1 -= 1;
        (&mut &*self.0).append(record)
    }
}

#[test]
fn with_a_full_disk_everything_is_put_back_all_the_same() {
    for room in 0..12 {
        let (mut world, disk) = (host(), Disk::new());
        let mut witness = |_: tuning::Step<'_>| {};
        for (full, is_revert) in [(room, false), (0, true), (usize::MAX, true)] {
            let (mut log, mut journal) = (LimitedDisk(&disk, full), disk.journal());
            let mut engine = Engine {
                world: &mut world,
                log: &mut log,
                journal: &mut journal,
                owner: Owner::Host,
                witness: &mut witness,
            };
            if is_revert {
                engine.revert(&RevertRequest::default()).expect("nothing is left to undo");
                assert_eq!(world, host(), "room for {room} records");
            } else {
                let changes = [change(0, 1), change(1, 2), change(3, 3), change(4, 4)];
                let applied = engine.apply(&changes, Policy::AllOrNothing);
                assert_eq!(applied.is_ok(), room >= 8, "room for {room} records");
            }
        }
        assert_eq!(disk.journal().open().count(), 0);
    }
}

/// A host of files: `/proc/sys`, a root for persisted files, a state directory.
struct Testbed {
    folder: PathBuf,
}

const SACK: &str = "net.ipv4.tcp_sack";
const ECN: &str = "net.ipv4.tcp_ecn";
const RMEM: &str = "net.ipv4.tcp_rmem";
const PERSISTED: &str = "root/etc/sysctl.d/90-clearstream.conf";

impl Testbed {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("strangers-{name}-{}", std::process::id()));
        let bed = Self { folder };
        for (name, value) in [(SACK, "1"), (ECN, "2"), (RMEM, "4096 131072 6291456")] {
            bed.set(name, value);
        }
        bed
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join("proc/sys").join(name.replace('.', "/"))
    }

    fn set(&self, name: &str, value: &str) {
        let path = self.file(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder of our own");
        fs::write(path, format!("{value}\n")).expect("written");
    }

    fn get(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).expect("there").trim().to_owned()
    }

    fn tuner(&self) -> Tuner {
        let at = |name: &str| self.folder.join(name);
        let host = Host::at(&at("proc"), &at("sys"), &at("root"));
        Tuner::new(host, &at("state"), 1)
    }

    fn persist(&self, name: &str, to: &str) {
        let change = asked(name, to, "the owner's reason");
        let applied = self
            .tuner()
            .apply(&[change], Policy::AllOrNothing, true, &mut |_| {})
            .expect("applied");
        assert_eq!(applied.made().count(), 2, "{applied:?}");
    }

    fn ask(&self, who: u8, request: &Request) -> Answer {
        handle(&self.tuner(), client(who), request)
    }

    fn journal_bytes(&self) -> u64 {
        fs::metadata(self.folder.join("state/journal")).map_or(0, |known| known.len())
    }

    fn persisted(&self) -> String {
        fs::read_to_string(self.folder.join(PERSISTED)).expect("written")
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

fn asked(name: &str, to: &str, why: &str) -> Change {
    Change {
        key: key(name),
        from: None,
        to: to.to_owned(),
        why: why.to_owned(),
        source: why.to_owned(),
    }
}

fn apply(changes: Vec<Change>) -> Request {
    Request::Apply { changes, policy: Policy::KeepGoing }
}

fn revert(keys: &[&str], how: Undo) -> Request {
    Request::Revert { keys: keys.iter().map(|name| key(name)).collect(), how }
}

fn was_made(answer: &Answer) -> bool {
    let Answer::Applied { outcomes, .. } = answer else { return false };
    outcomes.iter().any(|one| matches!(one.result, tuning::ChangeResult::Applied { .. }))
}

#[test]
fn persisted_files_hold_nothing_of_clients_and_are_not_touched_for_them() {
    let bed = Testbed::new("files");
    bed.persist(SACK, "0");
    let before = bed.persisted();
    let lines = "x\n[Service]\nExecStart=/bin/sh\nkernel.core_pattern = |/x";
    assert!(was_made(&bed.ask(1, &apply(vec![asked(ECN, "1", lines)]))));
    let file = format!("file:{}", PERSISTED.trim_start_matches("root/"));
    for how in [Undo::All, Undo::Last, Undo::Force] {
        for keys in [&[ECN][..], &[SACK], &[&file], &[SACK, ECN, RMEM], &[]] {
            bed.ask(1, &revert(keys, how));
            assert_eq!((bed.persisted(), bed.get(SACK)), (before.clone(), "0".into()), "{keys:?}");
            bed.ask(1, &apply(vec![asked(ECN, "1", lines), asked(SACK, "1", "")]));
        }
    }
    let shown = bed.ask(1, &Request::Read { keys: vec![key(&file)] });
    assert!(matches!(shown, Answer::Failed { .. }), "{shown:?}");
    // The owner's own --persist, and a revert of one of its keys, keep the client's out too.
    bed.persist(RMEM, "4096 131072 33554432");
    assert!(!bed.persisted().contains("tcp_ecn"), "{}", bed.persisted());
    assert!(bed.persisted().contains("tcp_rmem") && bed.persisted().contains("tcp_sack"));
    bed.tuner().revert(&[key(RMEM)], Undo::All, &mut |_| {}).expect("reverted");
    assert!(!bed.persisted().contains("tcp_ecn"), "{}", bed.persisted());
    assert_eq!(bed.persisted(), before);
    assert_eq!(bed.get(ECN), "1", "the client's is in force all the same");
    let journal = fs::read_to_string(bed.folder.join("state/journal")).expect("there");
    assert!(!journal.contains("\\n[Service]"), "reasons are one plain line: {journal}");
    bed.tuner().revert(&[], Undo::All, &mut |_| {}).expect("reverted");
    assert_eq!((bed.get(SACK), bed.get(ECN)), ("1".into(), "2".into()), "the owner undoes all");
    assert!(!Path::new(&bed.folder).join(PERSISTED).exists());
}

#[test]
fn a_client_sees_and_undoes_its_own_changes_and_no_others() {
    let bed = Testbed::new("own");
    bed.persist(SACK, "0");
    assert!(was_made(&bed.ask(1, &apply(vec![asked(ECN, "1", "")]))));
    assert!(!was_made(&bed.ask(1, &apply(vec![asked(SACK, "1", "")]))), "the owner's");
    assert!(!was_made(&bed.ask(2, &apply(vec![asked(ECN, "0", "")]))), "another client's");
    let seen = |who| match bed.ask(who, &Request::Status) {
        Answer::Status { lines } => lines.into_iter().map(|line| line.key.to_string()).collect(),
        other => vec![format!("{other:?}")],
    };
    assert_eq!((seen(1), seen(2)), (vec![ECN.to_owned()], vec![]));
    assert_eq!(bed.tuner().status().expect("readable").len(), 3, "the owner sees all");
    for who in [2, 1] {
        let Answer::Reverted { outcomes } = bed.ask(who, &revert(&[], Undo::All)) else {
            panic!("a client can always undo")
        };
        assert_eq!(outcomes.len(), usize::from(who == 1));
    }
    assert_eq!((bed.get(SACK), bed.get(ECN)), ("0".into(), "2".into()));
    // What the owner changes after the client is the owner's.
    assert!(was_made(&bed.ask(1, &apply(vec![asked(ECN, "1", "")]))));
    let over = [asked(ECN, "0", "")];
    bed.tuner().apply(&over, Policy::AllOrNothing, false, &mut |_| {}).expect("applied");
    bed.ask(1, &revert(&[], Undo::All));
    assert_eq!(bed.get(ECN), "0");
    let Answer::Status { lines } = bed.ask(1, &Request::Status) else { panic!("status") };
    assert_eq!(lines[0].standing, Standing::Foreign);
}

#[test]
fn no_flood_of_requests_fills_the_journal_or_stops_an_undo() {
    let bed = Testbed::new("flood");
    bed.persist(SACK, "0");
    let before = bed.persisted();
    let long = "\u{1b}[2J\"\\".repeat(2000);
    let mut most = 0;
    let mut refused = 0;
    for round in 0..12_usize {
        let changes = (0..64).map(|n| asked(ECN, if n % 2 == 0 { "1" } else { "0" }, &long));
        refused += usize::from(!was_made(&bed.ask(1, &apply(changes.collect()))));
        most = most.max(bed.journal_bytes());
        if round % 6 == 5 {
            let answer = bed.ask(1, &revert(&[ECN], Undo::All));
            assert!(matches!(answer, Answer::Reverted { .. }), "{answer:?}");
            assert_eq!(bed.get(ECN), "2");
        }
    }
    assert!(refused > 0, "a client may have so many changes and no more");
    assert!(most < 2 << 20, "{most} bytes of journal");
    assert!(
        was_made(&bed.ask(2, &apply(vec![asked(RMEM, "4096 131072 7291456", &long)]))),
        "others may still"
    );
    assert_eq!(bed.persisted(), before);
    assert_eq!(bed.tuner().status().expect("readable").len(), 3);
    let undone = bed.tuner().revert(&[], Undo::All, &mut |_| {}).expect("it can be undone");
    assert!(undone.iter().all(|one| one.result.is_settled()), "{undone:?}");
    assert_eq!((bed.get(SACK), bed.get(ECN)), ("1".into(), "2".into()));
    assert_eq!(bed.journal_bytes(), 0, "nothing is left to undo");
}
