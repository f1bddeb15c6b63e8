//! Sentinels' summaries, and what a host believes.

use liveness::sentinel::{
    Belief, Believer, BelieverConfig, Challenge, MalformedSummaryError as Bad, Opinion,
    RefusedSummaryError, SUMMARY_BYTES_MAX, Summary, Verdict,
};
use liveness::siphash::Key;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const SESSION: u64 = 77;

fn key() -> Key {
    Key::new([3; 16])
}

fn summary(sentinel: u32, sequence: u64, opinions: &[Opinion]) -> Summary {
    let verdict = |(gateway, opinion): (usize, &Opinion)| Verdict {
        gateway: gateway as u16,
        opinion: *opinion,
        loss_percent: 1,
        rtt_us: 200,
    };
    let verdicts = opinions.iter().enumerate().map(verdict).collect();
    let (session, nonce) = (SESSION, 0);
    Summary { plan_id: 9, sentinel, session, sequence, nonce, interval_ms: 100, verdicts }
}

fn stranger(sentinels: &[u32]) -> Believer {
    Believer::new(&BelieverConfig {
        key: key(),
        plan_id: 9,
        gateways_count: 3,
        sentinels: sentinels.to_vec(),
    })
}

/// One whose challenges the sentinels have answered, long ago.
fn believer(sentinels: &[u32]) -> Believer {
    let mut host = stranger(sentinels);
    for sentinel in sentinels {
        let nonce = host.challenge(0, *sentinel, 1000).unwrap().nonce;
        let answer = Summary { nonce, interval_ms: 10, ..summary(*sentinel, 0, &[W; 3]) };
        host.handle(0, &answer.encode(&key())).unwrap();
    }
    host
}

/// Nanoseconds of a time in a test: what was heard before has fallen silent.
fn at(millis: u64) -> u64 {
    60 * S + millis * MS
}

/// Hears each sentinel every 100 ms until `end_ms`; what was believed.
fn listen(
    believer: &mut Believer,
    millis: std::ops::Range<u64>,
    said: &[(u32, [Opinion; 3])],
) -> Vec<Belief> {
    let mut beliefs = Vec::new();
    for at_ms in millis.step_by(100) {
        for (sentinel, opinions) in said {
            let bytes = summary(*sentinel, at_ms + 1, opinions).encode(&key());
            believer.handle(at(at_ms), &bytes).unwrap();
        }
        beliefs.extend(std::iter::from_fn(|| believer.poll(at(at_ms))));
    }
    beliefs
}

use Opinion::{Failed as F, MtuHole as M, Unknown as U, Works as W};

fn reported(gateway: u16, is_failed: bool) -> Belief {
    Belief::Reported { gateway, is_failed }
}

fn replayed() -> RefusedSummaryError {
    RefusedSummaryError::Replayed(1)
}

#[test]
fn summaries_survive_the_way_through_bytes_and_every_bit_is_under_the_tag() {
    let sent = summary(7, 123, &[W, F, M, U]);
    let bytes = sent.encode(&key());
    assert_eq!(Summary::parse(&bytes, &key()), Ok(sent));
    for bit in 0..bytes.len() * 8 {
        let mut other = bytes.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(Summary::parse(&other, &key()).is_err(), "bit {bit}");
    }
    let most = summary(7, 1, &[W; 300]).encode(&key());
    assert_eq!(most.len(), SUMMARY_BYTES_MAX);
    assert_eq!(Summary::parse(&most, &key()).unwrap().verdicts.len(), 256);
    assert_eq!(Summary::parse(&bytes, &Key::new([4; 16])), Err(Bad::Forged));
}

#[test]
fn any_bytes_are_read_or_refused() {
    let good = summary(7, 123, &[W, F, M, U]).encode(&key());
    bolero::check!().with_type::<(Vec<u8>, Vec<(u8, u8)>)>().for_each(|(noise, changes)| {
        Summary::parse(noise, &key()).ok();
        let mut bytes = good.clone();
        for (at, value) in changes {
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *value;
        }
        assert!(bytes == good || Summary::parse(&bytes, &key()).is_err());
        believer(&[7]).handle(0, &bytes).ok();
    });
}

#[test]
fn one_sentinel_is_believed_after_five_summaries_and_as_long_as_it_is_heard() {
    let mut host = believer(&[1]);
    assert_eq!(listen(&mut host, 0..400, &[(1, [W, F, W])]), []);
    let beliefs = listen(&mut host, 400..2000, &[(1, [W, F, W])]);
    assert_eq!(beliefs, [Belief::Relax(true), reported(1, true)]);
    assert_eq!(
        listen(&mut host, 2000..2100, &[(1, [W, W, M])]),
        [reported(1, false), reported(2, true)]
    );
    let wakes_ns = host.wakes_at().unwrap();
    assert!(wakes_ns.abs_diff(at(2300)) <= 1, "{wakes_ns}");
    assert_eq!(host.poll(at(2300)), None);
    assert_eq!(host.poll(wakes_ns), Some(Belief::Relax(false)), "it has fallen silent");
    assert_eq!(host.poll(wakes_ns), Some(reported(2, false)));
    assert_eq!(host.poll(wakes_ns), None);
    assert_eq!(host.wakes_at(), None);
    assert_eq!(listen(&mut host, 5000..5400, &[(1, [W, F, W])]), [], "trust is earned anew");
    assert_eq!(listen(&mut host, 5400..5500, &[(1, [W, F, W])]).len(), 2);
}

#[test]
fn the_majority_of_the_sentinels_heard_decides() {
    let mut host = believer(&[1, 2, 3]);
    let beliefs = listen(&mut host, 0..1000, &[(1, [F, W, W]), (2, [W, W, W]), (3, [W, F, W])]);
    assert_eq!(beliefs, [Belief::Relax(true)]);
    let beliefs = listen(&mut host, 1000..1100, &[(1, [F, W, W]), (2, [F, W, W]), (3, [W, F, W])]);
    assert_eq!(beliefs, [reported(0, true)]);
    // Two fall silent: the third alone is the majority.
    let beliefs = listen(&mut host, 1100..2000, &[(3, [W, F, W])]);
    assert_eq!(beliefs, [reported(0, false), reported(1, true)]);
}

#[test]
fn a_sentinel_that_sees_no_gateway_at_all_is_not_asked() {
    let mut host = believer(&[1, 2]);
    let beliefs = listen(&mut host, 0..1000, &[(1, [F, F, F])]);
    assert_eq!(beliefs, [Belief::Relax(true)], "it is cut off itself");
    let beliefs = listen(&mut host, 1000..2000, &[(1, [F, M, F]), (2, [W, W, F])]);
    assert_eq!(beliefs, [reported(2, true)]);
}

#[test]
fn foreign_old_and_forged_summaries_are_refused() {
    let mut host = believer(&[1]);
    let first = summary(1, 10, &[W, W, W]).encode(&key());
    host.handle(0, &first).unwrap();
    assert_eq!(host.handle(1, &first), Err(replayed()));
    let older = summary(1, 9, &[F, W, W]).encode(&key());
    // However long ago: a captured verdict is never believed again.
    assert_eq!(host.handle(3_600_000 * MS, &older), Err(replayed()));
    let stranger = summary(2, 11, &[W, W, W]).encode(&key());
    assert_eq!(host.handle(1, &stranger), Err(RefusedSummaryError::UnknownSentinel(2)));
    let foreign = Summary { plan_id: 8, ..summary(1, 11, &[W]) }.encode(&key());
    assert_eq!(host.handle(1, &foreign), Err(RefusedSummaryError::OtherPlan(8)));
    let forged = summary(1, 11, &[F, W, W]).encode(&Key::new([9; 16]));
    assert_eq!(host.handle(1, &forged), Err(RefusedSummaryError::Malformed(Bad::Forged)));
    assert_eq!(host.refused_count(), 5);
}

#[test]
fn challenges_survive_the_way_through_bytes_and_every_bit_is_under_the_tag() {
    let sent = Challenge { plan_id: 9, sentinel: 7, nonce: 123 };
    let bytes = sent.encode(&key());
    assert_eq!(Challenge::parse(&bytes, &key()), Ok(sent));
    for bit in 0..bytes.len() * 8 {
        let mut other = bytes;
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(Challenge::parse(&other, &key()).is_err(), "bit {bit}");
    }
    assert!(Challenge::parse(&bytes[..47], &key()).is_err());
    assert!(Challenge::parse(&summary(7, 1, &[]).encode(&key()), &key()).is_err());
    assert_eq!(Summary::parse(&bytes, &key()), Err(Bad::NoSummary));
}

#[test]
fn a_sentinel_started_again_after_its_clock_was_set_back_is_relied_on_within_a_second() {
    let mut host = believer(&[1]);
    listen(&mut host, 1_000_000..1_001_000, &[(1, [W, W, F])]);
    let old = summary(1, 2_000_000, &[F, F, W]).encode(&key());
    // Its numbers begin again where its clock is now.
    let fresh = |sequence, nonce| {
        let summary = summary(1, sequence, &[W, F, W]);
        Summary { session: 78, nonce, ..summary }.encode(&key())
    };
    let again = RefusedSummaryError::OtherSession(1);
    assert_eq!(host.handle(at(1_001_100), &fresh(5, 0)), Err(again));
    let challenge = host.challenge(at(1_001_100), 1, 4711).unwrap();
    assert_eq!(host.challenge(at(1_001_349), 1, 4712), None, "a flood asks no more often");
    // The answer is lost once, and the first nonce is no longer valid then.
    let second = host.challenge(at(1_001_350), 1, 4712).unwrap();
    assert_eq!(host.handle(at(1_001_360), &fresh(6, challenge.nonce)), Err(again));
    host.handle(at(1_001_360), &fresh(7, second.nonce)).unwrap();
    assert_eq!(host.handle(at(1_001_370), &fresh(7, second.nonce)), Err(replayed()));
    // What the former session had in flight is nobody's word any more.
    assert_eq!(host.handle(at(1_001_370), &old), Err(again));
    let mut beliefs = Vec::new();
    for turn in 0..5 {
        let now_ns = at(1_001_460 + 100 * turn);
        host.handle(now_ns, &fresh(8 + turn, 0)).unwrap();
        beliefs.extend(std::iter::from_fn(|| host.poll(now_ns)));
    }
    let expected = [Belief::Relax(false), reported(2, false), Belief::Relax(true)];
    assert_eq!(beliefs[..3], expected);
    assert_eq!(beliefs[3..], [reported(1, true)]);
}

/// A whole recorded session, its answer to a challenge included.
#[test]
fn a_recorded_session_is_believed_neither_by_a_host_that_knows_another_nor_by_a_fresh_one() {
    let recorded: Vec<Vec<u8>> = (0..20)
        .map(|sequence| {
            let summary = summary(1, 1_000_000 + sequence, &[F, F, W]);
            Summary { session: 5, nonce: 4711, ..summary }.encode(&key())
        })
        .collect();
    for mut host in [believer(&[1]), stranger(&[1])] {
        for (turn, bytes) in (0..).zip(&recorded) {
            let now_ns = at(100 * turn);
            let refused = host.handle(now_ns, bytes);
            assert_eq!(refused, Err(RefusedSummaryError::OtherSession(1)), "{turn}");
            host.challenge(now_ns, 1, 10_000 + turn);
            assert_eq!(host.poll(now_ns), None);
        }
    }
}

#[test]
fn an_answer_after_two_seconds_and_one_that_nobody_asked_for_are_refused() {
    let mut host = stranger(&[1, 2]);
    let answer = |sentinel, nonce| {
        let summary = summary(sentinel, 1, &[W; 3]);
        Summary { nonce, ..summary }.encode(&key())
    };
    let nonce = host.challenge(at(0), 1, 4711).unwrap().nonce;
    let of = RefusedSummaryError::OtherSession;
    assert_eq!(host.handle(at(1), &answer(2, nonce)), Err(of(2)), "of another sentinel");
    assert_eq!(host.handle(at(1), &answer(1, 0)), Err(of(1)));
    assert_eq!(host.handle(at(2001), &answer(1, nonce)), Err(of(1)), "too late");
    assert_eq!(host.challenge(at(2001), 3, 1), None, "the plan has no such sentinel");
    // A random number may be 0, which means none.
    let nonce = host.challenge(at(2001), 1, 0).unwrap().nonce;
    assert_eq!(host.handle(at(2001), &answer(1, 0)), Err(of(1)));
    host.handle(at(4001), &answer(1, nonce)).unwrap();
}
