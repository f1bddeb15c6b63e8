//! UDP verdicts: where datagrams were lost, and why.
//!
//! Every datagram is accounted for, from the sender's socket to the receiver's, each place by its own
//! counter; losses that no counter shows are the path's. One rate cannot tell a rate limit from random
//! loss; two rates can, because random loss takes the same share at any rate.

mod few_lost;
mod two_rates;

use results::{
    Direction, DirectionOutcome, End, EndReport, Evidence, Limit, Point, Results, TestOutcome,
    TestSpec, Verdict, Work,
};
use units::saturating_u64;

use self::two_rates::LOST_COUNT_MIN;
use crate::numbers::{fine_percent, percent, positive, ratio, share};
use crate::observed::{opposite, waited_s};
use crate::verdict;
use crate::wanted::idle_rtt_s;

/// The section of `docs/limits.md` about UDP.
pub(crate) const PAGE: &str = "
# UDP

If all tests of a document are UDP, the verdict says where datagrams were lost. Every lost datagram is attributed to a place,
and the place that lost most is named with its counter; no experiment confirms it.

| lost at | counter | verdict |
|---|---|---|
| the sender's queueing discipline | drops of its root qdiscs | `qdisc` |
| the sender's device | `tx_dropped`, `tx_errors` | `link-rate` |
| the path | lost, and counted by neither end | `shaper`, `policer` or `loss` |
| the receiver's device | `rx_dropped`, `rx_errors`, overruns | `ring-overrun` |
| the receiver's backlog | `dropped` of `/proc/net/softnet_stat` | `softnet-backlog` |
| the receiver's socket buffer | `SO_RXQ_OVFL`, else `Udp.RcvbufErrors` | `receiver-core` where the reading thread ran 85% of the time, else `receiving-application` |

A loss on the path is caused by a rate limit or is random; tests at a single rate cannot distinguish the two. If two rates are at least
1.25 times apart, a rate limit delivers the same rate at both, or the share lost at the lower rate is at most 0.35 of that at the higher rate.
Random loss at the lower rate is at least 0.6 of that share, and the two shares must differ by no more than 3 standard deviations of their
counts. A lower rate counts if it sent enough to lose 30 datagrams at the higher one's share. `clearstream explain
FILE OTHER …` compares the tests of all files, repeats of one test together, and gives the reason if a test does not decide. The rate
is at least the most that any of the tests delivered.

What exceeds a rate waits before it is lost where the limit has a queue (`shaper`: a shaper, or a slower link), and not where it
has none (`policer`). The receiver compares each datagram's time on the way with the fastest one's, and takes the least of every 10 ms,
so that a host that is late now and then is no queue. The hosts' clocks need not agree; what they may drift apart
during the test is taken off. Up to 0.2 ms and 0.5% of the idle round trip are no queue, from 0.6 ms and 1.5% on it is one. In between,
and where the receiver tells no such time (a stock iperf3, or an older version), the limit is named `shaper`.

Only gaps in the sequence and drops at the receiver's socket are known losses. Datagrams that were sent after the last one that arrived
may be lost or still in a queue. Up to a quarter second of sending is usual. A larger amount is reported, and named
`shaper` if the others arrived, because a long queue in front of a slower link has this effect.

If more datagrams were received or lost than sent, by more than a quarter second of sending, the counts contradict each other, and no place is
named.
";

/// Lost shares below this count as no loss.
const LOST_MIN: f64 = 1e-4;
/// Both ends' counters of a test are read at most so far apart, seconds.
const COUNTED_APART_S: f64 = 0.25;
/// Fewer datagrams per packet than this come from losses and other traffic, not from super-segments.
const JOINED_MIN: f64 = 1.5;
/// A thread that ran at least this share of the time had no time left.
const BUSY_MIN: f64 = 0.85;

/// The places where datagrams can be lost, from sender to receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    SenderQdisc,
    SenderDevice,
    Path,
    ReceiverDevice,
    Backlog,
    Socket,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::SenderQdisc => "the sender's queueing discipline",
            Self::SenderDevice => "the sender's device",
            Self::Path => "the path",
            Self::ReceiverDevice => "the receiver's device",
            Self::Backlog => "the receiver's backlog",
            Self::Socket => "the receiver's socket buffer",
        }
    }

    fn counter(self) -> &'static str {
        match self {
            Self::SenderQdisc => "drops of its qdiscs",
            Self::SenderDevice => "tx_dropped and tx_errors",
            Self::Path => "lost, and counted by neither end",
            Self::ReceiverDevice => "rx_dropped and over-runs",
            Self::Backlog => "softnet_stat dropped",
            Self::Socket => "SO_RXQ_OVFL or Udp.RcvbufErrors",
        }
    }
}

/// All datagrams of one test, accounted for.
pub(crate) struct Account<'a> {
    pub(crate) spec: &'a TestSpec,
    pub(crate) outcome: &'a TestOutcome,
    pub(crate) direction: &'a DirectionOutcome,
    sender: End,
    pub(crate) sent: f64,
    received: f64,
    lost: f64,
    /// Lost as the receiver counts, also where that is more than was sent.
    told_lost: f64,
    /// Sends that the sender's socket refused; not counted in `sent`.
    pub(crate) refused: f64,
    /// Losses by place, from sender to receiver; a place is missing if its end reported no counters.
    pub(crate) places: Vec<(Place, f64)>,
    /// Neither received nor known to be lost when the test ended.
    rest: f64,
    /// Of these, those beyond what is usually on its way then.
    pub(crate) undecided: f64,
    /// Round trip of the idle path, seconds, where it was measured.
    base_rtt_s: Option<f64>,
}

/// The verdict of a document whose bulk tests are all UDP; `None` for any other.
pub(crate) fn explain(results: &Results) -> Option<Verdict> {
    let accounts: Vec<Account<'_>> = results
        .points
        .iter()
        .filter(|point| !point.is_confirmation())
        .filter_map(Account::of)
        .map(|account| Account { base_rtt_s: idle_rtt_s(results), ..account })
        .collect();
    let way = accounts.first()?.direction.direction;
    let of_way: Vec<&Account<'_>> =
        accounts.iter().filter(|account| account.direction.direction == way).collect();
    let (judged, repeats_count) = judged_of(&of_way)?;
    let finding = judged.finding(&accounts);
    let mut evidence = vec![finding.why, judged.told()];
    evidence.extend(finding.more);
    if repeats_count > 1 {
        evidence.push(format!(
            "these are the figures of one of {repeats_count} repeats, the one with the median throughput"
        ));
    }
    let evidence: Vec<Evidence> = evidence
        .into_iter()
        .map(|text| Evidence { limit: finding.limit, text, weight: finding.weight })
        .collect();
    let ruled_out = judged.places.iter().filter(|(place, _)| Some(*place) != finding.place);
    let ruled_out = ruled_out.map(|(place, count)| Evidence {
        limit: judged.limit_of(*place).0,
        text: format!("{}: {} lost ({})", place.name(), saturating_u64(*count), place.counter()),
        weight: share(*count, judged.lost).unwrap_or(0.0),
    });
    let ruled_out = if finding.place.is_some() { ruled_out.collect() } else { Vec::new() };
    let summary = evidence[0].text.clone();
    let plain = verdict::unproven(finding.limit, finding.end, summary, finding.advice);
    Some(Verdict { evidence, ruled_out, ..plain })
}

/// The test that is judged, and how many repeats it has: of those with the highest rate, the repeat with the median
/// throughput, which is what tables show. The other rates serve for comparison.
fn judged_of<'s, 'a>(accounts: &[&'s Account<'a>]) -> Option<(&'s Account<'a>, usize)> {
    let sent = |account: &Account<'_>| account.direction.sent_bits_per_s;
    let received = |account: &Account<'_>| account.direction.received_bits_per_s;
    let highest = accounts.iter().max_by(|one, other| sent(one).total_cmp(&sent(other)))?;
    let mut repeats: Vec<&Account<'_>> =
        accounts.iter().copied().filter(|account| account.spec == highest.spec).collect();
    repeats.sort_by(|one, other| received(one).total_cmp(&received(other)));
    Some((repeats.get((repeats.len() - 1) / 2)?, repeats.len()))
}

/// The limit that binds, and the text that explains it.
struct Finding {
    limit: Limit,
    end: Option<End>,
    weight: f64,
    place: Option<Place>,
    why: String,
    more: Vec<String>,
    advice: Vec<String>,
}

impl<'a> Account<'a> {
    pub(crate) fn of(point: &'a Point) -> Option<Self> {
        let (Work::Datagrams(spec), outcome) = (&point.work, point.measured()?) else {
            return None;
        };
        let direction = outcome.directions.first()?;
        let udp = direction.udp.as_ref()?;
        let sender = if direction.direction == Direction::Reverse { End::Far } else { End::Near };
        let (sent, lost) = (positive(udp.sent_count as f64)?, udp.lost_count as f64);
        let received = udp.received_count as f64;
        let mut account = Self {
            spec,
            outcome,
            direction,
            sender,
            sent,
            received,
            lost: lost.min(sent),
            told_lost: lost,
            refused: 0.0,
            places: Vec::new(),
            rest: (sent - received - lost).max(0.0),
            undecided: udp.undecided_count(spec) as f64,
            base_rtt_s: None,
        };
        account.refused = account.report(sender).map_or(0.0, refused);
        account.places = account.located();
        Some(account)
    }

    /// What the end that sent the datagrams reported.
    pub(crate) fn sender_report(&self) -> Option<&'a EndReport> {
        self.report(self.sender)
    }

    fn report(&self, end: End) -> Option<&'a EndReport> {
        match end {
            End::Near => Some(self.outcome.near()),
            End::Far => self.outcome.far(),
        }
    }

    /// Distributes the loss over the places, nearest to the receiving application first. A socket's counters
    /// are of this test alone, a device's of the whole host, so each place takes no more than is left.
    fn located(&self) -> Vec<(Place, f64)> {
        let (sender, receiver) = (self.report(self.sender), self.report(opposite(self.sender)));
        let receiver = receiver.filter(|report| is_told(report));
        let sender = sender.filter(|report| is_told(report));
        let mut left = self.lost;
        let mut places = Vec::new();
        let mut take = |place: Place, count: Option<f64>| {
            let taken = count.map(|count| count.min(left));
            left -= taken.unwrap_or(0.0);
            places.extend(taken.map(|taken| (place, taken)));
        };
        take(Place::Socket, receiver.and_then(socket_drops));
        // A super-segment counts once in these counters, and all its datagrams are lost with it.
        let arrived = self.received + self.lost;
        take(Place::Backlog, receiver.map(|report| backlog_drops(report, arrived)));
        take(Place::ReceiverDevice, receiver.map(device_drops));
        take(Place::SenderQdisc, sender.map(|report| qdisc_drops(report, self.sent)));
        take(Place::SenderDevice, sender.map(sending_drops));
        // Without the receiver's counters, nobody knows where the remainder was lost.
        take(Place::Path, receiver.map(|_| f64::MAX));
        let order = [
            Place::SenderQdisc,
            Place::SenderDevice,
            Place::Path,
            Place::ReceiverDevice,
            Place::Backlog,
            Place::Socket,
        ];
        places.sort_by_key(|(place, _)| order.iter().position(|other| other == place));
        places
    }

    /// Of the datagrams lost or received, as [`results::UdpOutcome::lost_share`] has it.
    pub(crate) fn lost_share(&self) -> f64 {
        self.share_of_known(self.lost)
    }

    /// `count` over the datagrams known to be lost or received.
    pub(crate) fn share_of_known(&self, count: f64) -> f64 {
        share(count, self.lost + self.received).unwrap_or(0.0)
    }

    /// Share lost on the path or, if the place is unknown, anywhere.
    pub(crate) fn path_share(&self) -> f64 {
        let path = self.places.iter().find(|(place, _)| *place == Place::Path);
        self.share_of_known(path.map_or(self.lost, |(_, count)| *count))
    }

    /// Text of the account: `of 5355 datagrams sent 3507 were received; lost on the path 1848 (…)`.
    fn told(&self) -> String {
        // Exact counts: an account must add up to the last datagram.
        let count = |count: f64| saturating_u64(count.round());
        let mut text = format!(
            "of {} datagrams sent {} were received",
            count(self.sent),
            count(self.received)
        );
        for (place, lost) in self.places.iter().filter(|(_, lost)| *lost > 0.0) {
            let (name, counter) = (place.name(), place.counter());
            let at = if *place == Place::Path { "on" } else { "at" };
            text += &format!("; lost {at} {name}: {} ({counter})", count(*lost));
        }
        if self.places.is_empty() && self.lost > 0.0 {
            text += &format!("; lost: {}, at a place that no counter shows", count(self.lost));
        }
        if self.rest > 0.0 {
            text += &format!("; not arrived when the test ended: {}", count(self.rest));
        }
        if self.refused > 0.0 {
            text += &format!(
                "; {} more sends were refused by the sender's socket",
                count(self.refused)
            );
        }
        text
    }

    fn finding(&self, all: &[Account<'_>]) -> Finding {
        if let Some(excess) = self.excess() {
            return self.contradicted(excess);
        }
        if self.lost_share() < LOST_MIN {
            let undecided = share(self.undecided, self.sent).unwrap_or(0.0);
            return if undecided < LOST_MIN { self.nothing_lost() } else { self.not_arrived() };
        }
        let most = self.places.iter().max_by(|one, other| one.1.total_cmp(&other.1));
        let elsewhere = self.lost - self.places.iter().map(|(_, count)| count).sum::<f64>();
        match most.filter(|(_, count)| *count > elsewhere) {
            Some((place, count)) if *place != Place::Path => self.lost_at(*place, *count),
            most => self.lost_on_the_path(all, most.is_some()),
        }
    }

    /// Datagrams that were received or lost beyond those sent, if counters that are read at other moments explain
    /// no such number.
    fn excess(&self) -> Option<f64> {
        let excess = self.received + self.told_lost - self.sent;
        let skewed = self.sent * COUNTED_APART_S / self.outcome.duration_s.max(COUNTED_APART_S);
        (excess > skewed.max(LOST_COUNT_MIN)).then_some(excess)
    }

    /// Counts that contradict each other place no loss.
    fn contradicted(&self, excess: f64) -> Finding {
        let why = format!(
            "no verdict: the counts contradict each other, {} more datagrams were received or lost than sent",
            saturating_u64(excess)
        );
        Finding {
            limit: Limit::NoneFound,
            end: None,
            weight: 0.0,
            place: None,
            why,
            more: Vec::new(),
            advice: vec![
                "measure again for longer: a host that was suspended or overloaded counts \
                 packets later than it sends them"
                    .to_owned(),
            ],
        }
    }

    fn lost_at(&self, place: Place, count: f64) -> Finding {
        let (limit, end) = self.limit_of(place);
        let part = share(count, self.lost).unwrap_or(0.0);
        let why = format!(
            "{} of the datagrams were lost, {} of those at {}: {}",
            fine_percent(self.lost_share()),
            percent(part),
            place.name(),
            place.counter()
        );
        let advice = match place {
            Place::SenderQdisc => {
                "lengthen the sender's queue (tc qdisc, txqueuelen) or send slower (-b)"
            }
            Place::SenderDevice => "look at the sender's device: ethtool -S, its ring (ethtool -G)",
            Place::ReceiverDevice => {
                "lengthen the receiver's ring (ethtool -G), spread its queues (RSS)"
            }
            Place::Backlog => {
                "raise net.core.netdev_max_backlog at the receiver, spread packets over its cores (RPS)"
            }
            Place::Socket if limit == Limit::ReceiverCore => {
                "give the receiving thread a core of its own, larger datagrams or GRO: it has no time left"
            }
            _ => {
                "enlarge the receiver's socket buffer (--window, net.core.rmem_max): bursts \
                 overflow it"
            }
        };
        let more = match (place, self.busy_share(opposite(self.sender))) {
            (Place::Socket, Some(busy)) => {
                vec![format!("the receiving threads ran {} of the time", percent(busy))]
            }
            _ => Vec::new(),
        };
        let weight = part;
        Finding {
            limit,
            end,
            weight,
            place: Some(place),
            why,
            more,
            advice: vec![advice.to_owned()],
        }
    }

    /// How long datagrams waited on their way, seconds.
    pub(crate) fn waited_s(&self) -> Option<f64> {
        waited_s(self.direction.udp.as_ref()?, self.outcome.duration_s)
    }

    /// The limit that a loss at this place means, and the end it is at.
    fn limit_of(&self, place: Place) -> (Limit, Option<End>) {
        let (sender, receiver) = (Some(self.sender), Some(opposite(self.sender)));
        match place {
            Place::SenderQdisc => (Limit::Qdisc, sender),
            Place::SenderDevice => (Limit::LinkRate, sender),
            Place::Path => (Limit::Loss, None),
            Place::ReceiverDevice => (Limit::RingOverrun, receiver),
            Place::Backlog => (Limit::SoftnetBacklog, receiver),
            Place::Socket => {
                let busy = self.busy_share(opposite(self.sender)).unwrap_or(0.0);
                let is_full = busy >= BUSY_MIN;
                (if is_full { Limit::ReceiverCore } else { Limit::ReceivingApplication }, receiver)
            }
        }
    }

    /// Share of the time that the busiest thread of this test ran at an end.
    fn busy_share(&self, end: End) -> Option<f64> {
        let streams = self.report(end)?.streams.iter();
        let busy = streams.filter_map(|stream| {
            let ran_s = stream.thread_user_s? + stream.thread_system_s?;
            share(ran_s, self.outcome.duration_s)
        });
        busy.reduce(f64::max)
    }
}

/// Whether an end reported any counters; a foreign peer reports none.
fn is_told(report: &EndReport) -> bool {
    let counters = &report.counters;
    !(counters.devices.is_empty() && counters.softnet.is_empty() && counters.protocols.is_empty())
}

fn refused(report: &EndReport) -> f64 {
    let counts =
        report.streams.iter().filter_map(|stream| stream.udp.as_ref()?.send_failures_count);
    counts.map(|count| count as f64).sum()
}

fn socket_drops(report: &EndReport) -> Option<f64> {
    let streams = report.streams.iter().filter(|stream| !stream.sending);
    let at_sockets: Option<f64> = streams
        .map(|stream| Some(stream.udp.as_ref()?.socket_drops_count? as f64))
        .reduce(|sum, count| Some(sum? + count?))
        .flatten();
    let gained = report.counters.protocols.iter().find(|gain| gain.name == "Udp.RcvbufErrors");
    at_sockets.or(gained.map(|gain| gain.gain_count as f64))
}

fn backlog_drops(report: &EndReport, arrived: f64) -> f64 {
    let cores = || report.counters.softnet.iter();
    let dropped: f64 =
        cores().map(|core| (core.dropped_pkts + core.flow_limited_pkts) as f64).sum();
    let taken: f64 = report.counters.devices.iter().map(|device| device.rx_pkts as f64).sum();
    dropped * joined(arrived, taken)
}

fn device_drops(report: &EndReport) -> f64 {
    let devices = report.counters.devices.iter();
    devices
        .map(|device| {
            let overruns = device.rx_ring_overruns_count.unwrap_or(0);
            (device.rx_drops_count + device.rx_errors_count).max(overruns) as f64
        })
        .sum()
}

fn qdisc_drops(report: &EndReport, sent: f64) -> f64 {
    // The root's counters include those of all qdiscs below it.
    let qdiscs = || report.counters.qdiscs.iter().filter(|qdisc| qdisc.parent == "root");
    let passed: f64 = qdiscs().map(|qdisc| (qdisc.sent_pkts + qdisc.dropped_pkts) as f64).sum();
    let dropped: f64 = qdiscs().map(|qdisc| qdisc.dropped_pkts as f64).sum();
    dropped * joined(sent, passed)
}

/// Datagrams per packet as the host counts packets: more than one if the device does the segmentation.
fn joined(datagrams: f64, packets: f64) -> f64 {
    ratio(datagrams, packets).filter(|joined| *joined >= JOINED_MIN).unwrap_or(1.0)
}

fn sending_drops(report: &EndReport) -> f64 {
    let devices = report.counters.devices.iter();
    devices.map(|device| (device.tx_drops_count + device.tx_errors_count) as f64).sum()
}
