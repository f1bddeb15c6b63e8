use super::*;
use crate::example::{CUMULUS, cumulus};
use crate::hash::HashPolicy;
use crate::plan::{Mode, WatchMode};

/// The first mistake of the example with one piece of it replaced.
fn mistake(from: &str, to: &str) -> Mistake {
    assert!(CUMULUS.contains(from), "{from}");
    let text = CUMULUS.replacen(from, to, 1);
    let error = parse_plan("plan.toml", &text).expect_err(to);
    error.mistakes[0].clone()
}

/// The line of the example that has a piece.
fn line_with(piece: &str) -> usize {
    CUMULUS.lines().position(|line| line.contains(piece)).unwrap() + 1
}

#[test]
fn the_paper_s_system_is_read() {
    let plan = cumulus("pairs");
    assert_eq!((plan.networks.len(), plan.gateways.len(), plan.hosts.len()), (2, 6, 122));
    assert_eq!(plan.networks[0].name, "compute");
    let last = plan.hosts.last().unwrap();
    assert_eq!((last.name.as_str(), last.network, last.number), ("wolf10", 1, 9));
    assert_eq!(plan.hosts[111].port.address.to_string(), "10.100.1.112");
    assert_eq!(plan.gateways[5].ports[1].address.to_string(), "10.10.0.16");
    assert_eq!(plan.routing.policy, HashPolicy::Ports);
    assert_eq!((plan.watch.multiplier, plan.watch.mode), (3, WatchMode::SelfProbing));
    assert_eq!(plan.remarks, Vec::<String>::new());
    let Mode::Resilient(buckets) = cumulus("resilient").routing.mode else { panic!("resilient") };
    assert_eq!((buckets.count, buckets.idle.as_secs()), (128, 120));
}

#[test]
fn every_mistake_is_refused_with_its_line_and_reason() {
    let table: &[(&str, &str, &str, &str)] = &[
        // piece, what stands there instead, a piece of the line, a piece of the reason
        ("10.10.0.0/24", "10.100.3.0/24", "10.10.0.0/24", "overlaps 10.100.0.0/16 of the network"),
        ("10.10.0.0/24", "10.10.0.1/24", "10.10.0.0/24", "bits set behind the prefix"),
        ("10.10.0.0/24", "fd00::/64", "10.10.0.0/24", "addresses of one family"),
        ("10.10.0.0/24", "wolf", "10.10.0.0/24", "is not a network"),
        (
            ", storage = \"10.10.0.[11-16]\"",
            "",
            "sn[1-6]",
            "has no address on the network 'storage'",
        ),
        (", storage = \"ib0\"", "", "sn[1-6]", "has no interface on the network 'storage'"),
        ("10.10.0.[11-16]", "10.10.1.[91-96]", "10.10.0.[11-16]", "is outside the network"),
        ("10.10.0.[11-16]", "10.10.0.[11-15]", "10.10.0.[11-16]", "5 addresses for 6 names"),
        (
            "10.10.0.[11-16]",
            "10.10.0.[21-26]",
            "10.10.0.[21-30]",
            "is the address of 'sn1' already",
        ),
        (
            "10.100.0.[91-96]",
            "10.100.0.[0-5]",
            "10.100.0.[91-96]",
            "address of 10.100.0.0/16 itself",
        ),
        ("sn[1-6]", "sn[1-5,5]", "sn[1-6]", "'sn5' is already defined"),
        ("sn[1-6]", "wolf[01-06]", "wolf[01-10]", "'wolf01' is already defined"),
        ("sn[1-6]", "sn[6-1]", "sn[1-6]", "runs backwards"),
        ("sn[1-6]", "sn [1-6]", "sn[1-6]", "may contain only letters"),
        ("ipogif0\", storage", "a/b\", storage", "ipogif0\", storage", "not an interface name"),
        ("[[gateway]]", "[[gateway]]\nweight = 0", "[[gateway]]", "takes 1 to 256"),
        (
            "[[gateway]]",
            "[[gateway]]\nhardware_addresses = { storage = \"02:00:00:00:00:[01-05]\" }",
            "[[gateway]]",
            "5 hardware addresses for 6 names",
        ),
        (
            "[[gateway]]",
            "[[gateway]]\nhardware_addresses = { storage = \"02:00:00:00:[01-06]\" }",
            "[[gateway]]",
            "is not a hardware address",
        ),
        (
            "[[gateway]]",
            "[[gateway]]\nhardware_addresses = { storage = \"02:00:00:00:00:[01-03,03-05]\" }",
            "[[gateway]]",
            "02:00:00:00:00:03 is given twice",
        ),
        (
            "[[gateway]]",
            "[[gateway]]\nhardware_addresses = { disk = \"02:00:00:00:00:[01-06]\" }",
            "[[gateway]]",
            "no network 'disk'",
        ),
        (
            "[[gateway]]",
            "[[gateway]]\nhardware_addresses = { storage = \"01:00:5e:00:00:[01-06]\" }",
            "[[gateway]]",
            "01:00:5e:00:00:01 is not the address of a single host",
        ),
        (
            "[[gateway]]",
            "[[gateway]]\nhardware_addresses = { storage = \"00:00:00:00:00:[00-05]\" }",
            "[[gateway]]",
            "00:00:00:00:00:00 is not the address of a single host",
        ),
        (
            "network = \"storage\"",
            "network = \"store\"",
            "network = \"storage\"",
            "no network 'store'",
        ),
        ("mode = \"pairs\"", "mode = \"random\"", "mode = \"pairs\"", "pairs, hash or resilient"),
        ("mode = \"pairs\"", "mode = \"hash\"\nbuckets = 8", "policy = 1", "belong to mode"),
        ("policy = 1", "policy = 2", "policy = 1", "goes from 0 to 1"),
        ("seed = 12345", "seed = 0", "seed = 12345", "each kernel chooses"),
        ("seed = 12345", "seed = 4294967296", "seed = 12345", "1 to 4294967295"),
        ("tables = 100", "tables = 250", "tables = 100", "252 has a meaning of its own"),
        ("rule_priority = 1000", "rule_priority = 32766", "rule_priority", "goes from 1 to 32760"),
        ("protocol = 77", "protocol = 12", "protocol = 77", "BIRD"),
        ("nexthop_ids = 7700", "nexthop_ids = 0", "nexthop_ids", "goes from 1 to"),
        ("policy = 1", "follow_udp = true", "policy = 1", "follow_udp needs `follow`"),
        ("policy = 1", "follow = \"disk\"", "policy = 1", "no network 'disk'"),
        ("interval = \"50ms\"", "interval = \"fast\"", "interval", "interval"),
        ("interval = \"50ms\"", "interval = \"50\"", "interval", "interval: '50' has no unit"),
        (
            "interval = \"50ms\"",
            "interval = 2",
            "interval",
            "interval: a time is written in quotes and with its unit: interval = \"2s\"",
        ),
        ("[[gateway]]", "[gateway]", "[[gateway]]", "write [[gateway]], with double brackets"),
        ("[routing]", "[[routing]]", "[routing]", "write [routing], with single brackets"),
        ("multiplier = 3", "multiplier = 0", "multiplier", "goes from 1 to 255"),
        ("mode = \"self\"", "mode = \"all\"", "mode = \"self\"", "self or sentinel"),
        ("bfd = false", "bfd = 3", "bfd", "expected false, true or \"multihop\""),
        ("bfd = false", "bfd = \"far\"", "bfd", "expected false, true or \"multihop\""),
        ("bfd = false", "bfd = \"multihop\"", "bfd", "needs `bfd_peers"),
        ("bfd = false", "bfd = true\nbfd_ttl_min = 254", "bfd", "over one hop only a TTL of 255"),
        ("bfd = false", "bfd_ttl_min = 0", "bfd", "bfd_ttl_min = 0; it goes from 1 to 255"),
        (
            "[[gateway]]",
            "[[gateway]]\nbfd_peers = { disk = \"10.9.0.[1-6]\" }",
            "[[gateway]]",
            "no network 'disk'",
        ),
        (
            "[[gateway]]",
            "[[gateway]]\nbfd_peers = { compute = \"10.9.0.1\" }",
            "[[gateway]]",
            "1 BFD peers for 6 names; each gateway needs one of its own",
        ),
        (
            "[[gateway]]",
            "[[gateway]]\nbfd_peers = { compute = \"10.100.9.[1-6]\" }",
            "[[gateway]]",
            "10.100.9.1 is on the link of 'compute' itself",
        ),
        (
            "[[gateway]]",
            "[[gateway]]\nbfd_peers = { compute = \"fd00::[1-6]\" }",
            "[[gateway]]",
            "of another family",
        ),
        (
            "[[gateway]]",
            "[[gateway]]\nbfd_peers = { compute = \"x[1-6]\" }",
            "[[gateway]]",
            "'x1' is not an address",
        ),
        ("seed = 12345", "sead = 12345", "seed", "unknown key 'sead'; did you mean 'seed'?"),
        ("name = \"cumulus\"", "", "name = \"cumulus\"", "'name' is missing"),
        ("seed = 12345", "seed = [", "seed", ""),
    ];
    for (from, to, line, reason) in table {
        let found = mistake(from, to);
        assert!(found.reason.contains(reason), "{to}: {found:?}");
        let shift = to.matches('\n').count();
        let lines = line_with(line)..=line_with(line) + shift + usize::from(to.ends_with('['));
        // A key that is missing has no line of its own.
        let is_missing = reason.ends_with("is missing");
        assert!(is_missing || lines.contains(&found.line), "{to}: {found:?}, not {lines:?}");
    }
}

#[test]
fn weights_that_round_to_nothing_are_refused() {
    let light = "weight = 1\n[[gateway]]\nname = \"heavy\"\nweight = 256\n\
                 addresses = { compute = \"10.100.0.99\", storage = \"10.10.0.99\" }\n\
                 interfaces = { compute = \"ipogif0\", storage = \"ib0\" }\n";
    let hosts = [("nid[0001-0112]", "nid[0001-0004]"), ("[1-112]", "[1-4]")];
    let mut text = CUMULUS.replace("\n[hosts.nid]", &format!("{light}\n[hosts.nid]"));
    for (from, to) in hosts {
        text = text.replace(from, to);
    }
    let error = parse_plan("plan.toml", &text).unwrap_err();
    assert!(error.to_string().contains("rounds to nothing: none of 40 pairs"), "{error}");
    let text = text.replace("mode = \"pairs\"", "mode = \"resilient\"");
    let error = parse_plan("plan.toml", &text).unwrap_err();
    let reason = "the weight of 'sn1', 1 of 262, rounds to nothing: 0 of 128 buckets";
    assert_eq!(error.mistakes[0].reason, reason);
    assert_eq!(text.lines().nth(error.mistakes[0].line - 1), Some("weight = 1"));
    let text = text.replace("mode = \"resilient\"", "mode = \"hash\"");
    assert!(parse_plan("plan.toml", &text).is_ok());
}

#[test]
fn more_gateways_than_a_route_takes_are_refused() {
    let text = CUMULUS
        .replace("sn[1-6]", "sn[1-257]")
        .replace("10.100.0.[91-96]", "10.100.[7-8].[1-129]")
        .replace("10.10.0.0/24", "10.8.0.0/14")
        .replace("10.10.0.[11-16]", "10.9.[0-1].[1-129]");
    let error = parse_plan("plan.toml", &text).unwrap_err().to_string();
    assert!(error.contains("addresses for 257 names"), "{error}");
    let text = text.replace("sn[1-257]", "sn[1-258]");
    let error = parse_plan("plan.toml", &text).unwrap_err().to_string();
    assert!(error.contains("more than 256 gateways"), "{error}");
}

#[test]
fn several_mistakes_are_reported_in_the_order_of_the_file() {
    let text =
        CUMULUS.replace("10.10.0.[11-16]", "10.10.1.[91-96]").replace("seed = 12345", "seed = 0");
    let error = parse_plan("plan.toml", &text).unwrap_err();
    let lines: Vec<usize> = error.mistakes.iter().map(|mistake| mistake.line).collect();
    assert_eq!(lines.len(), 7);
    assert!(lines.is_sorted());
    assert!(error.to_string().lines().all(|line| line.starts_with("plan.toml:")));
}

#[test]
fn what_was_probably_not_meant_is_remarked() {
    let remarks = |changes: &[(&str, &str)]| {
        let text =
            changes.iter().fold(CUMULUS.to_owned(), |text, (from, to)| text.replace(from, to));
        parse_plan("plan.toml", &text).unwrap().remarks.join("\n")
    };
    let polarised = remarks(&[("seed = 12345", "seed = 5\ngateway_seed = 5")]);
    assert!(polarised.contains("over 6 next hops would use 17 %"), "{polarised}");
    assert_eq!(remarks(&[("seed = 12345", "seed = 5\ngateway_seed = 6")]), "");
    assert!(
        remarks(&[("mode = \"pairs\"", "mode = \"hash\""), ("seed = 12345", "")])
            .contains("no seed")
    );
    let few = remarks(&[
        ("nid[0001-0112]", "nid1"),
        ("10.100.1.[1-112]", "10.100.1.1"),
        ("wolf[01-10]", "wolf[1-2]"),
        ("10.10.0.[21-30]", "10.10.0.[21-22]"),
    ]);
    assert!(few.contains("sn3, sn4, sn5, sn6 carry none"), "{few}");
}

#[test]
fn any_text_is_a_plan_or_refused_with_lines() {
    bolero::check!().with_type::<String>().for_each(|text| {
        if let Err(error) = parse_plan("plan.toml", text) {
            assert!(!error.mistakes.is_empty() && error.mistakes.len() <= MISTAKES_COUNT_MAX);
        }
    });
}

/// Near misses reach deeper than noise: pieces of the example exchanged.
#[test]
fn any_change_of_a_plan_is_a_plan_or_refused_with_lines() {
    bolero::check!().with_type::<(u16, u16, Vec<u8>)>().for_each(|(at, count, bytes)| {
        let mut text = CUMULUS.as_bytes().to_vec();
        let at = usize::from(*at) % text.len();
        let end = (at + usize::from(*count) % 64).min(text.len());
        text.splice(at..end, bytes.iter().copied().take(64));
        let text = String::from_utf8_lossy(&text);
        if let Err(error) = parse_plan("plan.toml", &text) {
            assert!(!error.mistakes.is_empty());
        }
    });
}
