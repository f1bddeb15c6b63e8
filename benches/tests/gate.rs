//! `--gate` of the benchmark program, run with a planted crash: programs that end at once stand in for
//! ours.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A folder of this test, gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("gate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The benchmark of start times, with another program in place of ours.
    fn bench(&self, program: &str, gate: &str) -> (Output, Value) {
        let file = self.0.join("bench.json");
        let mut bench = Command::new(env!("CARGO_BIN_EXE_peers"));
        bench.args(["--only", "start", "--program", program, gate, "--output"]).arg(&file);
        let output = bench.output().unwrap();
        let rows = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        (output, rows)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok(); // what is left lies in the build folder
    }
}

#[test]
fn our_program_that_crashes_ends_the_gate_with_3_and_is_named() {
    let folder = Folder::new("crash");
    for gate in ["--gate=runs", "--gate"] {
        let (output, rows) = folder.bench("/bin/false", gate);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{gate}: {said}");
        assert!(said.contains("missed: start: 21 of 21 rounds failed: ClearStream"), "{said}");
        assert_eq!(rows["failed"][0]["name"], "start", "{rows}");
    }
}

#[test]
fn a_program_that_runs_passes_the_gate_whatever_its_figures() {
    let folder = Folder::new("slow");
    let slow = script(&folder, "#!/bin/sh\nsleep 0.03\n");
    let (output, rows) = folder.bench(&slow, "--gate=runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(rows["rows"][0]["holds"], false, "it took longer than 20 ms: {rows}");
    let (output, _) = folder.bench(&slow, "--gate=figures");
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn one_failed_round_is_told_and_the_others_count() {
    let folder = Folder::new("once");
    let mark = folder.0.join("was-here");
    let text = "#!/bin/sh\ntest -e MARK && exit 0\n: >MARK\nexit 1\n";
    let once = script(&folder, &text.replace("MARK", &mark.display().to_string()));
    let (output, rows) = folder.bench(&once, "--gate=runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let row = &rows["rows"][0];
    assert_eq!(row["n"], 20, "{row}");
    let reason = row["failed_rounds"][0].as_str().unwrap();
    assert!(reason.starts_with("ClearStream, round 1:"), "{reason}");
}

fn script(folder: &Folder, text: &str) -> String {
    let path = folder.0.join("program");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}
