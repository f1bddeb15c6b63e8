//! The limit that a verdict names as the next one: never one that the same run went past.

use explain::{Judgement, diagnose, judge};
use results::{Limit, Point, Results, TestSpec, Verdict};

use crate::model::{Model, rate_of};
use crate::{tcp, verdict_of};

/// The verdict on `results` after one experiment, which a path like `answering` answers, and the rate that it
/// reached, bit/s.
fn verdict_after(results: &Results, answering: &Model) -> (Verdict, f64) {
    let diagnosis = diagnose(results);
    let (experiment, spec) = diagnosis.experiment().expect("an experiment");
    let name = experiment.point_name();
    let points: Vec<Point> = (0..3).map(|repeat| answering.point(&name, &spec, repeat)).collect();
    let reached = rate_of(&points[0]).min(rate_of(&points[1])).min(rate_of(&points[2]));
    let Judgement { verdict, .. } = judge(results, &diagnosis, &points);
    (verdict, reached)
}

/// A path on which a window of 16 MB is asked for, and the sending thread runs 62% of the time.
fn windowed() -> (Model, TestSpec) {
    let asked = TestSpec { window_bytes: Some(16_000_000), ..tcp() };
    (Model { sender_core_bits_per_s: 12e9, ..Model::default() }, asked)
}

#[test]
fn a_ceiling_that_the_experiment_went_past_does_not_bind_next() {
    let (model, asked) = windowed();
    let results = model.results(&asked);
    let core = explain::next_ceiling(&results, Limit::ReceiveWindow).expect("a ceiling");
    let (verdict, reached) = verdict_after(&results, &model);
    assert_eq!((verdict.limit, core.limit), (Limit::ReceiveWindow, Limit::SendBuffer), "{core:?}");
    assert!(verdict.confirmed && reached > core.bits_per_s, "{verdict:#?}");
    // The send buffer is lifted by the same option, and its line says so.
    let next = verdict.next.expect("a limit");
    assert!(next.text.contains("lifts this limit too"), "{next:?}");

    // With a larger buffer the core is next, until the experiment shows that it carries more.
    let mut results = results;
    for point in &mut results.points {
        widen_buffers(point);
    }
    let core = explain::next_ceiling(&results, Limit::ReceiveWindow).expect("a ceiling");
    assert_eq!(core.limit, Limit::SenderCore, "{core:?}");
    let faster = Model { sender_core_bits_per_s: 20e9, ..model };
    let (verdict, reached) = verdict_after(&results, &faster);
    assert!(verdict.confirmed && reached > core.bits_per_s * 1.2, "{verdict:#?}");
    let is_possible = verdict.next.as_ref().is_none_or(|next| next.bits_per_s >= reached);
    assert!(is_possible, "reached {reached}: {:?}", verdict.next);
}

/// What a buffer holds is an estimate, and no limit is next at a rate that the same run went past.
#[test]
fn a_send_buffer_that_an_experiment_went_past_binds_at_the_rate_that_was_reached() {
    let model =
        Model { window_max_bytes: 4e6, near_speed_bits_per_s: Some(10e9), ..Model::default() };
    let mut results = model.results(&tcp());
    // Estimated to hold a little more than the window.
    let wmem = ("net.ipv4.tcp_wmem".to_owned(), "4096\t16384\t8000000".to_owned());
    results.hosts[0].facts.sysctls.extend([wmem]);
    let estimate = explain::next_ceiling(&results, Limit::ReceiveWindow).expect("a ceiling");
    assert_eq!(estimate.limit, Limit::SendBuffer, "{estimate:?}");
    let lifted = Model { window_max_bytes: 1e9, ..model };
    let (verdict, reached) = verdict_after(&results, &lifted);
    assert!(verdict.confirmed && reached > estimate.bits_per_s, "{reached}: {verdict:#?}");
    let next = verdict.next.expect("a limit");
    assert!(next.bits_per_s >= reached, "{reached}: {next:?}");
    assert!(next.text.contains("by estimate; another test reached"), "{next:?}");
}

fn widen_buffers(point: &mut Point) {
    let results::PointOutcome::Measured(outcome) = &mut point.outcome else { return };
    for stream in outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams) {
        stream.send_buffer_bytes = stream.send_buffer_bytes.map(|bytes| bytes * 4);
    }
}

#[test]
fn a_send_buffer_that_holds_little_more_than_the_window_binds_next() {
    let model =
        Model { window_max_bytes: 4e6, near_speed_bits_per_s: Some(10e9), ..Model::default() };
    let mut results = model.results(&tcp());
    let next = |results: &Results| {
        explain::next_ceiling(results, Limit::ReceiveWindow).expect("the line rate is known")
    };
    assert_eq!(next(&results).limit, Limit::LinkRate);
    // 5 MB of buffer are estimated to hold 3 MB of payload, less than the 4 MB of window that they carried.
    let wmem = ("net.ipv4.tcp_wmem".to_owned(), "4096\t16384\t5000000".to_owned());
    results.hosts[0].facts.sysctls.extend([wmem]);
    let buffer = next(&results);
    let measured = diagnose(&results).measured.expect("measured").median;
    assert_eq!((buffer.limit, buffer.bits_per_s), (Limit::SendBuffer, measured), "{buffer:?}");
    // A buffer that cannot have carried the window is no explanation.
    let tiny = ("net.ipv4.tcp_wmem".to_owned(), "4096\t16384\t1000000".to_owned());
    results.hosts[0].facts.sysctls.extend([tiny]);
    assert_eq!(next(&results).limit, Limit::LinkRate);
}

#[test]
fn the_next_ceiling_is_the_lowest_of_the_others() {
    let model =
        Model { window_max_bytes: 4e6, near_speed_bits_per_s: Some(10e9), ..Model::default() };
    let (verdict, results) = verdict_of(&model, &tcp());
    let next = explain::next_ceiling(&results, verdict.limit).expect("the line rate is known");
    assert_eq!(verdict.next.as_ref(), Some(&next));
    assert_eq!(next.limit, Limit::LinkRate, "{next:?}");
    assert!((9.8e9..10e9).contains(&next.bits_per_s), "{next:?}");
}

#[test]
fn a_window_over_a_path_without_delay_is_no_ceiling() {
    // 1 GB of window over 30 us would be 267 Tbit/s.
    let model = Model { rtt_s: 30e-6, capacity_bits_per_s: 9e9, ..Model::default() };
    let results = model.results(&tcp());
    for limit in Limit::ALL {
        let next = explain::next_ceiling(&results, limit);
        assert!(next.as_ref().is_none_or(|next| next.bits_per_s <= 2e11), "{limit:?}: {next:?}");
    }
}

#[test]
fn a_bound_that_is_not_known_is_not_advised_to_shrink() {
    let model = Model { window_max_bytes: 4e5, ..Model::default() };
    let (known, mut results) = verdict_of(&model, &tcp());
    assert_eq!(known.limit, Limit::ReceiveWindow, "{known:#?}");
    for host in &mut results.hosts {
        host.facts.sysctls.clear();
    }
    let advice = explain::explain(&results).advice.join("\n");
    assert!(advice.contains("a size that the program sets (SO_RCVBUF)"), "{advice}");
    let set = advice.lines().filter(|line| line.contains("tcp_rmem='"));
    // Whatever is set is no less than the usual bound.
    for line in set {
        let figures: Vec<u64> = line
            .split(|letter: char| !letter.is_ascii_digit())
            .filter_map(|figure| figure.parse().ok())
            .collect();
        assert!(figures.iter().any(|figure| *figure > 6 << 20), "{line}");
    }
}

#[test]
fn a_window_that_a_slow_reader_closes_does_not_bind_next() {
    let model = Model { near_speed_bits_per_s: Some(10e9), ..Model::default() };
    let slow_reader = TestSpec { read_bits_per_s: Some(2e7), ..tcp() };
    let results = model.results(&slow_reader);
    assert_eq!(diagnose(&results).best().expect("one").limit, Limit::ReceivingApplication);
    let next = explain::next_ceiling(&results, Limit::ReceivingApplication);
    assert_eq!(next.as_ref().map(|next| next.limit), Some(Limit::LinkRate), "{next:?}");
}

#[test]
fn an_experiment_that_stops_below_the_next_ceiling_shows_a_limit_without_a_name() {
    let model = Model { near_speed_bits_per_s: Some(10e9), ..Model::default() };
    let slow_reader = TestSpec { read_bits_per_s: Some(2e7), ..tcp() };
    let results = model.results(&slow_reader);
    let (verdict, reached) =
        verdict_after(&results, &Model { capacity_bits_per_s: 1e9, ..model.clone() });
    assert!(verdict.confirmed && reached < 1.1e9, "{verdict:#?}");
    let next = verdict.next.expect("a limit");
    assert_eq!(next.limit, Limit::NoneFound, "{next:?}");
    assert!((next.bits_per_s / 1e9 - 1.0).abs() < 0.1, "{next:?}");
    assert!(next.text.contains("although the next known ceiling, link-rate, is at 9."), "{next:?}");
    // On a path that carries it, the line is next.
    let (verdict, _) = verdict_after(&results, &Model { capacity_bits_per_s: 9.7e9, ..model });
    assert!(verdict.confirmed, "{verdict:#?}");
    assert_eq!(verdict.next.map(|next| next.limit), Some(Limit::LinkRate));
}

#[test]
fn no_change_is_predicted_to_go_past_the_next_limit() {
    // 20 MB of send buffer are estimated to hold 12 MB, three times the window that binds.
    let model =
        Model { window_max_bytes: 4e6, near_speed_bits_per_s: Some(10e9), ..Model::default() };
    let mut results = model.results(&tcp());
    let predicted = |results: &Results| {
        let verdict = diagnose(results).verdict();
        assert_eq!(verdict.limit, Limit::ReceiveWindow, "{verdict:#?}");
        let next = verdict.next.expect("a limit").bits_per_s;
        (verdict.changes[0].predicted_bits_per_s.expect("a rate"), next)
    };
    let (alone, next) = predicted(&results);
    assert!(alone <= next, "{alone} of {next}");
    let wmem = ("net.ipv4.tcp_wmem".to_owned(), "4096\t16384\t20000000".to_owned());
    results.hosts[0].facts.sysctls.extend([wmem]);
    let (held, next) = predicted(&results);
    assert!(held == next && held < alone, "{held} of {next}, without the buffer {alone}");
}

#[test]
fn nothing_binds_next_above_the_line_rate() {
    // The line is full, and the core could do half as much again.
    let model = Model {
        capacity_bits_per_s: 9.8e9,
        near_speed_bits_per_s: Some(10e9),
        sender_core_bits_per_s: 14e9,
        ..Model::default()
    };
    let results = model.results(&tcp());
    for limit in Limit::ALL.into_iter().filter(|limit| *limit != Limit::LinkRate) {
        let next = explain::next_ceiling(&results, limit);
        assert!(next.as_ref().is_none_or(|next| next.bits_per_s <= 10e9), "{limit:?}: {next:?}");
    }
    // What would bind without the line is told.
    assert!(explain::next_ceiling(&results, Limit::LinkRate).is_some());
}
