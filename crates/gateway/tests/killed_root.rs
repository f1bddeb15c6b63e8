//! A real process, killed with SIGKILL before every step of apply and of revert and before every single change of the
//! kernel, in a network namespace with objects of others: after the next revert everything is byte for byte what it was.
//!
//! The process is this test binary started anew for its test `child`.

#[path = "support/bed.rs"]
mod bed;

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;
use std::thread;

use bed::{PLAN, assert_same, dump, enter, follow_udp, furnish, ipv6, must};
use gateway::{Network, Options, apply, revert};
use route_plan::parse_plan;

const ACTION: &str = "GATEWAY_TEST_ACTION";
const KILL_AT: &str = "GATEWAY_TEST_KILL_AT";
const FOLDER: &str = "GATEWAY_TEST_FOLDER";

/// Not a test of its own: the body of the killed process.
#[test]
fn child() {
    let Some(action) = std::env::var_os(ACTION) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder"));
    let at: Option<usize> = std::env::var(KILL_AT).ok().and_then(|text| text.parse().ok());
    let step = Rc::new(Cell::new(0));
    let count = move |step: &Cell<usize>| {
        if at == Some(step.get()) {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("our own");
        }
        step.set(step.get() + 1);
    };
    let probed = Rc::clone(&step);
    let mut world = Network::with_probe(move || count(&probed));
    let mut witness = |_: tuning::Step<'_>| count(&step);
    let state = folder.join("state");
    if action == "revert" {
        let outcomes = revert(&state, false, &mut world, &mut witness).expect("the journal works");
        let left: Vec<_> = outcomes.iter().filter(|one| !one.result.is_settled()).collect();
        assert!(left.is_empty(), "{left:?}");
        return;
    }
    let text = std::fs::read_to_string(folder.join(action)).expect("a plan");
    let plan = parse_plan("plan", &text).expect("right");
    let options = Options { replaces_foreign: true, ..Options::new(&state, 1) };
    let role = plan.find("s1").expect("there");
    let made = apply(&plan, role, &options, &mut world, &mut witness).expect("applied");
    assert!(made.applied.left.is_empty(), "{made:?}");
    let failed = made.applied.outcomes.iter().find(|one| {
        matches!(one.result, tuning::ChangeResult::Failed { .. } | tuning::ChangeResult::RolledBack)
    });
    assert!(failed.is_none(), "{failed:?}");
}

struct Bench {
    folder: PathBuf,
}

impl Bench {
    fn here(name: &str) -> Option<Self> {
        if !enter() {
            return None;
        }
        furnish();
        let folder = std::env::temp_dir().join(format!("gateway-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder of our own");
        let hash = PLAN.replace("\"pairs\"", "\"hash\"");
        let resilient = ipv6(PLAN).replace("\"pairs\"", "\"resilient\"");
        for (name, text) in [("pairs", PLAN), ("hash", &hash), ("resilient", &resilient)] {
            std::fs::write(folder.join(name), text).expect("written");
        }
        std::fs::write(folder.join("pairs6"), ipv6(PLAN)).expect("written");
        std::fs::write(folder.join("follow"), follow_udp(PLAN)).expect("written");
        Some(Self { folder })
    }

    fn run(&self, action: &str, kill_at: Option<usize>) -> Output {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command
            .args(["--exact", "child", "--nocapture"])
            .env(ACTION, action)
            .env(FOLDER, &self.folder)
            .env_remove("RUST_BACKTRACE");
        if let Some(at) = kill_at {
            command.env(KILL_AT, at.to_string());
        }
        command.output().expect("it starts")
    }

    fn must(&self, action: &str) {
        let done = self.run(action, None);
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{action}: {text}{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Runs the action, killed at its step; false when it has no such step and ended by itself.
    fn kill(&self, action: &str, at: usize) -> bool {
        let ended = self.run(action, Some(at));
        let was_killed = ended.status.signal() == Some(9);
        let text = String::from_utf8_lossy(&ended.stdout);
        assert!(was_killed || ended.status.success(), "{action}: {text}");
        was_killed
    }

    fn is_settled(&self) -> bool {
        !Path::new(&self.folder).join("state/journal").exists()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// In a thread that enters a namespace of its own.
fn in_namespace(name: &'static str, test: impl FnOnce(Bench) + Send + 'static) {
    let body = move || {
        if let Some(bench) = Bench::here(name) {
            test(bench);
        }
    };
    thread::spawn(body).join().expect("the test");
}

/// A route of others where the plan's own goes, with attributes that this program knows nothing of.
fn stand_in_the_way() {
    must(
        "ip route add 10.100.0.2/32 via 10.10.0.250 dev ib0 proto static src 10.10.0.21 realm 9 mtu lock 1300",
    );
}

#[test]
fn killed_at_every_step_of_apply_the_next_revert_restores_everything_root() {
    in_namespace("apply", |bench| {
        stand_in_the_way();
        let before = dump();
        let mut kills_count = 0;
        for at in 0.. {
            if !bench.kill("pairs", at) {
                break;
            }
            kills_count += 1;
            bench.must("revert");
            assert_same(&dump(), &before, &format!("killed at step {at} of apply"));
            assert!(bench.is_settled());
        }
        assert!(kills_count > 18, "{kills_count} kill points");
        let applied = dump();
        assert!(applied.contains("proto 77") && !applied.contains("realm 9"), "{applied}");
        bench.must("revert");
        assert_same(&dump(), &before, "after everything");
    });
}

#[test]
fn killed_at_every_step_of_another_plan_the_next_revert_restores_everything_root() {
    in_namespace("change", |bench| {
        let before = dump();
        let mut kills_count = 0;
        for at in 0.. {
            bench.must("pairs");
            let was_killed = bench.kill("hash", at);
            bench.must("revert");
            assert_same(&dump(), &before, &format!("killed at step {at} of the second plan"));
            if !was_killed {
                break;
            }
            kills_count += 1;
        }
        assert!(kills_count > 10, "{kills_count} kill points");
    });
}

#[test]
fn killed_at_every_step_of_a_plan_that_follows_the_next_revert_restores_everything_root() {
    in_namespace("marked", |bench| {
        let before = dump();
        let mut kills_count = 0;
        for at in 0.. {
            // Another plan is there already, so that few steps are left, the marks among them.
            bench.must("pairs");
            let was_killed = bench.kill("follow", at);
            bench.must("revert");
            assert_same(&dump(), &before, &format!("killed at step {at} of the plan that follows"));
            if !was_killed {
                break;
            }
            kills_count += 1;
        }
        assert!(kills_count > 8, "{kills_count} kill points");
        let mut kills_count = 0;
        for at in 0.. {
            bench.must("follow");
            assert!(dump().contains("clearstream-77"));
            let was_killed = bench.kill("revert", at);
            bench.must("revert");
            assert_same(&dump(), &before, &format!("killed at step {at} of its revert"));
            if !was_killed {
                break;
            }
            kills_count += 1;
        }
        assert!(kills_count > 15, "{kills_count} kill points");
    });
}

#[test]
fn killed_at_every_step_of_revert_the_next_revert_restores_everything_root() {
    in_namespace("revert", |bench| {
        stand_in_the_way();
        let before = dump();
        let mut kills_count = 0;
        for at in 0.. {
            bench.must("pairs");
            let was_killed = bench.kill("revert", at);
            bench.must("revert");
            assert_same(&dump(), &before, &format!("killed at step {at} of revert"));
            if !was_killed {
                break;
            }
            kills_count += 1;
        }
        assert!(kills_count > 15, "{kills_count} kill points");
    });
}

#[test]
fn ipv6_plans_of_each_kind_are_applied_and_taken_back_root() {
    in_namespace("ipv6", |bench| {
        let before = dump();
        for kind in ["pairs6", "resilient"] {
            bench.must(kind);
            let applied = dump();
            assert!(applied.contains("fd00:c::"), "{applied}");
            bench.must(kind);
            assert_same(&dump(), &applied, "applied twice");
            bench.must("revert");
            assert_same(&dump(), &before, kind);
        }
    });
}
