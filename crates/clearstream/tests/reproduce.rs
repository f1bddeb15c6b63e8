//! `reproduce`: raw repeats in the file, taken up after a kill, kept and not judged after a signal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use results::{Estimate, Results, Work, figure};

use testkit::effort;

use crate::PROGRAM;
use crate::mpi::built;

/// A folder that goes with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("reproduce-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a folder of our own");
        Self(path)
    }

    fn results(&self) -> PathBuf {
        self.0.join("pipe.json")
    }

    fn journal(&self) -> PathBuf {
        self.0.join("pipe.json.journal")
    }

    fn start(&self) -> Child {
        self.start_of("P-pipe", "100ms")
    }

    /// An experiment with tests of so long each.
    fn start_of(&self, id: &str, duration: &str) -> Child {
        Command::new(PROGRAM)
            .args(["reproduce", id, "--duration", duration, "--repeats", "2", "--output"])
            .arg(self.results())
            .arg("--library")
            .arg(built("libclearstream_fi.so"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    }

    /// Waits until so many points are on disk.
    fn wait_for_points(&self, count: usize) {
        let until = Instant::now() + Duration::from_secs(30);
        // The first line is the header.
        while lines(&self.journal()) < count + 1 {
            assert!(Instant::now() < until, "{count} points are journaled");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn read(&self) -> Results {
        results::read_results(&fs::read(self.results()).expect("written")).expect("a document")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Folders in `/proc` of the programs that a process has started.
fn children_of(id: u32) -> Vec<String> {
    let path = format!("/proc/{id}/task/{id}/children");
    let ids = fs::read_to_string(path).expect("the process runs");
    ids.split_whitespace().map(|id| format!("/proc/{id}")).collect()
}

/// The same, once there are two.
fn running_children(id: u32) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let found = children_of(id);
        if found.len() > 1 {
            return found;
        }
        assert!(Instant::now() < until, "it starts no sender and no receiver");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs; one that has ended has no program any more, also where nobody buries it.
fn is_running(process: &str) -> bool {
    fs::read_link(format!("{process}/exe")).is_ok()
}

fn lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
}

/// Every summary is the estimate of the repeats that stand in the document.
fn every_summary_has_its_repeats(results: &Results) {
    assert!(!results.summaries.is_empty());
    for summary in &results.summaries {
        let repeats: Vec<f64> = results
            .points
            .iter()
            .filter(|point| point.experiment == summary.experiment)
            .flat_map(results::Point::figures)
            .filter(|figure| figure.name == summary.figure)
            .map(|figure| figure.value)
            .collect();
        assert_eq!(Some(summary.estimate), Estimate::of(&repeats), "{summary:?}");
    }
}

#[test]
fn a_killed_reproduction_is_taken_up_and_keeps_every_repeat() {
    let folder = Folder::new("kill");
    let mut first = folder.start();
    folder.wait_for_points(2);
    first.kill().expect("SIGKILL");
    first.wait().expect("it ended");
    let kept = lines(&folder.journal()) - 1;
    let again = folder.start().wait_with_output().expect("it ran");
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(matches!(again.status.code(), Some(0 | 3)), "{again:?}");
    assert!(
        said.contains(&format!("resuming after {}", units::count_of(kept as u64, "test"))),
        "{said}"
    );
    assert!(!folder.journal().exists(), "what is in the results file needs no journal");
    let results = folder.read();
    assert_eq!(results.points.len(), 6, "three loads, two repeats each");
    every_summary_has_its_repeats(&results);
    for point in &results.points {
        assert!(matches!(&point.work, Work::Frames(work) if work.through == "pipe"), "{point:?}");
        let parts: Vec<&str> = point.by.iter().map(|worker| worker.part.as_str()).collect();
        assert_eq!(parts, ["send", "receive"]);
        assert!(point.by.iter().all(|worker| results.host(&worker.host).is_some()));
        let names: Vec<String> = point.figures().into_iter().map(|figure| figure.name).collect();
        assert_eq!(names, [figure::RECEIVED_PKTS_PER_S, figure::RECEIVED_BITS_PER_S]);
    }
}

#[test]
fn a_killed_reproduction_leaves_no_program_behind() {
    let folder = Folder::new("orphans");
    let mut run = folder.start_of("P-vale", "60s");
    let children = running_children(run.id());
    run.kill().expect("SIGKILL");
    run.wait().expect("it ended");
    let until = Instant::now() + Duration::from_secs(10);
    while let Some(child) = children.iter().find(|child| is_running(child)) {
        assert!(Instant::now() < until, "{child} outlives the run that started it");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_reproduction_ended_by_a_signal_keeps_its_points_and_judges_nothing() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let folder = Folder::new(signal);
        let run = folder.start();
        folder.wait_for_points(1);
        let pid = run.id().to_string();
        // Twice at once, as `timeout` signals its child and then the group.
        let sent = Command::new("kill").args([signal, &pid, &pid]).status().expect("kill runs");
        assert!(sent.success());
        let ended = run.wait_with_output().expect("it ended");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{signal}: {ended:?}");
        assert!(said.contains("interrupted; run the same command to resume"), "{said}");
        let results = folder.read();
        assert!((1..6).contains(&results.points.len()), "{}", results.points.len());
        let law = results.reproduction.expect("a reproduction").law;
        assert_eq!(law.holds, None, "{law:?}");
        assert!(results.partial.is_some_and(|why| why.contains("ended by signal")));
        assert!(folder.journal().exists());
    }
}

/// Killed after its first point and started again: with the points that it had, to the same end. What a kill leaves goes
/// by itself: the second run makes the same lab.
#[test]
fn root_a_killed_reproduction_of_any_id_is_taken_up() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can create network namespaces");
        return;
    }
    let listed = Command::new(PROGRAM).args(["reproduce", "--list", "--json"]).output();
    let listed = String::from_utf8(listed.expect("it ran").stdout).expect("text");
    let ids: Vec<String> = listed
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .map(|one| one["id"].as_str().expect("an ID").to_owned())
        .collect();
    assert!(ids.len() > 30, "{ids:?}");
    // In a lab that no test beside this one uses: the labs of reproductions have one name each.
    let is_taken = |id: &String| effort::is_all() || id == "C-fig12";
    for id in ids.iter().filter(|id| is_taken(id)) {
        effort::say(&format!("reproduce {id}, killed and taken up"));
        taken_up(id);
    }
    if !effort::is_all() {
        effort::left_to_test_all("the other IDs, killed and taken up");
    }
}

fn taken_up(id: &str) {
    let folder = Folder::new(&format!("any-{id}"));
    let mut first = folder.start_of(id, "200ms");
    let has_ended = loop {
        if first.try_wait().expect("a child").is_some() {
            break true;
        }
        if lines(&folder.journal()) > 1 {
            break false;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if has_ended {
        // One without a second point, or this machine lacks what it needs.
        let ended = first.wait_with_output().expect("it ended");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(matches!(ended.status.code(), Some(0 | 3 | 4 | 5)), "{id}: {said}");
        println!("{id}: {:?} before it could be killed: {said}", ended.status);
        return;
    }
    first.kill().expect("SIGKILL");
    first.wait().expect("it ended");
    let kept = lines(&folder.journal()) - 1;
    let again = folder.start_of(id, "200ms").wait_with_output().expect("it ran");
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(matches!(again.status.code(), Some(0 | 3 | 5)), "{id}: {:?} {said}", again.status);
    let resumes = format!("resuming after {}", units::count_of(kept as u64, "test"));
    assert!(said.contains(&resumes), "{id}: {said}");
    assert!(!folder.journal().exists(), "{id}: what is in the results file needs no journal");
    let results = folder.read();
    assert!(results.points.len() >= kept && results.partial.is_none(), "{id}: {said}");
    let repeats: Vec<u32> = results.points.iter().map(|point| point.repeat).collect();
    let of_first = repeats.iter().filter(|repeat| **repeat == 0).count();
    assert!(of_first > 0 && 2 * of_first == repeats.len(), "{id}: each setting twice: {repeats:?}");
}

/// In a lab of its own: the run is ended by each signal, the lab, its server and the process that makes
/// the tests are gone, and the points stay.
#[test]
fn root_a_reproduction_in_a_lab_ended_by_a_signal_leaves_nothing_running() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can create network namespaces");
        return;
    }
    let folder = Folder::new("lab");
    for (points, (signal, code)) in (1..).zip([("-INT", 130), ("-HUP", 129)]) {
        let run = folder.start_of("C-fig5", "200ms");
        folder.wait_for_points(points);
        let children = children_of(run.id());
        assert!(children.len() > 1, "a server and what makes the tests: {children:?}");
        let pid = run.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().expect("kill runs");
        assert!(sent.success());
        let ended = run.wait_with_output().expect("it ended");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{signal}: {said}");
        assert!(said.contains("interrupted; run the same command to resume"), "{said}");
        assert!(children.iter().all(|child| !is_running(child)), "{children:?}");
        let results = folder.read();
        let law = results.reproduction.as_ref().expect("a reproduction").law.clone();
        assert_eq!(law.holds, None, "{law:?}");
        let lab = results.path.lab.expect("it was a lab");
        let status = Command::new(PROGRAM).args(["lab", "status", &lab]).output().expect("runs");
        assert!(!status.status.success(), "lab {lab} is down");
    }
}
