//! One end of the judged test: its thread, its core, its queues.

use results::{CoreUse, End, HostFacts, Results, StreamEnd, TestSpec};

use super::run::{Run, steady};
use crate::numbers::{counted, middle, percent, ramp, share};

/// What one end showed. Shares are of the measured time, 0 to 1.
#[derive(Debug, Clone)]
pub(crate) struct HostView<'a> {
    pub(crate) end: End,
    /// Facts of the host, where it told them.
    pub(crate) host: Option<&'a HostFacts>,
    /// Whether the end gave an account of the test at all.
    pub(crate) told: bool,
    /// The busiest stream thread was running.
    pub(crate) run_share: Option<f64>,
    /// It was ready, but another had its core.
    pub(crate) wait_share: Option<f64>,
    /// Its application chose to pause. A generator that tells its thread's times and no pauses was
    /// asked for none and made none.
    pub(crate) application_idle_share: Option<f64>,
    /// The core it ran on most.
    pub(crate) core: Option<CoreUse>,
    /// A core that does nothing but receive work of the kernel, if there is one.
    pub(crate) softirq_core: Option<CoreUse>,
    /// Cores' worth of idle time on the host.
    pub(crate) idle_cores: Option<f64>,
    /// Mean idle share of its cores.
    pub(crate) mean_idle: Option<f64>,
    /// Unread bytes in the socket, of the typical stream in the steady part.
    pub(crate) receive_queue_bytes: Option<f64>,
    /// Window it advertised last, bytes, all streams.
    pub(crate) advertised_window_bytes: Option<f64>,
    /// `SO_RCVBUF` and `SO_SNDBUF` read back (twice what was asked), all streams.
    pub(crate) receive_buffer_bytes: Option<f64>,
    pub(crate) send_buffer_bytes: Option<f64>,
    /// Sent or unsent bytes in the socket, all streams, in the steady part.
    pub(crate) send_queue_bytes: Option<f64>,
    /// Cores the test pinned it to; empty: not pinned.
    pub(crate) pinned: Vec<u32>,
}

impl<'a> HostView<'a> {
    pub(super) fn of(results: &'a Results, spec: &TestSpec, run: &Run<'a>, end: End) -> Self {
        let (host, pinned) = match end {
            End::Near => (Some(&results.near), &spec.near_cores),
            End::Far => (results.far.as_ref(), &spec.far_cores),
        };
        let streams = if end == run.sender { &run.senders } else { &run.receivers };
        let report = run.report(end);
        let cores = report.map_or(&[][..], |report| &report.cores);
        let thread = Thread::busiest(streams, run.outcome.duration_s);
        let process_share = report
            .and_then(|report| report.process_cpu_s)
            .and_then(|(user_s, system_s)| share(user_s + system_s, run.outcome.duration_s));
        let summed = |read: &dyn Fn(&StreamEnd) -> Option<f64>| {
            streams.iter().filter_map(|stream| read(stream)).reduce(|sum, value| sum + value)
        };
        let idle: Vec<f64> = cores.iter().map(|core| core.idle.clamp(0.0, 1.0)).collect();
        let idle_cores =
            (!idle.is_empty()).then(|| idle.iter().sum::<f64>()).filter(|sum| sum.is_finite());
        Self {
            end,
            host,
            told: !streams.is_empty(),
            run_share: thread.run_share.or(process_share),
            wait_share: thread.wait_share,
            application_idle_share: thread.application_idle_share,
            core: thread
                .core
                .and_then(|number| cores.iter().find(|core| core.core == number))
                .copied(),
            softirq_core: softirq_core(cores),
            idle_cores,
            mean_idle: idle_cores.map(|sum| sum / idle.len() as f64),
            receive_queue_bytes: middle(
                streams
                    .iter()
                    .flat_map(|stream| steady(stream))
                    .filter_map(|interval| interval.receive_queue_bytes.map(|bytes| bytes as f64)),
            ),
            advertised_window_bytes: summed(&|stream| {
                let sampled = steady(stream)
                    .filter_map(|interval| interval.tcp.as_ref()?.advertised_window_bytes);
                middle(sampled.map(|bytes| bytes as f64))
            }),
            receive_buffer_bytes: summed(&|stream| stream.receive_buffer_bytes.and_then(counted)),
            send_buffer_bytes: summed(&|stream| stream.send_buffer_bytes.and_then(counted)),
            send_queue_bytes: summed(&|stream| {
                middle(steady(stream).filter_map(|i| i.send_queue_bytes.map(|bytes| bytes as f64)))
            }),
            pinned: pinned.clone(),
        }
    }

    /// `near end (amsterdam)`.
    pub(crate) fn name(&self) -> String {
        let end = end_name(self.end);
        match self.host.map(|host| host.name.as_str()).filter(|name| !name.is_empty()) {
            Some(host) => format!("{end} end ({host})"),
            None => format!("{end} end"),
        }
    }

    /// How surely its thread never slept, 0 to 1: a stage that never waits for the others is the
    /// slowest one. `None` where the thread's times are unknown.
    pub(crate) fn starved(&self) -> Option<f64> {
        let busy = self.run_share? + self.wait_share.unwrap_or(0.0);
        Some(ramp(busy, 0.75, 0.95))
    }

    /// Running or waiting for its core, share of the time.
    pub(crate) fn busy_share(&self) -> Option<f64> {
        Some((self.run_share? + self.wait_share.unwrap_or(0.0)).min(1.0))
    }

    /// `thread ran 62% and waited for its core 37% of the time (core 1: 0% idle, 38% softirq)`.
    pub(crate) fn thread_text(&self) -> Option<String> {
        let mut text = format!("thread ran {}", percent(self.run_share?));
        if let Some(wait_share) = self.wait_share {
            text += &format!(" and waited for its core {}", percent(wait_share));
        }
        text += " of the time";
        if let Some(core) = &self.core {
            let CoreUse { core, idle, softirq, .. } = core;
            text +=
                &format!(" (core {core}: {} idle, {} softirq)", percent(*idle), percent(*softirq));
        }
        Some(text)
    }
}

/// `near`, `far`.
pub(crate) fn end_name(end: End) -> &'static str {
    match end {
        End::Near => "near",
        End::Far => "far",
    }
}

/// The thread of one stream.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    run_share: Option<f64>,
    wait_share: Option<f64>,
    application_idle_share: Option<f64>,
    core: Option<u32>,
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
            Self {
                run_share: of_time(run_s),
                wait_share: of_time(stream.thread_wait_s),
                application_idle_share: of_time(stream.application_idle_s).or(run_s.map(|_| 0.0)),
                core: stream.cores.first().copied(),
            }
        });
        threads.max_by(|a, b| a.busy().total_cmp(&b.busy())).unwrap_or_default()
    }

    fn busy(&self) -> f64 {
        self.run_share.unwrap_or(0.0) + self.wait_share.unwrap_or(0.0)
    }
}

fn softirq_core(cores: &[CoreUse]) -> Option<CoreUse> {
    let full = cores.iter().filter(|core| core.softirq > 0.5 && core.idle < 0.05);
    full.max_by(|a, b| a.softirq.total_cmp(&b.softirq)).copied()
}
