//! The tuner of this host: for `tune` itself, and for clients that `serve` permits to tune.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use traffic::server::Tuning;
use tuning::{Host, Tuner, remote};

use crate::runner;

/// Tuning on behalf of clients, for `serve --allow-tuning`.
pub(crate) fn far_side(state: Option<&Path>) -> Arc<dyn Tuning> {
    Arc::new(FarSide { state: state.map(Path::to_owned), ended: Mutex::new(None) })
}

/// Time for which the journal stays unlocked between two requests, so that clients with many requests
/// do not lock out this host's own `tune`.
const PAUSE_BETWEEN_REQUESTS: Duration = Duration::from_millis(50);

/// Serves the requests of clients, one at a time.
#[derive(Debug)]
struct FarSide {
    state: Option<PathBuf>,
    /// End of the last request.
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

/// The tuner of this host; its journal is in `state`, and --persist writes below `root`, each with the
/// system's default if `None`.
pub(crate) fn tuner(state: Option<&Path>, root: Option<&Path>) -> Tuner {
    let host = root.map_or_else(Host::default, Host::with_root);
    let state = state.map_or_else(|| default_state("tune"), Path::to_owned);
    Tuner::new(host, &state, runner::now_unix_ms())
}

/// Tuners of the journals that tell what is in force here: the named one, or this user's and the system's.
pub(crate) fn journals(state: Option<&Path>) -> Vec<Tuner> {
    let own = tuner(state, None);
    let system = Path::new(SYSTEM_STATE).join("tune");
    let is_whole = state.is_some() || is_in_lab() || own.state() == system;
    if is_whole { vec![own] } else { vec![own, tuner(Some(&system), None)] }
}

/// Where the system's journals are.
const SYSTEM_STATE: &str = "/var/lib/clearstream";

fn is_in_lab() -> bool {
    std::env::var_os("CLEARSTREAM_LAB_DIR").is_some()
}

/// Directory of a component's journal: the system's for root, the user's otherwise. Hosts of a lab share
/// the file system, so each has its own one in the lab's directory, which is removed with the lab.
pub(crate) fn default_state(part: &str) -> PathBuf {
    if let Some(lab) = std::env::var_os("CLEARSTREAM_LAB_DIR") {
        let uname = rustix::system::uname();
        let host = uname.nodename().to_string_lossy().into_owned();
        return PathBuf::from(lab).join(part).join(host);
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from(SYSTEM_STATE).join(part);
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    // A directory that no other user can have prepared: the journal says what to undo.
    let runtime = || sys::private::runtime_folder().map(|folder| folder.path().to_owned());
    base.map(|base| base.join("clearstream"))
        .or_else(|| runtime().ok())
        .unwrap_or_else(|| PathBuf::from(SYSTEM_STATE))
        .join(part)
}
