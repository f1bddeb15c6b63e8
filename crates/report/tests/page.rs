//! The page as a whole: whatever the document, it is well-formed, offline and says what it must.

#[path = "page/synthetic.rs"]
mod synthetic;
#[path = "page/well_formed.rs"]
mod well_formed;

use std::collections::BTreeSet;

use compare::Run;
use report::{RenderOptions, render, render_comparison};
use results::{Limit, Point, PointOutcome, Results, RunKind};
use serde_json::Value;

/// Longest page of a normal run, bytes.
const PAGE_BYTES_MAX: usize = 1_000_000;

fn page(results: &Results) -> String {
    render(results, &RenderOptions::default())
}

fn documents() -> Vec<Results> {
    vec![
        synthetic::path(),
        synthetic::unseen(),
        synthetic::reproduction(),
        synthetic::placement(),
        recorded_load(),
        reproduced_load(),
    ]
}

/// File-system load over gateways, as it was recorded.
fn recorded_load() -> Results {
    let text = include_bytes!("../../../testdata/results/cumulus-two-clients.json");
    results::read_results(text).expect("a results document")
}

#[test]
fn a_load_has_phases_and_gateways_and_no_path_with_two_ends() {
    let page = page(&recorded_load());
    for wanted in
        ["/mnt/pfs/f from c1", "write 237 MiB/s", "read 292 MiB/s", "What the gateways carried"]
    {
        assert!(page.contains(wanted), "{wanted}");
    }
    let shown = page.split("id=\"data\"").next().expect("something stands before the data");
    for foreign in ["No throughput", "far host", "Idle path", "Round-trip", "goodput"] {
        assert!(!shown.contains(foreign), "{foreign}");
    }
}

/// The same load as part of a reproduced experiment.
fn reproduced_load() -> Results {
    let recorded = recorded_load();
    let planned = recorded.points.first().expect("a point").clone();
    let planned = Point { experiment: "planned alone".to_owned(), ..planned };
    let planned = Point { outcome: PointOutcome::Measured(Box::default()), ..planned };
    Results {
        kind: RunKind::Reproduce,
        points: [vec![planned], recorded.points].concat(),
        reproduction: synthetic::reproduction().reproduction,
        ..recorded
    }
}

#[test]
fn a_reproduced_load_leads_with_the_law_and_has_no_path_with_two_ends() {
    let page = page(&reproduced_load());
    let shown = page.split("id=\"data\"").next().expect("something stands before the data");
    for wanted in ["Reproduction of", "Beside the paper", "/mnt/pfs/f from c1", "write 0"] {
        assert!(shown.contains(wanted), "{wanted}");
    }
    for foreign in ["far host", "Idle path", "Round-trip", "goodput", "planned alone"] {
        assert!(!shown.contains(foreign), "{foreign}");
    }
}

#[test]
fn pages_are_well_formed_small_and_always_the_same() {
    for results in documents() {
        let page = page(&results);
        well_formed::check(&page).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(page.len() < PAGE_BYTES_MAX, "{} bytes", page.len());
        assert_eq!(page, render(&results, &RenderOptions::default()));
    }
}

#[test]
fn nothing_is_loaded_from_anywhere() {
    for results in documents() {
        let page = page(&results).replace("http://www.w3.org/2000/svg", "");
        let page = page.replace(" src=\"data:image/svg+xml,", "");
        for forbidden in ["http://", "https://", "//cdn", "@import", "<iframe", "<object", "src="] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        for (place, _) in page.match_indices("url(") {
            assert!(page[place..].starts_with("url(#"), "{}", &page[place..place + 30]);
        }
        for (place, _) in page.match_indices("href=\"") {
            let target = &page[place + 6..place + 12];
            assert!(target.starts_with('#') || target.starts_with("data:"), "{target}");
        }
    }
}

#[test]
fn the_hosts_are_drawn_as_topo_draws_them() {
    let page = page(&synthetic::path());
    let pictures: Vec<&str> = page.split("src=\"data:image/svg+xml,").skip(1).collect();
    assert_eq!(pictures.len(), 1, "two hosts that are made alike are drawn once");
    let drawn = pictures[0].split('"').next().expect("a quoted attribute");
    let mut parts = drawn.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect("two digits"));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    assert_eq!(String::from_utf8(bytes), Ok(report::machine_svg(&synthetic::machine(), &[])));
    assert!(page.contains("amsterdam and geneva: 2 packages, 2 memory nodes, 8 cores"));
}

#[test]
fn every_reference_leads_somewhere_and_every_id_is_one_element() {
    for results in documents() {
        let page = page(&results);
        let page = page.split("<script").next().expect("a page");
        let values = |before: &str| {
            let found = page.match_indices(before).map(|(place, _)| {
                let rest = &page[place + before.len()..];
                rest.split(['"', ')']).next().unwrap_or_default().to_owned()
            });
            found.collect::<Vec<_>>()
        };
        let ids = values(" id=\"");
        let unique: BTreeSet<&String> = ids.iter().collect();
        assert_eq!(ids.len(), unique.len(), "an id is used twice");
        let labels = values("aria-labelledby=\"");
        let labelled = labels.iter().flat_map(|list| list.split(' ').map(str::to_owned));
        for target in labelled.chain(values("href=\"#")).chain(values("url(#")) {
            assert!(unique.contains(&target), "#{target} leads nowhere");
        }
    }
}

#[test]
fn a_path_shows_all_its_sections() {
    let page = page(&synthetic::path());
    for id in [
        "verdict",
        "experiment",
        "chain-of-places",
        "figures",
        "time",
        "sweeps",
        "latency",
        "cores",
        "loss",
        "hosts",
        "notes",
        "tables",
        "commands",
        "data",
        "results",
    ] {
        assert!(page.contains(&format!(" id=\"{id}\"")), "{id}");
    }
    for text in [
        "<h1>amsterdam → geneva</h1>",
        "confirmed by experiment",
        "bottleneck",
        "BDP",
        "other limits: ruled out or not measured",
        "net.core.rmem_max gave 32.0 MiB",
        "no energy counters",
        "synthetic: made up, not measured",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert_eq!(page.matches("<h1>").count(), 1);
    assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
}

#[test]
fn socket_buffers_of_udp_are_no_window_and_limit_no_rate() {
    let mut results = synthetic::path();
    results.points.retain(|point| point.experiment == "udp");
    for point in &mut results.points {
        let PointOutcome::Measured(outcome) = &mut point.outcome else { continue };
        for stream in outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams) {
            stream.receive_buffer_bytes = Some(8 << 20);
            stream.send_buffer_bytes = Some(8 << 20);
        }
    }
    let page = page(&results);
    let is_buffer = |row: &&str| row.contains("receive buffer<") || row.contains("send buffer<");
    let rows: Vec<&str> = page.split("<tr").skip(1).filter(is_buffer).collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows.iter().all(|row| !row.contains("bit/s")), "{rows:?}");
}

#[test]
fn charts_are_images_with_a_description_and_a_table() {
    let page = page(&synthetic::path());
    let figures: Vec<&str> = page.split("<figure").skip(1).collect();
    assert!(figures.len() >= 12, "{}", figures.len());
    for figure in figures {
        let figure = figure.split("</figure>").next().expect("closed");
        let drawings = figure.matches("<svg class=\"chart").count();
        assert_eq!(figure.matches("role=\"img\" aria-labelledby=").count(), drawings);
        if !figure.starts_with(" id=\"experiment\"") {
            assert!(figure.contains("Figures as a table</summary>"), "{}", &figure[..60]);
        }
    }
}

#[test]
fn an_unseen_far_end_is_hatched_with_its_reason() {
    let page = page(&synthetic::unseen());
    for text in [
        "card unseen",
        "not observed",
        "a stock iperf3 server does not tell",
        "far host not observed (iperf3)",
        "not complete: 1 of 4 runs failed",
        "not confirmed by an experiment",
        "failed: geneva: connection refused",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn the_chain_marks_the_link_that_the_verdict_names() {
    let marked = [
        (Limit::Scheduler, "The binding link is the application core of amsterdam."),
        (Limit::Qdisc, "The binding link is the NIC of amsterdam."),
        (Limit::Policer, "The binding link is the path."),
        (Limit::FewFlows, "The bottleneck, few flows, is none of these links."),
        (Limit::NoneFound, "No bottleneck identified."),
    ];
    for (limit, caption) in marked {
        let mut results = synthetic::path();
        let verdict = results.verdict.as_mut().expect("a verdict");
        (verdict.limit, verdict.end) = (limit, None);
        assert!(page(&results).contains(caption), "{caption}");
    }
}

/// 1 MiB over the round trip of 17 ms allows 0.3 Gbit/s by the usual share; several were carried.
#[test]
fn a_send_buffer_that_carried_more_than_its_estimate_shows_no_ceiling() {
    let of_sending_end = |limit: Limit| {
        let mut results = synthetic::path();
        for point in &mut results.points {
            let PointOutcome::Measured(outcome) = &mut point.outcome else { continue };
            for stream in outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams) {
                stream.send_buffer_bytes = stream.send_buffer_bytes.map(|_| 1 << 20);
            }
        }
        let verdict = results.verdict.as_mut().expect("a verdict");
        (verdict.limit, verdict.end) = (limit, None);
        page(&results).matches("≤ ").count()
    };
    let others = of_sending_end(Limit::ReceiverCore);
    assert_eq!(
        of_sending_end(Limit::SendBuffer),
        others + 2,
        "the bottleneck's is what was carried, in both widths"
    );
}

#[test]
fn the_lead_leaves_the_evidence_to_its_list() {
    let mut results = synthetic::path();
    let verdict = results.verdict.as_mut().expect("a verdict");
    let line = verdict.evidence[0].text.clone();
    verdict.summary = format!("bottleneck: the receive window: {line}; confirmed");
    let page = page(&results);
    assert!(page.contains("Bottleneck: the receive window; confirmed"), "the lead");
    let shown = page.split("id=\"data\"").next().expect("something stands before the data");
    assert_eq!(shown.matches(&line).count(), 1, "{line}");
}

#[test]
fn a_reproduction_stands_beside_its_paper() {
    let page = page(&synthetic::reproduction());
    for text in
        ["Beside the paper", "The law holds here", "19 Gbit/s", "9.11 Gbit/s", "– not measured"]
    {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn a_placement_sweep_is_a_heat_map_with_its_figures() {
    let page = page(&synthetic::placement());
    for text in [
        "Goodput by both cores",
        "Goodput by core",
        "59% better than 4.70 Gbit/s without pinning",
        "S$ shared cache",
        "taskset -c 2 PROGRAM",
        "class=\"heat h4\"",
        "class=\"heat-best\"",
    ] {
        assert!(page.contains(text), "{text}");
    }
    // Each pair once in each width, the legend's three beside them, each listed in the table.
    assert_eq!(page.matches("class=\"heat h").count(), 2 * 16 + 3);
    assert_eq!(page.matches("<td class=\"w\">core 3</td>").count(), 4);
    assert!(!page.contains("Goodput by near core"), "no curve over core numbers");
}

#[test]
fn the_embedded_results_are_the_results() {
    for mut results in documents() {
        results.near_mut().name = "</script><!--<script>".to_owned();
        let page = page(&results);
        let inside = page
            .split_once("<script type=\"application/json\" id=\"results\">")
            .and_then(|(_, rest)| rest.split_once("</script>"))
            .map(|(json, _)| json)
            .expect("embedded");
        let read = results::read_results(inside.as_bytes()).expect("readable");
        assert_eq!(read.near().name, results.near().name);
        assert_eq!(read.points.len(), results.points.len());
        let whole = serde_json::to_string(&results).expect("plain data");
        assert!(inside.replace("\\u003c", "<") == whole, "the embedded document differs");
    }
}

#[test]
fn an_hour_of_64_streams_does_not_grow_the_page() {
    let results = synthetic::hour(64);
    let page = page(&results);
    assert!(page.len() < PAGE_BYTES_MAX, "{} bytes", page.len());
    assert!(page.contains("64 streams together"));
    assert!(page.contains("without the samples over time"));
    well_formed::check(&page).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Puts an attack into every text, and every awkward number in turn into every number.
fn attack(value: &mut Value, numbers: &mut impl FnMut() -> Option<f64>) {
    match value {
        Value::String(text) => {
            text.push_str("</title><script>alert(1)</script>\"'><img src=x onerror=a>")
        }
        Value::Number(number) if number.is_f64() => {
            if let Some(other) = numbers().and_then(serde_json::Number::from_f64) {
                *number = other;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| attack(item, numbers)),
        Value::Object(members) => members.values_mut().for_each(|member| attack(member, numbers)),
        _ => {}
    }
}

/// Texts that the schema restricts keep their value, so that the document can still be read.
const FIXED: [&str; 16] = [
    "kind",
    "limit",
    "end",
    "protocol",
    "direction",
    "send_path",
    "receive_path",
    "schema_version",
    "varied",
    "outcome",
    "proximity",
    "role",
    "host",
    "unit",
    "ruling",
    "window_side",
];

fn attack_free_texts(value: &mut Value, numbers: &mut impl FnMut() -> Option<f64>) {
    match value {
        Value::Object(members) => {
            // The name of a host in the document is no free text: points and accounts refer to it.
            let is_host = members.contains_key("role");
            for (name, member) in members.iter_mut() {
                if is_host && name == "name" {
                    continue;
                }
                if !(FIXED.contains(&name.as_str()) && member.is_string()) {
                    match member {
                        Value::Object(_) | Value::Array(_) => attack_free_texts(member, numbers),
                        leaf => attack(leaf, numbers),
                    }
                }
            }
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                match item {
                    Value::Object(_) | Value::Array(_) => attack_free_texts(item, numbers),
                    leaf => attack(leaf, numbers),
                }
            }
        }
        leaf => attack(leaf, numbers),
    }
}

fn assert_harmless(page: &str) {
    well_formed::check(page).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(!page.contains("<script>alert"));
    let drawn = "<img class=\"machine\" src=\"data:image/svg+xml,";
    assert!(!page.replace(drawn, "").contains("<img"));
    assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
    let visible = page.split("<script").next().expect("a page");
    for word in ["NaN", "inf ", "inf<", "null"] {
        assert!(!visible.contains(word), "{word}");
    }
}

#[test]
fn texts_are_never_markup() {
    for results in documents() {
        let mut value = serde_json::to_value(&results).expect("plain data");
        attack_free_texts(&mut value, &mut || None);
        let attacked: Results = serde_json::from_value(value).expect("same shape");
        assert!(attacked.near().name.contains("<script>"));
        assert_harmless(&page(&attacked));
    }
}

#[test]
fn no_number_breaks_the_page() {
    let odd = [0.0, -1.0, 1e308, -1e308, 5e-324, 1e-9, f64::MAX, 0.5];
    for shift in 0..odd.len() {
        for results in documents() {
            let mut value = serde_json::to_value(&results).expect("plain data");
            let mut next = shift;
            attack_free_texts(&mut value, &mut || {
                next += 1;
                (next % 3 != 0).then(|| odd[next / 2 % odd.len()])
            });
            let attacked: Results = serde_json::from_value(value).expect("same shape");
            assert_harmless(&page(&attacked));
        }
    }
}

#[test]
fn values_that_are_no_numbers_become_dashes() {
    let mut results = synthetic::path();
    for point in &mut results.points {
        if let PointOutcome::Measured(outcome) = &mut point.outcome {
            outcome.duration_s = f64::NAN;
            for one in &mut outcome.directions {
                one.received_bits_per_s = f64::INFINITY;
            }
            for core in &mut outcome.near_mut().cores {
                core.user = f64::NAN;
            }
            for stream in &mut outcome.near_mut().streams {
                stream.intervals.iter_mut().for_each(|interval| interval.end_s = f64::NAN);
            }
        }
    }
    assert_harmless(&page(&results));
}

#[test]
fn empty_documents_have_a_page_too() {
    let mut results = synthetic::unseen();
    results.points.clear();
    results.summaries.clear();
    results.verdict = None;
    results.path = results::PathFacts::default();
    *results.near_mut() = results::HostFacts::default();
    let page = page(&results);
    assert_harmless(&page);
    assert!(page.contains("No throughput test was run."));
}

/// Any cut and any exchange of values of a document that can still be read.
#[test]
fn fuzz_documents() {
    let base: Vec<Value> = [synthetic::unseen(), {
        let mut small = synthetic::path();
        small.points.truncate(14);
        small
    }]
    .iter()
    .map(|results| serde_json::to_value(results).expect("plain data"))
    .collect();
    bolero::check!().with_iterations(120).for_each(|bytes: &[u8]| {
        let mut input = bytes.iter().copied().cycle().take(bytes.len() * 4);
        let Some(first) = input.next() else { return };
        let mut value = base[usize::from(first) % base.len()].clone();
        mutate(&mut value, &mut input);
        if let Ok(results) = serde_json::from_value::<Results>(value) {
            assert_harmless(&page(&results));
        }
    });
}

/// Drops, repeats and empties parts of a document as the input says.
fn mutate(value: &mut Value, input: &mut impl Iterator<Item = u8>) {
    match value {
        Value::Array(items) => {
            match input.next() {
                Some(0..=30) => items.clear(),
                Some(31..=60) => items.truncate(1),
                Some(61..=90) => items.extend_from_within(..items.len().min(3)),
                _ => {}
            }
            items.iter_mut().for_each(|item| mutate(item, input));
        }
        Value::Object(members) => {
            // The name of a host in the document is no free text: points and accounts refer to it.
            let is_host = members.contains_key("role");
            for (name, member) in members.iter_mut() {
                if is_host && name == "name" {
                    continue;
                }
                if !(FIXED.contains(&name.as_str()) && member.is_string()) {
                    mutate(member, input);
                }
            }
        }
        Value::Number(number) => {
            let Some(byte) = input.next() else { return };
            let whole = [0_u64, 1, 2, 7, u64::from(u16::MAX), u64::from(u32::MAX), u64::MAX];
            let broken = [0.0, -3.5, 1e300, 1e-300, 0.999, 17.0];
            match (byte, number.is_f64()) {
                (0..=40, true) => *value = Value::from(broken[usize::from(byte) % broken.len()]),
                (0..=40, false) => *value = Value::from(whole[usize::from(byte) % whole.len()]),
                _ => {}
            }
        }
        Value::String(text) => match input.next() {
            Some(0..=20) => text.clear(),
            Some(21..=40) => *text = "<script>alert(1)</script>".repeat(40),
            Some(41..=50) => *text = "\u{0}\u{202e}\u{fffd}é🦀".repeat(20),
            _ => {}
        },
        _ => {}
    }
}

/// A limit's score is said once, not of each line of its evidence.
#[test]
fn the_score_of_a_verdict_stands_once_beside_its_evidence() {
    let results = synthetic::path();
    let verdict = results.verdict.as_ref().expect("a verdict");
    let own = verdict.evidence.iter().filter(|line| line.limit == verdict.limit).count();
    assert!(own > 1, "{own}");
    assert_eq!(page(&results).matches("score of this limit").count(), 1);
}

#[test]
fn the_page_of_a_comparison_is_well_formed_offline_and_escapes_what_it_is_given() {
    let before = synthetic::path();
    let mut after = synthetic::path();
    after.near_mut().kernel = "<script>alert(1)</script>".to_owned();
    for point in &mut after.points {
        if let PointOutcome::Measured(outcome) = &mut point.outcome {
            outcome.directions.iter_mut().for_each(|one| one.received_bits_per_s *= 0.5);
        }
    }
    let runs = |results: &Results| [Run::of("<b>.json", results)];
    let (a, b) = (runs(&before), runs(&after));
    let page = render_comparison(&compare::compare(("a/<i>before", &a), ("b/after", &b)));
    well_formed::check(&page).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(!page.contains("<i>before") && !page.contains("<script>alert"), "escaped");
    assert!(page.contains("&lt;script&gt;alert(1)"), "what changed on the host is told");
    assert!(page.contains("→ after") && page.contains("-50%"), "{}", page.len());
    assert!(
        page.contains("default-src &#39;none&#39;") && page.len() < PAGE_BYTES_MAX,
        "{}",
        page.len()
    );
}
