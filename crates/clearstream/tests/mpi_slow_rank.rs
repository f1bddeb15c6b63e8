//! `mpi --report` and `explain`: the rank that the others wait for is named. Judged alone: ranks that wait for a core do
//! not wait for messages.

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
    for (int turn = 0; turn < 40; turn++) {
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

#[test]
fn the_rank_that_the_others_wait_for_is_named() {
    let scratch = Scratch::new("mpi-slow").expect("a folder");
    let file = |name: &str| scratch.path().join(name);
    std::fs::write(file("job.c"), SLOW_RANK).expect("written");
    let compiled = Command::new("mpicc.openmpi")
        .args(["-O1", "-o"])
        .args([file("job"), file("job.c")])
        .output()
        .expect("mpicc.openmpi is installed (tools/prepare test)");
    assert!(compiled.status.success(), "{compiled:?}");

    let test = std::env::current_exe().expect("a test has a path");
    let library = test.parent().expect("and a folder").join("libclearstream_fi.so");
    let launcher = ["--", "mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "3"];
    let ran = Command::new(PROGRAM)
        .args(["mpi", "--interface", "lo", "--library"])
        .arg(library)
        .arg("--report")
        .arg(file("report"))
        .args(launcher)
        .arg(file("job"))
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("TMPDIR", scratch.path())
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    assert!(ran.status.success(), "{ran:?}");

    let explain = |options: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(options).arg("explain").arg(file("report"));
        let told = command.output().expect("the program runs");
        assert!(told.status.success(), "{told:?}");
        String::from_utf8(told.stdout).expect("text")
    };
    let told: Value = serde_json::from_str(&explain(&["--json"])).expect("JSON");
    let limit = &told["limit"];
    assert_eq!(
        (limit["code"].as_str(), limit["index"].as_u64()),
        (Some("slow-rank"), Some(1)),
        "{told:#}"
    );
    assert_eq!(told["ranks"].as_array().map(Vec::len), Some(3));
    let text = explain(&[]);
    assert!(text.contains("Verdict  rank 1 holds the others up"), "{text}");

    let mut torn = std::fs::read_to_string(file("report")).expect("text");
    torn.push_str("{\"kind\":\"mess");
    std::fs::write(file("torn"), torn).expect("written");
    let refused = Command::new(PROGRAM).arg("explain").arg(file("torn")).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).expect("text");
    assert!(said.ends_with("torn: line 4 is no report of a rank\n"), "{said}");
}
