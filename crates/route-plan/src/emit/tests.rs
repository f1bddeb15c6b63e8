use super::*;
use crate::example::cumulus;

fn emitted(mode: &str, host: &str, system: System) -> Emission {
    let plan = cumulus(mode);
    emit(&plan, plan.find(host).unwrap(), system, PACKAGED_PROGRAM).unwrap()
}

fn file<'a>(emission: &'a Emission, ending: &str) -> &'a str {
    let found = emission.files.iter().find(|(path, _)| path.ends_with(ending));
    &found.unwrap_or_else(|| panic!("{ending}")).1
}

#[test]
fn settings_are_emitted_for_every_system_and_role() {
    let each = SYSTEMS.into_iter().filter(|(system, _)| *system != System::Ansible);
    for (system, name) in each {
        for host in ["sn1", "wolf01"] {
            let emission = emitted("pairs", host, system);
            let text = file(&emission, "80-clearstream-gateway.conf");
            assert!(text.contains("net/ipv4/fib_multipath_hash_policy = 1\n"), "{name} {host}");
            assert_eq!(text.contains("net/ipv4/ip_forward = 1"), host == "sn1", "{name}");
        }
    }
}

#[test]
fn networkd_says_nexthops_groups_and_routes() {
    let emission = emitted("pairs", "wolf01", System::Networkd);
    let text = file(&emission, "80-clearstream-gateway-ib1.network");
    assert!(text.contains("[NextHop]\nId=7700\nGateway=10.10.0.11\n"), "{text}");
    assert!(text.contains("[NextHop]\nId=7957\nGroup=7700:1\n"), "{text}");
    assert!(text.contains("Destination=10.100.1.1/32\nProtocol=77\nNextHop=7"), "{text}");
    assert!(text.contains("Metric=4096\nMultiPathRoute=10.10.0.11@ib1 1\n"), "{text}");
    assert_eq!(text.matches("[Route]").count(), 113);
    assert_eq!(emission.lacks.len(), 1);
    assert_eq!(emitted("resilient", "wolf01", System::Networkd).lacks.len(), 2);
}

#[test]
fn systems_without_nexthops_say_what_is_missing() {
    for (system, lacks) in [(System::NetworkManager, true), (System::Ifupdown, false)] {
        let emission = emitted("pairs", "wolf01", system);
        assert_eq!(emission.lacks.iter().any(|lack| lack.contains("no nexthop groups")), lacks);
    }
    let emission = emitted("pairs", "wolf01", System::NetworkManager);
    let text = file(&emission, ".nmconnection");
    assert!(
        text.contains("route6=10.100.0.0/16,10.10.0.16,4096\nroute6_options=weight=1\n"),
        "{text}"
    );
}

#[test]
fn each_system_is_told_what_makes_the_marks_that_it_cannot_make() {
    let mut plan = cumulus("pairs");
    plan.routing.follow = Some(1);
    for (system, instead) in [
        (System::Networkd, Some("only `unit` and `ansible`")),
        (System::Netplan, Some("only `unit` and `ansible`")),
        (System::NetworkManager, Some("only `unit` and `ansible`")),
        (System::Ifupdown, Some("`clearstream gateway apply` makes them")),
        (System::Unit, None),
        (System::Ansible, None),
    ] {
        let emission = emit(&plan, plan.find("wolf01").unwrap(), system, PACKAGED_PROGRAM).unwrap();
        let told = emission.lacks.iter().find(|lack| lack.contains("the marks of `follow`"));
        assert_eq!(told.is_some(), instead.is_some(), "{system:?}");
        assert!(told.is_none_or(|told| told.contains(instead.unwrap_or_default())), "{told:?}");
    }
}

#[test]
fn network_manager_asks_for_no_address_of_the_other_family() {
    let ipv4 = emitted("pairs", "wolf01", System::NetworkManager);
    assert!(!file(&ipv4, ".nmconnection").contains("disabled"), "IPv6 is the kernel's business");
    let mut plan = cumulus("pairs");
    plan.family = Family::V6;
    let emission =
        emit(&plan, plan.find("wolf01").unwrap(), System::NetworkManager, PACKAGED_PROGRAM);
    let emission = emission.unwrap();
    let text = file(&emission, ".nmconnection");
    assert!(
        text.contains("autoconnect-priority=100\n\n[ipv4]\nmethod=disabled\n\n[ipv6]\n"),
        "{text}"
    );
}

#[test]
fn ifupdown_makes_and_unmakes_everything_in_order() {
    let emission = emitted("resilient", "wolf01", System::Ifupdown);
    let text = file(&emission, "clearstream-gateway");
    let ups: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("    up ")).collect();
    let downs: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("    down ")).collect();
    assert_eq!(ups.len(), downs.len());
    assert!(ups[0].starts_with("ip route replace 10.100.0.0/16 proto 77 metric 4096"), "{text}");
    assert!(
        ups.iter().any(|up| up.contains("type resilient buckets 128 idle_timer 120")),
        "{text}"
    );
    assert_eq!(downs.last().unwrap().split(' ').nth(2), Some("del"));
}

#[test]
fn the_units_apply_the_plan_and_watch_its_gateways() {
    let emission = emitted("pairs", "wolf01", System::Unit);
    let apply = file(&emission, "/clearstream-gateway@.service");
    assert_eq!(apply.matches("=/usr/bin/clearstream gateway ").count(), 3, "{apply}");
    assert!(apply.contains("gateway apply /etc/clearstream/gateway/%i.toml\n"), "{apply}");
    let watch = file(&emission, "/clearstream-gateway-watch@.service");
    let key = "--key-file /etc/clearstream/gateway/%i.key\nRestart=always\n";
    assert!(watch.contains(key), "{watch}");
    // Gateways are watched from the hosts.
    let gateway = emitted("pairs", "sn1", System::Unit);
    assert!(gateway.files.iter().all(|(path, _)| !path.contains("watch")));
}

#[test]
fn units_run_the_program_that_is_named() {
    let plan = cumulus("pairs");
    let role = plan.find("wolf01").unwrap();
    for system in [System::Unit, System::Ansible] {
        let emission = emit(&plan, role, system, "/usr/local/bin/clearstream").unwrap();
        let units = emission.files.iter().filter(|(path, _)| path.ends_with(".service"));
        for line in units.flat_map(|(_, text)| text.lines()).filter(|line| line.starts_with("Exec"))
        {
            assert!(line.contains("=/usr/local/bin/clearstream gateway "), "{line}");
        }
    }
    assert!(is_plain_path("/opt/clear-stream_1.0+x/bin/clearstream"));
    for other in ["clearstream", "/opt/a b", "/opt/$x", "/opt/%i", "/opt/\"x\"", "/opt/a\nb"] {
        assert!(!is_plain_path(other), "{other}");
    }
}

#[test]
fn the_playbook_installs_the_same_on_every_machine() {
    let emission = emitted("pairs", "wolf01", System::Ansible);
    assert_eq!(emission, emitted("pairs", "sn1", System::Ansible));
    let playbook = file(&emission, ".yml");
    assert!(playbook.contains("name: clearstream-gateway@cumulus.service"), "{playbook}");
    assert!(playbook.contains("gateways: [\"sn1\", \"sn2\""), "{playbook}");
    // YAML has no tabs, and tasks are indented alike.
    assert!(!playbook.contains('\t'));
    let tasks = playbook.lines().filter(|line| line.starts_with("    - name: ")).count();
    assert_eq!(tasks, 7);
}
