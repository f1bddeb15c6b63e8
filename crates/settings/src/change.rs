//! A change of a setting.

use serde::{Deserialize, Serialize};

use crate::key::Key;

/// A change to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The setting.
    pub key: Key,
    /// The value the change was planned for; a host where it is another by now is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The value to write.
    pub to: String,
    /// Why, in one line.
    #[serde(default)]
    pub why: String,
    /// Where that is documented.
    #[serde(default)]
    pub source: String,
}

impl Change {
    /// A change of `key` to `to`, from a value that is not known, with no reason given.
    #[must_use]
    pub fn new(key: Key, to: impl Into<String>) -> Self {
        Self { key, from: None, to: to.into(), why: String::new(), source: String::new() }
    }

    /// The same change, planned for a host where the setting is `from`.
    #[must_use]
    pub fn from_value(self, from: Option<String>) -> Self {
        Self { from, ..self }
    }

    /// The same change with its reason and where that is documented.
    #[must_use]
    pub fn because(self, why: impl Into<String>, source: impl Into<String>) -> Self {
        Self { why: why.into(), source: source.into(), ..self }
    }

    /// The change that takes this one back; `None` where the value before is not known.
    #[must_use]
    pub fn undone(&self) -> Option<Self> {
        let from = self.from.clone()?;
        Some(Self { from: Some(self.to.clone()), to: from, ..self.clone() })
    }
}
