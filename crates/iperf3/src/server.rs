//! iperf3's server: takes its part in one client's test.
//!
//! [`serve_control`] runs one test on a control connection whose cookie has been read; where the
//! data connections come from is the caller's business ([`DataConnections`]). The ordinary server
//! calls it for each iperf3 client, many at once; `iperf3 -s` calls it for one at a time behind a
//! [`listener::Listener`].

pub mod listener;
mod unidentified;

use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use results::{Direction, Protocol, TestLimit, TestSpec};

use super::account::{Account, Setup, Side};
use super::channel::{Channel, Interrupted};
use super::failure::Iperf3Error;
use super::run::{CpuClock, FOREVER_S, Streams, spec_of, tick_s, unix_ms};
use super::sink::{Agreement, Sink, host_of};
use super::sockets;
use super::wire::{
    self, COOKIE_BYTES, Cookie, EndResults, PARAMETERS_BYTES_MAX, Parameters, State, Transport,
    UDP_WELCOME, results_bytes_max,
};
use traffic::engine::{BufferCaps, Event, Need, RunningEnd, Samples, StreamRole, need_of};
use traffic::server::{DataConnections, DataError};

/// Ten turns of a slow conversation: how long past its time a client's test may run, as in iperf3.
const GRACE: Duration = Duration::from_secs(40);

/// How long after the longest time allowed a test that names its time may still end.
const END_MARGIN: Duration = Duration::from_secs(5);

/// How much faster than the limit a test may seem where this end paces: what a stall held up comes at
/// once.
const PACED_TOLERANCE: f64 = 1.5;

/// How often the engine is looked after while data flows.
const LOOK_AFTER: Duration = Duration::from_millis(20);

/// Samples of a stream that are kept: the account is made from the events as they come.
const SAMPLES_KEPT: usize = 64;

/// How much larger a message is once taken apart: a list of digits, two bytes each, becomes values.
const JSON_GROWTH: u64 = 48;

/// Largest block a client may ask for, bytes; iperf3's clients stop there.
const BLOCK_BYTES_MAX: u32 = 1 << 20;

/// What a server grants one client.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeLimits {
    /// Most streams of each direction.
    pub streams_max: u32,
    /// Longest test, the omitted start included; `None`: as long as the client likes.
    pub duration_max: Option<Duration>,
    /// Whether a test that names no time (`-n`, `-k`, `-t 0`) is refused; else it is ended after
    /// `duration_max`.
    pub refuses_untimed: bool,
    /// Highest rate, all streams and both directions together, bit/s.
    pub rate_bits_per_s_max: Option<f64>,
    /// Over how many seconds it is averaged.
    pub rate_interval_s: f64,
    /// Whether this end also keeps to that rate itself: it sends no faster, and reads TCP no faster.
    /// Else, as iperf3 does, it ends a test that is faster.
    pub paces: bool,
    /// Longest silence on the data connections of a test that sends to us.
    pub receive_timeout: Duration,
    /// Longest silence on the control connection when it is the client's turn.
    pub patience: Duration,
    /// Seconds between reports.
    pub interval_s: f64,
    /// The core to run on where the client names none.
    pub core: Option<u32>,
    /// `TCP_USER_TIMEOUT` of the data connections, milliseconds; 0: the system's.
    pub send_timeout_ms: u32,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            streams_max: 128,
            duration_max: None,
            refuses_untimed: false,
            rate_bits_per_s_max: None,
            rate_interval_s: 5.0,
            paces: false,
            receive_timeout: Duration::from_secs(120),
            patience: Duration::from_secs(30),
            interval_s: 1.0,
            core: None,
            send_timeout_ms: 0,
        }
    }
}

/// Runs one test. `control` has been accepted and its cookie read; nothing has been sent on it.
/// The client is told what fails, unless it is gone.
///
/// # Errors
/// In iperf3's words: the client asks for too much, says nonsense, falls silent, leaves.
pub fn serve_control(
    control: TcpStream,
    cookie: [u8; COOKIE_BYTES],
    data: &mut dyn DataConnections,
    limits: &ServeLimits,
    sink: &mut dyn Sink,
    interrupted: Interrupted<'_>,
) -> Result<(), Iperf3Error> {
    let mut channel =
        Channel::new(control, limits.patience, interrupted).map_err(Iperf3Error::ReceiveMessage)?;
    let cookie = Cookie(cookie);
    let ended =
        Session { channel: &mut channel, cookie, limits, cpu: CpuClock::start() }.test(data, sink);
    if let Err(error) = &ended {
        // The client may be gone already.
        match error {
            Iperf3Error::ControlClosed | Iperf3Error::ClientTerminated => {}
            Iperf3Error::Interrupted(_) => drop(channel.send_state(State::ServerTerminate)),
            error => drop(channel.send(&wire::encode_server_error(error.code(), 0))),
        }
    }
    channel.close();
    ended
}

struct Session<'a, 'b> {
    channel: &'a mut Channel<'b>,
    cookie: Cookie,
    limits: &'a ServeLimits,
    cpu: CpuClock,
}

impl Session<'_, '_> {
    fn test(
        mut self,
        data: &mut dyn DataConnections,
        sink: &mut dyn Sink,
    ) -> Result<(), Iperf3Error> {
        self.channel.send_state(State::ParamExchange)?;
        let message = self.channel.message(PARAMETERS_BYTES_MAX, Iperf3Error::Parameters)?;
        let asked = Parameters::parse(&message).map_err(Iperf3Error::Parameters)?;
        let setup = self.admit(asked)?;
        let need = self.need_of(&setup);
        data.reserve(need).map_err(|refusal| Iperf3Error::NoRoom(refusal.reason))?;
        if setup.asked.transport == Transport::Udp {
            self.await_turn(data)?;
        }
        self.channel.send_state(State::CreateStreams)?;
        let peer = self.channel.stream().peer_addr().map_err(Iperf3Error::ReceiveMessage)?;
        sink.agreed(&Agreement {
            setup: setup.clone(),
            peer_host: host_of(peer),
            peer_port: peer.port(),
            cookie: self.cookie,
            control_mss_bytes: sys::socket::mss_bytes(self.channel.stream()).unwrap_or(0),
            unix_ms: unix_ms(),
        });
        let streams = self.accept_streams(&setup, data, sink)?;
        self.channel.send_state(State::TestStart)?;
        sink.started();
        self.channel.send_state(State::TestRunning)?;
        let account = self.run_streams(&setup, streams, sink)?;
        self.exchange_results(&account, sink)?;
        match self.channel.state() {
            // A client that has its results may leave without a word.
            Ok(State::IperfDone) | Err(Iperf3Error::ControlClosed) => Ok(()),
            Ok(State::ClientTerminate) => Err(Iperf3Error::ClientTerminated),
            Ok(_) => Err(Iperf3Error::UnknownMessage),
            Err(error) => Err(error),
        }
    }

    /// The test, if it makes sense and is within the limits.
    fn admit(&self, asked: Parameters) -> Result<Setup, Iperf3Error> {
        let limits = self.limits;
        if asked.transport == Transport::Sctp {
            return Err(Iperf3Error::Absent("no SCTP support available"));
        }
        if asked.authenticated {
            return Err(Iperf3Error::Absent("authentication is not supported"));
        }
        if !(1..=i64::from(limits.streams_max)).contains(&asked.streams) {
            return Err(Iperf3Error::TooManyStreams(limits.streams_max));
        }
        let least = if asked.transport == Transport::Udp { 16 } else { 1 };
        if !(least..=i64::from(BLOCK_BYTES_MAX)).contains(&asked.block_bytes) {
            return Err(Iperf3Error::BlockSize(BLOCK_BYTES_MAX));
        }
        let whole_s = asked.duration_s.saturating_add(asked.omit_s);
        let longest_s = limits.duration_max.map(|longest| longest.as_secs_f64());
        if asked.duration_s < 0
            || !(0..=600).contains(&asked.omit_s)
            || longest_s.is_some_and(|longest_s| whole_s as f64 > longest_s)
            || (asked.duration_s == 0 && limits.refuses_untimed)
        {
            return Err(Iperf3Error::TooLong);
        }
        let directions = if asked.bidirectional { 2.0 } else { 1.0 };
        let together = |rate: i64| rate.max(0) as f64 * asked.streams as f64 * directions;
        let highest = together(asked.rate_bits_per_s).max(together(asked.pacing_bits_per_s));
        if limits.rate_bits_per_s_max.is_some_and(|limit| highest > limit) {
            return Err(Iperf3Error::TotalRate);
        }
        Ok(Setup { side: Side::Server, asked, interval_s: limits.interval_s })
    }

    /// How this end runs the test. The client ends it; the limit here is only a net.
    fn spec_of(&self, setup: &Setup) -> TestSpec {
        let asked_core = setup.asked.server_core.and_then(|core| u32::try_from(core).ok());
        let spec = spec_of(
            setup,
            TestLimit::DurationS(FOREVER_S),
            tick_s(setup.interval_s, self.limits.rate_bits_per_s_max.is_some()),
            asked_core.or(self.limits.core),
        );
        paced(spec, self.limits)
    }

    /// What this end may come to hold.
    fn need_of(&self, setup: &Setup) -> Need {
        let spec = self.spec_of(setup);
        let role = |sends: bool| if sends { StreamRole::Send } else { StreamRole::Receive };
        let flags = setup.sending_flags();
        let streams: Vec<_> = flags.into_iter().map(|sends| (spec.protocol, role(sends))).collect();
        let caps = match spec.window_bytes {
            Some(_) => BufferCaps::probe(),
            // The kernel's own.
            None => BufferCaps { send_bytes: 0, receive_bytes: 0 },
        };
        let samples = Samples::Newest(SAMPLES_KEPT as u64);
        let message_bytes = u64::from(results_bytes_max(streams.len())) * JSON_GROWTH;
        let message = Need { bytes: message_bytes, streams: 0 };
        need_of(&spec, &streams, samples, caps).and(message)
    }

    /// Waits until no other test of this client's address is opening UDP streams.
    fn await_turn(&mut self, data: &mut dyn DataConnections) -> Result<(), Iperf3Error> {
        let deadline = Instant::now() + self.limits.patience;
        loop {
            self.channel.check_signal()?;
            let slice = Instant::now() + LOOK_AFTER;
            match data.expect_udp(slice.min(deadline)) {
                Err(DataError::Timeout) if Instant::now() < deadline => self.check_client()?,
                Err(error) => return Err(Iperf3Error::StreamAccept(error.to_string())),
                Ok(()) => return Ok(()),
            }
        }
    }

    fn accept_streams(
        &mut self,
        setup: &Setup,
        data: &mut dyn DataConnections,
        sink: &mut dyn Sink,
    ) -> Result<Streams, Iperf3Error> {
        let deadline = Instant::now() + self.limits.patience;
        let flags = setup.sending_flags();
        let mut accepted = Vec::with_capacity(flags.len());
        while accepted.len() < flags.len() {
            self.channel.check_signal()?;
            let slice = Instant::now() + LOOK_AFTER;
            match self.accept_stream(&setup.asked, data, slice.min(deadline), sink) {
                Err(DataError::Timeout) if Instant::now() < deadline => self.check_client()?,
                Err(error) => return Err(Iperf3Error::StreamAccept(error.to_string())),
                Ok(one) => accepted.push(one?),
            }
        }
        // Which of them send is told by their order alone, whoever's cookie was read first.
        accepted.sort_by_key(|(place, _)| *place);
        let mut streams = Streams::default();
        for ((_, socket), sending) in accepted.into_iter().zip(flags) {
            sink.buffers(sockets::buffers(&socket, &setup.asked));
            sink.stream(streams.push(socket, sending)?);
        }
        Ok(streams)
    }

    /// One data connection, its options set and its greeting answered, and its place among those
    /// that came in; UDP's come one after the other.
    fn accept_stream(
        &self,
        asked: &Parameters,
        data: &mut dyn DataConnections,
        deadline: Instant,
        sink: &mut dyn Sink,
    ) -> Result<Result<(u64, OwnedFd), Iperf3Error>, DataError> {
        if asked.transport == Transport::Udp {
            let (socket, _hello) = data.next_udp(deadline)?;
            socket.set_nonblocking(false)?;
            if let Err(error) = sockets::prepare(&socket, asked) {
                return Ok(Err(error));
            }
            socket.send(&UDP_WELCOME)?;
            return Ok(Ok((0, socket.into())));
        }
        let (place, stream) = data.next_tcp(deadline)?;
        stream.set_nonblocking(false)?;
        // TCP_MAXSEG came with the listener, or is too late now.
        let settled = Parameters { mss_bytes: 0, ..asked.clone() };
        if let Err(error) = sockets::prepare(&stream, &settled) {
            return Ok(Err(error));
        }
        if self.limits.send_timeout_ms > 0 {
            // Where the kernel does not know it, its own timeout holds.
            let limit_ms = self.limits.send_timeout_ms;
            rustix::net::sockopt::set_tcp_user_timeout(&stream, limit_ms).ok();
        }
        if sockets::set_congestion(&stream, asked).is_err() {
            sink.warning("TCP congestion control algorithm not supported");
        }
        Ok(Ok((place, stream.into())))
    }

    /// Fails when the client has left or wants to.
    fn check_client(&mut self) -> Result<(), Iperf3Error> {
        if !self.channel.is_readable(Duration::ZERO) {
            return Ok(());
        }
        match self.channel.state()? {
            State::ClientTerminate => Err(Iperf3Error::ClientTerminated),
            _ => Err(Iperf3Error::UnknownMessage),
        }
    }

    fn run_streams(
        &mut self,
        setup: &Setup,
        streams: Streams,
        sink: &mut dyn Sink,
    ) -> Result<Account, Iperf3Error> {
        let spec = self.spec_of(setup);
        let tail = Tail::of(setup, &streams);
        let patience = self.limits.receive_timeout;
        let (mut running, mut account) = streams.start(setup, spec, patience, SAMPLES_KEPT)?;
        let how = self.watch(setup, &mut running, &mut account, sink);
        if how.is_ok() {
            tail.wait();
        }
        // The streams close here, as iperf3 does it: what is under way still arrives.
        let (outcome, sockets) = running.finish_keeping_sockets();
        drop(sockets);
        for interval in account.finish(&outcome, self.cpu.percent()) {
            sink.interval(&interval);
        }
        let worth = how.is_ok()
            || matches!(how, Err(Iperf3Error::ClientTerminated | Iperf3Error::Interrupted(_)));
        if worth {
            sink.finished(&account.summary(None));
        }
        how.map(|()| account)
    }

    /// Follows the engine until the client says that the test is over.
    fn watch(
        &mut self,
        setup: &Setup,
        running: &mut RunningEnd,
        account: &mut Account,
        sink: &mut dyn Sink,
    ) -> Result<(), Iperf3Error> {
        let start = Instant::now();
        let longest = longest(setup, self.limits);
        let mut rate = RateWatch::new(self.limits);
        let mut progress = (0, start);
        loop {
            if self.channel.is_readable(LOOK_AFTER) {
                match self.channel.state()? {
                    State::TestEnd => return Ok(()),
                    State::ClientTerminate => return Err(Iperf3Error::ClientTerminated),
                    _ => return Err(Iperf3Error::UnknownMessage),
                }
            }
            self.channel.check_signal()?;
            while let Event::Interval(report) = running.next_event(Duration::ZERO) {
                rate.check(&report)?;
                if let Some(interval) = account.interval(&report) {
                    sink.interval(&interval);
                }
            }
            if longest.is_some_and(|longest| start.elapsed() > longest) {
                return Err(Iperf3Error::Expired);
            }
            let received = account.received().0;
            if received > progress.0 {
                progress = (received, Instant::now());
            } else if setup.receives() && progress.1.elapsed() > self.limits.receive_timeout {
                return Err(Iperf3Error::NoData);
            }
        }
    }

    fn exchange_results(
        &mut self,
        account: &Account,
        sink: &mut dyn Sink,
    ) -> Result<(), Iperf3Error> {
        self.channel.send_state(State::ExchangeResults)?;
        let most_bytes = results_bytes_max(account.streams_count());
        let message = self.channel.message(most_bytes, Iperf3Error::Results)?;
        let theirs = EndResults::parse(&message).map_err(Iperf3Error::Results)?;
        if !account.knows_streams_of(&theirs) {
            return Err(Iperf3Error::StreamId);
        }
        let ours = EndResults { server_output: sink.output(), ..account.results() };
        self.channel.send_message(&ours.message())?;
        self.channel.send_state(State::DisplayResults)
    }
}

/// What a client that sends an amount has still under way when it says that this was all.
struct Tail {
    sockets: Vec<OwnedFd>,
    amount_bytes: u64,
}

impl Tail {
    fn of(setup: &Setup, streams: &Streams) -> Self {
        let asked = &setup.asked;
        let blocks = asked.total_blocks.saturating_mul(asked.block_bytes);
        let amount_bytes = u64::try_from(asked.total_bytes.max(blocks)).unwrap_or(0);
        let waits = amount_bytes > 0 && setup.is_tcp() && !setup.sends();
        // A socket that cannot be watched is not waited for.
        let watched = streams.sockets.iter().filter(|_| waits);
        let sockets = watched.filter_map(|socket| socket.try_clone().ok()).collect();
        Self { sockets, amount_bytes }
    }

    /// Waits until it has come and been read, while it still comes, but not for ever.
    fn wait(self) {
        const QUIET: Duration = Duration::from_millis(200);
        const LONGEST: Duration = Duration::from_secs(10);
        const EVERY: Duration = Duration::from_millis(1);
        let began = Instant::now();
        let mut progress = ((0, 0), began);
        let goes_on = |last: Instant| last.elapsed() < QUIET && began.elapsed() < LONGEST;
        while !self.sockets.is_empty() && goes_on(progress.1) {
            let came = self.sum(|socket| sys::tcp_info::tcp_info(socket).ok()?.bytes_received());
            let waits = self.sum(|socket| sys::socket::receive_queue_bytes(socket).ok());
            let greetings = self.sockets.len() as u64 * COOKIE_BYTES as u64;
            if waits == 0 && came.saturating_sub(greetings) >= self.amount_bytes {
                return;
            }
            if progress.0 != (came, waits) {
                progress = ((came, waits), Instant::now());
            }
            std::thread::sleep(EVERY);
        }
    }

    fn sum(&self, figure: impl Fn(&OwnedFd) -> Option<u64>) -> u64 {
        self.sockets.iter().filter_map(figure).sum()
    }
}

/// How long a test may run before the client must have ended it. One that names its time may end a
/// little after the limit, since it ends when its client says so; one that names none may not.
fn longest(setup: &Setup, limits: &ServeLimits) -> Option<Duration> {
    let seconds = |value: i64| Duration::from_secs(u64::try_from(value).unwrap_or(0));
    let is_timed = setup.asked.duration_s > 0;
    let timed =
        is_timed.then(|| seconds(setup.asked.duration_s) + seconds(setup.asked.omit_s) + GRACE);
    let margin = if is_timed { END_MARGIN } else { Duration::ZERO };
    let net = limits.duration_max.map(|longest| longest + margin);
    timed.into_iter().chain(net).min()
}

/// The test at no more than the limit's share for each stream, where this end paces.
fn paced(spec: TestSpec, limits: &ServeLimits) -> TestSpec {
    let Some(total) = limits.rate_bits_per_s_max.filter(|_| limits.paces) else { return spec };
    let directions = if spec.direction == Direction::Bidirectional { 2.0 } else { 1.0 };
    let share = total / (f64::from(spec.streams) * directions);
    let offered = spec.offered_bits_per_s.map_or(share, |offered| offered.min(share));
    // Datagrams that are read more slowly would be lost, and counted as the path's losses.
    let read = (spec.protocol == Protocol::Tcp).then_some(share);
    TestSpec { offered_bits_per_s: Some(offered), read_bits_per_s: read, ..spec }
}

/// The rate over the last seconds, against its limit.
struct RateWatch {
    limit_bits_per_s: Option<f64>,
    span_s: f64,
    seen: VecDeque<(f64, u64)>,
}

impl RateWatch {
    fn new(limits: &ServeLimits) -> Self {
        let tolerance = if limits.paces { PACED_TOLERANCE } else { 1.0 };
        Self {
            limit_bits_per_s: limits.rate_bits_per_s_max.map(|limit| limit * tolerance),
            span_s: limits.rate_interval_s.max(0.1),
            seen: VecDeque::new(),
        }
    }

    fn check(&mut self, report: &traffic::engine::IntervalReport) -> Result<(), Iperf3Error> {
        let Some(limit_bits_per_s) = self.limit_bits_per_s else { return Ok(()) };
        let bytes = report.streams.iter().map(|(_, _, sample)| sample.bytes).sum();
        self.seen.push_back((report.end_s - report.start_s, bytes));
        let whole_s: f64 = self.seen.iter().map(|(length_s, _)| length_s).sum();
        if whole_s < self.span_s * 0.99 {
            return Ok(());
        }
        let moved: u64 = self.seen.iter().map(|(_, bytes)| bytes).sum();
        self.seen.pop_front();
        if moved as f64 * 8.0 / whole_s > limit_bits_per_s {
            return Err(Iperf3Error::TotalRate);
        }
        Ok(())
    }
}
