//! Common parts of `clearstream io` and `clearstream meta`: our own options beside IOR's and mdtest's,
//! starting a job, running as one of its ranks, and its end.
//!
//! Intercepted before clap, because the options are parsed the way IOR and mdtest parse them.

mod apart;
pub(crate) mod call;
mod connections;
pub(crate) mod document;
mod gauges;
mod io;
pub(crate) mod joined;
mod launch;
mod meta;
pub(crate) mod page;
mod seat;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use compare::GatedVerb;
use crew::{Job, MpiError};
use file_load::{Limits, LoadError};
use results::GateResult;

use crate::VerbResult;
use crate::exit::{self, Exit, VerbError};
use crate::gates;
use crate::out;
use crate::signals;
use crate::store;
use apart::Outcome;
use call::Call;
use joined::Edges;

/// Exit code of a job that lost a rank.
const LOST_CODE: u8 = 1;

/// Exit code of a job whose options describe no possible test on its ranks.
const USAGE_CODE: u8 = 2;

/// The program whose command line is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// IOR.
    Io,
    /// mdtest.
    Meta,
}

impl Kind {
    /// Name of the verb.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Meta => "meta",
        }
    }

    /// The kind of figures that gates can refer to.
    pub(crate) fn gated(self) -> GatedVerb {
        match self {
            Self::Io => GatedVerb::Io,
            Self::Meta => GatedVerb::Meta,
        }
    }
}

/// Options of `io` and `meta`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct LoadArgs {
    /// The options of IOR or mdtest; `clearstream io --help` and `clearstream meta --help` list them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

/// Runs a verb of this module if it is the first argument.
pub(crate) fn intercept(arguments: &[OsString]) -> Option<ExitCode> {
    let (verb, words) = arguments.get(1..)?.split_first()?;
    let kind = [Kind::Io, Kind::Meta].into_iter().find(|kind| verb == kind.name())?;
    Some(exit::code(start(kind, words, false)))
}

/// Runs the verb if it was not intercepted: when an option of our own precedes it.
pub(crate) fn run(kind: Kind, args: &LoadArgs, json: bool) -> VerbResult {
    start(kind, &args.options, json)
}

fn start(kind: Kind, words: &[OsString], json: bool) -> VerbResult {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut call = Call::parse(&words).map_err(VerbError::usage)?;
    call.is_json |= json;
    if call.is_help {
        return call::help(kind);
    }
    // Checked before any rank starts its work.
    call.gates.gates(kind.gated())?;
    if call.locks.is_some() && !call.gates.is_empty() {
        return Err(VerbError::usage("--locks measures no figure that a gate could judge"));
    }
    // Rank 0 writes it, on the first of the hosts.
    if call.launch.as_ref().is_none_or(|launch| launch.hosts.is_empty()) && seat::own_rank() == 0 {
        store::check_outputs([call.output.as_deref()])?;
    }
    if let Some(launch) = &call.launch {
        return launch::run(kind, launch, &call);
    }
    if call.outcome.is_none() && crew::launched_by().is_none() {
        return apart::run(kind, &call, &words, json);
    }
    let outcome = call.outcome.map(Outcome::open).transpose()?;
    // Both must happen before MPI starts its first thread.
    let edges = match &call.gateways {
        Some(gateways) if seat::own_rank() == 0 => {
            Edges::open(gateways, call.seats.as_ref().map(|seats| seats.lab.as_str()))?
        }
        _none => Edges::default(),
    };
    call.seats.as_ref().map_or(Ok(()), seat::Seats::take)?;
    let job = Job::of_launcher(LOST_CODE).map_err(|error| match error {
        MpiError::NoLibrary { .. } => VerbError::missing(error),
        _ => VerbError::from_error(&error),
    })?;
    let Some(mut job) = job else {
        let result = dispatch(kind, &call, Ranks::Own, &edges);
        return match outcome {
            Some(outcome) => outcome.tell(result),
            None => result,
        };
    };
    let leads = job.me() == 0;
    let result = dispatch(kind, &call, Ranks::Job(&mut job), &edges);
    // Rank 0 prints the errors; all ranks must have printed before they leave the job.
    let code = match result {
        Err(_) if !leads => 0,
        result => exit::settle(result),
    };
    job.leave(code, || signals::caught().is_some());
    Ok(Exit::Program(code))
}

fn dispatch(kind: Kind, call: &Call, ranks: Ranks<'_>, edges: &Edges) -> VerbResult {
    match kind {
        Kind::Io => io::run(call, ranks, edges),
        Kind::Meta => meta::run(call, ranks, edges),
    }
}

/// The ranks that this process runs.
#[derive(Debug)]
pub(crate) enum Ranks<'a> {
    /// This process: alone, or with threads as ranks.
    Own,
    /// This process as a rank of a job.
    Job(&'a mut Job),
}

impl Ranks<'_> {
    /// Whether this process has rank 0.
    pub(crate) fn leads(&self) -> bool {
        match self {
            Self::Own => true,
            Self::Job(job) => job.me() == 0,
        }
    }

    /// Runs the ranks' work; `work` creates the work of the given rank.
    pub(crate) fn run<R: Send + 'static, W: file_load::Work<R>>(
        self,
        call: &Call,
        mut work: impl FnMut(usize) -> W,
    ) -> Result<R, LoadError> {
        let limits = Limits { stall: call.stall, signal: signals::caught, usage_code: USAGE_CODE };
        match self {
            Self::Job(job) => {
                let work = work(job.me());
                file_load::run_rank(job, limits, work)
            }
            Self::Own if call.threads > 1 => {
                file_load::run_threads(call.threads, limits, LOST_CODE, work)
            }
            Self::Own => file_load::run_alone(limits, work(0)),
        }
    }
}

/// Refuses options of IOR or mdtest; where there is no such option, with the way to those that there are.
pub(crate) fn wrong_options(kind: Kind, why: String) -> VerbError {
    let is_unknown = why.contains("there is no option");
    let refused = VerbError::usage(why);
    match is_unknown {
        true => refused.and(&format!("; `clearstream {} --help` lists the options", kind.name())),
        false => refused,
    }
}

/// Reports an incomplete test on one line.
pub(crate) fn failure(error: &LoadError) -> VerbResult {
    match (error, signal_of(error)) {
        (LoadError::Usage(line), _) => Err(VerbError::usage(line)),
        (_, Some(number)) => Ok(Exit::Signal(number)),
        (other, None) => Err(VerbError::failed(format!("the test is incomplete: {other}"))),
    }
}

/// The end of rank 0 of an incomplete test: why, and where its files are. `judged` is what became of its document, which may
/// be among what a full disk does not take.
pub(crate) fn end_incomplete(
    call: &Call,
    error: &LoadError,
    files: &str,
    judged: Result<Vec<GateResult>, VerbError>,
) -> VerbResult {
    let saved = call.output.as_ref().filter(|_path| judged.is_ok());
    // A signal is no error, so what it left is said here.
    if signal_of(error).is_some() {
        let kept = saved.map_or_else(String::new, |path| {
            format!("; {} holds the completed phases", path.display())
        });
        let line = format!("the test is incomplete: {error}{kept}; test files stay at {files}");
        // A closed stderr does not change the exit code.
        writeln!(out::stderr(), "clearstream: {line}").ok();
    }
    let ended = match failure(error) {
        Err(failed) if !matches!(error, LoadError::Usage(_)) => {
            Err(failed.and(&may_be_left(files)))
        }
        other => other,
    };
    match (judged, ended) {
        (Ok(judged), ended) => gates::settle(&judged, ended),
        (Err(unsaved), Err(failed)) => Err(unsaved.after(&failed)),
        (Err(unsaved), Ok(_signal)) => Err(unsaved),
    }
}

/// The end of a line about a test that nobody cleaned up after: where its files are.
fn may_be_left(files: &str) -> String {
    format!("; test files may be left at {files}")
}

/// The same from a command line.
fn may_be_left_by(kind: Kind, call: &Call) -> String {
    let files = match kind {
        Kind::Io => io::files_of(call),
        Kind::Meta => meta::files_of(call),
    };
    files.map_or_else(String::new, |files| may_be_left(&files))
}

/// The signal that ended the test; another rank may have noticed it first.
fn signal_of(error: &LoadError) -> Option<i32> {
    match error {
        LoadError::Interrupted(number) => Some(*number),
        LoadError::Other(_) => signals::caught(),
        _ => None,
    }
}
