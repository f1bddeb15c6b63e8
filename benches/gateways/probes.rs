//! What a probe with its answer costs: a watcher, a gateway and a reflector in three network namespaces on this
//! machine, joined by veth pairs. Needs root and iproute2.
//!
//! `probe_cost GATEWAYS INTERVAL_US SECONDS`: through so many gateways (addresses of one namespace). The cost is
//! the watcher's thread's own processor time, which includes the kernel's forwarding that runs in its name.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use liveness::bfd::{Role, SessionConfig};
use liveness::probe::Ports;
use liveness::siphash::Key;
use liveness::states::WatchConfig;
use rustix::event::EventfdFlags;
use watch::{
    GatewayOptions, Promptness, Recorder, Records, ReflectOptions, Reflecting, Steering, Watch,
    WatchOptions,
};

/// Counts how often it was asked.
struct Nowhere(u64);

impl Steering for Nowhere {
    fn steer(&mut self, _gateways: &[u16]) -> Result<(), String> {
        self.0 += 1;
        Ok(())
    }

    fn restore(&mut self, _gateways: &[u16]) -> Result<(), String> {
        Ok(())
    }
}

/// Runs in a thread of its own in the namespace.
fn inside<T: Send>(namespace: &OwnedFd, body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = || {
            sys::namespace::enter_network(namespace.as_fd()).expect("root");
            body()
        };
        scope.spawn(run).join().expect("no panic")
    })
}

fn ip(namespace: &OwnedFd, arguments: &str) {
    let run = || Command::new("ip").args(arguments.split(' ')).status();
    let status = inside(namespace, run).expect("iproute2");
    assert!(status.success(), "ip {arguments}");
}

fn join(near: &OwnedFd, far: &OwnedFd, names: [&str; 2], addresses: [&str; 2]) {
    let other = format!("/proc/{}/fd/{}", std::process::id(), far.as_raw_fd());
    ip(near, &format!("link add {} type veth peer name {} netns {other}", names[0], names[1]));
    for (namespace, name, address) in
        [(near, names[0], addresses[0]), (far, names[1], addresses[1])]
    {
        ip(namespace, &format!("addr add {address} dev {name}"));
        ip(namespace, &format!("link set {name} up"));
    }
}

/// What one end did, and its processor time in seconds.
struct Account {
    asked: u64,
    answered: u64,
    failed: u64,
    steered: u64,
    cost_s: f64,
    elapsed_s: f64,
}

fn key() -> Key {
    Key::new([1; 16])
}

/// Reflects until stopped; probes accepted and processor time in seconds.
fn reflect(stop: &OwnedFd) -> (u64, f64) {
    let _granted = Promptness::ask();
    let mut reflecting = Reflecting::open(&ReflectOptions {
        plan_id: 1,
        key: key(),
        ports: Ports::default(),
        interface: "far0".to_owned(),
        address: [10, 2, 0, 1].into(),
        sources: vec![[10, 1, 0, 1].into()],
        rate_per_s: 1_000_000,
        burst_count: 10_000,
    })
    .expect("a reflector");
    reflecting.run(stop.as_fd()).expect("poll");
    (reflecting.counters().accepted_count, sys::thread::thread_cpu_time().as_secs_f64())
}

fn options(gateways: u64, interval_us: u64) -> WatchOptions {
    let gateway = |index| GatewayOptions {
        name: format!("g{index}"),
        address: format!("10.1.1.{}", 1 + index).parse().expect("an address"),
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
        gateways: (0..gateways).map(gateway).collect(),
        timing: WatchConfig::with_interval(interval_us * 1000),
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

fn watch(options: WatchOptions, stop: &OwnedFd) -> Account {
    let granted = Promptness::ask();
    println!("real time: {}, memory: {}", granted.priority.is_ok(), granted.memory.is_ok());
    let gateways = options.gateways.len() as u16;
    let mut watch = Watch::open(options).expect("a watcher");
    let mut recorder =
        Recorder::start("cost", Records::of_events(Box::new(std::io::sink()))).expect("a thread");
    let (start, before) = (Instant::now(), sys::thread::thread_cpu_time());
    let mut nowhere = Nowhere(0);
    watch.run(stop.as_fd(), &mut nowhere, &mut recorder).expect("poll");
    let cost_s = (sys::thread::thread_cpu_time() - before).as_secs_f64();
    let elapsed_s = start.elapsed().as_secs_f64();
    let mut account =
        Account { asked: 0, answered: 0, failed: 0, steered: nowhere.0, cost_s, elapsed_s };
    for one in (0..gateways).filter_map(|index| watch.counters(index)) {
        account.asked += one.rounds_count + one.full_count;
        account.answered += one.answered_count + one.full_answered_count;
        account.failed += one.failures_count;
    }
    account
}

fn main() {
    let argument = |at: usize, default: u64| {
        std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (gateways, interval_us, seconds) = (argument(1, 32), argument(2, 1000), argument(3, 5));
    let make = || sys::namespace::unshare_network().expect("root");
    let [host, gateway, far] = [0; 3].map(|_| std::thread::spawn(make).join().expect("root"));
    join(&host, &gateway, ["host0", "gate0"], ["10.1.0.1/16", "10.1.1.1/16"]);
    join(&gateway, &far, ["gate1", "far0"], ["10.2.0.2/24", "10.2.0.1/24"]);
    for index in 1..gateways {
        ip(&gateway, &format!("addr add 10.1.1.{}/16 dev gate0", 1 + index));
    }
    let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    inside(&gateway, forward).expect("a writable /proc/sys");
    let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    let (account, (reflected, reflector_s)) = std::thread::scope(|scope| {
        let far = scope.spawn(|| inside(&far, || reflect(&stop)));
        let options = options(gateways, interval_us);
        let near = scope.spawn(|| inside(&host, || watch(options, &stop)));
        std::thread::sleep(Duration::from_secs(seconds));
        rustix::io::write(&stop, &1_u64.to_ne_bytes()).expect("an eventfd");
        (near.join().expect("a watcher"), far.join().expect("a reflector"))
    });
    let Account { asked, answered, failed, steered, cost_s, elapsed_s } = account;
    println!(
        "{gateways} gateways every {interval_us} us: {asked} probes in {elapsed_s:.1} s, {answered} \
         answered, {failed} failures, routes moved {steered} times"
    );
    println!(
        "watcher {:.2} us a probe with its answer, {:.2} % of a core; reflector {:.2} us a probe",
        cost_s * 1e6 / asked.max(1) as f64,
        100.0 * cost_s / elapsed_s,
        reflector_s * 1e6 / reflected.max(1) as f64
    );
}
