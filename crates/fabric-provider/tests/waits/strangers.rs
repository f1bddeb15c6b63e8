//! Other processes of the host, while a job runs: another user at the doors of its ranks, and one of the same user who
//! writes into the memory that they share.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use shm::{Region, Socket};
use sys::private::Scratch;

use crate::scene::{Ran, compiled, mpirun, program, run};

const STRANGER: u32 = 65_534;

/// Ends what goes on beside a job, also where the job's test fails.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a job beside `disturb`, which is called until the job has ended.
fn beside(disturb: impl Fn() + Send, job: impl FnOnce() -> Ran) -> Ran {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ended = &ended;
        scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                disturb();
            }
        });
        let _until = Until(ended);
        job()
    })
}

/// The open files of the processes of one job, known by its folder: their links below `/proc`, and what those name.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let folder = folder.as_os_str().as_encoded_bytes();
    let is_its = |process: &PathBuf| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment.windows(folder.len()).any(|part| part == folder)
    };
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    entries(Path::new("/proc"))
        .map(|entry| entry.path())
        .filter(is_its)
        .flat_map(|process| entries(&process.join("fd")).map(|entry| entry.path()))
        .filter_map(|link| {
            let name = fs::read_link(&link).ok()?.to_string_lossy().into_owned();
            Some((link, name))
        })
        .collect()
}

/// The abstract names at which the ranks of a job listen.
fn doors(folder: &Path) -> Vec<String> {
    let sockets: Vec<String> = files(folder).into_iter().map(|(_, name)| name).collect();
    let all = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let door = |line: &str| {
        let (rest, name) = line.split_once(" @clearstream-fi/")?;
        let socket = format!("socket:[{}]", rest.split_whitespace().last()?);
        sockets.contains(&socket).then(|| format!("clearstream-fi/{name}"))
    };
    all.lines().filter_map(door).collect()
}

#[test]
fn root_another_user_at_the_doors_of_ranks_changes_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let scratch = Scratch::new("memory-strangers").expect("a folder");
    let knocks = AtomicU32::new(0);
    let knock = || {
        // Root alone sees whose they are.
        let doors = doors(scratch.path());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let user = rustix::process::Uid::from_raw(STRANGER);
                rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
                let connect =
                    |door: &String| Socket::connect_abstract(door, Duration::from_millis(10)).ok();
                // Some say what is no offer, and all stay for a while.
                let held: Vec<Socket> =
                    doors.iter().cycle().take(20 * doors.len()).filter_map(connect).collect();
                for (socket, bytes) in held.iter().zip([&b"CSM1"[..], &[0xee; 200]].iter().cycle())
                {
                    socket.send(bytes, &[]).ok();
                }
                knocks.fetch_add(held.len() as u32, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            });
        });
    };
    let ran = beside(knock, || run(&scratch, mpirun(&scratch, 2).arg(program()).arg("1")));
    assert!(ran.output.status.success(), "{}", ran.said());
    assert!(ran.said().contains("correct: 2 ranks"), "{}", ran.said());
    assert!(knocks.into_inner() > 0, "nobody knocked");
}

/// The next violation of the rings' rules ends the session: both ranks have an error, and neither hangs or crashes.
#[test]
fn a_process_that_scribbles_over_the_rings_is_an_error_of_the_ranks() {
    let scratch = Scratch::new("memory-scribbled").expect("a folder");
    // Exchanges messages until there is an error; signal 0 ends nobody.
    let lost = compiled("lost", &scratch.path().join("lost"));
    let scribbled = AtomicU32::new(0);
    let scribble = || {
        for (link, name) in files(scratch.path()) {
            let file = fs::OpenOptions::new().read(true).write(true).open(link);
            let Some(Ok(file)) = name.starts_with("/memfd:clearstream-fi").then_some(file) else {
                continue;
            };
            let Ok(region) = Region::attach(OwnedFd::from(file)) else { continue };
            // Cursors and slots are at the beginning.
            let Ok(words) = region.view::<AtomicU32>(0, 8192) else { continue };
            for step in 0..4 * words.len() {
                let value = step.wrapping_mul(2_654_435_761) as u32;
                words[value as usize % words.len()].store(value, Ordering::Relaxed);
            }
            scribbled.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let began = Instant::now();
    let ran = beside(scribble, || {
        run(&scratch, mpirun(&scratch, 2).arg("--enable-recovery").arg(&lost).arg("0"))
    });
    assert!(ran.said().contains("rank 0 knew after"), "{}", ran.said());
    assert!(!ran.said().contains("signal 11"), "{}", ran.said());
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}: {}", began.elapsed(), ran.said());
    assert!(scribbled.into_inner() > 0, "nothing was there to be scribbled over");
}
