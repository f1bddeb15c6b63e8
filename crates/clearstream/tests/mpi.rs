//! `clearstream mpi`: stock Open MPI over the provider, and what makes it refuse.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::PROGRAM;
use sys::private::Scratch;

/// What a build leaves beside the tests.
pub(crate) fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("and a folder").join(name)
}

fn mpi(options: &[&str]) -> Command {
    let library = built("libclearstream_fi.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    let mut command = Command::new(PROGRAM);
    command.args(["mpi", "--library"]).arg(library).args(options);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.stdin(Stdio::null());
    command
}

fn told(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (status.code(), text.concat())
}

/// The program's own check of models is a job like any other.
#[test]
fn a_stock_job_runs_over_the_provider_and_ends_with_its_own_code() {
    let scratch = Scratch::new("mpi-verb").expect("a folder");
    let report = scratch.path().join("report");
    let report_path = report.to_str().expect("a path of ours");
    let launcher = ["--", "mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "2"];
    let mut command = mpi(&["--report", report_path, "--interface", "lo"]);
    command.args(launcher).args([PROGRAM, "check", "--example", "peterson"]);
    command.env("TMPDIR", scratch.path());
    let (code, text) = told(&mut command);
    assert_eq!(code, Some(0), "{text}");
    let lines = std::fs::read_to_string(&report).expect("the ranks' counters");
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.lines().all(|line| !line.contains("\"sent_pkts\":0,")), "{lines}");
}

/// Compiles a program with Open MPI's compiler.
fn compile(program: &std::path::Path, source: &std::path::Path) {
    let mut compiler = Command::new("mpicc.openmpi");
    let compiled = compiler.args(["-O1", "-o"]).args([program, source]).output();
    let compiled = compiled.expect("mpicc.openmpi is installed (tools/prepare test)");
    assert!(compiled.status.success(), "{compiled:?}");
}

/// Puts, gets, accumulates and fetches between all ranks, each checked by the program.
#[test]
fn one_sided_operations_access_the_peers_memory_where_that_is_asked_for() {
    let scratch = Scratch::new("mpi-memory").expect("a folder");
    let file = |name: &str| scratch.path().join(name);
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    compile(&file("window"), &folder.join("../fabric-provider/tests/program/window.c"));
    for (how, swaps) in [("memory", "no"), ("messages", "swap")] {
        let report = file(how).display().to_string();
        let options = ["--report", &report, "--one-sided", how, "--interface", "lo"];
        let launcher = ["--", "mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "2"];
        let mut command = mpi(&options);
        command.args(launcher).arg(file("window")).arg(swaps).env("TMPDIR", scratch.path());
        let (code, text) = told(&mut command);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("correct: 2 ranks"), "{text}");
        let lines = std::fs::read_to_string(file(how)).expect("the ranks' counters");
        let served = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            line["served_requests"].as_u64().expect("a count")
        };
        let served: u64 = lines.lines().map(served).sum();
        // Of 1000 fetches half are of the other rank's memory.
        assert!(if how == "memory" { served >= 500 } else { served == 0 }, "{how}: {served}");
    }
    let other = ["--mca", "btl", "tcp,self"];
    let (code, text) =
        told(mpi(&["--one-sided", "memory", "--", "mpirun.openmpi"]).args(other).arg("true"));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("leave it out"), "{text}");
}

/// Each rank puts 8 MiB into the other's memory.
const ONE_SIDED: &str = r#"
#include <mpi.h>
#include <stdlib.h>
enum { BYTES = 8 << 20 };
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    unsigned char *own = malloc(BYTES), *out = malloc(BYTES);
    for (int at = 0; at < BYTES; at++)
        out[at] = (unsigned char)(at * 7 + rank);
    MPI_Win window;
    MPI_Win_create(own, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    MPI_Put(out, BYTES, MPI_BYTE, !rank, 0, BYTES, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    int wrong = 0;
    for (int at = 0; at < BYTES; at++)
        wrong += own[at] != (unsigned char)(at * 7 + !rank);
    MPI_Win_free(&window);
    MPI_Finalize();
    return wrong != 0;
}
"#;

/// Open MPI's own choice goes over TCP and its own shared memory.
#[test]
fn one_sided_operations_go_over_messages_too() {
    let scratch = Scratch::new("mpi-put").expect("a folder");
    let file = |name: &str| scratch.path().join(name);
    std::fs::write(file("put.c"), ONE_SIDED).expect("written");
    compile(&file("put"), &file("put.c"));
    let report = file("report").display().to_string();
    let options = ["--report", &report, "--shared-memory", "off", "--interface", "lo"];
    let launcher = ["--", "mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "-n", "2"];
    let mut command = mpi(&options);
    let (code, text) = told(command.args(launcher).arg(file("put")).env("TMPDIR", scratch.path()));
    assert_eq!(code, Some(0), "{text}");
    let lines = std::fs::read_to_string(file("report")).expect("the ranks' counters");
    let sent = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        line["sent_pkts"].as_u64().expect("a count")
    };
    let sent: Vec<u64> = lines.lines().map(sent).collect();
    // A packet holds less than 64 KiB.
    assert!(sent.len() == 2 && sent.iter().all(|&count| count > 128), "{sent:?}");
}

#[test]
fn codes_are_those_of_the_ranks_and_of_shells() {
    for (launcher, code) in [("no-such-launcher", 127), ("/etc/passwd", 126)] {
        let (found, text) = told(mpi(&["--", launcher]).arg("true"));
        assert_eq!(found, Some(code), "{text}");
        assert!(text.contains(&format!("cannot run {launcher}")), "{text}");
    }
    // Jobs that begin and end in one folder meet in what Open MPI makes and removes there.
    let scratch = Scratch::new("mpi-codes").expect("a folder");
    for (script, code) in [("exit 7", 7), ("kill -9 $$", 137)] {
        let launcher = ["--", "mpirun.openmpi", "--oversubscribe", "-n", "1", "sh", "-c", script];
        let (found, text) = told(mpi(&launcher).env("TMPDIR", scratch.path()));
        assert_eq!(found, Some(code), "{text}");
    }
}

#[test]
fn what_would_fall_back_to_tcp_is_refused() {
    for (name, value) in [("pml", "ob1"), ("osc", "rdma")] {
        let (code, text) = told(mpi(&["--", "mpirun.openmpi", "--mca", name, value]).arg("true"));
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("leave it out"), "{text}");
    }

    let (code, text) = told(mpi(&["--", "mpiexec.mpich", "-n", "1"]).arg("true"));
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("MPICH"), "{text}");

    let (code, text) = told(mpi(&["--", "true"]).arg("-n"));
    assert_eq!(code, Some(4), "{text}");

    let mut command = Command::new(PROGRAM);
    let other = std::env::current_exe().expect("a test has a path");
    command.args(["mpi", "--library"]).arg(other).args(["--", "mpirun.openmpi", "true"]);
    let (code, text) = told(&mut command);
    assert_eq!(code, Some(2), "{text}");
}

#[test]
fn the_transport_is_said_and_can_be_set() {
    let show =
        ["mpirun.openmpi", "--oversubscribe", "-n", "1", "sh", "-c", "echo $FI_CLEARSTREAM_SHM"];
    for (how, line) in
        [("direct", "with one copy"), ("rings", "inside a host and UDP"), ("off", "use UDP")]
    {
        let mut command = mpi(&["--shared-memory", how, "--"]);
        let (code, text) = told(command.args(show));
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(line) && text.lines().any(|line| line == how), "{text}");
        let (code, text) = told(mpi(&["--"]).args(show).env("FI_CLEARSTREAM_SHM", how));
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(line), "{text}");
    }
    let (code, text) = told(mpi(&["--"]).args(show).env("FI_CLEARSTREAM_SHM", "cloud"));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("expected direct, rings or off"), "{text}");
}

#[test]
fn a_malformed_switch_name_is_refused_before_the_launcher_starts() {
    let scratch = Scratch::new("mpi-port").expect("a folder");
    let started = scratch.path().join("started");
    let launcher = ["--", "mpirun.openmpi", "--oversubscribe", "-n", "1", "touch"];
    for name in ["vale 0", "", "@rack7", "vale0@", "vale0:a"] {
        let mut by_option = mpi(&["--port", name]);
        let mut by_variable = mpi(&[]);
        by_variable.env("FI_CLEARSTREAM_PORT", name);
        // An empty variable is none.
        let variable = (!name.is_empty()).then_some(&mut by_variable);
        for command in [Some(&mut by_option), variable].into_iter().flatten() {
            let (code, text) = told(command.args(launcher).arg(&started));
            assert_eq!(code, Some(2), "{name}: {text}");
            assert_eq!(text.lines().count(), 1, "{name}: {text}");
            assert!(text.to_lowercase().contains("port"), "{name}: {text}");
            assert!(!started.exists(), "{name}: {text}");
        }
    }
}

/// Ranks of this host would each fail on it; those of other hosts may have it.
#[test]
fn an_interface_that_this_host_lacks_is_refused_before_the_launcher_starts() {
    let scratch = Scratch::new("mpi-interface").expect("a folder");
    let started = scratch.path().join("started");
    let launcher = ["--", "mpirun.openmpi", "--oversubscribe", "-n", "1", "touch"];
    let mut by_option = mpi(&["--interface", "no-such0"]);
    let mut by_variable = mpi(&[]);
    by_variable.env("FI_CLEARSTREAM_IFACE", "no-such0");
    for command in [&mut by_option, &mut by_variable] {
        let (code, text) = told(command.args(launcher).arg(&started));
        assert_eq!(code, Some(2), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("no interface or address no-such0") && text.contains("lo"), "{text}");
        assert!(!started.exists(), "{text}");
    }
    let elsewhere = ["--", "mpirun.openmpi", "--host", "localhost", "-n", "1", "touch"];
    let (_, text) = told(mpi(&["--interface", "no-such0"]).args(elsewhere).arg(&started));
    assert!(started.exists(), "the launcher runs where hosts are named: {text}");
}

/// What `mpi plan --json` tells, with these arguments.
fn planned(arguments: &[&str]) -> serde_json::Value {
    let mut command = Command::new(PROGRAM);
    command.args(["--json", "mpi", "plan"]).args(arguments).stdin(Stdio::null());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let scratch = Scratch::new("mpi-planned").expect("a folder");
    let (code, text) = told(command.env("TMPDIR", scratch.path()));
    assert_eq!(code, Some(0), "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_plan_tells_where_open_mpi_would_run_each_rank_and_starts_none() {
    let scratch = Scratch::new("mpi-plan").expect("a folder");
    let mark = scratch.path().join("started");
    let job = format!("touch {}", mark.display());
    let own = Command::new("uname").arg("-n").output().expect("uname runs").stdout;
    let own = String::from_utf8_lossy(&own).trim().to_owned();
    let hosts = format!("{own}:1,far.example:2");
    let launcher = ["--", "mpirun.openmpi", "--bind-to", "core", "--host", &hosts, "-n", "3"];
    let plan = planned(&[&["--interface", "lo"], &launcher[..], &["sh", "-c", &job]].concat());
    let of = |name: &str| -> Vec<serde_json::Value> {
        let ranks = plan["ranks"].as_array().expect("ranks").iter();
        ranks.map(|rank| rank[name].clone()).collect()
    };
    assert_eq!(of("is_here"), [true, false, false]);
    assert_eq!(of("core_choice")[1..], ["other_host", "other_host"]);
    assert_eq!(of("udp_ranks_count")[0], 2);
    assert_eq!(of("receiver")[0]["queue_choice"], "loopback");
    assert_eq!(plan["endpoint"]["reason"], "asked");
    let unbound: Vec<&str> = plan["not_bound"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["what"].as_str())
        .collect();
    assert!(unbound.contains(&"other_hosts"), "{plan}");
    assert!(!mark.exists(), "the job was started");
}

/// A launcher that is to start nothing takes this host for one slot, unless it is told how many cores there are.
#[test]
fn a_plan_has_as_many_slots_on_this_host_as_it_has_cores() {
    let cores = topology::machine().cores.iter().filter(|core| core.is_online).count();
    let count = cores.to_string();
    let launcher = ["--", "mpirun.openmpi", "--use-hwthread-cpus", "-n", &count, "true"];
    let plan = planned(&[&["--interface", "lo"], &launcher[..]].concat());
    assert_eq!(plan["ranks"].as_array().map(Vec::len), Some(cores), "{plan}");
    assert!(plan["ranks"].as_array().expect("ranks").iter().all(|rank| rank["is_here"] == true));
    let more = (cores + 1).to_string();
    let mut crowded = Command::new(PROGRAM);
    crowded.args([
        "mpi",
        "plan",
        "--",
        "mpirun.openmpi",
        "--use-hwthread-cpus",
        "-n",
        &more,
        "true",
    ]);
    crowded.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let (code, text) = told(crowded.stdin(Stdio::null()));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("not enough slots"), "{text}");
}

#[test]
fn a_plan_without_a_launcher_gives_each_rank_a_core_in_order() {
    let plan = planned(&["--ranks", "1", "--interface", "lo"]);
    assert_eq!(plan["ranks"][0]["core_choice"], "order");
    assert_eq!(plan["ranks"][0]["cores"].as_array().map(Vec::len), Some(1));
    let many = planned(&["--ranks", "2000", "--interface", "lo"]);
    assert_eq!(many["ranks"][1999]["core_choice"], "too_few_cores");
    let two = planned(&["--ranks", "4", "--hosts", "a.example,b.example"]);
    assert_eq!(two["ranks"][2]["host"], "b.example");
    assert_eq!(two["ranks"][0]["shared_memory_ranks_count"], 1);
}

#[test]
fn a_plan_of_what_could_not_run_is_refused_as_the_job_would_be() {
    let plan = |arguments: &[&str]| {
        told(Command::new(PROGRAM).args(["mpi", "plan"]).args(arguments).stdin(Stdio::null()))
    };
    let (code, text) = plan(&["--", "mpirun.openmpi", "--mca", "pml", "ob1", "true"]);
    assert_eq!(code, Some(2), "{text}");
    let (code, text) = plan(&["--", "no-such-launcher", "true"]);
    assert_eq!(code, Some(127), "{text}");
    let (code, text) = plan(&["--interface", "no-such-interface", "--ranks", "2"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("no-such-interface"), "{text}");
    let (code, _) = plan(&[]);
    assert_eq!(code, Some(2));
    let crowded =
        ["--", "mpirun.openmpi", "--allow-run-as-root", "--host", "localhost:1", "-n", "2", "true"];
    let (code, text) = plan(&crowded);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("not enough slots"), "{text}");
}

/// A launcher that says what that of Open MPI 5.0.11 says, and starts nothing: it prints what ranks would be told.
fn launcher_of_release_5(folder: &std::path::Path) -> PathBuf {
    let script = "#!/bin/sh\ncase $1 in\n--version) echo 'mpirun (Open MPI) 5.0.11' ;;\n--display-map) cat <<END\n\
        Binding policy: CORE:IF-SUPPORTED  Cpu set: N/A  PPR: N/A  Cpus-per-rank: N/A  Cpu Type: CORE\n\
        Data for node: $(uname -n)\tState: 3\n\
        \x20       Data for proc: [prterun-vm-1@1,0]\n\
        \x20       \tBinding: package[0][core:L0]\n\
        END\n;;\n*) env ;;\nesac\n";
    for (name, text) in [("mpirun", script), ("ompi_info", "#!/bin/sh\necho mca:mtl:ofi:version\n")]
    {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("executable");
    }
    folder.join("mpirun")
}

#[test]
fn ranks_of_open_mpi_5_are_placed_and_reach_the_memory_of_peers_through_the_provider() {
    let scratch = Scratch::new("mpi-release-5").expect("a folder");
    let launcher = launcher_of_release_5(scratch.path());
    let launcher = launcher.to_str().expect("a plain path");
    let plan = planned(&["--interface", "lo", "--", launcher, "-n", "1", "true"]);
    assert_eq!(plan["ranks"][0]["is_here"], true, "{plan}");
    assert_eq!(plan["ranks"].as_array().map(Vec::len), Some(1), "{plan}");

    let (code, text) = told(mpi(&["--interface", "lo"]).args(["--", launcher, "-n", "1", "true"]));
    assert_eq!(code, Some(0), "{text}");
    for line in ["OMPI_MCA_osc=^pt2pt,ucx", "OMPI_MCA_btl=self,ofi"] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
    assert!(text.contains("FI_CLEARSTREAM_CORES="), "{text}");

    let asked = ["--one-sided", "messages", "--", launcher, "-n", "1", "true"];
    let (code, text) = told(&mut mpi(&asked));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("leave the option out"), "{text}");
}
