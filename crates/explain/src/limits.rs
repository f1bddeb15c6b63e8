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
mod losses;
mod others;
mod pacing;
mod packet_core;
mod placement;
mod plateau;
mod policer;
mod power;
mod processor;
mod receive_window;
mod return_path;
mod scheduler;
mod segments;
mod send_buffer;
mod shaper;
mod signals;
mod steal;
mod trials;
mod virtual_device;
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
pub(crate) use losses::{loaded_rtt_s, mistaken};
pub(crate) use pacing::Pacing;
pub(crate) use placement::Placement;
pub(crate) use plateau::udp_over_best;
pub(crate) use policer::Policer;
pub(crate) use power::{CpuFrequency, IdleStates};
pub(crate) use receive_window::ReceiveWindow;
pub(crate) use return_path::ReturnPath;
pub(crate) use scheduler::Scheduler;
pub(crate) use segments::{Offloads, PathMtu};
pub(crate) use send_buffer::SendBuffer;
pub(crate) use shaper::Shaper;
pub(crate) use signals::{EcnMarks, Reordering};
pub(crate) use steal::Steal;
pub(crate) use windows::{congestion_window_use, window_law_off};

use results::WindowSide;
use units::{saturating_u64, show_bit_rate};

use crate::change::Change;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::observed::Observed;
use crate::symptoms::names;
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
    let (gain, together) = (seen.streams_gain()?, show_bit_rate(seen.together_bits_per_s()?));
    let streams = seen.shown().path(names::STREAMS)?;
    Some(format!("{streams:.0} streams carry {together} together, {gain:.1} times as much"))
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
                    side: only_one(seen, limit),
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

/// The side whose buffer a window limit is; `None` where the test asks for both sizes or for the other one, because then
/// the other one would change as well.
fn only_one(seen: &Observed<'_>, limit: results::Limit) -> Option<WindowSide> {
    let side = match limit {
        results::Limit::SendBuffer => WindowSide::Sender,
        _ => WindowSide::Receiver,
    };
    let asks_for_it_alone = seen.spec.window_side == Some(side);
    (seen.spec.window_bytes.is_none() || asks_for_it_alone).then_some(side)
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Modules of this folder with their source, comments left out.
    fn modules() -> Vec<(String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/limits");
        let files = fs::read_dir(folder).expect("the folder").map(|file| file.expect("one").path());
        let module = |path: std::path::PathBuf| {
            let text = fs::read_to_string(&path).expect("a source file");
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, code.collect::<Vec<_>>().join("\n"))
        };
        files.map(module).collect()
    }

    fn mechanisms() -> Vec<(String, String)> {
        let mut all = modules();
        all.retain(|(_, code)| code.contains("impl Mechanism for"));
        all
    }

    /// Each use of another mechanism's module in `code`: `use super::loss…`, `loss::law(…)`.
    fn uses<'a>(code: &str, others: &[&'a str]) -> Vec<&'a str> {
        let words = |line: &str| -> Vec<String> {
            let split = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            split.map(str::to_owned).collect()
        };
        let names = |other: &&&str| {
            let (within, below) = (format!("{other}::"), format!("::{other}"));
            words(code).iter().any(|word| {
                let part = word.as_str();
                part.starts_with(&within)
                    || part.contains(&format!("::{within}"))
                    || part.ends_with(&below) && part.starts_with("super")
            })
        };
        others.iter().filter(names).copied().collect()
    }

    /// What several limits need (a sign, a stage, an experiment) stands in a module that is no limit's, so no limit
    /// can come to read how much another one weighs.
    #[test]
    fn no_mechanism_reads_another_ones_opinion() {
        let mechanisms = mechanisms();
        assert!(mechanisms.len() >= 20, "only {} modules", mechanisms.len());
        for (name, code) in &mechanisms {
            let others: Vec<&str> =
                mechanisms.iter().map(|(other, _)| other.as_str()).filter(|o| o != name).collect();
            let used = uses(code, &others);
            assert!(used.is_empty(), "{name} reads {used:?}");
            for word in [".weigh(seen", "opinions(", "mechanism::of("] {
                assert!(!code.contains(word), "{name} asks for an opinion: {word}");
            }
        }
        // Nor through what this module hands on.
        let own = include_str!("limits.rs");
        for (name, _) in &mechanisms {
            let handed = own.lines().filter(|line| line.contains(&format!(" use {name}::")));
            let is_type = |word: &str| word.starts_with(char::is_uppercase);
            for line in handed {
                let words = line.rsplit("::").next().unwrap_or("").split([',', ' ', '{', '}', ';']);
                assert!(words.filter(|word| !word.is_empty()).all(is_type), "{line}");
            }
        }
    }

    /// Signs, stages and experiments are no limit's, and know of none.
    #[test]
    fn what_limits_share_reads_no_limit() {
        let mechanisms = mechanisms();
        let names: Vec<&str> = mechanisms.iter().map(|(name, _)| name.as_str()).collect();
        for (name, code) in modules() {
            if !names.contains(&name.as_str()) {
                let used = uses(&code, &names);
                assert!(used.is_empty(), "{name} reads {used:?}");
            }
        }
    }

    /// Modules that several limits share and that read figures of the judged test from `Observed`, not as symptoms. One
    /// that reads symptoms alone leaves the list; none may come to it, and no limit's own module may. What a module
    /// quotes of a host's own account (which core, which group, which queue) is no figure here.
    const READ_FIGURES: [&str; 1] = ["causes"];

    #[test]
    fn limits_read_symptoms_and_no_other_figures() {
        let figures = [".flow.", ".wait_share", ".run_share", "receiver_fullness("];
        let mut reading: Vec<String> = modules()
            .into_iter()
            .filter(|(_, code)| figures.iter().any(|figure| code.contains(figure)))
            .map(|(name, _)| name)
            .collect();
        reading.sort_unstable();
        assert_eq!(reading, READ_FIGURES);
    }

    #[test]
    fn a_use_of_another_limit_is_noticed() {
        let others = ["loss", "policer"];
        let noticed = |code: &str| uses(code, &others);
        assert_eq!(noticed("use super::loss::law;"), ["loss"]);
        assert_eq!(noticed("let share = loss::law(seen);"), ["loss"]);
        assert_eq!(noticed("use super::policer;"), ["policer"]);
        assert_eq!(noticed("1.0 - super::policer::weight(seen)"), ["policer"]);
        assert!(noticed("use super::losses::law; let loss = law(seen);").is_empty());
    }
}
