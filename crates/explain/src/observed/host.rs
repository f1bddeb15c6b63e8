//! One end of the judged test: its thread, its core, its queues.

use results::{
    CoreUse, DeviceCounters, End, EndCounters, HostFacts, InterfaceFacts, Machine, QdiscCounters,
    Results, StreamEnd, TestOutcome, TestSpec,
};

use super::run::{Run, report_of};
use crate::numbers::{counted, middle, percent, share};
use crate::thresholds::signs;

/// Observations of one end. Shares are of the measured time, 0 to 1.
#[derive(Debug, Clone)]
pub(crate) struct HostView<'a> {
    pub(crate) end: End,
    /// Facts about the host, if it reported them.
    pub(crate) host: Option<&'a HostFacts>,
    /// Whether the end reported on the test at all.
    pub(crate) told: bool,
    /// Share in which the busiest stream thread ran.
    pub(crate) run_share: Option<f64>,
    /// No thread was seen, and what ran is the whole process.
    pub(crate) is_process: bool,
    /// Share in which that thread was ready but another one had its core.
    pub(crate) wait_share: Option<f64>,
    /// Share in which its application chose to pause; 0 for a generator that reports its thread's times and
    /// no pauses.
    pub(crate) application_idle_share: Option<f64>,
    /// The core that thread ran on most.
    pub(crate) core: Option<CoreUse>,
    /// A core that only does the kernel's receive work, if there is one.
    pub(crate) softirq_core: Option<CoreUse>,
    /// Unread bytes in the socket of the typical stream, in the steady part.
    pub(crate) receive_queue_bytes: Option<f64>,
    /// Median of the window that it advertised in the steady part, bytes, all streams.
    pub(crate) advertised_window_bytes: Option<f64>,
    /// `SO_RCVBUF` as the kernel reports it (twice the requested size), bytes, all streams.
    pub(crate) receive_buffer_bytes: Option<f64>,
    /// `SO_SNDBUF`, likewise.
    pub(crate) send_buffer_bytes: Option<f64>,
    /// Bytes in the send queue, sent or unsent, all streams, in the steady part.
    pub(crate) send_queue_bytes: Option<f64>,
    /// Cores that the test pinned it to; empty: not pinned.
    pub(crate) pinned: Vec<u32>,
    /// Further figures of the busiest stream thread.
    pub(crate) thread: Thread,
    /// Use of each core of the host.
    pub(crate) cores: &'a [CoreUse],
    /// Differences of the host's counters, if the end reported them.
    pub(crate) counters: Option<&'a EndCounters>,
    /// Measured time, seconds.
    pub(crate) duration_s: f64,
    /// Payload that its streams moved in the test's direction, bytes.
    pub(crate) payload_bytes: f64,
    /// Processor time of the end's whole process, in cores.
    pub(crate) process_cores: Option<f64>,
}

impl<'a> HostView<'a> {
    pub(crate) fn of(results: &'a Results, spec: &TestSpec, run: &Run<'a>, end: End) -> Self {
        let streams = if end == run.sender { &run.senders } else { &run.receivers };
        Self::of_test(results, spec, run.outcome, streams, end)
    }

    /// The observations of any test between two hosts; `streams` are those that the end took part in.
    pub(crate) fn of_test(
        results: &'a Results,
        spec: &TestSpec,
        outcome: &'a TestOutcome,
        streams: &[&StreamEnd],
        end: End,
    ) -> Self {
        let (host, pinned) = match end {
            End::Near => (Some(results.near()), &spec.near_cores),
            End::Far => (results.far(), &spec.far_cores),
        };
        let report = report_of(outcome, end);
        let cores = report.map_or(&[][..], |report| &report.cores);
        let thread = Thread::busiest(streams, outcome.duration_s);
        let process_share = report
            .and_then(|report| report.process_cpu_s)
            .and_then(|(user_s, system_s)| share(user_s + system_s, outcome.duration_s));
        let summed = |read: &dyn Fn(&StreamEnd) -> Option<f64>| {
            streams.iter().filter_map(|stream| read(stream)).reduce(|sum, value| sum + value)
        };
        Self {
            end,
            host,
            told: !streams.is_empty(),
            run_share: thread.run_share.or(process_share),
            is_process: thread.run_share.is_none() && process_share.is_some(),
            wait_share: thread.wait_share,
            application_idle_share: thread.application_idle_share,
            core: thread
                .core
                .and_then(|number| cores.iter().find(|core| core.core == number))
                .copied(),
            softirq_core: softirq_core(cores),
            receive_queue_bytes: middle(
                streams
                    .iter()
                    .flat_map(|stream| stream.steady())
                    .filter_map(|interval| interval.receive_queue_bytes.map(|bytes| bytes as f64)),
            ),
            advertised_window_bytes: summed(&|stream| {
                let sampled = stream
                    .steady()
                    .filter_map(|interval| interval.tcp.as_ref()?.advertised_window_bytes);
                middle(sampled.map(|bytes| bytes as f64))
            }),
            receive_buffer_bytes: summed(&|stream| stream.receive_buffer_bytes.and_then(counted)),
            send_buffer_bytes: summed(&|stream| stream.send_buffer_bytes.and_then(counted)),
            send_queue_bytes: summed(&|stream| {
                middle(stream.steady().filter_map(|i| i.send_queue_bytes.map(|bytes| bytes as f64)))
            }),
            pinned: pinned.clone(),
            thread,
            cores,
            // An end that tells no counters has empty ones.
            counters: report
                .map(|report| &report.counters)
                .filter(|counters| **counters != EndCounters::default()),
            duration_s: outcome.duration_s,
            payload_bytes: streams.iter().map(|stream| stream.bytes as f64).sum(),
            process_cores: report
                .and_then(|report| report.process_cpu_s)
                .map(|(user_s, system_s)| (user_s + system_s) / outcome.duration_s)
                .filter(|cores| cores.is_finite()),
        }
    }

    /// Whether nothing is known of the host's interface and hardware.
    pub(crate) fn host_is_untold(&self) -> bool {
        self.interface().is_none() && self.machine().is_none()
    }

    /// The hardware of the host, if it reported it.
    pub(crate) fn machine(&self) -> Option<&'a Machine> {
        self.host?.machine.as_ref()
    }

    /// The interface that carries the path.
    pub(crate) fn interface(&self) -> Option<&'a InterfaceFacts> {
        self.host?.interface.as_ref()
    }

    /// Differences of the counters of the path's interface.
    pub(crate) fn device(&self) -> Option<&'a DeviceCounters> {
        let name = &self.interface()?.name;
        self.counters?.devices.iter().find(|device| device.interface == *name)
    }

    /// The queueing disciplines at the path's interface.
    pub(crate) fn qdiscs(&self) -> impl Iterator<Item = &'a QdiscCounters> + use<'a> {
        let name = self.interface().map(|interface| interface.name.as_str());
        let all = self.counters.map_or(&[][..], |counters| &counters.qdiscs);
        all.iter().filter(move |qdisc| Some(qdisc.interface.as_str()) == name)
    }

    /// The core of its busiest thread or of that thread's packets: the one that the hypervisor took most from.
    pub(crate) fn robbed_core(&self) -> Option<&'a CoreUse> {
        let own = self.thread.core.and_then(|core| self.core_use(core));
        let packets = self.thread.incoming_core.and_then(|core| self.core_use(core));
        let cores = own.into_iter().chain(packets).filter(|core| core.steal.is_finite());
        cores.max_by(|one, other| one.steal.total_cmp(&other.steal))
    }

    /// How a core spent the test.
    pub(crate) fn core_use(&self, number: u32) -> Option<&'a CoreUse> {
        self.cores.iter().find(|core| core.core == number)
    }

    /// Clock of the busiest thread's core, and the highest the processor reaches; kHz.
    pub(crate) fn clock_khz(&self) -> Option<(f64, f64)> {
        let core = self.thread.core?;
        let clock = self.counters?.clocks.iter().find(|clock| clock.core == core)?;
        let seen = clock.first_khz.max(clock.last_khz) as f64;
        Some((seen, clock.hardware_max_khz? as f64))
            .filter(|(seen, most)| *seen > 0.0 && *most > 0.0)
    }

    /// The scheduling policy of its thread if others take precedence: `idle`, `batch` or `nice 5`.
    pub(crate) fn low_policy(&self) -> Option<&str> {
        self.thread.policy.as_deref().filter(|policy| {
            let nice = policy.strip_prefix("nice ").and_then(|nice| nice.parse::<i32>().ok());
            *policy == "idle" || *policy == "batch" || nice.is_some_and(|nice| nice > 0)
        })
    }

    /// Confidence, 0 to 1, that a scheduling policy of low priority keeps it waiting.
    pub(crate) fn held_behind(&self) -> f64 {
        let waited = self.low_policy().and(self.wait_share);
        waited.map_or(0.0, |waited| signs::HELD_BEHIND.of(waited))
    }

    /// How the thread's time divides, if known: `user 8%, system 91%: mostly in the kernel`.
    pub(crate) fn mode_text(&self) -> Option<String> {
        let (user, system) = (self.thread.user_share?, self.thread.system_share?);
        let total = crate::numbers::positive(user + system)?;
        let kernel = system / total;
        let what = if kernel > signs::MOSTLY_KERNEL {
            "mostly in the kernel"
        } else if kernel < signs::MOSTLY_USER {
            "mostly in user mode"
        } else {
            "in both modes"
        };
        Some(format!("user {}, system {}: {what}", percent(user), percent(system)))
    }

    /// The end with its host's name: `near end (amsterdam)`.
    pub(crate) fn name(&self) -> String {
        let end = end_name(self.end);
        match self.host.map(|host| host.name.as_str()).filter(|name| !name.is_empty()) {
            Some(host) => format!("{end} end ({host})"),
            None => format!("{end} end"),
        }
    }
}

/// Name of an end: `near` or `far`.
pub(crate) fn end_name(end: End) -> &'static str {
    match end {
        End::Near => "near",
        End::Far => "far",
    }
}

/// Figures of one stream's thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Thread {
    run_share: Option<f64>,
    wait_share: Option<f64>,
    application_idle_share: Option<f64>,
    /// The core it was sampled on most often.
    pub(crate) core: Option<u32>,
    pub(crate) user_share: Option<f64>,
    pub(crate) system_share: Option<f64>,
    /// Its scheduling policy, if it is not the default.
    pub(crate) policy: Option<String>,
    /// Times per second that it went to sleep.
    pub(crate) sleeps_per_s: Option<f64>,
    /// Times per second that another thread took its core.
    pub(crate) preempted_per_s: Option<f64>,
    /// Mean time from ready to running, seconds.
    pub(crate) delay_s: Option<f64>,
    /// The core that its packets arrived on.
    pub(crate) incoming_core: Option<u32>,
}

impl Thread {
    fn busiest(streams: &[&StreamEnd], test_s: f64) -> Self {
        let threads = streams.iter().map(|stream| {
            let duration_s = crate::numbers::positive(stream.duration_s).unwrap_or(test_s);
            let of_time =
                |seconds: Option<f64>| seconds.and_then(|seconds| share(seconds, duration_s));
            let run_s = match (stream.thread_user_s, stream.thread_system_s) {
                (None, None) => None,
                (user_s, system_s) => Some(user_s.unwrap_or(0.0) + system_s.unwrap_or(0.0)),
            };
            let a_second = |count: Option<u64>| Some(count? as f64 / duration_s);
            Self {
                run_share: of_time(run_s),
                wait_share: of_time(stream.thread_wait_s),
                application_idle_share: of_time(stream.application_idle_s).or(run_s.map(|_| 0.0)),
                core: stream.cores.first().copied(),
                user_share: of_time(stream.thread_user_s),
                system_share: of_time(stream.thread_system_s),
                policy: stream.thread_policy.clone(),
                sleeps_per_s: a_second(stream.thread_sleeps_count),
                preempted_per_s: a_second(stream.thread_preempted_count),
                delay_s: stream
                    .thread_wait_s
                    .zip(stream.thread_slices_count)
                    .and_then(|(wait_s, slices)| crate::numbers::ratio(wait_s, slices as f64)),
                incoming_core: stream.incoming_core,
            }
        });
        threads.max_by(|a, b| a.busy().total_cmp(&b.busy())).unwrap_or_default()
    }

    fn busy(&self) -> f64 {
        self.run_share.unwrap_or(0.0) + self.wait_share.unwrap_or(0.0)
    }
}

fn softirq_core(cores: &[CoreUse]) -> Option<CoreUse> {
    let full = cores
        .iter()
        .filter(|core| core.softirq > signs::SOFTIRQ_CORE && core.idle < signs::SOFTIRQ_CORE_IDLE);
    full.max_by(|a, b| a.softirq.total_cmp(&b.softirq)).copied()
}
