//! Compiles the BPF programs with clang. Where there is none the crate still builds and says at
//! run time that its congestion controls are not built in.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Source, relative to the crate, and the object's name.
const PROGRAM: &str = "bpf/htcp.bpf.c";
const OBJECT: &str = "htcp.bpf.o";

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rustc-check-cfg=cfg(has_bpf)");
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join(OBJECT);
    match candidates().iter().find_map(|clang| compile(clang, &object)) {
        Some(Ok(())) => println!("cargo::rustc-cfg=has_bpf"),
        Some(Err(said)) => println!("cargo::error=clang could not compile {PROGRAM}: {said}"),
        None => println!(
            "cargo::warning=no clang here: H-TCP is not built in (Debian: apt-get install clang)"
        ),
    }
}

/// `$CLANG`, or clang under the names that distributions give it.
fn candidates() -> Vec<String> {
    match env::var("CLANG") {
        Ok(named) => vec![named],
        Err(_) => std::iter::once("clang".to_owned())
            .chain((11..=24).rev().map(|version| format!("clang-{version}")))
            .collect(),
    }
}

/// `None` when there is no such program.
fn compile(clang: &str, object: &PathBuf) -> Option<Result<(), String>> {
    let target = match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb",
        _ => "bpfel",
    };
    let crate_dir = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let output = Command::new(clang)
        .current_dir(crate_dir)
        // -g for the type information that field offsets are found by; no path of this machine.
        .args(["-target", target, "-mcpu=v2", "-O2", "-g", "-fdebug-compilation-dir", "."])
        .args(["-Wall", "-Wextra", "-c", PROGRAM, "-o"])
        .arg(object)
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
    Some(if output.status.success() { Ok(()) } else { Err(first.to_owned()) })
}
