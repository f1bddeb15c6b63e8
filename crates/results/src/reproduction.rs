//! A paper's figure beside this machine's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One reproduced experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reproduction {
    /// `C-fig6`.
    pub id: String,
    /// What the paper's figure or table shows.
    pub title: String,
    /// The paper, and the place in it.
    pub source: String,
    /// The paper's figures beside ours.
    pub figures: Vec<PaperFigure>,
    /// Whether the law holds here.
    pub law: LawCheck,
}

/// One figure of the paper beside ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PaperFigure {
    /// Name of the figure, with its unit.
    pub name: String,
    /// The paper's, as printed there.
    pub paper: String,
    /// Ours, with its spread; absent when it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub here: Option<String>,
}

/// A law and whether it holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LawCheck {
    /// The law, in words.
    pub law: String,
    /// Whether the measured points obey it; absent when they cannot say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub holds: Option<bool>,
    /// How the law was judged, figures included.
    pub judged: String,
}
