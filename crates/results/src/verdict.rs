//! The verdict: which link of the chain binds, how we know, and what to do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spec::End;

/// What can bind a path. Later versions add; none is ever renamed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Limit {
    /// The receiver's window (configured, clamped or tuned too small) over the round-trip time.
    ReceiveWindow,
    /// The sender's socket buffer.
    SendBuffer,
    /// Packets are lost and the congestion window pays for it.
    Loss,
    /// The congestion window without loss: ramp, or the algorithm's choice.
    CongestionControl,
    /// The sending core has no time left.
    SenderCore,
    /// The receiving core has no time left.
    ReceiverCore,
    /// The line rate of an interface.
    LinkRate,
    /// A rate below the line's, imposed on a host or on the path.
    Shaper,
    /// The sending application offers no more.
    SendingApplication,
    /// The receiving application reads no faster.
    ReceivingApplication,
    /// Nothing measured explains the figure.
    NoneFound,
}

impl Limit {
    /// Every limit, in the order of the documentation.
    pub const ALL: [Self; 11] = [
        Self::ReceiveWindow,
        Self::SendBuffer,
        Self::Loss,
        Self::CongestionControl,
        Self::SenderCore,
        Self::ReceiverCore,
        Self::LinkRate,
        Self::Shaper,
        Self::SendingApplication,
        Self::ReceivingApplication,
        Self::NoneFound,
    ];

    /// The name in JSON and on the terminal.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReceiveWindow => "receive-window",
            Self::SendBuffer => "send-buffer",
            Self::Loss => "loss",
            Self::CongestionControl => "congestion-control",
            Self::SenderCore => "sender-core",
            Self::ReceiverCore => "receiver-core",
            Self::LinkRate => "link-rate",
            Self::Shaper => "shaper",
            Self::SendingApplication => "sending-application",
            Self::ReceivingApplication => "receiving-application",
            Self::NoneFound => "none-found",
        }
    }
}

/// Which link binds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The binding limit.
    pub limit: Limit,
    /// At which end it lies; absent for the path itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end: Option<End>,
    /// One sentence for people.
    pub summary: String,
    /// Figures that say so, strongest first.
    pub evidence: Vec<Evidence>,
    /// Whether changing that one thing changed the figure as predicted.
    pub confirmed: bool,
    /// The experiment that decided `confirmed`; absent when none could be run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub confirmation: Option<Confirmation>,
    /// What to change, most useful first.
    pub advice: Vec<String>,
    /// The ceiling that would come next.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<NextCeiling>,
    /// Limits that were considered and why they do not bind.
    #[serde(default)]
    pub ruled_out: Vec<Evidence>,
}

/// One line of evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The limit it speaks of.
    pub limit: Limit,
    /// The line, figures with units in it.
    pub text: String,
    /// How far that limit accounts for the figure, 0 (not at all) to 1 (wholly).
    pub weight: f64,
}

/// The experiment that tried to prove the verdict wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confirmation {
    /// What was changed, in words: `window 4.00 MiB -> 8.00 MiB`.
    pub change: String,
    /// What the verdict predicted, bit/s.
    pub predicted_bits_per_s: f64,
    /// Before the change, bit/s.
    pub before_bits_per_s: f64,
    /// After it, bit/s.
    pub after_bits_per_s: f64,
    /// What happened, in words.
    pub outcome: String,
}

/// What would bind if the binding limit were lifted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NextCeiling {
    /// The limit.
    pub limit: Limit,
    /// Where it would lie, bit/s.
    pub bits_per_s: f64,
    /// How that is known.
    pub text: String,
}
