//! The window of a TCP test: what was asked for, granted, advertised and really in flight.

use crate::outcome::{EndReport, TestOutcome};
use crate::spec::{Direction, TestSpec};
use crate::stream::{IntervalSample, StreamEnd, TcpSample};

/// Of the advertised window so much must be in flight for the window to be full.
const FULL: f64 = 0.8;

/// Of what a full send buffer holds so much must be in flight: the rest was just written.
const FULL_OF_QUEUE: f64 = 0.6;

/// How much of what the law `T = data in flight / RTT` gives is measured where both samples are typical. After losses
/// data in flight comes and goes, and the samples tell neither the window nor the throughput.
const OF_LAW: std::ops::RangeInclusive<f64> = 0.75..=1.33;

/// Windows and buffers of one direction, all its streams together, as the kernels had them while the
/// test ran steadily.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WindowUse {
    /// Asked for with the test as send and receive buffer, bytes.
    pub asked_bytes: Option<f64>,
    /// `SO_RCVBUF` at the receiver, bytes; the kernel doubles what is asked for.
    pub receive_buffer_bytes: Option<f64>,
    /// `SO_SNDBUF` at the sender, bytes; the kernel doubles what is asked for.
    pub send_buffer_bytes: Option<f64>,
    /// Window the receiver advertised, bytes.
    pub advertised_bytes: Option<f64>,
    /// Sent and not yet acknowledged, bytes.
    pub in_flight_bytes: Option<f64>,
    /// Round-trip time under this load, seconds.
    pub rtt_s: Option<f64>,
    /// Whether the advertised window or the send buffer was full, so that more could not be in flight.
    pub is_full: bool,
}

impl WindowUse {
    /// Repeats of one test taken together: the median of each figure; full where most were.
    #[must_use]
    pub fn typical(repeats: &[Self]) -> Option<Self> {
        let of = |read: fn(&Self) -> Option<f64>| middle(repeats.iter().filter_map(read));
        (!repeats.is_empty()).then(|| Self {
            asked_bytes: of(|one| one.asked_bytes),
            receive_buffer_bytes: of(|one| one.receive_buffer_bytes),
            send_buffer_bytes: of(|one| one.send_buffer_bytes),
            advertised_bytes: of(|one| one.advertised_bytes),
            in_flight_bytes: of(|one| one.in_flight_bytes),
            rtt_s: of(|one| one.rtt_s),
            is_full: repeats.iter().filter(|one| one.is_full).count() * 2 > repeats.len(),
        })
    }

    /// The window that was in effect, bytes: what was in flight where the window or the send buffer was
    /// full, else what the receiver advertised.
    #[must_use]
    pub fn effective_bytes(&self) -> Option<f64> {
        match (self.advertised_bytes, self.in_flight_bytes) {
            (Some(advertised), Some(in_flight)) if self.is_full => Some(advertised.min(in_flight)),
            (Some(advertised), _) => Some(advertised),
            (None, in_flight) => in_flight.filter(|_| self.is_full),
        }
    }

    /// Whether data in flight or round trip are unknown.
    fn is_untold(&self) -> bool {
        self.in_flight_bytes.is_none() || self.rtt_s.is_none()
    }

    /// What the law `T = data in flight / RTT` gives, bit/s, if that is what was `measured`.
    #[must_use]
    pub fn explains(&self, measured_bits_per_s: f64) -> Option<f64> {
        let law = positive(self.in_flight_bytes? * 8.0 / self.rtt_s?)?;
        OF_LAW.contains(&(measured_bits_per_s / law)).then_some(law)
    }

    /// The receiver's part of it, bytes: what was in flight where its window was full, else what it
    /// advertised.
    #[must_use]
    pub fn receive_bytes(&self) -> Option<f64> {
        let advertised = self.advertised_bytes?;
        let full = self.in_flight_bytes.filter(|in_flight| *in_flight >= FULL * advertised);
        Some(full.map_or(advertised, |in_flight| in_flight.min(advertised)))
    }

    /// What the law `T = window / RTT` allows with it, bit/s.
    #[must_use]
    pub fn allows_bits_per_s(&self) -> Option<f64> {
        positive(self.effective_bytes()? * 8.0 / self.rtt_s?)
    }

    /// Bytes of window for each byte of the receiver's buffer.
    #[must_use]
    pub fn advertised_share(&self) -> Option<f64> {
        positive(self.advertised_bytes? / self.receive_buffer_bytes?).filter(|share| *share <= 1.0)
    }
}

impl TestOutcome {
    /// The windows of a direction; `None` where its sender tells nothing of its TCP connections, unless its receiver
    /// tells that no window scale was agreed on.
    #[must_use]
    pub fn window_use(&self, spec: &TestSpec, direction: Direction) -> Option<WindowUse> {
        let (near, far) = (Some(self.near()), self.far());
        let (sender, receiver) = match direction {
            Direction::Reverse => (far, near),
            Direction::Forward | Direction::Bidirectional => (near, far),
        };
        let senders = streams(sender, true);
        let receivers = streams(receiver, false);
        let in_flight_bytes =
            summed(&senders, |one| typical(one, |tcp| counted(tcp.in_flight_bytes)));
        let queued_bytes = summed(&senders, |one| {
            middle(one.steady().filter_map(|interval| interval.send_queue_bytes.map(|b| b as f64)))
        });
        let mut told = WindowUse {
            asked_bytes: spec
                .window_bytes
                .map(|bytes| bytes as f64 * f64::from(spec.streams.max(1))),
            receive_buffer_bytes: summed(&receivers, |one| counted(one.receive_buffer_bytes?)),
            send_buffer_bytes: summed(&senders, |one| counted(one.send_buffer_bytes?)),
            advertised_bytes: summed(&senders, |one| {
                typical(one, |tcp| counted(tcp.peer_window_bytes?))
            })
            .or_else(|| summed(&receivers, unscaled_bytes)),
            in_flight_bytes,
            rtt_s: middle(senders.iter().filter_map(|one| typical(one, |tcp| positive(tcp.rtt_s)))),
            is_full: false,
        };
        let limited = limited_share(&senders).is_some_and(|share| share >= 0.5);
        let of = |part: Option<f64>, whole: Option<f64>| positive(part? / whole?);
        let is_window_full =
            of(in_flight_bytes, told.advertised_bytes).is_some_and(|it| it >= FULL);
        // All that the buffer holds is under way, and it holds what a full buffer does.
        let is_buffer_full = of(in_flight_bytes, queued_bytes)
            .is_some_and(|it| it >= FULL_OF_QUEUE)
            && of(queued_bytes, told.send_buffer_bytes).is_some_and(|it| it >= 0.5);
        let way = self.directions.iter().find(|one| one.direction == direction);
        let measured = way.and_then(|way| positive(way.received_bits_per_s));
        // A window that was full explains the throughput.
        let fits = measured.is_none_or(|rate| told.is_untold() || told.explains(rate).is_some());
        told.is_full = fits && (limited || is_window_full || is_buffer_full);
        (told.advertised_bytes.is_some() || told.in_flight_bytes.is_some()).then_some(told)
    }
}

impl StreamEnd {
    /// The intervals that count, without their first fifth: the ramp is no state to judge.
    pub fn steady(&self) -> impl Iterator<Item = &IntervalSample> {
        let counted = || self.intervals.iter().filter(|interval| !interval.omitted);
        counted().skip(counted().count() / 5)
    }
}

fn streams(end: Option<&EndReport>, sending: bool) -> Vec<&StreamEnd> {
    let all = end.into_iter().flat_map(|end| &end.streams);
    all.filter(|stream| stream.sending == sending).collect()
}

/// A figure of every stream that tells it, together.
fn summed(streams: &[&StreamEnd], read: impl Fn(&StreamEnd) -> Option<f64>) -> Option<f64> {
    streams.iter().filter_map(|stream| read(stream)).reduce(|sum, value| sum + value)
}

/// A figure of the steady part; where nothing was sampled, of the end.
fn typical(stream: &StreamEnd, read: impl Fn(&TcpSample) -> Option<f64>) -> Option<f64> {
    let sampled = stream.steady().filter_map(|interval| read(interval.tcp.as_ref()?));
    middle(sampled).or_else(|| read(&stream.tcp.as_ref()?.last)).and_then(positive)
}

/// Largest window without window scaling, bytes (RFC 9293, section 3.1: a field of 16 bits).
const UNSCALED_MAX_BYTES: f64 = 65_535.0;

/// The window of a stream whose receiver tells that no window scale was agreed on: however much its buffer has room
/// for, the sender hears of no more.
fn unscaled_bytes(stream: &StreamEnd) -> Option<f64> {
    let is_scaled = stream.tcp.as_ref()?.is_window_scaled()?;
    (!is_scaled).then_some(UNSCALED_MAX_BYTES)
}

/// Share of the busy time in which the receiver's window or the send buffer held the senders back.
fn limited_share(senders: &[&StreamEnd]) -> Option<f64> {
    let gained = |read: fn(&TcpSample) -> Option<f64>| {
        let of_stream = |stream: &StreamEnd| {
            let tcp = stream.tcp.as_ref()?;
            Some(read(&tcp.last)? - read(&tcp.first)?)
        };
        summed(senders, of_stream)
    };
    let by_window = gained(|tcp| tcp.receive_window_limited_s).unwrap_or(0.0);
    let by_buffer = gained(|tcp| tcp.send_buffer_limited_s).unwrap_or(0.0);
    positive((by_window + by_buffer) / gained(|tcp| tcp.busy_s)?)
}

fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

fn counted(count: u64) -> Option<f64> {
    positive(count as f64)
}

fn middle(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    stats::median(&values.into_iter().filter(|value| value.is_finite()).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{DirectionOutcome, HostAccount};
    use crate::stream::TcpSummary;

    /// A test that asked for 128 KiB over 20 ms, with so much advertised and in flight.
    fn outcome(advertised_bytes: u64, in_flight_bytes: u64, limited_s: f64) -> TestOutcome {
        let sample = |at_s: f64| TcpSample {
            rtt_s: 0.0204,
            peer_window_bytes: Some(advertised_bytes),
            in_flight_bytes,
            busy_s: Some(at_s),
            receive_window_limited_s: Some(at_s * limited_s),
            ..TcpSample::default()
        };
        let interval = |step: u32| IntervalSample {
            start_s: f64::from(step),
            end_s: f64::from(step) + 1.0,
            tcp: Some(sample(f64::from(step) + 1.0)),
            ..IntervalSample::default()
        };
        let tcp = TcpSummary { first: sample(0.0), last: sample(5.0), ..TcpSummary::default() };
        let sender = StreamEnd {
            sending: true,
            send_buffer_bytes: Some(262_144),
            tcp: Some(tcp),
            intervals: (0..5).map(interval).collect(),
            ..StreamEnd::default()
        };
        let receiver = StreamEnd { receive_buffer_bytes: Some(262_144), ..StreamEnd::default() };
        let account = |stream| EndReport { streams: vec![stream], ..EndReport::default() };
        let hosts = HostAccount::of_ends(account(sender), Some(account(receiver)));
        TestOutcome { duration_s: 5.0, hosts, ..TestOutcome::default() }
    }

    /// Of a sender that tells nothing, such as an iperf3.
    #[test]
    fn a_receiver_knows_the_window_that_no_scale_lets_grow() {
        let told_by = |tcp: TcpSummary| {
            let receiver = StreamEnd { tcp: Some(tcp), ..StreamEnd::default() };
            let account = EndReport { streams: vec![receiver], ..EndReport::default() };
            let hosts = HostAccount::of_ends(account, None);
            let outcome = TestOutcome { duration_s: 5.0, hosts, ..TestOutcome::default() };
            outcome.window_use(&TestSpec::tcp(), Direction::Reverse)
        };
        let unscaled = TcpSummary { segments_out_count: Some(9), ..TcpSummary::default() };
        let window = told_by(unscaled.clone()).and_then(|told| told.receive_bytes());
        assert_eq!(window, Some(65_535.0));
        assert_eq!(told_by(TcpSummary { window_scale_shifts: Some((7, 7)), ..unscaled }), None);
        assert_eq!(told_by(TcpSummary::default()), None, "an old kernel tells no options");
    }

    fn seen(advertised_bytes: u64, in_flight_bytes: u64, limited_s: f64) -> WindowUse {
        let spec = TestSpec { window_bytes: Some(131_072), ..TestSpec::tcp() };
        let outcome = outcome(advertised_bytes, in_flight_bytes, limited_s);
        outcome.window_use(&spec, Direction::Forward).expect("the sender tells")
    }

    #[test]
    fn a_full_window_is_what_was_in_flight_and_not_what_was_asked_for() {
        let told = seen(206_848, 198_656, 0.0);
        assert_eq!(
            (told.asked_bytes, told.receive_buffer_bytes),
            (Some(131_072.0), Some(262_144.0))
        );
        assert_eq!(told.effective_bytes(), Some(198_656.0));
        let allows = told.allows_bits_per_s().expect("a round trip");
        assert!((allows - 77.9e6).abs() < 0.1e6, "{allows}");
        assert!((told.advertised_share().expect("told") - 0.789).abs() < 0.001);
    }

    #[test]
    fn a_window_with_room_left_is_what_was_advertised() {
        assert_eq!(seen(4_000_000, 198_656, 0.0).effective_bytes(), Some(4_000_000.0));
        assert_eq!(seen(4_000_000, 198_656, 0.9).effective_bytes(), Some(198_656.0));
    }

    #[test]
    fn samples_that_do_not_explain_the_throughput_tell_of_no_full_window() {
        let spec = TestSpec { window_bytes: Some(131_072), ..TestSpec::tcp() };
        // 77.9 Mbit/s by the law.
        for (received_bits_per_s, is_full) in [(75e6, true), (100e6, true), (38e6, false)] {
            let way = DirectionOutcome {
                direction: Direction::Forward,
                sent_bytes: 0,
                received_bytes: 0,
                sent_bits_per_s: received_bits_per_s,
                received_bits_per_s,
                retransmits_count: None,
                udp: None,
            };
            let outcome = TestOutcome { directions: vec![way], ..outcome(206_848, 198_656, 0.0) };
            let told = outcome.window_use(&spec, Direction::Forward).expect("the sender tells");
            assert_eq!(told.is_full, is_full, "{received_bits_per_s}");
            assert_eq!(told.explains(received_bits_per_s).is_some(), is_full);
        }
    }

    #[test]
    fn no_window_is_told_of_a_sender_without_an_account() {
        let spec = TestSpec::tcp();
        assert_eq!(outcome(1, 1, 0.0).window_use(&spec, Direction::Reverse), None);
    }
}
