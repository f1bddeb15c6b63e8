//! `explain` of what an MPI job's ranks reported (`mpi --report`).

use std::fmt::Write;
use std::path::Path;

use crew::{MessagesLimit, RankMessages, judge_messages};
use serde::Serialize;

use crate::exit::VerbError;
use crate::messages_text;

/// Where the kind of a report is named.
const HEAD_BYTES: usize = 64;

/// Output of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    ranks: Vec<RankMessages>,
    /// What holds the job up; absent where the file has no line.
    limit: Option<MessagesLimit>,
}

/// Reads reports, a line of JSON each; `None` where the file is something else.
///
/// # Errors
/// The number of the first line that is no report.
pub(super) fn read(path: &Path, bytes: &[u8]) -> Option<Result<Told, VerbError>> {
    // A line begins with its kind. Results are one line of many megabytes, which is not parsed for that.
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    if !String::from_utf8_lossy(head).contains(RankMessages::KIND) {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let is_one = |line: &str| {
        let report = serde_json::from_str::<RankMessages>(line).ok();
        report.filter(|report| report.kind == RankMessages::KIND)
    };
    let mut ranks = vec![is_one(lines.next()?.1)?];
    for (number, line) in lines {
        let Some(report) = is_one(line) else {
            let text = format!("{}: line {} is not a report of a rank", path.display(), number + 1);
            return Some(Err(VerbError::failed(text)));
        };
        ranks.push(report);
    }
    ranks.sort_by(|a, b| (a.rank, &a.host, &a.address).cmp(&(b.rank, &b.host, &b.address)));
    let limit = judge_messages(&ranks);
    Some(Ok(Told { ranks, limit }))
}

/// What `explain` prints of them.
pub(super) fn show(told: &Told) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    lines(&mut out, told).ok();
    out
}

fn lines(out: &mut String, told: &Told) -> std::fmt::Result {
    writeln!(out, "Messages {}\n", messages_text::heading(&told.ranks))?;
    messages_text::table(out, &told.ranks)?;
    let Some(limit) = told.limit else { return Ok(()) };
    writeln!(out)?;
    messages_text::verdict(out, limit, &told.ranks)
}
