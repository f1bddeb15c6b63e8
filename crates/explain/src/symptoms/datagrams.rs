//! Symptoms of UDP: one group for each offered rate, and what the rates show together.

use results::{Direction, Point, Results, Work};

use super::definition::{Definition, SymptomUnit as Unit};
use super::{Section, SymptomGroup, tested};
use crate::datagrams::{Account, Place};
use crate::numbers::{positive, ratio, share};

/// Offered rates that are listed, the highest; more would hide the rest of the table.
const RATES_MAX: usize = 8;

/// A symptom of one repeat at one rate.
pub(super) struct DatagramRow {
    pub(super) definition: Definition,
    read: fn(&Account<'_>) -> Option<f64>,
}

const fn row(
    name: &'static str,
    unit: Unit,
    source: &'static str,
    about: &'static str,
    read: fn(&Account<'_>) -> Option<f64>,
) -> DatagramRow {
    DatagramRow { definition: Definition::new(name, unit, source, about), read }
}

pub(super) static ROWS: &[DatagramRow] = &[
    row(
        "sent-rate",
        Unit::BitsPerS,
        "bytes sent",
        "payload handed to the sender's sockets",
        |test| positive(test.direction.sent_bits_per_s),
    ),
    row(
        "delivered-rate",
        Unit::BitsPerS,
        "bytes read at the receiver",
        "payload taken from the receiver's sockets",
        |test| Some(test.direction.received_bits_per_s),
    ),
    row(
        "lost-share",
        Unit::Share,
        "sequence numbers",
        "datagrams known to be lost, of those lost or received",
        |test| Some(test.lost_share()),
    ),
    row(
        "lost-at-sender-qdisc-share",
        Unit::Share,
        "netlink TCA_STATS2",
        "of those lost or received, lost at the sender's queueing discipline",
        |test| at(test, Place::SenderQdisc),
    ),
    row(
        "lost-at-sender-device-share",
        Unit::Share,
        "/proc/net/dev",
        "of those lost or received, lost at the sender's device",
        |test| at(test, Place::SenderDevice),
    ),
    row(
        "lost-on-path-share",
        Unit::Share,
        "counted by neither end",
        "of those lost or received, lost between the hosts",
        |test| at(test, Place::Path),
    ),
    row(
        "lost-at-receiver-device-share",
        Unit::Share,
        "/proc/net/dev, link_stats64",
        "of those lost or received, lost at the receiver's device or ring",
        |test| at(test, Place::ReceiverDevice),
    ),
    row(
        "lost-at-backlog-share",
        Unit::Share,
        "/proc/net/softnet_stat",
        "of those lost or received, lost at the receiver's backlog",
        |test| at(test, Place::Backlog),
    ),
    row(
        "lost-at-socket-share",
        Unit::Share,
        "SO_RXQ_OVFL, Udp.RcvbufErrors",
        "of those lost or received, lost at the receiver's socket buffer",
        |test| at(test, Place::Socket),
    ),
    row(
        "undecided-share",
        Unit::Share,
        "sequence numbers",
        "of those sent, missing behind the last arrival: lost or in a long queue",
        |test| share(test.undecided, test.sent),
    ),
    row(
        "refused-sends",
        Unit::Count,
        "ENOBUFS, EAGAIN of send",
        "sends that the sender's socket refused",
        |test| {
            let told = test.sender_report()?.streams.iter();
            let told = told.filter_map(|one| one.udp.as_ref()?.send_failures_count).next();
            told.map(|_| test.refused)
        },
    ),
    row(
        "late-share",
        Unit::Share,
        "sequence numbers",
        "of those sent, received after a later one",
        |test| share(test.direction.udp.as_ref()?.reordered_count as f64, test.sent),
    ),
    row(
        "duplicate-share",
        Unit::Share,
        "sequence numbers",
        "of those sent, received more than once",
        |test| share(test.direction.udp.as_ref()?.duplicate_count as f64, test.sent),
    ),
    row("jitter", Unit::S, "RFC 3550, section 6.4.1", "mean jitter of the streams", |test| {
        test.direction.udp.as_ref()?.jitter_s
    }),
    row(
        "standing-delay",
        Unit::S,
        "time stamps of datagrams",
        "how much longer datagrams were underway than the fastest one, by the least of each 10 ms, less what clocks may drift apart: a queue",
        |test| test.waited_s(),
    ),
];

pub(super) const LOSS_LEFT: Definition = Definition::new(
    "loss-at-lower-rate-ratio",
    Unit::Ratio,
    "sequence numbers",
    "share lost on the path at the lowest rate over that at the highest: random loss about 1, a rate limit 0",
);
pub(super) const DELIVERED_ALIKE: Definition = Definition::new(
    "delivered-at-lower-rate-ratio",
    Unit::Ratio,
    "bytes read at the receiver",
    "rate delivered at the lowest rate over that at the highest: about 1 where a rate limit binds both",
);

pub(super) const LADDER: [Definition; 2] = [LOSS_LEFT, DELIVERED_ALIKE];

/// The repeats at one rate in one direction.
struct Step<'a> {
    direction: Direction,
    /// Asked for, bit/s of all streams; where nothing was asked for, sent.
    offered_bits_per_s: f64,
    first: &'a Point,
    accounts: Vec<Account<'a>>,
}

pub(super) fn groups(results: &Results) -> Vec<SymptomGroup> {
    let steps = steps(results);
    let recorder = results.recorder();
    let of_step = |step: Option<&Step<'_>>| {
        let accounts = step.map_or(&[][..], |step| &step.accounts);
        let symptoms = ROWS.iter().map(|row| {
            let values: Vec<f64> = accounts.iter().filter_map(row.read).collect();
            row.definition.symptom(recorder, &values, &[])
        });
        SymptomGroup {
            section: Section::Datagrams,
            end: None,
            offered_bits_per_s: step.map(|step| step.offered_bits_per_s),
            test: step
                .and_then(|step| step.first.spec())
                .map_or_else(String::new, tested::test_words),
            symptoms: symptoms.collect(),
        }
    };
    let mut groups: Vec<SymptomGroup> = steps.iter().map(|step| of_step(Some(step))).collect();
    if groups.is_empty() {
        groups.push(of_step(None));
    }
    groups.push(ladder(&steps, recorder));
    groups
}

/// What two rates of the same direction show together.
fn ladder(steps: &[Step<'_>], recorder: Option<&str>) -> SymptomGroup {
    let way = steps.last().map(|step| step.direction);
    let of_way: Vec<&Step<'_>> = steps.iter().filter(|step| Some(step.direction) == way).collect();
    let ends = match of_way.as_slice() {
        [lowest, .., highest] => Some((*lowest, *highest)),
        _ => None,
    };
    let compared = |read: fn(&Account<'_>) -> f64| -> Option<f64> {
        let (lowest, highest) = ends?;
        let median =
            |step: &Step<'_>| stats::median(&step.accounts.iter().map(read).collect::<Vec<f64>>());
        let highest = positive(median(highest)?)?;
        ratio(median(lowest)?, highest).or_else(|| (median(lowest) == Some(0.0)).then_some(0.0))
    };
    let left = compared(|account| account.path_share());
    let alike = compared(|account| account.direction.received_bits_per_s);
    SymptomGroup {
        section: Section::Ladder,
        end: None,
        offered_bits_per_s: None,
        test: String::new(),
        symptoms: vec![
            LOSS_LEFT.symptom(recorder, left.as_slice(), &[]),
            DELIVERED_ALIKE.symptom(recorder, alike.as_slice(), &[]),
        ],
    }
}

/// The rates in ascending order, those of one direction together; at most the [`RATES_MAX`] highest.
fn steps(results: &Results) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let is_one =
        |point: &&Point| matches!(point.work, Work::Datagrams(_)) && !point.is_confirmation();
    for point in results.points.iter().filter(is_one) {
        let Some(account) = Account::of(point) else { continue };
        let asked = account.spec.offered_bits_per_s.and_then(positive);
        let streams = f64::from(account.spec.streams.max(1));
        let direction = account.direction.direction;
        // Without a rate, repeats are those of the same experiment.
        let known = steps.iter_mut().find(|step| {
            let same = step.accounts.iter().all(|one| {
                one.spec.offered_bits_per_s == account.spec.offered_bits_per_s
                    && one.spec.streams == account.spec.streams
            });
            let is_alike =
                point.experiment == step.first.experiment && point.varied == step.first.varied;
            step.direction == direction && same && is_alike
        });
        match known {
            Some(step) => step.accounts.push(account),
            None => steps.push(Step {
                direction,
                offered_bits_per_s: asked
                    .map_or(account.direction.sent_bits_per_s, |asked| asked * streams),
                first: point,
                accounts: vec![account],
            }),
        }
    }
    let order = |one: &Step<'_>, other: &Step<'_>| {
        let rates = one.offered_bits_per_s.total_cmp(&other.offered_bits_per_s);
        one.direction.cmp(&other.direction).then(rates)
    };
    steps.sort_by(order);
    let surplus = steps.len().saturating_sub(RATES_MAX);
    steps.drain(..surplus);
    steps
}

fn at(test: &Account<'_>, place: Place) -> Option<f64> {
    let (_, count) = test.places.iter().find(|(other, _)| *other == place)?;
    Some(test.share_of_known(*count))
}
