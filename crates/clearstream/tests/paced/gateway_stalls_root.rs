//! Watchers at both ends of the lab `cumulus`: how long a bulk flow and operations of its file system, MooseFS, stand still
//! when the gateway between them fails. Needs root and MooseFS.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use stats::Judgement;
use testkit::effort;

use super::gateway_lab_root::Files;
use testkit::root::is_root;

use super::gateway_watch_root::{Failure, Flow, Pace, Rig, Watcher};

/// Longest stall of a bulk flow and of an operation on files, at 50 ms three times.
const STALL_MAX: Duration = Duration::from_secs(1);
/// Share of stalls that a busy machine makes longer.
const LATE_SHARE: f64 = 0.02;
/// How long a failure lasts beyond the moment at which both ends have noticed.
const LASTS: Duration = Duration::from_millis(1500);
/// Longest wait for the mount.
const PATIENCE: Duration = Duration::from_secs(20);
/// Operations before the first failure.
const WARM_COUNT: u32 = 50;
const KINDS: [Failure; 5] =
    [Failure::Forwarding, Failure::Hang, Failure::NearPort, Failure::FarPort, Failure::FarCarrier];

/// Somebody on a client who writes and lists files, one operation after the other.
struct Operations {
    /// When the operation that runs began, and the longest so far.
    runs: Arc<Mutex<(Instant, Duration)>>,
    count: Arc<AtomicU32>,
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Operations {
    fn start(client: &Watcher) -> Self {
        let (network, mounts) = (client.namespace("net"), client.namespace("mnt"));
        let runs = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
        let is_over = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicU32::new(0));
        let (own_runs, over) = (Arc::clone(&runs), Arc::clone(&is_over));
        let own_count = Arc::clone(&count);
        let body = move || {
            sys::namespace::enter_network(network.as_fd()).expect("root");
            // A thread may leave the mounts of its process once it shares them with none.
            sys::namespace::unshare_mounts_and_host_name().expect("root");
            sys::namespace::enter_mounts(mounts.as_fd()).expect("root");
            sys::thread::run_in_real_time(5).ok();
            let folder = Path::new("/mnt/pfs/stalls");
            fs::create_dir_all(folder).expect("the file system takes it");
            let mut file = File::create(folder.join("file")).expect("the file system takes it");
            while !over.load(Ordering::Relaxed) {
                own_runs.lock().expect("no panic").0 = Instant::now();
                match own_count.fetch_add(1, Ordering::Relaxed) % 3 {
                    0 => {
                        file.seek(SeekFrom::Start(0)).expect("no error reaches the application");
                        file.write_all(&[7; 4096]).expect("no error reaches the application");
                        file.sync_all().expect("no error reaches the application");
                    }
                    1 => drop(File::create(folder.join("other")).expect("no error")),
                    _ => assert!(fs::read_dir(folder).expect("no error").count() >= 1),
                }
                let mut runs = own_runs.lock().expect("no panic");
                runs.1 = runs.1.max(runs.0.elapsed());
                drop(runs);
                thread::sleep(Duration::from_millis(5));
            }
        };
        Self { runs, count, is_over, thread: thread::spawn(body) }
    }

    /// How many there have been.
    fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    fn forget(&self) {
        self.runs.lock().expect("no panic").1 = Duration::ZERO;
    }

    fn longest(&self) -> Duration {
        self.runs.lock().expect("no panic").1
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("no operation failed");
    }
}

/// Stalls of every kind of failure, in milliseconds; `forget` and `longest` are of what is looked at.
fn stalls(
    rig: &Rig,
    [client, server]: [&Watcher; 2],
    forget: &dyn Fn(),
    longest: &dyn Fn() -> Duration,
) -> Vec<(Failure, u128)> {
    let failures = KINDS.repeat(if effort::is_all() { 5 } else { 1 });
    let one = |failure: Failure| {
        // Nothing of the one before is judged.
        thread::sleep(Duration::from_millis(300));
        forget();
        rig.set(failure, true);
        for watcher in [client, server] {
            watcher.leads_over(&["g2", "g3"]);
        }
        thread::sleep(LASTS);
        let stall = longest();
        rig.set(failure, false);
        for watcher in [client, server] {
            watcher.leads_over(&["g1", "g2", "g3"]);
        }
        (failure, stall.as_millis())
    };
    failures.into_iter().map(one).collect()
}

fn judge(what: &str, stalls: &[(Failure, u128)]) {
    println!("{what} stood still, in ms: {stalls:?}");
    let count = u32::try_from(stalls.len()).expect("few");
    let judgement = Judgement::strictest(count, LATE_SHARE, effort::CHANCE_MAX);
    let late = stalls.iter().filter(|(_, ms)| *ms > STALL_MAX.as_millis()).count();
    let late = u32::try_from(late).expect("few");
    assert!(judgement.passes(late), "{what}: {stalls:?}: {judgement}");
}

#[test]
fn a_bulk_flow_stalls_a_second_at_most_whatever_its_gateway_fails_by_root() {
    if !is_root() {
        return;
    }
    let rig = Rig::up("bulkstall", Files::Without);
    let client = Watcher::start(&rig, "c1", &["--far", "s1"]);
    let server = Watcher::start(&rig, "s1", &["--far", "c1"]);
    let address = SocketAddr::from(([10, 10, 0, 21], 7000));
    let flow = Flow::start(Pace::BULK, [&client, &server], address);
    thread::sleep(Duration::from_secs(1));
    let stalls = stalls(&rig, [&client, &server], &|| flow.forget(), &|| flow.longest_stall());
    flow.end();
    judge("a bulk flow", &stalls);
}

#[test]
fn an_operation_on_files_stalls_a_second_at_most_whatever_their_gateway_fails_by_root() {
    if !is_root() {
        return;
    }
    let rig = Rig::up("filestall", Files::With);
    let began = Instant::now();
    while rig.lab.exec("c1", "cat /proc/self/mountinfo").matches(" /mnt/pfs ").count() == 0 {
        assert!(began.elapsed() < PATIENCE, "c1 has not mounted it");
        thread::sleep(Duration::from_millis(50));
    }
    let client = Watcher::start(&rig, "c1", &["--far", "s1"]);
    let server = Watcher::start(&rig, "s1", &["--far", "c1"]);
    let files = Operations::start(&client);
    // The first write finds servers that have to be told of each other: seconds, without any failure.
    let began = Instant::now();
    while files.count() < WARM_COUNT {
        assert!(began.elapsed() < PATIENCE, "{} operations", files.count());
        thread::sleep(Duration::from_millis(20));
    }
    let stalls = stalls(&rig, [&client, &server], &|| files.forget(), &|| files.longest());
    let count = files.count();
    files.end();
    assert!(count > 4 * WARM_COUNT, "{count} operations");
    judge("operations on files", &stalls);
}
