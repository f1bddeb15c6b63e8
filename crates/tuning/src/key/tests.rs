use super::*;

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
        "irq:27/affinity",
        "cpu:3/governor",
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
        "eth0/rx-+1/rps_cpus",
        "eth0/€",
        "irq:1/../../x/affinity",
        "irq:/affinity",
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
    assert!(check("irq:3/affinity", "0-1,5").is_ok());
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
