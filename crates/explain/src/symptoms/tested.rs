//! The tests that symptoms are read from, one value per repeat.

use results::{
    Direction, DirectionOutcome, End, IntervalSample, Point, Results, StreamEnd, TcpSample,
    TestOutcome, TestSpec, WindowUse, Work,
};

use crate::numbers::{positive, share};
use crate::observed::{Flow, HostView, Run, opposite, report_of};
use crate::wanted::idle_rtt_s;

/// One repeat of the judged TCP test.
pub(super) struct Seen<'a> {
    pub(super) results: &'a Results,
    pub(super) recorder: Option<&'a str>,
    pub(super) spec: &'a TestSpec,
    pub(super) run: Run<'a>,
    pub(super) flow: Flow,
    pub(super) sender: HostView<'a>,
    pub(super) receiver: HostView<'a>,
    pub(super) window: Option<WindowUse>,
}

/// One end of one repeat of any test between two hosts.
pub(super) struct Tested<'a> {
    pub(super) view: HostView<'a>,
    pub(super) outcome: &'a TestOutcome,
    /// Whether this end sent bulk data.
    pub(super) is_sender: bool,
    /// Streams that the end took part in.
    pub(super) streams: Vec<&'a StreamEnd>,
}

impl<'a> Seen<'a> {
    pub(super) fn of(results: &'a Results, point: &'a Point) -> Option<Self> {
        let run = Run::of(point)?;
        let spec = point.spec()?;
        let flow = Flow::of(&run);
        Some(Self {
            results,
            recorder: results.recorder(),
            spec,
            flow,
            sender: HostView::of(results, spec, &run, run.sender),
            receiver: HostView::of(results, spec, &run, opposite(run.sender)),
            window: run.outcome.window_use(spec, run.direction.direction),
            run,
        })
    }

    /// Streams of the test.
    pub(super) fn streams(&self) -> f64 {
        f64::from(self.spec.streams.max(1))
    }

    /// Data in flight, bytes, all streams. iperf3 does not record it; what its reader works out from throughput and
    /// round trip shows nothing of its own.
    pub(super) fn in_flight_bytes(&self) -> Option<f64> {
        self.flow.in_flight_bytes.filter(|_| self.recorder != Some("iperf3"))
    }

    /// Lowest round trip known of the path, seconds: idle, or the lowest under load.
    pub(super) fn base_rtt_s(&self) -> Option<f64> {
        let idle_s = idle_rtt_s(self.results);
        match (idle_s, self.flow.rtt_min_s) {
            (Some(idle_s), Some(min_s)) => Some(idle_s.min(min_s)),
            (one, other) => one.or(other),
        }
    }

    /// Segments that the test moved, by its payload and MSS.
    pub(super) fn segments(&self) -> Option<f64> {
        let sent: f64 = self.run.senders.iter().map(|stream| stream.bytes as f64).sum();
        crate::numbers::ratio(sent, self.flow.mss_bytes?)
    }

    /// A figure of every steady sample of the senders, each stream for itself.
    pub(super) fn each(&self, read: impl Fn(&TcpSample) -> Option<f64>) -> Vec<f64> {
        let steady = self.run.senders.iter().flat_map(|stream| stream.steady());
        steady.filter_map(|interval| read(interval.tcp.as_ref()?)).collect()
    }

    /// A figure of the steady intervals of one end, summed over its streams; intervals that a stream does not tell
    /// are left out.
    pub(super) fn summed(
        streams: &[&StreamEnd],
        read: impl Fn(&IntervalSample) -> Option<f64>,
    ) -> Vec<f64> {
        let told: Vec<Vec<Option<f64>>> =
            streams.iter().map(|stream| stream.steady().map(&read).collect()).collect();
        let shortest = told.iter().map(Vec::len).min().unwrap_or(0);
        (0..shortest)
            .filter_map(|step| {
                told.iter().map(|one| one[step]).try_fold(0.0, |sum, one| Some(sum + one?))
            })
            .collect()
    }

    /// A figure of TCP at the senders, summed over the streams.
    pub(super) fn summed_tcp(&self, read: impl Fn(&TcpSample) -> Option<f64>) -> Vec<f64> {
        Self::summed(&self.run.senders, |interval| read(interval.tcp.as_ref()?))
    }

    /// The quotient of two figures of TCP in the steady samples, each summed over the streams.
    pub(super) fn quotients(
        &self,
        part: impl Fn(&TcpSample) -> Option<f64>,
        whole: impl Fn(&TcpSample) -> Option<f64>,
    ) -> Vec<f64> {
        let (parts, wholes) = (self.summed_tcp(part), self.summed_tcp(whole));
        let pairs = parts.into_iter().zip(wholes);
        pairs.filter_map(|(part, whole)| share(part, whole)).collect()
    }

    /// The gain of one counter over that of another between successive steady samples, each stream for itself.
    pub(super) fn gains(
        &self,
        part: impl Fn(&TcpSample) -> Option<f64>,
        whole: impl Fn(&IntervalSample, &TcpSample) -> Option<f64>,
    ) -> Vec<f64> {
        let mut shares = Vec::new();
        for stream in &self.run.senders {
            let told: Vec<_> = stream.steady().filter_map(|i| Some((i, i.tcp.as_ref()?))).collect();
            for pair in told.windows(2) {
                let [(before, first), (after, last)] = pair else { continue };
                let gain = |of: &dyn Fn(&IntervalSample, &TcpSample) -> Option<f64>| {
                    Some(of(after, last)? - of(before, first)?)
                };
                let part = gain(&|_, tcp| part(tcp));
                let gained = part.zip(gain(&whole)).and_then(|(part, all)| share(part, all));
                shares.extend(gained);
            }
        }
        shares
    }

    /// Payload rate of each steady interval, bit/s, all streams: at the receiver or, if it reported none, at the
    /// sender.
    pub(super) fn interval_rates(&self) -> Vec<f64> {
        let rate = |interval: &IntervalSample| {
            positive(interval.bytes as f64 * 8.0 / (interval.end_s - interval.start_s))
        };
        let received = Self::summed(&self.run.receivers, rate);
        if received.is_empty() { Self::summed(&self.run.senders, rate) } else { received }
    }
}

impl<'a> Tested<'a> {
    /// One end of a test of datagrams or round trips.
    pub(super) fn of(results: &'a Results, point: &'a Point, end: End) -> Option<Self> {
        let (spec, outcome) = point.tested()?;
        let streams: Vec<&StreamEnd> =
            report_of(outcome, end).into_iter().flat_map(|report| &report.streams).collect();
        let is_sender = matches!(point.work, Work::Datagrams(_))
            && (end == End::Far) == (spec.direction == Direction::Reverse);
        let view = HostView::of_test(results, spec, outcome, &streams, end);
        Some(Self { view, outcome, is_sender, streams })
    }

    pub(super) fn of_run(seen: &Seen<'a>, end: End) -> Self {
        let is_sender = end == seen.run.sender;
        let view = if is_sender { seen.sender.clone() } else { seen.receiver.clone() };
        let streams = if is_sender { &seen.run.senders } else { &seen.run.receivers };
        Self { view, outcome: seen.run.outcome, is_sender, streams: streams.clone() }
    }

    /// Payload that the test delivered, 10^9 bits.
    pub(super) fn delivered_gbit(&self) -> Option<f64> {
        let bytes = |way: &DirectionOutcome| way.received_bytes as f64;
        positive(self.outcome.directions.iter().map(bytes).sum::<f64>() * 8e-9)
    }
}

/// The repeats of a test: points of the same experiment, setting, kind and direction.
pub(super) fn alike<'a>(results: &'a Results, first: &Point) -> Vec<&'a Point> {
    let way = |point: &Point| point.spec().map(|spec| (spec.protocol, spec.direction));
    let rate = |point: &Point| point.spec().and_then(|spec| spec.offered_bits_per_s);
    let kind = |point: &Point| std::mem::discriminant(&point.work);
    let same = |point: &&Point| {
        (point.experiment == first.experiment && point.varied == first.varied)
            && (kind(point), way(point), rate(point)) == (kind(first), way(first), rate(first))
            && point.measured().is_some()
    };
    results.points.iter().filter(same).collect()
}

/// What was tested, in words: `TCP bulk, 4 streams, far to near`.
pub(super) fn test_words(spec: &TestSpec) -> String {
    use results::Protocol;
    let protocol = match spec.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
    };
    if spec.request_response.is_some() {
        return format!("{protocol} requests, {}", units::count_of(spec.streams, "stream"));
    }
    let way = match spec.direction {
        Direction::Forward => "near to far",
        Direction::Reverse => "far to near",
        Direction::Bidirectional => "near to far, both directions loaded",
    };
    format!("{protocol} bulk, {}, {way}", units::count_of(spec.streams, "stream"))
}
