//! What `meta` measured as points of a results document.

use std::collections::BTreeMap;

use file_load::meta::options::MetaOptions;
use file_load::meta::summary::{Iteration, PHASES, Phase};
use file_load::team::Member;
use results::{
    Carried, Figure, FileMetadataWork, LatencySummary, Point, PointOutcome, TestOutcome, Work,
};

use crate::verbs::load::call::Call;
use crate::verbs::load::document::workers;

/// The phases of one iteration as points.
pub(super) fn points(
    call: &Call,
    started_unix_ms: u64,
    options: &MetaOptions,
    (number, one, carried): (u32, &Iteration, &[(&'static str, Carried)]),
    members: &[Member],
) -> Vec<Point> {
    let carried = |phase: Phase| {
        let found = carried.iter().find(|(name, _)| *name == phase.name());
        found.map(|(_name, carried)| carried.clone())
    };
    let point = |phase: Phase| Point {
        experiment: phase.name().to_lowercase().replace(' ', "-"),
        varied: BTreeMap::from([("ranks_count".to_owned(), one.ranks.len() as f64)]),
        repeat: number,
        started_unix_ms,
        command: format!("clearstream meta {}", call.words.join(" ")),
        work: Work::FileMetadata(work(options, phase, one)),
        by: workers(members, &phase.name().to_lowercase()),
        outcome: PointOutcome::Measured(Box::new(TestOutcome {
            carried: carried(phase),
            ..outcome(phase, one)
        })),
    };
    PHASES.into_iter().filter(|phase| one.has(*phase)).map(point).collect()
}

fn work(options: &MetaOptions, phase: Phase, one: &Iteration) -> FileMetadataWork {
    let file_bytes = match phase {
        Phase::FileCreation => options.write_bytes,
        Phase::FileRead => options.read_bytes,
        _ => 0,
    };
    FileMetadataWork {
        phase: phase.name().to_owned(),
        path: options.directory.clone(),
        ranks_count: one.ranks.len() as u64,
        items_count: one.items(phase),
        file_bytes,
    }
}

fn outcome(phase: Phase, one: &Iteration) -> TestOutcome {
    let mut figures = vec![
        Figure::new("items_per_s", one.rate(phase)),
        Figure::new("items_count", one.items(phase) as f64),
        Figure::new("total_s", one.time_s(phase)),
        Figure::new("failed_calls_count", one.failed_calls[phase.place()] as f64),
    ];
    if let (Phase::FileCreation, Some(stonewall)) = (phase, one.stonewall) {
        figures.push(Figure::new("stonewall_s", stonewall.time_s));
        figures.push(Figure::new("stonewall_items_count", stonewall.items_all as f64));
    }
    figures.retain(|figure| figure.value.is_finite());
    let latencies = one.latencies.get(phase.place());
    TestOutcome {
        duration_s: one.time_s(phase),
        figures,
        round_trips: latencies.and_then(|times| LatencySummary::of(times, "file call")),
        ..TestOutcome::default()
    }
}
