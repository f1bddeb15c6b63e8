//! The code that the threads of all streams share, around their loops.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use results::{End, Protocol, TestLimit};
use stats::LatencyHistogram;
use sys::thread::{SchedStat, Usage};

use super::shared::{Phase, Shared, Stream, add};
use super::{StreamRole, request_response, tcp_receive, tcp_send, udp_receive, udp_send};

/// Longest sleep in one system call: how late a thread may notice that the test is over.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// How a stream ended.
#[derive(Debug, Default)]
pub(super) enum Ending {
    /// Unknown: the thread panicked.
    #[default]
    Lost,
    /// The test was over.
    Over,
    /// The limit was reached: everything was sent.
    Spent,
    /// The peer closed the connection in an orderly way.
    Closed,
    /// The peer stayed silent for this long.
    Silent(Duration),
    /// The spec requests something that this host cannot do.
    Unable(sys::SyscallError),
    /// The socket failed.
    Failed(io::Error),
}

/// What a stream's thread returns.
#[derive(Debug, Default)]
pub(super) struct Remains {
    pub(super) ending: Ending,
    /// When the loop ended, on the end's clock.
    pub(super) ended_ns: u64,
    /// Resources used in the measured time.
    pub(super) usage: Option<Usage>,
    pub(super) wait_s: Option<f64>,
    pub(super) slices_count: Option<u64>,
    pub(super) migrations_count: Option<u64>,
    /// Its scheduling policy, if it is not the default one.
    pub(super) policy: Option<String>,
    pub(super) core_first_last: Option<(u32, u32)>,
    pub(super) block_bytes: u64,
    pub(super) latency: Option<LatencyHistogram>,
    pub(super) transactions_count: u64,
    pub(super) timeouts_count: u64,
    pub(super) findings: Vec<(&'static str, String)>,
}

/// The thread's view of a stream.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    pub(super) shared: &'a Shared,
    pub(super) stream: &'a Stream,
    signal: u64,
    held: u64,
    used_before: Option<Used>,
    keeps_last_byte: bool,
    pub(super) block_bytes: u64,
    pub(super) latency: Option<LatencyHistogram>,
    pub(super) transactions_count: u64,
    pub(super) timeouts_count: u64,
    pub(super) findings: Vec<(&'static str, String)>,
    /// How long a peer may stay silent where nothing else bounds the test.
    pub(super) silence_max: Duration,
}

/// The body of a stream's thread.
pub(super) fn run(shared: &Shared, position: usize, silence_max: Duration) -> Remains {
    let stream = &shared.streams[position];
    let mut worker = Worker::new(shared, stream, silence_max);
    worker.settle(position);
    let is_udp = stream.protocol == Protocol::Udp;
    let ending = match stream.role {
        StreamRole::Send if is_udp => udp_send::run(&mut worker),
        StreamRole::Send => tcp_send::run(&mut worker),
        StreamRole::Receive if is_udp => udp_receive::run(&mut worker),
        StreamRole::Receive => tcp_receive::run(&mut worker),
        StreamRole::Request => request_response::request(&mut worker),
        StreamRole::Respond => request_response::respond(&mut worker),
        StreamRole::Probe => request_response::probe(&mut worker),
    };
    let remains = worker.leave(ending);
    shared.thread_ended(stream);
    remains
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared, stream: &'a Stream, silence_max: Duration) -> Self {
        Self {
            shared,
            stream,
            // Differs from any real signal, so that the first check records the thread's core.
            signal: u64::MAX,
            held: 0,
            used_before: None,
            keeps_last_byte: !matches!(shared.spec.limit, TestLimit::DurationS(_)),
            block_bytes: 0,
            latency: None,
            transactions_count: 0,
            timeouts_count: 0,
            findings: Vec::new(),
            silence_max,
        }
    }

    fn settle(&mut self, position: usize) {
        let spec = &self.shared.spec;
        let cores = if self.shared.end == End::Near { &spec.near_cores } else { &spec.far_cores };
        if !cores.is_empty() && self.stream.counts(spec) {
            let core = cores[position % cores.len()];
            if let Err(error) = sys::thread::pin_current(&[core]) {
                self.finding("pin-refused", format!("core {core}: {}", error.source));
            }
        }
        if let Err(error) = sys::socket::set_timeouts(&self.stream.socket, PATIENCE) {
            self.finding("option-refused", error.to_string());
        }
    }

    pub(super) fn finding(&mut self, code: &'static str, text: String) {
        let text = format!("stream {}: {text}", self.stream.index);
        self.findings.push((code, text));
    }

    /// Whether the test goes on. Costs one load and one comparison while nothing has changed.
    #[inline]
    pub(super) fn goes_on(&mut self) -> bool {
        let signal = self.shared.signal();
        signal == self.signal || self.notice(signal)
    }

    #[cold]
    fn notice(&mut self, signal: u64) -> bool {
        self.signal = signal;
        self.stream
            .counters
            .core_plus_1
            .store(sys::thread::current_core().wrapping_add(1), Ordering::Relaxed);
        let phase = Shared::phase_of(signal);
        if phase == Phase::Measured && self.used_before.is_none() {
            self.used_before = used_so_far();
            let counters = &self.stream.counters;
            counters.bytes_before.store(counters.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
            if let Some(latency) = &mut self.latency {
                *latency = LatencyHistogram::default();
            }
            self.transactions_count = 0;
            self.timeouts_count = 0;
        }
        phase != Phase::Over
    }

    fn measures(&self) -> bool {
        Shared::phase_of(self.signal) == Phase::Measured
    }

    /// How much of `want` the limit permits now; 0 once it is used up.
    #[inline]
    pub(super) fn allowance(&mut self, want: u64) -> u64 {
        let Some(budget) = &self.shared.budget else { return want };
        if !self.measures() {
            return want;
        }
        if self.held == 0 {
            let take = |left: u64| left.checked_sub(want.min(left));
            let before = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
            self.held = want.min(before.unwrap_or(0));
        }
        want.min(self.held)
    }

    /// Counts bytes that were sent.
    #[inline]
    pub(super) fn sent(&mut self, bytes: u64) {
        add(&self.stream.counters.bytes, bytes);
        self.spend(bytes);
    }

    /// Uses up part of what [`Self::allowance`] granted.
    #[inline]
    pub(super) fn spend(&mut self, units: u64) {
        if self.keeps_last_byte {
            self.held = self.held.saturating_sub(units);
            self.note_last_byte();
        }
    }

    /// Counts bytes that were received.
    #[inline]
    pub(super) fn received(&mut self, bytes: u64) {
        add(&self.stream.counters.bytes, bytes);
        if self.keeps_last_byte {
            self.note_last_byte();
        }
    }

    /// For receivers without an end of stream: subtracts received units from the awaited total.
    /// Returns whether that was the last of it.
    #[inline]
    pub(super) fn has_all(&self, units: u64) -> bool {
        let Some(awaited) = &self.shared.awaited else { return false };
        let take = |left: u64| Some(left.saturating_sub(units));
        self.measures()
            && awaited.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) <= Ok(units)
    }

    fn note_last_byte(&self) {
        self.stream.counters.last_byte_ns.store(self.shared.now_ns(), Ordering::Relaxed);
    }

    fn leave(mut self, ending: Ending) -> Remains {
        // After the end a connection may end in any way; this end may itself have woken the thread.
        let over = Shared::phase_of(self.shared.signal()) == Phase::Over;
        let ending = match ending {
            Ending::Closed | Ending::Failed(_) if over => Ending::Over,
            ending => ending,
        };
        // Return what was granted and not sent to the other streams.
        if let Some(budget) = &self.shared.budget {
            budget.fetch_add(std::mem::take(&mut self.held), Ordering::Relaxed);
        }
        let used = self.used_before.zip(used_so_far());
        let scheduled = used.and_then(|(before, after)| before.scheduled.zip(after.scheduled));
        let migrated = used.and_then(|(before, after)| before.migrations.zip(after.migrations));
        Remains {
            ending,
            ended_ns: self.shared.now_ns(),
            usage: used.map(|(before, after)| usage_between(before.usage, after.usage)),
            wait_s: scheduled
                .map(|(before, after)| after.wait_ns.saturating_sub(before.wait_ns) as f64 * 1e-9),
            slices_count: scheduled
                .map(|(before, after)| after.slices_count.saturating_sub(before.slices_count)),
            migrations_count: migrated.map(|(before, after)| after.saturating_sub(before)),
            policy: sys::thread::special_policy(sys::thread::current_thread_id()),
            core_first_last: used.map(|(before, after)| (before.core, after.core)),
            block_bytes: self.block_bytes,
            latency: self.latency,
            transactions_count: self.transactions_count,
            timeouts_count: self.timeouts_count,
            findings: self.findings,
        }
    }
}

/// A thread's resource usage and core at one moment.
#[derive(Debug, Clone, Copy)]
struct Used {
    usage: Usage,
    scheduled: Option<SchedStat>,
    migrations: Option<u64>,
    core: u32,
}

fn used_so_far() -> Option<Used> {
    let usage = sys::thread::thread_usage().ok()?;
    let id = sys::thread::current_thread_id();
    Some(Used {
        usage,
        scheduled: sys::thread::schedstat(id).ok(),
        migrations: sys::thread::migrations_count(id),
        core: sys::thread::current_core(),
    })
}

fn usage_between(before: Usage, after: Usage) -> Usage {
    Usage {
        user: after.user.saturating_sub(before.user),
        system: after.system.saturating_sub(before.system),
        voluntary_switches_count: after
            .voluntary_switches_count
            .saturating_sub(before.voluntary_switches_count),
        involuntary_switches_count: after
            .involuntary_switches_count
            .saturating_sub(before.involuntary_switches_count),
    }
}

/// Whether a call only timed out or was interrupted.
pub(super) fn is_pause(error: rustix::io::Errno) -> bool {
    matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)
}
