//! `clearstream tune`: what to change on a host, changing it, proving it, and taking it back.

mod apply;
mod cc;
mod ends;
mod evidence;
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
    clearstream tune plan geneva                  what to change here and there, and why\n  \
    clearstream tune apply geneva --measure       change it, keep what helps beyond the noise\n  \
    clearstream tune apply --from results.json    carry out the verdict of `path`, measured\n  \
    clearstream tune status\n  \
    clearstream tune revert\n  \
    clearstream tune profile compare cumulus-2018\n  \
    clearstream tune cc htcp\n\n\
    Every change is journalled on disk before it is made; `revert` restores exactly what was there,\n\
    also after a crash and after a reboot. Changes are gone after a reboot unless --persist was given.\n\
    The far host is changed too where `clearstream serve --allow-tuning --allow NETWORK` runs;\n\
    settings that its local users or other clients have changed are left alone.")]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the changes the evidence asks for, with their reasons; changes nothing.
    Plan(plan::PlanArgs),
    /// Make changes, journalled; with --measure keep only what helps.
    Apply(apply::ApplyArgs),
    /// Show the changes that are in force, and what somebody else changed since.
    Status(status::StatusArgs),
    /// Take changes back, exactly.
    Revert(status::RevertArgs),
    /// Published lists of settings, compared with the running kernel.
    Profile(profile::ProfileArgs),
    /// Print every setting this program can change, and its value.
    Dump(status::DumpArgs),
    /// Make persisted changes again at boot.
    #[command(hide = true)]
    Boot(status::BootArgs),
    /// Congestion controls as BPF programs, and one against the other.
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

/// Runs the verb.
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

/// A tuning error with the exit code it stands for.
fn explain(error: &TuneError) -> VerbError {
    let line = chain(error);
    let is_privilege = match error {
        TuneError::Store(error) => error.is_privilege(),
        TuneError::World(error) => matches!(error, tuning::WorldError::Denied { .. }),
        _ => false,
    };
    if is_privilege { VerbError::missing(line) } else { VerbError::failed(line) }
}
