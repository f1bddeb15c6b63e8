//! Holding a run against its gates.

use std::collections::BTreeMap;

use results::{GateResult, LatencySummary, Point, PointOutcome, Protocol, Results, Verdict};

use super::figure::{Known, LOSS, Work};
use super::{Bound, Demand, Gate, Requirement};
use units::count_of;

/// What a gate is held against.
#[derive(Debug, Clone, Copy)]
pub struct Judged<'a> {
    /// The points of the run.
    pub points: &'a [Point],
    /// Round trips of the idle path.
    pub idle_rtt: Option<&'a LatencySummary>,
    /// What binds the path.
    pub verdict: Option<&'a Verdict>,
    /// Why the run is not complete.
    pub partial: Option<&'a str>,
    /// Places in which verified data was not what had been written; absent where none was verified.
    pub wrong_data_count: Option<u64>,
}

impl<'a> Judged<'a> {
    /// A run that moved data between hosts.
    #[must_use]
    pub fn of(results: &'a Results) -> Self {
        Self {
            points: &results.points,
            idle_rtt: results.path.idle_rtt.as_ref(),
            verdict: results.verdict.as_ref(),
            partial: results.partial.as_deref(),
            wrong_data_count: None,
        }
    }

    /// The points of each setting, in the order of their first.
    fn groups(self, work: Work) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        let wanted = |point: &&Point| !point.is_confirmation() && work.is_of(&point.experiment);
        for point in self.points.iter().filter(wanted) {
            let is_same =
                |group: &&mut Group<'a>| (group.experiment, group.varied) == key_of(point);
            let group = match groups.iter_mut().find(is_same) {
                Some(group) => group,
                None => {
                    let (experiment, varied) = key_of(point);
                    groups.push(Group { experiment, varied, points: Vec::new() });
                    groups.last_mut().expect("just pushed")
                }
            };
            group.points.push(point);
        }
        groups
    }
}

fn key_of(point: &Point) -> (&str, &BTreeMap<String, f64>) {
    (&point.experiment, &point.varied)
}

/// Repeats of one setting.
struct Group<'a> {
    experiment: &'a str,
    varied: &'a BTreeMap<String, f64>,
    points: Vec<&'a Point>,
}

impl Group<'_> {
    /// Name, repeats and median of each of the figures that was measured.
    fn medians(&self, known: &Known) -> Vec<(&'static str, usize, f64)> {
        let median = |name: &&'static str| {
            let figures = self.points.iter().flat_map(|point| point.figures());
            let values: Vec<f64> =
                figures.filter(|figure| figure.name == *name).map(|one| one.value).collect();
            Some((*name, values.len(), stats::median(&values)?))
        };
        known.figures.iter().filter_map(median).collect()
    }

    /// Median of the repeats' largest possible loss, in the direction where it is larger.
    fn lost_share_max(&self) -> Option<f64> {
        let of = |point: &&Point| {
            let spec = point.spec()?;
            let directions = point.measured()?.directions.iter();
            let shares = directions.filter_map(|one| one.udp.as_ref()?.lost_share_max(spec));
            shares.reduce(f64::max)
        };
        stats::median(&self.points.iter().filter_map(of).collect::<Vec<f64>>())
    }
}

impl Gate {
    /// Whether the run meets the gate: a result for each figure that it concerns, and one that is
    /// missed where nothing was measured.
    #[must_use]
    pub fn judge(&self, judged: Judged<'_>) -> Vec<GateResult> {
        match &self.demand {
            Demand::Figure { known, work, bound, value } => {
                self.of_figure(known, *work, (*bound, *value), judged)
            }
            Demand::Requirement(requirement, work) => {
                vec![self.required(*requirement, *work, judged)]
            }
        }
    }

    fn of_figure(
        &self,
        known: &Known,
        work: Work,
        bound: (Bound, f64),
        judged: Judged<'_>,
    ) -> Vec<GateResult> {
        let mut results = Vec::new();
        for group in judged.groups(work) {
            let figures = group.medians(known);
            let has_ways = figures.len() > 1;
            results.extend(figures.into_iter().map(|(name, count, median)| {
                let place = Place { experiment: group.experiment, name, has_ways, count };
                self.held(known, bound, median, place)
            }));
        }
        // A test's own round trips, where it has some, are not replaced by others that were better.
        let asks_idle_path = match work {
            Work::IdlePath => true,
            Work::OrIdlePath => results.is_empty() && samples_max(known, work, judged).is_none(),
            _ => false,
        };
        if asks_idle_path {
            results.extend(self.of_idle_path(known, bound, judged.idle_rtt));
        }
        if known.name == LOSS && results.iter().all(|result| result.is_met) {
            let groups = judged.groups(work);
            let shares = groups.iter().filter_map(Group::lost_share_max);
            let beyond = shares.filter(|_| bound.0 == Bound::AtMost).find(|&share| share > bound.1);
            results.extend(beyond.map(|share| {
                let up_to = known.quantity.show(share);
                let text = format!("{LOSS} may be up to {up_to}: that share {NOT_ARRIVED}");
                GateResult { required: Some(bound.1), measured: Some(share), ..self.missed(text) }
            }));
        }
        if results.is_empty() {
            let why = too_few(known, work, judged).unwrap_or_else(|| known.absent.to_owned());
            let text = format!("{} was not measured: {why}", known.name);
            results.push(GateResult { required: Some(bound.1), ..self.missed(text) });
        }
        results
    }

    fn of_idle_path(
        &self,
        known: &Known,
        bound: (Bound, f64),
        idle_rtt: Option<&LatencySummary>,
    ) -> Option<GateResult> {
        let name = known.figures.first()?;
        let percentile = name.strip_prefix("rtt_p")?.strip_suffix("_s")?.parse().ok()?;
        let value = idle_rtt?.percentile_s(percentile).filter(|value| value.is_finite())?;
        let place = Place { experiment: IDLE_PATH, name, has_ways: false, count: 1 };
        Some(self.held(known, bound, value, place))
    }

    /// A figure against its bound.
    fn held(
        &self,
        known: &Known,
        (bound, required): (Bound, f64),
        value: f64,
        place: Place<'_>,
    ) -> GateResult {
        let (is_met, beyond) = match bound {
            Bound::AtLeast => (value >= required, "below"),
            Bound::AtMost => (value <= required, "above"),
        };
        let way = match place.has_ways {
            false => "",
            true if place.name.starts_with("reverse") => "reverse ",
            true => "forward ",
        };
        let show = |value| known.quantity.show(value);
        let is = if is_met { "not " } else { "" };
        let text = format!(
            "{way}{} {} is {is}{beyond} {} ({})",
            known.name,
            show(value),
            show(required),
            place.words()
        );
        GateResult {
            is_met,
            experiment: Some(place.experiment.to_owned()),
            figure: Some(place.name.to_owned()),
            required: Some(required),
            measured: Some(value),
            repeats_count: u32::try_from(place.count).unwrap_or(u32::MAX),
            ..self.missed(text)
        }
    }

    fn missed(&self, text: String) -> GateResult {
        GateResult {
            gate: self.text.clone(),
            is_met: false,
            experiment: None,
            figure: None,
            required: None,
            measured: None,
            repeats_count: 0,
            text,
        }
    }

    fn required(&self, requirement: Requirement, work: Work, judged: Judged<'_>) -> GateResult {
        let of = (judged, work);
        let told = |(is_met, text): (bool, String)| GateResult { is_met, ..self.missed(text) };
        match requirement {
            Requirement::NoLoss => self.no_loss(of),
            Requirement::NoReordering => {
                self.none("reordered datagram", reordered_count, UDP_ABSENT, of)
            }
            Requirement::NoRetransmissions => {
                self.none("retransmission", retransmits_count, TCP_ABSENT, of)
            }
            Requirement::NoFailedCalls => {
                self.none("failed call", failed_calls_count, "no phase was run", of)
            }
            Requirement::Confirmed => told(confirmed(judged.verdict)),
            Requirement::Complete => told(complete(judged)),
            Requirement::Verified => told(match judged.wrong_data_count {
                None => (false, "no data was verified: the options ask for no check".to_owned()),
                Some(0) => (true, "the data that was read is what had been written".to_owned()),
                Some(wrong) => (false, format!("{wrong} places held other data than was written")),
            }),
        }
    }

    /// No loss is known, and no more than usual had not arrived by the end.
    fn no_loss(&self, of: (Judged<'_>, Work)) -> GateResult {
        let lost = self.none("lost datagram", lost_count, LOSS_ABSENT, of);
        let undecided = self.none("datagram", undecided_count, LOSS_ABSENT, of);
        match undecided.measured {
            Some(count) if lost.is_met && count > 0.0 => {
                let count = count_of(units::saturating_u64(count), "datagram");
                let text = format!("no datagram is known to be lost, but {count} {NOT_ARRIVED}");
                GateResult { text, ..undecided }
            }
            _ => lost,
        }
    }

    /// No repeat may have counted any.
    fn none(
        &self,
        what: &str,
        count: fn(&Point) -> Option<u64>,
        absent: &str,
        (judged, work): (Judged<'_>, Work),
    ) -> GateResult {
        let points = judged.points.iter().filter(|point| !point.is_confirmation());
        let counted: Vec<(&str, u64)> = points
            .filter(|point| work.is_of(&point.experiment))
            .filter_map(|point| Some((point.experiment.as_str(), count(point)?)))
            .collect();
        let Some((experiment, worst)) = counted.iter().copied().max_by_key(|(_, count)| *count)
        else {
            return self.missed(format!("{what}s were not counted: {absent}"));
        };
        let repeats = counted.len();
        let runs = count_of(repeats as u64, "run");
        let text = match worst {
            0 => format!("no {what} in {runs}"),
            many if repeats == 1 => format!("{} ({experiment}, 1 run)", count_of(many, what)),
            many => format!("{} ({experiment}, the worst of {runs})", count_of(many, what)),
        };
        GateResult {
            is_met: worst == 0,
            experiment: (worst > 0).then(|| experiment.to_owned()),
            required: Some(0.0),
            measured: Some(worst as f64),
            repeats_count: u32::try_from(repeats).unwrap_or(u32::MAX),
            ..self.missed(text)
        }
    }
}

/// What a figure is a percentile of, and which: `loaded_rtt`, 99.9.
pub(super) fn percentile_of(known: &Known) -> Option<(&'static str, f64)> {
    let (kind, percentile) = known.figures.first()?.rsplit_once("_p")?;
    Some((kind, percentile.strip_suffix("_s")?.parse().ok()?))
}

/// The most round trips that one of the tests measured, of the kind that the figure is about; absent
/// where no test measured any.
fn samples_max(known: &Known, work: Work, judged: Judged<'_>) -> Option<u64> {
    let (kind, _) = percentile_of(known)?;
    let is_loaded = kind.starts_with("loaded");
    let groups = judged.groups(work);
    let outcomes = groups.iter().flat_map(|group| &group.points).filter_map(|one| one.measured());
    let counts = outcomes.filter_map(|outcome| match is_loaded {
        true => Some(outcome.latency_under_load.as_ref()?.count),
        false => {
            let exchanged = outcome.request_response.as_ref().map(|one| one.latency.count);
            exchanged.or_else(|| Some(outcome.round_trips.as_ref()?.count))
        }
    });
    counts.max()
}

/// Why a percentile is absent though round trips were measured: they are too few for it.
fn too_few(known: &Known, work: Work, judged: Judged<'_>) -> Option<String> {
    let (_, percentile) = percentile_of(known)?;
    let least = stats::percentile_count_min(percentile);
    let is_idle = matches!(work, Work::IdlePath | Work::OrIdlePath);
    let idle = judged.idle_rtt.filter(|_| is_idle).map(|rtt| rtt.count);
    let most = samples_max(known, work, judged).or(idle).filter(|count| *count < least)?;
    Some(format!("n too small: p{percentile} needs {least} samples, there are {most}"))
}

/// What round trips of the idle path are called where an experiment is named.
const IDLE_PATH: &str = "idle path";
pub(super) const LOSS_ABSENT: &str =
    "only UDP tests count them; of TCP, --require no-retransmissions";
pub(super) const UDP_ABSENT: &str = "only UDP bulk tests do";
pub(super) const TCP_ABSENT: &str = "only TCP bulk tests do";

/// What is said of datagrams that are neither received nor known to be lost.
const NOT_ARRIVED: &str = "had not arrived by the end (lost or still in a queue)";

/// Where a judged figure comes from.
struct Place<'a> {
    experiment: &'a str,
    name: &'a str,
    /// Whether both directions have this figure.
    has_ways: bool,
    count: usize,
}

impl Place<'_> {
    /// `single-stream, median of 5`.
    fn words(&self) -> String {
        let of =
            if self.count == 1 { "1 run".to_owned() } else { format!("median of {}", self.count) };
        match self.experiment {
            "test" => of,
            IDLE_PATH => IDLE_PATH.to_owned(),
            experiment => format!("{experiment}, {of}"),
        }
    }
}

fn lost_count(point: &Point) -> Option<u64> {
    let outcome = point.measured()?;
    let unanswered = || {
        let is_udp = point.spec().is_some_and(|spec| spec.protocol == Protocol::Udp);
        outcome.request_response.as_ref().filter(|_| is_udp).map(|one| one.timeouts_count)
    };
    let lost = outcome.directions.iter().filter_map(|one| Some(one.udp.as_ref()?.lost_count));
    lost.reduce(u64::saturating_add).or_else(unanswered)
}

fn undecided_count(point: &Point) -> Option<u64> {
    let (spec, outcome) = (point.spec()?, point.measured()?);
    let undecided =
        outcome.directions.iter().filter_map(|one| Some(one.udp.as_ref()?.undecided_count(spec)));
    undecided.reduce(u64::saturating_add)
}

fn reordered_count(point: &Point) -> Option<u64> {
    let directions = &point.measured()?.directions;
    let late = directions.iter().filter_map(|one| Some(one.udp.as_ref()?.reordered_count));
    late.reduce(u64::saturating_add)
}

fn retransmits_count(point: &Point) -> Option<u64> {
    let directions = &point.measured()?.directions;
    directions.iter().filter_map(|one| one.retransmits_count).reduce(u64::saturating_add)
}

fn failed_calls_count(point: &Point) -> Option<u64> {
    let figures = &point.measured()?.figures;
    let figure = figures.iter().find(|figure| figure.name == "failed_calls_count")?;
    Some(units::saturating_u64(figure.value))
}

fn confirmed(verdict: Option<&Verdict>) -> (bool, String) {
    let Some(verdict) = verdict else {
        return (false, "there is no verdict to confirm".to_owned());
    };
    let limit = verdict.limit.name();
    match (verdict.confirmed, &verdict.confirmation) {
        (true, _) => (true, format!("the verdict {limit} is confirmed by experiment")),
        (false, Some(_)) => {
            (false, format!("the verdict {limit} is not confirmed by its experiment"))
        }
        (false, None) => {
            (false, format!("the verdict {limit} is not confirmed: no experiment was run"))
        }
    }
}

fn complete(judged: Judged<'_>) -> (bool, String) {
    let is_failed = |point: &&Point| matches!(point.outcome, PointOutcome::Failed(_));
    let failed = judged.points.iter().filter(is_failed).count();
    let all = judged.points.len();
    match (judged.partial, failed) {
        (Some(why), _) => (false, format!("the run is not complete: {why}")),
        (None, 0) if all == 1 => (true, "the test was measured".to_owned()),
        (None, 0) => (true, format!("all {all} tests were measured")),
        (None, _) => (false, format!("{failed} of {} failed", count_of(all as u64, "test"))),
    }
}
