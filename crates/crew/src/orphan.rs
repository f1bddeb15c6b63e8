//! The launcher of a job that lost a host.

use std::fs;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Command, Stdio};

use mpi::Flavour;

use crate::vendor::is_open_mpi;

/// How long it may take to end by itself, seconds.
const PATIENCE_S: u32 = 5;

/// It is asked twice, so many seconds apart.
const APART_S: u32 = 2;

/// Asks a process to end if it is still the one it was: number, when it began, patience, time apart.
const SCRIPT: &str = "sleep \"$3\"; for time in 1 2; do \
    [ \"$(cut -d' ' -f22 /proc/\"$1\"/stat)\" = \"$2\" ] && kill -TERM \"$1\"; sleep \"$4\"; done";

/// Sees to it that the launcher ends too. Open MPI's waits for its daemon on a host that is gone, for
/// many minutes; asked by a signal it ends at once. Whoever asks must outlive this process, which the
/// launcher ends first.
pub(crate) fn end_launcher_soon(flavour: Flavour) {
    if flavour != Flavour::OpenMpi {
        return;
    }
    let launcher = parent_id();
    let Some((name, began)) = process(launcher) else { return };
    if !is_open_mpi(&name) {
        return;
    }
    let mut watch = Command::new("/bin/sh");
    let times = [PATIENCE_S, APART_S].map(|seconds| seconds.to_string());
    watch.args(["-c", SCRIPT, "sh", &launcher.to_string(), &began]).args(times);
    watch.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    // Without a shell the launcher is left to itself.
    watch.spawn().ok();
}

/// A process's name, and when it began as the kernel counts (proc(5), `stat` fields 2 and 22).
fn process(number: u32) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let (head, rest) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    Some((name, rest.split_whitespace().nth(19)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_beginning() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a child");
        let (name, began) = process(child.id()).expect("it is there");
        assert_eq!(name, "sleep");
        let script = ["-c", SCRIPT, "sh", &child.id().to_string()];
        let ask = |began: &str| {
            let done = Command::new("/bin/sh").args(script).args([began, "0", "0"]).spawn();
            done.expect("a shell")
        };
        let mut other = ask("1");
        other.wait().expect("it ends");
        assert!(child.try_wait().expect("a child").is_none(), "another of that number");
        let mut right = ask(&began);
        assert!(!child.wait().expect("a child").success());
        right.wait().expect("it ends");
    }
}
