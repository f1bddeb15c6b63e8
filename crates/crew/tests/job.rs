//! Jobs over a transport in memory: rounds, collective operations, signs of life and the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crew::{CollectiveError, Exchange, ExchangeError, Job, MemoryTransport, Timing, Transport};

type MemoryJob = Job<MemoryTransport>;

const LONG: Duration = Duration::from_secs(20);
const LOST_CODE: u8 = 11;

/// Runs each rank of a job on a thread; what each came to, in order of rank.
fn run<T: Send>(count: usize, timing: Timing, rank: impl Fn(MemoryJob) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let rank = &rank;
        let threads: Vec<_> = MemoryTransport::job(count)
            .into_iter()
            .map(|end| scope.spawn(move || rank(Job::over(end, timing, LOST_CODE))))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank")).collect()
    })
}

fn quick() -> Timing {
    Timing { beat_every: Duration::from_millis(10), lost_after: Duration::from_secs(2) }
}

fn add(first: Vec<u8>, second: Vec<u8>) -> Vec<u8> {
    let number = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    (number(first) + number(second)).to_le_bytes().to_vec()
}

#[test]
fn operations_of_a_job_follow_each_other_without_mixing() {
    for count in [1, 2, 3, 5, 8] {
        run(count, Timing::default(), |mut job| {
            let me = job.me();
            for turn in 0..50_u64 {
                let root = turn as usize % count;
                let mine = (turn + me as u64).to_le_bytes().to_vec();
                let sum = job.reduce(root, mine, LONG, &mut add).expect("a reduce");
                let wanted: u64 = (0..count as u64).map(|rank| turn + rank).sum();
                let wanted = (me == root).then(|| wanted.to_le_bytes().to_vec());
                assert_eq!(sum, wanted);
                let all = job.gather(root, vec![me as u8; me], LONG).expect("a gather");
                let wanted = || (0..count).map(|rank| vec![rank as u8; rank]).collect();
                assert_eq!(all, (me == root).then(wanted));
                let said = job.broadcast(root, vec![me as u8, turn as u8], LONG);
                assert_eq!(said.expect("a broadcast"), [root as u8, turn as u8]);
                job.barrier(LONG).expect("a barrier");
            }
            job.leave(0, || false);
        });
    }
}

#[test]
fn messages_of_a_round_survive_a_collective_operation() {
    let received = run(3, Timing::default(), |mut job| {
        let me = job.me();
        if me == 0 {
            job.order(b"go").expect("an order");
        } else {
            assert_eq!(job.next_order().expect("rank 0 lives").as_deref(), Some(&b"go"[..]));
        }
        for number in 0..10 {
            job.send((me + 1) % 3, vec![number]).expect("a send");
        }
        job.barrier(LONG).expect("a barrier");
        let mut received = Vec::new();
        while received.len() < 10 {
            let (from, message) = job.receive(LONG).expect("all live").expect("a message");
            assert_eq!(from, (me + 2) % 3);
            received.extend(message);
        }
        job.leave(0, || false);
        received
    });
    assert_eq!(received, vec![(0..10).collect::<Vec<u8>>(); 3]);
}

/// Rank 1 has its order and sends to rank 2, which has not had its own yet.
#[test]
fn a_message_that_comes_before_its_rounds_order_is_kept() {
    let mut ends = MemoryTransport::job(3).into_iter();
    let [mut lead, mut early, late] = [(); 3].map(|()| ends.next().expect("three ends"));
    early.send(2, 1, b"work".to_vec()).expect("in memory");
    lead.send(2, 1, b"\x01go".to_vec()).expect("in memory");
    let mut late = Job::over(late, Timing::default(), LOST_CODE);
    assert_eq!(late.next_order(), Ok(Some(b"go".to_vec())));
    assert_eq!(late.receive(LONG), Ok(Some((1, b"work".to_vec()))));
    late.give_up();
}

#[test]
fn a_job_ends_when_rank_0_says_so() {
    let rounds = run(4, Timing::default(), |mut job| {
        let mut rounds = 0;
        if job.me() == 0 {
            for _ in 0..3 {
                job.order(b"").expect("an order");
                rounds += 1;
            }
        } else {
            while job.next_order().expect("rank 0 lives").is_some() {
                rounds += 1;
            }
        }
        job.leave(0, || false);
        rounds
    });
    assert_eq!(rounds, [3; 4]);
}

#[test]
fn a_rank_that_is_silent_is_lost_and_ends_the_job() {
    let is_noticed = AtomicBool::new(false);
    let ends = run(3, quick(), |mut job| {
        if job.me() == 2 {
            let start = Instant::now();
            while !is_noticed.load(Ordering::Acquire) && start.elapsed() < LONG {
                thread::sleep(Duration::from_millis(1));
            }
            let heard = job.keep_alive();
            job.give_up();
            return heard;
        }
        let start = Instant::now();
        let end = loop {
            if let Err(error) = job.receive(Duration::from_millis(5)) {
                break error;
            }
            assert!(start.elapsed() < LONG, "nobody noticed");
        };
        job.give_up();
        drop(job);
        is_noticed.store(true, Ordering::Release);
        Err(end)
    });
    assert_eq!(ends[0], Err(ExchangeError::Silent { rank: 2, seconds: 2 }));
    assert_eq!(ends[1..], [Err(ExchangeError::Ended), Err(ExchangeError::Ended)]);
}

#[test]
fn a_rank_that_was_away_does_not_take_the_others_for_lost() {
    let mut ends = MemoryTransport::job(2).into_iter();
    let [mut lead, away] = [(); 2].map(|()| ends.next().expect("two ends"));
    let timing = Timing { beat_every: Duration::ZERO, lost_after: Duration::from_millis(20) };
    let mut away = Job::over(away, timing, LOST_CODE);
    thread::sleep(Duration::from_millis(50));
    lead.send(1, 0, Vec::new()).expect("in memory");
    assert_eq!(away.keep_alive(), Ok(()));
    thread::sleep(Duration::from_millis(50));
    assert_eq!(away.keep_alive(), Err(ExchangeError::Silent { rank: 0, seconds: 0 }));
    away.give_up();
}

#[test]
fn a_collective_operation_that_a_rank_never_joins_ends_at_its_deadline() {
    let within = Duration::from_millis(50);
    let ends = run(4, Timing::default(), |mut job| {
        if job.me() == 3 {
            while job.keep_alive().is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
            job.give_up();
            return None;
        }
        let start = Instant::now();
        let error = job.barrier(within).expect_err("rank 3 does not come");
        assert!(start.elapsed() < LONG);
        Some(error)
    });
    // Whoever is first ends the job for the others.
    let late: Vec<_> = ends
        .iter()
        .flatten()
        .filter_map(|error| match error {
            ExchangeError::Collective(error @ CollectiveError::Late { .. }) => {
                Some(error.to_string())
            }
            _ => None,
        })
        .collect();
    assert!(!late.is_empty(), "{ends:?}");
    assert!(
        late.iter().all(|text| text.contains("did not reach a barrier within 0.1 s")),
        "{late:?}"
    );
}

#[test]
fn a_rank_that_panics_is_not_waited_for() {
    let mut ends = MemoryTransport::job(2).into_iter();
    let [lead, other] = [(); 2].map(|()| ends.next().expect("two ends"));
    let panicking = thread::spawn(move || {
        let _job = Job::over(other, Timing::default(), LOST_CODE);
        panic!("as planned");
    });
    assert!(panicking.join().is_err());
    let mut job = Job::over(lead, Timing::default(), LOST_CODE);
    assert_eq!(job.barrier(LONG), Err(ExchangeError::Ended));
}
