//! A gateway that stops forwarding while a client creates files: with watchers at both ends, and without.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use results::{
    Estimate, Figure, FileMetadataWork, LawCheck, PaperFigure, Results, TestOutcome, Work,
};
use sweep::{Plan, PlannedPoint, Setting};
use sys::private::Scratch;
use sys::process::{Ending, Owned};

use super::super::catalogue::Entry;
use super::super::recipes::undecided;
use super::super::{ReproduceArgs, conduct, local, publish};
use super::{Clients, Kind, LAB, NAME, SAID_BYTES_MAX, SEED, ended, wait_unless_told};
use crate::VerbResult;
use crate::exit::VerbError;
use crate::plans::plan_text;
use crate::progress::Progress;
use crate::runner::{self, Done, Driver};
use crate::signals;

/// Most files to create: more than any machine creates in [`CREATES_FOR`], a few thousand a second.
const FILES_COUNT: u64 = 200_000;
/// Duration of the creation: from before the failure until after it.
const CREATES_FOR: Duration = Duration::from_secs(5);
/// The gateway between the client and the metadata server, which fails.
const GATEWAY: &str = "g1";
/// Time before the failure, from the start of the load.
const FAILS_AFTER: Duration = Duration::from_secs(1);
/// Duration of the failure.
const FAILS_FOR: Duration = Duration::from_secs(3);
/// Time for watchers to find their gateways up.
const WATCHERS_SETTLE: Duration = Duration::from_secs(2);
/// Hosts at the ends of all flows of the load.
const ENDS: [&str; 3] = ["c1", "s1", "s2"];
/// Longest acceptable duration of a call on a file, with watchers, seconds.
const STALL_MAX_S: f64 = 1.0;
/// Least stall without watchers that shows that the gateway carried the load, seconds.
const MISSED_MIN_S: f64 = 1.0;
const KEY: &str = "000102030405060708090a0b0c0d0e0f\n";
const WATCHED: &str = "watched_share";
const LONGEST: &str = "longest_call_s";
const FAILED: &str = "failed_calls_count";

/// Runs G-failover.
pub(super) fn run(entry: &'static Entry, args: &ReproduceArgs, json: bool) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let clients = Clients::up(Kind::Metadata, 1)?;
    let scratch = Scratch::new("failover").map_err(|error| VerbError::from_error(&error))?;
    let (plan, key) = (scratch.path().join("plan.toml"), scratch.path().join("key"));
    fs::write(&plan, plan_text(LAB.as_ref())?)?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key)?;
    file.write_all(KEY.as_bytes())?;
    let mut driver = Failover { clients, plan, key };
    let work = FileMetadataWork {
        phase: "File creation".to_owned(),
        path: "/mnt/pfs".to_owned(),
        ranks_count: 1,
        items_count: FILES_COUNT,
        file_bytes: 0,
        options: Some([("stonewall_s".to_owned(), CREATES_FOR.as_secs().into())].into()),
    };
    let setting = |watched| {
        Setting::new(entry.id, Work::FileMetadata(work.clone())).varying(WATCHED, watched)
    };
    let settings = vec![setting(0.0), setting(1.0)];
    let plan = Plan::new(settings, args.repeats, SEED);
    let conducted = conduct(entry, &plan, &mut driver, local::document(), Progress::new(0), args);
    drop(driver);
    publish(entry, conducted, |results| judged(entry, results), args, json)
}

struct Failover {
    clients: Clients,
    plan: PathBuf,
    key: PathBuf,
}

impl Failover {
    /// Starts a watcher on each end; dropping the values ends them.
    fn watchers(&self) -> Result<Vec<Owned>, VerbError> {
        let watch = |host: &&str| -> Result<Owned, VerbError> {
            let mut command = self.clients.bed.clearstream(host);
            command.args(["gateway", "watch"]).arg(&self.plan).args(["--host", host]);
            command.arg("--key-file").arg(&self.key);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            Ok(Owned::start(&mut command, Ending::KILL)?.capture(SAID_BYTES_MAX)?)
        };
        let watchers = ENDS.iter().map(watch).collect::<Result<Vec<_>, _>>()?;
        thread::sleep(WATCHERS_SETTLE);
        Ok(watchers)
    }

    fn set_forwarding(&self, forwards: bool) -> Result<(), VerbError> {
        let value = format!("net.ipv4.ip_forward={}", u8::from(forwards));
        let mut command: Command = self.clients.bed.command(GATEWAY);
        command.args(["sysctl", "-qw", &value]);
        let done = ended(command)?;
        if done.status.success() {
            return Ok(());
        }
        Err(VerbError::failed(format!("sysctl on {GATEWAY}: {}", done.last_line())))
    }

    /// Creates files while the gateway fails; returns the load's document.
    fn load(&self) -> Result<Results, VerbError> {
        let [files, seconds] = [FILES_COUNT, CREATES_FOR.as_secs()].map(|count| count.to_string());
        let words =
            ["meta", "--json", "--lab", NAME, "--hosts", "c1", "--", "-F", "-C", "-r", "-u"];
        let mut command = self.clients.program(&words)?;
        command.args(["-n", &files, "-W", &seconds, "-d", "/mnt/pfs/failover"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Owned::start(&mut command, Ending::KILL)?.capture(SAID_BYTES_MAX)?;
        thread::sleep(FAILS_AFTER);
        self.set_forwarding(false)?;
        thread::sleep(FAILS_FOR);
        self.set_forwarding(true)?;
        wait_unless_told(&mut child)?;
        let done = child.ended_within(Duration::ZERO)?;
        results::read_results(&done.stdout)
            .map_err(|_cut| VerbError::failed(format!("meta: {}", done.last_line())))
    }
}

impl Driver for Failover {
    fn run(
        &mut self,
        planned: &PlannedPoint,
        _what: &str,
        _progress: &mut Progress,
    ) -> Result<Done, VerbError> {
        let started_unix_ms = runner::now_unix_ms();
        let is_watched = planned.varied.get(WATCHED) == Some(&1.0);
        let watchers = if is_watched { self.watchers()? } else { Vec::new() };
        let told = self.load();
        for mut watcher in watchers {
            watcher.end()?;
        }
        let told = match told {
            Ok(told) => told,
            Err(error) => return Ok(Done::failed(planned, started_unix_ms, error)),
        };
        let created = told.points.iter().find(|point| point.experiment == "file-creation");
        let Some(outcome) = created.and_then(|point| point.measured()) else {
            let error = VerbError::failed("no files were created");
            return Ok(Done::failed(planned, started_unix_ms, error));
        };
        let failed = outcome.figures.iter().find(|figure| figure.name == FAILED);
        let longest = outcome.round_trips.as_ref().map(|calls| Figure::new(LONGEST, calls.max_s));
        let figures = longest.into_iter().chain(failed.cloned()).collect();
        let outcome = TestOutcome {
            figures,
            duration_s: outcome.duration_s,
            round_trips: outcome.round_trips.clone(),
            ..TestOutcome::default()
        };
        Ok(Done::measured(planned, started_unix_ms, outcome))
    }
}

fn judged(entry: &Entry, results: &Results) -> (Vec<PaperFigure>, LawCheck) {
    let of = |watched: f64, figure: &str| -> Option<Estimate> {
        let mut all = results.summaries.iter();
        let found = all.find(|summary| {
            summary.figure == figure && summary.varied.get(WATCHED) == Some(&watched)
        });
        found.map(|summary| summary.estimate)
    };
    let row = |name: &str, watched| PaperFigure {
        name: format!("longest call, {name}"),
        paper: "-".to_owned(),
        here: of(watched, LONGEST).map(|here| here.text(|seconds| format!("{seconds:.2} s"))),
    };
    let rows = vec![row("not watched", 0.0), row("watched at both ends", 1.0)];
    let longest = of(0.0, LONGEST).zip(of(1.0, LONGEST));
    let failed = of(1.0, FAILED).map_or(0.0, |failed| failed.high);
    let law = match longest {
        None => undecided(entry.law, "only one of the two cases was measured"),
        Some((unwatched, _)) if unwatched.low < MISSED_MIN_S => {
            undecided(entry.law, "a run without watchers did not miss the gateway")
        }
        Some((unwatched, watched)) => {
            let judged = format!(
                "{GATEWAY} forwards nothing for {} s: the longest call takes {:.2} s at most where watchers move the \
                 routes, {:.2} s where they do not; {failed:.0} calls fail",
                FAILS_FOR.as_secs(),
                watched.high,
                unwatched.high
            );
            let holds = Some(watched.high <= STALL_MAX_S && failed == 0.0);
            LawCheck { law: entry.law.to_owned(), holds, judged }
        }
    };
    (rows, law)
}

#[cfg(test)]
mod tests {
    use results::{RunKind, Summary};

    use super::*;
    use crate::verbs::reproduce::catalogue;

    #[test]
    fn the_longest_call_decides_where_the_gateway_was_missed() {
        let entry = catalogue::find("G-failover").expect("an entry");
        let judge = |unwatched: f64, watched: f64| {
            let mut results = Results::begun(RunKind::Reproduce, 0);
            for (share, longest) in [(0.0, unwatched), (1.0, watched)] {
                results.summaries.push(Summary {
                    experiment: entry.id.to_owned(),
                    varied: [(WATCHED.to_owned(), share)].into(),
                    figure: LONGEST.to_owned(),
                    estimate: Estimate::of(&[longest]).expect("finite"),
                });
            }
            judged(entry, &results).1.holds
        };
        assert_eq!(judge(3.4, 0.3), Some(true));
        assert_eq!(judge(3.4, 1.2), Some(false));
        assert_eq!(judge(0.2, 0.2), None);
    }
}
