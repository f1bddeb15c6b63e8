//! The switch is killed and started again under those who send, take in, send back and pass on.

use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use super::Switch;

fn outcome(child: Child) -> (Value, String) {
    let output = child.wait_with_output().unwrap();
    // Missing frames are found by the check: exit code 3.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

#[test]
fn a_generator_and_a_sink_go_on_at_the_next_switch() {
    let mut switch = Switch::run("restart");
    let sink = switch.start("pkt sink vale0:b --check --quiet 2s --json");
    switch.wait_for_clients(1);
    // A second and a half of frames.
    let count = 3000;
    let words = format!("pkt gen vale0:a --count {count} --rate 2000 --stamp --json");
    let generator = switch.start(&words);
    switch.wait_for_clients(2);
    std::thread::sleep(Duration::from_millis(200));
    switch.replace();
    switch.wait_for_clients(2);
    let (sent, sender_said) = outcome(generator);
    let (received, receiver_said) = outcome(sink);
    for said in [sender_said, receiver_said] {
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 2, "once each: {said}");
        assert!(lines[0].contains("the switch has ended; waiting for the next one"), "{said}");
        assert!(lines[1].contains("the switch is back after"), "{said}");
    }
    assert_eq!(sent["frames"], count);
    assert_eq!(
        (&sent["outage"]["reconnects"], &received["outage"]["reconnects"]),
        (&1.into(), &1.into())
    );
    assert!(sent["outage"]["away_s"].as_f64().unwrap() > 0.0);
    // Every frame either came or is missing between two that did, but for those at the end.
    let number = |value: &Value| value.as_u64().unwrap();
    let known = number(&received["frames"]) + number(&received["missing"]);
    assert!((count * 9 / 10..=count).contains(&known), "{sent} {received}");
    assert_eq!((&received["late"], &received["foreign"]), (&0.into(), &0.into()));
    assert!(number(&received["frames"]) > count / 2, "{received}");
}

#[test]
fn ping_bridge_and_echo_go_on_at_the_next_switch() {
    let mut switch = Switch::run("restart-echo");
    let echo = switch.start("pkt echo vale1:b --json");
    let bridge = switch.start("pkt bridge vale0:x vale1:y --json");
    switch.wait_for_clients(3);
    // A second and a half of round trips.
    let ping = switch.start("pkt ping vale0:a --rate 200 --count 300 --json");
    switch.wait_for_clients(4);
    switch.replace();
    switch.wait_for_clients(4);
    let (pinged, said) = outcome(ping);
    assert!(said.contains("the switch has ended") && said.contains("is back after"), "{said}");
    let number = |value: &Value| value.as_u64().unwrap();
    let (back, lost) = (number(&pinged["round_trips"]), number(&pinged["lost"]));
    assert_eq!((back + lost, number(&pinged["outage"]["reconnects"])), (300, 1), "{pinged}");
    // At least those that came after all were back.
    let mut passed = Vec::new();
    for child in [echo, bridge] {
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let (count, said) = outcome(child);
        assert!(said.contains("is back after"), "{said}");
        assert!(number(&count["outage"]["reconnects"]) >= 1, "{count}");
        passed.push(number(&count["frames"]));
    }
    assert!(back > 100 && passed[0] >= back && passed[1] >= 2 * back, "{passed:?} {pinged}");
}
