//! Weights measured in the lab `cumulus`, whose gateways are as fast as they are made. Needs root.

use serde_json::Value;

use super::gateway_lab_root::{Files, Lab, run};
use testkit::root::is_root;

/// Has each gateway send so many Mbit/s to the storage network.
fn shape(lab: &Lab, rates: [u32; 3]) {
    for (gateway, rate) in ["g1", "g2", "g3"].into_iter().zip(rates) {
        let what = format!("dev eth1 root tbf rate {rate}mbit burst 128kb latency 50ms");
        lab.exec(gateway, &format!("tc qdisc replace {what}"));
    }
}

fn weights(lab: &Lab, more: &[&str]) -> Value {
    let words = ["--json", "gateway", "weights", "cumulus", "--repeat", "3", "-t", "1s"];
    let output = run(&[&words, more, &["--lab", &lab.name]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn of_each(weighed: &Value, what: &str) -> Vec<u64> {
    let gateways = weighed["gateways"].as_array().expect("a list");
    gateways.iter().map(|gateway| gateway[what].as_u64().expect("a number")).collect()
}

#[test]
fn weights_follow_what_gateways_carry_and_the_tests_go_through_them_root() {
    if !is_root() {
        return;
    }
    let lab = Lab::up_in_real_time("weights", Files::Without);
    let unapplied =
        run(&["gateway", "weights", "cumulus", "--repeat", "2", "-t", "1s", "--host", "g1"]);
    assert_eq!(unapplied.status.code(), Some(2), "a gateway measures nothing");
    assert!(lab.gateway(&["apply", "cumulus"]).status.success());
    shape(&lab, [200, 50, 200]);
    let file = lab.folder.join("weights.json");
    let weighed = weights(&lab, &["-o", file.to_str().expect("text")]);
    assert_eq!(of_each(&weighed, "weight"), [4, 1, 4], "{weighed}");
    assert_eq!(weighed["is_different"], true);
    assert_eq!(of_each(&weighed, "count"), [3, 3, 3]);
    let document = std::fs::read_to_string(&file).expect("written");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    assert_eq!(document["points"].as_array().expect("points").len(), 9, "raw repeats");
    shape(&lab, [100, 100, 100]);
    let weighed = weights(&lab, &[]);
    assert_eq!(of_each(&weighed, "weight"), [1, 1, 1], "{weighed}");
    assert_eq!(weighed["is_different"], false);
    // Its flows take another gateway now, which is not what is asked about.
    assert!(lab.gateway(&["drain", "cumulus", "g2"]).status.success());
    let words = ["gateway", "weights", "cumulus", "--repeat", "2", "-t", "1s", "--lab", &lab.name];
    let refused = run(&words);
    let line = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{line}");
    assert!(line.contains("did not go through g2"), "{line}");
}
