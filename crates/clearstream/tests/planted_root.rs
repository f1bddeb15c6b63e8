//! Planted limits: a lab with one known bottleneck, `clearstream path` run in it, and the verdict
//! must name that bottleneck and the right end. The table is `cases.toml` in `crates/testkit`;
//! SPECIFICATION.md counts the cases, and `planted_recorded.rs` judges many more from recordings.
//!
//! Every case needs root (or user namespaces) for the lab; one at a time, since each wants the
//! cores for itself. What else a machine does in those seconds is not in our hands, so an answer may
//! be wrong by chance. Nothing is asked again for that: `make test` asks a fixed part of the cases
//! once each and judges all answers together, once; `make test-all` asks every case five times and
//! judges each by all of its answers. Both print how often they fail by chance.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use stats::Judgement;
use testkit::effort;
use testkit::planted::bed::PlantedLab;
use testkit::planted::cases::{self, Case};
use testkit::planted::drawn;
use testkit::planted::recorded;
use testkit::spans::now_ns;
use testkit::stalls::Machine;

/// Share of the answers that are wrong by chance: of 100 first answers 2 to 3 were, on two cores that other
/// machines share (`make bench BENCH='--only verdicts-live'` tells today's).
const WRONG_BY_CHANCE: f64 = 0.03;

/// Share of a live answer's time in which the machine may have stood still. A path that is held up for longer
/// has that limit too; such an answer of `make test` is shown and not judged.
const STALLED_MAX: f64 = 0.01;

/// What `make test-all` draws: one of each kind, on links that two busy cores can fill.
const DRAWN_SEED: u64 = 101;
const DRAWN_FASTEST: f64 = 200e6;

/// Share of such answers that are wrong: 4 of the 39 that were recorded last, when nothing had been set by them.
const DRAWN_WRONG: f64 = 0.1;

/// Answers of each case in `make test-all`.
const REPEATS: u32 = 5;

/// The cases that `make test` asks live: a window, what a network does to packets, rates, a host's core, an
/// application, nothing; those without a recording among them.
const IN_MAKE_TEST: &[&str] =
    &["rwnd-far", "loss-low", "reordering", "tbf-near", "policer", "quota-near", "writer", "clean"];

/// Every live case by its name, one test each.
macro_rules! planted {
    ($(fn $test:ident() { $case:literal })*) => {
        $(#[test]
        fn $test() {
            expect($case);
        })*

        const TESTED: &[&str] = &[$($case),*];
    };
}

planted! {
    fn root_planted_receive_window_of_the_far_kernel() { "rwnd-far" }
    fn root_planted_receive_window_of_the_near_kernel_reverse() { "rwnd-near-reverse" }
    fn root_planted_receive_window_of_the_far_route() { "rwnd-route" }
    fn root_planted_window_option() { "window-option" }
    fn root_planted_send_buffer() { "sndbuf" }
    fn root_planted_send_buffer_of_the_far_kernel_reverse() { "sndbuf-reverse" }
    fn root_planted_small_send_buffer_under_bbr() { "sndbuf-small" }
    fn root_planted_loss_of_one_in_a_thousand() { "loss-low" }
    fn root_planted_loss_reverse() { "loss-reverse" }
    fn root_planted_loss_without_sack() { "no-sack" }
    fn root_planted_loss_without_sack_reverse() { "no-sack-reverse" }
    fn root_planted_receive_window_without_sack() { "rwnd-no-sack" }
    fn root_planted_loss_without_sack_to_iperf3() { "no-sack-iperf3" }
    fn root_planted_reordering() { "reordering" }
    fn root_planted_ecn_marks() { "ecn" }
    fn root_planted_congestion_window() { "cwnd" }
    fn root_planted_ramp_of_a_short_test() { "ramp" }
    fn root_planted_pacing() { "pacing" }
    fn root_planted_short_queue_of_the_near_host() { "qdisc" }
    fn root_planted_shaper_on_the_near_host() { "tbf-near" }
    fn root_planted_shaper_on_the_far_host_reverse() { "tbf-far-reverse" }
    fn root_planted_shaper_on_the_path() { "shaper-300m" }
    fn root_planted_policer_on_the_path() { "policer" }
    fn root_planted_link_rate() { "link-500m" }
    fn root_planted_offloads_off() { "offloads" }
    fn root_planted_cross_traffic() { "cross-traffic" }
    fn root_planted_slow_way_back() { "return-path" }
    fn root_planted_slow_way_back_reverse() { "return-path-reverse" }
    fn root_planted_crowded_sender_core() { "crowd-near" }
    fn root_planted_crowded_receiver_core() { "crowd-far" }
    fn root_planted_processor_quota() { "quota-near" }
    fn root_planted_slow_reader() { "reader" }
    fn root_planted_slow_writer() { "writer" }
    fn root_unplanted_path_accuses_nobody() { "clean" }
    fn root_unplanted_veth_accuses_nobody() { "clean-veth" }
    fn root_unplanted_short_path_accuses_nobody() { "clean-short" }
}

fn live_cases() -> Vec<Case> {
    cases::cases().into_iter().filter(|case| case.live).collect()
}

#[test]
fn every_live_case_is_tested() {
    let live: Vec<String> = live_cases().into_iter().map(|case| case.name).collect();
    assert_eq!(live, TESTED, "left: cases.toml; right: planted_root.rs");
    let recorded = recorded::recorded();
    for name in TESTED {
        let is_recorded = recorded.iter().any(|(recorded, _)| recorded == name);
        assert!(is_recorded || IN_MAKE_TEST.contains(name), "make test leaves out {name}");
    }
}

/// The cases of `make test`, each asked once, and all answers judged together.
#[test]
fn root_live_verdicts_name_what_was_planted() {
    let _alone = alone();
    let began = Instant::now();
    let mut cases = live_cases();
    if !effort::is_all() {
        cases.retain(|case| IN_MAKE_TEST.contains(&case.name.as_str()));
        assert_eq!(cases.len(), IN_MAKE_TEST.len(), "cases of these names");
        effort::left_to_test_all("every live case, five times each");
    }
    let machine = Machine::watch();
    let (mut judged, mut wrong) = (0, Vec::new());
    for case in &cases {
        let lab = PlantedLab::up(case, crate::PROGRAM)
            .unwrap_or_else(|why| panic!("{}: {why}", case.name));
        machine.take_stalls();
        let from_ns = now_ns();
        let is_right = is_named(&lab, case);
        let stalled = machine.stalled_share(from_ns).unwrap_or(0.0);
        if stalled > STALLED_MAX && !effort::is_all() {
            effort::say(&format!(
                "  not judged: this machine stood still {:.1}% of the time",
                stalled * 100.0
            ));
            continue;
        }
        judged += 1;
        if !is_right {
            wrong.push(case.name.as_str());
        }
    }
    let judgement = Judgement::strictest(judged, WRONG_BY_CHANCE, effort::CHANCE_MAX);
    if !judgement.can_fail() {
        println!("skipped: this machine stands still too often to judge live verdicts");
        return;
    }
    let told = format!("planted limits misjudged: {wrong:?}; {judgement}");
    effort::say(&format!("{told}; {:.0} s", began.elapsed().as_secs_f64()));
    assert!(judgement.passes(wrong.len() as u32), "{told}");
}

/// Limits that a seed draws, one of each kind, each asked once and all judged together. Those that did not bind are
/// not judged.
#[test]
fn root_drawn_limits_are_named() {
    if !effort::is_all() {
        effort::left_to_test_all("one drawn limit of each kind, live");
        return;
    }
    let _alone = alone();
    let kinds = drawn::kinds_count();
    let (mut judged, mut wrong) = (0, Vec::new());
    for (_, drawn) in drawn::drawn(DRAWN_SEED, kinds, DRAWN_FASTEST) {
        let case = &drawn.case;
        let results = PlantedLab::up(case, crate::PROGRAM).and_then(|lab| lab.path(case));
        let results = results.unwrap_or_else(|why| panic!("{}: {why}", case.plants));
        if !drawn.check.holds(&results) {
            effort::say(&format!("  did not bind: {}", case.plants));
            continue;
        }
        judged += 1;
        let verdict = explain::explain(&results);
        if !case.accept.iter().any(|accepted| accepted.is(&verdict)) {
            wrong.push(format!("{}: {}", case.plants, verdict.summary));
        }
    }
    assert!(judged as usize * 2 > kinds, "only {judged} of {kinds} limits did bind");
    let judgement = Judgement::strictest(judged, DRAWN_WRONG, effort::CHANCE_MAX);
    effort::say(&format!("drawn limits misjudged: {wrong:#?}; {judgement}"));
    assert!(judgement.passes(wrong.len() as u32), "misjudged: {wrong:#?}; {judgement}");
}

/// One at a time: each wants the cores for itself.
fn alone() -> impl Drop {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In `make test-all` the case's answers of five runs, taken beforehand and judged once; in `make test` its
/// recording, which knows no chance.
fn expect(name: &str) {
    let case = live_cases().into_iter().find(|case| case.name == name).expect("in cases.toml");
    if !effort::is_all() {
        effort::left_to_test_all("five live runs");
        let recorded = recorded::recorded().iter().find(|(recorded, _)| recorded == name);
        let Some((_, recorded)) = recorded else {
            assert!(IN_MAKE_TEST.contains(&name), "neither recorded nor asked live");
            return;
        };
        let (verdict, is_right) = recorded.judge();
        assert!(is_right, "{name} ({}): {verdict:#?}", case.plants);
        return;
    }
    let _alone = alone();
    let judgement = Judgement::majority(REPEATS, WRONG_BY_CHANCE);
    let lab = PlantedLab::up(&case, crate::PROGRAM).unwrap_or_else(|why| panic!("{name}: {why}"));
    let wrong = (0..REPEATS).filter(|_| !is_named(&lab, &case)).count();
    drop(lab);
    let told = format!("{name} ({}): {wrong} wrong; {judgement}", case.plants);
    println!("{told}");
    assert!(judgement.passes(wrong as u32), "{told}");
}

/// Asks once.
fn is_named(lab: &PlantedLab, case: &Case) -> bool {
    let began = Instant::now();
    let verdict = match lab.path(case) {
        Ok(results) => results.verdict.expect("a verdict"),
        Err(why) => panic!("{}: {why}", case.name),
    };
    let is_right = case.accept.iter().any(|accepted| accepted.is(&verdict));
    let word = if is_right { "right" } else { "WRONG" };
    let took_s = began.elapsed().as_secs_f64();
    effort::say(&format!("  {word} {:24} {took_s:4.1} s  {}", case.name, verdict.summary));
    if !is_right {
        println!("{}: {}", case.name, serde_json::to_string_pretty(&verdict).unwrap_or_default());
    }
    is_right
}
