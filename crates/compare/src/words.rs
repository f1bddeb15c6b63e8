//! Figures and settings in words.

use std::collections::BTreeMap;

use results::{Protocol, TestSpec, Work};
use serde_json::Value;

use crate::quantity::Quantity;

/// Figures whose names say too little.
const FIGURES: [(&str, &str); 12] = [
    ("received_bits_per_s", "throughput"),
    ("sent_bits_per_s", "sent"),
    ("lost_share", "loss"),
    ("reordered_share", "reordering"),
    ("delivered_datagrams_per_s", "datagrams delivered"),
    ("retransmits_count", "retransmissions"),
    ("near_cpu_s_per_gbit", "CPU time, near end"),
    ("far_cpu_s_per_gbit", "CPU time, far end"),
    ("cpu_s_per_gbit", "CPU time, both ends"),
    ("moved_bytes_per_s", "throughput"),
    ("items_per_s", "throughput"),
    ("cpu_s", "CPU time"),
];

/// A figure in words, without its unit: `throughput, reverse`, `RTT p99`, `retransmissions`.
#[must_use]
pub fn figure_words(name: &str) -> String {
    if let Some((_, words)) = FIGURES.iter().find(|(known, _)| *known == name) {
        return (*words).to_owned();
    }
    for way in ["forward", "reverse"] {
        if let Some(rest) = name.strip_prefix(way).and_then(|rest| rest.strip_prefix('_')) {
            return format!("{}, {way}", figure_words(rest));
        }
    }
    if let Some(rest) = name.strip_prefix("loaded_") {
        return format!("{} under load", figure_words(rest));
    }
    let stem = ["_bits_per_s", "_bytes_per_s", "_pkts_per_s", "_bytes", "_count", "_share", "_s"]
        .iter()
        .find_map(|unit| name.strip_suffix(unit).filter(|stem| !stem.ends_with("_per")))
        .unwrap_or(name);
    stem.replace("_per_s", "/s").replace(['_', '-'], " ").replace("rtt", "RTT")
}

/// A figure in words; of work on files, where what is timed is a call and no round trip: `call p99`.
pub(crate) fn figure_words_of(name: &str, is_of_files: bool) -> String {
    let words = figure_words(name);
    if is_of_files { words.replace("RTT", "call") } else { words }
}

/// What was varied, in words: `window 4.00 MiB`.
pub(crate) fn varied_words(varied: &BTreeMap<String, f64>) -> String {
    let one = |(name, value): (&String, &f64)| {
        format!("{} {}", figure_words(name), Quantity::of_figure(name).show(*value))
    };
    varied.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Sizes of packets and of what is in them, which nobody counts in KiB.
const OF_PACKETS: [&str; 6] =
    ["mtu_bytes", "mss_bytes", "datagram_bytes", "frame_bytes", "request_bytes", "response_bytes"];

/// Fields of a test that are no setting of it.
const NO_SETTINGS: [&str; 2] = ["interval_s", "protocol"];

/// What was asked for, in words: its options that are not the usual ones.
pub(crate) fn work_words(work: &Work) -> Vec<String> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(work) else { return Vec::new() };
    fields.remove("kind");
    let mut words = Vec::new();
    if let Some(spec) = work.test() {
        words.push(match (spec.protocol, &spec.request_response) {
            (Protocol::Tcp, None) => "TCP".to_owned(),
            (Protocol::Udp, None) => "UDP".to_owned(),
            (Protocol::Tcp, Some(_)) => "TCP request/response".to_owned(),
            (Protocol::Udp, Some(_)) => "UDP request/response".to_owned(),
        });
        let usual = serde_json::to_value(usual(spec)).unwrap_or_default();
        fields.retain(|name, value| {
            !NO_SETTINGS.contains(&name.as_str()) && usual.get(name) != Some(value)
        });
    }
    // Options that are all the usual ones have no words.
    let own = fields.iter().map(|(name, value)| field_words(name, value));
    words.extend(own.filter(|words| !words.is_empty()));
    words
}

/// The test without options.
fn usual(spec: &TestSpec) -> TestSpec {
    match (&spec.request_response, &spec.udp) {
        (Some(_), _) => TestSpec::request_response(spec.protocol, 1, 1),
        (None, Some(udp)) => TestSpec::udp(udp.datagram_bytes),
        (None, None) => TestSpec::tcp(),
    }
}

fn field_words(name: &str, value: &Value) -> String {
    let (name, shown) = field(name, value);
    match value {
        Value::Bool(true) => name,
        Value::Bool(false) => format!("no {name}"),
        Value::String(_) | Value::Object(_) => shown,
        _ => format!("{name} {shown}"),
    }
}

/// The unit of a field's bare number, with the space before it; empty where its name has none that is known.
pub(crate) fn unit_of(name: &str) -> &'static str {
    const UNITS: [(&str, &str); 4] =
        [("_bits_per_s", " bit/s"), ("_per_s", "/s"), ("_bytes", " B"), ("_s", " s")];
    UNITS.iter().find(|(ending, _)| name.ends_with(ending)).map_or("", |(_, unit)| unit)
}

/// The name and the value of a field in words.
pub(crate) fn field(name: &str, value: &Value) -> (String, String) {
    let shown = match value {
        Value::Null => String::new(),
        Value::Bool(is_so) => if *is_so { "yes" } else { "no" }.to_owned(),
        Value::Number(number) if OF_PACKETS.contains(&name) => format!("{number} B"),
        Value::Number(number) => {
            Quantity::of_figure(name).show(number.as_f64().unwrap_or(f64::NAN))
        }
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            let one =
                |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            values.iter().map(one).collect::<Vec<_>>().join(" ")
        }
        Value::Object(fields) => {
            let part = |(name, value): (&String, &Value)| field_words(name, value);
            fields.iter().map(part).collect::<Vec<_>>().join(", ")
        }
    };
    let bare = ["is_", "has_"].into_iter().find_map(|prefix| name.strip_prefix(prefix));
    (figure_words(bare.unwrap_or(name)), shown)
}

/// An experiment's name in words: `window-sweep` as `window sweep`. One that is written in words keeps its hyphens.
pub(crate) fn experiment_words(name: &str) -> String {
    if name.contains(' ') { name.to_owned() } else { name.replace('-', " ") }
}

/// The name of a phase of file-system load for people. Phases carry the number of their test in IOR's script; the only
/// test of a command line is number 0: `write-0` is shown as `write`, `write-1` as it is.
#[must_use]
pub fn phase_name(experiment: &str) -> &str {
    experiment.strip_suffix("-0").unwrap_or(experiment)
}

#[cfg(test)]
mod tests {
    use results::{Direction, TestLimit};

    use super::*;

    #[test]
    fn figures_are_words_and_not_keys() {
        for (name, words) in [
            ("forward_received_bits_per_s", "throughput, forward"),
            ("reverse_lost_share", "loss, reverse"),
            ("loaded_rtt_p99.9_s", "RTT p99.9 under load"),
            ("rtt_p50_s", "RTT p50"),
            ("transactions_per_s", "transactions/s"),
            ("best_rank_mean_latency_s", "best rank mean latency"),
            ("received_pkts_per_s", "received"),
        ] {
            assert_eq!(figure_words(name), words);
        }
        assert_eq!(figure_words_of("rtt_p99_s", true), "call p99");
        assert_eq!(figure_words_of("rtt_p99_s", false), "RTT p99");
    }

    #[test]
    fn a_test_is_described_by_what_is_unusual_about_it() {
        assert_eq!(work_words(&TestSpec::tcp().into()), ["TCP"]);
        let spec = TestSpec {
            direction: Direction::Reverse,
            streams: 4,
            limit: TestLimit::DurationS(2.0),
            window_bytes: Some(4 << 20),
            congestion_control: Some("bbr".to_owned()),
            latency_under_load: true,
            interval_s: 0.25,
            ..TestSpec::tcp()
        };
        let words = work_words(&spec.into()).join(", ");
        assert_eq!(
            words,
            "TCP, bbr, reverse, latency under load, duration 2.00 s, streams 4, window 4.00 MiB"
        );
    }
}
