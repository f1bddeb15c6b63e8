use super::*;
use crate::{cores_of, list_of, mask_of};

#[test]
fn keys_are_read_as_they_are_written() {
    for text in [
        "net.ipv4.tcp_rmem",
        "eth0/mtu",
        "eth0.5/txqueuelen",
        "eth0/qdisc",
        "eth0/ring-rx",
        "eth0/coalesce-adaptive-tx",
        "eth0/channels-combined",
        "eth0/feature-rx-gro",
        "eth0/rss",
        "eth0/rx-3/rps_cpus",
        "eth0/rx-3/rps_flow_cnt",
        "eth0/tx-12/xps_cpus",
        "eth0/threaded",
        "eth0/udp4-61008/queue",
        "eth0/udp6-1/queue",
        "eth0/ipv4/rp_filter",
        "nexthop:7700",
        "route:254,4096,0,10.10.0.0/24",
        "route:100,1024,0,fd00::/16,fd01::/64",
        "rule:0200ff",
        "nft:ip/clearstream-77",
        "nft:ip6/clearstream-0",
        "eth0/ipv6/accept_ra",
        "irq:27/affinity",
        "thread:napi/eth0-8193/affinity",
        "thread:napi/enp65s0f0n/affinity",
        "cpu:3/governor",
        "cgroup:/system.slice/box.service/cpu.max",
        "file:etc/sysctl.d/90-clearstream.conf",
    ] {
        let key: Key = text.parse().expect(text);
        assert_eq!(key.to_string(), text);
    }
}

#[test]
fn what_could_lead_elsewhere_is_no_key() {
    for text in [
        "",
        "kernel.core_pattern",
        "net.ipv4.../../kernel/core_pattern",
        "../eth0/mtu",
        "../mtu",
        "eth0/rx-../rps_cpus",
        "eth0/udp4-0/queue",
        "eth0/udp4-65536/queue",
        "eth0/udp4-061008/queue",
        "eth0/tcp4-80/queue",
        "nexthop:-1",
        "nexthop:",
        "route:254,0,0,10.0.0.0/33",
        "route:254,0,0,10.0.0.0",
        "route:254,0,256,10.0.0.0/8",
        "route:0254,0,0,10.0.0.0/8",
        "route:254,0,0,10.0.0.0/8,fd00::/8,x",
        "rule:0",
        "rule:0X",
        "nft:ip/filter",
        "nft:ip/clearstream-077",
        "nft:ip/clearstream-256",
        "nft:inet/clearstream-77",
        "eth0/ipv4/ip_forward",
        "eth0/rx-+1/rps_cpus",
        "eth0/€",
        "irq:1/../../x/affinity",
        "irq:/affinity",
        "thread:/affinity",
        "thread:napi//affinity",
        "thread:napi/../x/affinity",
        "thread:systemd/affinity",
        "thread:1/affinity",
        "cgroup:/cpu.max",
        "cgroup:cpu.max",
        "cgroup:/../x/cpu.max",
        "cgroup:/a//b/cpu.max",
        "cgroup:a/cpu.max",
        "cgroup:/a/memory.max",
        "cpu:-1/governor",
        "file:etc/passwd",
        "file:/etc/sysctl.d/90-clearstream.conf",
        "eth0/feature-../x",
        "a name/mtu",
    ] {
        assert!(text.parse::<Key>().is_err(), "{text}");
    }
}

#[test]
fn values_are_brought_into_one_form() {
    let check = |key: &str, value: &str| key.parse::<Key>().expect(key).check(value);
    assert_eq!(
        check("net.ipv4.tcp_rmem", "4096\t131072\t6291456\n").unwrap(),
        "4096 131072 6291456"
    );
    assert!(check("net.ipv4.tcp_rmem", "4096 131072").is_err());
    assert!(check("net.ipv4.tcp_rmem", "4096 1 2 3").is_err());
    assert_eq!(check("net.ipv4.tcp_congestion_control", "bbr\n").unwrap(), "bbr");
    assert!(check("net.ipv4.tcp_congestion_control", "b b").is_err());
    assert!(check("net.ipv4.tcp_sack", "-1x").is_err());
    assert_eq!(check("eth0/mtu", " 9000 ").unwrap(), "9000");
    assert!(check("eth0/mtu", "+9000").is_err());
    assert_eq!(check("eth0/rx-0/rps_cpus", "00000000,000000FF").unwrap(), "ff");
    assert_eq!(check("eth0/rx-0/rps_cpus", "1,00000000").unwrap(), "1,00000000");
    assert_eq!(check("eth0/qdisc", "pfifo_fast (default)").unwrap(), "pfifo_fast (default)");
    assert!(check("eth0/qdisc", "fq rate 1").is_err());
    assert!(check("eth0/feature-rx-gro", "maybe").is_err());
    assert_eq!(check("irq:3/affinity", "0-1,5").unwrap(), "0-1,5");
    assert_eq!(check("irq:3/affinity", "5,0,1\n").unwrap(), "0-1,5");
    assert!(check("irq:3/affinity", "3-1").is_err());
    assert!(check("irq:3/affinity", "").is_err());
    assert_eq!(check("thread:napi/eth0-1/affinity", "0,1,2,3").unwrap(), "0-3");
    assert_eq!(check("cgroup:/a/cpu.max", "max 100000\n").unwrap(), "max 100000");
    assert_eq!(check("cgroup:/a/cpu.max", "30000 100000").unwrap(), "30000 100000");
    for wrong in ["max", "max max", "-1 100000", "1 2 3"] {
        assert!(check("cgroup:/a/cpu.max", wrong).is_err(), "{wrong}");
    }
    assert!(check("irq:3/affinity", "0-").is_err());
    assert_eq!(check("eth0/rss", "0 1 0 1").unwrap(), "0 1 0 1");
}

#[test]
fn masks_have_groups_of_eight_digits() {
    assert_eq!(mask_of(&[0, 1]), "3");
    assert_eq!(mask_of(&[32]), "1,00000000");
    assert_eq!(mask_of(&[]), "0");
    assert_eq!(mask_of(&[63, 0]), "80000000,00000001");
}

#[test]
fn cores_are_listed_as_the_kernel_lists_them() {
    assert_eq!(list_of(&[3, 0, 1, 2, 8]), "0-3,8");
    assert_eq!(list_of(&[]), "");
    assert_eq!(cores_of("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
    assert_eq!(cores_of("0-4294967295").map(|cores| cores.len()), Some(8192));
    assert_eq!(cores_of("x"), None);
}

#[test]
fn a_source_of_packet_work_has_one_name() {
    for name in ["irq 42", "napi/eth0-8193"] {
        let key = Key::of_packet_source(name).expect(name);
        assert_eq!(key.packet_source().as_deref(), Some(name));
    }
    for name in ["", "irq", "irq x", "irq -1", "sshd", "napi/"] {
        assert_eq!(Key::of_packet_source(name), None, "{name}");
    }
    assert_eq!("eth0/mtu".parse::<Key>().expect("a key").packet_source(), None);
}

#[test]
fn any_key_that_parses_prints_as_itself() {
    bolero::check!().with_type::<(String, String)>().for_each(|(text, value)| {
        if let Ok(key) = text.parse::<Key>() {
            assert_eq!(&key.to_string(), text);
            if let Ok(canonical) = key.check(value) {
                assert_eq!(key.check(&canonical).as_deref(), Ok(canonical.as_str()));
            }
        }
    });
}
