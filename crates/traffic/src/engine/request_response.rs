//! Requests, answers and probes: one outstanding transaction per stream.
//!
//! A transaction costs two system calls and one reading of the clock: the end of one is the start
//! of the next. Over UDP, the request carries as many bytes of a sequence number as fit, and the
//! answer returns them, so that a late answer is not mistaken for the next one.

use std::io;
use std::time::{Duration, Instant};

use results::{Protocol, TestSpec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use stats::LatencyHistogram;

use super::pace::Pace;
use super::shared::add;
use super::worker::{Ending, PATIENCE, Worker, is_pause};

/// A UDP answer that takes longer counts as lost.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// Time between probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);

/// Upper bound on the bytes of the sequence number in UDP requests and answers.
const NUMBER_BYTES_MAX: usize = 8;

/// Largest request or response, in bytes.
const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// Memory of one stream, in bytes.
pub(super) fn memory_bytes(spec: &TestSpec) -> u64 {
    let (request, response) = payload_bytes(spec);
    (request + response) as u64
}

/// Sizes of request and response, in bytes.
fn payload_bytes(spec: &TestSpec) -> (usize, usize) {
    let sizes = spec.request_response.as_ref();
    let (request, response) =
        sizes.map_or((1, 1), |pair| (pair.request_bytes as usize, pair.response_bytes as usize));
    (request.clamp(1, PAYLOAD_BYTES_MAX), response.clamp(1, PAYLOAD_BYTES_MAX))
}

/// Sends requests and times the answers.
pub(super) fn request(worker: &mut Worker<'_>) -> Ending {
    let mut pair = Exchange::new(worker);
    worker.latency = Some(LatencyHistogram::default());
    let mut pace = TransactionPace::new(worker);
    let mut start = Instant::now();
    while worker.goes_on() {
        if let Some(pace) = &mut pace {
            let cost_bytes = pair.request.len().max(pair.response.len());
            if !pace.admits(worker, cost_bytes) {
                continue;
            }
            start = Instant::now();
        }
        if worker.allowance(1) == 0 {
            // Tells the other end that nothing more will come; over UDP it counts requests instead.
            rustix::net::shutdown(&worker.stream.socket, Shutdown::Write).ok();
            return Ending::Spent;
        }
        match pair.transact(worker) {
            Ok(true) => {
                let end = Instant::now();
                record(worker, end - start);
                add(&worker.stream.counters.bytes, pair.request.len() as u64);
                add(&worker.stream.counters.datagrams, 1);
                worker.spend(1);
                pace.iter_mut().for_each(TransactionPace::next);
                start = end;
            }
            Ok(false) => {
                worker.timeouts_count += 1;
                pace.iter_mut().for_each(TransactionPace::next);
                start = Instant::now();
            }
            Err(ending) => return ending,
        }
    }
    Ending::Over
}

/// Like [`request`], but at a steady pace and not counted against a limit.
pub(super) fn probe(worker: &mut Worker<'_>) -> Ending {
    let mut pair = Exchange::new(worker);
    worker.latency = Some(LatencyHistogram::default());
    // With the default timer slack, sleeps would end up to 50 us late.
    sys::thread::timer_slack_ns(1).ok();
    let mut due = Instant::now();
    while worker.goes_on() {
        let now = Instant::now();
        if let Some(ahead) = due.checked_duration_since(now).filter(|ahead| !ahead.is_zero()) {
            std::thread::sleep(ahead.min(PATIENCE));
            continue;
        }
        match pair.transact(worker) {
            Ok(true) => record(worker, now.elapsed()),
            Ok(false) => worker.timeouts_count += 1,
            Err(ending) => return ending,
        }
        // Skip the slots that passed during a transaction instead of making up for them.
        due += PROBE_INTERVAL;
        due = due.max(Instant::now());
    }
    Ending::Over
}

/// Answers requests, no more of them than the offered rate: whoever asks need not keep to it.
pub(super) fn respond(worker: &mut Worker<'_>) -> Ending {
    let mut pair = Exchange::new(worker);
    let mut pace = TransactionPace::new(worker);
    await_first_request(worker);
    while worker.goes_on() {
        let cost_bytes = pair.request.len().max(pair.response.len());
        if let Some(pace) = &mut pace
            && !pace.admits(worker, cost_bytes)
        {
            continue;
        }
        match pair.answer(worker) {
            Ok(bytes) => {
                pace.iter_mut().for_each(TransactionPace::next);
                add(&worker.stream.counters.datagrams, 1);
                worker.received(bytes);
                if worker.has_all(1) {
                    return Ending::Spent;
                }
            }
            Err(ending) => return ending,
        }
    }
    Ending::Over
}

/// Starts the clock when the first request begins to arrive: a large one takes a while. What is wrong with the
/// connection is for [`Exchange::answer`] to find.
fn await_first_request(worker: &mut Worker<'_>) {
    while worker.goes_on() {
        let mut first = [0];
        match rustix::net::recv(&worker.stream.socket, &mut first[..], RecvFlags::PEEK) {
            Ok((0, _)) => return,
            Ok(_) => return worker.shared.first_byte(),
            // A refusal (ICMP) answers a datagram of the handshake.
            Err(error) if is_pause(error) || error == Errno::CONNREFUSED => {}
            Err(_) => return,
        }
    }
}

/// A schedule of transactions at the offered rate. Each is paid for before it begins, so that even the
/// first, however large, comes no earlier than the rate permits.
struct TransactionPace {
    pace: Pace,
    is_paid: bool,
}

impl TransactionPace {
    fn new(worker: &Worker<'_>) -> Option<Self> {
        let spec = &worker.shared.spec;
        // The probes beside a bulk test offer nothing.
        spec.request_response.as_ref()?;
        Some(Self { pace: Pace::new(spec.offered_bits_per_s?), is_paid: false })
    }

    /// Whether the next transaction, of so many bytes in its larger direction, may begin; if not,
    /// waits a little.
    fn admits(&mut self, worker: &Worker<'_>, cost_bytes: usize) -> bool {
        if !self.is_paid {
            self.is_paid = true;
            self.pace.took(cost_bytes as u64);
        }
        self.pace.is_due(worker)
    }

    /// A transaction has ended.
    fn next(&mut self) {
        self.is_paid = false;
    }
}

fn record(worker: &mut Worker<'_>, round_trip: Duration) {
    worker.transactions_count += 1;
    if let Some(latency) = &mut worker.latency {
        latency.record_ns(u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX));
    }
}

struct Exchange {
    is_udp: bool,
    request: Vec<u8>,
    response: Vec<u8>,
    number: u64,
    /// Leading bytes of request and response that carry the number.
    number_bytes: usize,
}

impl Exchange {
    fn new(worker: &Worker<'_>) -> Self {
        let (request, response) = payload_bytes(&worker.shared.spec);
        Self {
            is_udp: worker.stream.protocol == Protocol::Udp,
            request: vec![0; request],
            response: vec![0; response],
            number: 0,
            number_bytes: request.min(response).min(NUMBER_BYTES_MAX),
        }
    }

    /// One transaction; `false` if no answer arrived in time (UDP).
    #[inline]
    fn transact(&mut self, worker: &mut Worker<'_>) -> Result<bool, Ending> {
        if self.is_udp {
            return self.transact_datagrams(worker);
        }
        send_all(worker, &self.request)?;
        receive_all(worker, &mut self.response)?;
        Ok(true)
    }

    fn transact_datagrams(&mut self, worker: &mut Worker<'_>) -> Result<bool, Ending> {
        self.number += 1;
        let number = self.number.to_le_bytes();
        self.request[..self.number_bytes].copy_from_slice(&number[..self.number_bytes]);
        match rustix::net::send(&worker.stream.socket, &self.request, SendFlags::NOSIGNAL) {
            // A refusal answers an earlier request.
            Ok(_) | Err(Errno::CONNREFUSED | Errno::NOBUFS) => {}
            Err(error) if is_pause(error) => {}
            Err(error) => return Err(failed(error)),
        }
        let mut since = None;
        loop {
            match rustix::net::recv(&worker.stream.socket, &mut *self.response, RecvFlags::empty())
            {
                Ok((bytes, _)) => {
                    let came = self.response.get(..bytes.min(self.number_bytes));
                    if came == Some(&number[..self.number_bytes]) {
                        return Ok(true);
                    }
                }
                Err(error) if is_pause(error) || error == Errno::CONNREFUSED => {
                    if !worker.goes_on() {
                        return Err(Ending::Over);
                    }
                    // Do not repeat a refused request at once: the other end may not be there.
                    std::thread::sleep(Duration::from_millis(u64::from(!is_pause(error))));
                }
                Err(error) => return Err(failed(error)),
            }
            // Only a transaction that goes wrong reads the clock here.
            if since.get_or_insert_with(Instant::now).elapsed() + PATIENCE > ANSWER_TIME_MAX {
                return Ok(false);
            }
        }
    }

    /// Waits for a request and answers it; returns the size of the request in bytes.
    #[inline]
    fn answer(&mut self, worker: &mut Worker<'_>) -> Result<u64, Ending> {
        if !self.is_udp {
            receive_all(worker, &mut self.request)?;
            send_all(worker, &self.response)?;
            return Ok(self.request.len() as u64);
        }
        let bytes = loop {
            match rustix::net::recv(&worker.stream.socket, &mut *self.request, RecvFlags::empty()) {
                Ok((bytes, _)) => break bytes,
                Err(error) if is_pause(error) || error == Errno::CONNREFUSED => {
                    if !worker.goes_on() {
                        return Err(Ending::Over);
                    }
                }
                Err(error) => return Err(failed(error)),
            }
        };
        let number_bytes = self.number_bytes.min(bytes);
        self.response[..number_bytes].copy_from_slice(&self.request[..number_bytes]);
        match rustix::net::send(&worker.stream.socket, &self.response, SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::CONNREFUSED | Errno::NOBUFS) => {}
            Err(error) if is_pause(error) => {}
            Err(error) => return Err(failed(error)),
        }
        Ok(bytes as u64)
    }
}

#[inline]
fn send_all(worker: &mut Worker<'_>, mut rest: &[u8]) -> Result<(), Ending> {
    let mut wait = Wait::default();
    while !rest.is_empty() {
        match rustix::net::send(&worker.stream.socket, rest, SendFlags::NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(error) => wait.over(worker, error)?,
        }
    }
    Ok(())
}

#[inline]
fn receive_all(worker: &mut Worker<'_>, mut rest: &mut [u8]) -> Result<(), Ending> {
    let mut wait = Wait::default();
    while !rest.is_empty() {
        match rustix::net::recv(&worker.stream.socket, &mut *rest, RecvFlags::empty()) {
            Ok((0, _)) => return Err(Ending::Closed),
            Ok((came, _)) => rest = &mut rest[came..],
            Err(error) => wait.over(worker, error)?,
        }
    }
    Ok(())
}

/// How long a transaction over TCP has waited.
#[derive(Default)]
struct Wait {
    since: Option<Instant>,
}

impl Wait {
    #[cold]
    fn over(&mut self, worker: &mut Worker<'_>, error: Errno) -> Result<(), Ending> {
        if !is_pause(error) {
            return Err(failed(error));
        }
        if !worker.goes_on() {
            return Err(Ending::Over);
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited > worker.silence_max { Err(Ending::Silent(worker.silence_max)) } else { Ok(()) }
    }
}

fn failed(error: Errno) -> Ending {
    Ending::Failed(io::Error::from(error))
}
