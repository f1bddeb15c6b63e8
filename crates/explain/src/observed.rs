//! What a results document says of the test that is judged, read once for all mechanisms.

mod flow;
mod host;
mod run;

use results::{End, Estimate, HostFacts, InterfaceFacts, Limit, Point, Results, TestSpec};

pub(crate) use flow::Flow;
pub(crate) use host::{HostView, end_name};
use run::Run;
pub(crate) use run::opposite;

use crate::numbers::{middle, positive, ramp, ratio, share};

/// The experiment whose test is judged.
const JUDGED: &str = "single-stream";

/// The judged test and what else was measured beside it.
#[derive(Debug, Clone)]
pub(crate) struct Observed<'a> {
    /// Points that are judged: the repeats of one test.
    pub(crate) spec: &'a TestSpec,
    pub(crate) goodput: Estimate,
    pub(crate) flow: Flow,
    pub(crate) sender: HostView<'a>,
    pub(crate) receiver: HostView<'a>,
    /// Round trip of the path without our load, seconds: the lowest of what was seen.
    pub(crate) base_rtt_s: Option<f64>,
    /// The same test over several streams: how many, and what they gave together.
    pub(crate) several: Option<(u32, Estimate)>,
    pub(crate) udp: Option<UdpSeen>,
    /// Idle share of the sender's and of the receiver's cores in that test.
    several_idle: (Option<f64>, Option<f64>),
    /// Windows and buffers that an experiment showed not to bind.
    refuted: Vec<Limit>,
    /// Both ends are one machine's kernel (an emulated path), so core figures are shared.
    pub(crate) one_machine: bool,
    results: &'a Results,
}

/// What UDP got through the same way, the best delivered of the settings tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UdpSeen {
    pub(crate) sent_bits_per_s: f64,
    pub(crate) delivered_bits_per_s: f64,
    /// Lost on the way, not for want of a reader (its socket buffer, its softnet backlog), of those
    /// sent; all that were lost where the receiver does not say where.
    pub(crate) lost_share: f64,
    /// Whether it did say.
    pub(crate) located: bool,
    /// Came after a later one, of those sent.
    pub(crate) reordered_share: f64,
}

impl<'a> Observed<'a> {
    /// `None` when no TCP bulk transfer was measured.
    pub(crate) fn of(results: &'a Results) -> Option<Self> {
        let judged = judged_points(results);
        let runs: Vec<(&Point, Run<'_>)> =
            judged.iter().filter_map(|point| Some((*point, Run::of(point)?))).collect();
        let rates: Vec<f64> = runs.iter().map(|(_, run)| run.goodput_bits_per_s).collect();
        let goodput = Estimate::of(&rates)?;
        // One run, the typical one, speaks for all: its figures belong together.
        let distance = |run: &Run<'_>| (run.goodput_bits_per_s - goodput.median).abs();
        let (point, run) = runs.iter().min_by(|a, b| distance(&a.1).total_cmp(&distance(&b.1)))?;
        let spec = point.spec()?;
        let flow = Flow::of(run).with_losses_of(runs.iter().map(|(_, run)| run));
        let idle = results.path.idle_rtt.as_ref();
        let idle_rtt_s = idle.and_then(|idle| idle.percentile_s(50.0)).and_then(positive);
        let one_machine = results.path.lab.is_some()
            || results.far().is_some_and(|far| same_machine(results.near(), far));
        Some(Self {
            spec,
            goodput,
            sender: HostView::of(results, spec, run, run.sender),
            receiver: HostView::of(results, spec, run, opposite(run.sender)),
            base_rtt_s: lower(idle_rtt_s, flow.rtt_min_s).or(flow.rtt_s),
            flow,
            several: several(results, run),
            several_idle: several_idle(results, run),
            refuted: Vec::new(),
            udp: udp(results, run),
            one_machine,
            results,
        })
    }

    /// The same, knowing which limits an experiment has refuted: a window that was widened in vain
    /// explains nothing, however full it was.
    pub(crate) fn knowing(self, refuted: &[Limit]) -> Self {
        Self { refuted: refuted.to_vec(), ..self }
    }

    /// Throughput judged, bit/s.
    pub(crate) fn rate(&self) -> f64 {
        self.goodput.median
    }

    /// Streams of the judged test.
    pub(crate) fn streams(&self) -> f64 {
        f64::from(self.spec.streams.max(1))
    }

    pub(crate) fn interface(&self, end: End) -> Option<&'a InterfaceFacts> {
        let host: Option<&HostFacts> = match end {
            End::Near => Some(self.results.near()),
            End::Far => self.results.far(),
        };
        host?.interface.as_ref()
    }

    pub(crate) fn sysctl(&self, end: End, key: &str) -> Option<&'a str> {
        let host = match end {
            End::Near => Some(self.results.near()),
            End::Far => self.results.far(),
        };
        host?.sysctls.get(key).map(String::as_str)
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.results.path.address.as_ref().is_some_and(|address| address.contains(':'))
    }

    pub(crate) fn path_mtu_bytes(&self) -> Option<f64> {
        let told = self
            .results
            .path
            .path_mtu_bytes
            .or(self.interface(self.sender.end).map(|i| i.mtu_bytes));
        told.map(f64::from).and_then(positive)
    }

    /// Segments of payload the judged test moved.
    pub(crate) fn segments(&self) -> Option<f64> {
        ratio(self.receiver.payload_bytes.max(self.sender.payload_bytes), self.flow.mss_bytes?)
    }

    /// Mean size of the packets an end's device moved this way, bytes: super-segments count once
    /// where the device takes them whole.
    pub(crate) fn packet_bytes(&self, host: &HostView<'_>) -> Option<f64> {
        let device = host.device()?;
        let (bytes, pkts) = if host.end == self.sender.end {
            (device.tx_bytes, device.tx_pkts)
        } else {
            (device.rx_bytes, device.rx_pkts)
        };
        // Acknowledgements of another direction would blur it.
        let moved = bytes as f64 > 0.5 * host.payload_bytes;
        if moved { ratio(bytes as f64, pkts as f64) } else { None }
    }

    /// Goodput an end's interface could carry at its line rate, bit/s.
    pub(crate) fn line_goodput(&self, end: End) -> Option<f64> {
        let line = positive(self.interface(end)?.speed_bits_per_s?)?;
        crate::ceiling::goodput_ceiling(self, line, crate::ceiling::ETHERNET_WIRE_BYTES)
    }

    /// Throughput of several streams over that of the judged test.
    pub(crate) fn streams_gain(&self) -> Option<f64> {
        ratio(self.several?.1.median, self.rate())
    }

    /// How surely more streams carry more, 0 to 1; 0 when it was not tried.
    pub(crate) fn lifted_by_streams(&self) -> f64 {
        self.streams_gain().map_or(0.0, |gain| ramp(gain, 1.1, 1.3))
    }

    /// How surely a queue stands on the path, 0 to 1: round trips under load are longer than idle
    /// ones by a share and by an amount that count, and more streams do not get more through.
    pub(crate) fn queue(&self) -> f64 {
        let (Some(rtt_s), Some(base_s)) = (self.flow.rtt_s, self.base_rtt_s) else { return 0.0 };
        let longer = ramp(rtt_s / base_s, 1.3, 2.0) * ramp(rtt_s - base_s, 0.2e-3, 0.6e-3);
        longer * (1.0 - self.lifted_by_streams())
    }

    /// Share of the busy time, 0 to 1, that neither window, buffer nor application explains: the
    /// congestion window, the path or a core must.
    pub(crate) fn unexplained(&self) -> f64 {
        let held = self.receive_window_share() + self.send_buffer_share();
        // A standing queue keeps windows full too: then the window is no explanation.
        (1.0 - held.min(1.0) * (1.0 - self.queue())) * (1.0 - self.sender_idle())
    }

    /// Share of the time held back by the receiver's window: the kernel's account or, where that is
    /// more, how full the window was seen. A sender that paces itself (BBR) at just the rate the
    /// window allows is seldom caught waiting for it; one that is never caught does not wait.
    pub(crate) fn receive_window_share(&self) -> f64 {
        if self.refuted.contains(&Limit::ReceiveWindow) {
            return 0.0;
        }
        let counted = self.flow.receive_window_share.unwrap_or(0.0);
        let caught = self.flow.receive_window_share.map_or(0.9, |counted| ramp(counted, 0.02, 0.1));
        let room_left = 1.0 - ramp(self.flow.window_use().unwrap_or(0.0), 0.85, 0.95);
        let filled = ramp(self.receive_window_use(), 0.85, 0.95);
        counted.max(0.95 * filled.max(self.follows_asked_window()) * room_left * caught)
    }

    /// How surely throughput is what the window that the test asks for allows, 0 to 1: as much as
    /// the law says, and each further stream as much again.
    fn follows_asked_window(&self) -> f64 {
        let (Some(window), Some(rtt_s)) = (self.flow.peer_window_bytes, self.base_rtt_s) else {
            return 0.0;
        };
        let Some((streams, _)) = self.several.filter(|_| self.spec.window_bytes.is_some()) else {
            return 0.0;
        };
        let of_law = self.rate() * rtt_s / (8.0 * window);
        let each = self.streams_gain().unwrap_or(0.0) * self.streams() / f64::from(streams);
        ramp(of_law, 0.7, 0.8) * ramp(each, 0.6, 0.85)
    }

    /// In flight over the window the receiver offers, 0 to 1.
    fn receive_window_use(&self) -> f64 {
        let used = self.flow.in_flight_bytes.zip(self.flow.peer_window_bytes);
        used.and_then(|(in_flight, window)| share(in_flight, window)).unwrap_or(0.0)
    }

    /// Share of the time held back by the send buffer: the kernel's account or, where that is more,
    /// how sure it is that all the buffer can hold is in flight while both windows have room. The
    /// account starts only when the sender runs dry, which small and frequent acknowledgements hide.
    pub(crate) fn send_buffer_share(&self) -> f64 {
        if self.refuted.contains(&Limit::SendBuffer) {
            return 0.0;
        }
        let counted = self.flow.send_buffer_share.unwrap_or(0.0);
        let queued = self.sender.send_queue_bytes.unwrap_or(0.0);
        let sent = share(self.flow.in_flight_bytes.unwrap_or(0.0), queued).unwrap_or(0.0);
        let filled = self.sender.send_buffer_bytes.and_then(|buffer| share(queued, buffer));
        let full = ramp(sent, 0.6, 0.8) * ramp(filled.unwrap_or(0.0), 0.5, 0.75);
        // A writer that waits for room sleeps.
        let sleeps = 1.0 - self.sender.starved().unwrap_or(0.0);
        let windows_open = (1.0 - ramp(self.receive_window_use(), 0.8, 0.9))
            * (1.0 - ramp(self.flow.window_use().unwrap_or(0.0), 0.85, 0.95));
        counted.max(0.9 * full * windows_open * sleeps)
    }

    /// Share of the time the sending application chose not to write, 0 to 1. Where it does not say,
    /// the share in which its connection had nothing outstanding: on a path without delay that is
    /// so between any two writes, and of a full core as well.
    pub(crate) fn sender_idle(&self) -> f64 {
        self.sender.application_idle_share.unwrap_or_else(|| {
            let unused = self.flow.busy_share.map_or(0.0, |busy| 1.0 - busy);
            unused * (1.0 - self.sender.starved().unwrap_or(0.0))
        })
    }

    /// How full the receiver's socket is, 0 (the reader keeps up) to 1 (it does not): unread bytes
    /// over unread bytes and free window. `None` when the receiver did not say.
    pub(crate) fn receiver_fullness(&self) -> Option<f64> {
        let unread = self.receiver.receive_queue_bytes? / self.streams();
        let free =
            self.receiver.advertised_window_bytes.or(self.flow.peer_window_bytes).or_else(
                || self.receiver.receive_buffer_bytes.map(|buffer| buffer / 2.0 - unread),
            )?;
        share(unread, unread + (free / self.streams()).max(0.0)).or(Some(0.0))
    }

    /// How surely the hosts, not the path, are full: a thread that never sleeps, or no idle core.
    pub(crate) fn hosts_full(&self) -> f64 {
        let starved = |host: &HostView<'_>| host.starved().unwrap_or(0.0);
        let most = |of: &dyn Fn(&HostView<'_>) -> f64| of(&self.sender).max(of(&self.receiver));
        most(&starved).max(0.8 * most(&|host| self.exhausted(host)))
    }

    /// How idle an end's cores were with several streams.
    pub(crate) fn several_idle(&self, host: &HostView<'_>) -> Option<f64> {
        let (sender, receiver) = self.several_idle;
        if host.end == self.sender.end { sender } else { receiver }
    }

    /// How surely an end has no idle core left, 0 to 1: in the judged test or, where that leaves a
    /// little, once more streams ask for more and get nothing.
    pub(crate) fn exhausted(&self, host: &HostView<'_>) -> f64 {
        let now = host.mean_idle.map_or(0.0, |idle| 1.0 - ramp(idle, 0.03, 0.10));
        let asked_for_more =
            self.several_idle(host).zip(host.mean_idle).map_or(0.0, |(several, idle)| {
                let in_vain = self.streams_gain().map_or(0.0, |gain| 1.0 - ramp(gain, 1.05, 1.2));
                in_vain * (1.0 - ramp(several, 0.02, 0.06)) * (1.0 - ramp(idle, 0.2, 0.35))
            });
        now.max(asked_for_more) * host.feels_its_cores()
    }
}

/// The repeats of the judged test: `single-stream`, else the first TCP bulk test there is.
fn judged_points(results: &Results) -> Vec<&Point> {
    let usable = |point: &&Point| !point.is_confirmation() && Run::of(point).is_some();
    let named = || results.points.iter().filter(usable).filter(|point| point.experiment == JUDGED);
    let first = named().next().or_else(|| results.points.iter().find(usable));
    let Some(first) = first else { return Vec::new() };
    let same =
        |point: &&Point| point.experiment == first.experiment && point.varied == first.varied;
    results.points.iter().filter(usable).filter(same).collect()
}

/// The most that several streams gave together, the same way.
fn several(results: &Results, judged: &Run<'_>) -> Option<(u32, Estimate)> {
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
        Some((count, Estimate::of(&rates)?))
    };
    counts.into_iter().filter_map(of_count).max_by(|a, b| a.1.median.total_cmp(&b.1.median))
}

/// How idle the sender's and the receiver's cores were meanwhile, the typical run's.
fn several_idle(results: &Results, judged: &Run<'_>) -> (Option<f64>, Option<f64>) {
    let runs: Vec<Run<'_>> = results
        .points
        .iter()
        .filter(|point| point.experiment == "multi-stream")
        .filter_map(Run::of)
        .filter(|run| run.direction.direction == judged.direction.direction)
        .collect();
    let idle_of = |end: End| {
        let of_run = |run: &Run<'_>| {
            let cores = &run.report(end)?.cores;
            share(cores.iter().map(|core| core.idle).sum(), cores.len() as f64)
        };
        middle(runs.iter().filter_map(of_run))
    };
    (idle_of(judged.sender), idle_of(opposite(judged.sender)))
}

fn udp(results: &Results, judged: &Run<'_>) -> Option<UdpSeen> {
    let points = results.points.iter().filter(|point| point.experiment == "udp");
    let seen = points.filter_map(|point| udp_seen(point, judged.direction.direction));
    seen.max_by(|a, b| a.delivered_bits_per_s.total_cmp(&b.delivered_bits_per_s))
}

/// What one UDP test got through.
pub(crate) fn udp_seen(point: &Point, way: results::Direction) -> Option<UdpSeen> {
    let directions = &point.measured()?.directions;
    let direction = directions.iter().find(|direction| direction.direction == way)?;
    let udp = direction.udp.as_ref()?;
    let at_the_reader = [udp.loss.socket_buffer_count, udp.loss.softnet_count];
    let on_the_way = at_the_reader
        .iter()
        .flatten()
        .fold(udp.lost_count, |lost, count| lost.saturating_sub(*count));
    Some(UdpSeen {
        sent_bits_per_s: positive(direction.sent_bits_per_s)?,
        delivered_bits_per_s: positive(direction.received_bits_per_s)?,
        lost_share: share(on_the_way as f64, udp.sent_count as f64)?,
        located: udp.loss.socket_buffer_count.is_some(),
        reordered_share: share(udp.reordered_count as f64, udp.sent_count as f64).unwrap_or(0.0),
    })
}

/// The experiment's points judged like the baseline: their throughputs, and a typical one's view.
pub(crate) fn repeats_of<'a>(points: &[&'a Point]) -> Vec<(&'a Point, f64)> {
    let rate = |point: &'a Point| {
        let measured = point.measured()?.directions.first()?;
        Some((point, run::goodput(measured)?))
    };
    points.iter().filter_map(|point| rate(point)).collect()
}

/// Window the receiver advertised and send buffer the kernel gave in one test, bytes.
pub(crate) fn granted_bytes(point: &Point) -> (Option<f64>, Option<f64>) {
    let Some(run) = Run::of(point) else { return (None, None) };
    let window = Flow::of(&run).peer_window_bytes;
    let buffers = run.senders.iter().filter_map(|stream| stream.send_buffer_bytes);
    let buffer = buffers.map(|bytes| bytes as f64).reduce(|sum, bytes| sum + bytes);
    (window, buffer.and_then(positive))
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
