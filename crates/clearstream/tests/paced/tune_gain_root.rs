//! What `tune apply` gains: a lab with a planted clamp is planned, changed, measured and reverted. Whether a change is
//! worth keeping is judged on live traffic.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use testkit::effort;

use results::{AppliedChange, End};
use serde_json::Value;

use testkit::root::is_root;

use crate::tune_bed::{LINK, Testbed, read_results, text};

/// A line that no core here fills: once the clamp is lifted, the cores of both ends bind.
const WIDE_LINK: &str = "delay = \"5ms\"\nrate = \"400Gbit\"\nqueue = \"64MiB\"\nmtu = 9000";

/// Least and most of what was predicted that must be measured.
pub(crate) const AS_PREDICTED: RangeInclusive<f64> = 0.9..=1.1;

/// What cores give is not the same twice where other machines share them.
const AS_PREDICTED_OF_CORES: RangeInclusive<f64> = 0.7..=1.4;

/// Least gain of lifting a clamp, in times what there was: the clamps here hold a path to a third and less,
/// so that no stall of a test or two hides it.
const GAIN_MIN: f64 = 1.5;

/// Labs in which `make test-all` lifts each clamp, one after the other, before it judges.
const REPEATS: usize = 9;

/// Share of those gains that are not as predicted by chance.
const NOT_AS_PREDICTED: f64 = 0.1;

/// Plan, apply, measure, revert over one planted clamp; `key` at `end` must be found and lifted. How near
/// the gain is to the predicted one is a matter of the machine too, whose cores other machines share: it
/// is judged by `make test-all`, once, on the gains in [`REPEATS`] labs of which more than half must be
/// as predicted.
pub(crate) fn lifts_the_clamp(
    name: &str,
    (link, as_predicted): (&str, &RangeInclusive<f64>),
    clamps: [&str; 2],
    end: End,
    key: &str,
) {
    if !effort::is_all() {
        lifted_clamp(name, link, clamps, end, key);
        effort::left_to_test_all("whether the gain is as predicted");
        return;
    }
    let lifted = |_| lifted_clamp(name, link, clamps, end, key);
    let of_predicted: Vec<f64> = (0..REPEATS).map(lifted).collect();
    effort::judge_most(
        &format!("{name}: share of the predicted gain"),
        &of_predicted,
        as_predicted,
        NOT_AS_PREDICTED,
    );
}

/// Share of the predicted gain that there was; everything else is asserted.
fn lifted_clamp(name: &str, link: &str, [near, far]: [&str; 2], end: End, key: &str) -> f64 {
    let mut bed = Testbed::up(name, link, near, far);
    bed.serve(&["--allow-tuning", "--allow", "10.77.0.0/16", "--allow", "fd77::/16"]);
    let before = [bed.must("near", &["tune", "dump"]), bed.must("far", &["tune", "dump"])];
    let (file, page) = (bed.path("tune.json"), bed.path("tune.html"));
    let mut arguments =
        vec!["tune", "apply", "far", "--measure", "--turns", "3", "-o", &file, "--report", &page];
    // How well the gain is predicted is not judged in `make test`.
    let duration = if effort::is_all() { "1s" } else { "400ms" };
    arguments.extend(["--only", key, "--duration", duration]);
    let told = bed.must("near", &arguments);
    let results = read_results(&file);
    let found = results.changes.iter().find(|one| one.end == end && one.key == key);
    let change: &AppliedChange = found.unwrap_or_else(|| panic!("{key} was not tried: {told}"));
    let (predicted, after) =
        (change.predicted_bits_per_s.expect("told"), change.after.expect("measured"));
    let without = change.before.expect("measured").median;
    println!(
        "{name}: {:.0} -> {:.0} Mbit/s, predicted {:.0} ({:+.1}%)",
        without / 1e6,
        after.median / 1e6,
        predicted / 1e6,
        (after.median / predicted - 1.0) * 100.0
    );
    assert_eq!(change.is_kept, Some(true), "{told}");
    assert!(after.median > GAIN_MIN * without, "{told}");
    let of_predicted = after.median / predicted;
    let html = fs::read_to_string(&page).expect("a page");
    assert!(html.contains("Before and after") && html.contains(key));
    assert!(!html.contains("not confirmed by an experiment"), "the trial of the change is one");
    let verdict = results.verdict.as_ref().expect("judged");
    assert!(verdict.confirmed && verdict.confirmation.is_some(), "{verdict:#?}");
    assert!(told.contains(&file) && told.contains(&page), "both are listed as written: {told}");
    let during = [bed.must("near", &["tune", "dump"]), bed.must("far", &["tune", "dump"])];
    assert_ne!(during, before, "something is in force");
    // The printed commands, as they stand, take back all that was changed.
    let undo = told.lines().filter_map(|line| line.strip_prefix("Undo     clearstream "));
    let undo: Vec<Vec<&str>> = undo.map(|line| line.split(' ').collect()).collect();
    assert!(!undo.is_empty(), "{told}");
    for arguments in &undo {
        bed.must("near", arguments);
    }
    let after = [bed.must("near", &["tune", "dump"]), bed.must("far", &["tune", "dump"])];
    assert_eq!(after, before, "every setting is what it was");
    assert_eq!(
        bed.must("far", &["tune", "revert"]),
        "Nothing to revert on this host; `--far HOST` reverts changes on a far host.\n"
    );
    of_predicted
}

#[test]
fn root_a_clamped_receive_window_is_lifted_as_predicted_and_restored() {
    if is_root() {
        let clamp = "sysctl = { \"net.ipv4.tcp_rmem\" = \"4096 131072 262144\" }";
        lifts_the_clamp("rmem", (LINK, &AS_PREDICTED), ["", clamp], End::Far, "net.ipv4.tcp_rmem");
    }
}

#[test]
fn root_a_clamp_before_full_cores_is_lifted_as_predicted() {
    if !effort::is_all() {
        effort::left_to_test_all(
            "a clamp before full cores, which differs from the others in its gain alone",
        );
    } else if is_root() {
        let clamp = "sysctl = { \"net.ipv4.tcp_rmem\" = \"4096 131072 1048576\" }";
        let of_cores = (WIDE_LINK, &AS_PREDICTED_OF_CORES);
        lifts_the_clamp("cores", of_cores, ["", clamp], End::Far, "net.ipv4.tcp_rmem");
    }
}

/// A verdict of `path` is carried out: the far host's clamp, named by a file and by nobody else, is
/// lifted, measured, kept and taken back.
#[test]
fn root_the_verdict_of_a_file_is_carried_out_and_taken_back() {
    if !is_root() {
        return;
    }
    let clamp = "sysctl = { \"net.ipv4.tcp_rmem\" = \"4096 131072 262144\" }";
    let mut bed = Testbed::up("from", LINK, "", clamp);
    bed.serve(&["--allow-tuning", "--allow", "10.77.0.0/16", "--allow", "fd77::/16"]);
    let file = bed.path("results.json");
    bed.must(
        "near",
        &["path", "far", "--quick", "--one-way", "--no-report", "--duration", "500ms", "-o", &file],
    );
    let dumps = |bed: &Testbed| ["near", "far"].map(|host| bed.must(host, &["tune", "dump"]));
    let before = dumps(&bed);
    one_line_refusals_of_files(&bed, &file);
    assert_eq!(dumps(&bed), before, "a refusal changes nothing");

    let output = bed.path("tune.json");
    let apply = ["tune", "apply", "--from", &file, "--turns", "2", "-o", &output];
    let told = bed.must("near", &apply);
    let head = told.split("far  net.ipv4.tcp_rmem: ").next().expect("some text");
    assert!(
        head.contains("Verdict  ") && head.contains("\nfar end (far)\n"),
        "shown first: {told}"
    );
    let results = read_results(&output);
    let [change] = &results.changes[..] else { panic!("{told}") };
    assert_eq!((change.end, change.key.as_str()), (End::Far, "net.ipv4.tcp_rmem"), "{told}");
    assert_eq!(
        (change.from.as_str(), change.is_kept),
        ("4096 131072 262144", Some(true)),
        "{told}"
    );
    let rate = |rates: &Option<results::Estimate>| rates.expect("measured").median;
    assert!(rate(&change.after) > GAIN_MIN * rate(&change.before), "{told}");
    assert!(bed.must("far", &["tune", "status"]).contains(&format!(" -> {}  in force", change.to)));

    let explained = bed.must("near", &["explain", &output]);
    let changed = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format!("Changed {} at the far end, {} -> {}: ", change.key, change.from, change.to);
    let outcome = change.outcome.as_deref().unwrap_or("measured");
    assert!(changed.contains(&format!("{line}{outcome}")), "{explained}");
    let made = dumps(&bed);
    let again = bed.must("near", &apply);
    assert!(
        again.contains(&format!(
            "far  {}: {}  already in force, not measured by this run\nNothing to do.",
            change.key, change.to
        )),
        "{again}"
    );
    // The file was measured over IPv6.
    assert!(again.contains("\nUndo     clearstream tune revert --far far -6\n"), "{again}");
    assert_eq!(dumps(&bed), made, "a second run reverts nothing that the first one kept");

    tried_again(&bed, &[&apply[..], &["--fresh"]].concat(), &output, "--fresh reverts it first");
    assert_eq!(dumps(&bed), made);

    bed.must("near", &["tune", "revert", "--far", "far"]);
    bed.must("near", &["tune", "revert"]);
    assert_eq!(dumps(&bed), before, "every setting is what it was");

    let of_tune = bed.path("of-tune.json");
    fs::copy(&output, &of_tune).expect("a copy");
    let from = ["tune", "apply", "--from", &of_tune, "--turns", "2", "-o", &output];
    tried_again(&bed, &from, &output, "the trials of a file of `tune` are not those of this run");
    bed.must("near", &["tune", "revert", "--far", "far"]);
    assert_eq!(dumps(&bed), before, "every setting is what it was");

    let foreign = format!("{}=4096 131072 524288", change.key);
    bed.must("far", &["tune", "apply", "--set", &foreign]);
    let left = bed.run("near", &apply);
    let told = text(&left.stdout);
    assert_eq!(left.status.code(), Some(5), "{told}");
    assert!(told.contains("left alone: it is now 4096 131072 524288"), "{told}");
    let tried = |point: &results::Point| point.experiment.starts_with("tune-");
    assert!(!read_results(&output).points.iter().any(tried), "nothing is measured");
}

/// Runs trials that have a results file already: both turns are measured anew, and the change is kept.
fn tried_again(bed: &Testbed, arguments: &[&str], output: &str, why: &str) {
    let trials = |file: &str| -> Vec<u64> {
        let points = read_results(file).points;
        let trials = points.iter().filter(|point| point.experiment.starts_with("tune-"));
        trials.map(|point| point.started_unix_ms).collect()
    };
    let earlier = trials(output).into_iter().max();
    let told = bed.must("near", arguments);
    let later = trials(output);
    assert_eq!(later.len(), 4, "{why}: {told}");
    assert!(later.iter().all(|started| Some(*started) > earlier), "{why}: {told}");
    let [change] = &read_results(output).changes[..] else { panic!("{told}") };
    assert_eq!(change.is_kept, Some(true), "{why}: {told}");
}

/// One run of trials, killed while its change is in force, ended by a signal when it is taken up, and
/// taken up once more: the far host has the clamp after the signal, and every turn is measured once.
#[test]
fn root_trials_that_were_killed_and_interrupted_are_taken_up() {
    if !is_root() {
        return;
    }
    let clamp = "sysctl = { \"net.ipv4.tcp_rmem\" = \"4096 131072 262144\" }";
    let mut bed = Testbed::up("again", LINK, "", clamp);
    bed.serve(&["--allow-tuning", "--allow", "10.77.0.0/16", "--allow", "fd77::/16"]);
    let before = bed.must("far", &["tune", "dump"]);
    let file = bed.path("tune.json");
    let journal = format!("{file}.journal");
    let mut arguments = vec!["tune", "apply", "far", "--measure", "--only", "net.ipv4.tcp_rmem"];
    arguments.extend(["--turns", "3", "--duration", "200ms", "-o", &file]);
    let start = || {
        let mut command = bed.command("near", &arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let turns_with = || {
        let text = fs::read_to_string(&journal).unwrap_or_default();
        text.lines().filter(|line| line.contains("\"tune-with\"")).count()
    };
    let wait_for_turns = |count: usize| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while turns_with() < count {
            assert!(Instant::now() < deadline, "{count} turns with the change are journalled");
            thread::sleep(Duration::from_millis(5));
        }
    };

    let mut killed = start();
    wait_for_turns(1);
    killed.kill().expect("SIGKILL");
    killed.wait().expect("it ended");
    assert!(bed.must("far", &["tune", "status"]).contains("net.ipv4.tcp_rmem"));

    let ended = start();
    wait_for_turns(2);
    let pid = ended.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    let ended = ended.wait_with_output().expect("it ended");
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(143), "{said}");
    assert!(
        said.contains("resuming after") && said.contains("run the same command to resume"),
        "{said}"
    );
    assert!(said.contains("no change is in force: every setting is as it was"), "{said}");
    assert_eq!(read_results(&file).partial.as_deref(), Some("ended by signal 15"));
    assert_eq!(bed.must("far", &["tune", "dump"]), before, "the change on trial is reverted");

    let told = bed.must("near", &arguments);
    let results = read_results(&file);
    let [change] = &results.changes[..] else { panic!("{told}") };
    assert_eq!(
        (change.from.as_str(), change.is_kept),
        ("4096 131072 262144", Some(true)),
        "the clamp is known, although a run that was killed had lifted it: {told}"
    );
    for name in ["tune-with", "tune-without"] {
        let of = results.points.iter().filter(|point| point.experiment == name);
        let repeats: Vec<u32> = of.map(|point| point.repeat).collect();
        assert_eq!(repeats, [0, 1, 2], "{name}");
    }
    assert!(told.contains("Undo     clearstream tune revert --far far"), "{told}");
    assert!(!Path::new(&journal).exists());
    bed.must("near", &["tune", "revert", "--far", "far"]);
    assert_eq!(bed.must("far", &["tune", "dump"]), before);
}

/// What is changed in a file, the exit code that follows, and words of the line.
type Refusal<'a> = (&'a dyn Fn(&mut Value), i32, &'a str);

/// Files that `--from` cannot carry out: of an earlier version, of another host, to another host, and
/// with something in it that is no setting.
fn one_line_refusals_of_files(bed: &Testbed, file: &str) {
    let document: Value = serde_json::from_slice(&fs::read(file).expect("there")).expect("JSON");
    assert_eq!(document["verdict"]["limit"], "receive-window", "{}", document["verdict"]);
    let change = |edit: &dyn Fn(&mut Value)| {
        let mut changed = document.clone();
        edit(&mut changed);
        let path = bed.path("changed.json");
        fs::write(&path, changed.to_string()).expect("written");
        path
    };
    let earlier = |document: &mut Value| {
        document["verdict"].as_object_mut().expect("an object").remove("changes");
    };
    let refusals: [Refusal<'_>; 4] = [
        (&earlier, 1, "names no setting to change: none lifts it, or an earlier version"),
        (
            &|document| document["hosts"][0]["facts"]["name"] = "geneva".into(),
            2,
            "measured from 'geneva'",
        ),
        (
            &|document| document["hosts"][1]["facts"]["name"] = "geneva".into(),
            2,
            "measured to 'geneva'",
        ),
        (
            &|document| document["verdict"]["changes"][0]["key"] = "kernel.core_pattern".into(),
            1,
            "'kernel.core_pattern' is not a setting that this program changes",
        ),
    ];
    for (edit, code, words) in refusals {
        let done = bed.run("near", &["tune", "apply", "--from", &change(edit)]);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{words}: {said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{words}: {said}");
    }
}

/// What binds is what the far host refuses to change: a verdict on live traffic.
#[test]
fn root_without_permission_the_far_changes_are_commands() {
    if !is_root() {
        return;
    }
    let clamp = "sysctl = { \"net.ipv4.tcp_rmem\" = \"4096 131072 262144\" }";
    let mut bed = Testbed::up("unasked", LINK, "", clamp);
    bed.serve(&[]);
    let before = bed.must("far", &["tune", "dump"]);
    let file = bed.path("tune.json");
    let asked = bed.run("near", &["tune", "apply", "far", "--duration", "300ms", "-o", &file]);
    left_to_the_far_host(&asked);
    assert_eq!(bed.must("far", &["tune", "dump"]), before);

    let file = bed.path("results.json");
    bed.must("near", &["tune", "plan", "far", "--duration", "300ms", "-o", &file]);
    let from = ["tune", "apply", "--from", &file, "-o", &bed.path("from.json")];
    left_to_the_far_host(&bed.run("near", &from));
    assert_eq!(bed.must("far", &["tune", "dump"]), before);

    // What binds cannot be lifted from here, so that nothing else is measured in its place.
    let (file, page) = (bed.path("measured.json"), bed.path("measured.html"));
    let mut measure = vec!["tune", "apply", "far", "--measure", "--duration", "300ms"];
    measure.extend(["-o", &file, "--report", &page]);
    let done = bed.run("near", &measure);
    let (said, told) = (text(&done.stderr), text(&done.stdout));
    assert_eq!(done.status.code(), Some(5), "{said}{told}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("nothing is changed or measured: "), "{said}");
    assert!(last.contains("sysctl -w net.ipv4.tcp_rmem='4096 131072 "), "{said}");
    assert!(told.contains(&file) && told.contains(&page), "both are listed as written: {told}");
    assert!(!told.contains("Undo"), "{told}");
    let results = read_results(&file);
    assert!(results.points.iter().all(|point| !point.experiment.starts_with("tune-with")));
    assert_eq!(bed.must("far", &["tune", "dump"]), before);
    assert_eq!(
        bed.must("near", &["tune", "revert"]),
        "Nothing to revert on this host; `--far HOST` reverts changes on a far host.\n"
    );
}

/// One line says why, the changes are commands, and the exit code is that of half a job.
fn left_to_the_far_host(done: &Output) {
    let (said, told) =
        (String::from_utf8_lossy(&done.stderr), String::from_utf8_lossy(&done.stdout));
    assert_eq!(done.status.code(), Some(5), "{said}{told}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("started without --allow-tuning"), "{said}");
    assert!(told.contains("\n  sysctl -w net.ipv4.tcp_rmem='4096 131072 "), "{told}");
}
