//! H-TCP in the running kernel: registered, used over an emulated lightpath, compared, taken back.
//!
//! All of it needs root; a registered congestion control belongs to the whole host, so the tests of
//! this file take turns.

use std::process::Output;
use std::sync::{Mutex, MutexGuard};
use testkit::effort;

use crate::PROGRAM;
use bpf_cc::law;
use results::{Results, StreamEnd, TcpSample};
use serde_json::Value;
use stats::Judgement;
use testkit::lab_bed::{LabBed, clearstream, code, complaint, eventually, run, stdout};

/// The lightpath's distance at a rate that fills within a second; the queue holds half as much as
/// the path, so that a loss keeps two thirds of the window.
const PATH: &str = "mtu = 1500\nrate = \"200Mbit\"\ndelay = \"8.5ms\"\nqueue = \"208KiB\"";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

static TURN: Mutex<()> = Mutex::new(());

/// H-TCP, registered for the time of one test; what was there before stays.
struct Registration {
    was_there: bool,
    name: String,
    _turn: MutexGuard<'static, ()>,
}

impl Registration {
    /// `None` after saying why it cannot be here.
    fn new() -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let done = run(&["--json", "tune", "cc", "htcp"]);
        if code(&done) == 4 {
            println!("skipped: {}", complaint(&done));
            return None;
        }
        assert_eq!(code(&done), 0, "{}", complaint(&done));
        let said = json(&done);
        let name = said["name"].as_str().expect("a name").to_owned();
        Some(Self { was_there: said["already_registered"] == true, name, _turn: turn })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.was_there {
            run(&["tune", "cc", "remove", "--force"]);
        }
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON on stdout")
}

fn is_available(name: &str) -> bool {
    let known = std::fs::read_to_string(AVAILABLE).expect("procfs");
    known.split_whitespace().any(|known| known == name)
}

/// A server on the far host, for as long as the lab is up.
fn serve(bed: &LabBed) {
    let mut command = clearstream(&["lab", "exec", "--detach", &bed.name, "far", "--"]);
    assert!(command.args([PROGRAM, "serve"]).output().expect("it starts").status.success());
}

#[test]
fn root_htcp_is_registered_used_and_taken_back() {
    let Some(registration) = Registration::new() else { return };
    let name = registration.name.as_str();
    assert!(is_available(name));
    let again = json(&run(&["--json", "tune", "cc", "htcp"]));
    assert_eq!(again["already_registered"], true, "once is enough: {again}");
    let Some(bed) = LabBed::up("ccuse", PATH) else { return };
    serve(&bed);
    let mut busy = bed.spawn("near", &[PROGRAM, "test", "far", "-C", name, "-t", "2"]);
    let row = || {
        let status = json(&run(&["--json", "tune", "cc", "status"]));
        let rows = status["available"].as_array().expect("rows").clone();
        rows.into_iter().find(|row| row["name"] == name).expect("ours")
    };
    assert_eq!(row()["source"], "clearstream");
    eventually("it is in use", || row()["users"].as_u64() > Some(0));
    let refused = run(&["tune", "cc", "remove"]);
    assert_eq!(code(&refused), 1);
    let line = complaint(&refused);
    assert!(line.contains(name) && line.contains("in use by"), "{line}");
    assert!(is_available(name), "a refusal changes nothing");
    assert!(busy.wait().expect("it ends").success());
    drop(bed);
    if !registration.was_there {
        eventually("its users are gone", || row()["users"] == 0);
        let removed = run(&["tune", "cc", "remove", name]);
        assert_eq!((code(&removed), stdout(&removed)), (0, &*format!("removed: {name}\n")));
        assert!(!is_available(name));
        assert_eq!(code(&run(&["tune", "cc", "remove", name])), 1, "it is not there any more");
    }
    assert_eq!(code(&run(&["tune", "cc", "remove", "reno"])), 1, "the kernel's own is not ours");
}

/// Tests of ten seconds whose epochs are judged: all of them together, once.
const TESTS: u32 = 12;

/// Share of the epochs that do not follow the law by chance: a machine that stalls for a round trip bends one.
const BENT: f64 = 0.25;

/// Fewer epochs say nothing of most.
const EPOCHS_MIN: usize = 20;

/// The program's instructions follow the law to the last step (`crates/bpf-cc/tests/htcp.rs`); here the kernel
/// calls them. `make test` sees that they open the window; how it grows between losses takes a machine
/// that does not stall for a round trip: `make test-all` judges the epochs of two minutes, once.
#[test]
fn root_the_window_follows_the_law() {
    let Some(registration) = Registration::new() else { return };
    let Some(bed) = LabBed::up("cclaw", PATH) else { return };
    serve(&bed);
    let (tests, seconds) = if effort::is_all() { (TESTS, "10") } else { (1, "5") };
    let epochs_of = |_| epochs(&measured(&bed, &registration.name, seconds));
    let seen: Vec<Epoch> = (0..tests).flat_map(epochs_of).collect();
    let followers = seen.iter().filter(|epoch| epoch.follows_the_law()).count();
    println!("{followers} of {} epochs follow the law", seen.len());
    if !effort::is_all() {
        effort::left_to_test_all("whether most epochs of two minutes follow the law");
        return;
    }
    assert!(seen.len() >= EPOCHS_MIN, "only {} epochs", seen.len());
    let judgement = Judgement::majority(seen.len() as u32, BENT);
    let wrong = (seen.len() - followers) as u32;
    assert!(judgement.passes(wrong), "{wrong} epochs do not follow the law; {judgement}");
    let grew_much = |epoch: &Epoch| epoch.follows_the_law() && epoch.growth().1 > 40.0;
    assert!(seen.iter().any(grew_much), "none tells of much growth");
    let kept = seen.iter().filter(|epoch| epoch.follows_the_law() && epoch.tells_what_is_kept());
    assert!(kept.count() > 0, "none tells of the share kept");
}

/// A test with this congestion control, which opens the window.
fn measured(bed: &LabBed, name: &str, seconds: &str) -> Results {
    let file = std::env::temp_dir().join(format!("{}.json", bed.name));
    let path = file.to_str().expect("a plain path");
    let options = ["-C", name, "-t", seconds, "-i", "50ms", "-o", path];
    let done = bed.exec("near", &[&[PROGRAM, "test", "far"], &options[..]].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = std::fs::read(&file).expect("results");
    std::fs::remove_file(&file).expect("ours");
    let results = results::read_results(&text).expect("results");
    let stream = sender(&results);
    let summary = stream.tcp.as_ref().expect("TCP");
    assert!(summary.congestion_control.starts_with("htcp"), "{}", summary.congestion_control);
    let samples = stream.intervals.iter().filter_map(|interval| interval.tcp.as_ref());
    let widest = samples.map(window_bytes).fold(0.0, f64::max) / f64::from(summary.mss_bytes);
    assert!(widest > 4.0 * INITIAL_WINDOW, "{widest} segments");
    results
}

/// The kernel's, segments.
const INITIAL_WINDOW: f64 = 10.0;

fn sender(results: &Results) -> &StreamEnd {
    let outcome = results.points[0].measured().expect("measured");
    outcome.near().streams.iter().find(|stream| stream.sending).expect("the sender")
}

/// Samples between two losses, oldest first, after an epoch that was as whole.
struct Epoch {
    samples: Vec<(f64, TcpSample)>,
    /// After a first loss half is kept, as throughput did not hold before it.
    after_first_loss: bool,
    mss_bytes: f64,
    /// Share of the window kept at the loss before.
    kept: f64,
    /// Lowest over highest round-trip time in the epoch before.
    rtt_ratio_before: f64,
}

impl Epoch {
    fn follows_the_law(&self) -> bool {
        let (grown, wanted) = self.growth();
        let (kept, beta) = (self.kept, self.beta());
        println!(
            "grown by {grown:.1} segments, {wanted:.1} by the law; kept {kept:.3} of {beta:.3}"
        );
        // The kernel sees every round trip and the samples only some: it may have seen a longer
        // one and keep less, and never more.
        (grown - wanted).abs() <= 4.0 + 0.12 * wanted && kept < beta + 0.06
    }

    fn tells_what_is_kept(&self) -> bool {
        !self.after_first_loss && self.kept > self.beta() - 0.09
    }

    /// The share kept by the law.
    fn beta(&self) -> f64 {
        law::beta(1.0, 1.0, self.rtt_ratio_before, 1.0)
    }

    /// Segments the window grew from the first sample to the last, and what the law says.
    fn growth(&self) -> (f64, f64) {
        let beta = self.kept.clamp(0.5, 0.8);
        let first_s = self.samples[0].0;
        let mut wanted = 0.0;
        for pair in self.samples.windows(2) {
            let [(from_s, from), (to_s, to)] = pair else { continue };
            let rtt_min_s = to.rtt_min_s.expect("Linux 4.6");
            let alpha = law::alpha((from_s + to_s) / 2.0 - first_s, rtt_min_s, beta);
            wanted += alpha * (to_s - from_s) / ((from.rtt_s + to.rtt_s) / 2.0);
        }
        let (first, last) = (&self.samples[0].1, &self.samples[self.samples.len() - 1].1);
        ((window_bytes(last) - window_bytes(first)) / self.mss_bytes, wanted)
    }
}

/// Fewer samples than this are a loss that follows another, or the repair of one.
const SAMPLES_MIN: usize = 16;

fn window_bytes(sample: &TcpSample) -> f64 {
    sample.congestion_window_bytes as f64
}

/// Cuts the sender's samples where something was retransmitted. An epoch counts when it follows a
/// whole one over a single loss: then the share kept is known.
fn epochs(results: &Results) -> Vec<Epoch> {
    let stream = sender(results);
    let summary = stream.tcp.as_ref().expect("TCP");
    let mut cut: Vec<Vec<(f64, TcpSample)>> = vec![Vec::new()];
    let mut retransmits_count = 0;
    for sample in &stream.intervals {
        let tcp = sample.tcp.clone().expect("a sample of TCP");
        if tcp.retransmits_count > retransmits_count {
            cut.push(Vec::new());
        }
        retransmits_count = tcp.retransmits_count;
        cut.last_mut().expect("never empty").push((sample.end_s, tcp));
    }
    cut.retain(|samples| samples.len() >= SAMPLES_MIN);
    let pairs = cut.windows(2).enumerate().map(|(at, pair)| {
        let before = &pair[0];
        let highest_s = before.iter().map(|(_, tcp)| tcp.rtt_s).fold(0.0, f64::max);
        let last = &before[before.len() - 1].1;
        Epoch {
            samples: pair[1].clone(),
            after_first_loss: at == 0,
            mss_bytes: summary.mss_bytes.into(),
            kept: window_bytes(&pair[1][0].1) / window_bytes(last),
            rtt_ratio_before: last.rtt_min_s.expect("Linux 4.6") / highest_s,
        }
    });
    // Two losses in a row keep less than one may.
    pairs.filter(|epoch| (0.46..0.86).contains(&epoch.kept)).collect()
}

#[test]
fn root_compare_measures_alone_and_in_pairs() {
    let Some(registration) = Registration::new() else { return };
    let Some(bed) = LabBed::up("ccab", PATH) else { return };
    serve(&bed);
    let file = std::env::temp_dir().join(format!("{}.json", bed.name));
    let path = file.to_str().expect("a plain path");
    let names = format!("{},reno", registration.name);
    let options = ["--duration", "1.5s", "--repeats", "1", "-o", path];
    let done = bed
        .exec("near", &[&[PROGRAM, "tune", "cc", "compare", &names, "far"], &options[..]].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let results = results::read_results(&std::fs::read(&file).expect("results")).expect("results");
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(results.points.len(), 2 + 3 * 2, "two alone, three pairs of two flows");
    let figures: Vec<(&str, f64)> = results
        .summaries
        .iter()
        .map(|summary| (summary.figure.as_str(), summary.estimate.median))
        .collect();
    let of = |name: &str| {
        let of = figures.iter().filter(|(figure, _)| *figure == name);
        of.map(|(_, value)| *value).collect::<Vec<f64>>()
    };
    assert_eq!(of("jain_index").len(), 3);
    assert!(of("jain_index").iter().all(|index| (0.5..=1.0).contains(index)), "{figures:?}");
    assert_eq!(of("ramp_s").len(), 2);
    // Over the median of the idle path, of which wake-ups of the hosts are a part: where no queue stands, the loaded
    // path is not slower, and may be faster by them.
    const WAKE_UPS: f64 = 0.03;
    let inflations = of("rtt_inflation");
    assert!(inflations.iter().all(|factor| (1.0 - WAKE_UPS..3.0).contains(factor)), "{figures:?}");
    assert!(
        of("both_received_bits_per_s").iter().all(|rate| (50e6..210e6).contains(rate)),
        "{figures:?}"
    );
    let text = stdout(&done);
    assert!(
        text.contains("Jain's index") && text.contains(&format!("{} + reno", registration.name))
    );

    let unknown = bed.exec("near", &[PROGRAM, "tune", "cc", "compare", "vegan", "far"]);
    assert_eq!(code(&unknown), 4);
    assert!(complaint(&unknown).contains("no congestion control is called vegan here"));
}

/// A comparison in the lab of this program, ended by a signal: the lab is gone, the points are kept, and the
/// same command makes those that are left.
#[test]
fn root_a_comparison_ended_by_a_signal_takes_its_lab_down_and_goes_on() {
    const LAB: &str = "shared";
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let file = std::env::temp_dir().join(format!("cc-signal-{}.json", std::process::id()));
    let journal = file.with_extension("json.journal");
    let path = file.to_str().expect("a plain path");
    let arguments = ["tune", "cc", "compare", "reno,cubic", "--duration", "500ms"];
    let arguments = [&arguments[..], &["--repeats", "1", "-o", path]].concat();
    let lines = || std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    let mut command = clearstream(&arguments);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut run_of = command.spawn().expect("it starts");
    // The header and a point; a lab that cannot be had ends the run before.
    eventually("a point is on disk", || lines() > 1 || run_of.try_wait().expect("ours").is_some());
    let is_lab = lines() > 1;
    if is_lab {
        let pid = run_of.id().to_string();
        let sent = std::process::Command::new("kill").args(["-HUP", &pid]).status();
        assert!(sent.expect("kill runs").success());
    }
    let ended = run_of.wait_with_output().expect("it ended");
    if code(&ended) == 4 {
        println!("skipped: {}", complaint(&ended));
        return;
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(code(&ended), 129, "{said}");
    assert!(said.contains("run the same command to resume"), "{said}");
    assert!(!run(&["lab", "status", LAB]).status.success(), "the lab is down");
    let kept = lines() - 1;
    let results = results::read_results(&std::fs::read(&file).expect("written")).expect("results");
    assert_eq!(results.points.len(), kept);

    let again = run(&arguments);
    let said = String::from_utf8_lossy(&again.stderr);
    assert_eq!(code(&again), 0, "{said}");
    assert!(
        said.contains(&format!("resuming after {}", units::count_of(kept as u64, "test"))),
        "{said}"
    );
    let results = results::read_results(&std::fs::read(&file).expect("written")).expect("results");
    assert_eq!(results.points.len(), 2 + 3 * 2, "two alone, three pairs of two flows");
    assert!(!journal.exists() && !run(&["lab", "status", LAB]).status.success());
    std::fs::remove_file(&file).expect("ours");
}

#[test]
fn root_without_privilege_it_is_one_line() {
    let program = std::env::temp_dir().join(format!("cc-nobody-{}", std::process::id()));
    testkit::executable::copy(PROGRAM, &program);
    let as_nobody = |arguments: &[&str]| {
        let ids = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let mut command = std::process::Command::new("setpriv");
        // A folder in which that user may write: outputs are looked at before anything is measured.
        command.current_dir("/tmp").args(ids).arg(&program).args(arguments);
        command.output().expect("setpriv starts")
    };
    let refused = as_nobody(&["tune", "cc", "htcp"]);
    let status = as_nobody(&["tune", "cc", "status"]);
    let energy = as_nobody(&["reproduce", "C-energy", "--duration", "100ms"]);
    std::fs::remove_file(&program).expect("ours");
    assert_eq!(code(&refused), 4, "{}", complaint(&refused));
    let line = complaint(&refused);
    assert!(line.contains("CAP_BPF") || line.contains("this kernel"), "{line}");
    assert_eq!(code(&status), 0);
    assert!(stdout(&status).contains("reno"), "what may be seen is shown");
    // As nobody no host shows its counters; what is missing is named.
    assert_eq!(code(&energy), 4);
    let line = complaint(&energy);
    assert!(line.contains("no energy meter") || line.contains("only root may read"), "{line}");
}
