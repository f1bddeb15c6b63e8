//! Advice to the user, with what it asks for as a value, so that an experiment can speak against it.

use crate::change::Change;

/// One line of advice.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The line.
    pub text: String,
    /// The change to a test that it recommends; `None` if no test can make it.
    pub change: Option<Change>,
}

impl Advice {
    /// Lines that no test can try.
    pub(crate) fn all(lines: Vec<String>) -> Vec<Self> {
        lines.into_iter().map(Self::from).collect()
    }

    /// A line that recommends `change`.
    pub(crate) fn of(change: Change, text: impl Into<String>) -> Self {
        Self { text: text.into(), change: Some(change) }
    }

    /// Whether a test with the same change gained nothing.
    pub(crate) fn is_refuted(&self, fruitless: &[Change]) -> bool {
        let Some(change) = &self.change else { return false };
        fruitless.iter().any(|tried| tried.is_like(change))
    }
}

impl From<String> for Advice {
    fn from(text: String) -> Self {
        Self { text, change: None }
    }
}

#[cfg(test)]
mod tests {
    use results::SendPath;

    use super::*;

    #[test]
    fn advice_is_refuted_by_its_own_change_alone() {
        let streams = |to_count| Change::MoreStreams { from_count: 1, to_count };
        let advice = Advice::of(streams(4), "use several streams");
        assert!(advice.is_refuted(&[streams(8)]), "any number of streams is several");
        assert!(!advice.is_refuted(&[Change::SendPath(SendPath::Sendfile)]));
        let sendfile = Advice::of(Change::SendPath(SendPath::Sendfile), "sendfile");
        assert!(!sendfile.is_refuted(&[Change::SendPath(SendPath::Zerocopy)]));
        assert!(!Advice::from("several streams".to_owned()).is_refuted(&[streams(4)]));
    }
}
