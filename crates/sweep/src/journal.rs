//! Finished points as bytes, so that a run that was cut short can go on.

use results::{Host, PathFacts, Point, SCHEMA_VERSION};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::plan::Plan;

/// The journal of a run: a header line that names the plan and has the path as it was when the run began,
/// then a line a finished point, all JSON. The caller appends each line and syncs it before the next point starts.
///
/// Points of later plans of the same run (a second round, an experiment that confirms) may follow:
/// the header names the plan that everything else follows from.
#[derive(Debug, Clone, Copy)]
pub struct Journal;

/// Why a journal cannot be taken up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Empty, or cut short before its first line was complete: nothing was lost.
    #[error("the journal is empty")]
    Empty,
    /// Not a journal.
    #[error("not a journal: its first line is not a header ({0})")]
    NotAJournal(String),
    /// Written by a version whose points this one does not read.
    #[error("the journal has schema {found}; this version reads {SCHEMA_VERSION}")]
    Version {
        /// The version found.
        found: String,
    },
    /// The journal of other tests.
    #[error("the journal belongs to other tests (plan {found}, not {expected})")]
    OtherPlan {
        /// Digest in the journal.
        found: String,
        /// Digest of the plan at hand.
        expected: String,
    },
    /// A line before the last one is damaged.
    #[error("line {line_number} of the journal is damaged ({reason})")]
    Damaged {
        /// Line, from 1.
        line_number: usize,
        /// What the reader met.
        reason: String,
    },
    /// Absurdly large.
    #[error("{bytes} bytes are more than a journal may have ({JOURNAL_BYTES_MAX})")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// Largest journal [`Journal::decode`] accepts, bytes: as large as a results file may be.
const JOURNAL_BYTES_MAX: usize = 256 << 20;

/// First line of every journal.
#[derive(Serialize, Deserialize)]
struct Header {
    schema_version: String,
    /// Hexadecimal: JSON numbers do not hold 64 bits.
    plan_digest: String,
    /// Later rounds may follow from the path's idle round trips and MTU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    path: Option<PathFacts>,
    /// Of a run that changes the hosts: as it found them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    hosts: Vec<Host>,
}

/// What a run that was cut short left in its journal.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Earlier {
    /// The path as it was when the run began.
    pub path: Option<PathFacts>,
    /// The hosts as they were, where the run changes them; else none.
    pub hosts: Vec<Host>,
    /// The points, in the order they were finished.
    pub points: Vec<Point>,
}

impl Journal {
    /// The first line. `hosts` are those that the run will change; none where it changes none.
    #[must_use]
    pub fn encode_header(plan: &Plan, path: &PathFacts, hosts: &[Host]) -> Vec<u8> {
        line(&Header {
            schema_version: SCHEMA_VERSION.to_owned(),
            plan_digest: digest_text(plan),
            path: Some(path.clone()),
            hosts: hosts.to_vec(),
        })
    }

    /// The line of a finished point.
    #[must_use]
    pub fn encode_point(point: &Point) -> Vec<u8> {
        line(point)
    }

    /// What `bytes` hold. A last line that was cut short, or that the disk never got, is dropped.
    ///
    /// # Errors
    /// [`JournalError`] says in one line why the journal is not one of `plan`.
    pub fn decode(plan: &Plan, bytes: &[u8]) -> Result<Earlier, JournalError> {
        if bytes.len() > JOURNAL_BYTES_MAX {
            return Err(JournalError::TooLarge { bytes: bytes.len() });
        }
        let mut lines = complete_lines(bytes);
        let header = lines.next().ok_or(JournalError::Empty)?;
        let Header { path, hosts, .. } = read_header(plan, header)?;
        let mut points = Vec::new();
        let mut lines = lines.enumerate().peekable();
        while let Some((index, text)) = lines.next() {
            match serde_json::from_slice(text) {
                Ok(point) => points.push(point),
                Err(_torn) if lines.peek().is_none() => break,
                Err(error) => {
                    let (line_number, reason) = (index + 2, error.to_string());
                    return Err(JournalError::Damaged { line_number, reason });
                }
            }
        }
        Ok(Earlier { path, hosts, points })
    }
}

fn read_header(plan: &Plan, text: &[u8]) -> Result<Header, JournalError> {
    let header: Header = serde_json::from_slice(text)
        .map_err(|error| JournalError::NotAJournal(error.to_string()))?;
    let major = |version: &str| version.split('.').next().map(str::to_owned);
    if major(&header.schema_version) != major(SCHEMA_VERSION) {
        return Err(JournalError::Version { found: header.schema_version });
    }
    let expected = digest_text(plan);
    if header.plan_digest != expected {
        return Err(JournalError::OtherPlan { found: header.plan_digest, expected });
    }
    Ok(header)
}

fn digest_text(plan: &Plan) -> String {
    format!("{:016x}", plan.digest())
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut bytes =
        serde_json::to_vec(value).expect("string keys and plain numbers always have a JSON form");
    bytes.push(b'\n');
    bytes
}

/// Lines that end in a newline; what follows the last newline was cut short.
fn complete_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"))
}

#[cfg(test)]
mod tests {
    use results::{PointOutcome, TestSpec};

    use super::*;
    use crate::plan::Setting;

    fn plan() -> Plan {
        Plan::new(vec![Setting::new("single-stream", TestSpec::tcp())], 3, 7)
    }

    fn path() -> PathFacts {
        PathFacts { target: "far".into(), path_mtu_bytes: Some(9000), ..PathFacts::default() }
    }

    fn point(repeat: u32) -> Point {
        Point {
            varied: [("window_bytes".to_owned(), 0.1 + f64::from(repeat))].into(),
            repeat,
            started_unix_ms: 1_700_000_000_000,
            command: "clearstream test h\u{e9}\"\n".into(),
            ..Point::new(
                "single-stream",
                TestSpec::tcp(),
                PointOutcome::Failed("two\nlines".into()),
            )
        }
    }

    fn journal(repeats: u32) -> Vec<u8> {
        let points = (0..repeats).flat_map(|repeat| Journal::encode_point(&point(repeat)));
        Journal::encode_header(&plan(), &path(), &[]).into_iter().chain(points).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let earlier = Journal::decode(&plan(), &journal(3)).expect("whole");
        assert_eq!(earlier.points, [point(0), point(1), point(2)]);
        assert_eq!(earlier.path, Some(path()));
    }

    #[test]
    fn a_cut_anywhere_keeps_every_whole_line() {
        let bytes = journal(3);
        let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').collect();
        for cut in 0..bytes.len() {
            let whole_lines = ends.iter().filter(|end| **end < cut).count();
            match Journal::decode(&plan(), &bytes[..cut]) {
                Ok(earlier) => assert_eq!(earlier.points.len() + 1, whole_lines, "cut at {cut}"),
                Err(JournalError::Empty) => assert_eq!(whole_lines, 0, "cut at {cut}"),
                Err(other) => panic!("cut at {cut}: {other}"),
            }
        }
    }

    #[test]
    fn a_block_the_disk_never_wrote_is_a_torn_line() {
        let mut bytes = journal(2);
        bytes.extend([0; 512]);
        bytes.push(b'\n');
        assert_eq!(Journal::decode(&plan(), &bytes).expect("torn last line").points.len(), 2);
        bytes.extend(Journal::encode_point(&point(2)));
        let error = Journal::decode(&plan(), &bytes).expect_err("damage in the middle");
        assert!(matches!(error, JournalError::Damaged { line_number: 4, .. }), "{error}");
    }

    #[test]
    fn foreign_journals_are_refused_with_a_reason() {
        let other = Plan::new(vec![Setting::new("single-stream", TestSpec::tcp())], 4, 7);
        let error = Journal::decode(&other, &journal(1)).expect_err("another plan");
        assert!(matches!(error, JournalError::OtherPlan { .. }), "{error}");
        let error = Journal::decode(&plan(), b"{\"hello\":1}\n").expect_err("no header");
        assert!(matches!(error, JournalError::NotAJournal(_)), "{error}");
        let header = String::from_utf8(Journal::encode_header(&plan(), &path(), &[]))
            .expect("JSON is UTF-8");
        let newer = header.replace("\"2.", "\"3.");
        let error = Journal::decode(&plan(), newer.as_bytes()).expect_err("another version");
        assert!(matches!(error, JournalError::Version { .. }), "{error}");
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let header = Journal::encode_header(&plan(), &path(), &[]);
        bolero::check!().for_each(move |bytes: &[u8]| {
            Journal::decode(&plan(), bytes).ok();
            let after_header: Vec<u8> = header.iter().chain(bytes).copied().collect();
            Journal::decode(&plan(), &after_header).ok();
        });
    }
}
