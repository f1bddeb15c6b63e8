//! The reader against files that are damaged, foreign or hostile.

use results::{ReadError, Role, SCHEMA_VERSION, Work, read_results};

const PATH_OF_VERSION_1: &[u8] = include_bytes!("../../../testdata/results/synthetic-path.json");
const WHOLE: &[u8] = include_bytes!("../../../testdata/results/synthetic-unseen.json");

#[test]
fn a_whole_file_reads_and_writes_back_the_same() {
    let read = read_results(WHOLE).expect("a whole file");
    let written = serde_json::to_vec(&read).expect("writes");
    assert_eq!(read_results(&written).expect("reads again"), read);
}

#[test]
fn a_truncated_file_says_that_it_ends_in_the_middle() {
    let trimmed = WHOLE.trim_ascii_end();
    for share in 1..100 {
        let cut = &trimmed[..trimmed.len() * share / 100];
        let error = read_results(cut).expect_err("cut short");
        assert!(error.to_string().contains("ends in the middle"), "{share}%: {error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

#[test]
fn another_major_version_is_refused_and_a_minor_one_read() {
    let text = String::from_utf8_lossy(WHOLE);
    let version = |version: &str| {
        text.replacen("\"schema_version\":\"1.0\"", &format!("\"schema_version\":\"{version}\""), 1)
    };
    assert!(read_results(version("1.7").as_bytes()).is_ok());
    let refused = read_results(version("3.0").as_bytes());
    assert!(matches!(refused, Err(ReadError::Version { found }) if found == "3.0"));
    let mut current = serde_json::to_value(read_results(WHOLE).expect("whole")).expect("JSON");
    current["schema_version"] = "2.9".into();
    assert!(read_results(current.to_string().as_bytes()).is_ok());
}

#[test]
fn a_document_of_version_1_is_converted_and_loses_nothing() {
    let old: serde_json::Value = serde_json::from_slice(PATH_OF_VERSION_1).expect("JSON");
    assert_eq!(old["schema_version"], "1.0");
    let read = read_results(PATH_OF_VERSION_1).expect("read");
    let new = serde_json::to_value(&read).expect("JSON");
    assert_eq!(new["schema_version"], SCHEMA_VERSION);
    for same in ["kind", "tool", "command", "started_unix_ms", "path", "summaries", "verdict"] {
        assert_eq!(new[same], old[same], "{same}");
    }
    for (at, name) in [(0, "near"), (1, "far")] {
        assert_eq!(new["hosts"][at]["name"], name);
        assert_eq!(new["hosts"][at]["role"], name);
        assert_eq!(new["hosts"][at]["facts"], old[name]);
    }
    let (old, new) = (old["points"].as_array(), new["points"].as_array());
    let (old, new) = (old.expect("points"), new.expect("points"));
    assert_eq!((old.len(), read.points.len()), (new.len(), new.len()));
    for (old, new) in old.iter().zip(new) {
        for same in ["experiment", "repeat", "started_unix_ms", "command", "varied"] {
            assert_eq!(new[same], old[same], "{same}");
        }
        let asked = old["spec"].as_object().expect("a test");
        assert!(asked.iter().all(|(name, value)| new["work"][name] == *value), "{}", new["work"]);
        let kind = match (asked.contains_key("request_response"), &asked["protocol"]) {
            (true, _) => "round_trips",
            (false, protocol) if protocol == "udp" => "datagrams",
            (false, _) => "bulk",
        };
        assert_eq!(new["work"]["kind"], kind);
        let (old, new) = (&old["outcome"], &new["outcome"]);
        let Some(old) = old.get("measured") else {
            assert_eq!(new, old);
            continue;
        };
        let new = &new["measured"];
        for same in ["duration_s", "latency_under_load", "request_response"] {
            assert_eq!(new.get(same), old.get(same), "{same}");
        }
        assert!(
            old["directions"] == new["directions"] || old["directions"] == serde_json::json!([])
        );
        for (at, name) in [(0, "near"), (1, "far")] {
            assert_eq!(new["hosts"][at]["host"], name);
            assert_eq!(new["hosts"][at]["account"], old[name]);
        }
        let Some(first) = old["directions"].get(0) else { continue };
        let way = first["direction"].as_str().expect("a direction");
        let name = format!("{way}_received_bits_per_s");
        let figures = new["figures"].as_array().expect("figures");
        let figure = figures.iter().find(|one| one["name"] == *name).expect("the rate");
        assert_eq!(figure["value"], first["received_bits_per_s"]);
        assert_eq!(figure["unit"], "bits_per_s");
    }
}

#[test]
fn a_latency_probe_of_version_1_is_still_one() {
    let mut old: serde_json::Value = serde_json::from_slice(PATH_OF_VERSION_1).expect("JSON");
    let latency = old["path"]["idle_rtt"].clone();
    old["points"][0]["outcome"] = serde_json::json!({ "round_trips": latency });
    let read = read_results(old.to_string().as_bytes()).expect("read");
    let round_trips = read.points[0].measured().and_then(|outcome| outcome.round_trips.clone());
    assert_eq!(round_trips, read.path.idle_rtt);
}

#[test]
fn every_recorded_case_of_version_1_is_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/planted");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("recorded cases") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let recorded: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).expect("read")).expect("JSON");
        let results = read_results(recorded["results"].to_string().as_bytes());
        let results = results.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!results.near().kernel.is_empty(), "{}", path.display());
        assert!(results.points.iter().any(|point| point.tested().is_some()), "{}", path.display());
        count += 1;
    }
    assert!(count > 30, "{count}");
}

#[test]
fn a_reader_of_this_version_reads_hosts_and_work_of_later_ones() {
    let mut later = serde_json::to_value(read_results(WHOLE).expect("whole")).expect("JSON");
    let mut point = later["points"][0].clone();
    point["work"] = serde_json::json!({ "kind": "metadata", "files_count": 7 });
    point["by"] = serde_json::json!([{ "host": "client-3", "part": "create files" }]);
    let points = later["points"].as_array_mut().expect("points");
    points.push(point);
    let hosts = later["hosts"].as_array_mut().expect("hosts");
    let facts = hosts[0]["facts"].clone();
    hosts.push(serde_json::json!({ "name": "mds", "role": "metadata-server", "facts": facts }));
    let read = read_results(later.to_string().as_bytes()).expect("read");
    assert_eq!(
        read.hosts.last().map(|host| &host.role),
        Some(&Role::Other("metadata-server".into()))
    );
    assert!(matches!(read.points.last().map(|point| &point.work), Some(Work::Other(_))));
    assert_eq!(serde_json::to_value(&read).expect("JSON"), later);
}

#[test]
fn unknown_fields_are_ignored() {
    let text = String::from_utf8_lossy(WHOLE);
    let newer = text.replacen("\"schema_version\"", "\"novelty\": [1, {}], \"schema_version\"", 1);
    assert!(read_results(newer.as_bytes()).is_ok());
}

#[test]
fn nesting_without_end_is_an_error_not_a_crash() {
    let mut deep = b"{\"schema_version\":\"1.0\",\"x\":".to_vec();
    deep.extend(std::iter::repeat_n(b'[', 1 << 20));
    assert!(read_results(&deep).is_err());
}

#[test]
fn hostile_bytes_never_panic() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let _outcome = read_results(bytes);
    });
}

#[test]
fn damage_anywhere_never_panics() {
    bolero::check!().with_type::<(u32, u8)>().for_each(|(at, byte)| {
        let mut damaged = WHOLE.to_vec();
        let at = *at as usize % damaged.len();
        damaged[at] = *byte;
        // Most damage is refused; damage inside a string or number may pass. Neither may panic.
        let _outcome = read_results(&damaged);
    });
}
