//! One end of one test: a thread per stream, a sampler thread, and a report at the end.
//!
//! The caller connects the sockets (by any protocol), passes them in with the
//! [`results::TestSpec`], and reads [`Event`]s until [`Event::Finished`].

mod account;
mod datagram;
mod need;
mod observe;
mod options;
mod pace;
mod request_response;
mod sampler;
mod sequence;
mod shared;
mod tcp_receive;
mod tcp_send;
mod tempo;
mod udp_receive;
mod udp_send;
mod worker;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use results::{
    End, EndReport, IntervalSample, LatencySummary, Protocol, RequestResponseOutcome, TestLimit,
    TestSpec,
};
use rustix::net::{Shutdown, SocketType};
use sys::SyscallError;
use thiserror::Error;

pub use need::{BufferCaps, Need, Samples, need_of};
pub use options::{prepare_socket, tcp_socket};

use sampler::Record;
use shared::{Counters, Phase, Shared, Stream};
use worker::Remains;

/// What a stream's thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamRole {
    /// Sends bulk data.
    Send,
    /// Receives bulk data.
    Receive,
    /// Sends requests and times the answers.
    Request,
    /// Answers requests.
    Respond,
    /// Like `Request`, but paced and with one byte each way: measures latency during a bulk test.
    Probe,
}

/// One connected, non-listening socket and its part in the test.
#[derive(Debug)]
pub struct StreamSocket {
    /// Stream number, the same at both ends.
    pub index: u32,
    /// What the stream's thread does with the socket.
    pub role: StreamRole,
    /// A connected TCP, MPTCP or UDP socket.
    pub socket: OwnedFd,
}

/// The configuration of one end.
#[derive(Debug)]
pub struct EndPlan {
    /// The test, as both ends run it.
    pub spec: TestSpec,
    /// Which end this is: selects the cores and is named in findings.
    pub end: End,
    /// The connected sockets, one per stream.
    pub streams: Vec<StreamSocket>,
    /// Whether UDP headers have 64-bit sequence numbers (16 bytes: ours, and iperf3's with
    /// `--udp-counters-64bit`) or 32-bit ones (12 bytes: iperf3's default).
    pub udp_counters_64bit: bool,
}

/// The samples of one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct IntervalReport {
    /// Start, in seconds since the test began, omitted start included.
    pub start_s: f64,
    /// End, in seconds since the test began.
    pub end_s: f64,
    /// Whether the interval lies in the omitted start.
    pub omitted: bool,
    /// For each stream: its index, whether it sends, and its sample.
    pub streams: Vec<(u32, bool, IntervalSample)>,
}

/// Something that happened while an end runs.
#[derive(Debug)]
pub enum Event {
    /// An interval has ended.
    Interval(IntervalReport),
    /// This end has nothing more to do: its limit is reached or every peer has closed.
    Finished,
    /// Nothing happened within the timeout passed to [`RunningEnd::next_event`].
    Quiet,
}

/// The results of one end.
#[derive(Debug)]
pub struct EndOutcome {
    /// Counters and findings of this end.
    pub report: EndReport,
    /// Request latencies, when this end made requests.
    pub request_response: Option<RequestResponseOutcome>,
    /// Latencies of the probe, when this end ran it.
    pub latency_under_load: Option<LatencySummary>,
    /// Measured time in seconds, without the omitted start.
    pub duration_s: f64,
}

/// Why an end could not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A system call failed.
    #[error(transparent)]
    Syscall(#[from] SyscallError),
    /// The spec cannot be carried out.
    #[error("{0}")]
    Spec(String),
}

/// How long a peer may be silent where the test's own limit does not bound it: before the first
/// byte, and in a test limited by an amount of data.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// A running end. Dropping it stops its threads and closes its sockets.
#[derive(Debug)]
pub struct RunningEnd {
    shared: Arc<Shared>,
    events: Receiver<Event>,
    sampler: Option<JoinHandle<Record>>,
    workers: Vec<JoinHandle<Remains>>,
}

impl RunningEnd {
    /// Starts the threads. The clock of senders starts now, that of receivers with the first byte.
    ///
    /// # Errors
    /// The spec cannot be carried out, or the host cannot start more threads.
    pub fn start(plan: EndPlan) -> Result<Self, EngineError> {
        Self::start_with_patience(plan, SILENCE_MAX)
    }

    /// Like [`Self::start`], with another bound on how long a peer may be silent.
    ///
    /// # Errors
    /// Those of [`Self::start`].
    pub fn start_with_patience(plan: EndPlan, silence_max: Duration) -> Result<Self, EngineError> {
        Self::start_keeping(plan, silence_max, usize::MAX)
    }

    /// Like [`Self::start_with_patience`], but the report keeps only the newest samples of each
    /// stream, between `samples_count` and twice as many. For callers that follow the events.
    ///
    /// # Errors
    /// Those of [`Self::start`].
    pub fn start_keeping(
        plan: EndPlan,
        silence_max: Duration,
        samples_count: usize,
    ) -> Result<Self, EngineError> {
        check(&plan)?;
        let EndPlan { spec, end, streams, udp_counters_64bit } = plan;
        let streams = streams.into_iter().map(|stream| stream_of(stream, &spec)).collect();
        let shared = Arc::new(Shared::new(spec, end, udp_counters_64bit, streams)?);
        let (sender, events) = channel();
        let mut running = Self { shared, events, sampler: None, workers: Vec::new() };
        let shared = Arc::clone(&running.shared);
        running.sampler = Some(spawn("cs-sampler".to_owned(), move || {
            sampler::run(&shared, &sender, silence_max, samples_count)
        })?);
        for (position, stream) in running.shared.streams.iter().enumerate() {
            let shared = Arc::clone(&running.shared);
            let name = format!("cs-{}-{}", short_name(stream.role), stream.index);
            let body = move || worker::run(&shared, position, silence_max);
            running.workers.push(spawn(name, body)?);
        }
        Ok(running)
    }

    /// The next event, after waiting at most `timeout`. [`Event::Finished`] is the last one.
    pub fn next_event(&mut self, timeout: Duration) -> Event {
        match self.events.recv_timeout(timeout) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => Event::Quiet,
            Err(RecvTimeoutError::Disconnected) => Event::Finished,
        }
    }

    /// Payload bytes moved so far, on all streams and in both directions.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        let moved = |stream: &Stream| stream.counters.bytes.load(Ordering::Relaxed);
        self.shared.streams.iter().map(moved).fold(0, u64::wrapping_add)
    }

    /// Ends the test early; what was measured so far is reported. Returns without waiting for the
    /// threads.
    pub fn stop(&self) {
        self.shared.ask_to_stop();
    }

    /// Ends the test if it still runs, waits for the threads, closes the sockets and reports. TCP
    /// connections are reset, which discards what a sender still has queued.
    #[must_use]
    pub fn finish(self) -> EndOutcome {
        let (outcome, sockets) = self.finish_keeping_sockets();
        for socket in sockets {
            // UDP has nothing to reset, and a connection that has already failed does not matter.
            sys::socket::reset_on_close(socket).ok();
        }
        outcome
    }

    /// Like [`Self::finish`], but leaves the sockets open, in the order of the plan, for protocols
    /// that exchange more messages before the data connections close.
    #[must_use]
    pub fn finish_keeping_sockets(mut self) -> (EndOutcome, Vec<OwnedFd>) {
        self.stop();
        let sampler = self.sampler.take();
        let record = sampler.and_then(|thread| thread.join().ok());
        let remains = self.join_workers();
        let shared = Arc::clone(&self.shared);
        drop(self);
        let outcome = account::outcome(&shared, record.unwrap_or_default(), remains);
        let sockets = Arc::into_inner(shared)
            .map(|shared| shared.streams.into_iter().map(|stream| stream.socket).collect());
        (outcome, sockets.unwrap_or_default())
    }

    /// Tells every thread that the test is over, wakes those that wait for data, and waits for all.
    fn join_workers(&mut self) -> Vec<Option<Remains>> {
        self.shared.announce(Phase::Over);
        for stream in &self.shared.streams {
            if stream.protocol == Protocol::Tcp && !stream.sends_bulk() {
                // Shutting down the reading side sends no packet. It fails on a connection that is
                // already gone, which needs no waking.
                rustix::net::shutdown(&stream.socket, Shutdown::Read).ok();
            }
        }
        // A panicking thread has printed its message to stderr; the report names its stream.
        std::mem::take(&mut self.workers).into_iter().map(|thread| thread.join().ok()).collect()
    }
}

impl Drop for RunningEnd {
    fn drop(&mut self) {
        self.stop();
        if let Some(sampler) = self.sampler.take() {
            // Nobody needs its record.
            sampler.join().ok();
        }
        self.join_workers();
    }
}

fn stream_of(stream: StreamSocket, spec: &TestSpec) -> Stream {
    let StreamSocket { index, role, socket } = stream;
    // A probe during a UDP test may be a TCP connection, so ask the socket.
    let kind = rustix::net::sockopt::socket_type(&socket);
    let protocol = match kind {
        Ok(SocketType::STREAM) => Protocol::Tcp,
        Ok(SocketType::DGRAM) => Protocol::Udp,
        Ok(_) | Err(_) => spec.protocol,
    };
    let (local, remote) = (observe::local_address(&socket), observe::remote_address(&socket));
    Stream { index, role, protocol, socket, local, remote, counters: Counters::default() }
}

fn check(plan: &EndPlan) -> Result<(), EngineError> {
    let refuse = |text: &str| Err(EngineError::Spec(text.to_owned()));
    let spec = &plan.spec;
    if plan.streams.is_empty() {
        return refuse("a test needs at least one stream");
    }
    if let TestLimit::DurationS(duration_s) = spec.limit
        && !(duration_s > 0.0 && duration_s <= 1e7)
    {
        return refuse("the duration must be more than 0 s and at most 10^7 s");
    }
    if !(spec.omit_s >= 0.0 && spec.omit_s <= 1e6) {
        return refuse("the omitted start must be 0 s to 10^6 s");
    }
    Ok(())
}

fn spawn<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, EngineError> {
    let object = name.clone();
    Builder::new()
        .name(name)
        .spawn(body)
        .map_err(|error| SyscallError::new("clone", format!("thread {object}"), error).into())
}

/// Short because the kernel keeps only 15 bytes of a thread's name.
fn short_name(role: StreamRole) -> &'static str {
    match role {
        StreamRole::Send => "send",
        StreamRole::Receive => "recv",
        StreamRole::Request => "req",
        StreamRole::Respond => "resp",
        StreamRole::Probe => "probe",
    }
}
