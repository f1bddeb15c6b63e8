mod few;

use results::{
    Direction, DirectionOutcome, Host, HostFacts, InterfaceFacts, Point, Results, RunKind,
    TestLimit, TestOutcome, TestSpec,
};

use super::{Comparison, Counted, Outcome, WhyAlone, compare};
use crate::Run;

fn point(experiment: &str, spec: &TestSpec, bits_per_s: f64, repeat: u32) -> Point {
    let outcome = TestOutcome {
        duration_s: 1.0,
        directions: vec![DirectionOutcome {
            direction: Direction::Forward,
            sent_bytes: 1,
            received_bytes: 1,
            sent_bits_per_s: bits_per_s,
            received_bits_per_s: bits_per_s,
            retransmits_count: Some(0),
            udp: None,
        }],
        ..TestOutcome::default()
    };
    Point { repeat, ..Point::new(experiment, spec.clone(), outcome) }
}

fn host(kernel: &str, rmem: &str) -> HostFacts {
    HostFacts {
        name: "amsterdam".to_owned(),
        kernel: kernel.to_owned(),
        interface: Some(InterfaceFacts {
            name: "eth0".to_owned(),
            mtu_bytes: 9000,
            ..InterfaceFacts::default()
        }),
        sysctls: [("net.ipv4.tcp_rmem".to_owned(), rmem.to_owned())].into(),
        ..HostFacts::default()
    }
}

fn document_of(points: Vec<Point>) -> Results {
    let hosts =
        vec![Host::near(host("6.8", "4096 131072 6291456")), Host::far(HostFacts::default())];
    Results { hosts, points, ..Results::begun(RunKind::Path, 1_000) }
}

/// One document whose single stream had these rates.
fn streams(rates: &[f64]) -> Results {
    let points = rates.iter().zip(0..);
    document_of(
        points.map(|(rate, at)| point("single-stream", &TestSpec::tcp(), *rate, at)).collect(),
    )
}

fn of(a: &[Results], b: &[Results]) -> Comparison {
    let runs = |side: &[Results]| -> Vec<Run> {
        side.iter().map(|results| Run::of("run.json", results)).collect()
    };
    compare(("a", &runs(a)), ("b", &runs(b)))
}

/// The outcome of the throughput.
fn throughput(comparison: &Comparison) -> Outcome {
    let of = |figure: &&super::ComparedFigure| figure.figure == "forward_received_bits_per_s";
    comparison.figures.iter().find(of).expect("throughput on both sides").outcome
}

#[test]
fn what_got_slower_beyond_the_noise_misses_the_gate_and_nothing_else_does() {
    let before = [1.00e9, 1.02e9, 0.98e9, 1.01e9, 0.99e9];
    for (after, outcome, missed) in [
        ([0.80e9, 0.81e9, 0.82e9, 0.79e9, 0.78e9], Outcome::Worse, 1),
        ([1.20e9, 1.21e9, 1.22e9, 1.19e9, 1.18e9], Outcome::Better, 0),
        ([0.97e9, 1.02e9, 0.99e9, 1.03e9, 1.00e9], Outcome::Indistinguishable, 0),
        (before, Outcome::Indistinguishable, 0),
    ] {
        let comparison = of(&[streams(&before)], &[streams(&after)]);
        assert_eq!(throughput(&comparison), outcome, "{comparison:#?}");
        assert_eq!(comparison.missed(0.0).len(), missed, "{:?}", comparison.missed(0.0));
        assert!(comparison.missed(0.5).is_empty(), "a fifth is tolerated");
    }
    let slower = of(&[streams(&before)], &[streams(&[0.8e9; 5])]);
    let figure = &slower.figures[0];
    assert!((figure.relative.expect("not 0") + 0.2).abs() < 1e-9, "{figure:?}");
    assert!(figure.low <= figure.difference && figure.difference <= figure.high, "{figure:?}");
    assert_eq!(
        slower.missed(0.0),
        ["single stream: throughput, forward 1.00 Gbit/s -> 800 Mbit/s (-20%)"]
    );
}

#[test]
fn too_few_repeats_tell_nothing_and_do_not_pass_the_gate() {
    let comparison = of(&[streams(&[1e9, 1.1e9, 1.2e9])], &[streams(&[1.0, 2.0, 3.0])]);
    assert_eq!(throughput(&comparison), Outcome::TooFew);
    assert!(comparison.figures.iter().all(|figure| figure.adjusted_chance.is_none()));
    assert!(
        comparison.missed(0.0)[0].contains("none of the 2 figures"),
        "{:?}",
        comparison.missed(0.0)
    );
    let headline = |comparison: &Comparison| {
        comparison.without_difference(&comparison.alike().collect::<Vec<_>>())
    };
    assert_eq!(
        headline(&comparison),
        "No difference can be told: too few repeats (at most 3 in A, 3 in B); with 5 repeats on each side \
         a single differing figure is detectable"
    );
    let mut mixed = [streams(&[1e9]), streams(&[1e9])];
    for results in &mut mixed {
        let rates = [1e9, 1.1e9, 1.2e9, 1.3e9].iter().zip(0..);
        let udp = TestSpec::udp(1448);
        results.points.extend(rates.map(|(rate, at)| point("udp", &udp, *rate, at)));
    }
    let mixed = of(&mixed[..1], &mixed[1..]);
    assert_eq!(
        headline(&mixed),
        "No figure differs beyond the noise; 2 of 5 have too few repeats to tell"
    );
    let longer = TestSpec { limit: TestLimit::DurationS(1.0), ..TestSpec::udp(1448) };
    let mut beside = [streams(&[1e9; 6]), streams(&[1e9; 6])];
    for (results, spec) in beside.iter_mut().zip([TestSpec::udp(1448), longer]) {
        results.points.extend((0..6).map(|repeat| point("udp", &spec, 1e9, repeat)));
    }
    let beside = of(&beside[..1], &beside[1..]);
    assert!(beside.unlike().next().is_some(), "{beside:#?}");
    assert_eq!(headline(&beside), "No figure with equal settings differs beyond the noise");
    let four = of(&[streams(&[1e9, 1.1e9, 1.2e9, 1.3e9])], &[streams(&[1.0, 2.0, 3.0, 4.0])]);
    assert_eq!(throughput(&four), Outcome::Worse, "four of each can tell");
}

#[test]
fn many_figures_take_more_repeats_than_one() {
    let rates = [[9.0e9, 9.1e9, 9.2e9, 9.3e9], [8.0e9, 8.1e9, 8.2e9, 8.3e9]];
    let few = of(&[streams(&rates[0])], &[streams(&rates[1])]);
    assert_eq!((throughput(&few), few.repeats_wanted()), (Outcome::Worse, None));
    // Among others that did not change, the same figure is not told.
    let specs: Vec<TestSpec> =
        (2..6).map(|streams| TestSpec { streams, ..TestSpec::tcp() }).collect();
    let among = |rates: [f64; 4]| {
        let others = specs.iter().flat_map(|spec| {
            (0..4).map(move |repeat| point("more", spec, 1e9 + f64::from(repeat) * 1e8, repeat))
        });
        document_of(streams(&rates).points.into_iter().chain(others).collect())
    };
    let many = of(&[among(rates[0])], &[among(rates[1])]);
    assert_eq!((throughput(&many), many.repeats_wanted()), (Outcome::Indistinguishable, Some(5)));
}

#[test]
fn a_month_of_runs_counts_each_run_once() {
    let night = |rate: f64| streams(&[rate, rate * 1.001, rate * 0.999]);
    let before: Vec<Results> = [1.0e9, 1.3e9, 0.9e9, 1.1e9, 1.2e9].map(night).into();
    // Within a night repeats hardly differ, from night to night they do.
    let after: Vec<Results> = [1.05e9, 1.25e9, 0.95e9, 1.0e9, 1.15e9].map(night).into();
    let comparison = of(&before, &after);
    let figure = &comparison.figures[0];
    assert_eq!((figure.counted, figure.a.count, figure.b.count), (Counted::Runs, 5, 5));
    assert_eq!(throughput(&comparison), Outcome::Indistinguishable);
    let one = of(&before[..1], &after[..1]);
    assert_eq!(one.figures[0].counted, Counted::Repeats);
}

#[test]
fn only_what_was_asked_alike_is_compared() {
    let (plain, short) =
        (TestSpec::tcp(), TestSpec { limit: TestLimit::DurationS(1.0), ..TestSpec::tcp() });
    let sampled = TestSpec { interval_s: 0.1, ..plain.clone() };
    let document = |spec: &TestSpec, name: &str| document_of(vec![point(name, spec, 1e9, 0)]);
    let a = [document(&plain, "single-stream")];
    assert_eq!(of(&a, &[document(&sampled, "single-stream")]).figures.len(), 2, "sampled oftener");
    assert_eq!(of(&a, &[document(&plain, "test")]).figures.len(), 2, "called otherwise");
    let back = TestSpec { direction: Direction::Reverse, ..short.clone() };
    let other = of(&a, &[document(&back, "single-stream")]);
    assert!(other.figures.is_empty(), "the other way");
    assert_eq!((other.only_a.len(), other.only_b.len()), (1, 1));
    assert_eq!(other.only_b[0].setting, "single stream (TCP, reverse, duration 1.00 s)");
    assert_eq!(other.only_b[0].why, WhyAlone::NoCounterpart);
    let both = |last: &TestSpec| {
        document_of(vec![
            point("single-stream", &plain, 1e9, 0),
            point("single-stream", last, 1e9, 0),
        ])
    };
    let (one, two) = (both(&short), both(&short));
    let labels: Vec<String> =
        of(&[one], &[two]).figures.into_iter().map(|figure| figure.setting).collect();
    assert_eq!(labels[0], "single stream");
    assert_eq!(labels[2], "single stream (duration 1.00 s)", "told apart by what differs");
    assert_eq!(other.only_b[0].figures, ["forward_received_bits_per_s", "retransmits_count"]);
    assert_eq!(other.missed(0.0).len(), 1, "nothing compared is no gate met");
}

#[test]
fn the_rate_that_path_offers_udp_is_no_setting() {
    let udp = |offered: f64| {
        let spec = TestSpec { offered_bits_per_s: Some(offered), ..TestSpec::udp(1448) };
        document_of(vec![point("udp", &spec, offered, 0)])
    };
    assert!(!of(&[udp(1e9)], &[udp(2e9)]).figures.is_empty());
    let asked = |results: Results| Results { kind: RunKind::Test, ..results };
    let other = of(&[asked(udp(1e9))], &[asked(udp(2e9))]);
    assert!(other.alike().next().is_none(), "`test` asked for it");
    assert_eq!(differing(&other), ["settings differ: offered 1.00 Gbit/s -> 2.00 Gbit/s"]);
}

/// One document of tests with these settings, five repeats of each.
fn tests_of(specs: &[(&str, TestSpec)], bits_per_s: f64) -> Results {
    let repeats = |(experiment, spec): &(&str, TestSpec)| -> Vec<Point> {
        let rate = |repeat: u32| bits_per_s * (1.0 + f64::from(repeat) / 1e3);
        (0..5).map(|repeat| point(experiment, spec, rate(repeat), repeat)).collect()
    };
    document_of(specs.iter().flat_map(repeats).collect())
}

/// What differs between the settings of each pair whose settings differ.
fn differing(comparison: &Comparison) -> Vec<String> {
    let mut words: Vec<String> =
        comparison.unlike().map(super::ComparedFigure::differing_words).collect();
    words.dedup();
    words
}

fn windowed(window_bytes: u64, streams: u32) -> TestSpec {
    TestSpec { window_bytes: Some(window_bytes), streams, ..TestSpec::tcp() }
}

#[test]
fn tests_of_other_settings_are_compared_apart_and_the_settings_named() {
    let (small, large) = (windowed(128 << 10, 1), windowed(1 << 20, 1));
    let comparison =
        of(&[tests_of(&[("test", small.clone())], 1e9)], &[tests_of(&[("test", large)], 2e9)]);
    assert!(comparison.alike().next().is_none() && comparison.with(Outcome::Better).count() == 0);
    let figure = comparison.unlike().next().expect("compared");
    assert_eq!((figure.outcome, figure.setting.as_str()), (Outcome::Better, "TCP"));
    assert_eq!(figure.differing_words(), "settings differ: window 128 KiB -> 1.00 MiB");
    assert!(comparison.only_a.is_empty() && comparison.only_b.is_empty(), "{comparison:#?}");

    let unset = of(
        &[tests_of(&[("test", small.clone())], 1e9)],
        &[tests_of(&[("test", TestSpec { streams: 4, ..TestSpec::tcp() })], 2e9)],
    );
    assert_eq!(differing(&unset), ["settings differ: streams 1 -> 4, window 128 KiB -> not set"]);
    let shorter = TestSpec { limit: TestLimit::DurationS(1.0), ..small.clone() };
    let shorter =
        of(&[tests_of(&[("test", small.clone())], 1e9)], &[tests_of(&[("test", shorter)], 1e9)]);
    assert_eq!(differing(&shorter), ["settings differ: duration 10.0 s -> 1.00 s"]);
    let bytes = |window| tests_of(&[("test", windowed(window, 1))], 1e9);
    let hardly = of(&[bytes(1 << 30)], &[bytes((1 << 30) + 1)]);
    assert_eq!(differing(&hardly), ["settings differ: window 1073741824 B -> 1073741825 B"]);

    // What is not the same kind of test is no other setting of it.
    for other in [
        TestSpec { direction: Direction::Reverse, ..TestSpec::tcp() },
        TestSpec::udp(1448),
        TestSpec::request_response(results::Protocol::Tcp, 1, 1),
    ] {
        let apart =
            of(&[tests_of(&[("test", small.clone())], 1e9)], &[tests_of(&[("test", other)], 1e9)]);
        assert!(apart.figures.is_empty(), "{apart:#?}");
        assert_eq!(apart.only_a[0].why, WhyAlone::NoCounterpart);
    }
}

#[test]
fn each_test_is_paired_with_the_one_that_differs_least_and_equals_with_none() {
    let plain = |streams| TestSpec { streams, ..TestSpec::tcp() };
    let a = tests_of(&[("test", windowed(4096, 1)), ("test", windowed(4096, 4))], 1e9);
    let b = tests_of(&[("test", plain(4)), ("test", plain(1))], 1e9);
    let both = of(std::slice::from_ref(&a), &[b]);
    assert_eq!(differing(&both), ["settings differ: window 4.00 KiB -> not set"]);
    assert_eq!((both.figures.len(), both.only_a.len(), both.only_b.len()), (4, 0, 0));

    let two = tests_of(&[("test", windowed(8192, 1)), ("test", windowed(9216, 1))], 1e9);
    let one = tests_of(&[("test", windowed(4096, 1))], 1e9);
    let ambiguous = of(&[one], &[two]);
    assert!(ambiguous.figures.is_empty(), "{ambiguous:#?}");
    let why: Vec<WhyAlone> =
        ambiguous.only_a.iter().chain(&ambiguous.only_b).map(|one| one.why).collect();
    assert_eq!(why, [WhyAlone::Ambiguous; 3]);

    let taken = of(&[a], &[tests_of(&[("test", plain(1))], 1e9)]);
    assert_eq!((taken.figures.len(), taken.only_a.len()), (2, 1));
    assert_eq!(taken.only_a[0].why, WhyAlone::CounterpartTaken);

    // Experiments belong together by their name, whatever else is as close.
    let path = |window| {
        tests_of(
            &[("single-stream", windowed(window, 1)), ("multi-stream", windowed(window, 1))],
            1e9,
        )
    };
    let paths = of(&[path(4096)], &[path(8192)]);
    let mut names: Vec<&str> = paths.unlike().map(|figure| figure.setting.as_str()).collect();
    names.dedup();
    assert_eq!(names, ["single stream", "multi stream"]);
    let called = of(
        &[tests_of(&[("single-stream", windowed(4096, 1))], 1e9)],
        &[tests_of(&[("test", windowed(8192, 1))], 1e9)],
    );
    assert_eq!(
        differing(&called),
        ["settings differ: window 4.00 KiB -> 8.00 KiB, experiment single stream -> test"]
    );
}

#[test]
fn a_sweeps_points_are_paired_at_the_same_place_only() {
    let sweep = |cc: &str, windows: &[f64]| {
        let spec = TestSpec { congestion_control: Some(cc.to_owned()), ..TestSpec::tcp() };
        let mut results = document_of(Vec::new());
        for window in windows {
            let mut one = point("window-sweep", &spec, 1e9, 0);
            one.varied.insert("window_bytes".to_owned(), *window);
            results.points.push(one);
        }
        results
    };
    let comparison = of(&[sweep("cubic", &[4096.0, 8192.0])], &[sweep("bbr", &[8192.0, 16_384.0])]);
    assert_eq!(differing(&comparison), ["settings differ: congestion control cubic -> bbr"]);
    assert_eq!(comparison.figures[0].setting, "window sweep, window 8.00 KiB");
    assert_eq!((comparison.only_a.len(), comparison.only_b.len()), (1, 1));
    let one_each = of(&[sweep("cubic", &[4096.0])], &[sweep("cubic", &[8192.0])]);
    assert_eq!(differing(&one_each), ["settings differ: window 4.00 KiB -> 8.00 KiB"], "no sweep");
}

#[test]
fn a_test_of_other_settings_misses_the_gate_whatever_it_reached() {
    let single = |spec| ("single-stream", spec);
    let a = [single(TestSpec::tcp()), ("multi-stream", windowed(4096, 4))];
    let b = [single(TestSpec::tcp()), ("multi-stream", windowed(8192, 4))];
    let comparison = of(&[tests_of(&a, 1e9)], &[tests_of(&b, 2e9)]);
    let line = "multi stream: not judged, settings differ: window 4.00 KiB -> 8.00 KiB; repeat it with the \
                settings of A";
    assert_eq!(comparison.missed(0.0), [line]);
    let slower = of(&[tests_of(&a, 1e9)], &[tests_of(&b, 0.5e9)]);
    assert_eq!(slower.missed(0.0).len(), 2, "{:?}", slower.missed(0.0));
    assert!(slower.missed(0.0)[0].starts_with("single stream: throughput"));
}

#[test]
fn differences_that_other_settings_make_do_not_make_others_easier_to_tell() {
    let plain = ("single-stream", TestSpec::tcp());
    let rates = [[1.0e9, 1.01e9, 1.02e9, 1.03e9, 0.99e9], [1.0e9, 1.04e9, 1.05e9, 1.06e9, 1.07e9]];
    let with = |side: usize, spec: &TestSpec| {
        let many: Vec<(&str, TestSpec)> = (1..=40_u32)
            .map(|streams| ("multi-stream", TestSpec { streams, ..spec.clone() }))
            .collect();
        let mut results = tests_of(&many, if side == 0 { 1e9 } else { 2e9 });
        let single = rates[side].iter().zip(0..);
        results.points.extend(single.map(|(rate, at)| point(plain.0, &plain.1, *rate, at)));
        results
    };
    let alone = of(&[streams(&rates[0])], &[streams(&rates[1])]);
    let among = of(&[with(0, &windowed(4096, 1))], &[with(1, &windowed(8192, 1))]);
    assert_eq!(among.unlike().count(), 80);
    let adjusted = |comparison: &Comparison| {
        let figure = comparison.alike().next().expect("throughput");
        (figure.adjusted_chance, figure.outcome)
    };
    assert_eq!(adjusted(&alone), adjusted(&among));
}

#[test]
fn a_confirmations_worsened_test_is_not_compared() {
    let points = vec![point("confirm:shaper", &TestSpec::tcp(), 1.0, 0)];
    assert!(Run::of("r.json", &document_of(points)).is_empty());
}

#[test]
fn what_changed_on_the_hosts_is_told_with_both_values() {
    let (before, mut after) = (streams(&[1e9]), streams(&[1e9]));
    after.near_mut().kernel = "6.12".to_owned();
    after
        .near_mut()
        .sysctls
        .insert("net.ipv4.tcp_rmem".to_owned(), "4096 131072 67108864".to_owned());
    let interface = after.near_mut().interface.as_mut().expect("one");
    interface.mtu_bytes = 1500;
    interface.route_metrics.insert("window".to_owned(), 65_536);
    let told: Vec<String> = of(&[before], &[after])
        .host_changes
        .iter()
        .map(|one| format!("{} {}: {}", one.host, one.fact, one.shown().join(" -> ")))
        .collect();
    assert_eq!(
        told,
        [
            "near kernel: 6.8 -> 6.12",
            "near interface mtu: 9000 B -> 1500 B",
            "near net.ipv4.tcp_rmem: 4096 131072 6291456 -> 4096 131072 67108864",
            "near route window: not known -> 65536",
        ]
    );
}

#[test]
fn a_change_that_a_run_tried_is_told_with_its_outcome() {
    let (before, mut tuned) = (streams(&[1e9]), streams(&[1e9]));
    tuned.changes = vec![results::AppliedChange {
        end: results::End::Near,
        key: "net.ipv4.tcp_wmem".to_owned(),
        from: "4096 16384 262144".to_owned(),
        to: "4096 16384 8388608".to_owned(),
        why: None,
        source: None,
        predicted_bits_per_s: None,
        before: results::Estimate::of(&[5e7]),
        after: results::Estimate::of(&[4e8]),
        is_kept: Some(true),
        outcome: Some("50.0 Mbit/s -> 400 Mbit/s (+700%); kept".to_owned()),
    }];
    let told = of(&[before], &[tuned.clone()]).host_changes;
    let [change] = &told[..] else { panic!("{told:?}") };
    assert_eq!((change.host.as_str(), change.fact.as_str()), ("near", "tuned net.ipv4.tcp_wmem"));
    assert!(change.a.is_empty(), "{change:?}");
    assert_eq!(change.b, ["50.0 Mbit/s -> 400 Mbit/s (+700%); kept"]);
    assert!(of(&[tuned.clone()], &[tuned]).host_changes.is_empty(), "both sides did the same");
}

/// Two sides that do not differ: of many comparisons with many figures, at most the stated share tells any
/// difference at all.
#[test]
fn among_many_figures_of_equal_sides_false_differences_stay_as_rare_as_stated() {
    let mut random = stats::Random::from_seed(11);
    let (trials, mut false_ones) = (200, 0);
    for _ in 0..trials {
        let mut side = || {
            let mut points = Vec::new();
            for (window, repeat) in
                (1..=8_u64).flat_map(|window| (0..6).map(move |at| (window, at)))
            {
                let spec = TestSpec { window_bytes: Some(window), ..TestSpec::tcp() };
                points.push(point("window-sweep", &spec, 1e9 + 1e7 * random.normal(), repeat));
            }
            document_of(points)
        };
        let comparison = of(&[side()], &[side()]);
        assert_eq!(comparison.figures.len(), 16);
        let told = |figure: &&super::ComparedFigure| figure.outcome != Outcome::Indistinguishable;
        false_ones += u32::from(comparison.figures.iter().any(|figure| told(&figure)));
    }
    // 5% of 200 are 10, with a deviation of 3.
    assert!(false_ones <= 24, "{false_ones} of {trials}");
}

#[test]
fn no_interval_that_is_shown_ends_below_the_loss_of_everything() {
    let a = streams(&[1.0e9, 1.1e9, 0.9e9, 4.0e9, 1.0e9]);
    let b = streams(&[1.0e6, 1.1e6, 0.9e6, 1.0e6, 1.2e6]);
    let comparison = of(&[a], &[b]);
    let figure = &comparison.figures[0];
    assert!(figure.low < -figure.a.median, "the case is met: {figure:?}");
    assert!(figure.shown_interval().starts_with("-100% to "), "{}", figure.shown_interval());
}

/// A load of these options, four repeats; `None`: its file did not record them.
fn load(options: Option<&[&str]>) -> Results {
    let work = results::FileMetadataWork {
        phase: "File creation".to_owned(),
        path: "/pfs".to_owned(),
        ranks_count: 1,
        items_count: 10,
        file_bytes: 0,
        options: options
            .map(|names| names.iter().map(|name| ((*name).to_owned(), true.into())).collect()),
    };
    let repeat = |repeat: u32| {
        let figures = vec![results::Figure::new("items_per_s", 1e3 + f64::from(repeat))];
        let outcome = TestOutcome { figures, ..TestOutcome::default() };
        let work = results::Work::FileMetadata(work.clone());
        Point { repeat, ..Point::new("file-creation", work, outcome) }
    };
    document_of((0..4).map(repeat).collect())
}

#[test]
fn options_that_one_side_did_not_record_are_not_taken_as_equal() {
    let (old, plain, synced) = (load(None), load(Some(&[])), load(Some(&["fsync", "direct"])));
    let told = |a: &Results, b: &Results| {
        let comparison = of(std::slice::from_ref(a), std::slice::from_ref(b));
        (differing(&comparison), comparison.a.not_recorded.len(), comparison.b.not_recorded.len())
    };
    assert_eq!(
        told(&old, &synced),
        (vec!["settings differ: options not recorded -> direct yes and fsync yes".into()], 1, 0)
    );
    assert_eq!(
        told(&plain, &old),
        (vec!["settings differ: options none -> not recorded".into()], 0, 1)
    );
    assert_eq!(told(&old, &old), (vec![], 1, 1), "taken as equal, and said so");
    assert_eq!(told(&plain, &plain), (vec![], 0, 0));
    assert_eq!(
        of(std::slice::from_ref(&plain), std::slice::from_ref(&plain)).figures[0].setting,
        "file creation"
    );

    let recorded = |duration_s: f64| {
        let spec = TestSpec { limit: TestLimit::DurationS(duration_s), ..TestSpec::tcp() };
        let mut results = document_of(vec![point("single-stream", &spec, 1e9, 0)]);
        results.tool.name = "packet capture".to_owned();
        results
    };
    assert_eq!(
        told(&recorded(2.019375), &recorded(2.0198080000000003)),
        (vec![], 1, 1),
        "how long a capture lasts is measured"
    );
    let mut foreign = streams(&[1e9; 4]);
    foreign.tool.name = "iperf3".to_owned();
    foreign.near_mut().interface = None;
    foreign.near_mut().kernel = "6.1".to_owned();
    let both = of(&[foreign], &[streams(&[1e9; 4])]);
    let changed: Vec<&str> = both.host_changes.iter().map(|one| one.fact.as_str()).collect();
    assert_eq!(changed, ["kernel"], "what iperf3 does not tell of a host has not changed");
    assert_eq!(
        (both.a.not_recorded.as_slice(), both.b.not_recorded.len()),
        (&["run.json: iperf3 does not record every option of its tests".to_owned()][..], 0)
    );
}

#[test]
fn the_difference_of_a_share_is_in_points_of_a_percent() {
    let same = [1e9, 1.1e9, 1.2e9, 1.3e9];
    let mut figure = of(&[streams(&same)], &[streams(&same)]).figures.remove(0);
    figure.figure = "forward_lost_share".to_owned();
    for (median, difference, shown) in
        [(0.1527, -0.0208, "-2.08 points"), (0.0, 0.1678, "+16.78 points"), (0.1, 0.0, "0 points")]
    {
        figure.a.median = median;
        figure.difference = difference;
        assert_eq!(figure.shown_difference(), shown);
    }
}

#[test]
fn one_figure_has_and_several_have_too_few_repeats() {
    let same = [1e9, 1.1e9, 1.2e9, 1.3e9];
    let mut comparison = of(&[streams(&same)], &[streams(&same)]);
    comparison.figures[0].outcome = Outcome::TooFew;
    comparison.figures[1].outcome = Outcome::Indistinguishable;
    let line = comparison.without_difference(&comparison.alike().collect::<Vec<_>>());
    assert_eq!(line, "No figure differs beyond the noise; 1 of 2 has too few repeats to tell");
}
