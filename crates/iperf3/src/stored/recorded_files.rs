//! Files of versions 3.9 to 3.21, recorded over a shaper of 20 Mbit/s (testdata/recorded).

use std::path::Path;

use results::{Direction, DirectionOutcome, Results, Work};

use super::from_iperf3;

const VERSIONS: [&str; 4] = ["3.9", "3.12", "3.16", "3.21"];

fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recorded");
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn read(version: &str, what: &str) -> Results {
    let name = format!("iperf3-{version}-{what}.json");
    let results = from_iperf3(&file(&name)).unwrap_or_else(|| panic!("{name} is not read"));
    assert_eq!(results.tool.version, format!("iperf {version}"));
    results
}

fn direction(results: &Results) -> &DirectionOutcome {
    &results.points[0].measured().expect("measured").directions[0]
}

#[test]
fn files_of_every_version_tell_what_was_sent_received_and_lost() {
    for version in VERSIONS {
        for (what, way) in [("udp", Direction::Forward), ("udp-reverse", Direction::Reverse)] {
            let results = read(version, what);
            assert!(matches!(results.points[0].work, Work::Datagrams(_)), "{version} {what}");
            let direction = direction(&results);
            assert_eq!(direction.direction, way);
            // Offered 30 Mbit/s of payload, of which the shaper lets 20 Mbit/s of packets through.
            let (sent, received) = (direction.sent_bits_per_s, direction.received_bits_per_s);
            assert!((28.5e6..31e6).contains(&sent), "{version} {what}: {sent}");
            assert!((18.5e6..20e6).contains(&received), "{version} {what}: {received}");
            let udp = direction.udp.as_ref().expect("UDP");
            let share = udp.lost_count as f64 / udp.sent_count as f64;
            assert!((0.3..0.4).contains(&share), "{version} {what}: {udp:?}");
            assert!(udp.received_count + udp.lost_count <= udp.sent_count, "{udp:?}");
            let near = results.points[0].measured().expect("measured").near();
            assert_eq!(near.streams[0].sending, way == Direction::Forward);
            assert_eq!(near.streams[0].intervals.len(), 2);
        }
        let tcp = read(version, "tcp");
        let rate = direction(&tcp).received_bits_per_s;
        assert!((15e6..21e6).contains(&rate), "{version}: {rate}");
    }
}

/// The file's sum of the forward test counts 3496 lost of 5357, 65%: 1527 were lost in the omitted start.
#[test]
fn losses_of_the_omitted_start_are_not_counted() {
    for what in ["udp-omit", "udp-reverse-omit"] {
        let results = read("3.12", what);
        let direction = direction(&results);
        let udp = direction.udp.as_ref().expect("UDP");
        let share = udp.lost_count as f64 / udp.sent_count as f64;
        assert!((0.32..0.36).contains(&share), "{what}: {udp:?}");
        assert!(udp.received_count + udp.lost_count <= udp.sent_count, "{udp:?}");
        let near = results.points[0].measured().expect("measured").near();
        let stream = &near.streams[0];
        let of_direction =
            if stream.sending { direction.sent_bytes } else { direction.received_bytes };
        assert_eq!(stream.bytes, of_direction, "{what}");
        let lost = |omitted| {
            let rows = stream.intervals.iter().filter(move |row| row.omitted == omitted);
            rows.filter_map(|row| row.lost_count).sum::<u64>()
        };
        assert!(lost(false) <= udp.lost_count, "{what}: {:?}", stream.intervals);
    }
}

/// Before 3.10 the receiver's bytes are not told.
#[test]
fn without_the_receivers_sum_the_loss_is_that_of_the_whole_test_and_said_to_be() {
    let text = String::from_utf8(file("iperf3-3.12-udp-omit.json")).expect("text");
    let mut whole: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    whole["start"]["version"] = "iperf 3.9".into();
    let end = whole["end"].as_object_mut().expect("end");
    for sum in ["sum_sent", "sum_received"] {
        end.remove(sum);
    }
    let results = from_iperf3(whole.to_string().as_bytes()).expect("read");
    let udp = direction(&results).udp.as_ref().expect("UDP");
    let share = udp.lost_count as f64 / udp.sent_count as f64;
    assert!((0.32..0.36).contains(&share), "{udp:?}");
    assert!(results.absent.iter().any(|one| one.what.contains("omitted start")));
}

#[test]
fn no_change_to_a_udp_file_makes_the_reader_panic() {
    let text = file("iperf3-3.12-udp.json");
    bolero::check!().with_type::<Vec<(u16, u8)>>().for_each(|changes| {
        let mut text = text.clone();
        for (at, value) in changes {
            let at = usize::from(*at) % text.len();
            text[at] = *value;
        }
        if let Some(results) = from_iperf3(&text) {
            assert!(!explain::explain(&results).summary.is_empty());
        }
    });
}
