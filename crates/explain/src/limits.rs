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
pub(crate) use receive_window::{ReceiveWindow, window_law_off};
pub(crate) use return_path::ReturnPath;
pub(crate) use scheduler::Scheduler;
pub(crate) use segments::{Offloads, PathMtu};
pub(crate) use send_buffer::SendBuffer;
pub(crate) use shaper::{Shaper, udp_over_best};
pub(crate) use signals::{EcnMarks, Reordering, mistaken};

use units::{saturating_u64, show_bit_rate};

use crate::change::Change;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::observed::Observed;
use crate::thresholds::predictions;

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
    let high = rate * gain * predictions::SCALE_EXPECTED;
    let expected =
        (rate * gain).min(headroom.unwrap_or(f64::MAX)).max(rate * predictions::SCALE_EXPECTED);
    (to_count > from_count).then(|| Experiment {
        limit,
        change,
        predicted: Prediction::new(
            (rate * predictions::SCALE_LEAST).max(expected * predictions::SCALE_HALF),
            expected,
            high,
        ),
        rule: Rule::Scales,
    })
}

/// The change to several streams, which advice recommends where each stream has a limit of its own.
fn several_streams(seen: &Observed<'_>) -> Change {
    let from_count = seen.spec.streams.max(1);
    let to_count = from_count.saturating_mul(EXPERIMENT_STREAMS).min(1024);
    Change::MoreStreams { from_count, to_count }
}

/// What several streams carried, beside the judged test.
fn several_words(seen: &Observed<'_>) -> Option<String> {
    let (streams, several) = seen.several?;
    let (gain, together) = (seen.streams_gain()?, show_bit_rate(several.median));
    Some(format!("{streams} streams carry {together} together, {gain:.1} times as much"))
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
    let high = (rate * gain).max(rate * predictions::LIFT_MOST);
    let low = rate * predictions::LIFT_LEAST;
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
    let asked_bytes =
        buffer_bytes.map(|bytes| bytes / seen.streams() / predictions::WINDOW_OF_ASKED_MOST);
    let given = asked_bytes.and_then(|asked| crate::numbers::ratio(window_bytes, asked));
    let window_of_asked = given.unwrap_or(1.0).clamp(1.0, predictions::WINDOW_OF_ASKED_MOST);
    let rate = seen.rate();
    let wanted = headroom.map_or(predictions::WINDOW_GAIN_LEAST, |headroom| {
        (headroom / rate * predictions::WINDOW_WANTED)
            .clamp(predictions::WINDOW_GAIN_LEAST, predictions::WINDOW_GAIN_MOST)
    });
    [wanted, predictions::WINDOW_HALF]
        .into_iter()
        .map(|gain| {
            let expected =
                (rate * gain).min(headroom.unwrap_or(f64::MAX).max(rate * predictions::LIFT_LEAST));
            let ask_bytes = round_size(window_bytes * gain / window_of_asked);
            Experiment {
                limit,
                change: Change::Window {
                    from_bytes: saturating_u64(window_bytes),
                    to_bytes: saturating_u64(ask_bytes as f64 * window_of_asked),
                    ask_bytes,
                },
                predicted: Prediction::new(
                    expected * predictions::WINDOW_LOW,
                    expected,
                    rate * gain * predictions::WINDOW_HIGH,
                ),
                rule,
            }
        })
        .collect()
}

/// The change to segments of half the size; `None` if they cannot be halved.
fn halved_segments(seen: &Observed<'_>) -> Option<Change> {
    let from = seen.flow.mss_bytes?;
    let half = from * predictions::SEGMENTS_HALF;
    let bytes = |mss: f64| u32::try_from(saturating_u64(mss)).unwrap_or(u32::MAX);
    (half >= predictions::MSS_LEAST_BYTES).then(|| Change::SmallerSegments {
        from_bytes: bytes(from),
        to_bytes: bytes(half.min(predictions::MSS_MOST_BYTES)),
    })
}

/// Payload of an experiment's datagrams, bytes: the largest that the path carries whole.
fn datagram_bytes(seen: &Observed<'_>) -> u32 {
    let bytes = seen.path_mtu_bytes().map_or(predictions::DATAGRAM_USUAL_BYTES, |mtu| {
        (mtu - predictions::DATAGRAM_HEADER_BYTES)
            .clamp(predictions::DATAGRAM_LEAST_BYTES, predictions::DATAGRAM_MOST_BYTES)
    });
    u32::try_from(saturating_u64(bytes)).unwrap_or(u32::MAX)
}

/// Rounds to a multiple of 4 KiB with at most three significant binary digits.
fn round_size(bytes: f64) -> u64 {
    let bytes = bytes.clamp(predictions::WINDOW_STEP_BYTES, f64::from(1 << 30));
    let step = (bytes.log2().floor() - predictions::WINDOW_DIGITS)
        .exp2()
        .max(predictions::WINDOW_STEP_BYTES);
    saturating_u64((bytes / step).round() * step)
}
