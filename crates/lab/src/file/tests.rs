use std::path::Path;

use vm::line::PortType;

use super::*;
use crate::builtin::builtin_labs;
use crate::plan::{BurstPlan, ShaperPlan, SwitchPlan, VethPlan};
use crate::plan::{FilesystemKind, GuestPlan};

const HOSTS: &str = "name = \"t\"\n[host.a]\n[host.b]\n";

fn complaint(text: &str) -> String {
    parse_lab("t.toml", text).unwrap_err().to_string()
}

fn link(keys: &str) -> Result<LinkPlan, LabFileError> {
    let text = format!("{HOSTS}[[link]]\nbetween = [\"a\", \"b\"]\n{keys}\n");
    parse_lab("t.toml", &text).map(|plan| plan.links.into_iter().next().unwrap())
}

fn directions(link: LinkPlan) -> (DirectionPlan, DirectionPlan) {
    match link.wire {
        WirePlan::Lightpath(path) => (path.forward, path.backward),
        WirePlan::Veth(_) => panic!("a lightpath"),
    }
}

#[test]
fn built_in_labs_are_right() {
    for lab in builtin_labs() {
        let plan = lab.plan().unwrap();
        assert_eq!(plan.name, lab.name);
        let guests_count = plan.guests.len();
        assert!(plan.hosts.len() + guests_count >= 2, "{}", plan.name);
        assert!(plan.ends().count() + guests_count >= 2, "{}", plan.name);
        assert!(!plan.description.is_empty());
    }
    let plan = builtin_labs()[0].plan().unwrap();
    let (there, back) = directions(plan.links[0].clone());
    assert_eq!(there.delay_ns + back.delay_ns, 17_000_000);
    assert_eq!(there.jitter_ns + back.jitter_ns, 200_000);
    let rate = there.rate_bits_per_s.unwrap();
    assert_eq!(rate, 40_000_000_000);
    let product = units::bandwidth_delay_product_bytes(rate as f64, 0.017);
    assert!(there.queue_bytes.unwrap() >= product);
    assert!(plan.hosts.iter().all(|host| host.sysctls["net.ipv4.tcp_rmem"].ends_with("67108864")));
}

#[test]
fn every_key_is_read() {
    let read = link(
        "mtu = 9000\nspeed = \"25G\"\nseed = 7\ncores = [1]\nrate = \"10Gbit\"\ndelay = \"8.5ms\"\n\
         jitter = \"100us\"\njitter_distribution = \"normal\"\nqueue = \"1MiB\"\n\
         ecn_threshold = \"64K\"\nloss = \"0.1%\"\nreorder = \"1%\"\nreorder_by = \"1ms\"\n\
         burst_loss = { enter = \"1%\", leave = \"50%\" }\n\
         shaper = { rate = \"1G\", burst = \"2MiB\" }\n\
         addresses = { a = [\"10.77.0.1/24\"] }\nbackward = { rate = \"1G\", loss = 0 }",
    )
    .unwrap();
    assert_eq!(read.mtu_bytes, 9000);
    assert_eq!(read.ends[0].speed_bits_per_s, Some(25_000_000_000));
    assert_eq!(read.ends[0].addresses.len(), 1);
    assert_eq!(read.ends[1].addresses[1].address.to_string(), "fd77::2");
    let (there, back) = directions(read);
    let expected = DirectionPlan {
        seed: 7,
        delay_ns: 8_500_000,
        jitter_ns: 100_000,
        jitter_is_normal: true,
        rate_bits_per_s: Some(10_000_000_000),
        queue_bytes: Some(1 << 20),
        mark_above_bytes: Some(65_536),
        shaper: Some(ShaperPlan { rate_bits_per_s: 1_000_000_000, burst_bytes: 2 << 20 }),
        loss: 0.001,
        burst_loss: Some(BurstPlan { enter: 0.01, leave: 0.5, loss: 1.0 }),
        reorder: 0.01,
        reorder_by_ns: 1_000_000,
    };
    assert_eq!(there, expected);
    let one_way =
        DirectionPlan { seed: 8, rate_bits_per_s: Some(1_000_000_000), loss: 0.0, ..expected };
    assert_eq!(back, one_way);
}

#[test]
fn a_typo_gets_its_line_and_the_nearest_word() {
    for (text, line) in [
        ("name = \"t\"\n[hots.a]\n", "t.toml:2: unknown key 'hots'; did you mean 'host'?"),
        ("[host.a]\n", "t.toml:1: 'name' is missing"),
        ("name = \"t\"\n", "t.toml:1: a lab needs hosts: write [host.NAME] for each"),
        (
            "name = \"../x\"\n[host.a]\n",
            "t.toml:1: '../x' is not a name; letters, digits, - and _, \
          up to 63",
        ),
        (
            "name = \"t\"\n[host.a]\ncore = [1]\n",
            "t.toml:3: unknown key 'core'; did you mean \
          'cores'?",
        ),
        (
            "name = \"t\"\n[host.a]\ncores = [\"x\"]\n",
            "t.toml:3: cores: expected a list of core \
          numbers, [0, 1], found string",
        ),
        (
            "name = \"t\"\n[host.a.sysctl]\n\"kernel.pid_max\" = 1\n",
            "t.toml:3: 'kernel.pid_max' \
          belongs to no network namespace; only net.* does",
        ),
    ] {
        assert_eq!(complaint(text), line);
    }
}

#[test]
fn a_wrong_link_is_explained() {
    for (keys, message) in [
        ("dealy = \"1ms\"", "unknown key 'dealy'; did you mean 'delay'?"),
        ("delay = 10", "delay: '10' has no unit; write for example 10ms"),
        (
            "delay = \"1 furlong\"",
            "delay: '1 furlong' has an unknown unit 'furlong'; known: ns us \
          ms s m h",
        ),
        (
            "rate = \"fast\"",
            "rate: 'fast' is not a number; write for example 950M, 10G or 40Gbit/s",
        ),
        ("loss = \"150%\"", "loss: '150%' exceeds 100%; a share is 0% to 100%"),
        ("loss = 0.1", "loss: '0.1' has no percent sign; write 10% or 0.1%"),
        ("tbf = { rate = \"1G\" }", "unknown key 'tbf'; did you mean 'shaper'?"),
        ("wire = \"vet\"", "unknown wire 'vet'; did you mean 'veth'?"),
        (
            "wire = \"veth\"\nrate = \"1G\"",
            "a veth wire emulates nothing; 'rate' needs a lightpath",
        ),
        ("mtu = 20", "mtu 20 is outside 68 to 65521 bytes"),
        ("shaper = { rate = \"1G\" }", "shaper: 'burst' is missing"),
        (
            "addresses = { a = [\"10.0.0.1\"] }",
            "'10.0.0.1' has no prefix length; write for example 10.0.0.1/24 or fd00::1/64",
        ),
        ("reorder = \"1%\"", "reorder needs reorder_by, the time by which such frames come late"),
        (
            "forward = { mtu = 9000 }",
            "unknown key 'mtu'; known: delay, jitter, \
          jitter_distribution, rate, queue, ecn_threshold, shaper, loss, burst_loss, reorder, \
          reorder_by",
        ),
    ] {
        assert_eq!(link(keys).unwrap_err().message, message);
    }
    let text = format!("{HOSTS}[[link]]\nbetween = [\"a\", \"c\"]\n");
    assert_eq!(complaint(&text), "t.toml:5: no host 'c'; known: a, b");
    let text = format!("{HOSTS}[[link]]\nbetween = [\"a\", \"a\"]\n");
    assert_eq!(complaint(&text), "t.toml:5: 'a' is linked to itself");
    assert!(complaint("name = \n").starts_with("t.toml:1: "));
}

#[test]
fn a_veth_pair_is_told_who_takes_its_packets_in() {
    let veth = |keys: &str| match link(&format!("wire = \"veth\"\n{keys}")).unwrap().wire {
        WirePlan::Veth(plan) => plan,
        WirePlan::Lightpath(_) => panic!("a veth pair"),
    };
    assert_eq!(veth(""), VethPlan::default());
    let told = veth("queues = 4\ntso = false\nnapi_core = { b = 1 }");
    let expected = VethPlan {
        queues_count: Some(4),
        gro: Some(true),
        tso: Some(false),
        napi_threaded: true,
        napi_cores: [None, Some(1)],
    };
    assert_eq!(told, expected);
    assert_eq!(veth("napi_core = 0").napi_cores, [Some(0), Some(0)]);
    for (keys, message) in [
        (
            "wire = \"veth\"\ngro = false\nnapi_threaded = true",
            "a veth pair has NAPI only with GRO: write gro = true",
        ),
        (
            "wire = \"veth\"\ntso = true\nnapi_core = 0",
            "with TSO the segments of a veth pair bypass NAPI: write tso = false",
        ),
        ("wire = \"veth\"\nqueues = 0", "queues: 0 is not within 1 to 256"),
        ("wire = \"veth\"\ntso = 1", "tso: expected true or false, found integer"),
        ("wire = \"veth\"\nnapi_core = { c = 1 }", "unknown key 'c'; known: a, b"),
        ("wire = \"veth\"\nnapi_core = 4096", "no host has a core 4096"),
        (
            "wire = \"veth\"\nnapi_threaded = false\nnapi_core = 0",
            "napi_core pins the threads that napi_threaded = false takes away",
        ),
        ("tso = false", "'tso' applies to veth pairs only: write wire = \"veth\""),
    ] {
        assert_eq!(link(keys).unwrap_err().message, message);
    }
}

#[test]
fn interfaces_and_addresses_do_not_collide() {
    let text = "name = \"t\"\n[host.a]\n[host.b]\n[host.c]\n\
                [[link]]\nbetween = [\"a\", \"b\"]\n[[link]]\nbetween = [\"b\", \"c\"]\n";
    let plan = parse_lab("t.toml", text).unwrap();
    let interfaces: Vec<_> =
        plan.links.iter().flat_map(|l| &l.ends).map(|e| &e.interface).collect();
    assert_eq!(interfaces, ["eth0", "eth0", "eth1", "eth0"]);
    let of_b: Vec<String> = plan.addresses_of("b").map(|address| address.to_string()).collect();
    assert_eq!(of_b, ["10.77.0.2", "fd77::2", "10.77.1.1", "fd77:1::1"]);
    assert!(plan.hosts_file().contains("\n10.77.1.2 c\n"));
}

#[test]
fn below_the_least_mtu_of_ipv6_there_is_ipv4_only() {
    let ends = |keys: &str| link(keys).map(|link| link.ends);
    let [first, _] = ends("mtu = 576").unwrap();
    let addresses: Vec<String> = first.addresses.iter().map(|a| a.address.to_string()).collect();
    assert_eq!(addresses, ["10.77.0.1"]);
    let error = ends("mtu = 1279\naddresses = { a = [\"fd00::1/64\"] }").unwrap_err();
    assert_eq!(error.message, "fd00::1 needs an MTU of at least 1280 bytes");
    assert!(ends("mtu = 1280\naddresses = { a = [\"fd77::1/64\"] }").is_ok());
}

fn switch(keys: &str) -> Result<SwitchPlan, LabFileError> {
    let text = format!("{HOSTS}[host.c]\n[[link]]\nbetween = [\"a\", \"c\"]\n[[switch]]\n{keys}\n");
    parse_lab("t.toml", &text).map(|plan| plan.switches.into_iter().next().unwrap())
}

#[test]
fn a_switch_joins_its_hosts() {
    let read = switch(
        "name = \"lan\"\nhosts = [\"c\", \"b\"]\nmtu = 9000\nspeed = \"25G\"\ncores = [1]\n\
         addresses = { b = [\"10.78.0.9/16\"] }",
    )
    .unwrap();
    assert_eq!((&read.name[..], read.mtu_bytes, &read.cores[..]), ("lan", 9000, &[1][..]));
    let ends: Vec<_> = read
        .ends
        .iter()
        .map(|end| (&end.host[..], &end.interface[..], end.addresses[0].address.to_string()))
        .collect();
    // Host c has a link already.
    assert_eq!(
        ends,
        [("c", "eth1", "10.78.0.1".to_owned()), ("b", "eth0", "10.78.0.9".to_owned())]
    );
    assert_eq!(read.ends[0].addresses[1].address.to_string(), "fd78::1");
    assert_eq!(read.ends[1].speed_bits_per_s, Some(25_000_000_000));
    assert_eq!(read.line, None);
    let slow =
        switch("name = \"s\"\nhosts = [\"a\", \"b\"]\nrate = \"1G\"\nqueue = \"1MiB\"\nseed = 9");
    let slow = slow.unwrap();
    assert_eq!(slow.ends[1].speed_bits_per_s, Some(1_000_000_000));
    let line = DirectionPlan {
        seed: 9,
        rate_bits_per_s: Some(1_000_000_000),
        queue_bytes: Some(1 << 20),
        ..DirectionPlan::default()
    };
    assert_eq!(slow.line, Some(line));
    let long = "x".repeat(32);
    for (keys, message) in [
        ("hosts = [\"a\", \"b\"]", "'name' is missing".to_owned()),
        ("name = \"s\"", "'hosts' is missing".to_owned()),
        (
            "name = \"s\"\nhosts = [\"a\"]",
            "a switch joins at least two hosts: write hosts = [\"HOST\", \"HOST\"]".to_owned(),
        ),
        ("name = \"s\"\nhosts = [\"a\", \"a\"]", "'a' is on the switch twice".to_owned()),
        ("name = \"s\"\nhosts = [\"a\", \"d\"]", "no host 'd'; known: a, b, c".to_owned()),
        (
            "name = \"s\"\nhosts = [\"a\", \"b\"]\nhots = 1",
            "unknown key 'hots'; did you mean 'hosts'?".to_owned(),
        ),
        (
            "name = \"s\"\nhosts = [\"a\", \"b\"]\nreorder = \"1%\"",
            "reorder needs reorder_by, the time by which such frames come late".to_owned(),
        ),
        (
            "name = \"s\"\nhosts = [\"a\", \"b\"]\nseed = 1",
            "a seed has no effect without delay, loss or another emulated property".to_owned(),
        ),
        (
            &format!("name = \"{long}\"\nhosts = [\"a\", \"b\"]"),
            format!("'{long}' is longer than the 31 letters of a port"),
        ),
        (
            "name = \"s\"\nhosts = [\"a\", \"b\"]\n[[switch]]\nname = \"s\"\nhosts = [\"a\", \"b\"]",
            "there is a switch 's' already".to_owned(),
        ),
    ] {
        assert_eq!(switch(keys).unwrap_err().message, message);
    }
}

#[test]
fn a_file_system_has_servers_and_clients() {
    let read = |keys: &str| {
        let text = format!("{HOSTS}[[link]]\nbetween = [\"a\", \"b\"]\n[filesystem]\n{keys}\n");
        parse_lab("t.toml", &text).map(|plan| plan.filesystem)
    };
    let whole = "kind = \"moosefs\"\nservers = [\"a\"]\nclients = [\"b\"]";
    let plan = read(whole).unwrap().unwrap();
    assert_eq!((plan.kind, plan.capacity_bytes), (FilesystemKind::MooseFs, 1 << 30));
    assert_eq!(plan.mount_point(), Path::new("/mnt/pfs"));
    for (keys, message) in [
        ("servers = [\"a\"]", "'kind' is missing"),
        ("kind = \"nfs\"", "unknown file system 'nfs'; known: moosefs, glusterfs"),
        ("kind = \"moosefs\"\nservers = []", "servers: name at least one host"),
        ("kind = \"moosefs\"\nservers = [\"d\"]", "no host 'd'; known: a, b"),
        ("kind = \"moosefs\"\nservers = [\"a\", \"a\"]\nclients = [\"b\"]", "'a' is named twice"),
        (
            "kind = \"moosefs\"\nservers = [\"a\"]\nclients = [\"a\"]",
            "'a' is already a server; clients must be other hosts, so that their traffic crosses the network",
        ),
        (
            "kind = \"glusterfs\"\nservers = [\"a\"]\nclients = [\"b\"]\nforwarder = \"c\"",
            "only a file system of kind moosefs can be forwarded, not GlusterFS",
        ),
        (&format!("{whole}\ncapacity = \"1MiB\""), "a server needs at least 256MiB"),
        (
            &format!("{whole}\nname = \"../x\""),
            "'../x' is not a name; letters, digits, - and _, up to 63",
        ),
    ] {
        assert_eq!(read(keys).unwrap_err().message, message);
    }
}

#[test]
fn addresses_that_the_kernel_would_refuse_are_refused_with_their_line() {
    let example = "write for example 10.0.0.1/24 or fd00::1/64";
    let off = "[host.a]\nsysctl = { \"net.ipv6.conf.all.disable_ipv6\" = 1 }\n[host.b]\n";
    for (hosts, addresses, message) in [
        ("", "a = [\"10.0.0.300/24\"]", format!("'10.0.0.300' is not an address; {example}")),
        ("", "a = [\"a/24\"]", format!("'a' is not an address; {example}")),
        ("", "a = [\"10.0.0.1/33\"]", "'10.0.0.1/33': the prefix of an IPv4 address has 1 to 32 bits".into()),
        ("", "a = [\"fd00::1/x\"]", "'fd00::1/x': the prefix of an IPv6 address has 1 to 128 bits".into()),
        ("", "a = [\"10.0.0.0/24\"]", format!("'10.0.0.0/24' is the address of the network itself; {example}")),
        ("", "a = [\"224.0.0.1/24\"]", format!("'224.0.0.1/24' is a multicast address; {example}")),
        (off, "a = [\"fd77::1/64\"]", "fd77::1/64 of 'a': its sysctl disable_ipv6 switches IPv6 off".into()),
        ("", "a = [\"10.77.0.2/24\"]", "'b' has the address 10.77.0.2 of 'a'".into()),
        ("", "a = [\"10.77.0.1/24\", \"10.77.0.1/16\"]", "'a' has the address 10.77.0.1 twice".into()),
        (
            "",
            "a = [\"10.0.0.1/24\"]",
            "10.0.0.1/24 of 'a' and 10.77.0.2/24 of 'b' are in different networks: give both an address of one".into(),
        ),
    ] {
        let hosts = if hosts.is_empty() { "[host.a]\n[host.b]\n" } else { hosts };
        let text = format!("name = \"t\"\n{hosts}[[link]]\nbetween = [\"a\", \"b\"]\n");
        let line = text.lines().count() + 2;
        let text = format!("{text}[link.addresses]\n{addresses}\n");
        assert_eq!(complaint(&text), format!("t.toml:{line}: {message}"));
        let routeless = format!("routes = false\n{text}");
        let differs = message.contains("different networks");
        assert_eq!(parse_lab("t.toml", &routeless).is_ok(), differs, "{message}");
    }
    let text = format!("name = \"t\"\n{off}[[link]]\nbetween = [\"a\", \"b\"]\n");
    let plan = parse_lab("t.toml", &text).unwrap();
    let counts = [0, 1].map(|end| plan.links[0].ends[end].addresses.len());
    assert_eq!(counts, [1, 2], "a has no IPv6");
}

#[test]
fn a_table_with_the_wrong_brackets_is_told_the_right_ones() {
    let text = format!("{HOSTS}[link]\nbetween = [\"a\", \"b\"]\n");
    let message = "write [[link]], with double brackets, for each link";
    assert_eq!(complaint(&text), format!("t.toml:4: {message}"));
    let text = "name = \"t\"\n[[host]]\nname = \"a\"\n";
    let message = "'host' is one table: write it with single brackets, [ ]";
    assert_eq!(complaint(text), format!("t.toml:2: {message}"));
}

#[test]
fn the_guide_is_a_lab_and_knows_every_key() {
    let text = include_str!("../../../../docs/lab.md");
    let example = text.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let plan = parse_lab("docs/lab.md", example).unwrap();
    assert_eq!((plan.hosts.len(), plan.switches.len(), plan.links.len()), (4, 1, 1));
    let keys = [LINK_KEYS, DIRECTION_KEYS, VETH_KEYS, switch::KEYS, filesystem::KEYS].concat();
    let missing: Vec<_> = keys.iter().filter(|key| !text.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn any_text_is_a_lab_or_one_line() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let text = match bytes.len() % 4 {
            3 => format!("{HOSTS}[filesystem]\nkind = \"moosefs\"\n{text}"),
            0 => format!("{HOSTS}[[link]]\nbetween = [\"a\", \"b\"]\n{text}"),
            1 => format!("{HOSTS}[[switch]]\nname = \"s\"\nhosts = [\"a\", \"b\"]\n{text}"),
            _ => text.into_owned(),
        };
        if let Err(error) = parse_lab("t.toml", &text) {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    });
}

#[test]
fn guests_are_on_one_switch_and_their_mistakes_are_told() {
    let with = |rest: &str| parse_lab("g", &format!("name = \"g\"\n[guest.one]\n{rest}"));
    let on_desk = "[guest.two]\nmemory = \"1GiB\"\ncores = 2\ntype = \"ptnet\"\n[[switch]]\nname = \"desk\"\nhosts = [\"one\", \"two\"]\n";
    let plan = with(on_desk).unwrap();
    assert!(plan.hosts.is_empty());
    let two = plan.guest("two").unwrap();
    assert_eq!((two.memory_bytes, two.cores, two.port_type), (1 << 30, 2, PortType::Ptnet));
    assert_eq!((two.queues_count(), two.trust.as_ref()), (2, None));
    let one = with(&format!("type = \"ptnet\"\ntrust = \"g\"\ncores = 4\n{on_desk}")).unwrap();
    let one = one.guest("one").unwrap();
    assert_eq!(
        (one.queues_count(), one.trust.as_ref().map(ToString::to_string)),
        (1, Some("g".into()))
    );
    let few = with(&format!("cores = 4\nqueues = 3\n{on_desk}")).unwrap();
    assert_eq!(few.guest("one").map(GuestPlan::queues_count), Some(3));
    assert_eq!(plan.guest("one").map(|one| (one.memory_bytes, one.cores)), Some((256 << 20, 1)));
    assert_eq!(plan.guest_end("two").map(|(switch, _)| switch.name.as_str()), Some("desk"));
    assert!(plan.hosts_file().contains("10.78.0.2 two\n"), "{}", plan.hosts_file());
    let shared = "[host.a]\n[[switch]]\nname = \"s\"\nhosts = [\"one\", \"a\"]\n";
    for (rest, why) in [
        ("memory = \"1MiB\"\n", "at least 64MiB"),
        ("cores = 99\n", "1 to 16 cores"),
        ("type = \"e1000\"\n", "virtio or ptnet"),
        ("disk = \"x\"\n", "unknown key 'disk'"),
        ("trust = \"g\"\n", "only guests of type ptnet"),
        ("type = \"ptnet\"\ntrust = \"a:b\"\n", "'a:b' is not a name"),
        ("type = \"ptnet\"\ntrust = \"g\"\nqueues = 2\n", "has 1 pair of queues"),
        ("type = \"ptnet\"\nqueues = 9\n", "a ptnet guest has 1 to 8 pairs"),
        ("queues = 17\n", "a virtio guest has 1 to 16 pairs"),
        ("queues = 0\n", "1 to 16 pairs"),
        ("[host.one]\n", "'one' is a host already"),
        ("[host.a]\n", "'one' is on 0 switches"),
        (&format!("{shared}[[switch]]\nname = \"t\"\nhosts = [\"one\", \"a\"]\n"), "on 2 switches"),
        (&format!("{shared}delay = \"1ms\"\n"), "cannot be emulated"),
        ("[host.a]\n[[link]]\nbetween = [\"one\", \"a\"]\n", "no host 'one'"),
    ] {
        let error = with(rest).unwrap_err();
        assert!(error.message.contains(why), "{rest}: {error}");
    }
}
