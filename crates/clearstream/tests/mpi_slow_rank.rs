//! `mpi --report` and `explain`: the rank that the others wait for is named. Judged alone: ranks that wait for a core do
//! not wait for messages. `mpi --live` and `live --messages` name it while the job runs.

use std::process::{Command, Stdio};

use serde_json::Value;
use sys::private::Scratch;

use crate::PROGRAM;

/// Rank 1 works for 20 ms before each exchange, without needing a core.
const SLOW_RANK: &str = r#"
#include <mpi.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int rank, count;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    for (int turn = 0; turn < TURNS; turn++) {
        if (rank == 1)
            usleep(20000);
        for (int other = 0; other < count; other++) {
            int sent = turn, came;
            if (other != rank)
                MPI_Sendrecv(&sent, 1, MPI_INT, other, 0, &came, 1, MPI_INT, other, 0, MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
        }
    }
    MPI_Finalize();
    return 0;
}
"#;

/// Compiles the job with so many exchanges of 20 ms.
fn compile(scratch: &Scratch, turns: u32) {
    let file = |name: &str| scratch.path().join(name);
    std::fs::write(file("job.c"), SLOW_RANK).expect("written");
    let compiled = Command::new("mpicc.openmpi")
        .args(["-O1", &format!("-DTURNS={turns}"), "-o"])
        .args([file("job"), file("job.c")])
        .output()
        .expect("mpicc.openmpi is installed (tools/prepare test)");
    assert!(compiled.status.success(), "{compiled:?}");
}

/// `clearstream mpi OPTION FILE -- mpirun` of three ranks of the job, each started by `starter`.
fn job(scratch: &Scratch, option: &str, file: &str, starter: &[&str]) -> Command {
    let test = std::env::current_exe().expect("a test has a path");
    let library = test.parent().expect("and a folder").join("libclearstream_fi.so");
    let launcher = ["--", "mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "3"];
    let mut command = Command::new(PROGRAM);
    command
        .args(["mpi", "--interface", "lo", "--library"])
        .arg(library)
        .arg(option)
        .arg(scratch.path().join(file))
        .args(launcher)
        .args(starter)
        .arg(scratch.path().join("job"))
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("TMPDIR", scratch.path())
        .stdin(Stdio::null());
    command
}

#[test]
fn live_names_the_slow_rank_while_the_job_runs_and_ends_with_it() {
    let scratch = Scratch::new("mpi-live").expect("a folder");
    compile(&scratch, 250);
    let folder = scratch.path().join("live");
    std::fs::create_dir(&folder).expect("made");
    let mut running =
        job(&scratch, "--live", "live", &[]).stderr(Stdio::null()).spawn().expect("it runs");
    let shown = Command::new(PROGRAM)
        .args(["--json", "live", "--interval", "200ms", "--messages"])
        .arg(&folder)
        .output()
        .expect("the program runs");
    assert!(running.wait().expect("waited for").success());
    assert!(shown.status.success(), "{shown:?}");
    let lines = String::from_utf8(shown.stdout).expect("text");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let is_named = |line: &Value| {
        let rank = line["limit"]["index"].as_u64().map(|index| &line["ranks"][index as usize]);
        line["limit"]["code"] == "slow-rank" && rank.is_some_and(|rank| rank["rank"] == 1)
    };
    // Where other processes take the cores for a second, the ranks wait for those.
    let slow = lines.iter().filter(|line| line["limit"]["code"] == "slow-rank");
    let whole = slow.filter(|line| line["ranks"].as_array().map(Vec::len) == Some(3));
    let (named, others): (Vec<&Value>, Vec<&Value>) = whole.partition(|line| is_named(line));
    assert!(!named.is_empty() && others.is_empty(), "of {lines:#?} {others:#?}");
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 0, "all have ended");
}

/// What `explain` says of the report.
fn explain(scratch: &Scratch, options: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(options).arg("explain").arg(scratch.path().join("report"));
    let told = command.output().expect("the program runs");
    assert!(told.status.success(), "{told:?}");
    String::from_utf8(told.stdout).expect("text")
}

fn explain_json(scratch: &Scratch) -> Value {
    serde_json::from_str(&explain(scratch, &["--json"])).expect("JSON")
}

#[test]
fn more_ranks_than_cores_are_no_slow_rank() {
    let scratch = Scratch::new("mpi-cores").expect("a folder");
    compile(&scratch, 40);
    let one_core = ["taskset", "-c", "0"];
    let ran = job(&scratch, "--report", "report", &one_core).output().expect("the program runs");
    assert!(ran.status.success(), "{ran:?}");
    let told = explain_json(&scratch);
    assert_eq!(told["limit"]["code"], "cores", "{told:#}");
    // Two of the three poll, and share the core.
    let queued_share = told["limit"]["queued_share"].as_f64();
    assert!(queued_share.is_some_and(|share| (0.3..0.9).contains(&share)), "{told:#}");
}

#[test]
fn the_rank_that_the_others_wait_for_is_named() {
    let scratch = Scratch::new("mpi-slow").expect("a folder");
    let file = |name: &str| scratch.path().join(name);
    compile(&scratch, 40);
    let ran = job(&scratch, "--report", "report", &[]).output().expect("the program runs");
    assert!(ran.status.success(), "{ran:?}");

    let told = explain_json(&scratch);
    let limit = &told["limit"];
    assert_eq!(
        (limit["code"].as_str(), limit["index"].as_u64()),
        (Some("slow-rank"), Some(1)),
        "{told:#}"
    );
    assert_eq!(told["ranks"].as_array().map(Vec::len), Some(3));
    let text = explain(&scratch, &[]);
    assert!(text.contains("Verdict  rank 1 holds the others up"), "{text}");

    let mut torn = std::fs::read_to_string(file("report")).expect("text");
    torn.push_str("{\"kind\":\"mess");
    std::fs::write(file("torn"), torn).expect("written");
    let refused = Command::new(PROGRAM).arg("explain").arg(file("torn")).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).expect("text");
    assert!(said.ends_with("torn: line 4 is not a report of a rank\n"), "{said}");
}
