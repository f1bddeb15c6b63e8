//! Results documents of checks, for `clearstream report`.

use std::path::Path;

use checker::{Report, TraceState, Verdict};
use results::{
    Check, CheckRun, CheckVerdict, Figure, Host, RankTraffic, Results, RunKind, RunLine,
    SearchWork, TestOutcome, UnreachableCode, Work, figure,
};

use super::show;
use crate::runner;

/// A document without results; `typed` is the command line of the user, if it is not that of this process.
pub(super) fn begun(typed: Option<&[String]>) -> Results {
    Results {
        command: typed.map_or_else(|| std::env::args().collect(), <[String]>::to_vec),
        hosts: vec![Host::near(topology::host_facts(None))],
        ..Results::begun(RunKind::Check, runner::now_unix_ms())
    }
}

/// The findings of a check, with every counterexample.
pub(super) fn found(model: &Path, reports: &[Report]) -> CheckRun {
    let checks = reports.iter().map(check).collect();
    CheckRun { model: model.display().to_string(), checks }
}

/// The work of a check; `checked` names one of several properties.
pub(super) fn work(model: &Path, checked: Option<&str>, ranks_count: usize) -> Work {
    Work::Search(SearchWork {
        model: model.display().to_string(),
        checked: checked.map(str::to_owned),
        ranks_count: ranks_count as u64,
        threads_count: None,
    })
}

/// The figures of one search.
pub(super) fn outcome(report: &Report) -> TestOutcome {
    let Report { progress, elapsed, .. } = report;
    let duration_s = elapsed.as_secs_f64();
    let states_count = progress.states_count as f64;
    let mut figures = vec![
        Figure::new("states_count", states_count),
        Figure::new("transitions_count", progress.transitions_count as f64),
        Figure::new("memory_bytes", progress.memory_bytes as f64),
    ];
    if duration_s > 0.0 {
        figures.push(Figure::new(figure::STATES_PER_S, states_count / duration_s));
    }
    if let Some(traffic) = report.ranks.as_ref().filter(|traffic| traffic.has_messages) {
        figures.push(Figure::new("messages_count", traffic.batches_count as f64));
        figures.push(Figure::new("sent_bytes", traffic.sent_bytes as f64));
    }
    TestOutcome { duration_s, figures, ..TestOutcome::default() }
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
        Verdict::Violated { why, run, cycle_start } => {
            check.verdict = CheckVerdict::Violated;
            check.why = Some(show::reason(why).to_owned());
            check.cycle_begins_at = cycle_start.map(|start| start as u64);
            let line = |line: &TraceState| RunLine {
                step: line.step.clone(),
                movers: line.movers.clone(),
                state: line.state.clone(),
            };
            check.run = run.iter().map(line).collect();
        }
    }
    check
}
