//! A confined daemon in a process of its own, and innocent clients that watch over it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packet_switch::attachment::Health;
use packet_switch::client::Connection;
use packet_switch::daemon::{Config, Daemon};
use ring::Patience;
use rustix::process::{Pid, Signal, kill_process};

use testkit::serving::{SOON, frame, wait_until};
use testkit::socket::socket_path;

/// The longest that an innocent client may have to wait, for a frame or an answer.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(50);

/// What this program does where it was started for a role: it is a daemon until it is killed.
pub(crate) fn play() {
    let Ok(role) = std::env::var("CLEARSTREAM_ROLE") else { return };
    let socket = PathBuf::from(std::env::var("CLEARSTREAM_SOCKET").unwrap());
    let plain_bells = role == "plain-daemon";
    let mut daemon = Daemon::bind(Config { plain_bells, ..Config::new(socket) }).unwrap();
    assert_eq!(
        daemon.waits_for_bells().is_some(),
        plain_bells,
        "this kernel rings without waiting"
    );
    daemon.confine().unwrap();
    if role == "provoked-daemon" {
        let refused = std::thread::spawn(|| {
            sys::sandbox::enter(sys::sandbox::Calls::Carry).unwrap();
            (0..3).for_each(|_| drop(std::env::current_dir()));
        });
        refused.join().unwrap();
    }
    daemon.run(&mut |notice| println!("notice {notice:?}"), &|| false).unwrap();
}

/// The daemon.
#[derive(Debug)]
pub(crate) struct Confined {
    path: PathBuf,
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Confined {
    pub(crate) fn start(name: &str) -> Self {
        Self::start_as("daemon", name)
    }

    pub(crate) fn start_as(role: &str, name: &str) -> Self {
        let path = socket_path(&format!("confined-{name}"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "plays_its_role", "--nocapture", "--test-threads", "1"])
            .env("CLEARSTREAM_ROLE", role)
            .env("CLEARSTREAM_SOCKET", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::<Mutex<Vec<String>>>::default();
        let (out, log) = (child.stdout.take().unwrap(), Arc::clone(&said));
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.for_each(|line| log.lock().unwrap().push(line));
        });
        wait_until("the daemon listens", || Connection::open(&path).is_ok());
        let daemon = Self { path, child, said };
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.child.id()));
        assert!(daemon.connect().list().is_ok(), "{status:?}");
        daemon
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    /// Does something while the daemon does nothing.
    pub(crate) fn frozen<T>(&self, work: impl FnOnce() -> T) -> T {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).unwrap();
        let is_stopped = |task: std::fs::DirEntry| {
            // A task may have ended meanwhile.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| !rest.starts_with(['R', 'S']))
        };
        let tasks = || std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        while !tasks().map(Result::unwrap).all(is_stopped) {}
        let value = work();
        kill_process(pid, Signal::CONT).unwrap();
        value
    }

    /// The daemon's mappings of this name.
    pub(crate) fn mappings_count(&self, name: &str) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap();
        maps.lines().filter(|line| line.contains(name)).count()
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// It has met nothing that it should not: every call that the defence makes is allowed.
    pub(crate) fn end(mut self) {
        // Two looks around later it has counted.
        std::thread::sleep(Duration::from_millis(250));
        let mut connection = self.connect();
        connection.list().unwrap();
        assert_eq!(connection.health(), Health::default(), "{:#?}", self.said());
        assert!(self.child.try_wait().unwrap().is_none(), "it runs");
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_file(&self.path).ok();
    }
}

/// Two clients that send each other frames, sleeping in between, and one that asks things.
#[derive(Debug)]
pub(crate) struct Innocents {
    began: Instant,
    stop: Arc<AtomicBool>,
    frames: JoinHandle<Account>,
    answers: JoinHandle<Account>,
    stalls: Vec<JoinHandle<Duration>>,
}

/// What came of it.
#[derive(Debug, Default)]
struct Account {
    done: u64,
    longest: Duration,
}

impl Account {
    fn add(&mut self, time: Duration) {
        self.done += 1;
        self.longest = self.longest.max(time);
    }
}

impl Innocents {
    pub(crate) fn start(path: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |work: fn(&Path, &AtomicBool) -> Account| {
            let (path, stop) = (path.to_owned(), Arc::clone(&stop));
            std::thread::spawn(move || work(&path, &stop))
        };
        let (frames, answers) = (start(exchange), start(ask));
        let cores = sys::thread::usable_cores().unwrap_or_default();
        let watch = |core| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || longest_stall(core, &stop))
        };
        let stalls = cores.into_iter().map(watch).collect();
        Self { began: Instant::now(), stop, frames, answers, stalls }
    }

    /// Nothing was lost, and nothing took longer than [`WAIT_MAX`] and what the machine's own cores stood still.
    pub(crate) fn end(self) {
        // Also after an attack that took no time.
        std::thread::sleep(Duration::from_millis(500).saturating_sub(self.began.elapsed()));
        self.stop.store(true, Ordering::Relaxed);
        let stalled: Duration = self.stalls.into_iter().map(|core| core.join().unwrap()).sum();
        for (what, thread) in [("frames", self.frames), ("answers", self.answers)] {
            let Account { done, longest } = thread.join().expect("the innocents are served");
            println!("{done} {what}, the longest wait {longest:?}; cores stood still {stalled:?}");
            assert!(done > 20, "{done} {what}");
            assert!(longest <= WAIT_MAX + stalled, "{what}: {longest:?}");
        }
    }
}

/// How long a core stood still at most: how late a thread on it woke that runs before all others where it may.
/// A virtual machine's host stops its cores for as long as it likes; no client of the switch can.
fn longest_stall(core: u32, stop: &AtomicBool) -> Duration {
    const TICK: Duration = Duration::from_millis(1);
    sys::thread::pin_current(&[core]).ok();
    let is_exact = sys::process::run_before_others().is_ok();
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        std::thread::sleep(TICK);
        longest = longest.max(began.elapsed().saturating_sub(TICK));
    }
    // Without the priority it would be the switch's own doing as well.
    if is_exact { longest } else { Duration::ZERO }
}

fn exchange(path: &Path, stop: &AtomicBool) -> Account {
    let mut connection = Connection::open(path).unwrap();
    let mut a = connection.attach_port(&"vale0:a".parse().unwrap()).unwrap();
    let mut b = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
    let mut account = Account::default();
    let patience = Patience { linger: Duration::ZERO, timeout: Duration::from_secs(10) };
    let mut number = 0_u8;
    while !stop.load(Ordering::Relaxed) {
        number = number.wrapping_add(1);
        let began = Instant::now();
        for (from, to, ends) in
            [(1, 2, (&mut a.sender, &mut b.receiver)), (2, 1, (&mut b.sender, &mut a.receiver))]
        {
            let (sender, receiver) = ends;
            assert!(sender.wait(SOON).unwrap() > 0);
            let sent = frame(from, to, number);
            assert!(sender.put(0, &sent));
            sender.publish(1).unwrap();
            // Others shout meanwhile.
            let mut copy = [0; 60];
            while copy != sent {
                let arrived = receiver.wait(patience).unwrap();
                assert!(arrived > 0, "frame {number} from {from} to {to} is lost");
                assert!(receiver.copy(0, &mut copy).is_some());
                receiver.release(1).unwrap();
            }
        }
        account.add(began.elapsed());
        assert_eq!(connection.poll_cut_off().unwrap(), None);
        std::thread::sleep(Duration::from_millis(1));
    }
    account
}

fn ask(path: &Path, stop: &AtomicBool) -> Account {
    let mut connection = Connection::open(path).unwrap();
    let mut account = Account::default();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        connection.list().unwrap();
        account.add(began.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    account
}
