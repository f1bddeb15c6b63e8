//! Thresholds that the recorded cases set, and how they set them: a range lies between what a figure is where one
//! mechanism binds and what it is where another does. Where no case shows a side, the mechanism's own prediction
//! stands in for it.

use std::ops::Index;

use results::{Limit, Results};

use super::{InWords, Ramp};
use crate::limits::{congestion_window_use, mistaken, udp_over_best, window_law_off};
use crate::observed::Observed;
use crate::symptoms::names;

/// Number of thresholds that recorded cases set.
const COUNT: usize = 9;

/// What a recorded case shows of the thresholds that cases set.
#[derive(Debug, Clone, PartialEq)]
pub struct PlantedCase {
    planted: Vec<Limit>,
    figures: [Option<f64>; COUNT],
}

impl PlantedCase {
    /// The figures of a document in which any of `planted` is the limit.
    #[must_use]
    pub fn of(planted: &[Limit], results: &Results) -> Self {
        let seen = Observed::of(results);
        let figure = |row: &Row| (row.figure)(seen.as_ref()?).filter(|figure| figure.is_finite());
        Self { planted: planted.to_vec(), figures: ROWS.each_ref().map(figure) }
    }

    fn is_on(&self, side: &Side) -> bool {
        !self.planted.is_empty() && self.planted.iter().all(|limit| side.planted.contains(limit))
    }
}

/// The thresholds that recorded cases set; by default as all of this version's cases set them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit([Ramp; COUNT]);

impl Fit {
    /// Sets the thresholds by these cases alone.
    #[must_use]
    pub fn of(cases: &[PlantedCase]) -> Self {
        let mut fit = Self::default();
        for (at, row) in ROWS.iter().enumerate() {
            let of_side = |side: &Side| -> Vec<f64> {
                let on_it = cases.iter().filter(|case| case.is_on(side));
                on_it.filter_map(|case| case.figures[at]).collect()
            };
            fit.0[at] = row.between(of_side(&row.low), of_side(&row.high));
        }
        fit
    }
}

impl Default for Fit {
    fn default() -> Self {
        Self(ROWS.each_ref().map(|row| row.recorded))
    }
}

impl Index<Fitted> for Fit {
    type Output = Ramp;

    fn index(&self, threshold: Fitted) -> &Ramp {
        &self.0[threshold as usize]
    }
}

/// A threshold that recorded cases set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fitted {
    MoreStreams,
    FilledWindow,
    UsedCwnd,
    SlowReader,
    UdpAbove,
    LateS,
    PacedOfQueue,
    Mistaken,
    WindowLawOff,
}

/// The cases on one side of a threshold.
struct Side {
    /// What was planted in them.
    planted: &'static [Limit],
    /// The figure that these mechanisms predict, where no case shows it.
    law: f64,
}

/// One in so many cases of a side may lie beyond the threshold.
const OUTLIER_IN: usize = 8;

/// How cases set one threshold.
struct Row {
    /// That of its threshold, in lower case.
    name: &'static str,
    /// What the figure is.
    why: &'static str,
    recorded: Ramp,
    figure: fn(&Observed<'_>) -> Option<f64>,
    low: Side,
    high: Side,
    /// Where the range lies in the gap between the two sides, as parts of it, and why.
    part: Ramp,
    lean: &'static str,
}

impl Row {
    /// The range between the figures of the two sides.
    fn between(&self, mut low: Vec<f64>, mut high: Vec<f64>) -> Ramp {
        low.sort_by(|a, b| b.total_cmp(a));
        high.sort_by(f64::total_cmp);
        let edge = |sorted: &[f64], law: f64| {
            sorted.get(sorted.len() / OUTLIER_IN).copied().unwrap_or(law)
        };
        let (low, high) = (edge(&low, self.low.law), edge(&high, self.high.law));
        // Sides that overlap leave what lies between them undecided.
        let (start, gap) = (low.min(high), (high - low).abs());
        let at = |part: f64| rounded(start + part * gap);
        Ramp::new(at(self.part.from), at(self.part.to))
    }
}

/// Rounded to three significant digits: finer ones are chance.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// The chapter of `docs/limits.md` on these thresholds.
pub(super) fn page() -> String {
    let mut page = String::from(PREFACE);
    for row in &ROWS {
        let Row { name, recorded, why, lean, .. } = row;
        let sides = [&row.low, &row.high].map(|side| {
            let names: Vec<&str> = side.planted.iter().map(|limit| limit.name()).collect();
            format!("{} (else {})", names.join(", "), side.law)
        });
        let [low, high] = sides;
        page += &format!("| `{name}` | {} | {why} | {low} | {high} | {lean} |\n", recorded.words());
    }
    page
}

const PREFACE: &str = "
### Set by the recorded cases

A range lies in the gap between the cases of two kinds of limits (one case in eight may lie beyond it). If there is no case for
one of them, the value that the mechanism predicts is used (`else`).

| name | value | figure | low | high | place in the gap |
|---|---|---|---|---|---|
";

/// Whether several streams met another ceiling than one: they gained, but less than their number. UDP meets it too.
fn is_next_ceiling(seen: &Observed<'_>) -> bool {
    let gain = seen.streams_gain().zip(seen.shown().path(names::STREAMS));
    gain.is_some_and(|(gain, streams)| {
        let alone = super::signs::MORE_STREAMS_AND_LOSS.to;
        (alone..super::path::STREAMS_UNSHARED * streams).contains(&gain)
    })
}

/// Limits that each stream has for itself.
const OF_A_STREAM: &[Limit] = &[
    Limit::ReceiveWindow,
    Limit::SendBuffer,
    Limit::Pacing,
    Limit::ReceivingApplication,
    Limit::CongestionControl,
    Limit::Loss,
    Limit::LossRecovery,
    Limit::Qdisc,
];

/// Rates that all streams share.
const RATES: &[Limit] = &[Limit::Shaper, Limit::LinkRate];

/// Limits under which nothing waits on the path.
const UNQUEUED: &[Limit] = &[
    Limit::ReceiveWindow,
    Limit::SendBuffer,
    Limit::Pacing,
    Limit::CongestionControl,
    Limit::Loss,
    Limit::Policer,
];

/// Limits that leave the receiver's window open.
const OPEN_WINDOW: &[Limit] = &[
    Limit::SendBuffer,
    Limit::Pacing,
    Limit::Shaper,
    Limit::LinkRate,
    Limit::Loss,
    Limit::LossRecovery,
    Limit::Policer,
    Limit::Qdisc,
    Limit::EcnMarks,
    Limit::SenderCore,
    Limit::ReceiverCore,
    Limit::Scheduler,
];

/// Limits that use up the congestion window.
const BY_CWND: &[Limit] =
    &[Limit::Loss, Limit::Policer, Limit::Qdisc, Limit::EcnMarks, Limit::CongestionControl];

/// Limits that leave room in the congestion window.
const OPEN_CWND: &[Limit] =
    &[Limit::ReceiveWindow, Limit::SendBuffer, Limit::Pacing, Limit::ReceivingApplication];

/// Limits under which the send buffer holds more than is on the way.
const DEEP_QUEUE: &[Limit] = &[
    Limit::ReceiveWindow,
    Limit::Pacing,
    Limit::Shaper,
    Limit::LinkRate,
    Limit::Loss,
    Limit::CongestionControl,
];

static ROWS: [Row; COUNT] = [
    Row {
        name: "more-streams",
        why: "several streams over one: about 1 where they share a rate, their number where each has a limit of its own",
        recorded: Ramp::new(1.1, 1.18),
        figure: |seen| seen.streams_gain(),
        low: Side { planted: RATES, law: 1.0 },
        high: Side { planted: OF_A_STREAM, law: 4.0 },
        part: Ramp::new(0.04, 0.14),
        lean: "near the rate, which predicts exactly 1; cores, drops and policers lie between",
    },
    Row {
        name: "filled-window",
        why: "data in flight over the receiver's window",
        recorded: Ramp::new(0.823, 0.944),
        figure: |seen| seen.receive_window_fill(),
        low: Side { planted: OPEN_WINDOW, law: 0.5 },
        high: Side { planted: &[Limit::ReceiveWindow], law: 1.0 },
        part: Ramp::new(0.74, 0.92),
        lean: "near the full window; averages over seconds, as iperf3 has them, show it less than full",
    },
    Row {
        name: "used-cwnd",
        why: "data in flight over the congestion window",
        recorded: Ramp::new(0.612, 0.761),
        figure: congestion_window_use,
        low: Side { planted: OPEN_CWND, law: 0.5 },
        high: Side { planted: BY_CWND, law: 1.0 },
        part: Ramp::new(0.3, 0.7),
        lean: "in the middle",
    },
    Row {
        name: "slow-reader",
        why: "unread over unread and free bytes of the receiver's socket",
        recorded: Ramp::new(0.195, 0.445),
        figure: |seen| seen.shown().receiver(names::SOCKET_FULLNESS),
        low: Side { planted: &[Limit::ReceiveWindow], law: 0.0 },
        high: Side { planted: &[Limit::ReceivingApplication], law: 1.0 },
        part: Ramp::new(0.35, 0.8),
        lean: "above the middle: a reader that keeps up leaves nothing",
    },
    Row {
        name: "udp-above",
        why: "UDP delivered over the best of TCP, where it was offered at 1.2 times that",
        recorded: Ramp::new(1.07, 1.1),
        figure: |seen| udp_over_best(seen).filter(|_| !is_next_ceiling(seen)),
        low: Side { planted: RATES, law: 1.0 },
        high: Side { planted: OF_A_STREAM, law: 1.2 },
        part: Ramp::new(0.5, 1.0),
        lean: "beyond the middle: UDP's headers are smaller, and its burst is counted",
    },
    Row {
        name: "late-s",
        why: "round trip under load less the idle one, s",
        recorded: Ramp::new(0.00582, 0.00827),
        figure: |seen| seen.shown().path(names::QUEUE_DELAY),
        low: Side { planted: UNQUEUED, law: 0.5e-3 },
        high: Side { planted: &[Limit::ReturnPath], law: 50e-3 },
        part: Ramp::new(0.05, 0.15),
        lean: "near the hosts' own delays, which vary little",
    },
    Row {
        name: "paced-of-queue",
        why: "throughput x round trip over the bytes in the send queue, under BBR",
        recorded: Ramp::new(0.536, 0.721),
        figure: |seen| seen.paced_of_queue(),
        low: Side { planted: DEEP_QUEUE, law: 0.33 },
        high: Side { planted: &[Limit::SendBuffer], law: 1.0 },
        part: Ramp::new(0.7, 1.0),
        lean: "up to the cases: a buffer that may grow holds twice what is on the way",
    },
    Row {
        name: "mistaken",
        why: "needless over all retransmissions",
        recorded: Ramp::new(0.2, 0.6),
        figure: |seen| {
            let again = seen.shown().sender_events(names::RETRANSMITTED);
            again.filter(|count| *count >= super::signs::RETRANSMITS_MIN)?;
            // A foreign receiver tells of no late datagrams, and without D-SACK nobody does.
            let is_told = seen.shown().path(names::UDP_LOST).is_none()
                || seen.shown().path(names::UDP_LOST_ON_PATH).is_some();
            Some(mistaken(seen)).filter(|mistaken| is_told || *mistaken > 0.0)
        },
        low: Side { planted: &[Limit::Loss, Limit::LossRecovery, Limit::Policer], law: 0.0 },
        high: Side { planted: &[Limit::Reordering], law: 1.0 },
        part: Ramp::new(0.2, 0.6),
        lean: "below the middle: what is needless was not lost",
    },
    Row {
        name: "window-law-off",
        why: "ln of window / RTT over throughput, its absolute value",
        recorded: Ramp::new(0.129, 0.643),
        figure: window_law_off,
        low: Side { planted: &[Limit::ReceiveWindow], law: 0.1 },
        high: Side { planted: OPEN_WINDOW, law: 1.4 },
        part: Ramp::new(0.05, 0.35),
        lean: "near the law: the start of a short test makes 0.2",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows stand in the order of the names that they are read by.
    #[test]
    fn each_threshold_is_read_by_its_name() {
        let all = [
            Fitted::MoreStreams,
            Fitted::FilledWindow,
            Fitted::UsedCwnd,
            Fitted::SlowReader,
            Fitted::UdpAbove,
            Fitted::LateS,
            Fitted::PacedOfQueue,
            Fitted::Mistaken,
            Fitted::WindowLawOff,
        ];
        for (at, threshold) in all.into_iter().enumerate() {
            assert_eq!(threshold as usize, at);
            let name = ROWS[at].name.replace('-', "");
            assert_eq!(name, format!("{threshold:?}").to_lowercase());
        }
    }

    fn case(limit: Limit, figure: f64) -> PlantedCase {
        PlantedCase { planted: vec![limit], figures: [Some(figure); COUNT] }
    }

    #[test]
    fn a_range_lies_between_the_cases_of_its_sides() {
        let shaped = case(Limit::Shaper, 1.0);
        let windowed = case(Limit::ReceiveWindow, 3.0);
        let fit = Fit::of(&[shaped.clone(), windowed.clone()]);
        assert_eq!(fit[Fitted::MoreStreams], Ramp::new(1.08, 1.28), "parts of the gap of 2");
        // What the mechanism predicts, 4 streams' worth, where no case shows it.
        assert_eq!(
            Fit::of(std::slice::from_ref(&shaped))[Fitted::MoreStreams],
            Ramp::new(1.12, 1.42)
        );
        // One case in eight may lie beyond; two in eight do not.
        let mut cases = vec![shaped; 7];
        cases.extend([case(Limit::Shaper, 2.0), windowed]);
        assert_eq!(Fit::of(&cases)[Fitted::MoreStreams], Ramp::new(1.08, 1.28));
        cases[0] = case(Limit::Shaper, 2.0);
        assert_eq!(Fit::of(&cases)[Fitted::MoreStreams], Ramp::new(2.04, 2.14));
    }

    #[test]
    fn a_case_that_may_be_of_either_side_sets_nothing() {
        let either = PlantedCase {
            planted: vec![Limit::Shaper, Limit::ReceivingApplication],
            figures: [Some(1.5); COUNT],
        };
        assert_eq!(Fit::of(&[either]), Fit::of(&[]));
    }
}
