//! A real process, killed with SIGKILL at every step of apply and of revert, in a network namespace
//! with real devices: after the next revert a dump of every setting is what it was before.
//!
//! The process is this test binary started anew for its test `child`; it runs in a mount namespace of
//! its own with the `/sys` of its network namespace.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::thread;

use tuning::{Change, Host, Key, Policy, Tuner, every_key};

/// What the child shall do: `apply`, `revert` or `dump`.
const ACTION: &str = "TUNING_TEST_ACTION";
/// The step at which it kills itself.
const KILL_AT: &str = "TUNING_TEST_KILL_AT";
/// Its directory: `state` and `root` lie in it.
const FOLDER: &str = "TUNING_TEST_FOLDER";

/// The settings changed, one of each way there is to set one.
fn changes(congestion: &str) -> Vec<Change> {
    let wanted = [
        ("net.ipv4.tcp_rmem", "4096 131072 50331648"),
        ("net.ipv4.tcp_wmem", "4096 16384 50331648"),
        ("net.ipv4.tcp_slow_start_after_idle", "0"),
        ("net.ipv4.tcp_congestion_control", congestion),
        ("v0/mtu", "9000"),
        ("v0/txqueuelen", "4321"),
        ("v0/qdisc", "pfifo_fast"),
        ("v0/channels-rx", "2"),
        ("v0/feature-tx-tcp-segmentation", "off"),
        ("v0/rx-0/rps_cpus", "3"),
        // Rounded up to 128 by the kernel.
        ("v0/rx-0/rps_flow_cnt", "100"),
        // A veth polls, and so has threads to poll in, once it joins packets.
        ("v0/feature-rx-gro", "on"),
        ("v0/threaded", "1"),
    ];
    let change = |(key, to): (&str, &str)| Change {
        key: key.parse().expect("known"),
        from: None,
        to: to.to_owned(),
        why: "a test".to_owned(),
        source: String::new(),
    };
    wanted.into_iter().map(change).collect()
}

/// Not a test of its own: the body of the killed process.
#[test]
fn child() {
    let Some(action) = std::env::var_os(ACTION) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder"));
    let at: Option<usize> = std::env::var(KILL_AT).ok().and_then(|text| text.parse().ok());
    let tuner = Tuner::new(Host::with_root(&folder.join("root")), &folder.join("state"), 1);
    let mut step = 0;
    let mut witness = |_: tuning::Step<'_>| {
        if at == Some(step) {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("our own");
        }
        step += 1;
    };
    match action.to_str() {
        Some("apply") => {
            let known = tuner.read(&[key("net.ipv4.tcp_congestion_control")]);
            let now = known.values().next().cloned().unwrap_or_default();
            let other = if now == "reno" { "bbr" } else { "reno" };
            let applied = tuner
                .apply(&changes(other), Policy::AllOrNothing, true, &mut witness)
                .expect("the journal works");
            let failed = applied
                .outcomes
                .iter()
                .find(|one| matches!(one.result, tuning::ChangeResult::Failed { .. }));
            assert!(failed.is_none(), "{failed:?}");
            let rounded = applied.outcomes.iter().any(|one| {
                one.result == tuning::ChangeResult::Applied { now: "128".into() } && one.to == "100"
            });
            assert!(rounded, "the kernel rounds a flow table: {:?}", applied.outcomes);
        }
        Some("revert") => {
            let outcomes =
                tuner.revert(&[], tuning::Undo::All, &mut witness).expect("the journal works");
            let left: Vec<_> = outcomes.iter().filter(|one| !one.result.is_settled()).collect();
            assert!(left.is_empty(), "{left:?}");
        }
        _ => print_dump(&tuner),
    }
    println!("steps {step}");
}

fn key(text: &str) -> Key {
    text.parse().expect("known")
}

fn print_dump(tuner: &Tuner) {
    let names: Vec<String> = topology::interfaces().into_iter().map(|link| link.name).collect();
    for (key, value) in tuner.read(&every_key(&names)) {
        println!("dump {key} = {value:?}");
    }
}

/// A network namespace of its own with a veth pair, held by a thread.
struct Testbed {
    folder: PathBuf,
}

impl Testbed {
    /// Makes it for the calling thread, which every child is then started from.
    fn here(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can create network namespaces");
            return None;
        }
        let _namespace = sys::namespace::unshare_network().expect("root may");
        let must = |line: &str| {
            let mut words = line.split(' ');
            let program = words.next().expect("a program");
            let done = Command::new(program).args(words).output().expect("iproute2 is there");
            assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
        };
        must("ip link add v0 numrxqueues 2 numtxqueues 2 type veth peer name v1");
        must("ip link set v0 up");
        must("ip link set v1 up");
        let folder = std::env::temp_dir().join(format!("tuning-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("root")).expect("a folder of our own");
        Some(Self { folder })
    }

    fn run(&self, action: &str, kill_at: Option<usize>) -> Output {
        let program = std::env::current_exe().expect("this test");
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg("mount -t sysfs sysfs /sys && exec \"$0\" --exact killed_root::child --nocapture")
            .arg(program)
            .env(ACTION, action)
            .env(FOLDER, &self.folder)
            .env_remove("RUST_BACKTRACE");
        if let Some(at) = kill_at {
            command.env(KILL_AT, at.to_string());
        }
        command.output().expect("unshare is part of util-linux")
    }

    fn must(&self, action: &str) -> String {
        let done = self.run(action, None);
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{action}: {text}{}", String::from_utf8_lossy(&done.stderr));
        text
    }

    fn dump(&self) -> Vec<String> {
        let text = self.must("dump");
        let lines: Vec<String> =
            text.lines().filter(|line| line.starts_with("dump ")).map(str::to_owned).collect();
        assert!(lines.len() > 60, "{} settings", lines.len());
        lines
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn was_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(9)
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder.join("state")).map_or(0, Iterator::count) <= 1
}

#[test]
fn root_killed_at_every_step_of_apply_the_next_revert_restores_everything() {
    thread::spawn(|| {
        let Some(bed) = Testbed::here("apply") else { return };
        let before = bed.dump();
        let mut kills = 0;
        for at in 0.. {
            let ended = bed.run("apply", Some(at));
            if !was_killed(ended.status) {
                assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
                break;
            }
            kills += 1;
            bed.must("revert");
            assert_eq!(bed.dump(), before, "killed at step {at} of apply");
            assert!(is_empty(&bed.folder), "the journal is gone");
        }
        assert!(kills > 40, "{kills} kill points");
        assert_ne!(bed.dump(), before, "the whole apply changed something");
        bed.must("revert");
        assert_eq!(bed.dump(), before);
    })
    .join()
    .expect("the test");
}

#[test]
fn root_killed_at_every_step_of_revert_the_next_revert_restores_everything() {
    thread::spawn(|| {
        let Some(bed) = Testbed::here("revert") else { return };
        let before = bed.dump();
        let mut kills = 0;
        for at in 0.. {
            bed.must("apply");
            let ended = bed.run("revert", Some(at));
            if !was_killed(ended.status) {
                assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
                break;
            }
            kills += 1;
            bed.must("revert");
            assert_eq!(bed.dump(), before, "killed at step {at} of revert");
        }
        assert!(kills > 30, "{kills} kill points");
        assert_eq!(bed.dump(), before);
        bed.must("revert");
        assert_eq!(bed.dump(), before, "a revert with nothing to undo changes nothing");
    })
    .join()
    .expect("the test");
}
