//! What the points of a placement sweep say together.

use results::{
    End, Estimate, Machine, PlacedPair, PlacementFindings, Point, Proximity, RelationFigure,
};

use super::figures::{CHANCE_MAX, Group, groups, is_clearly_better, ranked};
use super::rank::{chance_of_being_better, least_chance};
use super::{LOOK, Metric, Survey};

/// A gain below this share is not worth a pinned thread, however sure it is.
const GAIN_MIN: f64 = 0.02;
/// Fewer repeats say nothing about noise.
const REPEATS_MIN: usize = 3;

/// The cores that served the flow's queue at the near and the far end while nothing was pinned;
/// `None` where nobody said, or where it was not the same one every time.
#[must_use]
pub fn incoming_cores<'p>(
    points: impl IntoIterator<Item = &'p Point>,
) -> (Option<u32>, Option<u32>) {
    let mut seen: (Vec<Option<u32>>, Vec<Option<u32>>) = (Vec::new(), Vec::new());
    for point in points.into_iter().filter(|point| point.experiment == LOOK) {
        seen.0.push(incoming_core(point, End::Near));
        seen.1.push(incoming_core(point, End::Far));
    }
    let same = |cores: Vec<Option<u32>>| {
        let first = cores.first().copied().flatten()?;
        cores.iter().all(|core| *core == Some(first)).then_some(first)
    };
    (same(seen.0), same(seen.1))
}

/// The core on which one end's packets of the first stream came in.
fn incoming_core(point: &Point, end: End) -> Option<u32> {
    let outcome = point.measured()?;
    let report = match end {
        End::Near => outcome.near(),
        End::Far => outcome.far()?,
    };
    report.streams.first()?.incoming_core
}

/// What the sweep found; `None` when no placement was measured.
///
/// The best is better than no pinning only when the difference is beyond the noise (exact rank
/// test, stricter the more placements had a chance to be best) and worth having.
#[must_use]
pub fn conclude(survey: &Survey<'_>, points: &[Point]) -> Option<PlacementFindings> {
    let metric = Metric::of(&survey.spec);
    let groups = groups(points, metric);
    let ranked = ranked(&groups, metric);
    let best = *ranked.first()?;
    let unpinned = groups.iter().find(|group| group.is_unpinned());
    let versus = unpinned.map(|unpinned| Versus::of(best, unpinned, ranked.len(), metric));
    let ties = ranked.iter().skip(1).filter(|group| !is_clearly_better(best, group, metric));
    let (near_incoming_core, far_incoming_core) = incoming_cores(points);
    let mut relations = relations(survey.near.machine, &ranked, End::Near);
    relations.extend(relations_of_far(survey, &ranked));
    let mut measured: Vec<(u32, u32)> = ranked
        .iter()
        .filter_map(|group| group.place())
        .map(|place| (place.near_core, place.far_core))
        .collect();
    measured.sort_unstable();
    measured.dedup();
    Some(PlacementFindings {
        direction: survey.spec.direction,
        figure: metric.figure().to_owned(),
        more_is_better: metric.more_is_better(),
        unpinned: unpinned.and_then(|group| Estimate::of(&group.values)),
        best: best.place()?,
        ties: ties.filter_map(|group| group.place()).collect::<Vec<PlacedPair>>(),
        beats_unpinned: versus.as_ref().is_some_and(|versus| versus.is_better),
        gain: versus.as_ref().map(|versus| versus.gain),
        chance: versus.as_ref().map(|versus| versus.chance),
        near_incoming_core,
        far_incoming_core,
        relations,
        pairs_count: survey.pairs_count(),
        measured_pairs_count: measured.len() as u64,
        advice: Vec::new(),
    })
}

/// The best placement against none.
struct Versus {
    is_better: bool,
    gain: f64,
    chance: f64,
}

impl Versus {
    fn of(best: &Group<'_>, unpinned: &Group<'_>, candidates: usize, metric: Metric) -> Self {
        let (with, without) = (best.median(), unpinned.median());
        let gain = match metric.more_is_better() {
            true => with / without - 1.0,
            false => without / with - 1.0,
        };
        let chance =
            chance_of_being_better(&best.values, &unpinned.values, metric.more_is_better());
        // Whichever came out best is compared, so each of them had its chance.
        let strict = CHANCE_MAX / candidates.max(1) as f64;
        let least = least_chance(best.values.len(), unpinned.values.len());
        let enough = best.values.len().min(unpinned.values.len()) >= REPEATS_MIN;
        let is_better =
            enough && gain >= GAIN_MIN && chance <= strict.max(least * 1.000_001) && chance < 0.1;
        Self { is_better, gain: if gain.is_finite() { gain } else { 0.0 }, chance }
    }
}

fn relations_of_far(survey: &Survey<'_>, ranked: &[&Group<'_>]) -> Vec<RelationFigure> {
    let machine = survey.far.machine.or(survey.near.machine.filter(|_| survey.shares_machine));
    relations(machine, ranked, End::Far)
}

/// For each step of distance between thread and queue, the best placement at it.
fn relations(machine: Option<&Machine>, ranked: &[&Group<'_>], end: End) -> Vec<RelationFigure> {
    let mut found: Vec<RelationFigure> = Vec::new();
    for group in ranked {
        let Some((proximity, core, estimate)) = relation(machine, group, end) else { continue };
        // Best first: what comes later only counts.
        match found.iter_mut().find(|known| known.proximity == proximity) {
            Some(known) => known.placements_count += 1,
            None => {
                let placements_count = 1;
                found.push(RelationFigure { end, proximity, estimate, core, placements_count });
            }
        }
    }
    found.sort_by_key(|one| one.proximity);
    found
}

fn relation(
    machine: Option<&Machine>,
    group: &Group<'_>,
    end: End,
) -> Option<(Proximity, u32, Estimate)> {
    let place = group.place()?;
    let core = if end == End::Near { place.near_core } else { place.far_core };
    let incoming: Vec<u32> =
        group.points.iter().filter_map(|point| incoming_core(point, end)).collect();
    let first = *incoming.first()?;
    // A queue that moved about while this was measured has no place.
    if incoming.iter().any(|other| *other != first) {
        return None;
    }
    let proximity =
        if first == core { Proximity::SameCore } else { machine?.proximity(first, core)? };
    Some((proximity, core, place.estimate))
}
