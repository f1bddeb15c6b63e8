//! Where a launcher would start the ranks of a job: Open MPI's tells it without starting any.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use sys::process::{Ending, Owned};

use crate::vendor;

/// Has Open MPI's launcher print where it would start each rank, and start none.
const ASK: [&str; 2] = ["--display-map", "--do-not-launch"];
/// Longest time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Most that is read of an answer, bytes: a hundred thousand ranks.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A rank, and where it is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedRank {
    /// Its number in the job.
    pub rank: u32,
    /// The host's name, as the launcher knows it.
    pub host: String,
    /// The hardware threads that the launcher binds it to; empty: it binds it to none, or does not know the host.
    pub bound: Vec<BoundThread>,
}

/// A hardware thread by the launcher's numbers, which count from 0 and leave none out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundThread {
    /// Physical core of the host.
    pub core: u32,
    /// Hardware thread of the core.
    pub thread: u32,
}

/// What a launcher answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobMap {
    /// By number; empty if the launcher told none.
    pub ranks: Vec<MappedRank>,
    /// The first paragraph of what it wrote on standard error, as one line; empty if it wrote nothing.
    pub complaint: String,
}

/// Asks Open MPI's launcher where it would start the ranks of a job with these arguments. `local_slots` is how many it would
/// start on this host; `None` if the arguments name hosts, which say that themselves.
///
/// # Errors
/// It cannot be run, or does not answer.
pub fn job_map(
    launcher: &OsStr,
    arguments: &[OsString],
    local_slots: Option<usize>,
) -> io::Result<JobMap> {
    let map = ask(launcher, &[], arguments)?;
    match local_slots {
        // A launcher that starts nothing does not look for the cores of this host, and takes it for one slot.
        Some(slots) if map.ranks.is_empty() && map.complaint.contains("slots") => {
            ask(launcher, &["--host", &format!("localhost:{slots}")], arguments)
        }
        _ => Ok(map),
    }
}

fn ask(launcher: &OsStr, hosts: &[&str], arguments: &[OsString]) -> io::Result<JobMap> {
    let mut command = Command::new(launcher);
    command.args(ASK).args(hosts).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = Owned::start(&mut command, Ending::KILL)?.capture(ANSWER_BYTES_MAX)?;
    let ended = child.ended_within(ANSWER_MAX)?;
    let ranks = vendor::mapped_ranks(&String::from_utf8_lossy(&ended.stdout));
    let complaint = first_paragraph(&String::from_utf8_lossy(&ended.stderr));
    Ok(JobMap { ranks, complaint })
}

/// Without the lines of dashes around it.
fn first_paragraph(text: &str) -> String {
    let has_words = |line: &str| line.chars().any(char::is_alphabetic);
    let lines = text.lines().map(str::trim).skip_while(|line| !has_words(line));
    lines.take_while(|line| has_words(line)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_one_line() {
        let text = "-----\nThere are not enough slots to satisfy the 2\nslots that were requested:\n\n  true\n";
        let line = "There are not enough slots to satisfy the 2 slots that were requested:";
        assert_eq!(first_paragraph(text), line);
        assert_eq!(first_paragraph("---\n\n"), "");
    }
}
