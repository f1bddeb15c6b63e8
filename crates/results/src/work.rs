//! What a point's work was, and who did it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::hosts::{FAR, NEAR};
use crate::spec::{Direction, Protocol, TestSpec};

/// The work that was requested of the hosts in one point. `kind` distinguishes the kinds; later versions add kinds, and a
/// reader keeps those that it does not know unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Work {
    /// TCP streams of bulk data between two hosts.
    Bulk(TestSpec),
    /// Requests and responses between two hosts.
    RoundTrips(TestSpec),
    /// UDP streams of bulk data between two hosts.
    Datagrams(TestSpec),
    /// Ethernet frames between two ports.
    Frames(FramesWork),
    /// The search of a model's states.
    Search(SearchWork),
    /// Bytes written to or read from files.
    FileIo(FileIoWork),
    /// Files and directories created, examined and removed.
    FileMetadata(FileMetadataWork),
    /// Locks of a file taken by two clients of a file system.
    FileLocks(FileLocksWork),
    /// Messages between the ranks of an MPI job.
    Messages(MessagesWork),
    /// A kind of a later version, unchanged.
    #[serde(untagged)]
    Other(Map<String, Value>),
}

/// Frames sent from one port to another as fast as the receiver takes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FramesWork {
    /// Length of a frame without preamble and checksum, bytes.
    pub frame_bytes: u32,
    /// Only slots are passed on: no program writes or reads the frames' bytes.
    pub slots_only: bool,
    /// What lies between the ports: `pipe`, `switch`.
    pub through: String,
    /// How long frames are sent, seconds.
    pub duration_s: f64,
}

/// A search of the states of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchWork {
    /// The model's file or name.
    pub model: String,
    /// What is checked, in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checked: Option<String>,
    /// Ranks that search together.
    pub ranks_count: u64,
    /// Threads of each rank.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub threads_count: Option<u64>,
}

/// Bytes written to or read from files by many ranks at once, as IOR does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileIoWork {
    /// `write` or `read`.
    pub access: String,
    /// The file, or the beginning of the files' names.
    pub path: String,
    /// Each rank has a file of its own.
    pub has_file_per_rank: bool,
    /// Ranks.
    pub ranks_count: u64,
    /// Contiguous bytes of one rank in one segment.
    pub block_bytes: u64,
    /// Bytes of one transfer.
    pub transfer_bytes: u64,
    /// Segments.
    pub segments_count: u64,
    /// How the bytes were moved: `pwrite`, `pread`, `io_uring`, with `, O_DIRECT` where it was.
    pub by: String,
    /// Options that change the load and are not the usual ones, by name: `fsync`, `stonewall_s`; empty where all are
    /// usual. Absent: not recorded, as in files of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub options: Option<BTreeMap<String, Value>>,
}

/// Files and directories created, examined and removed by many ranks at once, as mdtest does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileMetadataWork {
    /// What was done with each: `File creation`, `Directory stat`, as mdtest names it.
    pub phase: String,
    /// Directory in which it was done.
    pub path: String,
    /// Ranks.
    pub ranks_count: u64,
    /// Files or directories of all ranks.
    pub items_count: u64,
    /// Bytes written to or read from each file.
    pub file_bytes: u64,
    /// Options that change the load and are not the usual ones, by name: `fsync`, `stonewall_s`; empty where all are
    /// usual. Absent: not recorded, as in files of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub options: Option<BTreeMap<String, Value>>,
}

/// A kind of lock tried by rank 0 and another rank, on two clients of a file system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileLocksWork {
    /// `flock` or `byte ranges`.
    pub lock: String,
    /// Directory; at the ranks in turn, with `@` between them.
    pub path: String,
    /// `works`, `refused`, `local only` (granted to both clients at once) or `broken`.
    pub verdict: String,
    /// The verdict in words, with the system's reason.
    pub what: String,
}

/// Messages between the ranks of an MPI job, as a benchmark or an application sends them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessagesWork {
    /// `ping-pong`, `all-to-all`, or an application: `cg.B`.
    pub pattern: String,
    /// Whose program: `ClearStream`, `IMB-MPI1`, `NAS`.
    pub by: String,
    /// Ranks.
    pub ranks_count: u64,
    /// Length of a message; in `all-to-all`, from each rank to each. Absent for an application.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message_bytes: Option<u64>,
    /// What carried them: `clearstream`, `tcp`.
    pub through: String,
}

/// One process that did a part of a point's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Worker {
    /// Name of the host, as in `hosts` of the document.
    pub host: String,
    /// Its part: `send`, `receive`, `ask`, `answer`, `forward`, `search`, `rank`.
    pub part: String,
    /// Cores it was bound to, the first thread's first; empty: not bound.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cores: Vec<u32>,
}

impl<'de> Deserialize<'de> for Work {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn known<T: serde::de::DeserializeOwned, E: serde::de::Error>(
            fields: Map<String, Value>,
        ) -> Result<T, E> {
            serde_json::from_value(Value::Object(fields)).map_err(E::custom)
        }
        let fields = Map::deserialize(deserializer)?;
        match fields.get("kind").and_then(Value::as_str) {
            None => Err(D::Error::missing_field("kind")),
            Some("bulk") => known(fields).map(Self::Bulk),
            Some("round_trips") => known(fields).map(Self::RoundTrips),
            Some("datagrams") => known(fields).map(Self::Datagrams),
            Some("frames") => known(fields).map(Self::Frames),
            Some("search") => known(fields).map(Self::Search),
            Some("file_io") => known(fields).map(Self::FileIo),
            Some("file_locks") => known(fields).map(Self::FileLocks),
            Some("file_metadata") => known(fields).map(Self::FileMetadata),
            Some("messages") => known(fields).map(Self::Messages),
            Some(_later) => Ok(Self::Other(fields)),
        }
    }
}

impl From<TestSpec> for Work {
    fn from(spec: TestSpec) -> Self {
        match (&spec.request_response, spec.protocol) {
            (Some(_), _) => Self::RoundTrips(spec),
            (None, Protocol::Udp) => Self::Datagrams(spec),
            (None, Protocol::Tcp) => Self::Bulk(spec),
        }
    }
}

impl Work {
    /// The test between two hosts, where the work was one.
    #[must_use]
    pub fn test(&self) -> Option<&TestSpec> {
        match self {
            Self::Bulk(spec) | Self::RoundTrips(spec) | Self::Datagrams(spec) => Some(spec),
            Self::Frames(_)
            | Self::Search(_)
            | Self::FileIo(_)
            | Self::FileMetadata(_)
            | Self::FileLocks(_)
            | Self::Messages(_)
            | Self::Other(_) => None,
        }
    }

    /// The test between two hosts, to be changed.
    pub fn test_mut(&mut self) -> Option<&mut TestSpec> {
        match self {
            Self::Bulk(spec) | Self::RoundTrips(spec) | Self::Datagrams(spec) => Some(spec),
            Self::Frames(_)
            | Self::Search(_)
            | Self::FileIo(_)
            | Self::FileMetadata(_)
            | Self::FileLocks(_)
            | Self::Messages(_)
            | Self::Other(_) => None,
        }
    }

    /// Whether the options of a file-system load are not in the document; other work always has its own.
    #[must_use]
    pub fn lacks_options(&self) -> bool {
        match self {
            Self::FileIo(work) => work.options.is_none(),
            Self::FileMetadata(work) => work.options.is_none(),
            _ => false,
        }
    }

    /// Who does a test between two hosts, by its options; empty for other work, whose driver knows.
    #[must_use]
    pub fn workers(&self) -> Vec<Worker> {
        let Some(spec) = self.test() else { return Vec::new() };
        let (near, far) = match (&spec.request_response, spec.direction) {
            (Some(_), _) => ("ask", "answer"),
            (None, Direction::Forward) => ("send", "receive"),
            (None, Direction::Reverse) => ("receive", "send"),
            (None, Direction::Bidirectional) => ("send and receive", "send and receive"),
        };
        let worker = |host: &str, part: &str, cores: &[u32]| Worker {
            host: host.to_owned(),
            part: part.to_owned(),
            cores: cores.to_vec(),
        };
        vec![worker(NEAR, near, &spec.near_cores), worker(FAR, far, &spec.far_cores)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_a_later_version_is_kept_as_it_is() {
        let text = r#"{"kind":"metadata","files_count":7,"each":{"ops":["create","stat"]}}"#;
        let work: Work = serde_json::from_str(text).expect("read");
        assert!(matches!(work, Work::Other(_)), "{work:?}");
        let written = serde_json::to_value(&work).expect("written");
        assert_eq!(written, serde_json::from_str::<Value>(text).expect("JSON"));
    }

    #[test]
    fn damaged_work_of_a_known_kind_is_refused() {
        for text in [r#"{"kind":"bulk"}"#, r#"{"kind":"frames","frame_bytes":-1}"#, "{}"] {
            assert!(serde_json::from_str::<Work>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_test_is_of_one_kind_and_is_read_back() {
        let rr = TestSpec::request_response(Protocol::Udp, 1, 1);
        for spec in [TestSpec::tcp(), TestSpec::udp(1400), rr] {
            let work = Work::from(spec.clone());
            assert_eq!(work.test(), Some(&spec));
            let text = serde_json::to_string(&work).expect("written");
            assert_eq!(serde_json::from_str::<Work>(&text).expect("read"), work, "{text}");
        }
    }
}
