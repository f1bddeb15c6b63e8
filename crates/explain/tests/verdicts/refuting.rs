//! Experiments that can refute: the prediction is fixed before, a second candidate must predict otherwise, and what else
//! was predicted counts.

use explain::{Diagnosis, Judgement, diagnose, judge};
use results::{
    Direction, HostAccount, Limit, Point, Results, Ruling, TestSpec, Verdict, WindowSide,
};

use super::model::Model;
use super::{tcp, verdict_of};

/// A window-limited path, its results and their diagnosis.
fn windowed() -> (Model, Results, Diagnosis) {
    let model = Model { window_max_bytes: 2e6, ..Model::default() };
    let results = model.results(&tcp());
    let diagnosis = diagnose(&results);
    (model, results, diagnosis)
}

/// Points of the first candidate's experiment as the model answers it.
fn answered(model: &Model, diagnosis: &Diagnosis) -> Vec<Point> {
    let (experiment, spec) = diagnosis.experiment().expect("an experiment");
    let name = experiment.point_name();
    (0..3).map(|repeat| model.point(&name, &spec, repeat)).collect()
}

#[test]
fn the_prediction_is_stored_with_its_outcome_and_the_word() {
    let (verdict, _) = verdict_of(&windowed().0, &tcp());
    let told = verdict.confirmation.expect("an experiment");
    assert_eq!((verdict.confirmed, told.ruling), (true, Some(Ruling::Confirmed)));
    // The kernel gave no wider window, so half of it was tried: both bounds lie below what was before.
    let bounds = told.predicted_low_bits_per_s.zip(told.predicted_high_bits_per_s);
    let (low, high) = bounds.expect("both bounds");
    assert!((low..=high).contains(&told.after_bits_per_s), "{told:?}");
    assert!(high < told.before_bits_per_s, "{told:?}");
}

/// What the points hold was fixed before they ran, so it and not today's thresholds judges them.
#[test]
fn points_are_judged_by_the_prediction_that_was_stored_with_them() {
    let lossy = Model { loss_share: 1e-4, ..Model::default() };
    let results = lossy.results(&tcp());
    let diagnosis = diagnose(&results);
    assert_eq!(diagnosis.best().expect("a candidate").limit, Limit::Loss);
    let (experiment, _) = diagnosis.experiment().expect("an experiment");
    let points = answered(&lossy, &diagnosis);
    let is_confirmed = |factor: f64| {
        let stored = points.iter().cloned().map(|mut point| {
            let predicted = experiment.registration();
            let predicted = predicted.map(|(name, rate)| (name.to_owned(), rate * factor));
            point.varied.extend(predicted);
            point
        });
        let stored: Vec<Point> = stored.collect();
        judge(&results, &diagnosis, &stored).verdict.confirmed
    };
    assert!(is_confirmed(1.0));
    assert!(!is_confirmed(100.0), "a gain below what was predicted");
}

/// Repeats of the judged test that differ by more than the gain.
#[test]
fn a_gain_as_predicted_refutes_nothing_where_the_repeats_differ_by_as_much() {
    let lossy = Model { loss_share: 1e-4, ..Model::default() };
    let mut results = lossy.results(&tcp());
    let judged = results.points.iter_mut().filter(|point| point.spec() == Some(&tcp()));
    for (point, factor) in judged.zip([0.4, 1.0, 1.6]) {
        set_rate(point, |rate| rate * factor);
    }
    let diagnosis = diagnose(&results);
    assert_eq!(diagnosis.best().expect("a candidate").limit, Limit::Loss);
    let before = diagnosis.measured.expect("a rate").median;
    let word = |factor: f64| {
        let mut points = answered(&lossy, &diagnosis);
        points.iter_mut().for_each(|point| set_rate(point, |_| before * factor));
        let Judgement { verdict, next } = judge(&results, &diagnosis, &points);
        let is_kept = next.is_some_and(|next| next.best().expect("one").limit == Limit::Loss);
        (verdict.confirmed, is_kept)
    };
    assert_eq!(word(1.3), (false, true), "another experiment of the same limit follows");
    assert_eq!(word(1.0), (false, false), "refuted: nothing was gained");
    assert!(word(3.0).0);
}

fn set_rate(point: &mut Point, rate: impl Fn(f64) -> f64) {
    let results::PointOutcome::Measured(outcome) = &mut point.outcome else { panic!() };
    for direction in &mut outcome.directions {
        direction.received_bits_per_s = rate(direction.received_bits_per_s);
    }
}

/// Lets the senders of a point have retransmitted this share of their segments, over round trips so many times as long.
fn set_lost(point: &mut Point, lost_share: f64, waits: f64) {
    let results::PointOutcome::Measured(outcome) = &mut point.outcome else { panic!() };
    let streams = outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams);
    for stream in streams.filter(|stream| stream.sending) {
        let Some(tcp) = &mut stream.tcp else { continue };
        let sent = stream.bytes as f64 / f64::from(tcp.mss_bytes);
        let again = (sent * lost_share) as u64;
        tcp.last.retransmits_count = tcp.first.retransmits_count + again;
        let sampled = stream.intervals.iter_mut().filter_map(|one| one.tcp.as_mut());
        let all = [&mut tcp.first, &mut tcp.last].into_iter().chain(sampled);
        all.for_each(|sample| sample.rtt_s *= waits);
    }
}

/// A congestion control that heeds no loss stops far below the next ceiling: more is lost there, and nothing waits.
#[test]
fn losses_that_grow_with_the_rate_are_not_random() {
    let line = Some(10e9);
    let lossy = Model { loss_share: 1e-4, near_speed_bits_per_s: line, ..Model::default() };
    let results = lossy.results(&tcp());
    let diagnosis = diagnose(&results);
    assert_eq!(diagnosis.best().expect("a candidate").limit, Limit::Loss);
    let before = diagnosis.measured.expect("a rate").median;
    let word = |lost_share: f64, waits: f64| {
        let mut points = answered(&lossy, &diagnosis);
        points.iter_mut().for_each(|point| set_rate(point, |_| before * 2.0));
        points.iter_mut().for_each(|point| set_lost(point, lost_share, waits));
        let Judgement { verdict, next } = judge(&results, &diagnosis, &points);
        let is_left = next.is_some_and(|next| next.best().expect("one").limit == Limit::Loss);
        (verdict.confirmed, verdict.limit == Limit::Loss || is_left)
    };
    assert_eq!(word(1e-4, 1.0), (true, true), "as large a share is lost as before");
    assert_eq!(word(0.05, 1.0), (false, false), "a rate drops the excess");
    assert_eq!(word(0.05, 2.0), (true, true), "a full queue drops, too");
}

/// A path that loses at random takes as large a share of what another congestion control sends.
#[test]
fn losses_that_go_away_with_another_congestion_control_were_a_queues() {
    let lossy = Model { loss_share: 1e-3, ..Model::default() };
    let results = lossy.results(&tcp());
    let diagnosis = diagnose(&results);
    assert_eq!(diagnosis.best().expect("a candidate").limit, Limit::Loss);
    let before = diagnosis.measured.expect("a rate").median;
    let is_confirmed = |lost_share: f64| {
        let mut points = answered(&lossy, &diagnosis);
        for point in &mut points {
            set_rate(point, |_| before * 4.0);
            set_lost(point, lost_share, 1.0);
        }
        judge(&results, &diagnosis, &points).verdict.confirmed
    };
    assert!(is_confirmed(1e-3));
    assert!(!is_confirmed(1e-5), "hardly anything is lost by paced packets");
    assert!(!is_confirmed(0.0), "nothing is lost by them");
}

/// Congestion windows that nothing cuts add up, and lose nothing below the next ceiling.
#[test]
fn streams_that_lose_more_below_the_next_ceiling_have_no_windows_of_their_own() {
    let model = Model { window_growth_bits_per_s: 0.5e9, ..Model::default() };
    let results = model.results(&tcp());
    let diagnosis = diagnose(&results);
    assert_eq!(diagnosis.best().expect("a candidate").limit, Limit::CongestionControl);
    let (experiment, spec) = diagnosis.experiment().expect("an experiment");
    assert!(spec.streams > 1, "{experiment:?}");
    let before = diagnosis.measured.expect("a rate").median;
    let is_confirmed = |gain: f64, lost_share: f64| {
        let mut points = answered(&model, &diagnosis);
        for point in &mut points {
            set_rate(point, |_| before * gain);
            set_lost(point, lost_share, 1.0);
        }
        judge(&results, &diagnosis, &points).verdict.confirmed
    };
    assert!(is_confirmed(2.5, 0.0));
    assert!(!is_confirmed(2.5, 0.02), "something drops what exceeds it");
    assert!(is_confirmed(4.0, 0.02), "all that was predicted: what is full now was not before");
}

/// A rate that all traffic meets carries as much of UDP; far less is a limit of UDP's own.
#[test]
fn datagrams_that_arrive_at_far_less_than_the_rate_confirm_no_shaper() {
    let model = Model { capacity_bits_per_s: 1e9, ..Model::default() };
    let results = model.results(&tcp());
    let diagnosis = diagnose(&results);
    assert_eq!(diagnosis.best().expect("a candidate").limit, Limit::Shaper);
    let before = diagnosis.measured.expect("a rate").median;
    let is_confirmed = |part: f64| {
        let mut points = answered(&model, &diagnosis);
        points.iter_mut().for_each(|point| set_rate(point, |_| before * part));
        judge(&results, &diagnosis, &points).verdict.confirmed
    };
    assert!(is_confirmed(1.0));
    assert!(is_confirmed(0.85));
    assert!(!is_confirmed(0.65));
}

/// What a reader cannot take is dropped at its socket: that shows no rate of the path.
#[test]
fn datagrams_that_the_receiving_host_drops_confirm_no_shaper() {
    let model = Model { capacity_bits_per_s: 1e9, ..Model::default() };
    let results = model.results(&tcp());
    let diagnosis = diagnose(&results);
    assert_eq!(diagnosis.best().expect("a candidate").limit, Limit::Shaper);
    let is_confirmed = |part: f64| {
        let mut points = answered(&model, &diagnosis);
        for point in &mut points {
            let results::PointOutcome::Measured(outcome) = &mut point.outcome else { panic!() };
            let udp = outcome.directions[0].udp.as_mut().expect("datagrams");
            assert!(udp.lost_count > 0, "faster than the rate");
            udp.loss.socket_buffer_count = Some((udp.lost_count as f64 * part) as u64);
        }
        judge(&results, &diagnosis, &points).verdict.confirmed
    };
    assert!(is_confirmed(0.0));
    assert!(is_confirmed(0.2));
    assert!(!is_confirmed(0.9));
}

/// An option that sets both sides' buffers may do so: the receiver's window had room and is full afterwards.
#[test]
fn a_larger_buffer_that_brings_a_full_window_refutes_nothing() {
    let model = Model::default();
    let side = Some(WindowSide::Sender);
    let asked = TestSpec { window_bytes: Some(1 << 20), window_side: side, ..tcp() };
    let results = model.results(&asked);
    let diagnosis = diagnose(&results);
    assert_eq!(diagnosis.best().expect("a candidate").limit, Limit::SendBuffer);
    let (_, spec) = diagnosis.experiment().expect("an experiment");
    assert_eq!(spec.window_side, side, "the receiver's stays as the kernel tunes it");
    let is_kept = |is_full: bool| {
        let mut points = answered(&model, &diagnosis);
        let before = diagnosis.measured.expect("a rate").median;
        points.iter_mut().for_each(|point| set_rate(point, |_| before * 0.4));
        for point in points.iter_mut().filter(|_| is_full) {
            let results::PointOutcome::Measured(outcome) = &mut point.outcome else { panic!() };
            let streams = outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams);
            for stream in streams.filter(|stream| stream.sending) {
                let tcp = stream.tcp.iter_mut().flat_map(|tcp| [&mut tcp.first, &mut tcp.last]);
                let sampled = stream.intervals.iter_mut().filter_map(|one| one.tcp.as_mut());
                tcp.chain(sampled)
                    .for_each(|sample| sample.peer_window_bytes = Some(sample.in_flight_bytes));
            }
        }
        let Judgement { next, .. } = judge(&results, &diagnosis, &points);
        next.is_some_and(|next| next.best().expect("one").limit == Limit::SendBuffer)
    };
    assert!(is_kept(true), "another experiment of the same limit follows");
    assert!(!is_kept(false), "refuted: no other window explains the fall");
}

#[test]
fn a_smaller_window_that_is_not_full_confirms_no_window() {
    let (model, results, diagnosis) = windowed();
    // The kernel gave no wider window: half of it is next.
    let (experiment, _) = diagnosis.experiment().expect("an experiment");
    let name = experiment.point_name();
    let refused: Vec<Point> = (0..3).map(|repeat| model.point(&name, &tcp(), repeat)).collect();
    let Judgement { next, .. } = judge(&results, &diagnosis, &refused);
    let second = next.expect("half the window is left");
    let word = |flight: f64| {
        let mut points = answered(&model, &second);
        for point in &mut points {
            let results::PointOutcome::Measured(outcome) = &mut point.outcome else { panic!() };
            for stream in outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams) {
                for sample in stream.tcp.iter_mut().flat_map(|tcp| [&mut tcp.first, &mut tcp.last])
                {
                    let window = sample.peer_window_bytes.unwrap_or(0) as f64;
                    sample.in_flight_bytes = (window * flight) as u64;
                }
                for sample in &mut stream.intervals {
                    if let Some(tcp) = &mut sample.tcp {
                        let window = tcp.peer_window_bytes.unwrap_or(0) as f64;
                        tcp.in_flight_bytes = (window * flight) as u64;
                    }
                }
            }
        }
        let Judgement { verdict, .. } = judge(&results, &second, &points);
        let told = verdict.confirmation.clone().expect("an experiment");
        (verdict.limit, verdict.confirmed, told)
    };
    let (limit, is_confirmed, told) = word(1.0);
    assert_eq!((limit, is_confirmed), (Limit::ReceiveWindow, true), "{told:?}");
    assert!(told.companions.iter().all(|companion| companion.holds), "{told:?}");
    let (limit, is_confirmed, told) = word(0.8);
    assert_eq!((limit, is_confirmed), (Limit::ReceiveWindow, false), "{told:?}");
    assert_eq!(told.ruling, Some(Ruling::Inconclusive));
    assert!(told.companions.iter().any(|companion| !companion.holds), "{told:?}");
}

/// A window that binds gives in proportion to its size; a small part of that gain shows that something else binds.
#[test]
fn a_wider_window_that_carries_little_more_confirms_no_window() {
    let model = Model::default();
    let side = Some(WindowSide::Receiver);
    let asked = TestSpec { window_bytes: Some(1 << 20), window_side: side, ..tcp() };
    let results = model.results(&asked);
    let diagnosis = diagnose(&results);
    assert_eq!(diagnosis.best().expect("a candidate").limit, Limit::ReceiveWindow);
    let (experiment, _) = diagnosis.experiment().expect("an experiment");
    let before = diagnosis.measured.expect("a rate").median;
    let promised = experiment.predicted.expected_bits_per_s / before - 1.0;
    assert!(promised > 0.5, "a wider window: {experiment:?}");
    let word = |part: f64| {
        let mut points = answered(&model, &diagnosis);
        points.iter_mut().for_each(|point| set_rate(point, |_| before * (1.0 + part * promised)));
        let Judgement { verdict, next } = judge(&results, &diagnosis, &points);
        let is_kept = next.is_some_and(|next| next.best().expect("one").limit == experiment.limit);
        (verdict.confirmed, is_kept)
    };
    assert_eq!(word(0.15), (false, true), "another experiment of the same limit follows");
    assert!(word(0.5).0);
    assert_eq!(word(0.0), (false, false), "refuted: nothing was gained");
}

/// Lets the senders of a point have received this share of their segments marked.
fn set_marked(point: &mut Point, share: f64) {
    let results::PointOutcome::Measured(outcome) = &mut point.outcome else { panic!() };
    let streams = outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams);
    for stream in streams.filter(|stream| stream.sending) {
        let Some(tcp) = &mut stream.tcp else { continue };
        tcp.first.marked_count = Some(0);
        let sent = stream.bytes as f64 / f64::from(tcp.mss_bytes);
        tcp.last.marked_count = Some((sent * share) as u64);
    }
}

/// A congestion control that heeds no marks is marked all the more; one that is not marked lifted something else.
#[test]
fn marks_that_go_away_with_another_congestion_control_held_nothing() {
    let model = Model { window_growth_bits_per_s: 0.5e9, ..Model::default() };
    let mut results = model.results(&tcp());
    results.points.iter_mut().for_each(|point| set_marked(point, 0.05));
    let diagnosis = diagnose(&results);
    assert_eq!(diagnosis.best().expect("a candidate").limit, Limit::EcnMarks);
    let before = diagnosis.measured.expect("a rate").median;
    let is_confirmed = |share: f64| {
        let mut points = answered(&model, &diagnosis);
        for point in &mut points {
            set_rate(point, |_| before * 4.0);
            set_marked(point, share);
        }
        judge(&results, &diagnosis, &points).verdict.confirmed
    };
    assert!(is_confirmed(0.9));
    assert!(!is_confirmed(0.0), "nothing is marked");
}

/// The verdict where the sender is the far end and tells nothing of itself but what it retransmitted; `receiver_rtt_s`:
/// what the receiver reads of round trips under load.
fn of_silent_sender(model: &Model, receiver_rtt_s: Option<f64>) -> Verdict {
    let reverse = TestSpec { direction: Direction::Reverse, ..tcp() };
    let told = |mut point: Point| {
        let results::PointOutcome::Measured(outcome) = &mut point.outcome else { panic!() };
        for direction in &mut outcome.directions {
            direction.direction = Direction::Reverse;
        }
        let mut receiver = outcome.hosts.pop().expect("the far end").account;
        for stream in &mut receiver.streams {
            let tcp = stream.tcp.get_or_insert_default();
            tcp.mss_bytes = model.mss() as u32;
            tcp.last.receiver_rtt_s = receiver_rtt_s;
            stream.intervals.iter_mut().for_each(|interval| interval.tcp = None);
        }
        outcome.hosts = HostAccount::of_ends(receiver, None);
        point
    };
    let mut results = model.results(&reverse);
    results.hosts.truncate(1);
    results.points = results.points.into_iter().map(told).collect();
    let mut diagnosis = diagnose(&results);
    while let Some((experiment, spec)) = diagnosis.experiment() {
        let name = experiment.point_name();
        let points: Vec<Point> =
            (0..3).map(|repeat| told(model.point(&name, &spec, repeat))).collect();
        let Judgement { verdict, next } = judge(&results, &diagnosis, &points);
        results.points.extend(points);
        match next {
            Some(next) => diagnosis = next,
            None => return verdict,
        }
    }
    diagnosis.verdict()
}

/// A rate that drops and a rate that queues carry as much of anything: only round trips under load tell them apart.
#[test]
fn a_rate_whose_queue_nobody_sees_is_not_confirmed() {
    let model = Model { capacity_bits_per_s: 0.2e9, queue_bytes: 0.0, ..Model::default() };
    let unseen = of_silent_sender(&model, None);
    assert_eq!((unseen.limit, unseen.confirmed), (Limit::Shaper, false), "{unseen:#?}");
    assert!(
        unseen.summary.contains("a policer: the experiment does not distinguish them"),
        "{}",
        unseen.summary
    );
    let waits = of_silent_sender(&model, Some(0.08));
    assert_eq!((waits.limit, waits.confirmed), (Limit::Shaper, true), "{waits:#?}");
    let dropped = of_silent_sender(&model, Some(model.rtt_s));
    assert_eq!((dropped.limit, dropped.confirmed), (Limit::Policer, true), "{dropped:#?}");
}
