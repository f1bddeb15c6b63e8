//! Experiments that try to prove a verdict wrong.

use results::{CONFIRMATION, End, Limit, TestSpec};
use units::show_bit_rate;

use crate::change::Change;

/// A change, and what a limit predicts of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The limit on trial.
    pub limit: Limit,
    /// The one thing to change.
    pub change: Change,
    /// What the limit predicts.
    pub predicted: Prediction,
    /// How the outcome decides.
    pub rule: Rule,
}

/// Throughput a limit predicts for the changed test, bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// At least.
    pub low_bits_per_s: f64,
    /// Most likely.
    pub expected_bits_per_s: f64,
    /// At most.
    pub high_bits_per_s: f64,
}

/// What confirms and what refutes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// Only this limit was lifted: any gain beyond the noise confirms, none refutes.
    Lifts,
    /// Only this limit is eased, if there is anything better to have: a gain beyond the noise
    /// confirms, none decides nothing.
    Eases,
    /// Throughput follows the window the kernel really gave, in either direction.
    FollowsReceiveWindow,
    /// Throughput follows the send buffer the kernel really gave, in either direction.
    FollowsSendBuffer,
    /// Each byte costs the end's threads more processor time: throughput falls in proportion if that
    /// is what binds, and not at all if there was time to spare.
    FollowsCost(End),
    /// Several limits give way to this change, so the gain must reach the prediction's low end.
    Scales,
    /// A rate below the hosts does not move, whatever is thrown at it: a gain beyond the
    /// prediction's high end refutes.
    Stays,
    /// Each byte costs more packets: throughput falls with them if a packet's cost is what binds.
    /// No fall decides nothing, as super-segments may hide the packets.
    FollowsPackets,
    /// Spaced packets at about the same throughput overflow no queue: the losses go away. If they
    /// stay, they are not a queue's.
    Calms,
    /// UDP well below the measured rate comes out of order, at least this share, and is not lost.
    Reorders {
        /// Least share of datagrams that come late, 0 to 1.
        low_share: f64,
    },
    /// UDP well below the measured rate still loses datagrams on the path, at least this share.
    Loses {
        /// Least share of datagrams lost, 0 to 1.
        low_share: f64,
    },
}

impl Experiment {
    /// Name of the experiment its points belong to: `confirm:receive-window`.
    #[must_use]
    pub fn point_name(&self) -> String {
        point_name(self.limit)
    }

    /// The test to run, from the test that was judged.
    #[must_use]
    pub fn spec(&self, judged: &TestSpec) -> TestSpec {
        self.change.apply(judged)
    }

    /// What result would confirm the limit, in words.
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

    /// What result would refute it, in words.
    #[must_use]
    pub fn refutes(&self) -> String {
        let Prediction { low_bits_per_s: low, high_bits_per_s: high, .. } = self.predicted;
        match self.rule {
            Rule::Lifts => "no gain beyond the noise".to_owned(),
            Rule::Eases => "nothing: there may be no better place".to_owned(),
            Rule::FollowsReceiveWindow | Rule::FollowsSendBuffer => {
                "another window without another throughput".to_owned()
            }
            Rule::FollowsCost(_) => "the same throughput at a higher cost".to_owned(),
            Rule::FollowsPackets => "nothing: super-segments may hide the packets".to_owned(),
            Rule::Calms => "as many losses as before".to_owned(),
            Rule::Reorders { .. } => "datagrams come in order, or are lost".to_owned(),
            Rule::Scales => format!("less than {}", show_bit_rate(low)),
            Rule::Stays => format!("more than {}", show_bit_rate(high)),
            Rule::Loses { .. } => "no datagrams lost on the path".to_owned(),
        }
    }
}

/// Name of the experiment that confirms a limit.
#[must_use]
pub fn point_name(limit: Limit) -> String {
    format!("{CONFIRMATION}{}", limit.name())
}

impl Prediction {
    /// From `low` to `high`, `expected` between; bit/s.
    pub(crate) fn new(low: f64, expected: f64, high: f64) -> Self {
        let expected_bits_per_s = expected.max(low).min(high);
        Self { low_bits_per_s: low, expected_bits_per_s, high_bits_per_s: high }
    }
}
