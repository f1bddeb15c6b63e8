//! Combines the reports of both ends into the outcome of a test. Pure.

use results::{
    Direction, DirectionOutcome, End, EndReport, Finding, HostAccount, Protocol, StreamEnd,
    TestOutcome, TestSpec, UdpLoss, UdpOutcome,
};

use crate::engine::EndOutcome;

/// The outcome of a test. Without the far end's report, what only that end can know is absent; a
/// forward direction's received bytes are then those that this end sent.
#[must_use]
pub fn assemble(spec: &TestSpec, near: EndOutcome, far: Option<EndReport>) -> TestOutcome {
    let EndOutcome { report, request_response, latency_under_load, duration_s } = near;
    let ways: &[Direction] = match (&spec.request_response, spec.direction) {
        (Some(_), _) => &[],
        (None, Direction::Bidirectional) => &[Direction::Forward, Direction::Reverse],
        (None, Direction::Forward) => &[Direction::Forward],
        (None, Direction::Reverse) => &[Direction::Reverse],
    };
    let directions = ways
        .iter()
        .map(|&direction| {
            let (sender, receiver) = match direction {
                Direction::Reverse => (far.as_ref(), Some(&report)),
                Direction::Forward | Direction::Bidirectional => (Some(&report), far.as_ref()),
            };
            one_direction(spec, direction, duration_s, sender, receiver)
        })
        .collect();
    let outcome = TestOutcome {
        duration_s,
        directions,
        request_response,
        latency_under_load,
        hosts: HostAccount::of_ends(report, far),
        ..TestOutcome::default()
    };
    outcome.with_figures()
}

/// Adds the findings of `end`; equal findings of several streams are added once.
pub(crate) fn note(findings: &mut Vec<Finding>, noticed: Vec<Finding>, end: End) {
    for finding in noticed {
        let finding = Finding { end: Some(end), ..finding };
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
}

/// The outcome of one direction from the reports of its two ends, either of which may be absent.
fn one_direction(
    spec: &TestSpec,
    direction: Direction,
    duration_s: f64,
    sender: Option<&EndReport>,
    receiver: Option<&EndReport>,
) -> DirectionOutcome {
    let sending = Flow::of(sender, true, duration_s);
    let receiving = Flow::of(receiver, false, duration_s);
    let known = |first: &Option<Flow>, second: &Option<Flow>| {
        first.as_ref().or(second.as_ref()).map(|flow| (flow.bytes, flow.bits_per_s))
    };
    let (sent_bytes, sent_bits_per_s) = known(&sending, &receiving).unwrap_or_default();
    let (received_bytes, received_bits_per_s) = known(&receiving, &sending).unwrap_or_default();
    DirectionOutcome {
        direction,
        sent_bytes,
        received_bytes,
        sent_bits_per_s,
        received_bits_per_s,
        retransmits_count: sending.as_ref().and_then(|flow| flow.retransmits_count),
        udp: (spec.protocol == Protocol::Udp).then(|| udp(sender, receiver)),
    }
    .reconciled()
}

/// The streams of one direction at one end, summed.
struct Flow {
    bytes: u64,
    bits_per_s: f64,
    retransmits_count: Option<u64>,
}

impl Flow {
    fn of(end: Option<&EndReport>, sending: bool, duration_s: f64) -> Option<Self> {
        let streams: Vec<_> = streams(end?, sending).collect();
        let bytes = streams.iter().map(|stream| stream.bytes).sum();
        // All streams run at the same time, so the direction takes as long as its longest stream.
        let longest_s = streams.iter().map(|stream| stream.duration_s).fold(0.0, f64::max);
        let seconds = if longest_s > 0.0 { longest_s } else { duration_s };
        let bits_per_s = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
        let retransmits = |stream: &&StreamEnd| {
            let tcp = stream.tcp.as_ref()?;
            Some(tcp.last.retransmits_count.saturating_sub(tcp.first.retransmits_count))
        };
        let retransmits_count: Option<u64> = streams.iter().map(retransmits).sum();
        let retransmits_count = retransmits_count.filter(|_| !streams.is_empty());
        Some(Self { bytes, bits_per_s, retransmits_count })
    }
}

fn streams(end: &EndReport, sending: bool) -> impl Iterator<Item = &StreamEnd> {
    end.streams.iter().filter(move |stream| stream.sending == sending)
}

fn udp(sender: Option<&EndReport>, receiver: Option<&EndReport>) -> UdpOutcome {
    let sum =
        |end: Option<&EndReport>, sending, read: fn(&results::UdpStreamEnd) -> Option<u64>| {
            let counts = streams(end?, sending).filter_map(|stream| stream.udp.as_ref());
            counts.map(read).sum::<Option<u64>>()
        };
    let sent = sum(sender, true, |udp| Some(udp.datagrams_count));
    let received = sum(receiver, false, |udp| Some(udp.datagrams_count));
    let duplicates = sum(receiver, false, |udp| udp.duplicate_count.or(Some(0))).unwrap_or(0);
    let gaps = sum(receiver, false, |udp| udp.lost_count.or(Some(0)));
    let dropped = sum(receiver, false, |udp| udp.socket_drops_count);
    let came = received.map(|count| count.saturating_sub(duplicates));
    let lost_count = lost(sent, came, gaps, dropped);
    UdpOutcome {
        sent_count: sent.or(received).unwrap_or(0),
        received_count: received.or(sent).unwrap_or(0),
        lost_count,
        reordered_count: sum(receiver, false, |udp| udp.reordered_count.or(Some(0))).unwrap_or(0),
        duplicate_count: duplicates,
        jitter_s: receiver.and_then(|end| mean(end, |udp| udp.jitter_s)),
        standing_delay_s: receiver.and_then(standing_delay_s),
        loss: attribute(lost_count, sender, receiver),
    }
}

/// What a receiver's streams waited in queues, seconds.
fn standing_delay_s(receiver: &EndReport) -> Option<f64> {
    mean(receiver, |udp| udp.standing_delay_s)
}

/// Mean over the streams that an end received.
fn mean(receiver: &EndReport, read: fn(&results::UdpStreamEnd) -> Option<f64>) -> Option<f64> {
    let ends = streams(receiver, false);
    let figures: Vec<f64> = ends.filter_map(|stream| read(stream.udp.as_ref()?)).collect();
    (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
}

/// Totals that a foreign sender told, with what only the receiver knows: where datagrams were lost, and how long they
/// waited.
#[must_use]
pub fn received_from_foreign(told: UdpOutcome, receiver: &EndReport) -> UdpOutcome {
    UdpOutcome {
        loss: attribute(told.lost_count, None, Some(receiver)),
        standing_delay_s: standing_delay_s(receiver),
        ..told
    }
}

/// The number of lost datagrams: gaps in the sequence, and what the receiver's sockets dropped. What is missing
/// behind the last arrival is in no gap: it may be lost or, with a long queue on the path, only late.
fn lost(sent: Option<u64>, received: Option<u64>, gaps: Option<u64>, dropped: Option<u64>) -> u64 {
    let gaps = gaps.unwrap_or(0);
    let (Some(sent), Some(received)) = (sent, received) else { return gaps };
    let missing = sent.saturating_sub(received);
    gaps.max(dropped.unwrap_or(0).min(missing))
}

/// Attributes the loss to the places that count drops, starting nearest to the receiving
/// application; what none of them accounts for was lost on the path. Softnet and device counters
/// cover the whole host, so each is credited with no more than the remaining loss.
fn attribute(lost_count: u64, sender: Option<&EndReport>, receiver: Option<&EndReport>) -> UdpLoss {
    let mut left = lost_count;
    let mut take = |dropped: u64| {
        let taken = dropped.min(left);
        left -= taken;
        taken
    };
    let socket_drops = receiver.and_then(|end| {
        let at_sockets: Option<u64> = streams(end, false)
            .map(|stream| stream.udp.as_ref().and_then(|udp| udp.socket_drops_count))
            .sum();
        at_sockets.or_else(|| protocol_gain(end, "Udp.RcvbufErrors"))
    });
    let softnet_drops =
        receiver.map(|end| end.counters.softnet.iter().map(|core| core.dropped_pkts).sum::<u64>());
    let received_by = receiver
        .map(|end| end.counters.devices.iter().map(|device| device.rx_drops_count).sum::<u64>());
    let sent_by = sender
        .map(|end| end.counters.devices.iter().map(|device| device.tx_drops_count).sum::<u64>());
    let device_drops = received_by.into_iter().chain(sent_by).reduce(|a, b| a + b);
    let socket_buffer_count = socket_drops.map(&mut take);
    let softnet_count = softnet_drops.map(&mut take);
    let device_count = device_drops.map(&mut take);
    // Without the receiver's counters, the remainder cannot be attributed.
    let path_count = receiver.map(|_| left);
    UdpLoss { socket_buffer_count, softnet_count, device_count, path_count }
}

fn protocol_gain(end: &EndReport, name: &str) -> Option<u64> {
    let found = end.counters.protocols.iter().find(|counter| counter.name == name);
    found.map(|counter| counter.gain_count)
}

#[cfg(test)]
mod tests {
    use results::{
        DeviceCounters, EndCounters, SoftnetCounters, TcpSample, TcpSummary, TestLimit,
        UdpStreamEnd,
    };

    use super::*;

    fn tcp_stream(index: u32, sending: bool, bytes: u64, retransmits: (u64, u64)) -> StreamEnd {
        let sample = |retransmits_count| TcpSample { retransmits_count, ..TcpSample::default() };
        let tcp = TcpSummary {
            first: sample(retransmits.0),
            last: sample(retransmits.1),
            ..TcpSummary::default()
        };
        StreamEnd { index, sending, bytes, duration_s: 2.0, tcp: Some(tcp), ..StreamEnd::default() }
    }

    fn udp_end(sending: bool, udp: UdpStreamEnd, counters: EndCounters) -> EndReport {
        let stream = StreamEnd {
            sending,
            bytes: udp.datagrams_count * 1000,
            duration_s: 1.0,
            udp: Some(udp),
            ..StreamEnd::default()
        };
        EndReport { streams: vec![stream], counters, ..EndReport::default() }
    }

    fn near(report: EndReport) -> EndOutcome {
        EndOutcome { report, request_response: None, latency_under_load: None, duration_s: 2.0 }
    }

    #[test]
    fn each_direction_is_counted_at_its_own_ends() {
        let mut spec = TestSpec::tcp();
        spec.direction = Direction::Bidirectional;
        let here = EndReport {
            streams: vec![tcp_stream(0, true, 1000, (5, 9)), tcp_stream(1, false, 300, (0, 0))],
            ..EndReport::default()
        };
        let there = EndReport {
            streams: vec![tcp_stream(0, false, 900, (0, 0)), tcp_stream(1, true, 400, (0, 1))],
            ..EndReport::default()
        };
        let outcome = assemble(&spec, near(here), Some(there));
        let [forward, reverse] = &outcome.directions[..] else { panic!("two directions") };
        assert_eq!((forward.sent_bytes, forward.received_bytes), (1000, 900));
        assert_eq!((reverse.sent_bytes, reverse.received_bytes), (400, 300));
        assert_eq!((forward.retransmits_count, reverse.retransmits_count), (Some(4), Some(1)));
        assert!((forward.received_bits_per_s - 3600.0).abs() < 1e-9);
    }

    #[test]
    fn no_end_receives_more_than_was_sent() {
        // The receiver's window of time begins with the first byte, 2 ms after the sender's.
        let stream = |sending, bytes, duration_s| StreamEnd {
            duration_s,
            ..tcp_stream(0, sending, bytes, (0, 0))
        };
        let end = |stream| EndReport { streams: vec![stream], ..EndReport::default() };
        let (here, there) = (end(stream(true, 1000, 1.0)), end(stream(false, 1000, 0.998)));
        let outcome = assemble(&TestSpec::tcp(), near(here.clone()), Some(there.clone()));
        let way = &outcome.directions[0];
        assert!(way.received_bits_per_s > 8000.0, "the figure to quote is the receiver's own");
        assert!(way.sent_bits_per_s >= way.received_bits_per_s, "{way:?}");
        let [sent, received] =
            [&here, &there].map(|end| outcome.stream_bits_per_s(&end.streams[0]));
        assert!(sent >= received, "{sent} {received}");
        // What was on its way when the measured time began was sent in the omitted start.
        let drained = end(stream(false, 1010, 1.0));
        let outcome = assemble(&TestSpec::tcp(), near(here), Some(drained));
        assert_eq!(outcome.directions[0].sent_bytes, 1010);
    }

    #[test]
    fn without_the_far_end_nothing_is_invented() {
        let here =
            EndReport { streams: vec![tcp_stream(0, true, 1000, (0, 2))], ..EndReport::default() };
        let outcome = assemble(&TestSpec::tcp(), near(here), None);
        assert_eq!(outcome.directions[0].received_bytes, 1000);
        assert_eq!(outcome.directions[0].retransmits_count, Some(2));
        assert_eq!(outcome.far(), None);
        let mut spec = TestSpec::tcp();
        spec.direction = Direction::Reverse;
        let outcome = assemble(&spec, near(EndReport::default()), None);
        assert_eq!(outcome.directions[0].retransmits_count, None);
    }

    #[test]
    fn udp_loss_is_shared_out_and_adds_up() {
        let sent = UdpStreamEnd { datagrams_count: 1000, ..UdpStreamEnd::default() };
        let received = UdpStreamEnd {
            datagrams_count: 900,
            lost_count: Some(95),
            duplicate_count: Some(0),
            reordered_count: Some(3),
            jitter_s: Some(1e-5),
            socket_drops_count: Some(40),
            ..UdpStreamEnd::default()
        };
        let counters = EndCounters {
            softnet: vec![SoftnetCounters { dropped_pkts: 25, ..SoftnetCounters::default() }],
            devices: vec![DeviceCounters { rx_drops_count: 10, ..DeviceCounters::default() }],
            ..EndCounters::default()
        };
        let here = udp_end(true, sent, EndCounters::default());
        let there = udp_end(false, received, counters);
        let mut spec = TestSpec::udp(1000);
        spec.limit = TestLimit::TotalBlocks(1000);
        let outcome = assemble(&spec, near(here), Some(there));
        let udp = outcome.directions[0].udp.as_ref().expect("UDP");
        assert_eq!(udp.lost_count, 95, "the five that left no gap may still be on their way");
        assert_eq!((udp.unaccounted_count(), udp.undecided_count(&spec)), (5, 5));
        let loss = &udp.loss;
        assert_eq!(loss.socket_buffer_count, Some(40));
        assert_eq!(loss.softnet_count, Some(25));
        assert_eq!(loss.device_count, Some(10));
        assert_eq!(loss.path_count, Some(20));
    }

    #[test]
    fn only_gaps_and_drops_are_known_to_be_lost() {
        for (sent, received, gaps, dropped, expected) in [
            (Some(100_000), Some(99_500), Some(3), None, 3),
            // A queue of the path holds what is missing, or the path has died: no gap tells.
            (Some(100_000), Some(60_000), Some(3), Some(0), 3),
            (Some(100_000), Some(0), Some(0), None, 0),
            // The receiver's socket dropped them; none arrived behind them.
            (Some(100_000), Some(99_000), Some(3), Some(800), 800),
            (Some(100_000), Some(99_990), Some(3), Some(800), 10),
            (Some(100_000), None, Some(7), Some(9), 7),
        ] {
            let told = lost(sent, received, gaps, dropped);
            assert_eq!(told, expected, "{sent:?} {received:?} {gaps:?} {dropped:?}");
        }
    }

    #[test]
    fn what_has_not_arrived_is_undecided_beyond_a_quarter_second() {
        let udp = |sent_count, received_count| UdpOutcome {
            sent_count,
            received_count,
            ..UdpOutcome::default()
        };
        let mut spec = TestSpec::udp(1000);
        spec.limit = TestLimit::DurationS(10.0);
        assert_eq!(udp(100_000, 98_000).undecided_count(&spec), 0, "2500 are usual");
        assert_eq!(udp(100_000, 90_000).undecided_count(&spec), 7500);
        assert_eq!(udp(100_000, 0).lost_share_max(&spec), Some(1.0));
        assert_eq!(udp(0, 0).lost_share_max(&spec), None);
        spec.limit = TestLimit::TotalBytes(1 << 20);
        assert_eq!(udp(100, 90).undecided_count(&spec), 10);
        spec.omit_s = 1.0;
        assert_eq!(udp(100, 90).undecided_count(&spec), 0);
    }

    #[test]
    fn host_wide_drops_never_exceed_the_loss() {
        bolero::check!().with_type::<(u32, u32, u32, u32)>().for_each(|numbers| {
            let [lost, at_socket, at_softnet, at_device] =
                <[u32; 4]>::from(*numbers).map(u64::from);
            let received = UdpStreamEnd {
                lost_count: Some(lost),
                socket_drops_count: Some(at_socket),
                ..UdpStreamEnd::default()
            };
            let counters = EndCounters {
                softnet: vec![SoftnetCounters { dropped_pkts: at_softnet, ..Default::default() }],
                devices: vec![DeviceCounters { rx_drops_count: at_device, ..Default::default() }],
                ..EndCounters::default()
            };
            let end = udp_end(false, received, counters);
            let loss = attribute(lost, None, Some(&end));
            let total =
                [loss.socket_buffer_count, loss.softnet_count, loss.device_count, loss.path_count];
            assert_eq!(total.into_iter().flatten().sum::<u64>(), lost);
        });
    }
}
