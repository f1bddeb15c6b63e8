//! The mechanism of each limit, one module each.

mod applications;
mod buses;
mod causes;
mod congestion_control;
mod cores;
mod cpu_quota;
mod cross_traffic;
mod drops;
mod interrupt_core;
mod link_rate;
mod loss;
mod loss_recovery;
mod pacing;
mod placement;
mod policer;
mod power;
mod receive_window;
mod return_path;
mod scheduler;
mod segments;
mod send_buffer;
mod shaper;
mod signals;
mod windows;

pub(crate) use applications::{ReceivingApplication, SendingApplication};
pub(crate) use buses::{MemoryBandwidth, Pcie};
pub(crate) use congestion_control::CongestionControl;
pub(crate) use cores::{ReceiverCore, SenderCore};
pub(crate) use cpu_quota::CpuQuota;
pub(crate) use cross_traffic::CrossTraffic;
pub(crate) use drops::{Qdisc, RingOverrun, SoftnetBacklog};
pub(crate) use interrupt_core::InterruptCore;
pub(crate) use link_rate::LinkRate;
pub(crate) use loss::Loss;
pub(crate) use loss_recovery::LossRecovery;
pub(crate) use pacing::Pacing;
pub(crate) use placement::Placement;
pub(crate) use policer::Policer;
pub(crate) use power::{CpuFrequency, IdleStates};
pub(crate) use receive_window::ReceiveWindow;
pub(crate) use return_path::ReturnPath;
pub(crate) use scheduler::Scheduler;
pub(crate) use segments::{Offloads, PathMtu};
pub(crate) use send_buffer::SendBuffer;
pub(crate) use shaper::Shaper;
pub(crate) use signals::{EcnMarks, Reordering};

use units::saturating_u64;

use crate::change::Change;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::observed::Observed;

/// Streams of an experiment that splits the work: enough to tell a per-stream limit from one of the path.
const EXPERIMENT_STREAMS: u32 = 4;

/// An experiment with more streams, for a limit that applies to each stream separately.
fn more_streams(
    limit: results::Limit,
    seen: &Observed<'_>,
    headroom: Option<f64>,
) -> Option<Experiment> {
    let change = several_streams(seen);
    let Change::MoreStreams { from_count, to_count } = change else { return None };
    let gain = f64::from(to_count) / f64::from(from_count);
    let rate = seen.rate();
    let high = rate * gain * 1.3;
    let expected = (rate * gain).min(headroom.unwrap_or(f64::MAX)).max(rate * 1.3);
    (to_count > from_count).then(|| Experiment {
        limit,
        change,
        predicted: Prediction::new((rate * 1.25).max(expected * 0.5), expected, high),
        rule: Rule::Scales,
    })
}

/// The change to several streams, which advice recommends where each stream has a limit of its own.
fn several_streams(seen: &Observed<'_>) -> Change {
    let from_count = seen.spec.streams.max(1);
    let to_count = from_count.saturating_mul(EXPERIMENT_STREAMS).min(1024);
    Change::MoreStreams { from_count, to_count }
}

/// An experiment that lifts only this limit; `gain` is the largest expected factor.
fn lifted(
    limit: results::Limit,
    seen: &Observed<'_>,
    change: Change,
    gain: f64,
    headroom: Option<f64>,
) -> Experiment {
    let rate = seen.rate();
    let high = (rate * gain).max(rate * 1.1);
    let low = rate * 1.05;
    let expected = headroom.unwrap_or((low * high).sqrt());
    Experiment { limit, change, predicted: Prediction::new(low, expected, high), rule: Rule::Lifts }
}

/// Experiments for a limit that is a window: a wider one, then (if the kernel grants no wider one) half of
/// it; throughput must follow each. `window_bytes` is the window in effect, `buffer_bytes` the kernel's
/// buffer that holds it, both summed over all streams.
fn other_windows(
    limit: results::Limit,
    rule: Rule,
    seen: &Observed<'_>,
    (window_bytes, buffer_bytes): (Option<f64>, Option<f64>),
    headroom: Option<f64>,
) -> Vec<Experiment> {
    let Some(window_bytes) = window_bytes.map(|bytes| bytes / seen.streams()) else {
        return Vec::new();
    };
    // The kernel doubles the requested size; at least half of that is window.
    let asked_bytes = buffer_bytes.map(|bytes| bytes / seen.streams() / 2.0);
    let given = asked_bytes.and_then(|asked| crate::numbers::ratio(window_bytes, asked));
    let window_of_asked = given.unwrap_or(1.0).clamp(1.0, 2.0);
    let rate = seen.rate();
    let wanted = headroom.map_or(2.0, |headroom| (headroom / rate * 1.2).clamp(2.0, 4.0));
    [wanted, 0.5]
        .into_iter()
        .map(|gain| {
            let expected = (rate * gain).min(headroom.unwrap_or(f64::MAX).max(rate * 1.05));
            let ask_bytes = round_size(window_bytes * gain / window_of_asked);
            Experiment {
                limit,
                change: Change::Window {
                    from_bytes: saturating_u64(window_bytes),
                    to_bytes: saturating_u64(ask_bytes as f64 * window_of_asked),
                    ask_bytes,
                },
                predicted: Prediction::new(expected * 0.8, expected, rate * gain * 1.2),
                rule,
            }
        })
        .collect()
}

/// Rounds to a multiple of 4 KiB with at most three significant binary digits.
fn round_size(bytes: f64) -> u64 {
    let bytes = bytes.clamp(4096.0, f64::from(1 << 30));
    let step = (bytes.log2().floor() - 3.0).exp2().max(4096.0);
    saturating_u64((bytes / step).round() * step)
}
