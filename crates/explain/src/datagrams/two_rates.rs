//! Losses on the path: a rate limit or random loss, told apart by what other rates lose.

use results::Limit;
use units::{show_bit_rate, show_seconds};

use super::{Account, Finding, LOST_MIN, Place};
use crate::numbers::{fine_percent, positive, ratio, share};
use crate::thresholds::path;

/// Least ratio of two rates that are worth comparing.
const RATES_APART: f64 = 1.25;
/// Lost share at the lower rate over that at the higher one: a rate limit leaves less than the first
/// bound, random loss more than the second.
const LIMIT_LEAVES_MAX: f64 = 0.35;
const RANDOM_LEAVES_MIN: f64 = 0.6;
/// Two shares differ by more than chance from so many standard deviations of their difference on: 1 in 370 pairs of
/// equal ones do.
const DEVIATIONS_APART: f64 = 3.0;
/// Least number of lost datagrams to judge a share by: its standard deviation is then below a fifth.
pub(super) const LOST_COUNT_MIN: f64 = 30.0;
/// Tolerance of two delivered rates that count as equal: a rate limit delivers the same of every higher offer.
const DELIVERED_ALIKE: f64 = 0.1;

/// All tests at one rate, as one.
struct AtRate {
    sent_bits_per_s: f64,
    /// The most that one of them delivered.
    received_bits_per_s: f64,
    duration_s: f64,
    /// Datagrams known to be lost or received.
    known: f64,
    /// Datagrams lost on the path or, where the place is unknown, anywhere.
    lost: f64,
}

/// The limit, its weight, why, and advice.
type Told = (Limit, f64, String, String);

impl AtRate {
    fn of(account: &Account<'_>) -> Self {
        let known = account.lost + account.received;
        Self {
            sent_bits_per_s: account.direction.sent_bits_per_s,
            received_bits_per_s: account.direction.received_bits_per_s,
            duration_s: account.outcome.duration_s,
            known,
            lost: account.path_share() * known,
        }
    }

    fn add(&mut self, other: &Self) {
        self.received_bits_per_s = self.received_bits_per_s.max(other.received_bits_per_s);
        self.duration_s += other.duration_s;
        self.known += other.known;
        self.lost += other.lost;
    }

    fn share(&self) -> f64 {
        share(self.lost, self.known).unwrap_or(0.0)
    }

    /// Whether it would have lost enough datagrams at this share for its own share to be known.
    fn tells(&self, share: f64) -> bool {
        self.known * share >= LOST_COUNT_MIN
    }

    /// Difference of the two shares in its standard deviations, were both the same.
    fn deviations_from(&self, other: &Self) -> f64 {
        let all = share(self.lost + other.lost, self.known + other.known).unwrap_or(0.0);
        let variance = all * (1.0 - all) * (1.0 / self.known + 1.0 / other.known);
        positive(variance)
            .map_or(0.0, |variance| (self.share() - other.share()).abs() / variance.sqrt())
    }

    fn rate(&self) -> String {
        show_bit_rate(self.sent_bits_per_s)
    }
}

impl Account<'_> {
    /// Tells a rate limit from random loss by comparing with other rates; undecided without one.
    pub(super) fn lost_on_the_path(&self, all: &[Account<'_>], is_located: bool) -> Finding {
        let where_lost = if is_located { "on the path" } else { "somewhere" };
        let others = self.at_other_rates(all);
        let judged = AtRate::of(self);
        let is_lower =
            |other: &&AtRate| other.sent_bits_per_s * RATES_APART <= judged.sent_bits_per_s;
        let lower: Vec<&AtRate> = others.iter().filter(is_lower).collect();
        let telling: Vec<&AtRate> =
            lower.iter().copied().filter(|other| other.tells(judged.share())).collect();
        let (limit, weight, why, advice) = if telling.is_empty() {
            undecided(&judged, &lower, &others, where_lost)
        } else {
            by_rates(&judged, &telling, &others, where_lost)
        };
        let (limit, more) = match limit {
            Limit::Shaper => self.queued_or_dropped(),
            other => (other, None),
        };
        Finding {
            limit,
            end: None,
            weight,
            place: is_located.then_some(Place::Path),
            why,
            more: more.into_iter().collect(),
            advice: vec![advice],
        }
    }

    /// The kind of a rate limit, and why: what exceeds it waits in its queue, if it has one.
    fn queued_or_dropped(&self) -> (Limit, Option<String>) {
        let waits =
            path::WAITS_S.plus(path::UDP_WAITS_OF_RTT.times(self.base_rtt_s.unwrap_or(0.0)));
        let waited = self.waited_s().map(|waited_s| (waited_s, waits.of(waited_s)));
        let (limit, why) = match waited {
            Some((waited_s, waits)) if waits >= 1.0 => (
                Limit::Shaper,
                format!("datagrams that arrived had waited {} in a queue", show_seconds(waited_s)),
            ),
            Some((_, waits)) if waits <= 0.0 => (
                Limit::Policer,
                "datagrams that arrived had waited in no queue: what exceeds the rate is dropped at once"
                    .to_owned(),
            ),
            _unknown => (
                Limit::Shaper,
                "whether a shaper, a policer or a slower link is not known: the receiver tells no times that \
                 show a queue or none; TCP's round trips tell them apart"
                    .to_owned(),
            ),
        };
        (limit, Some(why))
    }

    /// Whether both ran the same test, at rates that are too near for a comparison.
    fn is_repeat_of(&self, other: &Account<'_>) -> bool {
        let (one, two) = (self.direction.sent_bits_per_s, other.direction.sent_bits_per_s);
        self.spec == other.spec && one < two * RATES_APART && two < one * RATES_APART
    }

    /// The other tests of this direction, repeats together, from the lowest rate up.
    fn at_other_rates(&self, all: &[Account<'_>]) -> Vec<AtRate> {
        let mut rates: Vec<(&Account<'_>, AtRate)> = Vec::new();
        let is_of_way =
            |other: &&Account<'_>| other.direction.direction == self.direction.direction;
        for other in all.iter().filter(is_of_way).filter(|other| !self.is_repeat_of(other)) {
            match rates.iter_mut().find(|(first, _)| first.is_repeat_of(other)) {
                Some((_, together)) => together.add(&AtRate::of(other)),
                None => rates.push((other, AtRate::of(other))),
            }
        }
        let rates = rates.into_iter().map(|(_, rate)| rate);
        let mut rates: Vec<AtRate> = rates.filter(|rate| rate.known > 0.0).collect();
        rates.sort_by(|one, other| one.sent_bits_per_s.total_cmp(&other.sent_bits_per_s));
        rates
    }
}

/// Says why the other rates do not decide, if there are any.
fn undecided(judged: &AtRate, lower: &[&AtRate], others: &[AtRate], where_lost: &str) -> Told {
    let lost = format!(
        "{} of the datagrams were lost {where_lost} at {}",
        fine_percent(judged.share()),
        judged.rate()
    );
    let alone = "one rate alone cannot tell a rate limit from random loss";
    let (why, advice) = match (lower.first(), others.last()) {
        (Some(slowest), _) => {
            let needed_s = LOST_COUNT_MIN / judged.share() / slowest.known * slowest.duration_s;
            (
                format!(
                    "{lost}; the test at {} lost {:.0} of {:.0}, too few to compare: it would need \
                     {LOST_COUNT_MIN:.0} at this share",
                    slowest.rate(),
                    slowest.lost,
                    slowest.known
                ),
                format!(
                    "run it again at {} for at least {:.0} s, and explain the files together",
                    slowest.rate(),
                    needed_s.ceil()
                ),
            )
        }
        (None, Some(nearest)) => (
            format!(
                "{lost}; {} is too near for a comparison: two rates must be {RATES_APART} times \
                 apart, and {alone}",
                nearest.rate()
            ),
            "run it again at half the rate and explain the files together".to_owned(),
        ),
        (None, None) => (
            format!("{lost}; {alone}"),
            "run it again at half the rate and explain both files together: random loss takes \
             the same share, a rate limit takes less or nothing"
                .to_owned(),
        ),
    };
    (Limit::Loss, 0.5, why, advice)
}

/// Compares with all lower rates that tell; the lowest decides between a rate limit and random loss, and random loss
/// takes the same share of each.
fn by_rates(judged: &AtRate, telling: &[&AtRate], others: &[AtRate], where_lost: &str) -> Told {
    let lowest = telling[0];
    let share_of = |other: &AtRate| format!("of {} {}", other.rate(), fine_percent(other.share()));
    let compared = others.iter().filter(|other| other.tells(judged.share()));
    let shares: Vec<String> = compared.chain([judged]).map(share_of).collect();
    let shares = format!("lost: {}", shares.join(", "));
    let left = ratio(lowest.share(), judged.share()).unwrap_or(0.0);
    let is_alike = lowest.share() >= LOST_MIN
        && ratio(lowest.received_bits_per_s, judged.received_bits_per_s)
            .is_some_and(|alike| (alike - 1.0).abs() <= DELIVERED_ALIKE);
    if is_alike || left <= LIMIT_LEAVES_MAX {
        // A limit lets through at least what any test delivered.
        let delivered = others.iter().map(|other| other.received_bits_per_s);
        let delivered = show_bit_rate(delivered.fold(judged.received_bits_per_s, f64::max));
        return (
            Limit::Shaper,
            0.9,
            format!(
                "a rate limit {where_lost}: at most {delivered} is delivered and the rest lost; {shares}"
            ),
            "send below that rate (-b), or ask the operator of the path for the contracted rate"
                .to_owned(),
        );
    }
    let differs = |other: &&&AtRate| judged.deviations_from(other) > DEVIATIONS_APART;
    if let Some(apart) = telling.iter().find(differs) {
        let (why, advice) = if apart.share() > judged.share() {
            (
                "the shares differ by more than chance, and the lower rate lost more: losses come \
                 in bursts, or the path changed between the tests",
                "run both rates again, in turns and longer; bursts of losses come from a busy host \
                 or other traffic more often than from a bad link",
            )
        } else {
            (
                "the shares differ by more than chance, but by too little for a rate limit alone",
                "run it at a rate far below what is delivered, and longer: what is lost there is random",
            )
        };
        return (
            Limit::Loss,
            0.5,
            format!(
                "a rate limit and random loss {where_lost} cannot be distinguished: {why}; {shares}"
            ),
            advice.to_owned(),
        );
    }
    if left >= RANDOM_LEAVES_MIN {
        return (
            Limit::Loss,
            0.9,
            format!(
                "random loss {where_lost}: the rates lose the same share, as far as their counts tell; {shares}"
            ),
            "look for a bad link on the path: errors of interfaces (ip -s link), optics, cables, radio"
                .to_owned(),
        );
    }
    (
        Limit::Loss,
        0.5,
        format!(
            "a rate limit and random loss {where_lost} cannot be distinguished: too few are lost; {shares}"
        ),
        "run it at a rate far below what is delivered, and longer: what is lost there is random"
            .to_owned(),
    )
}
