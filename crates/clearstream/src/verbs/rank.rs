//! `clearstream rank`: a rank of an MPI job that measures messages as the Intel MPI Benchmarks do, and what moves receive
//! work between cores meanwhile.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Duration;

use mpi::{MpiError, World, launched_by};
use sys::perf::CacheCounters;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::rank::{Pattern, take_part};
use crate::verbs::options::{Cores, cores, duration};

/// Options of `rank`.
#[derive(Debug, clap::Args)]
pub(crate) struct RankArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Rank 0 and rank 1 send a message back and forth.
    PingPong(MeasureArgs),
    /// Every rank sends a message to every rank.
    AllToAll(MeasureArgs),
    /// Rank 0 sends 64 messages at once to rank 1, which answers when it has all.
    Stream(MeasureArgs),
    /// Writes the masks of these cores into files, one after the other, until it is ended.
    Scatter(ScatterArgs),
}

#[derive(Debug, clap::Args)]
struct MeasureArgs {
    /// Length of a message.
    #[arg(long, value_name = "N", default_value_t = 0)]
    bytes: usize,
    /// Time to measure.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    time: Duration,
    /// Count cache misses on these cores.
    #[arg(long, value_name = "CORES", value_parser = cores)]
    count_misses: Option<Cores>,
}

#[derive(Debug, clap::Args)]
struct ScatterArgs {
    #[arg(long, value_name = "MASK", required = true, value_delimiter = ';')]
    masks: Vec<String>,
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = duration)]
    every: Duration,
    /// Files that take a mask of cores.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &RankArgs, _json: bool) -> VerbResult {
    match &args.action {
        Action::PingPong(measure) => rank(Pattern::PingPong, measure),
        Action::AllToAll(measure) => rank(Pattern::AllToAll, measure),
        Action::Stream(measure) if measure.bytes == 0 => {
            Err(VerbError::usage("`rank stream` sends messages of at least one byte: --bytes N"))
        }
        Action::Stream(measure) => rank(Pattern::Stream, measure),
        Action::Scatter(scatter) => self::scatter(scatter),
    }
}

/// Writes each mask in turn. Ends when it is ended, or a file takes no mask.
fn scatter(args: &ScatterArgs) -> VerbResult {
    let open = |path: &PathBuf| File::options().write(true).open(path);
    let mut files = args.files.iter().map(open).collect::<Result<Vec<File>, _>>()?;
    for mask in args.masks.iter().cycle() {
        for file in &mut files {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(mask.as_bytes())?;
        }
        std::thread::sleep(args.every);
    }
    Ok(Exit::Ok)
}

fn rank(pattern: Pattern, args: &MeasureArgs) -> VerbResult {
    let flavour = launched_by().ok_or_else(|| {
        VerbError::usage("this is a rank of an MPI job: start it by its launcher")
    })?;
    let counters = args.count_misses.as_ref().map(|Cores(cores)| CacheCounters::open(cores));
    let counters = counters.transpose().map_err(|error| {
        VerbError::missing(format!(
            "cache misses cannot be counted: {}",
            crate::exit::chain(&error)
        ))
    })?;
    let failed = |error: MpiError| VerbError::from_error(&error);
    let mut world = World::open(flavour).map_err(failed)?;
    let told = match take_part(&mut world, pattern, (args.bytes, args.time), counters.as_ref()) {
        Ok(told) => told,
        Err(error) => {
            writeln!(crate::out::stderr(), "clearstream: rank {}: {error}", world.rank())?;
            world.abort(1);
        }
    };
    if let Some(told) = told {
        let line = serde_json::to_string(&told).map_err(|error| VerbError::from_error(&error))?;
        writeln!(crate::out::stdout(), "{line}")?;
    }
    world.finish(0).map_err(failed)?;
    Ok(Exit::Ok)
}
