//! `clearstream run`: runs a program on the cores of a placement file.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use results::End;

use crate::VerbResult;
use crate::exit::{VerbError, not_run};
use crate::placement::{check, load};

/// Options of `run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clearstream run --place placement.toml -- iperf3 -c geneva\n  \
    clearstream run --place placement.toml --end far -- iperf3 -s\n\n\
    The program replaces this process: its exit code and its signals are its own. Exit code 126: it\n\
    cannot be executed; 127: there is no such program. Its cores and memory node are set; interrupts\n\
    are left alone."
)]
pub(crate) struct RunArgs {
    /// Placement file, as `clearstream place` writes it.
    #[arg(long, value_name = "FILE")]
    place: PathBuf,
    /// Which end of the placement file this host is.
    #[arg(long, value_enum, default_value = "near")]
    end: EndOption,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum EndOption {
    /// The host that ran `place`.
    Near,
    /// The far host of `place`.
    Far,
}

pub(crate) fn run(args: &RunArgs, _json: bool) -> VerbResult {
    let placement = load(&args.place)?;
    let end = match args.end {
        EndOption::Near => End::Near,
        EndOption::Far => End::Far,
    };
    let placed = placement.end(end);
    let usable = sys::thread::usable_cores().map_err(|error| VerbError::from_error(&error))?;
    check(&args.place, end, placed, &usable)?;
    if !placed.cores.is_empty() {
        sys::thread::pin_current(&placed.cores).map_err(|error| VerbError::from_error(&error))?;
    }
    if let Some(node) = placed.memory_node {
        sys::memory_policy::prefer_node(node).map_err(|error| {
            let line = format!("{}: memory node {node}: {}", args.place.display(), error.source);
            if error.is_privilege() { VerbError::missing(line) } else { VerbError::usage(line) }
        })?;
    }
    let [program, arguments @ ..] = args.program.as_slice() else {
        return Err(VerbError::usage("name a program after --"));
    };
    let error = Command::new(program).args(arguments).exec();
    Ok(not_run(program, &error))
}
