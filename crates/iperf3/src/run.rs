//! What client and server share while data flows: the spec, the clock of the processor, the drain.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use results::{Direction, End, Protocol, ReceivePath, SendPath, TestLimit, TestSpec, UdpSpec};
use rustix::net::RecvFlags;

use super::account::{Account, Setup, Side, StreamLabel, engine_index};
use super::failure::Iperf3Error;
use super::sockets;
use super::wire::{CpuPercent, Parameters, Transport};
use traffic::engine::{EndPlan, RunningEnd, StreamRole, StreamSocket};

/// Datagrams a system call where the rate leaves no time for single ones.
const BATCH_COUNT: u32 = 32;

/// Below this rate datagrams go one by one, as iperf3 sends them.
const BATCH_FROM_BITS_PER_S: i64 = 500_000_000;

/// Longest test the engine is asked for where nothing else bounds it, seconds.
pub(super) const FOREVER_S: f64 = 1e7;

/// The streams of a test, connected.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) labels: Vec<StreamLabel>,
    pub(super) sockets: Vec<OwnedFd>,
}

impl Streams {
    /// Adds a connected socket.
    pub(super) fn push(
        &mut self,
        socket: OwnedFd,
        sending: bool,
    ) -> Result<&StreamLabel, Iperf3Error> {
        let (local, remote) = sockets::addresses(&socket)
            .map_err(|error| Iperf3Error::StreamConnect(super::failure::os_text(&error)))?;
        let position = self.labels.len();
        self.labels.push(StreamLabel { position, sending, local, remote });
        self.sockets.push(socket);
        Ok(&self.labels[position])
    }

    /// Starts the engine on them.
    pub(super) fn start(
        self,
        setup: &Setup,
        spec: TestSpec,
        patience: Duration,
        samples_kept: usize,
    ) -> Result<(RunningEnd, Account), Iperf3Error> {
        let mut account = Account::new(setup.clone(), self.labels.clone());
        for (position, socket) in self.sockets.iter().enumerate() {
            let known = sys::tcp_info::tcp_info(socket).ok();
            if let Some(bytes) = known.and_then(|info| info.path_mtu_bytes()) {
                account.set_path_mtu(position, bytes);
            }
        }
        let stream = |(label, socket): (&StreamLabel, OwnedFd)| StreamSocket {
            index: engine_index(label.position),
            role: if label.sending { StreamRole::Send } else { StreamRole::Receive },
            socket,
        };
        let plan = EndPlan {
            spec,
            end: if setup.side == Side::Client { End::Near } else { End::Far },
            streams: self.labels.iter().zip(self.sockets).map(stream).collect(),
            udp_counters_64bit: setup.asked.udp_counters_64bit,
        };
        let running = RunningEnd::start_keeping(plan, patience, samples_kept)
            .map_err(|error| Iperf3Error::Engine(error.to_string()))?;
        Ok((running, account))
    }
}

/// The test in the engine's words. `limit` and `tick_s` are this end's own; `core` pins this end.
pub(super) fn spec_of(setup: &Setup, limit: TestLimit, tick_s: f64, core: Option<u32>) -> TestSpec {
    let asked = &setup.asked;
    let count = |value: i64| u64::try_from(value).ok().filter(|&value| value > 0);
    let rate = |value: i64| count(value).map(|value| value as f64);
    let udp = asked.transport == Transport::Udp;
    let cores: Vec<u32> = core.into_iter().collect();
    let near = setup.side == Side::Client;
    TestSpec {
        protocol: if udp { Protocol::Udp } else { Protocol::Tcp },
        direction: match (asked.bidirectional, asked.reverse) {
            (true, _) => Direction::Bidirectional,
            (_, true) => Direction::Reverse,
            (_, false) => Direction::Forward,
        },
        streams: u32::try_from(asked.streams).unwrap_or(0),
        limit,
        omit_s: asked.omit_s.max(0) as f64,
        interval_s: tick_s,
        block_bytes: count(asked.block_bytes).filter(|_| !udp),
        window_bytes: count(asked.window_bytes),
        congestion_control: asked.congestion.clone(),
        pacing_bits_per_s: rate(asked.pacing_bits_per_s),
        offered_bits_per_s: rate(asked.rate_bits_per_s),
        mptcp: asked.mptcp,
        nodelay: asked.nodelay,
        send_path: if asked.zerocopy && !udp { SendPath::Sendfile } else { SendPath::Copy },
        receive_path: if asked.skip_rx_copy { ReceivePath::Discard } else { ReceivePath::Copy },
        near_cores: if near { cores.clone() } else { Vec::new() },
        far_cores: if near { Vec::new() } else { cores },
        udp: udp.then(|| udp_spec(asked)),
        ..TestSpec::tcp()
    }
}

fn udp_spec(asked: &Parameters) -> UdpSpec {
    let fast = asked.rate_bits_per_s == 0 || asked.rate_bits_per_s >= BATCH_FROM_BITS_PER_S;
    let burst = u32::try_from(asked.burst_count).unwrap_or(0).min(1000);
    UdpSpec {
        datagram_bytes: u32::try_from(asked.block_bytes).unwrap_or(0).clamp(16, 65_507),
        gso: asked.gsro,
        gro: asked.gsro,
        batch_count: match burst {
            0 if fast => BATCH_COUNT,
            0 => 1,
            burst => burst,
        },
    }
}

/// How often the engine reports: at the reports' pace, or often enough to notice a limit.
pub(super) fn tick_s(interval_s: f64, watches: bool) -> f64 {
    // A test without reports is one interval.
    let reports_s = if interval_s > 0.0 { interval_s } else { 3600.0 };
    if watches { reports_s.min(0.1) } else { reports_s }
}

/// Processor time of this process since a moment.
#[derive(Debug)]
pub(super) struct CpuClock {
    since: Instant,
    used: sys::thread::Usage,
}

impl CpuClock {
    /// From now on.
    pub(super) fn start() -> Self {
        Self { since: Instant::now(), used: sys::thread::process_usage().unwrap_or_default() }
    }

    /// Use since then, percent of one core.
    pub(super) fn percent(&self) -> CpuPercent {
        let now = sys::thread::process_usage().unwrap_or_default();
        let wall_s = self.since.elapsed().as_secs_f64().max(1e-9);
        let percent = |after: Duration, before: Duration| {
            100.0 * after.saturating_sub(before).as_secs_f64() / wall_s
        };
        let user = percent(now.user, self.used.user);
        let system = percent(now.system, self.used.system);
        CpuPercent { total: user + system, user, system }
    }
}

/// Empties sockets until it is dropped: what still comes after the test is over must not stop the
/// other end from noticing.
#[derive(Debug)]
pub(super) struct Drain {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drain {
    /// Takes over the sockets; they are closed when it is dropped.
    pub(super) fn start(sockets: Vec<OwnedFd>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let body = move || {
            let mut buffer = vec![0; 1 << 16];
            while !seen.load(Ordering::Relaxed) {
                let any = sockets.iter().any(|socket| take(socket, &mut buffer));
                if !any {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        };
        // Without a thread nothing is emptied: the other end then waits for our close.
        let thread = std::thread::Builder::new().name("cs-drain".to_owned()).spawn(body).ok();
        Self { stop, thread }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only reads; a panic there has been printed.
            thread.join().ok();
        }
    }
}

/// Reads what waits; whether there was anything.
fn take(socket: &OwnedFd, buffer: &mut [u8]) -> bool {
    (0..64)
        .take_while(|_| {
            let taken = rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT);
            taken.is_ok_and(|(_, length)| length > 0)
        })
        .count()
        > 0
}

/// Milliseconds since 1970.
pub(super) fn unix_ms() -> u64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since_epoch.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
