//! The sampler thread: it keeps the time, takes samples, and ends the test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use results::{IntervalSample, Protocol, TcpSample, TcpSummary, TestLimit};
use topology::{CoreTimes, CounterSnapshot};

use super::sequence::DelayFigures;
use super::shared::{Phase, Shared, Stream};
use super::{Event, IntervalReport, StreamRole, observe};

/// A last interval shorter than this, in seconds, is merged into the one before.
const INTERVAL_MIN_S: f64 = 1e-3;

/// What the sampler returns.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// The marks at the start and the end of the measured time; `None` if it was not reached.
    pub(super) began: Option<Mark>,
    pub(super) ended: Option<Mark>,
    /// Samples of each stream, in the order of [`Shared::streams`].
    intervals: Vec<Vec<IntervalSample>>,
    /// How often each stream's thread was seen on each core.
    cores: Vec<BTreeMap<u32, u32>>,
    /// How often each stream's packets were seen to arrive on each core.
    incoming_cores: Vec<BTreeMap<u32, u32>>,
    /// The TCP summary of each stream at the end of the measured time.
    tcp: Vec<Option<TcpSummary>>,
    /// When the caller stopped the test early, on the end's clock.
    pub(super) stopped_ns: Option<u64>,
    pub(super) findings: Vec<(&'static str, String)>,
}

impl Record {
    /// Samples of the stream at this position.
    pub(super) fn intervals_of(&self, position: usize) -> Vec<IntervalSample> {
        self.intervals.get(position).cloned().unwrap_or_default()
    }

    /// TCP summary of the stream at this position.
    pub(super) fn tcp_of(&self, position: usize) -> Option<TcpSummary> {
        self.tcp.get(position).cloned().flatten()
    }

    /// The core on which most samples saw the packets of the stream at this position arrive.
    pub(super) fn incoming_core_of(&self, position: usize) -> Option<u32> {
        let seen = self.incoming_cores.get(position)?;
        seen.iter().max_by_key(|(_, times)| **times).map(|(core, _)| *core)
    }

    /// Cores on which the thread of the stream at this position was seen, most frequent first.
    pub(super) fn cores_of(&self, position: usize) -> Vec<u32> {
        let Some(seen) = self.cores.get(position) else { return Vec::new() };
        let mut cores: Vec<u32> = seen.keys().copied().collect();
        cores.sort_by_key(|core| std::cmp::Reverse(seen[core]));
        cores
    }
}

/// All readings taken at one moment.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) at_ns: u64,
    pub(super) streams: Vec<StreamMark>,
    pub(super) cores: CoreTimes,
    pub(super) counters: CounterSnapshot,
    pub(super) process_cpu_s: Option<(f64, f64)>,
}

/// One stream at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct StreamMark {
    pub(super) count: Count,
    pub(super) tcp: Option<TcpSample>,
    /// Messages that the socket has dropped so far (UDP receiver).
    pub(super) drops: Option<u64>,
    /// Bytes that have arrived in order so far, read or not (TCP).
    pub(super) arrived_bytes: Option<u64>,
}

/// A stream's counters at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) bytes: u64,
    pub(super) datagrams: u64,
    pub(super) lost: u64,
    pub(super) reordered: u64,
    pub(super) duplicates: u64,
    pub(super) send_failures: u64,
    pub(super) joined_batches: u64,
    pub(super) zero_copy_asked_bytes: u64,
    pub(super) zero_copied_bytes: u64,
    pub(super) idle_ns: u64,
    pub(super) jitter_s: f64,
    pub(super) delay: DelayFigures,
}

impl Count {
    fn of(stream: &Stream) -> Self {
        let counters = &stream.counters;
        counters.agreeing(|| Self {
            bytes: counters.bytes.load(Ordering::Relaxed),
            datagrams: counters.datagrams.load(Ordering::Relaxed),
            lost: counters.lost.load(Ordering::Relaxed),
            reordered: counters.reordered.load(Ordering::Relaxed),
            duplicates: counters.duplicates.load(Ordering::Relaxed),
            send_failures: counters.send_failures.load(Ordering::Relaxed),
            joined_batches: counters.joined_batches.load(Ordering::Relaxed),
            zero_copy_asked_bytes: counters.zero_copy_asked_bytes.load(Ordering::Relaxed),
            zero_copied_bytes: counters.zero_copied_bytes.load(Ordering::Relaxed),
            idle_ns: counters.idle_ns.load(Ordering::Relaxed),
            jitter_s: f64::from_bits(counters.jitter_bits.load(Ordering::Relaxed)),
            delay: DelayFigures {
                windows_count: counters.delay_windows.load(Ordering::Relaxed),
                sum_ns: counters.delay_sum_ns.load(Ordering::Relaxed),
                least_ns: counters.delay_least_ns.load(Ordering::Relaxed),
            },
        })
    }
}

/// Why the sampler woke up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Time,
    FirstByte,
    AllEnded,
    StopAsked,
    Silent,
}

/// The body of the sampler's thread.
pub(super) fn run(
    shared: &Arc<Shared>,
    events: &Sender<Event>,
    silence_max: Duration,
    samples_count: usize,
) -> Record {
    shared.i_am_the_sampler();
    let sampler = Sampler {
        shared,
        events,
        silence_max,
        samples_count,
        zero_ns: 0,
        last_at_ns: 0,
        last: vec![Count::default(); shared.streams.len()],
        progress: (0, Instant::now()),
        record: Record {
            began: None,
            ended: None,
            intervals: vec![Vec::new(); shared.streams.len()],
            cores: vec![BTreeMap::new(); shared.streams.len()],
            incoming_cores: vec![BTreeMap::new(); shared.streams.len()],
            tcp: vec![None; shared.streams.len()],
            stopped_ns: None,
            findings: Vec::new(),
        },
    };
    let record = sampler.keep_time();
    shared.announce(Phase::Over);
    // The caller may have stopped listening: it went straight to the report.
    events.send(Event::Finished).ok();
    record
}

struct Sampler<'a> {
    shared: &'a Shared,
    events: &'a Sender<Event>,
    silence_max: Duration,
    /// At least this many samples of a stream are kept, and at most twice as many.
    samples_count: usize,
    /// When the test began, on the end's clock.
    zero_ns: u64,
    last_at_ns: u64,
    last: Vec<Count>,
    progress: (u64, Instant),
    record: Record,
}

impl Sampler<'_> {
    fn keep_time(mut self) -> Record {
        if !self.wait_for_start() {
            return self.record;
        }
        let spec = &self.shared.spec;
        let omit_s = spec.omit_s.max(0.0);
        if omit_s > 0.0 && self.pass(0.0, omit_s, true) != Wake::Time {
            return self.record;
        }
        self.record.began = Some(self.mark());
        self.shared.announce(Phase::Measured);
        let end_s = match spec.limit {
            TestLimit::DurationS(duration_s) => omit_s + duration_s.max(0.0),
            TestLimit::TotalBytes(_) | TestLimit::TotalBlocks(_) => f64::INFINITY,
        };
        let why = self.pass(omit_s, end_s, false);
        if why == Wake::Silent {
            let text = format!("no data moved for {:.1} s", self.silence_max.as_secs_f64());
            self.record.findings.push(("peer-silent", text));
        }
        self.record
    }

    /// Senders start at once; an end that only receives starts with the first byte. Returns whether
    /// it started.
    fn wait_for_start(&mut self) -> bool {
        let starts_alone =
            |stream: &Stream| matches!(stream.role, StreamRole::Send | StreamRole::Request);
        if self.shared.streams.iter().any(starts_alone) {
            self.zero_ns = self.shared.now_ns();
            self.last_at_ns = self.zero_ns;
            return true;
        }
        let until_ns = self.shared.now_ns() + self.silence_max.as_nanos() as u64;
        let why = self.sleep_until(until_ns, true);
        if let Some(first_ns) = self.shared.first_byte_ns() {
            self.zero_ns = first_ns;
            self.last_at_ns = first_ns;
            return true;
        }
        if why == Wake::Time {
            let text = format!("no data came for {:.1} s", self.silence_max.as_secs_f64());
            self.record.findings.push(("peer-silent", text));
        }
        false
    }

    /// Runs one phase, from `start_s` to `end_s` of the test, one interval at a time.
    fn pass(&mut self, start_s: f64, end_s: f64, omitted: bool) -> Wake {
        let interval_s = self.shared.spec.interval_s.clamp(0.01, 3600.0);
        let mut number = 1.0;
        loop {
            let whole_s = start_s + number * interval_s;
            let due_s = if whole_s + INTERVAL_MIN_S > end_s { end_s } else { whole_s };
            let why = self.sleep_until(self.zero_ns + (due_s * 1e9) as u64, false);
            let is_last = why != Wake::Time || due_s >= end_s;
            if is_last && !omitted {
                self.finish_measured(why);
                return why;
            }
            let counts = self.counts();
            let at_ns = self.shared.now_ns();
            self.report_interval(at_ns, &counts, omitted);
            if is_last {
                return why;
            }
            self.shared.announce(if omitted { Phase::Omitted } else { Phase::Measured });
            number += 1.0;
        }
    }

    /// Ends the measured time: reads the counters first, everything else after.
    fn finish_measured(&mut self, why: Wake) {
        let counts = self.counts();
        let arrived: Vec<_> = self.shared.streams.iter().map(observe::arrived_bytes).collect();
        let mut at_ns = self.shared.now_ns();
        // What moves after the deadline does not count, so stop the senders before the slow
        // readings.
        self.shared.announce(Phase::Over);
        if matches!(why, Wake::AllEnded | Wake::Silent) {
            let last_byte = |stream: &Stream| stream.counters.last_byte_ns.load(Ordering::Relaxed);
            let last_ns = self.shared.streams.iter().map(last_byte).max().unwrap_or(0);
            if last_ns > 0 {
                at_ns = at_ns.min(last_ns.max(self.last_at_ns));
            }
        }
        let streams = self.shared.streams.iter();
        let mptcp = self.shared.spec.mptcp;
        self.record.tcp = streams.map(|stream| observe::tcp_summary(stream, mptcp)).collect();
        self.report_interval(at_ns, &counts, false);
        let mut mark = self.mark();
        mark.at_ns = at_ns;
        for (stream, (count, arrived)) in
            mark.streams.iter_mut().zip(counts.into_iter().zip(arrived))
        {
            (stream.count, stream.arrived_bytes) = (count, arrived);
        }
        self.record.ended = Some(mark);
    }

    fn counts(&self) -> Vec<Count> {
        self.shared.streams.iter().map(Count::of).collect()
    }

    fn mark(&self) -> Mark {
        // The clock is read first: a thread that loses its core here must not shorten the measured time.
        let at_ns = self.shared.now_ns();
        let counts = self.counts();
        let observed = |stream: &Stream, count: Count| StreamMark {
            count,
            tcp: observe::tcp_sample(stream),
            drops: observe::drops_count(stream),
            arrived_bytes: observe::arrived_bytes(stream),
        };
        let streams = self.shared.streams.iter().zip(counts);
        Mark {
            at_ns: at_ns.max(self.zero_ns),
            streams: streams.map(|(stream, count)| observed(stream, count)).collect(),
            cores: CoreTimes::read(),
            counters: CounterSnapshot::read(),
            process_cpu_s: sys::thread::process_usage()
                .ok()
                .map(|usage| (usage.user.as_secs_f64(), usage.system.as_secs_f64())),
        }
    }

    fn report_interval(&mut self, at_ns: u64, counts: &[Count], omitted: bool) {
        let since_zero_s = |ns: u64| ns.saturating_sub(self.zero_ns) as f64 * 1e-9;
        let (start_s, end_s) = (since_zero_s(self.last_at_ns), since_zero_s(at_ns));
        let mut report = IntervalReport { start_s, end_s, omitted, streams: Vec::new() };
        for (position, stream) in self.shared.streams.iter().enumerate() {
            if !stream.counts(&self.shared.spec) {
                continue;
            }
            if let Some(core) = stream.counters.core_plus_1.load(Ordering::Relaxed).checked_sub(1) {
                *self.record.cores[position].entry(core).or_default() += 1;
            }
            if let Ok(Some(core)) = sys::socket::incoming_core(&stream.socket) {
                *self.record.incoming_cores[position].entry(core).or_default() += 1;
            }
            let sample = sample(stream, &self.last[position], &counts[position], (start_s, end_s));
            let sample = IntervalSample { omitted, ..sample };
            let kept = &mut self.record.intervals[position];
            if kept.len() >= self.samples_count.saturating_mul(2) {
                kept.drain(..kept.len() - self.samples_count);
            }
            kept.push(sample.clone());
            report.streams.push((stream.index, stream.sends_bulk(), sample));
        }
        self.last.copy_from_slice(counts);
        self.last_at_ns = at_ns;
        // The caller may have stopped listening: it went straight to the report.
        self.events.send(Event::Interval(report)).ok();
    }

    fn sleep_until(&mut self, until_ns: u64, for_first_byte: bool) -> Wake {
        let bounded = matches!(self.shared.spec.limit, TestLimit::DurationS(_)) || for_first_byte;
        loop {
            if self.shared.stop_is_asked() {
                self.record.stopped_ns = Some(self.shared.now_ns());
                return Wake::StopAsked;
            }
            if for_first_byte && self.shared.first_byte_ns().is_some() {
                return Wake::FirstByte;
            }
            if self.shared.busy_threads() == 0 {
                return Wake::AllEnded;
            }
            let now_ns = self.shared.now_ns();
            if now_ns >= until_ns {
                return Wake::Time;
            }
            if !bounded && self.is_silent() {
                return Wake::Silent;
            }
            let sleep = Duration::from_nanos(until_ns - now_ns);
            std::thread::park_timeout(if bounded {
                sleep
            } else {
                sleep.min(self.silence_max / 4)
            });
        }
    }

    /// Whether nothing has moved on any stream for `silence_max`.
    fn is_silent(&mut self) -> bool {
        let moved = |stream: &Stream| stream.counters.bytes.load(Ordering::Relaxed);
        let total = self.shared.streams.iter().map(moved).fold(0, u64::wrapping_add);
        if total != self.progress.0 {
            self.progress = (total, Instant::now());
        }
        self.progress.1.elapsed() > self.silence_max
    }
}

fn sample(
    stream: &Stream,
    last: &Count,
    now: &Count,
    (start_s, end_s): (f64, f64),
) -> IntervalSample {
    let is_udp = stream.protocol == Protocol::Udp;
    let receives_udp = is_udp && stream.role == StreamRole::Receive;
    IntervalSample {
        start_s,
        end_s,
        bytes: now.bytes - last.bytes,
        omitted: false,
        tcp: observe::tcp_sample(stream),
        datagrams_count: is_udp.then(|| now.datagrams - last.datagrams),
        // A late datagram cancels a loss that was counted in an earlier interval.
        lost_count: receives_udp.then(|| now.lost.saturating_sub(last.lost)),
        jitter_s: receives_udp.then_some(now.jitter_s),
        receive_queue_bytes: sys::socket::receive_queue_bytes(&stream.socket).ok(),
        send_queue_bytes: sys::socket::send_queue_bytes(&stream.socket).ok(),
    }
}
