//! `clearstream tune`: recommends changes to a host, makes them, measures their effect, and reverts them.

mod apply;
mod cc;
mod ends;
mod evidence;
mod left;
mod measure;
mod plan;
mod profile;
mod show;
mod status;
mod trials;
mod verdict;

use std::path::PathBuf;

use tuning::{TuneError, Tuner};

use crate::VerbResult;
use crate::exit::{VerbError, chain};
use crate::tuners::tuner;

/// Options of `tune`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream tune plan geneva                  what to change at both ends, and why\n  \
    clearstream tune apply geneva --measure       apply, and keep what helps beyond the noise\n  \
    clearstream tune apply --from results.json    apply the advice of a verdict of `path`\n  \
    clearstream tune status\n  \
    clearstream tune revert\n  \
    clearstream tune profile compare cumulus-2018\n  \
    clearstream tune cc htcp\n\n\
    Every change is journalled on disk before it is made; `revert` restores exactly what was there,\n\
    even after a crash or a reboot. Changes are lost at a reboot unless --persist was given. The far\n\
    host is changed too where `clearstream serve --allow-tuning --allow NETWORK` runs;\n\
    settings that its local users or other clients have changed are left alone.")]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the changes that the evidence justifies, with their reasons; changes nothing.
    Plan(plan::PlanArgs),
    /// Apply changes, with a journal; with --measure keep only those that help.
    Apply(apply::ApplyArgs),
    /// Show the changes in force and what others have changed since.
    Status(status::StatusArgs),
    /// Revert changes exactly.
    #[command(alias = "undo")]
    Revert(status::RevertArgs),
    /// Compare published lists of settings with the running kernel.
    Profile(profile::ProfileArgs),
    /// Print every setting this program can change, and its value.
    Dump(status::DumpArgs),
    /// Make persisted changes again at boot.
    #[command(hide = true)]
    Boot(status::BootArgs),
    /// Congestion controls as BPF programs, and comparisons of them.
    Cc(cc::CcArgs),
}

/// Where the journal is.
#[derive(Debug, Clone, clap::Args)]
struct StateOptions {
    /// Where the journal is kept [default: /var/lib/clearstream/tune; in a lab, its own place].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Root of the files that --persist writes [default: /].
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

impl StateOptions {
    fn tuner(&self) -> Tuner {
        tuner(self.state.as_deref(), self.root.as_deref())
    }
}

pub(crate) fn run(args: &TuneArgs, json: bool) -> VerbResult {
    match &args.action {
        Action::Plan(args) => plan::run(args, json),
        Action::Apply(args) => apply::run(args, json),
        Action::Status(args) => status::run(args, json),
        Action::Revert(args) => status::revert(args, json),
        Action::Profile(args) => profile::run(args, json),
        Action::Dump(args) => status::dump(args, json),
        Action::Boot(args) => status::boot(args),
        Action::Cc(args) => cc::run(args, json),
    }
}

/// Converts a tuning error into one with an exit code.
fn explain(error: &TuneError) -> VerbError {
    let line = chain(error);
    let is_privilege = match error {
        TuneError::Store(error) => error.is_privilege(),
        TuneError::World(error) => matches!(error, tuning::WorldError::Denied { .. }),
        _ => false,
    };
    if is_privilege { VerbError::missing(line) } else { VerbError::failed(line) }
}
