//! What a check found as a results document, for `clearstream report`.

use std::path::Path;

use checker::{Line, Report, Verdict};
use results::{
    Check, CheckRun, CheckVerdict, Host, RankTraffic, Results, RunKind, RunLine, UnreachableCode,
};

use crate::exit::VerbError;
use crate::runner;
use crate::store;

/// Writes the document; it is there whole or not at all.
pub(super) fn write(
    path: &Path,
    model: &Path,
    started_unix_ms: u64,
    reports: &[Report],
) -> Result<(), VerbError> {
    let results = Results {
        command: std::env::args().collect(),
        hosts: vec![Host::near(topology::host_facts(None))],
        finished_unix_ms: Some(runner::now_unix_ms()),
        check: Some(CheckRun {
            model: model.display().to_string(),
            checks: reports.iter().map(check).collect(),
        }),
        ..Results::begun(RunKind::Check, started_unix_ms)
    };
    store::save(path, &results)
}

fn check(report: &Report) -> Check {
    let Report { what, verdict, progress, .. } = report;
    let mut check = Check {
        checked: what.clone(),
        verdict: CheckVerdict::Holds,
        why: None,
        states_count: progress.states_count,
        transitions_count: progress.transitions_count,
        queued_count: progress.queued_count,
        depth: u64::from(progress.depth),
        memory_bytes: progress.memory_bytes as u64,
        state_bytes: report.state_bytes as u64,
        duration_s: report.elapsed.as_secs_f64(),
        unreachable: report.unreachable.as_ref().map(|code| UnreachableCode {
            deadlocks_count: progress.deadlocks_count,
            never_taken: code.transitions.clone(),
            never_reached: code.states.clone(),
        }),
        ranks: report.ranks.map(|traffic| RankTraffic {
            ranks_count: traffic.ranks_count as u64,
            messages_count: traffic.batches_count,
            sent_bytes: traffic.sent_bytes,
            looked_at_again_count: traffic.again_count,
        }),
        run: Vec::new(),
        cycle_begins_at: None,
        progress: report.over_time.clone(),
    };
    match verdict {
        Verdict::Holds => {}
        Verdict::Undecided(why) => {
            check.verdict = CheckVerdict::Undecided;
            check.why = Some(why.clone());
        }
        Verdict::Violated { why, run, turn } => {
            check.verdict = CheckVerdict::Violated;
            check.why = Some(why.clone());
            check.cycle_begins_at = turn.map(|turn| turn as u64);
            let line = |line: &Line| RunLine {
                step: line.step.clone(),
                movers: line.movers.clone(),
                state: line.state.clone(),
            };
            check.run = run.iter().map(line).collect();
        }
    }
    check
}
