//! Real recordings of a planted limit (testdata/recorded/README.md tells how they were made), each
//! from both ends: the limit is named from every one.

use std::path::Path;

use results::{Limit, Results};

use crate::built::{stream, told};

/// A file of `testdata/recorded`.
pub(crate) fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recorded");
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn read(name: &str) -> Results {
    recorded::read(&file(name))
        .expect("a recording")
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn expect(name: &str, limit: Limit, place: &str) {
    let results = read(name);
    for finding in &results.findings {
        println!("{name}: {}: {}", finding.code, finding.text);
    }
    let verdict = explain::explain(&results);
    println!("{name}: {:?} {}", verdict.limit, verdict.summary);
    assert_eq!(verdict.limit, limit, "{name}: {verdict:#?}");
    assert!(told(&results, "taken-at").contains(place), "{name}: {}", told(&results, "taken-at"));
}

#[test]
fn the_planted_window_is_named_from_both_ends_and_from_ss() {
    expect("window-sender.pcap", Limit::ReceiveWindow, "at the sender");
    expect("window-receiver.pcap", Limit::ReceiveWindow, "at the receiver");
    expect("window-ss.txt", Limit::ReceiveWindow, "at the sender");
}

#[test]
fn the_planted_shaper_is_named_from_both_ends_and_from_ss() {
    expect("shaper-sender.pcap", Limit::Shaper, "at the sender");
    expect("shaper-receiver.pcap", Limit::Shaper, "at the receiver");
    expect("shaper-ss.txt", Limit::Shaper, "at the sender");
}

#[test]
fn samples_without_times_or_only_one_still_tell_the_window() {
    let text = String::from_utf8(file("window-ss.txt")).expect("text");
    let is_time = |line: &&str| line.parse::<f64>().is_ok();
    let untimed: Vec<&str> = text.lines().filter(|line| !is_time(line)).collect();
    let results = recorded::read(untimed.join("\n").as_bytes()).expect("ss").expect("a flow");
    assert!(told(&results, "untimed").contains("no time stands before"), "{:?}", results.findings);
    assert_eq!(explain::explain(&results).limit, Limit::ReceiveWindow);
    // The last that shows the data connection under way.
    let details = untimed.iter().rposition(|line| line.contains("unacked:")).expect("under way");
    let one = untimed[details - 1..=details].join("\n");
    let results = recorded::read(one.as_bytes()).expect("ss").expect("a flow");
    assert!(told(&results, "taken-at").starts_with("one sample"), "{:?}", results.findings);
    assert!(stream(&results).tcp.as_ref().is_some_and(|tcp| tcp.last.peer_window_bytes.is_some()));
    assert_eq!(explain::explain(&results).limit, Limit::ReceiveWindow);
}

#[test]
fn sack_is_read_from_the_syn_packets_and_from_ss() {
    let negotiated =
        |results: &Results| stream(results).tcp.as_ref().expect("TCP was sampled").sack_negotiated;
    assert_eq!(negotiated(&read("window-sender.pcap")), Some(true));
    // This version of `ss` lists neither timestamps nor SACK.
    assert_eq!(negotiated(&read("window-ss.txt")), None);
    let text = String::from_utf8(file("window-ss.txt")).expect("text");
    for (listed, expected) in [(" ts sack wscale:", true), (" ts wscale:", false)] {
        let text = text.replace(" wscale:", listed);
        let results = recorded::read(text.as_bytes()).expect("a recording").expect("samples");
        assert_eq!(negotiated(&results), Some(expected), "{listed}");
    }
}
