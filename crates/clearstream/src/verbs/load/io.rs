//! `clearstream io`: IOR's command line, tables and JSON.

mod document;
mod locks;

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use file_load::io::engine::{self, TestOutcome};
use file_load::io::json::{self, TestJson};
use file_load::io::layout::{Placement, file_name, file_patterns};
use file_load::io::options::{CommandLine, Format};
use file_load::io::summary::Measured;
use file_load::io::text::{self, Head};
use file_load::output::{Listener, Said, date};
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

/// Version of IOR whose output format is used.
const VERSION: &str = "4.1.0+dev";

/// Rows of completed tests, kept even if the run fails later.
type Rows = Arc<Mutex<Vec<(usize, Measured, Option<Carried>)>>>;

/// Runs the verb, as a rank of a job or alone.
pub(crate) fn run(call: &Call, ranks: Ranks<'_>, edges: &Edges) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    if let Some(directories) = &call.locks {
        return locks::run(call, directories, ranks);
    }
    let (line, warnings) = command_line(call).map_err(|why| wrong_options(Kind::Io, why))?;
    let line = Arc::new(line);
    let leads = ranks.leads();
    let started_unix_ms = runner::now_unix_ms();
    let head = head(call);
    let to = &line.destinations;
    let summary_file = to.summary_file.as_deref().filter(|_| leads);
    let page = Page::open(summary_file, call.is_json)?;
    if leads {
        warnings.iter().for_each(|warning| warn(&warning.0));
        if to.format == Format::Text {
            page.text(&text::head(&head, VERSION));
        }
    }
    let rows = Rows::default();
    let done = ranks.run(call, |_rank| work(call, &line, (leads, &page), (&rows, edges)));
    if !leads {
        return done.map(|_done| Exit::Ok).or_else(|error| failure(&error));
    }
    let rows = std::mem::take(&mut *rows.lock().unwrap_or_else(PoisonError::into_inner));
    let members = done.as_ref().map_or(&[][..], |(members, _)| members);
    let point = |(number, one, carried): &(usize, Measured, Option<Carried>)| {
        let test = (*number, &line.tests[*number]);
        document::point(call, started_unix_ms, test, (one, carried.as_ref()), members)
    };
    let points: Vec<Point> = rows.iter().map(point).collect();
    let crossed = joined::text(&points);
    let is_verified = line.tests.iter().all(|test| test.checks_write || test.checks_read);
    let run = Run {
        kind: Kind::Io,
        started_unix_ms,
        members,
        points,
        wrong_data_count: done.as_ref().ok().filter(|_| is_verified).map(|(_, all)| errors(all)),
        error: done.as_ref().err(),
    };
    let judged = documents::finish(call, run);
    let (members, outcomes) = match done {
        Ok(done) => done,
        Err(error) => return end_incomplete(call, &error, &test_files(&line), judged),
    };
    let judged = judged?;
    if page.is_shown() {
        show_end(&page, &line, (&head, &members), &outcomes, &crossed)?;
    }
    gates::settle(&judged, verdict(errors(&outcomes)))
}

/// Where the tests' files are, each name once, as a shell's patterns.
fn test_files(line: &CommandLine) -> String {
    let mut names: Vec<String> = line.tests.iter().flat_map(file_patterns).collect();
    names.dedup();
    names.join(" ")
}

/// Where a command line's test files are; nothing if it makes no test.
pub(super) fn files_of(call: &Call) -> Option<String> {
    let (line, _warnings) = command_line(call).ok()?;
    call.locks.is_none().then(|| test_files(&line))
}

fn errors(outcomes: &[TestOutcome]) -> u64 {
    outcomes.iter().map(|one| one.errors_count).sum()
}

fn verdict(errors: u64) -> VerbResult {
    if errors > 0 {
        warn(&format!("{errors} transfers read data that differed from what was written"));
        return Ok(Exit::GateFailed);
    }
    Ok(Exit::Ok)
}

type Done = (Vec<Member>, Vec<TestOutcome>);

/// The work of one rank for `io`.
fn work(
    call: &Call,
    line: &Arc<CommandLine>,
    (leads, page): (bool, &Page),
    (rows, edges): (&Rows, &Edges),
) -> impl file_load::Work<Done> + use<> {
    let (line, page, rows, edges) = (line.clone(), page.clone(), rows.clone(), edges.clone());
    let is_joined = call.gateways.is_some();
    move |team: &mut Team| -> Result<Done, LoadError> {
        let is_lead = leads && team.leads();
        if is_joined {
            team.mark_phases();
        }
        if is_lead {
            edges.meet(team.members())?;
        }
        let mut say: Listener = Box::new(move |said| match said {
            _ if !is_lead => {}
            Said::Text(text) => page.text(text),
            Said::Warning(line) => warn(line),
            Said::PhaseBegins => edges.begin(),
            Said::PhaseEnds(name) => edges.end(name),
            Said::Iterated(..) => {}
            Said::Measured(test, one) => {
                let carried = edges.take().pop().map(|(_name, carried)| carried);
                let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
                rows.push((test, one.clone(), carried));
            }
        });
        let outcomes = engine::run(team, &line, &mut say)?;
        Ok((team.members().to_vec(), outcomes))
    }
}

/// Parses IOR's options and its script, if one is named.
fn command_line(
    call: &Call,
) -> Result<(CommandLine, Vec<file_load::io::options::Warning>), String> {
    let mut line = CommandLine::parse(&call.words)?;
    if let Some(path) = line.script.clone() {
        let text = fs::read_to_string(&path).map_err(|error| format!("-f {path}: {error}"))?;
        line.read_script(&text).map_err(|error| format!("-f {path}: {error}"))?;
    }
    line.tests.iter_mut().for_each(|test| test.ring_depth = call.ring_depth);
    let warnings = line.settle()?;
    Ok((line, warnings))
}

fn head(call: &Call) -> Head {
    let system = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    Head {
        began: date(clock::wall_s() as i64),
        command: format!("clearstream io {}", call.words.join(" ")),
        machine: format!("{} {}", text(system.sysname()), text(system.nodename())),
    }
}

/// Prints the end of the output: summaries, distributions, clocks; or all of IOR's JSON.
fn show_end(
    page: &Page,
    line: &CommandLine,
    (head, members): (&Head, &[Member]),
    outcomes: &[TestOutcome],
    crossed: &str,
) -> Result<(), VerbError> {
    let hosts: Vec<String> = members.iter().map(|member| member.host.clone()).collect();
    let place = Placement::of(&hosts);
    let finished = date(clock::wall_s() as i64);
    let text = match line.destinations.format {
        Format::Csv => return Ok(()),
        Format::Json => {
            let platform = platform(&head.machine);
            let document = ior_json(line, (head, &platform), &place, outcomes, &finished);
            let text = serde_json::to_string_pretty(&document);
            text.map_err(|error| VerbError::from_error(&error))? + "\n"
        }
        Format::Text => {
            let mut text = format!("\nSummary of all tests:{}", text::summary_head());
            for (number, (options, outcome)) in line.tests.iter().zip(outcomes).enumerate() {
                let place = place.with(options);
                for (name, summary) in outcome.summaries(options) {
                    text += &text::summary_row(name, (number, options, &place), &summary);
                }
            }
            text.push('\n');
            for outcome in outcomes {
                text.extend(outcome.results.iter().map(text::latency_line));
            }
            text += crossed;
            text += &text::clock_lines(members);
            text + &text::line("Finished", finished)
        }
    };
    Ok(page.write(&text)?)
}

fn ior_json(
    line: &CommandLine,
    (head, platform): (&Head, &str),
    place: &Placement,
    outcomes: &[TestOutcome],
    finished: &str,
) -> serde_json::Value {
    let mut parts = Vec::new();
    for (options, outcome) in line.tests.iter().zip(outcomes) {
        let path = file_name(options, 0, 0);
        let capacity = engine::capacity(&path);
        let (started, summaries) = (date(outcome.started_s), outcome.summaries(options));
        parts.push((place.with(options), path, capacity, started, summaries));
    }
    let mut tests = Vec::new();
    for (number, (place, path, capacity, started, summaries)) in parts.iter().enumerate() {
        let (options, results) = (&line.tests[number], &outcomes[number].results);
        let capacity = *capacity;
        tests.push(TestJson {
            number,
            started,
            options,
            place,
            path,
            capacity,
            platform,
            results,
            summaries,
        });
    }
    json::document(head, VERSION, &tests, finished)
}

/// IOR's name of the platform, `node(Linux)`: the host's name without its number.
fn platform(machine: &str) -> String {
    let (system, node) = machine.split_once(' ').unwrap_or((machine, ""));
    let name = node.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let name = if name.is_empty() { node } else { name };
    format!("{name}({system})")
}
