//! Where things run: the placement file that other runs obey, and what a placement sweep found.
//!
//! The file is TOML that a person may write or change: versioned, and read strictly, because a
//! misspelt key would leave a program unpinned without a word.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::machine::Proximity;
use crate::point::Estimate;
use crate::spec::{Direction, End};

/// Version of the placement file that this program writes and reads.
pub const PLACEMENT_VERSION: u32 = 1;

/// Largest placement file [`read_placement`] accepts, bytes: a page of text.
const FILE_BYTES_MAX: usize = 64 << 10;
/// Cores one end may name.
const CORES_COUNT_MAX: usize = 1024;

/// A placement: for each end, where the threads of its streams run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// [`PLACEMENT_VERSION`].
    pub version: u32,
    /// When it was found, as `2026-11-20T12:00:00Z`.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub made: String,
    /// The far host as it was named.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub target: String,
    /// What it rests on, in one line.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
    /// The end that asked for the tests.
    #[serde(default)]
    pub near: PlacedEnd,
    /// The other one.
    #[serde(default)]
    pub far: PlacedEnd,
}

/// One end of a placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlacedEnd {
    /// Its name, for the reader; nothing depends on it.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub host: String,
    /// Cores of the streams' threads, the first stream's first, used round robin; empty: unpinned.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cores: Vec<u32>,
    /// Memory node to take memory from first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_node: Option<u32>,
    /// Core of the interrupt or kernel thread that serves the flow's queue, where it was moved.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interrupt_core: Option<u32>,
    /// What was moved there: `irq 42`, `napi/eth0-8193`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub interrupts: Vec<String>,
    /// Source port of the first stream, the next ones following, so that a flow keeps its queue.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_port: Option<u16>,
    /// Why there, in one line.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
}

/// Why a placement file cannot be used; one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// No TOML, a key nobody knows, or a value of the wrong kind.
    #[error("line {line}: {reason}")]
    Malformed {
        /// Counted from 1.
        line: usize,
        /// What the reader met.
        reason: String,
    },
    /// Written by another version.
    #[error("placement file version {found}; this program reads version {PLACEMENT_VERSION}")]
    Version {
        /// The version found.
        found: i64,
    },
    /// Without a version it could be any file.
    #[error("not a placement file: it does not begin with version = {PLACEMENT_VERSION}")]
    NoVersion,
    /// A core or port no host has.
    #[error("{end}: {reason}")]
    Absurd {
        /// Which end.
        end: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Absurdly large.
    #[error("{bytes} bytes are more than a placement file may have ({FILE_BYTES_MAX})")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// Reads a placement file's text.
///
/// # Errors
/// [`PlacementError`]: the first thing that is wrong, in one line.
pub fn read_placement(text: &str) -> Result<Placement, PlacementError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(PlacementError::TooLarge { bytes: text.len() });
    }
    let malformed = |error: &toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        let reason = error.message().lines().map(str::trim).collect::<Vec<_>>().join(", ");
        PlacementError::Malformed { line, reason }
    };
    // The version first: of another one, nothing else need make sense.
    let table: toml::Table = toml::from_str(text).map_err(|error| malformed(&error))?;
    match table.get("version").and_then(toml::Value::as_integer) {
        Some(version) if version == i64::from(PLACEMENT_VERSION) => {}
        Some(found) => return Err(PlacementError::Version { found }),
        None => return Err(PlacementError::NoVersion),
    }
    let placement: Placement = toml::from_str(text).map_err(|error| malformed(&error))?;
    for (end, placed) in [("near", &placement.near), ("far", &placement.far)] {
        placed.check().map_err(|reason| PlacementError::Absurd { end, reason })?;
    }
    Ok(placement)
}

impl Placement {
    /// One end of it.
    #[must_use]
    pub fn end(&self, end: End) -> &PlacedEnd {
        match end {
            End::Near => &self.near,
            End::Far => &self.far,
        }
    }

    /// The file's text: what [`read_placement`] reads back.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = "# Where a flow's threads run. `clearstream test --place FILE HOST` and\n\
                        # `clearstream run --place FILE [--end far] -- PROGRAM` obey it.\n"
            .to_owned();
        text.push_str(&format!("version = {}\n", self.version));
        for (key, value) in [("made", &self.made), ("target", &self.target), ("why", &self.why)] {
            put_text(&mut text, key, value);
        }
        for (name, end) in [("near", &self.near), ("far", &self.far)] {
            text.push_str(&format!("\n[{name}]\n"));
            end.put(&mut text);
        }
        text
    }
}

/// `key = "value"`, unless there is nothing to say.
fn put_text(text: &mut String, key: &str, value: &str) {
    if !value.is_empty() {
        text.push_str(&format!("{key} = {}\n", quoted(value)));
    }
}

/// A TOML basic string. JSON's escapes are TOML's; only DEL may stand bare in JSON and not here.
fn quoted(value: &str) -> String {
    serde_json::Value::from(value).to_string().replace('\u{7f}', "\\u007f")
}

impl PlacedEnd {
    fn put(&self, text: &mut String) {
        put_text(text, "host", &self.host);
        let mut put = |key: &str, value: Option<String>| {
            text.extend(value.map(|value| format!("{key} = {value}\n")));
        };
        let list =
            |items: Vec<String>| (!items.is_empty()).then(|| format!("[{}]", items.join(", ")));
        put("cores", list(self.cores.iter().map(u32::to_string).collect()));
        put("memory_node", self.memory_node.map(|node| node.to_string()));
        put("interrupt_core", self.interrupt_core.map(|core| core.to_string()));
        put("interrupts", list(self.interrupts.iter().map(|name| quoted(name)).collect()));
        put("first_port", self.first_port.map(|port| port.to_string()));
        put_text(text, "why", &self.why);
    }

    fn check(&self) -> Result<(), String> {
        if self.cores.len() > CORES_COUNT_MAX {
            return Err(format!("{} cores; at most {CORES_COUNT_MAX}", self.cores.len()));
        }
        let named = self.cores.iter().chain(&self.interrupt_core);
        if let Some(core) = named.copied().find(|core| *core as usize >= CORES_COUNT_MAX) {
            return Err(format!("no host has a core {core}"));
        }
        if self.first_port == Some(0) {
            return Err("port 0 is not a source port; write 1 to 65535".to_owned());
        }
        if self.interrupts.len() > CORES_COUNT_MAX {
            return Err(format!("{} interrupts; at most {CORES_COUNT_MAX}", self.interrupts.len()));
        }
        Ok(())
    }
}

/// What a placement sweep found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlacementFindings {
    /// Direction of the bytes.
    pub direction: Direction,
    /// The figure that was compared: `forward_received_bits_per_s`, `rtt_p50_s`.
    pub figure: String,
    /// Whether a higher figure is better.
    pub more_is_better: bool,
    /// The figure without pinning, measured in turns with the others; absent when all these tests
    /// failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unpinned: Option<Estimate>,
    /// The best of the measured placements.
    pub best: PlacedPair,
    /// Placements that are statistically indistinguishable from the best.
    #[serde(default)]
    pub ties: Vec<PlacedPair>,
    /// The best beats unpinned by more than the noise.
    pub beats_unpinned: bool,
    /// Gain of the best, as a share of the unpinned figure; negative: worse.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gain: Option<f64>,
    /// p-value of the difference, 0 to 1 (exact one-sided rank test).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub chance: Option<f64>,
    /// The core that served the flow's queue at the near end; absent when it moved or was not
    /// reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub near_incoming_core: Option<u32>,
    /// The core that served the flow's queue at the far end; absent when it moved or was not
    /// reported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub far_incoming_core: Option<u32>,
    /// Figures by the distance of the thread from the core that served its queue, each with the
    /// best placement of the other end.
    #[serde(default)]
    pub relations: Vec<RelationFigure>,
    /// Possible pairs of cores.
    pub pairs_count: u64,
    /// Pairs of cores that were measured.
    pub measured_pairs_count: u64,
    /// What to do, as commands.
    #[serde(default)]
    pub advice: Vec<String>,
}

/// A placement that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlacedPair {
    /// Core of the near thread.
    pub near_core: u32,
    /// Core of the far thread.
    pub far_core: u32,
    /// Core that the near end's interrupt was moved to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub near_interrupt_core: Option<u32>,
    /// Core that the far end's interrupt was moved to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub far_interrupt_core: Option<u32>,
    /// The figure with this placement.
    pub estimate: Estimate,
}

/// The best figure with a thread this far from the core that served its queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelationFigure {
    /// Which end's thread.
    pub end: End,
    /// How far (Open-MX's SC, S$, SP, OP).
    pub proximity: Proximity,
    /// The figure of the best such placement.
    pub estimate: Estimate,
    /// The thread's core in the best such placement.
    pub core: u32,
    /// Placements measured with the thread this far away.
    pub placements_count: u64,
}

impl Proximity {
    /// Open-MX's abbreviation (section 4.2 of its 2009 paper); `SMT` is ours.
    #[must_use]
    pub const fn abbreviation(self) -> &'static str {
        match self {
            Self::SameCore => "SC",
            Self::SmtSibling => "SMT",
            Self::SharedCache => "S$",
            Self::SameNode => "SP",
            Self::OtherNode => "OP",
        }
    }

    /// What it means, in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::SameCore => "same core",
            Self::SmtSibling => "other thread of the same core",
            Self::SharedCache => "shared cache",
            Self::SameNode => "same node",
            Self::OtherNode => "other node",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement() -> Placement {
        Placement {
            version: PLACEMENT_VERSION,
            made: "2026-11-20T12:00:00Z".into(),
            target: "far\"er\n".into(),
            why: "14.3 Gbit/s against 11.0".into(),
            near: PlacedEnd { cores: vec![1], first_port: Some(25_201), ..PlacedEnd::default() },
            far: PlacedEnd {
                host: "geneva".into(),
                cores: vec![0, 2],
                memory_node: Some(0),
                interrupt_core: Some(0),
                interrupts: vec!["irq 42".into()],
                first_port: None,
                why: "next to its queue".into(),
            },
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = placement().to_text();
        assert_eq!(read_placement(&text), Ok(placement()), "{text}");
        assert!(text.contains("\n[far]\n") && text.starts_with("# "), "{text}");
    }

    #[test]
    fn wrong_files_get_one_line() {
        for (text, message) in [
            ("", "not a placement file: it does not begin with version = 1"),
            ("version = 2\nlayout = 3\n", "placement file version 2; this program reads version 1"),
            ("version = 1\n[near]\ncoers = [1]\n", "line 3: unknown field `coers`"),
            ("version = 1\n[near]\ncores = [4096]\n", "near: no host has a core 4096"),
            ("version = 1\n[far]\ncores = [-1]\n", "line 3: invalid value: integer `-1`"),
            ("version = 1\n[near]\nfirst_port = 0\n", "near: port 0 is not a source port"),
            ("version = 1\n[near\n", "line 2: "),
        ] {
            let error = read_placement(text).expect_err(text).to_string();
            assert!(error.starts_with(message), "{text:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let long = format!("version = 1\nwhy = \"{}\"\n", "x".repeat(FILE_BYTES_MAX));
        assert!(matches!(read_placement(&long), Err(PlacementError::TooLarge { .. })));
    }

    #[test]
    fn any_text_is_a_placement_or_one_line() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            for text in [text.to_string(), format!("version = 1\n{text}")] {
                match read_placement(&text) {
                    Ok(read) => assert_eq!(read_placement(&read.to_text()), Ok(read)),
                    Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
                }
            }
        });
    }
}
