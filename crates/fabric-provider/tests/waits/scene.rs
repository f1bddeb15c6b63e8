//! Jobs of Open MPI: compiled, run within a time, their counters read.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use sys::private::Scratch;

/// Longest time for a job.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// What a build leaves beside the tests.
pub(crate) fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("and a folder").join(name)
}

/// The program whose every message is checked.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("job", &built(&format!("mpi-job-{}", std::process::id()))))
}

/// A C program of `tests/program`, compiled with Open MPI's compiler to this file.
pub(crate) fn compiled(name: &str, program: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/program/{name}.c"));
    let outcome = Command::new("mpicc.openmpi")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([program, &source])
        .output()
        .expect("mpicc.openmpi is installed (tools/prepare test)");
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stderr));
    program.to_owned()
}

/// A folder with the library alone, for `FI_PROVIDER_PATH`.
pub(crate) fn provider_folder(scratch: &Path) -> PathBuf {
    let folder = scratch.join("provider");
    std::fs::create_dir_all(&folder).expect("a folder");
    let library = built("libclearstream_fi.so");
    assert!(library.exists(), "{} is built with the tests", library.display());
    std::os::unix::fs::symlink(library, folder.join("libclearstream_fi.so")).expect("a link");
    folder
}

/// What a job said, and the counters of its endpoints.
pub(crate) struct Ran {
    pub(crate) output: Output,
    /// One line of each rank.
    pub(crate) report: Vec<String>,
}

impl Ran {
    pub(crate) fn said(&self) -> String {
        let [out, err] = [&self.output.stdout, &self.output.stderr];
        format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
    }

    /// A counter of each rank.
    pub(crate) fn counters(&self, name: &str) -> Vec<u64> {
        let value = |line: &String| {
            let rest = line.split(&format!("\"{name}\":")).nth(1)?;
            rest.split([',', '}']).next()?.parse().ok()
        };
        self.report.iter().filter_map(value).collect()
    }
}

/// `mpirun` with what makes Open MPI 4 take the provider, and nothing else where that fails.
pub(crate) fn mpirun(scratch: &Scratch, ranks: u32) -> Command {
    // `timeout` ends the whole job, should it hang.
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", &PATIENCE.as_secs().to_string(), "mpirun.openmpi"])
        .args(["--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()])
        .args(["--mca", "pml", "cm", "--mca", "mtl", "ofi"])
        .args(["--mca", "mtl_ofi_provider_include", "clearstream"])
        .args(["-x", "FI_PROVIDER_PATH", "-x", "FI_CLEARSTREAM_REPORT"])
        .env("FI_PROVIDER_PATH", provider_folder(scratch.path()))
        .env("FI_CLEARSTREAM_REPORT", scratch.path().join("report"))
        .env("TMPDIR", scratch.path())
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .stdin(Stdio::null());
    command
}

/// Runs a job to its end.
pub(crate) fn run(scratch: &Scratch, command: &mut Command) -> Ran {
    let output = command.output().expect("mpirun.openmpi is installed (tools/prepare test)");
    let report = std::fs::read_to_string(scratch.path().join("report")).unwrap_or_default();
    Ran { output, report: report.lines().map(str::to_owned).collect() }
}
