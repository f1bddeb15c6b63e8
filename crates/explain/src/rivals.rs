//! What a second candidate predicts for the experiment on the first. An experiment decides between two limits only
//! where they predict different outcomes.

use results::{End, Limit, WindowSide};

use crate::change::Change;
use crate::experiment::{Experiment, Prediction, Rule};
use crate::thresholds::Factors;
use crate::thresholds::rivals as factor;

/// A limit that stands beside the one that is put to the test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Other {
    pub(crate) limit: Limit,
    pub(crate) end: Option<End>,
    /// Whether both ends share their cores, so that each pays for the other's work.
    pub(crate) shares_cores: bool,
}

/// What a limit lies in, as far as experiments tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The amount in flight that the ends allow.
    Window,
    /// A rate that each stream keeps for itself.
    Stream,
    /// The congestion window, held down by losses or other signals, or by itself.
    Signals,
    /// A queue of a host that drops.
    Drops,
    /// A rate that all streams share.
    Rate,
    /// The processor time of an end's threads.
    Threads,
    /// The work for each packet.
    Packets,
}

fn stage(limit: Limit) -> Option<Stage> {
    Some(match limit {
        Limit::ReceiveWindow | Limit::SendBuffer => Stage::Window,
        Limit::Pacing | Limit::SendingApplication | Limit::ReceivingApplication => Stage::Stream,
        Limit::Loss
        | Limit::LossRecovery
        | Limit::CongestionControl
        | Limit::EcnMarks
        | Limit::Reordering
        | Limit::Policer => Stage::Signals,
        Limit::Qdisc | Limit::SoftnetBacklog | Limit::RingOverrun => Stage::Drops,
        Limit::LinkRate
        | Limit::Shaper
        | Limit::Pcie
        | Limit::ReturnPath
        | Limit::CrossTraffic
        | Limit::MemoryBandwidth => Stage::Rate,
        Limit::SenderCore
        | Limit::ReceiverCore
        | Limit::Scheduler
        | Limit::CpuQuota
        | Limit::Steal
        | Limit::IdleStates
        | Limit::CpuFrequency
        | Limit::Placement => Stage::Threads,
        Limit::InterruptCore | Limit::PathMtu | Limit::Offloads => Stage::Packets,
        _ => return None,
    })
}

/// Whether the outcome of an experiment decides between its limit and the other one. `rate`: throughput before it,
/// bit/s.
pub(crate) fn separates(experiment: &Experiment, rate: f64, other: Other) -> bool {
    let lies_in = stage(other.limit);
    match experiment.rule {
        // Nothing else loses datagrams at a moderate rate, but what loses TCP's segments or fills a queue without us.
        Rule::Loses { .. } => {
            !matches!(other.limit, Limit::Loss | Limit::LossRecovery | Limit::CrossTraffic)
                && lies_in != Some(Stage::Drops)
        }
        Rule::Reorders { .. } => other.limit != Limit::Reordering,
        Rule::Saturates => other.limit != Limit::ReturnPath,
        // A queue at any rate overflows less once packets are spaced.
        Rule::Calms => {
            !matches!(lies_in, None | Some(Stage::Drops | Stage::Rate))
                && other.limit != Limit::Policer
        }
        _ => predicted(&experiment.change, rate, other)
            .is_some_and(|predicted| are_apart(experiment.predicted, predicted)),
    }
}

/// Whether neither of two predictions allows what the other expects.
fn are_apart(one: Prediction, other: Prediction) -> bool {
    let allows = |prediction: Prediction, rate: f64| {
        (prediction.low_bits_per_s..=prediction.high_bits_per_s).contains(&rate)
    };
    !allows(one, other.expected_bits_per_s) && !allows(other, one.expected_bits_per_s)
}

/// Throughput that a limit predicts for a change that another one asked for; `None` where it predicts none.
pub(crate) fn predicted(change: &Change, rate: f64, other: Other) -> Option<Prediction> {
    let Factors { low, high } = factors(change, rate, other)?;
    Some(Prediction::new(rate * low, rate * (low * high).sqrt(), rate * high))
}

fn factors(change: &Change, rate: f64, other: Other) -> Option<Factors> {
    let Other { limit, end, shares_cores } = other;
    let lies_in = stage(limit)?;
    let at_end = |of: End| shares_cores || end.is_none_or(|end| end == of);
    let is_host = matches!(lies_in, Stage::Threads | Stage::Packets);
    Some(match change {
        Change::Window { side, from_bytes, to_bytes, .. } => {
            let gain = *to_bytes as f64 / (*from_bytes as f64).max(1.0);
            of_window(lies_in, limit, *side, gain)
        }
        Change::MoreStreams { from_count, to_count } => {
            let times = f64::from(*to_count) / f64::from((*from_count).max(1));
            of_streams(lies_in, limit, times)
        }
        Change::LiftOfferedRate { .. } if limit == Limit::SendingApplication => factor::LIFTED,
        Change::LiftReadRate { .. } if limit == Limit::ReceivingApplication => factor::LIFTED,
        Change::LiftPacing { .. } if limit == Limit::Pacing => factor::LIFTED,
        Change::LiftOfferedRate { .. }
        | Change::LiftReadRate { .. }
        | Change::LiftPacing { .. } => factor::SAME,
        Change::MoveCores { end, .. } if is_host && at_end(*end) => factor::MOVED_CORES,
        Change::MoveCores { .. } => factor::NEARLY_SAME,
        Change::SendPath(_) | Change::ReceivePath(_) => {
            let of = if matches!(change, Change::SendPath(_)) { SENDS } else { READS };
            // Which end sends is not known here: the cores' own limits say it.
            let is_other_core = !shares_cores
                && matches!(limit, Limit::SenderCore | Limit::ReceiverCore)
                && limit != of;
            if is_host && !is_other_core {
                factor::ANOTHER_SOCKET_PATH
            } else {
                factor::NEARLY_SAME
            }
        }
        Change::Block { .. } => match lies_in {
            Stage::Threads => factor::DEARER_BYTES,
            Stage::Packets if shares_cores => factor::DEARER_BYTES_BESIDE,
            _ => factor::SAME,
        },
        Change::SmallerSegments { .. } => match lies_in {
            Stage::Packets | Stage::Threads => factor::TWICE_THE_PACKETS,
            Stage::Signals | Stage::Drops => factor::HALF_THE_SEGMENTS,
            _ if limit == Limit::ReturnPath => factor::HALF_THE_SEGMENTS,
            _ => factor::MORE_HEADERS,
        },
        Change::LiftMss { .. } => match lies_in {
            Stage::Packets | Stage::Threads | Stage::Signals => factor::LARGER_SEGMENTS,
            _ => factor::NEARLY_SAME,
        },
        Change::CongestionControl { .. } => match lies_in {
            Stage::Signals | Stage::Drops => factor::LIFTED,
            _ if limit == Limit::CrossTraffic => factor::LIFTED,
            _ => factor::NEARLY_SAME,
        },
        Change::Omit { .. } if limit == Limit::CongestionControl => factor::LIFTED,
        Change::Omit { .. } => factor::NEARLY_SAME,
        Change::PaceAt { bits_per_s } => factor::PACED.times(bits_per_s / rate),
        Change::UdpAtRate { bits_per_s, .. } | Change::UdpSpaced { bits_per_s, .. } => {
            of_datagrams(lies_in, limit, bits_per_s / rate)
        }
        Change::UdpAgainst { .. } => return None,
    })
}

/// Of windows so many times as large, at one side or at both.
fn of_window(lies_in: Stage, limit: Limit, side: Option<WindowSide>, gain: f64) -> Factors {
    let is_left_alone = match side {
        None => false,
        Some(WindowSide::Sender) => limit != Limit::SendBuffer,
        Some(WindowSide::Receiver) => limit != Limit::ReceiveWindow,
    };
    let follows = factor::WINDOW_FOLLOWED.times(gain);
    match lies_in {
        Stage::Window if is_left_alone => factor::SAME,
        // A wider one may meet the next ceiling at once.
        Stage::Window if gain > 1.0 => Factors { low: factor::LIFTED.low, ..follows },
        Stage::Window => follows,
        _ => factor::SAME,
    }
}

/// Of so many times the streams.
fn of_streams(lies_in: Stage, limit: Limit, times: f64) -> Factors {
    match (lies_in, limit) {
        (_, Limit::CrossTraffic) => Factors::new(factor::STREAMS_OF_OTHERS, times),
        (_, Limit::Policer) | (Stage::Drops | Stage::Threads | Stage::Packets, _) => {
            Factors::new(factor::STREAMS_OF_HOSTS, times)
        }
        (Stage::Rate, _) => factor::SAME,
        (Stage::Window | Stage::Stream | Stage::Signals, _) => {
            let Factors { low, high } = factor::STREAMS_OF_EACH;
            Factors::new(low, times * high)
        }
    }
}

/// Of UDP offered at so many times the rate: it knows no windows and no congestion control, so it passes what held TCP
/// back.
fn of_datagrams(lies_in: Stage, limit: Limit, offered: f64) -> Factors {
    match (lies_in, limit) {
        (_, Limit::Policer) => factor::UDP_OF_POLICER,
        (_, Limit::CrossTraffic) => factor::UDP_OF_OTHERS,
        (_, Limit::ReturnPath) => Factors::new(offered * factor::UDP_OF_RETURN, offered),
        (Stage::Rate, _) => factor::UDP_OF_RATE,
        (Stage::Threads | Stage::Packets, _) => Factors::new(factor::UDP_OF_HOSTS, offered),
        (Stage::Signals | Stage::Drops, _) => {
            Factors::new(offered * factor::UDP_OF_LOSSES, offered)
        }
        (Stage::Window | Stage::Stream, _) => factor::UDP_OF_WINDOWS.times(offered),
    }
}

const SENDS: Limit = Limit::SenderCore;
const READS: Limit = Limit::ReceiverCore;

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 1e9;

    fn other(limit: Limit) -> Other {
        Other { limit, end: None, shares_cores: false }
    }

    fn experiment(
        limit: Limit,
        change: Change,
        (low, expected, high): (f64, f64, f64),
        rule: Rule,
    ) -> Experiment {
        let predicted = Prediction::new(RATE * low, RATE * expected, RATE * high);
        Experiment { limit, change, predicted, rule }
    }

    #[test]
    fn half_a_window_tells_a_window_from_a_rate_and_one_side_from_the_other() {
        let change = |side| Change::Window {
            side,
            from_bytes: 1 << 20,
            to_bytes: 1 << 19,
            ask_bytes: 1 << 18,
        };
        let half = experiment(
            Limit::ReceiveWindow,
            change(None),
            (0.4, 0.5, 0.6),
            Rule::FollowsReceiveWindow,
        );
        for (limit, is_told) in [
            (Limit::Shaper, true),
            (Limit::Loss, true),
            (Limit::SenderCore, true),
            (Limit::Pacing, true),
            (Limit::SendBuffer, false),
        ] {
            assert_eq!(separates(&half, RATE, other(limit)), is_told, "{limit:?}");
        }
        // The receiver's alone leaves the send buffer as it is.
        let alone = Experiment { change: change(Some(WindowSide::Receiver)), ..half };
        assert!(separates(&alone, RATE, other(Limit::SendBuffer)));
    }

    #[test]
    fn more_streams_tell_no_limit_of_a_stream_from_another() {
        let change = Change::MoreStreams { from_count: 1, to_count: 4 };
        let more = experiment(Limit::Loss, change, (1.25, 4.0, 5.2), Rule::Scales);
        for (limit, is_told) in [
            (Limit::Shaper, true),
            (Limit::CongestionControl, false),
            (Limit::ReceiveWindow, false),
            (Limit::Qdisc, false),
        ] {
            assert_eq!(separates(&more, RATE, other(limit)), is_told, "{limit:?}");
        }
    }

    #[test]
    fn blocks_cost_both_ends_so_they_tell_no_core_from_the_other() {
        let change = Change::Block { to_bytes: 8192 };
        let dearer =
            experiment(Limit::SenderCore, change, (0.2, 0.6, 0.9), Rule::FollowsCost(End::Near));
        assert!(separates(&dearer, RATE, other(Limit::Shaper)));
        assert!(!separates(&dearer, RATE, other(Limit::ReceiverCore)));
    }

    #[test]
    fn a_cheaper_way_to_the_socket_tells_the_ends_apart_only_on_cores_of_their_own() {
        let change = Change::SendPath(results::SendPath::Sendfile);
        let cheaper = experiment(Limit::SenderCore, change, (1.05, 1.5, 2.0), Rule::Lifts);
        let receiver = other(Limit::ReceiverCore);
        assert!(separates(&cheaper, RATE, receiver));
        assert!(!separates(&cheaper, RATE, Other { shares_cores: true, ..receiver }));
    }

    #[test]
    fn udp_at_half_the_rate_tells_losses_from_all_that_loses_nothing() {
        let change = Change::UdpAtRate { bits_per_s: RATE / 2.0, datagram_bytes: 1400 };
        let rule = Rule::Loses { low_share: 0.001 };
        let half = experiment(Limit::Loss, change, (0.25, 0.5, 0.5), rule);
        assert!(separates(&half, RATE, other(Limit::Policer)));
        assert!(separates(&half, RATE, other(Limit::CongestionControl)));
        assert!(!separates(&half, RATE, other(Limit::RingOverrun)));
    }

    /// Whatever a limit predicts for its own experiment, another of the same kind is never told from it by streams.
    #[test]
    fn every_limit_of_a_path_predicts_something_for_more_streams() {
        let change = Change::MoreStreams { from_count: 1, to_count: 4 };
        for limit in Limit::ALL {
            let told = predicted(&change, RATE, other(limit));
            assert_eq!(told.is_some(), limit != Limit::NoneFound, "{limit:?}");
        }
    }
}
