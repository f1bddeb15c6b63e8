//! The threads of emulated lines.

use std::thread;

use packet_switch::line::{Line, SharedReport};
use ports::{Sink, Source};
use switch::lightpath::Lightpath;

use crate::LabError;
use crate::anchor::log;
use crate::plan::DirectionPlan;

/// Starts the thread of one direction between two ends.
pub(crate) fn start<From, To>(
    name: String,
    (from, to): (From, To),
    plan: &DirectionPlan,
    cores: &[u32],
    few_cores: bool,
) -> Result<SharedReport, LabError>
where
    From: Source + Send + 'static,
    To: Sink + Send + 'static,
{
    let path = Lightpath::new(plan.config())
        .map_err(|error| LabError::NotStarted(format!("link: {error}")))?;
    let shared = SharedReport::default();
    let mut line = Line::new(from, to, path, in_flight_bytes_max(plan), shared.clone());
    if few_cores {
        line.batch_bulk();
    }
    let cores = cores.to_vec();
    thread::Builder::new()
        .name(name)
        .spawn(move || run(line, &cores))
        .map_err(|source| LabError::Spawn { program: "link thread".to_owned(), source })?;
    Ok(shared)
}

fn run(line: Line<impl Source, impl Sink>, cores: &[u32]) {
    // The link stands for hardware: programs that keep all cores busy must not make it late. Where
    // this user may not ask for it, frames are late on busy cores, which their lateness shows.
    sys::process::run_before_others().ok();
    let prepared = sys::thread::timer_slack_ns(1).and_then(|()| match cores {
        [] => Ok(()),
        cores => sys::thread::pin_current(cores),
    });
    if let Err(error) = prepared {
        log(&format!("link thread: {error}: {}", error.source));
    }
    if let Err(error) = line.run() {
        log(&format!("link thread ended: {error}"));
    }
}

/// Bytes of frames that a direction may hold: what fits on the fibre and into the queue, doubled
/// for the virtual buffers' rounding, within reason.
fn in_flight_bytes_max(plan: &DirectionPlan) -> usize {
    const LEAST: u64 = 64 << 20;
    const MOST: u64 = 1 << 30;
    let rate = plan.rate_bits_per_s.unwrap_or(100_000_000_000) as f64;
    let seconds = (plan.delay_ns + 3 * plan.jitter_ns + plan.reorder_by_ns) as f64 * 1e-9;
    let on_fibre = units::bandwidth_delay_product_bytes(rate, seconds);
    let bytes = on_fibre.saturating_add(plan.queue_bytes.unwrap_or(MOST)).saturating_mul(2);
    usize::try_from(bytes.clamp(LEAST, MOST)).unwrap_or(usize::MAX)
}
