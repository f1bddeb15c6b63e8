//! Gates: requirements on the figures of a run, as options of the verbs that measure.

mod figure;
mod judge;

use std::fmt;

use results::{Protocol, TestSpec};
use thiserror::Error;

use figure::{Known, Work};
pub use judge::Judged;

/// The verb whose figures are judged: each has its own names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatedVerb {
    /// `clearstream test`.
    Test,
    /// `clearstream path`.
    Path,
    /// `clearstream io`.
    Io,
    /// `clearstream meta`.
    Meta,
}

/// One requirement.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// The option as typed.
    text: String,
    demand: Demand,
}

#[derive(Debug, Clone, PartialEq)]
enum Demand {
    /// The median of a figure's repeats lies at or beyond a value.
    Figure { known: &'static Known, work: Work, bound: Bound, value: f64 },
    /// Something holds in every repeat.
    Requirement(Requirement, Work),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// `--fail-below`.
    AtLeast,
    /// `--fail-above`.
    AtMost,
}

/// What `--require` can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requirement {
    NoLoss,
    NoReordering,
    NoRetransmissions,
    NoFailedCalls,
    Confirmed,
    Complete,
    Verified,
}

/// Why an option is no gate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GateError {
    /// No figure of that name.
    #[error("'{name}' is not a figure of {verb}; known: {known}")]
    UnknownFigure {
        /// What was typed.
        name: String,
        /// The verb.
        verb: GatedVerb,
        /// The names there are.
        known: String,
    },
    /// No test or phase of that name.
    #[error("'{name}' is no {what} of {verb}; known: {known}")]
    UnknownWork {
        /// What was typed.
        name: String,
        /// `test`, `phase`.
        what: &'static str,
        /// The verb.
        verb: GatedVerb,
        /// The names there are.
        known: String,
    },
    /// No requirement of that name.
    #[error("'{name}' is not a requirement of {verb}; known: {known}")]
    UnknownRequirement {
        /// What was typed.
        name: String,
        /// The verb.
        verb: GatedVerb,
        /// The names there are.
        known: String,
    },
    /// A bare value where a figure must be named.
    #[error("'{0}' names no figure; write FIGURE=VALUE, for example {1}")]
    NoFigure(String, &'static str),
    /// The value cannot be read.
    #[error("{figure}: {why}")]
    Value {
        /// Name of the figure.
        figure: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A test of these options measures no such thing.
    #[error("{gate}: this test does not measure it: {why}")]
    NotOfTest {
        /// The option as typed.
        gate: String,
        /// What does measure it.
        why: &'static str,
    },
}

impl Gate {
    /// `--fail-below [[TEST:]FIGURE=]VALUE`; without a figure the throughput.
    ///
    /// # Errors
    /// [`GateError`] with the names there are.
    pub fn fail_below(verb: GatedVerb, text: &str) -> Result<Self, GateError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), value),
            None => match text.rsplit_once(':') {
                Some((work, value)) => (format!("{work}:{}", figure::THROUGHPUT), value),
                None => (figure::THROUGHPUT.to_owned(), text),
            },
        };
        Self::figure(verb, "--fail-below", Bound::AtLeast, (text, &name, value))
    }

    /// `--fail-above [TEST:]FIGURE=VALUE`.
    ///
    /// # Errors
    /// [`GateError`] with the names there are.
    pub fn fail_above(verb: GatedVerb, text: &str) -> Result<Self, GateError> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(GateError::NoFigure(text.to_owned(), verb.example()));
        };
        Self::figure(verb, "--fail-above", Bound::AtMost, (text, name, value))
    }

    /// `--require NAME`.
    ///
    /// # Errors
    /// [`GateError`] with the names there are.
    pub fn require(verb: GatedVerb, name: &str) -> Result<Self, GateError> {
        let known = Requirement::of(verb);
        let found = known.iter().find(|one| one.name() == name);
        let unknown = || GateError::UnknownRequirement {
            name: name.to_owned(),
            verb,
            known: known.iter().map(|one| one.name()).collect::<Vec<_>>().join(", "),
        };
        let requirement = *found.ok_or_else(unknown)?;
        let demand = Demand::Requirement(requirement, requirement.work(verb));
        Ok(Self { text: format!("--require {name}"), demand })
    }

    /// Round trips of the idle path that it takes to judge this gate: more for the tail of the distribution.
    #[must_use]
    pub fn idle_round_trips_min(&self) -> u64 {
        match &self.demand {
            Demand::Figure { known, work: Work::IdlePath | Work::OrIdlePath, .. } => {
                judge::percentile_of(known)
                    .map_or(0, |(_, percentile)| stats::percentile_count_min(percentile))
            }
            _ => 0,
        }
    }

    /// Refuses a gate of the verb `test` on what a test of these options never measures, so that it could
    /// only be missed.
    ///
    /// # Errors
    /// [`GateError::NotOfTest`].
    pub fn check(&self, spec: &TestSpec) -> Result<(), GateError> {
        let is_bulk = spec.request_response.is_none();
        let of = |protocol: Protocol| is_bulk && spec.protocol == protocol;
        let (can, why) = match &self.demand {
            Demand::Requirement(Requirement::NoRetransmissions, _) => {
                (of(Protocol::Tcp), judge::TCP_ABSENT)
            }
            Demand::Requirement(Requirement::NoReordering, _) => {
                (of(Protocol::Udp), judge::UDP_ABSENT)
            }
            Demand::Requirement(Requirement::NoLoss, _) => {
                (spec.protocol == Protocol::Udp, judge::LOSS_ABSENT)
            }
            Demand::Requirement(..) => (true, ""),
            Demand::Figure { known, .. } => (
                match known.name {
                    figure::THROUGHPUT => is_bulk,
                    "retransmissions" => of(Protocol::Tcp),
                    "loss" | "reordering" | "jitter" => of(Protocol::Udp),
                    "transactions" => !is_bulk,
                    _ => true,
                },
                known.absent,
            ),
        };
        let refused = || GateError::NotOfTest { gate: self.text.clone(), why };
        if can { Ok(()) } else { Err(refused()) }
    }

    fn figure(
        verb: GatedVerb,
        option: &str,
        bound: Bound,
        (text, name, value): (&str, &str, &str),
    ) -> Result<Self, GateError> {
        let (work, name) = match name.rsplit_once(':') {
            Some((work, name)) => (Some(Work::named(verb, work)?), name),
            None => (None, name),
        };
        let known = figure::find(verb, name)?;
        let value = known
            .quantity
            .parse(value.trim())
            .map_err(|why| GateError::Value { figure: known.name, why })?;
        let work = work.unwrap_or(known.work);
        let demand = Demand::Figure { known, work, bound, value };
        Ok(Self { text: format!("{option} {text}"), demand })
    }
}

impl Requirement {
    /// What can be required of a verb.
    fn of(verb: GatedVerb) -> &'static [Self] {
        match verb {
            GatedVerb::Test => {
                &[Self::NoLoss, Self::NoReordering, Self::NoRetransmissions, Self::Complete]
            }
            GatedVerb::Path => &[
                Self::NoLoss,
                Self::NoReordering,
                Self::NoRetransmissions,
                Self::Confirmed,
                Self::Complete,
            ],
            GatedVerb::Io => &[Self::Verified],
            GatedVerb::Meta => &[Self::Verified, Self::NoFailedCalls],
        }
    }

    /// The tests of `path` are made to find limits: only those count that show what the path does unforced.
    fn work(self, verb: GatedVerb) -> Work {
        match (verb, self) {
            (GatedVerb::Path, Self::NoRetransmissions) => Work::Of("single-stream"),
            (GatedVerb::Path, Self::NoLoss | Self::NoReordering) => Work::Of("udp"),
            _ => Work::Every,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::NoLoss => "no-loss",
            Self::NoReordering => "no-reordering",
            Self::NoRetransmissions => "no-retransmissions",
            Self::NoFailedCalls => "no-failed-calls",
            Self::Confirmed => "confirmed",
            Self::Complete => "complete",
            Self::Verified => "verified",
        }
    }
}

impl GatedVerb {
    /// Of `--fail-above`.
    fn example(self) -> &'static str {
        match self {
            Self::Test | Self::Path => "rtt_p99=5ms",
            Self::Io | Self::Meta => "latency_p99=5ms",
        }
    }
}

impl fmt::Display for GatedVerb {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Test => "test",
            Self::Path => "path",
            Self::Io => "io",
            Self::Meta => "meta",
        })
    }
}

#[cfg(test)]
mod tests;
