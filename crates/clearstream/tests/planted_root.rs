//! Planted limits: a lab with one known bottleneck, `clearstream path` run in it, and the verdict
//! must name that bottleneck and the right end. The table is [cases.toml](planted_root/cases.toml);
//! SPECIFICATION.md counts the cases, and `planted_recorded.rs` judges many more from recordings.
//!
//! Every case needs root (or user namespaces) for the lab; one at a time, since each wants the
//! cores for itself. What else a machine does in those seconds is not in our hands, so a case has
//! three runs; the share of right first answers is printed.

#[path = "planted_root/bed.rs"]
mod bed;
#[path = "planted_root/cases.rs"]
mod cases;

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bed::PlantedLab;
use cases::Case;
use results::Results;

/// The program under test.
fn program() -> &'static str {
    env!("CARGO_BIN_EXE_clearstream")
}

/// Runs of a case before it counts as misjudged.
const RUNS_MAX: u32 = 3;

/// After so long a case has one run only.
const AGAIN_UNTIL: Duration = Duration::from_secs(8 * 60);

/// After so long no case is begun: the suite has failed.
const SUITE_MAX: Duration = Duration::from_secs(12 * 60);

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
    fn root_planted_loss_of_one_in_a_thousand() { "loss-low" }
    fn root_planted_loss_reverse() { "loss-reverse" }
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
    fn root_planted_crowded_sender_core() { "crowd-near" }
    fn root_planted_crowded_receiver_core() { "crowd-far" }
    fn root_planted_processor_quota() { "quota-near" }
    fn root_planted_slow_reader() { "reader" }
    fn root_planted_slow_writer() { "writer" }
    fn root_unplanted_path_accuses_nobody() { "clean" }
    fn root_unplanted_veth_accuses_nobody() { "clean-veth" }
    fn root_unplanted_short_path_accuses_nobody() { "clean-short" }
}

#[test]
fn every_live_case_is_tested() {
    let live: Vec<String> =
        cases::cases().into_iter().filter(|case| case.live).map(|case| case.name).collect();
    assert_eq!(live, TESTED, "left: cases.toml; right: planted_root.rs");
}

/// First answers so far: right ones, all.
static FIRST_ANSWERS: Mutex<(u32, u32)> = Mutex::new((0, 0));

static BEGAN: OnceLock<Instant> = OnceLock::new();

fn expect(name: &str) {
    let case = cases::cases().into_iter().find(|case| case.name == name).expect("in cases.toml");
    // Held for the whole case: one at a time.
    let mut first_answers = FIRST_ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    let elapsed = || BEGAN.get_or_init(Instant::now).elapsed();
    assert!(elapsed() < SUITE_MAX, "not begun: the cases before it took {:?}", elapsed());
    let lab = PlantedLab::up(&case).unwrap_or_else(|why| panic!("{name}: {why}"));
    let is_right = (1..=RUNS_MAX).any(|run| {
        if run > 1 && elapsed() > AGAIN_UNTIL {
            return false;
        }
        let is_right = judge(&lab, &case, run);
        if run == 1 {
            first_answers.0 += u32::from(is_right);
            first_answers.1 += 1;
        }
        is_right
    });
    let (right, all) = *first_answers;
    println!(
        "right first answers so far: {right} of {all}, after {:.0} s",
        elapsed().as_secs_f64()
    );
    drop(lab);
    assert!(is_right, "{name} ({}) was misjudged", case.plants);
}

fn judge(lab: &PlantedLab, case: &Case, run: u32) -> bool {
    let results: Results = match lab.path(case) {
        Ok(results) => results,
        Err(why) => {
            println!("{}, run {run}: {why}", case.name);
            return false;
        }
    };
    let verdict = results.verdict.as_ref().expect("a verdict");
    let is_right = case.accept.iter().any(|accepted| accepted.is(verdict));
    if !is_right {
        let told = serde_json::to_string_pretty(verdict).unwrap_or_default();
        println!("{}, run {run}: {told}", case.name);
    }
    is_right
}
