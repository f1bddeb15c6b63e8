//! Documents of the reverse direction.

use serde_json::{Value, json};

use super::*;

/// The same test as from the other end: what was sent is received here.
fn reversed(value: &mut Value) {
    clamped(value);
    value["near"]["sysctls"]["net.ipv4.tcp_rmem"] = json!("4096 131072 262144");
    value["far"]["sysctls"]["net.ipv4.tcp_rmem"] = json!("4096 131072 67108864");
    value["verdict"]["end"] = json!("near");
    let point = &mut value["points"][0];
    point["spec"]["direction"] = json!("reverse");
    point["outcome"]["measured"]["directions"][0]["direction"] = json!("reverse");
}

#[test]
fn a_document_of_the_reverse_direction_is_planned_like_one_of_the_forward_direction() {
    let forward = plan(&document(5.2e7, clamped));
    for experiment in ["single-stream", "test"] {
        let results = document(5.2e7, |value| {
            reversed(value);
            value["points"][0]["experiment"] = json!(experiment);
        });
        let plan = plan(&results);
        assert!(plan.is_reverse && !forward.is_reverse);
        assert_eq!(plan.measured_bits_per_s, forward.measured_bits_per_s, "{experiment}");
        assert_eq!(plan.target_bits_per_s, forward.target_bits_per_s, "{experiment}");
        assert_eq!(plan.remarks, forward.remarks, "{experiment}");
        let change = find(&plan, End::Near, "net.ipv4.tcp_rmem").expect("planned");
        let there = find(&forward, End::Far, "net.ipv4.tcp_rmem").expect("planned");
        assert_eq!((&change.to, &change.effect), (&there.to, &there.effect), "{experiment}");
    }
}

#[test]
fn the_head_of_a_plan_tells_the_judged_direction() {
    let results = document(5.2e7, |value| {
        reversed(value);
        let mut forward = value["points"][0].clone();
        forward["experiment"] = json!("forward");
        forward["spec"]["direction"] = json!("forward");
        let told = &mut forward["outcome"]["measured"]["directions"][0];
        told["direction"] = json!("forward");
        told["received_bits_per_s"] = json!(4e8);
        value["points"].as_array_mut().expect("a list").push(forward);
    });
    let plan = plan(&results);
    assert_eq!((plan.is_reverse, plan.measured_bits_per_s), (true, Some(5.2e7)));
}

#[test]
fn a_change_for_the_other_direction_says_so() {
    let results = document(5.2e7, |value| {
        clamped(value);
        value["near"]["sysctls"]["net.ipv4.tcp_rmem"] = json!("4096 131072 262144");
        let mut reverse = value["points"][0].clone();
        reverse["experiment"] = json!("reverse");
        reverse["spec"]["direction"] = json!("reverse");
        reverse["outcome"]["measured"]["directions"][0]["direction"] = json!("reverse");
        value["points"].as_array_mut().expect("a list").push(reverse);
    });
    let plan = plan(&results);
    let why = |end| find(&plan, end, "net.ipv4.tcp_rmem").map(|change| change.why.as_str());
    let other = why(End::Near).expect("planned");
    assert!(other.starts_with("from the far end to the near one: a buffer of"), "{other}");
    assert!(!why(End::Far).expect("planned").contains("from the "), "the judged direction");
}
