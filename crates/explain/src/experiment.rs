//! Experiments that try to prove a verdict wrong.

use results::{CONFIRMATION, End, Limit, Point, TestSpec};
use units::show_bit_rate;

use crate::change::Change;

/// Names under which a prediction is stored with the points of its experiment.
const LOW: &str = "predicted_low_bits_per_s";
const EXPECTED: &str = "predicted_bits_per_s";
const HIGH: &str = "predicted_high_bits_per_s";

/// A change to the judged test, and the outcome that a limit predicts for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The limit to test.
    pub limit: Limit,
    /// The single change to the judged test.
    pub change: Change,
    /// Throughput that the limit predicts.
    pub predicted: Prediction,
    /// Which outcome confirms the limit, and which refutes it.
    pub rule: Rule,
}

/// Throughput that a limit predicts for the changed test, bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Lowest predicted throughput.
    pub low_bits_per_s: f64,
    /// Most likely throughput.
    pub expected_bits_per_s: f64,
    /// Highest predicted throughput.
    pub high_bits_per_s: f64,
}

/// How an outcome confirms or refutes a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// Only this limit was lifted: a gain beyond the noise confirms it, no gain refutes it.
    Lifts,
    /// Only this limit is eased, if a better setting exists at all: a gain beyond the noise confirms it,
    /// no gain decides nothing.
    Eases,
    /// Throughput follows the window that the kernel granted, up or down.
    FollowsReceiveWindow,
    /// Throughput follows the send buffer that the kernel granted, up or down.
    FollowsSendBuffer,
    /// Each byte costs the end's threads more processor time: throughput falls in proportion if their
    /// time binds, and stays the same if they had time to spare.
    FollowsCost(End),
    /// The change lifts several limits, so the gain must reach the prediction's low end.
    Scales,
    /// A rate below that of the hosts stays the same whatever is offered: a gain beyond the
    /// prediction's high end refutes it.
    Stays,
    /// Each byte costs more packets: throughput falls if the cost of a packet binds.
    /// No fall decides nothing, because super-segments may hide the packets.
    FollowsPackets,
    /// Smaller segments are lost as often, and each repair brings fewer bytes: throughput within the
    /// prediction confirms it, no fall refutes it.
    FollowsSegments,
    /// UDP in the direction of the acknowledgements, well above their rate: no more than the prediction's high
    /// end arrives. If most of it arrives, the limit is refuted.
    Saturates,
    /// Paced packets at about the same throughput overflow no queue, so losses that go away were a
    /// queue's, and losses that stay were not.
    Calms,
    /// UDP well below the measured rate arrives out of order in at least this share, and is not lost.
    Reorders {
        /// Least share of datagrams that arrive late, 0 to 1.
        low_share: f64,
    },
    /// UDP well below the measured rate still loses at least this share of its datagrams on the path.
    Loses {
        /// Least share of datagrams lost, 0 to 1.
        low_share: f64,
    },
}

impl Experiment {
    /// Experiment name of the points that it measures: `confirm:receive-window`.
    #[must_use]
    pub fn point_name(&self) -> String {
        point_name(self.limit)
    }

    /// The test to run, derived from the judged one.
    #[must_use]
    pub fn spec(&self, judged: &TestSpec) -> TestSpec {
        self.change.apply(judged)
    }

    /// The prediction, to store with each point that the experiment measures (`varied`): it is fixed before it runs.
    #[must_use]
    pub fn registration(&self) -> [(&'static str, f64); 3] {
        let Prediction { low_bits_per_s, expected_bits_per_s, high_bits_per_s } = self.predicted;
        [(LOW, low_bits_per_s), (EXPECTED, expected_bits_per_s), (HIGH, high_bits_per_s)]
    }

    /// The experiment with the prediction that was stored with its points; as it is where none was.
    pub(crate) fn as_registered(&self, points: &[Point]) -> Self {
        let stored = |point: &Point| {
            let of = |name: &str| point.varied.get(name).copied().filter(|rate| rate.is_finite());
            Some((of(LOW)?, of(EXPECTED)?, of(HIGH)?))
        };
        let same = self.clone();
        match points.first().and_then(stored) {
            Some((low, expected, high)) if low <= high => {
                Self { predicted: Prediction::new(low, expected, high), ..same }
            }
            _ => same,
        }
    }

    /// Describes the result that would confirm the limit.
    #[must_use]
    pub fn confirms(&self) -> String {
        let Prediction { low_bits_per_s: low, high_bits_per_s: high, .. } = self.predicted;
        let between = format!("{} to {}", show_bit_rate(low), show_bit_rate(high));
        match self.rule {
            Rule::Lifts | Rule::Eases => format!("a gain beyond the noise; {between} is predicted"),
            Rule::FollowsReceiveWindow => {
                format!("throughput in step with the window given; {between}")
            }
            Rule::FollowsSendBuffer => {
                format!("throughput in step with the buffer given; {between}")
            }
            Rule::FollowsCost(_) => "throughput falls as a byte's cost rises".to_owned(),
            Rule::FollowsPackets => "throughput falls as a byte's packets rise".to_owned(),
            Rule::FollowsSegments => format!("throughput falls with the segments; {between}"),
            Rule::Saturates => format!("no more than {} arrives", show_bit_rate(high)),
            Rule::Calms => format!("the losses go away at {between}"),
            Rule::Reorders { low_share } => {
                format!("at least {:.3}% of the datagrams come late", low_share * 100.0)
            }
            Rule::Scales => format!("at least {}", show_bit_rate(low)),
            Rule::Stays => format!("no more than {}", show_bit_rate(high)),
            Rule::Loses { low_share } => {
                format!("at least {:.3}% of the datagrams lost on the path", low_share * 100.0)
            }
        }
    }

    /// Describes the result that would refute the limit.
    #[must_use]
    pub fn refutes(&self) -> String {
        let Prediction { low_bits_per_s: low, high_bits_per_s: high, .. } = self.predicted;
        match self.rule {
            Rule::Lifts => "no gain beyond the noise".to_owned(),
            Rule::Eases => "nothing: no better placement may exist".to_owned(),
            Rule::FollowsReceiveWindow | Rule::FollowsSendBuffer => {
                "another window without another throughput".to_owned()
            }
            Rule::FollowsCost(_) => "the same throughput at a higher cost".to_owned(),
            Rule::FollowsPackets => "nothing: super-segments may hide the packets".to_owned(),
            Rule::FollowsSegments => "no fall beyond the noise".to_owned(),
            Rule::Saturates => "most of it arrives".to_owned(),
            Rule::Calms => "as many losses as before".to_owned(),
            Rule::Reorders { .. } => "datagrams come in order, or are lost".to_owned(),
            Rule::Scales => format!("less than {}", show_bit_rate(low)),
            Rule::Stays => format!("more than {}", show_bit_rate(high)),
            Rule::Loses { .. } => "no datagrams lost on the path".to_owned(),
        }
    }
}

/// Name of the experiment that confirms a limit: `confirm:` and the limit.
#[must_use]
pub fn point_name(limit: Limit) -> String {
    format!("{CONFIRMATION}{}", limit.name())
}

impl Prediction {
    /// A prediction from `low` to `high`, `expected` between them; all in bit/s.
    pub(crate) fn new(low: f64, expected: f64, high: f64) -> Self {
        let expected_bits_per_s = expected.max(low).min(high);
        Self { low_bits_per_s: low, expected_bits_per_s, high_bits_per_s: high }
    }
}
