//! The messages of an MPI job while it runs: what each rank reported since the line before (`mpi --live`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use crew::{MessagesLimit, RankMessages, judge_messages};
use serde::Serialize;

use super::{json, now_unix_ms, print, sleep_until};
use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::{messages_text, signals};

/// Ranks write each second. One from which nothing came for so long makes no call of MPI, or does not run.
const SILENT: Duration = Duration::from_millis(2500);
/// A report of a rank that knows 20 000 others is shorter.
const REPORT_BYTES_MAX: u64 = 4 << 20;

/// A rank's latest report.
#[derive(Debug)]
struct Rank {
    latest: RankMessages,
    /// What came with it; `None` while there is but one report.
    between: Option<RankMessages>,
    came: Instant,
}

/// A line of `--json`: `{"event":"messages", "schema", "unix_ms", "elapsed_s", "ranks", "limit"}`. An entry of `ranks`
/// has the figures of a rank's report (docs/mpi.md) since the one before, and `silent_s`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    event: &'static str,
    schema: &'static str,
    unix_ms: u64,
    elapsed_s: f64,
    ranks: Vec<Entry<'a>>,
    limit: Option<MessagesLimit>,
}

#[derive(Debug, Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    between: &'a RankMessages,
    /// Seconds since its last report; 0 while it writes each second.
    silent_s: f64,
}

/// Shows the ranks that report in `folder` until they have ended, so many lines were shown, or a signal came.
pub(super) fn follow(
    folder: &Path,
    interval: Duration,
    count: Option<u64>,
    is_json: bool,
) -> VerbResult {
    let started = Instant::now();
    let mut ranks: BTreeMap<OsString, Rank> = BTreeMap::new();
    let mut shown_count = 0;
    let mut was_seen = false;
    while count.is_none_or(|count| shown_count < count) {
        let reports = read(folder).map_err(|error| VerbError::unreadable(folder, &error))?;
        match (was_seen, reports.is_empty()) {
            (true, true) => break,
            (false, true) if started.elapsed() < interval => {
                // Informational: a closed stderr does not end the view.
                let name = folder.display();
                writeln!(crate::out::stderr(), "clearstream: no rank reports in {name} yet").ok();
            }
            _ => {}
        }
        was_seen |= !reports.is_empty();
        handle_reports(&mut ranks, reports, Instant::now());
        let told = between(&ranks, Instant::now());
        if !told.is_empty() {
            let elapsed_s = started.elapsed().as_secs_f64();
            print(&if is_json { line(&told, elapsed_s)? } else { text(&told, elapsed_s) })?;
            shown_count += 1;
        }
        if !sleep_until(Instant::now() + interval) {
            break;
        }
    }
    Ok(Exit::of_run(count.is_some(), signals::caught()))
}

/// The reports in a folder, by file name. What is none is passed over: a file may be replaced, or not be ours.
fn read(folder: &Path) -> io::Result<BTreeMap<OsString, RankMessages>> {
    let mut reports = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let is_small =
            entry.metadata().is_ok_and(|it| it.is_file() && it.len() <= REPORT_BYTES_MAX);
        // The next version of a file begins with a point.
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_small || is_hidden || path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let Ok(bytes) = fs::read(&path) else { continue };
        let report = serde_json::from_slice::<RankMessages>(&bytes).ok();
        if let Some(report) = report.filter(|report| report.kind == RankMessages::KIND) {
            reports.insert(entry.file_name(), report);
        }
    }
    Ok(reports)
}

fn handle_reports(
    ranks: &mut BTreeMap<OsString, Rank>,
    reports: BTreeMap<OsString, RankMessages>,
    now: Instant,
) {
    ranks.retain(|name, _| reports.contains_key(name));
    for (name, report) in reports {
        match ranks.get_mut(&name) {
            Some(rank) if rank.latest.ran_ns == report.ran_ns => {}
            Some(rank) => {
                let between = Some(report.since(&rank.latest));
                *rank = Rank { latest: report, between, came: now };
            }
            None => {
                ranks.insert(name, Rank { latest: report, between: None, came: now });
            }
        }
    }
}

/// What each rank did between its last two reports, and for how long it has been silent since; sorted by rank. One that is
/// silent for long did nothing that is known.
fn between(ranks: &BTreeMap<OsString, Rank>, now: Instant) -> Vec<(RankMessages, Duration)> {
    let told = ranks.values().filter_map(|rank| {
        let silent = now.saturating_duration_since(rank.came);
        match silent < SILENT {
            true => Some((rank.between.clone()?, Duration::ZERO)),
            false => Some((rank.latest.since(&rank.latest), silent)),
        }
    });
    let mut told: Vec<(RankMessages, Duration)> = told.collect();
    told.sort_by(|(a, _), (b, _)| {
        (a.rank, &a.host, &a.address).cmp(&(b.rank, &b.host, &b.address))
    });
    told
}

fn line(told: &[(RankMessages, Duration)], elapsed_s: f64) -> Result<String, VerbError> {
    let ranks = told.iter();
    let line = Line {
        event: "messages",
        schema: json::SCHEMA,
        unix_ms: now_unix_ms(),
        elapsed_s,
        ranks: ranks
            .map(|(between, silent)| Entry { between, silent_s: silent.as_secs_f64() })
            .collect(),
        limit: judge_messages(&figures(told)),
    };
    let text = serde_json::to_string(&line).map_err(|error| VerbError::from_error(&error))?;
    Ok(text + "\n")
}

fn figures(told: &[(RankMessages, Duration)]) -> Vec<RankMessages> {
    told.iter().map(|(between, _)| between.clone()).collect()
}

fn text(told: &[(RankMessages, Duration)], elapsed_s: f64) -> String {
    let ranks = figures(told);
    let mut out = format!("{elapsed_s:.1} s: {}\n", messages_text::heading(&ranks));
    // Writing to a String cannot fail.
    messages_text::table(&mut out, &ranks).ok();
    for (rank, silent) in told.iter().filter(|(_, silent)| !silent.is_zero()) {
        let (name, silent_s) = (messages_text::name(rank), silent.as_secs());
        writeln!(out, "{name} has made no MPI call for {silent_s} s, or is not running").ok();
    }
    if let Some(limit) = judge_messages(&ranks) {
        messages_text::verdict(&mut out, limit, &ranks).ok();
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rank: u32, ran_ns: u64) -> (OsString, RankMessages) {
        let name = format!("h.{rank}.7.json").into();
        let kind = RankMessages::KIND.to_owned();
        (name, RankMessages { kind, rank: Some(rank), ran_ns, ..RankMessages::default() })
    }

    #[test]
    fn a_rank_is_told_from_its_second_report_on_and_silent_after_a_while() {
        let (mut ranks, began) = (BTreeMap::new(), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        handle_reports(&mut ranks, [report(1, 5), report(0, 5)].into(), at(0));
        assert_eq!(between(&ranks, at(0)), []);
        handle_reports(&mut ranks, [report(1, 9), report(0, 5)].into(), at(1000));
        let told = between(&ranks, at(1000));
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].0.rank, told[0].0.ran_ns, told[0].1), (Some(1), 4, Duration::ZERO));
        // The same reports again: rank 0 has been silent since the beginning.
        handle_reports(&mut ranks, [report(1, 9), report(0, 5)].into(), at(3000));
        let told = between(&ranks, at(3000));
        assert_eq!((told[0].0.rank, told[0].0.ran_ns, told[0].1.as_secs()), (Some(0), 0, 3));
        assert_eq!((told[1].0.rank, told[1].0.ran_ns), (Some(1), 4));
        // One that ended has taken its file along.
        handle_reports(&mut ranks, [report(1, 12)].into(), at(4000));
        assert_eq!(between(&ranks, at(4000)).len(), 1);
    }

    #[test]
    fn what_is_no_report_is_passed_over() {
        let folder = sys::private::Scratch::new("live-messages").expect("a folder");
        let write =
            |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        write("h.1.7.json", "{\"kind\":\"messages_of_a_rank\",\"rank\":3,\"ran_ns\":8}");
        write(".h.2.7.json", "{\"kind\":\"messages_of_a_rank\",\"rank\":2}");
        write("h.3.7.json", "{\"kind\":\"messages_of_a_r");
        write("other.json", "{\"kind\":\"else\"}");
        write("h.4.7.txt", "{\"kind\":\"messages_of_a_rank\"}");
        fs::create_dir(folder.path().join("d.json")).expect("made");
        let reports = read(folder.path()).expect("a folder");
        assert_eq!(reports.values().map(|report| report.rank).collect::<Vec<_>>(), [Some(3)]);
    }
}
