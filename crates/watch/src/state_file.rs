use std::fs::File;
use std::io::Read;
use std::path::Path;

use liveness::states::GatewayState;
use serde::{Deserialize, Serialize};

/// A state file longer than this was not written by this program.
const STATE_BYTES_MAX: u64 = 1 << 20;

/// What a watcher last knew of its gateways, for the one that follows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFile {
    /// Name of the plan.
    pub plan: String,
    /// When it was written, seconds since 1970.
    pub unix_s: u64,
    /// The gateways, in the plan's order.
    pub gateways: Vec<GatewayRecord>,
}

/// A gateway in a state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayRecord {
    /// Its name in the plan.
    pub name: String,
    /// Its state, as events write it.
    pub state: String,
    /// Whether it was in use.
    pub is_used: bool,
}

impl StateFile {
    /// Reads the file that a [`Recorder`](crate::Recorder) of this plan wrote.
    ///
    /// # Errors
    /// It cannot be read, is no state file, or is of another plan. The watcher then begins with all
    /// gateways up.
    pub fn read(path: &Path, plan: &str) -> Result<Self, String> {
        let refused = |why: String| format!("cannot use state file {}: {why}", path.display());
        let file = File::open(path).map_err(|error| refused(error.to_string()))?;
        let mut text = String::new();
        let read = file.take(STATE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| refused(error.to_string()))?;
        let state: Self =
            serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
        if state.plan != plan {
            return Err(refused(format!("it belongs to plan {}", state.plan)));
        }
        Ok(state)
    }

    /// Names of the gateways that were out of use for having failed.
    #[must_use]
    pub fn were_down(&self) -> Vec<String> {
        let is_down = |one: &&GatewayRecord| ["down", "mtu_hole"].contains(&one.state.as_str());
        self.gateways.iter().filter(is_down).map(|one| one.name.clone()).collect()
    }
}

/// A state as events write it.
pub(crate) fn state_word(state: GatewayState) -> String {
    let word = serde_json::to_value(state).ok();
    word.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}
