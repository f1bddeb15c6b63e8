//! `clearstream gateway plan` and `explain` as a user meets them: the paper's own system and its listings.

use std::process::{Command, Output};

use crate::PROGRAM;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../route-plan/tests/data");

fn gateway(arguments: &[&str]) -> Output {
    let plan = format!("{DATA}/cumulus.toml");
    let expanded =
        arguments.iter().map(|argument| argument.replace("PLAN", &plan).replace("DATA", DATA));
    Command::new(PROGRAM).arg("gateway").args(expanded).output().expect("the program starts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

#[test]
fn a_plan_shows_its_gateways_and_how_flows_spread() {
    let output = gateway(&["plan", "PLAN"]);
    assert!(output.status.success());
    let text = stdout(&output);
    assert!(text.contains("Plan      cumulus: 6 gateways, 122 hosts, mode pairs"), "{text}");
    assert!(text.contains("1120 flows, one per pair of hosts"), "{text}");
    assert_eq!(text.matches("weight 1 ").count(), 6, "{text}");
}

#[test]
fn a_host_s_commands_are_iproute2_s() {
    let output = gateway(&["plan", "PLAN", "--host", "wolf01"]);
    assert!(output.status.success());
    let text = stdout(&output);
    assert!(text.contains("  ip nexthop add id 7700 via 10.10.0.11 dev ib1 protocol 77"), "{text}");
    assert!(text.contains("  ip route add 10.100.1.112 proto 77 nhid"), "{text}");
    let output = gateway(&["plan", "PLAN", "--host", "wolf99"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn no_command_acts_for_a_host_that_this_machine_is_not() {
    for words in [
        &["check", "PLAN"][..],
        &["apply", "PLAN"],
        &["revert", "--plan", "PLAN"],
        &["drain", "PLAN", "sn3"],
        &["undrain", "PLAN", "sn3"],
        &["watch", "PLAN"],
        &["reflect", "PLAN"],
        &["weights", "PLAN"],
    ] {
        let output = gateway(&[words, &["--host", "wolf01"]].concat());
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {line}");
        assert!(line.contains("this machine is not 'wolf01': its name is '"), "{words:?}: {line}");
        assert!(line.contains("does not have the address 10.10.0.21"), "{words:?}: {line}");
        assert!(output.stdout.is_empty() && line.lines().count() == 1, "{words:?}: {line}");
    }
    // A gateway that is asked on another machine would look empty.
    let elsewhere = gateway(&["drain", "PLAN", "sn3", "--host", "sn3"]);
    let line = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
    assert_eq!(elsewhere.status.code(), Some(2), "{line}");
    assert!(line.contains("this machine is not 'sn3'"), "{line}");
    let unplanned = gateway(&["revert", "--host", "wolf01"]);
    let line = String::from_utf8_lossy(&unplanned.stderr).into_owned();
    assert_eq!(unplanned.status.code(), Some(2), "{line}");
    assert!(line.contains("only with --plan PLAN can it be identified by its addresses"), "{line}");
}

#[test]
fn the_plan_in_the_documentation_is_accepted() {
    let text = include_str!("../../../docs/gateways.md");
    let mut count = 0;
    for part in text.split("```toml\n").skip(1) {
        let (plan, _rest) = part.split_once("```").expect("the example ends");
        route_plan::parse_plan("docs/gateways.md", plan).unwrap_or_else(|error| panic!("{error}"));
        count += 1;
    }
    assert!(count > 0, "docs/gateways.md has no plan");
}

#[test]
fn an_unknown_gateway_plan_or_host_gets_one_line_with_those_that_there_are() {
    for (words, expected) in [
        (
            &["drain", "PLAN", "sn9", "--host", "wolf01"][..],
            "the plan 'cumulus' has no gateway 'sn9'; its gateways are sn1, sn2, sn3, sn4, sn5, …; did you mean 'sn",
        ),
        (
            &["undrain", "PLAN", "wolf01", "--host", "wolf01"],
            "'wolf01' is a host of the plan 'cumulus', not a gateway; its gateways are sn1",
        ),
        (&["plan", "nimbus"], "no plan 'nimbus'; built in: cumulus; or give a file, NAME.toml"),
        (&["drain", "PLAN", "sn1", "--host", "zz"], "has no host 'zz'"),
        (
            &["explain", "zz:1", "wolf01:2", "--plan", "PLAN"],
            "'zz:1' is neither ADDRESS:PORT nor HOST:PORT with a host of the plan 'cumulus'; its hosts are nid",
        ),
    ] {
        let output = gateway(words);
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.contains(expected) && line.lines().count() == 1, "{line}");
    }
    let output = gateway(&["apply", "PLAN"]);
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(line.contains("is this machine's name; name another host with --host"), "{line}");
}

#[test]
fn the_paper_s_listing_is_contradicted_with_exit_3() {
    let review = ["plan", "PLAN", "--host", "wolf01", "--review", "DATA/cumulus-storage.listing"];
    let output = gateway(&review);
    assert_eq!(output.status.code(), Some(3));
    assert!(stdout(&output).contains("line 5: 'from 10.10.0.12 table 2'"), "{}", stdout(&output));
    assert_eq!(stdout(&output).lines().count(), 5);
}

#[test]
fn a_flow_is_explained_by_host_names_and_by_addresses() {
    let by_name = gateway(&["explain", "nid0001:40000", "wolf03:1191", "--plan", "PLAN"]);
    let by_address = gateway(&["explain", "10.100.1.1:40000", "10.10.0.23:1191", "--plan", "PLAN"]);
    assert!(by_name.status.success());
    assert_eq!(stdout(&by_name), stdout(&by_address));
    assert!(stdout(&by_name).starts_with("Gateway   sn3, by the pair of hosts; backup sn"));
    let back = gateway(&["explain", "wolf03:1191", "nid0001:40000", "--plan", "PLAN"]);
    assert!(stdout(&back).starts_with("Gateway   sn3, "));
    let near = gateway(&["explain", "nid0001:1", "nid0002:1", "--plan", "PLAN"]);
    assert_eq!(near.status.code(), Some(1));
}

#[test]
fn ten_thousand_clients_are_simulated_in_seconds() {
    let arguments = ["plan", "PLAN", "--simulate", "--clients", "10000", "--gateways", "100"];
    let began = std::time::Instant::now();
    let output = gateway(&arguments);
    assert!(output.status.success());
    assert!(began.elapsed().as_secs() < 30);
    assert!(stdout(&output).contains("10000 clients x 10 servers"), "{}", stdout(&output));
}

#[test]
fn mistakes_are_told_with_their_lines_and_exit_2() {
    let output = gateway(&["plan", "DATA/cumulus-storage.listing"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cumulus-storage.listing:3: "), "{text}");
}

#[test]
fn a_host_s_part_is_emitted_and_what_is_missing_is_told() {
    let output = gateway(&["emit", "PLAN", "--host", "wolf01", "--to", "networkd"]);
    assert!(output.status.success());
    assert!(
        stdout(&output).contains("==> /etc/systemd/network/80-clearstream-gateway-ib1.network")
    );
    let output = gateway(&["emit", "PLAN", "--host", "wolf01", "--to", "networkmanager"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("NetworkManager has no nexthop groups: the routes of pairs"), "{told}");
}

#[test]
fn an_emission_without_a_system_names_those_that_there_are() {
    let output = gateway(&["emit", "PLAN", "--host", "wolf01"]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    let systems = "--to: networkd, networkmanager, netplan, ifupdown, ansible, unit;";
    assert!(told.contains(systems) && told.lines().count() == 1, "{told}");
}

#[test]
fn a_playbook_is_for_all_hosts_and_needs_none_named() {
    let output = gateway(&["emit", "PLAN", "--to", "ansible"]);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("==> /clearstream-gateway.yml"), "{}", stdout(&output));
    let named = gateway(&["emit", "PLAN", "--to", "ansible", "--host", "wolf01"]);
    assert_eq!(stdout(&named), stdout(&output));
    let output = gateway(&["emit", "PLAN", "--to", "unit"]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("unit is for one host: name it with --host"), "{told}");
}
