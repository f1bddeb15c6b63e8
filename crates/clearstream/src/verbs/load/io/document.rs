//! What `io` measured as points of a results document.

use std::collections::BTreeMap;

use file_load::io::options::IoOptions;
use file_load::io::summary::{Access, Measured};
use file_load::team::Member;
use results::{
    Carried, Figure, FileIoWork, LatencySummary, Point, PointOutcome, TestOutcome, Work,
};

use crate::verbs::load::call::Call;
use crate::verbs::load::document::workers;

/// One row of a test as a point.
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
    }
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
