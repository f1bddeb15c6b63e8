//! The bulk direction of one test, with both of its ends.

use results::{
    Direction, DirectionOutcome, End, EndReport, IntervalSample, Point, StreamEnd, TcpSample,
    TestOutcome, Work,
};

use crate::numbers::{middle, positive, share};
use crate::thresholds::signs;

/// A TCP bulk test that transferred data.
#[derive(Debug, Clone)]
pub(crate) struct Run<'a> {
    pub(crate) outcome: &'a TestOutcome,
    pub(crate) direction: &'a DirectionOutcome,
    pub(crate) goodput_bits_per_s: f64,
    pub(crate) sender: End,
    pub(crate) senders: Vec<&'a StreamEnd>,
    pub(crate) receivers: Vec<&'a StreamEnd>,
}

impl<'a> Run<'a> {
    /// The run of a point; `None` unless it measured a TCP bulk transfer.
    pub(crate) fn of(point: &'a Point) -> Option<Self> {
        let (Work::Bulk(_), outcome) = (&point.work, point.measured()?) else { return None };
        // A bidirectional test is judged by its first direction.
        let direction = outcome.directions.first()?;
        let goodput_bits_per_s = goodput(direction)?;
        let sender = match direction.direction {
            Direction::Reverse => End::Far,
            Direction::Forward | Direction::Bidirectional => End::Near,
        };
        let streams = |end: End, sending: bool| -> Vec<&StreamEnd> {
            let report = report_of(outcome, end).into_iter();
            report
                .flat_map(|report| &report.streams)
                .filter(|stream| stream.sending == sending)
                .collect()
        };
        let (senders, receivers) = (streams(sender, true), streams(opposite(sender), false));
        Some(Self { outcome, direction, goodput_bits_per_s, sender, senders, receivers })
    }

    pub(crate) fn report(&self, end: End) -> Option<&'a EndReport> {
        report_of(self.outcome, end)
    }

    /// A TCP figure of the sender in the steady part, summed over all streams.
    pub(crate) fn summed(&self, read: impl Fn(&TcpSample) -> Option<f64>) -> Option<f64> {
        let of_streams = self.senders.iter().filter_map(|stream| steady_tcp(stream, &read));
        of_streams.reduce(|sum, value| sum + value).and_then(positive)
    }

    /// A TCP figure of the sender in the steady part, for the typical stream.
    pub(crate) fn typical(&self, read: impl Fn(&TcpSample) -> Option<f64>) -> Option<f64> {
        Self::typical_of(&self.senders, read)
    }

    /// The same of either end's streams.
    pub(crate) fn typical_of(
        streams: &[&StreamEnd],
        read: impl Fn(&TcpSample) -> Option<f64>,
    ) -> Option<f64> {
        middle(streams.iter().filter_map(|stream| steady_tcp(stream, &read))).and_then(positive)
    }

    /// Difference of a counter of seconds over the measured time, summed over all streams.
    pub(crate) fn gained_s(&self, read: impl Fn(&TcpSample) -> Option<f64>) -> Option<f64> {
        let of_streams = self.senders.iter().filter_map(|stream| {
            let tcp = stream.tcp.as_ref()?;
            let gain_s = read(&tcp.last)? - read(&tcp.first)?;
            gain_s.is_finite().then(|| gain_s.max(0.0))
        });
        of_streams.reduce(|sum, value| sum + value)
    }

    /// Difference of a counter of events over the measured time, summed over all streams of one end.
    pub(crate) fn gained_count(
        streams: &[&StreamEnd],
        read: impl Fn(&TcpSample) -> Option<u64>,
    ) -> Option<f64> {
        let of_streams = streams.iter().filter_map(|stream| {
            let tcp = stream.tcp.as_ref()?;
            Some(read(&tcp.last)?.saturating_sub(read(&tcp.first).unwrap_or(0)) as f64)
        });
        of_streams.reduce(|sum, value| sum + value)
    }

    /// A counter of events when the measured time began, summed over all streams of one end.
    pub(crate) fn count_before(
        streams: &[&StreamEnd],
        read: impl Fn(&TcpSample) -> Option<u64>,
    ) -> Option<f64> {
        let of_streams = streams.iter().filter_map(|stream| read(&stream.tcp.as_ref()?.first));
        of_streams.map(|count| count as f64).reduce(|sum, value| sum + value)
    }

    /// Payload of a full segment, bytes, as the kernel of the first of these streams knows it.
    pub(crate) fn segment_bytes(streams: &[&StreamEnd]) -> Option<f64> {
        positive(f64::from(streams.first()?.tcp.as_ref()?.mss_bytes))
    }

    /// Segments retransmitted, and segments sent, as far as the sender's kernel reports them. A foreign sender may tell
    /// no more than how many it retransmitted.
    pub(crate) fn retransmits(&self) -> Option<(f64, f64)> {
        self.kernel_retransmits().or_else(|| {
            let again = self.direction.retransmits_count? as f64;
            // The receiver's own segments cross the same path.
            let segment_bytes = Self::segment_bytes(&self.senders)
                .or_else(|| Self::segment_bytes(&self.receivers))?;
            Some((again, self.direction.received_bytes as f64 / segment_bytes))
        })
    }

    fn kernel_retransmits(&self) -> Option<(f64, f64)> {
        let counts = self.senders.iter().filter_map(|stream| {
            let tcp = stream.tcp.as_ref()?;
            let again =
                tcp.last.retransmits_count.saturating_sub(tcp.first.retransmits_count) as f64;
            let mss_bytes = positive(f64::from(tcp.mss_bytes)).unwrap_or(signs::MSS_USUAL_BYTES);
            Some((again, stream.bytes as f64 / mss_bytes))
        });
        counts.reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Number of sampling intervals in which a stream retransmitted something; `None` if no sender reports on TCP.
    pub(crate) fn loss_events(&self) -> Option<f64> {
        self.senders.iter().find(|stream| stream.tcp.is_some())?;
        let of_stream = |stream: &&StreamEnd| {
            let Some(tcp) = &stream.tcp else { return 0 };
            let sampled = stream.intervals.iter().filter_map(|interval| interval.tcp.as_ref());
            let mut before = tcp.first.retransmits_count;
            let mut events = 0;
            for sample in sampled.chain([&tcp.last]) {
                events += usize::from(sample.retransmits_count > before);
                before = before.max(sample.retransmits_count);
            }
            events
        };
        Some(self.senders.iter().map(of_stream).sum::<usize>() as f64)
    }

    /// Share of the steady samples, 0 to 1, in which all that was written is in flight though both windows have room;
    /// `None` unless the senders sampled what this takes.
    pub(crate) fn drained_share(&self) -> Option<f64> {
        let drained: Vec<bool> =
            self.senders.iter().flat_map(|stream| stream.steady()).filter_map(is_drained).collect();
        share(drained.iter().filter(|drained| **drained).count() as f64, drained.len() as f64)
    }

    /// Share of the steady samples, 0 to 1, for which `holds` is true.
    pub(crate) fn sampled_share(&self, holds: impl Fn(&TcpSample) -> bool) -> Option<f64> {
        let samples =
            self.senders.iter().flat_map(|stream| stream.steady()).filter_map(|i| i.tcp.as_ref());
        let (count, held) = samples.fold((0.0, 0.0), |(count, held), tcp| {
            (count + 1.0, held + f64::from(u8::from(holds(tcp))))
        });
        share(held, count)
    }

    /// Smallest and largest value of a figure over the first stream's steady samples.
    pub(crate) fn swing(&self, read: impl Fn(&TcpSample) -> Option<f64>) -> Option<(f64, f64)> {
        let stream = self.senders.first()?;
        let values = stream.steady().filter_map(|interval| read(interval.tcp.as_ref()?));
        values.filter(|value| value.is_finite()).fold(None, |range, value| {
            let (low, high) = range.unwrap_or((value, value));
            Some((value.min(low), value.max(high)))
        })
    }

    /// Throughput of the last third of a single stream over that of its first third.
    pub(crate) fn growth(&self) -> Option<f64> {
        let stream = match (self.receivers.as_slice(), self.senders.as_slice()) {
            ([stream], _) | ([], [stream]) => stream,
            _ => return None,
        };
        let rates: Vec<f64> = stream
            .intervals
            .iter()
            .filter(|interval| !interval.omitted)
            .filter_map(|interval| {
                positive(interval.bytes as f64 / (interval.end_s - interval.start_s))
            })
            .collect();
        let third = rates.len() / 3;
        if third < 2 {
            return None;
        }
        let last = middle(rates[rates.len() - third..].iter().copied())?;
        crate::numbers::ratio(last, middle(rates[..third].iter().copied())?)
    }
}

/// Rate that a direction delivered, bit/s; the rate sent if the receiver did not report.
pub(super) fn goodput(direction: &DirectionOutcome) -> Option<f64> {
    positive(direction.received_bits_per_s).or_else(|| positive(direction.sent_bits_per_s))
}

/// The end opposite to `end`.
pub(crate) fn opposite(end: End) -> End {
    match end {
        End::Near => End::Far,
        End::Far => End::Near,
    }
}

/// What an end reported of a test.
pub(crate) fn report_of(outcome: &TestOutcome, end: End) -> Option<&EndReport> {
    match end {
        End::Near => Some(outcome.near()),
        End::Far => outcome.far(),
    }
}

/// Whether all that the sender had been given was in flight at one moment, with room in both windows: TCP sends what it
/// has as long as they allow. What is queued and not in flight was lost or acknowledged out of order.
fn is_drained(interval: &IntervalSample) -> Option<bool> {
    let tcp = interval.tcp.as_ref()?;
    let in_flight = tcp.in_flight_bytes as f64;
    let room = |window: u64| in_flight < signs::WINDOW_FULL * window as f64;
    let nothing_waits = tcp.not_sent_bytes? == 0
        && in_flight >= signs::SENT_OF_QUEUE.to * interval.send_queue_bytes? as f64;
    let has_room = room(tcp.congestion_window_bytes) && tcp.peer_window_bytes.is_none_or(room);
    Some(in_flight > 0.0 && nothing_waits && has_room)
}

fn steady_tcp(stream: &StreamEnd, read: &impl Fn(&TcpSample) -> Option<f64>) -> Option<f64> {
    let sampled = stream.steady().filter_map(|interval| read(interval.tcp.as_ref()?));
    middle(sampled).or_else(|| read(&stream.tcp.as_ref()?.last))
}
