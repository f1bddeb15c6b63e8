//! `clearstream meta`: mdtest's command line and tables.

mod document;

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use file_load::io::layout::Placement;
use file_load::io::text::clock_lines;
use file_load::meta::engine::{self, MetaOutcome};
use file_load::meta::options::MetaOptions;
use file_load::meta::summary::{Iteration, PHASES};
use file_load::meta::text;
use file_load::output::{Listener, Said, stamp};
use file_load::team::{Member, Team};
use file_load::{LoadError, clock};
use results::{Carried, Point};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::gates;
use crate::runner;
use crate::signals;
use crate::verbs::load::call::Call;
use crate::verbs::load::document::{self as documents, Run};
use crate::verbs::load::joined::{self, Edges};
use crate::verbs::load::page::{Page, warn};
use crate::verbs::load::{Kind, Ranks, end_incomplete, failure, wrong_options};

/// Version of mdtest whose output format is used.
const VERSION: &str = "4.1.0+dev";

/// Completed iterations with their numbers and their phases' counters, kept even if the run fails later.
type Done = Arc<Mutex<Vec<(u32, Iteration, Vec<(&'static str, Carried)>)>>>;

/// Runs the verb, as a rank of a job or alone.
pub(crate) fn run(call: &Call, ranks: Ranks<'_>, edges: &Edges) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    if call.locks.is_some() || call.ring_depth > 0 {
        return Err(VerbError::usage("--locks and --uring are options of io"));
    }
    let options = MetaOptions::parse(&call.words);
    let options = Arc::new(options.map_err(|why| wrong_options(Kind::Meta, why))?);
    let leads = ranks.leads();
    let started_unix_ms = runner::now_unix_ms();
    let page = Page::open(None, call.is_json)?;
    if leads {
        if options.reads && options.read_bytes == 0 {
            warn("Read bytes is 0, thus, a read test will actually just open/close");
        }
        if let Some(path) = &options.ranks_file {
            sys::private::create(Path::new(path))
                .and_then(|mut file| file.write_all(text::ranks_head().as_bytes()))
                .map_err(|error| VerbError::failed(format!("{path}: {error}")))?;
        }
    }
    let iterations = Done::default();
    let done = ranks.run(call, |_rank| work(call, &options, (leads, &page), (&iterations, edges)));
    if !leads {
        return done.map(|_done| Exit::Ok).or_else(|error| failure(&error));
    }
    let iterations =
        std::mem::take(&mut *iterations.lock().unwrap_or_else(PoisonError::into_inner));
    let members = done.as_ref().map_or(&[][..], |(members, _)| members);
    let points: Vec<Point> = iterations
        .iter()
        .flat_map(|(number, one, carried)| {
            document::points(call, started_unix_ms, &options, (*number, one, carried), members)
        })
        .collect();
    let crossed = joined::text(&points);
    let is_verified = options.verifies_reads || options.verifies_writes;
    let wrong_data = done.as_ref().ok().filter(|_| is_verified);
    let run = Run {
        kind: Kind::Meta,
        started_unix_ms,
        members,
        points,
        wrong_data_count: wrong_data.map(|(_, outcome)| outcome.bad_files_count),
        error: done.as_ref().err(),
    };
    let judged = documents::finish(call, run);
    let (members, outcome) = match done {
        Ok(done) => done,
        Err(error) => return end_incomplete(call, &error, &test_files(&options), judged),
    };
    let judged = judged?;
    let mut end = text::end(&stamp(clock::wall_s() as i64));
    let of_run = |run: &engine::TaskRun| {
        PHASES.into_iter().filter_map(|phase| text::latency_line(phase, &run.iterations)).collect()
    };
    end.extend(outcome.runs.iter().map(of_run).collect::<Vec<String>>());
    page.write(&(end + &crossed + &clock_lines(&members)))?;
    gates::settle(&judged, verdict(&outcome))
}

/// Where the test's files and directories are, as a shell's patterns.
fn test_files(options: &MetaOptions) -> String {
    let patterns: Vec<String> = options
        .directories()
        .iter()
        .map(|directory| format!("{}/test-dir.*", directory.trim_end_matches('/')))
        .collect();
    patterns.join(" ")
}

/// Where a command line's test files are; nothing if it makes no test.
pub(super) fn files_of(call: &Call) -> Option<String> {
    MetaOptions::parse(&call.words).ok().map(|options| test_files(&options))
}

fn verdict(outcome: &MetaOutcome) -> VerbResult {
    let (bad, failed) = (outcome.bad_files_count, outcome.failed_calls_count);
    if bad > 0 {
        warn(&format!("{bad} files held data that differed from what was written"));
    }
    if failed > 0 {
        warn(&format!("{failed} calls failed: the rates count them as done"));
    }
    Ok(if bad > 0 || failed > 0 { Exit::GateFailed } else { Exit::Ok })
}

/// The work of one rank for `meta`.
fn work(
    call: &Call,
    options: &Arc<MetaOptions>,
    (leads, page): (bool, &Page),
    (iterations, edges): (&Done, &Edges),
) -> impl file_load::Work<(Vec<Member>, MetaOutcome)> + use<> {
    let (options, page, iterations) = (options.clone(), page.clone(), iterations.clone());
    let (edges, is_joined) = (edges.clone(), call.gateways.is_some());
    let command = text::quoted("mdtest", &call.words);
    move |team: &mut Team| -> Result<(Vec<Member>, MetaOutcome), LoadError> {
        let is_lead = leads && team.leads();
        if is_joined {
            team.mark_phases();
        }
        if is_lead {
            edges.meet(team.members())?;
            page.text(&head(&command, team.members()));
        }
        let mut say: Listener = Box::new(move |said| match said {
            _ if !is_lead => {}
            Said::Text(text) => page.text(text),
            Said::Warning(line) => warn(line),
            Said::PhaseBegins => edges.begin(),
            Said::PhaseEnds(name) => edges.end(name),
            Said::Measured(..) => {}
            Said::Iterated(_tasks, number, one) => {
                let mut all = iterations.lock().unwrap_or_else(PoisonError::into_inner);
                all.push((number, one.clone(), edges.take()));
            }
        });
        let outcome = engine::run(team, &options, &mut say)?;
        Ok((team.members().to_vec(), outcome))
    }
}

fn head(command: &str, members: &[Member]) -> String {
    let hosts: Vec<String> = members.iter().map(|member| member.host.clone()).collect();
    let place = Placement::of(&hosts);
    let map: Vec<bool> = hosts.iter().map(|host| *host == hosts[0]).collect();
    let started = stamp(clock::wall_s() as i64);
    text::head((&started, VERSION, command), (place.tasks, place.nodes), &map)
}
