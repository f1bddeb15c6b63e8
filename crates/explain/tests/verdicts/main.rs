//! Verdicts over a modelled path: planted limits are named for the right end and confirmed, a path
//! without one is not accused, and no document however absurd makes the reasoning fail.

mod absurd;
mod account;
mod chain;
mod datagrams;
mod files;
mod model;
mod next;
mod ranking;
mod refuting;
mod round_trips;
mod stuck;
mod symptoms;

use explain::{Diagnosis, Judgement, diagnose, judge};
use model::{FAR, Model, NEAR};
use results::{End, Limit, Point, Results, TestSpec, Verdict};

/// Runs the whole loop the way `path` does, the model answering every experiment.
fn verdict_of(model: &Model, spec: &TestSpec) -> (Verdict, Results) {
    let mut results = model.results(spec);
    let mut diagnosis = diagnose(&results);
    while let Some((experiment, spec)) = diagnosis.experiment() {
        let name = experiment.point_name();
        let points: Vec<Point> = (0..3).map(|repeat| model.point(&name, &spec, repeat)).collect();
        let Judgement { verdict, next } = judge(&results, &diagnosis, &points);
        results.points.extend(points);
        match next {
            Some(next) => diagnosis = next,
            None => return (verdict, results),
        }
    }
    (diagnosis.verdict(), results)
}

fn expect(what: &str, model: &Model, spec: &TestSpec, limit: Limit, end: Option<End>) {
    let (verdict, results) = verdict_of(model, spec);
    let told = format!("{what}: {model:?}\n{verdict:#?}");
    assert_eq!(verdict.limit, limit, "{told}");
    assert_eq!(verdict.end, end, "{told}");
    if limit == Limit::NoneFound {
        return;
    }
    assert!(verdict.confirmed, "{told}");
    assert!(!verdict.evidence.is_empty() && !verdict.advice.is_empty(), "{told}");
    assert!(verdict.confirmation.is_some(), "{told}");
    let stored = explain::explain(&results);
    assert_eq!((stored.limit, stored.confirmed), (verdict.limit, true), "stored: {stored:#?}");
}

fn tcp() -> TestSpec {
    TestSpec::tcp()
}

/// Round trips, MTUs and families that every limit is tried over.
fn paths() -> Vec<Model> {
    [(0.017, 9000.0, false), (0.0005, 1500.0, false), (0.08, 1500.0, true), (0.2, 9000.0, true)]
        .into_iter()
        .map(|(rtt_s, mtu_bytes, ipv6)| Model { rtt_s, mtu_bytes, ipv6, ..Model::default() })
        .collect()
}

/// A window or buffer that allows this rate over the model's round trip, bytes.
fn product(model: &Model, bits_per_s: f64) -> f64 {
    bits_per_s * model.rtt_s / 8.0
}

#[test]
fn receive_window() {
    for path in paths() {
        for rate in [0.2e9, 2e9, 9e9] {
            let window = product(&path, rate);
            let asked = TestSpec { window_bytes: Some(window as u64), ..tcp() };
            // Asked too small (the send buffer, as large, is doubled and has room).
            let roomy = Model { buffer_max_bytes: 2e9, ..path.clone() };
            expect("asked", &roomy, &asked, Limit::ReceiveWindow, FAR);
            // Clamped by the kernel: a wider one is refused, half of one is not.
            let clamped = Model { window_max_bytes: window, ..path.clone() };
            expect("clamped", &clamped, &tcp(), Limit::ReceiveWindow, FAR);
        }
    }
}

/// What `tune apply --from` makes of a verdict: the setting that was read, raised, at the end that binds.
#[test]
fn a_confirmed_window_verdict_names_the_setting_to_raise() {
    for path in paths() {
        let window = product(&path, 0.2e9);
        let clamped = Model { window_max_bytes: window, ..path.clone() };
        let (verdict, results) = verdict_of(&clamped, &tcp());
        assert!(verdict.confirmed, "{verdict:#?}");
        let change = verdict.changes.first().unwrap_or_else(|| panic!("{verdict:#?}"));
        assert_eq!((change.end, change.key.as_str()), (End::Far, "net.ipv4.tcp_rmem"));
        let far = results.far().expect("it told of itself");
        let from = far.sysctls["net.ipv4.tcp_rmem"].split_ascii_whitespace();
        let (from, to) = (from.collect::<Vec<_>>(), change.to.split(' ').collect::<Vec<_>>());
        assert_eq!(change.from.as_deref(), Some(from.join(" ").as_str()));
        assert_eq!(to[..2], from[..2], "the least and the first size stay");
        let bytes = |words: &[&str]| words[2].parse::<f64>().expect("a number");
        assert!(bytes(&to) >= 2.0 * bytes(&from), "{change:?}");
        assert!(change.predicted_bits_per_s.expect("told") > 0.3e9, "{change:?}");
        let stored = explain::explain(&results);
        assert_eq!(stored.changes, verdict.changes, "a file gives the same");

        let roomy = Model { buffer_max_bytes: 2e9, ..path.clone() };
        let asked = TestSpec { window_bytes: Some(window as u64), ..tcp() };
        let (verdict, _) = verdict_of(&roomy, &asked);
        assert_eq!(verdict.changes, [], "the test itself asks for no more");
    }
}

#[test]
fn send_buffer() {
    for path in paths() {
        for rate in [0.2e9, 2e9, 9e9] {
            let model = Model { buffer_max_bytes: product(&path, rate) / 0.6, ..path };
            expect("tuned", &model, &tcp(), Limit::SendBuffer, NEAR);
        }
    }
}

#[test]
fn loss() {
    for path in paths() {
        for (share, cc) in [(1e-4, "cubic"), (1e-3, "cubic"), (1e-2, "cubic"), (1e-3, "reno")] {
            let model = Model {
                loss_share: share,
                congestion_control: cc,
                capacity_bits_per_s: 20e9,
                ..path.clone()
            };
            if model.rtt_s > 0.001 {
                expect(cc, &model, &tcp(), Limit::Loss, None);
            }
        }
    }
}

#[test]
fn loss_that_the_algorithm_tolerates_is_no_limit() {
    let model = Model {
        loss_share: 1e-3,
        congestion_control: "bbr",
        sender_core_bits_per_s: 8e9,
        ..Model::default()
    };
    expect("bbr", &model, &tcp(), Limit::SenderCore, NEAR);
}

#[test]
fn congestion_control() {
    for path in paths() {
        for rate in [0.5e9, 5e9] {
            let model = Model { window_growth_bits_per_s: rate, ..path.clone() };
            expect("window", &model, &tcp(), Limit::CongestionControl, NEAR);
        }
    }
}

#[test]
fn cores_that_are_full() {
    for path in paths() {
        for rate in [1e9, 9e9] {
            let sender = Model { sender_core_bits_per_s: rate, ..path.clone() };
            expect("sender", &sender, &tcp(), Limit::SenderCore, NEAR);
            let receiver = Model { receiver_core_bits_per_s: rate, ..path.clone() };
            expect("receiver", &receiver, &tcp(), Limit::ReceiverCore, FAR);
        }
    }
}

#[test]
fn cores_that_are_shared() {
    for path in paths() {
        for share in [0.25, 0.5, 0.7] {
            let sender = Model { sender_core_share: share, ..path.clone() };
            let pinned = TestSpec { near_cores: vec![1], ..tcp() };
            expect("sender", &sender, &pinned, Limit::SenderCore, NEAR);
            let receiver = Model { receiver_core_share: share, ..path.clone() };
            let pinned = TestSpec { far_cores: vec![1], ..tcp() };
            expect("receiver", &receiver, &pinned, Limit::ReceiverCore, FAR);
        }
    }
}

#[test]
fn link_rate() {
    for path in paths() {
        for line in [1e9, 10e9] {
            let goodput = line * path.mss() / (path.mtu_bytes + 38.0);
            let model = Model {
                capacity_bits_per_s: goodput,
                queue_bytes: product(&path, line),
                ..path.clone()
            };
            let near = Model {
                near_speed_bits_per_s: Some(line),
                far_speed_bits_per_s: Some(line * 4.0),
                ..model.clone()
            };
            expect("near", &near, &tcp(), Limit::LinkRate, NEAR);
            let far = Model {
                near_speed_bits_per_s: Some(line * 10.0),
                far_speed_bits_per_s: Some(line),
                ..model
            };
            expect("far", &far, &tcp(), Limit::LinkRate, FAR);
        }
    }
}

#[test]
fn shaper() {
    for path in paths() {
        for (rate, queue_share) in [(0.3e9, 1.0), (3e9, 0.3), (3e9, 4.0)] {
            let queue_bytes = product(&path, rate) * queue_share;
            let model = Model {
                capacity_bits_per_s: rate,
                queue_bytes,
                near_speed_bits_per_s: Some(10e9),
                far_speed_bits_per_s: Some(40e9),
                ..path.clone()
            };
            expect("on the path", &model, &tcp(), Limit::Shaper, None);
            let bbr = Model { congestion_control: "bbr", ..model.clone() };
            expect("on the path, bbr", &bbr, &tcp(), Limit::Shaper, None);
            // A queue so long that the window never overflows it: window / RTT is true of it too.
            let window_max_bytes = product(&path, rate) * 3.0;
            let bloat = Model { queue_bytes: 1e9, window_max_bytes, ..model };
            expect("bufferbloat", &bloat, &tcp(), Limit::Shaper, None);
        }
        let shaped = 2e9;
        let goodput = shaped * path.mss() / (path.mtu_bytes + 14.0);
        let qdisc =
            Model { capacity_bits_per_s: goodput, near_qdisc_bits_per_s: Some(shaped), ..path };
        expect("near qdisc", &qdisc, &tcp(), Limit::Shaper, NEAR);
    }
}

/// From inside a guest, the switch and the cores of its host look like a shaper.
#[test]
fn behind_a_guests_device_its_host_is_named() {
    let model = Model { capacity_bits_per_s: 0.3e9, ..Model::default() };
    let spec = tcp();
    let told = |hypervisor: Option<&str>, driver: &str| {
        let mut results = model.results(&spec);
        let near = &mut results.hosts[0].facts;
        near.hypervisor = hypervisor.map(str::to_owned);
        near.interface.as_mut().unwrap().driver = Some(driver.to_owned());
        let verdict = diagnose(&results).verdict();
        assert_eq!(verdict.limit, Limit::Shaper, "{verdict:#?}");
        format!("{verdict:?}")
    };
    let guest = told(Some("QEMU"), "ptnet");
    for named in [
        "the near end is a guest (QEMU), which does not see what lies behind its device",
        "(ptnet): the switch and the cores of its host may set this rate",
        "`clearstream port stats` what the switch dropped",
        "`top -H` shows whether a thread of the hypervisor",
    ] {
        assert!(guest.contains(named), "{named}: {guest}");
    }
    assert!(told(Some("KVM"), "virtio_net").contains("is a guest (KVM)"));
    for other in [told(None, "virtio_net"), told(Some("KVM"), "mlx5_core")] {
        assert!(!other.contains("is a guest"), "{other}");
    }
}

#[test]
fn policer() {
    for path in paths() {
        for rate in [0.3e9, 1e9, 4e9] {
            let model = Model { capacity_bits_per_s: rate, queue_bytes: 0.0, ..path.clone() };
            expect("on the path", &model, &tcp(), Limit::Policer, None);
            let unseen = Model { far_told: false, ..model };
            expect("foreign far end", &unseen, &tcp(), Limit::Policer, None);
        }
    }
}

#[test]
fn applications() {
    for path in paths() {
        for rate in [0.1e9, 1e9, 6e9] {
            let slow_writer = TestSpec { offered_bits_per_s: Some(rate), ..tcp() };
            expect("writer", &path, &slow_writer, Limit::SendingApplication, NEAR);
            let slow_reader = TestSpec { read_bits_per_s: Some(rate), ..tcp() };
            expect("reader", &path, &slow_reader, Limit::ReceivingApplication, FAR);
        }
    }
}

#[test]
fn an_application_is_not_blamed_for_what_the_path_does() {
    // It offers 8 Gbit/s, the path carries 1.
    let spec = TestSpec { offered_bits_per_s: Some(8e9), ..tcp() };
    let model = Model { capacity_bits_per_s: 1e9, ..Model::default() };
    expect("shaped below the offer", &model, &spec, Limit::Shaper, None);
    let window = Model { window_max_bytes: 1e6, ..Model::default() };
    expect("window below the offer", &window, &spec, Limit::ReceiveWindow, FAR);
}

#[test]
fn nothing_planted_nobody_accused() {
    // Many times the streams carry no more, nothing waits, nothing is full, and no figure says why.
    let model = Model::default();
    let spec = tcp();
    let mut results = model.results(&spec);
    results.points.retain(|point| point.experiment == "single-stream");
    for point in &mut results.points {
        let results::PointOutcome::Measured(outcome) = &mut point.outcome else { continue };
        for stream in outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams) {
            (stream.thread_user_s, stream.thread_system_s, stream.thread_wait_s) =
                (Some(0.1), Some(4.0), Some(0.1));
            stream.intervals.iter_mut().for_each(|interval| interval.receive_queue_bytes = Some(0));
            if let Some(tcp) = &mut stream.tcp {
                tcp.last.receive_window_limited_s = Some(0.0);
            }
        }
    }
    let diagnosis = diagnose(&results);
    let accused: Vec<(Limit, f64)> = diagnosis
        .candidates
        .iter()
        .filter(|candidate| candidate.is_suspected())
        .map(|candidate| (candidate.limit, candidate.weight))
        .collect();
    assert!(accused.is_empty(), "{accused:?}");
    let verdict = diagnosis.verdict();
    assert_eq!((verdict.limit, verdict.confirmed), (Limit::NoneFound, false));
    assert_eq!(verdict.ruled_out.len(), Limit::ALL.len() - 1, "every limit says why not");
    assert!(verdict.ruled_out.iter().all(|line| !line.text.is_empty()), "{verdict:#?}");
    let [measured, lacking] = verdict.evidence.as_slice() else { panic!("{verdict:#?}") };
    for shown in ["smoothed RTT 17.2 ms under load", "0% full", "the far end's thread ran "] {
        assert!(measured.text.contains(shown), "{shown}: {verdict:#?}");
    }
    assert_eq!(lacking.text, "not measured: several streams, UDP");
}

#[test]
fn a_far_end_that_tells_nothing_leaves_the_near_evidence() {
    let unseen = Model { far_told: false, ..Model::default() };
    let window = Model { window_max_bytes: 4e6, ..unseen.clone() };
    expect("window", &window, &tcp(), Limit::ReceiveWindow, FAR);
    let (verdict, _) = verdict_of(&window, &tcp());
    assert!(
        verdict.evidence.iter().any(|line| line.text.contains("reports nothing")),
        "{verdict:#?}"
    );
    let shaper = Model { capacity_bits_per_s: 2e9, ..unseen.clone() };
    expect("shaper", &shaper, &tcp(), Limit::Shaper, None);
    let writer = TestSpec { offered_bits_per_s: Some(1e9), ..tcp() };
    expect("writer", &unseen, &writer, Limit::SendingApplication, NEAR);
    let sender = Model { sender_core_bits_per_s: 5e9, ..unseen };
    expect("sender", &sender, &tcp(), Limit::SenderCore, NEAR);
}

#[test]
fn the_evidence_reads_like_the_law() {
    let model = Model { window_max_bytes: 4e6, noise: 0.0, ..Model::default() };
    let (verdict, _) = verdict_of(&model, &tcp());
    let first = &verdict.evidence[0].text;
    let wanted = "receive-window-limited 97% of the time; window 3.81 MiB / 17.2 ms = 1.86 Gbit/s; measured 1.88 Gbit/s";
    assert_eq!(first, wanted);
    let confirmation = verdict.confirmation.expect("confirmed");
    assert!(confirmation.change.starts_with("window 3.81 MiB -> "), "{confirmation:?}");
}

#[test]
fn a_refuted_candidate_makes_room_for_the_next() {
    // All the figures of a window limit; but the answer to a wider window is: no change.
    let model = Model { window_max_bytes: 4e6, noise: 0.0, ..Model::default() };
    let results = model.results(&tcp());
    let mut diagnosis = diagnose(&results);
    let mut tried = Vec::new();
    while let Some((experiment, spec)) = diagnosis.experiment() {
        tried.push(experiment.limit);
        let roomy = Model {
            window_max_bytes: 1e9,
            capacity_bits_per_s: 1.9e9,
            queue_bytes: 1e9,
            ..model.clone()
        };
        let points: Vec<Point> =
            (0..3).map(|repeat| roomy.point(&experiment.point_name(), &spec, repeat)).collect();
        let Judgement { verdict, next } = judge(&results, &diagnosis, &points);
        let refuted = |v: &Verdict| {
            v.ruled_out.iter().any(|line| line.text.contains("refuted by experiment"))
        };
        assert!(!verdict.confirmed && refuted(&verdict), "{verdict:#?}");
        match next {
            Some(next) => diagnosis = next,
            None => {
                assert_eq!(verdict.limit, Limit::NoneFound, "{verdict:#?}");
                break;
            }
        }
    }
    assert_eq!(tried.first(), Some(&Limit::ReceiveWindow));
    assert!(tried.len() <= 3);
}

#[test]
fn an_experiment_that_fails_decides_nothing() {
    let model = Model { window_max_bytes: 4e6, ..Model::default() };
    let results = model.results(&tcp());
    let mut diagnosis: Diagnosis = diagnose(&results);
    let mut trials = 0;
    let verdict = loop {
        let Some((experiment, spec)) = diagnosis.experiment() else { break diagnosis.verdict() };
        let mut point = model.point(&experiment.point_name(), &spec, 0);
        point.outcome = results::PointOutcome::Failed("connection refused".into());
        trials += 1;
        match judge(&results, &diagnosis, &[point]) {
            Judgement { next: Some(next), .. } => diagnosis = next,
            Judgement { verdict, next: None } => break verdict,
        }
    };
    assert_eq!((verdict.limit, verdict.confirmed), (Limit::ReceiveWindow, false));
    assert!(verdict.confirmation.is_none(), "nothing was measured");
    assert!(verdict.summary.contains("connection refused"), "{}", verdict.summary);
    assert!((2..=6).contains(&trials), "{trials}");
}

#[test]
fn the_documented_list_is_the_table_that_reasons() {
    let written = include_str!("../../../../docs/limits.md");
    assert_eq!(written, explain::limits_page(), "write docs/limits.md anew from limits_page()");
    for limit in Limit::ALL {
        assert!(written.contains(&format!("## `{}`", limit.name())), "{}", limit.name());
    }
}

#[test]
fn an_hour_is_explained_within_a_second() {
    let model = Model { window_max_bytes: 4e6, ..Model::default() };
    let mut results = model.results(&tcp());
    for point in &mut results.points {
        let results::PointOutcome::Measured(outcome) = &mut point.outcome else { continue };
        for stream in outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams) {
            if let Some(sample) = stream.intervals.last().cloned() {
                stream.intervals = vec![sample; 3600];
            }
        }
    }
    let begun = std::time::Instant::now();
    assert_eq!(diagnose(&results).best().map(|best| best.limit), Some(Limit::ReceiveWindow));
    assert!(begun.elapsed().as_secs_f64() < 1.0, "{:?}", begun.elapsed());
}

/// `explain before.json --after after.json`, whatever the verdict advises and whether it was confirmed.
#[test]
fn a_change_to_a_host_is_judged_for_every_verdict_with_advice() {
    let clamped = Model { window_max_bytes: product(&Model::default(), 0.2e9), ..Model::default() };
    let (confirmed, before) = verdict_of(&clamped, &tcp());
    let unconfirmed = diagnose(&clamped.results(&tcp())).verdict();
    assert_eq!((confirmed.confirmed, unconfirmed.confirmed), (true, false));
    assert!(confirmed.host_change.is_none() && !confirmed.changes.is_empty());
    let mut after = Model::default().results(&tcp());
    let to = confirmed.changes[0].to.clone();
    let far = after.far_mut().expect("it told of itself");
    far.sysctls.insert("net.ipv4.tcp_rmem".to_owned(), to);
    for verdict in [confirmed.clone(), unconfirmed.clone()] {
        let told = explain::confirm_host_change(&before, verdict, &after).expect("a common test");
        assert!(told.confirmed && told.summary.contains("confirmed by the change"), "{told:#?}");
        let change = told.confirmation.expect("measured").change;
        assert!(change.starts_with("net.ipv4.tcp_rmem at the far end: "), "{change}");
    }
    let unchanged = explain::confirm_host_change(&before, confirmed.clone(), &before);
    let why = unchanged.expect_err("the setting is what it was").to_string();
    assert!(why.starts_with("the change was not made: net.ipv4.tcp_rmem at the far end"), "{why}");
    // Made, and without effect.
    let mut in_vain = clamped.results(&tcp());
    in_vain.hosts = after.hosts.clone();
    let told = explain::confirm_host_change(&before, unconfirmed, &in_vain).expect("a common test");
    assert!(!told.confirmed && told.ruled_out[0].text.contains("refuted"), "{told:#?}");
    let told = explain::confirm_host_change(&before, confirmed, &in_vain).expect("a common test");
    assert!(told.confirmed && told.summary.contains("did not lift it"), "{told:#?}");
    // "Ask for no window" is advice too.
    let asking = TestSpec { window_bytes: Some(425_000), ..tcp() };
    let (verdict, before) = verdict_of(&Model::default(), &asking);
    assert_eq!(verdict.limit, Limit::ReceiveWindow, "{verdict:#?}");
    let told = explain::confirm_host_change(&before, verdict, &after).expect("a common test");
    let change = told.confirmation.expect("measured").change;
    assert_eq!(change, "window asked for by the test: 415 KiB -> none");
    let silent = Verdict { advice: Vec::new(), ..diagnose(&after).verdict() };
    let silent = Verdict { changes: Vec::new(), host_change: None, ..silent };
    assert_eq!(
        explain::confirm_host_change(&before, silent, &after),
        Err(explain::HostChangeError::NothingAdvised)
    );
}

/// Kernels make more of a window than was asked for; what is named is what was given.
#[test]
fn a_wider_window_is_named_as_it_is_given_and_asked_for_as_it_is_made() {
    let spec = TestSpec { window_bytes: Some(128 << 10), ..tcp() };
    let mut results = Model { noise: 0.0, ..Model::default() }.results(&spec);
    for point in &mut results.points {
        let results::PointOutcome::Measured(outcome) = &mut point.outcome else { continue };
        for stream in outcome.hosts.iter_mut().flat_map(|host| &mut host.account.streams) {
            let sampled = stream.intervals.iter_mut().filter_map(|interval| interval.tcp.as_mut());
            let ends = stream.tcp.iter_mut().flat_map(|tcp| [&mut tcp.first, &mut tcp.last]);
            for tcp in sampled.chain(ends).filter(|tcp| tcp.peer_window_bytes.is_some()) {
                (tcp.peer_window_bytes, tcp.in_flight_bytes) = (Some(202 << 10), 194 << 10);
            }
        }
    }
    let diagnosis = diagnose(&results);
    let candidate = diagnosis.candidates.iter().find(|one| one.limit == Limit::ReceiveWindow);
    let change = &candidate.expect("the window is full").experiments[0].change;
    let explain::Change::Window { from_bytes, to_bytes, ask_bytes, .. } = *change else {
        panic!("{change}")
    };
    assert_eq!(from_bytes, 194 << 10, "what was in flight: {change}");
    let ratio = to_bytes as f64 / ask_bytes as f64;
    assert!((ratio - 194.0 / 128.0).abs() < 0.01, "{change}");
    assert_eq!(change.apply(&spec).window_bytes, Some(ask_bytes));
}
