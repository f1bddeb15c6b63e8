//! A fluid model of a path: throughput is the least of its ceilings, and every figure a kernel
//! would report follows from which one it is. It answers any test, also one that an experiment
//! changed, so that the whole loop from diagnosis to verdict runs against a known truth.

use results::{
    Direction, DirectionOutcome, End, EndReport, Host, HostAccount, HostFacts, InterfaceFacts,
    LatencySummary, PathFacts, Point, Protocol, ReceivePath, Results, RunKind, SendPath, StreamEnd,
    TestLimit, TestOutcome, TestSpec, UdpLoss, UdpOutcome,
};

use crate::account::{Account, cores};

/// A path and its two hosts. Every ceiling is out of the way unless a test puts it there.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) rtt_s: f64,
    /// Goodput the path carries, bit/s.
    pub(crate) capacity_bits_per_s: f64,
    /// Queue before that bottleneck, bytes; 0: a policer.
    pub(crate) queue_bytes: f64,
    pub(crate) loss_share: f64,
    /// Largest receive window and send buffer the kernels give, bytes.
    pub(crate) window_max_bytes: f64,
    pub(crate) buffer_max_bytes: f64,
    /// What one whole core sends and receives, bit/s.
    pub(crate) sender_core_bits_per_s: f64,
    pub(crate) receiver_core_bits_per_s: f64,
    /// Share of its core a pinned thread gets.
    pub(crate) sender_core_share: f64,
    pub(crate) receiver_core_share: f64,
    /// What the congestion window allows a stream though nothing is lost, bit/s.
    pub(crate) window_growth_bits_per_s: f64,
    pub(crate) congestion_control: &'static str,
    pub(crate) mtu_bytes: f64,
    pub(crate) ipv6: bool,
    pub(crate) near_speed_bits_per_s: Option<f64>,
    pub(crate) far_speed_bits_per_s: Option<f64>,
    pub(crate) near_qdisc_bits_per_s: Option<f64>,
    /// Whether the far end gives an account (it does not when it is a stock iperf3 server).
    pub(crate) far_told: bool,
    /// Relative noise of throughput.
    pub(crate) noise: f64,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            rtt_s: 0.017,
            capacity_bits_per_s: 1e12,
            queue_bytes: 4e6,
            loss_share: 0.0,
            window_max_bytes: 1e9,
            buffer_max_bytes: 2e9,
            sender_core_bits_per_s: 40e9,
            receiver_core_bits_per_s: 30e9,
            sender_core_share: 1.0,
            receiver_core_share: 1.0,
            window_growth_bits_per_s: 1e12,
            congestion_control: "cubic",
            mtu_bytes: 9000.0,
            ipv6: false,
            near_speed_bits_per_s: None,
            far_speed_bits_per_s: None,
            near_qdisc_bits_per_s: None,
            far_told: true,
            noise: 0.02,
        }
    }
}

/// Which ceiling binds one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Window,
    Buffer,
    Loss,
    Growth,
    SenderCore,
    ReceiverCore,
    Capacity,
    Offered,
    Read,
}

/// One stream's state.
pub(crate) struct State {
    pub(crate) bound: Bound,
    pub(crate) rate: f64,
    pub(crate) rtt_s: f64,
    pub(crate) window_bytes: f64,
    pub(crate) buffer_bytes: f64,
    pub(crate) retransmit_share: f64,
    pub(crate) receive_window_share: f64,
    pub(crate) buffer_share: f64,
}

impl Model {
    fn headers(&self) -> f64 {
        if self.ipv6 { 72.0 } else { 52.0 }
    }

    pub(crate) fn mss(&self) -> f64 {
        self.mtu_bytes - self.headers()
    }

    /// The document a run of `path` would give, without verdict.
    pub(crate) fn results(&self, spec: &TestSpec) -> Results {
        let four = TestSpec { streams: 4, ..spec.clone() };
        let mut points: Vec<Point> =
            (0..5).map(|repeat| self.point("single-stream", spec, repeat)).collect();
        points.extend((0..3).map(|repeat| self.point("multi-stream", &four, repeat)));
        let best = points.iter().map(rate_of).fold(0.0, f64::max);
        let udp = TestSpec { offered_bits_per_s: Some(best * 1.2), ..TestSpec::udp(1400) };
        points.extend((0..3).map(|repeat| self.point("udp", &udp, repeat)));
        Results {
            hosts: self.hosts(),
            path: self.path(),
            points,
            ..Results::begun(RunKind::Path, 0)
        }
    }

    fn hosts(&self) -> Vec<Host> {
        let near = self.host("amsterdam", self.near_speed_bits_per_s, self.near_qdisc_bits_per_s);
        let far = self.far_told.then(|| self.host("geneva", self.far_speed_bits_per_s, None));
        std::iter::once(Host::near(near)).chain(far.map(Host::far)).collect()
    }

    pub(crate) fn point(&self, experiment: &str, spec: &TestSpec, repeat: u32) -> Point {
        let seed =
            experiment.len() as u64 * 1000 + u64::from(repeat) + u64::from(spec.streams) * 77;
        let mut random = stats::Random::from_seed(seed);
        let noise = 1.0 + self.noise * (2.0 * random.unit() - 1.0);
        Point {
            repeat,
            ..Point::new(
                experiment,
                spec.clone(),
                match spec.protocol {
                    Protocol::Tcp => self.tcp(spec, noise),
                    Protocol::Udp => self.udp(spec, noise),
                },
            )
        }
    }

    fn path(&self) -> PathFacts {
        let mut histogram = stats::LatencyHistogram::default();
        (0..100).for_each(|step| histogram.record_ns((self.rtt_s * 1e9) as u64 + step * 100));
        let address = if self.ipv6 { "fd00::2" } else { "10.0.0.2" };
        PathFacts {
            target: "geneva".into(),
            address: Some(address.into()),
            port: Some(5201),
            peer: None,
            idle_rtt: LatencySummary::of(&histogram, "tcp-rr"),
            path_mtu_bytes: Some(self.mtu_bytes as u32),
            bandwidth_delay_product_bytes: None,
            lab: None,
        }
    }

    fn host(&self, name: &str, speed: Option<f64>, qdisc: Option<f64>) -> HostFacts {
        let rmem = (self.window_max_bytes * 2.0) as u64;
        let wmem = self.buffer_max_bytes as u64;
        HostFacts {
            name: name.into(),
            kernel: "6.1.0".into(),
            usable_cores: (0..8).collect(),
            online_cores_count: 8,
            interface: Some(InterfaceFacts {
                name: "eth0".into(),
                speed_bits_per_s: speed,
                mtu_bytes: self.mtu_bytes as u32,
                qdisc_rate_bits_per_s: qdisc,
                ..InterfaceFacts::default()
            }),
            sysctls: [
                ("net.ipv4.tcp_rmem".to_owned(), format!("4096\t131072\t{rmem}")),
                ("net.ipv4.tcp_wmem".to_owned(), format!("4096\t16384\t{wmem}")),
                (
                    "net.ipv4.tcp_available_congestion_control".to_owned(),
                    "reno cubic bbr".to_owned(),
                ),
            ]
            .into(),
            ..HostFacts::default()
        }
    }

    /// The receive window and doubled send buffer a stream gets, bytes.
    fn granted(&self, spec: &TestSpec) -> (f64, f64) {
        let granted = |asked: Option<u64>, factor: f64, most: f64| {
            asked.map_or(most, |asked| (asked as f64 * factor).min(most))
        };
        (
            granted(spec.receive_window_bytes(), 1.0, self.window_max_bytes),
            granted(spec.send_window_bytes(), 2.0, self.buffer_max_bytes),
        )
    }

    pub(crate) fn sender_ceiling(&self, spec: &TestSpec) -> (f64, f64) {
        let cheaper = if spec.send_path == SendPath::Copy { 1.0 } else { 1.6 };
        let whole = self.sender_core_bits_per_s * cheaper;
        let share = if spec.near_cores.is_empty() { 1.0 } else { self.sender_core_share };
        (whole, share)
    }

    pub(crate) fn receiver_ceiling(&self, spec: &TestSpec) -> (f64, f64) {
        let cheaper = if spec.receive_path == ReceivePath::Copy { 1.0 } else { 1.5 };
        let whole = self.receiver_core_bits_per_s * cheaper;
        let share = if spec.far_cores.is_empty() { 1.0 } else { self.receiver_core_share };
        (whole, share)
    }

    fn state(&self, spec: &TestSpec) -> State {
        let cc = spec.congestion_control.as_deref().unwrap_or(self.congestion_control);
        let (window_bytes, buffer_bytes) = self.granted(spec);
        let streams = f64::from(spec.streams);
        let (send_core, send_share) = self.sender_ceiling(spec);
        let (receive_core, receive_share) = self.receiver_ceiling(spec);
        // Streams pinned to one core share it; free ones have eight.
        let crowd =
            |pinned: &[u32]| if pinned.is_empty() { (streams / 8.0).max(1.0) } else { streams };
        let ceilings = [
            (Bound::Window, window_bytes * 8.0 / self.rtt_s),
            (Bound::Buffer, buffer_bytes * 0.6 * 8.0 / self.rtt_s),
            (Bound::Loss, self.loss_law(cc)),
            (Bound::Growth, self.window_growth_bits_per_s),
            (Bound::SenderCore, send_core * send_share / crowd(&spec.near_cores)),
            (Bound::ReceiverCore, receive_core * receive_share / crowd(&spec.far_cores)),
            (Bound::Capacity, self.capacity_bits_per_s * 0.99 / streams),
            (Bound::Offered, spec.offered_bits_per_s.unwrap_or(f64::MAX)),
            (Bound::Read, spec.read_bits_per_s.unwrap_or(f64::MAX)),
        ];
        let (bound, rate) =
            ceilings.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("nine ceilings");
        let mut state = State {
            bound,
            rate,
            rtt_s: self.rtt_s * 1.01,
            window_bytes,
            buffer_bytes,
            retransmit_share: self.loss_share,
            receive_window_share: 0.0,
            buffer_share: 0.0,
        };
        match bound {
            Bound::Window => state.receive_window_share = 0.97,
            Bound::Read | Bound::ReceiverCore => state.receive_window_share = 0.93,
            Bound::Buffer => state.buffer_share = 0.96,
            Bound::Capacity => self.fill_queue(&mut state, cc, streams),
            _ => {}
        }
        state
    }

    /// At the bottleneck: what the windows hold beyond the path stands in its queue, or overflows.
    fn fill_queue(&self, state: &mut State, cc: &str, streams: f64) {
        if cc == "bbr" {
            return;
        }
        let on_the_path = state.rate * self.rtt_s / 8.0;
        let beyond = (state.window_bytes - on_the_path).min(state.buffer_bytes * 0.6 - on_the_path);
        let room = self.queue_bytes / streams;
        if beyond < room {
            // The window holds it back, not the rate; nothing overflows.
            let by_window = state.window_bytes < state.buffer_bytes * 0.6;
            (state.receive_window_share, state.buffer_share) =
                if by_window { (0.95, 0.0) } else { (0.0, 0.95) };
            state.rtt_s = self.rtt_s + beyond * 8.0 / state.rate;
        } else {
            state.retransmit_share += if self.queue_bytes == 0.0 { 2e-3 } else { 1e-4 };
            state.rtt_s = self.rtt_s + 0.8 * room * 8.0 / state.rate;
        }
    }

    fn loss_law(&self, cc: &str) -> f64 {
        if self.loss_share == 0.0 || cc == "bbr" {
            return f64::MAX;
        }
        let reno = 1.22 / self.loss_share.sqrt();
        let cubic = 1.054 * (self.rtt_s / self.loss_share).powf(0.75);
        let segments = if cc == "reno" { reno } else { cubic.max(reno) };
        segments * self.mss() * 8.0 / self.rtt_s
    }

    fn tcp(&self, spec: &TestSpec, noise: f64) -> TestOutcome {
        let TestLimit::DurationS(duration_s) = spec.limit else {
            panic!("the model runs for a time")
        };
        let state = self.state(spec);
        let rate = state.rate * noise;
        let streams: Vec<(StreamEnd, StreamEnd)> = (0..spec.streams)
            .map(|index| Account::new(self, spec, &state, rate, duration_s).ends(index))
            .collect();
        let total = rate * f64::from(spec.streams);
        let bytes = (total * duration_s / 8.0) as u64;
        let retransmits: u64 = streams
            .iter()
            .filter_map(|(sender, _)| sender.tcp.as_ref())
            .map(|tcp| tcp.last.retransmits_count)
            .sum();
        let (senders, receivers): (Vec<_>, Vec<_>) = streams.into_iter().unzip();
        let report = |streams: Vec<StreamEnd>| EndReport {
            cores: cores(&streams),
            streams,
            ..EndReport::default()
        };
        TestOutcome {
            duration_s,
            directions: vec![DirectionOutcome {
                direction: Direction::Forward,
                sent_bytes: bytes,
                received_bytes: bytes,
                sent_bits_per_s: total,
                received_bits_per_s: total,
                retransmits_count: Some(retransmits),
                udp: None,
            }],
            hosts: HostAccount::of_ends(report(senders), self.far_told.then(|| report(receivers))),
            ..TestOutcome::default()
        }
    }

    fn udp(&self, spec: &TestSpec, noise: f64) -> TestOutcome {
        let TestLimit::DurationS(duration_s) = spec.limit else {
            panic!("the model runs for a time")
        };
        let offered = spec.offered_bits_per_s.unwrap_or(f64::MAX);
        let sent = offered.min(self.sender_ceiling(spec).0 * self.sender_ceiling(spec).1);
        let through = sent.min(self.capacity_bits_per_s) * (1.0 - self.loss_share);
        // What a slow reader leaves is lost in its socket, and told so.
        let delivered = through.min(self.receiver_ceiling(spec).0 * self.receiver_ceiling(spec).1)
            * noise.min(1.0);
        let size = f64::from(spec.udp.as_ref().map_or(1400, |udp| udp.datagram_bytes)) * 8.0;
        let count = |rate: f64| (rate * duration_s / size) as u64;
        TestOutcome {
            duration_s,
            directions: vec![DirectionOutcome {
                direction: Direction::Forward,
                sent_bytes: (sent * duration_s / 8.0) as u64,
                received_bytes: (delivered * duration_s / 8.0) as u64,
                sent_bits_per_s: sent,
                received_bits_per_s: delivered,
                retransmits_count: None,
                udp: Some(UdpOutcome {
                    sent_count: count(sent),
                    received_count: count(delivered),
                    lost_count: count(sent - delivered),
                    loss: UdpLoss {
                        socket_buffer_count: self.far_told.then(|| count(through - delivered)),
                        ..UdpLoss::default()
                    },
                    ..UdpOutcome::default()
                }),
            }],
            hosts: HostAccount::of_ends(EndReport::default(), None),
            ..TestOutcome::default()
        }
    }
}

pub(crate) fn rate_of(point: &Point) -> f64 {
    let outcome = point.measured().expect("the model always measures");
    outcome.directions[0].received_bits_per_s
}

/// Which end is the other.
pub(crate) const FAR: Option<End> = Some(End::Far);
pub(crate) const NEAR: Option<End> = Some(End::Near);
