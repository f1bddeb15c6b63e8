//! `clearstream check` as an MPI job, one binary under Open MPI and MPICH.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::philosophers::{Folder, ModelFile, PROGRAM, assert_run, counts, philosophers};
use serde_json::Value;

/// Launchers of Debian's packages, with what they need on a machine of few cores.
const LAUNCHERS: [&[&str]; 2] = [
    &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
    &["mpiexec.mpich"],
];

fn job(launcher: &[&str], model: &ModelFile, options: &[&str]) -> Command {
    let mut command = Command::new(launcher[0]);
    command.args(&launcher[1..]).args(["-n", "2", PROGRAM, "check"]).arg(&model.0).args(options);
    command.env("TMPDIR", model.folder()).stdin(Stdio::null());
    command
}

fn output(mut command: Command) -> (Option<i32>, String, String) {
    told(command.output().unwrap_or_else(|error| panic!("{command:?}: {error}")))
}

fn told(done: Output) -> (Option<i32>, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

/// The process of rank 1, recognised by its model and by what launchers tell their ranks.
fn rank_1(model: &ModelFile) -> Option<u32> {
    let is_it = |pid: &u32| {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let has = |text: &[u8], word: &[u8]| text.split(|&byte| byte == 0).any(|one| one == word);
        let (line, environment) = (read("cmdline"), read("environ"));
        line.starts_with(PROGRAM.as_bytes())
            && has(&line, model.0.as_os_str().as_encoded_bytes())
            && [&b"OMPI_COMM_WORLD_RANK=1"[..], b"PMI_RANK=1"]
                .iter()
                .any(|word| has(&environment, word))
    };
    let entries = fs::read_dir("/proc").expect("processes");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_it)
}

/// Waits for the job, which must end by itself.
fn ended(mut child: Child) -> (Option<i32>, String, String) {
    let start = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().ok();
            panic!("the job hangs");
        }
        thread::sleep(Duration::from_millis(20));
    }
    told(child.wait_with_output().expect("its output"))
}

#[test]
fn a_job_counts_what_one_rank_counts() {
    let model = ModelFile::new("mpi-counts", &philosophers(5, false));
    let (code, alone) = model.check(&["--full"]);
    assert_eq!(code, Some(0));
    for launcher in LAUNCHERS {
        let (code, out, err) = output(job(launcher, &model, &["--full", "--json"]));
        assert_eq!(code, Some(0), "{launcher:?}: {out}{err}");
        let json: Value = serde_json::from_str(&out).expect("JSON, once");
        assert_eq!(counts(&json), counts(&alone), "{launcher:?}");
        assert_eq!(json["checks"][0]["ranks_count"], 2, "{launcher:?}");
    }
}

#[test]
fn threads_of_a_jobs_processes_share_states_and_count_what_one_rank_counts() {
    let right = ModelFile::new("mpi-threads", &philosophers(5, false));
    let wrong = ModelFile::new("mpi-threads-run", &philosophers(4, true));
    let (_, alone) = right.check(&["--full"]);
    for launcher in LAUNCHERS {
        for options in [&["--threads", "3"][..], &["--messages"]] {
            let ranks_count = if options.len() == 2 { 6 } else { 2 };
            let all = [&["--full", "--json"], options].concat();
            let (code, out, err) = output(job(launcher, &right, &all));
            assert_eq!(code, Some(0), "{launcher:?}: {out}{err}");
            let json: Value = serde_json::from_str(&out).expect("JSON, once");
            assert_eq!(counts(&json), counts(&alone), "{launcher:?}");
            assert_eq!(json["checks"][0]["ranks_count"], ranks_count, "{launcher:?}");
            assert!(json["checks"][0]["sent_bytes"].as_u64().is_some_and(|bytes| bytes > 1000));
            let (code, out, err) = output(job(launcher, &wrong, &[&["--json"], options].concat()));
            assert_eq!(code, Some(10), "{launcher:?}: {out}{err}");
            let json: Value = serde_json::from_str(&out).expect("JSON, once");
            assert_eq!(assert_run(&json), 5, "{launcher:?}: each takes its left fork");
        }
    }
}

#[test]
fn a_job_that_is_cut_short_says_why() {
    let model = ModelFile::new("mpi-cut", &philosophers(12, false));
    for launcher in LAUNCHERS {
        for bound in [["--time", "300ms"], ["--memory", "8M"]] {
            let options = [&["--json", "--threads", "2"][..], &bound].concat();
            let (code, out, err) = output(job(launcher, &model, &options));
            assert_eq!(code, Some(11), "{launcher:?}: {out}{err}");
            let json: Value = serde_json::from_str(&out).expect("JSON, once");
            let why = json["checks"][0]["why"].as_str().expect("a reason");
            assert!(why.contains(bound[0]), "{launcher:?}: {why}");
            assert!(json["checks"][0]["states_count"].as_u64().is_some_and(|count| count > 100));
        }
    }
}

#[test]
fn a_job_shows_runs_and_goes_on_to_the_next_formula() {
    let model = ModelFile::new("mpi-runs", &philosophers(4, true));
    let formulas = std::env::temp_dir().join(format!("mpi-{}.ltl", std::process::id()));
    let text = "#define a P0.eats\n#define b P1.eats\n#property G F a\n#property G !(a && b)\n";
    fs::write(&formulas, text).expect("a file in the temporary folder");
    for launcher in LAUNCHERS {
        let (code, out, err) = output(job(launcher, &model, &["--json"]));
        assert_eq!(code, Some(10), "{launcher:?}: {out}{err}");
        let json: Value = serde_json::from_str(&out).expect("JSON, once");
        assert_eq!(assert_run(&json), 5, "each takes its left fork");
        let less = job(launcher, &model, &["--json", "--bitstate", "1M"]);
        let (code, out, err) = output(less);
        assert_eq!(code, Some(10), "{launcher:?}: {out}{err}");
        let json: Value = serde_json::from_str(&out).expect("JSON, once");
        assert!(assert_run(&json) >= 5, "each takes its left fork");
        let given = formulas.to_str().expect("text");
        let (code, out, err) = output(job(launcher, &model, &["--json", "--ltl", given]));
        assert_eq!(code, Some(10), "{launcher:?}: {out}{err}");
        let json: Value = serde_json::from_str(&out).expect("JSON, once");
        let verdicts = [0, 1].map(|number| json["checks"][number]["verdict"].clone());
        assert_eq!(verdicts, ["violated", "holds"].map(Value::from), "{launcher:?}");
        let (code, out, err) = output(job(launcher, &model, &["--ltl", "G (a"]));
        assert_eq!(code, Some(2), "{launcher:?}: {out}{err}");
    }
    fs::remove_file(&formulas).ok();
}

#[test]
fn a_job_is_put_down_and_taken_up_again() {
    let model = ModelFile::new("mpi-kept", &philosophers(7, false));
    let folder = Folder::new("mpi-kept");
    let file = folder.0.join("kept").display().to_string();
    let (_, alone) = model.check(&["--full", "--ranks", "2"]);
    for launcher in LAUNCHERS {
        let options = ["--full", "--json", "--time", "1ms", "--checkpoint", &file];
        let (code, out, err) = output(job(launcher, &model, &options));
        assert_eq!(code, Some(11), "{launcher:?}: {out}{err}");
        let options = ["--full", "--json", "--resume", &file];
        let (code, out, err) = output(job(launcher, &model, &options));
        assert_eq!(code, Some(0), "{launcher:?}: {out}{err}");
        let json: Value = serde_json::from_str(&out).expect("JSON, once");
        assert_eq!(counts(&json), counts(&alone), "{launcher:?}");
    }
    // Rank 1 says what is wrong with its part, rank 0 ends with it.
    let second = if folder.0.join("kept.a1").exists() { "kept.a1" } else { "kept.b1" };
    fs::remove_file(folder.0.join(second)).expect("a part");
    let options = ["--full", "--resume", &file];
    let (code, out, err) = output(job(LAUNCHERS[1], &model, &options));
    assert_eq!(code, Some(2), "{out}{err}");
    assert!(err.contains("rank 1") && err.contains(second), "{err}");
}

#[test]
fn a_job_that_loses_a_rank_neither_holds_nor_hangs() {
    let model = ModelFile::new("mpi-lost", &philosophers(12, false));
    for launcher in LAUNCHERS {
        // By its own launch, which has the last word.
        let mut command = Command::new(PROGRAM);
        command.arg("check").arg(&model.0).args(["--hosts", "localhost", "--ranks", "2"]);
        command.args(["--threads", "1"]);
        command.args(["--mpirun", launcher[0]]).env("TMPDIR", model.folder()).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("the program runs");
        let start = Instant::now();
        let victim = loop {
            if let Some(pid) = rank_1(&model) {
                break pid;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{launcher:?} starts no rank 1");
            thread::sleep(Duration::from_millis(10));
        };
        thread::sleep(Duration::from_millis(300));
        let killed = Command::new("kill").args(["-9", &victim.to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()));
        let (code, out, err) = ended(child);
        assert_eq!(code, Some(11), "{launcher:?}: {out}{err}");
        assert!(!out.contains("holds"), "{out}");
        assert!(err.contains("a rank or a host was lost") || out.contains("undecided"), "{err}");
    }
}
