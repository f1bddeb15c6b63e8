//! How much the tests do, read in this one place: `make test` keeps to a fixed part that a machine
//! which stalls now and then passes, `make test-all` takes every repeat there is.

use std::io::Write;
use std::time::{Duration, Instant};

use stats::Judgement;

/// Most often that a judgement of `make test` may fail by chance.
pub const CHANCE_MAX: f64 = 1e-4;

/// Share of short runs that take too long though all is well: others of a shared host take a core away
/// for a moment, or another test has it.
pub const DISTURBED: f64 = 0.05;

/// Whether this is `make test-all`.
pub fn is_all() -> bool {
    std::env::var("CLEARSTREAM_TESTS").is_ok_and(|which| which == "all")
}

/// Says what a test leaves to `make test-all`.
pub fn left_to_test_all(what: &str) {
    println!("left to make test-all: {what}");
}

/// A line in the log at once, also while the test harness keeps what is printed: a test that goes on for
/// minutes would be taken for one without end (tools/bounded).
pub fn say(line: &str) {
    // Nobody to tell is no reason to fail.
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).ok();
}

/// The median of so many runs' times, all of them taken before it is looked at: it is too long by
/// chance only where more than half of the runs are disturbed.
pub fn median_time(count: u32, mut run: impl FnMut()) -> Duration {
    let judgement = Judgement::majority(count, DISTURBED);
    assert!(judgement.chance_of_failing() < CHANCE_MAX, "too few: {judgement}");
    let mut once = || {
        let began = Instant::now();
        run();
        began.elapsed()
    };
    let mut times: Vec<Duration> = (0..count).map(|_| once()).collect();
    times.sort_unstable();
    println!("{:?} to {:?}; {judgement}", times[0], times[times.len() - 1]);
    times[times.len() / 2]
}

/// Judges once whether more than half of so many runs, all taken beforehand, are right.
pub fn judge_runs<T: std::fmt::Debug>(
    what: &str,
    count: u32,
    run: impl FnMut(u32) -> T,
    is_right: impl Fn(&T) -> bool,
) {
    let judgement = Judgement::majority(count, DISTURBED);
    assert!(judgement.chance_of_failing() < CHANCE_MAX, "too few: {judgement}");
    let runs: Vec<T> = (0..count).map(run).collect();
    let wrong = runs.iter().filter(|run| !is_right(run)).count() as u32;
    println!("{what}: {wrong} wrong; {judgement}");
    assert!(judgement.passes(wrong), "{what}: {wrong} wrong of {runs:?}; {judgement}");
}

/// Judges once whether more than half of the figures lie in `range`.
pub fn judge_most(
    what: &str,
    figures: &[f64],
    range: &std::ops::RangeInclusive<f64>,
    wrong_share: f64,
) {
    let judgement = Judgement::majority(figures.len() as u32, wrong_share);
    let wrong = figures.iter().filter(|figure| !range.contains(figure)).count() as u32;
    let median = stats::median(figures).unwrap_or(f64::NAN);
    let told = format!(
        "{what}: {wrong} outside {range:?}, median {median:.3} of {figures:.3?}; {judgement}"
    );
    say(&told);
    assert!(judgement.passes(wrong), "{told}");
}
