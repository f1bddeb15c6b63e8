//! The document, and reading it back.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::check::CheckRun;
use crate::gate::GateResult;
use crate::hosts::Host;
use crate::outcome::LatencySummary;
use crate::placement::PlacementFindings;
use crate::point::{Estimate, Point, Summary};
use crate::reproduction::Reproduction;
use crate::spec::End;
use crate::v1;
use crate::verdict::Verdict;

/// Version of the schema this program writes. It reads any with the same major number, and 1.
pub const SCHEMA_VERSION: &str = "2.0";

/// Other programs whose recordings are read as documents, by the name in [`ToolFacts`].
const RECORDERS: [&str; 3] = ["packet capture", "ss", "iperf3"];

/// Largest document [`read_results`] accepts, bytes.
const DOCUMENT_BYTES_MAX: usize = 256 << 20;

/// Everything one run of the program found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "ClearStream results")]
pub struct Results {
    /// Schema version, `major.minor`.
    pub schema_version: String,
    /// Kind of run.
    pub kind: RunKind,
    /// The program that wrote this document.
    pub tool: ToolFacts,
    /// The command line, as typed.
    pub command: Vec<String>,
    /// When the run began, milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// When the run ended; absent while it runs or after a crash.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub finished_unix_ms: Option<u64>,
    /// Why the run is not complete, when it is not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub partial: Option<String>,
    /// The hosts that took part, with the facts that could be read.
    pub hosts: Vec<Host>,
    /// The path between the hosts.
    pub path: PathFacts,
    /// Every run, in the order they were made.
    pub points: Vec<Point>,
    /// Figures over the repeats of each setting.
    #[serde(default)]
    pub summaries: Vec<Summary>,
    /// The bottleneck, with its evidence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verdict: Option<Verdict>,
    /// Which placement is best, when this run compared placements.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub placement: Option<PlacementFindings>,
    /// A paper's experiment, when this run was one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reproduction: Option<Reproduction>,
    /// The result of the model checker, when this was a run of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub check: Option<CheckRun>,
    /// Observations that a user should know.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// What could not be measured, and why.
    #[serde(default)]
    pub absent: Vec<Absent>,
    /// What the run changed on a host, if anything.
    #[serde(default)]
    pub changes: Vec<AppliedChange>,
    /// The gates that were set for the run, and whether each is met.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub gates: Vec<GateResult>,
}

impl Results {
    /// A document of this program in which nothing is known yet but when the run began, milliseconds
    /// since 1970 UTC.
    #[must_use]
    pub fn begun(kind: RunKind, started_unix_ms: u64) -> Self {
        Self {
            schema_version: SCHEMA_VERSION.to_owned(),
            kind,
            tool: ToolFacts {
                name: "clearstream".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            command: Vec::new(),
            started_unix_ms,
            finished_unix_ms: None,
            partial: None,
            hosts: Vec::new(),
            path: PathFacts::default(),
            points: Vec::new(),
            summaries: Vec::new(),
            verdict: None,
            placement: None,
            check: None,
            reproduction: None,
            findings: Vec::new(),
            absent: Vec::new(),
            changes: Vec::new(),
            gates: Vec::new(),
        }
    }

    /// The other program whose recording this is (`iperf3`, `ss`, `packet capture`), which tells only a part of what
    /// was asked for; `None` for a document of this program.
    #[must_use]
    pub fn recorder(&self) -> Option<&str> {
        RECORDERS.iter().copied().find(|name| *name == self.tool.name)
    }
}

/// What kind of run wrote a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RunKind {
    /// `clearstream path`.
    Path,
    /// `clearstream test`.
    Test,
    /// `clearstream reproduce`.
    Reproduce,
    /// `clearstream place`.
    Place,
    /// `clearstream tune apply --measure`.
    Tune,
    /// `clearstream check`.
    Check,
    /// `clearstream io`.
    Io,
    /// `clearstream meta`.
    Meta,
}

/// The program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFacts {
    /// `clearstream`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The path between the hosts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathFacts {
    /// The far host as it was named.
    pub target: String,
    /// Address of the far host.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<String>,
    /// Control port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
    /// What answered there: `clearstream 0.1.0`, `iperf3`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<String>,
    /// Round trips of the idle path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle_rtt: Option<LatencySummary>,
    /// Path MTU, bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path_mtu_bytes: Option<u32>,
    /// Bandwidth-delay product of the best throughput seen, bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bandwidth_delay_product_bytes: Option<u64>,
    /// An emulated path: the lab and link it ran over. Absent on real networks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lab: Option<String>,
}

impl PathFacts {
    /// Whether the tests ran over IPv6; an unknown address counts as IPv4.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.address.as_ref().is_some_and(|address| address.contains(':'))
    }
}

/// Something a user should know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The end concerned; absent for the path or the run itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end: Option<End>,
    /// A stable name: `window-clamped`, `zerocopy-copied`.
    pub code: String,
    /// One line.
    pub text: String,
}

impl Finding {
    /// What the codes of findings begin with that were taken from another program's recording.
    pub const RECORDED: &str = "recorded-";
    /// Code of the finding that a recording is damaged, and where: only a part of it was read.
    pub const DAMAGE: &str = "recorded-damage";
    /// Code of the finding that only the beginning of a recording was looked at.
    pub const BOUNDED: &str = "recorded-bounded";
}

/// Something that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Absent {
    /// What is missing.
    pub what: String,
    /// Why it could not be measured.
    pub why: String,
}

/// A change made to a host during the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppliedChange {
    /// The end whose host was changed.
    pub end: End,
    /// The setting.
    pub key: String,
    /// Value before the change.
    pub from: String,
    /// Value after the change.
    pub to: String,
    /// The figures that justify the change.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Where the setting is documented.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<String>,
    /// Throughput that was predicted, bit/s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predicted_bits_per_s: Option<f64>,
    /// Throughput without it, measured in turns with `after`, bit/s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<Estimate>,
    /// Throughput with it, bit/s.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<Estimate>,
    /// Whether it stayed: it helped beyond the noise.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub is_kept: Option<bool>,
    /// The outcome, in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<String>,
}

/// Why a document could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Empty, cut short or not JSON.
    #[error("not a complete results file ({0})")]
    Malformed(String),
    /// Another major version.
    #[error(
        "results schema {found} is not readable by this version, which reads {SCHEMA_VERSION} and 1"
    )]
    Version {
        /// The version found.
        found: String,
    },
    /// Absurdly large.
    #[error("{bytes} bytes are more than a results file may have ({DOCUMENT_BYTES_MAX})")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// Reads a document written by this or another minor version, or by one of version 1, which is
/// converted.
///
/// # Errors
/// [`ReadError`] says in one line what is wrong and where.
pub fn read_results(bytes: &[u8]) -> Result<Results, ReadError> {
    if bytes.len() > DOCUMENT_BYTES_MAX {
        return Err(ReadError::TooLarge { bytes: bytes.len() });
    }
    /// The one field every version has.
    #[derive(Deserialize)]
    struct Versioned {
        schema_version: String,
    }
    let text = bytes.trim_ascii();
    // A cut inside a number is no end-of-file error to the parser.
    let is_cut = text.starts_with(b"{") && !text.ends_with(b"}");
    let malformed = |error: serde_json::Error| {
        let is_cut = is_cut || error.is_eof();
        // The parser's words for a file that holds no JSON at all name a position and nothing else.
        if !is_cut && !text.starts_with(b"{") {
            return ReadError::Malformed("it is not JSON".to_owned());
        }
        let what = if is_cut { "it ends in the middle" } else { "it is not valid" };
        ReadError::Malformed(format!("{what}: {error}"))
    };
    // Of this version is what most documents are; they are read once.
    if let Ok(results) = serde_json::from_slice::<Results>(bytes)
        && major(&results.schema_version) == major(SCHEMA_VERSION)
    {
        return Ok(results);
    }
    let versioned: Versioned = serde_json::from_slice(bytes).map_err(malformed)?;
    match major(&versioned.schema_version) {
        "1" => serde_json::from_slice(bytes).map(v1::Results::into_current).map_err(malformed),
        found if found == major(SCHEMA_VERSION) => serde_json::from_slice(bytes).map_err(malformed),
        _ => Err(ReadError::Version { found: versioned.schema_version }),
    }
}

/// The published JSON Schema of [`Results`].
#[must_use]
pub fn json_schema() -> Schema {
    schemars::schema_for!(Results)
}

fn major(version: &str) -> &str {
    version.split('.').next().unwrap_or_default()
}
