//! Failures that `lab fail` plants do what they say and nothing else, and `lab mend` takes them back exactly.

use serde_json::Value;
use testkit::lab_bed::{LabBed, Traces, code, complaint, eventually, run, stdout};

/// A gate between two networks.
const GATE: &str = "[host.near]\n[host.gate]\n[host.far]\n\
    [[switch]]\nname = \"inner\"\nhosts = [\"near\", \"gate\"]\n\
    [[switch]]\nname = \"outer\"\nhosts = [\"gate\", \"far\"]\n";

/// Everything of a host that a failure could leave behind.
const STATE: &str = "ip -d link; ip -d addr; ip rule; ip -6 rule; ip route show table all; \
    ip -6 route show table all; ip nexthop; \
    cd /proc/sys/net; grep -r . ipv4/ip_forward ipv4/conf ipv6/conf | grep -e forward -e redirects | sort";

fn fail(bed: &LabBed, words: &[&str]) -> std::process::Output {
    run(&[&["lab", "fail"], words, &["--lab", &bed.name]].concat())
}

fn mend(bed: &LabBed, words: &[&str]) -> std::process::Output {
    run(&[&["lab", "mend"], words, &["--lab", &bed.name]].concat())
}

fn state(bed: &LabBed) -> String {
    // A TAP device that nobody has told its state says UNKNOWN until its carrier first changes; both are up.
    stdout(&bed.exec("gate", &["sh", "-c", STATE])).replace("state UNKNOWN", "state UP")
}

fn reaches(bed: &LabBed, host: &str) -> bool {
    bed.exec("near", &["ping", "-c1", "-W1", host]).status.success()
}

/// The gate's carriers, as it sees them.
fn carriers(bed: &LabBed) -> String {
    let read = "cat /sys/class/net/eth0/carrier /sys/class/net/eth1/carrier";
    stdout(&bed.exec("gate", &["sh", "-c", read])).replace('\n', "")
}

#[test]
fn root_every_failure_does_what_it_says_and_is_taken_back_exactly() {
    let Some(bed) = LabBed::up_with("failures", GATE) else { return };
    eventually("the lab carries", || reaches(&bed, "far"));
    // What the failure is, whether the gate still answers, its carriers, and a word of the line.
    let failures: [(&[&str], bool, &str, &str); 6] = [
        (&["gate", "forward"], true, "11", "gate forwards nothing"),
        (&["gate", "hang"], false, "11", "gate hangs: eth0 and eth1 carry no traffic"),
        (&["gate", "port", "eth0"], false, "11", "gate: eth0 carries no traffic"),
        (&["gate", "port", "outer"], true, "11", "gate: eth1 carries no traffic"),
        (&["gate", "carrier", "inner"], false, "01", "gate: eth0 has no carrier"),
        (&["gate", "carrier", "eth1"], true, "10", "gate: eth1 has no carrier"),
    ];
    for (words, answers, is_carried, line) in failures {
        let before = state(&bed);
        let failed = fail(&bed, words);
        assert_eq!(code(&failed), 0, "{words:?}: {}", complaint(&failed));
        assert!(stdout(&failed).starts_with(line), "{words:?}: {}", stdout(&failed));
        assert!(!reaches(&bed, "far"), "{words:?}: nothing passes");
        // An answer may come late, or be lost with the question for the gate's address; none comes of one that is gone.
        if answers {
            eventually("the gate itself answers", || reaches(&bed, "gate"));
        } else {
            assert!(!reaches(&bed, "gate"), "{words:?}: the gate itself");
        }
        assert_eq!(carriers(&bed), is_carried, "{words:?}");
        assert_eq!(bed.status()["failures"][0]["kind"], words[1]);
        let mended = mend(&bed, words);
        assert_eq!(code(&mended), 0, "{words:?}: {}", complaint(&mended));
        assert_eq!(state(&bed), before, "{words:?}");
        assert_eq!(bed.status()["failures"], Value::Array(Vec::new()));
        eventually("it carries again", || reaches(&bed, "far"));
    }
}

#[test]
fn root_a_failure_is_refused_twice_and_several_end_together() {
    let Some(bed) = LabBed::up_with("twice", GATE) else { return };
    let before = state(&bed);
    let refused = |output: std::process::Output, exit: i32, words: &str| {
        assert_eq!(code(&output), exit, "{}", complaint(&output));
        assert!(complaint(&output).contains(words), "{}", complaint(&output));
        assert_eq!(complaint(&output).trim_end().lines().count(), 1);
    };
    refused(fail(&bed, &["gone", "hang"]), 2, "has no host 'gone'; it has near, gate, far");
    refused(fail(&bed, &["gate", "port", "eth9"]), 2, "no port 'eth9'; it has eth0 (inner)");
    refused(fail(&bed, &["gate", "carrier"]), 2, "which port?");
    refused(fail(&bed, &["near", "forward"]), 2, "it already forwards nothing");
    refused(fail(&bed, &["gate", "burn"]), 2, "unknown failure 'burn'");
    refused(mend(&bed, &["gate"]), 1, "host gate has no failure: nothing to mend");
    assert_eq!(state(&bed), before, "what is refused changes nothing");
    for words in [&["gate", "forward"][..], &["gate", "port", "eth0"], &["gate", "carrier", "eth1"]]
    {
        assert_eq!(code(&fail(&bed, words)), 0, "{words:?}");
        refused(fail(&bed, words), 1, "already");
    }
    refused(fail(&bed, &["gate", "hang"]), 1, "eth0 carries no traffic");
    refused(mend(&bed, &["gate", "port", "eth1"]), 1, "has no failure by port");
    let mended = mend(&bed, &["gate"]);
    assert_eq!(stdout(&mended).lines().count(), 3, "{}", stdout(&mended));
    assert_eq!(state(&bed), before);
    // Nothing outlives the lab.
    assert_eq!(code(&fail(&bed, &["gate", "hang"])), 0);
    bed.kill_anchor();
    eventually("no process is left", || bed.traces().processes.is_empty());
    run(&["lab", "list"]);
    assert_eq!(bed.traces(), Traces::default(), "and the next command removes the rest");
}
