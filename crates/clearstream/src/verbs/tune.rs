//! `clearstream tune`: what to change on a host, and taking it back.

mod cc;

use crate::VerbResult;

/// Options of `tune`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clearstream tune cc htcp")]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Congestion controls as BPF programs, and one against the other.
    Cc(cc::CcArgs),
}

/// Runs the verb.
pub(crate) fn run(args: &TuneArgs, json: bool) -> VerbResult {
    match &args.action {
        Action::Cc(args) => cc::run(args, json),
    }
}
