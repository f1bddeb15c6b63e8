//! Planted limits drawn from a seed: combinations that nobody chose, one of each kind in turn, each with what its
//! arithmetic predicts.
//!
//! A recording in which the planted limit did not bind is discarded and not judged. Whether it bound is decided by
//! [`Check`] alone: throughput, retransmissions, drops, marks and lost datagrams against the plan, never by a verdict.

mod datagrams;
mod losses;
mod rates;
mod windows;

use results::{Point, Results, Work};
use stats::Random;

use super::cases::{Accepted, Case, OnHost};

/// What is planted binds below this part of the next ceiling, so that nothing else does.
const BELOW_NEXT: f64 = 0.5;

/// What leaves at least this much of the next ceiling holds nothing back that one could see.
const MOST_OF_NEXT: f64 = 0.8;

/// Header bytes of a segment with timestamps, and of its frame as the lab's link counts it.
const HEADERS_BYTES: f64 = 66.0;

/// The smallest MTU with IPv6, bytes.
const IPV6_MTU_MIN: u32 = 1280;

/// Beds tried for one kind, of which one must have room for it.
const BEDS_MAX: usize = 10_000;

/// A drawn case.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// The case; its name holds the seed.
    pub case: Case,
    /// What must be measured for the planted limit to have bound.
    pub check: Check,
}

/// What a document must show for the planted limit to have bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Check {
    /// Throughput of the judged test, lowest and highest, bit/s; of requests nothing is asked.
    pub bits_per_s: Option<(f64, f64)>,
    /// Least segments retransmitted in all tests together.
    pub retransmits_min: u64,
    /// Least packets that qdiscs dropped, all TCP tests and hosts together.
    pub qdisc_drops_min: u64,
    /// Least packets delivered with a mark, all tests together.
    pub marks_min: u64,
    /// Lost share of the datagrams at the highest rate, lowest and highest.
    pub lost: Option<(f64, f64)>,
    /// Median round trip of the slowest requests, lowest and highest, seconds.
    pub median_s: Option<(f64, f64)>,
    /// Most bytes that a single stream's sender had in its send queue.
    pub queued_max: Option<f64>,
}

impl Check {
    fn rate(low: f64, high: f64) -> Self {
        Self {
            bits_per_s: Some((low, high)),
            retransmits_min: 0,
            qdisc_drops_min: 0,
            marks_min: 0,
            lost: None,
            median_s: None,
            queued_max: None,
        }
    }

    /// What requests take.
    fn median_s(low: f64, high: f64) -> Self {
        Self { bits_per_s: None, median_s: Some((low, high)), ..Self::rate(0.0, 0.0) }
    }

    /// What a rate that is planted lets through.
    fn about(rate: f64) -> Self {
        Self::rate(rate * 0.6, rate * 1.15)
    }

    /// What losses leave: less than the path carries, and retransmitted segments.
    fn lossy(law: f64, base: &BasePath) -> Self {
        let high = base.ceiling() * MOST_OF_NEXT;
        Self { retransmits_min: 10, ..Self::rate(law * 0.3, high) }
    }

    /// Whether the planted limit is what was measured.
    #[must_use]
    pub fn holds(&self, results: &Results) -> bool {
        let points = || results.points.iter().filter(|point| !point.is_confirmation());
        let within = |value: f64, (low, high): (f64, f64)| {
            value.is_finite() && (low..=high).contains(&value)
        };
        let judged = explain::diagnose(results).measured.map(|rate| rate.median);
        let rate = judged.or_else(|| points().filter_map(received).reduce(f64::max));
        self.bits_per_s.is_none_or(|range| rate.is_some_and(|rate| within(rate, range)))
            && points().map(retransmits).sum::<u64>() >= self.retransmits_min
            && points().map(qdisc_drops).sum::<u64>() >= self.qdisc_drops_min
            && points().map(marks).sum::<u64>() >= self.marks_min
            && self.lost.is_none_or(|range| {
                let fastest = points().max_by(|one, other| {
                    offered(one).unwrap_or(0.0).total_cmp(&offered(other).unwrap_or(0.0))
                });
                fastest.and_then(lost).is_some_and(|share| within(share, range))
            })
            && self.queued_max.is_none_or(|most| points().filter_map(queued).all(|one| one <= most))
            && self.median_s.is_none_or(|range| {
                let slowest = points().filter_map(median_s).reduce(f64::max);
                slowest.is_some_and(|median| within(median, range))
            })
    }
}

fn received(point: &Point) -> Option<f64> {
    point.measured()?.directions.first().map(|direction| direction.received_bits_per_s)
}

fn offered(point: &Point) -> Option<f64> {
    point.measured()?.directions.first().map(|direction| direction.sent_bits_per_s)
}

fn retransmits(point: &Point) -> u64 {
    let directions = point.measured().map(|outcome| outcome.directions.as_slice());
    directions.unwrap_or_default().iter().filter_map(|one| one.retransmits_count).sum()
}

/// Of TCP's tests: what a queue drops of UDP does not hold TCP back.
fn qdisc_drops(point: &Point) -> u64 {
    if !matches!(point.work, Work::Bulk(_)) {
        return 0;
    }
    let hosts = point.measured().map(|outcome| outcome.hosts.as_slice()).unwrap_or_default();
    let qdiscs = hosts.iter().flat_map(|host| &host.account.counters.qdiscs);
    qdiscs.filter(|qdisc| qdisc.parent == "root").map(|qdisc| qdisc.dropped_pkts).sum()
}

fn marks(point: &Point) -> u64 {
    let hosts = point.measured().map(|outcome| outcome.hosts.as_slice()).unwrap_or_default();
    let streams = hosts.iter().flat_map(|host| &host.account.streams);
    streams.filter_map(|stream| stream.tcp.as_ref()?.last.marked_count).sum()
}

fn lost(point: &Point) -> Option<f64> {
    let udp = point.measured()?.directions.first()?.udp.as_ref()?;
    Some(udp.lost_count as f64 / udp.sent_count as f64)
}

/// Of a single stream of TCP: the fullest that its sender's queue was seen.
fn queued(point: &Point) -> Option<f64> {
    if !matches!(point.work, Work::Bulk(_)) {
        return None;
    }
    let streams = point.measured()?.hosts.iter().flat_map(|host| &host.account.streams);
    let senders: Vec<_> = streams.filter(|stream| stream.sending).collect();
    let [one] = senders[..] else { return None };
    let queued = one.intervals.iter().filter_map(|interval| interval.send_queue_bytes);
    queued.max().map(|bytes| bytes as f64)
}

fn median_s(point: &Point) -> Option<f64> {
    matches!(point.work, Work::RoundTrips(_)).then_some(())?;
    point.measured()?.request_response.as_ref()?.latency.percentile_s(50.0)
}

/// The path that a limit is planted on.
struct BasePath {
    /// Round trip of the idle path, seconds.
    rtt_s: f64,
    /// Rate of the link, bit/s.
    rate: f64,
    mtu: u32,
    congestion: &'static str,
    is_reverse: bool,
    /// Whether the far end is a stock iperf3.
    is_foreign: bool,
}

/// A limit of one kind on a path; `None` where the arithmetic leaves no room for it.
type Kind = fn(&BasePath, &mut Random) -> Option<Planted>;

/// Every kind, drawn in turn.
fn kinds() -> impl Iterator<Item = &'static Kind> + Clone {
    windows::KINDS.iter().chain(losses::KINDS).chain(rates::KINDS).chain(datagrams::KINDS)
}

/// Number of kinds; so many cases of a seed hold one of each.
#[must_use]
pub fn kinds_count() -> usize {
    kinds().count()
}

/// The first `count` cases of a seed, on links of at most `fastest` bit/s, with their numbers; without those of kinds
/// that have no room on such links. Each is drawn by itself, from the seed and its number.
#[must_use]
pub fn drawn(seed: u64, count: usize, fastest: f64) -> Vec<(usize, Drawn)> {
    let one = |(number, kind): (usize, &Kind)| {
        let mut random =
            Random::from_seed(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let found = (0..BEDS_MAX).find_map(|_| {
            let base = BasePath::drawn(&mut random, fastest);
            kind(&base, &mut random).map(|planted| planted.on(&base, seed, number))
        });
        Some((number, found?))
    };
    (0..count).zip(kinds().cycle()).filter_map(one).collect()
}

/// One of `values`.
fn one_of<T: Copy>(random: &mut Random, values: &[T]) -> T {
    values[random.below(values.len() as u64) as usize]
}

/// A value between two, evenly over its logarithm, to two significant digits.
fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    let value = low * (high / low).powf(random.unit());
    let step = 10f64.powf(value.log10().floor() - 1.0);
    (value / step).round() * step
}

/// A rate as lab files have it.
fn kbit(rate: f64) -> toml::Value {
    text(format!("{:.0}kbit", rate / 1e3))
}

fn text(value: impl Into<String>) -> toml::Value {
    toml::Value::String(value.into())
}

fn table<const N: usize>(keys: [(&str, toml::Value); N]) -> toml::Value {
    toml::Value::Table(keys.map(|(key, value)| (key.to_owned(), value)).into_iter().collect())
}

/// What arrives at a host as single packets, as many as a rate has of this size; the others are dropped, not queued.
/// A filter's bucket of bytes would hold what a second brings, so packets are counted.
fn policed(sender: &str, receiver: &str, packets_per_s: f64) -> Vec<OnHost> {
    // Long against a packet, short against a test.
    let burst = (packets_per_s * 0.02).max(20.0);
    let rule = format!("limit rate over {packets_per_s:.0}/second burst {burst:.0} packets drop");
    let alone = "ip link set dev eth0 gso_max_segs 1".to_owned();
    vec![OnHost { host: sender.to_owned(), run: alone }, on_arrival(receiver, &rule)]
}

/// A rule of nftables for what a host receives, before anything else sees it.
fn on_arrival(host: &str, rule: &str) -> OnHost {
    let run = format!(
        "nft add table inet planted; \
         nft 'add chain inet planted arrived {{ type filter hook prerouting priority -300; }}'; \
         nft add rule inet planted arrived {rule}"
    );
    OnHost { host: host.to_owned(), run }
}

impl BasePath {
    fn drawn(random: &mut Random, fastest: f64) -> Self {
        Self {
            rtt_s: between(random, 0.2e-3, 200e-3),
            rate: between(random, 10e6, fastest),
            mtu: one_of(random, &[576, 1280, 1500, 1500, 1500, 4000, 9000]),
            congestion: one_of(random, &["reno", "cubic", "bbr"]),
            is_reverse: random.below(3) == 0,
            is_foreign: random.below(6) == 0,
        }
    }

    /// Payload of a segment, bytes.
    fn mss(&self) -> f64 {
        f64::from(self.mtu) - 52.0
    }

    /// What the link carries of payload, bit/s.
    fn ceiling(&self) -> f64 {
        self.rate * self.mss() / (self.mss() + HEADERS_BYTES)
    }

    /// Payload on the way when the link is full, bytes.
    fn product(&self) -> f64 {
        self.ceiling() * self.rtt_s / 8.0
    }

    /// Time that each test measures, seconds: long against its start.
    fn duration_s(&self) -> f64 {
        (16.0 * self.rtt_s).max(1.0).ceil()
    }

    fn sender(&self) -> &'static str {
        if self.is_reverse { "far" } else { "near" }
    }

    fn receiver(&self) -> &'static str {
        if self.is_reverse { "near" } else { "far" }
    }

    /// Of the kernel: BBR takes no loss for congestion.
    fn heeds_loss(&self) -> bool {
        self.congestion != "bbr"
    }
}

/// What is planted on a path.
struct Planted {
    /// By what means, as families of cases have it.
    by: &'static str,
    plants: String,
    accept: Vec<String>,
    why: &'static str,
    check: Check,
    /// Keys of the link in the direction of the data.
    link: Vec<(&'static str, toml::Value)>,
    /// And in the direction of the acknowledgements.
    way_back: Vec<(&'static str, toml::Value)>,
    sysctl: Vec<(&'static str, &'static str, String)>,
    prepare: Vec<OnHost>,
    beside: Vec<OnHost>,
    options: Vec<String>,
    /// Command lines instead of `path`.
    measure: Vec<String>,
    duration_s: Option<f64>,
}

impl Planted {
    fn new(by: &'static str, plants: String, accept: String, check: Check) -> Self {
        Self {
            by,
            plants,
            accept: vec![accept],
            why: "",
            check,
            link: Vec::new(),
            way_back: Vec::new(),
            sysctl: Vec::new(),
            prepare: Vec::new(),
            beside: Vec::new(),
            options: Vec::new(),
            measure: Vec::new(),
            duration_s: None,
        }
    }

    fn on(self, base: &BasePath, seed: u64, number: usize) -> Drawn {
        let backward = |is_backward: bool| -> toml::Table {
            let keys = if is_backward == base.is_reverse { &self.link } else { &self.way_back };
            keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
        };
        let mut link: toml::Table = [
            ("delay", text(format!("{}us", (base.rtt_s * 5e5).round()))),
            ("rate", kbit(base.rate)),
            // Twice the product of rate and round trip, and room for a super-segment.
            ("queue", text(format!("{}", (2.0 * base.product()).max(256e3).round()))),
            ("mtu", toml::Value::Integer(i64::from(base.mtu))),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect();
        for (key, is_backward) in [("forward", false), ("backward", true)] {
            let keys = backward(is_backward);
            if !keys.is_empty() {
                link.insert(key.to_owned(), toml::Value::Table(keys));
            }
        }
        let host = |name: &str| -> toml::Table {
            let own = self.sysctl.iter().filter(|(end, ..)| *end == name);
            let sysctl: toml::Table =
                own.map(|(_, key, value)| ((*key).to_owned(), text(value.clone()))).collect();
            let sysctl = (!sysctl.is_empty()).then_some(sysctl);
            sysctl.into_iter().map(|keys| ("sysctl".to_owned(), toml::Value::Table(keys))).collect()
        };
        let is_foreign = base.is_foreign && self.measure.is_empty();
        let mut options = vec!["--congestion".to_owned(), base.congestion.to_owned()];
        options.extend(base.is_reverse.then(|| "--reverse".to_owned()));
        let is_asked = self.options.iter().any(|option| option == "-4");
        options.extend((base.mtu < IPV6_MTU_MIN && !is_asked).then(|| "-4".to_owned()));
        let duration_s = self.duration_s.unwrap_or_else(|| base.duration_s());
        options.extend(["--duration".to_owned(), format!("{duration_s}s")]);
        options.extend(self.options);
        let accept = self.accept.into_iter().map(Accepted::try_from);
        let case = Case {
            name: format!("drawn-{seed}-{number}"),
            by: self.by.to_owned(),
            plants: format!(
                "{}; {:.0} Mbit/s, {:.1} ms, MTU {}, {}{}{}",
                self.plants,
                base.rate / 1e6,
                base.rtt_s * 1e3,
                base.mtu,
                base.congestion,
                if base.is_reverse { ", the far end sends" } else { "" },
                if is_foreign { ", the far end is an iperf3, which tells nothing" } else { "" },
            ),
            accept: accept.collect::<Result<_, _>>().expect("known limits"),
            why: self.why.to_owned(),
            live: false,
            link,
            near: host("near"),
            far: host("far"),
            options,
            prepare: self.prepare,
            beside: self.beside,
            serve: is_foreign.then(|| "iperf3 -s".to_owned()),
            quota: None,
            measure: self.measure,
            is_drawn: true,
        };
        Drawn { case, check: self.check }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::planted::recorded::{Recorded, recorded};

    const FASTEST: f64 = 1e9;

    #[test]
    fn a_seed_draws_the_same_cases_again_and_another_seed_others() {
        let plants = |seed, count| -> Vec<String> {
            drawn(seed, count, FASTEST).into_iter().map(|(_, drawn)| drawn.case.plants).collect()
        };
        assert_eq!(plants(1, 50), plants(1, 50));
        assert_ne!(plants(1, 50), plants(2, 50));
        assert_eq!(plants(1, 50)[..20], plants(1, 20));
    }

    /// Seeds that were recorded, with the fastest link of each, bit/s: `testdata/drawn/README.md`.
    const RECORDED: [(u64, f64); 15] = [
        (1, 200e6),
        (2, 200e6),
        (3, 300e6),
        (4, 1e9),
        (5, 1e9),
        (20_261_127, 600e6),
        (20_261_128, 600e6),
        (20_261_129, 600e6),
        (20_261_130, 600e6),
        (20_261_201, 600e6),
        (20_261_202, 600e6),
        (20_261_203, 600e6),
        (20_261_204, 600e6),
        (20_261_205, 600e6),
        (20_261_206, 600e6),
    ];

    #[test]
    fn recordings_are_what_their_seeds_draw() {
        let recorded: BTreeMap<&str, &Recorded> =
            recorded().iter().map(|(name, one)| (name.as_str(), one)).collect();
        let mut found = 0;
        for (seed, fastest) in RECORDED {
            for (_, Drawn { case, .. }) in drawn(seed, kinds_count(), fastest) {
                let Some(one) = recorded.get(case.name.as_str()) else { continue };
                assert_eq!((&one.by, &one.plants), (&case.by, &case.plants), "{}", case.name);
                assert_eq!(one.accept, case.accept, "{}", case.name);
                found += 1;
            }
        }
        let drawn = recorded.keys().filter(|name| name.starts_with("drawn-")).count();
        assert_eq!(found, drawn, "recordings that no seed draws");
    }

    #[test]
    fn what_is_drawn_leaves_the_planted_limit_room_to_bind() {
        let all = drawn(7, 4 * kinds_count(), FASTEST);
        assert_eq!(all.len(), 4 * kinds_count(), "every kind has room");
        let mut families = BTreeSet::new();
        for (_, Drawn { case, check }) in &all {
            let (low, high) = check.bits_per_s.or(check.median_s).expect("a range");
            assert!(low >= 0.0 && low < high, "{case:?}");
            let limit = case.accept[0].limit.clone();
            families.insert((limit, case.by.clone()));
            assert!(case.link.contains_key("delay") && case.link.contains_key("rate"), "{case:?}");
            assert!(case.accept.len() < 2 || !case.why.is_empty(), "{case:?}");
        }
        assert!(families.len() >= 40, "{families:?}");
        let unplanted =
            all.iter().filter(|(_, drawn)| drawn.case.by.starts_with("nothing")).count();
        assert!(unplanted * 100 >= all.len() * 8, "{unplanted} of {}", all.len());
    }

    #[test]
    fn each_check_can_fail() {
        let nothing = Results::begun(results::RunKind::Path, 0);
        for (_, Drawn { case, check }) in drawn(3, kinds_count(), FASTEST) {
            assert!(!check.holds(&nothing), "{case:?}");
        }
    }
}
