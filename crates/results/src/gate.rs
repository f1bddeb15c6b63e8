//! What a run was required to reach, and whether it did.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A requirement that figures of a run were held against. A missed one makes the program end with
/// exit code 3.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateResult {
    /// The option that set it, as typed: `--fail-above rtt_p99=5ms`.
    pub gate: String,
    /// Whether the requirement is met. A figure that was not measured misses it.
    pub is_met: bool,
    /// The experiment or phase whose figure was judged; absent for the run as a whole.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub experiment: Option<String>,
    /// Name of the figure, as in `figures` of a point's outcome; absent where none was judged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub figure: Option<String>,
    /// The required value, in the figure's unit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub required: Option<f64>,
    /// The value that was judged: the median of the repeats, or with `--require` the worst of them.
    /// Absent where nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub measured: Option<f64>,
    /// Repeats it was judged by.
    pub repeats_count: u32,
    /// The result in one line.
    pub text: String,
}
