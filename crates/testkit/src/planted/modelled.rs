//! Limits of machines we do not have, as documents: two packages of 24 cores, each a memory node,
//! with an interface of 100 Gbit/s on the second. Every figure follows from the mechanism that a
//! case plants, at both ends.

use results::{
    Cache, Core, CoreClock, CoreUse, Direction, DirectionOutcome, EndReport, Host, HostAccount,
    HostFacts, InterfaceFacts, Interrupt, IntervalSample, LatencySummary, Machine, MemoryNode, Nic,
    PathFacts, PcieLink, PercentilePoint, Point, Results, RunKind, SoftnetCounters, StreamEnd,
    TcpSample, TcpSummary, TestLimit, TestOutcome, TestSpec, UdpLoss, UdpOutcome,
};

use super::cases::Accepted;
use super::recorded::Recorded;

/// Measured seconds of every modelled test.
const DURATION_S: f64 = 2.0;
/// Intervals of it.
const INTERVALS_COUNT: u32 = 8;
/// Cores of a host; the second half is next to the interface.
const CORES_COUNT: u32 = 48;
/// Core that takes the interface's interrupts.
const INTERRUPT_CORE: u32 = 24;

/// One end while a stream ran.
#[derive(Debug, Clone, Copy)]
struct Side {
    /// Where its thread ran.
    core: u32,
    /// Share of the time the thread ran, and was ready without its core.
    run: f64,
    wait: f64,
    /// Share of its thread's core that the hypervisor takes.
    steal: f64,
    /// Share of the interrupt core's time in softirq.
    softirq: f64,
    /// Clock of its cores, kHz; they could have 3.4 GHz.
    khz: u64,
    /// Share of the receive buffer that is unread data.
    unread: f64,
    /// Packets lost at its device's ring and at its backlog, a second.
    ring_lost: f64,
    backlog_lost: f64,
}

const EASY: Side = Side {
    core: 26,
    run: 0.35,
    wait: 0.01,
    steal: 0.0,
    softirq: 0.3,
    khz: 3_400_000,
    unread: 0.01,
    ring_lost: 0.0,
    backlog_lost: 0.0,
};

/// What was measured.
#[derive(Debug, Clone, Copy)]
struct Path {
    rtt_s: f64,
    /// Of the loaded path.
    loaded_rtt_s: f64,
    mtu_bytes: u32,
    /// One stream, four, and UDP delivered of what was offered, bit/s.
    rate: f64,
    several: f64,
    udp: f64,
    /// Share of the segments retransmitted.
    lost: f64,
    /// Share of the time held back by the receiver's window.
    window_limited: f64,
    near: Side,
    far: Side,
    pcie_lanes: u32,
}

const EASY_PATH: Path = Path {
    rtt_s: 200e-6,
    loaded_rtt_s: 250e-6,
    mtu_bytes: 9000,
    rate: 36e9,
    several: 95e9,
    udp: 40e9,
    lost: 0.0,
    window_limited: 0.0,
    near: EASY,
    far: EASY,
    pcie_lanes: 16,
};

/// Every modelled case with its name.
pub fn modelled() -> Vec<(String, Recorded)> {
    let case = |name: &str, plants: &str, accept: &[&str], path: Path| {
        let accepted = |text: &&str| Accepted::try_from((*text).to_owned()).expect("a limit");
        let recorded = Recorded {
            by: "a model".to_owned(),
            plants: plants.to_owned(),
            accept: accept.iter().map(accepted).collect(),
            results: path.document(),
        };
        (format!("modelled-{name}"), recorded)
    };
    let mut all = Vec::new();
    all.extend(cores().map(|(name, plants, accept, path)| case(name, plants, accept, path)));
    all.extend(devices().map(|(name, plants, accept, path)| case(name, plants, accept, path)));
    all
}

type Modelled = (&'static str, &'static str, &'static [&'static str], Path);

fn cores() -> [Modelled; 7] {
    let full = Side { run: 0.97, wait: 0.02, ..EASY };
    let reading = Side { unread: 0.8, ..full };
    let read = Path { window_limited: 0.8, ..EASY_PATH };
    [
        (
            "sender-core",
            "the near thread runs all the time beside its interface",
            &["sender-core at near"],
            Path { near: full, ..EASY_PATH },
        ),
        (
            "receiver-core",
            "the far thread runs all the time beside its interface",
            &["receiver-core at far"],
            Path { far: reading, ..read },
        ),
        (
            "other-node-far",
            "the far thread runs all the time on the package without the interface",
            &["placement at far"],
            Path { rate: 19e9, far: Side { core: 3, ..reading }, ..read },
        ),
        (
            "other-node-near",
            "the near thread runs all the time on the package without the interface",
            &["placement at near"],
            Path { rate: 19e9, near: Side { core: 3, ..full }, ..EASY_PATH },
        ),
        (
            "slow-clock",
            "the near thread runs all the time on cores at 1.2 of 3.4 GHz",
            &["cpu-frequency at near"],
            Path { rate: 13e9, near: Side { khz: 1_200_000, ..full }, ..EASY_PATH },
        ),
        (
            "steal-near",
            "the hypervisor takes 45% of the near thread's core, which runs in the rest",
            &["steal at near"],
            Path {
                rate: 20e9,
                near: Side { run: 0.53, wait: 0.01, steal: 0.45, ..EASY },
                ..EASY_PATH
            },
        ),
        (
            "interrupt-core",
            "the far core that takes the interface's interrupts spends all its time in softirq",
            &["interrupt-core at far"],
            Path {
                rate: 22e9,
                several: 23e9,
                udp: 22e9,
                mtu_bytes: 1500,
                far: Side { softirq: 0.99, run: 0.4, ..EASY },
                ..EASY_PATH
            },
        ),
    ]
}

fn devices() -> [Modelled; 5] {
    let long = Path { rtt_s: 17e-3, loaded_rtt_s: 17.2e-3, ..EASY_PATH };
    // The answer to this share over 17 ms, as Reno's and where that is less CUBIC's as well:
    // 1.22 MSS / (RTT sqrt(p)).
    let lossy = Path { lost: 2e-3, rate: 115e6, several: 460e6, udp: 551e6, ..long };
    // Segments of 8948 bytes at that rate and share.
    let lost_per_s = 115e6 / 8.0 / 8948.0 * 2e-3;
    [
        (
            "ring-overrun",
            "the far device drops what its receive ring has no room for",
            &["ring-overrun at far"],
            Path { far: Side { ring_lost: lost_per_s, ..EASY }, ..lossy },
        ),
        (
            "softnet-backlog",
            "the far backlog drops what it has no room for",
            &["softnet-backlog at far"],
            Path { far: Side { backlog_lost: lost_per_s, ..EASY }, ..lossy },
        ),
        ("loss", "the path drops two packets in a thousand", &["loss"], lossy),
        (
            "pcie",
            "the near interface of 100 Gbit/s has 4 lanes of 8 GT/s instead of 16",
            &["pcie at near"],
            Path {
                rate: 27e9,
                several: 27.2e9,
                udp: 27e9,
                loaded_rtt_s: 450e-6,
                pcie_lanes: 4,
                ..EASY_PATH
            },
        ),
        (
            "line",
            "the interfaces of 100 Gbit/s",
            &["link-rate"],
            Path {
                rate: 98.6e9,
                several: 98.8e9,
                udp: 98.5e9,
                loaded_rtt_s: 600e-6,
                near: Side { run: 0.6, ..EASY },
                far: Side { run: 0.7, ..EASY },
                ..EASY_PATH
            },
        ),
    ]
}

impl Path {
    fn document(&self) -> Results {
        let spec =
            TestSpec { limit: TestLimit::DurationS(DURATION_S), streams: 1, ..TestSpec::tcp() };
        let four = TestSpec { streams: 4, ..spec.clone() };
        let mut points: Vec<Point> = (0..3)
            .map(|repeat| {
                point("single-stream", &spec, repeat, self.tcp(1, self.wobbled(self.rate, repeat)))
            })
            .collect();
        points.extend((0..2).map(|repeat| {
            point("multi-stream", &four, repeat, self.tcp(4, self.wobbled(self.several, repeat)))
        }));
        let udp = TestSpec {
            limit: TestLimit::DurationS(DURATION_S),
            offered_bits_per_s: Some(self.several * 1.2),
            ..TestSpec::udp(self.mtu_bytes - 48)
        };
        points.push(point("udp", &udp, 0, self.udp(self.several * 1.2)));
        Results {
            hosts: vec![
                Host::near(self.host("near", self.near, self.pcie_lanes)),
                Host::far(self.host("far", self.far, 16)),
            ],
            path: self.facts(),
            points,
            ..Results::begun(RunKind::Path, 0)
        }
    }

    /// Repeats differ by a percent.
    fn wobbled(&self, rate: f64, repeat: u32) -> f64 {
        rate * [1.0, 0.993, 1.006][repeat as usize % 3]
    }

    fn facts(&self) -> PathFacts {
        let percentile = |percentile| PercentilePoint { percentile, value_s: self.rtt_s };
        PathFacts {
            target: "far".to_owned(),
            address: Some("192.0.2.2".to_owned()),
            port: Some(5201),
            idle_rtt: Some(LatencySummary {
                count: 50,
                min_s: self.rtt_s * 0.98,
                mean_s: self.rtt_s,
                deviation_s: self.rtt_s * 0.01,
                max_s: self.rtt_s * 1.1,
                percentiles: LatencySummary::PERCENTILES.map(percentile).to_vec(),
                method: "tcp-rr".to_owned(),
            }),
            path_mtu_bytes: Some(self.mtu_bytes),
            ..PathFacts::default()
        }
    }

    fn host(&self, name: &str, side: Side, lanes: u32) -> HostFacts {
        let window = "4096\t131072\t67108864".to_owned();
        HostFacts {
            name: name.to_owned(),
            kernel: "6.1.0".to_owned(),
            usable_cores: (0..CORES_COUNT).collect(),
            online_cores_count: CORES_COUNT,
            memory_nodes_count: Some(2),
            interface: Some(InterfaceFacts {
                name: "eth0".to_owned(),
                driver: Some("mlx5_core".to_owned()),
                speed_bits_per_s: Some(100e9),
                mtu_bytes: self.mtu_bytes,
                queues_count: Some((1, 1)),
                qdisc: Some("mq".to_owned()),
                offloads: ["tso", "gso", "gro"].map(str::to_owned).to_vec(),
                memory_node: Some(1),
                ..InterfaceFacts::default()
            }),
            sysctls: [
                ("net.ipv4.tcp_rmem".to_owned(), window.clone()),
                ("net.ipv4.tcp_wmem".to_owned(), window),
                (
                    "net.ipv4.tcp_available_congestion_control".to_owned(),
                    "reno cubic bbr".to_owned(),
                ),
            ]
            .into(),
            machine: Some(self.machine(side, lanes)),
            ..HostFacts::default()
        }
    }

    fn machine(&self, side: Side, lanes: u32) -> Machine {
        let half = CORES_COUNT / 2;
        let core = |number: u32| Core {
            core: number,
            package: Some(number / half),
            die: Some(0),
            physical_core: Some(number % half),
            node: Some(number / half),
            is_online: true,
            is_usable: true,
            frequency: Some(results::CoreFrequency {
                governor: "powersave".to_owned(),
                max_khz: Some(side.khz.max(3_400_000)),
                hardware_max_khz: Some(3_400_000),
                current_khz: Some(side.khz),
                ..results::CoreFrequency::default()
            }),
            ..Core::default()
        };
        let of_package = |package: u32| (package * half..(package + 1) * half).collect::<Vec<_>>();
        let cache = |package: u32| Cache {
            level: 3,
            kind: "Unified".to_owned(),
            size_bytes: Some(32 << 20),
            cores: of_package(package),
        };
        let node = |number: u32| MemoryNode {
            node: number,
            cores: of_package(number),
            memory_bytes: Some(128 << 30),
            distances: if number == 0 { vec![10, 21] } else { vec![21, 10] },
        };
        Machine {
            cores: (0..CORES_COUNT).map(core).collect(),
            caches: vec![cache(0), cache(1)],
            nodes: vec![node(0), node(1)],
            nics: vec![self.nic(lanes)],
            ..Machine::default()
        }
    }

    fn nic(&self, lanes: u32) -> Nic {
        Nic {
            name: "eth0".to_owned(),
            driver: Some("mlx5_core".to_owned()),
            is_up: true,
            speed_bits_per_s: Some(100e9),
            mtu_bytes: self.mtu_bytes,
            node: Some(1),
            near_cores: (CORES_COUNT / 2..CORES_COUNT).collect(),
            pcie: Some(PcieLink {
                address: "0000:41:00.0".to_owned(),
                speed_gt_per_s: 8.0,
                lanes_count: lanes,
                speed_max_gt_per_s: Some(8.0),
                lanes_max_count: Some(16),
                payload_max_bytes: Some(256),
                read_request_max_bytes: Some(512),
                ..PcieLink::default()
            }),
            interrupts: vec![Interrupt {
                irq: 71,
                name: "mlx5_comp0@pci:0000:41:00.0".to_owned(),
                queue: Some(0),
                serves_receive: true,
                serves_transmit: true,
                allowed_cores: vec![INTERRUPT_CORE],
                effective_cores: vec![INTERRUPT_CORE],
                ran: vec![(INTERRUPT_CORE, 1_000_000)],
            }],
            ..Nic::default()
        }
    }

    fn tcp(&self, streams: u32, rate: f64) -> TestOutcome {
        let bytes = (rate * DURATION_S / 8.0) as u64;
        let each = rate / f64::from(streams);
        let sent_again = rate * DURATION_S / 8.0 / self.mss() * self.lost;
        let ends = |sending: bool, side: Side| {
            let streams = (0..streams).map(|index| self.stream(index, sending, each, side));
            let streams: Vec<StreamEnd> = streams.collect();
            let rise = rate / self.rate;
            EndReport { streams, ..account(side, rise) }
        };
        TestOutcome {
            duration_s: DURATION_S,
            directions: vec![DirectionOutcome {
                direction: Direction::Forward,
                sent_bytes: bytes,
                received_bytes: bytes,
                sent_bits_per_s: rate,
                received_bits_per_s: rate,
                retransmits_count: Some(sent_again as u64),
                udp: None,
            }],
            hosts: HostAccount::of_ends(ends(true, self.near), Some(ends(false, self.far))),
            ..TestOutcome::default()
        }
    }

    fn mss(&self) -> f64 {
        f64::from(self.mtu_bytes) - 52.0
    }

    fn stream(&self, index: u32, sending: bool, rate: f64, side: Side) -> StreamEnd {
        let interval_s = DURATION_S / f64::from(INTERVALS_COUNT);
        let in_flight = rate * self.loaded_rtt_s / 8.0;
        let unread = side.unread * 6e6;
        let interval = |step: u32| {
            let end_s = interval_s * f64::from(step + 1);
            IntervalSample {
                start_s: interval_s * f64::from(step),
                end_s,
                bytes: (rate * interval_s / 8.0) as u64,
                tcp: Some(self.sample(sending, rate, end_s)),
                receive_queue_bytes: Some(if sending { 0.0 } else { unread } as u64),
                send_queue_bytes: Some(if sending { in_flight * 1.3 } else { 0.0 } as u64),
                ..IntervalSample::default()
            }
        };
        StreamEnd {
            index,
            sending,
            bytes: (rate * DURATION_S / 8.0) as u64,
            duration_s: DURATION_S,
            cores: vec![side.core + index],
            incoming_core: Some(INTERRUPT_CORE),
            thread_user_s: Some(side.run * DURATION_S * 0.05),
            thread_system_s: Some(side.run * DURATION_S * 0.95),
            thread_wait_s: Some(side.wait * DURATION_S),
            send_buffer_bytes: Some(in_flight.mul_add(6.0, 4e6) as u64),
            receive_buffer_bytes: Some(12_000_000),
            tcp: Some(TcpSummary {
                congestion_control: "cubic".to_owned(),
                mss_bytes: self.mss() as u32,
                first: self.sample(sending, rate, 0.0),
                last: self.sample(sending, rate, DURATION_S),
                ..TcpSummary::default()
            }),
            intervals: (0..INTERVALS_COUNT).map(interval).collect(),
            ..StreamEnd::default()
        }
    }

    fn sample(&self, sending: bool, rate: f64, at_s: f64) -> TcpSample {
        let in_flight = rate * self.loaded_rtt_s / 8.0;
        if !sending {
            let free = 6e6 * (1.0 - self.far.unread);
            return TcpSample {
                rtt_s: self.rtt_s,
                advertised_window_bytes: Some(free as u64),
                ..TcpSample::default()
            };
        }
        // Lost segments keep the window at what is in flight; else it is left as it grew.
        let window = if self.lost > 0.0 { 1.02 } else { 1.6 } * in_flight;
        let offered = if self.window_limited > 0.5 { in_flight * 1.02 } else { in_flight.max(6e6) };
        TcpSample {
            rtt_s: self.loaded_rtt_s,
            rtt_variation_s: self.rtt_s * 0.02,
            rtt_min_s: Some(self.rtt_s * 0.98),
            congestion_window_bytes: window as u64,
            peer_window_bytes: Some(offered as u64),
            in_flight_bytes: in_flight as u64,
            not_sent_bytes: Some((in_flight * 0.3) as u64),
            retransmits_count: (rate * at_s / 8.0 / self.mss() * self.lost).ceil() as u64,
            busy_s: Some(at_s),
            receive_window_limited_s: Some(at_s * self.window_limited),
            send_buffer_limited_s: Some(0.0),
            ..TcpSample::default()
        }
    }

    fn udp(&self, offered: f64) -> TestOutcome {
        let size = f64::from(self.mtu_bytes - 48) * 8.0;
        let count = |rate: f64| (rate * DURATION_S / size) as u64;
        let sent = offered.min(self.udp * 1.05);
        TestOutcome {
            duration_s: DURATION_S,
            directions: vec![DirectionOutcome {
                direction: Direction::Forward,
                sent_bytes: (sent * DURATION_S / 8.0) as u64,
                received_bytes: (self.udp * DURATION_S / 8.0) as u64,
                sent_bits_per_s: sent,
                received_bits_per_s: self.udp,
                retransmits_count: None,
                udp: Some(UdpOutcome {
                    sent_count: count(sent),
                    received_count: count(self.udp),
                    lost_count: count(sent) - count(self.udp),
                    loss: UdpLoss { socket_buffer_count: Some(0), ..UdpLoss::default() },
                    ..UdpOutcome::default()
                }),
            }],
            hosts: HostAccount::of_ends(account(self.near, 1.0), Some(account(self.far, 1.0))),
            ..TestOutcome::default()
        }
    }
}

/// A host's account of its cores and counters; what is lost rises with the rate.
fn account(side: Side, rise: f64) -> EndReport {
    let core = |number: u32| {
        let system = if number == side.core { side.run } else { 0.0 };
        let softirq = if number == INTERRUPT_CORE { side.softirq } else { 0.0 };
        let steal = if number == side.core { side.steal } else { 0.0 };
        let idle = 1.0 - (system + steal).max(softirq);
        CoreUse { core: number, system, softirq, steal, idle, ..CoreUse::default() }
    };
    let clock = |number: u32| CoreClock {
        core: number,
        first_khz: side.khz,
        last_khz: side.khz,
        governor_max_khz: Some(side.khz.max(1_200_000)),
        hardware_max_khz: Some(3_400_000),
    };
    let mut report =
        EndReport { cores: (0..CORES_COUNT).map(core).collect(), ..EndReport::default() };
    let gained = |per_s: f64| (per_s * rise * DURATION_S).ceil() as u64;
    report.counters.clocks = (0..CORES_COUNT).map(clock).collect();
    report.counters.devices = vec![results::DeviceCounters {
        interface: "eth0".to_owned(),
        rx_drops_count: gained(side.ring_lost),
        rx_ring_overruns_count: Some(gained(side.ring_lost)),
        ..results::DeviceCounters::default()
    }];
    report.counters.softnet = vec![SoftnetCounters {
        core: INTERRUPT_CORE,
        processed_pkts: 100_000,
        dropped_pkts: gained(side.backlog_lost),
        ..SoftnetCounters::default()
    }];
    report
}

fn point(experiment: &str, spec: &TestSpec, repeat: u32, outcome: TestOutcome) -> Point {
    Point { repeat, ..Point::new(experiment, spec.clone(), outcome) }
}
