//! Symptoms: each has the value that a hand computes from the document, absent figures never become numbers, and
//! no document however absurd makes one that is not finite.

mod constructed;

use explain::symptoms::{Symptom, SymptomUnit, Symptoms, symptoms, symptoms_page};
use proptest::prelude::*;
use results::{End, Results, TestSpec};

use crate::absurd::disturb;
use crate::model::Model;

/// The symptom of that name, of one end where it has several.
fn named<'a>(all: &'a Symptoms, name: &str, end: Option<End>) -> Option<&'a Symptom> {
    let is_it = |group: &explain::symptoms::SymptomGroup| end.is_none() || group.end == end;
    all.all().find(|(group, one)| is_it(group) && one.name == name).map(|(_, one)| one)
}

fn median(all: &Symptoms, name: &str, end: Option<End>) -> Option<f64> {
    named(all, name, end)
        .unwrap_or_else(|| panic!("no symptom {name}"))
        .estimate
        .map(|one| one.median)
}

/// Names of the known symptoms, with their group.
fn known(all: &Symptoms) -> Vec<String> {
    let told = all.all().filter(|(_, one)| one.estimate.is_some());
    told.map(|(group, one)| {
        format!(
            "{} {:?} {:?} {}",
            group.section.name(),
            group.end,
            group.offered_bits_per_s,
            one.name
        )
    })
    .collect()
}

/// Finite, not negative, shares at most 1, the median within the spread.
fn sane(all: &Symptoms) -> Result<(), String> {
    for (group, one) in all.all() {
        let Some(told) = one.estimate else { continue };
        let what = format!("{} {}: {told:?}", group.section.name(), one.name);
        let most = if one.unit == SymptomUnit::Share { 1.0 } else { f64::MAX };
        if !(0.0..=most).contains(&told.median) || told.repeats_count == 0 {
            return Err(what);
        }
        if let Some(spread) = told.spread {
            let ordered = spread.min <= told.median && told.median <= spread.max;
            if !(ordered && spread.deviation.is_finite() && told.repeats_count > 1) {
                return Err(what);
            }
        }
        if let Some(sampling) = told.sampling {
            let is_error = (0.0..=f64::MAX).contains(&sampling.standard_error);
            if !(is_error && sampling.samples_count >= 3 && told.repeats_count == 1) {
                return Err(what);
            }
        }
    }
    Ok(())
}

/// Every recorded planted limit, with its name.
pub(crate) fn recordings() -> Vec<(String, Results)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/planted");
    let files = std::fs::read_dir(folder).expect("the folder of recordings");
    files
        .map(|entry| entry.expect("a readable folder").path())
        .map(|path| {
            let text = std::fs::read(&path).expect("a readable file");
            let value: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            let results = results::read_results(value["results"].to_string().as_bytes());
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, results.expect("a results document"))
        })
        .collect()
}

#[test]
fn the_documented_symptoms_are_the_table_that_computes() {
    let written = include_str!("../../../../docs/symptoms.md");
    assert_eq!(
        written,
        symptoms_page(),
        "write docs/symptoms.md anew: run the example symptoms_page"
    );
}

#[test]
fn every_symptom_of_a_document_is_documented_once() {
    let page = symptoms_page();
    let mut documented: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    documented.sort_unstable();
    let many = documented.len();
    documented.dedup();
    assert_eq!(documented.len(), many, "a name is documented twice");
    assert!(many >= 50, "{many}");
    let all = symptoms(&Model::default().results(&TestSpec::tcp()));
    for (group, one) in all.all() {
        let is_core = |word: &&str| word.chars().all(|letter| letter.is_ascii_digit());
        let words = one.name.split('-');
        let name: Vec<&str> = words.map(|word| if is_core(&word) { "N" } else { word }).collect();
        let name = name.join("-");
        let name = if one.name.starts_with("core-") { &name } else { &one.name };
        assert!(documented.contains(&name.as_str()), "{name}");
        let same = group.symptoms.iter().filter(|other| other.name == one.name).count();
        assert_eq!(same, 1, "{name} is twice in {}", group.section.name());
    }
}

#[test]
fn recordings_have_finite_symptoms_with_shares_of_0_to_1() {
    let all = recordings();
    assert!(all.len() >= 40, "{}", all.len());
    for (name, results) in &all {
        let told = symptoms(results);
        sane(&told).unwrap_or_else(|what| panic!("{name}: {what}"));
        // Where nothing arrives there is no flow to tell of.
        if name.starts_with("black-hole") {
            continue;
        }
        assert!(known(&told).len() >= 60, "{name}: {}", known(&told).len());
        for needed in ["throughput", "rtt", "queue-growth", "peer-window-fill"] {
            assert!(median(&told, needed, None).is_some(), "{name}: {needed}");
        }
    }
}

/// A sender that waits most of the time is sampled with nothing in flight, or with more than the mean; without SACK
/// what has arrived behind a loss counts as in flight until the loss is repaired. `quota-near` has too few samples to
/// tell how uncertain its figures are.
#[test]
fn of_the_recordings_only_interrupted_senders_and_those_without_sack_contradict_themselves() {
    let mut told: Vec<String> = recordings()
        .into_iter()
        .filter(|(_, results)| symptoms(results).contradiction().is_some())
        .map(|(name, _)| name)
        .collect();
    told.sort();
    assert_eq!(told, ["crowd-near", "no-sack", "no-sack-iperf3", "no-sack-reverse"]);
}

#[test]
fn a_document_of_nothing_has_no_symptom() {
    let nothing = symptoms(&Results::begun(results::RunKind::Path, 0));
    assert_eq!(known(&nothing), Vec::<String>::new());
    assert!(nothing.all().count() > 60 && nothing.contradiction().is_none());
}

/// Removes a field from every object of a document.
fn without(value: &mut serde_json::Value, field: &str) {
    match value {
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| without(item, field)),
        serde_json::Value::Object(members) => {
            members.remove(field);
            members.values_mut().for_each(|member| without(member, field));
        }
        _ => {}
    }
}

/// Fields that may be missing, with the symptoms that nothing else can tell.
const FIELDS: [(&str, &[&str]); 21] = [
    ("rtt_min_s", &["rtt-min"]),
    ("receiver_rtt_s", &["receiver-rtt", "streams-receiver-rtt"]),
    (
        "peer_window_bytes",
        &["peer-window", "peer-window-steadiness", "peer-window-fill", "peer-window-full-share"],
    ),
    ("busy_s", &["busy-share", "receive-window-limited-share", "send-buffer-limited-share"]),
    ("receive_window_limited_s", &["receive-window-limited-share"]),
    ("send_buffer_limited_s", &["send-buffer-limited-share"]),
    ("delivery_bits_per_s", &["delivery-rate", "application-limited-share"]),
    ("pacing_bits_per_s", &["pacing-rate"]),
    ("marked_count", &["marked-share"]),
    ("not_sent_bytes", &["not-sent"]),
    ("send_queue_bytes", &["send-queue", "send-queue-of-buffer", "in-flight-of-send-queue"]),
    ("send_buffer_bytes", &["send-buffer", "send-queue-of-buffer"]),
    ("receive_buffer_bytes", &["receive-buffer", "window-of-buffer"]),
    ("receive_queue_bytes", &["receive-queue", "receive-socket-fullness"]),
    ("thread_wait_s", &["thread-wait-share", "thread-delay", "near-core-wait", "far-core-wait"]),
    ("process_cpu_s", &["process-cores", "processor-time-per-gbit"]),
    ("latency_under_load", &["loaded-rtt-p50", "loaded-rtt-p99"]),
    ("idle_rtt", &["idle-rtt-p50", "idle-rtt-p99"]),
    (
        "counters",
        &[
            "softnet-dropped",
            "softirq-rounds",
            "device-receive-drops",
            "qdisc-drops",
            "quota-throttled-share",
            "clock-of-maximum",
        ],
    ),
    ("request_response", &["transactions", "transaction-p50"]),
    ("out_of_order_count", &["out-of-order-share"]),
];

#[test]
fn a_field_that_is_missing_makes_no_number() {
    for (name, results) in recordings().into_iter().step_by(4) {
        let before = known(&symptoms(&results));
        for (field, needing) in FIELDS {
            let mut document = serde_json::to_value(&results).expect("JSON");
            without(&mut document, field);
            let results: Results = serde_json::from_value(document).expect("an optional field");
            let told = symptoms(&results);
            for symptom in needing {
                let ends = [Some(End::Near), Some(End::Far), None];
                let left = ends.into_iter().filter_map(|end| named(&told, symptom, end)?.estimate);
                assert_eq!(left.count(), 0, "{name}: {symptom} without {field}");
            }
            let is_new = |one: &&String| !before.contains(one) && !one.contains(" core-");
            let new: Vec<String> = known(&told).iter().filter(is_new).cloned().collect();
            assert_eq!(new, Vec::<String>::new(), "{name}: appeared without {field}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_document_makes_a_symptom_absurd(
        changes in proptest::collection::vec((0_u32..1500, any::<u8>()), 1..24),
        rate in prop_oneof![Just(1e6), Just(1e9), Just(2e10)],
    ) {
        let model = Model { capacity_bits_per_s: rate, ..Model::default() };
        let results = disturb(&model.results(&TestSpec::tcp()), &changes);
        if let Err(what) = sane(&symptoms(&results)) {
            prop_assert!(false, "{what}");
        }
    }
}
