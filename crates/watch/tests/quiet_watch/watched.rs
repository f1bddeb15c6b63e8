//! A watcher in the rig's host and a reflector in its far host.

use std::io::Write;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use liveness::bfd::{Role, SessionConfig};
use liveness::probe::{Ports, ProbeCounters};
use liveness::siphash::Key;
use liveness::states::WatchConfig;
use rustix::event::EventfdFlags;
use watch::{
    GatewayOptions, Promptness, Recorder, Records, ReflectOptions, Reflecting, Steering, Watch,
    WatchOptions,
};

use crate::rig::{GATEWAYS, Place, Rig};

/// A thread that runs until this is dropped.
pub(crate) struct Running<T> {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Running<T> {
    pub(crate) fn start(door: OwnedFd, body: impl FnOnce(&OwnedFd) -> T + Send + 'static) -> Self {
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let its_stop = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            sys::namespace::enter_network(door.as_fd()).unwrap();
            // Tests run beside others, at any priority.
            let _granted = Promptness::ask();
            body(&its_stop)
        });
        Self { stop, thread: Some(thread) }
    }

    pub(crate) fn end(mut self) -> T {
        self.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl<T> Running<T> {
    fn stop(&self) {
        rustix::io::write(&*self.stop, &1_u64.to_ne_bytes()).unwrap();
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop();
            thread.join().ok();
        }
    }
}

pub(crate) fn key() -> Key {
    Key::new(*b"the plan's key..")
}

/// Addresses of the rig by family.
pub(crate) fn address(is_v6: bool, place: Place) -> IpAddr {
    let text = match (is_v6, place) {
        (false, Place::Host) => "10.100.0.1".to_owned(),
        (true, Place::Host) => "fd00:100::1".to_owned(),
        (false, Place::Gateway(index)) => format!("10.100.0.{}", 91 + index),
        (true, Place::Gateway(index)) => format!("fd00:100::{}", 91 + index),
        (false, _) => "10.10.0.21".to_owned(),
        (true, _) => "fd00:10::21".to_owned(),
    };
    text.parse().unwrap()
}

pub(crate) fn reflect(rig: &Rig, is_v6: bool) -> Running<ProbeCounters> {
    let options = ReflectOptions {
        plan_id: 7,
        key: key(),
        ports: Ports::default(),
        interface: "ib0".to_owned(),
        address: address(is_v6, Place::Far),
        sources: vec![address(is_v6, Place::Host)],
        rate_per_s: 10_000,
        burst_count: 1000,
    };
    Running::start(rig.door(Place::Far), move |stop| {
        let mut reflecting = Reflecting::open(&options).unwrap();
        reflecting.run(stop.as_fd()).unwrap();
        reflecting.counters()
    })
}

pub(crate) fn options(is_v6: bool) -> WatchOptions {
    let gateway = |index| GatewayOptions {
        name: format!("g{index}"),
        address: address(is_v6, Place::Gateway(index)),
        is_probed: true,
        bfd: None,
    };
    WatchOptions {
        plan: "rig".to_owned(),
        plan_id: 7,
        key: key(),
        ports: Ports::default(),
        interface: "hsn0".to_owned(),
        near: address(is_v6, Place::Host),
        far: vec![address(is_v6, Place::Far)],
        gateways: (0..GATEWAYS).map(gateway).collect(),
        timing: WatchConfig { hold_down_ns: 0, hold_down_max_ns: 0, ..WatchConfig::default() },
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

/// Tells when it was asked to steer where.
pub(crate) struct Told(pub(crate) Sender<(Instant, Vec<u16>)>);

impl Steering for Told {
    fn steer(&mut self, gateways: &[u16]) -> Result<(), String> {
        self.0.send((Instant::now(), gateways.to_vec())).map_err(|error| error.to_string())
    }

    fn restore(&mut self, _gateways: &[u16]) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Clone, Default)]
pub(crate) struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Text {
    /// The events so far.
    pub(crate) fn events(&self) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for an event with these values; when it came.
    pub(crate) fn wait(&self, longest: Duration, wanted: &[(&str, serde_json::Value)]) -> Duration {
        let start = Instant::now();
        loop {
            let is_it =
                |event: &serde_json::Value| wanted.iter().all(|(key, value)| event[*key] == *value);
            if self.events().iter().any(is_it) {
                return start.elapsed();
            }
            assert!(start.elapsed() < longest, "no {wanted:?} in {:#?}", self.events());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// A watcher whose steering is told to the test.
pub(crate) struct Watched {
    pub(crate) told: Receiver<(Instant, Vec<u16>)>,
    pub(crate) events: Text,
    _running: Running<()>,
}

impl Watched {
    pub(crate) fn start(rig: &Rig, options: WatchOptions) -> Self {
        let (sender, told) = channel();
        let events = Text::default();
        let running = start(rig, options, events.clone(), Told(sender));
        Self { told, events, _running: running }
    }

    /// Waits until steered to these gateways; when.
    pub(crate) fn steered(&self, gateways: &[u16]) -> Instant {
        let longest = Duration::from_secs(10);
        loop {
            let told = self.told.recv_timeout(longest);
            let (at, told) = told.unwrap_or_else(|_| {
                panic!("not steered to {gateways:?}: {:#?}", self.events.events())
            });
            if told == gateways {
                return at;
            }
        }
    }
}

pub(crate) fn start(
    rig: &Rig,
    options: WatchOptions,
    events: Text,
    mut steering: impl Steering + Send + 'static,
) -> Running<()> {
    let (started, is_started) = channel();
    let running = Running::start(rig.door(Place::Host), move |stop| {
        let mut watch = Watch::open(options).unwrap();
        started.send(()).unwrap();
        let mut recorder = Recorder::start("rig", Records::of_events(Box::new(events))).unwrap();
        watch.run(stop.as_fd(), &mut steering, &mut recorder).unwrap();
    });
    is_started.recv().expect("a watcher that opens");
    running
}

/// Waits until the watcher is at rest.
pub(crate) fn settle(watched: &Watched) {
    let count = |kind: &str| {
        let events = watched.events.events();
        events.iter().filter(|event| event["event"] == kind).count()
    };
    let start = Instant::now();
    loop {
        let events = watched.events.events().len();
        std::thread::sleep(Duration::from_millis(300));
        let is_at_rest = watched.events.events().len() == events;
        if is_at_rest && count("all_failed") == count("all_failed_ended") {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{:#?}", watched.events.events());
    }
    while watched.told.try_recv().is_ok() {}
    watched.events.clear();
}
