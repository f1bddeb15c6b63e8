//! `clearstream`: measures how fast two Linux hosts can communicate, and says what limits them and what to change.
//!
//! `main` parses the command line, runs one verb and converts its result to an exit code; each verb is a
//! module of [`verbs`], a thin layer over a library crate.

mod bed;
mod catalogue;
mod ending;
mod exit;
mod far;
mod foreign;
mod gates;
mod granted;
mod guest;
mod log;
mod messages_text;
mod negative;
mod out;
mod placement;
mod plans;
mod profiles;
mod progress;
mod rank;
mod runner;
mod signals;
mod store;
mod tables;
mod tester;
mod topics;
mod tuners;
mod typed;
mod verbs;
mod verdict_text;

use std::process::ExitCode;

use clap::{FromArgMatches, Parser};

use crate::exit::{Exit, VerbError};
use crate::verbs::Verb;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "clearstream",
    version,
    about = "How fast two Linux hosts can really talk, why not faster, and what to change",
    after_help = after_help(),
    propagate_version = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
struct CommandLine {
    /// Print machine-readable JSON on stdout instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

/// Text below the list of commands in the help.
fn after_help() -> String {
    format!(
        "Start with:\n  clearstream serve            on the far host (a stock `iperf3 -s` also works)\n  \
         clearstream path HOST        on this host: measure, explain, write the report\n\n{}\n\
         Exit codes: 0 ok, 1 failed, 2 usage, 3 a gate or law failed,\n  \
         4 a privilege or kernel feature is missing, 5 partial, 128+n signal n.",
        topics::list()
    )
}

fn main() -> ExitCode {
    // If this fails, exceeding the file size limit ends the process, as it does other programs.
    sys::signal::survive_file_size_limit().ok();
    out::fit_terminal();
    // clap does not parse the flags of iperf3, IOR and mdtest: their verbs are intercepted before it.
    let arguments = verbs::help::expanded(std::env::args_os().collect());
    if let Some(code) = verbs::iperf3::intercept(&arguments) {
        return code;
    }
    if let Some(code) = verbs::load::intercept(&arguments) {
        return code;
    }
    let matches = negative::matches(&verbs::help::command(), &arguments);
    let line = match matches.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(line) => line,
        Err(error) => return exit::usage(error, &verbs::help::command_of(&arguments)),
    };
    exit::code(verbs::run(&line.verb, line.json))
}

/// The result of every verb.
type VerbResult = Result<Exit, VerbError>;
