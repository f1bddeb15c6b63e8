//! The messages. Both enums are open: a type a later minor version adds is read as `Unknown` and
//! ignored, and unknown fields are ignored everywhere.

use results::{DeviceCounters, EndReport, Finding, HostFacts, IntervalSample, TestSpec};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Token;
use crate::engine::IntervalReport;

/// From the near end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ClientMessage {
    /// Who asks; sent once, after the server's hello.
    Hello {
        /// Version of the program.
        tool_version: String,
    },
    /// Asks for a test.
    Start {
        /// The test.
        spec: Box<TestSpec>,
    },
    /// Asks for a connection that returns every byte (idle round trips).
    Echo,
    /// Asks for answers to padded greetings over UDP (path MTU).
    ProbeMtu,
    /// Asks for the counters of interfaces, again and again until `bye`.
    Watch {
        /// Interfaces; empty: the one that carries this connection.
        #[serde(default)]
        interfaces: Vec<String>,
        /// Seconds between readings, 0.1 to 60.
        interval_s: f64,
    },
    /// Asks something of the far host's settings (extension `tune`); what, the program's tuning part
    /// knows.
    Tune {
        /// The request.
        request: serde_json::Value,
    },
    /// All streams are there: begin.
    Go,
    /// Still here.
    Alive,
    /// The near end has nothing more to send or has received all there is.
    Finished,
    /// End the test now; the account is still wanted.
    Stop,
    /// The end.
    Bye,
    /// Of a later minor version.
    #[serde(other)]
    Unknown,
}

/// From the far end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ServerMessage {
    /// The first message, sent unasked.
    Hello {
        /// Protocol version, `major.minor`.
        protocol: String,
        /// Version of the program.
        tool_version: String,
        /// The far host, its interface towards this client included.
        host: Box<HostFacts>,
        /// Extensions of the protocol it knows: `tune`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        extensions: Vec<String>,
    },
    /// The request, or the connection itself, is turned down.
    Refused(Refusal),
    /// The request is granted.
    Accepted {
        /// For the greetings of the data connections.
        token: Token,
        /// The test as it will run, limits applied; absent for `echo` and `probe-mtu`.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        spec: Option<Box<TestSpec>>,
        /// What the limits changed.
        #[serde(default)]
        findings: Vec<Finding>,
    },
    /// The data connection of a stream is there (for UDP: stop greeting).
    StreamConnected {
        /// The stream.
        index: u16,
    },
    /// All of them are.
    Ready,
    /// The far end's part runs.
    Started,
    /// What an interval gave at the far end.
    Interval(WireInterval),
    /// Still here.
    Alive,
    /// The far end has nothing more to send or has received all there is.
    Finished,
    /// The far end has ended the test before its time.
    Stopped {
        /// Why, in one line.
        reason: String,
    },
    /// The far end's account; the test is over.
    Report {
        /// The account.
        report: Box<EndReport>,
    },
    /// A padded greeting came through.
    ProbeSeen {
        /// UDP payload received, bytes.
        payload_bytes: u32,
    },
    /// A reading of `watch`.
    Counters(CounterReading),
    /// The answer to `tune`.
    Tuned {
        /// The answer.
        answer: serde_json::Value,
    },
    /// Something failed; the connection ends.
    Failed {
        /// What, in one line.
        reason: String,
    },
    /// Of a later minor version.
    #[serde(other)]
    Unknown,
}

/// Why a request is turned down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{reason}")]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people, one line.
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
    /// No slot is free.
    Busy,
    /// The client's network may not use this server.
    NotAllowed,
    /// Other major version.
    Version,
    /// The request makes no sense.
    BadRequest,
    /// The request goes beyond a limit of this server.
    Limit,
    /// A kind a later minor version adds.
    #[serde(other)]
    Other,
}

/// An [`IntervalReport`] on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireInterval {
    /// Start, seconds since the far end's test began.
    pub start_s: f64,
    /// End.
    pub end_s: f64,
    /// In the omitted start.
    #[serde(default)]
    pub omitted: bool,
    /// Stream, whether the far end sends on it, the sample.
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
    /// Seconds since the watch began, the far end's clock.
    pub at_s: f64,
    /// Counters since the interface came up.
    pub devices: Vec<DeviceCounters>,
}
