//! What the kernels at both ends of one modelled stream would report.

use results::{CoreUse, IntervalSample, StreamEnd, TcpSample, TcpSummary, TestSpec};

use crate::model::{Bound, Model, State};

/// Intervals of a test.
const INTERVALS_COUNT: u32 = 8;

/// One stream at one rate.
pub(crate) struct Account<'a> {
    model: &'a Model,
    spec: &'a TestSpec,
    state: &'a State,
    rate: f64,
    duration_s: f64,
    /// Bytes in flight.
    needed: f64,
    /// Window the receiver would leave open if it kept up: tuned ones grow to twice what is used.
    tuned: f64,
}

/// How a thread spent the test, seconds.
struct Thread {
    run_s: f64,
    wait_s: f64,
    pause_s: f64,
}

impl<'a> Account<'a> {
    pub(crate) fn new(
        model: &'a Model,
        spec: &'a TestSpec,
        state: &'a State,
        rate: f64,
        duration_s: f64,
    ) -> Self {
        let needed = rate * state.rtt_s / 8.0;
        let tuned = match spec.window_bytes {
            Some(_) => state.window_bytes,
            None => state.window_bytes.min(2.2 * needed),
        };
        Self { model, spec, state, rate, duration_s, needed, tuned }
    }

    /// Sender and receiver.
    pub(crate) fn ends(&self, index: u32) -> (StreamEnd, StreamEnd) {
        (self.sender(index), self.receiver(index))
    }

    fn sender(&self, index: u32) -> StreamEnd {
        let thread =
            self.thread(self.model.sender_ceiling(self.spec).0, Bound::SenderCore, Bound::Offered);
        let buffer = match self.spec.window_bytes {
            Some(_) => self.state.buffer_bytes,
            None => self.state.buffer_bytes.min(4.0 * self.needed),
        };
        let queued = match self.state.bound {
            Bound::Buffer => self.needed,
            Bound::Offered | Bound::SenderCore => self.needed * 0.9,
            _ => (buffer * 0.6).max(self.needed),
        };
        let algorithm = self.spec.congestion_control.clone();
        let sampled = |interval: IntervalSample| IntervalSample {
            tcp: Some(self.sample(interval.end_s)),
            send_queue_bytes: Some(queued as u64),
            ..interval
        };
        StreamEnd {
            sending: true,
            thread_user_s: Some(thread.run_s * 0.1),
            thread_system_s: Some(thread.run_s * 0.9),
            application_idle_s: self.spec.offered_bits_per_s.map(|_| thread.pause_s),
            send_buffer_bytes: Some(buffer as u64),
            tcp: Some(TcpSummary {
                congestion_control: algorithm.unwrap_or(self.model.congestion_control.into()),
                mss_bytes: self.model.mss() as u32,
                first: TcpSample { rtt_s: self.model.rtt_s, ..self.sample(0.0) },
                last: self.sample(self.duration_s),
                ..TcpSummary::default()
            }),
            intervals: self.intervals().map(sampled).collect(),
            ..self.end(index, &self.spec.near_cores, &thread)
        }
    }

    fn receiver(&self, index: u32) -> StreamEnd {
        let thread =
            self.thread(self.model.receiver_ceiling(self.spec).0, Bound::ReceiverCore, Bound::Read);
        let unread = if self.reader_is_slow() { 6e6_f64.min(self.tuned * 4.0) } else { 2e3 };
        let sampled =
            |interval| IntervalSample { receive_queue_bytes: Some(unread as u64), ..interval };
        StreamEnd {
            thread_user_s: Some(thread.run_s * 0.05),
            thread_system_s: Some(thread.run_s * 0.95),
            application_idle_s: self.spec.read_bits_per_s.map(|_| thread.pause_s),
            receive_buffer_bytes: Some((self.tuned * 2.0) as u64),
            intervals: self.intervals().map(sampled).collect(),
            ..self.end(index, &self.spec.far_cores, &thread)
        }
    }

    fn end(&self, index: u32, pinned: &[u32], thread: &Thread) -> StreamEnd {
        let core =
            if pinned.is_empty() { index % 8 } else { pinned[index as usize % pinned.len()] };
        StreamEnd {
            index,
            bytes: (self.rate * self.duration_s / 8.0) as u64,
            duration_s: self.duration_s,
            cores: vec![core],
            thread_wait_s: Some(thread.wait_s),
            ..StreamEnd::default()
        }
    }

    /// A thread on a core that could carry `core`; `full` and `pauses` are the ceilings at which it
    /// has no time left and at which it waits by choice.
    fn thread(&self, core: f64, full: Bound, pauses: Bound) -> Thread {
        let run_s = (self.rate / core * self.duration_s).min(self.duration_s);
        let left_s = self.duration_s - run_s;
        let bound = self.state.bound;
        Thread {
            run_s,
            wait_s: if bound == full { left_s } else { 0.01 * self.duration_s },
            pause_s: if bound == pauses { left_s * 0.95 } else { 0.0 },
        }
    }

    fn reader_is_slow(&self) -> bool {
        matches!(self.state.bound, Bound::Read | Bound::ReceiverCore)
    }

    fn sample(&self, at_s: f64) -> TcpSample {
        let state = self.state;
        let busy_s = if state.bound == Bound::Offered { at_s * 0.9 } else { at_s };
        let held_back = state.receive_window_share + state.buffer_share > 0.5;
        let window = match state.bound {
            Bound::Capacity if held_back => self.needed * 1.3,
            Bound::Loss | Bound::Growth | Bound::Capacity => self.needed * 1.02,
            _ => self.needed * 1.6,
        };
        // A full socket leaves little window.
        let peer_window = if self.reader_is_slow() { self.needed * 1.1 } else { self.tuned };
        let sent_segments = self.rate * at_s / 8.0 / self.model.mss();
        TcpSample {
            rtt_s: state.rtt_s,
            rtt_min_s: Some(self.model.rtt_s),
            congestion_window_bytes: window as u64,
            peer_window_bytes: Some(peer_window as u64),
            in_flight_bytes: self.needed as u64,
            retransmits_count: (state.retransmit_share * sent_segments) as u64,
            delivery_app_limited: matches!(state.bound, Bound::Offered | Bound::SenderCore),
            busy_s: Some(busy_s),
            receive_window_limited_s: Some(busy_s * state.receive_window_share),
            send_buffer_limited_s: Some(busy_s * state.buffer_share),
            ..TcpSample::default()
        }
    }

    fn intervals(&self) -> impl Iterator<Item = IntervalSample> {
        let (duration_s, rate) = (self.duration_s, self.rate);
        let interval_s = duration_s / f64::from(INTERVALS_COUNT);
        (0..INTERVALS_COUNT).map(move |step| IntervalSample {
            start_s: interval_s * f64::from(step),
            end_s: interval_s * f64::from(step + 1),
            bytes: (rate * interval_s / 8.0) as u64,
            ..IntervalSample::default()
        })
    }
}

/// Eight cores, busy with the streams' threads.
pub(crate) fn cores(streams: &[StreamEnd]) -> Vec<CoreUse> {
    (0..8)
        .map(|core| {
            let threads = streams.iter().filter(|stream| stream.cores == [core]);
            let busy_s: f64 = threads
                .map(|t| {
                    t.thread_user_s.unwrap_or(0.0)
                        + t.thread_system_s.unwrap_or(0.0)
                        + t.thread_wait_s.unwrap_or(0.0)
                })
                .sum();
            let duration_s = streams.first().map_or(1.0, |stream| stream.duration_s);
            let idle = (1.0 - busy_s / duration_s).clamp(0.0, 1.0);
            CoreUse { core, system: 1.0 - idle, idle, ..CoreUse::default() }
        })
        .collect()
}
