//! What the messages of a job say of it: which rank the others wait for, and whether packets were lost.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// What a rank's endpoint reports when it closes (`clearstream mpi --report`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankMessages {
    /// [`RankMessages::KIND`].
    pub kind: String,
    /// Its number, as the launcher gave it.
    pub rank: Option<u32>,
    /// The host's name.
    pub host: String,
    /// Where others reach it: IP address and UDP port.
    pub address: String,
    /// Nanoseconds from its beginning to its end.
    pub ran_ns: u64,
    /// Of these, spent in polls one after the other: the program waited for messages.
    pub polled_ns: u64,
    /// For so long its program was ready to run and had no core, as far as its first thread tells.
    pub queued_ns: u64,
    /// Packets sent, over UDP and through memory.
    pub sent_pkts: u64,
    /// Of these, through memory.
    pub memory_pkts: u64,
    /// Of these, by the network card's queue (`AF_XDP`).
    pub xdp_pkts: u64,
    /// Packets received.
    pub received_pkts: u64,
    /// Retransmitted packets.
    pub resent_pkts: u64,
    /// Packets requested again.
    pub reasked_pkts: u64,
    /// Packets that had already been received.
    pub duplicate_pkts: u64,
    /// Messages that came before their receive was posted.
    pub unexpected_messages: u64,
    /// Bytes copied once more: of short sends and of unexpected messages.
    pub copied_bytes: u64,
    /// For how long messages of each peer were awaited while the program waited.
    pub waited: Vec<Waited>,
}

/// For whom, and for how long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waited {
    /// The peer's address.
    #[serde(rename = "for")]
    pub peer: String,
    /// Nanoseconds.
    pub ns: u64,
}

impl RankMessages {
    /// What [`RankMessages::kind`] is.
    pub const KIND: &str = "messages_of_a_rank";

    /// What came since an earlier report of the same endpoint. A rank that makes no call of MPI reports nothing
    /// new: then all numbers are 0.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before: HashMap<&str, u64> =
            earlier.waited.iter().map(|one| (one.peer.as_str(), one.ns)).collect();
        let waited = self.waited.iter().map(|one| {
            let ns = one.ns.saturating_sub(before.get(one.peer.as_str()).copied().unwrap_or(0));
            Waited { peer: one.peer.clone(), ns }
        });
        let more = |of: fn(&Self) -> u64| of(self).saturating_sub(of(earlier));
        Self {
            kind: self.kind.clone(),
            rank: self.rank,
            host: self.host.clone(),
            address: self.address.clone(),
            ran_ns: more(|rank| rank.ran_ns),
            polled_ns: more(|rank| rank.polled_ns),
            queued_ns: more(|rank| rank.queued_ns),
            sent_pkts: more(|rank| rank.sent_pkts),
            memory_pkts: more(|rank| rank.memory_pkts),
            xdp_pkts: more(|rank| rank.xdp_pkts),
            received_pkts: more(|rank| rank.received_pkts),
            resent_pkts: more(|rank| rank.resent_pkts),
            reasked_pkts: more(|rank| rank.reasked_pkts),
            duplicate_pkts: more(|rank| rank.duplicate_pkts),
            unexpected_messages: more(|rank| rank.unexpected_messages),
            copied_bytes: more(|rank| rank.copied_bytes),
            waited: waited.filter(|one| one.ns > 0).collect(),
        }
    }

    /// Share of its time that it waited, 0 to 1.
    #[must_use]
    pub fn waited_share(&self) -> f64 {
        share(self.polled_ns, self.ran_ns)
    }

    /// Share of its time that it was ready to run and had no core, 0 to 1.
    #[must_use]
    pub fn queued_share(&self) -> f64 {
        share(self.queued_ns, self.ran_ns)
    }

    /// Share of its packets that were sent or requested again, 0 to 1.
    #[must_use]
    pub fn repeated_share(&self) -> f64 {
        share(self.resent_pkts.saturating_add(self.reasked_pkts), self.sent_pkts)
    }
}

/// What holds a job up, as far as its messages tell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum MessagesLimit {
    /// The reports cover too little time for shares of it to mean anything.
    TooShort {
        /// Nanoseconds of the rank that ran longest.
        longest_ns: u64,
    },
    /// The ranks have no cores to run on: who waits for whom then says little.
    Cores {
        /// Share of their time that the ranks were ready to run and had no core, the median.
        queued_share: f64,
    },
    /// Packets are lost, and wait for retransmission.
    Loss {
        /// Share of packets that were sent or requested again.
        repeated_share: f64,
    },
    /// One rank computes while the others wait for it.
    SlowRank {
        /// Its place among the reports.
        index: usize,
        /// Share of their time that the others waited for it, or for ranks that did, the median.
        waited_share: f64,
        /// Share of its time that it waited itself.
        own_share: f64,
        /// Share of its time that it was ready to run and had no core.
        queued_share: f64,
    },
    /// All wait for each other: messages take most of the time.
    Messages {
        /// Share of their time that the ranks waited, the median.
        waited_share: f64,
        /// Share of the packets that went through memory.
        memory_share: f64,
    },
    /// The ranks compute.
    Computing {
        /// Share of their time that the ranks waited, the median.
        waited_share: f64,
    },
}

/// Below this much time, a job's start and end and the grain of the kernel's accounting (1 to 10 ms) make up a large
/// part of every share.
const TOO_SHORT_NS: u64 = 250_000_000;
/// Share of the time from which the ranks lack cores.
const CORES_MIN: f64 = 0.2;
/// Share of packets from which repeating them is what to look at first: each costs a round trip or a timeout.
const LOSS_MIN: f64 = 0.01;
/// Share of duplicates among what was repeated above which answers were late, not lost.
const LATE_MIN: f64 = 0.5;
/// Share of the others' time from which a rank that they wait for is named.
const SLOW_MIN: f64 = 0.2;
/// It waits itself at most this part of what they wait for it.
const SLOW_OWN_MAX: f64 = 0.5;
/// Over so many ranks blame is passed on: of a job whose ranks wait for 90% of their time, all but a thousandth of it.
const HOPS: usize = 64;
/// Share of the time from which waiting is what the job does.
const WAITING_MIN: f64 = 0.5;

/// What holds the job up; `None` without a report.
#[must_use]
pub fn judge_messages(ranks: &[RankMessages]) -> Option<MessagesLimit> {
    if ranks.is_empty() {
        return None;
    }
    let longest_ns = ranks.iter().map(|rank| rank.ran_ns).max().unwrap_or(0);
    // Nothing new of any rank: none has made a call of MPI, which is not short.
    if (1..TOO_SHORT_NS).contains(&longest_ns) {
        return Some(MessagesLimit::TooShort { longest_ns });
    }
    let queued_share = median(ranks.iter().map(RankMessages::queued_share).collect());
    if queued_share >= CORES_MIN {
        return Some(MessagesLimit::Cores { queued_share });
    }
    let sum = |of: fn(&RankMessages) -> u64| ranks.iter().map(of).fold(0, u64::saturating_add);
    let repeated = sum(|rank| rank.resent_pkts.saturating_add(rank.reasked_pkts));
    let sent = sum(|rank| rank.sent_pkts);
    let is_late = share(sum(|rank| rank.duplicate_pkts), repeated) > LATE_MIN;
    if !is_late && share(repeated, sent) >= LOSS_MIN {
        return Some(MessagesLimit::Loss { repeated_share: share(repeated, sent) });
    }
    let waited_share = median(ranks.iter().map(RankMessages::waited_share).collect());
    if let Some(slow) = slow_rank(ranks) {
        return Some(slow);
    }
    Some(if waited_share >= WAITING_MIN {
        let memory_share = share(sum(|rank| rank.memory_pkts), sent);
        MessagesLimit::Messages { waited_share, memory_share }
    } else {
        MessagesLimit::Computing { waited_share }
    })
}

/// The rank that the others wait for, if there is one. Who waits for a rank that itself waits for a third is held up
/// by the third: blame is passed on along the waits, for each rank by the share of its time that it waited.
fn slow_rank(ranks: &[RankMessages]) -> Option<MessagesLimit> {
    let waits = waits(ranks);
    let own: Vec<f64> = ranks.iter().map(RankMessages::waited_share).collect();
    let mut passed = vec![0.0; ranks.len()];
    let mut blamed = vec![0.0; ranks.len()];
    for (waits, share) in waits.iter().zip(&own) {
        waits.iter().for_each(|(peer, part)| passed[*peer] += share * part);
    }
    for _ in 0..HOPS {
        let held = std::mem::replace(&mut passed, vec![0.0; ranks.len()]);
        for (rank, held) in held.into_iter().enumerate() {
            blamed[rank] += held * (1.0 - own[rank]);
            waits[rank].iter().for_each(|(peer, part)| passed[*peer] += held * own[rank] * part);
        }
    }
    let busy = (0..ranks.len()).filter(|rank| own[*rank] <= SLOW_OWN_MAX);
    let index = busy.max_by(|a, b| blamed[*a].total_cmp(&blamed[*b]))?;
    let held_up = held_up_by(index, &waits, &own);
    let others = held_up.into_iter().enumerate().filter(|(other, _)| *other != index);
    let waited_share = median(others.map(|(_, share)| share).collect());
    let (own_share, queued_share) = (own[index], ranks[index].queued_share());
    (waited_share >= SLOW_MIN && own_share <= SLOW_OWN_MAX * waited_share)
        .then_some(MessagesLimit::SlowRank { index, waited_share, own_share, queued_share })
}

/// Of each rank's time, the share that it waited for rank `index`, or for one that did.
fn held_up_by(index: usize, waits: &[Vec<(usize, f64)>], own: &[f64]) -> Vec<f64> {
    let mut held_up = vec![0.0; own.len()];
    for _ in 0..HOPS {
        for rank in 0..own.len() {
            let blamed = waits[rank].iter().map(|(peer, part)| {
                let direct = if *peer == index { 1.0 - own[index] } else { 0.0 };
                part * (direct + held_up[*peer])
            });
            held_up[rank] = own[rank] * blamed.sum::<f64>();
        }
    }
    held_up
}

/// For whom each rank waited: by rank, others with their part of its waiting, together at most 1.
fn waits(ranks: &[RankMessages]) -> Vec<Vec<(usize, f64)>> {
    let by_address = (0..).zip(ranks).map(|(index, rank)| (rank.address.as_str(), index));
    let by_address: HashMap<&str, usize> = by_address.collect();
    let of = ranks.iter().enumerate().map(|(index, rank)| {
        let all = rank.waited.iter().map(|Waited { ns, .. }| *ns).fold(0, u64::saturating_add);
        let known = rank.waited.iter().filter_map(|Waited { peer, ns }| {
            let peer = by_address.get(peer.as_str()).filter(|peer| **peer != index)?;
            Some((*peer, share(*ns, all.max(rank.polled_ns))))
        });
        known.collect()
    });
    of.collect()
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

/// The middle one, of an even number the lower; 0 of none.
fn median(mut shares: Vec<f64>) -> f64 {
    shares.sort_unstable_by(f64::total_cmp);
    let middle = shares.len().saturating_sub(1) / 2;
    shares.get(middle).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ranks(polled: [u64; 4]) -> Vec<RankMessages> {
        let address = |index: usize| format!("10.0.0.{index}:1");
        let all = polled.into_iter().enumerate().map(|(index, polled_ns)| RankMessages {
            rank: u32::try_from(index).ok(),
            address: address(index),
            ran_ns: 1_000 * MS,
            polled_ns: polled_ns * MS,
            sent_pkts: 1_000,
            waited: (0..4)
                .filter(|other| *other != index)
                .map(|other| Waited { peer: address(other), ns: 0 })
                .collect(),
            ..RankMessages::default()
        });
        all.collect()
    }

    #[test]
    fn the_rank_that_computes_while_the_others_wait_for_it_is_named() {
        let mut job = ranks([700, 700, 50, 700]);
        for (index, rank) in job.iter_mut().enumerate() {
            for waited in &mut rank.waited {
                waited.ns = MS * if index != 2 && waited.peer == "10.0.0.2:1" { 600 } else { 90 };
            }
        }
        let limit = judge_messages(&job).expect("reports");
        let MessagesLimit::SlowRank { index: 2, waited_share, own_share: 0.05, .. } = limit else {
            panic!("{limit:?}");
        };
        // 600 of the 780 charged are its own, and most of the rest waited for it.
        assert!((0.60..0.65).contains(&waited_share), "{waited_share}");
        // One that waits as long as the others is not what they wait for.
        job[2].polled_ns = 600 * MS;
        let limit = judge_messages(&job).expect("reports");
        assert!(matches!(limit, MessagesLimit::Messages { .. }), "{limit:?}");
    }

    /// A chain: each waits for the one before it, as measured of three ranks that exchange in turn.
    #[test]
    fn who_waits_for_a_waiting_rank_is_held_up_by_the_one_at_the_end() {
        let mut job = ranks([780, 1, 860, 860]);
        for (index, before) in [(0, 1), (2, 0), (3, 2)] {
            let address = job[before].address.clone();
            job[index].waited = vec![Waited { peer: address, ns: job[index].polled_ns }];
        }
        let limit = judge_messages(&job).expect("reports");
        let MessagesLimit::SlowRank { index: 1, waited_share, .. } = limit else {
            panic!("{limit:?}");
        };
        assert!((0.6..0.7).contains(&waited_share), "0.78 times 0.86: {waited_share}");
        // A ring, each waiting for the one before it, has no such end.
        job[1].polled_ns = 860 * MS;
        job[1].waited = vec![Waited { peer: job[3].address.clone(), ns: 860 * MS }];
        let limit = judge_messages(&job).expect("reports");
        assert!(matches!(limit, MessagesLimit::Messages { .. }), "{limit:?}");
    }

    #[test]
    fn a_later_report_less_an_earlier_one_is_what_came_between() {
        let [first, ..] = &ranks([300, 0, 0, 0])[..] else { panic!("four") };
        let mut later = first.clone();
        (later.ran_ns, later.polled_ns, later.sent_pkts) = (3_000 * MS, 1_300 * MS, 1_500);
        (later.waited[0].ns, later.waited[1].ns) = (700, 0);
        let between = later.since(first);
        let told = (between.ran_ns, between.sent_pkts, between.waited_share());
        assert_eq!(told, (2_000 * MS, 500, 0.5));
        assert_eq!(between.waited, [Waited { peer: "10.0.0.1:1".to_owned(), ns: 700 }]);
        // A counter that went back, as after a restart, is no huge number.
        assert_eq!(first.since(&later).ran_ns, 0);
    }

    #[test]
    fn a_job_of_a_moment_is_too_short_to_tell() {
        let mut job = ranks([100; 4]);
        for rank in &mut job {
            (rank.ran_ns, rank.queued_ns) = (60 * MS, 30 * MS);
        }
        let limit = judge_messages(&job);
        assert_eq!(limit, Some(MessagesLimit::TooShort { longest_ns: 60 * MS }));
        job[0].ran_ns = 1_000 * MS;
        assert!(!matches!(judge_messages(&job), Some(MessagesLimit::TooShort { .. })));
    }

    #[test]
    fn ranks_without_cores_are_judged_by_nothing_else() {
        let mut job = ranks([100, 900, 100, 900]);
        for rank in &mut job {
            (rank.queued_ns, rank.resent_pkts) = (450 * MS, 100);
        }
        job[0].queued_ns = 0;
        let limit = judge_messages(&job).expect("reports");
        assert_eq!(limit, MessagesLimit::Cores { queued_share: 0.45 });
    }

    #[test]
    fn losses_come_first_and_late_answers_are_none() {
        let mut job = ranks([900; 4]);
        for rank in &mut job {
            (rank.resent_pkts, rank.reasked_pkts) = (15, 5);
        }
        let limit = judge_messages(&job).expect("reports");
        assert_eq!(limit, MessagesLimit::Loss { repeated_share: 0.02 });
        for rank in &mut job {
            rank.duplicate_pkts = 15;
        }
        let limit = judge_messages(&job).expect("reports");
        assert_eq!(limit, MessagesLimit::Messages { waited_share: 0.9, memory_share: 0.0 });
    }

    #[test]
    fn ranks_that_compute_are_not_held_up_and_absurd_reports_do_no_harm() {
        let limit = judge_messages(&ranks([100, 200, 300, 900]));
        assert_eq!(limit, Some(MessagesLimit::Computing { waited_share: 0.2 }));
        assert_eq!(judge_messages(&[]), None);
        let absurd = RankMessages {
            ran_ns: 1_000 * MS,
            polled_ns: u64::MAX,
            queued_ns: u64::MAX,
            sent_pkts: u64::MAX,
            resent_pkts: u64::MAX,
            reasked_pkts: u64::MAX,
            waited: vec![Waited { peer: String::new(), ns: u64::MAX }; 3],
            ..RankMessages::default()
        };
        assert!(judge_messages(&vec![absurd; 3]).is_some());
    }
}
