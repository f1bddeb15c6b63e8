//! The far end of a run: found once, asked for one test after the other, in either protocol.

use std::thread;
use std::time::{Duration, Instant};

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

/// Idle round trips measured for a path, and how far apart: half a second in all.
const IDLE_COUNT: u32 = 50;
const IDLE_INTERVAL: Duration = Duration::from_millis(10);

/// Idle round trips before a single test, whose user waits for something else.
const IDLE_COUNT_OF_TEST: u32 = 10;

/// A stock iperf3 server closes its port between two tests; this long it may stay closed.
const IPERF3_PAUSE_MAX: Duration = Duration::from_secs(3);

/// A server started just before us may need this long to listen.
const START_MAX: Duration = Duration::from_millis(500);

/// The protocols of servers other than our own that a far end may speak.
pub(crate) const PROTOCOLS: &[&dyn FarProtocol] = &[&Iperf3];

/// Where tests are asked for: from this host, or from another.
pub(crate) trait Tests: Send {
    /// The far end.
    fn target(&self) -> &Target;

    /// A document with both hosts and the idle path between them, ready for points.
    ///
    /// # Errors
    /// The host that asks cannot be spoken with.
    fn document(&mut self, kind: RunKind, progress: &mut Progress) -> Result<Results, VerbError>;

    /// Runs one test, until a signal asks this program to end; `on_rate` is told each interval's payload
    /// rate, bit/s.
    ///
    /// # Errors
    /// Why it failed.
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

/// Payload rate over the streams of one interval, bit/s.
fn bits_per_s(interval: &IntervalReport) -> f64 {
    let bytes: u64 = interval.streams.iter().map(|(_, _, sample)| sample.bytes).sum();
    bytes as f64 * 8.0 / (interval.end_s - interval.start_s).max(f64::MIN_POSITIVE)
}

/// What runs at the far end and the connection to it.
pub(crate) struct FarEnd {
    target: Target,
    /// Our own server's stays for the whole run; an iperf3 server's serves the first test, and
    /// later tests make their own.
    peer: Option<Peer>,
    is_iperf3: bool,
}

impl FarEnd {
    /// Finds out what answers at `target`.
    ///
    /// # Errors
    /// Nothing does, or nothing we know.
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
        Ok(Self { target: target.clone(), peer: Some(peer), is_iperf3 })
    }

    /// Where it is.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The name of the host there; `None` where an iperf3 server does not tell it.
    pub(crate) fn host_name(&self) -> Option<&str> {
        match &self.peer {
            Some(Peer::ClearStream(session)) => Some(&session.host().name),
            _ => None,
        }
    }

    /// Whether it is a stock iperf3 server.
    pub(crate) fn is_iperf3(&self) -> bool {
        self.is_iperf3
    }

    /// A document with both hosts and the idle path between them, ready for points.
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
        let count = if is_test { IDLE_COUNT_OF_TEST } else { IDLE_COUNT };
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

    /// Runs one test; connects anew where the last one left no connection.
    ///
    /// # Errors
    /// What the client says.
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
                // After an error nobody knows what the connection still carries.
                self.peer = outcome.is_ok().then_some(Peer::ClearStream(session));
                outcome
            }
        }
    }

    /// Asks something of the far host's settings.
    ///
    /// # Errors
    /// What the client says: no extension, no permission, a stock iperf3 server.
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

/// A client's error with the exit code it stands for.
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
