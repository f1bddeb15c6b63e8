//! Labs as a user meets them: up, exec, status, down, and nothing left behind, whatever is killed.
//!
//! Tests with `root` in their name need root or user namespaces; where neither is to be had they
//! print why they were skipped.

#[path = "lab/chroot.rs"]
mod chroot;
#[path = "lab/failures.rs"]
mod failures;
#[path = "lab/library.rs"]
mod library;
#[path = "lab/shared.rs"]
mod shared;
#[path = "lab/wire.rs"]
mod wire;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;

use testkit::lab_bed::{
    self, LabBed, Traces, clearstream, code, complaint, eventually, run, stdout,
};

const PLAIN: &str = "delay = \"1ms\"\nrate = \"10Gbit\"";

#[test]
fn a_typo_gets_one_line_and_nothing_happens() {
    let bed = LabBed::file("typo", "dealy = \"1ms\"");
    let refused = run(&["lab", "up", bed.path()]);
    assert_eq!(code(&refused), 2);
    let line = complaint(&refused);
    assert!(line.contains("lab.toml:6: unknown key 'dealy'; did you mean 'delay'?"), "{line}");
    assert!(!bed.is_up());
}

#[test]
fn a_core_that_is_not_there_gets_one_line_and_nothing_happens() {
    let bed = LabBed::file("core", "cores = [0, 1023]");
    let refused = run(&["lab", "up", bed.path()]);
    let line = complaint(&refused);
    assert_eq!(code(&refused), 2, "{line}");
    assert!(line.contains(": core 1023: there is no such core"), "{line}");
    assert!(!bed.is_up());
}

#[test]
fn unknown_names_are_usage_errors() {
    for (arguments, words) in [
        (&["lab", "up", "glif2011"][..], "no lab 'glif2011'; built in: glif2010,"),
        (&["lab", "up", "/no/such/file.toml"], "cannot read /no/such/file.toml: "),
        (&["lab", "exec", "no-such-lab", "a", "--", "true"], "lab 'no-such-lab' is not up"),
        (&["lab", "status", "../labs"], "lab '../labs' is not up"),
    ] {
        let refused = run(arguments);
        assert!(matches!(code(&refused), 1 | 2), "{arguments:?}");
        assert!(complaint(&refused).contains(words), "{}", complaint(&refused));
    }
}

#[test]
fn down_of_what_is_not_up_fails_unless_a_script_allows_it() {
    let down = run(&["lab", "down", "never-was-up"]);
    assert_eq!(code(&down), 1);
    assert!(complaint(&down).contains("lab 'never-was-up' is not up"), "{}", complaint(&down));
    let down = run(&["lab", "down", "never-was-up", "--if-up"]);
    assert_eq!(code(&down), 0, "{}", complaint(&down));
    assert!(stdout(&down).starts_with("lab 'never-was-up' is not up"), "{}", stdout(&down));
    let down = run(&["--json", "lab", "down", "--if-up", "never-was-up"]);
    assert_eq!(stdout(&down).trim(), r#"{"down":[{"name":"never-was-up","was_up":false}]}"#);
}

#[test]
fn a_misspelt_parameter_or_address_gets_its_line_and_nothing_happens() {
    for (keys, message) in [
        (
            "[host.near.sysctl]\n\"net.ipv4.tcp_rmen\" = \"1 2 3\"",
            ":7: the kernel has no parameter 'net.ipv4.tcp_rmen'; did you mean 'net.ipv4.tcp_rmem'?",
        ),
        (
            "addresses = { near = [\"10.77.0.2/24\"] }",
            ":6: 'far' has the address 10.77.0.2 of 'near'",
        ),
    ] {
        let bed = LabBed::file("address", keys);
        let refused = run(&["lab", "up", bed.path()]);
        assert_eq!(code(&refused), 2);
        assert!(complaint(&refused).contains(message), "{}", complaint(&refused));
        assert!(!bed.is_up());
    }
}

#[test]
fn built_in_files_can_be_printed() {
    let shown = run(&["lab", "show", "glif2010"]);
    assert!(stdout(&shown).contains("name = \"glif2010\""));
    let shown = run(&["--json", "lab", "show", "glif2010"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(shown["plan"]["hosts"][0]["name"], "amsterdam");
}

#[test]
fn root_up_exec_down_leaves_nothing() {
    let Some(bed) = LabBed::up("cycle", PLAIN) else { return };
    let hosts = bed.exec("near", &["cat", "/etc/hosts"]);
    assert!(stdout(&hosts).contains("10.77.0.2 far\nfd77::2 far\n"), "{}", stdout(&hosts));
    let interfaces = bed.exec("near", &["ls", "/sys/class/net"]);
    assert_eq!(stdout(&interfaces), "eth0\nlo\n");
    assert_eq!(stdout(&bed.exec("far", &["hostname"])), "far\n");
    let named = run(&["lab", "exec", "--lab", &bed.name, "far", "--", "hostname"]);
    assert_eq!(stdout(&named), "far\n", "{}", complaint(&named));
    let misspelt = run(&["lab", "down", &format!("{}x", bed.name)]);
    let advice = format!("; did you mean '{}'?", bed.name);
    assert_eq!(code(&misspelt), 1);
    assert!(complaint(&misspelt).contains(&advice), "{}", complaint(&misspelt));
    assert_eq!(
        stdout(&bed.exec("far", &["printenv", "CLEARSTREAM_LAB"])),
        format!("{}\n", bed.name)
    );
    let detached = run(&["lab", "exec", "--detach", &bed.name, "near", "--", "sleep", "600"]);
    let keeper = stdout(&detached).trim().to_owned();
    let said = complaint(&detached);
    let log = said.trim().split("output in ").nth(1).expect("it says which log it writes");
    assert!(std::path::Path::new(log).is_file(), "{said}");
    assert!(Traces::process(&keeper), "the detached program's keeper runs");
    let before = bed.traces();
    assert!(before.processes.len() >= 2 && before.state, "{before:?}");
    let down = run(&["lab", "down", &bed.name]);
    assert_eq!(code(&down), 0, "{}", complaint(&down));
    eventually("nothing of the lab is left", || bed.traces() == Traces::default());
    assert_eq!(code(&run(&["lab", "down", &bed.name, "--if-up"])), 0, "twice is fine");
    assert_eq!(code(&run(&["lab", "down", &bed.name])), 1);
}

/// A lock, which is the kernel's, stays taken until each copy of its descriptor is closed.
#[test]
fn root_a_lab_and_its_detached_programs_hold_no_descriptor_of_who_started_them() {
    let Some(_other) = LabBed::up("holds", PLAIN) else { return };
    let bed = LabBed::file("lock", PLAIN);
    let script = "exec 9>\"$1.lock\" && flock -n 9 && \"$0\" lab up \"$1\" --while \"$2\" >&2 \
        && exec \"$0\" lab exec --detach \"$3\" near -- sleep 600";
    let owner = std::process::id().to_string();
    let started = Command::new("sh")
        .args(["-c", script, testkit::program(), bed.path(), &owner, &bed.name])
        .output()
        .expect("sh");
    assert_eq!(code(&started), 0, "{}", complaint(&started));
    assert!(Traces::process(stdout(&started).trim()), "the detached program's keeper runs");
    let lock = format!("{}.lock", bed.path());
    let taken = Command::new("flock").args(["-n", &lock, "true"]).status().expect("util-linux");
    assert!(taken.success(), "whoever started them has ended, and the lock is still held");
}

#[test]
fn root_a_parameter_that_the_kernel_refuses_ends_up_and_leaves_nothing() {
    // Whether labs can be had at all.
    let Some(_other) = LabBed::up("takes", PLAIN) else { return };
    for (parameter, advice) in [
        ("\"net.ipv4.tcp_rmem\" = \"one two three\"", "write a value in the lab file that"),
        (
            "\"net.ipv4.tcp_congestion_control\" = \"nosuch\"",
            "write a value in the lab file that the kernel accepts",
        ),
        (
            "\"net.ipv4.tcp_available_congestion_control\" = \"cubic\"",
            "no network namespace may set it; remove it from the lab file",
        ),
    ] {
        let bed = LabBed::file("refused", &format!("{PLAIN}\n[host.far.sysctl]\n{parameter}"));
        let refused = bed.run_up();
        let line = complaint(&refused);
        assert_eq!(code(&refused), 4, "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.contains("host far: the kernel refuses the sysctl "), "{line}");
        assert!(line.contains(advice), "{line}");
        eventually("nothing of the lab is left", || bed.traces() == Traces::default());
    }
}

#[test]
fn root_of_several_labs_one_must_be_named() {
    let Some(first) = LabBed::up("one", PLAIN) else { return };
    let Some(second) = LabBed::up("two", PLAIN) else { return };
    let refused = run(&["lab", "exec", "near", "--", "true"]);
    let line = complaint(&refused);
    assert_eq!(code(&refused), 2, "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    for words in [" labs are up: ", &first.name, &second.name, "name one of them with --lab"] {
        assert!(line.contains(words), "{line}");
    }
    // As the line says.
    let status = run(&["lab", "status", "--lab", &first.name]);
    let one = stdout(&status);
    assert!(one.contains(&first.name) && !one.contains(&second.name), "{one}");
    let down = run(&["lab", "down", "--lab", &first.name]);
    assert_eq!(code(&down), 0, "{}", complaint(&down));
    let status = run(&["lab", "status"]);
    let left = stdout(&status);
    assert!(!left.contains(&first.name) && left.contains(&second.name), "{left}");
}

#[test]
fn root_up_twice_is_the_same_lab_and_another_plan_is_refused() {
    let Some(bed) = LabBed::up("twice", PLAIN) else { return };
    let again = bed.run_up();
    assert_eq!(code(&again), 0);
    assert!(stdout(&again).contains("is up already"), "{}", stdout(&again));
    let other = LabBed::file_named(&bed.name, "delay = \"2ms\"");
    let refused = other.run_up();
    assert_eq!(code(&refused), 1);
    assert!(complaint(&refused).contains("is up with another plan"), "{}", complaint(&refused));
    assert!(bed.is_up());
}

#[test]
fn root_two_ups_at_once_make_one_lab() {
    let Some(probe) = LabBed::up("race-probe", PLAIN) else { return };
    drop(probe);
    let bed = LabBed::file("race", PLAIN);
    let ups: Vec<_> = (0..4)
        .map(|_| {
            clearstream(&["--json", "lab", "up", bed.path()])
                .stdout(Stdio::piped())
                .spawn()
                .expect("the program starts")
        })
        .collect();
    let answers: Vec<serde_json::Value> = ups
        .into_iter()
        .map(|up| {
            let done = up.wait_with_output().expect("it ends");
            assert!(done.status.success());
            serde_json::from_slice(&done.stdout).expect("JSON")
        })
        .collect();
    let news = answers.iter().filter(|answer| answer["already_up"] == false).count();
    assert_eq!(news, 1, "{answers:?}");
    assert!(answers.iter().all(|answer| answer["pid"] == answers[0]["pid"]));
}

#[test]
fn root_a_lab_goes_with_its_owner() {
    let bed = LabBed::file("owned", PLAIN);
    let mut owner = Command::new("sleep").arg("600").spawn().expect("sleep runs");
    let owner_pid = owner.id().to_string();
    let up = run(&["lab", "up", bed.path(), "--while", &owner_pid]);
    if code(&up) == 4 {
        owner.kill().expect("it runs");
        owner.wait().expect("it ends");
        println!("skipped: {}", complaint(&up));
        return;
    }
    assert_eq!(code(&up), 0, "{}", complaint(&up));
    assert_eq!(bed.status()["owner_pid"].to_string(), owner_pid);
    let refused = run(&["lab", "up", bed.path()]);
    assert_eq!(code(&refused), 1);
    assert!(complaint(&refused).contains("belongs to process"), "{}", complaint(&refused));
    run(&["lab", "exec", "--detach", &bed.name, "far", "--", "sleep", "600"]);
    owner.kill().expect("it runs");
    owner.wait().expect("it ends");
    eventually("the lab is gone", || bed.traces().processes.is_empty() && !bed.is_up());
    let refused = run(&["lab", "up", bed.path(), "--while", &owner_pid]);
    assert_eq!((code(&refused), bed.is_up()), (2, false), "{}", complaint(&refused));
}

#[test]
fn root_hosts_between_two_others_forward() {
    let bed = LabBed::file("chain", PLAIN);
    let text = format!(
        "name = \"{}\"\n[host.near]\n[host.one]\n[host.two]\n[host.far]\n\
         [[link]]\nbetween = [\"near\", \"one\"]\ndelay = \"1ms\"\n\
         [[link]]\nbetween = [\"one\", \"two\"]\nwire = \"veth\"\n\
         [[link]]\nbetween = [\"two\", \"far\"]\ndelay = \"1ms\"\n",
        bed.name
    );
    std::fs::write(bed.path(), text).expect("the lab file");
    let up = run(&["lab", "up", bed.path()]);
    if code(&up) == 4 {
        println!("skipped: {}", complaint(&up));
        return;
    }
    assert_eq!(code(&up), 0, "{}", complaint(&up));
    // The far host itself answers that nobody listens there.
    for family in ["-4", "-6"] {
        let refused = bed.exec("near", &[crate::PROGRAM, "test", "far", family]);
        assert!(complaint(&refused).contains("nothing listens on far"), "{}", complaint(&refused));
    }
}

/// Waits until a program on a host says that it runs.
fn until_up(program: &mut Child) {
    let mut line = String::new();
    let mut out = BufReader::new(program.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("it speaks");
    assert_eq!(line, "up\n");
}

#[test]
fn root_sigkill_of_the_lab_leaves_nothing() {
    let Some(bed) = LabBed::up("killed", PLAIN) else { return };
    let mut inside = bed.spawn("near", &["sh", "-c", "echo up; sleep 600 & setsid sleep 600"]);
    until_up(&mut inside);
    run(&["lab", "exec", "--detach", &bed.name, "far", "--", "sleep", "600"]);
    bed.kill_anchor();
    let ended = inside.wait().expect("lab exec ends with its program");
    assert_eq!(ended.code(), Some(137));
    eventually("no process and no device is left", || bed.traces().processes.is_empty());
    assert!(!bed.is_up(), "what is left of the state does not count");
    run(&["lab", "list"]);
    assert_eq!(bed.traces(), Traces::default(), "and the next command removes it");
    assert_eq!(code(&run(&["lab", "up", bed.path()])), 0, "the name is free again");
}

#[test]
fn root_sigkill_of_exec_takes_all_it_started() {
    let Some(bed) = LabBed::up("execkill", PLAIN) else { return };
    let alone = bed.traces().processes.len();
    let mut exec = bed.spawn("near", &["sh", "-c", "sleep 600 & setsid sleep 600 & sleep 600"]);
    eventually("the program runs", || bed.traces().processes.len() >= alone + 5);
    exec.kill().expect("it runs");
    exec.wait().expect("it ends");
    eventually("all it started is gone", || bed.traces().processes.len() == alone);
    assert!(bed.is_up(), "the lab itself stays");
}

#[test]
fn root_exec_passes_codes_signals_and_orphans() {
    let Some(bed) = LabBed::up("exec", PLAIN) else { return };
    assert_eq!(code(&bed.exec("near", &["sh", "-c", "exit 7"])), 7);
    assert_eq!(code(&bed.exec("near", &["sh", "-c", "kill -TERM $$"])), 143);
    let missing = bed.exec("near", &["no-such-program"]);
    assert_eq!(
        (code(&missing), complaint(&missing)),
        (127, "clearstream: no such program: no-such-program")
    );
    assert_eq!(code(&bed.exec("near", &["/etc/passwd"])), 126);
    assert_eq!(code(&bed.exec("neer", &["true"])), 2);
    let mut sleeper = bed.spawn("near", &["sh", "-c", "echo up; exec sleep 600"]);
    until_up(&mut sleeper);
    let pid = rustix::process::Pid::from_child(&sleeper);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("runs");
    let done = sleeper.wait().expect("it ends");
    assert_eq!(done.code(), Some(143), "SIGTERM reaches the program");
    let mut daemon = bed.spawn("near", &["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo said"]);
    let mut said = String::new();
    daemon.stdout.take().expect("piped").read_to_string(&mut said).ok();
    assert_eq!(daemon.wait().expect("it ends").code(), Some(0));
}

#[test]
fn root_limits_on_namespaces_are_exit_code_4() {
    let Some(_bed) = LabBed::up("allowed", PLAIN) else { return };
    let bed = LabBed::file("forbidden", PLAIN);
    for script in [
        "echo 0 > /proc/sys/user/max_net_namespaces; exec \"$@\"",
        "echo 0 > /proc/sys/user/max_user_namespaces; \
         exec setpriv --inh-caps=-all --bounding-set=-all \"$@\"",
    ] {
        let refused = Command::new("unshare")
            .args(["--user", "--map-root-user", "sh", "-c", script, "sh", crate::PROGRAM])
            .args(["lab", "up", bed.path()])
            .output()
            .expect("unshare is part of util-linux");
        assert_eq!(code(&refused), 4, "{}", complaint(&refused));
        assert!(complaint(&refused).contains("unshare"), "{}", complaint(&refused));
    }
}

#[test]
fn root_an_unprivileged_user_has_labs_too() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    lab_bed::as_nobody();
}

#[test]
fn status_answers_while_labs_come_and_go_root() {
    let Some(_first) = LabBed::up("comes", PLAIN) else { return };
    let busy = thread::spawn(|| (0..6).for_each(|_| drop(LabBed::up("goes", PLAIN))));
    while !busy.is_finished() {
        let status = run(&["--json", "lab", "status"]);
        assert!(status.status.success(), "{}", complaint(&status));
    }
    busy.join().expect("labs come and go");
}
