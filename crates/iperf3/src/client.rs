//! iperf3's client: asks a server for a test and takes its part in it.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use results::{TestOutcome, TestSpec};

mod translate;
mod watch;

use super::account::{Account, Setup, Side, Summary};
use super::channel::{Channel, Interrupted};
use super::failure::Iperf3Error;
use super::options::{Options, Role};
use super::run::{CpuClock, Drain, Streams, spec_of, tick_s, unix_ms};
use super::sink::{Agreement, Silent, Sink};
use super::sockets::{self, LocalEnd};
use super::wire::{
    COOKIE_BYTES, Cookie, EndResults, Parameters, SERVER_RESULTS_BYTES_MAX, State, Transport,
};
use traffic::client::FarTestError;
use traffic::engine::{EndOutcome, Event, IntervalReport, RunningEnd};
use watch::Watch;

/// How long a server may be silent when it is its turn.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// iperf3's datagram where the path does not tell a better one, bytes.
const UDP_BLOCK_BYTES: u64 = 1460;

/// Runs one test as the options say and tells `sink` about it. `interrupted` is asked often: a
/// signal ends the test early, its results so far are reported.
///
/// # Errors
/// In iperf3's words. [`Iperf3Error::Interrupted`] when a signal ended the test.
pub fn run(
    options: &Options,
    sink: &mut dyn Sink,
    interrupted: Interrupted<'_>,
) -> Result<(), Iperf3Error> {
    run_patiently(options, sink, interrupted, PATIENCE)
}

/// As [`run`], with another bound on a silent server.
///
/// # Errors
/// As [`run`].
pub fn run_patiently(
    options: &Options,
    sink: &mut dyn Sink,
    interrupted: Interrupted<'_>,
    patience: Duration,
) -> Result<(), Iperf3Error> {
    let Role::Client { host } = &options.role else {
        return Err(Iperf3Error::Absent("these are a server's options"));
    };
    pin(options.core)?;
    let local = LocalEnd::new(options).map_err(Iperf3Error::Connect)?;
    let control = sockets::open_control(options, host, &local, interrupted)?;
    sockets::prepare_control(&control, options)?;
    let cookie = new_cookie();
    let mut channel =
        Channel::new(control, patience, interrupted).map_err(Iperf3Error::ReceiveMessage)?;
    channel.send(&cookie.0).map_err(|error| match error {
        Iperf3Error::SendMessage(error) => Iperf3Error::SendCookie(error),
        other => other,
    })?;
    let control_mss_bytes = sys::socket::mss_bytes(channel.stream()).unwrap_or(0);
    sink.opened(control_mss_bytes);
    let asked = parameters(options, control_mss_bytes);
    announce_size(&asked, options.client.block_bytes == 0, control_mss_bytes, sink);
    let setup = Setup { side: Side::Client, asked, interval_s: options.interval_s };
    let watch = Watch::new(&setup, &options.client, options.receive_timeout_ms);
    let tick_s = tick_s(setup.interval_s, watch.amount.is_some());
    let plan = Plan {
        spec: spec_of(&setup, watch.limit, tick_s, options.core),
        watch,
        local,
        first_port: options.client.first_port,
        send_timeout_ms: options.send_timeout_ms,
    };
    let agreement = Agreement {
        setup,
        peer_host: host.clone(),
        peer_port: options.port,
        cookie,
        control_mss_bytes,
        unix_ms: 0,
    };
    let cpu = CpuClock::start();
    let session =
        Session { plan, channel, agreement, cpu, on_report: &mut |_| {}, should_stop: &|| false };
    session.test(sink).map(drop).map_err(|broken| broken.error)
}

/// Runs a test of ours against an iperf3 server, on a control connection that the server has
/// accepted `cookie` on and has not been read from. `on_report` is called for every interval of
/// this end; when `should_stop` says yes the test ends early and is reported.
///
/// Of the far end there is what iperf3 tells: bytes, losses, jitter, retransmissions.
///
/// # Errors
/// The spec asks for what iperf3's protocol has not (requests and responses, a latency probe), the
/// server refuses, or the connection breaks. With what this end had measured by then, if the test had begun.
pub fn run_spec(
    control: TcpStream,
    cookie: [u8; COOKIE_BYTES],
    spec: &TestSpec,
    on_report: &mut dyn FnMut(&IntervalReport),
    should_stop: &dyn Fn() -> bool,
) -> Result<TestOutcome, FarTestError> {
    let control_mss_bytes = sys::socket::mss_bytes(&control).unwrap_or(0);
    let asked = translate::parameters(spec, control_mss_bytes).map_err(FarTestError::unmeasured)?;
    let setup = Setup { side: Side::Client, asked, interval_s: spec.interval_s };
    let watch = translate::watch(spec, &setup);
    let plan = Plan {
        spec: translate::near_spec(spec, &setup, watch.limit, watch.amount.is_some()),
        watch,
        local: LocalEnd::default(),
        first_port: spec.first_port,
        send_timeout_ms: 0,
    };
    let unread = |error| FarTestError::unmeasured(Iperf3Error::ReceiveMessage(error));
    let peer = control.peer_addr().map_err(unread)?;
    let agreement = Agreement {
        setup,
        peer_host: super::sink::host_of(peer),
        peer_port: peer.port(),
        cookie: Cookie(cookie),
        control_mss_bytes,
        unix_ms: 0,
    };
    let never = || None;
    let channel = Channel::new(control, PATIENCE, &never).map_err(unread)?;
    let cpu = CpuClock::start();
    let session = Session { plan, channel, agreement, cpu, on_report, should_stop };
    match session.test(&mut Silent) {
        Ok((near, summary)) => Ok(translate::outcome(near, &summary, spec)),
        Err(Broken { error, near }) => {
            // iperf3's summary would count what the server did not report as nothing received.
            let measured = near.map(|near| Box::new(traffic::outcome::assemble(spec, *near, None)));
            Err(FarTestError { source: error.into(), measured })
        }
    }
}

/// The message that these options make.
fn parameters(options: &Options, control_mss_bytes: u64) -> Parameters {
    let client = &options.client;
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let udp = client.transport == Transport::Udp;
    let block_bytes = match client.block_bytes {
        0 if udp && control_mss_bytes > 0 => control_mss_bytes.min(65_507),
        0 if udp => UDP_BLOCK_BYTES,
        bytes => u64::from(bytes),
    };
    Parameters {
        transport: client.transport,
        omit_s: client.omit_s.into(),
        server_core: options.server_core.map(i64::from),
        duration_s: client.duration_s.into(),
        total_bytes: signed(client.total_bytes),
        total_blocks: signed(client.total_blocks),
        mss_bytes: client.mss_bytes.into(),
        nodelay: client.nodelay,
        streams: client.streams.into(),
        reverse: client.reverse,
        bidirectional: client.bidirectional,
        mptcp: options.mptcp,
        window_bytes: client.window_bytes.into(),
        block_bytes: signed(block_bytes),
        rate_bits_per_s: signed(client.rate_bits_per_s),
        pacing_bits_per_s: signed(client.pacing_bits_per_s),
        pacing_timer_us: signed(client.pacing_timer_us),
        burst_count: client.burst_count.into(),
        gsro: client.gsro && udp,
        type_of_service: client.type_of_service.into(),
        flow_label: client.flow_label.into(),
        title: client.title.clone(),
        extra_data: client.extra_data.clone(),
        congestion: client.congestion.clone(),
        get_server_output: client.get_server_output,
        udp_counters_64bit: client.udp_counters_64bit,
        repeating_payload: client.repeating_payload,
        zerocopy: client.zerocopy,
        dont_fragment: client.dont_fragment,
        skip_rx_copy: client.skip_rx_copy,
        authenticated: false,
        client_version: Some(super::FOLLOWED_RELEASE.to_owned()),
    }
}

/// Says how large datagrams are, where that was found here or may be too large.
fn announce_size(asked: &Parameters, found: bool, control_mss_bytes: u64, sink: &mut dyn Sink) {
    let block_bytes = u64::try_from(asked.block_bytes).unwrap_or(0);
    if asked.transport != Transport::Udp {
        return;
    }
    if found {
        sink.sized(block_bytes);
    }
    if (1..block_bytes).contains(&control_mss_bytes) {
        sink.warning(&format!(
            "UDP block size {block_bytes} exceeds TCP MSS {control_mss_bytes}, may result in \
             fragmentation / drops"
        ));
    }
}

/// How this end plays its part.
struct Plan {
    /// What the engine runs.
    spec: TestSpec,
    watch: Watch,
    local: LocalEnd,
    first_port: Option<u16>,
    send_timeout_ms: u32,
}

/// One test, from the cookie on.
struct Session<'a> {
    plan: Plan,
    channel: Channel<'a>,
    agreement: Agreement,
    cpu: CpuClock,
    on_report: &'a mut dyn FnMut(&IntervalReport),
    should_stop: &'a dyn Fn() -> bool,
}

/// A test that failed.
struct Broken {
    error: Iperf3Error,
    /// This end's outcome if data had been moved.
    near: Option<Box<EndOutcome>>,
}

impl From<Iperf3Error> for Broken {
    fn from(error: Iperf3Error) -> Self {
        Self { error, near: None }
    }
}

/// A test that has run.
struct Ran {
    account: Account,
    outcome: EndOutcome,
    /// Keeps the data connections open and empty until the server has ended too.
    drain: Drain,
}

impl Session<'_> {
    fn test(mut self, sink: &mut dyn Sink) -> Result<(EndOutcome, Summary), Broken> {
        self.expect(State::ParamExchange)?;
        self.channel.send_message(&self.agreement.setup.asked.message())?;
        self.agreement.unix_ms = unix_ms();
        sink.agreed(&self.agreement);
        self.expect(State::CreateStreams)?;
        let streams = self.connect_streams(sink)?;
        self.expect(State::TestStart)?;
        sink.started();
        self.expect(State::TestRunning)?;
        let Ran { account, outcome, drain } = self.run_streams(streams, sink)?;
        let remote = match self.exchange_results(&account) {
            Ok(remote) => remote,
            Err(error) => {
                sink.finished(&account.summary(None));
                return Err(Broken { error, near: Some(Box::new(outcome)) });
            }
        };
        drop(drain);
        let summary = account.summary(Some(&remote));
        sink.finished(&summary);
        self.channel.send_state(State::IperfDone)?;
        self.channel.close();
        Ok((outcome, summary))
    }

    /// Waits until the server is in this state.
    fn expect(&mut self, wanted: State) -> Result<(), Iperf3Error> {
        let state = self.channel.state().inspect_err(|error| {
            if matches!(error, Iperf3Error::Interrupted(_)) {
                // The server may be gone already.
                self.channel.send_state(State::ClientTerminate).ok();
            }
        })?;
        if state == wanted { Ok(()) } else { Err(self.refused(state)) }
    }

    /// What the server means by a state that was not its turn.
    fn refused(&mut self, state: State) -> Iperf3Error {
        match state {
            State::AccessDenied => Iperf3Error::Busy,
            State::ServerTerminate => Iperf3Error::ServerTerminated,
            State::ServerError => {
                let code = self.channel.number();
                match code.and_then(|code| Ok((code, self.channel.number()?))) {
                    Ok((code, errno)) => Iperf3Error::from_server(code, errno),
                    Err(error) => error,
                }
            }
            _ => Iperf3Error::UnknownMessage,
        }
    }

    fn connect_streams(&mut self, sink: &mut dyn Sink) -> Result<Streams, Iperf3Error> {
        let asked = &self.agreement.setup.asked;
        // The data goes where the control connection went.
        let remote = self.channel.stream().peer_addr().map_err(Iperf3Error::ReceiveMessage)?;
        let mut streams = Streams::default();
        let interrupted = self.channel.interrupted();
        for (position, sending) in self.agreement.setup.sending_flags().into_iter().enumerate() {
            let position = u16::try_from(position).unwrap_or(0);
            let port = self.plan.first_port.map(|first| first.wrapping_add(position));
            let (local, limit_ms) = (&self.plan.local, self.plan.send_timeout_ms);
            let socket = sockets::open_stream(asked, local, remote, port, limit_ms, interrupted)?;
            sockets::set_congestion(&socket, asked)?;
            sink.buffers(sockets::buffers(&socket, asked));
            self.introduce(&socket)?;
            sink.stream(streams.push(socket, sending)?);
        }
        Ok(streams)
    }

    /// Tells the server which test a data connection belongs to.
    fn introduce(&self, socket: &OwnedFd) -> Result<(), Iperf3Error> {
        if self.agreement.setup.asked.transport == Transport::Udp {
            return sockets::greet(socket, self.channel.interrupted());
        }
        let cookie = &self.agreement.cookie.0;
        let flags = rustix::net::SendFlags::NOSIGNAL;
        match rustix::net::send(socket, cookie, flags) {
            Ok(COOKIE_BYTES) => Ok(()),
            Ok(_short) => Err(Iperf3Error::SendCookie(std::io::ErrorKind::WriteZero.into())),
            Err(error) => Err(Iperf3Error::SendCookie(error.into())),
        }
    }

    fn run_streams(&mut self, streams: Streams, sink: &mut dyn Sink) -> Result<Ran, Broken> {
        let spec = self.plan.spec.clone();
        let (mut running, mut account) =
            streams.start(&self.agreement.setup, spec, self.plan.watch.silence, usize::MAX)?;
        let how = self.watch(&mut running, &mut account, sink);
        let (outcome, sockets) = running.finish_keeping_sockets();
        let drain = Drain::start(sockets);
        self.close_account(&mut account, &outcome, sink);
        match how.and_then(|()| self.channel.send_state(State::TestEnd)) {
            Ok(()) => Ok(Ran { account, outcome, drain }),
            Err(error) => {
                sink.finished(&account.summary(None));
                // The server may be gone already.
                self.channel.send_state(State::ClientTerminate).ok();
                let has_moved = account.sent().0 + account.received().0 > 0;
                Err(Broken { error, near: has_moved.then(|| Box::new(outcome)) })
            }
        }
    }

    fn close_account(&self, account: &mut Account, outcome: &EndOutcome, sink: &mut dyn Sink) {
        for interval in account.finish(outcome, self.cpu.percent()) {
            sink.interval(&interval);
        }
    }

    /// Follows the engine until the test is over, one way or another.
    fn watch(
        &mut self,
        running: &mut RunningEnd,
        account: &mut Account,
        sink: &mut dyn Sink,
    ) -> Result<(), Iperf3Error> {
        let start = Instant::now();
        let mut progress = (0, start);
        loop {
            match running.next_event(Duration::from_millis(20)) {
                Event::Interval(report) => {
                    (self.on_report)(&report);
                    if let Some(interval) = account.interval(&report) {
                        sink.interval(&interval);
                    }
                }
                Event::Finished => return Ok(()),
                Event::Quiet => {}
            }
            self.channel.check_signal()?;
            if self.channel.is_readable(Duration::ZERO) {
                return Err(self.unexpected());
            }
            let watch = &self.plan.watch;
            let late = start.elapsed() > watch.longest;
            if late || watch.is_reached(account) || (self.should_stop)() {
                return Ok(());
            }
            let received = account.received().0;
            if received > progress.0 {
                progress = (received, Instant::now());
            } else if watch.receives && progress.1.elapsed() > watch.silence {
                return Err(Iperf3Error::NoData);
            }
        }
    }

    /// The server says something while data flows: it never has good news.
    fn unexpected(&mut self) -> Iperf3Error {
        match self.channel.state() {
            Ok(state) => self.refused(state),
            Err(error) => error,
        }
    }

    fn exchange_results(&mut self, account: &Account) -> Result<EndResults, Iperf3Error> {
        self.expect(State::ExchangeResults)?;
        self.channel.send_message(&account.results().message())?;
        let body = self.channel.message(SERVER_RESULTS_BYTES_MAX, Iperf3Error::Results)?;
        let remote = EndResults::parse(&body).map_err(Iperf3Error::Results)?;
        if !account.knows_streams_of(&remote) {
            return Err(Iperf3Error::StreamId);
        }
        self.expect(State::DisplayResults)?;
        Ok(remote)
    }
}

/// A name for a test.
fn new_cookie() -> Cookie {
    let mut random = [0; COOKIE_BYTES - 1];
    // Without entropy the name is merely less unique.
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty()).ok();
    Cookie::from_random(random)
}

/// `-A`: the whole process, as iperf3 does it.
fn pin(core: Option<u32>) -> Result<(), Iperf3Error> {
    use super::failure::{OptionKind, Refusal};
    let Some(core) = core else { return Ok(()) };
    sys::thread::pin_current(&[core])
        .map_err(|error| Iperf3Error::Option(Refusal::new(OptionKind::Affinity, error.source)))
}
