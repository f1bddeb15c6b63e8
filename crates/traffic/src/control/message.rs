//! The control messages. Both enums are open: a type added by a later minor version is read as
//! `Unknown` and ignored, and so are unknown fields.

use results::{DeviceCounters, EndReport, Finding, HostFacts, IntervalSample, TestSpec};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Token;
use crate::engine::IntervalReport;

/// Messages from the near end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ClientMessage {
    /// Identifies the client; sent once, after the server's hello.
    Hello {
        /// Version of the client's program.
        tool_version: String,
    },
    /// Requests a test.
    Start {
        /// The requested test.
        spec: Box<TestSpec>,
    },
    /// Requests a connection that returns every byte (idle round trips).
    Echo,
    /// Requests reports of padded greetings received over UDP (path MTU).
    ProbeMtu,
    /// Requests readings of interface counters until `bye`.
    Watch {
        /// Interfaces to read; empty: the one that carries this connection.
        #[serde(default)]
        interfaces: Vec<String>,
        /// Seconds between readings, 0.1 to 60.
        interval_s: f64,
    },
    /// A request about the far host's settings (extension `tune`), which only the program's tuning
    /// part interprets.
    Tune {
        /// The request.
        request: serde_json::Value,
    },
    /// All streams are connected: start the test.
    Go,
    /// Keeps the session alive.
    Alive,
    /// The near end has nothing more to send or has received all there is.
    Finished,
    /// Ends the test now; the report is still wanted.
    Stop,
    /// Ends the session.
    Bye,
    /// A type of a later minor version.
    #[serde(other)]
    Unknown,
}

/// Messages from the far end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ServerMessage {
    /// The first message, sent unprompted.
    Hello {
        /// Protocol version, `major.minor`.
        protocol: String,
        /// Version of the server's program.
        tool_version: String,
        /// The far host, its interface towards this client included.
        host: Box<HostFacts>,
        /// Protocol extensions that the server knows: `tune`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        extensions: Vec<String>,
    },
    /// The request, or the connection itself, is refused.
    Refused(Refusal),
    /// The request is granted.
    Accepted {
        /// For the greetings of the data connections.
        token: Token,
        /// The test as it will run, with the limits applied; absent for `echo` and `probe-mtu`.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        spec: Option<Box<TestSpec>>,
        /// What the limits changed.
        #[serde(default)]
        findings: Vec<Finding>,
    },
    /// The data connection of a stream has arrived (for UDP: stop greeting).
    StreamConnected {
        /// Number of the stream.
        index: u16,
    },
    /// All data connections have arrived.
    Ready,
    /// The far end has started its part of the test.
    Started,
    /// The far end's samples of an interval.
    Interval(WireInterval),
    /// Keeps the session alive.
    Alive,
    /// The far end has nothing more to send or has received all there is.
    Finished,
    /// The far end has stopped the test early.
    Stopped {
        /// The reason, in one line.
        reason: String,
    },
    /// The far end's report; the test is over.
    Report {
        /// The report.
        report: Box<EndReport>,
    },
    /// A padded greeting was received.
    ProbeSeen {
        /// Its UDP payload in bytes.
        payload_bytes: u32,
    },
    /// Counters for `watch`.
    Counters(CounterReading),
    /// The answer to `tune`.
    Tuned {
        /// The answer, for the program's tuning part.
        answer: serde_json::Value,
    },
    /// Something failed; the server closes the connection.
    Failed {
        /// The reason, in one line.
        reason: String,
    },
    /// A type of a later minor version.
    #[serde(other)]
    Unknown,
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The kind of refusal, for programs.
    pub code: RefusalCode,
    /// The reason in one line, for people.
    pub reason: String,
}

impl Refusal {
    pub(crate) fn new(code: RefusalCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

/// Kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusalCode {
    /// No place is free, or what the request needs is in use.
    Busy,
    /// The client's network may not use this server.
    NotAllowed,
    /// The client speaks another major version of the protocol.
    Version,
    /// The request is invalid.
    BadRequest,
    /// The request exceeds a limit of this server.
    Limit,
    /// A kind that a later minor version adds, or a reason that has no kind.
    #[serde(other)]
    Other,
}

/// An [`IntervalReport`] on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireInterval {
    /// Start, seconds since the far end's test began.
    pub start_s: f64,
    /// End, in the same seconds.
    pub end_s: f64,
    /// Whether the interval lies in the omitted start.
    #[serde(default)]
    pub omitted: bool,
    /// For each stream: its number, whether the far end sends on it, and its sample.
    pub streams: Vec<(u32, bool, IntervalSample)>,
}

impl From<IntervalReport> for WireInterval {
    fn from(report: IntervalReport) -> Self {
        let IntervalReport { start_s, end_s, omitted, streams } = report;
        Self { start_s, end_s, omitted, streams }
    }
}

impl From<WireInterval> for IntervalReport {
    fn from(wire: WireInterval) -> Self {
        let WireInterval { start_s, end_s, omitted, streams } = wire;
        Self { start_s, end_s, omitted, streams }
    }
}

/// Interface counters at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CounterReading {
    /// Seconds since the watch began, on the far end's clock.
    pub at_s: f64,
    /// Counters since the interface came up.
    pub devices: Vec<DeviceCounters>,
}
