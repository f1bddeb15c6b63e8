//! What a probe with its answer costs: a watcher, a gateway and a reflector in three network namespaces on this
//! machine, joined by veth pairs. The cost is the processor time of the watcher's thread.
//!
//! By itself the kernel forwards a packet of a veth pair, through the gateway and up to the reflector's socket, within
//! the `sendmmsg(2)` that sends it, so on the watcher's time. Measured once more with the two threads on a core each, and
//! with the gateway's reception steered to the reflector's (`rps_cpus`, receive packet steering), the watcher pays for what
//! it pays for on a real host: to send through its device, to wake the next core, and to receive. The difference is the
//! forwarding. Answers are forwarded on the reflector's time in both.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use liveness::bfd::{Role, SessionConfig};
use liveness::probe::Ports;
use liveness::siphash::Key;
use liveness::states::WatchConfig;
use rustix::event::EventfdFlags;
use watch::{
    GatewayOptions, Promptness, Recorder, Records, ReflectOptions, Reflecting, Steering, Watch,
    WatchOptions,
};

use crate::comparison::Figures;
use crate::host::BenchError;

use super::{failed, ip};

/// Probed so often that only probes cost anything, and as a plan does.
const SETTINGS: [Setting; 2] = [
    Setting { gateways_count: 32, interval_us: 1000 },
    Setting { gateways_count: 10, interval_us: 100_000 },
];

/// The first gateway's address; the others follow.
const GATEWAY: u32 = u32::from_be_bytes([10, 1, 1, 1]);

#[derive(Debug, Clone, Copy)]
struct Setting {
    gateways_count: u16,
    interval_us: u64,
}

/// There are no routes to move.
struct Nowhere;

impl Steering for Nowhere {
    fn steer(&mut self, _gateways: &[u16]) -> Result<(), String> {
        Ok(())
    }

    fn restore(&mut self, _gateways: &[u16]) -> Result<(), String> {
        Ok(())
    }
}

/// Who pays for the kernel's forwarding.
#[derive(Debug, Clone, Copy)]
enum Forwarding {
    /// The watcher's thread, as the kernel has it.
    Here,
    /// Another core than the watcher's.
    Apart { watcher: u32, other: u32 },
}

impl Forwarding {
    /// Keeps the calling thread on the core that is chosen from those of a watcher and of a reflector.
    fn pin(self, choose: impl FnOnce(u32, u32) -> u32) -> Result<(), BenchError> {
        match self {
            Self::Here => Ok(()),
            Self::Apart { watcher, other } => {
                sys::thread::pin_current(&[choose(watcher, other)]).map_err(failed)
            }
        }
    }

    /// Has the calling thread's namespace take in what comes to an interface on another core.
    fn steer(self, interface: &str) -> Result<(), BenchError> {
        let Self::Apart { other, .. } = self else { return Ok(()) };
        // A mask of 32-bit words, the highest first.
        let mask =
            format!("{:x}{}", 1_u32 << (other % 32), ",00000000".repeat(other as usize / 32));
        let script = format!(
            "mount -t sysfs sysfs /sys && echo {mask} > /sys/class/net/{interface}/queues/rx-0/rps_cpus"
        );
        let done = Command::new("unshare").args(["-m", "sh", "-c", &script]).output()?;
        let complaint = String::from_utf8_lossy(&done.stderr);
        if done.status.success() { Ok(()) } else { Err(failed(format!("rps_cpus: {complaint}"))) }
    }
}

/// Runs in a thread of its own in the namespace.
fn inside<T: Send>(
    namespace: &OwnedFd,
    body: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    let run = || {
        sys::namespace::enter_network(namespace.as_fd()).map_err(failed)?;
        body()
    };
    std::thread::scope(|scope| scope.spawn(run).join())
        .map_err(|_panic| failed("a thread panicked"))?
}

fn join(
    near: &OwnedFd,
    far: &OwnedFd,
    names: [&str; 2],
    addresses: [&str; 2],
) -> Result<(), BenchError> {
    let other = format!("/proc/{}/fd/{}", std::process::id(), far.as_raw_fd());
    let [name, peer] = names;
    inside(near, || ip(&format!("link add {name} type veth peer name {peer} netns {other}")))?;
    for (namespace, name, address) in [(near, name, addresses[0]), (far, peer, addresses[1])] {
        inside(namespace, || {
            ip(&format!("addr add {address} dev {name}"))?;
            ip(&format!("link set {name} up"))
        })?;
    }
    Ok(())
}

/// What a watcher did, and the processor time that it took.
struct Account {
    asked_count: u64,
    answered_count: u64,
    cost_s: f64,
}

fn key() -> Key {
    Key::new([1; 16])
}

/// Reflects until stopped.
fn reflect(stop: &OwnedFd) -> Result<(), BenchError> {
    let _granted = Promptness::ask();
    let options = ReflectOptions {
        plan_id: 1,
        key: key(),
        ports: Ports::default(),
        interface: "far0".to_owned(),
        address: [10, 2, 0, 1].into(),
        sources: vec![[10, 1, 0, 1].into()],
        rate_per_s: 1_000_000,
        burst_count: 10_000,
    };
    let mut reflecting = Reflecting::open(&options).map_err(failed)?;
    reflecting.run(stop.as_fd()).map_err(failed)
}

fn options(setting: Setting) -> WatchOptions {
    let gateway = |index: u16| GatewayOptions {
        name: format!("g{index}"),
        address: std::net::Ipv4Addr::from(GATEWAY + u32::from(index)).into(),
        is_probed: true,
        bfd: None,
    };
    WatchOptions {
        plan: "cost".to_owned(),
        plan_id: 1,
        key: key(),
        ports: Ports::default(),
        interface: "host0".to_owned(),
        near: [10, 1, 0, 1].into(),
        far: vec![[10, 2, 0, 1].into()],
        gateways: (0..setting.gateways_count).map(gateway).collect(),
        timing: WatchConfig::with_interval(setting.interval_us * 1000),
        bfd: SessionConfig {
            role: Role::Active,
            desired_min_tx_us: 50_000,
            required_min_rx_us: 50_000,
            detect_multiplier: 3,
        },
        were_down: Vec::new(),
        sentinels: None,
        announce: None,
        has_filters: false,
    }
}

fn watch(options: WatchOptions, stop: &OwnedFd) -> Result<Account, BenchError> {
    let _granted = Promptness::ask();
    let gateways_count = options.gateways.len() as u16;
    let mut watch = Watch::open(options).map_err(failed)?;
    let records = Records::of_events(Box::new(std::io::sink()));
    let mut recorder = Recorder::start("cost", records).map_err(failed)?;
    let before = sys::thread::thread_cpu_time();
    watch.run(stop.as_fd(), &mut Nowhere, &mut recorder).map_err(failed)?;
    let cost_s = (sys::thread::thread_cpu_time() - before).as_secs_f64();
    let mut account = Account { asked_count: 0, answered_count: 0, cost_s };
    for one in (0..gateways_count).filter_map(|index| watch.counters(index)) {
        account.asked_count += one.rounds_count + one.full_count;
        account.answered_count += one.answered_count + one.full_answered_count;
    }
    Ok(account)
}

/// A watcher, a gateway and a reflector for so long.
fn measure(
    setting: Setting,
    forwarding: Forwarding,
    time: Duration,
) -> Result<Account, BenchError> {
    let make = || {
        let made = std::thread::spawn(sys::namespace::unshare_network).join();
        let made = made.map_err(|_panic| failed("a thread panicked"))?;
        made.map_err(|error| BenchError::Privilege(error.to_string()))
    };
    let [host, gateway, far] = [make()?, make()?, make()?];
    join(&host, &gateway, ["host0", "gate0"], ["10.1.0.1/16", "10.1.1.1/16"])?;
    join(&gateway, &far, ["gate1", "far0"], ["10.2.0.2/24", "10.2.0.1/24"])?;
    inside(&gateway, || {
        for index in 1..setting.gateways_count {
            let address = std::net::Ipv4Addr::from(GATEWAY + u32::from(index));
            ip(&format!("addr add {address}/16 dev gate0"))?;
        }
        forwarding.steer("gate0")?;
        Ok(std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?)
    })?;
    let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
    std::thread::scope(|scope| {
        let (host, far, stop) = (&host, &far, &stop);
        let reflector = move || {
            forwarding.pin(|_watcher, other| other)?;
            reflect(stop)
        };
        let watcher = move || {
            forwarding.pin(|watcher, _other| watcher)?;
            watch(options(setting), stop)
        };
        let far = scope.spawn(move || inside(far, reflector));
        let near = scope.spawn(move || inside(host, watcher));
        std::thread::sleep(time);
        rustix::io::write(stop, &1_u64.to_ne_bytes()).map_err(std::io::Error::from)?;
        far.join().map_err(|_panic| failed("the reflector panicked"))??;
        near.join().map_err(|_panic| failed("the watcher panicked"))?
    })
}

impl Account {
    /// Cost of a probe with its answer, microseconds.
    fn probe_us(&self) -> Result<f64, BenchError> {
        let (answered, asked) = (self.answered_count, self.asked_count);
        // The first answers may come before the reflector has begun.
        if answered < asked / 10 * 9 {
            return Err(failed(format!("{answered} of {asked} probes were answered")));
        }
        Ok(self.cost_s * 1e6 / asked.max(1) as f64)
    }
}

/// Cost of a probe with its answer, with and without the kernel's forwarding, and what watching by a usual plan takes of a
/// core.
pub(super) fn run(time: Duration) -> Result<Figures, BenchError> {
    let [often, usual] = SETTINGS;
    let mut figures = Figures::new();
    figures.insert("probe_us", measure(often, Forwarding::Here, time)?.probe_us()?);
    // Without a second core there is no such figure.
    if let [watcher, other, ..] = *sys::thread::usable_cores().map_err(failed)? {
        let apart = measure(often, Forwarding::Apart { watcher, other }, time)?;
        figures.insert("own_us", apart.probe_us()?);
    }
    let usual = measure(usual, Forwarding::Here, time)?;
    figures.insert("watch_percent", 100.0 * usual.cost_s / time.as_secs_f64());
    Ok(figures)
}
