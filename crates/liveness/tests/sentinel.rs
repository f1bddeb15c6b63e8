//! Sentinels' summaries, and what a host believes.

use liveness::sentinel::{
    Belief, Believer, BelieverConfig, MalformedSummaryError as Bad, Opinion, RefusedSummaryError,
    SUMMARY_BYTES_MAX, Summary, Verdict,
};
use liveness::siphash::Key;

const MS: u64 = 1_000_000;

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
    Summary { plan_id: 9, sentinel, sequence, interval_ms: 100, verdicts }
}

fn believer(sentinels: &[u32]) -> Believer {
    Believer::new(&BelieverConfig {
        key: key(),
        plan_id: 9,
        gateways_count: 3,
        sentinels: sentinels.to_vec(),
    })
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
            believer.handle(at_ms * MS, &bytes).unwrap();
        }
        beliefs.extend(std::iter::from_fn(|| believer.poll(at_ms * MS)));
    }
    beliefs
}

use Opinion::{Failed as F, MtuHole as M, Unknown as U, Works as W};

fn reported(gateway: u16, is_failed: bool) -> Belief {
    Belief::Reported { gateway, is_failed }
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
    assert!(wakes_ns.abs_diff(2300 * MS) <= 1, "{wakes_ns}");
    assert_eq!(host.poll(2300 * MS), None);
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
    assert_eq!(host.handle(1, &first), Err(RefusedSummaryError::Replayed(1)));
    let older = summary(1, 9, &[F, W, W]).encode(&key());
    // However long ago: a captured verdict is never believed again.
    assert_eq!(host.handle(3_600_000 * MS, &older), Err(RefusedSummaryError::Replayed(1)));
    let stranger = summary(2, 11, &[W, W, W]).encode(&key());
    assert_eq!(host.handle(1, &stranger), Err(RefusedSummaryError::UnknownSentinel(2)));
    let foreign = Summary { plan_id: 8, ..summary(1, 11, &[W]) }.encode(&key());
    assert_eq!(host.handle(1, &foreign), Err(RefusedSummaryError::OtherPlan(8)));
    let forged = summary(1, 11, &[F, W, W]).encode(&Key::new([9; 16]));
    assert_eq!(host.handle(1, &forged), Err(RefusedSummaryError::Malformed(Bad::Forged)));
    assert_eq!(host.refused_count(), 5);
}
