//! Hosts that share a switch.

use std::os::unix::fs::FileTypeExt;

use crate::PROGRAM;
use testkit::lab_bed::{LabBed, Traces, code, complaint, eventually, run, stdout};

const THREE: &str = "[host.a]\n[host.b]\n[host.c]\n\
                     [[switch]]\nname = \"lan\"\nhosts = [\"a\", \"b\", \"c\"]\nmtu = 9000\n";

fn ping(bed: &LabBed, from: &str, to: &str) {
    let ping = bed.exec(from, &["ping", "-c", "2", "-i", "0.02", "-W", "10", to]);
    assert!(ping.status.success(), "{from} to {to}: {}", stdout(&ping));
}

#[test]
fn root_a_line_to_each_host_takes_its_time() {
    let sections = format!("{THREE}delay = \"5ms\"\nrate = \"1Gbit\"\n");
    let Some(bed) = LabBed::up_with("slow-lan", &sections) else { return };
    // Learns the addresses, which takes a round trip more.
    ping(&bed, "a", "b");
    let pinged = bed.exec("a", &["ping", "-c", "5", "-i", "0.02", "-W", "10", "b"]);
    let text = stdout(&pinged);
    let least = text.split(" = ").nth(1).and_then(|times| times.split('/').next());
    let least: f64 = least.and_then(|ms| ms.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    // To the switch, to the host, and back.
    assert!((20.0..200.0).contains(&least), "{text}");
    eventually("the line's counters follow", || {
        let ports = bed.status()["switches"][0]["ports"].clone();
        ports[1]["from_switch"]["delivered_pkts"].as_u64() >= Some(7)
    });
}

/// The threads of a lab's switch have given up the system calls they have no need of, the anchor's other
/// threads have not: programs on hosts are begun by them.
fn assert_confined(bed: &LabBed) {
    let anchor = bed.status()["pid"].as_i64().expect("a pid");
    let mut confined = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{anchor}/task")).expect("it runs").flatten() {
        // A thread may have ended since.
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let name = status.lines().next().unwrap_or_default().replace("Name:\t", "");
        if status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1") {
            confined.push(name);
        } else {
            assert_ne!(name, "switches", "{status}");
        }
    }
    assert!(confined.contains(&"switches".to_owned()), "{confined:?}");
    // The switch's thread, and those for the hosts' devices.
    assert!(confined.len() >= 3, "{confined:?}");
    let main = std::fs::read_to_string(format!("/proc/{anchor}/status")).expect("it runs");
    let ours = std::fs::read_to_string("/proc/self/status").expect("so do we");
    let line =
        |text: &str| text.lines().find(|line| line.starts_with("Seccomp:")).map(str::to_owned);
    assert_eq!(line(&main), line(&ours));
}

#[test]
fn root_three_hosts_share_a_switch_and_nothing_is_left() {
    let Some(bed) = LabBed::up_with("lan", THREE) else { return };
    let socket = bed.status()["switches"][0]["socket"].clone();
    let is_socket = |path: &str| std::fs::metadata(path).is_ok_and(|it| it.file_type().is_socket());
    assert!(socket.as_str().is_some_and(is_socket), "{socket}");
    assert_confined(&bed);
    for (from, to) in [("a", "b"), ("b", "c"), ("c", "a")] {
        ping(&bed, from, to);
    }
    let serve = run(&["lab", "exec", "--detach", &bed.name, "c", "--", PROGRAM, "serve"]);
    assert_eq!(code(&serve), 0, "{}", complaint(&serve));
    // Refused until it listens.
    eventually("a test runs", || {
        bed.exec("a", &[PROGRAM, "test", "c", "--bytes", "16M"]).status.success()
    });
    let port = |host: usize| bed.status()["switches"][0]["ports"][host].clone();
    eventually("the counters follow", || port(2)["outgoing"]["bytes"].as_u64() >= Some(16_000_000));
    assert_eq!(port(0)["host"], "a");
    // A frame goes where its address was seen: of the test host b saw next to nothing.
    let bytes = port(1)["outgoing"]["bytes"].as_u64().expect("a count");
    assert!(bytes < 1_000_000, "{bytes} bytes for a host that nobody spoke to");
    let status = run(&["lab", "status", &bed.name]);
    let text = stdout(&status);
    assert!(
        text.contains("switch lan: 3 ports, MTU 9000, socket ") && text.contains("c:eth0: sent")
    );
    // The switch answers to whom any packet switch answers.
    let socket = text
        .split("MTU 9000, socket ")
        .nth(1)
        .and_then(|rest| rest.lines().next())
        .expect("a socket");
    let ports = run(&["port", "list", "--socket", socket]);
    assert!(stdout(&ports).contains("lan:c"), "{}", stdout(&ports));
    bed.kill_anchor();
    eventually("no process and no device is left", || bed.traces().processes.is_empty());
    run(&["lab", "list"]);
    assert_eq!(bed.traces(), Traces::default());
    assert_eq!(code(&run(&["lab", "up", bed.path()])), 0, "the name is free again");
}
