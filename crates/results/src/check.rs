//! What a model checker found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One run of `clearstream check`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckRun {
    /// The model's file.
    pub model: String,
    /// The checks of the run, in order.
    pub checks: Vec<Check>,
}

/// One question and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// What was checked, in words.
    pub checked: String,
    /// The answer.
    pub verdict: CheckVerdict,
    /// Why it does not hold, or why it is undecided.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// States found.
    pub states_count: u64,
    /// Transitions between the explored states.
    pub transitions_count: u64,
    /// States found whose successors were not computed.
    pub queued_count: u64,
    /// Length of the longest of the shortest paths to the states; in a depth-first search, of the
    /// search path.
    pub depth: u64,
    /// Memory that the states took, bytes.
    pub memory_bytes: u64,
    /// Length of the state vector, bytes.
    pub state_bytes: u64,
    /// How long it took, seconds.
    pub duration_s: f64,
    /// Unreachable code; known only after a complete search.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unreachable: Option<UnreachableCode>,
    /// Ranks that searched together.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ranks: Option<RankTraffic>,
    /// The counterexample, initial state first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub run: Vec<RunLine>,
    /// The state of the run from which it repeats forever.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cycle_begins_at: Option<u64>,
    /// Progress of the search over time.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub progress: Vec<CheckProgress>,
}

/// Whether a property holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckVerdict {
    /// Every reachable state was explored, and the property holds.
    Holds,
    /// The property does not hold; a counterexample shows it.
    Violated,
    /// The search ended early, or stored less than the full states.
    Undecided,
}

/// Code of a model that no run reaches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreachableCode {
    /// Deadlocked states.
    pub deadlocks_count: u64,
    /// Transitions that no run takes, one per line.
    pub never_taken: Vec<String>,
    /// States of processes that no run reaches, one per line.
    pub never_reached: Vec<String>,
}

/// Messages between the ranks of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankTraffic {
    /// Number of ranks.
    pub ranks_count: u64,
    /// Messages with states, all ranks.
    pub messages_count: u64,
    /// Bytes of these messages.
    pub sent_bytes: u64,
    /// States explored again because a shorter path to them was found.
    pub looked_at_again_count: u64,
}

/// A state of a run and the step that led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunLine {
    /// The step; the first state has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step: Option<String>,
    /// Processes that took the step, a sender before its receiver.
    #[serde(default)]
    pub movers: Vec<String>,
    /// The state, in words.
    pub state: String,
}

/// Progress of a search at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckProgress {
    /// Time since the search began, seconds.
    pub at_s: f64,
    /// States found.
    pub states_count: u64,
    /// States found that are still to be explored.
    pub queued_count: u64,
    /// Memory that the states take, bytes.
    pub memory_bytes: u64,
    /// Bytes sent between ranks so far, where there are many.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_bytes: Option<u64>,
}
