//! `clearstream tune`: what to change on a host, changing it, proving it, and taking it back.

mod apply;
mod cc;
mod ends;
mod evidence;
mod measure;
mod plan;
pub(crate) mod profile;
mod show;
mod status;
mod trials;
mod verdict;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use traffic::server::Tuning;
use tuning::{Host, TuneError, Tuner, remote};

use crate::VerbResult;
use crate::exit::{VerbError, chain};
use crate::runner;

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

/// The far end's part, for `serve --allow-tuning`.
pub(crate) fn far_side(state: Option<&Path>) -> Arc<dyn Tuning> {
    Arc::new(FarSide { state: state.map(Path::to_owned), ended: Mutex::new(None) })
}

/// Between two requests the journal is free this long, so that clients who ask and ask do not keep
/// this host's own `tune` out.
const PAUSE_BETWEEN_REQUESTS: Duration = Duration::from_millis(50);

/// Requests of clients, one after the other.
#[derive(Debug)]
struct FarSide {
    state: Option<PathBuf>,
    /// When the last one ended.
    ended: Mutex<Option<Instant>>,
}

impl Tuning for FarSide {
    fn handle(&self, client: IpAddr, request: &serde_json::Value) -> serde_json::Value {
        let answer = match serde_json::from_value(request.clone()) {
            Ok(request) => {
                let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
                let since = ended.map_or(PAUSE_BETWEEN_REQUESTS, |ended| ended.elapsed());
                thread::sleep(PAUSE_BETWEEN_REQUESTS.saturating_sub(since));
                let answer = remote::handle(&tuner(self.state.as_deref(), None), client, &request);
                *ended = Some(Instant::now());
                answer
            }
            Err(error) => remote::Answer::Failed { reason: format!("not understood: {error}") },
        };
        serde_json::to_value(answer).unwrap_or_default()
    }
}

fn tuner(state: Option<&Path>, root: Option<&Path>) -> Tuner {
    let host = root.map_or_else(Host::default, Host::with_root);
    let state = state.map_or_else(default_state, Path::to_owned);
    Tuner::new(host, &state, runner::now_unix_ms())
}

/// The system's place for root, the user's for others. A lab's hosts share the file system and end
/// with the lab, so each has its own in the lab's directory, which goes with it.
fn default_state() -> PathBuf {
    if let Some(lab) = std::env::var_os("CLEARSTREAM_LAB_DIR") {
        let uname = rustix::system::uname();
        let host = uname.nodename().to_string_lossy().into_owned();
        return PathBuf::from(lab).join("tune").join(host);
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/clearstream/tune");
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    // A place that nobody else can have prepared, or one that cannot be: the journal says what to undo.
    let runtime = || sys::private::runtime_folder().map(|folder| folder.path().to_owned());
    base.map(|base| base.join("clearstream"))
        .or_else(|| runtime().ok())
        .unwrap_or_else(|| PathBuf::from("/var/lib/clearstream"))
        .join("tune")
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
