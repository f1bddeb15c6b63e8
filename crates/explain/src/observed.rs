//! The observations of the judged test in a results document, read once for all mechanisms.

mod acknowledgements;
mod flow;
mod host;
mod hosts;
mod run;
mod setup;
mod windows;

use std::cell::OnceCell;
use std::rc::Rc;

use results::{
    End, Estimate, HostFacts, InterfaceFacts, Limit, Point, Results, TestSpec, UdpOutcome,
    WindowUse,
};
use units::{saturating_u64, show_seconds};

pub(crate) use acknowledgements::Acknowledgements;
pub(crate) use flow::Flow;
pub(crate) use host::{HostView, end_name};
pub(crate) use run::{Run, opposite, report_of};

use crate::ceilings::Headers;
use crate::change::Change;
use crate::numbers::{positive, ratio, share};
use crate::symptoms::{JudgedSymptoms, names};
use crate::thresholds::{Fit, Fitted, Ramp, path, signs};
use crate::wanted::{Wanted, idle_rtt_s};
use setup::Setup;

/// Name of the experiment whose test is judged.
const JUDGED: &str = "single-stream";

/// The judged test, and other measurements of the same document.
#[derive(Debug, Clone)]
pub(crate) struct Observed<'a> {
    /// The specification that the judged points, repeats of one test, share.
    pub(crate) spec: &'a TestSpec,
    pub(crate) goodput: Estimate,
    pub(crate) flow: Flow,
    pub(crate) setup: Setup,
    pub(crate) sender: HostView<'a>,
    pub(crate) receiver: HostView<'a>,
    /// Round trip of the path without the test's load, seconds: the lowest observed.
    pub(crate) base_rtt_s: Option<f64>,
    /// The windows of the judged test, if the sender reports them.
    window: Option<WindowUse>,
    /// The rate to size windows and buffers for; set once the limits are weighed.
    pub(crate) wanted: Option<Wanted>,
    /// The thresholds that recorded cases set.
    pub(crate) fit: Fit,
    /// Windows and buffers that an experiment refuted as limits.
    refuted: Vec<Limit>,
    /// Whether both ends run on one kernel (an emulated path), so that core figures are shared.
    pub(crate) one_machine: bool,
    /// Computed when first read.
    shown: Rc<OnceCell<JudgedSymptoms>>,
    results: &'a Results,
}

/// What a UDP test carried in one direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UdpSeen {
    pub(crate) sent_bits_per_s: f64,
    pub(crate) delivered_bits_per_s: f64,
    /// Datagrams sent.
    pub(crate) sent_count: Option<f64>,
    /// Share, 0 to 1, lost on the path and not in the receiver's socket buffer or softnet backlog, of the
    /// datagrams lost or received; all losses count if the receiver does not report where they occurred.
    pub(crate) lost_share: f64,
    /// Whether the receiver reported where datagrams were lost.
    pub(crate) located: bool,
    /// Share of the sent datagrams, 0 to 1, that arrived after a later one.
    pub(crate) reordered_share: f64,
    /// How long datagrams waited in queues, seconds.
    pub(crate) standing_delay_s: Option<f64>,
}

impl<'a> Observed<'a> {
    /// The observations of a document; `None` if it has no TCP bulk transfer.
    pub(crate) fn of(results: &'a Results) -> Option<Self> {
        Self::fitted(results, Fit::default())
    }

    /// The same, to be weighed by these thresholds.
    pub(crate) fn fitted(results: &'a Results, fit: Fit) -> Option<Self> {
        let judged = judged_points(results);
        let runs: Vec<(&Point, Run<'_>)> =
            judged.iter().filter_map(|point| Some((*point, Run::of(point)?))).collect();
        let rates: Vec<f64> = runs.iter().map(|(_, run)| run.goodput_bits_per_s).collect();
        let goodput = Estimate::of(&rates)?;
        // One typical run provides all figures, because those of one run belong together. Of two runs, which lie equally
        // far from their median, it is the first, whatever rounding says.
        let distance = |run: &Run<'_>| {
            ((run.goodput_bits_per_s / goodput.median - 1.0).abs() / path::TOLD_APART).round()
        };
        let (point, run) = runs.iter().min_by(|a, b| distance(&a.1).total_cmp(&distance(&b.1)))?;
        let spec = point.spec()?;
        let flow = Flow::of(run);
        let one_machine = results.path.lab.is_some()
            || results.far().is_some_and(|far| same_machine(results.near(), far));
        let sender = HostView::of(results, spec, run, run.sender);
        Some(Self {
            spec,
            goodput,
            receiver: HostView::of(results, spec, run, opposite(run.sender)),
            base_rtt_s: lower(idle_rtt_s(results), flow.rtt_min_s).or(flow.rtt_s),
            flow: within_the_queue(flow, sender.send_queue_bytes),
            setup: Setup::of(run),
            window: run.outcome.window_use(spec, run.direction.direction),
            wanted: None,
            fit,
            refuted: Vec::new(),
            one_machine,
            shown: Rc::default(),
            results,
            sender,
        })
    }

    /// The same observations, without the limits that an experiment refuted: a window that was widened without effect
    /// explains nothing, however full it was.
    pub(crate) fn knowing(self, refuted: &[Limit]) -> Self {
        Self { refuted: refuted.to_vec(), ..self }
    }

    /// The same observations, with a rate to size windows and buffers for.
    pub(crate) fn wanting(&self, wanted: Wanted) -> Self {
        Self { wanted: Some(wanted), ..self.clone() }
    }

    /// The symptoms of the judged test.
    pub(crate) fn shown(&self) -> &JudgedSymptoms {
        self.shown.get_or_init(|| JudgedSymptoms::of(self.results))
    }

    /// The results document.
    pub(crate) fn results(&self) -> &'a Results {
        self.results
    }

    pub(crate) fn host(&self, end: End) -> Option<&'a HostFacts> {
        match end {
            End::Near => Some(self.results.near()),
            End::Far => self.results.far(),
        }
    }

    /// The round trip that a window is spread over, seconds: as measured under the test's own load or, if
    /// a queue on the path lengthens that, as on the idle path.
    pub(crate) fn window_rtt_s(&self) -> Option<f64> {
        self.flow.rtt_s.filter(|_| self.queue() < signs::PERHAPS).or(self.base_rtt_s)
    }

    /// TCP's smoothed round trip under load, which is not the one that a separate connection measures, beside the
    /// idle one. Where the idle path was not measured, the shortest one stands for it, which may have had load.
    pub(crate) fn round_trip_words(&self) -> Option<String> {
        let idle_s = idle_rtt_s(self.results);
        let word = if idle_s.is_some() { "idle RTT" } else { "lowest RTT" };
        let (loaded, base) = (show_seconds(self.flow.rtt_s?), show_seconds(self.sizing_rtt_s()?));
        Some(format!("the stream's smoothed RTT {loaded} under load, {word} {base}"))
    }

    /// The idle round trip, for which windows and buffers are sized, seconds.
    pub(crate) fn sizing_rtt_s(&self) -> Option<f64> {
        idle_rtt_s(self.results).or(self.base_rtt_s)
    }

    /// The receiver's window in effect, bytes, all streams: the data in flight if the window was full,
    /// else the window that the receiver advertised.
    pub(crate) fn receive_window_bytes(&self) -> Option<f64> {
        self.window?.receive_bytes()
    }

    /// Throughput of the judged test, bit/s.
    pub(crate) fn rate(&self) -> f64 {
        self.goodput.median
    }

    /// Number of streams of the judged test.
    pub(crate) fn streams(&self) -> f64 {
        f64::from(self.spec.streams.max(1))
    }

    pub(crate) fn interface(&self, end: End) -> Option<&'a InterfaceFacts> {
        self.host(end)?.interface.as_ref()
    }

    pub(crate) fn sysctl(&self, end: End, key: &str) -> Option<&'a str> {
        self.host(end)?.sysctls.get(key).map(String::as_str)
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.results.path.is_ipv6()
    }

    /// IP and TCP headers of the judged test's packets.
    pub(crate) fn headers(&self) -> Headers {
        Headers::of_path(&self.results.path)
    }

    pub(crate) fn path_mtu_bytes(&self) -> Option<f64> {
        let told = self
            .results
            .path
            .path_mtu_bytes
            .or(self.interface(self.sender.end).map(|i| i.mtu_bytes));
        told.map(f64::from).and_then(positive)
    }

    /// Number of payload segments that the judged test moved.
    pub(crate) fn segments(&self) -> Option<f64> {
        ratio(self.receiver.payload_bytes.max(self.sender.payload_bytes), self.flow.mss_bytes?)
    }

    /// Mean size of the packets that an end's device moved in the test's direction, bytes: a super-segment
    /// counts once if the device takes it whole.
    pub(crate) fn packet_bytes(&self, host: &HostView<'_>) -> Option<f64> {
        packet_bytes(host, host.end == self.sender.end)
    }

    /// Goodput that an end's interface allows at its line rate, bit/s.
    pub(crate) fn line_goodput(&self, end: End) -> Option<f64> {
        let line = positive(self.interface(end)?.speed_bits_per_s?)?;
        crate::ceiling::goodput_ceiling(self, line, crate::ceiling::ETHERNET_WIRE_BYTES)
    }

    /// Throughput of several streams over that of the judged test, as a factor.
    pub(crate) fn streams_gain(&self) -> Option<f64> {
        self.shown().path(names::STREAMS_GAIN).and_then(positive)
    }

    /// Throughput of several streams together, bit/s.
    pub(crate) fn together_bits_per_s(&self) -> Option<f64> {
        Some(self.streams_gain()? * self.rate())
    }

    /// The change to more streams, if the document shows that they carry no more.
    pub(crate) fn streams_in_vain(&self) -> Option<Change> {
        let to_count = u32::try_from(saturating_u64(self.shown().path(names::STREAMS)?)).ok()?;
        let from_count = self.spec.streams;
        let is_in_vain = self.streams_gain()? < 1.0 + signs::GAIN_MIN;
        is_in_vain.then_some(Change::MoreStreams { from_count, to_count })
    }

    /// Confidence, 0 to 1, that more streams carry more; 0 if that was not tried.
    pub(crate) fn lifted_by_streams(&self) -> f64 {
        self.streams_gain_reaches(self.fit[Fitted::MoreStreams]).unwrap_or(0.0)
    }

    /// Confidence, 0 to 1, that several streams gain as much as the range asks; `None` if that was not tried. What they had
    /// on its way when the measured time began, up to a round trip's worth, may be counted beside what they carried: over
    /// a long queue and in a short test that is a considerable part.
    pub(crate) fn streams_gain_reaches(&self, range: Ramp) -> Option<f64> {
        let gain = self.streams_gain()?;
        let rtt_s = self.shown().path(names::STREAMS_RTT).unwrap_or(0.0);
        let beside = ratio(rtt_s, self.sender.duration_s).unwrap_or(0.0);
        Some(range.over(gain / (1.0 + beside), gain))
    }

    /// Confidence, 0 to 1, that there is a standing queue on the path: round trips under load are
    /// considerably longer than idle ones, in relation and in time, and more streams carry no more.
    pub(crate) fn queue(&self) -> f64 {
        let told = |name: &str, range| self.shown().path_reaches(name, range).unwrap_or(0.0);
        let longer = told(names::QUEUE_GROWTH, signs::QUEUE_GROWTH)
            * told(names::QUEUE_DELAY, signs::QUEUE_DELAY_S);
        longer * (1.0 - self.lifted_by_streams())
    }

    /// Share of the busy time, 0 to 1, that neither window, buffer nor application explains; it must be
    /// due to the congestion window, the path or a core.
    pub(crate) fn unexplained(&self) -> f64 {
        let held = self.receive_window_share() + self.send_buffer_share();
        // A standing queue also keeps windows full, so the window then explains nothing.
        (1.0 - held.min(1.0) * (1.0 - self.queue())) * (1.0 - self.sender_idle())
    }

    /// Share of the time, 0 to 1, that the sending application chose not to write. If it does not report
    /// that, the share in which its connection had nothing outstanding, discounted by how busy the thread
    /// was: without delay on the path, and with a full core, that occurs between any two writes.
    pub(crate) fn sender_idle(&self) -> f64 {
        let of_sender = |name: &str| self.shown().sender(name);
        of_sender(names::WRITER_IDLE).unwrap_or_else(|| {
            let unused = of_sender(names::BUSY).map_or(0.0, |busy| 1.0 - busy);
            unused * (1.0 - self.starved(&self.sender).unwrap_or(0.0))
        })
    }

    /// Whether pauses of the sending application would have been seen.
    pub(crate) fn tells_idle(&self) -> bool {
        [names::WRITER_IDLE, names::BUSY].iter().any(|name| self.shown().sender(name).is_some())
    }
}

/// The test that a document is judged by; `None` if it has no TCP bulk transfer.
#[must_use]
pub fn judged_test(results: &Results) -> Option<&TestSpec> {
    judged_points(results).first()?.spec()
}

/// How full a receiver's socket is, 0 (the reader keeps up) to 1 (it does not): unread bytes over the sum of unread
/// bytes and free window. `None` if the receiver did not report it.
pub(crate) fn receiver_fullness(receiver: &HostView<'_>, flow: &Flow, streams: f64) -> Option<f64> {
    let unread = receiver.receive_queue_bytes? / streams;
    let free = receiver.advertised_window_bytes.or(flow.peer_window_bytes).or_else(|| {
        receiver.receive_buffer_bytes.map(|buffer| buffer * signs::WINDOW_OF_BUFFER - unread)
    })?;
    share(unread, unread + (free / streams).max(0.0)).or(Some(0.0))
}

/// Mean size of the packets that a device moved in a test's direction; see [`Observed::packet_bytes`].
pub(crate) fn packet_bytes(host: &HostView<'_>, is_sender: bool) -> Option<f64> {
    let device = host.device()?;
    let (bytes, pkts) = if is_sender {
        (device.tx_bytes, device.tx_pkts)
    } else {
        (device.rx_bytes, device.rx_pkts)
    };
    // Acknowledgements of the opposite direction would distort the mean.
    let moved = bytes as f64 > signs::MOVED_BY_DEVICE * host.payload_bytes;
    if moved { ratio(bytes as f64, pkts as f64) } else { None }
}

/// The repeats of the judged test: `single-stream`, else the first TCP bulk test of the document.
pub(crate) fn judged_points(results: &Results) -> Vec<&Point> {
    let usable = |point: &&Point| !point.is_confirmation() && Run::of(point).is_some();
    let named = || results.points.iter().filter(usable).filter(|point| point.experiment == JUDGED);
    let first = named().next().or_else(|| results.points.iter().find(usable));
    let Some(first) = first else { return Vec::new() };
    let same =
        |point: &&Point| point.experiment == first.experiment && point.varied == first.varied;
    results.points.iter().filter(usable).filter(same).collect()
}

/// The number of streams whose tests carried most in the same direction, and what each repeat carried, bit/s.
pub(crate) fn several_rates(results: &Results, judged: &Run<'_>) -> Option<(u32, Vec<f64>)> {
    let runs: Vec<(u32, f64)> = results
        .points
        .iter()
        .filter(|point| point.experiment == "multi-stream")
        .filter_map(|point| Some((point.spec()?.streams, Run::of(point)?)))
        .filter(|(_, run)| run.direction.direction == judged.direction.direction)
        .map(|(streams, run)| (streams, run.goodput_bits_per_s))
        .collect();
    let mut counts: Vec<u32> = runs.iter().map(|(streams, _)| *streams).collect();
    counts.sort_unstable();
    counts.dedup();
    let of_count = |count: u32| {
        let rates: Vec<f64> = runs.iter().filter(|run| run.0 == count).map(|run| run.1).collect();
        Some((stats::median(&rates)?, count, rates))
    };
    let most = counts.into_iter().filter_map(of_count).max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((most.1, most.2))
}

/// The tests over several streams in the same direction.
fn with_several<'r>(results: &'r Results, judged: &Run<'_>) -> impl Iterator<Item = Run<'r>> {
    let several = results.points.iter().filter(|point| point.experiment == "multi-stream");
    let direction = judged.direction.direction;
    several.filter_map(Run::of).filter(move |run| run.direction.direction == direction)
}

/// What the connections of each test over several streams in the same direction did.
pub(crate) fn flows_with_several(results: &Results, judged: &Run<'_>) -> Vec<Flow> {
    with_several(results, judged).map(|run| Flow::of(&run)).collect()
}

/// The most packets that one of the sender's queueing disciplines dropped in each test over several streams in the same
/// direction; filters of arriving packets are none.
pub(crate) fn qdisc_drops_with_several(results: &Results, judged: &Run<'_>) -> Vec<f64> {
    let host = match judged.sender {
        End::Near => Some(results.near()),
        End::Far => results.far(),
    };
    let Some(interface) = host.and_then(|host| host.interface.as_ref()) else { return Vec::new() };
    let of_run = |run: Run<'_>| {
        let all = &run.report(run.sender)?.counters.qdiscs;
        let own = all.iter().filter(|qdisc| {
            qdisc.interface == interface.name
                && !matches!(qdisc.kind.as_str(), "ingress" | "clsact")
        });
        own.map(|qdisc| qdisc.dropped_pkts as f64).reduce(f64::max)
    };
    with_several(results, judged).filter_map(of_run).collect()
}

/// Mean idle share of an end's cores in each test over several streams in the same direction, 0 to 1.
pub(crate) fn idle_with_several(results: &Results, judged: &Run<'_>, end: End) -> Vec<f64> {
    let of_run = |run: Run<'_>| {
        let cores = &run.report(end)?.cores;
        share(cores.iter().map(|core| core.idle).sum(), cores.len() as f64)
    };
    with_several(results, judged).filter_map(of_run).collect()
}

/// The repeats of the UDP test in the same direction, of several settings the one that delivered most.
pub(crate) fn udp_repeats(results: &Results, judged: &Run<'_>) -> Vec<UdpSeen> {
    let points = results.points.iter().filter(|point| point.experiment == "udp");
    let mut settings: Vec<(&Point, Vec<UdpSeen>)> = Vec::new();
    for point in points {
        let Some(seen) = udp_seen(point, judged.direction.direction) else { continue };
        match settings.iter_mut().find(|(first, _)| first.varied == point.varied) {
            Some((_, repeats)) => repeats.push(seen),
            None => settings.push((point, vec![seen])),
        }
    }
    let delivered = |repeats: &[UdpSeen]| {
        let rates: Vec<f64> = repeats.iter().map(|one| one.delivered_bits_per_s).collect();
        stats::median(&rates)
    };
    let told = settings.into_iter().filter_map(|(_, all)| Some((delivered(&all)?, all)));
    let most = told.max_by(|a, b| a.0.total_cmp(&b.0));
    most.map_or_else(Vec::new, |(_, repeats)| repeats)
}

/// The UDP figures of a point in direction `way`; `None` if it is not such a test.
pub(crate) fn udp_seen(point: &Point, way: results::Direction) -> Option<UdpSeen> {
    let directions = &point.measured()?.directions;
    let direction = directions.iter().find(|direction| direction.direction == way)?;
    let udp = direction.udp.as_ref()?;
    let at_the_reader = [udp.loss.socket_buffer_count, udp.loss.softnet_count];
    let on_the_way = at_the_reader
        .iter()
        .flatten()
        .fold(udp.lost_count, |lost, count| lost.saturating_sub(*count));
    let came = udp.received_count.saturating_sub(udp.duplicate_count);
    Some(UdpSeen {
        sent_bits_per_s: positive(direction.sent_bits_per_s)?,
        delivered_bits_per_s: positive(direction.received_bits_per_s)?,
        sent_count: positive(udp.sent_count as f64),
        lost_share: share(on_the_way as f64, udp.lost_count.saturating_add(came) as f64)?,
        located: udp.loss.socket_buffer_count.is_some(),
        reordered_share: share(udp.reordered_count as f64, udp.sent_count as f64).unwrap_or(0.0),
        standing_delay_s: waited_s(udp, point.measured()?.duration_s),
    })
}

/// How long datagrams waited in queues beyond what two clocks may drift apart, seconds.
pub(crate) fn waited_s(udp: &UdpOutcome, duration_s: f64) -> Option<f64> {
    Some((udp.standing_delay_s? - path::CLOCKS_APART * duration_s).max(0.0))
}

/// The points that measured something, each with its goodput in bit/s.
pub(crate) fn repeats_of<'a>(points: &[&'a Point]) -> Vec<(&'a Point, f64)> {
    let rate = |point: &'a Point| {
        let measured = point.measured()?.directions.first()?;
        Some((point, run::goodput(measured)?))
    };
    points.iter().filter_map(|point| rate(point)).collect()
}

/// The window the receiver advertised and the send buffer the kernel granted in one test, bytes.
pub(crate) fn granted_bytes(point: &Point) -> (Option<f64>, Option<f64>) {
    let Some(run) = Run::of(point) else { return (None, None) };
    let window = Flow::of(&run).peer_window_bytes;
    let buffers = run.senders.iter().filter_map(|stream| stream.send_buffer_bytes);
    let buffer = buffers.map(|bytes| bytes as f64).reduce(|sum, bytes| sum + bytes);
    (window, buffer.and_then(positive))
}

/// Data in flight over the receiver's window of one point, 0 to 1 and a little more.
pub(crate) fn flight_of_window(point: &Point) -> Option<f64> {
    let flow = Flow::of(&Run::of(point)?);
    ratio(flow.in_flight_bytes?, flow.peer_window_bytes?)
}

/// Data in flight over the congestion window of one point, 0 to 1.
pub(crate) fn flight_of_cwnd(point: &Point) -> Option<f64> {
    Flow::of(&Run::of(point)?).window_use()
}

/// Smoothed round trip of the typical stream of one point, seconds.
pub(crate) fn round_trip_s(point: &Point) -> Option<f64> {
    Flow::of(&Run::of(point)?).rtt_s
}

fn same_machine(near: &HostFacts, far: &HostFacts) -> bool {
    !near.name.is_empty() && near.name == far.name && near.kernel == far.kernel
}

fn lower(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// The flow with no more in flight than its send queue holds. The kernel counts segments in flight, and small
/// ones (of a small buffer) are fewer bytes than as many full ones.
fn within_the_queue(flow: Flow, queued_bytes: Option<f64>) -> Flow {
    let queued_bytes = queued_bytes.and_then(positive);
    let in_flight_bytes =
        flow.in_flight_bytes.map(|bytes| queued_bytes.map_or(bytes, |queued| bytes.min(queued)));
    Flow { in_flight_bytes, ..flow }
}

#[cfg(test)]
mod tests {
    use results::{Direction, DirectionOutcome, RunKind, TestOutcome, UdpOutcome};

    use super::*;

    fn point(experiment: &str, spec: TestSpec, mbit_per_s: f64, lost_count: u64) -> Point {
        let received_count = 1000 - lost_count;
        let udp =
            UdpOutcome { sent_count: 1000, received_count, lost_count, ..UdpOutcome::default() };
        let direction = DirectionOutcome {
            direction: Direction::Forward,
            sent_bytes: 1_000_000,
            received_bytes: 1_000_000,
            sent_bits_per_s: 2e9,
            received_bits_per_s: mbit_per_s * 1e6,
            retransmits_count: None,
            udp: (experiment == "udp").then_some(udp),
        };
        let outcome = TestOutcome { directions: vec![direction], ..TestOutcome::default() };
        Point::new(experiment, spec, outcome)
    }

    #[test]
    fn udp_counts_by_the_repeats_of_the_setting_that_delivered_most() {
        let offered = |rate: f64, mbit_per_s: f64, lost_count: u64| {
            let mut point = point("udp", TestSpec::udp(1448), mbit_per_s, lost_count);
            point.varied.insert("offered_bits_per_s".to_owned(), rate);
            point
        };
        let mut results = Results::begun(RunKind::Path, 0);
        results.points = vec![
            point("single-stream", TestSpec::tcp(), 900.0, 0),
            offered(1e9, 700.0, 10),
            offered(1e9, 950.0, 30),
            offered(1e9, 720.0, 20),
            offered(5e8, 490.0, 0),
        ];
        let run = Run::of(&results.points[0]).expect("a bulk test");
        let udp = udp_repeats(&results, &run);
        let told: Vec<(f64, f64)> =
            udp.iter().map(|one| (one.delivered_bits_per_s, one.lost_share)).collect();
        assert_eq!(told, [(700e6, 0.01), (950e6, 0.03), (720e6, 0.02)]);
    }
}
