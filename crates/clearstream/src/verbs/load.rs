//! What `clearstream io` and `clearstream meta` have in common: our own options beside IOR's and
//! mdtest's, starting a job, running as a rank of one, and how it ends.
//!
//! Cut off before clap sees it: the options are read the way IOR and mdtest read them.

pub(crate) mod call;
pub(crate) mod document;
mod gauges;
mod io;
pub(crate) mod joined;
mod launch;
mod meta;
pub(crate) mod page;
mod seat;

use std::ffi::OsString;
use std::process::ExitCode;

use crew::{Job, MpiError};
use file_load::{Limits, LoadError};

use crate::VerbResult;
use crate::exit::{self, Exit, VerbError};
use crate::signals;
use call::Call;
use joined::Edges;

/// The exit code of a job that lost a rank.
const LOST_CODE: u8 = 1;

/// The exit code of a job whose options make no test on its ranks.
const USAGE_CODE: u8 = 2;

/// Whose command line it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// IOR's.
    Io,
    /// mdtest's.
    Meta,
}

impl Kind {
    /// The verb.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Meta => "meta",
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

/// Takes over when the first argument is one of the verbs.
pub(crate) fn intercept(arguments: &[OsString]) -> Option<ExitCode> {
    let (verb, words) = arguments.get(1..)?.split_first()?;
    let kind = [Kind::Io, Kind::Meta].into_iter().find(|kind| verb == kind.name())?;
    Some(exit::code(start(kind, words, false)))
}

/// Runs the verb where it was not cut off before: behind an option of our own.
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
    if let Some(launch) = &call.launch {
        return launch::run(kind, launch, &call);
    }
    // Both before the first thread of MPI.
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
        return dispatch(kind, &call, Ranks::Own, &edges);
    };
    let leads = job.me() == 0;
    let result = dispatch(kind, &call, Ranks::Job(&mut job), &edges);
    // Rank 0 says what there is to say; all must have been said before the job is left.
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

/// Who works.
#[derive(Debug)]
pub(crate) enum Ranks<'a> {
    /// This process: alone, or with threads as ranks.
    Own,
    /// This process as a rank of a job.
    Job(&'a mut Job),
}

impl Ranks<'_> {
    /// Whether this process is rank 0 or all ranks.
    pub(crate) fn leads(&self) -> bool {
        match self {
            Self::Own => true,
            Self::Job(job) => job.me() == 0,
        }
    }

    /// Runs the work of the ranks; `work` makes that of each.
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

/// How a test that was not whole ends: one line.
pub(crate) fn failure(error: &LoadError) -> VerbResult {
    match error {
        LoadError::Usage(line) => Err(VerbError::usage(line)),
        LoadError::Interrupted(number) => Ok(Exit::Signal(*number)),
        other => Err(VerbError::failed(format!("the test is not whole: {other}"))),
    }
}
