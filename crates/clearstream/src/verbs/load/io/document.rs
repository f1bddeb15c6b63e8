//! Converts results of `io` to points of a results document.

use std::collections::BTreeMap;

use file_load::io::options::{IoOptions, Memory};
use file_load::io::summary::{Access, Measured};
use file_load::team::Member;
use results::{
    Carried, Figure, FileIoWork, LatencySummary, Point, PointOutcome, TestOutcome, Work,
};
use serde_json::Value;

use crate::verbs::load::call::Call;
use crate::verbs::load::document::{pattern, unusual, workers};

/// Converts one row of a test.
pub(super) fn point(
    call: &Call,
    started_unix_ms: u64,
    (number, options): (usize, &IoOptions),
    (one, carried): (&Measured, Option<&Carried>),
    members: &[Member],
) -> Point {
    Point {
        experiment: format!("{}-{number}", one.access.name()),
        varied: BTreeMap::new(),
        repeat: one.repetition,
        started_unix_ms,
        command: format!("clearstream io {}", call.words.join(" ")),
        work: Work::FileIo(work(options, one)),
        by: workers(members, one.access.name()),
        outcome: PointOutcome::Measured(Box::new(TestOutcome {
            carried: carried.cloned(),
            ..outcome(one)
        })),
    }
}

fn work(options: &IoOptions, one: &Measured) -> FileIoWork {
    let by = match (options.ring_depth, one.access) {
        (0, Access::Write) => "pwrite".to_owned(),
        (0, Access::Read) => "pread".to_owned(),
        (depth, _) => format!("io_uring, {depth} under way"),
    };
    FileIoWork {
        access: one.access.name().to_owned(),
        path: options.test_file.clone(),
        has_file_per_rank: options.file_per_task,
        ranks_count: one.ranks.len() as u64,
        block_bytes: options.block_bytes,
        transfer_bytes: options.transfer_bytes,
        segments_count: options.segment_count,
        by: if options.is_direct { by + ", O_DIRECT" } else { by },
        options: Some(changed(options)),
    }
}

/// What was asked for beyond the usual, and changes the load or what the caches hold when it begins.
fn changed(options: &IoOptions) -> BTreeMap<String, Value> {
    let (random, reorder) = (options.random_offset, options.random_reorder);
    let reads_others = options.reorders_tasks || reorder > 0;
    // Hosts to the rank whose file is read.
    let distance = if reads_others { options.task_offset } else { 0 };
    let (occupied, share) = match options.memory_per_node_bytes {
        Memory::Bytes(bytes) => (bytes, 0),
        Memory::Percent(percent) => (0, percent),
    };
    unusual([
        ("fsync", options.fsyncs.into()),
        ("fsync_after_each_write", options.fsyncs_each_write.into()),
        ("verification_after_writing", options.checks_write.into()),
        ("verification_of_reads", options.checks_read.into()),
        ("reads_of_another_rank", reads_others.into()),
        ("hosts_to_the_other_rank", distance.into()),
        ("reads_of_a_random_rank", (reorder == 1).into()),
        ("reads_of_permuted_ranks", (reorder > 1).into()),
        ("shuffled_offsets", (random == 1).into()),
        ("random_offsets", (random > 1).into()),
        ("prefill_bytes", options.prefill_bytes.into()),
        ("collective", options.is_collective.into()),
        ("barriers", options.has_barriers.into()),
        ("directory_per_rank", options.directory_per_task.into()),
        ("file_per_repetition", options.file_per_repetition.into()),
        ("existing_file_kept", options.keeps_existing_file.into()),
        ("range_locks", options.locks_ranges.into()),
        ("data", pattern(options.pattern)),
        ("delay_s", options.delay_s.into()),
        ("delay_of_each_transfer_s", (options.transfer_delay_us as f64 * 1e-6).into()),
        ("stonewall_s", options.stonewall_s.into()),
        ("stonewall_wears_out", options.wears_out.into()),
        ("stonewall_transfers", options.wear_out_count.into()),
        ("least_time_s", options.time_min_s.into()),
        ("memory_occupied_per_host_bytes", occupied.into()),
        ("memory_occupied_per_host_share", (share as f64 / 100.0).into()),
        ("memory_occupied_per_rank_bytes", options.memory_per_task_bytes.into()),
    ])
}

fn outcome(one: &Measured) -> TestOutcome {
    let mut figures = vec![
        Figure::new("moved_bytes_per_s", one.bytes_per_s()),
        Figure::new("transfers_per_s", one.iops),
        Figure::new("moved_bytes", one.moved_bytes as f64),
        Figure::new("open_s", one.open_s),
        Figure::new("transfer_s", one.transfer_s),
        Figure::new("close_s", one.close_s),
        Figure::new("total_s", one.total_s),
        Figure::new("best_rank_mean_latency_s", one.best_mean_latency_s),
        Figure::new("cpu_s", one.cpu_s),
    ];
    if let Some(stonewall) = one.stonewall {
        figures.push(Figure::new("stonewall_s", stonewall.time_s));
        figures.push(Figure::new("stonewall_bytes", stonewall.bytes_mean as f64));
    }
    figures.retain(|figure| figure.value.is_finite());
    TestOutcome {
        duration_s: one.total_s,
        figures,
        round_trips: LatencySummary::of(&one.latencies, "file call"),
        ..TestOutcome::default()
    }
}
