//! Converts results of `meta` to points of a results document.

use std::collections::BTreeMap;

use file_load::meta::options::MetaOptions;
use file_load::meta::summary::{Iteration, PHASES, Phase};
use file_load::team::Member;
use results::{
    Carried, Figure, FileMetadataWork, LatencySummary, Point, PointOutcome, TestOutcome, Work,
};
use serde_json::Value;

use crate::verbs::load::call::Call;
use crate::verbs::load::document::{pattern, unusual, workers};

/// Converts the phases of one iteration.
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
        options: Some(changed(options, phase)),
    }
}

/// What was asked for beyond the usual, and changes the load or what it works on.
fn changed(options: &MetaOptions, phase: Phase) -> BTreeMap<String, Value> {
    // Of the creation it is what the work itself tells.
    let held = if phase == Phase::FileCreation { 0 } else { options.write_bytes };
    let branches = if options.branches == 1 { 0 } else { options.branches };
    let command = |command: &Option<String>| Value::from(command.clone().unwrap_or_default());
    unusual([
        ("branches", branches.into()),
        ("depth", options.depth.into()),
        ("items_per_directory", options.items_per_directory.into()),
        ("leaves_only", options.leaves_only.into()),
        ("tree_per_rank", options.tree_per_task.into()),
        ("time_to_reach_the_tree_counts", options.times_directories.into()),
        ("shared_names", options.is_shared.into()),
        ("stride", options.stride.into()),
        ("random_order", options.is_random.into()),
        ("rank_0_creates_for_all", options.is_collective.into()),
        ("mknod", options.makes_nodes.into()),
        ("no_barriers", options.has_no_barriers.into()),
        ("fsync", options.fsyncs.into()),
        ("sync_after_each_phase", options.syncs_phases.into()),
        ("direct", options.is_direct.into()),
        ("verification_after_writing", options.verifies_writes.into()),
        ("verification_of_reads", options.verifies_reads.into()),
        ("data", pattern(options.pattern)),
        ("content_of_each_file_bytes", held.into()),
        ("delay_s", options.delay_s.into()),
        ("stonewall_s", options.stonewall_s.into()),
        ("command_before_each_phase", command(&options.command_before)),
        ("command_after_each_phase", command(&options.command_after)),
    ])
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
