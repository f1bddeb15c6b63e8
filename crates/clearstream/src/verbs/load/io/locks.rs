//! `clearstream io --locks`: tests whether locks of a file system exclude its other clients.

use std::collections::BTreeMap;

use file_load::LoadError;
use file_load::locks::{self, Finding, Verdict};
use file_load::team::{Member, Team};
use results::{Figure, FileLocksWork, Point, PointOutcome, TestOutcome, Work};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::runner;
use crate::verbs::load::call::Call;
use crate::verbs::load::document::{self, Run};
use crate::verbs::load::page::Page;
use crate::verbs::load::{Kind, Ranks, failure};

/// Runs the test: exit code 3 if a kind of lock does not work.
pub(super) fn run(call: &Call, directories: &str, ranks: Ranks<'_>) -> VerbResult {
    if !call.words.is_empty() {
        return Err(VerbError::usage("--locks cannot be combined with IOR's options"));
    }
    if call.threads > 1 {
        return Err(VerbError::usage(
            "--locks needs ranks that are processes (--ranks): threads of one process share its locks",
        ));
    }
    let directories: Vec<String> =
        directories.split('@').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    if directories.is_empty() {
        return Err(VerbError::usage("--locks needs a directory"));
    }
    let leads = ranks.leads();
    let started_unix_ms = runner::now_unix_ms();
    let page = Page::open(None, call.is_json)?;
    let done = ranks.run(call, |_rank| {
        let directories = directories.clone();
        move |team: &mut Team| -> Result<(Vec<Member>, Vec<Finding>), LoadError> {
            let findings = locks::run(team, &directories)?;
            Ok((team.members().to_vec(), findings))
        }
    });
    if !leads {
        return done.map(|_done| Exit::Ok).or_else(|error| failure(&error));
    }
    let none = (Vec::new(), Vec::new());
    let (members, findings) = done.as_ref().unwrap_or(&none);
    let point = |finding: &Finding| point(started_unix_ms, &directories, finding, members);
    let points = findings.iter().map(point).collect();
    let run = Run {
        kind: Kind::Io,
        started_unix_ms,
        members,
        points,
        wrong_data_count: None,
        error: done.as_ref().err(),
    };
    document::finish(call, run)?;
    if let Err(error) = &done {
        return failure(error);
    }
    for finding in findings {
        page.write(&(locks::line(finding) + "\n"))?;
    }
    let works = |finding: &Finding| finding.seen.verdict() == Verdict::Works;
    Ok(if findings.iter().all(works) { Exit::Ok } else { Exit::GateFailed })
}

fn point(
    started_unix_ms: u64,
    directories: &[String],
    finding: &Finding,
    members: &[Member],
) -> Point {
    let seen = &finding.seen;
    let mut figures = vec![Figure::new("lock_pairs_per_s", seen.pairs_per_s)];
    figures.extend(seen.woken_s.map(|woken_s| Figure::new("woken_after_unlock_s", woken_s)));
    let verdict = match seen.verdict() {
        Verdict::Works => "works",
        Verdict::Refused(_) => "refused",
        Verdict::LocalOnly => "local only",
        Verdict::Broken(_) => "broken",
    };
    Point {
        experiment: format!("locks-{}", finding.kind.name().replace(' ', "-")),
        varied: BTreeMap::from([("other_rank".to_owned(), finding.other as f64)]),
        repeat: 0,
        started_unix_ms,
        command: format!("clearstream io --locks {}", directories.join("@")),
        work: Work::FileLocks(FileLocksWork {
            lock: finding.kind.name().to_owned(),
            path: directories.join("@"),
            verdict: verdict.to_owned(),
            what: seen.verdict().words(),
        }),
        by: document::workers(members, "lock"),
        outcome: PointOutcome::Measured(Box::new(TestOutcome {
            figures,
            ..TestOutcome::default()
        })),
    }
}
