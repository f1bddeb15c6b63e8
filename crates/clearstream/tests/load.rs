//! `clearstream io` and `clearstream meta`, as threads, as an MPI job, and held against IOR and mdtest.
//!
//! With IOR and mdtest on the machine (`CLEARSTREAM_IOR` names their directory, or they are in `PATH`) each
//! program verifies what the other wrote. Otherwise the tests use what IOR 4.1.0+dev left and printed, in
//! `crates/file-load/tests/data`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use sys::private::Scratch;

use crate::PROGRAM;

mod io;
mod meta;
mod trouble;

/// Open MPI with what it needs on a machine of few cores.
const MPIRUN: [&str; 6] =
    ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np"];

/// A directory of this test alone.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        // Two tests may want the same name at once.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("clearstream-load-{name}-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a directory of our own");
        Self(path)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Names in it, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("readable");
        let mut names: Vec<String> =
            entries.flatten().map(|one| one.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Exit code, standard output, standard error.
type Told = (Option<i32>, String, String);

fn told(done: Output) -> Told {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split_whitespace()
}

/// Runs `clearstream` with a verb and options.
fn run(line: &str) -> Told {
    told(Command::new(PROGRAM).args(words(line)).output().expect("the program"))
}

/// The launcher of two ranks. Jobs that begin and end in one folder meet in what Open MPI makes and removes there.
fn mpirun(scratch: &Scratch) -> Command {
    let mut command = Command::new(MPIRUN[0]);
    command.args(&MPIRUN[1..]).arg("2").env("TMPDIR", scratch.path());
    command
}

/// The same as two ranks of a job; `program` is ours, IOR or mdtest.
fn job(program: &str, line: &str) -> Told {
    let scratch = Scratch::new("load-job").expect("a folder");
    let mut command = mpirun(&scratch);
    command.arg(program).args(words(line));
    told(command.stdin(Stdio::null()).output().expect("Open MPI's launcher"))
}

/// IOR or mdtest, where the machine has it.
fn reference(name: &str) -> Option<String> {
    let named = std::env::var_os("CLEARSTREAM_IOR").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = named.into_iter().chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join(name)).find(|program| program.is_file());
    found.map(|program| program.display().to_string())
}

/// Rows of IOR's table: access, then numbers.
fn rows(text: &str) -> Vec<(String, Vec<f64>)> {
    let after = text.split("------    ---------").nth(1).unwrap_or_default();
    let table = after.split("Summary of all tests").next().unwrap_or_default();
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let access = words.next().filter(|word| ["write", "read"].contains(word))?;
        Some((access.to_owned(), words.map(|word| word.parse().expect("a number")).collect()))
    };
    table.lines().filter_map(row).collect()
}

/// Rates of mdtest's summary, by operation: the maximum.
fn rates(text: &str) -> Vec<(String, f64)> {
    let after = text.split("SUMMARY rate").nth(1).unwrap_or_default();
    let row = |line: &str| {
        let name = line.strip_prefix("   ")?.get(..18)?.trim();
        let max = line.get(21..)?.split_whitespace().next()?.parse().ok()?;
        Some((name.to_owned(), max))
    };
    after.lines().skip(3).map_while(row).collect()
}
