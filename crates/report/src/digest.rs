//! The results, sorted the way a reader asks for them: kinds of test, sweeps, series, the chain.
//!
//! Nothing is measured or judged here: the verdict and the summaries are taken as they stand, and
//! repeats that have no summary are put together with the same statistics.

pub(crate) mod chain;
pub(crate) mod placement;
pub(crate) mod series;
pub(crate) mod sweep;

use results::{
    Direction, DirectionOutcome, End, EndReport, Estimate, LatencySummary, Limit, Point, Protocol,
    Results, StreamEnd, TestOutcome, TestSpec, Verdict,
};

use crate::show;

/// Characters of a host's name that titles have room for.
const NAME_CHARACTERS_MAX: usize = 40;

/// Kinds of test a page can show; more are left to the tables.
const GROUPS_MAX: usize = 24;

/// Tests with a change to a host and without it: the section on changes tells the two apart.
const TRIALS: [&str; 2] = ["tune-with", "tune-without"];

/// A document and what was worked out from it once.
#[derive(Debug)]
pub(crate) struct Digest<'a> {
    pub(crate) results: &'a Results,
    /// The near host's name, fit for a title.
    pub(crate) near_name: String,
    /// The far host's.
    pub(crate) far_name: String,
    /// Repeats of the same test, sweeps and confirmations left out.
    pub(crate) groups: Vec<Group<'a>>,
    /// Series over one varied setting.
    pub(crate) sweeps: Vec<sweep::Sweep<'a>>,
}

/// Repeats of one test.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// `One stream, ams → gva`.
    pub(crate) label: String,
    /// What was asked, the same for all.
    pub(crate) spec: &'a TestSpec,
    /// The repeats that ran.
    pub(crate) outcomes: Vec<&'a TestOutcome>,
}

impl<'a> Digest<'a> {
    pub(crate) fn of(results: &'a Results) -> Self {
        let near_name = title_name(&results.near().name, "near host");
        let far_raw = results.far().map_or(results.path.target.as_str(), |far| &far.name);
        let far_raw =
            if far_raw.trim().is_empty() { results.path.target.as_str() } else { far_raw };
        let far_name = title_name(far_raw, "far host");
        let mut sweeps = sweep::sweeps(&results.points);
        sweeps.retain(|sweep| !TRIALS.contains(&sweep.experiment));
        let swept: Vec<&str> = sweeps.iter().map(|sweep| sweep.experiment).collect();
        let mut digest = Self { results, near_name, far_name, groups: Vec::new(), sweeps };
        digest.groups = digest.grouped(|point| {
            !point.is_confirmation()
                && !TRIALS.contains(&point.experiment.as_str())
                && !swept.contains(&point.experiment.as_str())
                && is_shown_apart(results, point)
        });
        if digest.groups.is_empty() {
            let best =
                digest.sweeps.iter().filter_map(|sweep| sweep.best_setting()).collect::<Vec<_>>();
            digest.groups =
                digest.grouped(|point| best.iter().any(|varied| **varied == point.varied));
        }
        digest
    }

    /// The test the chain and the verdict speak of: one TCP stream in the verdict's direction, or
    /// what comes nearest.
    pub(crate) fn main_group(&self) -> Option<&Group<'a>> {
        let wanted = self.results.verdict.as_ref().map_or(Direction::Forward, direction_of_verdict);
        let carrying = || self.groups.iter().filter(|group| !group.directions().is_empty());
        let tcp = || carrying().filter(|group| group.spec.protocol == Protocol::Tcp);
        let same_way = tcp().find(|group| group.directions() == [wanted]);
        same_way.or_else(|| tcp().next()).or_else(|| carrying().next())
    }

    /// `ams → gva`, in the way the bytes go.
    pub(crate) fn way(&self, direction: Direction) -> String {
        match direction {
            Direction::Forward => format!("{} → {}", self.near_name, self.far_name),
            Direction::Reverse => format!("{} → {}", self.far_name, self.near_name),
            Direction::Bidirectional => format!("{} ⇄ {}", self.near_name, self.far_name),
        }
    }

    /// Round trips of the idle path: as measured for the path, else of a probe of its own.
    pub(crate) fn idle_rtt(&self) -> Option<&'a LatencySummary> {
        let probed = || {
            let measured = self.results.points.iter().filter_map(Point::measured);
            measured.into_iter().find_map(|outcome| outcome.round_trips.as_ref())
        };
        self.results.path.idle_rtt.as_ref().or_else(probed)
    }

    /// Median idle round-trip time, seconds.
    pub(crate) fn idle_rtt_s(&self) -> Option<f64> {
        let summary = self.idle_rtt()?;
        let median = summary.percentile_s(50.0).unwrap_or(summary.min_s);
        (median.is_finite() && median > 0.0).then_some(median)
    }

    fn grouped(&self, wanted: impl Fn(&Point) -> bool) -> Vec<Group<'a>> {
        let mut keyed: Vec<(Key<'a>, Group<'a>)> = Vec::new();
        for point in self.results.points.iter().filter(|point| wanted(point)) {
            let Some((spec, outcome)) = point.tested() else { continue };
            let key = Key { spec, varied: &point.varied };
            if let Some((_, group)) = keyed.iter_mut().find(|(known, _)| *known == key) {
                group.outcomes.push(outcome);
            } else if keyed.len() < GROUPS_MAX {
                let label = self.label(spec, point);
                keyed.push((key, Group { label, spec, outcomes: vec![outcome] }));
            }
        }
        keyed.sort_by_key(|(key, _)| key.order());
        keyed.into_iter().map(|(_, group)| group).collect()
    }

    fn label(&self, spec: &TestSpec, point: &Point) -> String {
        let name = if spec.request_response.is_some() {
            format!("{} request/response", show::protocol(spec.protocol))
        } else {
            let streams = match (spec.protocol, spec.streams) {
                (Protocol::Tcp, 1) => "One stream".to_owned(),
                (Protocol::Tcp, many) => format!("{many} streams"),
                (Protocol::Udp, 1) => "UDP".to_owned(),
                (Protocol::Udp, many) => format!("UDP, {many} streams"),
            };
            match spec.direction {
                Direction::Bidirectional => format!("{streams} each way at once"),
                one_way => format!("{streams}, {}", self.way(one_way)),
            }
        };
        let told = ["streams", "flows", "direction"];
        let mut varied = point.varied.clone();
        varied.retain(|key, _| !told.contains(&key.as_str()));
        match show::setting(&varied) {
            setting if setting.is_empty() => name,
            setting => format!("{name}, {}", show::clip(&setting, 60)),
        }
    }
}

/// Of a placement sweep only the best placement and no pinning are tests among the others.
fn is_shown_apart(results: &Results, point: &Point) -> bool {
    let best = results.placement.as_ref().map(|found| &found.best);
    let is_best = best.zip(point.spec()).is_some_and(|(best, spec)| {
        spec.near_cores == [best.near_core] && spec.far_cores == [best.far_core]
    });
    !placement::is_of_placement(point)
        || is_best
        || (point.experiment == "placement" && point.varied.is_empty())
}

/// What makes two points repeats of each other.
#[derive(Debug, PartialEq)]
struct Key<'a> {
    spec: &'a TestSpec,
    varied: &'a std::collections::BTreeMap<String, f64>,
}

impl Key<'_> {
    /// TCP before UDP, one stream before several, forward before reverse before both, and
    /// request/response last.
    fn order(&self) -> (bool, bool, bool, u32, Direction) {
        let spec = self.spec;
        (
            spec.request_response.is_some(),
            spec.protocol == Protocol::Udp,
            spec.direction == Direction::Bidirectional,
            spec.streams,
            spec.direction,
        )
    }
}

impl<'a> Group<'a> {
    /// The directions that carried bulk data.
    pub(crate) fn directions(&self) -> Vec<Direction> {
        let mut directions: Vec<Direction> = self
            .outcomes
            .iter()
            .flat_map(|outcome| &outcome.directions)
            .map(|one| one.direction)
            .collect();
        directions.sort_unstable();
        directions.dedup();
        directions
    }

    /// Goodput of one direction over the repeats, bit/s.
    pub(crate) fn rate(&self, direction: Direction) -> Option<Estimate> {
        self.estimate(|outcome| direction_of(outcome, direction).map(|one| one.received_bits_per_s))
    }

    /// Any figure of a test over the repeats.
    pub(crate) fn estimate(
        &self,
        figure: impl Fn(&TestOutcome) -> Option<f64>,
    ) -> Option<Estimate> {
        let values: Vec<f64> = self.outcomes.iter().filter_map(|outcome| figure(outcome)).collect();
        Estimate::of(&values)
    }

    /// The repeat whose goodput is nearest to the median: the one drawn in detail.
    pub(crate) fn typical(&self) -> Option<&'a TestOutcome> {
        let wanted =
            self.estimate(|outcome| Some(total_rate(outcome))).map_or(0.0, |found| found.median);
        self.outcomes.iter().copied().min_by(|one, other| {
            let distance =
                |outcome: &TestOutcome| show::finite((total_rate(outcome) - wanted).abs());
            distance(one).total_cmp(&distance(other))
        })
    }
}

/// The direction a verdict speaks of, as far as the limit and its end tell.
fn direction_of_verdict(verdict: &Verdict) -> Direction {
    let home = match verdict.limit {
        Limit::ReceiveWindow | Limit::ReceiverCore | Limit::ReceivingApplication => End::Far,
        Limit::SendBuffer | Limit::SenderCore | Limit::SendingApplication => End::Near,
        _ => return Direction::Forward,
    };
    match verdict.end {
        Some(end) if end != home => Direction::Reverse,
        _ => Direction::Forward,
    }
}

/// One direction's account in a test.
pub(crate) fn direction_of(
    outcome: &TestOutcome,
    direction: Direction,
) -> Option<&DirectionOutcome> {
    outcome.directions.iter().find(|one| one.direction == direction)
}

/// Goodput of all directions together, bit/s.
pub(crate) fn total_rate(outcome: &TestOutcome) -> f64 {
    outcome.directions.iter().map(|one| show::finite(one.received_bits_per_s)).sum()
}

/// The sender's and the receiver's account of one direction.
pub(crate) fn ends_of(
    outcome: &TestOutcome,
    direction: Direction,
) -> (Option<&EndReport>, Option<&EndReport>) {
    let (near, far) = (Some(outcome.near()), outcome.far());
    if direction == Direction::Reverse { (far, near) } else { (near, far) }
}

/// Streams of one direction at one end.
pub(crate) fn streams_of(end: Option<&EndReport>, sending: bool) -> Vec<&StreamEnd> {
    end.map_or_else(Vec::new, |end| {
        end.streams.iter().filter(|stream| stream.sending == sending).collect()
    })
}

fn title_name(name: &str, otherwise: &str) -> String {
    let name = name.trim();
    show::clip(if name.is_empty() { otherwise } else { name }, NAME_CHARACTERS_MAX)
}
