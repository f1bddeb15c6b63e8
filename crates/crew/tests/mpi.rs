//! Jobs of real MPI libraries. Each test starts itself again under both launchers; a process that a
//! launcher started is a rank of the job.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crew::{Exchange, Job};

/// Launchers of Debian's packages, with what they need on a machine of few cores.
const LAUNCHERS: [&[&str]; 2] = [
    &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"],
    &["mpiexec.mpich"],
];

const WITHIN: Duration = Duration::from_secs(20);
const LOST_CODE: u8 = 11;
const RANKS: usize = 3;
/// The file in which a rank says something that must not be lost: a launcher that ends a job early may not pass on
/// what its ranks have written last.
const SAID: &str = "CREW_TEST_SAID";

/// Runs `rank` where a launcher started this process; else runs the test of this name as a job under each launcher and
/// hands on its exit code and what it wrote.
fn job(name: &str, rank: impl Fn(Job), check: impl Fn(Option<i32>, &str)) {
    if let Some(job) = Job::of_launcher(LOST_CODE).expect("the launcher's library") {
        return rank(job);
    }
    let program = std::env::current_exe().expect("this program");
    for launcher in LAUNCHERS {
        let mut command = Command::new(launcher[0]);
        command.args(&launcher[1..]).args(["-n", &RANKS.to_string()]).arg(&program);
        let test = format!("mpi::{name}");
        command.args(["--exact", &test, "--nocapture", "--test-threads", "1"]);
        // Tests of one process run side by side, and jobs that begin and end in one folder meet in what Open MPI makes
        // and removes there.
        let folder = std::env::temp_dir().join(format!("crew-said-{}-{name}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder of our own");
        let file = folder.join("said");
        command.env(SAID, &file).env("TMPDIR", &folder);
        let done = command.stdin(Stdio::null()).output().expect("a launcher");
        let written = std::fs::read(&file).unwrap_or_default();
        std::fs::remove_dir_all(&folder).ok();
        let said = [done.stdout, done.stderr, written].concat();
        let said = format!("{launcher:?}: {}", String::from_utf8_lossy(&said));
        check(done.status.code(), &said);
    }
}

#[test]
fn operations_and_rounds_work_under_both_launchers() {
    let rank = |mut job: Job| {
        let me = job.me();
        assert_eq!(job.ranks_count(), RANKS);
        for turn in 0..20 {
            let root = turn % RANKS;
            let mut longest = |first: Vec<u8>, second: Vec<u8>| {
                if second.len() > first.len() { second } else { first }
            };
            let mine = vec![me as u8; (me + turn) % RANKS * 100_000];
            let most = job.reduce(root, mine.clone(), WITHIN, &mut longest).expect("a reduce");
            assert_eq!(most.map(|most| most.len()), (me == root).then_some(200_000));
            let all = job.gather(root, mine, WITHIN).expect("a gather");
            let lengths = |all: Vec<Vec<u8>>| all.iter().map(Vec::len).sum::<usize>();
            assert_eq!(all.map(lengths), (me == root).then_some(300_000));
            let said = job.broadcast(root, vec![me as u8; 5], WITHIN).expect("a broadcast");
            assert_eq!(said, [root as u8; 5]);
            job.barrier(WITHIN).expect("a barrier");
        }
        if me == 0 {
            job.order(b"pass it on").expect("an order");
            job.send(1, vec![0]).expect("a send");
        } else {
            assert!(job.next_order().expect("rank 0 lives").is_some());
        }
        let (from, message) = job.receive(WITHIN).expect("all live").expect("a message");
        if me != 0 {
            job.send((me + 1) % RANKS, message).expect("a send");
        } else {
            assert_eq!(from, RANKS - 1);
            println!("it came round");
        }
        job.leave(0, || false);
    };
    job("operations_and_rounds_work_under_both_launchers", rank, |code, said| {
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("it came round"), "{said}");
    });
}

#[test]
fn a_rank_that_panics_ends_the_job_of_both_launchers() {
    let rank = |mut job: Job| {
        if job.me() == 1 {
            let file = PathBuf::from(std::env::var_os(SAID).expect("a launcher passes it on"));
            std::fs::write(file, "rank 1 is about to panic").expect("a file");
            panic!("as planned");
        }
        assert!(job.barrier(WITHIN).is_err(), "rank 1 never comes");
    };
    job("a_rank_that_panics_ends_the_job_of_both_launchers", rank, |code, said| {
        assert_eq!(code, Some(i32::from(LOST_CODE)), "{said}");
        assert!(said.contains("rank 1 is about to panic"), "{said}");
    });
}
