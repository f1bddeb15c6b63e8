//! What a model checker found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One run of `clearstream check`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckRun {
    /// The model's file.
    pub model: String,
    /// What was asked of it, in order.
    pub checks: Vec<Check>,
}

/// One question and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// What was checked, in words.
    pub checked: String,
    /// The answer.
    pub verdict: CheckVerdict,
    /// Why it does not hold, or why it is not decided.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// States found.
    pub states_count: u64,
    /// Steps between the states looked at.
    pub transitions_count: u64,
    /// Of the states, those whose steps were not looked at.
    pub queued_count: u64,
    /// Length of the longest shortest way to a state; of the path, in a search in depth.
    pub depth: u64,
    /// Memory that the states took, bytes.
    pub memory_bytes: u64,
    /// Length of a state, bytes.
    pub state_bytes: u64,
    /// How long it took, seconds.
    pub duration_s: f64,
    /// Known after a whole search only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unreachable: Option<UnreachableCode>,
    /// Ranks that searched together.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ranks: Option<RankTraffic>,
    /// The run that shows a violation, first state first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub run: Vec<RunLine>,
    /// From this state of the run on it repeats for ever.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cycle_begins_at: Option<u64>,
    /// How far it was as time went by.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub progress: Vec<CheckProgress>,
}

/// Whether a model keeps its promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckVerdict {
    /// Every reachable state was looked at and keeps it.
    Holds,
    /// It does not: a run shows it.
    Violated,
    /// The search ended early, or kept less than the states.
    Undecided,
}

/// Code of a model that no run comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreachableCode {
    /// States without a step.
    pub deadlocks_count: u64,
    /// Transitions that no step takes, a line each.
    pub never_taken: Vec<String>,
    /// States of processes that no run comes to, a line each.
    pub never_reached: Vec<String>,
}

/// What ranks that searched together said to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankTraffic {
    /// How many there were.
    pub ranks_count: u64,
    /// Messages with states, all ranks.
    pub messages_count: u64,
    /// Bytes of those.
    pub sent_bytes: u64,
    /// States looked at again because they were nearer than thought.
    pub looked_at_again_count: u64,
}

/// A state of a run and the step that led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunLine {
    /// The step; the first state has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step: Option<String>,
    /// Who took it, a sender before its receiver.
    #[serde(default)]
    pub movers: Vec<String>,
    /// The state, in words.
    pub state: String,
}

/// How far a search was at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckProgress {
    /// Since the search began, seconds.
    pub at_s: f64,
    /// States found.
    pub states_count: u64,
    /// Of those, the ones still to be looked at.
    pub queued_count: u64,
    /// Memory that they take, bytes.
    pub memory_bytes: u64,
    /// Bytes sent between ranks so far, where there are many.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_bytes: Option<u64>,
}
