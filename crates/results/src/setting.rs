//! Settings of hosts as results store them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spec::End;

/// A change of one setting of a host: one that a verdict asks for, or one that was made for a test and
/// taken back after it.
///
/// The key and the values are text in the form that `clearstream tune` prints and reads; a reader that
/// does not know a key refuses that change and reads the rest of the document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingChange {
    /// On which host.
    pub end: End,
    /// The setting: `net.ipv4.tcp_rmem`, `eth0/ring-rx`, `irq:42/affinity`.
    pub key: String,
    /// Its value before; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from: Option<String>,
    /// The value it is given.
    pub to: String,
    /// The figures that justify it, in one line; empty where it was requested by name.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
    /// Where the setting is documented.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub source: String,
    /// Throughput that is predicted with it, bit/s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predicted_bits_per_s: Option<f64>,
}
