//! Figures of the Cumulus paper in the lab with its file system, native and as a gateway hands it on. Needs root or user
//! namespaces, MooseFS, sshfs and an SFTP server.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use results::{Results, Work};

use crate::PROGRAM;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Reproduces it once; the document. One at a time: they use the same lab.
fn reproduced(id: &str) -> (Results, Option<i32>) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder(std::env::temp_dir().join(format!("{id}-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder of our own");
    let file = folder.0.join("results.json");
    let mut command = Command::new(PROGRAM);
    command.args(["reproduce", id, "--repeats", "1", "-o"]).arg(&file);
    let done = command.output().expect("the program starts");
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{error}: {errors}"));
    (results::read_results(&bytes).expect("a results document"), done.status.code())
}

#[test]
fn locks_work_natively_and_are_local_only_when_projected_root() {
    let (results, code) = reproduced("G-flock");
    let reproduction = results.reproduction.as_ref().expect("judged");
    assert_eq!((code, reproduction.law.holds), (Some(0), Some(true)), "{reproduction:?}");
    let verdicts = |way: &str| -> Vec<&str> {
        let of_way = results.points.iter().filter(|one| one.experiment.contains(way));
        let work = of_way.filter_map(|point| match &point.work {
            Work::FileLocks(work) if !work.verdict.is_empty() => Some(work.verdict.as_str()),
            _other => None,
        });
        work.collect()
    };
    assert_eq!(verdicts("G-flock, native: "), ["works", "works"]);
    assert_eq!(verdicts("G-flock, projected: "), ["local only", "local only"]);
    assert_eq!(verdicts("G-flock, projected without a cache: "), ["local only", "local only"]);
}

#[test]
fn what_the_forwarder_caches_does_not_reach_the_servers_root() {
    let (results, code) = reproduced("G-fig7-8");
    let law = &results.reproduction.as_ref().expect("judged").law;
    assert_eq!((code, law.holds), (Some(5), None), "{law:?}");
    assert!(law.judged.contains("by the model"), "{law:?}");
    let read_at_servers = |way: &str| -> Vec<f64> {
        let name = format!("G-fig7-8, {way}");
        let of_way = results.points.iter().filter(|one| one.experiment == name);
        let figures = of_way.flat_map(results::Point::figures);
        figures.filter(|one| one.name == "read_at_servers_share").map(|one| one.value).collect()
    };
    let (cached, native) = (read_at_servers("projected"), read_at_servers("native"));
    assert_eq!((cached.len(), native.len()), (2, 2), "one client and four");
    assert!(cached.iter().all(|share| *share < 0.1), "{cached:?}");
    assert!(native.iter().all(|share| *share > 0.9), "{native:?}");
}

#[test]
fn a_call_does_not_wait_for_a_failed_gateway_that_is_watched_root() {
    let (results, code) = reproduced("G-failover");
    let law = &results.reproduction.as_ref().expect("judged").law;
    assert_eq!((code, law.holds), (Some(0), Some(true)), "{law:?}");
    assert!(law.judged.ends_with("0 calls fail"), "{law:?}");
}
