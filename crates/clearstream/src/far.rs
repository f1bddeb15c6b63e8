//! The far end of a run: identified once, then asked for one test after another, in either protocol.

use std::thread;
use std::time::{Duration, Instant};

use compare::Gate;
use iperf3::Iperf3;
use results::{Absent, Host, PathFacts, Results, RunKind, TestOutcome, TestSpec};
use traffic::client::{
    self, CONNECT_TIMEOUT, ClientError, FarProtocol, IntervalPair, Peer, Target,
};
use traffic::engine::IntervalReport;

use crate::exit::{VerbError, chain};
use crate::progress::Progress;
use crate::runner;
use crate::signals;

/// Idle round trips measured to characterise a path; at their spacing, a second in total. Fewer give no p99.
const IDLE_COUNT: u32 = 100;
const IDLE_INTERVAL: Duration = Duration::from_millis(10);

/// Idle round trips before a single test, whose user should not wait long.
const IDLE_COUNT_OF_TEST: u32 = 10;

/// Longest time that a stock iperf3 server may keep its port closed between two tests.
const IPERF3_PAUSE_MAX: Duration = Duration::from_secs(3);

/// Time that a server started just before this client may need to listen.
const START_MAX: Duration = Duration::from_millis(500);

/// Protocols of foreign servers that a far end may speak.
pub(crate) const PROTOCOLS: &[&dyn FarProtocol] = &[&Iperf3];

/// A client of the far end: on this host, or on another.
pub(crate) trait Tests: Send {
    /// Address of the far end.
    fn target(&self) -> &Target;

    /// A document with both hosts and the idle path between them, without points.
    ///
    /// # Errors
    /// The host that runs the client does not respond.
    fn document(&mut self, kind: RunKind, progress: &mut Progress) -> Result<Results, VerbError>;

    /// Runs one test, until a signal asks this program to end; `on_rate` is called with each interval's
    /// payload rate, bit/s.
    ///
    /// # Errors
    /// The test failed.
    fn run_test(
        &mut self,
        spec: &TestSpec,
        on_rate: &mut dyn FnMut(f64),
    ) -> Result<TestOutcome, VerbError>;
}

impl Tests for FarEnd {
    fn target(&self) -> &Target {
        &self.target
    }

    fn document(&mut self, kind: RunKind, progress: &mut Progress) -> Result<Results, VerbError> {
        Ok(self.describe(kind, progress))
    }

    fn run_test(
        &mut self,
        spec: &TestSpec,
        on_rate: &mut dyn FnMut(f64),
    ) -> Result<TestOutcome, VerbError> {
        let mut on_interval = |pair: &IntervalPair| on_rate(bits_per_s(&pair.near));
        let ended = self.watch_test(spec, &mut on_interval, &|| signals::caught().is_some());
        ended.map_err(|error| explain(&error))
    }
}

/// Payload rate of one interval, all streams together, bit/s.
fn bits_per_s(interval: &IntervalReport) -> f64 {
    let bytes: u64 = interval.streams.iter().map(|(_, _, sample)| sample.bytes).sum();
    bytes as f64 * 8.0 / (interval.end_s - interval.start_s).max(f64::MIN_POSITIVE)
}

/// The server at the far end and the connection to it.
pub(crate) struct FarEnd {
    target: Target,
    /// The connection to a ClearStream server lasts for the whole run; that to an iperf3 server serves the
    /// first test, and later tests connect anew.
    peer: Option<Peer>,
    is_iperf3: bool,
    /// Idle round trips that the run's gates need.
    idle_count_min: u32,
}

impl FarEnd {
    /// Connects to `target` and identifies its protocol.
    ///
    /// # Errors
    /// Nothing listens there, or it speaks no known protocol.
    pub(crate) fn connect(target: &Target) -> Result<Self, VerbError> {
        let deadline = Instant::now() + START_MAX;
        let peer = loop {
            match client::connect(target, CONNECT_TIMEOUT, PROTOCOLS) {
                Err(ClientError::NothingListens { .. }) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(50));
                }
                answer => break answer.map_err(|error| explain(&error))?,
            }
        };
        let is_iperf3 = matches!(peer, Peer::Foreign(_));
        Ok(Self { target: target.clone(), peer: Some(peer), is_iperf3, idle_count_min: 0 })
    }

    /// Address of the far end.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Name of the far host; `None` for an iperf3 server, which does not report it.
    pub(crate) fn host_name(&self) -> Option<&str> {
        match &self.peer {
            Some(Peer::ClearStream(session)) => Some(&session.host().name),
            _ => None,
        }
    }

    /// Whether the server is a stock iperf3 server.
    pub(crate) fn is_iperf3(&self) -> bool {
        self.is_iperf3
    }

    /// Measures enough round trips of the idle path to judge these gates.
    pub(crate) fn measure_for(&mut self, gates: &[Gate]) {
        let least = gates.iter().map(Gate::idle_round_trips_min).max().unwrap_or(0);
        self.idle_count_min = u32::try_from(least).unwrap_or(u32::MAX);
    }

    /// A document with both hosts and the idle path between them, without points.
    pub(crate) fn describe(&mut self, kind: RunKind, progress: &mut Progress) -> Results {
        let mut results = blank(kind, &self.target);
        let Some(peer) = &mut self.peer else { return results };
        let address = peer.address();
        let path = &mut results.path;
        path.address = Some(address.ip().to_canonical().to_string());
        path.peer = Some(peer.name());
        results.hosts = vec![Host::near(topology::host_facts(Some(address.ip().to_canonical())))];
        progress.begin("idle round trips");
        let is_test = kind == RunKind::Test;
        let count = if is_test { IDLE_COUNT_OF_TEST } else { IDLE_COUNT }.max(self.idle_count_min);
        let (idle_rtt, path_mtu) = match peer {
            Peer::ClearStream(session) => {
                results.hosts.push(Host::far(session.host().clone()));
                let idle_rtt = session.round_trips(count, IDLE_INTERVAL);
                (idle_rtt, (!is_test).then(|| session.path_mtu()))
            }
            Peer::Foreign(iperf3) => {
                let why = "the peer is a stock iperf3 server, which reports byte counts only";
                for what in ["far host, cores and counters", "far TCP state", "latency under load"]
                {
                    results.absent.push(Absent { what: what.to_owned(), why: why.to_owned() });
                }
                (iperf3.round_trips(count, IDLE_INTERVAL), Some(iperf3.path_mtu()))
            }
        };
        let mut note = |what: &str, error: &ClientError| {
            results.absent.push(Absent { what: what.to_owned(), why: chain(error) });
        };
        path.idle_rtt = idle_rtt.inspect_err(|error| note("idle round-trip time", error)).ok();
        let path_mtu = path_mtu.map(|mtu| mtu.inspect_err(|error| note("path MTU", error)));
        path.path_mtu_bytes = path_mtu.and_then(Result::ok).map(|mtu| mtu.bytes);
        results
    }

    /// Runs one test; connects anew if the previous one left no connection.
    ///
    /// # Errors
    /// The client's error, with its exit code.
    pub(crate) fn watch_test(
        &mut self,
        spec: &TestSpec,
        on_interval: &mut dyn FnMut(&IntervalPair),
        should_stop: &dyn Fn() -> bool,
    ) -> Result<TestOutcome, ClientError> {
        let peer = match self.peer.take() {
            Some(peer) => peer,
            None => self.reconnect(should_stop)?,
        };
        match peer {
            Peer::Foreign(iperf3) => iperf3.run_test(spec, on_interval, should_stop),
            Peer::ClearStream(mut session) => {
                let outcome = session.run_test(spec, on_interval, should_stop);
                // After an error the state of the connection is unknown.
                self.peer = outcome.is_ok().then_some(Peer::ClearStream(session));
                outcome
            }
        }
    }

    /// Sends a request about the far host's settings.
    ///
    /// # Errors
    /// The client's error: no extension, no permission, or a stock iperf3 server.
    pub(crate) fn tune(
        &mut self,
        request: &serde_json::Value,
    ) -> Result<serde_json::Value, ClientError> {
        if self.peer.is_none() {
            self.peer = Some(self.reconnect(&|| false)?);
        }
        match &mut self.peer {
            Some(Peer::ClearStream(session)) => session.tune(request),
            _ => Err(ClientError::Unsupported {
                target: self.target.to_string(),
                protocol: FarProtocol::name(&Iperf3),
                what: "change settings there",
            }),
        }
    }

    fn reconnect(&self, should_stop: &dyn Fn() -> bool) -> Result<Peer, ClientError> {
        let deadline = Instant::now() + IPERF3_PAUSE_MAX;
        loop {
            match client::connect(&self.target, CONNECT_TIMEOUT, PROTOCOLS) {
                Err(error) if self.is_iperf3 && Instant::now() < deadline && !should_stop() => {
                    drop(error);
                    thread::sleep(Duration::from_millis(50));
                }
                answer => return answer,
            }
        }
    }
}

/// Converts a client's error into one with an exit code.
pub(crate) fn explain(error: &ClientError) -> VerbError {
    let line = chain(error);
    if error.is_usage() {
        VerbError::usage(line)
    } else if error.is_privilege() {
        VerbError::missing(line)
    } else {
        VerbError::failed(line)
    }
}

fn blank(kind: RunKind, target: &Target) -> Results {
    Results {
        command: std::env::args().collect(),
        path: PathFacts {
            target: target.host.clone(),
            port: Some(target.port),
            lab: std::env::var("CLEARSTREAM_LAB").ok(),
            ..PathFacts::default()
        },
        ..Results::begun(kind, runner::now_unix_ms())
    }
}
